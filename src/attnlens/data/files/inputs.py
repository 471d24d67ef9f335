"""Inputs made from the columns of a table: rows of numbers, texts, sequences or image patches."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnlens.core import checks
from attnlens.data.dataset import Kind

from .columns import FEW, Table, TypedColumn, WrongColumn, codes_of, name_list, typed_column
from .encoding import ColumnEncoder, median
from .facts import Fact, Facts, Remark
from .image_patches import cut_patches
from .sequences import SequenceRows, pad, tokens_from_columns, tokens_from_lists


class LeftOut(enum.Enum):
    """Why a column is not an input."""

    IDENTIFIER = "an identifier, different in most rows"
    TEXTS = "texts: name it as text (--text) to learn from it"
    SEQUENCES = "sequences, which a long table does not use"
    ROW_NUMBER = "the number of the row, or one that grows with every row"
    CONSTANT = "constant"
    EMPTY = "missing in every row"
    RARE = "constant, or every value rare"


@dataclasses.dataclass(frozen=True)
class InputPart:
    """Inputs of one kind, with facts about how they were made.

    `raw` holds the columns before they were encoded as rows of numbers. `codes` (n, columns) has an
    integer per value of the table, also for columns that are not inputs: two rows are copies of
    each other if they have equal codes.
    """

    kind: Kind
    inputs: np.ndarray | tuple[str, ...]
    names: tuple[str, ...]
    facts: Facts
    sequences: list[np.ndarray] | None = None
    encoder: ColumnEncoder | None = None
    raw: Mapping[str, TypedColumn] = dataclasses.field(default_factory=dict)
    codes: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> InputPart:
        """The inputs of the rows with these indices."""
        inputs: Any = self.inputs
        inputs = tuple(inputs[i] for i in rows) if isinstance(inputs, tuple) else inputs[rows]
        raw = {
            name: column._replace(values=column.values[rows]) for name, column in self.raw.items()
        }
        sequences = None if self.sequences is None else [self.sequences[i] for i in rows]
        codes = None if self.codes is None else self.codes[rows]
        return dataclasses.replace(self, inputs=inputs, sequences=sequences, raw=raw, codes=codes)


def text_inputs(name: str, values: np.ndarray, others: Mapping[str, np.ndarray]) -> InputPart:
    """Inputs from the column of texts `name`; the columns in `others` are not used."""
    if values.dtype != object or any(isinstance(value, np.ndarray) for value in values):
        raise WrongColumn(
            "text",
            f"must name a column of texts; got {name}, which holds numbers; name another column.",
        )
    words = sum(len(value.split()) for value in values if value) / max(len(values), 1)
    facts = [Remark("texts", f"{name}, {words:.3g} words on average")]
    if others:
        facts.append(Remark("not used beside texts", name_list(list(others))))
    return InputPart("texts", tuple(value or "" for value in values), (name,), tuple(facts))


def array_inputs(columns: Mapping[str, np.ndarray], images: int | None) -> InputPart:
    """Inputs from an array of tokens (n, L, t), or of images (n, height, width).

    If `images` is a number, the array holds images, and patches have that number of pixels per
    side; if it is None, the array holds tokens.
    """
    if len(columns) > 1:
        raise checks.BadInput(
            f"an array of tokens or images must be the only input; got {name_list([*columns])}; "
            f"drop the others."
        )
    ((name, values),) = columns.items()
    if values.ndim != 3 or not values.size or values.dtype.kind != "f":
        raise checks.BadInput(
            f"{name} must be numbers of the shape (n, p), (n, tokens, size) or (n, height, width); "
            f"got {values.dtype} of shape {values.shape}; reshape it."
        )
    missing, facts = ~np.isfinite(values), list[Fact]()
    if missing.all():
        raise checks.BadInput(
            f"{name} must hold numbers, but every one of them is missing; drop it."
        )
    if missing.any():
        values = np.where(missing, median(values[~missing]), values)
        words = f"{missing.sum():,} in {name}, filled with its median"
        facts.append(Remark("missing values", words))
    if images is not None:
        tokens, names, patch_facts = cut_patches(values, images)
        return InputPart("tokens", tokens, names, (*facts, *patch_facts))
    names = tuple(f"{name} {i}" for i in range(values.shape[2]))
    size = f"{name}: {values.shape[1]} per row, vectors of {values.shape[2]} numbers"
    return InputPart(
        "tokens", values, names, (*facts, Remark("tokens", size)), sequences=list(values)
    )


def list_columns(columns: Mapping[str, np.ndarray]) -> list[str]:
    """The names of the columns that hold a sequence in each row."""
    return [
        name
        for name, values in columns.items()
        if values.dtype == object and any(isinstance(value, np.ndarray) for value in values)
    ]


def list_inputs(
    lists: list[str], columns: Mapping[str, np.ndarray], types: Mapping[str, str], length: int
) -> InputPart:
    """Inputs from a column of sequences; empty sequences are kept here, and dropped later."""
    if len(lists) > 1:
        raise checks.BadInput(
            f"only one column may hold sequences; got {name_list(lists)}; drop all but one."
        )
    (name,) = lists
    tokens = tokens_from_lists(name, typed_column(name, columns[name], types.get(name)))
    vectors, facts = pad(tokens.vectors, length)
    if others := [other for other in columns if other != name]:
        facts = (*facts, Remark("not used beside sequences", name_list(others)))
    return InputPart("tokens", vectors, tokens.names, (*tokens.facts, *facts), tokens.sequences)


def long_table_inputs(
    table: Table,
    features: dict[str, TypedColumn],
    types: Mapping[str, str],
    rows: SequenceRows,
    length: int,
) -> InputPart:
    """Inputs from a long table, in which every row is a token of a sequence."""
    used, reasons = _usable(features, table, types)
    tokens, encoder = tokens_from_columns(used, rows)
    reasons |= dict.fromkeys(encoder.dropped, LeftOut.CONSTANT)
    encoded = {feature.name: used[feature.name] for feature in encoder.features}
    vectors, length_facts = pad(tokens.vectors, length)
    facts = (*_column_facts(encoded, encoder, reasons), *length_facts)
    codes = np.arange(len(rows.ids))[:, None]  # sequences with different ids are not copies
    return InputPart("tokens", vectors, tokens.names, facts, tokens.sequences, encoder, codes=codes)


def row_inputs(
    features: dict[str, TypedColumn], table: Table, types: Mapping[str, str], filled: bool
) -> InputPart:
    """Inputs from a table: each row becomes a row of numbers.

    `filled` says whether missing values stay filled in; if not, the caller drops rows that have
    one, and no fact about missing values is added here.
    """
    used, reasons = _usable(features, table, types)
    encoder = ColumnEncoder.fit(used)
    for name in encoder.dropped:
        empty = used[name].missing.all()
        reasons[name] = LeftOut.EMPTY if empty else LeftOut.RARE
    if not encoder.features:
        left_out = "; ".join(f"{name}: {reason.value}" for name, reason in [*reasons.items()][:4])
        raise checks.BadInput(
            f"there must be a column to learn from, but no column is left ({left_out}); give other "
            f"columns or types."
        )
    raw = {feature.name: used[feature.name] for feature in encoder.features}
    counters = [name for name, reason in reasons.items() if reason is LeftOut.ROW_NUMBER]
    codes = _codes([column for name, column in features.items() if name not in counters])
    facts = _column_facts(raw, encoder, reasons, filled)
    return InputPart("rows", encoder.apply(raw), encoder.names, facts, None, encoder, raw, codes)


def _usable(
    features: dict[str, TypedColumn], table: Table, types: Mapping[str, str]
) -> tuple[dict[str, TypedColumn], dict[str, LeftOut]]:
    """Columns that can be encoded as numbers, and the reasons why the others cannot."""
    used: dict[str, TypedColumn] = {}
    reasons: dict[str, LeftOut] = {}
    for name, column in features.items():
        if column.kind == "identifier":
            reasons[name] = LeftOut.IDENTIFIER
        elif column.kind == "text":
            reasons[name] = LeftOut.TEXTS
        elif column.kind == "sequence":
            reasons[name] = LeftOut.SEQUENCES
        elif name not in types and _is_row_number(column, table.rows):
            reasons[name] = LeftOut.ROW_NUMBER
        else:
            used[name] = column
    if not used:  # if there is no other column, columns of row numbers are used as inputs
        counters = [name for name, reason in reasons.items() if reason is LeftOut.ROW_NUMBER]
        used = {name: features[name] for name in counters if reasons.pop(name)}
    return used, reasons


def _is_row_number(column: TypedColumn, rows: np.ndarray) -> bool:
    """Whether a column counts rows.

    It does if it is the row index of the file plus a constant, or, in a table with more than FEW
    rows, if it holds whole numbers that increase with every row.
    """
    if column.kind != "number" or len(rows) < 3 or column.missing.any():
        return False
    whole = bool((column.values == np.round(column.values)).all())
    growing = whole and bool((column.values[1:] > column.values[:-1]).all())
    offset = column.values - rows  # constant if the column is a row index
    return growing and (len(rows) > FEW or bool((offset == offset[0]).all()))


def _codes(columns: list[TypedColumn]) -> np.ndarray:
    """Integers (n, columns): two values of a column have the same code if they are equal."""
    codes = []
    for column in columns:
        values = column.values
        if values.dtype == object:
            codes.append(codes_of("" if value is None else value for value in values)[1])
        else:
            codes.append(np.unique(values, return_inverse=True)[1])
    return np.stack(codes, 1).astype(np.int32)


def _column_facts(
    used: Mapping[str, TypedColumn],
    encoder: ColumnEncoder,
    reasons: Mapping[str, LeftOut],
    filled: bool = True,
) -> Facts:
    """Facts on the kind of each column, columns left out, and how missing values were filled."""
    facts: list[Fact] = []
    for kind, plural in (("number", "numbers"), ("date", "dates"), ("category", "categories")):
        names = [name for name, column in used.items() if column.kind == kind]
        notes = [f"{name} {used[name].note}" for name in names if used[name].note]
        fact = name_list(names) + (f" ({'; '.join(notes[:4])})" if notes else "")
        if kind == "date":
            fact += "; as days since 1970-01-01"
        if kind == "category":
            merged = [feature.name for feature in encoder.features if feature.others]
            rare = f", rare ones of {name_list(merged)} as one" if merged else ""
            fact += f"; an indicator for each{rare}"
        if names:
            facts.append(Remark(plural, fact))
    if reasons:
        left_out = "; ".join(f"{name} ({reason.value})" for name, reason in [*reasons.items()][:6])
        more = f"; and {len(reasons) - 6} more" if len(reasons) > 6 else ""
        facts.append(Remark("left out", left_out + more))
    gaps = {name: int(column.missing.sum()) for name, column in used.items()}
    if any(gaps.values()) and filled:
        counts = [f"{name} {count:,}" for name, count in gaps.items() if count]
        how = "numbers filled with the median and flagged, categories as one of their own"
        facts.append(Remark("missing values", f"{name_list(counts)}; {how}"))
    facts.append(Remark("encoding", "from all rows that were read, without their labels"))
    return tuple(facts)
