"""Checks of inputs, each with an error message of one sentence.

Every message says what was expected, what was given, and what to do next.

ExplainedError    the message is one sentence for the user; the command line prints it as a single
                  line on standard error and ends with exit status 2
  BadInput        what the user gave cannot be used
  ResourceError   the input is good, but the machine, the disk or the cluster failed
    ClusterLost   the connection to a cluster was lost, or its nodes give no results
    DiskFull      nothing more can be written
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from numbers import Real

SEEDS = 2**32  # a random seed must be below this number


class ExplainedError(Exception):
    """An error whose message is one sentence that tells the user what to do.

    >>> issubclass(BadInput, ExplainedError), issubclass(ResourceError, ExplainedError)
    (True, True)
    """


class BadInput(ExplainedError, ValueError):
    """An input that cannot be used; the message is one sentence that tells the user what to do."""


class ResourceError(ExplainedError, RuntimeError):
    """A machine, a disk or a cluster that failed; the same input may succeed later or elsewhere.

    >>> issubclass(ResourceError, BadInput)
    False
    """


class ClusterLost(ResourceError):
    """A cluster that was lost, or whose nodes give no results.

    >>> issubclass(ClusterLost, ResourceError)
    True
    """


class DiskFull(ResourceError):
    """A disk that is full or failing; everything that was finished is kept.

    >>> issubclass(DiskFull, ResourceError)
    True
    """


def positive(name: str, value: float) -> float:
    """Return `value` if it is a finite number above zero; otherwise raise `BadInput`."""
    if not (isinstance(value, Real) and math.isfinite(value) and value > 0):
        raise BadInput(
            f"{name} must be a finite number above 0; got {value!r}; give {name}=1.0, for example."
        )
    return value


def whole(name: str, value: int, at_least: int = 0, at_most: int | None = None) -> int:
    """Return `value` if it is a whole number within these limits; otherwise raise `BadInput`."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < at_least:
        raise BadInput(f"{name} must be a whole number of at least {at_least}; got {value!r}.")
    if at_most is not None and value > at_most:
        raise BadInput(f"{name} must be at most {at_most:,}; got {int(value):,}.")
    return int(value)


def seed_number(name: str, value: int) -> int:
    """Return `value` if it can be a random seed; otherwise raise `BadInput`.

    JAX uses the lowest 32 bits of a seed, so two larger seeds could give the same random numbers.
    """
    seed = whole(name, value)
    if seed >= SEEDS:
        raise BadInput(f"{name} must be below 2^32; got {value!r}; give another seed.")
    return seed


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8; a lone surrogate cannot.

    >>> is_text("π"), is_text("\\udc80")
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_of(name: str, value: str, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise raise `BadInput`."""
    choices = list(choices)
    if value not in choices:
        raise BadInput(f"{name} must be one of {', '.join(choices)}; got {value!r}.")
    return value


def lengths(values: Iterable[int], at_least: int = 1) -> tuple[int, ...]:
    """Return `values` as a tuple if they are whole and increasing; otherwise raise `BadInput`."""
    checked = tuple(whole("each length", value, at_least) for value in values)
    if not checked or any(b <= a for a, b in pairwise(checked)):
        raise BadInput(
            f"lengths must be increasing whole numbers, such as (16, 64, 256); got {checked}."
        )
    return checked
