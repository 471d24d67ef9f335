"""Public benchmark posteriors as NumPyro models, with a reference of their own.

    eight schools      Rubin (1981), centred and non-centred; no closed form
    SLCP               "simple likelihood, complex posterior": four modes, by the signs of θ₃ and θ₄
                       (Papamakarios, Sterratt and Murray, AISTATS 2019)
    two moons          two crescents, symmetric in θ₁ + θ₂ (Greenberg, Nonnenmacher and Macke, 2019)
    Gaussian mixture   one mean, and a token with standard deviation 1 or 0.1 (Sisson et al., 2007)

The last three are the tasks of Lueckmann et al., Benchmarking simulation-based inference (2021).
"""

from __future__ import annotations

import bz2
import io
import os
import zipfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from attnlens.worlds import FromModel, Nuts

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(centred: bool, nuts: Nuts | None = None) -> FromModel:
    """A world in which one token is the row of eight estimated effects; their standard errors are
    known."""

    def prior() -> Any:
        mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
        spread = numpyro.sample("spread", dist.HalfCauchy(5.0))
        if centred:
            effects = numpyro.sample("effects", dist.Normal(mean, spread).expand([8]).to_event(1))
        else:
            scaled = numpyro.sample("scaled", dist.Normal(0.0, 1.0).expand([8]).to_event(1))
            effects = mean + spread * scaled
        return {"effects": effects, "mean": mean, "spread": spread}

    def likelihood(latent: Any) -> Any:
        return dist.Normal(latent["effects"], ERRORS).to_event(1)

    return FromModel(prior, likelihood, nuts=nuts)


def slcp(mirror: bool = True, nuts: Nuts | None = None) -> FromModel:
    """SLCP: an observation is four points in the plane. With `mirror=False` θ₄ > 0, which leaves
    two modes."""
    low = jnp.array([-3.0, -3.0, -3.0, -3.0 if mirror else 0.0, -3.0])

    def likelihood(theta: Any) -> Any:
        first, second = theta[2] ** 2, theta[3] ** 2
        rho = jnp.tanh(theta[4])
        # The lower Cholesky factor of the covariance; 1e-6 keeps it invertible at θ = 0.
        corner = second * jnp.sqrt(1 - rho**2 + 1e-9) + 1e-6
        root = jnp.array([[1.0, 0.0], [0.0, 0.0]]) * (first + 1e-6)
        root = root + jnp.array([[0.0, 0.0], [1.0, 0.0]]) * (rho * second)
        root = root + jnp.array([[0.0, 0.0], [0.0, 1.0]]) * corner
        return dist.MultivariateNormal(theta[:2], scale_tril=root)

    return FromModel(dist.Uniform(low, jnp.full(5, 3.0)).to_event(1), likelihood, nuts=nuts)


class Crescent(dist.Distribution):
    """The law of r (cos a, sin a) + (¼, 0) + shift, with a uniform on (−π/2, π/2) and r ~ N(0.1,
    0.01²).

    Its density at distance r from the centre is N(r; 0.1, 0.01²)/(π r) in the half plane on the
    right.
    """

    support = dist.constraints.real_vector  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType] (NumPyro declares a property)

    def __init__(self, shift: Any):
        self.shift = shift
        super().__init__(event_shape=(2,))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        for_angle, for_radius = jax.random.split(key)
        angle = jax.random.uniform(for_angle, sample_shape, minval=-jnp.pi / 2, maxval=jnp.pi / 2)
        radius = 0.1 + 0.01 * jax.random.normal(for_radius, sample_shape)
        point = radius[..., None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)
        return point + jnp.array([0.25, 0.0]) + self.shift

    def log_prob(self, value: Any, intermediates: Any = None) -> Any:
        point = value - jnp.array([0.25, 0.0]) - self.shift
        radius = jnp.sqrt(jnp.sum(point**2) + 1e-12)
        inside = dist.Normal(0.1, 0.01).log_prob(radius) - jnp.log(jnp.pi * radius)
        return jnp.where(point[0] > 0, inside, -jnp.inf)


def two_moons(nuts: Nuts | None = None) -> FromModel:
    """One point in the plane per observation."""

    def likelihood(theta: Any) -> Any:
        total, difference = jnp.sqrt((theta[0] + theta[1]) ** 2 + 1e-12), theta[1] - theta[0]
        return Crescent(jnp.stack([-total, difference]) / jnp.sqrt(2.0))

    return FromModel(dist.Uniform(-jnp.ones(2), jnp.ones(2)).to_event(1), likelihood, nuts=nuts)


def gaussian_mixture(nuts: Nuts | None = None) -> FromModel:
    """One point in the plane per observation."""

    def likelihood(theta: Any) -> Any:
        parts = dist.Normal(theta[None, :], jnp.array([[1.0], [0.1]])).to_event(1)
        return dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.5, 0.5])), parts)

    prior = dist.Uniform(jnp.full(2, -10.0), jnp.full(2, 10.0)).to_event(1)
    return FromModel(prior, likelihood, nuts=nuts)


def weighted_prior(world: FromModel, tokens: Any, count: int, draws: int, seed: int = 0) -> Any:
    """(draws, effective sample size): draws from the posterior of a world whose prior is one
    uniform law, by self-normalised importance sampling from the prior."""
    key, for_choice = jax.random.split(jax.random.key(seed))
    log_likelihood = jax.jit(jax.vmap(lambda z: world.log_likelihood(z, tokens)))
    kept, logs = [], []
    for part in jax.random.split(key, count // 100_000):
        latent = world.prior_law.sample(part, (100_000,))
        log = np.asarray(log_likelihood(latent))
        near = log > log.max() - 30  # the others have negligible weight
        kept.append(np.asarray(latent)[near])
        logs.append(log[near])
    latent, log = np.concatenate(kept), np.concatenate(logs)
    weights = np.exp(log - log.max())
    chosen = jax.random.choice(for_choice, len(log), (draws,), p=jnp.asarray(weights))
    return latent[np.asarray(chosen)], weights.sum() ** 2 / (weights**2).sum()


def two_moons_draws(token: Any, count: int, seed: int = 0) -> np.ndarray:
    """Exact draws from the posterior of two moons, given one token.

    The token is a point of the crescent plus (−|θ₁ + θ₂|, θ₂ − θ₁)/√2. So points of the crescent
    are drawn, which gives |θ₁ + θ₂| and θ₂ − θ₁, and then a sign; draws outside of the prior are
    dropped. Every θ results from exactly one sign, so all draws that are kept have equal weight.
    """
    random, kept = np.random.default_rng(seed), np.zeros((0, 2))
    while len(kept) < count:
        angle = random.uniform(-np.pi / 2, np.pi / 2, 2 * count)
        radius = random.normal(0.1, 0.01, 2 * count)
        point = radius * np.array([np.cos(angle), np.sin(angle)]) + np.array([[0.25], [0.0]])
        shift = np.sqrt(2) * (np.asarray(token).reshape(2, 1) - point)
        total = -shift[0] * random.choice([-1, 1], 2 * count)
        theta = np.column_stack([(total - shift[1]) / 2, (total + shift[1]) / 2])
        inside = (shift[0] <= 0) & (np.abs(theta) < 1).all(1)
        kept = np.concatenate([kept, theta[inside]])
    return kept[:count]


def from_sbibm(name: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and reference draws of one observation of a task of Lueckmann et al. (2021), from the
    wheel of sbibm that the environment variable ATTNLENS_SBIBM names."""
    folder = f"sbibm/tasks/{name}/files/num_observation_{number}"
    with zipfile.ZipFile(os.environ["ATTNLENS_SBIBM"]) as wheel:
        observation = wheel.read(f"{folder}/observation.csv")
        samples = bz2.decompress(wheel.read(f"{folder}/reference_posterior_samples.csv.bz2"))
    tokens, draws = (
        np.loadtxt(io.BytesIO(text), delimiter=",", skiprows=1, ndmin=2)
        for text in (observation, samples)
    )
    return tokens.reshape(-1, 2), draws
