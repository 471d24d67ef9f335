"""Images of a user's own, as patches: a folder of IDX files, columns of pixels, or arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attnlens import checks

from .columns import Typed
from .dataset import Dataset
from .images import idx_folder, patches
from .sampling import said

Cut = tuple[np.ndarray, tuple[str, ...], tuple[tuple[str, str], ...]]


def folder(
    path: Path, target: str | None, size: int | None, rows: int, seed: int
) -> tuple[Cut, np.ndarray, tuple[str, ...]]:
    """The training part of a folder of IDX files as tokens, its labels and their names."""
    if target not in (None, "label", "labels"):
        raise checks.BadInput(
            f"a folder of IDX files brings its labels along, but target={target!r} came; leave it "
            f"out or name it label."
        )
    name = "fashion-mnist" if "fashion" in path.resolve().name.lower() else "mnist"
    data = idx_folder(path, "train", name)
    total = len(data)
    if total > rows:
        random = np.random.default_rng(seed)
        data = data.take(np.sort(random.choice(total, rows, replace=False)), "sampled")
    tokens, names, facts = cut(data.array, size)
    label = ("label", f"{len(data.classes)} classes, from the folder")
    facts = (said(len(data), total, seed), *facts, label)
    return (tokens, names, facts), data.labels, data.classes


def of_columns(columns: Mapping[str, Typed], size: int) -> Cut:
    """Columns of pixels, row after row of a square image, as tokens."""
    side = math.isqrt(len(columns))
    if side * side != len(columns) or any(each.kind != "number" for each in columns.values()):
        raise checks.BadInput(
            f"images must be square with a number for each pixel, but there are {len(columns)} "
            f"columns, {sum(each.kind == 'number' for each in columns.values())} of numbers; drop "
            f"what is no pixel."
        )
    pixels = np.stack([each.values for each in columns.values()], 1).reshape(-1, side, side)
    if np.isnan(pixels).any():
        raise checks.BadInput("every pixel must be there, but some are missing; fill them in.")
    return cut(pixels, size)


def cut(pixels: np.ndarray, size: int | None) -> Cut:
    """Images (n, height, width) as square patches; about four a side where no size is given."""
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
    words = (
        f"{len(pixels):,} of {sides[0]} × {sides[1]} pixels"
        f"{'' if scaled is pixels else f', {low:g} to {high:g} scaled to 0 to 1'}; "
        f"{tokens.shape[1]} patches of {size} × {size} are the tokens"
    )
    names = tuple(f"pixel {i // size} {i % size}" for i in range(size * size))
    return tokens, names, (("images", words),)
