"""A file of yours as data: what `read` makes of it, and the words that say how.

rows        tables; each column becomes a number or indicators (`encoding`)
texts       a column of texts; `embedded` makes tokens of them
tokens      sequences (a list column, or a long table with an id), arrays (n, L, t), and images
            (a folder of IDX files, arrays (n, height, width), columns of pixels) as patches
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnlens import checks

from . import inputs, pictures, series
from .arrays import read_npy, read_npz
from .columns import Table, Typed, check_types, known, listed, printable, typed
from .dataset import Dataset
from .delimited import read_csv
from .encoding import Encoder
from .frames import is_frame, read_frame
from .inputs import Facts, Part
from .labelling import Labels, labels
from .parquet import read_parquet
from .sampling import Request

ROWS = 50_000
LENGTH = 128  # tokens of a sequence that networks see: attention costs their square
FORMATS = {
    b"PAR1": read_parquet, b"\x93NUM": read_npy, b"PK\x03\x04": read_npz, b"PK\x05\x06": read_npz,
}  # fmt: skip
OTHERS = {
    b"\x1f\x8b": "packed with gzip; unpack it",
    b"%PDF": "a PDF; save the table as CSV",
    b"SQLi": "a database; export the table as CSV or Parquet",
    b"\x89HDF": "HDF5; save the table as Parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the table as CSV",
    b"\x80\x04\x95": "a pickle, which could run anything; save it as CSV, Parquet or NPZ",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Loaded:
    """A file as data, with the facts that say how everything in it was treated.

    dataset     as `attnlens.data` knows data sets; labels are NaN where there is no target
    X           (n, p) or (n, L, t); None for texts
    y           numbers, or class numbers with names in `classes`; None without a target
    task        "regression" or "classification"; None without a target
    names       of X's last axis
    sequences   one array a sequence, however long; None where rows are no sequences
    encoder     how columns became numbers, and `columns` what they were: fit it on training rows
                alone where it must not see others

    >>> import pandas as pd
    >>> table = pd.DataFrame({"size": [1.5, 2.0, None, 3.5], "kind": ["a", "b", "a", "b"]})
    >>> loaded = read(table, target="kind")
    >>> loaded.task, loaded.classes, loaded.X.shape
    ('classification', ('a', 'b'), (4, 2))
    """

    dataset: Dataset
    X: np.ndarray | None
    y: np.ndarray | None
    task: str | None
    names: tuple[str, ...]
    classes: tuple[str, ...]
    sequences: list[np.ndarray] | None
    facts: Facts
    encoder: Encoder | None = None
    columns: Mapping[str, Typed] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join([str(self.dataset), *(f"  {name}: {words}" for name, words in self.facts)])


def read(
    path: str | os.PathLike[str] | Any,
    *,
    target: str | None = None,
    text: str | None = None,
    id: str | None = None,
    order: str | None = None,
    columns: Iterable[str] | None = None,
    images: int | None = None,
    types: Mapping[str, str] | None = None,
    drop: Iterable[str] = (),
    missing: str = "fill",
    rows: int = ROWS,
    length: int = LENGTH,
    seed: int = 0,
) -> Loaded:
    """A CSV, Parquet, NPY or NPZ file, a folder of IDX files or a DataFrame as inputs and labels.

    target: the column to predict. text: the column of texts that are the inputs.
    id, order: of a long table, which rows are one sequence, and in what order; without `order` the
        order of the file counts.
    columns, drop: use these only; do not use those.
    images: cut images, or rows of pixels, into square patches of so many pixels a side.
    types: what a column is, where it is not what it looks like: "number", "category", "date",
        "text" or "drop". For the target "number" means regression, "category" classes.
    missing: "fill" (medians, with a column that says so) or "drop" (rows that miss anything).
    rows: larger files are sampled. length: longer sequences are cut for networks.

    Everything that was inferred or done stands in `facts`. Nothing is unpickled.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "houses.csv"
    >>> _ = path.write_text("rooms,heating,price\\n3,gas,21\\n4,oil,26\\n2,gas,15\\n5,oil,33\\n")
    >>> loaded = read(path, target="price", types={"price": "number"})
    >>> loaded.X.shape, loaded.y.tolist()
    ((4, 2), [21.0, 26.0, 15.0, 33.0])
    """
    for name, value, least in (("rows", rows, 1), ("length", length, 1), ("seed", seed, 0)):
        checks.whole(name, value, least)
    checks.one_of("missing", missing, ("fill", "drop"))
    if images is not None:
        checks.whole("images", images, at_least=1)
    if not (is_frame(path) or isinstance(path, str | os.PathLike)):
        raise checks.BadInput(
            f"a path or a DataFrame is read, but a {type(path).__name__} came; for arrays call the "
            f"instruments themselves."
        )
    roles = _roles(target=target, text=text, id=id, order=order)
    if not is_frame(path) and os.path.isdir(path):  # noqa: PTH112 (Path.is_dir may raise)
        folder = Path(path)
        cut, y, classes = pictures.folder(folder, target, images, rows, seed)
        every = Labels(np.ones(len(y), bool), y, "classification", classes, ())
        return _finished(folder.resolve().name, Part("tokens", *cut), every)
    verbatim = {name for name, kind in dict(types or {}).items() if kind in ("category", "text")}
    request = Request(rows, seed, id, frozenset({*verbatim, *roles} - {target}))
    if is_frame(path):
        stem, table = "the DataFrame", read_frame(path, request)
    else:
        stem, table = Path(path).stem, _table(Path(path), request)
    for name, role in roles.items():
        if name in table.unread:
            raise checks.BadInput(
                f"{role} must hold numbers, dates, strings or lists, but {name} holds structures, "
                f"maps or bytes; write it flat."
            )
        known(role, name, table.columns)
    wanted = check_types(types, table.columns)
    kept = _kept(table, roles, wanted, columns, drop)
    if id is not None:
        part, found = _long(table, kept, wanted, (id, order, target), length, missing)
        return _finished(stem, part, found)
    part = _part(table, kept, wanted, text, images, length, filled=missing == "fill")
    if order is not None:
        by = np.argsort(series.ranks(table.columns[order], order), kind="stable")
        part, table = part.take(by), table.take(by)
    part = dataclasses.replace(part, facts=(*table.facts, *part.facts))
    part, table = _without_gaps(part, table, missing)
    found = None if target is None else labels(target, table.columns[target], wanted.get(target))
    return _finished(stem, part, found)


def _table(path: Path, request: Request) -> Table:
    """The file's table, by what its first bytes say it is."""
    try:
        if not path.is_file():
            told = "it is no ordinary file" if path.exists() else "there is no such file"
            raise checks.BadInput(f"{str(path)!r} cannot be read: {told}.")
        with path.open("rb") as file:
            start = file.read(8)
    except (OSError, ValueError) as error:
        if isinstance(error, checks.BadInput):
            raise
        told = getattr(error, "strerror", None) or error
        raise checks.BadInput(f"{str(path)[:200]!r} cannot be read: {told}.") from error
    for mark, what in OTHERS.items():
        if start.startswith(mark):
            raise checks.BadInput(
                f"{path} must be CSV, Parquet, NPY, NPZ or a folder of IDX files, but it is {what}."
            )
    return FORMATS.get(start[:4], read_csv)(path, request)


def _roles(**given: str | None) -> dict[str, str]:
    """Column names by what they are to be; no column may be two things."""
    roles: dict[str, str] = {}
    for role, name in given.items():
        if name is None:
            continue
        if name in roles:
            raise checks.BadInput(
                f"a column can have one part only, but {name!r} is named as {roles[name]} and as "
                f"{role}; name another."
            )
        roles[name] = role
    return roles


def _kept(
    table: Table,
    roles: Mapping[str, str],
    wanted: Mapping[str, str],
    columns: Iterable[str] | None,
    drop: Iterable[str],
) -> dict[str, np.ndarray]:
    """The columns that are inputs, as they were read."""
    names = list(table.columns)
    only = names if columns is None else [known("columns", name, names) for name in columns]
    gone = {known("drop", name, names) for name in drop}
    gone |= {name for name, kind in wanted.items() if kind == "drop"} | set(roles)
    kept = {name: table.columns[name] for name in only if name not in gone}
    if not kept and "text" not in roles.values():
        raise checks.BadInput(
            f"there must be a column to learn from, but {listed(names)} are all taken or dropped; "
            f"drop fewer."
        )
    return kept


def _part(
    table: Table,
    kept: dict[str, np.ndarray],
    wanted: Mapping[str, str],
    text: str | None,
    images: int | None,
    length: int,
    filled: bool,
) -> Part:
    """Inputs of the kind that the columns are, or are said to be."""
    if text is not None:
        return inputs.of_texts(text, table.columns[text], kept)
    if any(values.ndim > 1 for values in kept.values()):
        return inputs.of_array(kept, images)
    if lists := inputs.list_columns(kept):
        return inputs.of_lists(lists, kept, wanted, length)
    features = {name: typed(name, values, wanted.get(name)) for name, values in kept.items()}
    if images is not None:
        return Part("tokens", *pictures.of_columns(features, images))
    return inputs.of_rows(features, table, wanted, filled)


def _long(
    table: Table,
    kept: dict[str, np.ndarray],
    wanted: Mapping[str, str],
    roles: tuple[str, str | None, str | None],
    length: int,
    missing: str,
) -> tuple[Part, Labels | None]:
    """A long table: rows with one id are a sequence, and have one label."""
    id, order, target = roles
    if wide := [name for name, values in kept.items() if values.ndim > 1]:
        raise checks.BadInput(
            f"a long table must have one number a row in each column, but {wide[0]} has more; drop "
            f"it, or leave the id out."
        )
    features = {name: typed(name, values, wanted.get(name)) for name, values in kept.items()}
    bad = np.any([column.missing for column in features.values()], axis=0)
    if missing == "drop" and bad.any():
        if bad.all():
            raise checks.BadInput(f"no row is left: all {len(bad):,} are with a missing value.")
        table = table.take(~bad)
        fact = ("rows with a missing value", f"{bad.sum():,}, dropped")
        table = table._replace(facts=(*table.facts, fact))
        features = {n: each._replace(values=each.values[~bad]) for n, each in features.items()}
    ordered = None if order is None else table.columns[order]
    rows = series.long(table.columns[id], id, ordered, order)
    part = inputs.of_long(table, features, wanted, rows, length)
    part = dataclasses.replace(part, facts=(*table.facts, *part.facts))
    if target is None:
        return part, None
    values = rows.split(table.columns[target])
    for name, own in zip(rows.ids, values, strict=True):
        if any(not _same(each, own[0]) for each in own[1:]):
            raise checks.BadInput(
                f"the target {target} must be the same in all rows of one {id}, but {id} "
                f"{name[:40]!r} has several; name a label of the whole sequence."
            )
    first = np.array([own[0] for own in values], table.columns[target].dtype)
    return part, labels(target, first, wanted.get(target))


def _same(one: Any, two: Any) -> bool:
    return one == two or (one != one and two != two)  # NaN is the same as NaN


def _without_gaps(part: Part, table: Table, missing: str) -> tuple[Part, Table]:
    """Rows without text or tokens are dropped, and, if wanted, those that miss anything."""
    bad, what = np.zeros(len(table.rows), bool), "with a missing value"
    if part.kind == "texts":
        bad, what = np.array([not each for each in part.inputs]), "without a text"
    elif part.sequences is not None:
        bad, what = np.array([not len(each) for each in part.sequences]), "with an empty sequence"
    elif missing == "drop":
        for column in part.raw.values():
            bad |= column.missing
    if not bad.any():
        return part, table
    if bad.all():
        raise checks.BadInput(f"no row is left: all {len(bad):,} are {what}.")
    keep = np.flatnonzero(~bad)
    part, table = part.take(keep), table.take(keep)
    facts = (*part.facts, (f"rows {what}", f"{bad.sum():,}, dropped"))
    if part.encoder is not None:
        encoder = Encoder.fit(part.raw)
        if not encoder.features:
            raise checks.BadInput("no column varies in the rows that miss nothing; fill instead.")
        made = {"encoder": encoder, "inputs": encoder.apply(part.raw), "names": encoder.names}
        part = dataclasses.replace(part, **made)
    return dataclasses.replace(part, facts=facts), table


def _finished(stem: str, part: Part, found: Labels | None) -> Loaded:
    facts, y, task, classes = part.facts, None, None, ()
    if found is not None:
        part, task, classes = part.take(np.flatnonzero(found.keep)), found.task, found.classes
        part, y, said = _once(part, found.y)
        facts = (*facts, *found.facts, *said)
    name = printable(stem) or "data"
    told = np.full(len(part.inputs), np.nan) if y is None else y
    dataset = Dataset(name, part.kind, part.inputs, told, classes, f"the file {name}", "yours")
    X = None if isinstance(part.inputs, tuple) else part.inputs
    return Loaded(
        dataset, X, y, task, part.names, classes, part.sequences, facts, part.encoder, part.raw
    )


def _once(part: Part, y: np.ndarray) -> tuple[Part, np.ndarray, Facts]:
    """Rows that are copies of another, label and all, would stand in training and test at once.

    They are dropped, unless about as many would agree by chance (see `_by_chance`).
    """
    if part.codes is None:
        keys = Dataset("", part.kind, part.inputs, y, (), "", "").digests
    else:
        keys = [row.tobytes() for row in part.codes]
    first: dict[tuple[bytes, float], int] = {}
    for row, key in enumerate(zip(keys, y.tolist(), strict=True)):
        first.setdefault(key, row)
    copies = len(y) - len(first)
    if not copies:
        return part, y, ()
    kept = np.array(sorted(first.values()))
    if part.codes is not None and _by_chance(part.codes[kept], len(y)) >= copies / 2:
        told = f"{copies:,} rows, kept: about as many agree by chance, with so few values"
        return part, y, (("copies of other rows", told),)
    return part.take(kept), y[kept], (("copies of other rows", f"{copies:,}, dropped"),)


def _by_chance(codes: np.ndarray, rows: int) -> float:
    """How many pairs of so many rows would agree if columns were independent.

    Two rows agree in a column with probability Σ_v n_v (n_v − 1) / (n (n − 1)), n_v of the n
    different rows having the value v; the product over columns times the number of pairs.
    """
    n, chance = len(codes), rows * (rows - 1) / 2
    for column in codes.T:
        counts = np.bincount(column).astype(float)
        chance *= float(counts @ (counts - 1)) / max(n * (n - 1), 1)
    return chance
