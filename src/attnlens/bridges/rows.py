"""A table on its way into an estimator: checked, merged, centred, scaled and padded.

**Weights are repetitions.** An estimator sees its training rows only as a weighted set: rows of
weight zero are dropped, the others sorted, and equal rows merged into one with the sum of their
weights. So fitting with weights 2 and 3 and fitting with rows given twice and three times are the
same computation, to the last bit, and the order of rows never matters.

**Means and scales** are those of the weighted rows: μ = Σ w x/Σ w and s² = Σ w (x − μ)²/Σ w.

**Padding.** Each new shape costs a compilation, so rows and tokens are filled up to one of a few
sizes; what is filled in has weight zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnlens import checks


class Rows(NamedTuple):
    """Distinct rows in order, (n, p) and (n, outputs), with their weights, all above zero."""

    inputs: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def merged(inputs: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> Rows:
    """The weighted set of rows: what training may depend on."""
    kept, width = weights > 0, inputs.shape[1]
    columns = np.concatenate([inputs, labels], 1)[kept] + 0.0  # −0 becomes 0
    weights = weights[kept]
    # By weight last, so that equal rows add theirs up in an order of their own.
    order = np.lexsort([weights, *columns.T[::-1]])
    columns, weights = columns[order], weights[order]
    new = np.ones(len(columns), bool)
    new[1:] = np.any(columns[1:] != columns[:-1], 1)
    first = np.flatnonzero(new)
    return Rows(columns[first, :width], columns[first, width:], np.add.reduceat(weights, first))


def weights(given: Any, count: int) -> np.ndarray:
    """`sample_weight` as one number a row, at least 0 and not all 0."""
    if given is None:
        return np.ones(count)
    try:
        array = np.asarray(given, float)
    except (TypeError, ValueError) as error:
        raise checks.BadInput(
            "sample_weight must be numbers, one a row of X, but it cannot be made into such an "
            "array; leave it out for equal weights."
        ) from error
    array = np.full(count, float(array)) if array.ndim == 0 else array
    if array.shape != (count,):
        raise checks.BadInput(
            f"sample_weight must be one number a row of X, shape ({count},), but the shape "
            f"{array.shape} came."
        )
    if not np.isfinite(array).all() or array.min() < 0:
        worst = int(np.argmax(~np.isfinite(array) | (array < 0)))
        raise checks.BadInput(
            f"sample_weight must be finite numbers of at least 0, but row {worst} has "
            f"{array[worst]}; drop the row or give it weight 0."
        )
    if not array.any():
        raise checks.BadInput(
            "sample_weight must be above 0 for at least one row, but all sample_weight are zero; "
            "give the rows to learn from a weight of 1."
        )
    return array


def flat(X: Any, token_dim: int | None) -> Any:
    """Tokens (n, L, t) as rows of L t numbers; everything else as it came."""
    if getattr(X, "ndim", 2) != 3:
        return X
    array = np.asarray(X)
    if token_dim != array.shape[2]:
        raise checks.BadInput(
            f"X of the shape {array.shape} holds tokens of {array.shape[2]} numbers, but token_dim "
            f"is {token_dim}; give token_dim={array.shape[2]}."
        )
    return array.reshape(len(array), -1)


def finite(array: np.ndarray, names: Any) -> np.ndarray:
    """`array`, if it has no NaN and no infinity."""
    if not np.isfinite(array).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        what = "NaN" if np.isnan(array[row, column]) else "inf"
        where = f"column {column}" if names is None else f"column {names[column]!r}"
        raise checks.BadInput(
            f"X must be finite numbers, but row {row} has {what} in {where}; fill or drop it, with "
            f"SimpleImputer in a Pipeline, say."
        )
    return array


def number(value: Any) -> Any:
    """A NumPy number (as grids of settings hold them) as Python's; the rest as it came."""
    return value.item() if isinstance(value, np.generic) else value


class Scaling(NamedTuple):
    """x ↦ (x − mean)/scale, column by column."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray) -> Scaling:
        """Weighted mean and standard deviation; a column that never changes has scale 1."""
        share = weights / weights.sum()
        with np.errstate(over="ignore", invalid="ignore"):
            mean = share @ values
            scale = np.sqrt(share @ (values - mean) ** 2)
        if not (np.isfinite(mean).all() and np.isfinite(scale).all()):
            raise checks.BadInput(
                "X and y must be small enough for their variance to be a float64, but values above "
                "1e150 came; scale them down."
            )
        # A subnormal spread would overflow when divided by.
        varies = (values.max(0) > values.min(0)) & (scale > np.finfo(float).tiny)
        return cls(mean, np.where(varies, scale, 1.0))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return (values - self.mean) / self.scale


def bucket(count: int, least: int, parts: int) -> int:
    """The size to fill `count` up to: few sizes, and never much too large.

    A multiple of `least`, and from there on of 1/`parts` of the power of two below: at most one
    part in `parts` is filling.

    >>> [bucket(n, 64, 4) for n in (1, 64, 65, 300, 1000)]
    [64, 64, 128, 320, 1024]
    """
    step = max(least, 2 ** (count.bit_length() - 1) // parts)
    return -(-count // step) * step


def padded(array: np.ndarray, count: int) -> np.ndarray:
    """`array` with copies of its first row up to `count` rows: finite, and of its own size."""
    return np.concatenate([array, np.repeat(array[:1], count - len(array), 0)])


def told(values: np.ndarray) -> np.ndarray:
    """`values`, if arithmetic did not overflow on the way to them."""
    if not np.isfinite(values).all():
        raise checks.BadInput(
            "X must lie within reach of the rows that were fitted, but float64 overflowed on it; "
            "check its units."
        )
    return values
