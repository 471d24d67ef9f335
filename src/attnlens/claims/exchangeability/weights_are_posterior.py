"""A.weights-are-posterior: with a finite latent, the softmax weights are its exact posterior.

Our formalisation of statement (b) of lens A (Zhang et al., 2022) in a case where it is an identity
(docs/theory.md, prediction 2). Let z ∈ {1 … C} have prior π and let
log p(x | z) = ⟨T(x), η_z⟩ + (a term common to all classes). The prototypes η are the keys, the
query is the *sum* of the statistics of the tokens (not their mean), the temperature is 1 (not √d),
and log π is the bias. Then

    weights = softmax_c( ⟨Σ T(x_ℓ), η_c⟩ + log π_c ) = P(z = c | x¹ … x^L).

Normal tokens: T(x) = (x, 1), η_c = (μ_c/σ², −‖μ_c‖²/2σ²). One-hot tokens: T(x) = x, η_c = log p_c.

Log-odds are compared, because at large L all probabilities but one underflow and hide any error.
The weights of the operator underflow too, so it is called with query and bias at the temperature
t = max(1, spread/600), spread being the range of the log posterior: t·log(w_c/w_C) is then the
log-odds, and no weight is below e^(−600). The reference is independent: the log densities of SciPy,
token by token, added without rounding (math.fsum). The two may differ by

    10 ε·( Σ_ℓ max_c |log p(x_ℓ | c)| + max_c Σ_j |q_j η_cj| + max_c |log π_c| + t )

for the rounding of each log density, of the dot products, of the bias, and of the logarithm of a
weight (relative error ε) times t; the factor 10 allows for a few operations each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.attention.softmax import softmax
from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work, example, group_by
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.statistics import judge_exactly
from attnlens.core.verdicts import Part, Region
from attnlens.worlds import FiniteMixture

# Three classes that one or two tokens cannot distinguish, and a skewed prior: without the log prior
# the log-odds are wrong by log 16 and log 3.
PRIOR = (0.8, 0.15, 0.05)
MEANS = ((-0.4, 0.0), (0.4, 0.1), (0.0, 0.5))
NOISE_STD = 1.2
PROBABILITIES = ((0.5, 0.3, 0.2), (0.3, 0.4, 0.3), (0.2, 0.3, 0.5))
EPSILON = float(np.finfo(float).eps)
LENGTHS = {"smoke": (1, 256), "default": (1, 16, 256, 4096), "full": (1, 16, 256, 4096, 65536)}
SEEDS = {"smoke": (0,), "default": tuple(range(4)), "full": tuple(range(36))}
CONTROL = "no-prior"
EXAMPLE_TOKENS = 64  # first tokens of the sequence that is drawn
EXAMPLE_LENGTH = 256  # of that sequence; a length of every profile


def plan(profile: Profile) -> Iterable[Work]:
    for arm in (PREDICTION, CONTROL):
        for tokens in ("normal", "one-hot"):
            for length in LENGTHS[profile]:
                parameters = {"tokens": tokens, "length": length}
                yield Work(arm, parameters, SEEDS[profile], 0.1 + 1e-5 * length)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The largest error of the log-odds, divided by its rounding bound, one per seed."""
    rows = [_one(arm, parameters["tokens"], parameters["length"], seed) for seed in seeds]
    values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    kind = (arm, parameters["tokens"], parameters["length"])
    if kind == (PREDICTION, "normal", EXAMPLE_LENGTH) and 0 in seeds:
        values["example"] = _posterior_path(seeds[0])
    return values


def _posterior_path(seed: int) -> np.ndarray:
    """P(z = c | first n tokens) of one sequence for n = 0 … EXAMPLE_TOKENS: (n, class)."""
    tokens = _tokens(True, EXAMPLE_LENGTH, seed)[:EXAMPLE_TOKENS]
    sums = np.cumsum(np.vstack([np.log(PRIOR), _log_likelihoods(tokens, True)]), axis=0)
    weights = np.exp(sums - sums.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def _tokens(normal: bool, length: int, seed: int) -> np.ndarray:
    world = (
        FiniteMixture(means=MEANS, noise_std=NOISE_STD, weights=PRIOR)
        if normal
        else FiniteMixture(probabilities=PROBABILITIES, weights=PRIOR)
    )
    key = jax.random.fold_in(jax.random.key(seed), length)
    return np.asarray(world.sample(key, length).tokens)


def _one(arm: str, kind: str, length: int, seed: int) -> dict[str, float]:
    normal = kind == "normal"
    tokens = _tokens(normal, length, seed)
    log_likelihood = _log_likelihoods(tokens, normal)  # (L, C)
    log_prior = np.log(PRIOR)
    exact = np.array(
        [math.fsum((*row, p)) for row, p in zip(log_likelihood.T, log_prior, strict=True)]
    )

    if normal:
        means = np.array(MEANS)
        statistics = np.column_stack([tokens, np.ones(length)])
        keys = np.column_stack([means, -0.5 * (means**2).sum(-1)]) / NOISE_STD**2
    else:
        statistics, keys = tokens, np.log(PROBABILITIES)
    query = np.array([math.fsum(column) for column in statistics.T])
    temperature = max(1.0, float(np.ptp(exact)) / 600)
    bias = log_prior if arm == PREDICTION else np.zeros(len(PRIOR))
    weights = softmax(
        jnp.asarray(query)[None],
        jnp.asarray(keys),
        jnp.eye(len(PRIOR)),
        temperature=jnp.asarray(temperature),
        bias=jnp.asarray(bias / temperature)[None],
    )[0]
    log_odds = temperature * (np.log(weights[:-1]) - np.log(weights[-1]))
    error = float(np.abs(log_odds - (exact[:-1] - exact[-1])).max())
    allowed = (
        10
        * EPSILON
        * float(
            np.abs(log_likelihood).max(-1).sum()
            + (np.abs(keys) @ np.abs(query)).max()
            + np.abs(log_prior).max()
            + temperature
        )
    )
    return {"share": error / allowed, "error": error, "allowed": allowed}


def _log_likelihoods(tokens: np.ndarray, normal: bool) -> np.ndarray:
    """log p(x | c) for every token and class, by SciPy."""
    import scipy.stats  # takes 1.8 s to load and is used only here

    if normal:
        covariance: Any = NOISE_STD**2 * np.eye(len(MEANS[0]))
        rows = [scipy.stats.multivariate_normal.logpdf(tokens, mean, covariance) for mean in MEANS]
    else:
        rows = [scipy.stats.multinomial.logpmf(tokens, 1, row) for row in PROBABILITIES]
    return np.column_stack([np.atleast_1d(row) for row in rows])


def judge(measured: Sequence[Measured]) -> list[Part]:
    return [
        judge_exactly(
            f"largest error of the log-odds over the rounding bound ({kind} tokens)",
            np.concatenate([cell.values["share"] for cell in cells]),
            Region(high=1.0),
        )
        for kind, cells in group_by(measured, "tokens").items()
    ]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for kind, cells in group_by(measured, "tokens").items():
            rows = [
                (length, group[0].values) for length, group in group_by(cells, "length").items()
            ]
            # The error may be exactly zero; the logarithmic axis shows it at ε.
            points = tuple(
                Point(length, max(float(values["error"].max()), EPSILON)) for length, values in rows
            )
            control = arm != PREDICTION
            name = f"{kind}, prior left out" if control else f"{kind} tokens"
            series.append(Series(name, points, control=control))
            if not control:
                bound = tuple(
                    Point(length, float(values["allowed"].min())) for length, values in rows
                )
                series.append(Series(f"rounding bound, {kind}", bound, line=True))
    return Figure(
        "Distance between softmax attention's log-odds and the exact posterior's",
        "tokens L",
        "largest absolute difference",
        tuple(series),
    )


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """The posterior after the first n tokens of one sequence."""
    posteriors = example(arms[PREDICTION], "example")
    if posteriors is None:
        return []
    series = [
        Series(
            f"class {c + 1} (prior {prior:g})",
            tuple(Point(float(n), float(p)) for n, p in enumerate(posteriors[:, c])),
            curve=True,
        )
        for c, prior in enumerate(PRIOR)
    ]
    title = "Posterior after the first n tokens of one sequence"
    return [Figure(title, "tokens", "P(class | tokens)", tuple(series), log_x=False, log_y=False)]


CLAIM = Claim(
    id="A.weights-are-posterior",
    title="Softmax weights are the posterior of a finite latent",
    statement=(
        "With class prototypes as keys, the sum of the statistics of the tokens as query and the "
        "log prior as bias, the weights of softmax attention are the exact posterior of the class."
    ),
    formula=(
        r"\mathrm{softmax}_c\left(\left\langle \sum_\ell T(x_\ell),\,\eta_c\right\rangle"
        r"+\log\pi_c\right) = P\left(z=c\mid x_1,\dots,x_L\right)"
    ),
    prediction=(
        "The log-odds agree with those from the log densities of SciPy to rounding error, at every "
        "L."
    ),
    controls={CONTROL: "The log prior is left out of the bias, and the prior is skewed."},
    assumptions=(
        "The latent is one of finitely many classes, and tokens are independent given it (by "
        "construction).",
        "The log-likelihood of a token is linear in its statistics (by construction: an "
        "exponential family).",
        "The query is the sum over tokens, not their mean, so that it depends on the length (by "
        "construction).",
    ),
    meaning=(
        "One softmax head can classify exactly by Bayes' rule if its query is the sum of the "
        "tokens. A head that averages them loses the information how certain the class is."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (b); our formalisation: "
        "docs/theory.md, prediction 2 (identity)."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
    views=views,
)
