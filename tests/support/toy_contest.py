"""Toy contenders for the tests of the `benchmarks` package, in pure Python."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.contest import Run


def sleeper(seconds: float, **_: Any) -> Run:
    """A contender that sleeps `seconds`, on the first call three times as long; its result has an
    error of 0.001."""
    calls = []

    def call() -> float:
        calls.append(None)
        time.sleep(seconds * (3 if len(calls) == 1 else 1))
        return 1.001

    return Run(call, lambda answer: {"relative error": abs(answer - 1)}, scale=2.0)


def hoarder(megabytes: int) -> Run:
    return Run(lambda: len(b"x" * (megabytes * 1_000_000)))


def broken(**_: Any) -> Run:
    raise ImportError("No module named 'peer'")
