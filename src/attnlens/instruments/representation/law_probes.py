"""Probes of a law: the probability distribution (law) of the latent, predicted from R.

R is a representation of the tokens X. In the family of the posterior (`families`) let η̂(R) = η₀ +
W φ(R), with a feature map φ of `probes`. Then

    E KL(P(z|X) ‖ p_η̂(R)) = E[ A(η̂(R)) − ⟨η̂(R), t⟩ ] + const,   t = E[T(z) | X], or T(z) itself

is convex in W and smallest where ∇A(η̂(R)) = E[T(z) | R]. This is a generalised linear model:
logistic regression for classes and, for a Gaussian, a joint regression of mean and variance. An η̂
outside of the allowed set is moved towards η₀ until it is inside. Every function of R is a valid
probe: a worse one can only raise the expected KL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .families import Family, LinearMap
from .probes import PENALTIES, Rotation, Splits, Table, feature_map

MAX_DENSE = 16  # maximum number of parameters for which the Hessian of A is formed as a matrix
NEGLIGIBLE = 1e-6  # nats: a thousandth of the smallest relevant difference between gaps


class FittedLaw(NamedTuple):
    """η̂(R) on the test rows, the name of the chosen probe, its validation loss, and η₀."""

    eta: Table
    winner: str
    loss: float
    centre: np.ndarray


def fit_law(
    family: Family,
    inputs: Table,
    eta: Table,
    labels: Table,
    hints: Table,
    rows: Splits,
    probes: Sequence[str],
    random: np.random.Generator,
    exact: bool,
) -> FittedLaw:
    """Fit the law of the latent given R; return the probe and penalty with the lowest validation
    loss.

    inputs: the representation R, one row per episode.
    eta: the exact posterior's parameters η; their mean is the start of the search for η₀.
    labels: t of the module's docstring.
    hints: the numbers that trees learn to predict.
    rows: the rows of the training, validation and test split.
    exact: whether t = E[T(z) | X]. Then the loss of η is a lower bound, and the search for a better
        probe ends close to it.
    """

    def loss(estimate: Table, part: np.ndarray) -> float:
        return float((family.log_partition(estimate) - (estimate * labels[part]).sum(-1)).mean())

    floor = loss(eta[rows.validation], rows.validation) + NEGLIGIBLE if exact else -np.inf
    start = eta[rows.train].mean(0)
    no_features = np.ones((len(rows.train), 0))
    constant = _LawObjective(family, no_features, labels[rows.train], np.ones(0), 0.0, start)
    centre = start + constant.fit()[0]
    best = FittedLaw(
        np.broadcast_to(centre, (len(rows.test), len(centre))).copy(),
        "constant",
        loss(np.broadcast_to(centre, (len(rows.validation), len(centre))), rows.validation),
        centre,
    )
    for probe in probes:
        if best.loss <= floor:
            break
        # Trees overfit their training rows, so the law is fitted on other rows.
        half = len(rows.train) // 2 if probe == "trees" else len(rows.train)
        learn, used = rows.train[:half], rows.train[-half:]
        features = feature_map(probe, inputs[learn], hints[learn], random)
        if features is None:
            continue
        train, validation, test = (
            features(inputs[part]) for part in (used, rows.validation, rows.test)
        )
        rotation = Rotation.of(train)
        train, validation, test = rotation(train), rotation(validation), rotation(test)
        slopes = None
        # Penalties go from strong to weak; each solution is the start for the next penalty.
        for penalty in reversed(PENALTIES):
            objective = _LawObjective(family, train, labels[used], rotation.spread, penalty, centre)
            slopes = objective.fit(slopes)
            validation_loss = loss(objective.predict(slopes, validation), rows.validation)
            if validation_loss < best.loss:
                best = FittedLaw(objective.predict(slopes, test), probe, validation_loss, centre)
    return best


class _LawObjective:
    """The objective mean[A(η̂) − ⟨η̂, t⟩] + penalty as a function of W, with η̂ = η₀ + W·(1, φ).

    Features have variance 1 and are divided by √(1 + λ/spread²), so that the Hessian with respect
    to features is near the identity. `precondition` does the same for the parameters of the law.
    """

    def __init__(self, family, features, labels, spread, penalty, centre):
        self.family, self.labels, self.centre = family, labels, centre
        # The penalty on W is weighted by the diagonal of the Fisher information at η₀, so that it
        # measures the distance of η̂ from η₀ in nats, the unit of the loss.
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

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        residual = self.family.expected(self.centre + self.design @ weights) - self.labels
        return self.design.T @ residual / len(residual) + self.penalties * weights

    def hessian(self, weights: np.ndarray) -> LinearMap:
        """Return the Hessian as a linear map of directions."""
        eta = self.centre + self.design @ weights
        inner = self.family.hessian(eta)
        if len(self.centre) <= MAX_DENSE:
            units = (np.broadcast_to(unit, eta.shape) for unit in np.eye(len(self.centre)))
            matrices = np.stack([inner(unit) for unit in units], axis=1)
            inner = _times(matrices)

        def apply(direction: np.ndarray) -> np.ndarray:
            product = inner(self.design @ direction)
            return self.design.T @ product / len(product) + self.penalties * direction

        return apply

    def precondition(self, weights: np.ndarray) -> np.ndarray:
        """Return the inverse Fisher information at the mean of η̂: if η̂ were constant, this would
        be the inverse Hessian."""
        fisher = _fisher(self.family, self.centre + weights[0])
        values, vectors = np.linalg.eigh(fisher)
        return (vectors / np.maximum(values, 1e-10 * values.max())) @ vectors.T

    def fit(self, slopes: np.ndarray | None = None) -> np.ndarray:
        """Return the optimal W for the unscaled features; `slopes` is a starting point."""
        scale = np.concatenate([[1.0], self.shrink])[:, None]
        start = np.zeros((len(scale), len(self.centre))) if slopes is None else slopes / scale
        return minimise(self, start) * scale

    def predict(self, slopes: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Return η̂. If it is not allowed, its distance to η₀ is halved until it is: the set of
        allowed parameters is convex."""
        step = slopes[:1] + features @ slopes[1:]
        outside = ~self.family.allowed(self.centre + step)
        while outside.any():
            step[outside] *= 0.5
            outside = ~self.family.allowed(self.centre + step)
        return self.centre + step


def _times(matrices: np.ndarray) -> LinearMap:
    return lambda direction: np.einsum("ni,nij->nj", direction, matrices)


def _fisher(family: Family, eta: np.ndarray) -> np.ndarray:
    """Return ∇²A(η) as a matrix, from one product per unit direction."""
    size = len(eta)
    return family.hessian(np.tile(eta, (size, 1)))(np.eye(size))


def minimise(objective: _LawObjective, start: np.ndarray, tolerance: float = 1e-9) -> np.ndarray:
    """Minimise a convex function that is infinite outside of its domain, by Newton's method.

    Directions come from conjugate gradients on the Hessian, stopped early while far from the
    minimum, and steps are halved until the value falls (Nocedal and Wright, Numerical Optimization,
    2006, algorithm 7.1). Half the Newton decrement estimates how far the value is above its
    minimum; the search stops when this estimate is below `tolerance` nats. (Quasi-Newton steps make
    no progress near the boundary of the domain, where A diverges.)
    """
    point, value = start, objective.value(start)
    for _ in range(100):
        gradient = objective.gradient(point)
        direction = _newton_direction(objective, point, gradient)
        decrement = -float((direction * gradient).sum())
        if not decrement > 2 * tolerance:
            break
        size, new_value = 1.0, objective.value(point + direction)
        while not new_value <= value - 1e-4 * size * decrement:
            size *= 0.5
            if size < 1e-10:  # the value changes by rounding only: the minimum is reached
                return point
            new_value = objective.value(point + size * direction)
        point, value = point + size * direction, new_value
    return point


def _newton_direction(
    objective: _LawObjective, point: np.ndarray, gradient: np.ndarray
) -> np.ndarray:
    """Return −H⁻¹ g by preconditioned conjugate gradients, to 10 % of g (near the minimum less)."""
    hessian, inverse = objective.hessian(point), objective.precondition(point)
    direction, residual = np.zeros_like(gradient), -gradient
    scaled = residual @ inverse
    search, size = scaled, float((residual * scaled).sum())
    target = size * min(0.1, np.sqrt(size)) ** 2
    for _ in range(200):
        if size <= target:
            break
        product = hessian(search)
        step = size / float((search * product).sum())
        direction = direction + step * search
        residual = residual - step * product
        scaled = residual @ inverse
        new = float((residual * scaled).sum())
        search, size = scaled + new / size * search, new
    return direction
