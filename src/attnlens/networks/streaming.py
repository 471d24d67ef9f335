"""Data that stay on disk: memory-mapped arrays are read batch by batch and never copied whole."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from attnlens import checks


class Mapped(NamedTuple):
    """Where a memory-mapped array lies: what is sent to another process instead of its contents."""

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
    """`array` by its place on disk; a view of a part of a file has no such place."""
    if not isinstance(array.base, mmap.mmap) or array.filename is None:
        raise checks.BadInput(
            "memory-mapped data must be a whole array, as numpy.load(path, mmap_mode='r') or "
            "numpy.memmap gives it, but a slice of one came; save the part as a file of its own."
        )
    order = "C" if array.flags.c_contiguous else "F"
    path = str(Path(array.filename).resolve())
    return Mapped(path, array.dtype.str, array.shape, array.offset, order)


def gather(array: np.ndarray, rows: np.ndarray, dtype: str) -> np.ndarray:
    """array[rows], read in the order of the file, floating point in the precision of the fit."""
    wanted, inverse = np.unique(rows, return_inverse=True)
    read = np.asarray(array[wanted])
    if np.issubdtype(read.dtype, np.floating):
        read = read.astype(dtype, copy=False)
    return read[inverse.reshape(rows.shape)]
