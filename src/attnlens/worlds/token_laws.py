"""Tokens of NumPyro models: their law and log density, and checks of a user's input."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from attnlens.core import checks

from .base import Pairs


def event_law(law: Any) -> Any:
    """The distribution of a token, with a nonempty event shape and an empty batch shape."""
    from numpyro.distributions import Distribution

    if not isinstance(law, Distribution):
        raise checks.BadInput(
            f"the likelihood must return a NumPyro distribution; got {type(law).__name__}."
        )
    if not law.batch_shape and not law.event_shape:
        law = law.expand((1,))
    return law.to_event(len(law.batch_shape))


def log_prob(law: Any, token: Array, keep: Bool[Array, ""]) -> Float[Array, ""]:
    """The log density of a token; 0 if it is masked.

    A masked token is replaced by a point of the support: the zero that hides it may lie outside,
    where the derivative of the density is NaN, and NaN times 0 is NaN.
    """
    if law.support is not None:
        token = jnp.where(keep, token, law.support.feasible_like(token).astype(token.dtype))
    return jnp.where(keep, law.log_prob(token), 0)


def checked(tokens: Any, example: Any, mask: Bool[Array, " length"] | None) -> Any:
    """Tokens as floats; `BadInput` unless each has the shape of those in `example`, and is finite.

    Numbers in a row are accepted as tokens of dimension 1. In traced code values are not checked.
    """
    if isinstance(example, Pairs) != isinstance(tokens, Pairs):
        expected = "Pairs(key, value)" if isinstance(example, Pairs) else "an array (length, dim)"
        raise checks.BadInput(f"tokens must be {expected}; got {type(tokens).__name__}.")
    own = [as_floats(leaf) for leaf in (tokens if isinstance(tokens, Pairs) else (tokens,))]
    for i, leaf in enumerate(jax.tree.leaves(example)):
        if own[i].ndim == 1 and leaf.shape[1:] == (1,):
            own[i] = own[i][:, None]
        if own[i].shape[1:] != leaf.shape[1:] or own[i].ndim != leaf.ndim:
            expected = ", ".join(("length", *map(str, leaf.shape[1:])))
            part = ("keys of tokens", "values of tokens")[i] if len(own) > 1 else "tokens"
            raise checks.BadInput(f"{part} must have shape ({expected}); got {own[i].shape}.")
        if _known_not_finite(own[i], mask):
            raise checks.BadInput(
                "tokens must be finite numbers; got NaN or infinity; mask=… leaves tokens out."
            )
    return Pairs(*own) if isinstance(example, Pairs) else own[0]


def check_likelihood(likelihood: Any, key_dim: int | None) -> None:
    """Raise `BadInput` if `likelihood` is not a function of a latent, or of a latent and a key."""
    from numpyro.distributions import Distribution

    if not callable(likelihood) or isinstance(likelihood, Distribution):
        raise checks.BadInput(
            f"likelihood must be a function of the latent that returns a NumPyro distribution; "
            f"got {type(likelihood).__name__}."
        )
    if not _takes(likelihood, 1 if key_dim is None else 2):
        raise checks.BadInput(
            "likelihood must take the latent alone, as there is no key_dim; give key_dim=… where "
            "tokens have keys."
            if key_dim is None
            else "likelihood must take the latent and a key, as key_dim is given; leave key_dim "
            "out where tokens have no keys."
        )


def check_prior(prior: Any) -> None:
    """Raise `BadInput` if `prior` is neither a distribution nor a program without arguments."""
    from numpyro.distributions import Distribution

    if isinstance(prior, Distribution) or (callable(prior) and _takes(prior, 0)):
        return
    raise checks.BadInput(
        f"prior must be a NumPyro distribution, or a program without arguments that returns the "
        f"latent; got {_named(prior)}."
    )


def _named(prior: Any) -> str:
    return "a function with arguments" if inspect.isfunction(prior) else repr(prior)


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with `count` arguments; true if its signature is unknown."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a compiled function without a signature
        return True
    return True


def _known_not_finite(leaf: Array, mask: Bool[Array, " length"] | None) -> bool:
    if isinstance(leaf, jax.core.Tracer) or isinstance(mask, jax.core.Tracer):
        return False
    rows = np.isfinite(np.asarray(leaf)).all(tuple(range(1, leaf.ndim)))
    return not (rows if mask is None else rows | ~np.asarray(mask)).all()


def as_floats(array: Any) -> Array:
    """Counts and labels as floats in the default precision."""
    return jnp.asarray(array, jnp.result_type(float))
