"""Operators of other packages: entry points `attnlens.operators` (`attnlens.core.plugins`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from attnlens.core import plugins

from .registry import OPERATORS


@cache
def installed_operators() -> dict[str, Callable[..., Any]]:
    """Every operator by name: those of attnlens and of installed packages.

    An operator that cannot be loaded is left out, with one line on standard error.

    >>> installed_operators().keys() >= OPERATORS.keys()
    True
    """
    return plugins.extended(plugins.OPERATORS, OPERATORS, Callable)  # type: ignore[arg-type] (Callable is a special form, not a class)
