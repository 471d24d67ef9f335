"""Betting against exchangeability: betting factors have mean one, and the wealth satisfies the
inequality of Ville."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.instruments import wealth
from attnlens.instruments.order import martingale, vector_ranks
from attnlens.instruments.order.sequences import read


def test_every_betting_factor_has_mean_one_given_the_past():
    # Factors are polynomials of degree two in t: Gauss–Legendre with three nodes is exact.
    nodes, weights = np.polynomial.legendre.leggauss(3)
    for before in (-1.0, -0.3, 0.9):
        factors = np.exp(martingale.log_factors(nodes[None], np.full((1, 3), before)))
        np.testing.assert_allclose(factors @ weights / 2, 1, atol=1e-14)
    # No factor is negative.
    t, before = (part.reshape(1, -1) for part in np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0]))
    with np.errstate(divide="ignore"):
        assert not np.isnan(martingale.log_factors(t, before)).any()


def test_ranks_equal_those_by_hand(monkeypatch: pytest.MonkeyPatch):
    table = np.array([[3.0, 1.0, 2.0, 3.0], [1.0, 1.0, np.nan, np.nan]])
    ties = np.random.default_rng(0).random((4, 2)).T
    expected = np.array(
        [
            [ties[0, 0], ties[0, 1] / 2, (1 + ties[0, 2]) / 3, (2 + 2 * ties[0, 3]) / 4],
            [ties[1, 0], 2 * ties[1, 1] / 2, np.nan, np.nan],
        ]
    )
    for tokens, comparisons in ((256, 2**18), (3, 9), (2, 1), (1, 1)):
        monkeypatch.setattr(martingale, "TOKENS_AT_ONCE", tokens)
        monkeypatch.setattr(martingale, "COMPARISONS_AT_ONCE", comparisons)
        ranks = martingale.ranks(table, np.random.default_rng(0))
        np.testing.assert_allclose(ranks, expected, rtol=1e-15)


def test_wealth_has_mean_one_with_ties():
    # The tokens are random orders of a multiset with ties, and ties are broken at random: ranks are
    # uniform on (0, 1), so wealth has mean one at every step.
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
def test_wealth_satisfies_villes_inequality_on_exchangeable_streams(kind: str):
    random = np.random.default_rng(1)
    shape = {"numbers": (1, 100), "categories": (1, 100), "batch": (3, 40)}[kind]
    largest = []
    for _ in range(600):
        tokens = random.normal(size=shape) + random.normal()
        tokens = np.round(tokens).astype(int) if kind == "categories" else tokens
        largest.append(max(martingale.bet(read(tokens), random).log_values))
    for level in (0.5, 0.2, 0.05):
        reached = np.mean(np.array(largest) >= -math.log(level))
        # Ville's inequality: at most `level`, plus 4.5 binomial standard errors of 600 streams.
        assert reached <= level + 4.5 * math.sqrt(level * (1 - level) / 600)
    assert np.max(largest) > 0.1  # bets are made


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
        # At first 90 % of the tokens are true, later 10 %.
        (np.random.default_rng(3).random(600) < np.repeat([0.9, 0.1], 300), 400),
        (np.random.default_rng(3).choice(list("abc"), 300).tolist() + ["d"] * 100, 400),
        (np.random.default_rng(3).normal(size=(1, 300, 4)) + np.linspace(0, 3, 300)[:, None], 300),
        (np.random.default_rng(3).normal(size=(1, 300, 40)) + np.linspace(0, 3, 300)[:, None], 300),
        (np.cumsum(np.random.default_rng(3).normal(size=(4, 60, 3)), axis=1), 60),
    ],
    ids=[
        "drift",
        "neighbours",
        "late scale",
        "late shift",
        "categories",
        "late frequencies",
        "late category",
        "drifting vectors",
        "drifting wide vectors",
        "parallel random walks",
    ],
)
def test_wealth_grows_when_order_matters(tokens: Any, within: int):
    result = wealth(tokens)
    step = result.reached(0.05)
    assert step is not None
    assert step <= within
    assert result.p_value <= 0.05
    assert f"after {step} tokens" in str(result)


def test_the_reserve_bounds_the_loss():
    log_values = wealth(np.random.default_rng(5).normal(size=2000)).log_values
    assert all(value >= -math.log(n + 1) - 1e-9 for n, value in enumerate(log_values))


# -- streams: earlier values do not change ---------------------------------------------------------

# New categories appear from token 70 on; some of them sort before the first ones.
LATE_CATEGORIES = np.where(np.arange(150) < 70, np.arange(150) % 3 + 5, np.arange(150) * 7 % 11)
STREAMS = {
    "numbers": np.random.default_rng(4).normal(size=150),
    "parallel numbers": np.random.default_rng(4).normal(size=(3, 150)),
    "integers": LATE_CATEGORIES,
    "parallel integers": np.stack([LATE_CATEGORIES, LATE_CATEGORIES[::-1]]),
    "booleans": LATE_CATEGORIES > 5,
    "strings": ["letter" * int(code > 7) + str(code) for code in LATE_CATEGORIES],
    "bytes": np.array([str(code) for code in LATE_CATEGORIES], "S"),
    "vectors": np.random.default_rng(4).normal(size=(1, 150, 3)),
    "parallel vectors": np.random.default_rng(4).normal(size=(3, 150, 3)).cumsum(1),
    "vectors on a lattice": np.random.default_rng(4).integers(0, 3, size=(2, 150, 2)) / 10,
    "wide vectors": np.random.default_rng(4).normal(size=(2, 150, 40)),
    "a late outlier": np.concatenate(
        [np.random.default_rng(4).normal(size=(1, 100, 3)), np.full((1, 50, 3), 1e9)], axis=1
    ),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_earlier_values_do_not_change_as_tokens_arrive(kind: str):
    tokens = STREAMS[kind]
    whole = wealth(tokens, seed=3).log_values
    assert len(whole) == 151
    for n in (2, 30, 64, 65, 129):
        part = tokens[:n] if isinstance(tokens, list) or tokens.ndim == 1 else tokens[:, :n]
        # Sums over sequences may be added in another order, with an error of a few ε times values
        # of at most 50.
        np.testing.assert_allclose(wealth(part, seed=3).log_values, whole[: n + 1], atol=1e-12)


@pytest.mark.parametrize("dim", [1, 3])
def test_earlier_values_do_not_change_when_sequences_end(dim: int):
    tokens = [np.random.default_rng(i).normal(size=(n, dim)) for i, n in enumerate((20, 90, 7))]
    whole = wealth(tokens).log_values
    for n in (2, 7, 15, 40, 89):
        part = wealth([sequence[:n] for sequence in tokens]).log_values
        np.testing.assert_allclose(part, whole[: n + 1], atol=1e-12)


def test_the_score_of_a_category_does_not_depend_on_other_categories():
    def score(tokens: Any, seed: int = 0) -> np.ndarray:
        return martingale.scores(read(np.array(tokens)), np.random.default_rng(seed))

    alone = score(["b", "b"])[0]
    np.testing.assert_array_equal(score(["zz", "b", "a"])[1], alone)
    assert score(["b", "b"], seed=1)[0] != alone
    for same in ([True, False], [1, 0], ["1", "0"], [b"1", b"0"], np.array([1, 0], np.uint8)):
        np.testing.assert_array_equal(score(same), score([1, 0]))
    # Scores are uniform on [0, 1): the mean of 4,000 is within 4.5 standard errors of 1/2. All of
    # them differ.
    many = score(np.arange(4000))
    assert abs(many.mean() - 0.5) < 4.5 * math.sqrt(1 / 12 / 4000)
    assert len(set(many)) == 4000


EXCHANGEABLE: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "integers": lambda random: random.integers(0, random.integers(2, 30), size=60),
    "strings": lambda random: random.choice(list("aaab"), size=60),
    "vectors": lambda random: random.normal(size=(1, 60, 3)) + random.normal(size=3),
    "vectors on a lattice": lambda random: random.integers(0, 2, size=(1, 60, 2)) / 10,
    "wide vectors": lambda random: random.standard_t(2, size=(1, 30, 20)),
    "parallel vectors": lambda random: random.normal(size=(3, 30, 2)) + random.normal(size=2),
}


@pytest.mark.parametrize("kind", EXCHANGEABLE)
def test_few_exchangeable_streams_ever_reach_wealth_twenty(kind: str):
    random, streams = np.random.default_rng(6), 300
    results = [wealth(EXCHANGEABLE[kind](random), seed=seed) for seed in range(streams)]
    share = np.mean([result.reached(0.05) is not None for result in results])
    # Ville's inequality: at most 0.05, plus 3 binomial standard errors.
    assert share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / streams)
    assert max(result.log_values[-1] for result in results) > 0.1  # bets are made


# -- vectors ---------------------------------------------------------------------------------------


def counts_by_definition(tokens: list[np.ndarray], reference: np.ndarray) -> np.ndarray:
    """For each sequence and n, how many of the first n − 1 tokens score below token n, by the
    formulas."""
    below = np.full((len(tokens), max(map(len, tokens))), np.nan)
    below[:, 0] = 0
    for n in range(2, below.shape[1] + 1):
        prefixes = [sequence[:n] for sequence in tokens]
        centred = np.concatenate([prefix - prefix.mean(0) for prefix in prefixes])
        vector = np.linalg.eigh(np.corrcoef(centred, rowvar=False))[1][:, -1]
        weights = vector * np.sign(vector @ reference) / centred.std(0)
        for i, sequence in enumerate(tokens):
            if len(sequence) >= n:
                scores = sequence[:n] @ weights
                below[i, n - 1] = (scores[:-1] < scores[-1]).sum()
    return below


def test_vector_ranks_equal_those_by_definition(monkeypatch: pytest.MonkeyPatch):
    random = np.random.default_rng(8)
    mixed = random.normal(size=(3, 3))
    tokens = [random.normal(size=(n, 3)) @ mixed + 5 * i for i, n in enumerate((40, 11, 25))]
    expected = counts_by_definition(tokens, np.random.default_rng(0).normal(size=3))
    for steps, compared in ((64, 512), (7, 5), (1, 1)):
        monkeypatch.setattr(vector_ranks, "STEPS_AT_ONCE", steps)
        monkeypatch.setattr(vector_ranks, "TOKENS_AT_ONCE", compared)
        below, equal = vector_ranks.vector_counts(read(tokens), np.random.default_rng(0))
        np.testing.assert_array_equal(below, expected)
        # Tokens are continuous, so every token is equal only to itself.
        np.testing.assert_array_equal(equal, np.where(np.isnan(expected), np.nan, 1.0))


MULTISETS = {
    "lattice": np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 0]]) / 10,
    "uncorrelated": np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0]]) / 10 + 0.3,
    "one-hot": np.eye(3)[[0, 1, 2, 0, 1]] / 3,
    "continuous": np.random.default_rng(9).normal(size=(5, 3)),
    "wide": np.random.default_rng(9).integers(0, 3, size=(5, 20)) / 10,
}


@pytest.mark.parametrize("kind", MULTISETS)
def test_the_last_rank_is_uniform_over_all_orders(kind: str):
    # The counts of the last token do not depend on the order of the other tokens, in its own and in
    # a parallel sequence. So over all orders, the ranks of the last token are the ranks in one
    # fixed list, each once.
    tokens = MULTISETS[kind]
    places: dict[int, set[tuple[float, float]]] = {}
    for order in permutations(range(5)):
        sequences = read([tokens[list(order)], 2 * tokens[list(order[::-1])]])
        below, equal = vector_ranks.vector_counts(sequences, np.random.default_rng(1))
        places.setdefault(order[-1], set()).add((below[0, -1], equal[0, -1]))
    assert all(len(counts) == 1 for counts in places.values())
    # Equal tokens fill the places from `below` to `below + equal`.
    listed = sorted(counts.pop() for counts in places.values())
    filled = [place for place, _ in listed]
    assert filled == [listed[int(place)][0] for place in filled]
    assert all(filled.count(place) == level for place, level in listed)


@pytest.mark.parametrize(("unit", "shift"), [(7.0, 0.0), (7.0, 1e6), (1e300, 0.0), (1e-300, 0.0)])
def test_units_and_origin_of_vectors_do_not_matter(unit: float, shift: float):
    tokens = np.random.default_rng(2).normal(size=(2, 50, 3)).cumsum(1)
    moved = tokens * np.array([unit, 1.0, 1.0]) + shift
    np.testing.assert_allclose(wealth(moved).log_values, wealth(tokens).log_values, atol=1e-12)
    # A coordinate that varies only by rounding has no effect.
    rounding = 1 + 2e-16 * np.random.default_rng(2).integers(0, 2, size=(2, 50, 1))
    both = [np.concatenate([tokens, last], -1) for last in (rounding, np.ones((2, 50, 1)))]
    assert wealth(both[0]).log_values == wealth(both[1]).log_values


# -- lengths, figure, messages ---------------------------------------------------------------------


def test_bets_continue_after_a_sequence_has_ended():
    a, b = np.arange(20.0), np.arange(5.0)
    both, log_values = wealth([b, a]), wealth([a]).log_values
    assert len(both.log_values) == len(log_values)
    assert both.sequences == 2
    assert both.log_values[-1] > 5


def test_wealth_draws_a_figure_and_rejects_bad_input():
    result = wealth(np.arange(30.0))
    assert result.plot().axes[0].get_yscale() == "log"
    assert result.values[0] == 1
    assert wealth(np.ones(5)).reached(0.05) is None
    with pytest.raises(BadInput, match="level must be between 0 and 1"):
        result.reached(1.5)
    with pytest.raises(BadInput, match="a single token has no order"):
        wealth(np.ones(1))


def test_wealth_of_many_ordered_sequences_does_not_underflow():
    """With 1,000 sequences, bets on the wrong side multiply wealth by less than 1e−308 in one
    step."""
    result = wealth(np.tile(np.arange(12.0), (1000, 1)))
    # A reserve is never bet: 1/(n + 1) of the initial unit is left after n tokens.
    assert all(value >= -math.log(n + 1) for n, value in enumerate(result.log_values))
    # From the third token on, each token is the largest so far in all 1,000 sequences, and the bet
    # wins nearly log 2 per sequence.
    assert result.log_values[-1] > 1000
    assert result.p_value == 0.0
