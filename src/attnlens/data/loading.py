"""A file of yours as data: what `read` makes of it, and the words that say how.

    rows        tables; each feature becomes a number or indicators (`encoding`)
    texts       a column of texts; `embedded` makes tokens of them
    tokens      sequences (a list column, or a long table with an id), arrays (n, L, t), patches
    images      a folder of IDX files, arrays (n, height, width) or columns of pixels, as patches
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from attnlens import checks

from . import pictures, series
from .arrays import read_npy, read_npz
from .columns import Table, Typed, check_types, known, listed, typed
from .dataset import Dataset
from .delimited import read_csv
from .encoding import Encoder
from .labelling import Labels, labels
from .parquet import read_parquet
from .sampling import Request

ROWS = 50_000
LENGTH = 128  # tokens of a sequence that networks see: attention costs their square
FORMATS = {b"PAR1": read_parquet, b"\x93NUM": read_npy, b"PK\x03\x04": read_npz, b"PK\x05\x06": read_npz}
OTHERS = {
    b"\x1f\x8b": "packed with gzip; unpack it",
    b"%PDF": "a PDF; save the table as CSV",
    b"SQLi": "a database; export the table as CSV or Parquet",
    b"\x89HDF": "HDF5; save the table as Parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the table as CSV",
    b"\x80\x04\x95": "a pickle, which could run anything; save it as CSV, Parquet or NPZ",
}  # fmt: skip

Facts = tuple[tuple[str, str], ...]


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


@dataclasses.dataclass(frozen=True)
class _Part:
    """Inputs of one kind, before labels and duplicates."""

    kind: str
    inputs: np.ndarray | tuple[str, ...]
    names: tuple[str, ...]
    facts: Facts
    sequences: list[np.ndarray] | None = None
    encoder: Encoder | None = None
    columns: Mapping[str, Typed] = dataclasses.field(default_factory=dict)

    def take(self, rows: np.ndarray) -> _Part:
        return dataclasses.replace(
            self,
            inputs=tuple(self.inputs[i] for i in rows) if self.kind == "texts" else self.inputs[rows],
            sequences=self.sequences and [self.sequences[i] for i in rows],
            columns={name: each._replace(values=each.values[rows])
                     for name, each in self.columns.items()},
        )  # fmt: skip


def read(
    path: str | os.PathLike[str],
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
    """A CSV, Parquet, NPY or NPZ file, or a folder of IDX files, as inputs and labels.

    target: the column to predict. text: the column of texts that are the inputs.
    id, order: of a long table, which rows are one sequence, and in what order; without `order` the
        order of the file counts.
    columns, drop: use these only; do not use those.
    images: cut rows of pixels, or images, into square patches of this many pixels a side.
    types: what a column is, where it is not what it looks like: "number", "category", "date",
        "text" or "drop". For the target "number" means regression, "category" classes.
    missing: "fill" (medians, with a column that says so) or "drop" (rows that miss anything).
    rows: larger files are sampled. length: longer sequences are cut for networks.

    Everything that was inferred or done stands in `facts`. Nothing is unpickled.
    """
    path = Path(path)
    checks.whole("rows", rows, at_least=1)
    checks.whole("length", length, at_least=1)
    checks.whole("seed", seed)
    checks.one_of("missing", missing, ("fill", "drop"))
    if images is not None:
        checks.whole("images", images, at_least=1)
    if path.is_dir():
        part, y, classes = pictures.folder(path, target, images, rows, seed)
        found = Labels(np.ones(len(y), bool), y, "classification", classes, ())
        return _finished(path, _Part("tokens", *part), found)
    roles = _roles(target=target, text=text, id=id, order=order)
    categories = {name for name, kind in dict(types or {}).items() if kind in ("category", "text")}
    request = Request(rows, seed, id, frozenset({*categories, *roles} - {target}))
    table = _table(path, request)
    for name, role in roles.items():
        known(role, name, table.columns)
    wanted = check_types(types, table.columns)
    kept = _kept(table, roles, wanted, columns, drop)
    if text is not None:
        part = _texts(text, table.columns[text], kept)
    elif id is None and any(values.ndim > 1 for values in kept.values()):
        part = _arrays(kept, images)
    elif id is None and (lists := _lists(kept)):
        part = _sequences(lists, kept, wanted, length)
    else:
        features = {name: typed(name, values, wanted.get(name)) for name, values in kept.items()}
        if id is not None:
            return _long(path, table, features, wanted, (id, order, target), length)
        if images is not None:
            part = _Part("tokens", *pictures.of_columns(features, images))
        else:
            part = _rows(features, table, wanted)
        if order is not None:
            table = table.take(by := np.argsort(series.ranks(table.columns[order], order), kind="stable"))
            part = part.take(by)
    part = dataclasses.replace(part, facts=(*table.facts, *part.facts))
    part, table = _without_gaps(part, table, missing)
    found = None if target is None else labels(target, table.columns[target], wanted.get(target))
    return _finished(path, part, found)


def _table(path: Path, request: Request) -> Table:
    """The file's table, by what its first bytes say it is."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise checks.BadInput(f"{str(path)!r} cannot be read: {told}.") from error
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


# -- kinds of inputs -------------------------------------------------------------------------------


def _texts(name: str, values: np.ndarray, others: Mapping[str, np.ndarray]) -> _Part:
    if values.dtype != object or any(isinstance(value, np.ndarray) for value in values):
        raise checks.BadInput(f"text must name a column of texts, but {name} holds numbers.")
    words = sum(len(value.split()) for value in values if value) / max(len(values), 1)
    facts = [("texts", f"{name}, {words:.3g} words on average")]
    if others:
        facts.append(("not used beside texts", listed(list(others))))
    column = {name: Typed("text", values)}
    return _Part("texts", tuple(v or "" for v in values), (name,), tuple(facts), columns=column)


def _arrays(kept: Mapping[str, np.ndarray], images: int | None) -> _Part:
    if len(kept) > 1:
        raise checks.BadInput(
            f"an array of tokens or images must be the only input, but there are {listed([*kept])}; "
            f"drop the others."
        )
    ((name, values),) = kept.items()
    if values.ndim != 3:
        raise checks.BadInput(
            f"{name} must have the shape (n, p), (n, tokens, size) or (n, height, width), but "
            f"{values.shape} came; reshape it."
        )
    gone = ~np.isfinite(values)
    facts: Facts = ()
    if gone.any():
        values = np.where(gone, np.median(values[~gone]) if (~gone).any() else 0.0, values)
        facts = (("missing values", f"{gone.sum():,} in {name}, filled with its median"),)
    if images is not None:
        tokens, names, said = pictures.cut(values, images)
        return _Part("tokens", tokens, names, (*facts, *said))
    names = tuple(f"{name} {i}" for i in range(values.shape[2]))
    said = ("tokens", f"{name}: {values.shape[1]} a row, vectors of {values.shape[2]} numbers")
    return _Part("tokens", values, names, (*facts, said), sequences=list(values))


def _lists(kept: Mapping[str, np.ndarray]) -> list[str]:
    return [name for name, values in kept.items()
            if values.dtype == object and any(isinstance(v, np.ndarray) for v in values)]  # fmt: skip


def _sequences(
    lists: list[str], kept: Mapping[str, np.ndarray], wanted: Mapping[str, str], length: int
) -> _Part:
    if len(lists) > 1:
        raise checks.BadInput(
            f"one column may hold the sequences, but {listed(lists)} do; drop all but one."
        )
    name = lists[0]
    column = typed(name, kept[name], wanted.get(name))
    tokens = series.of_lists(name, column)
    vectors, facts = series.padded(tokens.vectors, length)
    if others := [each for each in kept if each != name]:
        facts = (*facts, ("not used beside sequences", listed(others)))
    return _Part("tokens", vectors, tokens.names, (*tokens.facts, *facts), tokens.sequences)


def _rows(features: dict[str, Typed], table: Table, wanted: Mapping[str, str]) -> _Part:
    used, reasons = _usable(features, table, wanted)
    encoder = Encoder.fit(used)
    for name in encoder.dropped:
        empty = used[name].missing.all()
        reasons[name] = "missing in every row" if empty else "constant, or every value rare"
    if not encoder.features:
        told = "; ".join(f"{name}: {why}" for name, why in [*reasons.items()][:4])
        raise checks.BadInput(f"no column is left to learn from ({told}); give other types.")
    used = {feature.name: used[feature.name] for feature in encoder.features}
    facts = _told(used, encoder, reasons)
    return _Part("rows", encoder.apply(used), encoder.names, facts, None, encoder, used)


def _usable(
    features: dict[str, Typed], table: Table, wanted: Mapping[str, str]
) -> tuple[dict[str, Typed], dict[str, str]]:
    """Columns that can become numbers, and why the others cannot."""
    used, reasons = {}, {}
    for name, column in features.items():
        if column.kind == "identifier":
            reasons[name] = "an identifier, different in most rows"
        elif column.kind == "text":
            reasons[name] = "texts, which can be the inputs instead (text)"
        elif name not in wanted and _counts(column, table.rows):
            reasons[name] = "the number of the row"
        else:
            used[name] = column
    return used, reasons


def _counts(column: Typed, rows: np.ndarray) -> bool:
    """Whether a column counts the rows of the file, as an index does that was written with it."""
    return column.kind == "number" and len(rows) > 2 and np.ptp(column.values - rows) == 0


def _told(used: Mapping[str, Typed], encoder: Encoder, reasons: Mapping[str, str]) -> Facts:
    facts = []
    for kind, words in (("number", "numbers"), ("date", "dates"), ("category", "categories")):
        own = [name for name, column in used.items() if column.kind == kind]
        notes = [f"{name} {used[name].note}" for name in own if used[name].note]
        said = listed(own) + (f" ({'; '.join(notes[:4])})" if notes else "")
        if kind == "date":
            said += "; as days since 1970-01-01"
        if kind == "category":
            merged = [each.name for each in encoder.features if each.others]
            said += "; an indicator for each" + (
                f", rare ones of {listed(merged)} as one" if merged else ""
            )
        if own:
            facts.append((words, said))
    if reasons:
        told = "; ".join(f"{name} ({why})" for name, why in [*reasons.items()][:6])
        more = f"; and {len(reasons) - 6} more" if len(reasons) > 6 else ""
        facts.append(("left out", told + more))
    gaps = {name: int(column.missing.sum()) for name, column in used.items()}
    if any(gaps.values()):
        own = [f"{name} {count:,}" for name, count in gaps.items() if count]
        filled = "numbers filled with the median and flagged, categories as one of their own"
        facts.append(("missing values", f"{listed(own)}; {filled}"))
    facts.append(("encoding", "from all rows that were read, without their labels"))
    return tuple(facts)


def _long(
    path: Path,
    table: Table,
    features: dict[str, Typed],
    wanted: Mapping[str, str],
    roles: tuple[str, str | None, str | None],
    length: int,
) -> Loaded:
    """A long table: rows with one id are a sequence, and have one label."""
    id, order, target = roles
    ordered = None if order is None else table.columns[order]
    rows = series.long(table.columns[id], id, ordered, order)
    used, reasons = _usable(features, table, wanted)
    tokens, encoder = series.of_columns(used, rows)
    reasons |= {name: "constant" for name in encoder.dropped}
    kept = {feature.name: used[feature.name] for feature in encoder.features}
    vectors, said = series.padded(tokens.vectors, length)
    facts = (*table.facts, *_told(kept, encoder, reasons), *said)
    part = _Part("tokens", vectors, tokens.names, facts, tokens.sequences, encoder)
    if target is None:
        return _finished(path, part, None)
    values = rows.split(table.columns[target])
    for name, own in zip(rows.ids, values, strict=True):
        if any(not _same(each, own[0]) for each in own[1:]):
            raise checks.BadInput(
                f"the target {target} must be the same in all rows of one {id}, but {id} "
                f"{name[:40]!r} has several; name a label of the whole sequence."
            )
    first = np.array([own[0] for own in values], table.columns[target].dtype)
    return _finished(path, part, labels(target, first, wanted.get(target)))


def _same(one: object, two: object) -> bool:
    return one == two or (one != one and two != two)  # NaN is the same as NaN


# -- the end ---------------------------------------------------------------------------------------


def _without_gaps(part: _Part, table: Table, missing: str) -> tuple[_Part, Table]:
    """Rows whose text or sequence is empty are dropped, and, if wanted, those that miss anything."""
    if part.kind == "texts":
        bad = np.array([not each for each in part.inputs])
        what = "without a text"
    elif part.sequences is not None:
        bad, what = np.array([not len(each) for each in part.sequences]), "with an empty sequence"
    else:
        bad, what = np.zeros(len(table.rows), bool), "with a missing value"
        if missing == "drop":
            for column in part.columns.values():
                bad |= column.missing
    if not bad.any():
        return part, table
    if bad.all():
        raise checks.BadInput(f"no row is left: all {len(bad):,} are {what}.")
    keep = np.flatnonzero(~bad)
    part, table = part.take(keep), table.take(keep)
    facts = (*part.facts, (f"rows {what}", f"{bad.sum():,}, dropped"))
    if part.encoder is not None:
        encoder = Encoder.fit(part.columns)
        if not encoder.features:
            raise checks.BadInput("no column varies in the rows that miss nothing; fill instead.")
        part = dataclasses.replace(
            part, encoder=encoder, inputs=encoder.apply(part.columns), names=encoder.names
        )
    return dataclasses.replace(part, facts=facts), table


def _finished(path: Path, part: _Part, found: Labels | None) -> Loaded:
    facts, y, task, classes = part.facts, None, None, ()
    if found is not None:
        part = part.take(np.flatnonzero(found.keep))
        y, task, classes = found.y, found.task, found.classes
        part, y, said = _once(part, y)
        facts = (*facts, *found.facts, *said)
    dataset = _dataset(path, part, y, classes)
    X = None if part.kind == "texts" else np.asarray(part.inputs)
    return Loaded(
        dataset, X, y, task, part.names, classes, part.sequences, facts, part.encoder, part.columns
    )


def _dataset(path: Path, part: _Part, y: np.ndarray | None, classes: tuple[str, ...]) -> Dataset:
    name = "".join(c if c.isprintable() else "?" for c in path.stem)[:80] or "data"
    told = np.full(len(part.inputs), np.nan) if y is None else y
    kind = part.kind
    return Dataset(name, kind, part.inputs, told, classes, f"the file {name}", "yours")  # type: ignore


def _once(part: _Part, y: np.ndarray) -> tuple[_Part, np.ndarray, Facts]:
    """Rows that are copies of another, label and all, would stand in training and test at once."""
    digests = Dataset("", part.kind, part.inputs, y, (), "", "").digests  # type: ignore[arg-type]
    first: dict[tuple[bytes, float], int] = {}
    for row, key in enumerate(zip(digests, y.tolist(), strict=True)):
        first.setdefault(key, row)
    copies = len(y) - len(first)
    if not copies:
        return part, y, ()
    if copies > len(y) // 2:
        told = f"{copies:,} rows, kept: with so many, repetition is what these data are like"
        return part, y, (("copies of other rows", told),)
    kept = np.array(sorted(first.values()))
    return part.take(kept), y[kept], (("copies of other rows", f"{copies:,}, dropped"),)
