"""A small random BERT encoder, and random texts of the words that it knows."""

import numpy as np

from attnlens import data
from attnlens.integrations import Bert, WordPiece
from attnlens.integrations.transformers.minilm import SentenceEncoder
from attnlens.integrations.transformers.wordpiece import SPECIAL

WORDS = [
    "the",
    "film",
    "was",
    "not",
    "good",
    "bad",
    "a",
    "plot",
    "with",
    "actors",
    "scenes",
    "that",
]


def arrays(seed=0, width=8, inner=16, layers=2, most=40, dtype=np.float64):
    """Random weights by the names that they have in a safetensors file."""
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(SPECIAL) + len(WORDS), width),
        "embeddings.position_embeddings.weight": (most, width),
        "embeddings.token_type_embeddings.weight": (2, width),
    }
    parts = {
        "attention.self.query": (width, width),
        "attention.self.key": (width, width),
        "attention.self.value": (width, width),
        "attention.output.dense": (width, width),
        "intermediate.dense": (inner, width),
        "output.dense": (width, inner),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(layers):
        for part, shape in parts.items():
            shapes[f"encoder.layer.{i}.{part}.weight"] = shape
            shapes[f"encoder.layer.{i}.{part}.bias"] = shape[:1]
        norms += [f"encoder.layer.{i}.{part}LayerNorm" for part in ("attention.output.", "output.")]
    weights = {name: random.normal(size=shape) for name, shape in shapes.items()}
    for norm in norms:
        weights[f"{norm}.weight"] = 1 + 0.1 * random.normal(size=width)
        weights[f"{norm}.bias"] = 0.1 * random.normal(size=width)
    return {name: array.astype(dtype) for name, array in weights.items()}


def encoder(**settings) -> SentenceEncoder:
    pieces = [*SPECIAL, *WORDS]
    return SentenceEncoder(
        Bert.of(arrays(**settings), heads=2), WordPiece({p: i for i, p in enumerate(pieces)})
    )


def reviews(count=40, words=30, seed=0) -> data.Dataset:
    random = np.random.default_rng(seed)
    texts = tuple(" ".join(random.choice(WORDS, words)) for _ in range(count))
    labels = np.array([text.count("good") > text.count("bad") for text in texts], np.int64)
    labels[:2] = 0, 1
    return data.Dataset("toy", "texts", texts, labels, ("no", "yes"), "made up", "none")


def rows() -> data.Dataset:
    return data.Dataset("toy", "rows", np.eye(3), np.arange(3), (), "made up", "none")
