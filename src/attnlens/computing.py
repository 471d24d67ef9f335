"""Cells through an engine into the store, and how long that takes.

The driver alone writes, as results arrive, whichever engine computes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from attnlens.checks import BadInput, one_of, positive, whole
from attnlens.engine import local
from attnlens.engine.base import Limits, Outcome
from attnlens.records import Cell
from attnlens.store import Store

Engine = Literal["local", "ray"]
# Cells that are there at the same time share a commit: a thousand commits a second and more cells
# than that. So many, or so many bytes, at most: what a kill in between can cost.
CELLS_A_COMMIT, BYTES_A_COMMIT = 500, 10_000_000
# What one driver keeps on an ordinary disk, below what `python -m benchmarks.store` measures.
CELLS_A_SECOND = 2000.0
# Compiling what a kind of cell needs, on one core while the other works: the claims of lens A by
# default, 126 kinds, took 294 s on two cores with an empty cache and 171 s with a full one.
SECONDS_TO_COMPILE = 2.0
FIRST_CELLS = 8  # before these no time left is told: most of theirs was compilation


class Progress(NamedTuple):
    """How far a run is: cells done and in all, and the seconds that are left, roughly."""

    done: int
    total: int
    cell: Cell | None
    seconds_left: float | None


class Plan(NamedTuple):
    """What a run would compute."""

    cells: list[Cell]
    missing: list[Cell]
    seconds: float  # of work that is missing, on one core
    longest: float  # seconds of the longest cell of it
    measured: int  # cells of it whose kind has been measured; the others' seconds are guesses

    @property
    def compiling(self) -> float:
        """Seconds that compilation takes on one core, the first time on a machine."""
        return SECONDS_TO_COMPILE * len({local.kind_of(cell) for cell in self.missing})

    def spread(self, workers: int) -> tuple[float, float]:
        """Seconds that the work takes on `workers`, at least and at most.

        No schedule beats total / workers, the longest cell, or the rate at which one driver keeps
        results; handing cells to whoever is free takes at most the first plus the second (Graham,
        Bounds on multiprocessing timing anomalies, 1969).
        """
        even, keeping = self.seconds / workers, len(self.missing) / CELLS_A_SECOND
        most = even + self.longest * (1 - 1 / workers)
        return max(even, self.longest, keeping), max(most, keeping)


Runner = Callable[[Sequence[Cell]], Generator[Outcome]]


def runner_of(
    engine: Engine,
    address: str | None = None,
    workers: int | None = None,
    time_limit: float | None = None,
    memory_limit: float | None = None,
) -> Runner:
    """The engine, asked for by name, as a function of cells."""
    one_of("engine", engine, get_args(Engine))
    if workers is not None:
        whole("workers", workers, at_least=1)
    if time_limit is not None:
        positive("time_limit", time_limit)
    if memory_limit is not None:
        positive("memory_limit", memory_limit)
    limits = Limits(time_limit, None if memory_limit is None else int(memory_limit))
    if engine == "ray":
        from attnlens.engine import on_ray
        from attnlens.engine.ray_connection import need_ray

        need_ray()
        return partial(on_ray.run, workers=workers, limits=limits, address=address)
    if address is not None:
        raise BadInput(f"address belongs to engine='ray', but {address!r} came with 'local'.")
    return partial(local.run, workers=workers, limits=limits)


def map_of(
    engine: Engine, address: str | None = None, workers: int | None = None
) -> AbstractContextManager[Callable[..., Iterable[Any]] | None]:
    """The engine as a `map` for blocks of networks, while a `with` lasts; None: here, one by one.

    >>> with map_of("local") as map:
    ...     print(map)
    None
    """
    one_of("engine", engine, get_args(Engine))
    if engine == "ray":
        if workers is not None:
            whole("workers", workers, at_least=1)
        from attnlens.engine.blocks_on_ray import RayMap

        return RayMap(address, workers)
    for name, given in (("address", address), ("workers", workers)):
        if given is not None:
            raise BadInput(f"{name} belongs to engine='ray' here, but {given!r} came with 'local'.")
    return nullcontext()


def compute(
    store: Store,
    missing: Sequence[Cell],
    total: int,
    run: Runner,
    begin: Callable[[], None],
    progress: Callable[[Progress], None],
) -> None:
    """Run the missing cells and keep each as it finishes. `begin` notes the run in the store: when
    the first cells come, because a cluster that does not answer is no run."""
    done, cost_done, cost = total - len(missing), 0.0, sum(cell.cost for cell in missing)
    started, ended_here = time.perf_counter(), 0
    progress(Progress(done, total, None, None))
    outcomes = run(missing)
    try:
        for group in _groups(outcomes):
            if store.run is None:
                begin()
            with store.together():
                for ended in group:
                    for fault in ended.faults:
                        store.keep_fault(ended.cell, fault)
                    if ended.values is None:
                        store.keep_failure(ended.cell, ended.failure or "no reason was given")
                    else:
                        store.keep(ended.cell, ended.values, ended.seconds)
            for ended in group:
                done, cost_done = done + 1, cost_done + ended.cell.cost
                ended_here += 1
                left = (time.perf_counter() - started) * (cost - cost_done) / (cost_done or 1)
                known = ended_here >= FIRST_CELLS and cost_done > 0
                progress(Progress(done, total, ended.cell, left if known else None))
    finally:
        outcomes.close()


def _groups(outcomes: Iterable[Outcome]) -> Iterator[list[Outcome]]:
    """Outcomes that are there at the same time. Nothing is held back to wait for the next."""
    group, size = [], 0
    for ended in outcomes:
        group.append(ended)
        size += sum(array.nbytes for array in (ended.values or {}).values())
        if not ended.more or len(group) >= CELLS_A_COMMIT or size >= BYTES_A_COMMIT:
            yield group
            group, size = [], 0
