"""Which parameters are the same network, and merging stationary points that are.

A network tells, with `units()`, what its function depends on: a vector shared by all hidden units
and a row for each unit. Reparametrisations (query–key, value–head) leave both unchanged, and hidden
units may stand in any order, so the distance of two networks is

    d² = ‖shared − shared'‖² + min over permutations π of Σ_u ‖unit_u − unit'_π(u)‖²

whose minimum is an assignment problem. A network without `units()` is compared by its parameters.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

ZERO = 1e-12  # a gradient of 1e−8 leaves a loss of zero at (1e−8)²/curvature; below this it is none


def distance(
    shared: np.ndarray, units: np.ndarray, other_shared: np.ndarray, other_units: np.ndarray
) -> float:
    """The distance modulo symmetries, relative to the first one's size where that is above one."""
    squared = float(np.sum((shared - other_shared) ** 2))
    if units.size:
        cost = cdist(units, other_units, "sqeuclidean")
        squared += float(cost[linear_sum_assignment(cost)].sum())
    size = np.sqrt(sum(float(np.sum(part**2)) for part in (shared, units)))
    return float(np.sqrt(squared) / max(size, 1.0))


def groups(
    losses: np.ndarray, shared: np.ndarray, units: np.ndarray, within: float
) -> list[list[int]]:
    """Indices of points that are the same, each group led by its first; lowest loss first.

    Two points are the same when their losses agree to a relative `within` and their distance is at
    most that: points of equal loss far apart stay two.
    """
    found: list[list[int]] = []
    for i in np.argsort(losses, kind="stable"):
        for group in found:
            j = group[0]
            close = abs(losses[i] - losses[j]) <= within * abs(losses[j]) + ZERO
            if close and distance(shared[i], units[i], shared[j], units[j]) <= within:
                group.append(int(i))
                break
        else:
            found.append([int(i)])
    return found
