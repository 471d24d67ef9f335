"""A worker process: reads cells from standard input, writes their results to standard output.

Input: one line of JSON per cell. Output: one line of JSON, then the bytes of the arrays, one after
the other. Whatever a measurement prints goes to standard error, so it cannot mix with results. The
worker exits when its input closes: when the driver has finished or died.
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

from attnlens.core.memory import is_out_of_memory

from .base import check_path, compute


def main(memory: int) -> None:
    """Compute cells until the input closes, with at most `memory` bytes of data."""
    limit_memory(memory)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed goes to standard error from here on
    cells: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(cells,), daemon=True).start()
    while True:
        answer(results, json.loads(cells.get()))


def limit_memory(memory: int) -> None:
    """Limit the data of this process to `memory` bytes; a cell that needs more gets a MemoryError.

    Several workers, each within its limit, can still fill the machine. The operating system then
    kills a worker and not the driver, because workers have the highest out-of-memory score.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, hard))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _read(cells: queue.SimpleQueue[str]) -> None:
    """Queue the input lines; at the end of input exit at once, even in the middle of a cell: nobody
    waits for its result any more."""
    for line in sys.stdin:
        cells.put(line)
    os._exit(0)


def answer(results: BinaryIO, cell: dict[str, Any]) -> None:
    """Compute one cell and write its result, or the reason why there is none."""
    start = time.perf_counter()
    values: dict[str, np.ndarray] = {}
    kind = failure = None
    try:
        check_path(cell["path"])
        values = compute(cell["measure"], cell["arm"], cell["parameters"], tuple(cell["seeds"]))
    except Exception as error:  # the cell fails with this reason; the worker goes on
        first_line = (str(error).splitlines() or [""])[0]
        failure = f"{type(error).__name__}: {first_line}"[:500]
        kind = "memory" if is_out_of_memory(error) else "raised"
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
