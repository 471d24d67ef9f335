"""C.sparse-tokens: attention detects a signal in few tokens at a strength that hardly grows with L.

Barnfield, Cui and Lu (2025, arXiv 2509.25153) classify sequences of L tokens (docs/theory.md,
prediction 24). All tokens are noise, N(0, I); in a positive sample, θ ξ with ‖ξ‖ = 1 is added to R
tokens at random places. An attention classifier can in principle reach vanishing error if the
strength θ grows as log L; linear classifiers need √L. With query and value along ξ, an attention
classifier depends on a token only through its component s along ξ, N(0, 1) or N(θ, 1), so

    f(x) = Σ_l softmax(β s)_l s_l − b,

and for β = 0 it pools: it reads the mean of all tokens. The quantities are slopes in log L of
log θ½, where θ½ is the strength at which the accuracy is 3/4, halfway between chance and one.

attention   At most 0.2. For β → ∞ the classifier compares the largest s with b. Its accuracy is
            ½ Φ(b)^L + ½ [1 − Φ(b)^(L−R) Φ(b − θ)^R], and at the best b, R = 2, θ½ is 1.93, 2.42,
            2.85 and 3.23 at L = 16, 64, 256 and 1024: slopes of 0.16 down to 0.09, 0.12 overall.
            (√(2 log L) alone has 0.11 overall, log L itself 0.22.)
pooled      0.5 ± 0.1. The mean of s is N(0, 1/L) or N(θ R/L, 1/L), so the accuracy at the best b is
            Φ(θ R/(2 √L)), and θ½ = 2 Φ^(−1)(3/4) √L/R, exactly. A classifier that is linear in all
            L·d numbers has no better direction: the places of the R tokens are random, so the mean
            of its input is the same at every token.

β and b are chosen on one set of samples, and the accuracy is measured on another. θ½ is the
strength at which the accuracy crosses 3/4, interpolated on a grid. A replicate is one seed, with
samples at every L.

What a sceptic may ask. *Is attention trained?* No: the tested statement is about what attention can
represent. In one control the direction ξ is learned from n samples by one gradient step at uniform
attention, which gives the difference of the mean tokens, θ (R/L) ξ + N(0, 4/(n L) I): at fixed n
the noise dominates this direction as L grows, and much of the advantage is lost. *Is a pooled
classifier weak by construction?* In another control the number of informative tokens grows with L,
and the θ½ of the pooled classifier falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlens.claims import (
    Assumption,
    Attribution,
    Check,
    Claim,
    Control,
    Grid,
    Lines,
    Meaning,
    Origin,
    Power,
    Quantity,
    Rule,
    ScalingLaw,
)
from attnlens.core import Region

PREDICTION, UNIFORM, LEARNED, DENSE = (
    "prediction",
    "uniform-attention",
    "learned-direction",
    "dense-signal",
)
GRID = Grid(
    settings={
        "informative": 2,  # R; in the dense control, R at L = 16
        "dense": False,  # whether R grows with L
        "sharpness": [0.0, 1.5, 3.0, 8.0],  # values of β; 0 is uniform attention
        "learned": False,
        "training_samples": 256,  # n, the samples from which the direction is learned
        "token_dim": 64,
        "samples": 1000,  # samples per class; β and b are chosen on half of them
        "accuracy": 0.75,
    },
    axes={
        "length": {"smoke": (16, 256), "default": (16, 64, 256, 1024), "full": (16, 64, 256, 1024)}
    },
    arm_settings={
        UNIFORM: {"sharpness": [0.0]},
        LEARNED: {"learned": True},
        DENSE: {"dense": True},
    },
    blocks={
        PREDICTION: {"smoke": 1, "default": 1, "full": 9},
        UNIFORM: {"smoke": 1, "default": 1, "full": 2},
        LEARNED: {"smoke": 1, "default": 1, "full": 4},
        DENSE: {"smoke": 1, "default": 1, "full": 2},
    },
    seeds_per_block={"smoke": 4, "default": 8, "full": 8},
    cost=lambda parameters, seeds: (
        0.01 + seeds * parameters["samples"] * parameters["length"] * 3e-7
    ),
    pilot=range(1000),
)
# The grid of strengths θ, from 0.1 to 28: it contains θ½ of all arms and lengths.
STRENGTHS = 0.1 * 1.1 ** np.arange(60)
SHORTEST = 16  # the length at which the dense control has R informative tokens


RULE = Rule(
    Quantity(
        "attention",
        "slope of the strength that attention needs in length (L {span})",
        ScalingLaw("attention", "length").slopes,
        # The largest local slope of the closed form of hard attention is 0.16.
        Region(high=0.2),
        power=Power(0.135, 0.02),  # pilot of 16 seeds: mean 0.135, standard deviation 0.009
    ),
    Quantity(
        "pooled",
        "slope of the strength that the mean token needs in length (L {span})",
        ScalingLaw("pooled", "length").slopes,
        Region(0.4, 0.6),
        power=Power(0.5, 0.03),  # pilot of 16 seeds: mean 0.500, standard deviation 0.018
    ),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """θ½ of attention at the best β and of the mean token, one per seed."""
    length, goal = parameters["length"], parameters["accuracy"]
    informative = parameters["informative"]
    if parameters["dense"]:
        informative = informative * length // SHORTEST
    crossings: dict[str, list[float]] = {"attention": [], "pooled": []}
    for seed in seeds:
        random = np.random.default_rng([seed, length])
        noise = random.standard_normal((2, parameters["samples"], length))
        along = np.ones_like(STRENGTHS)
        if parameters["learned"]:
            along = alignment(random, parameters, informative / length)
        for name, sharpness in (("attention", parameters["sharpness"]), ("pooled", [0.0])):
            reached = accuracies(noise, informative, sharpness, STRENGTHS * along)
            crossings[name].append(crossing(STRENGTHS, reached, goal))
    return {name: np.array(values) for name, values in crossings.items()}


def alignment(random: np.random.Generator, parameters: Mapping[str, Any], share: float) -> Any:
    """The cosine of the angle between ξ and the learned direction, at every strength.

    The learned direction is the difference of the mean tokens of n samples; `share` is R/L.
    """
    noise = 2 / np.sqrt(parameters["training_samples"] * parameters["length"])
    error = noise * random.standard_normal(parameters["token_dim"])
    along = STRENGTHS * share + error[0]
    return along / np.sqrt(along**2 + np.sum(error[1:] ** 2))


def accuracies(
    noise: np.ndarray, informative: int, sharpness: Sequence[float], strengths: np.ndarray
) -> np.ndarray:
    """The accuracy at every strength on the second half of the samples.

    β and b are chosen on the first half.

    noise  (2, samples, length): s of negative samples, and of positive samples without the signal
    """
    negative, positive = noise
    half = len(positive) // 2
    best = np.zeros((2, len(strengths)))  # accuracy on the first half, and on the second half
    for beta in sharpness:
        scores = attended(negative, beta)
        signal = with_signal(positive, informative, beta, strengths)
        for place, shifted in enumerate(signal):
            bound = threshold(scores[:half], shifted[:half])
            chosen, measured = (
                0.5 * np.mean(scores[part] <= bound) + 0.5 * np.mean(shifted[part] > bound)
                for part in (slice(half), slice(half, None))
            )
            if chosen > best[0, place]:
                best[:, place] = chosen, measured
    return best[1]


def attended(components: np.ndarray, beta: float) -> np.ndarray:
    """The sum Σ softmax(β s) s over the last axis of `components` s."""
    weights = np.exp(beta * (components - components.max(-1, keepdims=True)))
    return np.sum(weights * components, -1) / np.sum(weights, -1)


def with_signal(
    components: np.ndarray, informative: int, beta: float, strengths: np.ndarray
) -> np.ndarray:
    """Σ softmax(β s) s with θ added to s of the first R tokens, one row per θ in `strengths`.

    (f does not depend on the places of the R tokens.)
    """
    first, others = components[:, :informative], components[:, informative:]
    top = components.max(-1, keepdims=True)
    weights = np.exp(beta * (others - top))
    total, summed = weights.sum(-1), np.sum(weights * others, -1)
    rows = []
    for strength in strengths:
        shifted = first + strength
        ceiling = np.maximum(top, shifted.max(-1, keepdims=True))
        inside, outside = np.exp(beta * (shifted - ceiling)), np.exp(beta * (top - ceiling))[:, 0]
        sums = outside * summed + np.sum(inside * shifted, -1)
        rows.append(sums / (outside * total + inside.sum(-1)))
    return np.array(rows)


def threshold(negative: np.ndarray, positive: np.ndarray) -> float:
    """The threshold b that separates the two samples with the highest accuracy."""
    values = np.concatenate([negative, positive])
    order = np.argsort(values, kind="stable")
    signs = np.concatenate([np.ones(len(negative)), -np.ones(len(positive))])[order]
    return float(values[order][np.argmax(np.cumsum(signs))])


def crossing(strengths: np.ndarray, reached: np.ndarray, goal: float) -> float:
    """The strength above which the accuracy is at least `goal`, interpolated in log θ."""
    below = np.nonzero(reached < goal)[0]
    last = int(below[-1]) if below.size else 0
    if last + 1 >= len(strengths):
        return float(strengths[-1])
    share = (goal - reached[last]) / max(reached[last + 1] - reached[last], 1e-9)
    step = np.log(strengths[last + 1] / strengths[last])
    return float(strengths[last] * np.exp(step * np.clip(share, 0, 1)))


FIGURE = Lines(
    "Strength at which a signal in few tokens is found, over length",
    "tokens L",
    "strength θ at an accuracy of {accuracy:g}",
    ScalingLaw("attention", "length"),
    {
        PREDICTION: "attention",
        UNIFORM: "uniform attention",
        LEARNED: "attention, direction learned",
        DENSE: "attention, signal in a share of the tokens",
    },
)

CLAIM = Claim(
    id="C.sparse-tokens",
    title="Attention finds a weak signal in few tokens of a long sequence",
    statement=(
        "Where few tokens of a long sequence carry a signal, an attention classifier can detect it "
        "at a strength that hardly grows with the length; for the mean token it grows as the "
        "square root of the length."
    ),
    formula=(
        r"\theta_{1/2}^{\mathrm{attention}} \lesssim \log L, \qquad "
        r"\theta_{1/2}^{\mathrm{pooled}} = 2\,\Phi^{-1}(3/4)\,\sqrt{L}/R"
    ),
    prediction=(
        "The strength at an accuracy of $accuracy has a log–log slope in the length of at most "
        "$attention_high for attention, and $pooled for the mean token."
    ),
    controls={
        UNIFORM: Control("Attention is frozen at uniform.", quantities=("attention",)),
        LEARNED: Control(
            "The direction of the signal is learned from $training_samples sequences, the same "
            "number at every length.",
            quantities=("attention",),
        ),
        DENSE: Control(
            "The number of informative tokens grows with the length.", quantities=("pooled",)
        ),
    },
    assumptions=(
        Assumption("Noise is independent standard normal", Check.BY_CONSTRUCTION),
        Assumption("Query and value point along the signal", Check.CONTROL, control=LEARNED),
        Assumption("The number of informative tokens is fixed", Check.CONTROL, control=DENSE),
    ),
    meaning=Meaning(
        supported=(
            "Where few tokens matter, attention keeps a weak signal that pooling dilutes; but the "
            "direction must be known, and at a fixed number of samples a longer sequence makes it "
            "harder to learn."
        ),
        refuted="Attention loses a signal in few tokens with length nearly as pooling does.",
        undecided="How the strength that attention needs grows with the length is open.",
    ),
    source=(
        "Barnfield, Cui and Lu (2025, arXiv 2509.25153); our formalisation: docs/theory.md, "
        "prediction 24."
    ),
    attribution=Attribution(
        Origin.FORMALISATION,
        "a simple single-layer attention classifier can in principle achieve vanishing test error "
        "when the signal strength grows only logarithmically in the sequence length L, whereas "
        "linear classifiers require √L scaling",
    ),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
