"""Latent weights: z ~ N(0, ω² I), and a token is a (key, value) pair of a noisy linear function.

    k ~ key distribution,  v = ⟨z, φ(k)⟩ + N(0, σ²),  m(q, z) = ⟨z, φ(q)⟩

The posterior of z is normal with precision I/ω² + Σ φφᵀ/σ² and mean precision⁻¹ Σ φ v/σ² (Bishop,
Pattern Recognition and Machine Learning, 2006, section 3.3). It is computed in square-root form
(Bierman, Factorization Methods for Discrete Sequential Estimation, 1977): with u = z/ω and the rows
a = (ω/σ) φ, b = v/σ, one triangular factorisation

    ⎡ A  b ⎤       ⎡ R  r ⎤
    ⎣ I  0 ⎦  = Q  ⎣ 0  ρ ⎦      gives   E u = R⁻¹ r,   Cov u = (RᵀR)⁻¹,
                                          ρ² = ‖v‖²/σ² − ‖r‖²

so the condition number is that of A, not of AᵀA, and no large squares are subtracted: at σ/ω =
10⁻⁸ eight digits are correct where the normal equations have none. When L tokens are followed by
more tokens, the old triangle replaces (I 0). Evidence: −½[ρ² + log det RᵀR + L log 2πσ²].

At a fixed temperature τ softmax attention does not converge to m(q, z) but to the smoothed mean
E[v κ]/E[κ]. Keys on the sphere weighted by exp(q·k/τ) follow the von Mises–Fisher law with
concentration 1/τ, whose mean is A_d(1/τ) q with A_d(c) = I_{d/2}(c)/I_{d/2−1}(c) (Mardia and
Jupp, Directional Statistics, 2000, section 9.3), so the smoothed mean is A_d(1/τ)·⟨z, q⟩.
Symbols: ω is `prior_std`, σ is `noise_std`, φ is `features` (the identity where None).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Key

from attnlens.core import checks
from attnlens.core.readings import Reading

from . import key_distributions, settings
from .base import Episode, ExactWorld, Pairs, count_of, hide, require_query, sampled_risk
from .features import RandomFeatures
from .laws import LOG_2PI, Gaussian, lower_triangle
from .settings import Numbers


class WeightPosterior(eqx.Module):
    """The law of the weights: the triangle (R, r; 0, ρ), and the number of tokens it contains."""

    triangle: Float[Array, "size size"]
    count: Float[Array, ""]
    prior_std: Float[Array, ""]

    @property
    def root(self) -> Float[Array, "dim dim"]:
        """The upper triangular matrix R, for which RᵀR is the precision of z/ω."""
        return self.triangle[:-1, :-1]

    @property
    def mean(self) -> Float[Array, " dim"]:
        return self.prior_std * solve_triangular(self.root, self.triangle[:-1, -1])

    @property
    def precision(self) -> Float[Array, "dim dim"]:
        return self.root.T @ self.root / self.prior_std**2

    def sample(self, key: Key[Array, ""]) -> Float[Array, " dim"]:
        draw = jax.random.normal(key, self.triangle[:-1, -1].shape, self.triangle.dtype)
        return self.prior_std * solve_triangular(self.root, self.triangle[:-1, -1] + draw)

    def log_prob(self, latent: Float[Array, " dim"]) -> Float[Array, ""]:
        whitened = self.root @ (latent / self.prior_std) - self.triangle[:-1, -1]
        scale = jnp.log(jnp.abs(jnp.diag(self.root))) - jnp.log(self.prior_std)
        return jnp.sum(scale - 0.5 * whitened**2 - 0.5 * LOG_2PI)

    def natural(self) -> Float[Array, " size"]:
        """(Λ m, lower triangle of Λ) with the mean m and the precision Λ; no solve is needed."""
        moment = self.root.T @ self.triangle[:-1, -1] / self.prior_std
        return jnp.concatenate([moment, lower_triangle(self.precision)])


class LinearRegression(ExactWorld):
    """A random linear function of the key, or of features of the key; values have noise.

    Keys are uniform on the sphere, or N(0, key_covariance); queries have the same distribution
    unless `query_covariance` is given. `features` maps keys to the inputs of the linear function.

    >>> world = LinearRegression(key_dim=3, noise_std=0.5)
    >>> episode = world.sample(jax.random.key(0), length=64, queries=5)
    >>> world.predict(episode.tokens, episode.query).mean.shape
    (5, 1)
    """

    key_dim: int = eqx.field(default=3, static=True)
    noise_std: float = 0.5
    prior_std: float = 1.0
    key_root: np.ndarray | None = None
    query_root: np.ndarray | None = None
    features: RandomFeatures | None = None

    def __init__(
        self,
        key_dim: int = 3,
        noise_std: float = 0.5,
        prior_std: float = 1.0,
        *,
        key_covariance: Numbers | None = None,
        query_covariance: Numbers | None = None,
        features: RandomFeatures | None = None,
    ):
        self.key_dim = checks.whole(
            "key_dim", key_dim, at_least=1 if key_covariance is not None else 2
        )
        self.noise_std = checks.positive("noise_std", noise_std)
        self.prior_std = checks.positive("prior_std", prior_std)
        self.key_root = _root("key_covariance", key_covariance, key_dim)
        self.query_root = _root("query_covariance", query_covariance, key_dim)
        self.features = features
        if features is not None and features.key_dim != key_dim:
            raise checks.BadInput(
                f"features must take keys of dimension {key_dim}; got {features.key_dim}; give "
                f"RandomFeatures(key_dim={key_dim}, …)."
            )

    @property
    def weights(self) -> int:
        """The number of latent weights."""
        return self.key_dim if self.features is None else self.features.count

    def sample(self, key: Key[Array, ""], length: int, queries: int = 0) -> Episode:
        for_latent, for_points, for_noise = jax.random.split(key, 3)
        latent = self.prior_std * jax.random.normal(for_latent, (self.weights, 1))
        name = "sphere" if self.key_root is None else "normal"
        points = key_distributions.draw(
            name, for_points, length + queries, self.key_dim, self.key_root
        )
        key_points, query = points[:length], points[length:]
        if self.query_root is not None:
            for_query = jax.random.fold_in(for_points, 1)
            query = key_distributions.draw(
                "normal", for_query, queries, self.key_dim, self.query_root
            )
        noise = self.noise_std * jax.random.normal(for_noise, (length, 1))
        tokens = Pairs(key_points, self._map(key_points) @ latent + noise)
        return Episode(latent[:, 0], tokens, query, self._map(query) @ latent)

    def prior(self, dtype: Any = None) -> WeightPosterior:
        dtype = jnp.result_type(float) if dtype is None else dtype
        triangle = jnp.eye(self.weights + 1, dtype=dtype).at[-1, -1].set(0)
        return WeightPosterior(triangle, jnp.zeros((), dtype), jnp.asarray(self.prior_std, dtype))

    def update(
        self,
        posterior: WeightPosterior,
        tokens: Pairs,
        mask: Bool[Array, " length"] | None = None,
    ) -> WeightPosterior:
        mapped = hide(self._map(hide(tokens.key, mask)), mask) * (self.prior_std / self.noise_std)
        rows = jnp.concatenate([mapped, hide(tokens.value, mask) / self.noise_std], axis=-1)
        # The rows of the data come first. They are larger if the data are far more precise than the
        # prior, and Householder QR is row-wise stable with large rows on top (Higham, 2002, 19.4).
        stacked = jnp.concatenate([rows, posterior.triangle])
        triangle = jnp.linalg.qr(stacked, mode="r")
        return WeightPosterior(
            triangle, posterior.count + count_of(tokens.value, mask), posterior.prior_std
        )

    def predictive(
        self, posterior: WeightPosterior, query: Float[Array, "queries dim"] | None = None
    ) -> Gaussian:
        """The law of m(q, z) = ⟨z, φ(q)⟩, without the noise of a value."""
        mapped = self.prior_std * self._map(require_query(self, query))
        half = solve_triangular(posterior.root, mapped.T, trans=1)
        mean = half.T @ posterior.triangle[:-1, -1:]
        return Gaussian(mean, jnp.sum(half**2, 0)[:, None])

    def uncertainty(
        self, posterior: WeightPosterior, query: Float[Array, "queries dim"] | None = None
    ) -> Float[Array, ""]:
        return jnp.mean(self.predictive(posterior, query).var)

    def log_likelihood(
        self,
        latent: Float[Array, " dim"],
        tokens: Pairs,
        mask: Bool[Array, " length"] | None = None,
    ) -> Float[Array, ""]:
        mean = self._map(hide(tokens.key, mask)) @ latent[:, None]
        law = Gaussian(mean, jnp.full_like(mean, self.noise_std**2))
        return jnp.sum(hide(law.log_prob(hide(tokens.value, mask)), mask))

    def log_evidence(
        self, tokens: Pairs, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, ""]:
        """log N(v; 0, ω² Φ Φᵀ + σ² I), computed from the triangle of the posterior."""
        posterior = self.posterior(tokens, mask)
        log_determinant = 2 * jnp.sum(jnp.log(jnp.abs(jnp.diag(posterior.root))))
        density = LOG_2PI + 2 * jnp.log(self.noise_std)
        fit = posterior.triangle[-1, -1] ** 2
        return -0.5 * (fit + log_determinant + posterior.count * density)

    def representation(
        self, tokens: Pairs, mask: Bool[Array, " length"] | None = None
    ) -> Float[Array, " size"]:
        """(Λ m, lower triangle of Λ) with the posterior's mean m and precision Λ."""
        return self.posterior(tokens, mask).natural()

    def risk(self, length: int) -> Reading:
        """E φ(q)ᵀ Cov(z | keys) φ(q): exact given the keys, averaged over sampled keys and q."""
        return sampled_risk(self, length)

    def smoothing(self, temperature: float) -> float:
        """A_d(1/τ), the factor of m(q, z) in the limit of softmax attention for many tokens."""
        if self.key_root is not None or self.features is not None:
            raise checks.BadInput(
                "the smoothed mean is a multiple of m(q, z) only for keys on the sphere and "
                "without features; leave out key_covariance and features."
            )
        c, d = 1 / checks.positive("temperature", temperature), self.key_dim
        # ive is I_ν(c)·e^(−c): the ratio is the same, and it does not overflow at small τ.
        return float(scipy.special.ive(d / 2, c) / scipy.special.ive(d / 2 - 1, c))

    def _map(self, key: Float[Array, "length dim"]) -> Float[Array, "length weights"]:
        return key if self.features is None else self.features(key)


def _root(name: str, values: Numbers | None, dim: int) -> np.ndarray | None:
    """The symmetric root of a covariance that may be singular; None if `values` is None."""
    if values is None:
        return None
    return settings.square_root(settings.covariance(name, values, dim, singular=True))
