"""The local engine: one single-threaded worker process per core.

A worker that dies, or is killed because its cell exceeded the time limit, is replaced, and the cell
gets a second attempt; if that fails too, the cell fails with the reason. Outcomes are yielded as
cells finish. Closing the generator (an interrupt does that) stops the workers; outcomes that were
yielded before are not affected.
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

from attnlens.core.cells import Cell, Fault
from attnlens.runs.provenance import cores

from . import cache
from .base import DEFAULT_LIMITS, Limits, Outcome, faults_in, program_key, worker_environment

ATTEMPTS = 2  # per cell, if its worker dies
# A worker holds short cells for this many seconds (and at most this many cells) in advance, so that
# it never waits for the driver. Longer cells are handed out one at a time, so that the last cells
# are shared evenly between workers.
SECONDS_AHEAD, MOST_AHEAD = 0.02, 64
Answer = tuple[dict[str, Any], dict[str, np.ndarray]]
Answers = queue.SimpleQueue[tuple["Worker", Answer | None]]  # None: the worker has died


class Worker:
    """A process, the cells assigned to it, and a thread that passes its answers to the driver."""

    def __init__(self, answers: Answers, folder: Path | None, memory: int):
        self.cells: deque[Cell] = deque()  # assigned, not answered; the first is being computed
        self.started = time.monotonic()  # when the first of `cells` was started
        self.program: str | None = None  # program key of the last assigned cell
        self.timeout: Fault | None = None  # set when the process exceeds the time limit
        self.errors = _errors_file()  # closed in `stop`
        environment = {**os.environ, **worker_environment(), **cache.settings(folder)}
        # Modules with the user's own claims are found where the user's Python finds them.
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "attnlens.runs.engines.worker", str(memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            start_new_session=True,  # Ctrl-C interrupts the driver only
        )
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def assign(self, cells: Sequence[Cell]) -> None:
        """Send more cells to the process; it computes them after those that it has."""
        if not cells:
            return
        if not self.cells:
            self.started = time.monotonic()
        self.program = program_key(cells[0])
        self.cells.extend(cells)
        lines = [
            json.dumps(
                {
                    "measure": cell.measure,
                    "arm": cell.arm,
                    "parameters": dict(cell.parameters),
                    "seeds": cell.seeds,
                    "path": cell.path,
                }
            )
            for cell in cells
        ]
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has died; the listener reports that
            self.process.stdin.write(("\n".join(lines) + "\n").encode())
            self.process.stdin.flush()

    def finish_first(self) -> Cell:
        """Remove and return the first cell: answers come in the order of the cells."""
        self.started = time.monotonic()
        return self.cells.popleft()

    def _listen(self, answers: Answers) -> None:
        assert self.process.stdout
        try:
            while True:
                answers.put((self, read_answer(self.process.stdout)))
        except (EOFError, OSError):
            pass  # the process has ended
        except (ValueError, LookupError, TypeError):
            self.process.kill()  # what it wrote is not an answer, and nothing after it can be read
        answers.put((self, None))

    def enforce_time_limit(self, limits: Limits) -> None:
        """Kill the process if its cell has exceeded its time; the listener then reports its end."""
        if self.cells and self.timeout is None and self.seconds_left(limits) <= 0:
            allowed = limits.seconds_for(self.cells[0])
            self.timeout = Fault("time limit", f"it took longer than its limit of {allowed:g} s")
            self.process.kill()

    def seconds_left(self, limits: Limits) -> float:
        return self.started + limits.seconds_for(self.cells[0]) - time.monotonic()

    def exit_fault(self) -> Fault:
        """Why the process ended, with the last line that it wrote to standard error."""
        code = self.process.wait()
        if self.timeout:
            return self.timeout
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - 4096))
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        status = f"signal {-code}" if code < 0 else f"exit status {code}"
        message = f": {lines[-1][:300]}" if lines else ""
        return Fault("died", f"its worker died ({status}){message}")

    def stop(self) -> None:
        """Kill the process and release its resources."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.errors.close()


def _errors_file() -> IO[bytes]:
    """A temporary file for the standard error of a worker; os.devnull if none can be made."""
    try:
        return tempfile.TemporaryFile()
    except OSError:  # no temporary folder can be written
        return Path(os.devnull).open("r+b")


def read_answer(stream: IO[bytes]) -> Answer:
    """The next answer of a worker; raises EOFError when the worker has ended."""
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


class CellQueue:
    """Cells that no worker has yet, by program key.

    A worker stays with one key as long as there are cells of it, then takes a key that no other
    worker has, so that two workers seldom compile the same program at the same time. The order
    changes no result.
    """

    def __init__(self, cells: Iterable[Cell]):
        self.programs: dict[str, deque[Cell]] = {}
        self.pace: dict[str, float] = {}  # seconds of the last cell of a program key
        for cell in cells:
            self.programs.setdefault(program_key(cell), deque()).append(cell)

    def next_for(self, worker: Worker, others: Sequence[Worker]) -> list[Cell]:
        """Remove and return the cells to assign to the worker now; [] while it has enough."""
        if not self.programs:
            return []
        program = self._program_for(worker, others)
        enough = self.ahead(program)
        if len(worker.cells) > enough // 2:
            return []
        queued = self.programs[program]
        cells = [queued.popleft() for _ in range(min(enough - len(worker.cells), len(queued)))]
        if not queued:
            del self.programs[program]
        return cells

    def _program_for(self, worker: Worker, others: Sequence[Worker]) -> str:
        if worker.program in self.programs:
            return worker.program
        taken = {other.program for other in others if other is not worker}
        free = [program for program in self.programs if program not in taken]
        # If every key has a worker, take the key with the most waiting cells.
        return (free or sorted(self.programs, key=lambda name: -len(self.programs[name])))[0]

    def ahead(self, program: str) -> int:
        """How many cells with this program key a worker should hold; 1 until a cell was timed."""
        seconds = self.pace.get(program, SECONDS_AHEAD)
        return max(1, min(MOST_AHEAD, int(SECONDS_AHEAD / max(seconds, 1e-6))))

    def put_back(self, cells: Iterable[Cell]) -> None:
        """Return cells to the front of the queue, in their order."""
        for cell in reversed(list(cells)):
            self.programs.setdefault(program_key(cell), deque()).appendleft(cell)


class WorkerPool:
    """The workers of this machine. They live on between runs and keep their compiled programs."""

    def __init__(self, workers: int, folder: Path | None = None, limits: Limits = DEFAULT_LIMITS):
        self.size, self.limits = workers, limits
        self.memory = limits.memory or all_memory()
        self.answers: Answers = queue.SimpleQueue()
        self.workers: list[Worker] = []
        self.folder = cache.usable_folder(folder)

    def run(self, cells: Sequence[Cell]) -> Generator[Outcome]:
        """Yield the outcome of each cell as it finishes."""
        waiting, left = CellQueue(cells), len(cells)
        faults: dict[str, list[Fault]] = {}  # by key of a cell that gets another attempt
        try:
            for worker in [w for w in self.workers if w.process.poll() is not None]:
                self._remove(worker)
            while left:
                self._assign(waiting)
                ready = self._collect(waiting, faults)
                self._assign(waiting)  # keeps workers busy while outcomes are handled
                while ready:
                    left -= 1
                    yield ready.popleft()._replace(more=len(ready) > 0)
        finally:
            if left:
                self.close()

    def _assign(self, waiting: CellQueue) -> None:
        """Start missing workers, and give every worker enough cells."""
        while waiting.programs and len(self.workers) < self.size:
            self.workers.append(Worker(self.answers, self.folder, self.memory))
            self.workers[-1].assign(waiting.next_for(self.workers[-1], self.workers))
        for worker in self.workers if waiting.programs else ():
            worker.assign(waiting.next_for(worker, self.workers))

    def _collect(self, waiting: CellQueue, faults: dict[str, list[Fault]]) -> deque[Outcome]:
        """Wait for an answer, the death of a worker or a time limit; return all outcomes so far."""
        busy = [worker.seconds_left(self.limits) for worker in self.workers if worker.cells]
        ready: deque[Outcome] = deque()
        try:
            worker, answer = self.answers.get(timeout=max(0.01, min([*busy, 60.0])))
            while True:
                if (outcome := self._outcome(worker, answer, waiting, faults)) is not None:
                    ready.append(outcome)
                worker, answer = self.answers.get_nowait()
        except queue.Empty:
            for worker in self.workers:
                worker.enforce_time_limit(self.limits)
        return ready

    def _outcome(
        self,
        worker: Worker,
        answer: Answer | None,
        waiting: CellQueue,
        faults: dict[str, list[Fault]],
    ) -> Outcome | None:
        if worker not in self.workers:
            return None
        if answer is None:
            return self._worker_died(worker, waiting, faults)
        header, values = answer
        cell = worker.finish_first()
        waiting.pace[program_key(cell)] = header["seconds"]
        earlier = faults.pop(cell.key, ())
        if header["failure"]:
            fault = Fault(header["kind"], header["failure"])
            return Outcome(cell, None, fault.words, header["seconds"], (*earlier, fault))
        return Outcome(cell, values, None, header["seconds"], (*earlier, *faults_in(values)))

    def _worker_died(
        self, worker: Worker, waiting: CellQueue, faults: dict[str, list[Fault]]
    ) -> Outcome | None:
        """Queue the cell that the worker was computing again, or let it fail with the reason."""
        cells = list(worker.cells)
        if not cells:
            self._remove(worker)
            return None
        fault = worker.exit_fault()
        self._remove(worker)
        waiting.put_back(cells[1:])  # the worker had not started these
        if self.folder:
            cache.repair(self.folder)
        earlier = faults.setdefault(cells[0].key, [])
        earlier.append(fault)
        if len(earlier) < ATTEMPTS:
            waiting.put_back(cells[:1])
            return None
        del faults[cells[0].key]
        failure = f"{fault.words} (tried {ATTEMPTS} times)"
        return Outcome(cells[0], None, failure, 0.0, tuple(earlier))

    def _remove(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.stop()

    def close(self) -> None:
        """Stop all workers."""
        for worker in list(self.workers):
            self._remove(worker)


def run(
    cells: Sequence[Cell],
    workers: int | None = None,
    cache_folder: Path | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Generator[Outcome]:
    """Compute cells on `workers` processes (default: one per core); yield outcomes as they finish.

    >>> list(run([], workers=1, cache_folder=Path(tempfile.mkdtemp())))
    []
    """
    pool = WorkerPool(workers or cores(), cache_folder, limits)
    try:
        yield from pool.run(cells)
    finally:
        pool.close()


def all_memory() -> int:
    """The bytes of memory of this machine, or of this container if that is less."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # "max" (no limit), or not Linux
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return machine
