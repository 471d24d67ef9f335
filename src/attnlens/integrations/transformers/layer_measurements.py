"""Measurements of each layer of a pretrained encoder: order, tokens, attention, transfer, probe.

With h_l(x) the mean over tokens of layer l's representation of a text x:

    order      E‖h_l(x∘π) − h_l(x)‖² / E‖h_l(x) − h_l(x')‖², where π shuffles the words of x and x'
               is another text: 0 if word order has no effect (a bag of words), 1 if the shuffled
               text is as far from the original as another text is
    subsets    ‖A_S(h) − A(h)‖/‖A(h)‖: attention over a random subset S of m of the L tokens,
               compared with attention over all of them. The mean of a sample without replacement
               has variance σ²/m · (L − m)/(L − 1) (Cochran, Sampling Techniques, 1977, theorem
               2.2), so the error is divided by √((L − m)/(L − 1)). The result decreases as m^(−1/2)
               if attention is far from hardmax, and more slowly if it is near hardmax
               (token-sample-complexity, arXiv 2512.10656)
    attended   e^H/L, with H the entropy of a row of attention: the share of tokens attended to
    transfer   `condition_number` of layer l's features, with the sentence embedding as pretraining
               target and a label that pretraining did not use; LogME and the measured error too
    probe      the Hessian of a logistic probe of the label on layer l (`curvature`, exact)

Standard errors are over texts, which are independent draws. Features are leading principal
coordinates of the given texts, computed without labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from attnlens.core import checks
from attnlens.core.drawing import Surface
from attnlens.core.readings import Curve, Reading
from attnlens.core.statistics import mean_reading, slopes
from attnlens.data import Dataset
from attnlens.instruments import Supervised, condition_number, curvature
from attnlens.instruments.transfer.condition import Transfer

from .bert import Bert, masked_softmax
from .minilm import SentenceEncoder

# Number of principal coordinates of features and of the sentence embedding; with a few hundred
# texts it is below a third of their number.
COORDINATES = 32


# -- order -----------------------------------------------------------------------------------------


def permutation_sensitivity(
    encoder: SentenceEncoder, data: Dataset, *, most: int = 128, seed: int = 0
) -> Curve:
    """For each layer, the squared distance between the mean representations of a text and of the
    same text with shuffled words, divided by the squared distance between two texts.

    A text is cut to `most` tokens.
    """
    numbers, mask = encoder.read(data, most)
    if len(data) < 2:
        raise checks.BadInput(f"data must hold at least two texts; got {len(data)}.")
    random = np.random.default_rng(checks.seed_number("seed", seed))
    original = encoder.pooled(numbers, mask)
    permuted = encoder.pooled(shuffled(numbers, mask, random), mask)
    squared = ((permuted - original) ** 2).sum(-1)
    # The mean squared distance of two independent texts is twice their variance.
    between = 2 * ((original - original.mean(1, keepdims=True)) ** 2).sum(-1)
    between *= len(data) / (len(data) - 1)
    readings = tuple(_ratio(above, below) for above, below in zip(squared, between, strict=True))
    return _by_layer("squared distance to the shuffled text, in that of two texts", readings)


def shuffled(numbers: np.ndarray, mask: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The token numbers of each text in random order; [CLS] stays first and [SEP] last."""
    order = numbers.copy()
    for row, length in zip(order, mask.sum(1), strict=True):
        row[1 : length - 1] = random.permutation(row[1 : length - 1])
    return order


def _ratio(above: np.ndarray, below: np.ndarray) -> Reading:
    """mean(above)/mean(below), with the standard error of a ratio (Cochran, section 2.11)."""
    ratio = above.mean() / below.mean()
    residuals = mean_reading((above - ratio * below) / below.mean())
    return Reading(float(ratio), residuals.standard_error, len(above))


def _by_layer(quantity: str, readings: Sequence[Reading], first: int = 0) -> Curve:
    at = tuple(float(first + i) for i in range(len(readings)))
    return Curve("layer", quantity, at, tuple(readings))


# -- subsets of tokens -----------------------------------------------------------------------------


def token_rates(
    encoder: SentenceEncoder,
    data: Dataset,
    *,
    sizes: Sequence[int] = (4, 8, 16, 32),
    length: int = 128,
    draws: int = 8,
    seed: int = 0,
) -> tuple[Curve, ...]:
    """For each layer, the error of attention over m random tokens, with its rate in m.

    `sizes` are the values of m. Texts with at least `length` tokens are cut to this length, shorter
    texts are left out. Each text is one replicate, for which `draws` subsets of each size are
    drawn. The interval of the rate is the Student t interval over texts.
    """
    sizes = checks.lengths(sizes)
    checks.whole("draws", draws, at_least=1)
    if len(sizes) < 2 or sizes[-1] >= checks.whole("length", length, at_least=3):
        raise checks.BadInput(
            f"sizes must be at least two numbers below the length {length}; got {sizes}."
        )
    numbers, mask = encoder.read(data, length)
    if mask.shape[1] < length or (whole := np.flatnonzero(mask.all(1))).size < 2:
        raise checks.BadInput(
            f"at least two texts must have {length} tokens; the longest has {mask.shape[1]}, which "
            f"{int(mask.all(1).sum())} texts have; give a smaller length."
        )
    random = np.random.default_rng(checks.seed_number("seed", seed))
    errors_by_text = []
    for row in jnp.asarray(numbers[whole]):
        subsets = jnp.asarray(_subsets(sizes, draws, length, random))
        errors_by_text.append(_subset_errors(encoder.model, row, subsets))
    errors = np.array(errors_by_text, float)  # (texts, layers, sizes)
    correction = np.sqrt((length - np.array(sizes)) / (length - 1))
    return tuple(_rate(sizes, errors[:, i] / correction, i + 1) for i in range(errors.shape[1]))


def _subsets(sizes: Sequence[int], draws: int, length: int, random: Any) -> np.ndarray:
    """(sizes, draws, length) masks of random subsets of tokens."""
    ranks = random.random((len(sizes), draws, length)).argsort(-1)
    return ranks < np.array(sizes)[:, None, None]


@eqx.filter_jit
def _subset_errors(model: Bert, numbers: Array, subsets: Array) -> Array:
    """The relative error of attention over subsets, (layers, sizes).

    It is the root mean square over draws, heads and queries, divided by that of full attention.
    """
    by_layer = []
    for layer, h in zip(model.layers, model.represent(numbers), strict=False):
        scores, value = model.scores(layer, h), model.heads_of(layer.value, h)
        full = masked_softmax(scores, None) @ value

        def squared(subset: Array, scores=scores, value=value, full=full) -> Array:
            return jnp.mean((masked_softmax(scores, subset) @ value - full) ** 2)

        errors = jax.lax.map(squared, subsets.reshape(-1, subsets.shape[-1]))
        by_layer.append(jnp.sqrt(errors.reshape(subsets.shape[:2]).mean(1) / jnp.mean(full**2)))
    return jnp.stack(by_layer)


def _rate(sizes: Sequence[int], errors: np.ndarray, layer: int) -> Curve:
    slope = mean_reading(slopes(np.log(sizes), np.log(errors)))
    quantity = f"relative error of attention over a subset, layer {layer}"
    readings = tuple(mean_reading(column) for column in errors.T)
    at = tuple(float(size) for size in sizes)
    return Curve("tokens", quantity, at, readings, slope, predicted=-0.5)


# -- attention maps --------------------------------------------------------------------------------


def attention_maps(encoder: SentenceEncoder, text: str, *, most: int = 64) -> np.ndarray:
    """The attention of every layer and head on one text: (layers, heads, query, key)."""
    numbers, _ = encoder.read([text], most)
    return np.asarray(_maps(encoder.model, jnp.asarray(numbers[0])), float)


@dataclass(frozen=True)
class TextAttention(Surface):
    """Attention weights on a text; `pieces` are its tokens, in the order of rows and columns."""

    pieces: tuple[str, ...] = field(kw_only=True)


def attention_map(
    encoder: SentenceEncoder, text: str, layer: int, head: int, *, most: int = 64
) -> TextAttention:
    """The attention weights of one layer and head on a text, as a `Surface` with tokens."""
    maps = attention_maps(encoder, text, most=most)
    depth, heads, length, _ = maps.shape
    if not (1 <= layer <= depth and 1 <= head <= heads):
        raise checks.BadInput(
            f"layer must be from 1 to {depth} and head from 1 to {heads}; got {layer} and {head}."
        )
    positions = tuple(float(i) for i in range(length))
    rows = tuple(tuple(map(float, row)) for row in maps[layer - 1, head - 1])
    pieces = ["[CLS]", *encoder.tokeniser.pieces(text)[: length - 2], "[SEP]"]
    return TextAttention(
        f"attention of layer {layer}, head {head}",
        "key",
        "query",
        positions,
        positions,
        rows,
        pieces=tuple(pieces),
    )


@eqx.filter_jit
def _maps(model: Bert, numbers: Array) -> Array:
    inputs = zip(model.layers, model.represent(numbers), strict=False)
    return jnp.stack([model.weights(layer, h) for layer, h in inputs])


def attended_share(encoder: SentenceEncoder, data: Dataset, *, most: int = 128) -> Curve:
    """For each layer, the share of tokens attended to, e^H/L: the mean over heads and queries."""
    numbers, mask = encoder.read(data, most)
    rows = zip(jnp.asarray(numbers), jnp.asarray(mask), strict=True)
    shares = np.array([_shares(encoder.model, *row) for row in rows], float)
    return _by_layer("share of tokens attended, e^H/L", [mean_reading(s) for s in shares.T], 1)


@eqx.filter_jit
def _shares(model: Bert, numbers: Array, mask: Array) -> Array:
    present = mask.astype(model.words.dtype)
    length, shares = jnp.sum(present), []
    for layer, h in zip(model.layers, model.represent(numbers, mask), strict=False):
        weights = model.weights(layer, h, mask)
        entropy = -jnp.sum(jax.scipy.special.xlogy(weights, weights), -1)
        shares.append(jnp.mean(jnp.exp(entropy) @ present) / length**2)
    return jnp.stack(shares)


# -- transfer and a probe --------------------------------------------------------------------------


def transfers(
    layers: np.ndarray,
    labels: np.ndarray,
    *,
    coordinates: int = COORDINATES,
    resamples: int = 200,
    seed: int = 0,
) -> tuple[Transfer, ...]:
    """For each layer, the `condition_number` of its features for the labels.

    layers: (layers, texts, width), as `encoder.pooled` returns them.

    The pretraining target is the sentence embedding (the last layer, normalised to norm one) in
    principal coordinates, all divided by one number so that their mean variance is one. κ near 1
    means that pretraining weighted the direction of the label as much as any other direction.
    `predicts` compares the transfer scores.
    """
    layers = _layers(layers, labels)
    target = leading(layers[-1] / np.linalg.norm(layers[-1], axis=1, keepdims=True), coordinates)
    target = target / np.sqrt((target**2).mean())
    settings = {"resamples": resamples, "seed": seed}
    return tuple(
        condition_number(leading(layer, coordinates), target, labels, **settings)
        for layer in layers
    )


def _layers(layers: Any, labels: Any) -> np.ndarray:
    table = np.asarray(layers, float)
    if table.ndim != 3 or np.shape(labels) != table.shape[1:2]:
        raise checks.BadInput(
            f"layers must be (layers, texts, width) with one label per text; got {table.shape} and "
            f"{np.shape(labels)}; give encoder.pooled(*encoder.read(texts))."
        )
    return table


def leading(features: np.ndarray, count: int) -> np.ndarray:
    """The leading principal coordinates of rows: at most `count`, without constant ones."""
    centred = features - features.mean(0)
    left, scales, _ = np.linalg.svd(centred, full_matrices=False)
    varying = scales > 1e-6 * scales.max(initial=0)  # below this: rounding errors of float32
    return (left * scales)[:, : min(checks.whole("coordinates", count, 1), int(varying.sum()))]


def probe_curvature(
    layers: np.ndarray, labels: np.ndarray, *, coordinates: int = COORDINATES, parts: int = 4
) -> tuple[Curve, Curve]:
    """The largest eigenvalue and the trace of a logistic probe's Hessian: two curves over layers.

    The texts are divided into `parts`, and a probe is fitted to each part; a reading is the mean
    over parts. Features are principal coordinates with variance one, and the probe has
    scikit-learn's ridge penalty C = 1; the Hessian is that of the mean log loss without penalty.
    """
    layers, labels = _layers(layers, labels), np.asarray(labels)
    rows = np.array_split(np.arange(len(labels)), checks.whole("parts", parts, at_least=2))
    if any(len(np.unique(labels[r])) != 2 for r in rows):
        raise checks.BadInput(
            f"each of the {parts} parts must hold two labels; got a part with another number; "
            f"shuffle the texts."
        )
    values = np.array(
        [[_hessian(leading(layer[r], coordinates), labels[r]) for r in rows] for layer in layers]
    )
    largest, trace = ([mean_reading(row) for row in values[..., k]] for k in (0, 1))
    return (
        _by_layer("largest eigenvalue of the probe's Hessian", largest),
        _by_layer("trace of the probe's Hessian", trace),
    )


def _hessian(features: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """(largest eigenvalue, trace) of the Hessian of a fitted logistic probe."""
    from sklearn.linear_model import LogisticRegression

    x = features / features.std(0)
    fitted = LogisticRegression(max_iter=1000).fit(x, labels)
    params = {"weights": fitted.coef_[0], "bias": fitted.intercept_}
    loss = Supervised("logistic", lambda p, row: (p["weights"] @ row)[None] + p["bias"])
    targets = (labels == labels.max()).astype(float)[:, None]
    result = curvature(loss, params, (x, targets), steps=0, scaled=False)
    return result.largest, result.trace.value
