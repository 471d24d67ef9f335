"""Probes: what can be read off a representation R, by several kinds of regression.

    ridge      linear in R
    quadratic  linear in R and in the products of its coordinates (for up to 40 coordinates)
    kernel     kernel ridge regression with a Gaussian kernel, on Nyström features
    trees      gradient-boosted trees

Each is a feature map φ(R) and a penalised linear fit on it, of one of two things: numbers (least
squares), or a law of the latent (below). Penalties and probes are chosen on a validation split
and judged by the caller on another one.

A law from R. In the family of the posterior (`families`) let η̂(R) = η₀ + W φ(R). Then

    E KL(P(z|X) ‖ p_η̂(R)) = E[ A(η̂(R)) − ⟨η̂(R), t⟩ ] + const,   t = E[T(z) | X], or T(z) itself

is convex in W and smallest where ∇A(η̂(R)) = E[T(z) | R]: a generalised linear model, logistic
regression for classes and, for a Gaussian, a regression of mean and variance together. Where an
η̂ falls outside of the allowed set it is pulled towards η₀ until it is inside. Any function of R
is a fair probe: it can only raise the expected KL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .families import Family

PROBES = ("ridge", "quadratic", "kernel", "trees")
PENALTIES = (1e-8, 1e-6, 1e-4, 1e-2)  # of features with variance 1: from none to strong
MOST_PRODUCTS = 40  # coordinates whose products are used: 860 features, each a column
WRITTEN_OUT = 16  # parameters of a law up to which its Hessian is kept as a matrix
CENTRES = 200  # of the Nyström features
NOTHING_TO_GAIN = 1e-6  # nats, a thousandth of what any use of a gap could tell apart
TREES = 100  # rounds of boosting, scikit-learn's default

Table = Float[np.ndarray, "_rows _columns"]
FeatureMap = Callable[[Table], Table]


class Splits(NamedTuple):
    """Row numbers to fit on, to choose by, and to judge on."""

    fit: np.ndarray
    choose: np.ndarray
    judge: np.ndarray


def split(rows: int, draws: np.random.Generator) -> Splits:
    """60 % to fit, 15 % to choose among a dozen fits, 25 % to judge; in random order."""
    order = draws.permutation(rows)
    return Splits(*np.split(order, [int(0.6 * rows), int(0.75 * rows)]))


class Scaling(NamedTuple):
    """Standardises columns; those that do not vary, to rounding, are left out."""

    mean: np.ndarray
    std: np.ndarray
    varies: np.ndarray

    @staticmethod
    def of(table: Table) -> Scaling:
        mean, std = table.mean(0), table.std(0)
        # The mean of n equal numbers is off by rounding, and so is their spread.
        size = np.abs(table).max(0, initial=0)
        return Scaling(mean, std, std > 1e-9 * np.maximum(size, np.finfo(float).tiny))

    def __call__(self, table: Table) -> Table:
        return ((table - self.mean) / np.where(self.varies, self.std, 1))[:, self.varies]


def feature_map(
    probe: str, inputs: Table, targets: Table, draws: np.random.Generator
) -> FeatureMap | None:
    """φ of a probe, learned from training rows; None where the probe does not apply."""
    scale = Scaling.of(inputs)
    if not scale.varies.any():
        return None
    if probe == "quadratic":
        return _quadratic(scale)
    if probe == "kernel":
        return _kernel(scale, inputs, draws)
    return _trees(inputs, targets, draws) if probe == "trees" else scale


def _quadratic(scale: Scaling) -> FeatureMap | None:
    count = int(scale.varies.sum())
    if count > MOST_PRODUCTS:
        return None
    left, right = np.triu_indices(count)

    def apply(inputs: Table) -> Table:
        standard = scale(inputs)
        return np.concatenate([standard, standard[:, left] * standard[:, right]], axis=1)

    return apply


def _kernel(scale: Scaling, inputs: Table, draws: np.random.Generator) -> FeatureMap:
    """Nyström features of exp(−‖x − y‖²/2d), beside the linear ones: far from the data a
    Gaussian kernel is flat, and what is linear should go on."""
    from sklearn.kernel_approximation import Nystroem

    standard = scale(inputs)
    nystroem = Nystroem(
        gamma=0.5 / standard.shape[1],
        n_components=min(CENTRES, len(standard)),
        random_state=int(draws.integers(2**31)),
    ).fit(standard)

    def apply(inputs: Table) -> Table:
        standard = scale(inputs)
        return np.concatenate([standard, np.asarray(nystroem.transform(standard))], axis=1)

    return apply


def _trees(inputs: Table, targets: Table, draws: np.random.Generator) -> FeatureMap:
    """Each target's boosted prediction is a feature."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    scale = Scaling.of(targets)
    columns = scale(targets).T
    seeds = draws.integers(2**31, size=len(columns))
    models = [
        HistGradientBoostingRegressor(max_iter=TREES, random_state=int(seed)).fit(inputs, column)
        for seed, column in zip(seeds, columns, strict=True)
    ]

    def apply(inputs: Table) -> Table:
        return np.column_stack(
            [np.zeros(len(inputs)), *(model.predict(inputs) for model in models)]
        )

    return apply


class Rotation(NamedTuple):
    """Centred features in their principal axes, with variance 1 each and `spread` before that.

    Ridge regression on φ with penalty λ is, in these axes, a penalty λ/spread² on each.
    """

    mean: np.ndarray
    axes: np.ndarray
    spread: np.ndarray

    @staticmethod
    def of(features: Table) -> Rotation:
        mean = features.mean(0)
        values, vectors = np.linalg.eigh((features - mean).T @ (features - mean) / len(features))
        keep = values > 1e-12 * max(values.max(initial=0), np.finfo(float).tiny)
        spread = np.sqrt(values[keep])
        return Rotation(mean, vectors[:, keep] / spread, spread)

    def __call__(self, features: Table) -> Table:
        return (features - self.mean) @ self.axes


# -- numbers: least squares ------------------------------------------------------------------


class Read(NamedTuple):
    """Predictions of targets on the rows to judge, and the probe that won for each column."""

    predicted: Table
    winners: tuple[str, ...]


def read_numbers(
    inputs: Table, targets: Table, rows: Splits, probes: Sequence[str], draws: np.random.Generator
) -> Read:
    """Least-squares predictions; probe and penalty are chosen column by column."""
    constant = targets[rows.fit].mean(0)
    best = ((targets[rows.choose] - constant) ** 2).mean(0)
    predicted = np.broadcast_to(constant, (len(rows.judge), targets.shape[1])).copy()
    winners = ["constant"] * targets.shape[1]
    for probe in probes:
        features = feature_map(probe, inputs[rows.fit], targets[rows.fit], draws)
        if features is None:
            continue
        for name, choose, judge in _least_squares(probe, features, inputs, targets, rows):
            error = ((targets[rows.choose] - choose) ** 2).mean(0)
            better = error < best
            best = np.where(better, error, best)
            predicted[:, better] = judge[:, better]
            winners = [name if won else old for won, old in zip(better, winners, strict=True)]
    return Read(predicted, tuple(winners))


def _least_squares(probe: str, features: FeatureMap, inputs: Table, targets: Table, rows: Splits):
    """(name, predictions to choose by, predictions to judge) for each penalty."""
    mapped = [features(inputs[part]) for part in rows]
    mean, scale = targets[rows.fit].mean(0), Scaling.of(targets[rows.fit])
    if probe == "trees":  # these features are the predictions, standardised
        spread = np.zeros(targets.shape[1])
        spread[scale.varies] = scale.std[scale.varies]
        full = [np.zeros((len(part), targets.shape[1])) for part in rows]
        for whole, part in zip(full, mapped, strict=True):
            whole[:, scale.varies] = part[:, 1:]
        yield probe, mean + full[1] * spread, mean + full[2] * spread
        return
    rotation = Rotation.of(mapped[0])
    fit, choose, judge = (rotation(part) for part in mapped)
    slopes = fit.T @ (targets[rows.fit] - mean) / len(fit)
    for penalty in PENALTIES:
        shrunk = slopes / (1 + penalty / rotation.spread**2)[:, None]
        yield probe, mean + choose @ shrunk, mean + judge @ shrunk


# -- laws ------------------------------------------------------------------------------------


class ReadLaw(NamedTuple):
    """Natural parameters η̂(R) on the rows to judge, the probe that won, and η₀."""

    eta: Table
    winner: str
    loss: float
    centre: np.ndarray


def read_law(
    family: Family,
    inputs: Table,
    eta: Table,
    labels: Table,
    hints: Table,
    rows: Splits,
    probes: Sequence[str],
    draws: np.random.Generator,
    exact: bool,
) -> ReadLaw:
    """The law of the latent given R: probe and penalty with the lowest validation loss.

    `labels` are t above; `eta`, the exact posterior's parameters, is only where the search for η₀
    starts; `hints` are the numbers that trees learn to predict. With `exact` labels the loss of
    η itself is a floor, and the search ends where nothing is left to gain above it.
    """

    def loss(guess: Table, part: np.ndarray) -> float:
        return float((family.log_partition(guess) - (guess * labels[part]).sum(-1)).mean())

    floor = loss(eta[rows.choose], rows.choose) + NOTHING_TO_GAIN if exact else -np.inf
    start = eta[rows.fit].mean(0)
    nothing = np.ones((len(rows.fit), 0))
    alone = _Law(family, nothing, labels[rows.fit], np.ones(0), 0.0, start)
    centre = start + alone.fitted()[0]
    best = ReadLaw(
        np.broadcast_to(centre, (len(rows.judge), len(centre))).copy(),
        "constant",
        loss(np.broadcast_to(centre, (len(rows.choose), len(centre))), rows.choose),
        centre,
    )
    for probe in probes:
        if best.loss <= floor:
            break
        # Trees predict the rows that they were grown on too well: the law is fitted on others.
        half = len(rows.fit) // 2 if probe == "trees" else len(rows.fit)
        learn, used = rows.fit[:half], rows.fit[-half:]
        features = feature_map(probe, inputs[learn], hints[learn], draws)
        if features is None:
            continue
        fit, choose, judge = (features(inputs[part]) for part in (used, rows.choose, rows.judge))
        rotation = Rotation.of(fit)
        fit, choose, judge = rotation(fit), rotation(choose), rotation(judge)
        slopes = None
        for penalty in reversed(PENALTIES):  # from the strongest, each a start for the next
            law = _Law(family, fit, labels[used], rotation.spread, penalty, centre)
            slopes = law.fitted(slopes)
            held = loss(law.predict(slopes, choose), rows.choose)
            if held < best.loss:
                best = ReadLaw(law.predict(slopes, judge), probe, held, centre)
    return best


class _Law:
    """min over W of mean[A(η̂) − ⟨η̂, t⟩] + penalty, with η̂ = η₀ + W·(1, φ).

    Features have variance 1 and are divided by √(1 + λ/spread²), so that their part of the Hessian
    is near the identity; that of the parameters is left to the search (`minimise`).
    """

    def __init__(self, family, features, labels, spread, penalty, centre):
        self.family, self.labels, self.centre = family, labels, centre
        # In nats: a penalty on W is one on the law's distance from η₀, in units of the Fisher
        # information there.
        fisher = _fisher(family, centre)
        ratio = penalty / spread**2
        self.shrink = 1 / np.sqrt(1 + ratio)
        self.design = np.column_stack([np.ones(len(features)), features * self.shrink])
        weights = np.concatenate([[0.0], ratio / (1 + ratio)])[:, None]
        self.penalties = weights * np.diag(fisher)

    def value(self, weights: np.ndarray) -> float:
        eta = self.centre + self.design @ weights
        fit = self.family.log_partition(eta) - (eta * self.labels).sum(-1)
        return float(fit.mean() + 0.5 * (self.penalties * weights**2).sum())

    def slope(self, weights: np.ndarray) -> np.ndarray:
        residual = self.family.expected(self.centre + self.design @ weights) - self.labels
        return self.design.T @ residual / len(residual) + self.penalties * weights

    def curve(self, weights: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """The Hessian, as a map of directions."""
        eta = self.centre + self.design @ weights
        along = self.family.curve(eta)
        if len(self.centre) <= WRITTEN_OUT:
            units = (np.broadcast_to(unit, eta.shape) for unit in np.eye(len(self.centre)))
            matrices = np.stack([along(unit) for unit in units], axis=1)
            along = _times(matrices)

        def apply(direction: np.ndarray) -> np.ndarray:
            turned = along(self.design @ direction)
            return self.design.T @ turned / len(turned) + self.penalties * direction

        return apply

    def precondition(self, weights: np.ndarray) -> np.ndarray:
        """The inverse Fisher information at the mean of η̂; the Hessian if η̂ did not vary."""
        fisher = _fisher(self.family, self.centre + weights[0])
        values, vectors = np.linalg.eigh(fisher)
        return (vectors / np.maximum(values, 1e-10 * values.max())) @ vectors.T

    def fitted(self, slopes: np.ndarray | None = None) -> np.ndarray:
        """W, in the features' own units; `slopes` is one to start from."""
        scale = np.concatenate([[1.0], self.shrink])[:, None]
        start = np.zeros((len(scale), len(self.centre))) if slopes is None else slopes / scale
        return minimise(self, start) * scale

    def predict(self, slopes: np.ndarray, features: np.ndarray) -> np.ndarray:
        """η̂, pulled towards η₀ by halves where it is not allowed; the allowed set is convex."""
        step = slopes[:1] + features @ slopes[1:]
        outside = ~self.family.allowed(self.centre + step)
        while outside.any():
            step[outside] *= 0.5
            outside = ~self.family.allowed(self.centre + step)
        return self.centre + step


def _times(matrices: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda direction: np.einsum("ni,nij->nj", direction, matrices)


def _fisher(family: Family, eta: np.ndarray) -> np.ndarray:
    """∇²A(η), one unit direction a row."""
    size = len(eta)
    return family.curve(np.tile(eta, (size, 1)))(np.eye(size))


def minimise(law: _Law, start: np.ndarray, tolerance: float = 1e-9) -> np.ndarray:
    """Newton's method for a convex function that is infinite outside of its domain.

    Directions come from conjugate gradients on the Hessian, stopped early while far away, and
    steps are halved until the value falls (Nocedal and Wright, Numerical Optimization, 2006,
    algorithm 7.1). Half the Newton decrement estimates how far the value is above its minimum; it
    stops below `tolerance` nats. (Quasi-Newton steps stall where A has its walls.)
    """
    point, value = start, law.value(start)
    for _ in range(100):
        slope = law.slope(point)
        direction = _newton_direction(law, point, slope)
        decrement = -float((direction * slope).sum())
        if not decrement > 2 * tolerance:
            break
        size, new_value = 1.0, law.value(point + direction)
        while not new_value <= value - 1e-4 * size * decrement:
            size *= 0.5
            if size < 1e-10:  # rounding: the minimum is as near as it gets
                return point
            new_value = law.value(point + size * direction)
        point, value = point + size * direction, new_value
    return point


def _newton_direction(law: _Law, point: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """−H⁻¹ g by preconditioned conjugate gradients, to 10 % of g or, near the minimum, better."""
    hessian, inverse = law.curve(point), law.precondition(point)
    direction, residual = np.zeros_like(slope), -slope
    scaled = residual @ inverse
    search, size = scaled, float((residual * scaled).sum())
    target = size * min(0.1, np.sqrt(size)) ** 2
    for _ in range(200):
        if size <= target:
            break
        turned = hessian(search)
        step = size / float((search * turned).sum())
        direction = direction + step * search
        residual = residual - step * turned
        scaled = residual @ inverse
        new = float((residual * scaled).sum())
        search, size = scaled + new / size * search, new
    return direction
