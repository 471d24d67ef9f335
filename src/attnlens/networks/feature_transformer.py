"""A transformer over the columns of a table, or over the tokens of a sequence.

    h_i = U_i x_i + b_i                  one token per column, with a map and a shift of its own
                                         (or one map for all positions, and a shift per position)
    h_0 = c                              a learned token that reads the others ([CLS])
    h ← h + attention(N(h));  h ← h + feed-forward(N(h))     `EncoderLayer`, `layers` times
    y = R N(h_0) + r

(FT-Transformer: Gorishniy, Rubachev, Khrulkov and Babenko, Revisiting deep learning models for
tabular data, 2021: pre-norm, residuals, biases.) With `uniform_attention=True` every token attends
to all tokens with equal weights, whatever they contain. This network has the same parameters and
the same training, so a comparison shows what attention adds.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attnlens.attention import softmax
from attnlens.core import checks

from .encoder import EncoderLayer, Norm
from .parameters import normals


def uniform(query: Any, key: Any, value: Any) -> Array:
    """Attention whose weights are all 1/L.

    >>> uniform(jnp.ones((1, 2)), jnp.ones((2, 2)), jnp.array([[1.0], [3.0]]))
    Array([[2.]], dtype=float32)
    """
    mean = jnp.mean(value, 0, keepdims=True)
    return jnp.broadcast_to(mean, (query.shape[0], value.shape[1]))


class FeatureTransformer(eqx.Module):
    """A transformer over columns (p,) or tokens (p, token_dim) of one row.

    With `identity=False` all positions share one embedding: the network then reads a set of tokens.

    >>> import jax
    >>> model = FeatureTransformer(jax.random.key(0), features=5, outputs=3)
    >>> model(jnp.ones(5)).shape
    (3,)
    """

    scale: Float[Array, "embeddings token_dim width"]
    shift: Float[Array, "embeddings width"]
    reader: Float[Array, " width"]
    layers: tuple[EncoderLayer, ...]
    norm: Norm
    readout: Float[Array, "outputs width"]
    readout_bias: Float[Array, " outputs"]

    def __init__(
        self,
        key: Key[Array, ""],
        *,
        features: int,
        token_dim: int = 1,
        outputs: int = 1,
        width: int = 16,
        heads: int = 4,
        layers: int = 2,
        identity: bool = True,
        uniform_attention: bool = False,
        sharpness: float = 5.0,
    ):
        checks.whole("features", features, at_least=1)
        checks.whole("outputs", outputs, at_least=1)
        checks.whole("layers", layers, at_least=1)
        if checks.whole("width", width, 1) % checks.whole("heads", heads, 1):
            raise checks.BadInput(
                f"width must be a multiple of heads; got width={width} and heads={heads}."
            )
        own = features if identity else 1
        # The positions of a sequence share one map; each column has a map of its own. Half of a
        # token's variance comes from its value, half from its shift.
        maps = features if identity and token_dim == 1 else 1
        self.scale, self.shift, self.reader, self.readout, *parts = normals(
            key,
            ((maps, token_dim, width), 2 * token_dim),
            ((own, width), 2),
            ((width,), 1),
            ((outputs, width), width),
            *(layers * EncoderLayer.shapes(width, heads, 2 * width)),
        )
        operator = uniform if uniform_attention else softmax
        self.layers = tuple(
            EncoderLayer(parts[6 * i : 6 * i + 6], sharpness, operator) for i in range(layers)
        )
        self.norm, self.readout_bias = Norm(width), jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, " outputs"]:
        tokens = x[:, None] if x.ndim == 1 else x
        scale = jnp.broadcast_to(self.scale, (tokens.shape[0], *self.scale.shape[1:]))
        h = jnp.einsum("zt,ztw->zw", tokens, scale) + self.shift
        h = jnp.concatenate([self.reader[None], h])
        for layer in self.layers:
            h = layer(h, None)
        return self.readout @ self.norm(h)[0] + self.readout_bias
