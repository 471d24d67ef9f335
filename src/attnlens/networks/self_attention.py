"""Models of tokens of lens B (ICLR 2021 submission): self-attention in one layer or several.

    K = (w_K x)ᵀ,  Q_z = (w_Q x^z)ᵀ,  a_z = softmax(Q_z Kᵀ/√d_q),   x ∈ R^(t×p): p tokens
    y = w₂ φ(w₁ vec(w_V x a))                                        (lens B, section 3)

Column z of a holds query z's weights over the tokens; vec stacks the columns, so that the value
vectors of the tokens follow one another. With several layers x ← w_V x a(x) is repeated, each layer
with its own weights and d_v = t; then the same head follows.

Symbols: t is `token_dim`, p is `tokens`, d_q is `query_dim`, d_v is `value_dim`, d is `hidden`;
w_Q, w_K, w_V are `query`, `key`, `value`, and w₁, w₂ are `first`, `second`.

What the function depends on: only the products w_Qᵀ w_K and, for each token position z, w₁^z w_V
(w₁^z: the columns of w₁ that read token z). So (A w_Q, A^(−ᵀ) w_K) and (B w_V, w₁ (I ⊗ B⁻¹)) give
the same function for all invertible A and B, and hidden units may be in any order. With several
layers and C_l = w_V^l … w_V^1, the function depends on C_{l−1}ᵀ w_Qᵀ w_K C_{l−1} and w₁^z C_L.
`units` returns these products.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens.attention.native import small_softmax
from attnlens.core import checks

from . import activation
from .dense import head
from .parameters import Shape, normals

TokenMatrix = Float[Array, "token_dim tokens"]  # one token per column
Weights = Float[Array, "tokens tokens"]


class Layer(eqx.Module):
    """One layer, x ↦ w_V x a(x), for inputs whose rows are the tokens."""

    query: Float[Array, "query_dim token_dim"]
    key: Float[Array, "query_dim token_dim"]
    value: Float[Array, "value_dim token_dim"]

    @staticmethod
    def shapes(token_dim: int, query_dim: int, value_dim: int) -> tuple[tuple[Shape, int], ...]:
        """Pairs (shape, number of inputs) of the arrays to draw with `normals`."""
        checks.whole("token_dim", token_dim, at_least=1)
        checks.whole("query_dim", query_dim, at_least=1)
        checks.whole("value_dim", value_dim, at_least=1)
        score = ((query_dim, token_dim), token_dim)
        return score, score, ((value_dim, token_dim), token_dim)

    def queries_and_keys(
        self, rows: Float[Array, "tokens token_dim"]
    ) -> tuple[Float[Array, "tokens query_dim"], Float[Array, "tokens query_dim"]]:
        """Queries and keys as rows; their inner products are the logits."""
        # Scaling the few queries is cheaper than scaling the many logits. With tokens as rows the
        # softmax runs along contiguous memory: a sixth less CPU time in one noisy pair of runs.
        return rows @ (self.query.T / math.sqrt(self.query.shape[0])), rows @ self.key.T

    def weights(self, rows: Float[Array, "tokens token_dim"]) -> Weights:
        """The transpose of a: row z holds query z's weights and sums to one."""
        queries, keys = self.queries_and_keys(rows)
        return jax.nn.softmax(queries @ keys.T, axis=-1)

    def __call__(self, rows: Float[Array, "tokens token_dim"]) -> Float[Array, "tokens value_dim"]:
        """Map xᵀ to (w_V x a)ᵀ: tokens are rows of the input and of the output."""
        queries, keys = self.queries_and_keys(rows)
        values = rows @ self.value.T
        if small_softmax.fits(queries, keys, values) and small_softmax.load():
            return small_softmax.attend(queries, keys, values, jnp.zeros(0, bool))
        return jax.nn.softmax(queries @ keys.T, axis=-1) @ values


class SelfAttention(eqx.Module):
    """One layer of self-attention and a head: 2 d_q t + d_v t + d p d_v + outputs d parameters.

    >>> model = SelfAttention(jax.random.key(0), tokens=4, token_dim=3, hidden=16)
    >>> model(jnp.ones((3, 4))).shape
    (1,)
    """

    layer: Layer
    first: Float[Array, "hidden flat"]
    second: Float[Array, "outputs hidden"]
    sharpness: float = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        *,
        tokens: int,
        token_dim: int,
        hidden: int,
        query_dim: int | None = None,
        value_dim: int | None = None,
        outputs: int = 1,
        sharpness: float = 5.0,
    ):
        checks.whole("tokens", tokens, at_least=1)
        checks.whole("hidden", hidden, at_least=1)
        checks.whole("outputs", outputs, at_least=1)
        value_dim = token_dim if value_dim is None else value_dim
        query_dim = token_dim if query_dim is None else query_dim
        wide = tokens * value_dim
        *layer, self.first, self.second = normals(
            key,
            *Layer.shapes(token_dim, query_dim, value_dim),
            ((hidden, wide), wide),
            ((outputs, hidden), hidden),
        )
        self.layer = Layer(*layer)
        self.sharpness = activation.sharpness(sharpness)

    def __call__(self, x: TokenMatrix) -> Float[Array, " outputs"]:
        return head(self.first, self.second, jnp.ravel(self.layer(x.T)), self.sharpness)

    def attention(self, x: TokenMatrix) -> tuple[Weights, ...]:
        """a(x) of each layer: column z holds query z's weights and sums to one."""
        return (self.layer.weights(x.T).T,)

    def units(self) -> tuple[Float[Array, " rest"], Float[Array, "hidden unit"]]:
        """What the function depends on: w_Qᵀ w_K, and for each unit w₁^z w_V and w₂."""
        return _products((self.layer,), self.first, self.second)


class MultiLayerSelfAttention(eqx.Module):
    """`layers` layers of self-attention with d_v = t, then a head.

    >>> key = jax.random.key(0)
    >>> model = MultiLayerSelfAttention(key, tokens=4, token_dim=3, hidden=8, layers=2)
    >>> model(jnp.ones((3, 4))).shape
    (1,)
    """

    layers: tuple[Layer, ...]
    first: Float[Array, "hidden flat"]
    second: Float[Array, "outputs hidden"]
    sharpness: float = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        *,
        tokens: int,
        token_dim: int,
        hidden: int,
        layers: int = 2,
        query_dim: int | None = None,
        outputs: int = 1,
        sharpness: float = 5.0,
    ):
        checks.whole("layers", layers, at_least=1)
        checks.whole("tokens", tokens, at_least=1)
        checks.whole("hidden", hidden, at_least=1)
        checks.whole("outputs", outputs, at_least=1)
        query_dim = token_dim if query_dim is None else query_dim
        wide = tokens * token_dim
        *parts, self.first, self.second = normals(
            key,
            *(layers * Layer.shapes(token_dim, query_dim, token_dim)),
            ((hidden, wide), wide),
            ((outputs, hidden), hidden),
        )
        self.layers = tuple(Layer(*parts[3 * i : 3 * i + 3]) for i in range(layers))
        self.sharpness = activation.sharpness(sharpness)

    def __call__(self, x: TokenMatrix) -> Float[Array, " outputs"]:
        rows = x.T
        for layer in self.layers:
            rows = layer(rows)
        return head(self.first, self.second, jnp.ravel(rows), self.sharpness)

    def attention(self, x: TokenMatrix) -> tuple[Weights, ...]:
        """a(x) of each layer: column z holds query z's weights and sums to one."""
        rows, weights = x.T, []
        for layer in self.layers:
            weights.append(layer.weights(rows).T)
            rows = layer(rows)
        return tuple(weights)

    def units(self) -> tuple[Float[Array, " rest"], Float[Array, "hidden unit"]]:
        """The products that the function depends on, as derived in the module's docstring."""
        return _products(self.layers, self.first, self.second)


def _products(
    layers: tuple[Layer, ...], first: Array, second: Array
) -> tuple[Float[Array, " rest"], Float[Array, "hidden unit"]]:
    composed = jnp.eye(layers[0].value.shape[1], dtype=first.dtype)
    scores = []
    for layer in layers:
        scores.append(jnp.ravel(composed.T @ layer.query.T @ layer.key @ composed))
        composed = layer.value @ composed
    by_token = first.reshape(first.shape[0], -1, composed.shape[0])
    read = jnp.einsum("hzv,vt->hzt", by_token, composed).reshape(first.shape[0], -1)
    return jnp.concatenate(scores), jnp.concatenate([read, second.T], 1)
