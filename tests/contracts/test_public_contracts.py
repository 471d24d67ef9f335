"""The checks of `attnlens.testing` accept worlds, operators and claims that keep their contracts,
also those of other packages, and name the fault of those that do not."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import jax.numpy as jnp
import numpy as np
import pytest

from attnlens import attention
from attnlens.attention.installed import installed_operators
from attnlens.attention.registry import OPERATORS
from attnlens.claims import find, lenses
from attnlens.testing import check_claim, check_lens, check_operator, check_world
from attnlens.worlds import EXAMPLES, Episode, NormalMean, World
from attnlens.worlds.installed import installed_worlds

(CLAIM,) = find(["A.weights-are-posterior"])
OTHER_WORLDS = {name: w for name, w in installed_worlds().items() if name not in EXAMPLES}
OTHER_OPERATORS = {name: o for name, o in installed_operators().items() if name not in OPERATORS}


def test_examples_and_what_other_packages_add_keep_their_contracts():
    """One world and one operator of attnlens, and all of other packages; those of attnlens have
    longer tests in this folder."""
    check_world(EXAMPLES["linear-regression"])
    check_operator(OPERATORS["cme"])
    for world in OTHER_WORLDS.values():
        check_world(world)
    for operator in OTHER_OPERATORS.values():
        check_operator(operator)
    for lens, package, _ in lenses().values():
        if package != "attnlens":
            check_lens(lens)


class Constant(World):
    def sample(self, key, length, queries=0):
        return Episode(jnp.zeros(1), jnp.zeros((length, 1)))


class Forgetful(NormalMean):
    """A world that ignores masks."""

    __init__ = NormalMean.__init__

    def update(self, posterior, tokens, mask=None):
        return super().update(posterior, tokens)


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (Constant(), "draws other tokens from another key"),
        (Forgetful(dim=1), "a masked token of .* counts as absent"),
    ],
    ids=["constant", "forgetful"],
)
def test_a_broken_world_is_noticed(world: World, says: str):
    with pytest.raises(AssertionError, match=says):
        check_world(world)


def without_mask(query, key, value, mask=None):
    return attention.softmax(query, key, value)


def by_position(query, key, value, mask=None):
    return attention.softmax(query, key, jnp.cumsum(value, axis=-2), mask=mask)


@pytest.mark.parametrize(
    ("operator", "says"), [(without_mask, "masked token"), (by_position, "order of tokens")]
)
def test_a_broken_operator_is_noticed(operator, says: str):
    with pytest.raises(AssertionError, match=says):
        check_operator(operator)


calls = count()


def impure(arm, parameters, seeds):
    return {**CLAIM.measure(arm, parameters, seeds), "calls": np.full(len(seeds), next(calls))}


def not_finite(arm, parameters, seeds):
    return {name: np.asarray(v) / 0.0 for name, v in CLAIM.measure(arm, parameters, seeds).items()}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"title": " "}, "has a title"),
        ({"attribution": None}, "has an Attribution"),
        ({"controls": {}}, "must come out refuted"),
        ({"plan": lambda profile: list(CLAIM.plan(profile)) * 2}, "lists no cell twice"),
        ({"measure": impure}, "the same bits"),
        ({"measure": not_finite}, "finite numbers"),
    ],
    ids=["title", "attribution", "controls", "plan", "impure", "not-finite"],
)
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")
def test_a_broken_claim_is_noticed(changes, says: str):
    with pytest.raises(AssertionError, match=says):
        check_claim(replace(CLAIM, **changes))
