"""Latent weights of binary values: no closed form; the reference posterior is sampled by NUTS.

    z ~ N(0, ω² I),  k uniform on the unit sphere of R^d,  v ~ Bernoulli(1/(1 + e^{−⟨z, k⟩}))

The posterior is log-concave, so it has one mode and NUTS mixes well (Bishop, Pattern Recognition
and Machine Learning, 2006, section 4.5). m(q, z) is the probability of the value 1 at q.
Symbols: ω is `prior_std`.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens.core import checks

from . import key_distributions
from .model import ReferenceWorld
from .nuts import Nuts


class LogisticRegression(ReferenceWorld):
    """A random linear classifier; values are 0 or 1.

    >>> import jax
    >>> world = LogisticRegression(key_dim=2)
    >>> world.sample(jax.random.key(0), length=10, queries=3).answer.shape
    (3, 1)
    """

    key_dim: int = eqx.field(default=2, static=True)
    prior_std: float = 2.0
    nuts: Nuts = Nuts()

    def __check_init__(self):
        checks.whole("key_dim", self.key_dim, at_least=2)
        checks.positive("prior_std", self.prior_std)

    def latent_program(self) -> Any:
        import numpyro
        import numpyro.distributions as dist

        prior = dist.Normal(jnp.zeros(self.key_dim), self.prior_std)
        return numpyro.sample("weights", prior.to_event(1))

    def token_law(self, latent: Any, key: Float[Array, " dim"] | None = None) -> Any:
        import numpyro.distributions as dist

        assert key is not None, "every value of this world has a key"
        return dist.Bernoulli(logits=jnp.dot(latent, key))

    def draw_keys(self, key: Key[Array, ""], count: int) -> Float[Array, "count dim"]:
        return key_distributions.draw("sphere", key, count, self.key_dim)
