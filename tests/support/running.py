"""Run the command line in a process of its own, as a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import attnlens as package

SUPPORT = Path(__file__).parent  # also has the modules with toy claims
# The package under test comes from the tree that these tests belong to.
PATHS = (str(SUPPORT), str(Path(package.__file__).parents[1]))
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "COLUMNS": "120"}
ATTNLENS = [sys.executable, "-m", "attnlens"]


def attnlens(*arguments: object, cwd: Path | None = None, **environment: str):
    """Run `attnlens` and return the finished process, with its output as text."""
    return subprocess.run(
        [*ATTNLENS, *map(str, arguments)],
        env={**ENVIRONMENT, **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Start `attnlens` and return the running process.

    The process reacts to SIGINT, even if the tests run in the background of a shell, which lets
    processes ignore this signal.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a child would inherit this
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        [*ATTNLENS, *map(str, arguments)],
        env={**ENVIRONMENT, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def toy(name: str, out: Path, *more: object) -> list[object]:
    """The command-line arguments that verify a toy claim in the smoke profile."""
    return ["verify", "--profile", "smoke", "--claim", f"toy_claims:{name}", "--out", out, *more]


def one_sentence(stderr: str) -> str:
    """The error message of a command that failed; it must be one line without a traceback."""
    lines = [line for line in stderr.splitlines() if " cells, " not in line]
    assert len(lines) == 1, stderr
    assert lines[0].startswith("attnlens: "), stderr
    return lines[0]
