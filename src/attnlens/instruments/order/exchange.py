"""Does the order of tokens matter? An exact p-value, with effect sizes.

    p-value    of an exact permutation test (`permutation`)
    effects    how strong the dependence on order is, in interpretable units, each with a standard
               error
    wealth     a sequential test of the same hypothesis (`martingale`), valid at any time; for a
               stream call `wealth` itself, whose random draws do not depend on the number of
               tokens so far

Effects of a sequence y_1 … y_L that is centred and has mean square one (`sequences`):

    neighbours   (Σ_ℓ ⟨y_ℓ, y_(ℓ+1)⟩ + 1)/(L − 1)     autocorrelation at lag one
    drift        numbers: the change of the fitted line from the first token to the last, in
                 standard deviations; vectors and categories: the squared length of that change
                 beyond what a shuffle gives, in total variances
    scale        log(variance in the second half / variance in the first half)

Over the L! orders of a sequence the first two have mean exactly zero (a shuffled sequence has
E⟨y_ℓ, y_(ℓ+1)⟩ = −1/(L − 1), and E‖Σ w_ℓ y_ℓ‖² = L/(L − 1) with w ⊥ 1, ‖w‖ = 1) and the third is as
likely above zero as below. The first two are averaged over sequences; for the third the variances
are averaged before the logarithm is taken. Standard errors come from the spread over sequences. For
a single sequence they come from the spread over its shuffles, so they are the standard errors that
an exchangeable sequence would have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from attnlens.core import checks
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.readings import Reading
from attnlens.core.statistics import mean_reading
from attnlens.core.status import Status

from .martingale import Wealth, bet
from .permutation import permutation_test, ramp, shuffled
from .sequences import Sequences, columns, read

SHUFFLES = 200  # of a single sequence: enough for a standard error accurate to about 5 %
LEVEL = 0.05  # significance level of the printed sentence; the p-value does not depend on it
WORDS = {
    "neighbours": "autocorrelation of neighbouring tokens",
    "drift": "change from the first token to the last, in standard deviations",
    "scale": "log of the variance in the second half over the first",
}
SQUARED = "squared change from the first token to the last beyond chance, in variances"


@dataclass(frozen=True)
class Exchangeability(Reading):
    """A p-value with its interpretation.

    effects: how strong each dependence on order is.
    statistics: each test statistic by name, in standard deviations above its mean over orders.
    wealth: the sequential test; None if it was not asked for.
    kind: what tokens are: "numbers", "vectors" or "categories".
    sequences: the number of sequences that were tested.
    left_out: the number of sequences of a single token, which have no order.
    constant: whether every sequence is constant.
    enumerated: whether all orders were compared, instead of random ones.

    The standard error is the Monte Carlo error of using m permutations instead of infinitely many:
    if b of m statistics reach the observed one, it is the standard deviation of
    Beta(b + 1, m − b + 1). It is 0 where all orders were enumerated.
    """

    effects: Mapping[str, Reading] = field(kw_only=True)
    statistics: Mapping[str, float] = field(kw_only=True)
    wealth: Wealth | None = field(kw_only=True)
    kind: str = field(kw_only=True)
    sequences: int = field(kw_only=True)
    left_out: int = field(kw_only=True)
    constant: bool = field(kw_only=True)
    enumerated: bool = field(kw_only=True)

    @property
    def strongest(self) -> str:
        """The name of the largest statistic."""
        return max(self.statistics, key=self.statistics.__getitem__)

    @property
    def orders(self) -> str:
        """Which orders were compared, in words."""
        return f"all {self.count + 1} orders" if self.enumerated else f"{self.count} permutations"

    def meaning(self, effect: str) -> str:
        """What the number of an effect means, in words."""
        return SQUARED if effect == "drift" and self.kind != "numbers" else WORDS[effect]

    def __str__(self) -> str:
        sequences = self.sequences
        batch = f"{sequences} sequence{'s' if sequences > 1 else ''} of {self.kind}"
        if self.constant:
            return f"p = 1 ({batch}): every sequence is constant, so its order cannot matter"
        conclusion = (
            f"the order of tokens matters, most of all by {self.strongest}"
            if self.value <= LEVEL
            else "no sign that the order of tokens matters"
        )
        lines = [f"p = {self.value:.3g} ({batch}, {self.orders}): {conclusion}"]
        for name, effect in self.effects.items():
            lines.append(f"{name:>12}  {effect}: {self.meaning(name)}")
        if self.wealth is not None:
            lines.append(f"{'wealth':>12}  {self.wealth}")
        return "\n".join(lines)

    def rows(self) -> list[dict[str, Any]]:
        """One row for the p-value and one per effect."""
        return [
            {"quantity": "p-value", **self.row()},
            *({"quantity": name, **effect.row()} for name, effect in self.effects.items()),
        ]

    def figure(self) -> Figure:
        """How unusual the observed order is, one point per statistic."""
        values = self.statistics
        points = tuple(Point(place, value) for place, value in enumerate(values.values(), 1))
        return Figure(
            f"How unusual the order of tokens is (p = {self.value:.3g})",
            "",
            "standard deviations above shuffled orders",
            (Series("observed order", points),),
            log_x=False,
            log_y=False,
            names=tuple(values),
        )

    def plot(self) -> Any:
        """The statistics as a matplotlib figure; `wealth.plot()` draws the test martingale."""
        return self.figure().plot()


def exchangeability(
    tokens: Any,
    *,
    mask: Any = None,
    permutations: int = 999,
    wealth: bool = True,
    seed: int = 0,
) -> Exchangeability:
    """Test whether sequences of tokens are exchangeable; each sequence is permuted separately.

    `tokens`: one sequence (L,), a batch (B, L), vectors (B, L, d), pairs of keys and values, or a
    list of sequences of different lengths; integers, booleans and strings are categories. A
    boolean `mask` (B, L) is true where there is a token. The p-value is exact for every number of
    tokens; it is small when tokens drift, depend on their neighbours or change in scale.

    >>> random = np.random.default_rng(0)
    >>> result = exchangeability(random.normal(size=(8, 32)).cumsum(axis=1))
    >>> result.value
    0.001
    >>> result.effects["neighbours"].value > 0.5
    True
    """
    checks.whole("permutations", permutations, at_least=1, at_most=1_000_000)
    random = np.random.default_rng(checks.seed_number("seed", seed))
    sequences = read(tokens, mask)
    y, s = columns(sequences)
    constant = not y.any()
    test = permutation_test(y, s, sequences.lengths, permutations, random)
    p, count = float(test.p[0]), test.replicates - 1
    enumerated = count != permutations
    # Beta(b + 1, m − b + 1) with b = p (m + 1) − 1.
    above, below = p * (count + 1), (1 - p) * (count + 1) + 1
    error = 0.0 if enumerated else math.sqrt(above * below / (count + 3)) / (count + 2)
    return Exchangeability(
        p,
        error,
        count,
        effects={} if constant else effects(sequences.kind, y, sequences.lengths, random),
        statistics={name: float(values[0]) for name, values in test.statistics.items()},
        wealth=bet(sequences, random) if wealth else None,
        kind=sequences.kind,
        sequences=len(sequences.lengths),
        left_out=sequences.left_out,
        constant=constant,
        enumerated=enumerated,
    )


def p_values(
    tokens: Float[np.ndarray, "batches sequences length dim"], permutations: int, seed: int
) -> Float[np.ndarray, " batches"]:
    """One p-value per batch, for many batches of one shape at once.

    All batches use the same pool of permutations, but each has its own random offsets. For
    independent exchangeable batches, each p-value is exact and rejections are uncorrelated (see
    `permutation`).
    """
    batches, count, length, dim = tokens.shape
    lengths = np.full(batches * count, length)
    flat = tokens.reshape(-1, dim).astype(float)
    kind = "numbers" if dim == 1 else "vectors"
    y, s = columns(Sequences(kind, flat, None, lengths, 0), batches)
    return permutation_test(y, s, lengths, permutations, np.random.default_rng(seed), batches).p


# -- effects ---------------------------------------------------------------------------------------


def effects(
    kind: str, y: Float[np.ndarray, "tokens dims"], lengths: np.ndarray, random: np.random.Generator
) -> dict[str, Reading]:
    """Return every effect as a reading; constant and too short sequences are left out."""
    signed, starts = kind == "numbers", np.cumsum(lengths) - lengths
    usable = (lengths > 2) & np.logical_or.reduceat(y.any(1), starts)
    same_length = [
        y[starts[usable & (lengths == length)][:, None] + np.arange(length)]
        for length in np.unique(lengths[usable])
    ]
    if not same_length:
        readings = [Reading(math.nan, math.nan, 0, Status.FEW_TOKENS)] * len(WORDS)
    elif usable.sum() == 1:
        ((sequence,),) = same_length
        orders = np.concatenate([sequence[None], shuffled(SHUFFLES, sequence, random)])
        readings = [
            _single_sequence(values) for values in _log_scale(*_of_one_length(orders, signed))
        ]
    else:
        rows = [_of_one_length(part, signed) for part in same_length]
        neighbours, drift, *halves = (np.concatenate(column) for column in zip(*rows, strict=True))
        readings = [mean_reading(neighbours), mean_reading(drift), _log_ratio(*halves)]
    return dict(zip(WORDS, readings, strict=True))


def _of_one_length(
    y: Float[np.ndarray, "sequences length dims"], signed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (neighbours, drift, variance of the first half, variance of the second half).

    All sequences have the same length; each array has one entry per sequence. `signed` says that
    tokens are numbers, for which drift has a sign.
    """
    length = y.shape[1]
    neighbours = (np.einsum("sld,sld->s", y[:, 1:], y[:, :-1]) + 1) / (length - 1)
    # The fitted line is (Σ w y) w with w = positions/norm; w rises by (L − 1)/norm in total.
    weights = ramp(length)
    rise = float(np.ptp(weights))
    slope = weights @ y
    squared = (slope**2).sum(1) - length / (length - 1)
    drift = rise * slope[:, 0] if signed else rise**2 * squared
    half = length // 2
    first, second = (
        part.var(axis=1, ddof=1).sum(-1) if half > 1 else np.full(len(y), np.nan)
        for part in (y[:, :half], y[:, length - half :])
    )
    return neighbours, drift, first, second


def _log_scale(
    neighbours: np.ndarray, drift: np.ndarray, first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return neighbours, drift, np.log(second) - np.log(first)


def _single_sequence(values: Float[np.ndarray, " orders"]) -> Reading:
    """Return the effect in the observed order, with the spread over shuffled orders as its error.

    `values` holds the effect in the observed order first, then in each shuffled order. With m
    shuffled orders the standard error has m − 1 degrees of freedom, though there is one sequence.
    """
    others = values[1:][np.isfinite(values[1:])]
    if not np.isfinite(values[0]) or len(others) < 2:
        return Reading(math.nan, math.nan, 1, Status.NO_SPREAD)
    return Reading(float(values[0]), float(others.std(ddof=1)), 1, freedom=len(others) - 1)


def _log_ratio(first: np.ndarray, second: np.ndarray) -> Reading:
    """Return log(mean second / mean first), with a delta-method standard error (d log x = dx/x)."""
    defined = np.isfinite(first)
    first, second = first[defined], second[defined]
    if len(first) < 2 or not (first.mean() > 0 and second.mean() > 0):
        return Reading(math.nan, math.nan, len(first), Status.NO_SPREAD)
    spread = mean_reading(second / second.mean() - first / first.mean())
    ratio = math.log(second.mean() / first.mean())
    return Reading(ratio, spread.standard_error, len(first))
