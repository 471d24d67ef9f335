"""Distances between networks, and merging of stationary points that are the same network.

A network's `units()` returns what its function depends on: a vector shared by all hidden units and
one row per unit. Reparametrisations (query–key, value–head) leave both unchanged, and hidden units
may be in any order, so the distance of two networks is

    d² = ‖shared − shared'‖² + min over permutations π of Σ_u ‖unit_u − unit'_π(u)‖²

where the minimum is an assignment problem. Networks without `units()` are compared by their
parameters.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

# Losses that differ by less than this count as equal: if the lowest loss is zero, a point with a
# gradient norm of 1e−8 has a loss of about (1e−8)²/curvature.
ZERO = 1e-12


def distance(
    shared: np.ndarray, units: np.ndarray, other_shared: np.ndarray, other_units: np.ndarray
) -> float:
    """The distance modulo symmetries, relative to the first network's norm if that exceeds 1."""
    squared = float(np.sum((shared - other_shared) ** 2))
    if units.size:
        cost = cdist(units, other_units, "sqeuclidean")
        squared += float(cost[linear_sum_assignment(cost)].sum())
    size = np.sqrt(sum(float(np.sum(part**2)) for part in (shared, units)))
    return float(np.sqrt(squared) / max(size, 1.0))


def groups(
    losses: np.ndarray, shared: np.ndarray, units: np.ndarray, within: float
) -> list[list[int]]:
    """Indices of points in groups of equal points, in order of increasing loss.

    A point belongs to a group if its loss agrees with the loss of the group's first point to a
    relative tolerance of `within`, and `distance` between the two is at most `within`. So points of
    equal loss that are far apart are in different groups.
    """
    merged: list[list[int]] = []
    for i in np.argsort(losses, kind="stable"):
        for group in merged:
            j = group[0]
            close = abs(losses[i] - losses[j]) <= within * abs(losses[j]) + ZERO
            if close and distance(shared[i], units[i], shared[j], units[j]) <= within:
                group.append(int(i))
                break
        else:
            merged.append([int(i)])
    return merged
