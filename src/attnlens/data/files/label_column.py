"""The label column: numbers to predict, or classes.

Strings are classes, and so are whole numbers with few different values (`learning_curve` uses the
same rule), unless the caller gives the type. Rows without a label are dropped. Classes with a
single row are dropped too: they cannot be in the training set and in the test set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attnlens.core import checks
from attnlens.core.labels import are_class_numbers

from .columns import TypedColumn, codes_of, name_list, plain_number, printable, typed_column
from .facts import DropReason, Facts, Remark, RowsDropped

MOST_CLASSES = 100  # with more classes, only a very large data set has enough rows per class


class Labels(NamedTuple):
    """The usable labels of a column, and the rows that have them."""

    keep: np.ndarray  # mask over all rows
    y: np.ndarray  # labels of the rows that are kept
    task: str  # "regression" or "classification"
    classes: tuple[str, ...]
    facts: Facts


def read_labels(name: str, values: np.ndarray, as_type: str | None) -> Labels:
    """The labels in a column, read as the type `as_type`, which is inferred if it is None."""
    if as_type in ("text", "drop"):
        raise checks.BadInput(
            f"the type of the target {name} must be number, category or date; got {as_type}."
        )
    if values.ndim > 1:
        raise checks.BadInput(
            f"the target {name} must hold one label per row; got the shape {values.shape}; name "
            f"another column."
        )
    column = typed_column(name, values, as_type)
    if column.kind == "sequence":
        raise checks.BadInput(
            f"the target {name} must hold one label per row; got sequences; name another column."
        )
    present = ~column.missing
    if not present.any():
        raise checks.BadInput(
            f"the target {name} must hold labels, but it is missing in every row; name another "
            f"column."
        )
    if column.kind in ("number", "date") and not _are_classes(column, present, as_type):
        return _numbers(name, column, present, as_type)
    return _classes(name, column, present, as_type)


def _are_classes(column: TypedColumn, present: np.ndarray, as_type: str | None) -> bool:
    """Whether a column of numbers holds classes.

    It does if the caller gave no type and it has whole numbers with few different values.
    """
    few = are_class_numbers(column.values[present])
    return few and as_type is None and column.kind == "number"


def _numbers(name: str, column: TypedColumn, present: np.ndarray, as_type: str | None) -> Labels:
    y = column.values[present].astype(float)
    if y.min() == y.max():
        raise checks.BadInput(
            f"the target {name} must vary, but every label is {plain_number(y[0])}; name another "
            f"column."
        )
    unit = "days since 1970-01-01" if column.kind == "date" else "a number"
    words = f"{name}, {unit} ({_origin(as_type)}), from {y.min():.4g} to {y.max():.4g}"
    facts = (Remark("label", words), *_unlabelled(present))
    return Labels(present, y, "regression", (), facts)


def _classes(name: str, column: TypedColumn, present: np.ndarray, as_type: str | None) -> Labels:
    values = column.values[present]
    if values.dtype.kind == "f":
        distinct, codes = np.unique(values, return_inverse=True)
    else:
        distinct, codes = codes_of(map(str, values))
    if column.kind in ("text", "identifier") or len(distinct) > MOST_CLASSES:
        raise checks.BadInput(
            f"the target {name} must hold numbers or at most {MOST_CLASSES} classes; got "
            f"{len(distinct):,} different values in {len(values):,} rows; name another column, or "
            f"give the type number if they are numbers."
        )
    counts = np.bincount(codes)
    frequent = np.flatnonzero(counts > 1)
    if len(distinct) < 2:
        raise checks.BadInput(
            f"the target {name} must hold at least two classes, but every label is "
            f"{_class_name(distinct[0])[:80]!r}; name another column."
        )
    if len(frequent) < 2:
        raise checks.BadInput(
            f"the target {name} must hold two classes with two rows each, one row to train and one "
            f"to test; got {len(values)} rows of {len(distinct)} classes; give more rows."
        )
    keep = present.copy()
    keep[present] = np.isin(codes, frequent)
    y = np.searchsorted(frequent, codes[np.isin(codes, frequent)])
    names = tuple(_class_name(distinct[i]) for i in frequent)
    sizes = ", ".join(
        f"{n[:40]} {c:,}" for n, c in zip(names[:6], counts[frequent][:6], strict=True)
    )
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    label = f"{name}, {len(names)} classes ({_origin(as_type)}): {sizes}{more}"
    single = [_class_name(distinct[i]) for i in np.flatnonzero(counts == 1)]
    dropped = [Remark("classes of one row", f"{name_list(single)}: dropped")] if single else []
    facts = (Remark("label", label), *dropped, *_unlabelled(present))
    return Labels(keep, y.astype(np.int64), "classification", names, facts)


def _class_name(value: object) -> str:
    return plain_number(value) if isinstance(value, float) else printable(str(value))


def _origin(as_type: str | None) -> str:
    return "inferred" if as_type is None else "as given"


def _unlabelled(present: np.ndarray) -> list[RowsDropped]:
    count = int(np.count_nonzero(~present))
    return [RowsDropped(DropReason.NO_LABEL, count)] if count else []
