"""Data that stay on disk: memory-mapped arrays are read batch by batch, never all at once."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from attnlens.core import checks


class Mapped(NamedTuple):
    """Where a memory-mapped array is on disk; sent to other processes instead of its data."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    order: str

    def open(self) -> np.memmap:
        order: Any = self.order
        return np.memmap(self.path, np.dtype(self.dtype), "r", self.offset, self.shape, order=order)


def is_mapped(leaf: Any) -> bool:
    return isinstance(leaf, (np.memmap, Mapped))


def any_mapped(*trees: Any) -> bool:
    """Whether any array of the trees stays on disk."""
    return any(is_mapped(leaf) for leaf in jax.tree.leaves(trees, is_leaf=is_mapped))


def handle(array: np.memmap) -> Mapped:
    """The location of `array` on disk; slices of a memory map raise `BadInput`."""
    if not isinstance(array.base, mmap.mmap) or array.filename is None:
        raise checks.BadInput(
            "memory-mapped data must be a whole array, as numpy.load(path, mmap_mode='r') or "
            "numpy.memmap returns it; got a slice of one; save the part as a file of its own."
        )
    order = "C" if array.flags.c_contiguous else "F"
    path = str(Path(array.filename).resolve())
    return Mapped(path, array.dtype.str, array.shape, array.offset, order)


def gather(array: np.ndarray, rows: np.ndarray, dtype: str) -> np.ndarray:
    """Return `array[rows]`, read in file order; floating-point values are converted to `dtype`."""
    in_file_order, inverse = np.unique(rows, return_inverse=True)
    values = np.asarray(array[in_file_order])
    if np.issubdtype(values.dtype, np.floating):
        values = values.astype(dtype, copy=False)
    elif np.issubdtype(values.dtype, np.integer):
        values = int32("the data", values)
    return values[inverse.reshape(rows.shape)]


def int32(name: str, array: np.ndarray) -> np.ndarray:
    """Convert whole numbers to 32 bits; raises `BadInput` if one of them does not fit."""
    limits = np.iinfo(np.int32)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise checks.BadInput(
            f"whole numbers of {name} must fit into 32 bits; got {array.min()} to {array.max()}; "
            f"convert them to floating point."
        )
    return array.astype(np.int32)
