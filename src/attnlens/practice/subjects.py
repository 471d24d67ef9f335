"""A user's data as the questions take them: rows or tokens with labels, and what was done to them.

Attention costs the square of the number of tokens, so at most `MOST_TOKENS` of them are looked at:
of a sequence its first, of a table the columns that say most about the label. The latter are found
on rows that are then set aside, so that no row both chooses columns and judges them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlens import checks
from attnlens.data import Loaded, embedded, read
from attnlens.data.loading import is_frame
from attnlens.instruments.labelled import FEWEST_ROWS, Labelled, labelled

MOST_TOKENS = 64
ASIDE = 0.2  # of the rows, to choose columns on
MOST_ASIDE = 1_000
TREES = 100
TEXT_TOKENS = 32  # words of a text: what two cores can learn from in a minute


class Subject(NamedTuple):
    """Labelled data; `sequences` is what `exchangeability` takes, None where rows are no sequences;
    `names` are those of a table's columns."""

    data: Labelled
    sequences: Any
    names: tuple[str, ...]
    title: str
    facts: tuple[tuple[str, str], ...]


def subject(data: Any, target: Any = None, *, text: str | None = None, seed: int = 0) -> Subject:
    """A path, a pandas DataFrame, (X, y), or what `attnlens.data.read` returned."""
    if isinstance(data, tuple | list):
        if len(data) != 2:
            raise checks.BadInput(
                f"data must be a path, a DataFrame, a pair (X, y) or what attnlens.data.read "
                f"returned, but a {type(data).__name__} of {len(data)} came."
            )
        if target is not None:
            raise checks.BadInput(
                f"a pair (X, y) holds its own labels, but target={target!r} came too; leave it out."
            )
        X, y = (np.asarray(part) for part in data)
        made = labelled(X, y)
        sequences = X if made.tokens else None
        names = tuple(f"column {i}" for i in range(X.shape[1]))
        facts = (("data", str(made)),)
        return _narrowed(Subject(made, sequences, names, "arrays", facts), seed)
    if not isinstance(data, Loaded):
        if not (isinstance(data, str | Path) or is_frame(data)):
            raise checks.BadInput(
                f"data must be a path, a DataFrame, a pair (X, y) or what attnlens.data.read "
                f"returned, but a {type(data).__name__} came."
            )
        data = read(data, target=_named(target), text=text, seed=seed)
    elif target is not None or text is not None:
        raise checks.BadInput(
            "data that were read already know their labels and texts; give target and text to "
            "attnlens.data.read."
        )
    if data.y is None:
        names = [*data.columns]
        # The last column is often the one: it is never cut off.
        shown = [*names[:6], "…", names[-1]] if len(names) > 8 else names
        told = f"the columns are {', '.join(shown)}" if names else "name the column of labels"
        raise checks.BadInput(f"advice needs labels, but no target was named; {told}.")
    loaded = embedded(data, tokens=TEXT_TOKENS, seed=seed)
    made = labelled(loaded.X, loaded.y, loaded.task)
    sequences = (loaded.sequences or _unpadded(made.inputs)) if made.tokens else None
    found = Subject(made, sequences, loaded.names, loaded.dataset.name, loaded.facts)
    return _narrowed(found, seed)


def _named(target: Any) -> str | None:
    if target is None or isinstance(target, str):
        return target
    raise checks.BadInput(f"target must be the name of a column, but {target!r} came.")


def _unpadded(tokens: np.ndarray) -> list[np.ndarray]:
    """Each row's tokens without the zeros that fill it up."""
    lengths = ((tokens != 0).any(2) * np.arange(1, tokens.shape[1] + 1)).max(1)
    return [row[:length] for row, length in zip(tokens, lengths, strict=True)]


def _narrowed(whole: Subject, seed: int) -> Subject:
    """At most `MOST_TOKENS` tokens, and the fact that says so."""
    data = whole.data
    wide = data.inputs.shape[1]
    if wide <= MOST_TOKENS:
        return whole
    if data.tokens:
        fact = ("tokens", f"the first {MOST_TOKENS} of {wide} are looked at")
        return whole._replace(
            data=data._replace(inputs=data.inputs[:, :MOST_TOKENS]), facts=(*whole.facts, fact)
        )
    random = np.random.default_rng(seed)
    order = random.permutation(len(data.inputs))
    aside = min(MOST_ASIDE, int(ASIDE * len(order)))
    if len(order) - aside < FEWEST_ROWS:
        raise checks.BadInput(
            f"{wide} columns need at least {round(FEWEST_ROWS / (1 - ASIDE))} rows, but "
            f"{len(order)} came; collect more, or give fewer columns."
        )
    chosen = np.sort(important(data, order[:aside], seed)[:MOST_TOKENS])
    kept = order[aside:]
    fact = (
        "columns",
        f"the {MOST_TOKENS} of {wide} that tell most about the label are looked at, chosen on "
        f"{aside} rows that are used for nothing else",
    )
    return whole._replace(
        data=data._replace(inputs=data.inputs[kept][:, chosen], labels=data.labels[kept]),
        names=tuple(whole.names[i] for i in chosen),
        facts=(*whole.facts, fact),
    )


def important(data: Labelled, rows: np.ndarray, seed: int) -> np.ndarray:
    """Columns from the most to the least important for the label, by randomised trees.

    Trees see columns that matter only together, which correlations do not.
    """
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    kind = ExtraTreesClassifier if data.classes else ExtraTreesRegressor
    trees = kind(TREES, random_state=seed, min_samples_leaf=2)
    trees.fit(data.inputs[rows], data.labels[rows])
    return np.argsort(-trees.feature_importances_, kind="stable")
