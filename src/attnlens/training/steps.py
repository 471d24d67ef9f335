"""The two compiled programs of a fit: `start` draws parameters, `advance` takes training steps.

A member's parameters are one vector w. With n samples, losses ℓ and penalties λ, step k descends

    mean over the batch of ℓ(model_w(x), y) + λ₂ ‖w‖² + λ₁ Σ g + λ_H min(1, k/warm-up) H(w)

where g ≥ 0 are input gates (not in ‖w‖²; kept at or above zero by projection, so that λ₁ Σ g is
their ℓ₁ norm) and H is the mean entropy of the softmax rows. Sample sizes, seeds and penalties are
array values, never shapes, so that one compilation serves all members.

A member stops when its loss becomes NaN or infinite, or when its validation loss has not fallen for
`patience` evaluations. Its last state is kept, and no other member is affected.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt

from attnlens.attention.native import small_softmax
from attnlens.networks.layout import Layout
from attnlens.networks.losses import named

from .data import Data
from .settings import Recipe, Settings
from .shuffling import batch

RUNNING, FINISHED, STOPPED_EARLY, DIVERGED = range(4)


class TrainingStatus(StrEnum):
    """How the training of a member ended, in the order of the codes above."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED_EARLY = "stopped early"
    DIVERGED = "diverged"


STATUS = tuple(TrainingStatus)  # indexed by the codes above


class Members(NamedTuple):
    """The values in which members of a group differ; each array has one entry per member."""

    seed: UInt[Array, "*members"]
    data_set: Int[Array, "*members"]
    training: UInt[Array, "*members"]  # number of rows to train on: the first ones
    held_out: UInt[Array, "*members"]  # number of rows to validate with: the next ones
    l2: Float[Array, "*members"]
    l1_gates: Float[Array, "*members"]
    entropy: Float[Array, "*members"]


class State(NamedTuple):
    """The state of each member: all that is needed to continue training."""

    vector: Float[Array, "*members size"]
    optimiser: Any
    epoch: UInt[Array, "*members"]
    cursor: UInt[Array, "*members"]
    best: Float[Array, "*members kept"]
    best_value: Float[Array, "*members"]
    best_test: Float[Array, "*members"]
    best_step: Int[Array, "*members"]
    waited: Int[Array, "*members"]
    status: Int[Array, "*members"]
    taken: Int[Array, "*members"]


class StepLosses(NamedTuple):
    """Losses at one evaluation; `train` is the mean over the steps since the last evaluation."""

    train: Float[Array, "*members"]
    validation: Float[Array, "*members"]
    test: Float[Array, "*members"]


@partial(jax.jit, static_argnames=("recipe", "settings", "keep_best"))
def start(recipe: Recipe, settings: Settings, keep_best: bool, members: Members) -> State:
    """Return the initial state of every member, with parameters drawn from its seed.

    `keep_best` says whether the state holds the parameters with the lowest validation loss.
    """
    layout = Layout.of(recipe)

    def one(member: Members) -> State:
        vector = layout.flatten(recipe(jax.random.key(member.seed)))
        zero, none = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.uint32)
        infinite = jnp.full((), jnp.inf, vector.dtype)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            optimiser = settings.optimise().init(vector)
        best = vector if keep_best else vector[:0]
        return State(
            vector, optimiser, none, none, best, infinite, infinite, zero, zero, zero, zero
        )

    return jax.vmap(one)(members)


@partial(jax.jit, static_argnames=("recipe", "settings"))
def advance(
    recipe: Recipe,
    settings: Settings,
    state: State,
    members: Members,
    data: Data | None,
    batches: Data | None,
    validation: Data | None,
    test: Data | None,
    first: Int[Array, ""],
    last: Int[Array, ""],
) -> tuple[State, StepLosses]:
    """Take steps `first` to `last` − 1 for every member, then evaluate its losses.

    Batches are drawn from `data`; if data are on disk, `batches` holds them instead (axes: member,
    step, sample, …). `validation` and `test` hold one data set for all members, or one per data set
    of `data`.
    """
    run = partial(_advance, recipe, settings, first, last, data, validation, test)
    return jax.vmap(run, in_axes=(0, 0, 0))(state, members, batches)


@partial(jax.jit, static_argnames=("size", "steps"))
def rows(
    size: int, steps: int, state: State, members: Members
) -> UInt[Array, "members steps size"]:
    """Return the rows of the next `steps` batches: exactly those that `advance` would draw."""

    def one(epoch: Array, cursor: Array, member: Members) -> Array:
        def step(carry, _):
            drawn, *carry = batch(size, member.training, member.seed, *carry)
            return tuple(carry), drawn

        return jax.lax.scan(step, (epoch, cursor), None, length=steps)[1]

    return jax.vmap(one)(state.epoch, state.cursor, members)


def _advance(recipe, settings, first, last, data, validation, test, state, member, batches):
    layout, loss, optimiser = Layout.of(recipe), named(settings.loss), settings.optimise()
    whole = weights = None
    if data is not None and not settings.batch:
        whole = _pick(data, member.data_set)
        weights = jnp.arange(_length(whole), dtype=jnp.uint32) < member.training
        # Rows that this member does not train on become copies of its first row: a weight of zero
        # would not remove a NaN.
        whole = jax.tree.map(partial(_masked, weights), whole)

    def objective(vector, samples, weights, step):
        model = layout.restore(vector)
        errors = jax.vmap(loss)(jax.vmap(model)(samples.inputs), samples.targets)
        fit = (
            jnp.mean(errors) if weights is None else jnp.sum(jnp.where(weights, errors, 0)) / count
        )
        total = fit + member.l2 * jnp.sum(vector[layout.gates :] ** 2)
        if settings.penalised_gates:
            total = total + member.l1_gates * jnp.sum(vector[: layout.gates])
        if settings.penalised_entropy:
            done = (step + 1).astype(vector.dtype) / (settings.entropy_warmup + 1)
            ramp = jnp.minimum(done, 1)
            total = total + member.entropy * ramp * entropy(model, samples.inputs, weights, count)
        return total, fit

    count = member.training.astype(state.vector.dtype)
    first, last = first.astype(jnp.int32), last.astype(jnp.int32)

    def step(number, carry):
        vector, inner, epoch, cursor, summed, failed = carry
        if batches is not None:
            samples = jax.tree.map(lambda leaf: leaf[number - first], batches)
            epoch, cursor = _after_batch(settings.batch, member, epoch, cursor)
        elif settings.batch:
            drawn, epoch, cursor = batch(
                settings.batch, member.training, member.seed, epoch, cursor
            )
            assert data is not None
            samples = _pick(data, member.data_set, drawn)
        else:
            assert whole is not None
            samples = whole
        if settings.transform is not None:
            key = jax.random.fold_in(jax.random.key(member.seed), number)
            keys = jax.random.split(key, _length(samples))
            samples = Data(*jax.vmap(settings.transform)(keys, *samples))
        with small_softmax.first_order():
            (_, fit), gradient = jax.value_and_grad(objective, has_aux=True)(
                vector, samples, weights, number
            )
        with jax.numpy_dtype_promotion("standard"):  # optax mixes types
            update, inner = optimiser.update(gradient, inner, vector)
        vector = vector + update
        if layout.gates:
            vector = vector.at[: layout.gates].max(0)
        failed = jnp.where((failed < 0) & ~jnp.isfinite(fit), number, failed)
        return vector, inner, epoch, cursor, summed + fit, failed

    begin = (
        state.vector,
        state.optimiser,
        state.epoch,
        state.cursor,
        jnp.zeros_like(count),
        jnp.full((), -1, jnp.int32),
    )
    vector, inner, epoch, cursor, summed, failed = jax.lax.fori_loop(first, last, step, begin)

    def losses(samples):
        with small_softmax.first_order():
            outputs = jax.vmap(layout.restore(vector))(samples.inputs)
        return jax.vmap(loss)(outputs, samples.targets)

    nothing = jnp.full((), jnp.nan, vector.dtype)
    train = summed / (last - first).astype(vector.dtype)
    value = nothing
    if validation is not None:
        value = jnp.mean(losses(_pick(validation, member.data_set)))
    elif settings.validation_share:
        assert data is not None
        everything = _pick(data, member.data_set)
        place = jnp.arange(_length(everything), dtype=jnp.uint32)
        later = (place >= member.training) & (place < member.training + member.held_out)
        everything = jax.tree.map(partial(_masked, later | (place == 0)), everything)
        summed_later = jnp.sum(jnp.where(later, losses(everything), 0))
        value = summed_later / member.held_out.astype(vector.dtype)
    test_value = nothing if test is None else jnp.mean(losses(_pick(test, member.data_set)))

    running = state.status == RUNNING
    finite = (failed < 0) & jnp.all(jnp.isfinite(vector))
    better = value < state.best_value
    waited = jnp.where(better, 0, state.waited + 1)
    status = jnp.full_like(state.status, RUNNING)
    if settings.patience is not None:
        status = jnp.where(waited >= settings.patience, STOPPED_EARLY, status)
    moved = State(
        vector,
        inner,
        epoch,
        cursor,
        jnp.where(better, vector, state.best) if state.best.size else state.best,
        jnp.where(better, value, state.best_value),
        jnp.where(better, test_value, state.best_test) if state.best.size else test_value,
        jnp.where(better, last, state.best_step).astype(jnp.int32),
        waited,
        status,
        last.astype(jnp.int32),
    )
    at = jnp.where(failed < 0, last, failed).astype(jnp.int32)
    diverged = state._replace(status=jnp.full_like(status, DIVERGED), taken=at)
    after = jax.tree.map(
        lambda new, failed_state, old: jnp.where(
            running, jnp.where(finite, new, failed_state), old
        ),
        moved,
        diverged,
        state,
    )
    evaluated = StepLosses(train, value, test_value)
    return after, jax.tree.map(lambda number: jnp.where(running, number, jnp.nan), evaluated)


def entropy(model: Any, inputs: Any, weights: Array | None, count: Array) -> Float[Array, ""]:
    """The mean entropy of the softmax rows of `model`, in nats.

    0 if every query attends to one token, log p if it attends to all p tokens equally. The mean is
    over all samples, or over the `count` samples for which `weights` is true.
    """

    def one(x: Any) -> Array:
        layers = jnp.stack([-jnp.sum(jax.scipy.special.xlogy(a, a), 0) for a in model.attention(x)])
        return jnp.mean(layers)

    values = jax.vmap(one)(inputs)
    return jnp.mean(values) if weights is None else jnp.sum(jnp.where(weights, values, 0)) / count


def _after_batch(size: int, member: Members, epoch: Array, cursor: Array) -> tuple[Array, Array]:
    """Return epoch and cursor after a batch of `size` samples, as `shuffling.batch` does."""
    after = cursor + jnp.uint32(size)
    return epoch + after // member.training, after % member.training


def _pick(data: Data, data_set: Array, drawn: Array | None = None) -> Data:
    def leaf(array: Array) -> Array:
        own = array[0] if array.shape[0] == 1 else array[data_set]
        if drawn is None:
            return own
        # One gather for data set and sample; indices are in bounds, so no clamping is needed.
        if array.shape[0] == 1:
            return array[0].at[drawn].get(mode="promise_in_bounds")
        return array.at[data_set, drawn].get(mode="promise_in_bounds")

    return jax.tree.map(leaf, data)


def _masked(mask: Array, leaf: Array) -> Array:
    """Return `leaf` with rows outside of the mask replaced by its first row."""
    return jnp.where(mask.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, leaf[:1])


def _length(data: Data) -> int:
    return jax.tree.leaves(data.inputs)[0].shape[0]
