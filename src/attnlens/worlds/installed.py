"""Worlds of other packages: entry points `attnlens.worlds` (`attnlens.core.plugins`)."""

from __future__ import annotations

from functools import cache

from attnlens.core import plugins

from .base import World
from .registry import EXAMPLES


@cache
def installed_worlds() -> dict[str, World]:
    """A small example of every world by name: those of attnlens and of installed packages.

    A world that cannot be loaded is left out, with one line on standard error.

    >>> from attnlens.worlds import EXAMPLES
    >>> installed_worlds().keys() >= EXAMPLES.keys()
    True
    """
    return plugins.extended(plugins.WORLDS, EXAMPLES, World)
