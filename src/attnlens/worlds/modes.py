"""The modes of a posterior, and the share of draws in each.

Two points are in one mode if the log density, on the straight line between them, is nowhere more
than `VALLEY` nats below its value at the lower of the two, or if a sequence of such lines joins
them. A log-concave density has one mode by this definition, because on a line it is nowhere below
its lower end. A draw belongs to the mode of the nearest of `REFERENCES` reference points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

REFERENCES = 32
ON_LINE = 7  # points between two references where the density is computed
VALLEY = 3.0
SMALLEST = 0.02  # a mode with a smaller share is not counted


class Modes(NamedTuple):
    """Reference points, the mode of each, and the scale by which each coordinate is divided.

    A mode is identified by the index of its first reference point.
    """

    points: Float[Array, "references dim"]
    mode: Int[Array, " references"]
    scale: Float[Array, " dim"]

    def shares(self, draws: Float[Array, "*chains draws dim"]) -> Float[Array, "*chains modes"]:
        """The share of each chain's draws in each mode; the result has `REFERENCES` columns."""
        return jnp.mean(self.indicators(draws), -2)

    def indicators(
        self, draws: Float[Array, "*chains draws dim"]
    ) -> Float[Array, "*chains draws modes"]:
        """One-hot rows: the mode of each draw."""
        scaled, points = draws / self.scale, self.points / self.scale
        # Squared distances without the term |draw|², which is the same for all points.
        squares = jnp.sum(points**2, -1) - 2 * scaled @ points.T
        mode = self.mode[jnp.argmin(squares, -1)]
        return jax.nn.one_hot(mode, self.mode.shape[0], dtype=draws.dtype)


def find(
    log_density: Callable[[Float[Array, " free"]], Float[Array, ""]],
    free: Float[Array, "references free"],
    points: Float[Array, "references dim"],
    scale: Float[Array, " dim"],
) -> Modes:
    """The modes among `points`, whose unconstrained coordinates are `free`."""
    count = free.shape[0]
    first, second = jnp.triu_indices(count, 1)
    share = jnp.linspace(0.0, 1.0, ON_LINE + 2, dtype=free.dtype)[1:-1]

    line = free[first] + share[:, None, None] * (free[second] - free[first])
    both = jnp.concatenate([free, line.reshape(-1, free.shape[1])])
    logs = jax.vmap(log_density)(both)
    at_modes, lowest = logs[:count], jnp.min(logs[count:].reshape(ON_LINE, -1), 0)
    valley = jnp.minimum(at_modes[first], at_modes[second]) - lowest
    joined = jnp.zeros((count, count), bool).at[first, second].set(valley <= VALLEY)
    joined = joined | joined.T | jnp.eye(count, dtype=bool)
    squarings = (count - 1).bit_length()  # they join points by sequences of up to 2, 4, 8 … lines

    def square(_: Array, joined: Array) -> Array:
        return jnp.matmul(joined.astype(jnp.float32), joined.astype(jnp.float32)) > 0

    joined = jax.lax.fori_loop(0, squarings, square, joined)
    # NaN (a density that cannot be computed) joins nothing.
    return Modes(points, jnp.argmax(joined, 1), scale)
