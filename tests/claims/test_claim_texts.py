"""Texts of claims: every number in them is a number of the rule or of the settings."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnlens.claims
from attnlens.claims import Check, Claim, Grid, Grids, Meaning, Rule, find
from attnlens.core.verdicts import Region

ROOT = Path(__file__).parents[2]
each_claim = pytest.mark.parametrize("claim", find(), ids=lambda claim: claim.id)
NUMBER = re.compile(r"[−-]?\d+(?:\.\d+)?(?:e[−-]?\d+)?")


def stated_numbers(text: str) -> set[float]:
    """The numbers in a sentence; numbers inside a formula such as "−2/(m+4)" or a name such as "4L"
    are left out."""
    plain = re.sub(r"\S+/\(\S+\)|index 0", "", text.replace(",", ""))
    plain = re.sub(r"[A-Za-zα-ω]_?\d+|\d+(?!e[−-]?\d)[A-Za-zα-ω]", "", plain)
    return {float(match.replace("−", "-")) for match in NUMBER.findall(plain)}


def test_numbers_of_a_sentence():
    text = "At 4L, with 1e-08 and −0.5 of 1,024, the slope is −2/(m+4) ± 0.05 (index 0)."
    assert stated_numbers(text) == {1e-8, -0.5, 1024.0, 0.05}


def known_numbers(claim: Claim) -> set[float]:
    """The numbers that the texts of a claim may state: those of its settings, and of its regions in
    the forms that `forms` lists."""
    assert isinstance(claim.judge, Rule)
    values = claim.plan.values("default")  # type: ignore[attr-defined] (the plan is a Grid)
    works = list(claim.plan("default"))
    numbers = {  # the number of values that a parameter takes in an arm
        float(len({str(w.parameters.get(name)) for w in works if w.arm == arm}))
        for name in values
        for arm in claim.arms
    }
    for quantity in claim.judge.quantities:
        groups = itertools.product(*(values[name] for name in quantity.per))
        for group in groups:
            region = quantity.region
            numbers |= forms(region if isinstance(region, Region) else region(*group))
    return numbers | settings_numbers(values)


def forms(region: Region) -> set[float]:
    """The numbers with which a text may state a region: each end as it is, negated, as a percentage
    and, for a log ratio, as exp(end) and the change in per cent; also the centre and the
    half-width."""
    low, high = region.low, region.high
    result = {(low + high) / 2, (high - low) / 2} if np.isfinite([low, high]).all() else set()
    for bound in (bound for bound in (low, high) if np.isfinite(bound)):
        ratio = np.exp(min(bound, 10.0))
        result |= {bound, -bound, 100 * bound, ratio, 100 * ratio, 100 * abs(ratio - 1)}
    return {float(f"{value:.3g}") for value in result}


def settings_numbers(values: Any) -> set[float]:
    numbers: set[float] = set()

    def collect(value) -> None:
        if isinstance(value, int | float):
            numbers.add(float(f"{value:.6g}"))
        for item in (
            value.values()
            if isinstance(value, dict)
            else value
            if isinstance(value, list | tuple)
            else ()
        ):
            collect(item)

    collect(values)
    return numbers


# Numbers that texts may state because they follow from the settings by arithmetic.
DERIVED = {
    "A.exchangeable": {96.0},  # number of tokens: sequences times length
    # κ² of a target of which half lies along one direction: 1/2 if pretraining leaves it out, and
    # (1 + 1/0.1²)/2 = 50.5 if the questions about it are ten times weaker.
    "A.condition-number": {2.0, 50.5},
}


def texts_of(claim: Claim) -> list[str]:
    """Every text of a claim in which a number may stand."""
    return [
        claim.title,
        claim.statement,
        claim.prediction,
        *(control.words for control in claim.controls.values()),
        *(assumption.words for assumption in claim.assumptions),
        *(text for text in vars(claim.meaning).values()),
    ]


@each_claim
def test_every_number_in_a_text_is_one_of_the_rule_or_the_settings(claim: Claim):
    if not isinstance(claim.judge, Rule):
        pytest.skip("the claim judges by a function of its own")
    known = known_numbers(claim) | DERIVED.get(claim.id, set())
    unknown = {
        text: numbers for text in texts_of(claim) if (numbers := stated_numbers(text) - known)
    }
    assert not unknown


def test_a_number_that_is_no_setting_is_noticed():
    (smoothed,) = find(["A.softmax-smoothed"])
    changed = replace(smoothed, meaning=Meaning("Good with 77 samples.", "Bad.", "Open."))
    assert stated_numbers(texts_of(changed)[-3]) - known_numbers(changed) == {77.0}


@each_claim
def test_every_control_and_assumption_names_what_exists(claim: Claim):
    for control in claim.controls.values():
        if control.quantities:
            assert isinstance(claim.judge, Rule)
            assert set(control.quantities) <= {q.key for q in claim.judge.quantities}
    for assumption in claim.assumptions:
        assert (assumption.check == Check.CONTROL) == bool(assumption.control)
        assert not assumption.control or assumption.control in claim.controls
        assert not assumption.words.endswith(".")


def test_the_page_on_own_claims_shows_the_template():
    template = (
        (ROOT / "src/attnlens/cli/claim_template.txt").read_text().replace("@ID@", "M.median")
    )
    page = (ROOT / "docs/howto/own-claim.md").read_text()
    assert f"```python\n{template}```" in page
    assert sum(bool(line.strip()) for line in template.splitlines()) < 40


def names_read(trees: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """(strings, endings) of the given modules: string constants that are not keys of a dict
    display, and the constant parts at the ends of f-strings."""
    read, endings = set[str](), set[str]()
    for tree in trees:
        nodes = list(ast.walk(tree))
        keys = {id(key) for node in nodes if isinstance(node, ast.Dict) for key in node.keys}
        for node in nodes:
            if isinstance(node, ast.JoinedStr) and isinstance(node.values[-1], ast.Constant):
                endings.add(str(node.values[-1].value))
            elif isinstance(node, ast.Constant) and id(node) not in keys:
                read.add(str(node.value))
    return read, endings


def test_every_setting_is_read():
    """Every setting of a claim is read: otherwise a user could change it without any effect."""
    folder = Path(attnlens.claims.__file__).parent
    read, endings = names_read(ast.parse(path.read_text()) for path in folder.rglob("*.py"))

    def is_read(name: str) -> bool:
        parts = (name.removesuffix(end) for end in endings if end and name.endswith(end))
        return name in read or any(part in read for part in parts)

    grids = {claim.id: claim.plan for claim in find() if isinstance(claim.plan, Grid | Grids)}
    unread = {id: [n for n in grid.settings if not is_read(n)] for id, grid in grids.items()}
    assert unread == {id: [] for id in grids}
    assert len(grids) > 30
    assert not is_read("unread")
    source = 'settings = {"a": "x"}; settings["b"]; f"{name}_c"'
    assert names_read([ast.parse(source)]) == ({"x", "b", "_c"}, {"_c"})
