"""Notices: one line on standard error about something that takes long or is not as expected."""

from __future__ import annotations

import sys
from collections.abc import Callable

Notice = Callable[[str], None]


def print_notice(sentence: str) -> None:
    """Print one sentence on standard error, and add the full stop, which `sentence` lacks."""
    print(f"attnlens: {sentence}.", file=sys.stderr, flush=True)
