"""Labels: tests whether a column of numbers holds classes, and whether a label is missing."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_CLASSES = 20  # a column with more distinct whole numbers has measurements, not classes


def are_class_numbers(values: np.ndarray) -> bool:
    """Whether all numbers are whole and few are distinct, so that they name classes.

    >>> are_class_numbers(np.array([0.0, 1.0, 1.0])), are_class_numbers(np.array([0.5, 1.0]))
    (True, False)
    """
    return len(np.unique(values)) <= MOST_CLASSES and bool((values == np.round(values)).all())


def is_missing(value: Any) -> bool:
    """Whether an object stands for a missing value: None, NaN, NaT or NA of pandas.

    >>> is_missing(None), is_missing(float("nan")), is_missing("nan")
    (True, True, False)
    """
    try:
        return value is None or value is np.ma.masked or bool(value != value)
    except TypeError:  # NA of pandas is neither true nor false
        return True
    except ValueError:  # the comparison returned an array: `value` is not a scalar
        return False
