"""`stationarity` on a small network, and the numbers of an `Audit` of descents with chosen ends."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.instruments import stationarity
from attnlens.instruments.landscape.audit import NOT_CONVERGED, Audit, DescentEnds, draw_episode
from attnlens.networks import SelfAttention
from attnlens.networks.layout import Layout
from attnlens.training.settings import Recipe
from attnlens.worlds import TokenTeacher

SHAPE: dict[str, Any] = {"tokens": 2, "token_dim": 2, "query_dim": 1, "value_dim": 1, "hidden": 2}
NETWORKS = {"attention": partial(SelfAttention, **SHAPE)}
SETTINGS = {"samples": 64, "teachers": 2, "starts": 4, "l2": 1e-3, "tested": 200}


@pytest.fixture(scope="module")
def audit() -> Audit:
    return stationarity(NETWORKS, TokenTeacher(**SHAPE), **SETTINGS)


def test_every_start_is_listed_once_and_measured(audit: Audit):
    for name in NETWORKS:
        assert sum(excess.size for excess in audit.by_index(name).values()) == 2 * 4
        for teacher in audit.ended[name]:
            converged = teacher.index != NOT_CONVERGED
            assert (teacher.gradient_norm[converged] <= 1e-8).all()
            assert (teacher.excess >= 0).all()
            assert (teacher.loss > 0).all()
    assert "worst minimum" in str(audit)
    assert audit.plot() is not None


def test_excess_and_loss_are_those_of_the_network_at_the_point(audit: Audit):
    restore = Layout.of(Recipe.of(NETWORKS["attention"])).restore

    @jax.jit
    def error(vector, x, y):
        return jnp.mean((jax.vmap(restore(vector))(x) - y) ** 2)

    episode = draw_episode(TokenTeacher(**SHAPE), np.uint32(1), 64, 200)  # the second teacher
    teacher = audit.ended["attention"][1]
    expected = error(teacher.vectors[0], episode.query, episode.answer) / jnp.var(episode.answer)
    assert teacher.excess[0] == pytest.approx(float(expected), rel=1e-9)
    data = error(teacher.vectors[0], *episode.tokens)
    # A penalty of about 1e-2 was subtracted from a loss of order one.
    assert teacher.loss[0] == pytest.approx(float(data), rel=1e-9)


def descents(index: list[int], excess: list[float]) -> DescentEnds:
    count = len(index)
    return DescentEnds(
        np.array(index), np.array(excess), np.ones(count), np.zeros(count), np.zeros((count, 1))
    )


def test_the_numbers_of_an_audit_with_chosen_ends():
    rows = (
        descents([0, 0, 2, NOT_CONVERGED], [0.01, 0.04, 1.0, 9.0]),
        descents([0, 0, 0, 0], [0.01, 0.01, 0.01, 0.16]),
    )
    audit = Audit(10, 0.05, {"net": rows, "other": rows[1:]})
    assert str(audit).count("worst minimum") == 2
    # Saddles and starts that did not converge are not minima: the worst minima of the two teachers
    # have 0.04 and 0.16.
    assert audit.worst("net").value == pytest.approx(math.sqrt(0.04 * 0.16))
    # The standard error of the mean of two logarithms is half their difference: log 2.
    assert audit.worst("net").standard_error == pytest.approx(0.08 * math.log(2))
    assert audit.typical("net").value == pytest.approx(math.sqrt(0.025 * 0.01))
    assert audit.share_low("net").value == pytest.approx((2 / 4 + 3 / 4) / 2)
    assert audit.by_index("net")[2] == pytest.approx([1.0])
    assert audit.by_index("net")[NOT_CONVERGED] == pytest.approx([9.0])
    names = [series.name for series in audit.figure().series]
    assert names == ["minima of net", "saddles of net", "minima of other"]
    # If a teacher has no minimum, the worst one is not measured, and the status says so.
    none = Audit(10, 0.05, {"net": (rows[0], descents([1], [0.5]))})
    assert none.worst("net").status != "ok"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"networks": {}}, "networks must name at least one"),
        ({"teachers": 1}, "teachers must be a whole number of at least 2"),
        ({"starts": 0}, "starts must be"),
        ({"threshold": 0.0}, "threshold must be"),
    ],
)
def test_bad_input_raises_one_sentence(changes: dict, message: str):
    arguments = {"networks": NETWORKS, **SETTINGS, **changes}
    with pytest.raises(BadInput, match=message):
        stationarity(arguments.pop("networks"), TokenTeacher(**SHAPE), **arguments)
