"""Does the order of tokens matter? Tests and bets of attnlens and its peers: level, power, speed.

    attnlens     `exchangeability`: several statistics in one exact permutation test; `wealth`: bets
                 (a test martingale)
    SciPy        permutation_test of the difference of the means of both halves, with a statistic
                 that takes one sample at a time (plain, SciPy's default) or many (vectorised). Also
                 of the lag-one autocorrelation ("lag"), the best statistic for autoregressive
                 tokens: it gives an upper bound of the power for them, and detects nothing else
    MAPIE        PValuePermutationTest with the token as y and constant x: the largest difference of
                 mean scores over all splits; OnlineMartingaleTest with its default, the simple
                 jumper
    flintypy     V test of a matrix with one row per position and one column per sequence: each
                 column is permuted separately, as attnlens does with sequences
    crepes       conformal test martingales on the same ranks: the simple jumper, and the
                 composite of a jumper and a sleeper from its documentation

Every call has a new seed, so no contender can reuse results of an earlier call. Level and power are
shares of sequences rejected at 0.05; a share over n sequences has a standard error of at most
1/(2√n).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from benchmarks.contest import Contender, Growth, Run, Work
from benchmarks.exchangeability_peers import (
    BETS,
    TESTS,
    halves_of_each,
    lag_of_each,
    mapie,
    ours_of_each,
)

LEVEL = 0.05
EXTRA = "peers-exchange"
KINDS = ("AR", "drift", "scale", "shift")
Case = tuple[str, float]


def _cases(**strengths: tuple[float, ...]) -> dict[str, Case]:
    """Cases by name, as (kind, strength), with one exchangeable case ("level").

    Meaning of a strength: AR: correlation with the previous token. Drift: change over the sequence,
    in standard deviations of the noise. Scale: standard deviation of the second half divided by
    that of the first. Shift: size of a step in the middle."""
    power = {f"power {kind} {x:g}": (kind, x) for kind, many in strengths.items() for x in many}
    return {"level": ("drift", 0.0), **power}


CASES = _cases(AR=(0.2, 0.4, 0.6), drift=(1, 2, 3), scale=(1.5, 2, 3))
# Batches and streams have more tokens, so they show power for weaker effects.
JOINT_CASES = _cases(AR=(0.1, 0.2), drift=(0.3, 0.6), scale=(1.2, 1.5))
STREAM_CASES = _cases(AR=(0.2, 0.4), drift=(0.5, 1), scale=(1.25, 1.5), shift=(0.25, 0.5))


def draw(case: Case, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Random tokens of a case; the last axis of `shape` is the length of a sequence."""
    kind, strength = case
    x = np.random.default_rng([seed, int(100 * strength), KINDS.index(kind)]).normal(size=shape)
    length = shape[-1]
    if kind == "AR":
        for i in range(1, length):
            x[..., i] = strength * x[..., i - 1] + (1 - strength**2) ** 0.5 * x[..., i]
    elif kind == "drift":
        x += strength * np.linspace(-0.5, 0.5, length)
    elif kind == "scale":
        x[..., length // 2 :] *= strength
    else:
        x[..., length // 2 :] += strength
    return x


# -- makers ----------------------------------------------------------------------------------------


def one(who: str, length: int, permutations: int) -> Run:
    """One p-value of one sequence. The call computes ten, or one with a fifth of the permutations
    for MAPIE; `scale` corrects for this."""
    test, seeds = TESTS[who](), itertools.count()
    x = draw(CASES["level"], (length,))
    if who == "mapie":
        return Run(lambda: test(x, permutations // 5, next(seeds)), scale=5)
    return Run(lambda: [test(x, permutations, next(seeds)) for _ in range(10)], scale=1 / 10)


def each(who: str, count: int, length: int, permutations: int) -> Run:
    """One p-value for each of `count` sequences. MAPIE runs one sequence with a fifth of the
    permutations; `scale` corrects for this."""
    x, seeds = draw(CASES["level"], (count, length)), itertools.count()
    if who == "mapie":
        test = mapie()
        return Run(lambda: test(x[0], permutations // 5, next(seeds)), scale=5 * count)
    tests = {"attnlens": ours_of_each, "scipy": halves_of_each, "lag": lag_of_each}[who]()
    return Run(lambda: tests(x, permutations, next(seeds)))


def joint(who: str, count: int, length: int, permutations: int) -> Run:
    """One p-value of `count` sequences together."""
    test, seeds = TESTS[who](), itertools.count()
    x = draw(JOINT_CASES["level"], (count, length))
    return Run(lambda: test(x, permutations, next(seeds)))


def stream(who: str, length: int) -> Run:
    """The wealth of the bets after every token of an exchangeable stream."""
    bet, seeds = BETS[who](), itertools.count()
    x = draw(STREAM_CASES["level"], (length,))
    return Run(lambda: bet(x, next(seeds)))


def power(who: str, trials: int, length: int, permutations: int) -> Run:
    """Share of sequences rejected in every case, tested one at a time."""
    test, count = TESTS[who](fast=True), trials // 3 if who == "mapie" else trials
    return _shares(CASES, lambda x, seed: test(x, permutations, seed), (trials, length), count)


def joint_power(who: str, trials: int, count: int, length: int, permutations: int) -> Run:
    """Share of batches rejected in every case, tested one at a time."""
    test, shape = TESTS[who](), (trials, count, length)
    return _shares(JOINT_CASES, lambda x, seed: test(x, permutations, seed), shape)


def stream_power(who: str, trials: int, length: int) -> Run:
    """Share of streams in every case whose wealth ever reaches 1/LEVEL."""
    bet = BETS[who]()
    # 1/(largest wealth) is a p-value (Ville's inequality).
    return _shares(STREAM_CASES, lambda x, seed: 1 / bet(x, seed), (trials, length))


def _shares(
    cases: dict[str, Case],
    test: Callable[[np.ndarray, int], float],
    shape: tuple[int, ...],
    count: int | None = None,
) -> Run:
    """Share rejected in every case. Slow contenders run only the first `count` sequences; `scale`
    corrects their time."""
    data = {name: draw(case, shape, seed=1)[:count] for name, case in cases.items()}

    def call() -> dict[str, float]:
        return {
            name: float(np.mean([test(x, seed) <= LEVEL for seed, x in enumerate(tokens)]))
            for name, tokens in data.items()
        }

    return Run(call, lambda shares: shares, scale=shape[0] / (count or shape[0]))


# -- the table -------------------------------------------------------------------------------------

NAMES = {
    "attnlens": ("attnlens", "attnlens"),
    "plain": ("SciPy plain", "attnlens"),
    "scipy": ("SciPy vectorised", "attnlens"),
    "lag": ("SciPy lag, vectorised", "attnlens"),
    "mapie": ("MAPIE", EXTRA),
    "flintypy": ("flintypy (one thread)", EXTRA),
    "jumper": ("crepes jumper", EXTRA),
    "composite": ("crepes composite", EXTRA),
}
GROUP = "exchangeability test"


def _contenders(make: str, *who: str) -> list[Contender]:
    """Contenders with one thread each: none of them could use two."""
    return [
        Contender(NAMES[name][0], f"{__name__}:{make}", NAMES[name][1], "one", {"who": name})
        for name in who
    ]


WORKS = [
    Work(
        "exchangeability of one sequence",
        GROUP,
        "one p-value: 256 tokens, 1,000 permutations; MAPIE is timed on 200 and scaled up",
        _contenders("one", "attnlens", "plain", "scipy", "lag", "mapie"),
        {"length": 256, "permutations": 1000},
        quick={},
        repeats=4,
        aims={"SciPy plain": 10, "SciPy vectorised": 10, "MAPIE": 10},
        why="SciPy takes one statistic. attnlens takes four of them and three effects with their "
        "standard errors: a third of its time goes into moving and adding up tokens, a tenth into "
        "drawing, the rest into NumPy calls on small arrays.",
    ),
    Work(
        "exchangeability of 64 sequences",
        GROUP,
        "64 p-values, one per sequence: 256 tokens, 1,000 permutations; SciPy takes all sequences "
        "in one call, MAPIE is timed on a part and scaled up",
        _contenders("each", "attnlens", "scipy", "lag", "mapie"),
        {"count": 64, "length": 256, "permutations": 1000},
        quick={},
        repeats=3,
        aims={"MAPIE": 10},
        why="Side by side, SciPy moves every permuted token just once too; it takes one statistic "
        "of them, attnlens four.",
    ),
    Work(
        "exchangeability of a batch",
        GROUP,
        "one p-value of 64 sequences together: 64 tokens each, 1,000 permutations",
        [
            *_contenders("joint", "attnlens", "flintypy"),
            Contender(
                "flintypy (all threads)", f"{__name__}:joint", EXTRA, "all", {"who": "flintypy"}
            ),
        ],
        {"count": 64, "length": 64, "permutations": 1000},
        quick={"permutations": 100},
        repeats=2,
        aims={"flintypy": 10},
    ),
    Work(
        "power on one sequence",
        GROUP,
        "level and power at 0.05: sequences of 64 tokens one at a time, 199 permutations; MAPIE "
        "with its statistic in cumulative sums, the same numbers sooner, on a third of them. "
        "Shares of 150 (a true 0.05 has a standard error of 0.018)",
        _contenders("power", "attnlens", "scipy", "lag", "mapie"),
        {"trials": 150, "length": 64, "permutations": 199},
        quick={"trials": 12},
        repeats=0,
        why="A statistic that knows what to look for finds weak order of that one kind more often "
        "(halves: a slow drift, lag: weak correlation) and nothing else; ours shares its level "
        "among four kinds.",
    ),
    Work(
        "power on a batch",
        GROUP,
        "level and power at 0.05: 16 sequences of 32 tokens together, 199 permutations. Shares of "
        "80 (a true 0.05 has a standard error of 0.024)",
        _contenders("joint_power", "attnlens", "flintypy"),
        {"trials": 80, "count": 16, "length": 32, "permutations": 199},
        quick={"trials": 4},
        repeats=0,
    ),
    Work(
        "bets on a stream",
        GROUP,
        "the wealth after each of 4,096 tokens",
        _contenders("stream", "attnlens", "jumper", "composite", "mapie"),
        {"length": 4096},
        quick={"length": 1024},
        repeats=3,
    ),
    Work(
        "power of bets",
        GROUP,
        "how often the wealth reaches 20 within 512 tokens: level and power at 0.05, anytime. "
        "Shares of 40 (a true 0.05 has a standard error of 0.034)",
        _contenders("stream_power", "attnlens", "jumper", "composite", "mapie"),
        {"trials": 40, "length": 512},
        quick={"trials": 4},
        repeats=0,
        why="crepes bets on the level alone and finds weak shifts and drifts more often; ours puts "
        "two thirds of its money on scale and neighbours, which the jumper does not see.",
    ),
]

GROWTH = [
    Growth(
        "exchangeability over tokens",
        f"{__name__}:one",
        (256, 1024, 4096, 16384),
        {"who": "attnlens", "permutations": 1000},
        time=1,
        memory=1,
        task="one sequence, 1,000 permutations",
        threads="one",
    ),
    Growth(
        "exchangeability over permutations",
        f"{__name__}:one",
        (4000, 16000, 64000, 256000),
        {"who": "attnlens", "length": 256},
        time=1,
        memory=1,
        argument="permutations",
        task="one sequence of 256 tokens",
        threads="one",
    ),
]
