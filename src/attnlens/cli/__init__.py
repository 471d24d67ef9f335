"""The command line: one module per command; `options.py` holds the options that they share."""

from .commands import app, main

__all__ = ["app", "main"]
