"""The key of a cell depends on everything that determines its result, and on nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnlens.core.cells import Cell

CELL = Cell("A.x", "prediction", "module:measure", {"length": 4}, (0, 1), "c0de")


def test_cells_that_differ_have_different_keys():
    others = [
        replace(CELL, claim="A.y"),
        replace(CELL, arm="control"),
        replace(CELL, measure="module:other"),
        replace(CELL, parameters={"length": 8}),
        replace(CELL, seeds=(0, 2)),
        replace(CELL, code="c0df"),
        replace(CELL, path="cholesky=native"),
        replace(CELL, path="cholesky=XLA"),
    ]
    assert len({cell.key for cell in (CELL, *others)}) == 9


def test_the_key_of_a_cell_without_native_code_is_that_of_earlier_versions():
    assert CELL.key == "09206e0edce67164aabe71f8887e5cf8fa941bdd1196e8478af2656f3917b1aa"


def test_keys_do_not_depend_on_cost_or_on_the_order_of_parameters():
    one = replace(CELL, parameters={"a": 1, "b": 2})
    assert one.key == replace(one, parameters={"b": 2, "a": 1}, cost=99.0).key


def test_a_nan_parameter_raises():
    with pytest.raises(ValueError, match="JSON"):
        _ = replace(CELL, parameters={"x": float("nan")}).key
