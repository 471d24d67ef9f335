"""Self-attention over the features of one row of a table: the network, its training, its outputs.

    x_i ↦ u_i x_i + b_i                                  each feature is one token,
    x_z ↦ U x_z + b_z                                    or each group of t numbers is one token
    y = w₂ φ(w₁ vec(tokens after attention))             `networks.MultiLayerSelfAttention`

(Gorishniy, Rubachev, Khrulkov and Babenko, Revisiting deep learning models for tabular data,
2021.) u and U are `scale`, b is `shift`. The number of tokens is padded to one of a few sizes, so
that a table with one more feature rarely needs a new compilation. The padding tokens are constants
b_z; attention can use them as registers, where no feature helps (Darcet, Oquab, Mairal and
Bojanowski, 2024).

Training minimises Σ w ℓ/Σ w + λ₂ ‖parameters‖² on all rows at every step with `networks.fit`, where
the weight w of a row is passed as a part of its target.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from attnlens.core import checks
from attnlens.networks import MultiLayerSelfAttention, fit
from attnlens.networks.layout import Layout
from attnlens.networks.losses import softmax, squared
from attnlens.networks.parameters import normals
from attnlens.training.settings import Recipe
from attnlens.training.steps import TrainingStatus

from .weighted_rows import bucket, padded

ROWS = (64, 4)  # training rows are padded to `bucket(n, *ROWS)`
TOKENS = (4, 2)  # tokens are padded to `bucket(p, *TOKENS)`
FEW, MANY = 16, 256  # rows per call in prediction: FEW if there are at most 16 rows, else MANY
# Above this number of tokens, there are always FEW rows per call: the attention weights of 256 rows
# with 256 tokens take 134 MB.
WIDE = 256
LARGEST = 2**28  # maximal number of attention weights in memory in training: 2 GB in float64


class FeatureAttention(eqx.Module):
    """The network: it embeds the tokens of one row (tokens, token_dim) and applies self-attention.

    >>> sizes = dict(tokens=4, token_dim=1, width=8, hidden=16, layers=1, outputs=3)
    >>> model = FeatureAttention(jax.random.key(0), **sizes)
    >>> model(jnp.ones((4, 1))).shape
    (3,)
    """

    scale: Float[Array, "embeddings token_dim width"]
    shift: Float[Array, "tokens width"]
    body: MultiLayerSelfAttention

    def __init__(
        self,
        key: Key[Array, ""],
        *,
        tokens: int,
        token_dim: int,
        width: int,
        hidden: int,
        layers: int,
        outputs: int,
        shared: bool = False,
    ):
        embedding_key, body_key = jax.random.split(key)
        # Half of an embedded token's variance comes from the feature's value, half from shift b.
        self.scale, self.shift = normals(
            embedding_key,
            ((1 if shared else tokens, token_dim, width), 2 * token_dim),
            ((tokens, width), 2),
        )
        self.body = MultiLayerSelfAttention(
            body_key, tokens=tokens, token_dim=width, hidden=hidden, layers=layers, outputs=outputs
        )

    def embed(self, x: Float[Array, "tokens token_dim"]) -> Float[Array, "width tokens"]:
        scale = jnp.broadcast_to(self.scale, (x.shape[0], *self.scale.shape[1:]))
        return (jnp.einsum("zt,ztw->zw", x, scale) + self.shift).T

    def __call__(self, x: Float[Array, "tokens token_dim"]) -> Float[Array, " outputs"]:
        return self.body(self.embed(x))

    def attention(self, x: Float[Array, "tokens token_dim"]) -> tuple[Array, ...]:
        """The attention matrix of each layer: column z has the weights of query token z (sum 1)."""
        return self.body.attention(self.embed(x))


class Weighted(NamedTuple):
    """The target of a row: its label and its weight in the loss."""

    label: Any
    weight: Any


def weighted_squared(outputs: Array, target: Weighted) -> Array:
    return target.weight * squared(outputs, target.label)


def weighted_softmax(outputs: Array, target: Weighted) -> Array:
    return target.weight * softmax(outputs, target.label)


class Shape(NamedTuple):
    """The division of a row of `features` numbers into tokens, and the sizes of the network."""

    features: int
    token_dim: int | None
    width: int
    hidden: int
    layers: int
    outputs: int

    @property
    def tokens(self) -> int:
        return bucket(self.features // (self.token_dim or 1), *TOKENS)

    @property
    def parameters(self) -> int:
        """The number of parameters of the network, without creating it."""
        embeddings = self.tokens if self.token_dim is None else self.token_dim
        layer = 3 * self.width**2
        head = self.hidden * (self.tokens * self.width + self.outputs)
        return embeddings * self.width + self.tokens * self.width + self.layers * layer + head

    def recipe(self) -> Recipe:
        return Recipe.of(
            partial(
                FeatureAttention,
                tokens=self.tokens,
                token_dim=self.token_dim or 1,
                width=self.width,
                hidden=self.hidden,
                layers=self.layers,
                outputs=self.outputs,
                shared=self.token_dim is not None,
            )
        )

    def read(self, inputs: np.ndarray) -> np.ndarray:
        """Rows (n, features) as (n, tokens, token_dim), padded with zero tokens."""
        tokens = inputs.reshape(len(inputs), -1, self.token_dim or 1)
        return np.pad(tokens, ((0, 0), (0, self.tokens - tokens.shape[1]), (0, 0)))


def train(
    shape: Shape, inputs: np.ndarray, labels: np.ndarray, weights: np.ndarray, **settings: Any
) -> tuple[np.ndarray, float]:
    """Train from every start; return the parameter vector with the lowest training loss, and it.

    Each step uses `batch` random rows; if there are not more rows than that, it uses all of them.
    """
    count, rows = len(inputs), bucket(len(inputs), *ROWS)
    batch = settings.pop("batch")
    batched = batch is not None and batch < count
    if not batched and rows * shape.tokens**2 > LARGEST:
        raise checks.BadInput(
            f"attention weights of all rows must fit into 2 GB in training; got {count} rows with "
            f"{shape.tokens} tokens each; give batch_size=256, or fewer tokens by token_dim."
        )
    # `fit` takes the mean of the loss over `samples` rows. Without batches this includes the padded
    # rows, which have weight zero.
    samples = count if batched else rows
    share = np.zeros(rows)
    share[:count] = weights * (samples / weights.sum())
    target = Weighted(padded(labels, rows), share)
    fitted = fit(
        shape.recipe(),
        shape.read(padded(inputs, rows)),
        target,
        samples=(samples,),
        batch=batch if batched else None,
        dtype="float64",
        schedule="cosine",
        progress=False,  # cross-validation fits many times
        **settings,
    )
    diverged = [status is TrainingStatus.DIVERGED for status in fitted.status]
    last = np.where(diverged, np.inf, fitted.train[:, -1])
    best = int(np.argmin(last))
    if not np.isfinite(last[best]):
        raise checks.BadInput(
            f"training must converge, but it diverged from every start at step "
            f"{fitted.steps[best]}; give a smaller learning_rate than "
            f"{settings['learning_rate']}."
        )
    return fitted.vectors[best], float(last[best])


def outputs(shape: Shape, vector: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """The network's outputs, (n, outputs)."""
    return _predict(_outputs, shape, vector, inputs)


def attention(shape: Shape, vector: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Attention weights (n, layers, query tokens, key tokens); the sum over key tokens is one."""
    return _predict(_attention, shape, vector, inputs)


def _predict(function: Any, shape: Shape, vector: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    most = FEW if shape.tokens > WIDE else MANY
    return in_chunks(partial(function, shape.recipe(), vector), shape.read(inputs), most)[0]


def in_chunks(function: Any, rows: np.ndarray, most: int = MANY) -> list[np.ndarray]:
    """`function`, which returns a tuple of arrays, applied in float64 to chunks of rows.

    Chunks are padded to one of two sizes, `FEW` or `most`, so that there are at most two
    compilations.
    """
    size = FEW if len(rows) <= FEW else most
    parts = []
    with jax.enable_x64(True):
        for start in range(0, len(rows), size):
            chunk = rows[start : start + size]
            results = function(padded(chunk, size))
            parts.append([np.asarray(result)[: len(chunk)] for result in results])
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]


@partial(jax.jit, static_argnames="recipe")
def _outputs(recipe: Recipe, vector: Array, rows: Array) -> tuple[Array]:
    return (jax.vmap(Layout.of(recipe).restore(vector))(rows),)


@partial(jax.jit, static_argnames="recipe")
def _attention(recipe: Recipe, vector: Array, rows: Array) -> tuple[Array]:
    model = Layout.of(recipe).restore(vector)
    return (jax.vmap(lambda row: jnp.stack([a.T for a in model.attention(row)]))(rows),)
