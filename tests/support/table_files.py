"""Small CSV files for tests, and the facts that `read` reports about them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnlens.data import Loaded


def write(path: Path, rows: Iterable[Any], separator: str = ",", encoding: str = "utf-8") -> Path:
    """Write rows as a CSV file, with the header as first row; return its path."""
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=separator).writerows(rows)
    path.write_bytes(buffer.getvalue().encode(encoding))
    return path


def write_columns(folder: Path, **columns: Any) -> Path:
    """Write columns as the CSV file t.csv; return its path."""
    return write(folder / "t.csv", [list(columns), *zip(*columns.values(), strict=True)])


def fact(loaded: Loaded, name: str) -> str:
    """The description of the fact `name`."""
    return dict(loaded.facts)[name]
