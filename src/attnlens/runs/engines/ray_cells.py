"""The Ray engine and its scheduler: the same cells, by the same worker program, on many machines.

A Ray task takes a batch of cells to a node. The process of the task starts a worker process, which
runs the same program as a local worker (`worker.py`): one thread, the same limits, the compilation
cache of the node. So a result does not depend on the engine, and a cell that dies, hangs or needs
too much memory harms no other cell.

batches     their size is chosen from measured times, so that a batch takes about one second: Ray
            needs about a millisecond per task. With many workers batches are longer, so that one
            driver can serve all workers
window      the backpressure window: at most twice as many batches as CPUs are submitted; the others
            wait in the driver
losses      a lost process or node is recorded and its batch retried; a straggler (a task that takes
            far too long) is started a second time (`ray_tasks.py`)
"""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attnlens.core.cells import Cell
from attnlens.core.checks import BadInput

from .base import DEFAULT_LIMITS, Limits, Outcome, program_key
from .local import WorkerPool
from .ray_connection import check_this_node, connect, is_installed, native_digests, versions
from .ray_tasks import ATTEMPTS, JOBS_PER_CPU, Job, JobResult, Tasks, remote

SECONDS_PER_BATCH, MOST_PER_BATCH = 1.0, 1000  # a millisecond of overhead is 0.1 %
# Seconds the driver needs to send and collect one task; about twice the measured time.
SECONDS_PER_TASK = 0.002
MOST_UPLOADED = 512 * 2**20  # bytes of the largest folder that is sent to nodes
SECONDS_BETWEEN_SIZE_CHECKS = 5.0  # how often the number of CPUs of the cluster is read


# -- on a node -------------------------------------------------------------------------------------

_pool: WorkerPool | None = None  # the worker of this Ray process, kept from batch to batch


def work(
    cells: Sequence[Cell], limits: Limits, packages: dict[str, str], digests: dict[str, str]
) -> tuple[str, list[Any]]:
    """Compute a batch; return the id of the node and, per cell, its index in the batch and the
    fields of its outcome without the cell."""
    global _pool
    import ray

    codes = [(cell.measure, cell.code) for cell in cells if cell.code]
    check_this_node(codes, packages, [cell.path for cell in cells], digests)
    if _pool is not None and _pool.limits != limits:
        _pool.close()
        _pool = None
    if _pool is None:
        _pool = WorkerPool(1, None, limits)
    numbers = {cell.key: number for number, cell in enumerate(cells)}
    outcomes = [(numbers[outcome.cell.key], outcome[1:5]) for outcome in _pool.run(cells)]
    return ray.get_runtime_context().get_node_id(), outcomes


# -- the driver ------------------------------------------------------------------------------------


def run(
    cells: Sequence[Cell],
    workers: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    address: str | None = None,
) -> Generator[Outcome]:
    """Compute cells on the Ray cluster at `address`, on at most `workers` CPUs at a time.

    Without an address: on the cluster that runs on this machine, or on a new one for this run.
    """
    if not cells:
        return
    ray, opened_here = connect(address, workers, own_folder(cells))
    try:
        yield from Driver(ray, cells, workers, limits).run()
    finally:
        if opened_here:
            ray.shutdown()


def own_folder(cells: Iterable[Cell]) -> Path | None:
    """The folder of the user's own claims, which Ray copies to every node; None if none."""
    folders = set()
    for module in {cell.measure.partition(":")[0].partition(".")[0] for cell in cells}:
        spec = importlib.util.find_spec(module) if module != "attnlens" else None
        if spec is None or spec.origin is None:
            continue
        file = Path(spec.origin).resolve()
        folder = file.parent.parent if spec.submodule_search_locations else file.parent
        if not is_installed(folder):
            folders.add(folder)
    if len(folders) > 1:
        names = ", ".join(sorted(map(str, folders)))
        raise BadInput(f"your own claims must lie in one folder; got {names}.")
    for folder in folders:
        check_upload(folder)
    return folders.pop() if folders else None


def check_upload(folder: Path) -> None:
    """Raise `BadInput` if the folder of the user's claims is too large for Ray to send to nodes."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += (Path(path) / name).lstat().st_size
        if size > MOST_UPLOADED:
            raise BadInput(
                f"the folder of your own claims, {folder}, is sent to every node and must hold at "
                f"most {MOST_UPLOADED:,} bytes; got more; move the claims into a folder of their "
                f"own."
            )


class Batch(Job):
    """Cells with the same program key, computed by one Ray task."""

    def __init__(self, cells: Sequence[Cell], limits: Limits = DEFAULT_LIMITS, attempts: int = 0):
        self.cells = list(cells)
        self.program = program_key(self.cells[0])
        digests = {
            name: digest
            for path in {cell.path for cell in self.cells}
            for name, digest in native_digests(path).items()
        }
        lenses = frozenset(cell.claim[:1] for cell in self.cells)
        super().__init__(self.cells, limits, versions(lenses), digests, attempts=attempts)


class BatchQueue:
    """Cells not yet submitted to Ray, by program key; it also decides the size of each batch."""

    def __init__(self, cells: Iterable[Cell], limits: Limits = DEFAULT_LIMITS):
        self.limits = limits
        self.programs: dict[str, deque[Cell]] = {}
        self.lost: deque[Batch] = deque()
        self.pace: dict[str, float] = {}  # seconds per cell, in the last batch of a program key
        self.sent: Counter[str] = Counter()  # batches submitted to Ray, per program key
        for cell in cells:
            self.programs.setdefault(program_key(cell), deque()).append(cell)

    def __bool__(self) -> bool:
        return bool(self.programs or self.lost)

    def next(self, workers: int) -> Batch:
        """The next batch. Program keys with the fewest batches at Ray go first, so that few
        processes compile the same program at the same time."""
        if self.lost:
            return self.lost.popleft()
        program = min(self.programs, key=self.sent.__getitem__)
        queued = self.programs[program]
        batch = Batch([queued.popleft() for _ in range(self.size(program, workers))], self.limits)
        if not queued:
            del self.programs[program]
        return batch

    def retry(self, batch: Batch) -> None:
        """Queue a lost batch before all others; from its second loss on, as one batch per cell."""
        parts = [batch.cells] if batch.attempts == 1 else [[cell] for cell in batch.cells]
        retries = [Batch(cells, self.limits, batch.attempts) for cells in parts]
        retries[0].faults = batch.faults
        self.lost.extend(retries)

    def size(self, program: str, workers: int) -> int:
        """The number of cells in the next batch with this program key.

        Batches have one cell until one was timed. Later ones take `SECONDS_PER_BATCH`, or the time
        that the driver needs to serve every worker once if that is longer. Towards the end batches
        become smaller, so that all workers end at about the same time (guided self-scheduling;
        Polychronopoulos and Kuck, 1987).
        """
        if program not in self.pace:
            return 1
        left, pace = len(self.programs[program]), max(self.pace[program], 1e-6)
        turn = workers * SECONDS_PER_TASK  # driver time to send one batch to every worker
        filling = int(max(SECONDS_PER_BATCH, turn) / pace)
        # Half of a worker's share of the cells left, but enough that the driver keeps up.
        share = max(
            math.ceil(left / (2 * workers)), min(int(turn / pace), math.ceil(left / workers))
        )
        return max(1, min(filling, share, MOST_PER_BATCH))

    def seconds(self, batch: Batch) -> float:
        """The expected seconds of a batch."""
        per_cell = max(self.pace.get(batch.program, 0.0), batch.cells[0].cost)
        return per_cell * len(batch.cells)


class Driver:
    """Sends batches to Ray and turns their results into outcomes."""

    def __init__(self, ray: Any, cells: Sequence[Cell], workers: int | None, limits: Limits):
        self.ray, self.max_workers = ray, workers
        self.queue, self.left = BatchQueue(cells, limits), len(cells)
        self.tasks: Tasks[Batch] = Tasks(ray, remote(ray, work))
        self.size_read: float | None = None  # when the cluster's size was last read; None: not yet
        self.workers, self.window = 1, 1

    def run(self) -> Generator[Outcome]:
        """Yield the outcome of each cell as its batch finishes."""
        try:
            while self.left:
                self._read_cluster_size()
                while self.queue and len(self.tasks.pending) < self.window:
                    batch = self.queue.next(self.workers)
                    self.queue.sent[batch.program] += 1
                    self.tasks.send(batch)
                finished = self.tasks.finished()
                for task in finished:
                    result = self.tasks.collect(task)
                    ready = deque(self._outcomes(result) if result else ())
                    while ready:
                        self.left -= 1
                        yield ready.popleft()._replace(more=len(ready) > 0)
                # Look for stragglers only when there was no new result: results may have arrived
                # while the driver was busy committing an earlier one.
                if not (finished or self.queue):
                    expected = [self.queue.seconds(batch) for batch in self.tasks.pending.values()]
                    self.tasks.copy_stragglers(max(expected, default=0.0))
        finally:
            self.tasks.cancel()

    def _read_cluster_size(self) -> None:
        """Read how many CPUs the cluster has now: nodes join and leave."""
        now = time.monotonic()
        if self.size_read is None or now - self.size_read > SECONDS_BETWEEN_SIZE_CHECKS:
            self.size_read = now
            cpus = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
            self.workers = min(cpus, self.max_workers or cpus)
            # With fewer workers than CPUs, Ray would compute every batch in the window at once.
            self.window = self.workers if self.workers < cpus else JOBS_PER_CPU * cpus

    def _outcomes(self, result: JobResult[Batch]) -> list[Outcome]:
        """The outcomes of the cells of a batch; none if the batch is retried."""
        batch = result.job
        self.queue.sent[batch.program] -= 1
        if result.lost:
            return self._lost(batch)
        outcomes = [Outcome(batch.cells[number], *fields) for number, fields in result.value]
        self.queue.pace[batch.program] = sum(o.seconds for o in outcomes) / len(outcomes)
        outcomes[0] = outcomes[0]._replace(faults=(*batch.faults, *outcomes[0].faults))
        return outcomes

    def _lost(self, batch: Batch) -> list[Outcome]:
        """Retry a batch that was lost with its process or node, or let its cells fail."""
        if batch.attempts == ATTEMPTS:
            reason = f"{batch.faults[-1].words} (tried {ATTEMPTS} times)"
            return [Outcome(c, None, reason, 0.0, tuple(batch.faults)) for c in batch.cells]
        self.queue.retry(batch)
        self.size_read = None  # the cluster may have become smaller
        return []
