"""Running the command line as a user does: in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TESTS), "COLUMNS": "120"}
ATTNLENS = [sys.executable, "-m", "attnlens"]


def attnlens(*arguments: object, cwd: Path | None = None, **environment: str):
    """Run `attnlens` to its end and return the finished process, output as text."""
    return subprocess.run(
        [*ATTNLENS, *map(str, arguments)],
        env={**ENVIRONMENT, **environment}, cwd=cwd, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Start `attnlens` and return the running process.

    It hears interrupts: a shell that runs the tests in the background makes them, and what they
    start, deaf to SIGINT.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # which a child would inherit
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        [*ATTNLENS, *map(str, arguments)],
        env={**ENVIRONMENT, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def toy(name: str, out: Path, *more: object) -> list[object]:
    """The arguments that verify a toy claim in the smoke profile."""
    return ["verify", "--profile", "smoke", "--claim", f"toy_claims:{name}", "--out", out, *more]


def one_sentence(stderr: str) -> str:
    """The error line of a refused command; it must be one line, without a traceback."""
    lines = [line for line in stderr.splitlines() if " cells, " not in line]
    assert len(lines) == 1, stderr
    assert lines[0].startswith("attnlens: "), stderr
    return lines[0]
