"""Does the order of tokens matter in a user's own data? `exchangeability`, told in plain words.

What is a token depends on the file: the tokens of sequences, the words of texts, the patches of
images; of a plain table its rows, in the order of the file, or, along columns, the columns of each
row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from attnlens import checks
from attnlens.data import Loaded, words
from attnlens.instruments import exchangeability
from attnlens.instruments.exchange import LEVEL, Exchangeability
from attnlens.instruments.martingale import Wealth, wealth
from attnlens.records import Answer, Reading, Sheet

from .phrases import unknown

MOST_TOKENS = 50_000  # a thousand permutations of so many take half a minute
# Vectors of a sequence that are bet on, from its beginning: each is compared with all before it,
# and so many take up to ten seconds.
WATCHED = 20_000
ORDER = "Does the order of tokens matter?"
STREAM = "Would somebody who watches tokens come have noticed?"
# The question, and what an effect above and below zero says about it.
EFFECTS = {
    "neighbours": (
        "Are neighbouring tokens alike?", "yes, more than by chance",
        "no, they differ more than by chance",
    ),
    "drift": ("Do tokens move from the beginning to the end?", "yes, upwards", "yes, downwards"),
    "scale": ("Does their spread change?", "yes, it grows", "yes, it shrinks"),
}  # fmt: skip
# Of vectors and categories the drift is a squared length.
SQUARED = (EFFECTS["drift"][0], "yes, further than by chance", "no, less far than by chance")


class Subject(NamedTuple):
    """What `exchangeability` takes, what its tokens are, and what was left out."""

    tokens: Any
    what: str
    left_out: str = ""


def order_matters(
    loaded: Loaded, *, along: str = "rows", permutations: int = 999, seed: int = 0
) -> Sheet:
    """An exact test whether tokens are exchangeable, how they are not, and a bet on it.

    loaded: what `attnlens.data.read` returned. along: of a plain table, "rows" (one sequence, in
    the order of the file) or "columns" (each row is a sequence). Returns a `Sheet`; the test
    and its source are those of `exchangeability`.

    >>> import pandas as pd
    >>> from attnlens.data import read
    >>> rising = read(pd.DataFrame({"level": np.arange(40.0), "other": np.arange(40.0) % 7}))
    >>> order_matters(rising).answers[0].answer.startswith("yes")
    True
    """
    subject = _shortened(_subject(loaded, along), seed)
    found = exchangeability(subject.tokens, permutations=permutations, wealth=False, seed=seed)
    earned = wealth([x[:WATCHED] if x.ndim == 2 else x for x in subject.tokens], seed=seed)
    facts = [*loaded.facts, ("tokens tested", subject.what)]
    if subject.left_out:
        facts.append(("left out of the test", subject.left_out))
    if found.details["left_out"]:
        facts.append(("sequences of one token", f"{found.details['left_out']:,}, left out"))
    answers = (_order(found), *_effects(found), _noticed(earned))
    figures = (found.figure(), earned.figure())
    return Sheet(f"Order of tokens in {loaded.dataset.name}", tuple(facts), answers, figures)


def _subject(loaded: Loaded, along: str) -> Subject:
    checks.one_of("along", along, ("rows", "columns"))
    if loaded.sequences is not None:
        return Subject(loaded.sequences, f"those of {len(loaded.sequences):,} sequences")
    if isinstance(loaded.dataset.inputs, tuple):
        return _words(loaded.dataset.inputs)
    X = loaded.X
    assert X is not None
    if X.ndim == 3:
        return Subject(list(X), f"{X.shape[1]} in each of {len(X):,} rows")
    if along == "columns":
        if X.shape[1] < 2:
            raise checks.BadInput("along columns takes two columns and more, but there is one.")
        spread = X.std(0)
        scaled = (X - X.mean(0)) / np.where(spread > 0, spread, 1.0)
        return Subject(scaled, f"the {X.shape[1]} columns of each row, standardised")
    columns = list(loaded.columns.values())
    if len(columns) == 1 and columns[0].kind == "category":
        values = [str(each) for each in columns[0].values]
        codes = np.unique(values, return_inverse=True)[1]
        return Subject([codes], f"the {len(codes):,} rows, in the order of the file")
    tokens = X[:, 0] if X.shape[1] == 1 else X
    return Subject([tokens], f"the {len(X):,} rows, in the order of the file")


def _words(texts: tuple[str, ...]) -> Subject:
    split = [words(text) for text in texts]
    place = {word: i for i, word in enumerate(sorted({w for each in split for w in each}))}
    codes = [np.array([place[word] for word in each], int) for each in split if each]
    if not codes:
        raise checks.BadInput("the texts hold no words, so there is no order to test.")
    return Subject(codes, f"the words of {len(codes):,} texts")


def _shortened(subject: Subject, seed: int) -> Subject:
    """At most MOST_TOKENS: a random part of the sequences, or the beginning of a single one."""
    tokens = subject.tokens
    lengths = np.array([len(each) for each in tokens])
    if lengths.sum() <= MOST_TOKENS:
        return subject
    if len(tokens) == 1:
        said = f"all but the first {MOST_TOKENS:,} of {lengths[0]:,} tokens"
        return subject._replace(tokens=[tokens[0][:MOST_TOKENS]], left_out=said)
    order = np.random.default_rng(seed).permutation(len(tokens))
    room = max(1, int(np.searchsorted(np.cumsum(lengths[order]), MOST_TOKENS, side="right")))
    kept = [tokens[i][:MOST_TOKENS] for i in np.sort(order[:room])]
    said = f"all but {len(kept):,} of {len(tokens):,} sequences, drawn at random"
    return subject._replace(tokens=kept, left_out=said)


# -- answers ---------------------------------------------------------------------------------------


def _order(found: Exchangeability) -> Answer:
    p = Reading(found.value, found.standard_error, found.count)
    sequences = found.details["sequences"]
    evidence = (
        f"p = {found.value:.3g} of an exact permutation test, {found.details['orders']}, "
        f"{sequences:,} sequence{'s' * (sequences > 1)} of {found.details['kind']}"
    )
    if found.details["constant"]:
        return Answer(ORDER, "no: every sequence is constant", evidence, readings={"p": p})
    if 1 / (found.count + 1) > LEVEL:
        why = f"so few tokens have {found.count + 1} orders, and p cannot be small"
        return unknown(ORDER, evidence, why, p=p)
    if found.value > LEVEL:
        return Answer(ORDER, "no sign that it does", evidence, readings={"p": p})
    values = found.details["statistics"]
    strongest = max(values, key=values.__getitem__)
    return Answer(ORDER, f"yes, most of all by {strongest}", evidence, readings={"p": p})


def _effects(found: Exchangeability) -> list[Answer]:
    answers = []
    for name, effect in found.effects.items():
        signed = name != "drift" or found.details["kind"] == "numbers"
        question, above, below = EFFECTS[name] if signed else SQUARED
        meaning = effect.details["meaning"]
        plain = Reading(effect.value, effect.standard_error, effect.count, effect.status)
        if effect.status != "ok" or not math.isfinite(effect.standard_error):
            status = effect.status if effect.status != "ok" else "a single value has no error"
            answers.append(unknown(question, meaning, status))
            continue
        apart = abs(effect.value) > 1.96 * effect.standard_error
        said = (above if effect.value > 0 else below) if apart else "no sign of it"
        evidence = f"{effect.value:.3g} ± {effect.standard_error:.2g}: {meaning}"
        answers.append(Answer(question, said, evidence, readings={name: plain}))
    return answers


def _noticed(earned: Wealth) -> Answer:
    when = earned.reached(LEVEL)
    said = "no" if when is None else f"yes, after {when:,} tokens"
    return Answer(STREAM, said, str(earned))
