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
mean and a covariance, one token at a time. For the Gaussian process, its state holds function
values; for linear regression, for which CME uses a linear kernel, it holds the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from attnlens.attention.cme import cme
from attnlens.claims.cells import stacked
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import pooled
from attnlens.claims.exchangeability.statements import INFERENCE, cite
from attnlens.claims.figures import RoundingErrors
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.verdicts import Region
from attnlens.worlds import ExactWorld, GaussianProcess, LinearRegression, Pairs

CONTROL = "ridge-ten-times"
EPSILON = float(np.finfo(float).eps)
LENGTHS = {
    "smoke": (1, 16, 256),
    "default": (1, 4, 16, 64, 256, 1024),
    "full": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048),
}
GRID = Grid(
    settings={
        "key_dim": 3,
        "queries": 16,
        # Temperature of the covariance. It is so smooth that its Gram matrix without noise would be
        # ill-conditioned.
        "temperature": 0.5,
        "noise_std": 0.3,  # cond ≤ (L + σ²)/σ², about 1e4 at L = 1024
        "ridge_factor": 1,  # ridge divided by noise variance
        "rounding_factor": 10,  # the factor 10 of the bound in the module's docstring
    },
    axes={"world": ("gaussian-process", "linear-regression"), "length": LENGTHS},
    arm_settings={
        CONTROL: {
            "ridge_factor": 10,
            # With one or two tokens, a wrong ridge changes the result only a little.
            "length": {name: tuple(n for n in row if n >= 4) for name, row in LENGTHS.items()},
        }
    },
    blocks={PREDICTION: 1, CONTROL: 1},
    seeds_per_block={"smoke": 1, "default": 2, "full": 8},
    cost=lambda parameters, seeds: 0.1 + seeds * (parameters["length"] / 900) ** 3,
)


def error_of(key: str, words: str) -> Quantity:
    name = f"largest error of the {words} over the rounding bound ({{world}})"
    return Quantity(key, name, pooled(key), Region(high=1.0), per=("world",), exact=True)


RULE = Rule(error_of("mean", "mean"), error_of("var", "variance"))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The largest errors of mean and variance over queries, divided by their bounds, per seed."""
    return stacked([measure_seed(parameters, seed) for seed in seeds])


def measure_seed(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    key_dim, noise_std, tau, length = (
        parameters[name] for name in ("key_dim", "noise_std", "temperature", "length")
    )
    random = jax.random.fold_in(jax.random.key(seed), length)
    ridge = jnp.asarray(noise_std**2 * parameters["ridge_factor"])
    attend = partial(_attend, random=random, length=length, queries=parameters["queries"])
    if parameters["world"] == "gaussian-process":
        world = GaussianProcess(key_dim=key_dim, temperature=tau, noise_std=noise_std)
        attended = attend(world, ridge=ridge, temperature=tau, kernel="rbf")
        kalman = partial(_kalman_function, temperature=tau)
    else:
        regression = LinearRegression(key_dim=key_dim, noise_std=noise_std)
        attended = attend(regression, ridge=ridge, temperature=1.0, kernel="linear")
        kalman = _kalman_weights
    query, tokens, answer = jax.tree.map(np.asarray, attended)
    mean, var, covariance = kalman(tokens, query, noise_std**2)
    eigenvalues = np.linalg.eigvalsh(covariance + noise_std**2 * np.eye(length))
    allowed = parameters["rounding_factor"] * EPSILON * eigenvalues[-1] / eigenvalues[0]
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
    world: ExactWorld,
    random: Array,
    length: int,
    queries: int,
    ridge: Array,
    temperature: float,
    kernel: str,
) -> Any:
    """Queries, tokens, and the mean and variance of CME attention; compiled once per length."""
    episode = world.sample(random, length, queries)
    attend = partial(cme, ridge=ridge, temperature=temperature, kernel=kernel, variance=True)
    assert episode.query is not None
    return episode.query, episode.tokens, attend(episode.query, *episode.tokens)


def _kalman_function(
    tokens: Pairs, query: np.ndarray, noise_var: float, temperature: float
) -> tuple[np.ndarray, ...]:
    """Posterior mean and variance at the queries, and the prior covariance of the keys.

    The state of the Kalman filter is z at all keys and queries. Its prior is normal with mean 0 and
    covariance exp((a·b − 1)/τ) between points a and b.
    """
    points = np.concatenate([tokens.key, query])
    prior = np.exp((points @ points.T - 1) / temperature)
    mean, covariance = np.zeros(len(points)), prior.copy()
    length = len(tokens.key)
    for i, value in enumerate(tokens.value[:, 0]):
        gain = covariance[:, i] / (covariance[i, i] + noise_var)
        mean = mean + gain * (value - mean[i])
        covariance -= np.outer(gain, covariance[i])
    return mean[length:], np.diag(covariance)[length:], prior[:length, :length]


def _kalman_weights(tokens: Pairs, query: np.ndarray, noise_var: float) -> tuple[np.ndarray, ...]:
    """As `_kalman_function`, for linear regression: the state is the weights, prior N(0, I)."""
    dim = query.shape[1]
    mean, covariance = np.zeros(dim), np.eye(dim)
    for key, value in zip(tokens.key, tokens.value[:, 0], strict=True):
        gain = covariance @ key / (key @ covariance @ key + noise_var)
        mean = mean + gain * (value - key @ mean)
        covariance = covariance - np.outer(gain, key @ covariance)
    var = np.einsum("qd,de,qe->q", query, covariance, query)
    return query @ mean, var, np.asarray(tokens.key @ tokens.key.T)


FIGURE = RoundingErrors(
    "Distance between CME attention and the exact posterior mean",
    "world",
    {PREDICTION: "{}", CONTROL: "{}, ridge ten times too large"},
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
        "The largest difference from Kalman updates, one token at a time, is at most "
        "$rounding_factor ε·cond·‖v‖ for the mean and $rounding_factor ε·cond for the variance, at "
        "every L = $length."
    ),
    controls={
        CONTROL: Control("The ridge is ten times too large; L ≥ 4.", quantities=("mean", "var"))
    },
    assumptions=(
        Assumption(
            "The latent is Gaussian with the kernel as covariance, in both worlds",
            Check.BY_CONSTRUCTION,
        ),
        Assumption(
            "The noise variance is known and used as the ridge", Check.CONTROL, control=CONTROL
        ),
    ),
    meaning=Meaning(
        supported=(
            "An attention layer with a ridge solve in place of the softmax is exact Bayesian "
            "inference when its kernel and ridge match the data; a wrong ridge is a wrong noise "
            "level."
        ),
        refuted=(
            "The solve differed from the exact posterior by more than rounding: do not use this "
            "layer where exact inference is needed before its precision is explained."
        ),
        undecided=(
            "Some lengths have no result: use the layer as exact inference only at the lengths "
            "that were computed."
        ),
    ),
    source=cite("statement (b)", "prediction 1 (identity)"),
    attribution=INFERENCE,
    plan=GRID,
    measure=measure,
    judge=RULE,
    exact=True,
    figure=FIGURE,
)
