"""The audit on networks whose stationary points are known, and on a small pair of networks."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.checks import BadInput
from attnlens.instruments import stationarity
from attnlens.instruments.audit import LOST, Audit, Ends, _episode
from attnlens.networks import SelfAttention
from attnlens.networks.parameters import Layout
from attnlens.networks.settings import Recipe
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
        for ended in audit.ended[name]:
            converged = ended.index != LOST
            assert (ended.gradient_norm[converged] <= 1e-8).all()
            assert (ended.excess >= 0).all()
            assert (ended.loss > 0).all()
    assert "worst minimum" in str(audit)
    assert audit.plot() is not None


def test_the_excess_is_that_of_the_network_at_the_point(audit: Audit):
    restore = Layout.of(Recipe.of(NETWORKS["attention"])).restore

    @jax.jit
    def error(vector, x, y):
        return jnp.mean((jax.vmap(restore(vector))(x) - y) ** 2)

    episode = _episode(TokenTeacher(**SHAPE), np.uint32(1), 64, 200)  # the second teacher
    ended = audit.ended["attention"][1]
    expected = error(ended.vectors[0], episode.query, episode.answer) / jnp.var(episode.answer)
    assert ended.excess[0] == pytest.approx(float(expected), rel=1e-9)
    data = error(ended.vectors[0], *episode.tokens)
    # The penalty, about 1e-2, was subtracted from a loss of order one.
    assert ended.loss[0] == pytest.approx(float(data), rel=1e-9)


def ended(index: list[int], excess: list[float]) -> Ends:
    count = len(index)
    return Ends(
        np.array(index), np.array(excess), np.ones(count), np.zeros(count), np.zeros((count, 1))
    )


def test_the_numbers_of_made_up_ends():
    rows = (
        ended([0, 0, 2, LOST], [0.01, 0.04, 1.0, 9.0]),
        ended([0, 0, 0, 0], [0.01, 0.01, 0.01, 0.16]),
    )
    audit = Audit(10, 0.05, {"net": rows, "other": rows[1:]})
    assert str(audit).count("worst minimum") == 2
    # Saddles and lost starts do not count as minima: worst are 0.04 and 0.16.
    assert audit.worst("net").value == pytest.approx(math.sqrt(0.04 * 0.16))
    # Half the log ratio, log 2, is the standard error of two logarithms' mean.
    assert audit.worst("net").standard_error == pytest.approx(0.08 * math.log(2))
    assert audit.typical("net").value == pytest.approx(math.sqrt(0.025 * 0.01))
    assert audit.share_low("net").value == pytest.approx((2 / 4 + 3 / 4) / 2)
    assert audit.by_index("net")[2] == pytest.approx([1.0])
    assert audit.by_index("net")[LOST] == pytest.approx([9.0])
    names = [series.name for series in audit.figure().series]
    assert names == ["minima of net", "saddles of net", "minima of other"]
    # A teacher without a minimum leaves the worst one unmeasured, and says so.
    none = Audit(10, 0.05, {"net": (rows[0], ended([1], [0.5]))})
    assert none.worst("net").status != "ok"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"networks": {}}, "networks must name at least one"),
        ({"teachers": 1}, "teachers must be a whole number of at least 2"),
        ({"starts": 0}, "starts must be"),
        ({"threshold": 0.0}, "threshold must be"),
    ],
)
def test_bad_input_gets_one_sentence(changes: dict, says: str):
    given = {"networks": NETWORKS, **SETTINGS, **changes}
    with pytest.raises(BadInput, match=says):
        stationarity(given.pop("networks"), TokenTeacher(**SHAPE), **given)
