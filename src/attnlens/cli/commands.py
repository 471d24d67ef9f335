"""Assembles the commands; the entry point.

Heavy packages are imported inside a command, so that `--help` and error messages are quick.
"""

from __future__ import annotations

import signal
import sys

import typer

from attnlens import __version__
from attnlens.core.checks import ExplainedError

from . import advise, claims, exchangeability, landscape, report, samples, store, transfer, verify
from .options import BAD_INPUT

app = typer.Typer(
    name="attnlens",
    help="What has an attention layer inferred, from how many samples, on what loss surface?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(verify.verify)
app.command()(claims.claims)
app.command()(report.report)
app.add_typer(store.store, name="store")
app.command()(advise.advise)
app.command()(transfer.transfer)
app.command()(landscape.landscape)
app.command()(samples.samples)
app.command()(exchangeability.exchangeability)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Run the command line; explained errors become one sentence and exit status 2."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        app()
    except ExplainedError as error:
        # A file's name may hold line breaks and control characters; the message stays one line.
        line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(error))
        print(f"attnlens: {line}", file=sys.stderr)
        sys.exit(BAD_INPUT)
