"""Finished batches of `inspect` on disk, so that a stopped run can be continued.

A batch is a cell of the results file (`attnlens.runs.store`). Its key is a hash of everything that
determines its numbers: the model's files, the inputs, their shuffles, the layers, the seed and the
source code.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from attnlens.core.cells import Cell
from attnlens.runs.code_version import code_version
from attnlens.runs.store.store import Store

MEASURE = "attnlens.advice.inspection.collection"
PACKAGES = ("attnlens", "numpy", "torch", "transformers")

Arrays = Mapping[str, np.ndarray]


def digest(*arrays: np.ndarray) -> str:
    """A hash of arrays: their types, shapes and contents.

    >>> digest(np.zeros(2)) == digest(np.zeros(2)), digest(np.zeros(2)) == digest(np.zeros((2, 1)))
    (True, False)
    """
    sha256 = hashlib.sha256()
    for array in arrays:
        sha256.update(f"{array.dtype.str}{array.shape}".encode())
        sha256.update(np.ascontiguousarray(array).tobytes())
    return sha256.hexdigest()


class BatchStore:
    """Stored batches of one model; without a store, every batch is computed."""

    def __init__(self, store: Store | None = None, model: str = ""):
        self._store, self._model = store, model
        self.restored = 0

    def arrays(
        self, kind: str, content: Mapping[str, Any], seed: int, compute: Callable[[], Arrays]
    ) -> Arrays:
        """The arrays of a batch: read from the store, or else computed and stored."""
        if self._store is None:
            return compute()
        parameters = {**content, "model": self._model}
        cell = Cell("inspect", kind, MEASURE, parameters, (seed,), code_version(MEASURE))
        result = self._store.result(cell.key)
        if result is not None:
            self.restored += 1
            return result.values
        start = time.perf_counter()
        values = compute()
        self._store.keep(cell, values, time.perf_counter() - start)
        return values


@contextmanager
def batch_store(folder: str | os.PathLike[str] | None, model: str) -> Iterator[BatchStore]:
    """The stored batches of a folder. Nothing is stored without a folder, or for a model without a
    name (a function: its results could not be recognised later)."""
    if folder is None or not model:
        yield BatchStore()
        return
    with Store.writing(Path(folder)) as store:
        store.start_run({}, {name: version(name) for name in PACKAGES})
        yield BatchStore(store, model)
        store.end_run()
