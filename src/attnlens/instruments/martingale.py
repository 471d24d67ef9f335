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

Several sequences are bet on side by side: at step n, on the n-th token of each, with the product of
the factors. Numbers are ranked as they are, categories by a number that depends on the seed and the
label only, vectors along a direction that at step n depends on the first n tokens of every sequence
as sets (`vector_ranks`).

Why ranks are uniform and independent. Let the joint law of all tokens stay the same when the tokens
of a sequence are permuted, each sequence on its own: as when sequences are independent and each is
exchangeable. Fix a step n and condition on the first n tokens of every sequence as bags, on all
that comes after, and on the later θ. Then every order of a bag is equally likely, independently
from sequence to sequence. A score that is a function of the token and of the bags turns each bag
into a fixed list of numbers in random order, whose last has a rank p_n that is uniform, ties broken
by θ_n: whatever was conditioned on, and independently from sequence to sequence. And p_(n+1),
p_(n+2), … are functions of what was conditioned on, for bags and later tokens give the later bags.
So the ranks of step n are independent of all later ones; from the last step backwards, all are
independent. A sequence that has ended is a bag that stays; its length must not depend on its order.

Nothing that is computed for step n uses a later token, nor do random draws: `wealth` of the first n
tokens of every sequence is the beginning of `wealth` of them all. So one may call it as tokens
arrive, with one seed and the same sequences, and it is one martingale that is looked at. The bound
is on "ever", so it covers every rule of stopping; trying several seeds it does not.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from attnlens import checks
from attnlens.records import Figure, Point, Series

from . import sequences as reading
from .sequences import Sequences
from .vector_ranks import vector_counts

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

    May be called again as tokens arrive, with the same seed: what was found so far stays.

    >>> rising = wealth(np.arange(100.0))
    >>> rising.reached(0.05)
    11
    """
    random = np.random.default_rng(checks.whole("seed", seed))
    return bet(reading.read(tokens, mask), random)


def bet(sequences: Sequences, random: np.random.Generator) -> Wealth:
    """The wealth after 0, 1, … tokens of every sequence; those that have ended are left alone."""
    if sequences.kind == "vectors":
        t = 2 * tie_broken(*vector_counts(sequences, random), random) - 1
    else:
        t = 2 * ranks(_table(scores(sequences, random), sequences.lengths), random) - 1
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
    return Wealth(tuple(log_values), len(t))


def _table(flat: np.ndarray, lengths: np.ndarray) -> Float[np.ndarray, "sequences length"]:
    """A row a sequence; NaN stands where it has ended."""
    table = np.full((len(lengths), lengths.max()), np.nan)
    table[np.arange(lengths.max()) < lengths[:, None]] = flat
    return table


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
    return tie_broken(np.where(np.isnan(table), np.nan, below), equal, random)


def tie_broken(
    below: Float[np.ndarray, "sequences length"],
    equal: Float[np.ndarray, "sequences length"],
    random: np.random.Generator,
) -> Float[np.ndarray, "sequences length"]:
    """p_n from how many tokens are below the n-th and how many level with it, itself included."""
    count, length = below.shape
    ties = random.random((length, count)).T  # drawn in the order of time
    return (below + ties * equal) / np.arange(1, length + 1)


def log_factors(
    t: Float[np.ndarray, "sequences length"], before: Float[np.ndarray, "sequences length"]
) -> Float[np.ndarray, "bets sequences length"]:
    """log of what each bet multiplies its money by."""
    signals = np.stack([t, (3 * t**2 - 1) / 2, t * before])
    return np.log(1 + np.multiply.outer(BETS, signals)).reshape(-1, *t.shape)


def scores(sequences: Sequences, random: np.random.Generator) -> Float[np.ndarray, " tokens"]:
    """A number a token, which no other token has a part in. Numbers are their own; a category gives
    a keyed hash of its label, the key drawn first: a number that is uniform on [0, 1), and the same
    whichever categories there are besides. (Vectors have no such number: see `vector_ranks`.)"""
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
    """The same for the same label however its array was stored: True, 1 and "1" are one label."""
    if isinstance(label, bytes):
        return label
    return (label if isinstance(label, str) else str(int(label))).encode("utf-8", "surrogatepass")
