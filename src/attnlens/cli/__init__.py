"""The command line: one module per command, options that several share in `options.py`."""

from .commands import app, main

__all__ = ["app", "main"]
