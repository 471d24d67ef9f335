"""BERT's encoder as a pure JAX function, from weights in a safetensors file, without torch.

    h⁰ = N(word + position + segment)
    h  ← N(h + Σ_head softmax(Q Kᵀ/√d) V O)        Q, K, V linear in h, with biases
    h  ← N(h + W₂ gelu(W₁ h + b₁) + b₂)            gelu(x) = x Φ(x), exactly

N is a layer norm, applied after the embedding, the attention and the feed-forward network (Devlin
et al., NAACL 2019; Vaswani et al., 2017). There is no dropout. Every text is one segment, so the
segment embedding is always that of segment 0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from attnlens.core import checks

LAYER = re.compile(r"encoder\.layer\.(\d+)\.")
# Maps the fields of `BertLayer` to the names of its weights in the file.
PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "after_attention": "attention.output.LayerNorm",
    "first": "intermediate.dense",
    "second": "output.dense",
    "after_feed_forward": "output.LayerNorm",
}


class AffineWeights(NamedTuple):
    """Weight and bias of a linear map, (out, in) and (out,), or of a layer norm, both (width,)."""

    weight: Any
    bias: Any


class BertLayer(NamedTuple):
    """The weights of one layer."""

    query: AffineWeights
    key: AffineWeights
    value: AffineWeights
    output: AffineWeights
    after_attention: AffineWeights
    first: AffineWeights
    second: AffineWeights
    after_feed_forward: AffineWeights


class Bert(eqx.Module):
    """BERT's encoder. Its methods take token numbers (length,) and a mask (length,).

    The mask is false for padding. `represent` returns h of every layer, h⁰ first; `weights` returns
    the attention weights of a layer.
    """

    words: Float[Array, "vocabulary width"]  # word embeddings
    places: Float[Array, "most width"]  # position embeddings
    kind: Float[Array, " width"]  # the embedding of segment 0
    norm: AffineWeights
    layers: tuple[BertLayer, ...]
    heads: int = eqx.field(static=True)
    small: float = eqx.field(static=True, default=1e-12)  # added to variances in layer norms

    @classmethod
    def read(cls, weights: str | Path, config: str | Path) -> Bert:
        """Read the encoder from the files `model.safetensors` and `config.json`."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            settings, arrays = json.loads(Path(config).read_text()), load_file(weights)
        except (OSError, ValueError, SafetensorError) as error:
            raise checks.BadInput(
                f"the model in {Path(weights).parent} cannot be read ({error}); install its "
                f"package again."
            ) from error
        if settings.get("hidden_act", "gelu") != "gelu":
            raise checks.BadInput(
                f"hidden_act of a BERT encoder must be gelu; got {settings['hidden_act']!r}."
            )
        return cls.of(
            arrays, settings["num_attention_heads"], settings.get("layer_norm_eps", 1e-12)
        )

    @classmethod
    def of(cls, arrays: Mapping[str, Any], heads: int, small: float = 1e-12) -> Bert:
        """An encoder from a mapping of names, as in the file, to arrays.

        Names may start with `bert.`. `small` is added to variances in layer norms.
        """
        named = {name.removeprefix("bert."): array for name, array in arrays.items()}
        numbers = [int(match[1]) for name in named if (match := LAYER.match(name))]

        def array(name: str) -> Array:
            if name not in named:
                raise checks.BadInput(
                    f"BERT's weights must hold {name}; there is no such array; give the weights of "
                    f"an encoder of the BERT family."
                )
            return jnp.asarray(np.asarray(named[name]))

        def affine(name: str) -> AffineWeights:
            return AffineWeights(array(f"{name}.weight"), array(f"{name}.bias"))

        layers = [
            BertLayer(**{part: affine(f"encoder.layer.{i}.{name}") for part, name in PARTS.items()})
            for i in range(1 + max(numbers, default=-1))
        ]
        start = "embeddings."
        words = array(f"{start}word_embeddings.weight")
        if words.shape[1] % checks.whole("heads", heads, at_least=1):
            raise checks.BadInput(
                f"the width must be a multiple of heads; got {words.shape[1]} and {heads}."
            )
        return cls(
            words,
            array(f"{start}position_embeddings.weight"),
            array(f"{start}token_type_embeddings.weight")[0],
            affine(f"{start}LayerNorm"),
            tuple(layers),
            heads,
            small,
        )

    @property
    def width(self) -> int:
        return self.words.shape[1]

    def embed(self, numbers: Int[Array, " length"]) -> Float[Array, "length width"]:
        """h⁰, the embedding of the tokens before the first layer."""
        length, most = numbers.shape[0], self.places.shape[0]
        if length > most:
            raise checks.BadInput(f"this encoder takes at most {most} tokens; got {length}.")
        return self._norm(self.norm, self.words[numbers] + self.places[:length] + self.kind[None])

    def heads_of(self, part: AffineWeights, h: Array) -> Float[Array, "heads length dim"]:
        """The linear map `part` of h (queries, keys or values), divided into heads."""
        return linear(part, h).reshape(len(h), self.heads, -1).swapaxes(0, 1)

    def scores(self, layer: BertLayer, h: Array) -> Float[Array, "heads length length"]:
        """The attention scores Q Kᵀ/√d of a layer."""
        query, key = self.heads_of(layer.query, h), self.heads_of(layer.key, h)
        return query @ key.swapaxes(1, 2) / math.sqrt(query.shape[-1])

    def weights(self, layer: BertLayer, h: Array, mask: Any = None) -> Array:
        """The attention weights of a layer, (heads, query, key)."""
        return masked_softmax(self.scores(layer, h), mask)

    def forward(self, layer: BertLayer, h: Array, mask: Any = None) -> Float[Array, "length width"]:
        """The output h of a layer whose input is `h`."""
        heads = self.weights(layer, h, mask) @ self.heads_of(layer.value, h)
        joined = heads.swapaxes(0, 1).reshape(h.shape)
        h = self._norm(layer.after_attention, h + linear(layer.output, joined))
        hidden = jax.nn.gelu(linear(layer.first, h), approximate=False)
        return self._norm(layer.after_feed_forward, h + linear(layer.second, hidden))

    def represent(
        self, numbers: Int[Array, " length"], mask: Bool[Array, " length"] | None = None
    ) -> list[Float[Array, "length width"]]:
        """h of every layer, h⁰ first; rows where the mask is false have no meaning."""
        representations = [self.embed(numbers)]
        for layer in self.layers:
            representations.append(self.forward(layer, representations[-1], mask))
        return representations

    def _norm(self, part: AffineWeights, x: Array) -> Array:
        centred = x - jnp.mean(x, -1, keepdims=True)
        variance = jnp.mean(centred**2, -1, keepdims=True)
        return centred / jnp.sqrt(variance + self.small) * part.weight[None] + part.bias[None]


def linear(part: AffineWeights, x: Float[Array, "length inputs"]) -> Float[Array, "length outputs"]:
    return x @ part.weight.T + part.bias[None]


def masked_softmax(scores: Float[Array, "heads length length"], mask: Any) -> Array:
    """Softmax over keys; keys where the mask (length,) is false have weight zero."""
    if mask is not None:
        scores = jnp.where(mask[None, None], scores, -jnp.inf)
    return jax.nn.softmax(scores, -1)
