"""Cells on a Ray cluster: the same cells, by the same worker program, on many machines.

A Ray task takes a batch of cells to a node. There the task's process has a worker of its own, the
very program that computes cells locally (`worker.py`): one thread, the same limits, the node's
compilation cache. So a result does not depend on the engine, and a cell that dies, hangs or asks
for too much memory harms nothing but itself.

batches     of about a second of work, from measured seconds: Ray needs about a millisecond a task.
            Longer ones for many workers, so that one driver can hand out work to all of them
window      at most twice as many batches as there are CPUs are with Ray; the rest wait here
losses      of a process or a node are noted and made good, slow nodes overtaken (`ray_tasks.py`)
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

from attnlens.checks import BadInput
from attnlens.engine.base import USUAL, Limits, Outcome
from attnlens.engine.local import Machine, kind_of
from attnlens.engine.ray_connection import check_this_node, connect, installed, versions
from attnlens.engine.ray_tasks import ATTEMPTS, WINDOW, Ended, Job, Tasks, remote
from attnlens.records import Cell

SECONDS_A_BATCH, MOST_A_BATCH = 1.0, 1000  # a millisecond of overhead is then 0.1 %
SECONDS_A_TASK = 0.002  # of the driver, handing out and collecting; about twice what was measured
SECONDS_BETWEEN_LOOKS = 5.0


# -- on a node -------------------------------------------------------------------------------------

_host: Machine | None = None  # a Ray process's own worker, kept from batch to batch


def work(cells: Sequence[Cell], limits: Limits, packages: dict[str, str]) -> tuple[str, list[Any]]:
    """Compute a batch: the node's id and, cell by cell, (number, everything but the cell)."""
    global _host
    import ray

    check_this_node(((cell.measure, cell.code) for cell in cells if cell.code), packages)
    if _host is not None and _host.limits != limits:
        _host.close()
        _host = None
    if _host is None:
        _host = Machine(1, None, limits)
    place = {cell.key: number for number, cell in enumerate(cells)}
    ended = [(place[outcome.cell.key], outcome[1:5]) for outcome in _host.run(cells)]
    return ray.get_runtime_context().get_node_id(), ended


# -- the driver ------------------------------------------------------------------------------------


def run(
    cells: Sequence[Cell],
    workers: int | None = None,
    limits: Limits = USUAL,
    address: str | None = None,
) -> Generator[Outcome]:
    """Compute cells on the Ray cluster at `address`, on at most `workers` CPUs at a time.

    Without an address it is the cluster that runs on this machine, or a new one for this run.
    """
    if not cells:
        return
    ray, ours = connect(address, workers, own_folder(cells))
    try:
        yield from Driver(ray, cells, workers, limits).run()
    finally:
        if ours:
            ray.shutdown()


def own_folder(cells: Iterable[Cell]) -> Path | None:
    """The folder of the user's own claims, which nodes need a copy of; None if there are none."""
    folders = set()
    for module in {cell.measure.partition(":")[0].partition(".")[0] for cell in cells}:
        spec = importlib.util.find_spec(module) if module != "attnlens" else None
        if spec is None or spec.origin is None:
            continue
        file = Path(spec.origin).resolve()
        folder = file.parent.parent if spec.submodule_search_locations else file.parent
        if not installed(folder):
            folders.add(folder)
    if len(folders) > 1:
        names = ", ".join(sorted(map(str, folders)))
        raise BadInput(f"claims of your own must lie in one folder, but they lie in {names}.")
    return folders.pop() if folders else None


class Batch(Job):
    """Cells of a kind that travel together."""

    def __init__(self, cells: Sequence[Cell], limits: Limits = USUAL, tries: int = 0):
        self.cells = list(cells)
        self.kind = kind_of(self.cells[0])
        super().__init__(self.cells, limits, versions(), tries=tries)


class Line:
    """What is waiting, and how large a batch of it should be."""

    def __init__(self, cells: Iterable[Cell], limits: Limits = USUAL):
        self.limits = limits
        self.kinds: dict[str, deque[Cell]] = {}
        self.lost: deque[Batch] = deque()
        self.pace: dict[str, float] = {}  # seconds a cell, in the last batch of a kind
        self.out: Counter[str] = Counter()  # batches under way
        for cell in cells:
            self.kinds.setdefault(kind_of(cell), deque()).append(cell)

    def __bool__(self) -> bool:
        return bool(self.kinds or self.lost)

    def next(self, workers: int) -> Batch:
        """The next batch. Kinds with fewest batches under way go first, so that few processes
        compile the same program at the same time."""
        if self.lost:
            return self.lost.popleft()
        kind = min(self.kinds, key=self.out.__getitem__)
        line = self.kinds[kind]
        batch = Batch([line.popleft() for _ in range(self.size(kind, workers))], self.limits)
        if not line:
            del self.kinds[kind]
        return batch

    def again(self, batch: Batch) -> None:
        """A lost batch comes first; lost a second time, cell by cell."""
        parts = [batch.cells] if batch.tries == 1 else [[cell] for cell in batch.cells]
        again = [Batch(cells, self.limits, batch.tries) for cells in parts]
        again[0].faults = batch.faults
        self.lost.extend(again)

    def size(self, kind: str, workers: int) -> int:
        """Cells for `SECONDS_A_BATCH`, or for as long as the driver needs for every worker's turn:
        one while their seconds are unknown, and towards the end ever fewer, so that all workers end
        at about the same time (guided self-scheduling; Polychronopoulos and Kuck, 1987)."""
        if kind not in self.pace:
            return 1
        left, pace = len(self.kinds[kind]), max(self.pace[kind], 1e-6)
        turn = workers * SECONDS_A_TASK  # of the driver, for a batch to every worker
        filling = int(max(SECONDS_A_BATCH, turn) / pace)
        # Half of a worker's share of what is left, but not so little that the driver falls behind.
        share = max(
            math.ceil(left / (2 * workers)), min(int(turn / pace), math.ceil(left / workers))
        )
        return max(1, min(filling, share, MOST_A_BATCH))

    def seconds(self, batch: Batch) -> float:
        """What a batch should take."""
        each = max(self.pace.get(batch.kind, 0.0), batch.cells[0].cost)
        return each * len(batch.cells)


class Driver:
    """Hands out batches and collects what becomes of them."""

    def __init__(self, ray: Any, cells: Sequence[Cell], workers: int | None, limits: Limits):
        self.ray, self.wanted = ray, workers
        self.line, self.left = Line(cells, limits), len(cells)
        self.tasks: Tasks[Batch] = Tasks(ray, remote(ray, work))
        self.looked = -math.inf
        self.workers, self.window = 1, 1

    def run(self) -> Generator[Outcome]:
        try:
            while self.left:
                self._look()
                while self.line and len(self.tasks.pending) < self.window:
                    batch = self.line.next(self.workers)
                    self.line.out[batch.kind] += 1
                    self.tasks.send(batch)
                done = self.tasks.done()
                for task in done:
                    ended = self.tasks.collect(task)
                    ready = deque(self._outcomes(ended) if ended else ())
                    while ready:
                        self.left -= 1
                        yield ready.popleft()._replace(more=len(ready) > 0)
                # Nothing is slow before a look for results has found none: they may have been there
                # while the one before was being kept.
                if not (done or self.line):
                    waited_for = self.tasks.pending.values()
                    self.tasks.hasten(max((self.line.seconds(b) for b in waited_for), default=0.0))
        finally:
            self.tasks.stop()

    def _look(self) -> None:
        """How large the cluster is now: nodes come and go."""
        if time.monotonic() - self.looked > SECONDS_BETWEEN_LOOKS:
            self.looked = time.monotonic()
            there = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
            self.workers = min(there, self.wanted or there)
            # Fewer workers than there are CPUs: what is with Ray is also being computed.
            self.window = self.workers if self.workers < there else WINDOW * there

    def _outcomes(self, ended: Ended[Batch]) -> list[Outcome]:
        """What a batch brought, if it did not only bring a reason to try again."""
        batch = ended.job
        self.line.out[batch.kind] -= 1
        if ended.lost:
            return self._lost(batch)
        self.line.pace[batch.kind] = sum(each[1][2] for each in ended.value) / len(ended.value)
        outcomes = [Outcome(batch.cells[number], *rest) for number, rest in ended.value]
        outcomes[0] = outcomes[0]._replace(faults=(*batch.faults, *outcomes[0].faults))
        return outcomes

    def _lost(self, batch: Batch) -> list[Outcome]:
        """It went with its process or node: the batch again, then cell by cell."""
        if batch.tries == ATTEMPTS:
            reason = f"{batch.faults[-1].words} (tried {ATTEMPTS} times)"
            return [Outcome(c, None, reason, 0.0, tuple(batch.faults)) for c in batch.cells]
        self.line.again(batch)
        self.looked = -math.inf  # the cluster may have become smaller
        return []
