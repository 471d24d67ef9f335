"""BERT's encoder as a pure JAX function, from weights in a safetensors file. No torch.

    h⁰ = N(word + place + kind)
    h  ← N(h + Σ_head softmax(Q Kᵀ/√d) V O)        Q, K, V linear in h, with biases
    h  ← N(h + W₂ gelu(W₁ h + b₁) + b₂)            gelu(x) = x Φ(x), exactly

N is layer norm after each part (Devlin et al., NAACL 2019; Vaswani et al., 2017). Dropout is off,
as it is when a model is used. Every text is one segment, so `kind` is the vector of segment 0.
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

from attnlens import checks

LAYER = re.compile(r"encoder\.layer\.(\d+)\.")
# Of a layer: our name, its name in the file.
PARTS = {
    "query": "attention.self.query", "key": "attention.self.key",
    "value": "attention.self.value", "output": "attention.output.dense",
    "after_attention": "attention.output.LayerNorm", "first": "intermediate.dense",
    "second": "output.dense", "after_feed_forward": "output.LayerNorm",
}  # fmt: skip


class Map(NamedTuple):
    """Weights and shift: of a linear map, (out, in) and (out), or of a layer norm, both (width)."""

    weight: Any
    bias: Any


class Layer(NamedTuple):
    """One layer's weights."""

    query: Map
    key: Map
    value: Map
    output: Map
    after_attention: Map
    first: Map
    second: Map
    after_feed_forward: Map


class Bert(eqx.Module):
    """An encoder of token numbers (length,), with the mask (length,) of tokens that are there.

    `represent` gives h of every layer, the embedding first; `weights` the attention of a layer.
    """

    words: Float[Array, "vocabulary width"]
    places: Float[Array, "most width"]
    kind: Float[Array, " width"]
    norm: Map
    layers: tuple[Layer, ...]
    heads: int = eqx.field(static=True)
    small: float = eqx.field(static=True, default=1e-12)  # added to variances; BERT's own

    @classmethod
    def read(cls, weights: str | Path, config: str | Path) -> Bert:
        """From `model.safetensors` and `config.json`."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            settings, arrays = json.loads(Path(config).read_text()), load_file(weights)
        except (OSError, ValueError, SafetensorError) as error:
            raise checks.BadInput(
                f"the model in {Path(weights).parent} cannot be read ({error}); install the "
                f"package that it comes with again."
            ) from error
        if settings.get("hidden_act", "gelu") != "gelu":
            raise checks.BadInput(
                f"a BERT encoder with exact gelu was expected, but {settings['hidden_act']!r} came."
            )
        return cls.of(
            arrays, settings["num_attention_heads"], settings.get("layer_norm_eps", 1e-12)
        )

    @classmethod
    def of(cls, arrays: Mapping[str, Any], heads: int, small: float = 1e-12) -> Bert:
        """From arrays by their names in the file; a leading `bert.` is allowed."""
        named = {name.removeprefix("bert."): array for name, array in arrays.items()}
        numbers = [int(found[1]) for name in named if (found := LAYER.match(name))]

        def array(name: str) -> Array:
            if name not in named:
                raise checks.BadInput(
                    f"BERT's weights must hold {name}, but they do not; give those of an encoder "
                    f"of the BERT family."
                )
            return jnp.asarray(np.asarray(named[name]))

        def both(name: str) -> Map:
            return Map(array(f"{name}.weight"), array(f"{name}.bias"))

        layers = [
            Layer(**{ours: both(f"encoder.layer.{i}.{theirs}") for ours, theirs in PARTS.items()})
            for i in range(1 + max(numbers, default=-1))
        ]
        start = "embeddings."
        words = array(f"{start}word_embeddings.weight")
        if words.shape[1] % checks.whole("heads", heads, at_least=1):
            raise checks.BadInput(
                f"the width must be a multiple of heads, but {words.shape[1]} and {heads} came."
            )
        return cls(
            words, array(f"{start}position_embeddings.weight"),
            array(f"{start}token_type_embeddings.weight")[0], both(f"{start}LayerNorm"),
            tuple(layers), heads, small,
        )  # fmt: skip

    @property
    def width(self) -> int:
        return self.words.shape[1]

    def embed(self, numbers: Int[Array, " length"]) -> Float[Array, "length width"]:
        """h⁰."""
        length, most = numbers.shape[0], self.places.shape[0]
        if length > most:
            raise checks.BadInput(f"this encoder takes {most} tokens at most, but {length} came.")
        return self._norm(self.norm, self.words[numbers] + self.places[:length] + self.kind[None])

    def heads_of(self, part: Map, h: Array) -> Float[Array, "heads length dim"]:
        """A linear map of h, one part a head."""
        return linear(part, h).reshape(len(h), self.heads, -1).swapaxes(0, 1)

    def scores(self, layer: Layer, h: Array) -> Float[Array, "heads length length"]:
        """Q Kᵀ/√d."""
        query, key = self.heads_of(layer.query, h), self.heads_of(layer.key, h)
        return query @ key.swapaxes(1, 2) / math.sqrt(query.shape[-1])

    def weights(self, layer: Layer, h: Array, mask: Any = None) -> Array:
        """The attention of a layer, (heads, query, key)."""
        return masked_softmax(self.scores(layer, h), mask)

    def forward(self, layer: Layer, h: Array, mask: Any = None) -> Float[Array, "length width"]:
        """h after a layer."""
        mixed = self.weights(layer, h, mask) @ self.heads_of(layer.value, h)
        joined = mixed.swapaxes(0, 1).reshape(h.shape)
        h = self._norm(layer.after_attention, h + linear(layer.output, joined))
        inside = jax.nn.gelu(linear(layer.first, h), approximate=False)
        return self._norm(layer.after_feed_forward, h + linear(layer.second, inside))

    def represent(
        self, numbers: Int[Array, " length"], mask: Bool[Array, " length"] | None = None
    ) -> list[Float[Array, "length width"]]:
        """h of every layer, h⁰ first; rows behind the mask mean nothing."""
        found = [self.embed(numbers)]
        for layer in self.layers:
            found.append(self.forward(layer, found[-1], mask))
        return found

    def _norm(self, part: Map, x: Array) -> Array:
        centred = x - jnp.mean(x, -1, keepdims=True)
        variance = jnp.mean(centred**2, -1, keepdims=True)
        return centred / jnp.sqrt(variance + self.small) * part.weight[None] + part.bias[None]


def linear(part: Map, x: Float[Array, "length inputs"]) -> Float[Array, "length outputs"]:
    return x @ part.weight.T + part.bias[None]


def masked_softmax(scores: Float[Array, "heads length length"], mask: Any) -> Array:
    """Softmax over keys, of which those outside the mask (length,) get nothing."""
    if mask is not None:
        scores = jnp.where(mask[None, None], scores, -jnp.inf)
    return jax.nn.softmax(scores, -1)
