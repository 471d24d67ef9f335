"""A.weights-are-posterior: with a finite latent, the softmax weights are its exact posterior.

Our formalisation of claim (b) of lens A, where it is an identity. Let z ∈ {1 … C} have prior π and
log p(x | z) = ⟨T(x), η_z⟩ + (what all classes share). With the prototypes η as keys, the *sum* of
the tokens' statistics as query (not their mean, at temperature 1, not √d) and log π as bias,

    weights = softmax_c( ⟨Σ T(x_ℓ), η_c⟩ + log π_c ) = P(z = c | x¹ … x^L).

Normal tokens: T(x) = (x, 1), η_c = (μ_c/σ², −‖μ_c‖²/2σ²). One-hot tokens: T(x) = x, η_c = log p_c.

Log-odds are compared, because at large L all probabilities but one underflow and hide any error.
The operator's weights underflow too, so it is asked at temperature t = max(1, spread/600) for
query and bias alike: t·log(w_c/w_C) is then the log-odds, and no weight is below e^(−600). The
reference is independent: SciPy's log densities, token by token, added without rounding
(math.fsum). The two may differ by

    10 ε·( Σ_ℓ max_c |log p(x_ℓ | c)| + max_c Σ_j |q_j η_cj| + max_c |log π_c| + t )

for the rounding of each log density, of the dot products, of the bias, and of the logarithm of a
weight (relative error ε) times t; 10 is room for a few operations each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.attention.softmax import softmax
from attnlens.claims.base import PREDICTION, Claim, Measured, Profile, Work, by, example
from attnlens.records import Figure, Part, Point, Region, Series
from attnlens.statistics import judge_exactly
from attnlens.worlds import FiniteMixture

# Three classes that a token or two cannot tell apart, and a skewed prior: without its logarithm
# the log-odds are off by log 8 and log 2.
PRIOR = (0.8, 0.15, 0.05)
MEANS = ((-0.4, 0.0), (0.4, 0.1), (0.0, 0.5))
NOISE_STD = 1.2
PROBABILITIES = ((0.5, 0.3, 0.2), (0.3, 0.4, 0.3), (0.2, 0.3, 0.5))
EPSILON = float(np.finfo(float).eps)
LENGTHS = {"smoke": (1, 256), "default": (1, 16, 256, 4096), "full": (1, 16, 256, 4096, 65536)}
SEEDS = {"smoke": (0,), "default": tuple(range(4)), "full": tuple(range(36))}
CONTROL = "no-prior"
SHOWN = 64  # tokens of the example that is drawn
SHOWN_LENGTH = 256  # a length of every profile


def plan(profile: Profile) -> Iterable[Work]:
    for arm in (PREDICTION, CONTROL):
        for tokens in ("normal", "one-hot"):
            for length in LENGTHS[profile]:
                parameters = {"tokens": tokens, "length": length}
                yield Work(arm, parameters, SEEDS[profile], 0.1 + 1e-5 * length)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The largest error of the log-odds as a share of the rounding bound, one a seed."""
    rows = [_one(arm, parameters["tokens"], parameters["length"], seed) for seed in seeds]
    values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    kind = (arm, parameters["tokens"], parameters["length"])
    if kind == (PREDICTION, "normal", SHOWN_LENGTH) and 0 in seeds:
        values["example"] = _tightening(seeds[0])
    return values


def _tightening(seed: int) -> np.ndarray:
    """P(z = c | first n tokens) for n = 0 … SHOWN, of one sequence: (n, class)."""
    tokens = _tokens(True, SHOWN_LENGTH, seed)[:SHOWN]
    sums = np.cumsum(np.vstack([np.log(PRIOR), _log_likelihoods(tokens, True)]), axis=0)
    shares = np.exp(sums - sums.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


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
        jnp.asarray(query)[None], jnp.asarray(keys), jnp.eye(len(PRIOR)),
        temperature=jnp.asarray(temperature), bias=jnp.asarray(bias / temperature)[None],
    )[0]  # fmt: skip
    log_odds = temperature * (np.log(weights[:-1]) - np.log(weights[-1]))
    error = float(np.abs(log_odds - (exact[:-1] - exact[-1])).max())
    allowed = 10 * EPSILON * float(
        np.abs(log_likelihood).max(-1).sum()
        + (np.abs(keys) @ np.abs(query)).max()
        + np.abs(log_prior).max()
        + temperature
    )  # fmt: skip
    return {"share": error / allowed, "error": error, "allowed": allowed}


def _log_likelihoods(tokens: np.ndarray, normal: bool) -> np.ndarray:
    """log p(x | c) for every token and class, by SciPy."""
    import scipy.stats  # 1.8 s to load, and only here

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
        for kind, cells in by(measured, "tokens").items()
    ]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for kind, cells in by(measured, "tokens").items():
            rows = [(length, group[0].values) for length, group in by(cells, "length").items()]
            # Rounding may leave no error at all; a logarithmic axis shows that at ε.
            points = tuple(Point(at, max(float(v["error"].max()), EPSILON)) for at, v in rows)
            control = arm != PREDICTION
            name = f"{kind}, prior left out" if control else f"{kind} tokens"
            series.append(Series(name, points, control=control))
            if not control:
                bound = tuple(Point(at, float(v["allowed"].min())) for at, v in rows)
                series.append(Series(f"rounding bound, {kind}", bound, line=True))
    return Figure(
        "Distance between softmax attention's log-odds and the exact posterior's",
        "tokens L", "largest absolute difference", tuple(series),
    )  # fmt: skip


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """The posterior tightening as tokens arrive, in one sequence."""
    shares = example(arms[PREDICTION], "example")
    if shares is None:
        return []
    series = [
        Series(
            f"class {c + 1} (prior {prior:g})",
            tuple(Point(float(n), float(p)) for n, p in enumerate(shares[:, c])),
            curve=True,
        )
        for c, prior in enumerate(PRIOR)
    ]
    title = "The posterior tightening as tokens arrive, in one sequence"
    return [Figure(title, "tokens", "P(class | tokens)", tuple(series), log_x=False, log_y=False)]


CLAIM = Claim(
    id="A.weights-are-posterior",
    title="Softmax weights are the posterior of a finite latent",
    statement=(
        "With class prototypes as keys, the sum of the tokens' statistics as query and the log "
        "prior as bias, the weights of softmax attention are the exact posterior of the class."
    ),
    formula=(
        r"\mathrm{softmax}_c\left(\left\langle \sum_\ell T(x_\ell),\,\eta_c\right\rangle"
        r"+\log\pi_c\right) = P\left(z=c\mid x_1,\dots,x_L\right)"
    ),
    prediction="The log-odds agree with SciPy's log densities to rounding error, at every L.",
    controls={CONTROL: "The log prior is left out of the bias; the prior is skewed."},
    assumptions=(
        "The latent is one of finitely many classes, and tokens are independent given it (by "
        "construction).",
        "Token log-likelihoods are linear in the tokens' statistics (by construction: an "
        "exponential family).",
        "The query is the sum over tokens, not their mean (by construction): attention must know "
        "the length.",
    ),
    meaning=(
        "One softmax head can do exact classification by Bayes' rule, if its query adds up tokens. "
        "A head that averages them has forgotten how sure it may be."
    ),
    source="Lens A, claim (b); identity (2) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
    views=views,
)
