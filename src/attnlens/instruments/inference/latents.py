"""The latent of a world as a vector: its value in an episode, and its posterior moments.

latent                                          vector
numbers                                         these numbers; several parts (of a NumPyro model)
                                                are concatenated
a mean and a variance (NormalInverseGamma)      the mean
one of finitely many classes (FiniteMixture)    a one-hot vector
a function (GaussianProcess)                    none: it has infinitely many coordinates
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from attnlens.core import checks
from attnlens.worlds import GaussianProcess
from attnlens.worlds.base import ExactWorld, World
from attnlens.worlds.model import ReferenceWorld


def require_vector(world: World) -> None:
    """Raise `BadInput` if the latent has no vector. Call it outside of traced code, where JAX would
    add to the message."""
    if isinstance(world, GaussianProcess):
        raise checks.BadInput(
            "label='latent' needs a latent with finitely many coordinates; got GaussianProcess; "
            "use label='next'."
        )
    if not isinstance(world, ExactWorld):
        raise checks.BadInput(
            f"label='latent' needs a world with a posterior, such as NormalMean; got "
            f"{type(world).__name__}; use label='next'."
        )


def latent_vector(world: World, latent: Any) -> Float[Array, " parts"]:
    """Return the latent of an episode as a vector; `require_vector` checks that there is one."""
    if isinstance(world, ReferenceWorld):
        return ravel_pytree(latent)[0]
    first = jnp.asarray(jax.tree.leaves(latent)[0])
    if first.ndim == 0:  # a class index
        assert isinstance(world, ExactWorld), "classes have a posterior"
        return jax.nn.one_hot(first, world.prior().probs.shape[0])
    return jnp.ravel(first)


def latent_moments(posterior: Any) -> tuple[Float[Array, " parts"], Float[Array, " parts"]]:
    """Return mean and variance of `latent_vector` under a posterior."""
    if hasattr(posterior, "probs"):
        return posterior.probs, posterior.probs * (1 - posterior.probs)
    if hasattr(posterior, "expected_var"):  # σ² is unknown: the variance of the mean is E σ²/κ
        return posterior.mean, posterior.expected_var / posterior.count
    return posterior.mean, posterior.var
