"""What every registered instrument promises: readings with standard errors, in float64, that do
not depend on what ran before and do not change their subject."""

from __future__ import annotations

import math
from typing import Any

import jax
import pytest

from attnlens.instruments import INSTRUMENTS
from attnlens.records import Reading

each_instrument = pytest.mark.parametrize("name", INSTRUMENTS)


def readings(measured: Any) -> tuple[Reading, ...]:
    return (measured,) if isinstance(measured, Reading) else measured.readings


@each_instrument
def test_it_returns_readings_with_standard_errors(name: str):
    for reading in readings(INSTRUMENTS[name]()):
        assert reading.status == "ok"
        assert math.isfinite(reading.value)
        assert reading.standard_error > 0
        assert reading.count > 1


@each_instrument
def test_the_seed_decides(name: str):
    first, again, other = (INSTRUMENTS[name](seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert [r.value for r in readings(first)] != [r.value for r in readings(other)]


@each_instrument
def test_it_computes_in_float64_whatever_the_process_uses(name: str):
    expected = INSTRUMENTS[name]()
    with jax.enable_x64(False):
        assert INSTRUMENTS[name]() == expected
        assert jax.numpy.zeros(1).dtype == "float32"
