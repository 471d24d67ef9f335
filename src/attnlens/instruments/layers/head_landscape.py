"""The loss surface of a linear head (a classifier or regression) on a layer, in closed form.

On standardised features x (with a 1 for the bias; leading principal coordinates) and parameters W,

    classes   L(W) = mean −log p_y(x) + ρ‖W‖²/2,   p = softmax(W x)
              ∇²L  = mean (diag(p) − p pᵀ) ⊗ x xᵀ + ρ I
    numbers   L(w) = mean (wᵀx − y)²/2 + ρ‖w‖²/2,  ∇²L = mean x xᵀ + ρ I

The Hessian ∇²L is that at the optimum. Both losses are convex, so its largest eigenvalue and its
condition number determine the speed of gradient descent: it diverges with a learning rate above
2/λ_max, and its number of steps grows with λ_max/λ_min (Boyd and Vandenberghe, Convex Optimization,
2004, section 9.3).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from .layer_measures import leading_coordinates

COORDINATES = 16  # principal coordinates used: at most a third of a part's inputs (48 or more)
PARTS = 4  # separate parts of the inputs, each with its own head
RIDGE = 0.01  # ρ; the Hessian is singular without it, because p sums to one
NEWTON = 50  # maximum number of Newton steps; with ρ = 0.01 about ten are needed
SMALLEST = 1e-9  # Newton's method stops at steps below this; weights are of order one


def probe_hessians(
    features: Float[np.ndarray, "inputs width"], labels: np.ndarray, *, seed: int = 0
) -> Float[np.ndarray, "parts 2"] | None:
    """Return (λ_max, log10 λ_max/λ_min) per part of the inputs; None if a part lacks a class."""
    classes = labels.dtype.kind in "iub"
    rows = leading_coordinates(features, COORDINATES)
    spread = rows.std(0)
    rows = rows[:, spread > 1e-6 * spread.max(initial=0)]
    if not rows.size:
        return None
    rows = np.column_stack([rows / rows.std(0), np.ones(len(rows))])
    names = np.unique(labels) if classes else np.empty(0)
    probes = []
    for part in np.array_split(np.random.default_rng(seed).permutation(len(labels)), PARTS):
        x, y = rows[part], labels[part]
        if classes and len(np.unique(y)) < len(names):
            return None
        hessian = class_hessian(x, np.searchsorted(names, y)) if classes else x.T @ x / len(x)
        spectrum = np.linalg.eigvalsh(hessian + RIDGE * np.eye(len(hessian)))
        probes.append((spectrum[-1], np.log10(spectrum[-1] / spectrum[0])))
    return np.array(probes)


def class_hessian(
    x: Float[np.ndarray, "inputs width"], y: np.ndarray
) -> Float[np.ndarray, "parameters parameters"]:
    """Return ∇²L without ρ I at the optimum, which is found by Newton's method from zero.

    Steps are halved until the loss does not rise, so that the method converges for every convex
    loss.
    """
    classes = int(y.max()) + 1
    targets, weights = np.eye(classes)[y], np.zeros((classes, x.shape[1]))
    for _ in range(NEWTON):
        p = probabilities(x @ weights.T)
        gradient = (p - targets).T @ x / len(x) + RIDGE * weights
        hessian = _hessian(x, p)
        step = np.linalg.solve(hessian + RIDGE * np.eye(len(hessian)), gradient.ravel())
        step, before = step.reshape(weights.shape), _loss(weights, x, y)
        while _loss(weights - step, x, y) > before and np.abs(step).max() > SMALLEST:
            step = step / 2
        weights = weights - step
        if np.abs(step).max() <= SMALLEST:
            break
    return _hessian(x, probabilities(x @ weights.T))


def _loss(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    picked = probabilities(x @ weights.T)[np.arange(len(y)), y]
    with np.errstate(divide="ignore"):  # the loss is infinite if a step is too long
        return float(-np.log(picked).mean() + RIDGE * (weights**2).sum() / 2)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of each row."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _hessian(x: np.ndarray, p: np.ndarray) -> np.ndarray:
    blocks = p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :])
    size = p.shape[1] * x.shape[1]
    return np.einsum("nkl,ni,nj->kilj", blocks, x, x, optimize=True).reshape(size, size) / len(x)
