"""How much a model's output depends on the order of its tokens.

For a function f of tokens x_1 … x_L and a permutation π,

    equivariant   f(x∘π) = f(x)∘π     an encoder: permuting tokens permutes the representation
    invariant     f(x∘π) = f(x)       a pooled output

and the deviation is the largest absolute entry of the difference of the two sides, divided by the
largest absolute entry of f(x). A model that has the symmetry deviates only by rounding errors,
because sums are added in another order.
(Zaheer et al., Deep sets, NeurIPS 2017; lens A (Zhang et al., 2022) on encoders without positions.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from attnlens.core import arrays, checks
from attnlens.core.readings import Reading
from attnlens.core.statistics import mean_reading
from attnlens.core.status import Status

from .permutation import uniform


@dataclass(frozen=True)
class Deviation(Reading):
    """The largest deviation from a symmetry.

    mean: the mean deviation over permutations.
    scale: the largest absolute entry of the output, by which deviations are divided.
    """

    mean: float = field(kw_only=True)
    scale: float = field(kw_only=True)


def equivariance(
    apply: Callable[[Any], Any],
    tokens: Any,
    *,
    invariant: bool = False,
    permutations: int = 32,
    seed: int = 0,
) -> Deviation:
    """The largest relative deviation from equivariance (or invariance) over random permutations.

        max_π max |f(x∘π) − f(x)∘π| / max |f(x)|

    `apply` takes tokens (L, …) and returns (L, …), or any shape if `invariant`. Computed in float64
    if `apply` keeps the type of its input. The standard error is that of the mean deviation,
    `mean`, because a maximum has no standard error.

    >>> reading = equivariance(lambda x: x - x.mean(0), np.eye(4))
    >>> reading.value < 1e-15
    True
    >>> equivariance(lambda x: x.cumsum(0), np.eye(4)).value
    1.0
    """
    checks.whole("permutations", permutations, at_least=2, at_most=100_000)
    random = np.random.default_rng(checks.seed_number("seed", seed))
    array = arrays.plain("tokens", tokens)
    if array.dtype.kind not in arrays.NUMBERS:  # embeddings and token indices keep their type
        array = arrays.numbers("tokens", array)
    if array.ndim == 0 or len(array) < 2:
        raise checks.BadInput(
            f"tokens must be an array of at least two tokens, (length, …); got shape "
            f"{array.shape}; give one sequence."
        )
    with jax.enable_x64(True):
        output = np.asarray(apply(array.copy()))
        if not invariant and output.shape[:1] != array.shape[:1]:
            raise checks.BadInput(
                f"an equivariant function must return one output per token, {len(array)} here; got "
                f"shape {output.shape}; use invariant=True for a pooled output."
            )
        size = float(np.abs(output).max(initial=0.0))
        if not np.isfinite(size) or size == 0:
            raise checks.BadInput(
                f"deviations are relative to the largest output, which must be finite and above "
                f"0; got {size}; give tokens for which the output is not zero."
            )
        deviations = []
        for order in uniform(permutations, len(array), random):
            expected = output if invariant else output[order]
            permuted = np.asarray(apply(array[order]))
            if permuted.shape != expected.shape:
                raise checks.BadInput(
                    f"the function must return the same shape for every order of its tokens; got "
                    f"{expected.shape} and {permuted.shape}."
                )
            deviations.append(np.abs(permuted - expected).max() / size)
    mean = mean_reading(deviations)
    return Deviation(
        float(np.max(deviations)),
        mean.standard_error,
        permutations,
        status=Status.OK if np.isfinite(deviations).all() else Status.NOT_FINITE,
        mean=mean.value,
        scale=size,
    )
