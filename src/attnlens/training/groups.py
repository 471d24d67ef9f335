"""A group of an ensemble: members that are trained together, from start or checkpoint to the end.

Which members are trained together is fixed by the caller (`fit(block=…)` is the size of a group),
so results do not depend on where groups run or how many run at once. A group is plain data: it can
be sent to another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from . import checkpoints, steps, streaming
from .data import Data
from .settings import Recipe, Settings
from .steps import Members, State


class Group(NamedTuple):
    """The input of `run`: what to train, on which data, and where to save its state."""

    recipe: Recipe
    settings: Settings
    members: Members
    data: Data
    validation: Data | None
    test: Data | None
    checkpoint: str | None
    checkpoint_every: int


class GroupResult(NamedTuple):
    """The trained members of a group, as NumPy arrays with one entry per member."""

    vectors: np.ndarray
    status: np.ndarray
    taken: np.ndarray
    best_step: np.ndarray
    test: np.ndarray
    curves: np.ndarray  # (3, members, evaluations): training, validation and test loss


def run(group: Group, report: Callable[[int, int], None] | None = None) -> GroupResult:
    """Train a group to its end. `report` is called with (step, members still running)."""
    with jax.enable_x64(group.settings.dtype == "float64"):
        return _run(group, report or (lambda step, running: None))


def _run(group: Group, report: Callable[[int, int], None]) -> GroupResult:
    settings, members = group.settings, group.members
    streamed = streaming.any_mapped(group.data)
    on_disk = _opened(group.data) if streamed else None
    in_memory = jax.device_put(None if streamed else group.data)
    validation, test = jax.device_put(group.validation), jax.device_put(group.test)
    selecting = validation is not None or settings.validation_share > 0
    points = -(-settings.steps // settings.every)
    curves = np.full((3, members.seed.size, points), np.nan, settings.dtype)

    state = steps.start(group.recipe, settings, selecting, members)
    leaves, tree = jax.tree.flatten(state)
    step, path, mark = 0, None, ""
    if group.checkpoint is not None:
        path = Path(group.checkpoint)
        parts = (group.recipe, settings, members, group.data, group.validation, group.test)
        mark = checkpoints.fingerprint(*parts)
        if (checkpoint := checkpoints.load(path, mark)) is not None:
            (*leaves, curves), step = checkpoint
            curves = curves.copy()
            state = jax.tree.unflatten(tree, leaves)

    saved = step
    while step < settings.steps and (running := _running(state)):
        report(step, running)
        last = min(step + settings.every, settings.steps)
        batches = _read(on_disk, settings, state, members) if on_disk is not None else None
        state, losses = steps.advance(
            group.recipe,
            settings,
            state,
            members,
            in_memory,
            batches,
            validation,
            test,
            np.int32(step),
            np.int32(last),
        )
        column = (last - 1) // settings.every
        curves[:, :, column] = np.stack([np.asarray(part) for part in losses])
        step = last
        if path is not None and (step - saved >= group.checkpoint_every or step == settings.steps):
            arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
            checkpoints.save(path, [*arrays, curves], mark, step)
            saved = step
    report(step, 0)
    return _result(state, curves, selecting)


def _running(state: State) -> int:
    return int(np.sum(np.asarray(state.status) == steps.RUNNING))


def _opened(data: Data) -> Data:
    def leaf(array: Any) -> Any:
        return array.open() if isinstance(array, streaming.Mapped) else array

    return jax.tree.map(leaf, data, is_leaf=streaming.is_mapped)


def _read(data: Data, settings: Settings, state: State, members: Members) -> Data:
    """Read the batches of all steps up to the next evaluation from disk."""
    assert settings.batch is not None
    rows = np.asarray(steps.rows(settings.batch, settings.every, state, members))
    return jax.tree.map(lambda leaf: streaming.gather(leaf[0], rows, settings.dtype), data)


def _result(state: State, curves: np.ndarray, selecting: bool) -> GroupResult:
    host: Any = jax.tree.map(np.asarray, state)
    status = np.where(host.status == steps.RUNNING, steps.FINISHED, host.status)
    vectors = host.vector
    if selecting:
        # A member whose validation loss was never finite has no best parameters: return its last.
        validated = np.isfinite(host.best_value)
        vectors = np.where(validated[:, None], host.best, host.vector)
    return GroupResult(vectors, status, host.taken, host.best_step, host.best_test, curves)


class Progress(NamedTuple):
    """The progress of a fit: step `step` of `steps` in group `group` (counted from 0) of `groups`.

    `running` is the number of members of the group that are still trained. `seconds` have passed;
    `seconds_left` is an estimate, None until the first steps have been timed.

    >>> now = Progress(1, 4, step=50, steps=400, running=32, seconds=1.5, seconds_left=9.0)
    >>> f"{now.step} of {now.steps}"
    '50 of 400'
    """

    group: int
    groups: int
    step: int
    steps: int
    running: int
    seconds: float
    seconds_left: float | None

    @property
    def block(self) -> int:
        """The value of `group`, under the name that earlier versions used."""
        return self.group

    @property
    def blocks(self) -> int:
        """The value of `groups`, under the name that earlier versions used."""
        return self.groups


class Clock:
    """Turns the steps of groups into `Progress` with an estimate of the remaining time."""

    def __init__(self, groups: int, steps: int, show: Callable[[Progress], None] | None):
        self.groups, self.steps, self.show = groups, steps, show
        self.started, self.first = time.perf_counter(), None

    def __call__(self, group: int, step: int, running: int) -> None:
        if self.show is None:
            return
        done = group * self.steps + step
        seconds = time.perf_counter() - self.started
        # Steps that were restored from a checkpoint took no time, so the estimate leaves them out.
        self.first = done if self.first is None else self.first
        seconds_left = None
        if done > self.first:
            seconds_left = seconds * (self.groups * self.steps - done) / (done - self.first)
        self.show(Progress(group, self.groups, step, self.steps, running, seconds, seconds_left))
