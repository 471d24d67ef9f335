"""A loss as a function of one flat vector of parameters, and the memory that it needs."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from attnlens.core import checks


def is_parameter(leaf: Any) -> bool:
    """Whether a leaf of a tree holds parameters: floating-point arrays do."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def traced_bytes(loss: Any, params: Any, data: Any) -> int:
    """Return the bytes of all intermediate arrays of one evaluation of the loss, by tracing it."""

    def one(params: Any, data: Any) -> Any:
        vector, value = flat_loss(loss, params, data)
        return value(vector)

    return _bytes(eqx.filter_make_jaxpr(one)(params, data)[0].jaxpr)


def _bytes(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        total += sum(v.aval.size * v.aval.dtype.itemsize for v in equation.outvars)
        # The parameters of an equation hold its inner programs (jit, scan, custom derivatives).
        for value in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(value, "jaxpr", value)
            total += _bytes(inner) if hasattr(inner, "eqns") else 0
    return total


def flat_loss(loss: Any, params: Any, data: Any) -> tuple[Any, Any]:
    """Return the parameter vector and the loss as a function of it; called while tracing."""
    trainable, rest = eqx.partition(params, is_parameter)
    vector, restore = ravel_pytree(trainable)
    arguments = () if data is None else (data,)

    def value(w: Array) -> Float[Array, ""]:
        try:
            result = loss(eqx.combine(restore(w), rest), *arguments)
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
            raise checks.BadInput(
                "loss must consist of JAX operations; got one that needs the values of its "
                "parameters; use jax.numpy for numpy, and no float()."
            ) from error
        if np.shape(result) or not is_parameter(jnp.asarray(result)):
            kind = jnp.asarray(result)
            raise checks.BadInput(
                f"loss must return one floating-point number; got {kind.dtype} of shape "
                f"{kind.shape}; take the mean over samples."
            )
        return result

    return vector, value
