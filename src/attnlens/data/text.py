"""Texts as tokens: a small tokeniser and word vectors, both made on the training texts alone.

Word vectors factorise how words go together (Levy and Goldberg, NIPS 2014). With #(w, c) the number
of times that c stands within `window` words of w, and #(w) = Σ_c #(w, c),

    PPMI(w, c) = max(0, log( #(w, c) / (#(w) P(c)) )),   P(c) = #(c)^0.75 / Σ_c' #(c')^0.75

where the power smooths the law of contexts (Levy, Goldberg and Dagan, TACL 2015). With
PPMI ≈ U S Vᵀ the vectors are U S^(1/2), scaled so that an entry has mean square one over the
vocabulary. Words outside the vocabulary are left out; short texts end in zero tokens.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np

from attnlens import checks

from .dataset import Dataset

WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)*|[!?]")
MARKUP = re.compile(r"<[^<>]{0,100}>")
SMOOTHING = 0.75  # Levy, Goldberg and Dagan's choice


def words(text: str) -> list[str]:
    """Lower-case words, and the marks ! and ?; markup such as <br /> is left out.

    >>> words("Isn't it GREAT?<br />10/10")
    ["isn't", 'it', 'great', '?', '10', '10']
    """
    return WORD.findall(_plain(text))


@dataclasses.dataclass(frozen=True, eq=False)
class Embedding:
    """A vector for each word of a vocabulary; call it on texts to make tokens of them.

    >>> said = ("good film", "bad film", "good good play", "bad play")
    >>> texts = Dataset("mine", "texts", said, np.array([1, 0, 1, 0]), ("no", "yes"), "me", "none")
    >>> Embedding.learn(texts, dim=2, least_count=1)(texts, tokens=3).array.shape
    (4, 3, 2)
    """

    vocabulary: tuple[str, ...]
    vectors: np.ndarray  # (words, dim)
    learned_from: str  # the hash of the texts it was made on

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
        """Vocabulary and vectors from the training texts.

        Of the words that occur `least_count` times and in no more than `most_share` of the texts,
        the `most_words` most frequent are kept.
        """
        texts = [words(text) for text in _texts(training)]
        checks.whole("window", window, 1)
        vocabulary = _vocabulary(
            texts, checks.whole("most_words", most_words, 1), least_count, most_share
        )
        if checks.whole("dim", dim, 1) >= len(vocabulary):
            raise checks.BadInput(
                f"dim must be below the {len(vocabulary)} words of the vocabulary, but {dim} came; "
                f"give a smaller dim or more texts."
            )
        return cls(vocabulary, _ppmi_vectors(texts, vocabulary, dim, window), training.sha256)

    def __call__(self, data: Dataset, tokens: int) -> Dataset:
        """The first `tokens` known words of each text, as vectors: (n, tokens, dim)."""
        checks.whole("tokens", tokens, 1)
        place = {word: i for i, word in enumerate(self.vocabulary)}
        made = np.zeros((len(data), tokens, self.vectors.shape[1]))
        for row, text in enumerate(_texts(data)):
            found = (match[0] for match in WORD.finditer(_plain(text)))
            known = [*islice((place[word] for word in found if word in place), tokens)]
            made[row, : len(known)] = self.vectors[known]
        return data.tokens(made, f"the first {tokens} known words as vectors")


def _plain(text: str) -> str:
    return MARKUP.sub(" ", text.lower())


def _texts(data: Dataset) -> tuple[str, ...]:
    if not isinstance(data.inputs, tuple):
        raise checks.BadInput(f"words need texts, but {data.name} holds {data.kind}.")
    return data.inputs


def _vocabulary(
    texts: Sequence[Sequence[str]], most: int, least_count: int, most_share: float
) -> tuple[str, ...]:
    counts = Counter(word for text in texts for word in text)
    spread = Counter(word for text in texts for word in set(text))
    kept = [
        word
        for word, count in counts.items()
        if count >= least_count and spread[word] <= most_share * len(texts)
    ]
    return tuple(sorted(kept, key=lambda word: (-counts[word], word))[:most])


def _ppmi_vectors(
    texts: Sequence[Sequence[str]], vocabulary: Sequence[str], dim: int, window: int
) -> np.ndarray:
    from scipy import sparse
    from scipy.sparse.linalg import svds

    place = {word: i for i, word in enumerate(vocabulary)}
    size, apart = len(vocabulary), [-1] * window
    # One long line of word numbers; −1 is an unknown word, and keeps texts apart.
    line = np.array([i for text in texts for i in (*(place.get(w, -1) for w in text), *apart)])
    pairs = sparse.csr_matrix((size, size))
    for distance in range(1, window + 1):
        left, right = line[:-distance], line[distance:]
        both = (left >= 0) & (right >= 0)
        ones = np.ones(np.count_nonzero(both))
        pairs = pairs + sparse.csr_matrix((ones, (left[both], right[both])), (size, size))
    counts = (pairs + pairs.T).tocoo()
    margin = np.asarray(counts.sum(1)).ravel()
    context = margin**SMOOTHING / max(np.sum(margin**SMOOTHING), 1)
    ppmi = np.log(counts.data / (margin[counts.row] * context[counts.col]))
    positive = ppmi > 0
    if not positive.any():
        raise checks.BadInput(
            f"word vectors need words that stand near each other, but the {size} words of the "
            f"vocabulary do not; give more texts or a lower least_count."
        )
    where = (counts.row[positive], counts.col[positive])
    matrix = sparse.csr_matrix((ppmi[positive], where), (size, size))
    # A fixed start makes Lanczos repeatable; a vector's sign is free, so its largest entry is > 0.
    found, values, _ = svds(matrix, k=dim, v0=np.ones(size))
    order = np.argsort(-values)
    left, values = np.asarray(found)[:, order], values[order]
    left = left * np.sign(left[np.abs(left).argmax(0), np.arange(dim)])
    vectors = left * np.sqrt(values)
    return vectors / np.sqrt(np.mean(vectors**2))
