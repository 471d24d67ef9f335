"""The encoder of lens A (Zhang et al., 2022): attention that treats tokens as a set.

    h = E x + e  (+ positions)                       embedding; a hidden entry of x counts as zero,
                                                     and the learned `blank` is added to its token
    h ← h + Σ_head operator(N(h) Q, N(h) K, N(h) V) O   attention, with any operator
    h ← h + W₂ φ(W₁ N(h) + b₁) + b₂                     feed-forward, token by token
    representation = N(h)

N is layer norm: mean 0 and variance 1 over features, then a learned scale and shift (Ba, Kiros and
Hinton, 2016); it is applied before each part (Xiong et al., On layer normalization in the
transformer architecture, 2020). Without positions nothing depends on the order of tokens, so
permuting tokens permutes the representation, and means over tokens do not change. Heads:

    labels      outputs = mean over tokens of the representation, then a linear map
    masked      a prediction for every token, from its own row of the representation
    posterior   mean and log variance of each coordinate of the latent, from the token mean: an
                array (2, d) for a latent of d = `outputs` coordinates, row 0 the means m and row 1
                the log variances log v, so that the standard deviations are e^(row 1 / 2). The loss
                "gaussian" fits it to targets z of shape (d,)
    mixture     a mixture of `components` Gaussians with full covariances, from the token mean: an
                array (components, 1 + d + d (d + 1)/2), to be read by `FullMixture.of`. The loss
                "mixture" fits it to targets z of shape (d,)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from attnlens import attention
from attnlens.core import checks

from .activation import softplus
from .mixture import row_size
from .parameters import Shape, normals

HEADS = ("labels", "masked", "posterior", "mixture")
EPSILON = 1e-5  # added to the variance in layer norm; the usual value


class Tokens(NamedTuple):
    """Tokens (L, token_dim), and which of them exist and are visible.

    `mask` (L,) is true where there is a token. `hidden` is true where a token is not visible to the
    network: a whole token (L,), or single entries (L, token_dim).

    >>> tokens = Tokens(jnp.zeros((3, 2)), mask=jnp.array([True, True, False]))
    >>> int(tokens.mask.sum()), "tokens of dimension", tokens.values.shape[1]
    (2, 'tokens of dimension', 2)
    """

    values: Any
    mask: Any = None
    hidden: Any = None


class Norm(eqx.Module):
    """Layer norm over the last axis."""

    scale: Float[Array, " width"]
    shift: Float[Array, " width"]

    def __init__(self, width: int):
        self.scale, self.shift = jnp.ones(width), jnp.zeros(width)

    def __call__(self, x: Float[Array, "length width"]) -> Float[Array, "length width"]:
        centred = x - jnp.mean(x, -1, keepdims=True)
        variance = jnp.mean(centred**2, -1, keepdims=True)
        return centred / jnp.sqrt(variance + EPSILON) * self.scale[None] + self.shift[None]


class EncoderLayer(eqx.Module):
    """Attention and feed-forward, each with a norm before it and a residual around it."""

    query: Float[Array, "heads width head_dim"]
    key: Float[Array, "heads width head_dim"]
    value: Float[Array, "heads width head_dim"]
    output: Float[Array, "heads head_dim width"]
    first: Float[Array, "inner width"]
    first_bias: Float[Array, " inner"]
    second: Float[Array, "width inner"]
    second_bias: Float[Array, " width"]
    before_attention: Norm
    before_feed_forward: Norm
    sharpness: float = eqx.field(static=True)
    operator: Callable[..., Any] = eqx.field(static=True)

    @staticmethod
    def shapes(width: int, heads: int, inner: int) -> tuple[tuple[Shape, int], ...]:
        """Pairs (shape, number of inputs) of the arrays to draw with `normals`."""
        into, out = (heads, width, width // heads), (heads, width // heads, width)
        feed_forward = ((inner, width), width), ((width, inner), inner)
        return (into, width), (into, width), (into, width), (out, width), *feed_forward

    def __init__(self, drawn: Sequence[Array], sharpness: float, operator: Callable[..., Any]):
        self.query, self.key, self.value, self.output, self.first, self.second = drawn
        width, inner = self.second.shape
        self.first_bias, self.second_bias = jnp.zeros(inner), jnp.zeros(width)
        self.before_attention, self.before_feed_forward = Norm(width), Norm(width)
        self.sharpness, self.operator = sharpness, operator

    def __call__(
        self, x: Float[Array, "length width"], mask: Bool[Array, " length"] | None
    ) -> Float[Array, "length width"]:
        x = x + self.attend(self.before_attention(x), mask)
        inside = self.before_feed_forward(x) @ self.first.T + self.first_bias[None]
        return x + softplus(inside, self.sharpness) @ self.second.T + self.second_bias[None]

    def attend(
        self, x: Float[Array, "length width"], mask: Bool[Array, " length"] | None
    ) -> Float[Array, "length width"]:
        """Multi-head attention, Σ_head operator(x Q, x K, x V) O."""

        def one_head(query, key, value, output):
            keywords = {} if mask is None else {"mask": mask}
            return self.operator(x @ query, x @ key, x @ value, **keywords) @ output

        return jnp.sum(jax.vmap(one_head)(self.query, self.key, self.value, self.output), 0)

    def weights(
        self, x: Float[Array, "length width"], mask: Bool[Array, " length"] | None
    ) -> Float[Array, "heads length length"]:
        """One matrix of weights per head, with one row per query.

        It is the output of the operator if the matrix of values is the identity.
        """
        keywords = {} if mask is None else {"mask": mask}
        identity, x = jnp.eye(x.shape[0], dtype=x.dtype), self.before_attention(x)
        return jax.vmap(lambda query, key: self.operator(x @ query, x @ key, identity, **keywords))(
            self.query, self.key
        )


class Encoder(eqx.Module):
    """A permutation-equivariant encoder of a set of tokens, with a head.

    `operator` is a name from `attnlens.attention.OPERATORS` or any function of (query, key, value)
    that takes `mask`. `positions=True` adds one learned vector per position, drawn with standard
    deviation `position_std`, for up to `max_length` tokens. This is a control: with positions the
    outputs depend on the order of tokens. `components` is the number of Gaussians of the head
    "mixture".

    >>> model = Encoder(jax.random.key(0), token_dim=3, outputs=2, width=8, heads=2)
    >>> model(jnp.ones((5, 3))).shape
    (2,)
    """

    embedding: Float[Array, "width token_dim"]
    embedding_bias: Float[Array, " width"]
    blank: Float[Array, " width"]
    positions: Float[Array, "max_length width"] | None
    layers: tuple[EncoderLayer, ...]
    norm: Norm
    readout: Float[Array, "outputs width"]
    readout_bias: Float[Array, " outputs"]
    head: str = eqx.field(static=True)
    components: int = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        *,
        token_dim: int,
        outputs: int = 1,
        head: str = "labels",
        components: int = 8,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        inner: int | None = None,
        operator: str | Callable[..., Any] = "softmax",
        positions: bool = False,
        max_length: int = 128,
        position_std: float = 1.0,
        sharpness: float = 5.0,
    ):
        checks.whole("token_dim", token_dim, at_least=1)
        checks.whole("outputs", outputs, at_least=1)
        checks.whole("layers", layers, at_least=1)
        checks.one_of("head", head, HEADS)
        if checks.whole("width", width, 1) % checks.whole("heads", heads, 1):
            raise checks.BadInput(
                f"width must be a multiple of heads; got width={width} and heads={heads}."
            )
        if isinstance(operator, str):
            operator = attention.OPERATORS[checks.one_of("operator", operator, attention.OPERATORS)]
        checks.whole("max_length", max_length, at_least=1)
        checks.positive("position_std", position_std)
        inner = 2 * width if inner is None else checks.whole("inner", inner, 1)
        checks.whole("components", components, at_least=1)
        rows = {"posterior": 2 * outputs, "mixture": components * row_size(outputs)}.get(
            head, outputs
        )
        self.embedding, self.blank, self.readout, places, *parts = normals(
            key,
            ((width, token_dim), token_dim),
            ((width,), 1),
            ((rows, width), width),
            ((max_length if positions else 0, width), 1),
            *(layers * EncoderLayer.shapes(width, heads, inner)),
        )
        self.positions = position_std * places if positions else None
        self.layers = tuple(
            EncoderLayer(parts[6 * i : 6 * i + 6], sharpness, operator) for i in range(layers)
        )
        self.embedding_bias, self.readout_bias = jnp.zeros(width), jnp.zeros(rows)
        self.norm = Norm(width)
        self.head, self.components = head, components

    def represent(
        self, inputs: Tokens | Float[Array, "length token_dim"]
    ) -> Float[Array, "length width"]:
        """The representation, one row per token; the rows of masked tokens have no meaning."""
        h, mask = self._embedded(inputs)
        for layer in self.layers:
            h = layer(h, mask)
        return self.norm(h)

    def attention(
        self, inputs: Tokens | Float[Array, "length token_dim"]
    ) -> tuple[Float[Array, "heads length length"], ...]:
        """The attention weights of each layer: a matrix per head, with one row per query."""
        h, mask = self._embedded(inputs)
        weights = []
        for layer in self.layers:
            weights.append(layer.weights(h, mask))
            h = layer(h, mask)
        return tuple(weights)

    def _embedded(
        self, inputs: Tokens | Float[Array, "length token_dim"]
    ) -> tuple[Float[Array, "length width"], Bool[Array, " length"] | None]:
        """The input of the first layer, and the mask."""
        tokens = inputs if isinstance(inputs, Tokens) else Tokens(inputs)
        x, hidden = tokens.values, tokens.hidden
        if hidden is not None:
            hidden = hidden if hidden.ndim == 2 else hidden[:, None]
            x = jnp.where(hidden, 0, x)
        h = x @ self.embedding.T + self.embedding_bias[None]
        if hidden is not None:
            h = h + jnp.where(jnp.any(hidden, 1)[:, None], self.blank[None], 0)
        if self.positions is not None:
            length, most = x.shape[0], self.positions.shape[0]
            if length > most:
                raise checks.BadInput(
                    f"this encoder has positions for {most} tokens; got {length}; build it "
                    f"with max_length={length}."
                )
            h = h + self.positions[:length]
        return h, tokens.mask

    def summary(self, inputs: Tokens | Float[Array, "length token_dim"]) -> Float[Array, " width"]:
        """The mean of the representation over all tokens that are not masked."""
        h = self.represent(inputs)
        mask = inputs.mask if isinstance(inputs, Tokens) else None
        if mask is None:
            return jnp.mean(h, 0)
        total = jnp.maximum(jnp.sum(mask, dtype=h.dtype), 1)
        return jnp.sum(jnp.where(mask[:, None], h, 0), 0) / total

    def __call__(self, inputs: Tokens | Float[Array, "length token_dim"]) -> Array:
        """The outputs of the head, of shape (outputs,) for the head "labels".

        The shape is (length, outputs) for "masked", and (2, outputs) for "posterior": row 0 has the
        means of the latent's coordinates, row 1 their log variances. For "mixture" there is one row
        per component (`FullMixture.of`).
        """
        if self.head == "masked":
            return self.represent(inputs) @ self.readout.T + self.readout_bias[None]
        outputs = self.readout @ self.summary(inputs) + self.readout_bias
        if self.head == "mixture":
            return outputs.reshape(self.components, -1)
        return outputs.reshape(2, -1) if self.head == "posterior" else outputs
