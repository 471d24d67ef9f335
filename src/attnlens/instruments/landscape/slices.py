"""Slices through a loss: its value along lines and over planes through a point.

    f(a, b) = L(w + a·u + b·v)

The directions u, v are one of:

    random      normal, then filter-normalised (Li et al., 2018): each row d_f of a matrix of
                weights is scaled to d_f ‖w_f‖/‖d_f‖, so that the picture does not depend on the
                scale of the weights. Arrays with one axis (biases, norm scales) do not move
                (`biases="ignore"`, the default) or are scaled as a whole (`biases="own"`).
    hessian     unit eigenvectors of the two largest eigenvalues; "hessian-ends": of the largest and
                the smallest
    principal   unit principal directions of a training trajectory, from its differences w_i − w;
                the path of the trajectory is drawn as well

A random line shows a property of that line, not of the loss. With several `draws` the mean over
random lines is returned with its standard error. A plane of another quantity than the loss, such as
|λ_min/λ_max| of the Hessian, shows where the plane of the loss hides a saddle: a point that is a
minimum in two directions may be a maximum in a third.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from attnlens.core import checks, statistics
from attnlens.core.drawing import Surface
from attnlens.core.readings import Curve, Reading

from . import spectrum
from .flat_losses import flat_loss, traced_bytes
from .hessian import DENSE
from .matrices import COLUMNS
from .products import ExternalLoss, Subject

DIRECTIONS = ("random", "hessian", "hessian-ends", "principal")
NORMALISED = ("filter", "array", "none")
BIASES = ("ignore", "own")
QUANTITIES = ("loss", "smallest-eigenvalue", "hessian-ratio")
MOST_POINTS = {1: 1_000_000, 2: 2000}  # maximum number of points per axis, by number of axes
CALL = 64  # points per compiled call
MEMORY = 1 << 30  # limit in bytes for the intermediate arrays of one batch of points


@dataclass(frozen=True)
class LossPlane(Surface):
    """A quantity over a plane of parameters.

    normalise: how the directions were scaled: "filter", "array" or "none".
    norms: the Euclidean norms of the two directions.
    """

    normalise: str = field(kw_only=True)
    norms: tuple[float, ...] = field(kw_only=True)


def surface(
    loss: Callable[..., Any],
    params: Any,
    data: Any = None,
    *,
    dims: int = 2,
    directions: str | Sequence[Any] = "random",
    normalise: str | None = None,
    biases: str = "ignore",
    filter_axis: int = 0,
    trajectory: Sequence[Any] | None = None,
    quantity: str = "loss",
    span: float | None = None,
    points: int = 51,
    draws: int = 8,
    chunk: int | None = None,
    precision: str = "float64",
    seed: int = 0,
) -> LossPlane | Curve:
    """The loss over a plane through `params` (a `LossPlane`), or along a line (a `Curve`).

    loss, params, data, chunk, precision: as for `curvature`; `params` are not changed.
    dims: 2 for a plane, 1 for a line.
    directions: "random", "hessian", "hessian-ends", "principal", or a sequence of `dims` trees with
        the structure of the parameters. Along random lines, the result is the mean over `draws`
        lines with its standard error.
    normalise: how directions are scaled to the parameters: "filter" (each row of a matrix; the
        default for random directions), "array" (each array as a whole) or "none" (the default for
        other directions).
    filter_axis: the axis of the output units: 0 if a layer computes W x, −1 if it computes x W.
    trajectory: for "principal", a sequence of trees of parameters from training.
    quantity: "loss", or a property of the Hessian at each point: "smallest-eigenvalue" or
        "hessian-ratio", |λ_min/λ_max|.
    span: the largest coordinate; by default 1, or 1.2 times the largest of the trajectory.
    points: the number of points per axis.

    >>> bowl = surface(lambda w: w[0] ** 2 + 4 * w[1] ** 2, np.zeros(2),
    ...                directions=[np.array([1.0, 0]), np.array([0, 1.0])], points=5)
    >>> bowl.minimum
    (0.0, 0.0, 0.0)
    """
    if dims not in (1, 2):
        raise checks.BadInput(f"dims must be 1 or 2; got {dims!r}.")
    checks.one_of("quantity", quantity, QUANTITIES)
    checks.one_of("biases", biases, BIASES)
    checks.whole("points", points, at_least=2, at_most=MOST_POINTS[dims])
    checks.whole("draws", draws, at_least=1)
    checks.seed_number("seed", seed)
    if normalise is not None:
        checks.one_of("normalise", normalise, NORMALISED)
    subject = Subject(loss, params, data, chunk=chunk, precision=precision)
    lines = draws if dims == 1 and directions == "random" else dims
    chosen, names, path = _directions(subject, directions, lines, trajectory, seed)
    kind = ("filter" if directions == "random" else "none") if normalise is None else normalise
    chosen = np.array([normalised(subject, d, kind, biases, filter_axis) for d in chosen])
    if span is None:
        span = 1.0 if path is None else 1.2 * float(np.abs(path).max()) or 1.0
    axis = np.linspace(-checks.positive("span", span), span, points)
    measure = losses if quantity == "loss" else _eigenvalues(quantity)
    if dims == 2:
        x, y = (part.ravel() for part in np.meshgrid(axis, axis))
        values = measure(subject, chosen, np.stack([x, y], 1)).reshape(points, points)
        if not np.isfinite(values).any():
            raise checks.BadInput(
                f"the {quantity} must be finite somewhere in the plane; got none of "
                f"{values.size:,} points; check the loss, or give a smaller span."
            )
        return LossPlane(
            quantity,
            names[0],
            names[1],
            _plain(axis),
            _plain(axis),
            tuple(_plain(row) for row in values),
            () if path is None else tuple((float(a), float(b)) for a, b in path),
            normalise=kind,
            norms=_plain(np.linalg.norm(chosen, axis=1)),
        )
    coordinates = np.concatenate([np.outer(axis, row) for row in np.eye(len(chosen))])
    values = measure(subject, chosen, coordinates).reshape(len(chosen), points)
    readings = tuple(_reading(column) for column in values.T)
    return Curve(names[0], quantity, _plain(axis), readings)


def normalised(
    subject: Subject, direction: np.ndarray, kind: str, biases: str = "ignore", filter_axis: int = 0
) -> np.ndarray:
    """Return `direction` with each row ("filter") or array ("array") scaled to the norm of the same
    row or array of the parameters."""
    if kind == "none":
        return direction
    scaled = np.zeros_like(direction)
    for (_, place), shape in zip(subject.places(), subject.shapes, strict=True):
        weights, move = subject.vector[place].reshape(shape), direction[place].reshape(shape)
        if len(shape) < 2 and biases == "ignore":
            continue
        axes: tuple[int, ...] | None = None
        if len(shape) >= 2 and kind == "filter":
            axes = tuple(i for i in range(len(shape)) if i != filter_axis % len(shape))
        length = np.sqrt((move**2).sum(axes, keepdims=True))
        target = np.sqrt((weights**2).sum(axes, keepdims=True))
        scaled[place] = (move * target / np.where(length > 0, length, 1)).ravel()
    return scaled


def losses(
    subject: Subject, directions: np.ndarray, coordinates: np.ndarray, together: int | None = None
) -> np.ndarray:
    """Return L(w + c · directions) for each row c of `coordinates`.

    A compiled call computes `CALL` points, `together` of them as one batch. By default `together`
    is 1 on a CPU, where batches of points, each with its own weights, were never faster than single
    points and up to three times as slow; on other devices, as many as fit into `MEMORY`.
    """
    if isinstance(subject.loss, ExternalLoss):
        return _external_losses(subject, directions, coordinates)
    with subject.numbers():
        base, moves = subject.point(None), jnp.asarray(directions, subject.precision)
        if together is None:
            together = 1 if jax.default_backend() == "cpu" else _batch_size(subject, base)
        values = np.empty(len(coordinates))
        for start in range(0, len(coordinates), CALL):
            part = coordinates[start : start + CALL]
            full = np.zeros((CALL, coordinates.shape[1]), subject.precision)
            full[: len(part)] = part
            total = np.zeros(CALL)
            for share, data in subject.chunks():
                chunk = _losses(subject.loss, base, moves, jnp.asarray(full), data, together)
                total += share * np.asarray(chunk)
            values[start : start + len(part)] = total[: len(part)]
    return values


def _external_losses(
    subject: Subject, directions: np.ndarray, coordinates: np.ndarray
) -> np.ndarray:
    """Return `losses` of a loss that does not consist of JAX operations, one point at a time."""
    values = np.zeros(len(coordinates))
    with subject.numbers():
        for i, coordinate in enumerate(coordinates):
            point = subject.point(subject.vector + coordinate @ directions)
            values[i] = sum(share * subject.loss(point, data) for share, data in subject.chunks())
    return values


def _batch_size(subject: Subject, base: Any) -> int:
    """Return the number of points whose intermediate arrays fit into `MEMORY` together."""
    if subject.data is None:
        size = traced_bytes(subject.loss, base, None)
    else:
        size = subject.rows_at_once() * subject.row_bytes()
    return int(np.clip(MEMORY // max(size, 1), 1, CALL))


@eqx.filter_jit
def _losses(
    loss: Any,
    params: Any,
    directions: Float[Array, "directions size"],
    coordinates: Float[Array, "points directions"],
    data: Any,
    together: int,
) -> Float[Array, " points"]:
    vector, value = flat_loss(loss, params, data)
    batch = None if together == 1 else together
    return jax.lax.map(lambda c: value(vector + c @ directions), coordinates, batch_size=batch)


def _eigenvalues(quantity: str) -> Callable[..., np.ndarray]:
    def measure(subject: Subject, directions: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        numbers = []
        for coordinate in coordinates:
            at = subject.vector + coordinate @ directions
            if subject.size <= DENSE:
                width = min(COLUMNS, subject.size)
                formed = spectrum.matrix(
                    lambda rows, at=at, width=width: subject.times(rows, at=at, width=width),
                    subject.size,
                )
                values = np.linalg.eigvalsh(formed)
                low, high = values[0], values[-1]
            else:
                ends = spectrum.extremes(
                    lambda rows, at=at: subject.times(rows, at=at), subject.size, rtol=1e-3
                )
                low, high = ends.bottom[0].value, ends.top[0].value
            ratio = abs(low / high) if high else np.nan
            numbers.append(ratio if quantity == "hessian-ratio" else low)
        return np.array(numbers)

    return measure


def _directions(subject, choice, count, trajectory, seed):
    """Return (directions, their names, coordinates of the trajectory or None)."""
    if not isinstance(choice, str):
        if len(choice) != count:
            raise checks.BadInput(f"directions must be {count} trees; got {len(choice)}.")
        names = [f"direction {i + 1}" for i in range(count)]
        return np.array([subject.flatten(tree) for tree in choice]), names, None
    checks.one_of("directions", choice, DIRECTIONS)
    if (choice == "principal") != (trajectory is not None):
        raise checks.BadInput(
            'directions="principal" and trajectory=… belong together: give both or neither.'
        )
    if choice == "random":
        drawn = np.random.default_rng(seed).normal(size=(count, subject.size))
        return drawn, [f"random direction {i + 1}" for i in range(count)], None
    if choice == "principal":
        return _principal(subject, trajectory, count)
    if subject.size < 2:
        raise checks.BadInput("Hessian directions need at least two parameters; got one.")
    ends = spectrum.extremes(subject.times, subject.size, 2, seed=seed)
    pairs = ends.top if choice == "hessian" else (ends.top[0], ends.bottom[0])
    # The sign of an eigenvector is arbitrary, so its largest entry is made positive.
    vectors = [p.vector * np.sign(p.vector[np.abs(p.vector).argmax()]) for p in pairs[:count]]
    return np.array(vectors), [f"eigenvector of {p.value:.3g}" for p in pairs[:count]], None


def _principal(subject, trajectory, count):
    steps = np.array([subject.flatten(tree) for tree in trajectory]) - subject.vector
    if len(steps) < count:
        raise checks.BadInput(f"a trajectory must have at least {count} points; got {len(steps)}.")
    _, scales, rows = np.linalg.svd(steps, full_matrices=False)
    total = float((scales**2).sum()) or 1.0
    rows = rows[:count] * np.sign(rows[np.arange(count), np.abs(rows[:count]).argmax(1)])[:, None]
    names = [
        f"principal direction {i + 1} ({100 * scales[i] ** 2 / total:.0f} %)" for i in range(count)
    ]
    return rows, names, steps @ rows.T


def _reading(values: np.ndarray) -> Reading:
    if len(values) == 1:  # a single line has no sampling error
        return Reading(float(values[0]), 0.0, 1)
    return statistics.mean_reading(values)


def _plain(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
