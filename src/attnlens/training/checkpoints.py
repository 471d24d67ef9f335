"""Checkpoints of a fit in safetensors: arrays only, nothing that is executed when it is read.

A file holds the whole state of a group, its curves so far, and a fingerprint of settings and data;
a fit with other settings or data refuses it. Files are replaced atomically: a process that is
killed while it writes leaves the previous file as it was.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
import safetensors.numpy

from attnlens.core import checks, files

from .streaming import Mapped, is_mapped


def fingerprint(*parts: Any) -> str:
    """Return a hash of settings and data.

    For an array on disk, only its type, its shape and its first and last rows are hashed.
    """
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(parts, is_leaf=is_mapped):
        if isinstance(leaf, Mapped):
            array = leaf.open()
            digest.update(repr((leaf.dtype, leaf.shape)).encode())
            digest.update(np.ascontiguousarray(array[:1]).tobytes())
            digest.update(np.ascontiguousarray(array[-1:]).tobytes())
        elif isinstance(leaf, np.ndarray):
            digest.update(repr((leaf.dtype.str, leaf.shape)).encode())
            digest.update(np.ascontiguousarray(leaf).tobytes())
        else:
            digest.update(_stable(leaf).encode())
    return digest.hexdigest()


def _stable(thing: Any) -> str:
    """`repr` without memory addresses: a function is represented by its module and name."""
    if hasattr(thing, "__dataclass_fields__") and not isinstance(thing, type):
        fields = {name: _stable(getattr(thing, name)) for name in thing.__dataclass_fields__}
        return f"{type(thing).__name__}{fields}"
    if isinstance(thing, tuple):
        return f"({','.join(map(_stable, thing))})"
    if callable(thing):
        return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing))}"
    return repr(thing)


def save(path: Path, arrays: list[np.ndarray], mark: str, step: int) -> None:
    """Write `arrays` (in this order), the fingerprint `mark` and `step` to a file, atomically."""
    by_number = {f"{i:04d}": np.ascontiguousarray(array) for i, array in enumerate(arrays)}
    with files.replacement(path) as draft:
        safetensors.numpy.save_file(by_number, draft, {"fingerprint": mark, "step": str(step)})
        with draft.open("rb+") as file:
            os.fsync(file.fileno())


def load(path: Path, mark: str) -> tuple[list[np.ndarray], int] | None:
    """Return the arrays and the step of a checkpoint, or None if there is no file.

    Raises `BadInput` if the fingerprint in the file is not `mark`.
    """
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = [file.get_tensor(name) for name in sorted(file.keys())]
    except safetensors.SafetensorError as error:
        raise checks.BadInput(
            f"{path} is not a readable checkpoint ({error}); remove it to start again."
        ) from error
    if metadata.get("fingerprint") != mark:
        raise checks.BadInput(
            f"{path} is a checkpoint of a fit with other settings or data; remove it, or give "
            f"another folder."
        )
    return arrays, int(metadata["step"])
