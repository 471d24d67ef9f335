"""The stored stability of the shipped claims: their verdicts on disjoint ranges of seeds.

`stability.json` is written by `tools/lens_stability.py` from folders of `attnlens replicate`. It
describes the claims as they were when it was written; `docs/runs/replication.json` names the
versions and holds the estimates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("stability.json")


@dataclass(frozen=True)
class Stability:
    """The verdicts of one claim, and of its controls, on disjoint ranges of seeds."""

    profile: str
    seed_ranges: tuple[int, ...]
    verdicts: tuple[str, ...]  # one per range
    controls: tuple[str, ...]  # one per range, of all controls together; "refuted" is expected
    pooled: str  # the verdict from the cells of all ranges together


@cache
def stored_stability(file: Path = FILE) -> dict[str, Stability]:
    """The stored stability by the name of the claim; claims of other packages have none.

    >>> stored_stability(Path("no file"))
    {}
    """
    if not file.is_file():
        return {}
    return {
        name: Stability(
            kept["profile"],
            tuple(kept["seed_ranges"]),
            tuple(kept["verdicts"]),
            tuple(kept["controls"]),
            kept["pooled"],
        )
        for name, kept in json.loads(file.read_text("utf-8"))["claims"].items()
    }
