"""What every engine shares: the outcome of a cell, what may go wrong on the way, and running it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from attnlens.records import Cell

# One thread a process. With more, batched LAPACK calls can hang, and results change in their last
# bits with the number of threads. XLA_FLAGS do not do it; these must be set before JAX loads.
ONE_THREAD = {"NPROC": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
PRECISION = {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
# LLVM's second level of optimisation instead of its third, which takes up to nine times as long
# over a program that draws random numbers; what comes out is as fast. Last digits may differ, so
# every worker of every engine has it.
COMPILER = "--xla_backend_optimization_level=2"

DTYPES = {"<f8", "<f4", "<i8", "<i4", "|b1"}  # what a result may hold
LARGEST_ARRAY = 900_000_000  # bytes; the store takes values up to 1e9

# A limit for cells that nobody set one for must never stop honest work: a cold compilation on a
# busy machine takes minutes, and a cell's `cost` is a guess that may be ten times too low.
SHORTEST_LIMIT, PATIENCE = 1800.0, 100.0

Kind = Literal[
    "raised", "died", "time limit", "memory", "not a number", "node lost", "slow", "stopped"
]


def worker_environment() -> dict[str, str]:
    """What a process that computes cells is given; flags of the user's own for XLA count too."""
    flags = f"{COMPILER} {os.environ.get('XLA_FLAGS', '')}".strip()
    return {**ONE_THREAD, **PRECISION, "XLA_FLAGS": flags}


class Fault(NamedTuple):
    """Something that went wrong: of what kind, and in words. A later attempt may have gone well."""

    kind: Kind
    words: str


class Outcome(NamedTuple):
    """A cell that has ended: with values, or with the reason why there are none.

    `faults` is everything that went wrong with it, also where another attempt then succeeded.
    `more` says that another outcome waits already, so that both can be kept in one go.

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
    """What a cell may take: seconds (None: a hundred times its cost, at least half an hour) and
    bytes of its worker's memory (None: all that the machine has)."""

    seconds: float | None = None
    memory: int | None = None

    def seconds_for(self, cell: Cell) -> float:
        return self.seconds or max(SHORTEST_LIMIT, PATIENCE * cell.cost)


USUAL = Limits()


def compute(measure: str, arm: str, parameters: Mapping[str, Any], seeds: Any) -> dict[str, Any]:
    """Run a cell's function, "module:function", and return its arrays as NumPy's."""
    module, _, name = measure.partition(":")
    function = getattr(importlib.import_module(module), name)
    values = {key: np.asarray(value) for key, value in function(arm, parameters, seeds).items()}
    for key, value in values.items():
        if value.dtype.newbyteorder("<").str not in DTYPES:
            raise TypeError(f"array {key!r} must hold numbers, but it holds {value.dtype}")
        if value.nbytes > LARGEST_ARRAY:
            raise ValueError(f"array {key!r} has {value.nbytes:,} bytes, over {LARGEST_ARRAY:,}")
    return values


def faults_in(values: Mapping[str, np.ndarray]) -> tuple[Fault, ...]:
    """What is wrong with values that did come: a claim with NaN in them cannot be decided."""
    names = [n for n, v in values.items() if v.dtype.kind == "f" and np.isnan(v).any()]
    return (Fault("not a number", f"NaN in {', '.join(names)}"),) if names else ()
