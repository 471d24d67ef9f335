"""Notices: one line on standard error about something that takes long or is not as expected."""

from __future__ import annotations

import sys
from collections.abc import Callable

Notice = Callable[[str], None]


def print_notice(sentence: str) -> None:
    """Print a sentence, given without its full stop."""
    print(f"attnlens: {sentence}.", file=sys.stderr, flush=True)
