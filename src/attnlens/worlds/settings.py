"""Checks of the settings of a world, which are stored as NumPy float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlens.core import arrays
from attnlens.core.checks import BadInput

Numbers = float | int | Sequence[Any] | np.ndarray


def vector(name: str, values: Numbers, dim: int) -> np.ndarray:
    """`values` as `dim` finite numbers; one number is repeated."""
    array = _numbers(name, values)
    if array.shape not in ((), (dim,)):
        raise BadInput(f"{name} must be one number or {dim} of them; got shape {array.shape}.")
    return np.broadcast_to(array, (dim,)).copy()


def positives(name: str, values: Numbers, dim: int) -> np.ndarray:
    """`values` as `dim` numbers above zero; one number is repeated."""
    array = vector(name, values, dim)
    if not (array > 0).all():
        raise BadInput(f"{name} must be above 0 everywhere; got {array.min():g}.")
    return array


def table(name: str, values: Numbers) -> np.ndarray:
    """`values` as a matrix of finite numbers with at least one row and one column."""
    array = _numbers(name, values)
    if array.ndim != 2 or array.size == 0:
        raise BadInput(
            f"{name} must be a table of numbers, one row per class; got shape {array.shape}."
        )
    return array


def distribution(name: str, values: Numbers) -> np.ndarray:
    """`values` as probabilities above zero that sum to one along the last axis."""
    array = _numbers(name, values)
    if not (array > 0).all() or not np.allclose(array.sum(-1), 1, rtol=0, atol=1e-6):
        raise BadInput(
            f"{name} must be above 0 and sum to 1; got the smallest {array.min():g} and a sum of "
            f"{np.ravel(array.sum(-1))[0]:g}; replace a probability of 0 by a small number."
        )
    return array / array.sum(-1, keepdims=True)


def covariance(name: str, values: Numbers, dim: int, singular: bool = False) -> np.ndarray:
    """`values` as a symmetric positive definite matrix (semidefinite if `singular`)."""
    array = _numbers(name, values)
    if array.shape != (dim, dim) or not np.allclose(array, array.T, rtol=1e-10, atol=0):
        raise BadInput(
            f"{name} must be a symmetric {dim} × {dim} matrix; got shape {array.shape}"
            + ("." if array.shape != (dim, dim) else " and it is not symmetric.")
        )
    spectrum = np.linalg.eigvalsh(array)
    # The error of eigvalsh is about dim·ε·‖A‖: smaller eigenvalues cannot be distinguished from 0.
    floor = dim * np.finfo(float).eps * np.abs(spectrum).max()
    if spectrum[0] < (-floor if singular else floor):
        raise BadInput(
            f"{name} must be positive {'semi' if singular else ''}definite; got the smallest "
            f"eigenvalue {spectrum[0]:g}; add a small number to the diagonal."
        )
    return (array + array.T) / 2


def square_root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric root of a positive semidefinite matrix."""
    spectrum, directions = np.linalg.eigh(matrix)
    return (directions * np.sqrt(np.maximum(spectrum, 0))) @ directions.T


def _numbers(name: str, values: Any) -> np.ndarray:
    array = arrays.numbers(name, values)
    if not np.isfinite(array).all():
        raise BadInput(f"{name} must be finite; got {values!r}.")
    return array
