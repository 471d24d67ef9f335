"""Public benchmark posteriors as NumPyro models, with a reference of their own.

    eight schools      Rubin (1981), centred and non-centred; no closed form
    SLCP               "simple likelihood, complex posterior": four modes, by the signs of θ₃ and θ₄
                       (Papamakarios, Sterratt and Murray, AISTATS 2019)
    two moons          two crescents, symmetric in θ₁ + θ₂ (Greenberg, Nonnenmacher and Macke, 2019)
    Gaussian mixture   one mean, and a token with standard deviation 1 or 0.1 (Sisson et al., 2007)

The last three are the tasks of Lueckmann et al., Benchmarking simulation-based inference (2021).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from attnlens.worlds import FromModel, Nuts

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(centred: bool, nuts: Nuts | None = None) -> FromModel:
    """One token is the row of eight estimated effects; its errors are known."""

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
    """Four points in the plane per observation. `mirror=False`: θ₄ > 0, which leaves two modes."""
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
