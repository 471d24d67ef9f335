"""Betting against exchangeability: a martingale by integration, and Ville's inequality by count."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnlens.checks import BadInput
from attnlens.instruments import martingale, wealth
from attnlens.instruments.sequences import read


def test_every_bet_has_mean_one_whatever_came_before():
    # Factors are polynomials of degree two in t: Gauss–Legendre with three nodes is exact.
    nodes, weights = np.polynomial.legendre.leggauss(3)
    for before in (-1.0, -0.3, 0.9):
        factors = np.exp(martingale.log_factors(nodes[None], np.full((1, 3), before)))
        np.testing.assert_allclose(factors @ weights / 2, 1, atol=1e-14)
    # … and none loses more than there is.
    t, before = (part.reshape(1, -1) for part in np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]))
    with np.errstate(divide="ignore"):
        assert not np.isnan(martingale.log_factors(t, before)).any()


def test_ranks_by_hand(monkeypatch: pytest.MonkeyPatch):
    table = np.array([[3.0, 1.0, 2.0, 3.0], [1.0, 1.0, np.nan, np.nan]])
    ties = np.random.default_rng(0).random((4, 2)).T
    expected = np.array(
        [
            [ties[0, 0], ties[0, 1] / 2, (1 + ties[0, 2]) / 3, (2 + 2 * ties[0, 3]) / 4],
            [ties[1, 0], 2 * ties[1, 1] / 2, np.nan, np.nan],
        ]
    )
    for block, held in ((256, 2**18), (3, 9), (2, 1), (1, 1)):
        monkeypatch.setattr(martingale, "BLOCK", block)
        monkeypatch.setattr(martingale, "HELD", held)
        found = martingale.ranks(table, np.random.default_rng(0))
        np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_ranks_are_uniform_with_ties_too():
    # All orders of a bag with ties, many tie-breaks each: the last rank is uniform on (0, 1). Its
    # wealth then has mean one at every step.
    random = np.random.default_rng(0)
    finals = np.array(
        [
            martingale.bet(read(random.permutation([0.0, 0.0, 1.0, 2.0])), random).log_values[-1]
            for _ in range(4000)
        ]
    )
    mean, error = np.exp(finals).mean(), np.exp(finals).std() / math.sqrt(len(finals))
    assert error < 0.01
    assert abs(mean - 1) < 4.5 * error


@pytest.mark.parametrize("kind", ["numbers", "categories", "batch"])
def test_wealth_rarely_gets_rich_on_exchangeable_streams(kind: str):
    random = np.random.default_rng(1)
    shape = {"numbers": (1, 100), "categories": (1, 100), "batch": (3, 40)}[kind]
    largest = []
    for _ in range(600):
        tokens = random.normal(size=shape) + random.normal()
        tokens = np.round(tokens).astype(int) if kind == "categories" else tokens
        largest.append(max(martingale.bet(read(tokens), random).log_values))
    for level in (0.5, 0.2, 0.05):
        reached = np.mean(np.array(largest) >= -math.log(level))
        # Ville: at most `level`, plus 4.5 binomial standard errors of 600 streams.
        assert reached <= level + 4.5 * math.sqrt(level * (1 - level) / 600)
    assert np.max(largest) > 0.1  # it does bet


def autoregressive(length: int) -> np.ndarray:
    noise, x = np.random.default_rng(2).normal(size=length), np.zeros(length)
    for i in range(1, length):
        x[i] = 0.8 * x[i - 1] + noise[i]
    return x


@pytest.mark.parametrize(
    ("tokens", "within"),
    [
        (np.arange(100.0), 20),
        (autoregressive(400), 300),
        (np.random.default_rng(3).normal(size=600) * np.repeat([1.0, 5.0], 300), 400),
        (np.random.default_rng(3).normal(size=600) + np.repeat([0.0, 2.0], 300), 400),
        (np.tile(np.repeat([0, 1], 10), 12), 240),
    ],
    ids=["drift", "neighbours", "late scale", "late shift", "categories"],
)
def test_wealth_grows_when_order_matters(tokens: np.ndarray, within: int):
    found = wealth(tokens)
    reached = found.reached(0.05)
    assert reached is not None
    assert reached <= within
    assert found.p_value <= 0.05
    assert f"after {reached} tokens" in str(found)


def test_the_reserve_bounds_the_loss():
    log_values = wealth(np.random.default_rng(5).normal(size=2000)).log_values
    assert all(value >= -math.log(n + 1) - 1e-9 for n, value in enumerate(log_values))


def test_a_look_ahead_changes_nothing():
    tokens = np.random.default_rng(4).normal(size=50)
    whole, part = wealth(tokens), wealth(tokens[:30])
    assert whole.log_values[:31] == part.log_values
    assert len(whole.log_values) == 51


def test_sequences_that_end_are_left_alone():
    a, b = np.arange(20.0), np.arange(5.0)
    both, log_values = wealth([b, a]), wealth([a]).log_values
    assert len(both.log_values) == len(log_values)
    assert both.sequences == 2
    assert both.log_values[-1] > 5


def test_it_draws_and_refuses():
    found = wealth(np.arange(30.0))
    assert found.plot().axes[0].get_yscale() == "log"
    assert found.values[0] == 1
    assert wealth(np.ones(5)).reached(0.05) is None
    with pytest.raises(BadInput, match="level must be between 0 and 1"):
        found.reached(1.5)
    with pytest.raises(BadInput, match="a single token has no order"):
        wealth(np.ones(1))
