"""How far a model is from not caring about the order of its tokens.

For a function f of tokens x_1 … x_L and a permutation π,

    equivariant   f(x∘π) = f(x)∘π     an encoder: permuting tokens permutes the representation
    invariant     f(x∘π) = f(x)       a pooled output

and the deviation is the largest entry of the difference over the largest entry of f(x). A model
that keeps the symmetry leaves only rounding, from sums that were added in another order. (Zaheer et
al., Deep sets, NeurIPS 2017; lens A on encoders without positions.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from attnlens import checks
from attnlens.records import Reading
from attnlens.statistics import mean_reading

from .permutation import uniform


def equivariance(
    apply: Callable[[Any], Any],
    tokens: Any,
    *,
    invariant: bool = False,
    permutations: int = 32,
    seed: int = 0,
) -> Reading:
    """The largest relative deviation from equivariance (or invariance) over random permutations.

        max_π max |f(x∘π) − f(x)∘π| / max |f(x)|

    `apply` takes tokens (L, …) and gives (L, …), or anything at all when `invariant`. Computed in
    float64 where `apply` follows its input. The standard error is that of the mean deviation, which
    stands in `details["mean"]`: a largest value has none of its own.

    >>> reading = equivariance(lambda x: x - x.mean(0), np.eye(4))
    >>> reading.value < 1e-15
    True
    >>> equivariance(lambda x: x.cumsum(0), np.eye(4)).value
    1.0
    """
    checks.whole("permutations", permutations, at_least=2)
    random = np.random.default_rng(checks.whole("seed", seed))
    given = np.asarray(tokens)
    if given.ndim == 0 or len(given) < 2:
        raise checks.BadInput(
            f"tokens must be an array of at least two tokens, (length, …), but shape "
            f"{given.shape} came; give one sequence."
        )
    with jax.enable_x64(True):
        output = np.asarray(apply(given.copy()))
        if not invariant and output.shape[:1] != given.shape[:1]:
            raise checks.BadInput(
                f"an equivariant function gives one output a token, {len(given)} here, but shape "
                f"{output.shape} came; use invariant=True for an output that is pooled."
            )
        size = float(np.abs(output).max(initial=0.0))
        if not np.isfinite(size) or size == 0:
            raise checks.BadInput(
                f"deviations are relative to the largest output, which must be finite and above "
                f"0, but it is {size}; give tokens that the function says something about."
            )
        deviations = []
        for order in uniform(permutations, len(given), random):
            expected = output if invariant else output[order]
            deviations.append(np.abs(np.asarray(apply(given[order])) - expected).max() / size)
    mean = mean_reading(deviations)
    return Reading(
        float(np.max(deviations)), mean.standard_error, permutations,
        status="ok" if np.isfinite(deviations).all() else "an output is not finite",
        details={"mean": mean.value, "relative to": size},
    )  # fmt: skip
