"""The record of a data set, duplicates, and splits."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlens.core.checks import BadInput
from attnlens.data import Dataset, deduplicated, digits, split


def texts(*content: str, labels: list[int] | None = None) -> Dataset:
    given_labels = np.array(labels or [0] * len(content))
    return Dataset("toy", "texts", content, given_labels, ("no", "yes"), "here", "none")


def rows(count: int) -> Dataset:
    values = np.arange(float(2 * count)).reshape(count, 2)
    return Dataset("toy", "rows", values, np.arange(count) % 2, ("no", "yes"), "here", "none")


def test_duplicates_are_kept_once_and_dropped_if_their_labels_differ():
    data = texts("Good film", "bad", "good  FILM", "odd", "odd", labels=[1, 0, 1, 0, 1])
    kept = deduplicated(data)
    assert kept.inputs == ("Good film", "bad")
    assert kept.labels.tolist() == [1, 0]
    assert kept.history == ("3 duplicates dropped",)
    assert deduplicated(kept) is kept


@given(seed=st.integers(0, 2**40), sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_sets_and_parts_share_no_row_and_are_repeatable(seed: int, sizes: list[int]):
    data, named = rows(97), {f"set {i}": size for i, size in enumerate(sizes)}
    parts = [split(data, named, seed, part) for part in range(97 // sum(sizes))]
    seen = [row for part in parts for subset in part.values() for row in subset.array[:, 0]]
    assert len(seen) == len(set(seen)) == sum(sizes) * len(parts)
    again = split(data, named, seed)
    for name, size in named.items():
        assert len(again[name]) == size
        assert again[name].sha256 == parts[0][name].sha256 == again[name].splits[name]


def test_a_split_does_not_depend_on_the_order_of_the_file():
    data = digits()
    backwards = data.take(np.arange(len(data))[::-1], "reversed")
    sizes = {"train": 100, "test": 200}
    for name, subset in split(data, sizes, 5).items():
        assert subset.sha256 == split(backwards, sizes, 5)[name].sha256
    assert split(data, sizes, 5)["train"].sha256 != split(data, sizes, 6)["train"].sha256


def test_a_split_is_the_one_that_the_docstring_describes():
    data = rows(20)
    digests = [hashlib.sha256(row.tobytes()).digest() for row in data.array]
    order = sorted(range(20), key=lambda i: hashlib.sha256(b"3:" + digests[i]).digest())
    chosen = split(data, {"a": 4, "b": 5}, seed=3, part=1)["b"]
    assert chosen.array.tolist() == data.array[order[13:18]].tolist()
    assert chosen.labels.tolist() == data.labels[order[13:18]].tolist()


def test_splits_mix_the_classes():
    """400 of 1,797 digits are drawn: the count of a class is hypergeometric with mean near 40 and
    standard deviation 5.3. The probability of more than 6 standard deviations is 2e-9 per class."""
    chosen = split(digits(), {"train": 400}, 0)["train"]
    counts = np.bincount(chosen.labels, minlength=10)
    expected = np.bincount(digits().labels) * 400 / len(digits())
    assert np.abs(counts - expected).max() <= 6 * 5.3


def test_hashes_depend_on_inputs_and_labels_but_not_on_byte_order():
    data = rows(5)
    other = dataclasses.replace(data, labels=1 - data.labels)
    moved = dataclasses.replace(data, inputs=data.array + 1)
    assert len({data.sha256, other.sha256, moved.sha256}) == 3
    big = dataclasses.replace(data, inputs=data.array.astype(">f8"))
    assert big.sha256 == data.sha256


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: split(rows(5), {"train": 6}, 0), "must have 6 rows .*; got 5"),
        (lambda: split(rows(5), {"train": 3}, 0, part=1), "must have 6 rows"),
        (lambda: split(rows(5), {}, 0), "at least one set"),
        (lambda: split(rows(5), {"train": 0}, 0), "the size of train must be a whole number"),
        (lambda: split(rows(5), {"train": 2}, -1), "seed must be a whole number"),
        (lambda: split(texts("a", "A"), {"train": 1}, 0), "call deduplicated"),
        (lambda: texts("a").array, "must hold numbers; got texts"),
        (lambda: texts("a", labels=[0, 1]), "one label for each of the 1 inputs"),
        (lambda: dataclasses.replace(rows(2), kind="images"), "images must have 3 axes"),
        (lambda: dataclasses.replace(rows(2), kind="sounds"), "kind must be one of"),
        (lambda: dataclasses.replace(rows(1), inputs=np.array([[np.nan, 0]])), "finite numbers"),
    ],
)
def test_bad_input_raises_one_sentence(make, message: str):
    with pytest.raises(BadInput, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
