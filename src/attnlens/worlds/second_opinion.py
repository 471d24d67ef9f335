"""A second opinion on draws of Markov chains: particles tempered from the prior (`tempering`).

Chains that all stay in one mode, or in the neck of a funnel, agree with each other. Particles start
everywhere that the prior allows, so they disagree with such chains. Let s be a coordinate of the
latent, standardised by the median and the central 68 % of all draws and clipped at five. The draws
of the chains and the particles are compared in

    mean     E s          spread    E s²          modes    the share of each mode (`modes`)

Each difference is divided by its Monte Carlo standard error, which includes the errors of both
sides. The chains and the particles disagree if, for one of these quantities, this ratio is above
`DEVIATION` and the difference is above `GAP`. With fewer effective particles than `PARTICLES_LIMIT`
there is no second opinion, because their means are too inaccurate.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from . import tempering
from .diagnostics import effective_sample_size
from .modes import SMALLEST, Modes

PARTICLES_LIMIT = 100.0  # the mean of this many has a standard error of a tenth of the spread
# In standard errors. By chance a normal variable deviates more with a probability of 6e-7 in one
# comparison, and of 1e-3 in 64 episodes of 20 comparisons each.
DEVIATION = 5.0
# In standard deviations, or as the share of a mode. If two normal laws differ by this much, the
# best classifier assigns a sample to the right one in 52 % of cases.
GAP = 0.1
CLIP = 5.0
WIDTH = 0.15865525  # the probability that a normal variable is below mean − standard deviation
APART = 0.25  # if the chains' shares of a mode differ by more, the chains stay in different modes


class Opinion(NamedTuple):
    """Comparison of the draws of Markov chains with particles tempered from the prior.

    gap: the largest significant difference in mean, in spread and in the weights of modes; 0 where
        no difference is significant.
    effective: the smallest effective number of particles over the coordinates of the latent.
    shares, chain_shares: the weight of each mode among the particles, and among the draws of each
        chain; columns beyond the number of modes are zero.
    """

    gap: Float[Array, " kinds"]
    effective: Float[Array, ""]
    shares: Float[Array, " modes"]
    chain_shares: Float[Array, "chains modes"]

    @property
    def available(self) -> Bool[Array, ""]:
        """Whether there are enough effective particles."""
        return self.effective >= PARTICLES_LIMIT

    @property
    def disagrees(self) -> Bool[Array, ""]:
        return self.available & jnp.any(self.gap > GAP)

    @property
    def modes(self) -> Int[Array, ""]:
        """The number of modes that hold at least a share `SMALLEST` of the particles."""
        return jnp.sum(self.shares >= SMALLEST)

    @property
    def separate(self) -> Bool[Array, ""]:
        """Whether chains stay in different modes."""
        return jnp.any(jnp.ptp(self.chain_shares, 0) > APART)


def without(chains: int, dtype: jnp.dtype) -> Opinion:
    """The opinion for independent draws, which do not need to be compared with particles."""
    one = jnp.ones(1, dtype)
    return Opinion(
        jnp.zeros(3, dtype), jnp.asarray(jnp.inf, dtype), one, jnp.ones((chains, 1), dtype)
    )


def opinion(
    draws: Float[Array, "chains draws dim"],
    particles: Float[Array, "particles dim"],
    ancestor: Int[Array, " particles"],
    beta: Float[Array, ""],
    modes: Modes,
) -> Opinion:
    """Compare draws with particles, both given as latents."""
    dim = draws.shape[-1]
    pooled = draws.reshape(-1, dim)
    levels = jnp.array([WIDTH, 0.5, 1 - WIDTH], draws.dtype)
    # Both samples count equally, whatever their sizes.
    low, middle, high = 0.5 * (jnp.quantile(pooled, levels, 0) + jnp.quantile(particles, levels, 0))
    width = jnp.maximum(0.5 * (high - low), jnp.finfo(draws.dtype).tiny)

    def compared(points: Array) -> Array:
        scores = jnp.clip((points - middle) / width, -CLIP, CLIP)
        return jnp.concatenate([scores, scores**2, modes.indicators(points)], -1)

    own, other = compared(draws), compared(particles)
    flat = own.reshape(-1, own.shape[-1])
    error = jnp.std(flat, 0) / jnp.sqrt(effective_or_one(own))
    other_error = tempering.standard_error(other, ancestor)
    difference = jnp.abs(jnp.mean(flat, 0) - jnp.mean(other, 0))
    significant = difference > DEVIATION * jnp.hypot(error, other_error)
    # s² has a standard deviation of about √2. If the spread changes by δ, E s² changes by about
    # 2 δ, so half of the difference in E s² is the difference in spread.
    kind = jnp.repeat(
        jnp.arange(3),
        jnp.array([dim, dim, other.shape[-1] - 2 * dim]),
        total_repeat_length=other.shape[-1],
    )
    scale = jnp.array([1.0, 0.5, 1.0], draws.dtype)[kind]
    gap = jax.ops.segment_max(jnp.where(significant, scale * difference, 0), kind, num_segments=3)
    spread, noise = jnp.var(other[:, : 2 * dim], 0), other_error[: 2 * dim] ** 2
    ratio = spread / jnp.where(noise > 0, noise, 1)
    effective = jnp.min(jnp.where(noise > 0, ratio, jnp.inf))  # a constant coordinate has no error
    return Opinion(
        gap,
        jnp.where(beta < 1, 0.0, effective),
        jnp.mean(other[:, 2 * dim :], 0),
        jnp.mean(own[..., 2 * dim :], 1),
    )


def effective_or_one(draws: Float[Array, "chains draws parts"]) -> Float[Array, " parts"]:
    """Effective sample sizes; 1 where a coordinate is constant within chains."""
    size = effective_sample_size(draws)
    return jnp.where(jnp.isfinite(size), jnp.maximum(size, 1), 1)
