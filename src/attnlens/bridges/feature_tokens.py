"""A table's row as tokens, and self-attention over them.

    x_i ↦ u_i x_i + b_i                                  each feature is a token of its own
    x_z ↦ U x_z + b_z                                    or each group of t numbers is one
    y = w₂ φ(w₁ vec(tokens after attention))             `networks.MultiLayerSelfAttention`

(Gorishniy, Rubachev, Khrulkov and Babenko, Revisiting deep learning models for tabular data,
2021.) u is `scale`, b is `shift`. There may be more tokens than the row has: the rest are constant,
b_z alone, so attention may look at them where no feature helps (registers; Darcet, Oquab, Mairal
and Bojanowski, 2024), and a table with one feature more needs no new program.

Training minimises Σ w ℓ/Σ w + λ₂ ‖parameters‖² on all rows at every step: `networks.fit`, to which
weights are a part of the target.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from attnlens import checks
from attnlens.networks import MultiLayerSelfAttention, fit
from attnlens.networks.losses import softmax, squared
from attnlens.networks.parameters import Layout, normals
from attnlens.networks.settings import Recipe

from .rows import bucket, padded

ROWS = (64, 4)  # training rows are filled up to `bucket(n, *ROWS)`,
TOKENS = (4, 2)  # tokens to `bucket(p, *TOKENS)`;
FEW, MANY = 16, 256  # prediction takes rows so many at a time: 16 if there are no more, else 256,
WIDE = 256  # but never more than 16 of so many tokens (256 rows of them are 134 MB of weights)
LARGEST = 2**28  # attention weights held at once in training; 2 GB in float64


class FeatureTokens(eqx.Module):
    """Embedded features and self-attention over them, for one row (tokens, token_dim).

    >>> sizes = dict(tokens=4, token_dim=1, width=8, hidden=16, layers=1, outputs=3)
    >>> model = FeatureTokens(jax.random.key(0), **sizes)
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
        own, rest = jax.random.split(key)
        # Half of a token's variance is the feature's, half says which feature it is.
        self.scale, self.shift = normals(
            own,
            ((1 if shared else tokens, token_dim, width), 2 * token_dim),
            ((tokens, width), 2),
        )
        self.body = MultiLayerSelfAttention(
            rest, tokens=tokens, token_dim=width, hidden=hidden, layers=layers, outputs=outputs
        )

    def embed(self, x: Float[Array, "tokens token_dim"]) -> Float[Array, "width tokens"]:
        scale = jnp.broadcast_to(self.scale, (x.shape[0], *self.scale.shape[1:]))
        return (jnp.einsum("zt,ztw->zw", x, scale) + self.shift).T

    def __call__(self, x: Float[Array, "tokens token_dim"]) -> Float[Array, " outputs"]:
        return self.body(self.embed(x))

    def attention(self, x: Float[Array, "tokens token_dim"]) -> tuple[Array, ...]:
        """Of each layer: column z holds token z's weights over the tokens and sums to one."""
        return self.body.attention(self.embed(x))


class Weighted(NamedTuple):
    """A label and how much it counts."""

    label: Any
    weight: Any


def weighted_squared(outputs: Array, target: Weighted) -> Array:
    return target.weight * squared(outputs, target.label)


def weighted_softmax(outputs: Array, target: Weighted) -> Array:
    return target.weight * softmax(outputs, target.label)


class Shape(NamedTuple):
    """How a row of `features` numbers is read, and how large its network is."""

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
        """How many parameters the network has, without making it."""
        embeddings = self.tokens if self.token_dim is None else self.token_dim
        layer = 3 * self.width**2
        head = self.hidden * (self.tokens * self.width + self.outputs)
        return embeddings * self.width + self.tokens * self.width + self.layers * layer + head

    def recipe(self) -> Recipe:
        return Recipe.of(
            partial(
                FeatureTokens,
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
        """Rows (n, features) as (n, tokens, token_dim); constant tokens are zeros."""
        there = inputs.reshape(len(inputs), -1, self.token_dim or 1)
        return np.pad(there, ((0, 0), (0, self.tokens - there.shape[1]), (0, 0)))


def train(
    shape: Shape, inputs: np.ndarray, labels: np.ndarray, weights: np.ndarray, **settings: Any
) -> tuple[np.ndarray, float]:
    """The parameters with the lowest training loss of all starts, as one vector, and that loss.

    `batch` rows a step where there are more rows than that; all of them otherwise.
    """
    count, rows = len(inputs), bucket(len(inputs), *ROWS)
    batch = settings.pop("batch")
    batched = batch is not None and batch < count
    if not batched and rows * shape.tokens**2 > LARGEST:
        raise checks.BadInput(
            f"training on all of {count} rows with {shape.tokens} tokens each needs more than 2 GB "
            f"for the attention weights alone; give batch_size=256, or fewer tokens by token_dim."
        )
    # `fit` takes the mean over the rows it is told of: the filled-in ones too unless it draws.
    told = count if batched else rows
    share = np.zeros(rows)
    share[:count] = weights * (told / weights.sum())
    target = Weighted(padded(labels, rows), share)
    fitted = fit(
        shape.recipe(), shape.read(padded(inputs, rows)), target, samples=(told,),
        batch=batch if batched else None, dtype="float64", schedule="cosine", **settings,
    )  # fmt: skip
    last = np.where(np.array(fitted.status) == "diverged", np.inf, fitted.train[:, -1])
    best = int(np.argmin(last))
    if not np.isfinite(last[best]):
        raise checks.BadInput(
            f"training diverged from every start at step {fitted.steps[best]}; give a smaller "
            f"learning_rate than {settings['learning_rate']}."
        )
    return fitted.vectors[best], float(last[best])


def outputs(shape: Shape, vector: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """The network's outputs, (n, outputs)."""
    return _over(_outputs, shape, vector, inputs)


def attention(shape: Shape, vector: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Attention weights (n, layers, tokens, tokens): row z holds token z's and sums to one."""
    return _over(_attention, shape, vector, inputs)


def _over(function: Any, shape: Shape, vector: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    most = FEW if shape.tokens > WIDE else MANY
    return in_blocks(partial(function, shape.recipe(), vector), shape.read(inputs), most)[0]


def in_blocks(function: Any, rows: np.ndarray, most: int = MANY) -> list[np.ndarray]:
    """`function(block)`, a tuple of arrays, over blocks of rows of two sizes, in float64."""
    size = FEW if len(rows) <= FEW else most
    parts = []
    with jax.enable_x64(True):
        for start in range(0, len(rows), size):
            block = rows[start : start + size]
            results = function(padded(block, size))
            parts.append([np.asarray(result)[: len(block)] for result in results])
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


@partial(jax.jit, static_argnames="recipe")
def _outputs(recipe: Recipe, vector: Array, rows: Array) -> tuple[Array]:
    return (jax.vmap(Layout.of(recipe).restore(vector))(rows),)


@partial(jax.jit, static_argnames="recipe")
def _attention(recipe: Recipe, vector: Array, rows: Array) -> tuple[Array]:
    model = Layout.of(recipe).restore(vector)
    return (jax.vmap(lambda row: jnp.stack([a.T for a in model.attention(row)]))(rows),)
