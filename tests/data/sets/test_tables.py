"""The tables that come with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.data import table


def test_the_duplicate_row_of_iris_is_dropped():
    iris = table("iris")
    assert len(iris) == 149
    assert len(np.unique(iris.array, axis=0)) == 149


@pytest.mark.parametrize(
    ("name", "count", "features", "classes"),
    [("breast-cancer", 569, 30, 2), ("diabetes", 442, 10, 0), ("wine", 178, 13, 3)],
)
def test_tables_have_the_shapes_and_classes_of_scikit_learn(
    name: str, count: int, features: int, classes: int
):
    data = table(name)
    assert data.array.shape == (count, features)
    assert len(data.classes) == classes
    assert (data.labels.dtype.kind == "i") == bool(classes)
    assert data.source
    assert data.licence


def test_an_unknown_table_raises_one_sentence():
    with pytest.raises(BadInput, match="name must be one of breast-cancer"):
        table("california")
