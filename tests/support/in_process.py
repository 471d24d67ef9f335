"""Run the command line in the process of the tests, which is faster than starting a process per
command."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
from typing import NamedTuple
from unittest import mock

from attnlens.cli import main


class Finished(NamedTuple):
    """Exit status and output of a command."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Finished:
    """Run `attnlens` with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    before, path, status = signal.getsignal(signal.SIGTERM), list(sys.path), 0
    words = ["attnlens", *map(str, arguments)]
    try:
        with (
            mock.patch.object(sys, "argv", words),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.path[:] = path
    return Finished(status, out.getvalue(), err.getvalue())
