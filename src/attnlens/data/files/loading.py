"""The user's own files as data: `read` returns inputs, labels and facts about how they were made.

inputs      source
rows        tables; each column is encoded as numbers or as indicators (`encoding`)
texts       a column of texts; `embedded` converts them to tokens
tokens      sequences (a column of lists, or a long table with an id), arrays (n, L, t), and images
            (a folder of IDX files, arrays (n, height, width), columns of pixels) as patches
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnlens.core import checks
from attnlens.data.dataset import Dataset

from . import inputs
from .columns import (
    Table,
    TypedColumn,
    check_column,
    check_types,
    name_list,
    printable,
    typed_column,
)
from .copies import COPIES, treat_copies
from .decimals import check_decimal
from .encoding import ColumnEncoder
from .facts import DropReason, RowsDropped
from .formats import read_table
from .frames import is_frame, read_frame
from .image_patches import patches_from_columns, read_image_folder
from .inputs import InputPart
from .label_column import Labels, read_labels
from .loaded import Loaded
from .sampling import MEMORY, Request
from .separators import check_separator
from .sequences import group_rows, order_ranks

ROWS = 50_000  # default maximum of rows that are read
LENGTH = 128  # default maximum of tokens per sequence; attention's cost grows as its square


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
    separator: str | None = None,
    decimal: str | None = None,
    copies: str = "keep",
    memory_limit: float = MEMORY,
) -> Loaded:
    """A CSV, Parquet, NPY or NPZ file, a folder of IDX files or a DataFrame as inputs and labels.

    target: the column to predict. text: the column of texts that are the inputs.
    id, order: columns of a long table, in which every row is a token. `id` says to which sequence
        the token belongs, `order` its place there; without `order`, the order of the file is used.
    columns: use only these columns. drop: do not use these columns.
    images: cut images, or rows of pixels, into square patches with this number of pixels per side.
    types: the type of a column, where it would be inferred wrongly: "number", "category", "date",
        "text" or "drop". For the target, "number" means regression and "category" classification.
    missing: "fill" replaces missing numbers by medians and adds a column that flags them; "drop"
        drops rows with a missing value.
    rows: the maximal number of rows (of sequences, for a long table). If the file has more, a
        random sample is drawn with `seed`.
    length: the maximal number of tokens per sequence in `X`; longer sequences are cut.
    separator, decimal: the separator and the decimal mark of a CSV file, such as ";" and ",", if
        they would be inferred wrongly.
    copies: "keep" keeps rows that occur several times, "drop" keeps only the first of each.
    memory_limit: the maximal memory in bytes for the rows and everything that is made from them.

    Everything that was inferred or done is listed in `facts`. Nothing is unpickled.

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
    checks.one_of("copies", copies, COPIES)
    checks.positive("memory_limit", memory_limit)
    if images is not None:
        checks.whole("images", images, at_least=1)
    if not (is_frame(path) or isinstance(path, str | os.PathLike)):
        raise checks.BadInput(
            f"the file must be a path or a DataFrame; got a {type(path).__module__}."
            f"{type(path).__name__}; collect a lazy frame first, and give arrays directly to the "
            f"instruments."
        )
    roles = _roles(target=target, text=text, id=id, order=order)
    kinds = dict(types or {})
    strings = {name for name, kind in kinds.items() if kind in ("category", "text")}
    request = Request(
        rows,
        seed,
        id,
        frozenset({*strings, *roles} - {target}),
        frozenset(name for name, kind in kinds.items() if kind == "number"),
        None if separator is None else check_separator(separator),
        None if decimal is None else check_decimal(decimal),
        int(memory_limit),
    )
    if not is_frame(path) and os.path.isdir(path):  # noqa: PTH112 (Path.is_dir may raise)
        folder = Path(path)
        patches, y, classes = read_image_folder(folder, target, images, request)
        labels = Labels(np.ones(len(y), bool), y, "classification", classes, ())
        return _loaded(folder.resolve().name, InputPart("tokens", *patches), labels, copies)
    if is_frame(path):
        stem, table = "the DataFrame", read_frame(path, request)
    else:
        stem, table = Path(path).stem, read_table(Path(path), request)
    for name, role in roles.items():
        if name in table.unread:
            raise checks.BadInput(
                f"{role} must hold numbers, dates, strings or lists; got {name}, which holds "
                f"structures, maps or bytes; write it as a flat table."
            )
        check_column(role, name, table.columns)
    chosen_types = check_types(types, table.columns)
    used = _input_columns(table, roles, chosen_types, columns, drop)
    if id is not None:
        part, labels = _long_table(table, used, chosen_types, (id, order, target), length, missing)
        return _loaded(stem, part, labels, copies, table.arrays)
    part = _inputs(table, used, chosen_types, text, images, length, filled=missing == "fill")
    if order is not None:
        ordering = np.argsort(order_ranks(table.columns[order], order), kind="stable")
        part, table = part.take(ordering), table.take(ordering)
    part = dataclasses.replace(part, facts=(*table.facts, *part.facts))
    part, table = _without_gaps(part, table, missing)
    if target is None:
        return _loaded(stem, part, None, copies, table.arrays)
    labels = read_labels(target, table.columns[target], chosen_types.get(target))
    return _loaded(stem, part, labels, copies, table.arrays)


def _roles(**columns: str | None) -> dict[str, str]:
    """The roles of columns (target, text, id, order) by column name; one role per column."""
    roles: dict[str, str] = {}
    for role, name in columns.items():
        if name is None:
            continue
        if name in roles:
            raise checks.BadInput(
                f"a column must have one role only, but {name!r} is named as {roles[name]} and as "
                f"{role}; name another column."
            )
        roles[name] = role
    return roles


def _input_columns(
    table: Table,
    roles: Mapping[str, str],
    types: Mapping[str, str],
    columns: Iterable[str] | None,
    drop: Iterable[str],
) -> dict[str, np.ndarray]:
    """The columns that are inputs, before their kinds are inferred."""
    names = list(table.columns)
    only = names if columns is None else [check_column("columns", name, names) for name in columns]
    excluded = {check_column("drop", name, names) for name in drop}
    excluded |= {name for name, kind in types.items() if kind == "drop"} | set(roles)
    used = {name: table.columns[name] for name in only if name not in excluded}
    if not used and "text" not in roles.values():
        raise checks.BadInput(
            f"there must be a column to learn from, but {name_list(names)} all have another role "
            f"or are dropped; drop fewer."
        )
    return used


def _inputs(
    table: Table,
    columns: dict[str, np.ndarray],
    types: Mapping[str, str],
    text: str | None,
    images: int | None,
    length: int,
    filled: bool,
) -> InputPart:
    """Inputs from the columns, as texts, tokens, image patches or rows."""
    if text is not None:
        return inputs.text_inputs(text, table.columns[text], columns)
    if any(values.ndim > 1 for values in columns.values()):
        return inputs.array_inputs(columns, images)
    if lists := inputs.list_columns(columns):
        return inputs.list_inputs(lists, columns, types, length)
    features = _typed_columns(columns, types)
    if images is not None:
        return InputPart("tokens", *patches_from_columns(features, images))
    return inputs.row_inputs(features, table, types, filled)


def _typed_columns(
    columns: dict[str, np.ndarray], types: Mapping[str, str]
) -> dict[str, TypedColumn]:
    return {name: typed_column(name, values, types.get(name)) for name, values in columns.items()}


def _long_table(
    table: Table,
    columns: dict[str, np.ndarray],
    types: Mapping[str, str],
    roles: tuple[str, str | None, str | None],
    length: int,
    missing: str,
) -> tuple[InputPart, Labels | None]:
    """Inputs and labels of a long table: rows with one id are a sequence and have one label."""
    id, order, target = roles
    if wide := [name for name, values in columns.items() if values.ndim > 1]:
        raise checks.BadInput(
            f"every column of a long table must have one number per row; got {wide[0]} with "
            f"several; drop it, or leave the id out."
        )
    features = _typed_columns(columns, types)
    gaps = np.any([column.missing for column in features.values()], axis=0)
    if missing == "drop" and gaps.any():
        if gaps.all():
            raise checks.BadInput(_none_left(len(gaps), DropReason.MISSING_VALUE))
        table = table.take(~gaps)
        fact = RowsDropped(DropReason.MISSING_VALUE, int(gaps.sum()))
        table = table._replace(facts=(*table.facts, fact))
        features = {
            name: column._replace(values=column.values[~gaps]) for name, column in features.items()
        }
    order_values = None if order is None else table.columns[order]
    rows = group_rows(table.columns[id], id, order_values, order)
    part = inputs.long_table_inputs(table, features, types, rows, length)
    part = dataclasses.replace(part, facts=(*table.facts, *part.facts))
    if target is None:
        return part, None
    labels = rows.split(table.columns[target])
    for name, values in zip(rows.ids, labels, strict=True):
        if any(not _same(value, values[0]) for value in values[1:]):
            raise checks.BadInput(
                f"the target {target} must be the same in all rows of one {id}, but {id} "
                f"{name[:40]!r} has several; name a column that is constant within a sequence."
            )
    first = np.array([values[0] for values in labels], table.columns[target].dtype)
    return part, read_labels(target, first, types.get(target))


def _same(one: Any, two: Any) -> bool:
    return one == two or (one != one and two != two)  # two NaN count as equal


def _none_left(count: int, reason: DropReason) -> str:
    return f"there must be a row to read, but no row is left: all {count:,} are {reason.value}."


def _without_gaps(part: InputPart, table: Table, missing: str) -> tuple[InputPart, Table]:
    """The inputs and the table without rows that have no text or no tokens.

    If `missing` is "drop", rows with missing values are dropped too, and the encoder is fitted
    again on the other rows.
    """
    gaps, reason = np.zeros(len(table.rows), bool), DropReason.MISSING_VALUE
    if part.kind == "texts":
        gaps, reason = np.array([not text for text in part.inputs]), DropReason.NO_TEXT
    elif part.sequences is not None:
        gaps = np.array([not len(sequence) for sequence in part.sequences])
        reason = DropReason.EMPTY_SEQUENCE
    elif missing == "drop":
        for column in part.raw.values():
            gaps |= column.missing
    if not gaps.any():
        return part, table
    if gaps.all():
        raise checks.BadInput(_none_left(len(gaps), reason))
    complete = np.flatnonzero(~gaps)
    part, table = part.take(complete), table.take(complete)
    facts = (*part.facts, RowsDropped(reason, int(gaps.sum())))
    if part.encoder is not None:
        encoder = ColumnEncoder.fit(part.raw)
        if not encoder.features:
            raise checks.BadInput(
                "there must be a column that varies, but none does in the rows without missing "
                "values; fill missing values instead."
            )
        encoded = {"encoder": encoder, "inputs": encoder.apply(part.raw), "names": encoder.names}
        part = dataclasses.replace(part, **encoded)
    return dataclasses.replace(part, facts=facts), table


def _loaded(
    stem: str,
    part: InputPart,
    labels: Labels | None,
    copies: str,
    arrays: Mapping[str, tuple[str, ...]] | None = None,
) -> Loaded:
    """The result of `read`, from inputs and labels."""
    facts, y, task, classes = part.facts, None, None, ()
    if labels is not None:
        part, task, classes = part.take(np.flatnonzero(labels.keep)), labels.task, labels.classes
        part, y, copy_facts = treat_copies(part, labels.y, copies)
        facts = (*facts, *labels.facts, *copy_facts)
    name = printable(stem) or "data"
    values = np.full(len(part.inputs), np.nan) if y is None else y
    dataset = Dataset(name, part.kind, part.inputs, values, classes, f"the file {name}", "yours")
    X = None if isinstance(part.inputs, tuple) else part.inputs
    return Loaded(
        dataset=dataset,
        X=X,
        y=y,
        task=task,
        names=part.names,
        classes=classes,
        sequences=part.sequences,
        records=facts,
        encoder=part.encoder,
        columns=part.raw,
        arrays=arrays or {},
    )
