"""Token sequences as instruments use them: checked, flat, and standardised independently of order.

Every kind of input (numbers, vectors, categories; equal lengths, ragged, masked) becomes one flat
array of tokens with the length of each sequence. `columns` then turns every token into a few
numbers,

    y      the leading principal components of standardised coordinates, whitened: at most DIMS
    s      the size of a token, for "scale": its distance from its sequence's mean in standard
           deviations; for a category its surprisal, −log of its frequency

with every sequence centred at zero and scaled to mean square one. These computations depend on the
tokens of a sequence as a set, never on their order; this keeps a permutation test exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from attnlens.core import arrays, checks
from attnlens.worlds.base import Pairs

# Maximum number of whitened components, or of most frequent categories, that are used. Dependence
# between neighbours is tested for every pair of them, so the cost grows with the square of DIMS.
DIMS = 8
EPSILON = float(np.finfo(float).eps)


class Sequences(NamedTuple):
    """Sequences of two or more tokens, concatenated."""

    kind: str  # "numbers", "vectors" or "categories"
    tokens: Float[np.ndarray, "tokens dim"]  # categories: 0/1 columns of the most frequent ones
    codes: Int[np.ndarray, " tokens"] | None  # for categories only: the codes 0, 1, … of tokens
    lengths: Int[np.ndarray, " sequences"]
    left_out: int  # number of sequences of a single token: they have no order
    labels: np.ndarray | None = None  # for categories only: the labels of codes 0, 1, …

    @property
    def starts(self) -> Int[np.ndarray, " sequences"]:
        return np.cumsum(self.lengths) - self.lengths


def read(tokens: Any, mask: Any = None) -> Sequences:
    """Return `tokens` as `Sequences`; raises `BadInput` if they are not valid.

    An array of shape (L,) is one sequence, (B, L) a batch of B sequences, and (B, L, d) a batch of
    sequences of vectors. Sequences of different lengths are given as a list of arrays of shape (L,)
    or (L, d). Integers, booleans and strings are categories; convert counts to floats if they are
    meant as numbers. `Pairs` of keys and values become vectors.
    """
    parts = _parts(tokens, mask)
    if not parts or not sum(map(len, parts)):
        raise checks.BadInput(
            "tokens must hold at least one sequence of two tokens; got none; "
            "give an array of shape (batch, length)."
        )
    kinds, shapes = {part.dtype.kind for part in parts}, {part.shape[1:] for part in parts}
    if len(shapes) > 1 or len(next(iter(shapes))) > 1:
        raise checks.BadInput(
            f"every token must be a number, a category or a vector of one size; got tokens of "
            f"shapes {', '.join(map(str, sorted(shapes)))}; give a list with one array of "
            f"shape (length,) or (length, dim) per sequence."
        )
    long = [part for part in parts if len(part) > 1]
    if not long:
        raise checks.BadInput(
            "a single token has no order, and no sequence has more than one; give sequences of "
            "two or more tokens."
        )
    lengths, left_out = np.array([len(part) for part in long]), len(parts) - len(long)
    flat = np.concatenate(long)
    if flat.ndim == 1 and kinds <= set("biuUS"):
        indicators, codes, labels = _categories(flat)
        return Sequences("categories", indicators, codes, lengths, left_out, labels)
    if not kinds <= set("biuf"):
        raise checks.BadInput(
            f"tokens must be real numbers, vectors of them or categories; got an array of type "
            f"{flat.dtype}; encode it as floats or as integers."
        )
    flat = flat.astype(float)
    if not np.isfinite(flat).all():
        place = int(np.argmax(~np.isfinite(flat.reshape(len(flat), -1)).all(1)))
        sequence = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
        token = place - int(np.cumsum(lengths)[sequence] - lengths[sequence])
        raise checks.BadInput(
            f"tokens must be finite, but token {token} of sequence {sequence} is not; leave it "
            f"out with mask=…, which is true where there is a token."
        )
    kind = "numbers" if flat.ndim == 1 or flat.shape[1] == 1 else "vectors"
    return Sequences(kind, flat.reshape(len(flat), -1), None, lengths, left_out)


def columns(
    sequences: Sequences, batches: int = 1
) -> tuple[Float[np.ndarray, "tokens dims"], Float[np.ndarray, " tokens"]]:
    """Return (y, s) of every token (see the module's docstring).

    The sequences form `batches` batches of equal size; each batch is standardised separately.
    """
    lengths, starts, tokens = sequences.lengths, sequences.starts, sequences.tokens
    # Scale tokens to at most one first, because squares of very large tokens would overflow.
    largest = np.abs(tokens).max(0)
    centred = _centred(tokens / np.where(largest > 0, largest, 1), starts, lengths)
    per_batch = centred.reshape(batches, -1, centred.shape[1])
    spread = np.sqrt((per_batch**2).mean(1, keepdims=True))
    scaled = per_batch / np.where(spread > 0, spread, 1)
    y = _rescaled(_whitened(scaled).reshape(len(centred), -1), starts, lengths)
    if sequences.codes is not None:
        size = np.log(len(centred) / np.bincount(sequences.codes))[sequences.codes][:, None]
    else:
        size = np.sqrt((scaled**2).sum(-1)).reshape(-1, 1)
    return y, _rescaled(_centred(size, starts, lengths, slack=1e6), starts, lengths)[:, 0]


def _parts(tokens: Any, mask: Any) -> list[np.ndarray]:
    """One array per sequence."""
    if isinstance(tokens, Pairs):
        key, value = (arrays.numbers("tokens", part) for part in tokens)
        tokens = np.concatenate([key, value], axis=-1)
    if isinstance(tokens, list | tuple) and not (tokens and np.isscalar(tokens[0])):
        if mask is not None:
            raise checks.BadInput(
                "mask needs tokens as an array of shape (batch, length); got a list of sequences; "
                "leave the tokens out of the list instead."
            )
        return [np.atleast_1d(_array(part)) for part in tokens]
    if isinstance(tokens, np.ma.MaskedArray) and mask is None:
        mask = _present(tokens)
        tokens = tokens.data
    array = _array(tokens)
    if array.ndim == 0 or array.ndim > 3:
        raise checks.BadInput(
            f"tokens must have shape (length,), (batch, length) or (batch, length, dim); got "
            f"shape {array.shape}."
        )
    rows = array[None] if array.ndim == 1 else array
    if mask is None:
        return list(rows)
    present = arrays.plain("mask", mask)
    present = present[None] if present.ndim == 1 else present
    if present.dtype != bool or present.shape != rows.shape[:2]:
        raise checks.BadInput(
            f"mask must be boolean with one entry per token, shape {rows.shape[:2]}; got "
            f"{present.dtype} of shape {present.shape}."
        )
    return [row[visible] for row, visible in zip(rows, present, strict=True)]


def _present(tokens: np.ma.MaskedArray) -> np.ndarray:
    """Return where a masked array has a token; a vector must be masked as a whole."""
    hidden = np.ma.getmaskarray(tokens)
    if hidden.ndim < 3:
        return ~hidden
    if (hidden.any(-1) != hidden.all(-1)).any():
        raise checks.BadInput(
            "tokens must be masked as a whole; got vectors of which some coordinates are masked; "
            "mask or fill all coordinates of a token."
        )
    return np.asarray(~hidden.all(-1))


def _array(tokens: Any) -> np.ndarray:
    array = arrays.plain("tokens", tokens)
    if array.dtype.kind in "OUS":
        # A list is passed as it is: NumPy has written NaN and numbers among its strings as text.
        return arrays.labels("tokens", tokens if isinstance(tokens, list | tuple) else array)
    return array


def _categories(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indicators of the most frequent categories (ties in label order), the code of every
    token, and the label of every code."""
    labels, code, counts = np.unique(flat, return_inverse=True, return_counts=True)
    # The indicators of all categories add up to one, so the last one would be redundant.
    frequent = np.argsort(-counts, kind="stable")[: min(DIMS, max(len(counts) - 1, 1))]
    return (code[:, None] == frequent).astype(float), code, labels


def _centred(
    x: np.ndarray, starts: np.ndarray, lengths: np.ndarray, slack: float = 4.0
) -> np.ndarray:
    """Return x minus the mean of its sequence, and exactly zero where a sequence is constant.

    A sequence counts as constant if it varies by at most `slack` ε of its largest entry: later
    scaling must not amplify rounding errors.
    """
    low, high = np.minimum.reduceat(x, starts), np.maximum.reduceat(x, starts)
    constant = high - low <= slack * EPSILON * np.maximum(np.abs(low), np.abs(high))
    mean = np.add.reduceat(x, starts) / lengths[:, None]
    return np.where(np.repeat(constant, lengths, 0), 0.0, x - np.repeat(mean, lengths, 0))


def _rescaled(x: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return every sequence divided by its root mean square; constant sequences stay zero."""
    square = np.add.reduceat((x**2).sum(1), starts) / lengths
    root = np.sqrt(np.where(square > 0, square, 1))
    return x / np.repeat(root, lengths)[:, None]


def _whitened(x: Float[np.ndarray, "batches tokens dim"]) -> np.ndarray:
    """The leading principal components, each of mean square one: with x = U S Vᵀ, √n U.

    They are computed from the eigenvectors of xᵀx (V and S²), or of xxᵀ (U) if there are fewer
    tokens than dimensions. Components with less than 1e−10 of the largest variance are rounding
    errors, and are set to zero.
    """
    count, dim = x.shape[1:]
    wide = dim > count
    gram = x @ x.mT if wide else x.mT @ x
    values, vectors = np.linalg.eigh(gram)
    values, vectors = values[:, None, ::-1][..., :DIMS], vectors[..., ::-1][..., :DIMS]
    real = values > 1e-10 * values[..., :1]
    factor = np.where(real, np.sqrt(count / np.where(real, values, 1)), 0)
    return vectors * np.where(real, np.sqrt(count), 0) if wide else x @ vectors * factor
