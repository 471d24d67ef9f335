"""Limits for one example of a fuzzer: 20 seconds, and 1 GB of memory beyond what is in use."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS, BYTES = 20, 10**9
SEED = int(os.environ.get("ATTNLENS_FUZZ_SEED", "20261118"))


class Overtime(BaseException):
    """An example took longer than allowed; no `except Exception` swallows it."""


@contextmanager
def watchdog() -> Iterator[None]:
    """Raise `Overtime` after 20 s; allocations beyond 1 GB fail with MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)

    def late(*_: object) -> None:
        raise Overtime(f"an example took longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
