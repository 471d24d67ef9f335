"""The alarm for columns that give the label away."""

from __future__ import annotations

import numpy as np

from attnlens.advice.leaks import leaking_columns
from attnlens.advice.subjects import data_subject
from attnlens.instruments.samples.labelled import labelled

ROWS = 600


def test_a_copy_of_the_label_is_flagged_and_a_good_feature_is_not():
    random = np.random.default_rng(0)
    good = random.normal(size=ROWS)
    label = good + 0.5 * random.normal(size=ROWS) > 0  # the lowest error rate is about 0.15
    inputs = np.stack([good, label * 3.0, random.normal(size=ROWS)], 1)
    result = leaking_columns(labelled(inputs, label), ("good", "copy", "noise"), 0)
    assert result == [("copy", 0.0)]


def test_a_gap_that_goes_with_the_label_is_flagged_from_a_frame():
    import pandas as pd

    random = np.random.default_rng(1)
    member = random.random(ROWS) < 0.6
    # The year is missing for nearly everyone who is not a member, as in data on rented bicycles.
    known = np.where(random.random(ROWS) < 0.95, member, ~member)
    year = np.where(known, random.integers(1950, 2000, ROWS), np.nan)
    frame = pd.DataFrame({"year": year, "minutes": random.normal(size=ROWS), "member": member})
    frame["member"] = np.where(member, "yes", "no")
    facts = dict(data_subject(frame, "member").facts)
    assert "year is missing" in facts["warning"]
    frame["year"] = random.permutation(year)
    assert "warning" not in dict(data_subject(frame, "member").facts)


def test_a_rare_class_gives_no_alarm_by_chance():
    random = np.random.default_rng(2)
    label = np.zeros(ROWS, int)
    label[:8] = 1
    assert leaking_columns(labelled(random.normal(size=(ROWS, 3)), label), "abc", 0) == []
