"""A latent function: z is a Gaussian process, and a token is its value at a key, with noise.

    z ~ GP(0, κ_τ),  k ~ key distribution,  v = z(k) + N(0, σ²)

With K = κ(keys, keys) + σ² I = R Rᵀ the posterior of z at a query q is normal with

    mean      κ(q, keys) K⁻¹ v
    variance  κ(q, q) − κ(q, keys) K⁻¹ κ(keys, q)
    evidence  log N(v; 0, K) = −½[ ‖R⁻¹ v‖² + 2 Σ log R_ii + L log 2π ]

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, algorithm 2.1). More
tokens extend the factor by rows (R₂₁ R₂₂): R₂₁ᵀ = R⁻¹ κ(keys, new), and R₂₂ is the factor of the
covariance given the old tokens, κ(new, new) + σ² I − R₂₁ R₂₁ᵀ (Osborne, 2010, appendix B).
Symbols: κ is `kernel`, τ is `temperature`, σ is `noise_std`, L is the number of tokens.

Jitter: none is added in inference. K ≥ σ² I, and a Cholesky factorisation succeeds when the
smallest eigenvalue is above about L·ε (Higham, Accuracy and Stability of Numerical Algorithms,
2002, theorem 10.7; the largest eigenvalue is at most L). A smaller σ² is refused; the message gives
the smallest noise that works. Only sampling adds `JITTER`.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Key

from attnlens.core import checks, kernels
from attnlens.core.readings import Reading

from . import key_distributions
from .base import Episode, ExactWorld, Pairs, hide, require_query, sampled_risk
from .laws import LOG_2PI, Gaussian, lower_triangle

# Added to the diagonal in sampling, never in inference. The sampled function has the covariance
# κ + JITTER·I: the relative error of its variance is JITTER.
JITTER = {"float64": 1e-10, "float32": 1e-5}

LONGEST = 8192  # a dense factor of this size takes half a gigabyte in float64
LANDMARKS = 16  # points at which the representation evaluates the function
KERNELS = ("rbf", "laplace", "matern32", "matern52")  # the kernels with κ(q, q) = 1


class FunctionPosterior(eqx.Module):
    """The law of the latent function given tokens; called with queries, it gives the law there."""

    key: Float[Array, "length dim"]
    cholesky: Float[Array, "length length"]
    whitened: Float[Array, "length 1"]
    mask: Bool[Array, " length"]
    kernel: str = eqx.field(static=True)
    temperature: Float[Array, ""]

    def __call__(self, query: Float[Array, "queries dim"]) -> Gaussian:
        weights = solve_triangular(self.cholesky, self.whitened, lower=True, trans=1)
        cross = self.cross(query)
        # The barrier makes the second solve wait for the first, so that LAPACK calls never overlap.
        # XLA removes the second solve where only the mean is used.
        half = self.solve(jax.lax.optimization_barrier((cross, weights))[0])
        var = jnp.maximum(1 - jnp.sum(half**2, 0), 0)
        return Gaussian(cross.T @ weights, var[:, None])

    def joint(
        self, query: Float[Array, "queries dim"]
    ) -> tuple[Float[Array, " queries"], Float[Array, "queries queries"]]:
        """Mean and full covariance of the function at the queries."""
        half = self.solve(self.cross(query))
        prior = gram(self.kernel, query, self.temperature)
        return (half.T @ self.whitened)[:, 0], prior - half.T @ half

    def cross(self, query: Float[Array, "queries dim"]) -> Float[Array, "length queries"]:
        """The matrix κ(keys, queries), with zeros for masked keys."""
        return hide(kernels.KERNELS[self.kernel](self.key, query, self.temperature), self.mask)

    def solve(self, right: Float[Array, "length columns"]) -> Float[Array, "length columns"]:
        """R⁻¹ right, by one triangular solve; R is the Cholesky factor."""
        return solve_triangular(self.cholesky, right, lower=True)


class GaussianProcess(ExactWorld):
    """A random function of the key; values have noise.

    `keys` is "sphere" or "box" (with key_dim=2, the plane); `kernel` is "rbf", "laplace",
    "matern32" or "matern52". The covariance matrix is dense; at most 8,192 tokens.

    >>> world = GaussianProcess(key_dim=3, temperature=0.5, noise_std=0.3)
    >>> episode = world.sample(jax.random.key(0), length=64, queries=5)
    >>> world.predict(episode.tokens, episode.query).mean.shape
    (5, 1)
    """

    key_dim: int = eqx.field(default=3, static=True)
    temperature: float = 0.5
    noise_std: float = 0.3
    kernel: str = eqx.field(default="rbf", static=True)
    keys: str = eqx.field(default="sphere", static=True)

    def __check_init__(self):
        checks.one_of("kernel", self.kernel, KERNELS)
        checks.one_of("keys", self.keys, key_distributions.NAMES)
        checks.whole("key_dim", self.key_dim, at_least=2 if self.keys == "sphere" else 1)
        checks.positive("temperature", self.temperature)
        checks.positive("noise_std", self.noise_std)

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_points, for_function, for_noise = jax.random.split(key, 3)
        points = key_distributions.draw(self.keys, for_points, length + queries, self.key_dim)
        jitter = JITTER[points.dtype.name] * jnp.eye(length + queries, dtype=points.dtype)
        root = jnp.linalg.cholesky(gram(self.kernel, points, self.temperature) + jitter)
        function = root @ jax.random.normal(for_function, (length + queries, 1))
        noise = self.noise_std * jax.random.normal(for_noise, (length, 1))
        tokens = Pairs(points[:length], function[:length] + noise)
        return Episode(function[:length], tokens, points[length:], function[length:])

    def prior(self, dtype: Any = None) -> FunctionPosterior:
        dtype = jnp.result_type(float) if dtype is None else dtype
        key, root, whitened = (
            jnp.zeros(shape, dtype) for shape in ((0, self.key_dim), (0, 0), (0, 1))
        )
        temperature = jnp.asarray(self.temperature, dtype)
        none = jnp.zeros(0, bool)
        return FunctionPosterior(key, root, whitened, none, self.kernel, temperature)

    def update(
        self,
        posterior: FunctionPosterior,
        tokens: Pairs,
        mask: Bool[Array, " length"] | None = None,
    ) -> FunctionPosterior:
        length = tokens.key.shape[0]
        self._check(posterior.key.shape[0] + length, tokens.key.dtype)
        key, value = hide(tokens.key, mask), hide(tokens.value, mask)
        covariance = gram(self.kernel, key, self.temperature, self.noise_std**2)
        if mask is None:
            mask = jnp.ones(length, bool)
        else:
            # A masked token has variance one, no covariance with other tokens, and value zero.
            both = mask[:, None] & mask[None, :]
            covariance = jnp.where(both, covariance, jnp.eye(length, dtype=key.dtype))
        whole_key = jnp.concatenate([posterior.key, key])
        whole_mask = jnp.concatenate([posterior.mask, mask])
        if posterior.key.shape[0]:
            seen = posterior.solve(posterior.cross(key) * mask[None, :].astype(key.dtype))
            covariance, value = covariance - seen.T @ seen, value - seen.T @ posterior.whitened
            corner = factor(covariance)
            above = jnp.concatenate([posterior.cholesky, jnp.zeros_like(seen)], axis=1)
            root = jnp.concatenate([above, jnp.concatenate([seen.T, corner], axis=1)])
        else:
            root = corner = factor(covariance)
        whitened = solve_triangular(corner, value, lower=True)
        whitened = jnp.concatenate([posterior.whitened, whitened])
        return FunctionPosterior(
            whole_key, root, whitened, whole_mask, self.kernel, posterior.temperature
        )

    def predictive(
        self, posterior: FunctionPosterior, query: Float[Array, "queries dim"] | None = None
    ) -> Gaussian:
        """The law of m(q, z) = z(q), without the noise of a value."""
        return posterior(require_query(self, query))

    def uncertainty(
        self, posterior: FunctionPosterior, query: Float[Array, "queries dim"] | None = None
    ) -> Float[Array, ""]:
        return jnp.mean(self.predictive(posterior, query).var)

    def log_likelihood(
        self,
        latent: Float[Array, "length 1"],
        tokens: Pairs,
        mask: Bool[Array, " length"] | None = None,
    ) -> Float[Array, ""]:
        """log p(values | function at the tokens' keys)."""
        law = Gaussian(latent, jnp.full_like(latent, self.noise_std**2))
        return jnp.sum(hide(law.log_prob(hide(tokens.value, mask)), mask))

    def log_evidence(
        self, tokens: Pairs, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        posterior = self.posterior(tokens, mask)
        log_determinant = 2 * jnp.sum(jnp.log(jnp.diag(posterior.cholesky)))
        count = jnp.sum(posterior.mask).astype(tokens.key.dtype)
        return -0.5 * (jnp.sum(posterior.whitened**2) + log_determinant + count * LOG_2PI)

    def representation(
        self, tokens: Pairs, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, " size"]:
        """Mean and lower triangle of the covariance of z at `landmarks()`: 16 + 136 numbers.

        A process with infinitely many degrees of freedom has no finite sufficient statistic: its
        natural statistics Σ v κ(k, ·)/σ² and Σ κ(k, ·)κ(k, ·)/σ² are functions. They determine the
        posterior, which is evaluated here at fixed points. Information between these points is
        lost, except for the smoothness of the prior. `LinearRegression` with `RandomFeatures` has
        finite statistics that are sufficient.
        """
        mean, covariance = self.posterior(tokens, mask).joint(self.landmarks(tokens.key.dtype))
        return jnp.concatenate([mean, lower_triangle(covariance)])

    def landmarks(self, dtype: Any = None) -> Float[Array, "landmarks dim"]:
        """The fixed points of the representation, drawn once from the key distribution."""
        draws = np.random.default_rng(0)  # NumPy draws the same points for float32 and float64
        points = draws.uniform(-1, 1, (LANDMARKS, self.key_dim))
        if self.keys == "sphere":
            points = draws.standard_normal((LANDMARKS, self.key_dim))
            points /= np.linalg.norm(points, axis=-1, keepdims=True)
        return jnp.asarray(points, jnp.result_type(float) if dtype is None else dtype)

    def risk(self, length: int) -> Reading:
        """The mean posterior variance: exact given the keys, averaged over sampled keys and q."""
        return sampled_risk(self, length, episodes=256)

    def _check(self, length: int, dtype: Any) -> None:
        if length > LONGEST:
            raise checks.BadInput(
                f"GaussianProcess takes up to {LONGEST} tokens; got {length}; use "
                f"LinearRegression with RandomFeatures, whose statistics do not grow."
            )
        smallest = math.sqrt(length * float(jnp.finfo(dtype).eps))
        if isinstance(self.noise_std, float) and self.noise_std < smallest:
            raise checks.BadInput(
                f"noise_std must be at least {smallest:.2g} for {length} tokens in {dtype}, or "
                f"the covariance is singular to rounding; got {self.noise_std:g}; raise it, "
                f"use fewer tokens, or float64."
            )


def gram(
    kernel: str,
    points: Float[Array, "count dim"],
    temperature: kernels.Temperature,
    ridge: float = 0.0,
) -> Float[Array, "count count"]:
    """κ(points, points) + ridge·I.

    The diagonal of κ is set to exactly 1: by rounding, the distance of a point to itself may not
    be 0.
    """
    matrix = kernels.KERNELS[kernel](points, points, temperature)
    return jnp.where(jnp.eye(points.shape[0], dtype=bool), 1 + ridge, matrix)


def factor(matrix: Float[Array, "count count"]) -> Float[Array, "count count"]:
    """The lower Cholesky factor of a matrix that is exactly symmetric."""
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
