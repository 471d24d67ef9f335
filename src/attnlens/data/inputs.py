"""What the columns of a table become: rows of numbers, texts, sequences or images as patches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from attnlens import checks

from . import pictures, series
from .columns import FEW, Table, Typed, listed, typed
from .dataset import Kind
from .encoding import Encoder, median

Facts = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Part:
    """Inputs of one kind, with the words that say how they came about.

    `raw` holds the columns behind rows of numbers, and `codes` (n, columns) what two rows must
    share to be copies of each other: all their columns, not only those that became numbers.
    """

    kind: Kind
    inputs: np.ndarray | tuple[str, ...]
    names: tuple[str, ...]
    facts: Facts
    sequences: list[np.ndarray] | None = None
    encoder: Encoder | None = None
    raw: Mapping[str, Typed] = dataclasses.field(default_factory=dict)
    codes: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> Part:
        """The rows with these numbers."""
        inputs: Any = self.inputs
        taken = tuple(inputs[i] for i in rows) if isinstance(inputs, tuple) else inputs[rows]
        raw = {name: each._replace(values=each.values[rows]) for name, each in self.raw.items()}
        sequences = None if self.sequences is None else [self.sequences[i] for i in rows]
        codes = None if self.codes is None else self.codes[rows]
        return dataclasses.replace(self, inputs=taken, sequences=sequences, raw=raw, codes=codes)


def of_texts(name: str, values: np.ndarray, others: Mapping[str, np.ndarray]) -> Part:
    """A column of texts; the other columns are not used beside it."""
    if values.dtype != object or any(isinstance(value, np.ndarray) for value in values):
        raise checks.BadInput(f"text must name a column of texts, but {name} holds numbers.")
    words = sum(len(value.split()) for value in values if value) / max(len(values), 1)
    facts = [("texts", f"{name}, {words:.3g} words on average")]
    if others:
        facts.append(("not used beside texts", listed(list(others))))
    return Part("texts", tuple(value or "" for value in values), (name,), tuple(facts))


def of_array(kept: Mapping[str, np.ndarray], images: int | None) -> Part:
    """An array of tokens (n, L, t) or images (n, height, width)."""
    if len(kept) > 1:
        raise checks.BadInput(
            f"an array of tokens or images must be the only input, but there are "
            f"{listed([*kept])}; drop the others."
        )
    ((name, values),) = kept.items()
    if values.ndim != 3 or not values.size or values.dtype.kind != "f":
        raise checks.BadInput(
            f"{name} must be numbers of the shape (n, p), (n, tokens, size) or (n, height, width), "
            f"but {values.shape} of {values.dtype} came; reshape it."
        )
    gone, facts = ~np.isfinite(values), ()
    if gone.all():
        raise checks.BadInput(f"{name} must hold numbers, but every one of them is missing.")
    if gone.any():
        values = np.where(gone, median(values[~gone]), values)
        facts = (("missing values", f"{gone.sum():,} in {name}, filled with its median"),)
    if images is not None:
        tokens, names, said = pictures.cut(values, images)
        return Part("tokens", tokens, names, (*facts, *said))
    names = tuple(f"{name} {i}" for i in range(values.shape[2]))
    words = f"{name}: {values.shape[1]} a row, vectors of {values.shape[2]} numbers"
    return Part("tokens", values, names, (*facts, ("tokens", words)), sequences=list(values))


def list_columns(kept: Mapping[str, np.ndarray]) -> list[str]:
    """The columns that hold a sequence in each row."""
    return [
        name
        for name, values in kept.items()
        if values.dtype == object and any(isinstance(value, np.ndarray) for value in values)
    ]


def of_lists(
    lists: list[str], kept: Mapping[str, np.ndarray], wanted: Mapping[str, str], length: int
) -> Part:
    """A column of sequences; empty ones stay empty here."""
    if len(lists) > 1:
        raise checks.BadInput(
            f"one column may hold the sequences, but {listed(lists)} do; drop all but one."
        )
    (name,) = lists
    tokens = series.of_lists(name, typed(name, kept[name], wanted.get(name)))
    vectors, facts = series.padded(tokens.vectors, length)
    if others := [each for each in kept if each != name]:
        facts = (*facts, ("not used beside sequences", listed(others)))
    return Part("tokens", vectors, tokens.names, (*tokens.facts, *facts), tokens.sequences)


def of_long(
    table: Table,
    features: dict[str, Typed],
    wanted: Mapping[str, str],
    rows: series.Long,
    length: int,
) -> Part:
    """Sequences of a long table."""
    used, reasons = _usable(features, table, wanted)
    tokens, encoder = series.of_columns(used, rows)
    reasons |= dict.fromkeys(encoder.dropped, "constant")
    kept = {feature.name: used[feature.name] for feature in encoder.features}
    vectors, said = series.padded(tokens.vectors, length)
    facts = (*_told(kept, encoder, reasons), *said)
    codes = np.arange(len(rows.ids))[:, None]  # two ids are never copies of one another
    return Part("tokens", vectors, tokens.names, facts, tokens.sequences, encoder, codes=codes)


def of_rows(
    features: dict[str, Typed], table: Table, wanted: Mapping[str, str], filled: bool
) -> Part:
    """Rows of numbers; where missing values are not to be `filled`, their rows will be dropped."""
    used, reasons = _usable(features, table, wanted)
    encoder = Encoder.fit(used)
    for name in encoder.dropped:
        empty = used[name].missing.all()
        reasons[name] = "missing in every row" if empty else "constant, or every value rare"
    if not encoder.features:
        told = "; ".join(f"{name}: {why}" for name, why in [*reasons.items()][:4])
        raise checks.BadInput(f"no column is left to learn from ({told}).")
    raw = {feature.name: used[feature.name] for feature in encoder.features}
    counted = [name for name, why in reasons.items() if why == ROW_NUMBER]
    codes = _codes([each for name, each in features.items() if name not in counted])
    facts = _told(raw, encoder, reasons, filled)
    return Part("rows", encoder.apply(raw), encoder.names, facts, None, encoder, raw, codes)


ROW_NUMBER = "the number of the row, or one that grows with every row"


def _usable(
    features: dict[str, Typed], table: Table, wanted: Mapping[str, str]
) -> tuple[dict[str, Typed], dict[str, str]]:
    """Columns that can become numbers, and why the others cannot."""
    used, reasons = {}, {}
    for name, column in features.items():
        if column.kind == "identifier":
            reasons[name] = "an identifier, different in most rows"
        elif column.kind == "text":
            reasons[name] = "texts: name it as text (--text) to learn from it"
        elif column.kind == "sequence":
            reasons[name] = "sequences, which a long table does not use"
        elif name not in wanted and _counts(column, table.rows):
            reasons[name] = ROW_NUMBER
        else:
            used[name] = column
    if not used:  # better than nothing
        counted = [name for name, why in reasons.items() if why == ROW_NUMBER]
        used = {name: features[name] for name in counted if reasons.pop(name)}
    return used, reasons


def _counts(column: Typed, rows: np.ndarray) -> bool:
    """Whether a column counts the rows, as an index does that was written with the file; or grows
    with every row from one whole number to the next, as an identifier does."""
    if column.kind != "number" or len(rows) < 3 or column.missing.any():
        return False
    whole = bool((column.values == np.round(column.values)).all())
    growing = whole and bool((column.values[1:] > column.values[:-1]).all())
    from_zero = column.values - rows  # the same for every row of an index
    return growing and (len(rows) > FEW or bool((from_zero == from_zero[0]).all()))


def _codes(columns: list[Typed]) -> np.ndarray:
    """(n, columns): in each column the same number for the same value."""
    codes = []
    for column in columns:
        values = column.values
        if values.dtype == object:
            values = np.array(["" if value is None else value for value in values], str)
        codes.append(np.unique(values, return_inverse=True)[1])
    return np.stack(codes, 1).astype(np.int32)


def _told(
    used: Mapping[str, Typed], encoder: Encoder, reasons: Mapping[str, str], filled: bool = True
) -> Facts:
    facts = []
    for kind, words in (("number", "numbers"), ("date", "dates"), ("category", "categories")):
        own = [name for name, column in used.items() if column.kind == kind]
        notes = [f"{name} {used[name].note}" for name in own if used[name].note]
        said = listed(own) + (f" ({'; '.join(notes[:4])})" if notes else "")
        if kind == "date":
            said += "; as days since 1970-01-01"
        if kind == "category":
            merged = [each.name for each in encoder.features if each.others]
            rare = f", rare ones of {listed(merged)} as one" if merged else ""
            said += f"; an indicator for each{rare}"
        if own:
            facts.append((words, said))
    if reasons:
        told = "; ".join(f"{name} ({why})" for name, why in [*reasons.items()][:6])
        more = f"; and {len(reasons) - 6} more" if len(reasons) > 6 else ""
        facts.append(("left out", told + more))
    gaps = {name: int(column.missing.sum()) for name, column in used.items()}
    if any(gaps.values()) and filled:
        own = [f"{name} {count:,}" for name, count in gaps.items() if count]
        how = "numbers filled with the median and flagged, categories as one of their own"
        facts.append(("missing values", f"{listed(own)}; {how}"))
    facts.append(("encoding", "from all rows that were read, without their labels"))
    return tuple(facts)
