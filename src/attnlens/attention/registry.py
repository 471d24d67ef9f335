"""Every operator by name, so that contract tests, claims and the command line see all of them.

An entry is the operator with the settings it needs filled in: a function of (query, key, value)
that also takes `mask`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Array

from .cme import cme
from .softmax import softmax

OPERATORS: dict[str, Callable[..., Array]] = {
    "softmax": softmax,
    "cme": partial(cme, ridge=0.1),
}
