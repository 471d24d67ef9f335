"""A pretrained encoder, layer by layer: order, tokens, attention, transfer, a probe's Hessian.

With h_l(x) the mean over tokens of layer l's representation of a text x:

    order      E‖h_l(x∘π) − h_l(x)‖² / E‖h_l(x) − h_l(x')‖²   π shuffles the words of x, and x' is
               another text: 0 for a bag of words, 1 when a shuffle makes another text of it
    subsets    ‖A_S(h) − A(h)‖/‖A(h)‖, attention over m random tokens S of L against all of them.
               Drawn without replacement, a mean has variance σ²/m · (L − m)/(L − 1) (Cochran,
               Sampling Techniques, 1977, theorem 2.2), so the error is divided by the root of the
               last factor; what is left falls as m^(−1/2) when attention is far from hardmax, and
               more slowly near it (token-sample-complexity, arXiv 2512.10656)
    attended   e^H/L, H the entropy of a row of attention: the share of tokens that it spreads over
    transfer   `condition_number`, with layer l's features, the sentence embedding that pretraining
               asked for, and a label that it never saw; LogME and the measured error beside it
    probe      the Hessian of a logistic probe of the label on layer l (`curvature`, exact)

Texts are the independent draws behind every standard error. Features are leading principal
coordinates of the texts at hand, in which no label has a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from attnlens import checks
from attnlens.data import Dataset
from attnlens.instruments import Supervised, condition_number, curvature
from attnlens.instruments.transfer import Transfer
from attnlens.records import Curve, Reading, Surface
from attnlens.statistics import mean_reading, slopes

from .bert import Bert, masked_softmax
from .minilm import Encoder

COORDINATES = 32  # of features and of the sentence embedding; below a third of a few hundred texts


# -- order -----------------------------------------------------------------------------------------


def permutation_sensitivity(
    encoder: Encoder, data: Dataset, *, most: int = 128, seed: int = 0
) -> Curve:
    """How far a shuffle of a text's words moves each layer, in distances between two texts."""
    numbers, mask = encoder.read(data, most)
    if len(data) < 2:
        raise checks.BadInput(f"distances need at least two texts, but {len(data)} came.")
    random = np.random.default_rng(checks.whole("seed", seed))
    plain = encoder.pooled(numbers, mask)
    moved = encoder.pooled(shuffled(numbers, mask, random), mask)
    squared = ((moved - plain) ** 2).sum(-1)
    # Two independent texts are on average twice their variance apart.
    apart = 2 * ((plain - plain.mean(1, keepdims=True)) ** 2).sum(-1)
    apart *= len(data) / (len(data) - 1)
    readings = tuple(_ratio(above, below) for above, below in zip(squared, apart, strict=True))
    return _by_layer("squared distance to the shuffled text, in that of two texts", readings)


def shuffled(numbers: np.ndarray, mask: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each text with its tokens in random order; the first and the last, [CLS] and [SEP], stay."""
    order = numbers.copy()
    for row, length in zip(order, mask.sum(1), strict=True):
        row[1 : length - 1] = random.permutation(row[1 : length - 1])
    return order


def _ratio(above: np.ndarray, below: np.ndarray) -> Reading:
    """mean above / mean below; standard error as for `share_left` (Cochran, section 2.11)."""
    share = above.mean() / below.mean()
    spread = mean_reading((above - share * below) / below.mean())
    return Reading(float(share), spread.standard_error, len(above))


def _by_layer(quantity: str, readings: Sequence[Reading], first: int = 0) -> Curve:
    at = tuple(float(first + i) for i in range(len(readings)))
    return Curve("layer", quantity, at, tuple(readings))


# -- subsets of tokens -----------------------------------------------------------------------------


def token_rates(
    encoder: Encoder,
    data: Dataset,
    *,
    sizes: Sequence[int] = (4, 8, 16, 32),
    length: int = 128,
    draws: int = 8,
    seed: int = 0,
) -> tuple[Curve, ...]:
    """For each layer, the error of attention over m random tokens, with its rate in m.

    Texts of at least `length` tokens are cut to it, others left out; each is one replicate, and
    has its own `draws` subsets of each size. The rate's interval is the t interval over texts.
    """
    sizes = checks.lengths(sizes)
    checks.whole("draws", draws, at_least=1)
    if len(sizes) < 2 or sizes[-1] >= checks.whole("length", length, at_least=3):
        raise checks.BadInput(
            f"sizes must be at least two, below the length {length}, but {sizes} came."
        )
    numbers, mask = encoder.read(data, length)
    if mask.shape[1] < length or (whole := np.flatnonzero(mask.all(1))).size < 2:
        raise checks.BadInput(
            f"at least two texts must have {length} tokens, but the longest has {mask.shape[1]} "
            f"and {int(mask.all(1).sum())} are that long; give a smaller length."
        )
    random = np.random.default_rng(checks.whole("seed", seed))
    found = []
    for row in jnp.asarray(numbers[whole]):
        subsets = jnp.asarray(_subsets(sizes, draws, length, random))
        found.append(_subset_errors(encoder.model, row, subsets))
    errors = np.array(found, float)  # (texts, layers, sizes)
    left = np.sqrt((length - np.array(sizes)) / (length - 1))
    return tuple(_rate(sizes, errors[:, i] / left, i + 1) for i in range(errors.shape[1]))


def _subsets(sizes: Sequence[int], draws: int, length: int, random: Any) -> np.ndarray:
    """(sizes, draws, length): which tokens are taken."""
    ranks = random.random((len(sizes), draws, length)).argsort(-1)
    return ranks < np.array(sizes)[:, None, None]


@eqx.filter_jit
def _subset_errors(model: Bert, numbers: Array, subsets: Array) -> Array:
    """(layers, sizes): root of the mean squared error over draws, heads and queries, relative."""
    found = []
    for layer, h in zip(model.layers, model.represent(numbers), strict=False):
        scores, value = model.scores(layer, h), model.heads_of(layer.value, h)
        full = masked_softmax(scores, None) @ value

        def squared(subset: Array, scores=scores, value=value, full=full) -> Array:
            return jnp.mean((masked_softmax(scores, subset) @ value - full) ** 2)

        errors = jax.lax.map(squared, subsets.reshape(-1, subsets.shape[-1]))
        found.append(jnp.sqrt(errors.reshape(subsets.shape[:2]).mean(1) / jnp.mean(full**2)))
    return jnp.stack(found)


def _rate(sizes: Sequence[int], errors: np.ndarray, layer: int) -> Curve:
    slope = mean_reading(slopes(np.log(sizes), np.log(errors)))
    quantity = f"relative error of attention over a subset, layer {layer}"
    readings = tuple(mean_reading(column) for column in errors.T)
    at = tuple(float(size) for size in sizes)
    return Curve("tokens", quantity, at, readings, slope, {"predicted": -0.5})


# -- attention maps --------------------------------------------------------------------------------


def attention_maps(encoder: Encoder, text: str, *, most: int = 64) -> np.ndarray:
    """The attention of every layer and head on one text: (layers, heads, query, key)."""
    numbers, _ = encoder.read([text], most)
    return np.asarray(_maps(encoder.model, jnp.asarray(numbers[0])), float)


def attention_map(encoder: Encoder, text: str, layer: int, head: int, *, most: int = 64) -> Surface:
    """One layer's and head's attention on a text as a surface; `details` has the pieces."""
    maps = attention_maps(encoder, text, most=most)
    depth, heads, length, _ = maps.shape
    if not (1 <= layer <= depth and 1 <= head <= heads):
        raise checks.BadInput(
            f"layer must be from 1 to {depth} and head from 1 to {heads}, but {layer} and {head} "
            f"came."
        )
    places = tuple(float(i) for i in range(length))
    rows = tuple(tuple(map(float, row)) for row in maps[layer - 1, head - 1])
    pieces = ["[CLS]", *encoder.tokeniser.pieces(text)[: length - 2], "[SEP]"]
    return Surface(
        f"attention of layer {layer}, head {head}", "key", "query", places, places, rows,
        details={"pieces": pieces},
    )  # fmt: skip


@eqx.filter_jit
def _maps(model: Bert, numbers: Array) -> Array:
    heights = zip(model.layers, model.represent(numbers), strict=False)
    return jnp.stack([model.weights(layer, h) for layer, h in heights])


def attended_share(encoder: Encoder, data: Dataset, *, most: int = 128) -> Curve:
    """The share of tokens that attention spreads over, e^H/L, by layer; mean of heads and rows."""
    numbers, mask = encoder.read(data, most)
    rows = zip(jnp.asarray(numbers), jnp.asarray(mask), strict=True)
    shares = np.array([_shares(encoder.model, *row) for row in rows], float)
    return _by_layer("share of tokens attended, e^H/L", [mean_reading(s) for s in shares.T], 1)


@eqx.filter_jit
def _shares(model: Bert, numbers: Array, mask: Array) -> Array:
    there = mask.astype(model.words.dtype)
    length, found = jnp.sum(there), []
    for layer, h in zip(model.layers, model.represent(numbers, mask), strict=False):
        weights = model.weights(layer, h, mask)
        entropy = -jnp.sum(jax.scipy.special.xlogy(weights, weights), -1)
        found.append(jnp.mean(jnp.exp(entropy) @ there) / length**2)
    return jnp.stack(found)


# -- transfer and a probe --------------------------------------------------------------------------


def transfers(
    layers: np.ndarray,
    labels: np.ndarray,
    *,
    coordinates: int = COORDINATES,
    resamples: int = 200,
    seed: int = 0,
) -> tuple[Transfer, ...]:
    """For each layer, how its features transfer to the labels; `predicts` compares the scores.

    layers: (layers, texts, width), as `encoder.pooled` gives them. The pretraining target is the
    last one at length one, the sentence embedding, in principal coordinates that are scaled
    together to variance one on average: κ near 1 says that pretraining asked about the label as it
    asked about anything else.
    """
    layers = _layers(layers, labels)
    asked = leading(layers[-1] / np.linalg.norm(layers[-1], axis=1, keepdims=True), coordinates)
    asked = asked / np.sqrt((asked**2).mean())
    settings = {"resamples": resamples, "seed": seed}
    return tuple(
        condition_number(leading(layer, coordinates), asked, labels, **settings) for layer in layers
    )


def _layers(layers: Any, labels: Any) -> np.ndarray:
    table = np.asarray(layers, float)
    if table.ndim != 3 or np.shape(labels) != table.shape[1:2]:
        raise checks.BadInput(
            f"layers must be (layers, texts, width) with one label a text, but {table.shape} and "
            f"{np.shape(labels)} came; give encoder.pooled(*encoder.read(texts))."
        )
    return table


def leading(features: np.ndarray, count: int) -> np.ndarray:
    """The leading principal coordinates of rows, at most `count` and those that vary."""
    centred = features - features.mean(0)
    left, scales, _ = np.linalg.svd(centred, full_matrices=False)
    kept = scales > 1e-6 * scales.max(initial=0)  # float32 features: below that, rounding
    return (left * scales)[:, : min(checks.whole("coordinates", count, 1), int(kept.sum()))]


def probe_curvature(
    layers: np.ndarray, labels: np.ndarray, *, coordinates: int = COORDINATES, parts: int = 4
) -> tuple[Curve, Curve]:
    """(largest eigenvalue, trace) of a logistic probe's Hessian by layer, over parts of the texts.

    The probe is fitted to each part on its own, on coordinates of variance one, with the ridge of
    one observation (C = 1 of scikit-learn); the Hessian is that of the mean log loss alone.
    """
    layers, labels = _layers(layers, labels), np.asarray(labels)
    rows = np.array_split(np.arange(len(labels)), checks.whole("parts", parts, at_least=2))
    if any(len(np.unique(labels[r])) != 2 for r in rows):
        raise checks.BadInput(
            f"each of the {parts} parts must hold two labels, but one does not; shuffle the texts."
        )
    found = np.array(
        [[_bend(leading(layer[r], coordinates), labels[r]) for r in rows] for layer in layers]
    )
    largest, trace = ([mean_reading(each) for each in found[..., k]] for k in (0, 1))
    return (
        _by_layer("largest eigenvalue of the probe's Hessian", largest),
        _by_layer("trace of the probe's Hessian", trace),
    )


def _bend(features: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    from sklearn.linear_model import LogisticRegression

    x = features / features.std(0)
    fitted = LogisticRegression(max_iter=1000).fit(x, labels)
    params = {"weights": fitted.coef_[0], "bias": fitted.intercept_}
    loss = Supervised("logistic", lambda p, row: (p["weights"] @ row)[None] + p["bias"])
    found = curvature(
        loss, params, (x, (labels == labels.max()).astype(float)[:, None]), steps=0, scaled=False
    )
    return found.largest, found.trace.value
