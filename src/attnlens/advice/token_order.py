"""`exchangeability` on a user's own data, as a sheet: does the order of tokens matter?

What a token is depends on the file: the tokens of sequences, the words of texts, or the patches of
images. The tokens of a plain table are its rows in the order of the file or, with along="columns",
the columns of each row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnlens.core import checks
from attnlens.core.sheets import Sheet
from attnlens.data import Loaded, words
from attnlens.instruments import exchangeability
from attnlens.instruments.order.martingale import wealth

from .questions import order

MOST_TOKENS = 50_000  # a thousand permutations of 50,000 tokens take half a minute
# The sequential test (test martingale) uses at most the first MOST_BETS vectors of a sequence. It
# compares each with all before it, which takes up to ten seconds for 20,000.
MOST_BETS = 20_000


class SequenceSubject(NamedTuple):
    """Sequences for `exchangeability`, and in words: what their tokens are, what was left out."""

    tokens: Any
    description: str
    left_out: str = ""


def order_matters(
    loaded: Loaded, *, along: str = "rows", permutations: int = 999, seed: int = 0
) -> Sheet:
    """An exact test of whether tokens are exchangeable, the effects that it found, and a
    test martingale.

    loaded: a result of `attnlens.data.read`. along: for a plain table, "rows" (the table is one
    sequence, in the order of the file) or "columns" (each row is a sequence). Returns a `Sheet`;
    `exchangeability` documents the test and its source.

    >>> import pandas as pd
    >>> from attnlens.data import read
    >>> rising = read(pd.DataFrame({"level": np.arange(40.0), "other": np.arange(40.0) % 7}))
    >>> order_matters(rising).order.outcome
    <AnswerOutcome.YES: 'yes'>
    """
    subject = _shortened(_sequence_subject(loaded, along), seed)
    test = exchangeability(subject.tokens, permutations=permutations, wealth=False, seed=seed)
    bets = wealth([x[:MOST_BETS] if x.ndim == 2 else x for x in subject.tokens], seed=seed)
    facts = [*loaded.facts, ("tokens tested", subject.description)]
    if subject.left_out:
        facts.append(("left out of the test", subject.left_out))
    if test.left_out:
        facts.append(("sequences of one token", f"{test.left_out:,}, left out"))
    answers = (order.order(test), *order.effects(test), order.stream(bets))
    figures = (test.figure(), bets.figure())
    return Sheet(f"Order of tokens in {loaded.dataset.name}", tuple(facts), answers, figures)


def _sequence_subject(loaded: Loaded, along: str) -> SequenceSubject:
    checks.one_of("along", along, ("rows", "columns"))
    if loaded.sequences is not None:
        return SequenceSubject(loaded.sequences, f"those of {len(loaded.sequences):,} sequences")
    if isinstance(loaded.dataset.inputs, tuple):
        return _word_sequences(loaded.dataset.inputs)
    X = loaded.X
    assert X is not None
    if X.ndim == 3:
        return SequenceSubject(list(X), f"{X.shape[1]} in each of {len(X):,} rows")
    if along == "columns":
        if X.shape[1] < 2:
            raise checks.BadInput("along columns takes two columns and more, but there is one.")
        spread = X.std(0)
        scaled = (X - X.mean(0)) / np.where(spread > 0, spread, 1.0)
        return SequenceSubject(scaled, f"the {X.shape[1]} columns of each row, standardised")
    columns = list(loaded.columns.values())
    if len(columns) == 1 and columns[0].kind == "category":
        values = [str(value) for value in columns[0].values]
        codes = np.unique(values, return_inverse=True)[1]
        return SequenceSubject([codes], f"the {len(codes):,} rows, in the order of the file")
    tokens = X[:, 0] if X.shape[1] == 1 else X
    return SequenceSubject([tokens], f"the {len(X):,} rows, in the order of the file")


def _word_sequences(texts: tuple[str, ...]) -> SequenceSubject:
    split = [words(text) for text in texts]
    numbers = {word: i for i, word in enumerate(sorted({w for text in split for w in text}))}
    codes = [np.array([numbers[word] for word in text], int) for text in split if text]
    if not codes:
        raise checks.BadInput("the texts hold no words, so there is no order to test.")
    return SequenceSubject(codes, f"the words of {len(codes):,} texts")


def _shortened(subject: SequenceSubject, seed: int) -> SequenceSubject:
    """At most `MOST_TOKENS` tokens: random sequences, or the first tokens of a single sequence."""
    tokens = subject.tokens
    lengths = np.array([len(sequence) for sequence in tokens])
    if lengths.sum() <= MOST_TOKENS:
        return subject
    if len(tokens) == 1:
        left_out = f"all but the first {MOST_TOKENS:,} of {lengths[0]:,} tokens"
        return subject._replace(tokens=[tokens[0][:MOST_TOKENS]], left_out=left_out)
    ranks = np.random.default_rng(seed).permutation(len(tokens))
    count = max(1, int(np.searchsorted(np.cumsum(lengths[ranks]), MOST_TOKENS, side="right")))
    chosen = [tokens[i][:MOST_TOKENS] for i in np.sort(ranks[:count])]
    left_out = f"all but {len(chosen):,} of {len(tokens):,} sequences, drawn at random"
    return subject._replace(tokens=chosen, left_out=left_out)
