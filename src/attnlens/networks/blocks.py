"""A block of an ensemble: members that are trained together, from start or checkpoint to end.

What is trained together is fixed by the caller's block size, so results do not depend on where
blocks run or how many run at once. A block is plain data: it can be sent to another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from . import checkpoints, streaming, training
from .settings import Recipe, Settings
from .training import Data, Members, State


class Block(NamedTuple):
    """Everything that `run` needs."""

    recipe: Recipe
    settings: Settings
    members: Members
    data: Data
    validation: Data | None
    test: Data | None
    checkpoint: str | None
    checkpoint_every: int


class Result(NamedTuple):
    """What became of a block's members, as NumPy arrays."""

    vectors: np.ndarray
    status: np.ndarray
    taken: np.ndarray
    best_step: np.ndarray
    test: np.ndarray
    curves: np.ndarray  # (3, members, evaluations): training, validation and test loss


def run(block: Block, tell: Callable[[int, int], None] | None = None) -> Result:
    """Train a block to its end. `tell` is called with (step, members still running)."""
    with jax.enable_x64(block.settings.dtype == "float64"):
        return _run(block, tell or (lambda step, running: None))


def _run(block: Block, tell: Callable[[int, int], None]) -> Result:
    settings, members = block.settings, block.members
    streamed = streaming.any_mapped(block.data)
    on_disk = _opened(block.data) if streamed else None
    held = jax.device_put(None if streamed else block.data)
    validation, test = jax.device_put(block.validation), jax.device_put(block.test)
    selecting = validation is not None or settings.validation_share > 0
    points = -(-settings.steps // settings.every)
    curves = np.full((3, members.seed.size, points), np.nan, settings.dtype)

    state = training.start(block.recipe, settings, selecting, members)
    leaves, tree = jax.tree.flatten(state)
    step, path, mark = 0, None, ""
    if block.checkpoint is not None:
        path = Path(block.checkpoint)
        what = (block.recipe, settings, members, block.data, block.validation, block.test)
        mark = checkpoints.fingerprint(*what)
        if (found := checkpoints.load(path, mark)) is not None:
            (*leaves, curves), step = found
            curves = curves.copy()
            state = jax.tree.unflatten(tree, leaves)

    saved = step
    while step < settings.steps and (running := _running(state)):
        tell(step, running)
        last = min(step + settings.every, settings.steps)
        batches = _read(on_disk, settings, state, members) if on_disk is not None else None
        state, seen = training.advance(
            block.recipe, settings, state, members, held, batches, validation, test,
            np.int32(step), np.int32(last),
        )  # fmt: skip
        curves[:, :, (last - 1) // settings.every] = np.stack([np.asarray(part) for part in seen])
        step = last
        if path is not None and (step - saved >= block.checkpoint_every or step == settings.steps):
            arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
            checkpoints.save(path, [*arrays, curves], mark, step)
            saved = step
    tell(step, 0)
    return _result(state, curves, selecting)


def _running(state: State) -> int:
    return int(np.sum(np.asarray(state.status) == training.RUNNING))


def _opened(data: Data) -> Data:
    def leaf(array: Any) -> Any:
        return array.open() if isinstance(array, streaming.Mapped) else array

    return jax.tree.map(leaf, data, is_leaf=streaming.is_mapped)


def _read(data: Data, settings: Settings, state: State, members: Members) -> Data:
    """The batches up to the next evaluation, from disk."""
    assert settings.batch is not None
    drawn = np.asarray(training.rows(settings.batch, settings.every, state, members))
    return jax.tree.map(lambda leaf: streaming.gather(leaf[0], drawn, settings.dtype), data)


def _result(state: State, curves: np.ndarray, selecting: bool) -> Result:
    host: Any = jax.tree.map(np.asarray, state)
    status = np.where(host.status == training.RUNNING, training.FINISHED, host.status)
    vectors = host.vector
    if selecting:
        # A member that never had a finite validation loss has no best: it keeps its last state.
        found = np.isfinite(host.best_value)
        vectors = np.where(found[:, None], host.best, host.vector)
    return Result(vectors, status, host.taken, host.best_step, host.best_test, curves)


class Progress(NamedTuple):
    """How far a fit is; `seconds_left` is None until there is something to judge by.

    >>> now = Progress(1, 4, step=50, steps=400, running=32, seconds=1.5, seconds_left=9.0)
    >>> f"{now.step} of {now.steps}"
    '50 of 400'
    """

    block: int
    blocks: int
    step: int
    steps: int
    running: int
    seconds: float
    seconds_left: float | None


class Clock:
    """Turns steps of blocks into progress with the time left."""

    def __init__(self, blocks: int, steps: int, show: Callable[[Progress], None] | None):
        self.blocks, self.steps, self.show = blocks, steps, show
        self.started, self.first = time.perf_counter(), None

    def __call__(self, block: int, step: int, running: int) -> None:
        if self.show is None:
            return
        done = block * self.steps + step
        seconds = time.perf_counter() - self.started
        # What a checkpoint had already done took no time here.
        self.first = done if self.first is None else self.first
        left = None
        if done > self.first:
            left = seconds * (self.blocks * self.steps - done) / (done - self.first)
        self.show(Progress(block, self.blocks, step, self.steps, running, seconds, left))
