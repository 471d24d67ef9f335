"""Patches of images whose pixels are numbered."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.data import Dataset, patches, table


def images(count: int = 500, side: int = 2) -> Dataset:
    pixels = 1 + np.arange(float(count * side * side)).reshape(count, side, side)
    return Dataset("toy", "images", pixels, np.zeros(count, int), ("no",), "here", "none")


def test_patches_are_cut_in_reading_order():
    data = images(count=1, side=4)  # pixels 1 to 16
    np.testing.assert_array_equal(
        patches(data, size=2).array,
        [[[1, 2, 5, 6], [3, 4, 7, 8], [9, 10, 13, 14], [11, 12, 15, 16]]],
    )
    overlapping = patches(data, size=2, stride=1)
    assert overlapping.array.shape == (1, 9, 4)
    np.testing.assert_array_equal(overlapping.array[0, 4], [6, 7, 10, 11])
    placed = patches(data, size=2, positions=True).array
    np.testing.assert_array_equal(placed[0, :, 4:], [[-1, -1], [-1, 1], [1, -1], [1, 1]])
    assert patches(data, size=2).kind == "tokens"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: patches(images(), size=3), "cover the images of shape"),
        (lambda: patches(images(side=5), size=3, stride=4), "cover the images of shape"),
        (lambda: patches(images(), size=0), "size must be a whole number of at least 1"),
        (lambda: patches(table("wine"), size=2), r"cut from images; got rows \(wine\)"),
    ],
)
def test_bad_input_raises_one_sentence(make, message: str):
    with pytest.raises(BadInput, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
