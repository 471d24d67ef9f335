"""Columns of numbers that hold class labels."""

from __future__ import annotations

import numpy as np

MOST_CLASSES = 20  # whole numbers with more distinct values than this are measurements


def are_class_numbers(values: np.ndarray) -> bool:
    """Whether all numbers are whole and few are distinct, so that they name classes.

    >>> are_class_numbers(np.array([0.0, 1.0, 1.0])), are_class_numbers(np.array([0.5, 1.0]))
    (True, False)
    """
    return len(np.unique(values)) <= MOST_CLASSES and bool((values == np.round(values)).all())
