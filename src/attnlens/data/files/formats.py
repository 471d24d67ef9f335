"""Reads a table from a file, in a format that is recognised by the first bytes of the file."""

from __future__ import annotations

from pathlib import Path

from attnlens.core import checks

from .arrays import read_npy, read_npz
from .columns import Table
from .delimited import read_csv
from .parquet import read_parquet
from .sampling import Request

# Maps the first four bytes of a file to its reader; all other files are read as CSV.
FORMATS = {
    b"PAR1": read_parquet,
    b"\x93NUM": read_npy,
    b"PK\x03\x04": read_npz,
    b"PK\x05\x06": read_npz,
}
# Maps the first bytes of a file in an unsupported format to what the error message says about it.
UNSUPPORTED = {
    b"\x1f\x8b": "a gzip file; unpack it",
    b"%PDF": "a PDF; save the table as CSV",
    b"SQLi": "a database; export the table as CSV or Parquet",
    b"\x89HDF": "HDF5; save the table as Parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the table as CSV",
    b"\x80\x04\x95": "a pickle, which could run any code; save it as CSV, Parquet or NPZ",
}


def read_table(path: Path, request: Request) -> Table:
    """The table in a file, whose format is recognised by its first bytes."""
    try:
        if not path.is_file():
            reason = "it is not a regular file" if path.exists() else "there is no such file"
            raise checks.BadInput(f"{str(path)!r} cannot be read: {reason}.")
        with path.open("rb") as file:
            start = file.read(8)
    except (OSError, ValueError) as error:
        if isinstance(error, checks.BadInput):
            raise
        reason = getattr(error, "strerror", None) or error
        raise checks.BadInput(f"{str(path)[:200]!r} cannot be read: {reason}.") from error
    for mark, advice in UNSUPPORTED.items():
        if start.startswith(mark):
            raise checks.BadInput(
                f"{path} must be CSV, Parquet, NPY, NPZ or a folder of IDX files; got {advice}."
            )
    reader = FORMATS.get(start[:4], read_csv)
    if reader is not read_csv and (request.separator or request.decimal):
        raise checks.BadInput(
            f"separator and decimal belong to CSV files; got {path}, which is another format; "
            f"leave them out."
        )
    return reader(path, request)
