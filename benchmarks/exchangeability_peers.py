"""The tests and bets that `benchmarks.exchangeability` compares: attnlens and its peers.

A `Test` maps (tokens, permutations, seed) to a p-value, a `Bet` (tokens, seed) to the largest
wealth. The docstring of `benchmarks.exchangeability` says what each peer computes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Test = Callable[[np.ndarray, int, int], float]  # (tokens, permutations, seed) to a p-value
Bet = Callable[[np.ndarray, int], float]  # (tokens, seed) to the largest wealth


# -- tests -----------------------------------------------------------------------------------------


def ours(fast: bool = False) -> Test:
    from attnlens import exchangeability

    return lambda x, permutations, seed: (
        exchangeability(x, permutations=permutations, wealth=False, seed=seed).value
    )


def ours_of_each() -> Callable[[np.ndarray, int, int], np.ndarray]:
    from attnlens.instruments.order.exchange import p_values

    return lambda x, permutations, seed: p_values(x[:, None, :, None], permutations, seed)


def _difference(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
    return first.mean(axis) - second.mean(axis)


def _lagged(x: np.ndarray, axis: int = -1) -> np.ndarray:
    centred = np.moveaxis(x, axis, -1) - x.mean(axis, keepdims=True)
    return (centred[..., 1:] * centred[..., :-1]).sum(-1)


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]


def _scipy(statistic: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    import scipy.stats

    def test(data: tuple[np.ndarray, ...], permutations: int, seed: int) -> Any:
        return scipy.stats.permutation_test(
            data, statistic, n_resamples=permutations, rng=seed, axis=-1, **settings
        ).pvalue

    return test


def plain(vectorised: bool = False) -> Test:
    test = _scipy(_difference, vectorized=vectorised)
    return lambda x, permutations, seed: float(test(_halves(x), permutations, seed))


def halves(fast: bool = False) -> Test:
    return plain(vectorised=True)


def lag(fast: bool = False) -> Test:
    test = _scipy(_lagged, vectorized=True, permutation_type="pairings")
    return lambda x, permutations, seed: float(test((x,), permutations, seed))


# All sequences in one call. 50 permutations per batch fit into the caches: SciPy's fastest setting.


def halves_of_each() -> Callable[[np.ndarray, int, int], np.ndarray]:
    test = _scipy(_difference, vectorized=True, batch=50)
    return lambda x, permutations, seed: test(_halves(x), permutations, seed)


def lag_of_each() -> Callable[[np.ndarray, int, int], np.ndarray]:
    test = _scipy(_lagged, vectorized=True, permutation_type="pairings", batch=50)
    return lambda x, permutations, seed: test((x,), permutations, seed)


def mapie(fast: bool = False) -> Test:
    """MAPIE's test; `fast` computes the same statistic from cumulative sums (for power only)."""
    from mapie.exchangeability_testing import (  # pyright: ignore[reportMissingImports] (an optional package)
        PValuePermutationTest,
    )

    def largest_difference(scores: np.ndarray) -> float:
        n, left = len(scores), np.arange(1, len(scores))
        sums = np.cumsum(scores)
        apart = sums[:-1] / left - (sums[-1] - sums[:-1]) / (n - left)
        return float((np.sqrt(left * (n - left) / n) * np.abs(apart)).max())

    def test(x: np.ndarray, permutations: int, seed: int) -> float:
        tester = PValuePermutationTest(
            task="regression", random_state=seed, num_permutations=permutations, warn=False
        )
        if fast:
            tester.test_statistic = largest_difference
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MAPIE warns that it fits on the first 30 %
            return float(tester.run(np.zeros((len(x), 1)), x).p_values[-1])

    return test


def flinty(fast: bool = False) -> Test:
    """flintypy's V test, computed from distances. Its function for matrices fails if columns of
    real numbers are permuted separately: its compiled permutation takes integers only."""
    if os.environ.get("OMP_NUM_THREADS"):
        os.environ["NUMBA_NUM_THREADS"] = "1"  # one thread; Numba has its own setting
    import flintypy  # pyright: ignore[reportMissingImports] (an optional package)
    from scipy.spatial.distance import pdist

    def test(x: np.ndarray, permutations: int, seed: int) -> float:
        distances = [pdist(sequence[:, None], "sqeuclidean") for sequence in x]
        p_value = flintypy.v_stat.dist_data_p_value(distances, num_perms=permutations)
        return (p_value * permutations + 1) / (permutations + 1)  # a valid p-value counts the data

    return test


TESTS: dict[str, Callable[..., Test]] = {
    "attnlens": ours,
    "plain": plain,
    "scipy": halves,
    "lag": lag,
    "mapie": mapie,
    "flintypy": flinty,
}


# -- bets ------------------------------------------------------------------------------------------


def our_bets() -> Bet:
    from attnlens.instruments import wealth

    return lambda x, seed: max(wealth(x, seed=seed).values)


def crepes(composite: bool = False) -> Bet:
    from crepes import martingales  # pyright: ignore[reportMissingImports] (an optional package)

    martingale = martingales.SimpleJumper()
    if composite:
        martingale = martingales.CompositeMartingale([martingale, martingales.SleeperStayer()])
    return lambda x, seed: max(
        1.0, float(martingale.apply(martingales.semi_online_p_values(x, seed=seed)).max())
    )


def crepes_composite() -> Bet:
    return crepes(composite=True)


def mapie_bets() -> Bet:
    from mapie.exchangeability_testing import (  # pyright: ignore[reportMissingImports] (an optional package)
        OnlineMartingaleTest,
    )

    def bet(x: np.ndarray, seed: int) -> float:
        tester = OnlineMartingaleTest(task="regression", random_state=seed, warn=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tester.update(np.zeros((len(x), 1)), x)
        return max(1.0, float(np.max(tester.martingale_value_history)))

    return bet


BETS: dict[str, Callable[[], Bet]] = {
    "attnlens": our_bets,
    "jumper": crepes,
    "composite": crepes_composite,
    "mapie": mapie_bets,
}
