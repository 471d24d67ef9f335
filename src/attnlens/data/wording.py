"""Texts as tokens that networks take; word vectors come from texts used for nothing else."""

from __future__ import annotations

import dataclasses

import numpy as np

from attnlens import checks

from .dataset import deduplicated, split
from .loading import Loaded
from .text import Embedding

SHARE = 0.25  # of the texts, to learn word vectors on
FEWEST = 8  # texts to learn them on
DIMS = (16, 8, 4, 2)  # the largest that the vocabulary allows


def embedded(loaded: Loaded, *, tokens: int = 32, seed: int = 0) -> Loaded:
    """`loaded` with its texts as tokens (n, tokens, dim); what holds no texts is returned as it is.

    Word vectors come from a quarter of the texts, drawn at random and then left out: no text is
    tested that helped to make them.

    >>> from attnlens.data import read
    >>> import pandas as pd
    >>> table = pd.DataFrame({"said": [f"word{i % 7} and word{i % 5} {i}" for i in range(400)]})
    >>> embedded(read(table, text="said"), tokens=4).X.shape
    (300, 4, 4)
    """
    if loaded.dataset.kind != "texts":
        return loaded
    checks.whole("tokens", tokens, at_least=1)
    data = deduplicated(loaded.dataset)
    aside = int(SHARE * len(data))
    if aside < FEWEST:
        raise checks.BadInput(
            f"word vectors need {FEWEST} texts that are used for nothing else, a quarter of all, "
            f"but there are {len(data)} texts; give at least {round(FEWEST / SHARE)}."
        )
    sets = split(data, {"words": aside, "rest": len(data) - aside}, seed)
    embedding = _learned(sets["words"])
    made = embedding(sets["rest"], tokens)
    labels = None if loaded.y is None else made.labels
    fact = (
        "words",
        f"{len(embedding.vocabulary):,} in vectors of {embedding.vectors.shape[1]}, learned from "
        f"{aside:,} of the texts, which are used for nothing else; the first {tokens} known words "
        f"of the other {len(made):,} are their tokens",
    )
    names = tuple(f"word vector {i}" for i in range(embedding.vectors.shape[1]))
    facts = (*loaded.facts, fact)
    X = np.asarray(made.array)
    return dataclasses.replace(loaded, dataset=made, X=X, y=labels, names=names, facts=facts)


def _learned(texts) -> Embedding:
    for dim in DIMS:
        try:
            return Embedding.learn(texts, dim=dim)
        except checks.BadInput:
            if dim == DIMS[-1]:
                raise
    raise AssertionError
