"""The label column: numbers to predict, or classes.

Text is classes; so are whole numbers with few values (`learning_curve` uses the same rule), unless
the caller says otherwise. Rows without a label are dropped, and so are classes with a single row:
they cannot be in training and test at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attnlens import checks
from attnlens.instruments.labelled import MOST_CLASSES

from .columns import Typed, listed, plain, printable, typed

MOST_NAMES = 100  # classes: with more, the data would have to be huge for a few rows of each


class Labels(NamedTuple):
    """Which rows have a label that can be used, their labels, and what they are."""

    keep: np.ndarray  # bool, all rows
    y: np.ndarray  # of the rows that are kept
    task: str
    classes: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def labels(name: str, values: np.ndarray, wanted: str | None) -> Labels:
    """The labels in a column, of the kind that is wanted or that it looks like."""
    if wanted in ("text", "drop"):
        raise checks.BadInput(
            f"the target {name} must be number, category or date, but its type {wanted} came."
        )
    if values.ndim > 1:
        raise checks.BadInput(
            f"the target {name} must hold one label a row, but its shape is {values.shape}."
        )
    column = typed(name, values, wanted)
    if column.kind == "sequence":
        raise checks.BadInput(
            f"the target {name} must hold one label a row, but it holds sequences; name another."
        )
    there = ~column.missing
    if not there.any():
        raise checks.BadInput(
            f"the target {name} must hold labels, but it is missing in every row; name another."
        )
    if column.kind in ("number", "date") and not _whole_and_few(column, there, wanted):
        return _numbers(name, column, there, wanted)
    return _classes(name, column, there, wanted)


def _whole_and_few(column: Typed, there: np.ndarray, wanted: str | None) -> bool:
    values = np.unique(column.values[there])
    few = len(values) <= MOST_CLASSES and bool((values == np.round(values)).all())
    return few and wanted is None and column.kind == "number"


def _numbers(name: str, column: Typed, there: np.ndarray, wanted: str | None) -> Labels:
    y = column.values[there].astype(float)
    if y.min() == y.max():
        raise checks.BadInput(
            f"the target {name} must vary, but every label is {plain(y[0])}; there is nothing to "
            f"learn from it."
        )
    what = "days since 1970-01-01" if column.kind == "date" else "a number"
    facts = [("label", f"{name}, {what} ({_why(wanted)}), from {y.min():.4g} to {y.max():.4g}")]
    return Labels(there, y, "regression", (), (*facts, *_lost(there)))


def _classes(name: str, column: Typed, there: np.ndarray, wanted: str | None) -> Labels:
    own = column.values[there]
    numeric = own.dtype.kind == "f"
    found, codes = np.unique(own if numeric else own.astype(str), return_inverse=True)
    if column.kind in ("text", "identifier") or len(found) > MOST_NAMES:
        raise checks.BadInput(
            f"the target {name} must be numbers or at most {MOST_NAMES} classes, but it holds "
            f"{len(found):,} different values in {len(own):,} rows; name another column, or give "
            f"the type number if it is one."
        )
    counts = np.bincount(codes)
    kept = np.flatnonzero(counts > 1)
    if len(found) < 2:
        raise checks.BadInput(
            f"the target {name} must hold at least two classes, but every label is "
            f"{_named(found[0])[:80]!r}; there is nothing to learn from it."
        )
    if len(kept) < 2:
        raise checks.BadInput(
            f"the target {name} must hold two classes with two rows each, one to train and one to "
            f"test on, but {len(own)} rows hold {len(found)} classes; give more rows."
        )
    keep = there.copy()
    keep[there] = np.isin(codes, kept)
    y = np.searchsorted(kept, codes[np.isin(codes, kept)])
    names = tuple(_named(found[i]) for i in kept)
    shares = ", ".join(f"{n[:40]} {c:,}" for n, c in zip(names[:6], counts[kept][:6], strict=True))
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    said = f"{name}, {len(names)} classes ({_why(wanted)}): {shares}{more}"
    single = [_named(each) for each in found[counts == 1]]
    lost = [("classes of one row", f"{listed(single)}: dropped")] if single else []
    facts = (("label", said), *lost, *_lost(there))
    return Labels(keep, y.astype(np.int64), "classification", names, facts)


def _named(value: object) -> str:
    return plain(value) if isinstance(value, float) else printable(str(value))


def _why(wanted: str | None) -> str:
    return "inferred" if wanted is None else "as given"


def _lost(there: np.ndarray) -> list[tuple[str, str]]:
    gone = int(np.count_nonzero(~there))
    return [("rows without a label", f"{gone:,}, dropped")] if gone else []
