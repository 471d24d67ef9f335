"""What every engine shares: the outcome of a cell, the environment it runs in, and running it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from attnlens.records import Cell

# One thread a process. With more, batched LAPACK calls can hang, and results change in their last
# bits with the number of threads. XLA_FLAGS do not do it; these must be set before JAX loads.
ONE_THREAD = {"NPROC": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
PRECISION = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}


class Outcome(NamedTuple):
    """A cell that has ended: with values, or with the reason why there are none.

    >>> cell = Cell("A.mine", "prediction", "mine:measure", {}, (0,), "v1")
    >>> Outcome(cell, None, "the worker died", 0.1).failure
    'the worker died'
    """

    cell: Cell
    values: Mapping[str, np.ndarray] | None
    failure: str | None
    seconds: float


def compute(measure: str, arm: str, parameters: Mapping[str, Any], seeds: Any) -> dict[str, Any]:
    """Run a cell's function, "module:function", and return its arrays as NumPy's."""
    module, _, name = measure.partition(":")
    function = getattr(importlib.import_module(module), name)
    values = {key: np.asarray(value) for key, value in function(arm, parameters, seeds).items()}
    for key, value in values.items():
        if value.dtype.kind not in "fib":
            raise TypeError(f"array {key!r} must hold numbers, but it holds {value.dtype}")
    return values
