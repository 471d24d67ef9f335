"""Normal tokens whose mean and covariance are nonlinear functions of the latent.

    z ~ N(0, I₂),   x ~ N(μ(z), Σ(z)) in the plane
    μ(z) = (z₁, z₂ + c (z₁² − 1)),   std(z) = σ (e^{tanh z₁}, e^{tanh z₂}),   ρ(z) = ½ tanh(z₁ z₂)

With few tokens the posterior is curved, similar to the "simple likelihood, complex posterior"
problem of Papamakarios, Sterratt and Murray (AISTATS 2019), but it has one mode in most episodes,
so that chains that disagree indicate a failure and not a second mode. The functions μ, std and ρ
are a choice of this package. Symbols: c is `curve`, σ is `noise_std`.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens.core import checks

from .model import ReferenceWorld
from .nuts import Nuts


class NonlinearGaussian(ReferenceWorld):
    """A two-dimensional latent; mean and covariance of a token depend on it nonlinearly.

    >>> import jax
    >>> world = NonlinearGaussian()
    >>> world.sample(jax.random.key(0), length=4).tokens.shape
    (4, 2)
    """

    curve: float = 0.5
    noise_std: float = 0.5
    nuts: Nuts = eqx.field(default=Nuts(target=0.95))

    def __check_init__(self):
        checks.positive("noise_std", self.noise_std)

    def latent_program(self) -> Any:
        import numpyro
        import numpyro.distributions as dist

        return numpyro.sample("latent", dist.Normal(jnp.zeros(2), 1.0).to_event(1))

    def token_law(self, latent: Any, key: Float[Array, " dim"] | None = None) -> Any:
        import numpyro.distributions as dist

        first, second = latent[0], latent[1]
        mean = jnp.stack([first, second + self.curve * (first**2 - 1)])
        std = self.noise_std * jnp.exp(jnp.tanh(latent))
        rho = 0.5 * jnp.tanh(first * second)
        # The lower Cholesky factor of the covariance: rows (s₁, 0) and (ρ s₂, √(1 − ρ²) s₂).
        root = jnp.stack(
            [
                jnp.stack([std[0], jnp.zeros_like(std[0])]),
                jnp.stack([rho * std[1], jnp.sqrt(1 - rho**2) * std[1]]),
            ]
        )
        return dist.MultivariateNormal(mean, scale_tril=root)

    def draw_keys(self, key: Key[Array, ""], count: int) -> None:
        return None
