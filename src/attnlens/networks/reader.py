"""Attention that reads a set of (key, value) tokens to answer one question.

    r_h = w_V^h · SM(q_h; K, V),   q_h = w_Kʰᵀ w_Q^h q,   h = 1 … H     one weighted mean a head
    y   = w₀ [r; q] + w₂ φ(w₁ [r; q] + b₁) + b₂                          [r; q]: reads and question

SM is any operator of `attnlens.attention`, at temperature √d_q. Keys decide the weights and values
are what is averaged, so that a head reads exactly one weighted mean over the tokens: w_K and w_V
are applied outside of the sum (they are linear, so nothing changes), and the cost of a head is
that of the tokens' own size. Without a question, each head has a learned q_h instead: attention
pooling (Lee et al., Set Transformer, 2019). The reads r are the representation of the set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens import attention, checks

from .activation import softplus
from .parameters import normals


class Asked(NamedTuple):
    """Tokens as keys (L, key_dim) and values (L, value_dim), a question (query_dim,), and a mask
    (L,) that is true where there is a token.

    >>> asked = Asked(jnp.zeros((5, 2)), jnp.ones((5, 1)), query=jnp.zeros(2))
    >>> asked.key.shape, asked.value.shape, asked.query.shape
    ((5, 2), (5, 1), (2,))
    """

    key: Any
    value: Any
    query: Any = None
    mask: Any = None


class Reader(eqx.Module):
    """H heads read a set once, then a small network answers.

    `query_dim=0` means that nothing is asked: learned queries. `read_dim` is the size of what a
    head reads, `hidden=0` leaves the answer linear in the reads. `max_length` gives every place
    learned positions, drawn with standard deviation one and added to keys and values: a control,
    for it breaks the symmetry.

    >>> import jax
    >>> model = Reader(jax.random.key(0), key_dim=2, value_dim=1, query_dim=2, hidden=8)
    >>> model(Asked(jnp.ones((5, 2)), jnp.ones((5, 1)), jnp.ones(2))).shape
    (1,)
    """

    query: Float[Array, "heads head_dim asked"]
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
        for name, given in {"key_dim": key_dim, "value_dim": value_dim, "outputs": outputs,
                            "heads": heads, "head_dim": head_dim}.items():  # fmt: skip
            checks.whole(name, given, at_least=1)
        checks.whole("query_dim", query_dim, at_least=0)
        checks.whole("hidden", hidden, at_least=0)
        checks.whole("max_length", max_length, at_least=0)
        if isinstance(operator, str):
            operator = attention.OPERATORS[checks.one_of("operator", operator, attention.OPERATORS)]
        reads = value_dim if read_dim is None else checks.whole("read_dim", read_dim, at_least=1)
        features, asked = heads * reads + query_dim, max(query_dim, 1)
        self.query, self.key, self.value, self.skip, self.first, self.second, places = normals(
            key,
            ((heads, head_dim, asked), asked),
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

    def represent(self, inputs: Asked) -> Float[Array, " reads"]:
        """What the heads read, one after the other."""
        keys, values = self._placed(inputs)
        means = self._means(inputs, keys, values)
        return jnp.einsum("hrv,hv->hr", self.value, means).reshape(-1)

    def attention(self, inputs: Asked) -> Float[Array, "heads length"]:
        """What each head looks at: its weights in a row, from values that are the identity."""
        keys, _ = self._placed(inputs)
        return self._means(inputs, keys, jnp.eye(keys.shape[0], dtype=keys.dtype))

    def _placed(self, inputs: Asked) -> tuple[Array, Array]:
        """Keys and values, with positions where there are any."""
        keys, values = inputs.key, inputs.value
        if self.positions is not None:
            (length, split), most = keys.shape, self.positions.shape[0]
            if length > most:
                raise checks.BadInput(
                    f"this reader has positions for {most} tokens, but {length} came; build it "
                    f"with max_length={length}."
                )
            places = self.positions[:length]
            keys, values = keys + places[:, :split], values + places[:, split:]
        return keys, values

    def _means(self, inputs: Asked, keys: Array, values: Array) -> Array:
        """The weighted mean of the values that each head takes."""
        question = jnp.ones(1, keys.dtype) if inputs.query is None else inputs.query
        in_key_space = jnp.einsum("hdk,hda,a->hk", self.key, self.query, question)
        given = {} if inputs.mask is None else {"mask": inputs.mask}
        return self.operator(
            in_key_space, keys, values, temperature=float(self.key.shape[1]) ** 0.5, **given
        )

    def __call__(self, inputs: Asked) -> Float[Array, " outputs"]:
        features = self.represent(inputs)
        if inputs.query is not None:
            features = jnp.concatenate([features, inputs.query])
        inside = self.first @ features + self.first_bias
        return (
            self.skip @ features + self.second @ softplus(inside, self.sharpness) + self.second_bias
        )

    def answers(
        self,
        query: Float[Array, "queries asked"],
        key: Float[Array, "length key_dim"],
        value: Float[Array, "length value_dim"],
    ) -> Float[Array, "queries outputs"]:
        """The answer to each of several questions: the network in an operator's clothes, so that
        `inference_error` measures it as it does any attention operator."""
        return jax.vmap(lambda question: self(Asked(key, value, question)))(query)
