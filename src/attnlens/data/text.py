"""Texts as tokens: a small tokeniser, and word vectors learned from the training texts only.

Word vectors factorise a matrix of co-occurrences (Levy and Goldberg, NIPS 2014). With #(w, c) the
number of times that word c is within `window` words of word w, and #(w) = Σ_c #(w, c),

    PPMI(w, c) = max(0, log( #(w, c) / (#(w) P(c)) )),   P(c) = #(c)^0.75 / Σ_c' #(c')^0.75

is the positive pointwise mutual information. The power 0.75 smooths the distribution of contexts
(Levy, Goldberg and Dagan, TACL 2015). With the truncated singular value decomposition
PPMI ≈ U S Vᵀ, the word vectors are the rows of U S^(1/2), scaled so that the mean square of all
entries is one. Words outside the vocabulary are left out; short texts are padded with zero tokens.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np

from attnlens.core import checks

from .dataset import Dataset

WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)*|[!?]")
MARKUP = re.compile(r"<[^<>]{0,100}>")
SMOOTHING = 0.75  # the power in P(c), as in Levy, Goldberg and Dagan


def words(text: str) -> list[str]:
    """Lower-case words and the marks ! and ?; markup such as <br /> is removed.

    >>> words("Isn't it GREAT?<br />10/10")
    ["isn't", 'it', 'great', '?', '10', '10']
    """
    return WORD.findall(_without_markup(text))


@dataclasses.dataclass(frozen=True, eq=False)
class Embedding:
    """A vector for each word of a vocabulary; calling it converts texts to tokens.

    >>> reviews = ("good film", "bad film", "good good play", "bad play")
    >>> labels = np.array([1, 0, 1, 0])
    >>> texts = Dataset("mine", "texts", reviews, labels, ("no", "yes"), "me", "none")
    >>> Embedding.learn(texts, dim=2, least_count=1)(texts, tokens=3).array.shape
    (4, 3, 2)
    """

    vocabulary: tuple[str, ...]
    vectors: np.ndarray  # (words, dim)
    learned_from: str  # the hash of the training texts

    @classmethod
    def learn(
        cls,
        training: Dataset,
        *,
        dim: int = 32,
        most_words: int = 4000,
        least_count: int = 3,
        most_share: float = 0.5,
        window: int = 4,
    ) -> Embedding:
        """Learn vocabulary and vectors from the training texts.

        The vocabulary has the `most_words` most frequent words among those that occur at least
        `least_count` times, and in at most the share `most_share` of the texts. Two words co-occur
        if they are at most `window` words apart.
        """
        texts = [words(text) for text in _texts(training)]
        checks.whole("window", window, 1)
        vocabulary = _vocabulary(
            texts, checks.whole("most_words", most_words, 1), least_count, most_share
        )
        if checks.whole("dim", dim, 1) >= len(vocabulary):
            raise checks.BadInput(
                f"dim must be below the {len(vocabulary)} words of the vocabulary; got {dim}; give "
                f"a smaller dim or more texts."
            )
        return cls(vocabulary, _ppmi_vectors(texts, vocabulary, dim, window), training.sha256)

    def __call__(self, data: Dataset, tokens: int) -> Dataset:
        """The first `tokens` known words of each text, as vectors: (n, tokens, dim)."""
        checks.whole("tokens", tokens, 1)
        index = {word: i for i, word in enumerate(self.vocabulary)}
        array = np.zeros((len(data), tokens, self.vectors.shape[1]))
        for row, text in enumerate(_texts(data)):
            matches = (match[0] for match in WORD.finditer(_without_markup(text)))
            known = [*islice((index[word] for word in matches if word in index), tokens)]
            array[row, : len(known)] = self.vectors[known]
        return data.tokens(array, f"the first {tokens} known words as vectors")

    def grouped(self, data: Dataset, tokens: int) -> Dataset:
        """All known words of each text as at most `tokens` tokens: (n, tokens, dim).

        If a text has more than `tokens` known words, each token is the mean vector of g consecutive
        words. g is the smallest number for which there are at most `tokens` groups. The words after
        the last complete group, fewer than g, are left out.
        """
        checks.whole("tokens", tokens, 1)
        index = {word: i for i, word in enumerate(self.vocabulary)}
        array = np.zeros((len(data), tokens, self.vectors.shape[1]))
        for row, text in enumerate(_texts(data)):
            matches = (match[0] for match in WORD.finditer(_without_markup(text)))
            known = [index[word] for word in matches if word in index]
            group = max(1, -(-len(known) // tokens))
            count = len(known) // group
            vectors = self.vectors[known[: count * group]]
            array[row, :count] = vectors.reshape(count, group, -1).mean(1) if count else 0.0
        return data.tokens(array, f"known words in at most {tokens} groups, as mean vectors")


def _without_markup(text: str) -> str:
    return MARKUP.sub(" ", text.lower())


def _texts(data: Dataset) -> tuple[str, ...]:
    if not isinstance(data.inputs, tuple):
        raise checks.BadInput(f"{data.name} must hold texts; got {data.kind}.")
    return data.inputs


def _vocabulary(
    texts: Sequence[Sequence[str]], most: int, least_count: int, most_share: float
) -> tuple[str, ...]:
    counts = Counter(word for text in texts for word in text)
    texts_with = Counter(word for text in texts for word in set(text))
    candidates = [
        word
        for word, count in counts.items()
        if count >= least_count and texts_with[word] <= most_share * len(texts)
    ]
    return tuple(sorted(candidates, key=lambda word: (-counts[word], word))[:most])


def _ppmi_vectors(
    texts: Sequence[Sequence[str]], vocabulary: Sequence[str], dim: int, window: int
) -> np.ndarray:
    from scipy import sparse
    from scipy.sparse.linalg import svds

    index = {word: i for i, word in enumerate(vocabulary)}
    size, gap = len(vocabulary), [-1] * window
    # All texts are joined to one sequence of word indices, in which −1 is an unknown word. `window`
    # unknown words follow each text, so that no pair of words spans two texts.
    sequence = np.array([i for text in texts for i in (*(index.get(w, -1) for w in text), *gap)])
    pairs = sparse.csr_matrix((size, size))
    for distance in range(1, window + 1):
        first, second = sequence[:-distance], sequence[distance:]
        both = (first >= 0) & (second >= 0)
        ones = np.ones(np.count_nonzero(both))
        pairs = pairs + sparse.csr_matrix((ones, (first[both], second[both])), (size, size))
    counts = (pairs + pairs.T).tocoo()
    margin = np.asarray(counts.sum(1)).ravel()
    context = margin**SMOOTHING / max(np.sum(margin**SMOOTHING), 1)
    ppmi = np.log(counts.data / (margin[counts.row] * context[counts.col]))
    positive = ppmi > 0
    if not positive.any():
        raise checks.BadInput(
            f"word vectors need words that occur near each other, but none of the {size} words of "
            f"the vocabulary do; give more texts or a lower least_count."
        )
    indices = (counts.row[positive], counts.col[positive])
    matrix = sparse.csr_matrix((ppmi[positive], indices), (size, size))
    # A fixed starting vector makes the Lanczos iteration deterministic. The sign of a singular
    # vector is arbitrary: here, its entry of largest absolute value is positive.
    left, values, _ = svds(matrix, k=dim, v0=np.ones(size))
    order = np.argsort(-values)
    left, values = np.asarray(left)[:, order], values[order]
    left = left * np.sign(left[np.abs(left).argmax(0), np.arange(dim)])
    vectors = left * np.sqrt(values)
    return vectors / np.sqrt(np.mean(vectors**2))
