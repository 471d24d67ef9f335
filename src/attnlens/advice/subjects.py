"""A user's data in the form that questions take: rows or tokens with labels, and facts about them.

The cost of attention grows with the square of the number of tokens, so at most `MOST_TOKENS` are
used: the first ones of a sequence, or the columns of a table that are most informative about the
label. The columns are chosen on rows that are used for nothing else, so that no row both chooses
columns and judges them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlens.core import checks
from attnlens.data import Loaded, embedded, read
from attnlens.data.files.frames import is_frame
from attnlens.instruments.samples.labelled import FEWEST_ROWS, Labelled, labelled

from .leaks import leaking_columns, warning

MOST_TOKENS = 64
SHARE_TO_RANK = 0.2  # share of the rows that is used only to choose columns
MOST_ROWS_TO_RANK = 1_000
TREES = 100
TEXT_TOKENS = 32  # per text; two cores can train on so many in a minute


class DataSubject(NamedTuple):
    """Labelled data that questions are asked about.

    `sequences` is the input of `exchangeability`, or None if rows are not sequences; `names` are
    the names of a table's columns.
    """

    data: Labelled
    sequences: Any
    names: tuple[str, ...]
    title: str
    facts: tuple[tuple[str, str], ...]


def data_subject(
    data: Any, target: Any = None, *, text: str | None = None, seed: int = 0
) -> DataSubject:
    """A subject from a path, a DataFrame, a pair (X, y), or a result of `attnlens.data.read`."""
    if isinstance(data, tuple | list):
        if len(data) != 2:
            raise checks.BadInput(
                f"data must be a path, a DataFrame, a pair (X, y) or what attnlens.data.read "
                f"returned; got a {type(data).__name__} of {len(data)}."
            )
        if target is not None:
            raise checks.BadInput(
                f"a pair (X, y) holds its own labels; got target={target!r} too; leave it out."
            )
        examples = labelled(*data)
        X = examples.inputs
        sequences = X if examples.tokens else None
        names = tuple(f"column {i}" for i in range(X.shape[1]))
        facts = (("data", str(examples)),)
        subject = DataSubject(examples, sequences, names, "arrays", facts)
        return _with_warnings(_narrowed(subject, seed), seed)
    if not isinstance(data, Loaded):
        if not (isinstance(data, str | Path) or is_frame(data)):
            raise checks.BadInput(
                f"data must be a path, a DataFrame, a pair (X, y) or what attnlens.data.read "
                f"returned; got a {type(data).__name__}."
            )
        data = read(data, target=_column_name(target), text=text, seed=seed)
    elif target is not None or text is not None:
        raise checks.BadInput(
            "data that were read already know their labels and texts; give target and text to "
            "attnlens.data.read."
        )
    if data.y is None:
        names = [*data.columns]
        # The last column often holds the labels: it is always shown.
        shown = [*names[:6], "…", names[-1]] if len(names) > 8 else names
        remedy = f"the columns are {', '.join(shown)}" if names else "name the column of labels"
        raise checks.BadInput(f"advice needs labels, but no target was named; {remedy}.")
    loaded = embedded(data, tokens=TEXT_TOKENS, seed=seed)
    examples = labelled(loaded.X, loaded.y, loaded.task)
    if loaded.texts is not None:
        examples = examples._replace(texts=np.array(loaded.texts, object))
    sequences = (loaded.sequences or _unpadded(examples.inputs)) if examples.tokens else None
    subject = DataSubject(examples, sequences, loaded.names, loaded.dataset.name, loaded.facts)
    gaps = () if loaded.encoder is None else loaded.encoder.flags
    return _with_warnings(_narrowed(subject, seed), seed, gaps)


def _with_warnings(subject: DataSubject, seed: int, gaps: tuple[str, ...] = ()) -> DataSubject:
    """The subject, with a warning among its facts if a column gives the label away."""
    leaks = leaking_columns(subject.data, subject.names, seed, gaps)
    if not leaks:
        return subject
    return subject._replace(facts=(*subject.facts, ("warning", warning(leaks))))


def _column_name(target: Any) -> str | None:
    if target is None or isinstance(target, str):
        return target
    raise checks.BadInput(f"target must be the name of a column; got {target!r}.")


def _unpadded(tokens: np.ndarray) -> list[np.ndarray]:
    """Each row's tokens without the zeros that pad it."""
    lengths = ((tokens != 0).any(2) * np.arange(1, tokens.shape[1] + 1)).max(1)
    return [row[:length] for row, length in zip(tokens, lengths, strict=True)]


def _narrowed(whole: DataSubject, seed: int) -> DataSubject:
    """The subject with at most `MOST_TOKENS` tokens, and a fact that says what was left out."""
    data = whole.data
    wide = data.inputs.shape[1]
    if wide <= MOST_TOKENS:
        return whole
    if data.tokens:
        fact = ("tokens", f"the first {MOST_TOKENS} of {wide} are used")
        return whole._replace(
            data=data._replace(inputs=data.inputs[:, :MOST_TOKENS]), facts=(*whole.facts, fact)
        )
    random = np.random.default_rng(seed)
    order = random.permutation(len(data.inputs))
    aside = min(MOST_ROWS_TO_RANK, int(SHARE_TO_RANK * len(order)))
    if len(order) - aside < FEWEST_ROWS:
        raise checks.BadInput(
            f"{wide} columns need at least {round(FEWEST_ROWS / (1 - SHARE_TO_RANK))} rows; "
            f"got {len(order)}; collect more, or give fewer columns."
        )
    chosen = np.sort(column_ranking(data, order[:aside], seed)[:MOST_TOKENS])
    remaining = order[aside:]
    fact = (
        "columns",
        f"the {MOST_TOKENS} of {wide} that tell most about the label are used, chosen on "
        f"{aside} rows that are used for nothing else",
    )
    return whole._replace(
        data=data._replace(inputs=data.inputs[remaining][:, chosen], labels=data.labels[remaining]),
        names=tuple(whole.names[i] for i in chosen),
        facts=(*whole.facts, fact),
    )


def column_ranking(data: Labelled, rows: np.ndarray, seed: int) -> np.ndarray:
    """Columns from the most to the least important for the label, by randomised trees.

    Trees find columns that matter only in combination; correlations do not.
    """
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    kind = ExtraTreesClassifier if data.classes else ExtraTreesRegressor
    trees = kind(TREES, random_state=seed, min_samples_leaf=2)
    trees.fit(data.inputs[rows], data.labels[rows])
    return np.argsort(-trees.feature_importances_, kind="stable")
