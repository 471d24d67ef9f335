"""Images as square patches: from a folder of IDX files, columns of pixels, or arrays."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attnlens.core import checks
from attnlens.data.dataset import Dataset, deduplicated

from .columns import TypedColumn
from .facts import Facts, Remark, RowsRead
from .idx import MOST_BYTES, read_idx
from .sampling import Request

# Bytes of memory per pixel: one as it is stored, and three float64 copies (scaled, as part of a
# patch, and a temporary one).
BYTES_PER_PIXEL = 1 + 3 * 8
DIGITS = tuple("0123456789")
FASHION = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "boot",
)
FILE_STARTS = {"train": "train", "test": "t10k"}  # prefixes of the names of the four IDX files
Patches = tuple[np.ndarray, tuple[str, ...], Facts]
"""Tokens (n, patches, pixels), names of the pixels, facts."""


def read_image_folder(
    path: Path, target: str | None, size: int | None, request: Request
) -> tuple[Patches, np.ndarray, tuple[str, ...]]:
    """Patches of the training images in a folder of IDX files, labels, and class names."""
    if target not in (None, "label", "labels"):
        raise checks.BadInput(
            f"target must be label for a folder of IDX files, which has its own labels; got "
            f"{target!r}; leave it out."
        )
    name = "fashion-mnist" if "fashion" in path.resolve().name.lower() else "mnist"
    stored = _stored_images(path, "train", name, request.memory // 2)
    total, pixels = len(stored), math.prod(stored.array.shape[1:])
    fitting = request.memory // (BYTES_PER_PIXEL * max(pixels, 1))
    if not fitting:
        raise checks.BadInput(
            f"an image of {path} must fit into memory, {request.memory:,} bytes; got {pixels:,} "
            f"pixels; give a larger memory limit."
        )
    data = stored
    if (rows := min(request.rows, fitting)) < total:
        random = np.random.default_rng(request.seed)
        data = stored.take(np.sort(random.choice(total, rows, replace=False)), "sampled")
    data = _scaled(data)
    tokens, names, facts = cut_patches(data.array, size)
    label = Remark("label", f"{len(data.classes)} classes, from the folder")
    facts = (RowsRead(len(data), total, request.seed), *facts, label)
    return (tokens, names, facts), data.labels, data.classes


def patches_from_columns(columns: Mapping[str, TypedColumn], size: int) -> Patches:
    """Patches of square images from a table with one pixel per column, in row-major order."""
    side = math.isqrt(len(columns))
    count = sum(column.kind == "number" for column in columns.values())
    if side * side != len(columns) or count < len(columns):
        raise checks.BadInput(
            f"images must be square, with one column of numbers per pixel; got {len(columns)} "
            f"columns, {count} of numbers; drop columns that are not pixels."
        )
    pixels = np.stack([column.values for column in columns.values()], 1).reshape(-1, side, side)
    if np.isnan(pixels).any():
        raise checks.BadInput("every pixel must have a value, but some are missing; fill them in.")
    return cut_patches(pixels, size)


def cut_patches(pixels: np.ndarray, size: int | None) -> Patches:
    """Images (n, height, width) as square patches of `size` × `size` pixels.

    Pixels are scaled to [0, 1] if one of them is outside this interval. If `size` is None, it is
    the largest divisor of height and width that gives at least four patches per side; if there is
    none, it is their greatest common divisor.
    """
    low, high = float(pixels.min()), float(pixels.max())
    scaled = (pixels - low) / (high - low) if high > low else pixels - low
    if not (high > 1 or low < 0):
        scaled = pixels
    sides = pixels.shape[1:]
    if size is None:
        common = math.gcd(*sides)
        fitting = [d for d in range(1, common + 1) if common % d == 0 and 4 * d <= min(sides)]
        size = max(fitting, default=common)
    images = Dataset("images", "images", scaled, np.zeros(len(pixels)), (), "", "")
    tokens = patches(images, size=size).array
    fact = (
        f"{len(pixels):,} of {sides[0]} × {sides[1]} pixels"
        f"{'' if scaled is pixels else f', {low:g} to {high:g} scaled to 0 to 1'}; "
        f"{tokens.shape[1]} patches of {size} × {size} are the tokens"
    )
    names = tuple(f"pixel {i // size} {i % size}" for i in range(size * size))
    return tokens, names, (Remark("images", fact),)


def idx_folder(folder: str | os.PathLike[str], part: str = "train", name: str = "mnist") -> Dataset:
    """MNIST or Fashion-MNIST from your own folder with the four IDX files, gzipped or not.

    part: "train" or "test". name: "mnist" or "fashion-mnist", which decides the class names.

    >>> idx_folder("no-such-folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attnlens.core.checks.BadInput: ...
    """
    return _scaled(_stored_images(Path(folder), part, name, MOST_BYTES))


def _scaled(images: Dataset) -> Dataset:
    """The images with pixels from 0 to 1 in place of bytes."""
    return dataclasses.replace(images, inputs=images.array / 255)


def _stored_images(folder: Path, part: str, name: str, most_bytes: int) -> Dataset:
    """The images of a folder as bytes, without duplicates."""
    start = FILE_STARTS[checks.one_of("part", part, FILE_STARTS)]
    checks.one_of("name", name, ("mnist", "fashion-mnist"))
    images = read_idx(_find(folder, f"{start}-images", "idx3-ubyte"), most_bytes)
    labels = read_idx(_find(folder, f"{start}-labels", "idx1-ubyte"), most_bytes)
    if images.ndim != 3 or images.dtype != np.uint8 or labels.ndim != 1 or labels.dtype != np.uint8:
        raise checks.BadInput(
            f"{folder} must hold byte images with three axes and byte labels with one; got images "
            f"of shape {images.shape} and labels of shape {labels.shape}."
        )
    if labels.size and labels.max() > 9:
        raise checks.BadInput(f"labels must be 0 to 9; got {labels.max()}; get the file again.")
    classes = FASHION if name == "fashion-mnist" else DIGITS
    licence = "MIT (Fashion-MNIST)" if name == "fashion-mnist" else "CC BY-SA 3.0 (MNIST)"
    source = f"IDX files of {name}, {part} part, from the folder {folder.name}"
    return deduplicated(
        Dataset(name, "images", images, labels.astype(np.int64), classes, source, licence)
    )


def _find(folder: Path, start: str, end: str) -> Path:
    names = [f"{start}{dot}{end}{packed}" for dot in "-." for packed in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise checks.BadInput(
        f"{folder} must hold the file {names[0]} or {names[1]}; there is no such file; give the "
        f"folder that holds the four IDX files."
    )


def patches(
    images: Dataset, *, size: int, stride: int | None = None, positions: bool = False
) -> Dataset:
    """Square patches as tokens, (n, tokens, size²); the default `stride` is `size`.

    `positions` appends two coordinates to each token: its row and column, from −1 to 1.

    >>> from attnlens.data import digits
    >>> patches(digits(), size=4).array.shape[1:]
    (4, 16)
    """
    step = checks.whole("size", size, 1) if stride is None else checks.whole("stride", stride, 1)
    pixels = images.array
    if images.kind != "images":
        raise checks.BadInput(f"patches are cut from images; got {images.kind} ({images.name}).")
    if min(pixels.shape[1:]) < size or any((side - size) % step for side in pixels.shape[1:]):
        raise checks.BadInput(
            f"patches must cover the images of shape {pixels.shape[1:]} exactly; got size {size} "
            f"and stride {step}; give another size or stride."
        )
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (size, size), axis=(1, 2))
    windows = windows[:, ::step, ::step]
    tokens = windows.reshape(len(pixels), -1, size * size)
    if positions:
        grid = np.meshgrid(*(np.linspace(-1, 1, n) for n in windows.shape[1:3]), indexing="ij")
        position = np.stack(grid, -1).reshape(-1, 2)
        repeated = np.broadcast_to(position, (len(pixels), *position.shape))
        tokens = np.concatenate([tokens, repeated], -1)
    return images.tokens(
        tokens, f"patches: size {size}, stride {step}{', with positions' * positions}"
    )
