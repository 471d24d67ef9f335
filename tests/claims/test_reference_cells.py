"""Declarations that the claims of lens B use: cells that are compared with a reference cell, values
that are logarithms already, and arms without blocks."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.claims import Measured
from attnlens.claims.estimates import ScalingLaw, pooled
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.verdicts import Region


def cell(tau: float, values: list[float]) -> Measured:
    return Measured({"tau": tau}, (0, 1, 2), {"x": np.array(values)})


def test_differences_from_the_reference_are_paired_and_the_reference_is_not_judged():
    difference = Quantity(
        "difference",
        "x at {tau} minus x at 5",
        pooled("x"),
        Region(-1, 1),
        per=("tau",),
        against={"tau": 5.0},
    )
    cells = [cell(2.0, [10.25, 20.5, 30.75]), cell(5.0, [10.0, 20.0, 30.0])]
    (part,) = Rule(difference)(cells)
    assert (part.quantity, part.estimate, part.count) == ("x at 2 minus x at 5", 0.5, 3)
    assert part.high < 2  # the numbers 10, 20 and 30 themselves differ much more
    assert Rule(difference)(cells[1:]) == []


def test_values_that_are_logarithms_are_not_logged_again():
    cells = [cell(float(tau), [np.log(tau**2) + shift for shift in (0, 1, 2)]) for tau in (2, 4, 8)]
    assert ScalingLaw("x", "tau", logged=True).slopes(cells) == pytest.approx([2, 2, 2], rel=1e-12)


def test_arms_without_blocks_in_a_profile_have_no_values_there():
    grid = Grid(
        blocks={"prediction": {"smoke": 0, "default": 0, "full": 1}},
        seeds_per_block=1,
        axes={"samples": (64, 256)},
    )
    assert grid.values("default") == {}
    assert grid.values("full") == {"samples": [64, 256]}
