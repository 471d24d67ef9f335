"""Declared claims: grids, rules, estimates, figures, texts and variations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnlens.claims import (
    Assumption,
    Check,
    Claim,
    Control,
    Grid,
    Grids,
    Lines,
    Meaning,
    Measured,
    Quantity,
    Rule,
    ScalingLaw,
    Share,
    log_ratio,
    pooled,
)
from attnlens.claims.grid import check_seeds
from attnlens.core.checks import BadInput
from attnlens.core.verdicts import Region
from attnlens.runs.ledger import combined_outcome
from attnlens.runs.planning import cells_of, selection

ROOT = Path(__file__).parents[2]


def measure(arm, parameters, seeds):
    return {"x": np.array([parameters["shift"] + seed % 5 for seed in seeds], float)}


GRID = Grid(
    settings={"shift": 0.0, "length": {"smoke": 4, "default": 8, "full": 8}},
    axes={"width": {"smoke": (1,), "default": (1, 2), "full": (1, 2)}},
    blocks={"prediction": {"smoke": 1, "default": 2, "full": 3}, "shifted": 1},
    seeds_per_block=10,
    arm_settings={"shifted": {"shift": 100.0, "width": (2,)}},
)
MEAN = Quantity("mean", "mean at width {width}", pooled("x"), Region(-1.5, 3.0), ("width",))
CLAIM = Claim(
    id="T.declared",
    title="The mean",
    statement="The mean is near two.",
    formula=r"\mu \le $mean_high",
    prediction="The mean is $mean, at shift $shift and widths $width.",
    controls={"shifted": Control("Shifted by a hundred.")},
    assumptions=(Assumption("None", Check.NOT_CHECKED),),
    meaning=Meaning("Good.", "Bad.", "Open."),
    source="Tests.",
    plan=GRID,
    measure=measure,
    judge=Rule(MEAN),
)


def cells(claim: Claim, profile) -> dict[str, list[Measured]]:
    arms: dict[str, list[Measured]] = {arm: [] for arm in claim.arms}
    for cell in cells_of(claim, profile):
        values = claim.measure(cell.arm, cell.parameters, cell.seeds)
        arms[cell.arm].append(Measured(cell.parameters, cell.seeds, values))
    return arms


def test_a_grid_has_every_combination_of_its_axes_in_blocks_of_seeds():
    works = list(GRID("default"))
    prediction = [(w.parameters["width"], w.seeds[0]) for w in works if w.arm == "prediction"]
    assert prediction == [(1, 0), (1, 10), (2, 0), (2, 10)]
    (shifted,) = (w for w in works if w.arm == "shifted")
    assert shifted.parameters == {"shift": 100.0, "length": 8, "width": 2}
    assert {w.parameters["length"] for w in GRID("smoke")} == {4}


def test_a_larger_profile_only_appends_seeds():
    seeds = [{w.seeds for w in GRID(p) if w.arm == "prediction"} for p in ("default", "full")]
    assert seeds[0] < seeds[1]


def test_the_number_of_seeds_may_depend_on_the_parameters():
    grid = replace(GRID, seeds_per_block=lambda p: 3 * p["width"])
    assert {len(w.seeds) for w in grid("default")} == {3, 6}


def test_seeds_of_the_pilot_are_never_judged():
    grid = replace(GRID, pilot=range(1000))
    assert min(seed for work in grid("full") for seed in work.seeds) == 1000
    with pytest.raises(BadInput, match="got seed 5"):
        check_seeds("T.declared", GRID("default"), range(5, 6))
    # A plan of two grids is refused if the second one uses seeds of the pilot of the first one.
    plan = Grids(replace(GRID, pilot=range(20)), GRID)
    with pytest.raises(BadInput, match="seeds that its pilot did not use"):
        cells_of(replace(CLAIM, plan=plan), "default")


def test_every_arm_of_a_plan_is_the_prediction_or_a_control():
    misspelled = replace(GRID, blocks={"prediction": 1, "shfted": 1}, arm_settings={})
    with pytest.raises(BadInput, match="prediction, shifted; got 'shfted'"):
        cells_of(replace(CLAIM, plan=misspelled), "smoke")


def test_a_parameter_is_a_setting_or_an_axis():
    with pytest.raises(BadInput, match="'width' as both"):
        replace(GRID, settings={"width": 1})
    with pytest.raises(BadInput, match="got 'depth'"):
        replace(GRID, arm_settings={"shifted": {"depth": 2}})


def test_several_grids_are_planned_one_after_the_other():
    both = Grids(GRID, replace(GRID, axes={"depth": (5,)}, arm_settings={}))
    assert len(list(both("smoke"))) == len(list(GRID("smoke"))) + 2
    assert both.values("default")["depth"] == [5]
    assert both.names == {"shift", "length", "width", "depth"}


def test_a_rule_judges_one_part_per_group():
    parts = CLAIM.judge(cells(CLAIM, "default")["prediction"])
    assert [part.quantity for part in parts] == ["mean at width 1", "mean at width 2"]
    assert [part.count for part in parts] == [20, 20]
    assert parts[0].estimate == 2.0


def test_a_quantity_without_cells_is_no_part_of_an_arm():
    absent = Quantity("absent", "absent", pooled("x"), Region(0, 1), where={"width": 7})
    rule = Rule(MEAN, absent)
    measured = cells(CLAIM, "default")["prediction"]
    assert set(rule.by_key(measured)) == {"mean"}
    assert len(rule(measured)) == 2


def test_the_region_may_depend_on_the_group():
    quantity = replace(MEAN, region=lambda width: Region(high=width))
    parts = list(quantity.parts(cells(CLAIM, "default")["prediction"]))
    assert [part.region.high for part in parts] == [1, 2]


def test_texts_take_their_numbers_from_the_rule_and_the_grid():
    assert CLAIM.prediction == (
        "The mean is between −1.5 and 3, at shift 0 and 100 and widths 1 and 2."
    )
    assert CLAIM.formula == r"\mu \le 3"
    with pytest.raises(BadInput, match=r"T\.declared may use"):
        replace(CLAIM, prediction="The mean is $median.")


def test_a_setting_in_the_text_of_a_control_is_that_of_its_arm():
    changed = replace(CLAIM, controls={"shifted": Control("At shift $shift, width $width.")})
    assert changed.controls["shifted"].words == "At shift 100, width 2."
    varied = changed.at({"shift": 1.5})
    assert varied.controls["shifted"].words == "At shift 100, width 2."


def test_the_meaning_is_that_of_the_verdict():
    assert [CLAIM.meaning.of(o) for o in ("supported", "refuted", "undecided")] == [
        "Good.",
        "Bad.",
        "Open.",
    ]


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("controls", {"shifted": "words"}, "Control"),
        ("assumptions", ("words",), "Assumption"),
        ("meaning", "words", "Meaning"),
    ],
)
def test_words_in_place_of_a_record_are_refused(field: str, value, kind: str):
    with pytest.raises(BadInput, match=rf"{kind}\('words'…\); got a str"):
        replace(CLAIM, **{field: value})


def test_a_variation_has_its_own_id_cells_and_texts():
    variation = CLAIM.at({"shift": 1.5})
    assert variation.id == "T.declared[shift=1.5]"
    assert variation.variation == {"shift": 1.5}
    assert "at shift 1.5 and 100" in variation.prediction
    own, varied = ({c.key for c in cells_of(c, "default")} for c in (CLAIM, variation))
    assert not own & varied
    shifts = {c.parameters["shift"] for c in cells_of(variation, "default")}
    assert shifts == {1.5, 100.0}  # the control keeps its own setting of shift


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"depth": 1}, "must be one of length, shift"), ({"shift": "far"}, "must be a number")],
)
def test_a_setting_that_does_not_fit_is_refused(changes, message: str):
    with pytest.raises(BadInput, match=message):
        CLAIM.at(changes)


def test_settings_belong_to_one_claim():
    with pytest.raises(BadInput, match="got 2 claims"):
        selection(["A.softmax-smoothed", "A.heads"], {"noise_std": 1.0})


def test_a_control_fails_unless_it_comes_out_as_expected():
    from attnlens.core.verdicts import Verdict

    def outcome(words: str) -> Verdict:
        return Verdict(words, (), 1.0, 1.0, False, "")  # type: ignore[arg-type] (any words do for an outcome here)

    positive = replace(
        CLAIM,
        controls={"low": Control("low"), "high": Control("high", expected="supported")},
    )
    both = {"low": outcome("refuted"), "high": outcome("supported")}
    assert combined_outcome(positive, both) == "refuted"
    assert combined_outcome(positive, {**both, "high": outcome("refuted")}) == "supported"
    assert combined_outcome(positive, {**both, "high": outcome("undecided")}) == "undecided"


def power(values, replicates: int, seed: int = 0) -> list[Measured]:
    """Cells of a power law: values(length) times log-normal noise, in `replicates` blocks of 8
    seeds."""
    random = np.random.default_rng(seed)
    return [
        Measured(
            {"length": n},
            tuple(range(8 * block, 8 * block + 8)),
            {"error": values(n) * np.exp(0.1 * random.normal(size=8))},
        )
        for block in range(replicates)
        for n in (16, 64, 256)
    ]


@pytest.mark.parametrize(("replicate", "count"), [("seed", 32), ("block", 4), ("jackknife", 4)])
def test_the_exponent_of_a_power_law(replicate, count: int):
    law = ScalingLaw("error", "length", replicate=replicate)
    measured = power(lambda n: n**-0.5, 4)
    slopes = law.slopes(measured)
    assert slopes.shape == (count,)
    # On the log scale one value has a standard deviation of 0.1; so the mean slope of 32
    # independent triples over log 16 = 2.77 has 0.1 · √2 / 2.77 / √32 = 0.009.
    assert abs(slopes.mean() + 0.5) < 4 * 0.009
    assert law.span(measured) == "16 to 256"
    root = replace(law, root=True)
    np.testing.assert_allclose(root.slopes(measured), slopes / 2, rtol=1e-12)


def test_points_within_a_cell_are_columns():
    rows = np.array([[4.0, 2.0, 1.0], [8.0, 4.0, 2.0]])
    measured = [Measured({"length": [1, 4, 16]}, (0, 1), {"error": rows})]
    law = ScalingLaw("error", "length", within=True)
    np.testing.assert_allclose(law.slopes(measured), [-0.5, -0.5], rtol=1e-12)


def test_ratios_are_taken_pair_by_pair():
    measured = [
        Measured({}, (2, 3), {"a": np.array([4.0, 9.0]), "b": np.array([2.0, 3.0])}),
        Measured({}, (0, 1), {"a": np.array([1.0, 1.0]), "b": np.array([1.0, 2.0])}),
    ]
    expected = np.log([1.0, 0.5, 2.0, 3.0])  # in the order of the seeds
    np.testing.assert_allclose(log_ratio("a", "b")(measured), expected, rtol=1e-15)


def test_lines_have_one_series_per_arm_and_group():
    law = ScalingLaw("error", "length")
    figure = Lines("Error", "L", "error", law, {"prediction": "L = {length}", "other": "o"})
    arms = {"prediction": power(lambda n: n**-0.5, 4), "other": power(lambda n: 1.0, 4, seed=1)}
    drawn = figure(arms)
    assert [series.control for series in drawn.series] == [False, True]
    assert [len(series.points) for series in drawn.series] == [3, 3]


def test_without_a_figure_all_parts_are_drawn():
    figure = CLAIM.draw(cells(CLAIM, "default"))
    assert figure.names == ("mean at width 1", "mean at width 2")
    assert [point.y for point in figure.series[0].points] == [2.0, 2.0]
    assert [series.control for series in figure.series[:2]] == [False, True]


def test_the_interval_of_a_share_is_drawn_as_it_is_judged():
    share = Quantity("share", "share", Share("x"), Region(high=0.5))
    measured = [Measured({}, (0, 1, 2, 3), {"x": np.zeros(4)})]
    figure = replace(CLAIM, judge=Rule(share)).draw({"prediction": measured})
    (point,), (part,) = figure.series[0].points, share.parts(measured)
    assert (point.low, point.high) == (0.0, part.high) == (part.low, part.high)
