"""Every registered claim keeps the rules of judging in docs/statistics.md.

The sets WITHOUT_… and UNCOVERED_… below list the claims that do not keep a rule yet. A claim leaves
a set when it keeps the rule; nothing is added.
"""

from __future__ import annotations

import pytest

from attnlens.claims import Claim, Origin, Rule, find
from attnlens.claims.cells import Work
from attnlens.claims.claim import PREDICTION, PROFILES
from attnlens.claims.grid import check_seeds
from attnlens.claims.power import PROMISED, claim_power
from attnlens.core.checks import BadInput

ALL = find()
each_claim = pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.id)

EXACT_CHECKS = {
    "A.sufficient",
    "A.minimal",
    "A.cme-is-posterior",
    "A.weights-are-posterior",
    "B.softplus-distance",
}
WITHOUT_ATTRIBUTION: set[str] = set()
WITHOUT_POWER: set[str] = {"A.generalisation-length"}
UNCOVERED_QUANTITIES: set[tuple[str, str]] = {
    ("A.exchangeable", "rate"),
    ("A.minimal", "tokens"),  # tests the probe only: statistics are a function of tokens
}


def test_exact_checks_are_declared():
    assert {claim.id for claim in ALL if claim.exact} >= EXACT_CHECKS


@each_claim
def test_a_claim_says_whose_it_is(claim: Claim):
    if claim.attribution is None:
        assert claim.id in WITHOUT_ATTRIBUTION
        return
    ours = claim.attribution.origin is Origin.FINDING
    assert ours == claim.source.startswith("Our own prediction")


@each_claim
def test_a_claim_says_what_would_have_refuted_it(claim: Claim):
    sentence = claim.refutation
    assert sentence.startswith("Refuted if ")
    assert "{" not in sentence
    assert "\n" not in sentence


@each_claim
def test_the_power_of_a_claim_in_its_decisive_profile_is_as_promised(claim: Claim):
    planned = claim_power(claim, claim.decisive)
    if planned is None:
        assert claim.exact or claim.id in WITHOUT_POWER
        return
    assert planned.power >= PROMISED, [(part.name, part.power) for part in planned.parts]


@each_claim
def test_a_claim_declares_its_pilot_and_is_judged_on_other_seeds(claim: Claim):
    """Exact checks need no pilot, because none of their settings was chosen by looking at
    results."""
    pilot = claim.plan.pilot  # type: ignore[attr-defined] (the plan is a Grid)
    assert pilot or claim.exact
    for profile in PROFILES:
        assert min(seed for work in claim.plan(profile) for seed in work.seeds) >= pilot.stop
    if pilot:
        with pytest.raises(BadInput):
            check_seeds(claim.id, [Work(PREDICTION, {}, (pilot[-1],))], pilot)


def quantities_of(claim: Claim, arm: str) -> set[str]:
    """The keys of the quantities that the rule judges on the cells of an arm."""
    works = [work for work in claim.plan("default") if work.arm == arm]
    rule = claim.judge
    assert isinstance(rule, Rule)
    return {quantity.key for quantity in rule.quantities if quantity.outline(works)}


def refuted_quantities(claim: Claim) -> set[str]:
    """The quantities that a negative control must refute individually.

    The rule judges a control without `quantities` as a whole, so it covers a quantity only if its
    arm has no other quantity.
    """
    covered: set[str] = set()
    for arm, control in claim.controls.items():
        if control.expected == "refuted":
            present = set(control.quantities) or quantities_of(claim, arm)
            covered |= present if control.quantities or len(present) == 1 else set()
    return covered


@each_claim
def test_every_quantity_of_a_claim_is_refuted_by_a_control(claim: Claim):
    uncovered = quantities_of(claim, PREDICTION) - refuted_quantities(claim)
    assert {(claim.id, key) for key in uncovered} <= UNCOVERED_QUANTITIES


@each_claim
def test_a_claim_that_is_expected_to_be_refuted_has_a_positive_control(claim: Claim):
    planned = claim_power(claim, claim.decisive)
    if planned is not None and planned.expected == "refuted":
        assert any(control.expected == "supported" for control in claim.controls.values())
