"""The record of a data set, duplicates, and splits."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlens.checks import BadInput
from attnlens.data import Dataset, deduplicated, digits, split, table


def texts(*content: str, labels: list[int] | None = None) -> Dataset:
    given_labels = np.array(labels or [0] * len(content))
    return Dataset("toy", "texts", content, given_labels, ("no", "yes"), "here", "none")


def rows(count: int) -> Dataset:
    values = np.arange(float(2 * count)).reshape(count, 2)
    return Dataset("toy", "rows", values, np.arange(count) % 2, ("no", "yes"), "here", "none")


def test_a_duplicate_is_kept_once_and_a_contradiction_not_at_all():
    data = texts("Good film", "bad", "good  FILM", "odd", "odd", labels=[1, 0, 1, 0, 1])
    kept = deduplicated(data)
    assert kept.inputs == ("Good film", "bad")
    assert kept.labels.tolist() == [1, 0]
    assert kept.history == ("3 duplicates dropped",)
    assert deduplicated(kept) is kept


def test_iris_has_one_row_twice():
    iris = table("iris")
    assert len(iris) == 149
    assert len(np.unique(iris.array, axis=0)) == 149


@pytest.mark.parametrize(
    ("name", "count", "features", "classes"),
    [("breast-cancer", 569, 30, 2), ("diabetes", 442, 10, 0), ("wine", 178, 13, 3)],
)
def test_tables_are_what_scikit_learn_has(name: str, count: int, features: int, classes: int):
    data = table(name)
    assert data.array.shape == (count, features)
    assert len(data.classes) == classes
    assert (data.labels.dtype.kind == "i") == bool(classes)
    assert data.source
    assert data.licence


@given(seed=st.integers(0, 2**40), sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_sets_and_parts_share_no_row_and_repeat_exactly(seed: int, sizes: list[int]):
    data, wanted = rows(97), {f"set {i}": size for i, size in enumerate(sizes)}
    parts = [split(data, wanted, seed, part) for part in range(97 // sum(sizes))]
    seen = [row for part in parts for chosen in part.values() for row in chosen.array[:, 0]]
    assert len(seen) == len(set(seen)) == sum(sizes) * len(parts)
    again = split(data, wanted, seed)
    for name, size in wanted.items():
        assert len(again[name]) == size
        assert again[name].sha256 == parts[0][name].sha256 == again[name].splits[name]


def test_a_split_does_not_depend_on_the_order_of_the_file():
    data = digits()
    turned = data.take(np.arange(len(data))[::-1], "turned")
    sizes = {"train": 100, "test": 200}
    for name, chosen in split(data, sizes, 5).items():
        assert chosen.sha256 == split(turned, sizes, 5)[name].sha256
    assert split(data, sizes, 5)["train"].sha256 != split(data, sizes, 6)["train"].sha256


def test_a_split_is_the_one_that_the_docstring_describes():
    data = rows(20)
    digests = [hashlib.sha256(row.tobytes()).digest() for row in data.array]
    order = sorted(range(20), key=lambda i: hashlib.sha256(b"3:" + digests[i]).digest())
    chosen = split(data, {"a": 4, "b": 5}, seed=3, part=1)["b"]
    assert chosen.array.tolist() == data.array[order[13:18]].tolist()
    assert chosen.labels.tolist() == data.labels[order[13:18]].tolist()


def test_splits_mix_the_classes():
    """400 of 1,797 digits: a class's count is hypergeometric with mean near 40 and standard
    deviation 5.3; 6 of those is a false alarm of 2e-9 a class."""
    chosen = split(digits(), {"train": 400}, 0)["train"]
    counts = np.bincount(chosen.labels, minlength=10)
    expected = np.bincount(digits().labels) * 400 / len(digits())
    assert np.abs(counts - expected).max() <= 6 * 5.3


def test_hashes_know_inputs_and_labels():
    data = rows(5)
    other = dataclasses.replace(data, labels=1 - data.labels)
    moved = dataclasses.replace(data, inputs=data.array + 1)
    assert len({data.sha256, other.sha256, moved.sha256}) == 3
    big = dataclasses.replace(data, inputs=data.array.astype(">f8"))
    assert big.sha256 == data.sha256


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: split(rows(5), {"train": 6}, 0), "needs 6 rows, but toy has 5"),
        (lambda: split(rows(5), {"train": 3}, 0, part=1), "needs 6 rows"),
        (lambda: split(rows(5), {}, 0), "at least one set"),
        (lambda: split(rows(5), {"train": 0}, 0), "the size of train must be a whole number"),
        (lambda: split(rows(5), {"train": 2}, -1), "seed must be a whole number"),
        (lambda: split(texts("a", "A"), {"train": 1}, 0), "call deduplicated"),
        (lambda: texts("a").array, "holds texts, not numbers"),
        (lambda: texts("a", labels=[0, 1]), "one label for each of the 1 inputs"),
        (lambda: dataclasses.replace(rows(2), kind="images"), "images must have 3 axes"),
        (lambda: dataclasses.replace(rows(2), kind="sounds"), "kind must be one of"),
        (lambda: dataclasses.replace(rows(1), inputs=np.array([[np.nan, 0]])), "finite numbers"),
        (lambda: table("california"), "name must be one of breast-cancer"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(make, says: str):
    with pytest.raises(BadInput, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)
