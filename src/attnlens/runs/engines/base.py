"""What all engines share: outcomes and limits of cells, worker environment, computing a cell."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from attnlens.core.arrays import plain
from attnlens.core.cells import DTYPES, LARGEST_ARRAY, Cell, Fault
from attnlens.core.checks import is_text
from attnlens.core.user_code import reason

# One thread per process. With more, batched LAPACK calls can hang, and results change in their last
# bits with the number of threads. XLA_FLAGS cannot set this; these variables can, if they are set
# before JAX is imported.
ONE_THREAD = {"NPROC": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
PRECISION = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
# LLVM optimisation level 2. Level 3, the default, compiles up to nine times as long for a program
# that draws random numbers, and the program is no faster. Last digits may differ between levels, so
# every worker of every engine uses this one.
COMPILER_FLAG = "--xla_backend_optimization_level=2"
# The default time limit of a cell, in seconds and in multiples of its `cost`. It must never stop a
# cell that makes progress: compilation without a cache on a busy machine takes minutes, and `cost`
# is a guess that may be ten times too low.
SHORTEST_LIMIT, LIMIT_PER_COST = 1800.0, 100.0


def worker_environment() -> dict[str, str]:
    """Environment variables of a worker process; XLA flags of the user come last and win."""
    flags = f"{COMPILER_FLAG} {os.environ.get('XLA_FLAGS', '')}".strip()
    return {**ONE_THREAD, **PRECISION, "XLA_FLAGS": flags}


class Outcome(NamedTuple):
    """The result of computing a cell: its values, or why there are none (`failure`).

    `faults` lists everything that went wrong, also where a later attempt succeeded. `more` is True
    if the engine has another outcome ready, so that both can share a commit.

    >>> cell = Cell("A.mine", "prediction", "mine:measure", {}, (0,), "v1")
    >>> Outcome(cell, None, "the worker died", 0.1).failure
    'the worker died'
    """

    cell: Cell
    values: Mapping[str, np.ndarray] | None
    failure: str | None
    seconds: float
    faults: tuple[Fault, ...] = ()
    more: bool = False


class Limits(NamedTuple):
    """Limits of a cell: seconds (None: a hundred times its cost, at least half an hour) and bytes
    of memory of its worker (None: all memory of the machine)."""

    seconds: float | None = None
    memory: int | None = None

    def seconds_for(self, cell: Cell) -> float:
        return self.seconds or max(SHORTEST_LIMIT, LIMIT_PER_COST * cell.cost)


DEFAULT_LIMITS = Limits()


def compute(measure: str, arm: str, parameters: Mapping[str, Any], seeds: Any) -> dict[str, Any]:
    """Call the function of a cell, "module:function", and return its values as NumPy arrays."""
    module, _, name = measure.partition(":")
    function = getattr(importlib.import_module(module), name)
    try:
        measured = function(arm, parameters, seeds)
    except SystemExit as error:  # it would end the worker without a recorded reason
        raise RuntimeError(reason(error)) from error
    values = {key: plain(f"array {key!r}", value) for key, value in measured.items()}
    for key, value in values.items():
        if not isinstance(key, str) or not is_text(key):
            raise TypeError(f"the name of an array must be text; got {key!r}")
        if value.dtype.newbyteorder("<").str not in DTYPES:
            raise TypeError(f"array {key!r} must hold numbers; got {value.dtype}")
        if value.nbytes > LARGEST_ARRAY:
            raise ValueError(
                f"array {key!r} must have at most {LARGEST_ARRAY:,} bytes; got {value.nbytes:,}"
            )
    return values


@cache
def check_path(path: str) -> None:
    """Raise RuntimeError unless this process follows `path`, the numerical path of a cell."""
    if not path:
        return
    from attnlens.attention.native import libraries

    here = libraries.follow(path)
    if here.key != path:
        raise RuntimeError(f"the key of the cell says {path}, its worker has {here.key} ({here})")


def faults_in(values: Mapping[str, np.ndarray]) -> tuple[Fault, ...]:
    """A fault if values contain NaN: a claim cannot be decided with them."""
    names = [n for n, v in values.items() if v.dtype.kind == "f" and np.isnan(v).any()]
    return (Fault("not a number", f"NaN in {', '.join(names)}"),) if names else ()


def program_key(cell: Cell) -> str:
    """Cells with the same key (the same function and parameters) share their compiled programs.

    Seeds and arms are data of a program, so they are not part of the key.
    """
    return json.dumps([cell.measure, cell.parameters], sort_keys=True)
