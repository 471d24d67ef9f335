"""Compute cells with an engine and commit them to the store, with an estimate of the time left.

Only the driver process writes to the store, as outcomes arrive, whichever engine computes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from attnlens.core.cells import Cell
from attnlens.core.checks import BadInput, one_of, positive, whole
from attnlens.core.durations import format_duration
from attnlens.core.notebook import NotebookLine, in_notebook
from attnlens.runs.engines import local
from attnlens.runs.engines.base import Limits, Outcome
from attnlens.runs.provenance import cores
from attnlens.runs.store.store import Store

Engine = Literal["local", "ray"]
# Outcomes that arrive at the same time share a commit, because more cells can arrive than the disk
# can commit one by one (about a thousand per second). These bounds of a commit limit how much is
# lost if the process is killed.
CELLS_PER_COMMIT, BYTES_PER_COMMIT = 500, 10_000_000
# At most this many workers per core, or LEAST_BOUND in total if that is more: each is a process of
# some 300 MB, and more than a few per core only wait for each other.
WORKERS_PER_CORE, LEAST_BOUND = 4, 16
# No estimate of the remaining time for the first cells: most of their time is compilation.
CELLS_BEFORE_ESTIMATE = 8


class RunProgress(NamedTuple):
    """Progress of a run: cells done, cells in total, the last cell, estimated seconds left."""

    done: int
    total: int
    cell: Cell | None
    seconds_left: float | None


ShowProgress = Callable[[RunProgress], None]
Runner = Callable[[Sequence[Cell]], Generator[Outcome]]


def shown_in_notebook(progress: ShowProgress | None) -> ShowProgress:
    """Return `progress`; if it is None, a function that draws a bar in a notebook cell, if any."""
    if progress is not None:
        return progress
    if not in_notebook():
        return lambda _: None
    line = NotebookLine()

    def show(now: RunProgress) -> None:
        left = "" if now.seconds_left is None else f", {format_duration(now.seconds_left)} left"
        claim = f" ({now.cell.claim})" if now.cell and now.done < now.total else ""
        line(f"{now.done} of {now.total} cells{claim}{left}", now.done / max(now.total, 1))

    return show


def runner_of(
    engine: Engine,
    address: str | None = None,
    workers: int | None = None,
    time_limit: float | None = None,
    memory_limit: float | None = None,
) -> Runner:
    """The engine with this name, as a function from cells to a generator of outcomes."""
    one_of("engine", engine, get_args(Engine))
    if workers is not None:
        whole("workers", workers, at_least=1)
    if time_limit is not None:
        positive("time_limit", time_limit)
    if memory_limit is not None:
        positive("memory_limit", memory_limit)
    limits = Limits(time_limit, None if memory_limit is None else int(memory_limit))
    if engine == "ray":
        from attnlens.runs.engines import ray_cells
        from attnlens.runs.engines.ray_connection import require_ray

        require_ray()
        return partial(ray_cells.run, workers=workers, limits=limits, address=address)
    if address is not None:
        raise BadInput(f"address belongs to engine='ray'; got {address!r} with engine 'local'.")
    most = max(LEAST_BOUND, WORKERS_PER_CORE * cores())
    if workers is not None and workers > most:
        raise BadInput(
            f"workers must be at most {most} on this machine, {WORKERS_PER_CORE} per core; got "
            f"{workers}; leave it out for one per core."
        )
    return partial(local.run, workers=workers, limits=limits)


def map_of(
    engine: Engine, address: str | None = None, workers: int | None = None
) -> AbstractContextManager[Callable[..., Iterable[Any]] | None]:
    """A context manager that gives a `map` for groups of networks: `fit(map=…)`.

    For engine "local" it gives None: groups are trained in this process, one after the other.

    >>> with map_of("local") as map:
    ...     print(map)
    None
    """
    one_of("engine", engine, get_args(Engine))
    if engine == "ray":
        if workers is not None:
            whole("workers", workers, at_least=1)
        from attnlens.runs.engines.ray_map import RayMap

        return RayMap(address, workers)
    for name, value in (("address", address), ("workers", workers)):
        if value is not None:
            raise BadInput(f"{name} belongs to engine='ray' here; got {value!r} with 'local'.")
    return nullcontext()


def compute(
    store: Store,
    missing: Sequence[Cell],
    total: int,
    run: Runner,
    begin: Callable[[], None],
    progress: ShowProgress,
) -> None:
    """Run the missing cells and commit each as it finishes.

    `begin` records the run in the store. It is called when the first outcomes arrive: a cluster
    that does not answer leaves no record of a run.
    """
    done, cost_done, cost = total - len(missing), 0.0, sum(cell.cost for cell in missing)
    started, computed = time.perf_counter(), 0
    progress(RunProgress(done, total, None, None))
    outcomes = run(missing)
    try:
        for batch in commit_batches(outcomes):
            if store.run is None:
                begin()
            with store.one_commit():
                for outcome in batch:
                    for fault in outcome.faults:
                        store.keep_fault(outcome.cell, fault)
                    if outcome.values is None:
                        reason = outcome.failure or "no reason was given"
                        store.keep_failure(outcome.cell, reason)
                    else:
                        store.keep(outcome.cell, outcome.values, outcome.seconds)
            for outcome in batch:
                done, cost_done = done + 1, cost_done + outcome.cell.cost
                computed += 1
                left = (time.perf_counter() - started) * (cost - cost_done) / (cost_done or 1)
                known = computed >= CELLS_BEFORE_ESTIMATE and cost_done > 0
                progress(RunProgress(done, total, outcome.cell, left if known else None))
    finally:
        outcomes.close()


def commit_batches(outcomes: Iterable[Outcome]) -> Iterator[list[Outcome]]:
    """Outcomes in lists, one list per commit.

    A list ends when the engine has no other outcome ready (`more` is False), so that no finished
    cell waits for one that is still being computed, or when the list is large enough. If the
    engine stops although `more` was True, the last list is yielded too.
    """
    batch, size = [], 0
    for outcome in outcomes:
        batch.append(outcome)
        size += sum(array.nbytes for array in (outcome.values or {}).values())
        if not outcome.more or len(batch) >= CELLS_PER_COMMIT or size >= BYTES_PER_COMMIT:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
