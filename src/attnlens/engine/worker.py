"""A worker process: reads cells from standard input, writes their results to standard output.

In: one line of JSON a cell. Out: one line of JSON, then the arrays' bytes one after the other.
Whatever a measurement prints goes to standard error, so it cannot mix with results. The worker
ends when its input closes: when the driver is done, or has died.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attnlens.engine.base import compute


def main(memory: int) -> None:
    limit_memory(memory)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    cells: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(cells,), daemon=True).start()
    while True:
        answer(results, json.loads(cells.get()))


def limit_memory(memory: int) -> None:
    """Allow this process so many bytes of data; more raises MemoryError in the cell that asks.

    Several workers, each within its limit, can still fill the machine: the kernel then ends one of
    them, and not the driver, because they volunteer.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, hard))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _read(cells: queue.SimpleQueue[str]) -> None:
    """Hand on input; end the process at its end, even in the middle of a cell nobody waits for."""
    for line in sys.stdin:
        cells.put(line)
    os._exit(0)


def answer(results: BinaryIO, cell: dict[str, Any]) -> None:
    start = time.perf_counter()
    values: dict[str, np.ndarray] = {}
    kind = failure = None
    try:
        values = compute(cell["measure"], cell["arm"], cell["parameters"], tuple(cell["seeds"]))
    except Exception as error:  # a cell's own fault becomes its status; the worker goes on
        first_line = (str(error).splitlines() or [""])[0]
        failure = f"{type(error).__name__}: {first_line}"[:500]
        # XLA says RESOURCE_EXHAUSTED where NumPy raises MemoryError.
        scarce = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in failure
        kind = "memory" if scarce else "raised"
    header = {
        "failure": failure,
        "kind": kind,
        "seconds": time.perf_counter() - start,
        "arrays": [[name, a.dtype.str, list(a.shape)] for name, a in values.items()],
    }
    results.write(json.dumps(header).encode() + b"\n")
    for array in values.values():
        results.write(array.tobytes())
    results.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
