"""Texts as tokens: word vectors are learned from some of the texts, which are then left out of the
data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlens import data
from attnlens.core.checks import BadInput
from attnlens.data import Dataset, Embedding
from table_files import fact, write_columns

read: Any = data.read  # typed as Any: X and y are not None in these tests
embedded: Any = data.embedded
LABEL = [("yes", "no")[i % 2] for i in range(60)]


def test_texts_become_tokens_by_word_vectors_learned_from_a_quarter_of_them(tmp_path: Path):
    adjectives = ["good", "fine", "great", "bad", "poor", "dull"]
    texts = [
        f"the film {i} was {adjectives[i % 6]} and {adjectives[(i * i) % 6]} as a film can be"
        for i in range(200)
    ]
    stars = [i % 5 for i in range(200)]
    path = write_columns(tmp_path, text=texts, stars=stars, label=LABEL[:2] * 100)
    loaded = read(path, target="label", text="text")
    assert loaded.X is None
    assert loaded.dataset.kind == "texts"
    assert fact(loaded, "not used beside texts") == "stars"
    tokens = embedded(loaded, tokens=6)
    assert tokens.X.shape[:2] == (150, 6)
    assert len(tokens.y) == 150
    assert "50 of the texts" in fact(tokens, "words")
    assert embedded(tokens) is tokens
    with pytest.raises(BadInput, match="give at least 32"):
        embedded(read(write_columns(tmp_path, text=texts[:20], label=LABEL[:20]), text="text"))


def test_long_texts_are_grouped_and_not_cut():
    random = np.random.default_rng(0)
    names = [f"word{i}" for i in range(12)]
    texts = tuple(" ".join(random.choice(names, 50)) for _ in range(40))
    data = Dataset("mine", "texts", texts, np.zeros(40), (), "me", "none")
    embedding = Embedding.learn(data, dim=4, least_count=1, most_share=1.0)
    words = embedding(data, 50).array
    grouped = embedding.grouped(data, 8).array  # ⌈50/8⌉ = 7 words per token, 7 tokens
    np.testing.assert_allclose(
        grouped[:, :7], words[:, :49].reshape(40, 7, 7, 4).mean(2), rtol=0, atol=1e-14
    )
    assert not grouped[:, 7].any()
    np.testing.assert_array_equal(embedding.grouped(data, 64).array[:, :50], words)
