"""The unit of work, the kinds of faults, and the arrays that a measurement may return."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

DTYPES = {"<f8", "<f4", "<i8", "<i4", "|b1"}  # an array in a result must have one of these dtypes
LARGEST_ARRAY = 900_000_000  # bytes; SQLite stores values of up to 1e9 bytes

FaultKind = Literal[
    "raised",
    "died",
    "time limit",
    "memory",
    "not a number",
    "node lost",
    "slow",
    "stopped",
    "damaged",
]


@dataclass(frozen=True)
class Cell:
    """One unit of work. A finished cell is stored and never computed again.

    `measure` names the function that computes it, "module:function"; it is called as
    measure(arm, parameters, seeds) and returns named arrays. All `seeds` of a cell are computed
    in one vmapped call, so no result depends on the number of workers. `code` is the version of
    the source code behind `measure`. `cost` is a rough number of seconds, used for estimates
    only; it is not part of the key. `path` says which parts are computed by native code and which
    by XLA (`NumericalPath.key`); it is empty if `measure` cannot reach native code.

    >>> cell = Cell("A.mine", "prediction", "mine:measure", {"length": 16}, (0, 1), code="v1")
    >>> cell.key == Cell("A.mine", "prediction", "mine:measure", {"length": 16}, (0, 1), "v1").key
    True
    """

    claim: str
    arm: str
    measure: str
    parameters: Mapping[str, Any]
    seeds: tuple[int, ...]
    code: str
    cost: float = field(default=1.0, compare=False)
    path: str = ""

    @cached_property
    def key(self) -> str:
        """A hash of everything that determines the result."""
        content = [self.claim, self.arm, self.measure, self.parameters, self.seeds, self.code]
        content += [self.path] if self.path else []
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


class Fault(NamedTuple):
    """The failure of one attempt to compute a cell, in `words`; a later attempt may succeed."""

    kind: FaultKind
    words: str
