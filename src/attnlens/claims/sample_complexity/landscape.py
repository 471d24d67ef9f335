"""Shared by the claims about the loss landscape: small networks, and descents to stationary points.

Lens B (ICLR 2021 submission) makes statements about stationary points (docs/theory.md, predictions
17 and 18). Networks are so small that all eigenvalues of the Hessian are computed in float64. A
student has the shape of its teacher, so that it can represent the teacher. An ℓ₂ penalty bounds the
parameters: without it valleys lead to infinity and descents do not end. Answers have variance one,
so that noise and excess are on one scale:

    excess(w) = E (f_w(x) − m(x))² / Var m(x),   m the teacher without noise,

A *bad minimum* is a point with gradient norm ≤ 1e−8, no negative eigenvalue and an excess above
0.05. A student at the minimum near its teacher has only the estimation error,
σ² · 21/n = 0.0004 at n = 512, which is far below.

*Students.* "attention" and "baseline" are trained as a whole. Three further students show what a
minimum depends on: "given-attention" has the teacher's a(x), and w_V, w₁ and w₂ are trained;
"given-values" has the teacher's w_V, w₁ and w₂, and w_Q and w_K are trained; "known-attention" is
the baseline on x a(x).

The "own data" of the baseline are those of the same teacher without attention (`attend` is False):
they have the same weights, inputs and noise, but a(x) is the identity, so that a baseline of equal
width can represent the teacher.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from attnlens.claims.teacher_student import token_teacher
from attnlens.instruments.landscape.audit import NOT_CONVERGED, DescentEnds, draw_episode
from attnlens.networks import Baseline, SelfAttention
from attnlens.networks.dense import head
from attnlens.networks.layout import Layout
from attnlens.networks.parameters import normals
from attnlens.networks.self_attention import Layer
from attnlens.training import newton
from attnlens.training.data import Data
from attnlens.training.settings import Recipe
from attnlens.training.stationary import index_of
from attnlens.worlds import TokenTeacher

BAD = 0.05  # a minimum with an excess above this is bad
SETTINGS: dict[str, Any] = {
    "tokens": 3,
    "token_dim": 3,
    "query_dim": 1,
    "value_dim": 1,
    "layers": 1,
    "rank": 1,  # rank of the product of queries and keys, equal to query_dim
    "attend": True,
    "teacher_hidden": 3,
    "unit_variance": True,
    "focus": 2.0,
    "noise": "gaussian",
    "noise_std": 0.1,
    "sharpness": 5.0,
    "student": "attention",
    "hidden": 3,  # hidden units of the student
    "student_query_dim": 1,
    "l2": 1e-4,  # at ‖w‖ = 1 the penalty is a hundredth of the noise variance, 0.01
    "tolerance": 1e-8,  # gradient norm at which a descent has converged
    "max_steps": 2000,
    "test_samples": 1000,
}


class GivenValues(NamedTuple):
    """The input of a student whose value path is given: tokens x, and the teacher's w_V, w₁, w₂."""

    x: Any
    value: Any
    first: Any
    second: Any


class ValuePath(eqx.Module):
    """The network w₂ φ(w₁ vec(w_V z)) on tokens z = x a(x), for which attention is given."""

    value: Float[Array, "value_dim token_dim"]
    first: Float[Array, "hidden flat"]
    second: Float[Array, "outputs hidden"]
    sharpness: float = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], *, tokens, token_dim, value_dim, hidden, sharpness):
        wide = tokens * value_dim
        shapes = ((value_dim, token_dim), token_dim), ((hidden, wide), wide), ((1, hidden), hidden)
        self.value, self.first, self.second = normals(key, *shapes)
        self.sharpness = sharpness

    def __call__(self, z: Float[Array, "token_dim tokens"]) -> Float[Array, " outputs"]:
        return head(self.first, self.second, jnp.ravel(z.T @ self.value.T), self.sharpness)


class QueriesAndKeys(eqx.Module):
    """Self-attention of which only w_Q and w_K are trained; inputs contain the value path."""

    query: Float[Array, "query_dim token_dim"]
    key: Float[Array, "query_dim token_dim"]
    sharpness: float = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""], *, token_dim, query_dim, sharpness):
        shape = (query_dim, token_dim), token_dim
        self.query, self.key = normals(key, shape, shape)
        self.sharpness = sharpness

    def __call__(self, inputs: GivenValues) -> Float[Array, " outputs"]:
        rows = inputs.x.T
        values = Layer(self.query, self.key, inputs.value).weights(rows) @ rows @ inputs.value.T
        return head(inputs.first, inputs.second, jnp.ravel(values), self.sharpness)


def student(parameters: Mapping[str, Any]) -> Recipe:
    """The recipe of the student of a cell."""
    own = {"query_dim": parameters["student_query_dim"]}
    shape = {**parameters, **own, "features": parameters["tokens"] * parameters["token_dim"]}
    kind, names = {
        "attention": (
            SelfAttention,
            ("tokens", "token_dim", "query_dim", "value_dim", "hidden", "sharpness"),
        ),
        "baseline": (Baseline, ("features", "hidden", "sharpness")),
        "known-attention": (Baseline, ("features", "hidden", "sharpness")),
        "given-attention": (
            ValuePath,
            ("tokens", "token_dim", "value_dim", "hidden", "sharpness"),
        ),
        "given-values": (QueriesAndKeys, ("token_dim", "query_dim", "sharpness")),
    }[parameters["student"]]
    return Recipe.of(partial(kind, **{name: shape[name] for name in names}))


class Task(NamedTuple):
    """How to make a student (`Recipe`), and one teacher's data on which the student is trained."""

    recipe: Recipe
    data: Data
    test: Data
    teacher: np.ndarray | None  # the teacher's parameters, if the student has its shape


def task(parameters: Mapping[str, Any], seed: int) -> Task:
    """The task of a cell for one teacher; jax_enable_x64 must be on."""
    world, recipe = token_teacher(parameters), student(parameters)
    samples, tested = parameters["samples"], parameters["test_samples"]
    episode = draw_episode(world, np.uint32(seed), samples, tested)
    train, fresh = (
        _seen(world, parameters["student"], episode.latent, x)
        for x in (episode.tokens.key, episode.query)
    )
    data, test = Data(train, episode.tokens.value), Data(fresh, episode.answer)
    data, test = jax.tree.map(np.asarray, (data, test))
    return Task(recipe, data, test, _teacher(parameters, episode))


def _seen(world: TokenTeacher, kind: str, latent: Any, x: Any) -> Any:
    """The inputs of a student: tokens, mixed tokens, or tokens with the teacher's value path."""
    if kind in ("given-attention", "known-attention"):
        return x @ world.attention(latent, 0, x)
    if kind == "given-values":
        weights = latent.value[0], latent.first, latent.second[None]
        return GivenValues(x, *(jnp.broadcast_to(w, (len(x), *w.shape)) for w in weights))
    return x


def _teacher(parameters: Mapping[str, Any], episode: Any) -> np.ndarray | None:
    """The teacher's own parameters as those of the student; None if their shapes differ."""
    latent, kind = episode.latent, parameters["student"]
    if parameters["hidden"] != parameters["teacher_hidden"]:
        return None
    first, second = latent.first, latent.second
    if kind == "attention" and parameters["student_query_dim"] == parameters["query_dim"]:
        parts = [latent.query, latent.key, latent.value, first, second]
    elif (kind == "baseline" and not parameters["attend"]) or kind == "known-attention":
        value = latent.value[0]
        by_token = first.reshape(len(first), -1, len(value))
        parts = [jnp.einsum("hzv,vt->hzt", by_token, value), second]
    elif kind == "given-attention":
        parts = [latent.value, first, second]
    else:
        return None
    return np.concatenate([np.ravel(part) for part in parts])


def descents(
    parameters: Mapping[str, Any], seed: int, starts: int, from_teacher: bool = False
) -> DescentEnds:
    """The ends of the descents from `starts` random starts, for one teacher.

    With `from_teacher`, one more descent starts at the teacher's own parameters.
    """
    with jax.enable_x64(True):
        recipe, data, test, teacher = task(parameters, seed)
        layout, l2 = Layout.of(recipe), parameters["l2"]
        problem = newton.Problem(
            recipe, "squared", parameters["tolerance"], parameters["max_steps"], False, True
        )
        keys = range(seed * starts, (seed + 1) * starts)
        vectors = [_start(recipe, np.uint32(key)) for key in keys]
        vectors += [teacher] if from_teacher and teacher is not None else []
        # There is one start per call, so that claims with different numbers of starts share one
        # compiled program.
        ended = [
            newton.search(problem, None, vector[None], data, test, np.float64(l2))
            for vector in vectors
        ]
        result: list[Any] = [
            np.concatenate(parts) for parts in zip(*jax.tree.map(np.asarray, ended), strict=True)
        ]
    search = newton.SearchResult(*result)
    penalty = l2 * np.sum(search.vector[:, layout.gates :] ** 2, 1)
    converged = np.isfinite(search.loss) & (search.gradient_norm <= parameters["tolerance"])
    index = [
        index_of(row, norm, layout.size) if good else NOT_CONVERGED
        for row, norm, good in zip(search.eigenvalues, search.gradient_norm, converged, strict=True)
    ]
    return DescentEnds(
        np.array(index),
        search.test_loss / test.targets.var(),
        search.loss - penalty,
        np.asarray(search.gradient_norm),
        np.asarray(search.vector),
    )


@partial(jax.jit, static_argnums=0)
def _start(recipe: Recipe, seed: Any) -> Any:
    return Layout.of(recipe).flatten(recipe(jax.random.key(seed)))


def bad(ends: DescentEnds, threshold: float = BAD) -> np.ndarray:
    """Whether each start ended in a bad minimum: one with an excess above the threshold."""
    return (ends.index == 0) & (ends.excess > threshold)


def best(ends: DescentEnds, first: int | None = None) -> int:
    """The index of the converged start with the lowest training loss, among the `first` starts."""
    return int(np.argmin(np.where(ends.index >= 0, ends.loss, np.inf)[:first]))


def seconds(parameters: Mapping[str, Any], seeds: int) -> float:
    """Rough seconds of a cell: a descent takes about 40 steps, and each step uses all samples."""
    starts, wide = parameters.get("starts", 1), parameters["hidden"] / 3
    return 0.1 + seeds * starts * wide * (0.01 + 5e-5 * parameters["samples"])
