"""C.pairwise: tokens, and the matrix between them, do not slow down learning of an interaction.

Zucker, Wang, Lu and Seroussi (2025, arXiv 2510.11789) prove that the minimax rate of learning the
interaction g(x, x') = φ(x · A x') of an attention-style layer from M samples is M^(−2β/(2β+1)) in
mean squared error: only the smoothness β of φ matters, neither the number N of tokens nor the
dimension d, if r d ≤ (M/log M)^(1/(2β+1)) for the rank r of A (docs/theory.md, prediction 26).

**World.** `attnlens.worlds.PairwiseInteraction`: tokens uniform on the sphere in R^d, an orthogonal
A, φ = f ∘ F_d with f = Σ c_k √2 cos(π k s), c_k² = C k^(−2β−1), and noise of variance σ².

**Estimate.** Least squares for the first K coefficients and, jointly, for A (a rotation with
p = d(d − 1)/2 parameters), by Gauss–Newton steps (`pairwise_estimates`). K is the best one in
theory, because the minimax estimate knows β. The N values of a sample read means over N − 1 others,
in which the centred cosine of a pair has the variance 1/(N − 1); so a sample has the information of
N/(N − 1) observed pairs, and with m = M N/(N − 1)

    E‖ĝ − g‖² ≈ Σ_{k>K} c_k² + K σ²/m + p σ²/m,     Σ_{k>K} c_k² ≈ C K^(−2β)/(2β).

The first two terms are smallest at K = (C m/σ²)^(1/(2β+1)): error ∝ (m/σ²)^(−2β/(2β+1)).

rate        The log–log slope of the error in M, for β = 1 and 2 at d = 3: −2β/(2β + 1) ± 0.07. The
            third term makes it steeper by 0.02 here, and terms of relative order K/m by as much.
tokens      The slope in N at fixed M of the error times (N/(N − 1))^(2β/(2β+1)) is 0 ± 0.1. (The
            factor tends to 1. From N = 8 to 32 its own slope is 0.05.)
matrix      At every M that can be computed, the slope in d is above 0, because the third term
            grows as d². The theorem says that this term falls faster in M than the other two. So
            the rule judges the excess over the error with A known, on the same samples: its slope
            in M is −1 ± 0.2 at d = 6. (The margin excludes −2/3, the rate of the error itself.)

A replicate is one seed: it draws f, A, tokens, noise and the pairs on which the error is measured.

What a sceptic may ask. *Would any method have this rate?* In one control nearest neighbours learn g
as a function of two tokens, without the product x · A x'; then the dimension should matter. *Is
independence of N trivial?* In the other control only one of the N values of a sample is observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from attnlens.claims import (
    Assumption,
    Attribution,
    Check,
    Claim,
    Control,
    Grid,
    Grids,
    Lines,
    Meaning,
    Origin,
    Power,
    Quantity,
    Rule,
    ScalingLaw,
)
from attnlens.claims.cells import Measured, stacked
from attnlens.core import Region
from attnlens.core.drawing import Figure
from attnlens.worlds import Episode, PairwiseInteraction

from . import pairwise_estimates as estimates

PREDICTION, UNSTRUCTURED, ONE = "prediction", "unstructured-map", "one-value"
MARGIN = 0.07
# With σ = 0.05 and 0.001, A has few parameters (3 at d = 3) compared with K (docstring).
NOISE_STD = {1: 0.05, 2: 0.001}
SETTINGS = {
    "estimate": "rotation",
    "observed": "all",
    "pairs": 20_000,  # the error is a mean over these pairs: a relative standard error of 1 %
    "new_samples": 2000,  # samples on which nearest neighbours are tested
}
SAMPLES = {"smoke": (512, 2048), "default": (512, 2048, 8192), "full": (512, 2048, 8192)}
PILOT = range(1000)


def cost(parameters: Mapping[str, Any], seeds: int) -> float:
    pairs = parameters["samples"] * parameters["tokens"] * (parameters["tokens"] - 1)
    return 0.5 + seeds * (0.05 + 1e-5 * pairs)


NEAREST = {"estimate": "nearest"}
RATE = Grid(
    settings={**SETTINGS, "part": "rate", "tokens": 2, "token_dim": 3, "terms": 2048},
    axes={"smoothness": (1, 2), "samples": SAMPLES},
    arm_settings={UNSTRUCTURED: NEAREST},
    blocks={
        PREDICTION: {"smoke": 1, "default": 24, "full": 64},
        UNSTRUCTURED: {"smoke": 1, "default": 2, "full": 4},
    },
    seeds_per_block=4,
    cost=cost,
    pilot=PILOT,
)
MATRIX = Grid(
    settings={
        **SETTINGS,
        "part": "matrix",
        "smoothness": 1,
        "tokens": 2,
        "token_dim": 6,
        "terms": 2048,
    },
    # A point between the ends would not make the slope more precise.
    axes={"samples": {"smoke": (512, 2048), "default": (512, 8192), "full": (512, 8192)}},
    arm_settings={UNSTRUCTURED: NEAREST},
    blocks={
        PREDICTION: {"smoke": 2, "default": 10, "full": 32},
        UNSTRUCTURED: {"smoke": 2, "default": 2, "full": 4},
    },
    seeds_per_block=4,
    cost=cost,
    pilot=PILOT,
)
TOKENS = Grid(
    settings={
        **SETTINGS,
        "part": "tokens",
        "smoothness": 1,
        "token_dim": 3,
        "terms": 512,  # K is about 35
        "samples": 128,
    },
    axes={"tokens": (8, 32)},
    arm_settings={ONE: {"observed": "first"}},
    blocks={
        PREDICTION: {"smoke": 1, "default": 16, "full": 48},
        ONE: {"smoke": 1, "default": 2, "full": 4},
    },
    seeds_per_block=4,
    cost=cost,
    pilot=PILOT,
)


def rate(smoothness: float) -> float:
    """The exponent −2β/(2β + 1)."""
    return -2 * smoothness / (2 * smoothness + 1)


ERROR = ScalingLaw("error", "samples")
RULE = Rule(
    Quantity(
        "rate",
        "slope of the error in the number of samples (β = {smoothness}, M {span})",
        ERROR.slopes,
        lambda smoothness: Region(rate(smoothness) - MARGIN, rate(smoothness) + MARGIN),
        per=("smoothness",),
        where={"part": "rate"},
        power=Power(
            # Pilots of 16 and 12 seeds.
            lambda smoothness: rate(smoothness) - 0.04,
            lambda smoothness: 0.054 if smoothness == 1 else 0.075,
        ),
    ),
    Quantity(
        "tokens",
        "slope of the error times (N/(N − 1))^(2β/(2β + 1)) in the number of tokens (N {span})",
        ScalingLaw("scaled", "tokens").slopes,
        Region(-0.1, 0.1),
        where={"part": "tokens"},
        # Pilot of 20 seeds with twice the samples: the standard deviation was 0.145.
        power=Power(0.016, 0.166),
    ),
    Quantity(
        "matrix",
        "slope of the error that comes from an unknown matrix (d = {token_dim}, M {span})",
        ScalingLaw("excess", "samples", "jackknife").slopes,
        Region(-1.2, -0.8),
        where={"part": "matrix"},
        # Pilot of 16 seeds: excesses of 19, 17 and 16 times σ²/m, where p is 15.
        power=Power(-1.05, 0.1),
    ),
)


def world_of(parameters: Mapping[str, Any]) -> PairwiseInteraction:
    """The world of a cell."""
    shape = {name: parameters[name] for name in ("tokens", "token_dim", "terms")}
    smoothness = parameters["smoothness"]
    return PairwiseInteraction(
        **shape, smoothness=float(smoothness), noise_std=NOISE_STD[smoothness]
    )


def observations(parameters: Mapping[str, Any]) -> float:
    """m, the number of observed pairs with the same information."""
    tokens = parameters["tokens"]
    values = tokens if parameters["observed"] == "all" else 1
    return parameters["samples"] * values / (tokens - 1)


def cosines_of(world: PairwiseInteraction, observed: float) -> int:
    """K, the best number of cosines: (C m/σ²)^(1/(2β+1))."""
    power = 1 / (2 * world.smoothness + 1)
    return round((world.energies[0] * observed / world.noise_floor) ** power)


def predicted_error(world: PairwiseInteraction, observed: float) -> float:
    """The first two terms of the error, at this K."""
    count = cosines_of(world, observed)
    return float(world.energies[count:].sum() + count * world.noise_floor / observed)


@eqx.filter_jit
def draw(world: PairwiseInteraction, key: Any, samples: int, new: int) -> Episode:
    """An episode, compiled once per shape."""
    return world.sample(key, samples, new)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The mean squared error of the interaction, the same times (N/(N − 1))^(2β/(2β+1)), and its
    excess over the error with A known."""
    unstructured = parameters["estimate"] == "nearest"
    world, samples = world_of(parameters), parameters["samples"]
    new = parameters["new_samples"] if unstructured else 0
    with jax.enable_x64(True):
        keys = [jax.random.key(seed) for seed in seeds]
        episodes = [jax.tree.map(np.asarray, draw(world, key, samples, new)) for key in keys]
    power = -rate(world.smoothness)
    scale = (world.tokens / (world.tokens - 1)) ** power
    rows = []
    for seed, episode in zip(seeds, episodes, strict=True):
        learned, known = errors(parameters, world, episode, seed)
        if unstructured:
            learned = unstructured_error(episode)
        rows.append({"error": learned, "scaled": learned * scale, "excess": learned - known})
    return stacked(rows)


def errors(
    parameters: Mapping[str, Any], world: PairwiseInteraction, episode: Any, seed: int
) -> tuple[float, float]:
    """The error with A learned, and with A known, on the same samples and new pairs."""
    (inputs, target), (matrix, truth) = episode.tokens, episode.latent
    rows = slice(None, None, None if parameters["observed"] == "all" else world.tokens)
    target, count = target.ravel()[rows], cosines_of(world, observations(parameters))
    if parameters["estimate"] == "rotation":
        learned = estimates.learned_matrix(inputs, target, count, rows)
    else:
        learned = matrix
    random = np.random.default_rng([seed, parameters["token_dim"]])
    first, second = random.standard_normal((2, parameters["pairs"], world.token_dim))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    head = min(4 * count, world.terms)  # the mean square of the other terms is known exactly
    tail = float(np.sum(truth[head:] ** 2))

    def place(matrix: np.ndarray) -> np.ndarray:
        product = np.clip(np.sum((first @ matrix) * second, 1), -1, 1)
        return estimates.distribution(product, world.token_dim)

    interaction = estimates.values(truth[:head], place(matrix))

    def error(matrix: np.ndarray) -> float:
        coefficients = estimates.least_squares(inputs, target, matrix, count, rows)
        return (
            float(np.mean((estimates.values(coefficients, place(matrix)) - interaction) ** 2))
            + tail
        )

    return error(learned), error(matrix)


def unstructured_error(episode: Any) -> float:
    """The error of nearest neighbours among pairs of tokens; a sample has two tokens."""
    inputs, new = episode.tokens.key, episode.query
    pairs, at = (
        np.concatenate([x, x[:, ::-1]], axis=2).reshape(2 * len(x), -1) for x in (inputs, new)
    )
    return estimates.nearest(pairs, episode.tokens.value.ravel(), at, episode.answer.ravel())


LINES = Lines(
    "Error of the learned interaction",
    "samples M",
    "mean squared error",
    ERROR,
    {
        PREDICTION: "{part}, β = {smoothness}, d = {token_dim}",
        UNSTRUCTURED: "nearest neighbours, {part}, β = {smoothness}, d = {token_dim}",
    },
    per=("part", "smoothness", "token_dim"),
    reference=lambda part, smoothness, token_dim: rate(smoothness),
)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    """The error over M; the cells of other numbers of tokens have one M only."""
    along = {
        arm: [c for c in cells if c.parameters["part"] != "tokens"] for arm, cells in arms.items()
    }
    return LINES(along)


CLAIM = Claim(
    id="C.pairwise",
    title="The rate of learning an interaction of tokens depends on its smoothness only",
    statement=(
        "The error of a learned interaction of pairs of tokens falls with the number of samples at "
        "the rate of a function of one variable, for any number of tokens; that the matrix inside "
        "the interaction is unknown costs a term that falls faster."
    ),
    formula=(
        r"\mathbb{E}\,\lVert \hat g - g\rVert^2 \approx c\,M^{-2\beta/(2\beta+1)} + "
        r"\tfrac{d(d-1)}{2}\,\tfrac{\sigma^2}{M}\,\tfrac{N-1}{N}"
    ),
    prediction=(
        f"The log–log slope of the error in the number of samples is −2β/(2β + 1) ± {MARGIN:g} for "
        "β = 1 and 2; its slope in the number of tokens, after the factor "
        "(N/(N − 1))^(2β/(2β + 1)), is $tokens; and the excess over the error "
        "with a known matrix has the slope $matrix in the number of samples."
    ),
    controls={
        UNSTRUCTURED: Control(
            "Nearest neighbours learn the interaction as a function of two tokens.",
            quantities=("rate", "matrix"),
        ),
        ONE: Control("Only one value per sample is observed.", quantities=("tokens",)),
    },
    assumptions=(
        Assumption("Tokens are independent and uniform on a sphere", Check.BY_CONSTRUCTION),
        Assumption("The matrix is orthogonal, and the smoothness known", Check.BY_CONSTRUCTION),
        Assumption("Tokens interact through one product", Check.CONTROL, control=UNSTRUCTURED),
        Assumption("The values of all tokens are observed", Check.CONTROL, control=ONE),
    ),
    meaning=Meaning(
        supported=(
            "An attention-style layer learns a function of one variable: more tokens or dimensions "
            "do not call for more samples, once these are many compared with the entries of the "
            "matrix."
        ),
        refuted=(
            "Tokens, or the unknown matrix, change how fast an interaction is learned here: plan "
            "samples from a learning curve."
        ),
        undecided="How fast the interaction is learned at these numbers of samples is open.",
    ),
    source=(
        "Zucker, Wang, Lu and Seroussi (2025, arXiv 2510.11789); our formalisation: "
        "docs/theory.md, prediction 26."
    ),
    attribution=Attribution(
        Origin.FORMALISATION,
        "the minimax rate is M^{−2β/(2β+1)} with M being the sample size, depending only on the "
        "smoothness β of the activation, and crucially independent of token count, ambient "
        "dimension, or rank of the weight matrix",
    ),
    plan=Grids(RATE, MATRIX, TOKENS),
    measure=measure,
    judge=RULE,
    figure=figure,
)
