"""Attention that reads a set of (key, value) tokens to answer one query.

    r_h = w_V^h · SM(q_h; K, V),   q_h = w_Kʰᵀ w_Q^h q,   h = 1 … H     one weighted mean per head
    y   = w₀ [r; q] + w₂ φ(w₁ [r; q] + b₁) + b₂                          [r; q]: reads and query

SM is any operator of `attnlens.attention`, at temperature √d_q. Keys determine the weights and
values are averaged, so each head reads exactly one weighted mean over the tokens. w_K and w_V are
applied outside of the sum (they are linear, so the result is the same), and the cost of a head
depends only on the size of the tokens. Without a query, each head has a learned q_h instead:
attention pooling (Lee et al., Set Transformer, 2019). The reads r are the representation of the
set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens import attention
from attnlens.core import checks

from .activation import softplus
from .parameters import normals


class ReaderInputs(NamedTuple):
    """Tokens as keys (L, key_dim) and values (L, value_dim), with a query and a mask.

    `query` has shape (query_dim,); `mask` (L,) is true where there is a token.

    >>> inputs = ReaderInputs(jnp.zeros((5, 2)), jnp.ones((5, 1)), query=jnp.zeros(2))
    >>> inputs.key.shape, inputs.value.shape, inputs.query.shape
    ((5, 2), (5, 1), (2,))
    """

    key: Any
    value: Any
    query: Any = None
    mask: Any = None


class Reader(eqx.Module):
    """H heads read a set once, then a small network answers.

    `query_dim=0` means that there is no query, and the heads learn their own. `read_dim` is the
    size of what a head reads; with `hidden=0` the answer is linear in the reads. `max_length` adds
    learned positions, drawn with standard deviation one, to keys and values. This is a control:
    with positions the answer depends on the order of tokens.

    >>> import jax
    >>> model = Reader(jax.random.key(0), key_dim=2, value_dim=1, query_dim=2, hidden=8)
    >>> model(ReaderInputs(jnp.ones((5, 2)), jnp.ones((5, 1)), jnp.ones(2))).shape
    (1,)
    """

    query: Float[Array, "heads head_dim query_size"]
    key: Float[Array, "heads head_dim key_dim"]
    value: Float[Array, "heads read_dim value_dim"]
    skip: Float[Array, "outputs features"]
    first: Float[Array, "hidden features"]
    first_bias: Float[Array, " hidden"]
    second: Float[Array, "outputs hidden"]
    second_bias: Float[Array, " outputs"]
    positions: Float[Array, "max_length token_dim"] | None
    sharpness: float = eqx.field(static=True)
    operator: Callable[..., Any] = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        *,
        key_dim: int,
        value_dim: int = 1,
        query_dim: int = 0,
        outputs: int = 1,
        heads: int = 1,
        head_dim: int = 4,
        read_dim: int | None = None,
        hidden: int = 16,
        max_length: int = 0,
        sharpness: float = 5.0,
        operator: str | Callable[..., Any] = "softmax",
    ):
        for name, value in {
            "key_dim": key_dim,
            "value_dim": value_dim,
            "outputs": outputs,
            "heads": heads,
            "head_dim": head_dim,
        }.items():
            checks.whole(name, value, at_least=1)
        checks.whole("query_dim", query_dim, at_least=0)
        checks.whole("hidden", hidden, at_least=0)
        checks.whole("max_length", max_length, at_least=0)
        if isinstance(operator, str):
            operator = attention.OPERATORS[checks.one_of("operator", operator, attention.OPERATORS)]
        reads = value_dim if read_dim is None else checks.whole("read_dim", read_dim, at_least=1)
        features, query_size = heads * reads + query_dim, max(query_dim, 1)
        self.query, self.key, self.value, self.skip, self.first, self.second, places = normals(
            key,
            ((heads, head_dim, query_size), query_size),
            ((heads, head_dim, key_dim), key_dim),
            ((heads, reads, value_dim), value_dim),
            ((outputs, features), features),
            ((hidden, features), features),
            ((outputs, hidden), max(hidden, 1)),
            ((max_length, key_dim + value_dim), 1),
        )
        self.first_bias, self.second_bias = jnp.zeros(hidden), jnp.zeros(outputs)
        self.positions = places if max_length else None
        self.sharpness, self.operator = sharpness, operator

    def represent(self, inputs: ReaderInputs) -> Float[Array, " reads"]:
        """The representation of the set: the concatenated reads of all heads."""
        keys, values = self._with_positions(inputs)
        means = self._means(inputs, keys, values)
        return jnp.einsum("hrv,hv->hr", self.value, means).reshape(-1)

    def attention(self, inputs: ReaderInputs) -> Float[Array, "heads length"]:
        """The weights, one row per head: the weighted means if the values are one-hot rows."""
        keys, _ = self._with_positions(inputs)
        return self._means(inputs, keys, jnp.eye(keys.shape[0], dtype=keys.dtype))

    def _with_positions(self, inputs: ReaderInputs) -> tuple[Any, Any]:
        """Keys and values, with positions added if the network has them."""
        keys, values = inputs.key, inputs.value
        if self.positions is not None:
            (length, split), most = keys.shape, self.positions.shape[0]
            if length > most:
                raise checks.BadInput(
                    f"this reader has positions for {most} tokens; got {length}; build it "
                    f"with max_length={length}."
                )
            places = self.positions[:length]
            keys, values = keys + places[:, :split], values + places[:, split:]
        return keys, values

    def _means(self, inputs: ReaderInputs, keys: Any, values: Any) -> Array:
        """The weighted mean of the values that each head reads."""
        query = jnp.ones(1, keys.dtype) if inputs.query is None else inputs.query
        in_key_space = jnp.einsum("hdk,hda,a->hk", self.key, self.query, query)
        keywords = {} if inputs.mask is None else {"mask": inputs.mask}
        return self.operator(
            in_key_space, keys, values, temperature=float(self.key.shape[1]) ** 0.5, **keywords
        )

    def __call__(self, inputs: ReaderInputs) -> Float[Array, " outputs"]:
        features = self.represent(inputs)
        if inputs.query is not None:
            features = jnp.concatenate([features, inputs.query])
        inside = self.first @ features + self.first_bias
        return (
            self.skip @ features + self.second @ softplus(inside, self.sharpness) + self.second_bias
        )

    def answers(
        self,
        query: Float[Array, "queries query_dim"],
        key: Float[Array, "length key_dim"],
        value: Float[Array, "length value_dim"],
    ) -> Float[Array, "queries outputs"]:
        """The answers to several queries, with the signature of an attention operator.

        `inference_error` can therefore measure the network as it measures any operator.
        """
        return jax.vmap(lambda one: self(ReaderInputs(key, value, one)))(query)
