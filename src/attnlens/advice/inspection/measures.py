"""Measures of heads and layers with intervals, from one number per input."""

from __future__ import annotations

import numpy as np

from attnlens.core.inspections import Measure
from attnlens.core.readings import Curve, Reading
from attnlens.core.statistics import mean_reading, slopes
from attnlens.instruments.layers.attention_rows import DISTANCES
from attnlens.instruments.layers.head_landscape import probe_hessians
from attnlens.instruments.layers.layer_measures import (
    leading_coordinates,
    order_sensitivity,
    probe_errors,
    probe_reading,
    ratio_of_means,
    token_probe_errors,
)
from attnlens.instruments.layers.token_subsets import SIZES
from attnlens.instruments.transfer.scores import h_score, log_me

from .collection import Collected, HeldOutTokens

# Measures of heads: internal name → (displayed name, how to read it, limits of the scale).
HEADS: dict[str, tuple[str, str, tuple[float, float] | None]] = {
    "effective tokens": (
        "effective tokens",
        "e^entropy of a row of attention: the number of tokens that a query looks at.",
        None,
    ),
    "share used": (
        "share of tokens used",
        "Effective tokens as a share of those that a query can see; 1 is uniform attention.",
        (0.0, 1.0),
    ),
    "first token": (
        "attention on the first token",
        "The share of attention on the first token; near 1 the head is a sink.",
        (0.0, 1.0),
    ),
    "separators": (
        "attention on separators",
        "The share of attention on tokens that separate or end texts.",
        (0.0, 1.0),
    ),
    "own token": (
        "attention on the own token",
        "The share of a query's attention on itself.",
        (0.0, 1.0),
    ),
    "previous token": (
        "attention on the previous token",
        "The share of a query on the token before it.",
        (0.0, 1.0),
    ),
    "distance": ("mean distance", "Mean distance to the tokens attended to, in tokens.", None),
    "stays": (
        "attention that stays",
        "Overlap of attention before and after a shuffle of tokens, at the same positions; 1 is a "
        "head that looks at positions only.",
        (0.0, 1.0),
    ),
    "follows": (
        "attention that follows",
        "The same overlap with the shuffle undone; 1 is a head that looks at content only.",
        (0.0, 1.0),
    ),
    "passed": (
        "variance passed",
        "Variance of the output, relative to that of the values: 0 if the head smooths to the "
        "mean, 1 if it passes single values through (interpolates).",
        None,
    ),
    "to CME": (
        "distance to the ridge estimate",
        "Squared distance of the output from kernel ridge regression (CME) on the same keys and "
        "values, relative to the values' variance; 0 is the ridge estimate.",
        None,
    ),
}
INDUCTION = "induction"
RATE = "rate in tokens"
SINGLE = "order of single tokens"
ORDER, PAIRS, PROBE, LOG_ME, H_SCORE = "order", "pairs", "probe error", "LogME", "H-score"
EXCESS, HELD_OUT = "probe error over the best", "held-out token error"
GUESS = "probe error over guessing"
SHARPNESS, CONDITION = "largest curvature of the head", "log10 condition number of the head"
COORDINATES = 32  # leading coordinates of embeddings that probes predict
ROUNDING = 1e-6  # of relative squared distances in float32: (1e−7)² times depth²
FEWEST = 40  # predicted tokens; with fewer, a probe has hardly any power


def finite_mean(values: np.ndarray) -> Reading:
    """The mean over the inputs for which the measure is finite."""
    values = np.asarray(values, float).ravel()
    return mean_reading(values[np.isfinite(values)])


def head_measure(
    name: str,
    meaning: str,
    numbers: np.ndarray,
    limits: tuple[float, float] | None,
) -> Measure | None:
    """A measure from numbers (inputs, layers, heads); layers without numbers are left out."""
    at = [i for i in range(numbers.shape[1]) if np.isfinite(numbers[:, i]).any()]
    if not at:
        return None
    return Measure(
        name,
        meaning,
        tuple(i + 1 for i in at),
        tuple(finite_mean(_over_heads(numbers[:, i])) for i in at),
        tuple(tuple(finite_mean(column) for column in numbers[:, i].T) for i in at),
        limits,
    )


def _over_heads(numbers: np.ndarray) -> np.ndarray:
    """The mean over heads for each input, without heads that have no finite number on any input
    (for example because their values do not vary)."""
    return numbers[:, np.isfinite(numbers).any(0)].mean(1)


def head_measures(collected: Collected) -> list[Measure]:
    """All measures of heads for which numbers were collected."""
    made = [
        head_measure(title, meaning, collected.heads[name], limits)
        for name, (title, meaning, limits) in HEADS.items()
        if name in collected.heads
    ]
    if collected.repeats is not None:
        words = (
            "On repeated random tokens: attention on the token after the earlier occurrence; near "
            "1 the head is an induction head."
        )
        made.append(head_measure(INDUCTION, words, collected.repeats, (0.0, 1.0)))
    if collected.subsets is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = slopes(np.log(SIZES), np.log(collected.subsets))
        words = (
            f"The error of attention over m = {SIZES[0]} … {SIZES[-1]} random tokens, compared "
            f"with all tokens, falls as m to this power: −0.5 if attention is spread out, nearer 0 "
            f"if few tokens matter."
        )
        made.append(head_measure(RATE, words, rates, None))
    return [measure for measure in made if measure is not None]


def distance_profiles(collected: Collected) -> tuple[Curve, ...]:
    """One curve per layer: the share of attention, as a mean over heads, in each bin of distance to
    the attended token. Bins are named by their lower end and stop at the last one in use."""
    if collected.profile is None:
        return ()
    shares = collected.profile.mean(2)  # (inputs, layers, bins)
    reached = np.flatnonzero((np.nan_to_num(shares) > 0).any((0, 1)))
    last = int(reached.max(initial=0)) + 1
    return tuple(
        Curve(
            "tokens away, from",
            f"layer {layer + 1}",
            DISTANCES[:last],
            tuple(finite_mean(column) for column in shares[:, layer, :last].T),
        )
        for layer in range(collected.depth)
        if np.isfinite(shares[:, layer]).any()
    )


def layer_measures(collected: Collected, labels: np.ndarray | None, seed: int) -> list[Measure]:
    """Measures of whole layers; layer 0 is the embedding."""
    pooled, shuffled = collected.pooled, collected.shuffled
    at = tuple(range(len(pooled)))
    moved = [order_sensitivity(a, b) for a, b in zip(pooled, shuffled, strict=True)]
    words = (
        "Squared distance between an input and its shuffle, relative to that between two inputs: 0 "
        "for a bag of words, 1 if the shuffle is as far away as another input."
    )
    made = [Measure(ORDER, words, at, tuple(moved))]
    words = (
        "Change of a token's hidden state when tokens, but not positions, are shuffled, relative "
        "to the variance of the states: 0 if a token's state does not depend on its place."
    )
    alone = [ratio_of_means(collected.moved[:, i, 0], collected.moved[:, i, 1]) for i in at]
    made.append(Measure(SINGLE, words, at, tuple(alone)))
    rows = collected.pairs
    if len(rows):
        words = (
            "Change of hidden states when tokens move together with their positions, relative to "
            "their variance: 0 up to rounding (below 10⁻⁶) if such pairs are exchangeable."
        )
        ratios = [ratio_of_means(rows[:, i, 0], rows[:, i, 1]) for i in at]
        made.append(Measure(PAIRS, words, at, tuple(ratios), rounding=ROUNDING))
    if collected.held_out is not None and can_be_predicted(collected.held_out):
        made.append(_token_measure(collected.held_out, at, seed))
    return made if labels is None else [*made, *label_measures(pooled, labels, seed)]


def can_be_predicted(held_out: HeldOutTokens) -> bool:
    """Whether there are enough tokens to predict, and not all of them are the same."""
    return len(held_out.targets) >= FEWEST and bool(np.ptp(held_out.targets, axis=0).any())


def _token_measure(held_out: HeldOutTokens, at: tuple[int, ...], seed: int) -> Measure:
    """How well each layer predicts masked tokens (in a decoder: the next tokens)."""
    targets = leading_coordinates(held_out.targets, COORDINATES)
    words = (
        "Variance of the embedding of a masked token (in a decoder: of the next) that a linear map "
        "of the hidden state leaves unexplained; 1 is no prediction."
    )
    errors = [
        token_probe_errors(features, targets, held_out.inputs, seed=seed)
        for features in held_out.features
    ]
    return Measure(HELD_OUT, words, at, tuple(map(probe_reading, errors)))


def label_measures(pooled: np.ndarray, labels: np.ndarray, seed: int) -> list[Measure]:
    """How well each layer predicts the label: measured error, LogME and H-score."""
    at = tuple(range(len(pooled)))
    classes = labels.dtype.kind in "iub"
    what = "share of wrong classes" if classes else "share of the label's variance"
    words = f"Error of a linear probe of the label on unseen inputs: {what}."
    errors = np.array([probe_errors(features, labels, seed=seed) for features in pooled])
    best = errors[errors.mean(1).argmin()]
    guesses = guess_errors(labels)
    targets = np.eye(labels.max() + 1)[labels] if classes else labels[:, None] - labels.mean()
    scaled = [_standard(features) for features in pooled]
    evidence = tuple(_score(log_me(features, targets), len(labels)) for features in scaled)
    made = [
        Measure(PROBE, words, at, tuple(map(probe_reading, errors))),
        Measure(
            EXCESS,
            "Error of the probe minus that of the best layer's, input by input.",
            at,
            tuple(map(probe_reading, errors - best)),
        ),
        Measure(
            GUESS,
            "Error of the probe minus that of guessing, input by input: the most frequent class, "
            "or the mean; below 0 the layer knows something of the label.",
            at,
            tuple(map(probe_reading, errors - guesses)),
        ),
        *_landscape(pooled, labels, at, seed),
        Measure(
            LOG_ME, "Log evidence of a linear model, per input; higher is better.", at, evidence
        ),
    ]
    if classes and pooled.shape[-1] < len(labels):
        scores = tuple(_score(h_score(features, labels), len(labels)) for features in pooled)
        words = "Variance between classes in units of the features; higher is better."
        made.append(Measure(H_SCORE, words, at, scores))
    return made


def _landscape(
    pooled: np.ndarray, labels: np.ndarray, at: tuple[int, ...], seed: int
) -> list[Measure]:
    """Curvature of the loss of a linear head on every layer; [] if a part of the inputs lacks a
    class."""
    numbers = [probe_hessians(features, labels, seed=seed) for features in pooled]
    if any(one is None for one in numbers):
        return []
    largest, condition = np.moveaxis(np.array(numbers), -1, 0)
    return [
        Measure(
            SHARPNESS,
            "Largest eigenvalue of the Hessian of a linear head's loss at its optimum, over "
            "separate parts of the inputs; learning rates above 2 divided by it diverge.",
            at,
            tuple(map(mean_reading, largest)),
        ),
        Measure(
            CONDITION,
            "Log10 of the largest over the smallest eigenvalue, ridge included: gradient descent "
            "on the head takes steps in proportion to this ratio.",
            at,
            tuple(map(mean_reading, condition)),
        ),
    ]


def guess_errors(labels: np.ndarray) -> np.ndarray:
    """The error per input of guessing: the most frequent class or, for numbers, the mean.

    >>> guess_errors(np.array([0, 1, 1, 1])).tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    if labels.dtype.kind in "iub":
        return (labels != np.bincount(labels).argmax()).astype(float)
    return (labels - labels.mean()) ** 2 / labels.var()


def _standard(features: np.ndarray) -> np.ndarray:
    """The columns that vary, standardised to mean zero and variance one."""
    spread = features.std(0)
    varies = spread > 1e-6 * spread.max(initial=0)  # smaller spreads are rounding of float32
    return (features - features.mean(0))[:, varies] / spread[varies]


def _score(value: float, count: int) -> Reading:
    return Reading(value, 0.0, count)
