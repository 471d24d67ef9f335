"""Estimates of A.softmax-shrinking, one number per block of draws of the keys.

The law and the crossover that measurements are compared with are derived in `softmax_law` for
lens A (Zhang et al., 2022; docs/theory.md, prediction 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnlens.claims.cells import Measured, group_by
from attnlens.claims.estimates import per_block
from attnlens.core.statistics import slopes

from .softmax_law import crossover, of_linear, two_term_law


def law_of_cell(cell: Measured) -> float:
    """The mean squared error according to the two-term law; the control omits the term s τ."""
    m, length, noise_std, temperature, signal = (
        cell.parameters[name]
        for name in ("manifold_dim", "length", "noise_std", "temperature", "signal")
    )
    smoothness = of_linear(m)
    smoothness = smoothness._replace(signal=signal * smoothness.signal)
    return two_term_law(m, length, noise_std, temperature, smoothness)


@per_block
def log_over_law(cells: Sequence[Measured]) -> np.ndarray:
    """log(mean squared error / its value by the law), one per block."""
    return np.array([math.log(cell.values["squared"].mean() / law_of_cell(cell)) for cell in cells])


def log_crossovers(cells: Sequence[Measured]) -> np.ndarray:
    """log σ×, the log of the noise at which signal and noise have equal variance, one per block.

    A line is fitted to log(signal variance / noise variance) as a function of log σ; log σ× is its
    zero.
    """
    crossovers = []
    for cell in cells:
        noise = cell.values["noise"].mean(0)
        ratio = cell.values["signal"].mean(0) / (noise**2 * cell.values["weight"].mean(0))
        slope, offset = np.polyfit(np.log(noise), np.log(ratio), 1)
        crossovers.append(-offset / slope)
    return np.array(crossovers)


@per_block
def log_over_crossover(cells: Sequence[Measured]) -> np.ndarray:
    """log(measured σ× / predicted σ×), one per block."""
    parameters = cells[0].parameters
    return log_crossovers(cells) - math.log(
        crossover(parameters["manifold_dim"], parameters["length"])
    )


def best_of_others(cells: Sequence[Measured]) -> np.ndarray:
    """Mean squared error of each block at the temperature whose error, summed over the other
    blocks, is smallest: the choice does not depend on the block itself."""
    blocks = np.stack([cell.values["squared"].mean(0) for cell in cells])
    others = blocks.sum(0) - blocks
    return blocks[np.arange(len(blocks)), others.argmin(1)]


@per_block
def free_slopes(cells: Sequence[Measured]) -> np.ndarray:
    """Slope of the root-mean-square error at the best temperature, one per block."""
    groups = group_by(cells, "length")
    errors = np.stack([best_of_others(group) for group in groups.values()], axis=1)
    return slopes(np.log(list(groups)), 0.5 * np.log(errors))
