"""The entry point: `app` has every command, `main` runs it.

Heavy packages are imported inside a command, so that `--help` and error messages are quick.
"""

from __future__ import annotations

import atexit
import io
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import typer

from attnlens import __version__
from attnlens.core.checks import ExplainedError
from attnlens.core.memory import is_out_of_memory
from attnlens.core.user_code import reason

from . import (
    advise,
    claims,
    exchangeability,
    export,
    inspect,
    landscape,
    lenses,
    native,
    replicate,
    report,
    samples,
    store,
    transfer,
    verify,
)
from .options import BAD_INPUT, FAILED
from .output import one_line

OUT_OF_MEMORY = (
    "memory ran out ({reason}); give less data or smaller settings, or free memory, and run the "
    "same command again."
)
# Typer's exception for arguments that it refuses; it has no public name of its own.
UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="attnlens",
    help="What has an attention layer inferred, from how many samples, on what loss surface?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(verify.verify)
app.command()(replicate.replicate)
app.command()(claims.claims)
app.command()(lenses.lenses)
app.command()(report.report)
app.command()(export.export)
app.add_typer(store.store, name="store")
app.add_typer(native.native, name="native")
app.command()(advise.advise)
app.command()(transfer.transfer)
app.command()(landscape.landscape)
app.command()(inspect.inspect)
app.command()(samples.samples)
app.command()(exchangeability.exchangeability)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def _interrupt(*_: object) -> None:
    """Handle SIGTERM like Ctrl-C. The exception is raised directly, not by sending SIGINT, which
    background jobs of scripts (`attnlens verify &`) ignore."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; explained errors become one sentence and exit status 2."""
    signal.signal(signal.SIGTERM, _interrupt)
    prepare_process()
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(status)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group of commands without one: its help
            error.show()
            sys.exit(BAD_INPUT)
        _end(_refusal(error))
    except ExplainedError as error:
        _end(str(error))
    except BrokenPipeError:  # the reader of our output has closed the pipe; avoid an error at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        if is_out_of_memory(error):
            _end(OUT_OF_MEMORY.format(reason=reason(error)))
        if not isinstance(error, OSError):
            raise
        # a file or folder that the user named, or the disk
        file = f"{str(error.filename)[:200]!r} cannot be used: " if error.filename else ""
        _end(f"{file}{error.strerror or error}; name another file or folder.")


def _refusal(error: Any) -> str:
    """What is wrong with the arguments, in one sentence instead of typer's lines on usage."""
    words = " ".join(error.format_message().split()).replace("Value error, ", "").rstrip(".")
    command = error.ctx.command_path if error.ctx else "attnlens"
    return f"{words}; `{command} --help` lists the options."


def _end(sentence: str) -> NoReturn:
    print(f"attnlens: {one_line(sentence)}", file=sys.stderr)
    sys.exit(BAD_INPUT)


def prepare_process() -> None:
    """Make output and caches usable wherever the command runs.

    Characters that standard output cannot encode are escaped. A closed stream is replaced by
    `os.devnull`. Without a home folder (a container with a random user id), the cache of compiled
    programs is a temporary folder, which is removed at exit.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller: print would write to another stream
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 (until the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if not {"ATTNLENS_CACHE", "XDG_CACHE_HOME"} & os.environ.keys():
        try:
            Path.home()
        except RuntimeError:
            folder = tempfile.mkdtemp(prefix="attnlens-cache-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            os.environ["ATTNLENS_CACHE"] = folder
