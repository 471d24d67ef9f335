"""Betting against exchangeability: a sequential test that is valid after every token.

The rank of a new token among those before it, with ties broken at random,

    p_n = ( #{i < n : x_i < x_n} + θ_n · #{i ≤ n : x_i = x_n} ) / n,      θ_n uniform on [0, 1],

is uniform on [0, 1] and independent of p_1 … p_(n−1) when tokens are exchangeable (Vovk, Gammerman
and Shafer, Algorithmic Learning in a Random World, 2005). So no bet on it has a positive expected
gain: with t = 2p − 1, each of these betting factors has mean one given the past,

    drift        1 + ε t_n                    new tokens are high, or low
    scale        1 + ε (3 t_n² − 1)/2         new tokens are extreme, or near the middle
    neighbours   1 + ε t_n t_(n−1)            a token resembles the one before, or is its opposite

for ε in BETS. The initial wealth is one unit, held as a reserve. Before token n, 1/n − 1/(n + 1) of
this unit moves from the reserve to the bets, in equal parts, and stays there. The wealth, bets plus
reserve, is a mixture of strategies that start at every time: it never falls below 1/(n + 1), so a
late change is detected with a delay that grows only as log n. The wealth is a martingale, and by
Ville's inequality

    P( wealth ever reaches 1/α ) ≤ α       under exchangeability, for every stopping rule.

Several sequences are bet on in parallel: at step n, on the n-th token of each, with the product of
the factors. Numbers are ranked by their values, categories by a number that depends only on the
random seed and the label, vectors along a direction that at step n depends on the first n tokens of
every sequence as sets (`vector_ranks`).

Why ranks are uniform and independent. Assume that the joint law of all tokens stays the same when
the tokens within each sequence are permuted, for example because sequences are independent and each
is exchangeable. Fix a step n and condition on the first n tokens of every sequence as multisets, on
all later tokens, and on the later θ. Then every order of a multiset is equally likely,
independently between sequences. A score that is a function of the token and of the multisets turns
each multiset into a fixed list of numbers in random order. The rank p_n of its last number, with
ties broken by θ_n, is uniform: for every value of the condition, and independently between
sequences. And p_(n+1), p_(n+2), … are functions of the condition, because multisets and later
tokens determine the later multisets. So the ranks of step n are independent of all later ones; by
induction from the last step backwards, all are independent. A sequence that has ended is a multiset
that stays constant; its length must not depend on its order.

Computations for step n use no later token, and neither do random draws: `wealth` of the first n
tokens of every sequence is the beginning of `wealth` of all tokens. So `wealth` may be called again
as tokens arrive, with the same random seed and the same sequences, and every call sees the same
martingale. Ville's inequality bounds the probability of *ever* reaching 1/α, so it covers every
stopping rule. It does not cover a choice among several random seeds.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from attnlens.core import checks
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.frames import Tabular

from .sequences import Sequences, read
from .vector_ranks import vector_counts

BETS = (-1.0, -0.5, 0.5, 1.0)  # ε; for |ε| up to 1 no factor is below zero
TOKENS_AT_ONCE = 256  # tokens of a sequence that are compared with each other at a time
COMPARISONS_AT_ONCE = 2**18  # comparisons of tokens held in memory at a time
LEVELS = (0.05, 0.01)  # significance levels drawn in the figure


@dataclass(frozen=True)
class Wealth(Tabular):
    """Wealth that starts at one; `log_values[n]` is its log after n tokens of every sequence."""

    log_values: tuple[float, ...]
    sequences: int

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(math.exp(min(value, 700.0)) for value in self.log_values)

    @property
    def p_value(self) -> float:
        """1 / (largest wealth so far), a p-value that is valid after any number of tokens.

        Under exchangeability, the probability that it ever falls to α or below is at most α.
        """
        return math.exp(-max(0.0, *self.log_values))

    def reached(self, level: float = 0.05) -> int | None:
        """The number of tokens after which exchangeability is rejected at `level`, or None."""
        if not 0 < level < 1:
            raise checks.BadInput(f"level must be between 0 and 1; got {level!r}.")
        steps = (n for n, value in enumerate(self.log_values) if value >= -math.log(level))
        return next(steps, None)

    def __str__(self) -> str:
        step = self.reached()
        conclusion = (
            "never reached 20, so at level 0.05 the stream may be exchangeable"
            if step is None
            else f"reached 20 after {step} tokens: not exchangeable, at level 0.05"
        )
        return (
            f"one unit became {math.exp(min(self.log_values[-1], 700.0)):.3g} over "
            f"{len(self.log_values) - 1} tokens by betting against exchangeability; it {conclusion}"
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per number of tokens."""
        pairs = zip(self.log_values, self.values, strict=True)
        return [
            {"tokens": n, "wealth": value, "log_wealth": log}
            for n, (log, value) in enumerate(pairs)
        ]

    def figure(self) -> Figure:
        """Wealth over tokens, with the levels at which exchangeability is rejected."""
        steps = len(self.log_values) - 1
        walk = tuple(Point(n, value) for n, value in enumerate(self.values))
        lines = [
            Series(
                f"reject at {level:g}", (Point(0, 1 / level), Point(steps, 1 / level)), line=True
            )
            for level in LEVELS
        ]
        return Figure(
            "Wealth from betting against exchangeability",
            "tokens",
            "wealth",
            (Series("wealth", walk, curve=True), *lines),
            log_x=False,
        )

    def plot(self) -> Any:
        """The wealth as a matplotlib figure."""
        return self.figure().plot()


def wealth(tokens: Any, *, mask: Any = None, seed: int = 0) -> Wealth:
    """Bet against exchangeability, token by token; `tokens` and `mask` as in `exchangeability`.

    As more tokens arrive, call it again with all tokens and the same seed: the values of earlier
    tokens do not change.

    >>> rising = wealth(np.arange(100.0))
    >>> rising.reached(0.05)
    11
    """
    random = np.random.default_rng(checks.seed_number("seed", seed))
    return bet(read(tokens, mask), random)


def bet(sequences: Sequences, random: np.random.Generator) -> Wealth:
    """Return the wealth after 0, 1, … tokens of every sequence; an ended one gets no more bets."""
    if sequences.kind == "vectors":
        t = 2 * tie_broken(*vector_counts(sequences, random), random) - 1
    else:
        t = 2 * ranks(_table(scores(sequences, random), sequences.lengths), random) - 1
    before = np.concatenate([np.zeros((len(t), 1)), t[:, :-1]], axis=1)
    with np.errstate(divide="ignore"):
        # A sequence that has ended has the betting factor one.
        gains = np.nan_to_num(log_factors(t, before), nan=0.0, neginf=-np.inf).sum(1)
    log_values = [0.0]
    stakes = np.full(len(gains), -np.inf)  # log of the wealth of each bet, which may underflow
    for n in range(t.shape[1]):
        # Before token n + 1 the reserve falls from 1/(n + 1) to 1/(n + 2) of the initial unit.
        released = -math.log((n + 1) * (n + 2) * len(stakes))
        stakes = np.logaddexp(stakes, released) + gains[:, n]
        log_values.append(float(np.logaddexp.reduce([*stakes, -math.log(n + 2)])))
    return Wealth(tuple(log_values), len(t))


def _table(flat: np.ndarray, lengths: np.ndarray) -> Float[np.ndarray, "sequences length"]:
    """One row per sequence; NaN where it has ended."""
    table = np.full((len(lengths), lengths.max()), np.nan)
    table[np.arange(lengths.max()) < lengths[:, None]] = flat
    return table


def ranks(
    table: Float[np.ndarray, "sequences length"], random: np.random.Generator
) -> Float[np.ndarray, "sequences length"]:
    """Return p_n of every token, NaN where a sequence has ended.

    TOKENS_AT_ONCE consecutive tokens are compared with each other directly, and with all tokens
    before them by binary search in these earlier tokens, sorted.
    """
    count, length = table.shape
    below, equal = np.zeros(table.shape), np.zeros(table.shape)
    for first in range(0, length, TOKENS_AT_ONCE):
        now = table[:, first : first + TOKENS_AT_ONCE]
        width = now.shape[1]
        so_far = np.tri(width, dtype=bool)  # row n: the tokens up to n, itself included
        step = max(1, COMPARISONS_AT_ONCE // width**2)
        for i in range(0, count, step):
            rows = slice(i, i + step)
            here, there = now[rows, :, None], now[rows, None, :]
            below[rows, first : first + width] = ((there < here) & so_far).sum(-1)
            equal[rows, first : first + width] = ((there == here) & so_far).sum(-1)
        for row in range(count if first else 0):
            before = np.sort(table[row, :first])
            left, right = (np.searchsorted(before, now[row], side) for side in ("left", "right"))
            below[row, first : first + width] += left
            equal[row, first : first + width] += right - left
    return tie_broken(np.where(np.isnan(table), np.nan, below), equal, random)


def tie_broken(
    below: Float[np.ndarray, "sequences length"],
    equal: Float[np.ndarray, "sequences length"],
    random: np.random.Generator,
) -> Float[np.ndarray, "sequences length"]:
    """Return p_n, given how many tokens are below the n-th and how many equal it (with itself)."""
    count, length = below.shape
    ties = random.random((length, count)).T  # drawn per step, so later tokens change no draw
    return (below + ties * equal) / np.arange(1, length + 1)


def log_factors(
    t: Float[np.ndarray, "sequences length"], before: Float[np.ndarray, "sequences length"]
) -> Float[np.ndarray, "bets sequences length"]:
    """Return the log of each bet's factor; t = 2p − 1, and `before` is t of the token before."""
    signals = np.stack([t, (3 * t**2 - 1) / 2, t * before])
    return np.log(1 + np.multiply.outer(BETS, signals)).reshape(-1, *t.shape)


def scores(sequences: Sequences, random: np.random.Generator) -> Float[np.ndarray, " tokens"]:
    """One score per token, which depends on no other token.

    A number is its own score. The score of a category is a keyed hash of its label, with a random
    key that is drawn first: uniform on [0, 1), and the same whichever other categories occur.
    (Vectors have no such score: see `vector_ranks`.)
    """
    if sequences.kind == "numbers":
        return sequences.tokens[:, 0]
    assert sequences.codes is not None
    assert sequences.labels is not None
    key = random.bytes(16)
    digests = (
        hashlib.blake2b(_text(label), digest_size=8, key=key).digest()
        for label in sequences.labels.tolist()
    )
    hashed = np.array([(int.from_bytes(digest, "big") >> 11) * 2.0**-53 for digest in digests])
    return hashed[sequences.codes]


def _text(label: Any) -> bytes:
    """A label as bytes, independent of the array's type: True, 1 and "1" are one label."""
    if isinstance(label, bytes):
        return label
    return (label if isinstance(label, str) else str(int(label))).encode("utf-8", "surrogatepass")
