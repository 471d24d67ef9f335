"""JSON files of stored runs: rounded numbers, no spaces, one line per claim."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DIGITS = 6  # significant digits of numbers in figures; a pixel is a thousandth of an axis


def rounded(content: Any) -> Any:
    """`content` with every number rounded to `DIGITS` significant digits."""
    if isinstance(content, float):
        return float(f"{content:.{DIGITS}g}")
    if isinstance(content, dict):
        return {name: rounded(part) for name, part in content.items()}
    return [rounded(part) for part in content] if isinstance(content, list) else content


def compact(content: Any) -> str:
    """`content` as JSON on one line, without spaces."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def write_claims(file: Path, runs: Any, claims: Mapping[str, Any]) -> None:
    """Write `{"runs": …, "claims": {…}}`, one line per claim, in alphabetical order."""
    lines = ",\n".join(f"{json.dumps(name)}: {compact(claims[name])}" for name in sorted(claims))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{{"runs": {compact(runs)},\n"claims": {{\n{lines}\n}}}}\n', "utf-8")
