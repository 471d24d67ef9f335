"""Words, and word vectors learned from the training texts only."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.data import Dataset, Embedding, table, words


def texts(*content: str) -> Dataset:
    return Dataset("toy", "texts", content, np.zeros(len(content), int), ("no",), "here", "none")


def chatter(count: int, seed: int) -> Dataset:
    """Random texts of ten words. Each text has one of two topics, and each topic has fifteen words
    of its own."""
    random = np.random.default_rng(seed)
    drawn = [
        " ".join(f"{'ab'[topic]}{i}" for i in random.integers(0, 15, 10))
        for topic in random.integers(0, 2, count)
    ]
    return texts(*drawn)


def test_words_are_lower_case_and_without_markup():
    assert words("It's <b>NOT</b> bad -- 7/10!") == ["it's", "not", "bad", "7", "10", "!"]
    assert words("") == words("<br />…") == []
    assert words("a < b") == ["a", "b"]


def ppmi(content: list[str], vocabulary: tuple[str, ...], window: int) -> np.ndarray:
    """The PPMI matrix by the formula of the docstring of the module, computed for one pair of words
    at a time."""
    counts = np.zeros((len(vocabulary),) * 2)
    for text in content:
        sequence = words(text)
        for i, word in enumerate(sequence):
            for j, context in enumerate(sequence):
                both = word in vocabulary and context in vocabulary
                if i != j and abs(i - j) <= window and both:
                    counts[vocabulary.index(word), vocabulary.index(context)] += 1
    smoothed = counts.sum(0) ** 0.75 / np.sum(counts.sum(0) ** 0.75)
    with np.errstate(divide="ignore"):
        return np.maximum(0, np.log(counts / np.outer(counts.sum(1), smoothed)))


def test_vectors_are_the_singular_vectors_of_ppmi():
    data = chatter(40, 0)
    embedding = Embedding.learn(data, dim=5, least_count=1, window=2, most_share=1.0)
    left, values, _ = np.linalg.svd(ppmi(list(data.inputs), embedding.vocabulary, 2))
    # Singular vectors are determined up to their signs, and U S Uᵀ does not depend on the signs.
    expected = left[:, :5] * np.sqrt(values[:5])
    scale = np.sqrt(np.mean(expected**2))
    np.testing.assert_allclose(
        embedding.vectors @ embedding.vectors.T * scale**2, expected @ expected.T, atol=1e-9
    )
    assert np.mean(embedding.vectors**2) == pytest.approx(1)
    largest = np.abs(embedding.vectors).argmax(0)
    assert (embedding.vectors[largest, np.arange(5)] > 0).all()


def test_words_that_occur_together_have_similar_vectors():
    embedding = Embedding.learn(chatter(300, 1), dim=4, most_share=1.0)
    unit = embedding.vectors / np.linalg.norm(embedding.vectors, axis=1, keepdims=True)
    first = np.array([word[0] == "a" for word in embedding.vocabulary])
    inside, across = (unit @ unit.T)[first][:, first].mean(), (unit @ unit.T)[first][:, ~first]
    assert inside > 0.3 + across.mean()


def test_the_vocabulary_has_words_that_are_neither_rare_nor_in_most_texts():
    data = texts("the cat sat", "the cat ran", "the dog ran", "the owl ran", "the cat flew")
    embedding = Embedding.learn(data, dim=1, least_count=2, most_share=0.7)
    assert embedding.vocabulary == ("cat", "ran")  # equally frequent words are sorted
    few = Embedding.learn(data, dim=1, least_count=1, most_share=0.7, most_words=3)
    assert few.vocabulary == ("cat", "ran", "dog")


def test_tokens_are_the_first_known_words_padded_with_zeros():
    embedding = Embedding.learn(chatter(60, 2), dim=3, most_share=1.0)
    tokens = embedding(texts("a1 what b2 a1", "unknown", ""), 2)
    index = embedding.vocabulary.index
    np.testing.assert_array_equal(tokens.array[0], embedding.vectors[[index("a1"), index("b2")]])
    assert not tokens.array[1:].any()
    assert tokens.kind == "tokens"
    longer = embedding(texts("a1 what b2 a1"), 5).array[0]
    np.testing.assert_array_equal(longer[2], embedding.vectors[index("a1")])
    assert not longer[3:].any()


def test_vectors_depend_only_on_the_training_texts():
    training, other = chatter(60, 3), chatter(60, 4)
    embedding = Embedding.learn(training, dim=3, most_share=1.0)
    embedding(other, 4)
    again = Embedding.learn(training, dim=3, most_share=1.0)
    assert embedding.vocabulary == again.vocabulary
    np.testing.assert_array_equal(embedding.vectors, again.vectors)
    assert embedding.learned_from == training.sha256


def test_bad_input_raises_one_sentence():
    with pytest.raises(BadInput, match="dim must be below the 2 words of the vocabulary"):
        Embedding.learn(texts("a b a b", "c"), dim=2, least_count=2)
    with pytest.raises(BadInput, match="none of the 3 words of the vocabulary do"):
        Embedding.learn(texts("a", "b", "c"), dim=1, least_count=1)
    with pytest.raises(BadInput, match="wine must hold texts; got rows"):
        Embedding.learn(table("wine"))
