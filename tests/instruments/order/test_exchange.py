"""The exchangeability test: exact by enumeration, and powerful where order matters."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import numpy as np
import pytest

from attnlens import exchangeability
from attnlens.core.checks import BadInput
from attnlens.instruments.order import permutation, sequences
from attnlens.instruments.order.exchange import p_values
from attnlens.worlds import LinearRegression, Pairs

RANDOM = np.random.default_rng(0)


def autoregressive(coefficient: float, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=shape)
    for i in range(1, shape[-1]):
        x[..., i] = coefficient * x[..., i - 1] + math.sqrt(1 - coefficient**2) * x[..., i]
    return x


def z_score(rejected: np.ndarray, level: float) -> float:
    """How many standard deviations a rejection rate lies above its level."""
    return (rejected.mean() - level) / math.sqrt(level * (1 - level) / rejected.size)


# -- exactness -------------------------------------------------------------------------------------


class FixedDraws(np.random.Generator):
    """A generator that returns the given pool as permutations and the given offsets as integers."""

    def __init__(self, pool: np.ndarray, offsets: np.ndarray):
        super().__init__(np.random.PCG64(0))
        self.pool, self.offsets = pool, offsets

    def permuted(self, *_: Any, **__: Any) -> Any:
        return self.pool

    def integers(self, *_: Any, **__: Any) -> Any:
        return self.offsets


def every_p(tokens: np.ndarray, replicates: int) -> np.ndarray:
    """The p-values for every order of the sequences, every pool of permutations and all offsets:
    all possible outcomes of the test."""
    count, length = tokens.shape
    orders = np.array(list(itertools.permutations(range(length))))
    choices = list(itertools.product(range(len(orders)), repeat=count))
    batches = np.stack(
        [
            np.stack([x[orders[c]] for x, c in zip(tokens, choice, strict=True)])
            for choice in choices
        ]
    )  # (orders, sequences, length)
    offsets = np.array(list(itertools.product(range(replicates), repeat=count)))
    # One batch per order and choice of offsets.
    all_batches = np.repeat(batches, len(offsets), 0).reshape(-1, 1)
    all_offsets = np.tile(offsets, (len(batches), 1)).ravel()
    lengths = np.full(len(all_offsets), length)
    batch_of_all = sequences.Sequences("numbers", all_batches, None, lengths, 0)
    runs = len(batches) * len(offsets)
    y, s = sequences.columns(batch_of_all, runs)
    return np.stack(
        [
            permutation.permutation_test(
                y, s, lengths, replicates - 1, FixedDraws(orders[list(pool)], all_offsets), runs
            ).p
            for pool in itertools.product(range(len(orders)), repeat=replicates)
        ]
    )


def over_level(p: np.ndarray, replicates: int) -> list[int]:
    """The k for which p ≤ k/M occurs in more than a share k/M of all cases, for M = `replicates`;
    computed in integer arithmetic."""
    reached = [np.count_nonzero(np.round(p * replicates) <= k) for k in range(replicates + 1)]
    return [k for k, count in enumerate(reached) if count * replicates > k * p.size]


@pytest.mark.parametrize(
    ("tokens", "replicates"),
    [
        ([[0.3, 1.0, 2.2]], 3),
        ([[0.3, 1.0, 1.0]], 3),  # a tie
        ([[0.3, 1.0, 2.2], [-5.0, 0.1, 0.0]], 3),
    ],
    ids=["one", "tied", "two"],
)
def test_the_p_value_is_super_uniform_by_enumeration(tokens: list, replicates: int):
    p = every_p(np.array(tokens), replicates)
    assert np.allclose(p * replicates, np.round(p * replicates))
    assert over_level(p, replicates) == []
    # The frequent mistake b/M instead of (b + 1)/M is detected.
    assert over_level(p - 1 / replicates, replicates) != []


@pytest.mark.parametrize("tokens", [np.array([0.3, 1.0, 2.2, 9.0]), np.array([1, 0, 2, 0, 1])])
def test_all_orders_of_a_short_sequence_are_enumerated(tokens: np.ndarray):
    orders = list(itertools.permutations(tokens.tolist()))
    results = [exchangeability(np.array(order), wealth=False) for order in orders]
    p = np.array([result.value for result in results])
    assert all(result.count == len(orders) - 1 for result in results)
    assert all(result.standard_error == 0 for result in results)
    for k in range(1, len(orders) + 1):
        assert np.count_nonzero(p * len(orders) < k + 0.5) <= k
    # Every statistic is the same for the reversed order, so orders form pairs. Without other ties
    # the smallest p is 2 / (number of orders).
    if tokens.dtype == float:
        assert p.min() == pytest.approx(2 / len(orders))


@pytest.mark.parametrize("shape", [(2000, 1, 9, 1), (2000, 3, 6, 2), (1000, 2, 12, 1)])
def test_the_level_is_exact_on_exchangeable_batches(shape: tuple[int, ...]):
    random = np.random.default_rng(3)
    # The tokens are exchangeable but not independent: those of a sequence share a shift and a
    # scale.
    shared = random.normal(size=(*shape[:2], 1, shape[3])), random.gamma(1, size=(*shape[:2], 1, 1))
    tokens = shared[0] + shared[1] * random.standard_t(3, size=shape)
    p = np.concatenate([p_values(tokens, 19, seed) for seed in range(2)])
    for level in (0.05, 0.25, 0.5):
        # Tokens are continuous, so p ≤ k/20 has probability k/20 exactly. The tolerance is 4.5
        # standard errors of a mean of uncorrelated indicators, times √2 because the two seeds use
        # the same batches.
        assert abs(z_score(p <= level + 1e-9, level)) < 4.5 * math.sqrt(2)


def test_many_batches_at_once_equal_batches_one_by_one():
    tokens = RANDOM.normal(size=(1, 3, 7, 2))
    assert p_values(tokens, 49, 5)[0] == exchangeability(tokens[0], permutations=49, seed=5).value
    many = RANDOM.normal(size=(6, 3, 7, 2))
    lengths = np.full(18, 7)
    batch_of_all = sequences.Sequences("vectors", many.reshape(-1, 2), None, lengths, 0)
    together = np.concatenate(sequences.columns(batch_of_all, 6)[:1])
    one_by_one = [
        sequences.columns(
            sequences.Sequences("vectors", part.reshape(-1, 2), None, lengths[:3], 0)
        )[0]
        for part in many
    ]
    # The signs of components are arbitrary.
    np.testing.assert_allclose(np.abs(together), np.abs(np.concatenate(one_by_one)), atol=1e-12)


@pytest.mark.parametrize("sequences", [1, 3], ids=["products", "independent"])
def test_sums_equal_those_of_a_plain_loop(sequences: int):
    tokens, random = RANDOM.normal(size=(3, 6, 2)), np.random.default_rng(1)
    pool, offsets = permutation.draw_pool(5, 6, 2, sequences, random), np.array([0, 3, 4])
    assert pool is not None
    assert (len(pool.a), len(pool.b)) == ((3, 2) if sequences == 1 else (1, 5))
    orders = pool.orders(np.arange(5))
    for pairs in ([(0, 0), (1, 1)], [(0, 0), (0, 1), (1, 1)]):
        sums = permutation.pooled(tokens, pool, offsets, pairs)
        for i, sequence in enumerate(tokens):
            unordered = sequence[np.argsort(orders[offsets[i]])]
            for j in range(5):
                ordered = unordered[orders[(j + offsets[i]) % 5]]
                if j == 0:
                    np.testing.assert_array_equal(ordered, sequence)
                moved = permutation.ramp(6) @ ordered
                products = [ordered[:-1, a] @ ordered[1:, b] for a, b in pairs]
                np.testing.assert_allclose(sums[j, i], [*moved, *products], atol=1e-12)


# -- pools of products -----------------------------------------------------------------------------

ORDERS = np.array(list(itertools.permutations(range(3))))


@pytest.mark.parametrize("tokens", [[0.3, 1.0, 2.2], [0.3, 1.0, 1.0]], ids=["apart", "tied"])
def test_the_test_of_a_single_sequence_is_exact_for_any_factors(tokens: list[float]):
    # Every order of the sequence and every offset is tried, for a hundredth of all pools: the test
    # is exact for each pool.
    random = np.random.default_rng(0)
    for _ in range(12):
        factors = ORDERS[random.integers(0, 6, 4)]
        p = np.array(
            [
                permutation.permutation_test(
                    *sequences.columns(sequences.read(np.array(tokens)[order])),
                    np.array([3]),
                    2,
                    FixedDraws(factors, np.array([offset])),
                ).p[0]
                for order in ORDERS
                for offset in range(3)
            ]
        )
        assert over_level(p, 3) == []
        assert over_level(p - 1 / 3, 3) != []


def test_products_are_uniform_and_pairwise_independent():
    # Over all 6⁴ choices of the factors A_1, A_2, B_1, B_2, any two of the four products take each
    # of the 36 pairs of orders equally often.
    factors = ORDERS[np.array(list(itertools.product(range(6), repeat=4)))]
    products = np.stack([permutation.Pool(f[:2], f[2:], 4).orders(np.arange(4)) for f in factors])
    names = products @ np.array([9, 3, 1])
    for k, other in itertools.combinations(range(4), 2):
        _, counts = np.unique(100 * names[:, k] + names[:, other], return_counts=True)
        assert counts.tolist() == [36] * 36


def test_few_sequences_draw_factors_and_many_draw_permutations(monkeypatch: pytest.MonkeyPatch):
    def sizes(replicates: int, length: int, width: int, count: int) -> tuple[int, int] | None:
        pool = permutation.draw_pool(replicates, length, width, count, np.random.default_rng(0))
        if pool is not None:
            assert pool.size == replicates <= len(pool.a) * len(pool.b)
        return None if pool is None else (len(pool.a), len(pool.b))

    assert sizes(1000, 4, 2, 31) == (32, 32)
    assert sizes(1000, 4, 2, 32) == (1, 1000)
    # If many sequences share a pool, it holds the permutations of the generator unchanged.
    shared = permutation.draw_pool(9, 5, 2, 3, np.random.default_rng(0))
    assert shared is not None
    np.testing.assert_array_equal(shared.b, permutation.uniform(9, 5, np.random.default_rng(0)))
    # Fewer copies of a long sequence fit into memory, and very long sequences have no pool.
    monkeypatch.setattr(permutation, "MEMORY_SIZE", 24)
    monkeypatch.setattr(permutation, "POOL_SIZE", 20)
    assert sizes(12, 4, 2, 1) == (3, 4)
    assert sizes(12, 6, 2, 1) is None


def test_long_sequences_draw_permutations_one_by_one(monkeypatch: pytest.MonkeyPatch):
    tokens = autoregressive(0.3, (2, 40))
    pooled = [exchangeability(tokens, permutations=199, seed=s).value for s in range(40)]
    monkeypatch.setattr(permutation, "POOL_SIZE", 128)
    monkeypatch.setattr(permutation, "CACHE_SIZE", 64)
    streamed = [exchangeability(tokens, permutations=199, seed=s).value for s in range(40)]
    assert pooled != streamed
    # Both have the same p-value up to the random permutations: each of 40 runs has the variance p(1
    # − p)/199.
    mean = (np.mean(pooled) + np.mean(streamed)) / 2
    allowed = 4.5 * math.sqrt(2 * mean * (1 - mean) / 199 / 40)
    assert abs(np.mean(pooled) - np.mean(streamed)) < allowed


# -- power -----------------------------------------------------------------------------------------


def drifting(shape: tuple[int, ...], change: float = 2.0) -> np.ndarray:
    position = np.linspace(-0.5, 0.5, shape[2])[:, None]
    return np.random.default_rng(2).normal(size=shape) + change * position


def growing(shape: tuple[int, ...], factor: float = 3.0) -> np.ndarray:
    later = np.arange(shape[2])[:, None] >= shape[2] // 2
    return np.random.default_rng(4).normal(size=shape) * np.where(later, factor, 1)


def clustered(shape: tuple[int, ...]) -> np.ndarray:
    """Tokens with independent signs and autocorrelated absolute values, a dependence that the
    statistics "drift" and "neighbours" cannot detect."""
    size = np.exp(autoregressive(0.9, (*shape[:2], shape[3], shape[2]), 5)).swapaxes(2, 3)
    return size * np.random.default_rng(5).choice([-1.0, 1.0], size=shape)


def swirling(shape: tuple[int, ...]) -> np.ndarray:
    """Each token depends on the previous one turned by 90°: neighbours are uncorrelated, but
    transitions are not."""
    x = np.random.default_rng(6).normal(size=(*shape[:3], 2))
    for i in range(1, shape[2]):
        x[:, :, i] += 0.7 * np.stack([-x[:, :, i - 1, 1], x[:, :, i - 1, 0]], -1)
    return x


SHAPE = (100, 4, 32, 1)


@pytest.mark.parametrize(
    "tokens",
    [
        autoregressive(0.5, (100, 4, 1, 32), 1).swapaxes(2, 3),
        autoregressive(-0.5, (100, 4, 1, 32), 1).swapaxes(2, 3),
        drifting(SHAPE),
        drifting(SHAPE) * np.random.default_rng(0).choice([-1.0, 1.0], size=(100, 4, 1, 1)),
        growing(SHAPE),
        clustered(SHAPE),
        swirling(SHAPE),
    ],
    ids=["persistent", "alternating", "drift", "own drift", "scale", "clusters", "transitions"],
)
def test_power_against_each_kind_of_dependence_on_order(tokens: np.ndarray):
    rejected = p_values(tokens, 199, 0) <= 0.05
    # If the power is at least 0.95, a rejection rate below 0.85 in 100 batches has probability
    # 1e−4.
    assert rejected.mean() > 0.85


def test_persistent_and_cyclic_categories_are_detected():
    random = np.random.default_rng(7)
    stays = np.zeros((6, 40), int)
    for i in range(1, 40):
        stays[:, i] = np.where(random.random(6) < 0.5, stays[:, i - 1], random.integers(0, 4, 6))
    cycle = (np.arange(40) + random.integers(0, 3, (6, 1))) % 3
    for tokens in (stays, cycle):
        assert exchangeability(tokens, permutations=199).value == 1 / 200
        # Other names of the categories change nothing.
        words = np.array(["to", "be", "or", "not"])[tokens]
        assert exchangeability(words, permutations=199).value == 1 / 200
    shuffled = random.integers(0, 50, (6, 40))
    assert exchangeability(shuffled).value > 0.01  # deterministic: p = 0.6 with this seed


# -- effects ---------------------------------------------------------------------------------------


def test_effects_average_to_zero_over_all_orders_of_a_sequence():
    tokens = np.array([0.3, 1.0, 2.2, 9.0, -1.0])
    for kind in (tokens, np.array([1, 0, 2, 0, 1])):
        readings = [
            exchangeability(np.array(order), wealth=False).effects
            for order in itertools.permutations(kind.tolist())
        ]
        for name in ("neighbours", "drift"):
            values = np.array([reading[name].value for reading in readings])
            assert abs(values.mean()) < 1e-12 * np.abs(values).max()
            assert values.std() > 0.1


def test_effects_recover_known_values():
    correlated = exchangeability(autoregressive(0.6, (400, 64)), permutations=9, wealth=False)
    effect = correlated.effects["neighbours"]
    # An autocorrelation of 64 tokens about their own mean is too low by about (1 + 4c)/L; the
    # effect adds 1/L back (Kendall and Stuart, volume 3, section 48.4).
    assert abs(effect.value - (0.6 - 4 * 0.6 / 64)) < 4.5 * effect.standard_error + 2 / 64**1.5
    assert effect.standard_error < 0.01

    moved = exchangeability(drifting((1, 400, 64, 1))[0], permutations=9, wealth=False)
    # The fitted line rises by 2, in units of √(1 + variance of the ramp).
    ramp_var = np.var(np.linspace(-1, 1, 64))
    effect = moved.effects["drift"]
    assert abs(effect.value - 2 / math.sqrt(1 + ramp_var)) < 4.5 * effect.standard_error + 0.02

    grown = exchangeability(growing((1, 400, 64, 1))[0], permutations=9, wealth=False)
    effect = grown.effects["scale"]
    assert abs(effect.value - math.log(9)) < 4.5 * effect.standard_error + 0.02
    assert grown.effects["drift"].count == 400


def test_the_effects_of_a_single_sequence_have_standard_errors_from_its_shuffles():
    effect = exchangeability(RANDOM.normal(size=400), permutations=9).effects["neighbours"]
    # The permutation variance of a lag-one autocorrelation is 1/L up to terms of order 1/L²;
    # its root from 200 shuffles has a standard error of 5 %, and 4.5 of these are allowed.
    assert effect.standard_error == pytest.approx(1 / 20, rel=0.225)
    assert abs(effect.value) < 4.5 * effect.standard_error


# -- kinds of input --------------------------------------------------------------------------------


def test_ragged_masked_and_listed_tokens_give_the_same_result():
    parts = [RANDOM.normal(size=n) for n in (5, 9, 9, 1)]
    padded, mask = np.full((4, 9), np.nan), np.zeros((4, 9), bool)
    for row, part in enumerate(parts):
        padded[row, : len(part)], mask[row, : len(part)] = part, True
    listed, masked = exchangeability(parts), exchangeability(padded, mask=mask)
    assert listed == masked
    assert listed.sequences == 3
    assert listed.left_out == 1
    as_columns = exchangeability([part[:, None] for part in parts])
    assert as_columns == listed


def test_pairs_are_vectors():
    keys = jax.random.split(jax.random.key(0), 4)
    pairs = jax.vmap(lambda key: LinearRegression(key_dim=2).sample(key, 12).tokens)(keys)
    joined = np.concatenate([np.asarray(pairs.key), np.asarray(pairs.value)], axis=-1)
    assert isinstance(pairs, Pairs)
    assert exchangeability(pairs) == exchangeability(joined)


def test_vectors_may_have_more_dimensions_than_tokens_and_constant_directions():
    wide = RANDOM.normal(size=(2, 6, 50))
    assert 0 < exchangeability(wide).value <= 1
    # A column that repeats another column and a constant column change nothing.
    x = autoregressive(0.5, (2, 3, 30)).swapaxes(1, 2)
    more = np.concatenate([x, x[..., :1], np.ones((2, 30, 1))], -1)
    assert exchangeability(more, permutations=99).value == 1 / 100


@pytest.mark.parametrize(("unit", "shift"), [(7.0, 0.0), (7.0, 1e6), (1e300, 0.0), (1e-300, 0.0)])
def test_units_and_origin_do_not_matter(unit: float, shift: float):
    tokens = autoregressive(0.3, (3, 20))
    assert exchangeability(unit * tokens + shift).value == exchangeability(tokens).value
    # The unit and the origin of a single coordinate do not matter either: here those of the
    # coordinate that depends on order.
    pairs = np.stack([autoregressive(0.9, (3, 20), 1), RANDOM.normal(size=(3, 20))], -1)
    moved = pairs * np.array([unit, 1.0]) + shift
    assert exchangeability(moved).value == exchangeability(pairs).value == 0.001


@pytest.mark.parametrize(
    "tokens",
    [np.full((3, 5), 0.1), np.zeros((2, 4), int), np.array(["a", "a"]), np.ones((2, 3, 2))],
)
def test_constant_tokens_have_p_value_one(tokens: np.ndarray):
    result = exchangeability(tokens)
    assert result.value == 1
    assert "constant" in str(result)


def test_constant_sequences_are_left_out():
    tokens = autoregressive(0.5, (2, 30))
    result = exchangeability([*tokens, np.full(30, 0.1), np.full(7, 0.1)])
    assert result.value < 0.05
    assert result.effects["neighbours"].count == 2


def test_two_tokens_are_enough():
    rising = np.sort(RANDOM.normal(size=(50, 2)), axis=1)
    result = exchangeability(rising)
    assert result.value == 0.001
    assert result.effects["neighbours"].status != "ok"
    assert exchangeability(np.array([1.0, 2.0])).value == 1


@pytest.mark.parametrize(
    ("tokens", "settings", "message"),
    [
        ([], {}, "at least one sequence of two tokens; got none"),
        (np.zeros((0, 5)), {}, "got none"),
        (np.zeros((4, 0)), {}, "got none"),
        (np.zeros((4, 1)), {}, "a single token has no order"),
        (1.0, {}, r"got shape \(\)"),
        (np.zeros((2, 2, 2, 2)), {}, r"got shape \(2, 2, 2, 2\)"),
        ([[1.0, 2.0], [1.0, np.nan, 2.0]], {}, "token 1 of sequence 1 is not; leave it out"),
        (np.array([[1.0, np.inf]]), {}, "token 1 of sequence 0"),
        ([np.zeros((3, 2)), np.zeros((3, 1))], {}, "vector of one size"),
        ([np.zeros(3), np.zeros((3, 2, 2))], {}, "vector of one size"),
        ([[[1.0, 2.0], [1.0]]], {}, "rows of equal length"),
        (np.array([1j, 2j]), {}, "got an array of type complex128"),
        (np.array([None, 2]), {}, "got None in row 0"),
        (["a", "b", float("nan")], {}, "got nan in row 2"),
        ([["a", "b"], ["a", None, "b"]], {}, "got None in row 1"),
        ([["a", 1]], {}, "all text or all numbers"),
        (np.zeros((2, 3)), {"mask": np.ones((2, 2), bool)}, r"shape \(2, 3\); got bool"),
        (np.zeros((2, 3)), {"mask": np.ones((2, 3))}, "mask must be boolean"),
        ([[1.0, 2.0]], {"mask": [True, True]}, "got a list of sequences"),
        (np.zeros((2, 3)), {"permutations": 0}, "permutations must be a whole number"),
        (np.zeros((2, 3)), {"seed": -1}, "seed must be a whole number"),
    ],
)
def test_bad_input_raises_one_sentence(tokens: Any, settings: dict, message: str):
    with pytest.raises(BadInput, match=message):
        exchangeability(tokens, **settings)


def test_the_result_prints_a_sentence_and_draws_a_figure():
    result = exchangeability(autoregressive(0.8, (4, 40)))
    text = str(result)
    assert text.startswith("p = 0.001 (4 sequences of numbers, 999 permutations): the order")
    assert "neighbours" in text
    assert "wealth" in text
    assert "standard deviations above" in result.plot().axes[0].get_ylabel()
    assert exchangeability(np.arange(9.0), wealth=False).wealth is None


def test_tokens_are_not_modified():
    tokens = RANDOM.normal(size=(2, 9))
    before = tokens.copy()
    exchangeability(tokens)
    np.testing.assert_array_equal(tokens, before)


def test_masked_tokens_are_left_out():
    random = np.random.default_rng(0)
    tokens = random.normal(size=(6, 12))
    hidden = np.zeros(tokens.shape, bool)
    hidden[:, 9:] = True
    padded = np.where(hidden, 100.0, tokens)
    expected = exchangeability(tokens[:, :9], seed=1)
    assert exchangeability(np.ma.masked_array(padded, hidden), seed=1).value == expected.value
    vectors = np.ma.masked_array(padded[..., None].repeat(2, -1), hidden[..., None].repeat(2, -1))
    assert exchangeability(vectors, seed=1).value == (
        exchangeability(vectors.data, mask=~hidden, seed=1).value
    )
    vectors[0, 0, 0] = np.ma.masked
    with pytest.raises(BadInput, match="as a whole"):
        exchangeability(vectors)
