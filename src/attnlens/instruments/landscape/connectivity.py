"""The loss on paths between two minima: a straight line, and a curve trained for low loss.

    straight   w(t) = (1 − t) w₀ + t w₁
    curved     w(t) = (1 − t)² w₀ + 2 t (1 − t) c + t² w₁,    c = argmin E_{t ~ U(0, 1)} L(w(t))

(a quadratic Bézier curve; Garipov et al., 2018). The barrier of a path is its highest loss minus
the loss at its higher end. A low barrier shows that a path of low loss connects the two minima; a
high barrier shows only that training did not find such a path in this family of curves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from attnlens.core import arrays, checks
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.frames import Tabular
from attnlens.core.readings import Curve, Reading

from .flat_losses import flat_loss
from .products import Subject
from .slices import losses


@dataclass(frozen=True)
class Path(Tabular):
    """The loss along the line and the curve; `middle` is the curve's control point c (a tree).

    >>> heights = tuple(Reading(value, 0.0, 1) for value in (0.0, 3.0, 1.0))
    >>> hill = Curve("position", "loss", (0, 1, 2), heights)
    >>> Path(hill, hill, middle=None).straight_barrier
    2.0
    """

    straight: Curve
    curved: Curve
    middle: Any

    @property
    def straight_barrier(self) -> float:
        return barrier(self.straight)

    @property
    def curved_barrier(self) -> float:
        return barrier(self.curved)

    def __str__(self) -> str:
        return (
            f"barrier {self.straight_barrier:.4g} along the straight line, "
            f"{self.curved_barrier:.4g} along the curve"
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per position on each path."""
        paths = {"straight line": self.straight, "trained curve": self.curved}
        return [{"path": name, **row} for name, curve in paths.items() for row in curve.rows()]

    def figure(self) -> Figure:
        def series(name: str, curve: Curve) -> Series:
            rows = zip(curve.at, curve.readings, strict=True)
            return Series(name, tuple(Point(x, r.value) for x, r in rows), curve=True)

        paths = (series("straight line", self.straight), series("trained curve", self.curved))
        return Figure("Loss between two minima", "position", "loss", paths, False, False)

    def plot(self) -> Any:
        """Both paths as a matplotlib figure."""
        return self.figure().plot()


def barrier(curve: Curve) -> float:
    """Return the highest loss along a path minus the loss at its higher end."""
    values = [reading.value for reading in curve.readings]
    return max(values) - max(values[0], values[-1])


def interpolate(
    loss: Callable[..., Any],
    start: Any,
    end: Any,
    data: Any = None,
    *,
    points: int = 51,
    beyond: float = 0.0,
    chunk: int | None = None,
    precision: str = "float64",
) -> Curve:
    """The loss on the straight line from `start` (t = 0) to `end` (t = 1).

    t runs from −`beyond` to 1 + `beyond`.

    >>> curve = interpolate(lambda w: (w[0] ** 2 - 1) ** 2, np.array([-1.0]), np.array([1.0]))
    >>> barrier(curve)
    1.0
    """
    checks.whole("points", points, at_least=2)
    subject = Subject(loss, start, data, chunk=chunk, precision=precision)
    move = _finite_end(subject, end) - subject.vector
    at = np.linspace(-beyond, 1 + beyond, points)
    return _curve(at, losses(subject, move[None], at[:, None]))


def connect(
    loss: Callable[..., Any],
    start: Any,
    end: Any,
    data: Any = None,
    *,
    steps: int = 500,
    learning_rate: float = 0.02,
    nodes: int = 8,
    points: int = 51,
    batch: int = 1024,
    precision: str = "float64",
    seed: int = 0,
) -> Path:
    """A quadratic Bézier curve of low loss from `start` to `end`, trained with Adam.

    Each training step evaluates `nodes` random positions, one in each of `nodes` equal parts of the
    curve, on at most `batch` samples. The learning rate follows a cosine schedule to zero.

    >>> ends = np.array([-1.0, 0.0]), np.array([1.0, 0.0])
    >>> path = connect(lambda w: (w[0] ** 2 + w[1] ** 2 - 1) ** 2, *ends, steps=50, points=5)
    >>> path.straight_barrier, path.curved_barrier < 1
    (1.0, True)
    """
    checks.whole("steps", steps, at_least=1)
    checks.whole("nodes", nodes, at_least=1)
    checks.whole("points", points, at_least=3)
    checks.positive("learning_rate", learning_rate)
    checks.whole("batch", batch, at_least=1)
    subject = Subject(loss, start, data, precision=precision)
    first, last = subject.vector, _finite_end(subject, end)
    random = np.random.default_rng(checks.seed_number("seed", seed))
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    with subject.numbers():
        ends = jnp.asarray(np.stack([first, last]), subject.precision)
        middle = ends.mean(0)
        state, base = optimiser.init(middle), subject.point(None)
        for _ in range(steps):
            at = (np.arange(nodes) + random.random(nodes)) / nodes
            data = _rows(subject, batch, random)
            middle, state = _step(
                loss, optimiser, base, ends, middle, state, at.astype(subject.precision), data
            )
        control = np.asarray(middle, float)
    at = np.linspace(0, 1, points)
    # Relative to w₀ the curve is 2t(1 − t)·(c − w₀) + t²·(w₁ − w₀).
    moves = np.stack([control - first, last - first])
    curved = losses(subject, moves, np.stack([2 * at * (1 - at), at**2], 1))
    straight = losses(subject, moves, np.stack([np.zeros_like(at), at], 1))
    return Path(_curve(at, straight), _curve(at, curved), subject.restore(control))


@eqx.filter_jit
def _step(loss, optimiser, base, ends, middle, state, at, data):
    _, value = flat_loss(loss, base, data)

    def mean(c: Array) -> Array:
        def there(t: Array) -> Array:
            return value((1 - t) ** 2 * ends[0] + 2 * t * (1 - t) * c + t**2 * ends[1])

        return jnp.mean(jax.vmap(there)(jnp.asarray(at)))

    slope = jax.grad(mean)(middle)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types
        updates, state = optimiser.update(slope, state)
        return optax.apply_updates(middle, updates), state


def _rows(subject: Subject, batch: int, random: np.random.Generator) -> Any:
    """Return a random batch of the samples, or all of them if they are at most `batch`."""
    if subject.data is None:
        return None
    chosen = np.sort(random.choice(subject.rows, min(batch, subject.rows), replace=False))
    return jax.tree.map(lambda leaf: subject.cast(leaf[chosen]), subject.data)


def _finite_end(subject: Subject, end: Any) -> np.ndarray:
    """Return `end` as a vector; raises `BadInput` if one of the two ends is not finite."""
    arrays.finite_numbers("start", subject.vector)
    return arrays.finite_numbers("end", subject.flatten(end))


def _curve(at: np.ndarray, values: np.ndarray) -> Curve:
    readings = tuple(Reading(float(v), 0.0, 1) for v in values)
    return Curve("position", "loss", tuple(float(t) for t in at), readings)
