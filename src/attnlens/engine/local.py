"""Cells on this machine: one single-threaded worker process a core.

A worker that dies, or is stopped because its cell took too long, is replaced and the cell tried
once more; if that fails too, the cell ends with the reason. Outcomes come as they finish; closing
the generator (an interrupt does) stops the workers, and what was yielded before is safe with
whoever took it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from attnlens.engine import cache
from attnlens.engine.base import USUAL, Fault, Limits, Outcome, faults_in, worker_environment
from attnlens.records import Cell

ATTEMPTS = 2  # of a cell whose worker dies
# A worker is given so many seconds of short cells ahead, so that it never waits for the driver; of
# cells that take longer it has one at a time, and what is left is shared evenly to the end.
SECONDS_AHEAD, MOST_AHEAD = 0.02, 64
Answer = tuple[dict[str, Any], dict[str, np.ndarray]]
Answers = queue.SimpleQueue[tuple["Worker", Answer | None]]  # None: the worker has died


class Worker:
    """A process, the cells it was given, and a thread that hands its answers to the driver."""

    def __init__(self, answers: Answers, folder: Path | None, memory: int):
        self.cells: deque[Cell] = deque()  # not answered yet; it works on the first
        self.began = time.monotonic()  # the first of them
        self.kind: str | None = None
        self.late: Fault | None = None
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `stop`)
        environment = {**os.environ, **worker_environment(), **cache.settings(folder)}
        # A claim of the user's own lies where the user's Python found it.
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "attnlens.engine.worker", str(memory)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            env=environment, start_new_session=True,  # Ctrl-C reaches the driver only
        )  # fmt: skip
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def take(self, cells: Sequence[Cell]) -> None:
        """Work on these cells too, after those that it has."""
        if not cells:
            return
        if not self.cells:
            self.began = time.monotonic()
        self.kind = kind_of(cells[0])
        self.cells.extend(cells)
        lines = [
            json.dumps({"measure": cell.measure, "arm": cell.arm,
                        "parameters": dict(cell.parameters), "seeds": cell.seeds})
            for cell in cells
        ]  # fmt: skip
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has died; the listener says so
            self.process.stdin.write(("\n".join(lines) + "\n").encode())
            self.process.stdin.flush()

    def answered(self) -> Cell:
        """The cell that an answer belongs to: answers come in the order of the cells."""
        self.began = time.monotonic()
        return self.cells.popleft()

    def _listen(self, answers: Answers) -> None:
        assert self.process.stdout
        with contextlib.suppress(EOFError, ValueError, OSError):
            while True:
                answers.put((self, _read_answer(self.process.stdout)))
        answers.put((self, None))

    def stop_if_late(self, limits: Limits) -> None:
        """End the process if its cell has had all of its time; the listener then says so."""
        if self.cells and self.late is None and self.seconds_left(limits) <= 0:
            allowed = limits.seconds_for(self.cells[0])
            self.late = Fault("time limit", f"it took longer than its limit of {allowed:g} s")
            self.process.kill()

    def seconds_left(self, limits: Limits) -> float:
        return self.began + limits.seconds_for(self.cells[0]) - time.monotonic()

    def last_words(self) -> Fault:
        """Why the process ended, with the last line that it wrote."""
        code = self.process.wait()
        if self.late:
            return self.late
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - 4096))
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        said = f": {lines[-1][:300]}" if lines else ""
        return Fault("died", f"its worker died ({how}){said}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.errors.close()


def _read_answer(stream: IO[bytes]) -> Answer:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    header, values = json.loads(line), {}
    for name, dtype, shape in header["arrays"]:
        size = np.dtype(dtype).itemsize * int(np.prod(shape))
        data = stream.read(size)
        if len(data) < size:
            raise EOFError
        values[name] = np.frombuffer(data, dtype).reshape(shape)
    return header, values


class Waiting:
    """Cells not yet handed out, by kind.

    Cells of a kind (the same function and parameters) share their compiled programs. A worker
    stays with its kind, then takes one that nobody else is at, so that two workers seldom compile
    the same program at the same time. The order changes no result.
    """

    def __init__(self, cells: Iterable[Cell]):
        self.kinds: dict[str, deque[Cell]] = {}
        self.pace: dict[str, float] = {}  # seconds that the last cell of a kind took
        for cell in cells:
            self.kinds.setdefault(kind_of(cell), deque()).append(cell)

    def next_for(self, worker: Worker, others: Sequence[Worker]) -> list[Cell]:
        """What the worker should be given now: nothing while it has enough."""
        if not self.kinds:
            return []
        kind = self._kind_for(worker, others)
        enough = self.ahead(kind)
        if len(worker.cells) > enough // 2:
            return []
        line = self.kinds[kind]
        cells = [line.popleft() for _ in range(min(enough - len(worker.cells), len(line)))]
        if not line:
            del self.kinds[kind]
        return cells

    def _kind_for(self, worker: Worker, others: Sequence[Worker]) -> str:
        if worker.kind in self.kinds:
            return worker.kind
        taken = {other.kind for other in others if other is not worker}
        free = [kind for kind in self.kinds if kind not in taken]
        # With no kind left to itself, help where most is waiting.
        return (free or sorted(self.kinds, key=lambda kind: -len(self.kinds[kind])))[0]

    def ahead(self, kind: str) -> int:
        """How many cells of a kind a worker should have at hand: one until it is known how short
        they are."""
        seconds = self.pace.get(kind, SECONDS_AHEAD)
        return max(1, min(MOST_AHEAD, int(SECONDS_AHEAD / max(seconds, 1e-6))))

    def put_back(self, cells: Iterable[Cell]) -> None:
        for cell in reversed(list(cells)):
            self.kinds.setdefault(kind_of(cell), deque()).appendleft(cell)


def kind_of(cell: Cell) -> str:
    return json.dumps([cell.measure, cell.parameters], sort_keys=True)


class Machine:
    """The workers of this machine. They stay between runs: what they have compiled is kept."""

    def __init__(self, workers: int, folder: Path | None = None, limits: Limits = USUAL):
        self.size, self.limits = workers, limits
        self.memory = limits.memory or all_memory()
        self.answers: Answers = queue.SimpleQueue()
        self.alive: list[Worker] = []
        self.folder: Path | None = folder or cache.default_folder()
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            cache.repair(self.folder)
        except OSError:
            self.folder = None  # a home that cannot be written: compile every time

    def run(self, cells: Sequence[Cell]) -> Generator[Outcome]:
        """Yield each cell's outcome as it finishes."""
        waiting, left = Waiting(cells), len(cells)
        faults: dict[str, list[Fault]] = {}  # of cells that get another attempt
        try:
            for worker in [w for w in self.alive if w.process.poll() is not None]:
                self._dismiss(worker)
            while left:
                self._employ(waiting)
                ready = self._ready(waiting, faults)
                self._employ(waiting)  # before the driver is kept busy with what is ready
                while ready:
                    left -= 1
                    yield ready.popleft()._replace(more=len(ready) > 0)
        finally:
            if left:
                self.close()

    def _employ(self, waiting: Waiting) -> None:
        """Enough workers, each with enough to do."""
        while waiting.kinds and len(self.alive) < self.size:
            self.alive.append(Worker(self.answers, self.folder, self.memory))
            self.alive[-1].take(waiting.next_for(self.alive[-1], self.alive))
        for worker in self.alive if waiting.kinds else ():
            worker.take(waiting.next_for(worker, self.alive))

    def _ready(self, waiting: Waiting, faults: dict[str, list[Fault]]) -> deque[Outcome]:
        """Wait for an answer, a death or the end of somebody's time; then all that is there."""
        busy = [worker.seconds_left(self.limits) for worker in self.alive if worker.cells]
        ready: deque[Outcome] = deque()
        try:
            worker, answer = self.answers.get(timeout=max(0.01, min([*busy, 60.0])))
            while True:
                if (outcome := self._outcome(worker, answer, waiting, faults)) is not None:
                    ready.append(outcome)
                worker, answer = self.answers.get_nowait()
        except queue.Empty:
            for worker in self.alive:
                worker.stop_if_late(self.limits)
        return ready

    def _outcome(
        self,
        worker: Worker,
        answer: Answer | None,
        waiting: Waiting,
        faults: dict[str, list[Fault]],
    ) -> Outcome | None:
        if worker not in self.alive:
            return None
        if answer is None:
            return self._buried(worker, waiting, faults)
        header, values = answer
        cell = worker.answered()
        waiting.pace[kind_of(cell)] = header["seconds"]
        past = faults.pop(cell.key, ())
        if header["failure"]:
            fault = Fault(header["kind"], header["failure"])
            return Outcome(cell, None, fault.words, header["seconds"], (*past, fault))
        return Outcome(cell, values, None, header["seconds"], (*past, *faults_in(values)))

    def _buried(
        self, worker: Worker, waiting: Waiting, faults: dict[str, list[Fault]]
    ) -> Outcome | None:
        """A worker has ended: the cell it was at is tried again, or ends with the reason."""
        cells = list(worker.cells)
        if not cells:
            self._dismiss(worker)
            return None
        fault = worker.last_words()
        self._dismiss(worker)
        waiting.put_back(cells[1:])  # it had not begun with them
        if self.folder:
            cache.repair(self.folder)
        past = faults.setdefault(cells[0].key, [])
        past.append(fault)
        if len(past) < ATTEMPTS:
            waiting.put_back(cells[:1])
            return None
        del faults[cells[0].key]
        return Outcome(cells[0], None, f"{fault.words} (tried {ATTEMPTS} times)", 0.0, tuple(past))

    def _dismiss(self, worker: Worker) -> None:
        self.alive.remove(worker)
        worker.stop()

    def close(self) -> None:
        for worker in list(self.alive):
            self._dismiss(worker)


def run(
    cells: Sequence[Cell],
    workers: int | None = None,
    cache_folder: Path | None = None,
    limits: Limits = USUAL,
) -> Generator[Outcome]:
    """Compute cells on `workers` processes (one a core) and yield outcomes as they finish.

    >>> list(run([], workers=1, cache_folder=Path(tempfile.mkdtemp())))
    []
    """
    machine = Machine(workers or cores(), cache_folder, limits)
    try:
        yield from machine.run(cells)
    finally:
        machine.close()


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def all_memory() -> int:
    """The bytes of memory that this machine, or this container, has."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # "max", or not Linux
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return machine
