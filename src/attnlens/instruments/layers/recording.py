"""Recordings of what a transformer computed: the data for all measures of layers and heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Recording:
    """Hidden states and attention of a batch, padded at the end to the same number of tokens.

    lengths   (inputs,) numbers of tokens without padding
    hidden    one array (inputs, tokens, width) per layer, the embedding first
    weights   one array (inputs, heads, query, key) per layer; empty if not recorded
    queries, keys, values   one array (inputs, heads, tokens, dim) per layer; empty if not recorded
    scales    one number per layer: the factor s if logits are s ⟨q, k⟩, and NaN if they contain
              other terms, such as a bias by position
    """

    lengths: np.ndarray
    hidden: tuple[np.ndarray, ...]
    weights: tuple[np.ndarray, ...] = ()
    queries: tuple[np.ndarray, ...] = ()
    keys: tuple[np.ndarray, ...] = ()
    values: tuple[np.ndarray, ...] = ()
    scales: tuple[float, ...] = ()

    def each(self, arrays: tuple[np.ndarray, ...], layer: int) -> Iterator[np.ndarray]:
        """Yield the array of a layer for each input, without padding.

        >>> batch = Recording(np.array([2, 1]), (np.ones((2, 2, 3)),))
        >>> [one.shape for one in batch.each(batch.hidden, 0)]
        [(2, 3), (1, 3)]
        """
        square = arrays is self.weights
        for one, length in zip(arrays[layer], self.lengths, strict=True):
            if square:
                yield one[:, :length, :length]
            else:
                yield one[..., :length, :]

    def pooled(self) -> np.ndarray:
        """Return the mean hidden state over the tokens of each input: (layers, inputs, width)."""
        means = [[h.mean(0, dtype=float) for h in self.each(self.hidden, i)] for i in self.layers]
        return np.array(means)

    @property
    def layers(self) -> range:
        """The indices of the hidden states: 0 is the embedding."""
        return range(len(self.hidden))

    @property
    def has_heads(self) -> bool:
        """Whether weights, queries, keys and values of every head were recorded."""
        return bool(self.weights and self.values and self.keys and self.queries)


def recording_from(mapping: Any, lengths: np.ndarray) -> Recording:
    """Return a recording from a mapping of field names (`hidden`, …) to sequences of arrays.

    >>> recording = recording_from({"hidden": [[[[1.0]]]]}, np.array([1]))
    >>> recording.hidden[0].shape
    (1, 1, 1)
    """
    names = ("hidden", "weights", "queries", "keys", "values")
    layers = {
        name: tuple(np.asarray(array, np.float32) for array in mapping.get(name, ()))
        for name in names
    }
    heads = layers["keys"]
    scales = mapping.get("scales") or [array.shape[-1] ** -0.5 for array in heads]
    return Recording(lengths, **layers, scales=tuple(map(float, scales)))
