"""Regions as text."""

from __future__ import annotations

from attnlens.core.verdicts import Region


def test_a_region_prints_its_finite_bounds():
    regions = [Region(high=1), Region(low=0.5), Region(-1, 1)]
    assert [str(region) for region in regions] == ["≤ 1", "≥ 0.5", "-1 to 1"]
