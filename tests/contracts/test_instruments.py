"""The contract of every registered instrument: readings with standard errors, that depend on the
seed and not on earlier calls, computed in float64."""

from __future__ import annotations

import math
from typing import Any

import jax
import pytest

from attnlens.core.readings import Reading
from attnlens.instruments import INSTRUMENTS

each_instrument = pytest.mark.parametrize("name", INSTRUMENTS)


def readings(result: Any) -> tuple[Reading, ...]:
    return (result,) if isinstance(result, Reading) else result.readings


@each_instrument
def test_every_instrument_returns_readings_with_standard_errors(name: str):
    result: Any = INSTRUMENTS[name]()
    assert {r.value for r in readings(result)} <= {row.get("value") for row in result.rows()}
    assert "<svg" in result._repr_html_()
    for reading in readings(result):
        assert reading.status == "ok"
        assert math.isfinite(reading.value)
        assert reading.standard_error > 0
        assert reading.count > 1


@each_instrument
def test_results_depend_on_the_seed_only(name: str):
    first, again, other = (INSTRUMENTS[name](seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert [r.value for r in readings(first)] != [r.value for r in readings(other)]


@each_instrument
def test_results_are_computed_in_float64_in_a_float32_process(name: str):
    expected = INSTRUMENTS[name]()
    with jax.enable_x64(False):
        assert INSTRUMENTS[name]() == expected
        assert jax.numpy.zeros(1).dtype == "float32"
