"""Warn of columns that give the label away (target leakage): they may be known only after it.

For every column, a tree of eight leaves predicts the label from this column alone; it is trained on
one half of the rows and tested on the other. The column is suspicious if its error is below a share
of the error of ignoring the inputs: 5 % for a column of values, and a half for a column that flags
missing values, because a value that is missing because of the label is not known before the label.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from attnlens.instruments.samples.labelled import Labelled

MOST_ROWS = 2_000
LEAVES = 8
FEWEST_ERRORS = 10  # wrong rows when inputs are ignored; with fewer, chance gives false alarms
SUSPICIOUS, SUSPICIOUS_GAP = 0.05, 0.5  # shares of the error of ignoring the inputs


def leaking_columns(
    data: Labelled, names: Sequence[str], seed: int, gaps: Collection[str] = ()
) -> list[tuple[str, float]]:
    """The columns that give the label away, as (name, share): the error with this column alone as a
    share of the error of ignoring the inputs. [] if rows are tokens, or if there is one column.

    gaps: the names of the columns that flag missing values.
    """
    if data.tokens or data.inputs.shape[1] < 2:
        return []
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    rows = np.random.default_rng(seed).permutation(len(data.inputs))[:MOST_ROWS]
    train, test = rows[::2], rows[1::2]
    truth = data.labels[test]
    if data.classes:
        commonest = np.bincount(data.labels[train], minlength=data.classes).argmax()
        trivial = float((truth != commonest).mean())
        if trivial * len(test) < FEWEST_ERRORS:
            return []
    else:
        trivial = float(((truth - data.labels[train].mean()) ** 2).mean())
    kind = DecisionTreeClassifier if data.classes else DecisionTreeRegressor
    leaks = []
    for column, name in enumerate(names):
        tree = kind(max_leaf_nodes=LEAVES, random_state=0)
        tree.fit(data.inputs[train, column, None], data.labels[train])
        predicted = tree.predict(data.inputs[test, column, None])
        wrong = predicted != truth if data.classes else (predicted - truth) ** 2
        share = float(np.mean(wrong)) / trivial
        if share < (SUSPICIOUS_GAP if name in gaps else SUSPICIOUS):
            leaks.append((name, share))
    return sorted(leaks, key=lambda pair: pair[1])


def warning(columns: Sequence[tuple[str, float]]) -> str:
    """The warning about these columns as a sentence."""
    listing = ", ".join(f"{name} ({100 * share:.0f} %)" for name, share in columns[:3])
    more = f" and {len(columns) - 3} more" if len(columns) > 3 else ""
    return (
        f"a column alone gives the label away, with this share of the error of ignoring the "
        f"inputs: {listing}{more}; if it is not known before the label, drop it"
    )
