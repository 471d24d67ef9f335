"""BERT's tokeniser: the words of a text, cut into pieces of a vocabulary, by `tokenizers`.

A text is cleaned (control characters and accents are removed, capitals become lower case) and split
at spaces, around every punctuation mark and around every Chinese character. Then each word is cut
greedily: the longest prefix in the vocabulary is the first piece, and the rest is cut in the same
way. Pieces inside a word start with ## (Wu et al., 2016; Devlin et al., NAACL 2019). A word that
cannot be cut, or has more than 100 characters, becomes [UNK]. The names of special tokens, such as
[SEP], are ordinary words if they occur in a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from attnlens.core import checks

START, END, UNKNOWN, PADDING = SPECIAL = ("[CLS]", "[SEP]", "[UNK]", "[PAD]")
LIBRARY = "tokenizers"
INSTALL = f"pip install {LIBRARY}"


def installed() -> bool:
    """Whether the library that cuts words is installed."""
    return find_spec(LIBRARY) is not None


class WordPiece:
    """Converts texts to token numbers, with a vocabulary {piece: number}.

    tokeniser(text) returns the numbers of [CLS], of the pieces of the text and of [SEP].
    """

    def __init__(self, vocabulary: Mapping[str, int]):
        missing = [piece for piece in SPECIAL if piece not in vocabulary]
        if missing:
            raise checks.BadInput(
                f"a BERT vocabulary must hold {', '.join(SPECIAL)}; {', '.join(missing)} is not in "
                f"it; give the vocabulary of the model."
            )
        if not installed():
            raise checks.BadInput(
                f"BERT's tokeniser needs the package {LIBRARY}, which is not installed; install it "
                f"with {INSTALL}."
            )
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        self.vocabulary = dict(vocabulary)
        model = models.WordPiece(self.vocabulary, unk_token=UNKNOWN)
        self._tokenizer = Tokenizer(model)
        self._tokenizer.normalizer = normalizers.BertNormalizer()
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

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
        return self._tokenizer.encode(text).tokens

    def __call__(self, text: str, most: int | None = None) -> list[int]:
        """The numbers of [CLS], the pieces and [SEP]; `most` (at least 2) limits their count."""
        numbers = self._tokenizer.encode(text).ids
        if most is not None:
            numbers = numbers[: checks.whole("most", most, at_least=2) - 2]
        return [self.vocabulary[START], *numbers, self.vocabulary[END]]

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
