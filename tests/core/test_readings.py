"""Readings and curves as text and as figures."""

from __future__ import annotations

from attnlens.core.readings import Curve, Reading


def test_a_reading_prints_its_value_or_why_there_is_none():
    assert str(Reading(0.25, 0.01, 64)) == "0.25 ± 0.01 (n = 64)"
    assert str(Reading(0, 0, 0, "diverged")) == "no number: diverged"


def test_a_curve_prints_and_plots():
    readings = (Reading(0.5, 0.01, 9), Reading(0.25, 0.01, 9))
    curve = Curve("length", "error", (16, 64), readings, Reading(-0.5, 0.02, 18))
    assert "slope  -0.5 ± 0.02" in str(curve)
    axes = curve.plot().axes[0]
    assert axes.get_xscale() == "log"
    assert "slope -0.50" in axes.get_legend_handles_labels()[1][0]
