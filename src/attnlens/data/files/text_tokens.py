"""Texts as tokens for networks; the texts that word vectors are learned from are set apart."""

from __future__ import annotations

import dataclasses

import numpy as np

from attnlens.core import checks
from attnlens.data.dataset import Dataset, deduplicated, split
from attnlens.data.text import Embedding

from .facts import Remark
from .loaded import Loaded

SHARE = 0.25  # share of the texts from which word vectors are learned
FEWEST = 8  # minimal number of texts from which word vectors are learned
DIMS = (16, 8, 4, 2)  # dimensions of word vectors; the first that the vocabulary allows is used


def embedded(loaded: Loaded, *, tokens: int = 32, seed: int = 0) -> Loaded:
    """`loaded` with its texts as tokens (n, tokens, dim); data without texts are returned as is.

    A text with more than `tokens` known words is not cut: its tokens are the means of groups of
    consecutive words (`Embedding.grouped`). Word vectors are learned from a quarter of the texts,
    drawn at random. These texts are then removed from the data: no text is used for both purposes.

    >>> from attnlens.data import read
    >>> import pandas as pd
    >>> table = pd.DataFrame({"text": [f"word{i % 7} and word{i % 5} {i}" for i in range(400)]})
    >>> embedded(read(table, text="text"), tokens=4).X.shape
    (300, 4, 4)
    """
    if loaded.dataset.kind != "texts":
        return loaded
    checks.whole("tokens", tokens, at_least=1)
    data = deduplicated(loaded.dataset, conflicts=True)
    count = int(SHARE * len(data))
    if count < FEWEST:
        raise checks.BadInput(
            f"word vectors are learned from a quarter of the texts, which must be at least "
            f"{FEWEST}; got {len(data)} texts; give at least {round(FEWEST / SHARE)}."
        )
    sets = split(data, {"words": count, "rest": len(data) - count}, seed)
    embedding = _learn(sets["words"])
    learned_from = set(sets["words"].digests)
    rest = [i for i, digest in enumerate(loaded.dataset.digests) if digest not in learned_from]
    tokenised = embedding.grouped(loaded.dataset.take(rest, "texts with no other use"), tokens)
    labels = None if loaded.y is None else tokenised.labels
    fact = Remark(
        "words",
        f"{len(embedding.vocabulary):,} in vectors of {embedding.vectors.shape[1]}, learned from "
        f"{count:,} of the texts, which are used for nothing else; the tokens of the other "
        f"{len(tokenised):,} are their known words or, of a text with more than {tokens}, means of "
        f"consecutive ones",
    )
    names = tuple(f"word vector {i}" for i in range(embedding.vectors.shape[1]))
    records = (*loaded.records, fact)
    texts = tuple(loaded.dataset.inputs[row] for row in rest)
    X = np.asarray(tokenised.array)
    return dataclasses.replace(
        loaded, dataset=tokenised, X=X, y=labels, names=names, records=records, texts=texts
    )


def _learn(texts: Dataset) -> Embedding:
    """Word vectors of the largest dimension that the vocabulary allows."""
    for dim in DIMS:
        try:
            return Embedding.learn(texts, dim=dim)
        except checks.BadInput:
            if dim == DIMS[-1]:
                raise
    raise AssertionError
