"""Transformations of bounded latents z to the whole real line (y) and back, per coordinate.

    a < z < b   y = log (z − a) − log (b − z)          z > a   y = log (z − a)
    no bounds   y = z                                  z < b   y = −log (b − z)

A mixture of Gaussians has mass everywhere. It is therefore fitted to y, so that no mass lies
outside of the bounds of z: q(z) = q(y) Π |dy/dz|. A coordinate of the latent has bounds if it is
the value of a site of a NumPyro model with bounds; a coordinate that is computed from sites has
none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from attnlens.worlds import nuts
from attnlens.worlds.base import World
from attnlens.worlds.model import ReferenceWorld


class Support(NamedTuple):
    """The bounds of each coordinate of a latent, infinite if there is no bound.

    >>> support = Support(np.array([0.0, -np.inf]), np.array([1.0, np.inf]))
    >>> support.opened(np.array([[0.5, 3.0]])).tolist()
    [[0.0, 3.0]]
    """

    low: np.ndarray
    high: np.ndarray

    def opened(self, latent: np.ndarray) -> np.ndarray:
        """Return y for latents z, one per row; infinite or NaN outside of the bounds."""
        with np.errstate(divide="ignore", invalid="ignore"):
            above, below = np.log(latent - self.low), np.log(self.high - latent)
            return self._chosen(above - below, above, -below, latent)

    def closed(self, opened: np.ndarray) -> np.ndarray:
        """Return z for values of y, one per row, clipped to the bounds."""
        with np.errstate(over="ignore", invalid="ignore"):
            inside = self.low + (self.high - self.low) / (1 + np.exp(-opened))
            above, below = self.low + np.exp(opened), self.high - np.exp(-opened)
            return np.clip(self._chosen(inside, above, below, opened), self.low, self.high)

    def log_volume(self, latent: np.ndarray) -> np.ndarray:
        """Return Σ log |dy/dz|, one number per latent."""
        with np.errstate(divide="ignore", invalid="ignore"):
            above, below = -np.log(latent - self.low), -np.log(self.high - latent)
            both = above + below + np.log(self.high - self.low)
            return self._chosen(both, above, below, np.zeros_like(latent)).sum(-1)

    def contains(self, latent: np.ndarray) -> np.ndarray:
        """Return for each latent whether it is strictly inside of the bounds."""
        return np.asarray(((latent > self.low) & (latent < self.high)).all(-1))

    def _chosen(self, both: Any, above: Any, below: Any, neither: Any) -> np.ndarray:
        """Select per coordinate: `both` if it has both bounds, `above` if only a lower bound,
        `below` if only an upper bound, `neither` if it has no bound."""
        low, high = np.isfinite(self.low), np.isfinite(self.high)
        return np.where(low & high, both, np.where(low, above, np.where(high, below, neither)))


def support_of(world: World, dim: int) -> Support:
    """Return the bounds of a world's latent that its NumPyro program declares.

    A bound that depends on another site differs between two draws from the prior; it is left out.
    """
    if not isinstance(world, ReferenceWorld):
        return Support(np.full(dim, -np.inf), np.full(dim, np.inf))
    first, second = (_drawn_bounds(world, seed) for seed in (0, 1))
    return Support(
        np.where(first.low == second.low, first.low, -np.inf),
        np.where(first.high == second.high, first.high, np.inf),
    )


def _drawn_bounds(world: ReferenceWorld, seed: int) -> Support:
    from numpyro import handlers

    with nuts.relaxed(), handlers.trace() as sites, handlers.seed(rng_seed=seed):
        latent = world.latent_program()
    parts = []
    for leaf in jax.tree.leaves(latent):
        own = [site for site in sites.values() if site["value"] is leaf]
        ends = _ends(own[0]["fn"].support) if own else (-np.inf, np.inf)
        parts.append([np.broadcast_to(np.asarray(e, float), leaf.shape).ravel() for e in ends])
    return Support(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _ends(support: Any) -> tuple[Any, Any]:
    """Return the lower and upper bound of a NumPyro constraint, infinite if it has none."""
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    low, high = (getattr(support, f"{end}_bound", None) for end in ("lower", "upper"))
    return -np.inf if low is None else low, np.inf if high is None else high
