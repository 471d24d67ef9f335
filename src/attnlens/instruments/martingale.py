"""Betting against exchangeability: a test that may be looked at after every token.

The rank of a new token among those before it, ties broken at random,

    p_n = ( #{i < n : x_i < x_n} + θ_n · #{i ≤ n : x_i = x_n} ) / n,      θ_n uniform on [0, 1],

is uniform on [0, 1] and independent of p_1 … p_(n−1) when tokens are exchangeable (Vovk, Gammerman
and Shafer, Algorithmic Learning in a Random World, 2005). So no bet on it can be
expected to gain: with t = 2p − 1, each of these has mean one given the past,

    drift        1 + ε t_n                    new tokens come out high, or low
    scale        1 + ε (3 t_n² − 1)/2         new tokens come out at the edges, or in the middle
    neighbours   1 + ε t_n t_(n−1)            a token comes out like the one before, or opposite

for ε in BETS. One unit of money begins as a reserve; before token n, 1/n − 1/(n + 1) of it is
spread evenly over the bets and stays with them. The wealth, bets and reserve together, is a mixture
of strategies that start at every time: it never falls below 1/(n + 1), so a change that comes late
is found with a delay that grows as log n only. It is a martingale, and by Ville's inequality

    P( wealth ever reaches 1/α ) ≤ α       under exchangeability, whenever one stops.

Independent sequences are bet on side by side: at step n, on the n-th token of each, with the
product of the factors. A sequence with categories is scored by a random number for each category;
one of vectors by a number that depends on the tokens as a set (see `scores`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from attnlens import checks
from attnlens.records import Figure, Point, Series

from . import sequences as reading
from .sequences import Sequences

BETS = (-1.0, -0.5, 0.5, 1.0)  # up to 1 no factor is below zero
BLOCK = 256  # tokens of a sequence compared at a time
HELD = 2**18  # comparisons held at a time
LEVELS = (0.05, 0.01)  # drawn in the figure


@dataclass(frozen=True)
class Wealth:
    """What one unit became, after each token: `log_values[n]` after n tokens of every sequence."""

    log_values: tuple[float, ...]
    sequences: int

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(math.exp(min(value, 700.0)) for value in self.log_values)

    @property
    def p_value(self) -> float:
        """1 / (largest wealth so far): at most α with probability at most α, at every time."""
        return math.exp(-max(0.0, *self.log_values))

    def reached(self, level: float = 0.05) -> int | None:
        """After how many tokens exchangeability could be rejected at `level`; None if never."""
        if not 0 < level < 1:
            raise checks.BadInput(f"level must be between 0 and 1, but {level!r} came.")
        over = (n for n, value in enumerate(self.log_values) if value >= -math.log(level))
        return next(over, None)

    def __str__(self) -> str:
        when = self.reached()
        end = (
            "never reached 20, so at level 0.05 the stream may be exchangeable"
            if when is None
            else f"reached 20 after {when} tokens: not exchangeable, at level 0.05"
        )
        return (
            f"one unit became {math.exp(min(self.log_values[-1], 700.0)):.3g} over "
            f"{len(self.log_values) - 1} tokens by betting against exchangeability; it {end}"
        )

    def figure(self) -> Figure:
        steps = len(self.log_values) - 1
        walk = tuple(Point(n, value) for n, value in enumerate(self.values))
        lines = [
            Series(f"reject at {level:g}", (Point(0, 1 / level), Point(steps, 1 / level)),
                   line=True)
            for level in LEVELS
        ]  # fmt: skip
        return Figure(
            "Wealth from betting against exchangeability", "tokens", "wealth",
            (Series("wealth", walk, curve=True), *lines), log_x=False,
        )  # fmt: skip

    def plot(self) -> Any:
        """The wealth as a matplotlib figure."""
        return self.figure().plot()


def wealth(tokens: Any, *, mask: Any = None, seed: int = 0) -> Wealth:
    """Bet against exchangeability, token by token; see `exchangeability` for what tokens may be.

    >>> rising = wealth(np.arange(100.0))
    >>> rising.reached(0.05)
    11
    """
    random = np.random.default_rng(checks.whole("seed", seed))
    return bet(reading.read(tokens, mask), random)


def bet(sequences: Sequences, random: np.random.Generator) -> Wealth:
    """The wealth after 0, 1, … tokens of every sequence; those that have ended are left alone."""
    lengths = sequences.lengths
    table = np.full((len(lengths), lengths.max()), np.nan)
    table[np.arange(lengths.max()) < lengths[:, None]] = scores(sequences, random)
    t = 2 * ranks(table, random) - 1
    before = np.concatenate([np.zeros((len(t), 1)), t[:, :-1]], axis=1)
    with np.errstate(divide="ignore"):
        # A sequence that has ended multiplies by one.
        gains = np.nan_to_num(log_factors(t, before), nan=0.0, neginf=-np.inf).sum(1)
    best = np.maximum(gains.max(0), 0)
    factors, idle = np.exp(gains - best), np.exp(-best)
    log_value, log_values = 0.0, [0.0]
    shares = np.zeros(len(gains))  # of all money, in each bet
    for n in range(t.shape[1]):
        # Before token n + 1: from 1/(n + 1) to 1/(n + 2) of what there was at first.
        reserve = math.exp(-log_value) / (n + 2)
        shares = (shares + reserve / (n + 1) / len(shares)) * factors[:, n]
        total = shares.sum() + reserve * idle[n]
        shares = shares / total
        log_value += math.log(total) + float(best[n])
        log_values.append(log_value)
    return Wealth(tuple(log_values), len(lengths))


def ranks(
    table: Float[np.ndarray, "sequences length"], random: np.random.Generator
) -> Float[np.ndarray, "sequences length"]:
    """p_n of every token; NaN stands where a sequence has ended.

    BLOCK tokens at a time: compared with each other at once, and looked up among those before, in
    sorted order.
    """
    count, length = table.shape
    below, equal = np.zeros(table.shape), np.zeros(table.shape)
    for first in range(0, length, BLOCK):
        now = table[:, first : first + BLOCK]
        width = now.shape[1]
        so_far = np.tri(width, dtype=bool)  # row n: the tokens up to n, itself included
        for i in range(0, count, max(1, HELD // width**2)):
            rows = slice(i, i + max(1, HELD // width**2))
            here, there = now[rows, :, None], now[rows, None, :]
            below[rows, first : first + width] = ((there < here) & so_far).sum(-1)
            equal[rows, first : first + width] = ((there == here) & so_far).sum(-1)
        for row in range(count if first else 0):
            before = np.sort(table[row, :first])
            left, right = (np.searchsorted(before, now[row], side) for side in ("left", "right"))
            below[row, first : first + width] += left
            equal[row, first : first + width] += right - left
    ties = random.random((length, count)).T  # drawn in the order of time
    found = (below + ties * equal) / np.arange(1, length + 1)
    return np.where(np.isnan(table), np.nan, found)


def log_factors(
    t: Float[np.ndarray, "sequences length"], before: Float[np.ndarray, "sequences length"]
) -> Float[np.ndarray, "bets sequences length"]:
    """log of what each bet multiplies its money by."""
    signals = np.stack([t, (3 * t**2 - 1) / 2, t * before])
    return np.log(1 + np.multiply.outer(BETS, signals)).reshape(-1, *t.shape)


def scores(sequences: Sequences, random: np.random.Generator) -> Float[np.ndarray, " tokens"]:
    """A number a token. Numbers are their own; vectors give their leading principal component,
    which depends on all tokens as a set (valid, but known only once all have come); categories
    give the random number that is drawn for each."""
    if sequences.kind == "numbers":
        return sequences.tokens[:, 0]
    if sequences.kind == "vectors":
        return reading.columns(sequences)[0][:, 0]
    assert sequences.codes is not None
    return random.permutation(sequences.codes.max() + 1)[sequences.codes].astype(float)
