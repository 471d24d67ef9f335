"""Multi-head attention around any operator; each head has projections of its own.

    head_h = operator(X_q Q_h, X_k K_h, X_v V_h),    output = Σ_h head_h O_h

(Vaswani et al., Attention is all you need, 2017, section 3.2.2; no bias terms.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from attnlens.core import checks

from . import inputs
from .softmax import softmax


class MultiHead(eqx.Module):
    """Projections around an attention operator, one set per head.

    `dim` is the number of features of query tokens; `key_dim`, `value_dim` and `output_dim` default
    to it, `head_dim` to dim / heads. `operator` is any function of (query, key, value) with leading
    dimensions, such as those in `OPERATORS`.

    >>> layer = MultiHead(jax.random.key(0), dim=8, heads=2)
    >>> tokens = jnp.ones((3, 5, 8))
    >>> layer(tokens, tokens, tokens).shape
    (3, 5, 8)
    """

    query: Float[Array, "heads dim head_dim"]
    key: Float[Array, "heads key_dim head_dim"]
    value: Float[Array, "heads value_dim head_dim"]
    output: Float[Array, "heads head_dim output_dim"]
    operator: Callable[..., Any] = eqx.field(static=True)

    def __init__(
        self,
        random_key: Key[Array, ""],
        *,
        dim: int,
        heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        output_dim: int | None = None,
        head_dim: int | None = None,
        operator: Callable[..., Any] = softmax,
    ):
        checks.whole("heads", heads, 1)
        if head_dim is None and checks.whole("dim", dim, 1) % heads:
            raise checks.BadInput(
                f"dim must be a multiple of heads when head_dim is not given; got dim={dim} and "
                f"heads={heads}."
            )
        head_dim = dim // heads if head_dim is None else head_dim
        shapes = {
            "query": (dim, head_dim),
            "key": (dim if key_dim is None else key_dim, head_dim),
            "value": (dim if value_dim is None else value_dim, head_dim),
            "output": (head_dim, dim if output_dim is None else output_dim),
        }
        # Glorot's uniform distribution over all heads together: variance 2/(inputs + outputs).
        for part_key, (name, (rows, columns)) in zip(
            jax.random.split(random_key, 4), shapes.items(), strict=True
        ):
            inner, outer = (rows, heads * columns) if name != "output" else (heads * rows, columns)
            limit = (6 / (inner + outer)) ** 0.5
            draw = jax.random.uniform(part_key, (heads, rows, columns), minval=-limit, maxval=limit)
            setattr(self, name, draw)
        self.operator = operator

    def __call__(
        self,
        query: Float[Array, "*batch queries dim"],
        key: Float[Array, "*batch length key_dim"],
        value: Float[Array, "*batch length value_dim"],
        *,
        mask: Bool[Array, ...] | None = None,
        **settings: Any,
    ) -> Float[Array, "*batch queries output_dim"]:
        """`mask` and `settings` are passed to the operator; `mask` has no axis for heads."""
        query, key, value = inputs.floating({"query": query, "key": key, "value": value})
        mask = None if mask is None else inputs.boolean(mask)
        if mask is not None and mask.ndim > 2:
            mask = mask[..., None, :, :]
        heads = self.operator(
            jnp.einsum("...ld,hde->...hle", query, self.query),
            jnp.einsum("...ld,hde->...hle", key, self.key),
            jnp.einsum("...ld,hde->...hle", value, self.value),
            **({} if mask is None else {"mask": mask}),
            **settings,
        )
        return jnp.einsum("...hle,heo->...lo", heads, self.output)
