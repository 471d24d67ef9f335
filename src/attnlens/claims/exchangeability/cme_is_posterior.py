"""A.cme-is-posterior: with the noise variance as ridge, CME attention is the exact posterior.

Our formalisation of statement (b) of lens A (Zhang et al., 2022) in a case where it is an identity
(docs/theory.md, prediction 1). If the latent is Gaussian with covariance κ and v = z(k) + N(0, σ²),
then κ(q, K)(κ(K, K) + σ² I)⁻¹ v is E[z(q) | tokens], and

    |CME − posterior mean|     ≤ 10 ε·cond(κ(K, K) + σ² I)·‖v‖
    |CME var − posterior var|  ≤ 10 ε·cond(κ(K, K) + σ² I)·κ(q, q)

with ε = 2⁻⁵² the rounding unit: a backward-stable solve perturbs the matrix by a small multiple
of ε, and the condition number amplifies this to an error of the solution (Higham, Accuracy and
Stability of Numerical Algorithms, 2002, chapter 10); 10 is that small multiple.

The reference is an *independent* algorithm, not the same solve: a Kalman filter in NumPy updates a
mean and a covariance, one token at a time. Its state holds function values for the Gaussian process
and weights for linear regression, where CME uses a linear kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from attnlens.attention.cme import cme
from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work, group_by
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.statistics import judge_exactly
from attnlens.core.verdicts import Part, Region
from attnlens.worlds import ExactWorld, GaussianProcess, LinearRegression, Pairs

KEY_DIM = 3
QUERIES = 16
TEMPERATURE = 0.5  # a smooth covariance: without noise its Gram matrix would be ill-conditioned
NOISE_STD = 0.3  # cond ≤ (L + σ²)/σ², about 1e4 at L = 1024
EPSILON = float(np.finfo(float).eps)
LENGTHS = {
    "smoke": (1, 16, 256),
    "default": (1, 4, 16, 64, 256, 1024),
    "full": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048),
}
SEEDS = {"smoke": (0,), "default": (0, 1), "full": tuple(range(8))}
CONTROL = "ridge-ten-times"
SHORTEST_CONTROL = 4  # tokens; with one or two, a wrong ridge changes little


def plan(profile: Profile) -> Iterable[Work]:
    for arm in (PREDICTION, CONTROL):
        for world in ("gaussian-process", "linear-regression"):
            for length in LENGTHS[profile]:
                if arm == PREDICTION or length >= SHORTEST_CONTROL:
                    cost = 0.1 + len(SEEDS[profile]) * (length / 900) ** 3
                    yield Work(arm, {"world": world, "length": length}, SEEDS[profile], cost)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The largest error over queries, divided by its bound, one per seed."""
    rows = [_one(arm, parameters["world"], parameters["length"], seed) for seed in seeds]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _one(arm: str, name: str, length: int, seed: int) -> dict[str, float]:
    gaussian_process = name == "gaussian-process"
    world = (
        GaussianProcess(key_dim=KEY_DIM, temperature=TEMPERATURE, noise_std=NOISE_STD)
        if gaussian_process
        else LinearRegression(key_dim=KEY_DIM, noise_std=NOISE_STD)
    )
    ridge = NOISE_STD**2 * (1 if arm == PREDICTION else 10)
    kernel = "rbf" if gaussian_process else "linear"
    temperature = TEMPERATURE if gaussian_process else 1.0

    random = jax.random.fold_in(jax.random.key(seed), length)
    attended = _attend(world, random, length, jnp.asarray(ridge), temperature, kernel)
    query, tokens, answer = jax.tree.map(np.asarray, attended)
    mean, var, covariance = (_kalman_function if gaussian_process else _kalman_weights)(
        tokens, query
    )
    eigenvalues = np.linalg.eigvalsh(covariance + NOISE_STD**2 * np.eye(length))
    allowed = 10 * EPSILON * eigenvalues[-1] / eigenvalues[0]
    error = float(np.abs(answer.mean[:, 0] - mean).max())
    allowed_mean = float(allowed * np.linalg.norm(tokens.value))
    return {
        "mean": error / allowed_mean,
        "var": float(np.abs(answer.var[:, 0] - var).max() / allowed),
        "error": error,
        "allowed": allowed_mean,
    }


@eqx.filter_jit
def _attend(
    world: ExactWorld, random: Array, length: int, ridge: Array, temperature: float, kernel: str
) -> Any:
    """The queries, the tokens, and mean and variance of CME attention; one program per length."""
    episode = world.sample(random, length, QUERIES)
    attend = partial(cme, ridge=ridge, temperature=temperature, kernel=kernel, variance=True)
    assert episode.query is not None
    return episode.query, episode.tokens, attend(episode.query, *episode.tokens)


def _kalman_function(tokens: Pairs, query: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean and variance at the queries, and the prior covariance of the keys.

    The state of the filter is z at keys and queries together, a priori N(0, exp((a·b − 1)/τ)).
    """
    points = np.concatenate([tokens.key, query])
    prior = np.exp((points @ points.T - 1) / TEMPERATURE)
    mean, covariance = np.zeros(len(points)), prior.copy()
    length = len(tokens.key)
    for i, value in enumerate(tokens.value[:, 0]):
        gain = covariance[:, i] / (covariance[i, i] + NOISE_STD**2)
        mean = mean + gain * (value - mean[i])
        covariance -= np.outer(gain, covariance[i])
    return mean[length:], np.diag(covariance)[length:], prior[:length, :length]


def _kalman_weights(tokens: Pairs, query: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same for linear regression: the state holds the weights, a priori N(0, I)."""
    mean, covariance = np.zeros(KEY_DIM), np.eye(KEY_DIM)
    for key, value in zip(tokens.key, tokens.value[:, 0], strict=True):
        gain = covariance @ key / (key @ covariance @ key + NOISE_STD**2)
        mean = mean + gain * (value - key @ mean)
        covariance = covariance - np.outer(gain, key @ covariance)
    var = np.einsum("qd,de,qe->q", query, covariance, query)
    return query @ mean, var, np.asarray(tokens.key @ tokens.key.T)


def judge(measured: Sequence[Measured]) -> list[Part]:
    parts = []
    for world, cells in group_by(measured, "world").items():
        for name, label in (("mean", "error of the mean"), ("var", "error of the variance")):
            values = np.concatenate([cell.values[name] for cell in cells])
            quantity = f"largest {label} over the rounding bound ({world})"
            parts.append(judge_exactly(quantity, values, Region(high=1.0)))
    return parts


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for world, cells in group_by(measured, "world").items():
            rows = group_by(cells, "length").items()
            points = tuple(
                Point(length, max(float(c.values["error"].max()) for c in group))
                for length, group in rows
            )
            control = arm != PREDICTION
            label = f"{world}, ridge ten times too large" if control else world
            series.append(Series(label, points, control=control))
            if not control:
                bound = tuple(
                    Point(length, min(float(c.values["allowed"].min()) for c in group))
                    for length, group in rows
                )
                series.append(Series(f"rounding bound, {world}", bound, line=True))
    return Figure(
        "Distance between CME attention and the exact posterior mean",
        "tokens L",
        "largest absolute difference",
        tuple(series),
    )


CLAIM = Claim(
    id="A.cme-is-posterior",
    title="CME attention is the exact posterior",
    statement=(
        "With the noise variance as its ridge, conditional-mean-embedding attention computes the "
        "exact posterior mean and variance of the latent, at every length, to rounding error."
    ),
    formula=(
        r"\kappa(q,K)\,\left(\kappa(K,K)+\sigma^2 I\right)^{-1} v"
        r"\;=\;\mathbb{E}\left[z(q)\mid (k_1,v_1),\dots,(k_L,v_L)\right]"
    ),
    prediction=(
        "The largest difference from Kalman updates, one token at a time, is at most 10 ε·cond·‖v‖ "
        "for the mean and 10 ε·cond for the variance, at every L."
    ),
    controls={CONTROL: "The ridge is ten times too large; L ≥ 4."},
    assumptions=(
        "The latent is Gaussian with the kernel as covariance (by construction, in both worlds).",
        "The noise variance is known and used as the ridge (the control breaks this).",
    ),
    meaning=(
        "An attention layer with a ridge solve in place of the softmax is exact Bayesian inference "
        "when its kernel and ridge match the data; a wrong ridge is a wrong noise level."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (b); our formalisation: "
        "docs/theory.md, prediction 1 (identity)."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
