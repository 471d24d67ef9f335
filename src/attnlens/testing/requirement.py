"""How a contract reports that a requirement is not met."""

from __future__ import annotations


def require(holds: object, sentence: str) -> None:
    """Raise AssertionError with `sentence` unless `holds` is true, also under `python -O`.

    >>> require(1 + 1 == 2, "arithmetic holds")
    """
    if not holds:
        raise AssertionError(sentence)
