"""BERT's tokeniser: the words of a text, cut into pieces of a vocabulary.

A text is cleaned (control characters and accents are removed, capitals become lower case) and split
at spaces, around every punctuation mark and around every Chinese character. Then each word is cut
greedily: the longest prefix in the vocabulary is the first piece, and the rest is cut in the same
way. Pieces inside a word start with ## (Wu et al., 2016; Devlin et al., NAACL 2019). A word that
cannot be cut, or has more than 100 characters, becomes [UNK].
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from attnlens.core import checks

START, END, UNKNOWN, PADDING = SPECIAL = ("[CLS]", "[SEP]", "[UNK]", "[PAD]")
LONGEST = 100  # maximal number of characters of a word, as in BERT
# Unicode ranges of Chinese characters, each of which BERT makes a word of its own.
CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
# BERT treats all of these as punctuation; some of them are symbols in Unicode.
ASCII_MARKS = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class WordPiece:
    """Converts texts to token numbers, with a vocabulary {piece: number}.

    >>> tokeniser = WordPiece({p: i for i, p in enumerate([*SPECIAL, "un", "##seen", "film", "!"])})
    >>> tokeniser.pieces("Unseen film!")
    ['un', '##seen', 'film', '!']
    >>> tokeniser("Unseen film!")
    [0, 4, 5, 6, 7, 1]
    """

    def __init__(self, vocabulary: Mapping[str, int]):
        missing = [piece for piece in SPECIAL if piece not in vocabulary]
        if missing:
            raise checks.BadInput(
                f"a BERT vocabulary must hold {', '.join(SPECIAL)}; {', '.join(missing)} is not in "
                f"it; give the vocabulary of the model."
            )
        self.vocabulary = dict(vocabulary)
        self._longest = max(map(len, self.vocabulary))

    @classmethod
    def read(cls, path: str | Path) -> WordPiece:
        """Read a file `vocab.txt`: one piece per line, numbered from 0."""
        try:
            lines = Path(path).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise checks.BadInput(f"the vocabulary {path} cannot be read ({error}).") from error
        pieces = lines[:-1] if lines[-1] == "" else lines
        return cls({piece.rstrip("\r"): number for number, piece in enumerate(pieces)})

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text, without [CLS] and [SEP]."""
        return [piece for word in split_words(text) for piece in self._cut(word)]

    def __call__(self, text: str, most: int | None = None) -> list[int]:
        """The numbers of [CLS], the pieces and [SEP]; `most` (at least 2) limits their count."""
        pieces = self.pieces(text)
        if most is not None:
            pieces = pieces[: checks.whole("most", most, at_least=2) - 2]
        return [self.vocabulary[piece] for piece in (START, *pieces, END)]

    def batch(self, texts: Sequence[str], most: int) -> tuple[np.ndarray, np.ndarray]:
        """Token numbers and mask, both (texts, length); the mask is false for padding.

        Texts are cut to `most` tokens, and padded to the length of the longest text.
        """
        rows = [self(text, most) for text in texts]
        length = max(map(len, rows), default=0)
        numbers = np.full((len(rows), length), self.vocabulary[PADDING], np.int32)
        mask = np.zeros((len(rows), length), bool)
        for i, row in enumerate(rows):
            numbers[i, : len(row)], mask[i, : len(row)] = row, True
        return numbers, mask

    def _cut(self, word: str) -> list[str]:
        """The pieces of a word, the longest possible piece first."""
        if len(word) > LONGEST:
            return [UNKNOWN]
        pieces, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                if (piece := prefix + word[start:end]) in self.vocabulary:
                    break
            else:
                return [UNKNOWN]
            pieces.append(piece)
            start = end
        return pieces


def split_words(text: str) -> list[str]:
    """Lower-case words and single punctuation marks, without accents.

    >>> split_words("Isn't it GREÀT?")
    ['isn', "'", 't', 'it', 'great', '?']
    """
    spaced = []
    for character in text:
        kind = unicodedata.category(character)
        if character in "\t\n\r" or kind == "Zs":
            spaced.append(" ")
        elif character == "\ufffd" or kind.startswith("C"):
            continue
        elif any(low <= ord(character) <= high for low, high in CHINESE):
            spaced.append(f" {character} ")
        else:
            spaced.append(character)
    # NFD makes each accent a character of its own.
    decomposed = unicodedata.normalize("NFD", "".join(spaced).lower())
    marked = []
    for character in decomposed:
        kind = unicodedata.category(character)
        if kind == "Mn":
            continue
        mark = character in ASCII_MARKS or kind.startswith("P")
        marked.append(f" {character} " if mark else character)
    return str("".join(marked)).split()
