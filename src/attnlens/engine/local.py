"""Cells on this machine: one single-threaded worker process a core.

A worker that dies is replaced and its cell tried once more; if that fails too, the cell ends with
the reason. Outcomes come as they finish; closing the generator (an interrupt does) stops the
workers, and what was yielded before is safe with whoever took it.
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
from collections import deque
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from attnlens.engine import cache
from attnlens.engine.base import ONE_THREAD, PRECISION, Outcome
from attnlens.records import Cell

ATTEMPTS = 2  # of a cell whose worker dies
Answers = queue.SimpleQueue[tuple["Worker", Outcome | None]]  # None: the worker has died


class Worker:
    """A process, the cell it works on, and a thread that hands its answers to the driver."""

    def __init__(self, answers: Answers, folder: Path | None):
        self.cell: Cell | None = None
        self.kind: str | None = None
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `stop`)
        environment = {**os.environ, **PRECISION, **ONE_THREAD, **cache.settings(folder)}
        # A claim of the user's own lies where the user's Python found it.
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "attnlens.engine.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            env=environment, start_new_session=True,  # Ctrl-C reaches the driver only
        )  # fmt: skip
        threading.Thread(target=self._listen, args=(answers,), daemon=True).start()

    def take(self, cell: Cell | None) -> None:
        """Start on a cell; None leaves the worker idle."""
        self.cell = cell
        if cell is None:
            return
        self.kind = kind_of(cell)
        content = {
            "measure": cell.measure, "arm": cell.arm,
            "parameters": dict(cell.parameters), "seeds": cell.seeds,
        }  # fmt: skip
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has died; the listener says so
            self.process.stdin.write(json.dumps(content).encode() + b"\n")
            self.process.stdin.flush()

    def _listen(self, answers: Answers) -> None:
        assert self.process.stdout
        with contextlib.suppress(EOFError, ValueError, OSError):
            while True:
                header, values = _read_answer(self.process.stdout)
                assert self.cell
                failure = header["failure"]
                kept = None if failure else values
                answers.put((self, Outcome(self.cell, kept, failure, header["seconds"])))
        answers.put((self, None))

    def last_words(self) -> str:
        """How the process ended, with the last line that it wrote."""
        code = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"its worker died ({how})" + (f": {lines[-1][:300]}" if lines else "")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        self.errors.close()


def _read_answer(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
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

    def __init__(self, cells: Sequence[Cell]):
        self.kinds: dict[str, deque[Cell]] = {}
        self.attempts: dict[str, int] = {}
        for cell in cells:
            self.kinds.setdefault(kind_of(cell), deque()).append(cell)

    def next_for(self, worker: Worker, others: Sequence[Worker]) -> Cell | None:
        if not self.kinds:
            return None
        taken = {other.kind for other in others if other is not worker}
        free = [kind for kind in self.kinds if kind not in taken]
        # With no kind left to itself, help where most is waiting.
        choices = free or sorted(self.kinds, key=lambda kind: -len(self.kinds[kind]))
        kind = worker.kind if worker.kind in self.kinds else choices[0]
        cell = self.kinds[kind].popleft()
        if not self.kinds[kind]:
            del self.kinds[kind]
        self.attempts[cell.key] = self.attempts.get(cell.key, 0) + 1
        return cell

    def put_back(self, cell: Cell) -> bool:
        """Whether the cell gets another attempt."""
        again = self.attempts[cell.key] < ATTEMPTS
        if again:
            self.kinds.setdefault(kind_of(cell), deque()).appendleft(cell)
        return again


def kind_of(cell: Cell) -> str:
    return json.dumps([cell.measure, cell.parameters], sort_keys=True)


def run(
    cells: Sequence[Cell], workers: int | None = None, cache_folder: Path | None = None
) -> Generator[Outcome]:
    """Compute cells on `workers` processes (one a core) and yield outcomes as they finish.

    >>> list(run([], workers=1, cache_folder=Path(tempfile.mkdtemp())))
    []
    """
    folder = cache_folder or cache.default_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        cache.repair(folder)
    except OSError:
        folder = None  # a home that cannot be written: compile every time
    waiting, left = Waiting(cells), len(cells)
    answers: Answers = queue.SimpleQueue()
    alive: list[Worker] = []
    try:
        for _ in range(min(workers or cores(), left)):
            alive.append(Worker(answers, folder))
            alive[-1].take(waiting.next_for(alive[-1], alive))
        while left:
            worker, outcome = answers.get()
            if outcome is None:
                cell, reason = worker.cell, worker.last_words()
                alive.remove(worker)
                worker.stop()
                if cell is None:
                    continue  # it died idle, with nothing left to do
                if folder:
                    cache.repair(folder)
                worker = Worker(answers, folder)
                alive.append(worker)
                if not waiting.put_back(cell):
                    left -= 1
                    yield Outcome(cell, None, f"{reason} (tried {ATTEMPTS} times)", 0.0)
            else:
                left -= 1
                yield outcome
            worker.take(waiting.next_for(worker, alive))
    finally:
        for worker in alive:
            worker.stop()


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
