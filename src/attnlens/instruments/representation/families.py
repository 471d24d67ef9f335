"""Exponential families: the laws of the exact worlds' posteriors, in natural parameters.

    p_η(z) = h(z) exp(⟨η, T(z)⟩ − A(η))

Every exact world's `representation` is the natural parameter η of its posterior, so one formula
serves all worlds. With the expected statistic ∇A(η) = E T(z),

    KL(p_η ‖ p_η') = A(η') − A(η) − ⟨η' − η, ∇A(η)⟩

(Wainwright and Jordan, Graphical Models, Exponential Families, and Variational Inference, 2008,
section 3 and equation 5.2). The allowed parameters form a convex set; outside of it `log_partition`
is infinite.

`hessian(η)` is the linear map d ↦ ∇²A(η) d, the derivative of the expected statistic. ∇²A(η) is
also the Fisher information.

Rows are episodes, columns are parameters. The code is plain NumPy: shapes change with every probe,
so compilation would cost more time than it saves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import digamma, gammaln, logsumexp, polygamma, softmax

from attnlens.core import checks
from attnlens.worlds import (
    DirichletCategorical,
    ExactWorld,
    FiniteMixture,
    GaussianProcess,
    LinearRegression,
    NormalInverseGamma,
    NormalMean,
)
from attnlens.worlds.laws import lower_triangle
from attnlens.worlds.model import ReferenceWorld

Rows = Float[np.ndarray, "rows parameters"]
Latents = Float[np.ndarray, "rows latents"]
PerRow = Float[np.ndarray, " rows"]
Allowed = Bool[np.ndarray, " rows"]
LinearMap = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class GaussianFamily:
    """Normal distributions with mean m and precision Λ: η = (Λ m, lower triangle of Λ) and
    T(z) = (z, −½ z zᵀ), off-diagonal entries doubled."""

    dim: int

    def log_partition(self, eta: Rows) -> PerRow:
        """Return A = ½ hᵀ Λ⁻¹ h − ½ log det Λ, with h = Λ m."""
        linear, precision = self._split(eta)
        allowed = self.allowed(eta)
        safe = np.where(allowed[:, None, None], precision, np.eye(self.dim))
        mean = np.linalg.solve(safe, linear[..., None])[..., 0]
        value = 0.5 * (linear * mean).sum(-1) - 0.5 * np.linalg.slogdet(safe)[1]
        return np.where(allowed, value, np.inf)

    def expected(self, eta: Rows) -> Rows:
        linear, precision = self._split(eta)
        covariance = np.linalg.inv(precision)
        mean = (covariance @ linear[..., None])[..., 0]
        return self._join(mean, covariance + mean[:, :, None] * mean[:, None, :])

    def hessian(self, eta: Rows) -> LinearMap:
        """Return d ↦ ∇²A(η) d, by dC = −C dΛ C and dm = C (dh − dΛ m) with the covariance C."""
        linear, precision = self._split(eta)
        covariance = np.linalg.inv(precision)
        mean = covariance @ linear[..., None]

        def apply(direction: np.ndarray) -> np.ndarray:
            d_linear, d_precision = self._split(direction)
            d_mean = covariance @ (d_linear[..., None] - d_precision @ mean)
            outer = d_mean @ mean.transpose(0, 2, 1)
            second = outer + outer.transpose(0, 2, 1) - covariance @ d_precision @ covariance
            return self._join(d_mean[..., 0], second)

        return apply

    def statistic(self, latent: Any) -> Rows:
        z = np.asarray(latent, float)
        return self._join(z, z[:, :, None] * z[:, None, :])

    def latent_mean(self, eta: Rows) -> Latents:
        linear, precision = self._split(eta)
        return np.linalg.solve(precision, linear[..., None])[..., 0]

    def allowed(self, eta: Rows) -> Allowed:
        # An eigenvalue below 1e−10 of the largest is too close to zero to invert accurately.
        values = np.linalg.eigvalsh(self._split(eta)[1])
        return values[:, 0] > 1e-10 * np.abs(values).max(-1)

    def _split(self, eta: Rows) -> tuple[np.ndarray, np.ndarray]:
        rows, columns = np.tril_indices(self.dim)
        precision = np.zeros((len(eta), self.dim, self.dim))
        precision[:, rows, columns] = precision[:, columns, rows] = eta[:, self.dim :]
        return eta[:, : self.dim], precision

    def _join(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        rows, columns = np.tril_indices(self.dim)
        weights = np.where(rows == columns, -0.5, -1.0)
        return np.concatenate([first, second[:, rows, columns] * weights], axis=1)


@dataclass(frozen=True)
class NormalInverseGammaFamily:
    """Normal-inverse-gamma distributions of (μ, σ²), independent between dimensions.

    η = (κ m, κ, ν, E = ν s² + κ m²); T(μ, σ²) = (μ/σ², −μ²/2σ², −½ log σ², −1/2σ²).
    """

    dim: int

    def log_partition(self, eta: Rows) -> PerRow:
        """Return A = Σ [−½ log κ + log Γ(a) − a log b], summed over dimensions, with a = ν/2 and
        b = (E − (κ m)²/κ)/2."""
        allowed = self.allowed(eta)
        first, count, freedom, energy = self._split(np.where(allowed[:, None], eta, self._safe()))
        scale = (energy - first**2 / count) / 2
        terms = -0.5 * np.log(count) + gammaln(freedom / 2) - freedom / 2 * np.log(scale)
        return np.where(allowed, terms.sum(-1), np.inf)

    def expected(self, eta: Rows) -> Rows:
        first, count, freedom, energy = self._split(eta)
        mean, half, scale = first / count, freedom / 2, (energy - first**2 / count) / 2
        precision = half / scale  # E 1/σ²
        parts = (
            mean * precision,
            -0.5 * (1 / count + mean**2 * precision),
            0.5 * (digamma(half) - np.log(scale)),
            -0.5 * precision,
        )
        return np.concatenate(parts, axis=1)

    def hessian(self, eta: Rows) -> LinearMap:
        """Return d ↦ ∇²A(η) d, the derivative of each part of `expected`; r = a/b = E 1/σ²."""
        first, count, freedom, energy = self._split(eta)
        mean, half, scale = first / count, freedom / 2, (energy - first**2 / count) / 2
        ratio, trigamma = half / scale, polygamma(1, half)

        def apply(direction: np.ndarray) -> np.ndarray:
            d_first, d_count, d_freedom, d_energy = self._split(direction)
            d_mean = (d_first - mean * d_count) / count
            d_scale = (d_energy - 2 * mean * d_first + mean**2 * d_count) / 2
            d_ratio = (d_freedom / 2 - ratio * d_scale) / scale
            parts = (
                d_mean * ratio + mean * d_ratio,
                0.5 * d_count / count**2 - mean * d_mean * ratio - 0.5 * mean**2 * d_ratio,
                0.5 * (trigamma * d_freedom / 2 - d_scale / scale),
                -0.5 * d_ratio,
            )
            return np.concatenate(parts, axis=1)

        return apply

    def statistic(self, latent: Any) -> Rows:
        mean, var = np.asarray(latent.mean, float), np.asarray(latent.var, float)
        parts = (mean / var, -(mean**2) / (2 * var), -0.5 * np.log(var), -0.5 / var)
        return np.concatenate(parts, axis=1)

    def latent_mean(self, eta: Rows) -> Latents:
        """Return E μ only: squared errors compare the latent mean, not the latent variance."""
        first, count, _, _ = self._split(eta)
        return first / count

    def allowed(self, eta: Rows) -> Allowed:
        first, count, freedom, energy = self._split(eta)
        with np.errstate(divide="ignore", invalid="ignore"):
            # The difference E − (κ m)²/κ must be well above its rounding error.
            positive = energy - first**2 / count > 1e-10 * np.abs(energy)
        return np.all((count > 0) & (freedom > 0) & positive, axis=-1)

    def _split(self, eta: Rows) -> list[np.ndarray]:
        return np.split(eta, 4, axis=1)

    def _safe(self) -> np.ndarray:
        return np.repeat([0.0, 1.0, 1.0, 1.0], self.dim)[None]


@dataclass(frozen=True)
class DirichletFamily:
    """Dirichlet distributions of probabilities θ: η = α; T(θ) = log θ."""

    classes: int

    def log_partition(self, eta: Rows) -> PerRow:
        """Return A = Σ log Γ(α_c) − log Γ(Σ α_c)."""
        allowed = self.allowed(eta)
        safe = np.where(allowed[:, None], eta, 1.0)
        return np.where(allowed, gammaln(safe).sum(-1) - gammaln(safe.sum(-1)), np.inf)

    def expected(self, eta: Rows) -> Rows:
        return digamma(eta) - digamma(eta.sum(-1, keepdims=True))

    def hessian(self, eta: Rows) -> LinearMap:
        own, total = polygamma(1, eta), polygamma(1, eta.sum(-1, keepdims=True))
        return lambda direction: own * direction - total * direction.sum(-1, keepdims=True)

    def statistic(self, latent: Any) -> Rows:
        return np.log(np.maximum(np.asarray(latent, float), np.finfo(float).tiny))

    def latent_mean(self, eta: Rows) -> Latents:
        return eta / eta.sum(-1, keepdims=True)

    def allowed(self, eta: Rows) -> Allowed:
        return np.all(eta > 0, axis=-1)


@dataclass(frozen=True)
class CategoricalFamily:
    """Categorical distributions of a class c.

    η = log-odds of every class but the last against the last; T(c) = the one-hot row of c without
    its last entry.
    """

    classes: int

    def log_partition(self, eta: Rows) -> PerRow:
        """Return A = log(1 + Σ e^η)."""
        return np.asarray(logsumexp(self._full(eta), axis=-1))

    def expected(self, eta: Rows) -> Rows:
        return self.latent_mean(eta)[:, :-1]

    def hessian(self, eta: Rows) -> LinearMap:
        probs = self.expected(eta)
        return lambda direction: probs * (direction - (probs * direction).sum(-1, keepdims=True))

    def statistic(self, latent: Any) -> Rows:
        return np.eye(self.classes)[np.asarray(latent)][:, :-1]

    def latent_mean(self, eta: Rows) -> Latents:
        """Return the probabilities of the classes; their squared error is the Brier score."""
        return softmax(self._full(eta), axis=-1)

    def allowed(self, eta: Rows) -> Allowed:
        return np.all(np.isfinite(eta), axis=-1)

    def _full(self, eta: Rows) -> np.ndarray:
        return np.concatenate([eta, np.zeros((len(eta), 1))], axis=1)


Family = GaussianFamily | NormalInverseGammaFamily | DirichletFamily | CategoricalFamily


def divergence(family: Family, eta: Rows, other: Rows) -> PerRow:
    """Return KL(p_η ‖ p_η') per row, in nats; infinite where η' (`other`) is not allowed."""
    slope = family.expected(eta)
    with np.errstate(invalid="ignore"):
        return (
            family.log_partition(other)
            - family.log_partition(eta)
            - ((other - eta) * slope).sum(-1)
        )


class PosteriorFamily(NamedTuple):
    """The family of a world's posterior, and a function from the tokens of one episode to the
    natural parameters of its posterior."""

    family: Family
    natural: Callable[[Any], Array]


FUNCTION_VALUES = 4  # a latent function is represented by its values at this many landmarks


def posterior_family(world: ExactWorld) -> PosteriorFamily:
    """Return the family of the world's posterior.

    A latent function has infinitely many coordinates, so it is represented by its values at the
    first four of the world's landmarks. A sampled posterior is represented by the normal
    distribution with the same mean and covariance.
    """
    if isinstance(world, NormalMean):
        return PosteriorFamily(GaussianFamily(world.dim), world.representation)
    if isinstance(world, LinearRegression):
        return PosteriorFamily(GaussianFamily(world.weights), world.representation)
    if isinstance(world, NormalInverseGamma):
        return PosteriorFamily(NormalInverseGammaFamily(world.dim), world.representation)
    if isinstance(world, DirichletCategorical):
        return PosteriorFamily(DirichletFamily(world.classes), world.representation)
    if isinstance(world, FiniteMixture):
        return PosteriorFamily(CategoricalFamily(world.classes), world.representation)
    if isinstance(world, GaussianProcess):
        return PosteriorFamily(
            GaussianFamily(FUNCTION_VALUES), lambda tokens: _at_landmarks(world, tokens)
        )
    if isinstance(world, ReferenceWorld):
        shapes = jax.eval_shape(lambda: world.prior().mean)
        return PosteriorFamily(GaussianFamily(shapes.shape[0]), world.representation)
    raise checks.BadInput(
        f"representation needs a world with a posterior, such as NormalMean or FromModel; got "
        f"{type(world).__name__}."
    )


def from_moments(moments: Rows, dim: int) -> Rows:
    """Return the natural parameters of normal distributions, one per row.

    A row of `moments` holds the mean, then the lower triangle of the covariance.
    """
    rows, columns = np.tril_indices(dim)
    covariance = np.zeros((len(moments), dim, dim))
    covariance[:, rows, columns] = covariance[:, columns, rows] = moments[:, dim:]
    scale = np.sqrt(np.einsum("ijj->ij", covariance))
    fixed = not (scale > 0).all()
    correlation = covariance / np.where(fixed, 1, scale[:, :, None] * scale[:, None, :])
    if fixed or not np.linalg.eigvalsh(correlation)[:, 0].min(initial=1) > 1e-8:
        raise checks.BadInput(
            "representation needs a latent whose coordinates are not functions of each other; let "
            "the NumPyro program return only the sites that it draws."
        )
    precision = np.linalg.inv(correlation) / (scale[:, :, None] * scale[:, None, :])
    precision = 0.5 * (precision + precision.transpose(0, 2, 1))
    linear = np.einsum("ijk,ik->ij", precision, moments[:, :dim])
    return np.concatenate([linear, precision[:, rows, columns]], axis=1)


def _at_landmarks(world: GaussianProcess, tokens: Any) -> Array:
    """Return η = (Λ m, lower triangle of Λ) of the function's values at the first landmarks."""
    import jax.numpy as jnp

    points = world.landmarks(tokens.key.dtype)[:FUNCTION_VALUES]
    mean, covariance = world.posterior(tokens).joint(points)
    precision = jnp.linalg.inv(covariance)
    precision = 0.5 * (precision + precision.T)
    return jnp.concatenate([precision @ mean, lower_triangle(precision)])
