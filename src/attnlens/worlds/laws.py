"""Laws (probability distributions) of predictions, with `mean`, `var` (elementwise) and `log_prob`.

Gaussian              N(mean, var) in every element, independent
MultivariateGaussian  mean + B diag(√v) e, e ~ N(0, I), with the basis B and its inverse known
StudentT              mean + √(scale_var) t_ν in every element, independent
Categorical           one-hot vectors
GaussianMixture       Σ_c w_c N(mean_c, var) over whole vectors

The variance of Student's t is scale_var · ν/(ν − 2), that of a mixture is the mean of the variances
plus the variance of the means. (Bernardo and Smith, Bayesian Theory, 1994, appendix A.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float, Key

LOG_2PI = math.log(2 * math.pi)


class Gaussian(NamedTuple):
    """A normal law given by mean and variance, elementwise.

    >>> law = Gaussian(jnp.zeros(1), jnp.ones(1))
    >>> round(float(law.log_prob(jnp.zeros(1))[0]), 4)
    -0.9189
    """

    mean: Float[Array, "*shape"]
    var: Float[Array, "*shape"]

    def log_prob(self, value: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The log density of each element."""
        return -0.5 * ((value - self.mean) ** 2 / self.var + jnp.log(self.var) + LOG_2PI)


class MultivariateGaussian(eqx.Module):
    """N(mean, B diag(v) Bᵀ) with B⁻¹ and log |det B| given, so that no factorisation is needed.

    >>> eye = jnp.eye(2)
    >>> law = MultivariateGaussian(jnp.zeros(2), jnp.array([1.0, 4.0]), eye, eye, jnp.array(0.0))
    >>> law.var.tolist()
    [1.0, 4.0]
    """

    mean: Float[Array, " dim"]
    spread: Float[Array, " dim"]
    basis: Float[Array, "dim dim"]
    inverse: Float[Array, "dim dim"]
    log_volume: Float[Array, ""]

    @property
    def cov(self) -> Float[Array, "dim dim"]:
        return (self.basis * self.spread[None, :]) @ self.basis.T

    @property
    def var(self) -> Float[Array, " dim"]:
        return self.basis**2 @ self.spread

    @property
    def precision(self) -> Float[Array, "dim dim"]:
        return (self.inverse.T / self.spread[None, :]) @ self.inverse

    def log_prob(self, value: Float[Array, " dim"]) -> Float[Array, ""]:
        whitened = self.inverse @ (value - self.mean)
        return -self.log_volume - 0.5 * jnp.sum(
            whitened**2 / self.spread + jnp.log(self.spread) + LOG_2PI
        )

    def sample(self, key: Key[Array, ""]) -> Float[Array, " dim"]:
        draw = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + self.basis @ (jnp.sqrt(self.spread) * draw)

    def natural(self) -> Float[Array, " size"]:
        """(Λ m, lower triangle of Λ) with the precision Λ: the natural parameters, flat."""
        precision = self.precision
        return jnp.concatenate([precision @ self.mean, lower_triangle(precision)])


class StudentT(NamedTuple):
    """Student's t with location, squared scale and degrees of freedom, elementwise.

    >>> float(StudentT(jnp.array(0.0), jnp.array(1.0), jnp.array(4.0)).var)
    2.0
    """

    mean: Float[Array, "*shape"]
    scale_var: Float[Array, "*shape"]
    freedom: Float[Array, "*shape"]

    @property
    def var(self) -> Float[Array, "*shape"]:
        """scale_var · ν/(ν − 2), infinite where ν ≤ 2."""
        finite = self.freedom > 2
        excess = jnp.where(finite, self.freedom - 2, 1)
        return jnp.where(finite, self.scale_var * self.freedom / excess, jnp.inf)

    def log_prob(self, value: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        half = self.freedom / 2
        ratio = (value - self.mean) ** 2 / (self.scale_var * self.freedom)
        scale = 0.5 * (jnp.log(self.freedom) + math.log(math.pi) + jnp.log(self.scale_var))
        return log_rising(half, 0.5) - scale - (half + 0.5) * jnp.log1p(ratio)


class Categorical(NamedTuple):
    """One-hot vectors, given by log probabilities.

    >>> Categorical(jnp.log(jnp.array([0.25, 0.75]))).mean.round(2).tolist()
    [0.25, 0.75]
    """

    log_probs: Float[Array, " classes"]

    @property
    def mean(self) -> Float[Array, " classes"]:
        return jnp.exp(self.log_probs)

    @property
    def var(self) -> Float[Array, " classes"]:
        return self.mean * (1 - self.mean)

    def log_prob(self, value: Float[Array, " classes"]) -> Float[Array, ""]:
        return jnp.sum(value * self.log_probs)


class GaussianMixture(NamedTuple):
    """Σ_c exp(log_weights_c) N(means_c, var), over whole vectors.

    >>> law = GaussianMixture(jnp.log(jnp.full(2, 0.5)), jnp.array([[-1.0], [1.0]]), jnp.ones(1))
    >>> law.var.round(3).tolist()  # 1 within, 1 between
    [2.0]
    """

    log_weights: Float[Array, " classes"]
    means: Float[Array, "classes dim"]
    component_var: Float[Array, " dim"]

    @property
    def mean(self) -> Float[Array, " dim"]:
        return jnp.exp(self.log_weights) @ self.means

    @property
    def var(self) -> Float[Array, " dim"]:
        """The variance within the components plus the variance between them."""
        between = jnp.exp(self.log_weights) @ (self.means - self.mean[None, :]) ** 2
        return self.component_var + between

    def log_prob(self, value: Float[Array, " dim"]) -> Float[Array, ""]:
        var = self.component_var[None, :]
        terms = (value[None, :] - self.means) ** 2 / var + jnp.log(var) + LOG_2PI
        return logsumexp(self.log_weights - 0.5 * jnp.sum(terms, -1))


# B_{2k}/(2k(2k − 1)), k = 1 … 6: Stirling's series. From x = 10 on the next term is below 1e-15.
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)


def log_rising(start: Float[Array, "*shape"], count: float | Array) -> Float[Array, "*shape"]:
    """log Γ(a + n) − log Γ(a), without cancellation.

    For large a (`start`) both terms are of order a·log a, while their difference is of order
    n·log a. With log Γ(x) = (x − ½) log x − x + ½ log 2π + s(x) and Stirling's series s,

        log Γ(a + n) − log Γ(a) = (a − ½) log1p(n/a) + n log(a + n) − n + s(a + n) − s(a)

    (Abramowitz and Stegun, 6.1.41), used from a = 10 on. The error of `betaln` in JAX, which would
    be simpler, is 9e-7 at a = 8 and 3e-8 at a = 20, in float64 (jax 0.10.2).
    """
    count = jnp.broadcast_to(jnp.asarray(count, start.dtype), start.shape)
    large = jnp.maximum(start, 10)
    total = large + count
    smooth = (large - 0.5) * jnp.log1p(count / large) + count * jnp.log(total) - count
    smooth = smooth + _stirling(total) - _stirling(large)
    return jnp.where(start >= 10, smooth, gammaln(start + count) - gammaln(start))


def _stirling(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    powers = (term / x ** (2 * k + 1) for k, term in enumerate(STIRLING))
    return sum(powers, jnp.zeros_like(x))


def lower_triangle(matrix: Float[Array, "dim dim"]) -> Float[Array, " size"]:
    """The entries on and below the diagonal, row by row."""
    return matrix[jnp.tril_indices(matrix.shape[-1])]
