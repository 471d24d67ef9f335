"""The inputs of an estimator as weighted rows: checked, merged, standardised and padded.

**Weights are repetitions.** An estimator uses its training rows only as a weighted set: rows of
weight zero are dropped, the others are sorted, and equal rows are merged into one row with the sum
of their weights. So a fit to two rows with weights 2 and 3 is bitwise the same computation as a fit
to two and three copies of them, and the order of rows does not matter.

**Means and scales** are those of the weighted rows: μ = Σ w x/Σ w and s² = Σ w (x − μ)²/Σ w.

**Padding.** Each new shape costs a compilation, so rows and tokens are padded to one of a few
sizes; padding has weight zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attnlens.core import arrays, checks

LARGEST = 1e150  # limit of a column's standard deviation, so that its square fits into float64


class WeightedRows(NamedTuple):
    """Distinct rows, sorted: inputs (n, p), labels (n, outputs), and weights, all above zero."""

    inputs: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def merge_rows(inputs: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> WeightedRows:
    """The rows as a weighted set: without weight zero, sorted, and equal rows merged."""
    positive, width = weights > 0, inputs.shape[1]
    columns = np.concatenate([inputs, labels], 1)[positive] + 0.0  # −0 becomes 0
    weights = weights[positive]
    # Equal rows are sorted by weight, so that their weights are always added in the same order.
    order = np.lexsort([weights, *columns.T[::-1]])
    columns, weights = columns[order], weights[order]
    new = np.ones(len(columns), bool)
    new[1:] = np.any(columns[1:] != columns[:-1], 1)
    first = np.flatnonzero(new)
    sums = np.add.reduceat(weights, first)
    return WeightedRows(columns[first, :width], columns[first, width:], sums)


class DistinctInputs(NamedTuple):
    """Distinct inputs with their mean labels and total weights."""

    inputs: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    scatter: float  # Σ w (label − mean label)², summed over all rows


def merge_equal_inputs(rows: WeightedRows) -> DistinctInputs:
    """Merge rows with equal inputs, also if their labels differ; `rows` must be sorted."""
    new = np.ones(len(rows.weights), bool)
    new[1:] = np.any(rows.inputs[1:] != rows.inputs[:-1], 1)
    first, group = np.flatnonzero(new), np.cumsum(new) - 1
    weights = np.add.reduceat(rows.weights, first)
    # Labels are averaged relative to the first label of each input, so that the mean of one label
    # is exactly this label.
    offset = rows.labels - rows.labels[first][group]
    shift = np.add.reduceat(rows.weights[:, None] * offset, first) / weights[:, None]
    scatter = np.sum(rows.weights[:, None] * (offset - shift[group]) ** 2)
    return DistinctInputs(rows.inputs[first], rows.labels[first] + shift, weights, float(scatter))


def sample_weights(sample_weight: Any, count: int) -> np.ndarray:
    """`sample_weight` as one number per row, at least 0 and not all 0."""
    if sample_weight is None:
        return np.ones(count)
    array = arrays.numbers("sample_weight", sample_weight)
    array = np.full(count, float(array)) if array.ndim == 0 else array
    if array.shape != (count,):
        raise checks.BadInput(
            f"sample_weight must be one number per row of X, shape ({count},); got the shape "
            f"{array.shape}."
        )
    if not np.isfinite(array).all() or array.min() < 0:
        worst = int(np.argmax(~np.isfinite(array) | (array < 0)))
        raise checks.BadInput(
            f"sample_weight must be finite numbers of at least 0; got {array[worst]} in row "
            f"{worst}; drop the row or give it weight 0."
        )
    if not array.any():
        raise checks.BadInput(
            "sample_weight must be above 0 for at least one row; all sample_weight are zero; give "
            "the rows to learn from a weight of 1."
        )
    return array


def without_mask(name: str, values: Any) -> Any:
    """`values`; raises for values that scikit-learn would misread.

    scikit-learn ignores the mask of a masked array, and treats None among the labels as a class.
    """
    if isinstance(values, np.ma.MaskedArray):
        return arrays.plain(name, values)
    if name == "y" and getattr(getattr(values, "dtype", None), "kind", "") == "O":
        checked = arrays.labels(name, values)
        # Text labels stay an array of objects, because `classes_` has the dtype of the labels.
        return values if checked.dtype.kind == "U" else checked
    return values


def flatten_tokens(X: Any, token_dim: int | None) -> Any:
    """Tokens X (n, L, t) as rows (n, L t); an X that is not 3-dimensional is returned unchanged."""
    if getattr(X, "ndim", 2) != 3:
        return X
    array = np.asarray(X)
    if token_dim != array.shape[2]:
        raise checks.BadInput(
            f"token_dim must be {array.shape[2]} for X of shape {array.shape}; got {token_dim}; "
            f"give token_dim={array.shape[2]}."
        )
    return array.reshape(len(array), -1)


def check_finite(array: np.ndarray, names: Any) -> np.ndarray:
    """`array`; raises `BadInput` if it has NaN or infinity. `names` are its columns, or None."""
    if not np.isfinite(array).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        what = "NaN" if np.isnan(array[row, column]) else "inf"
        where = f"column {column}" if names is None else f"column {names[column]!r}"
        raise checks.BadInput(
            f"X must be finite numbers; row {row} has {what} in {where}; fill or drop it, for "
            f"example with SimpleImputer in a Pipeline."
        )
    return array


def python_number(value: Any) -> Any:
    """A NumPy scalar as a Python number; other values are returned unchanged."""
    return value.item() if isinstance(value, np.generic) else value


class RowScaling(NamedTuple):
    """Standardises columns: maps x to (x − mean)/scale."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray) -> RowScaling:
        """Weighted mean and standard deviation; the scale of a constant column is 1."""
        share = weights / weights.sum()
        with np.errstate(over="ignore", invalid="ignore"):
            mean = share @ values
            deviations = values - mean
            # Squares of very large or small numbers overflow or underflow. So deviations are first
            # divided by a power of two, which is exact.
            _, exponents = np.frexp(np.abs(deviations).max(0))
            squares = np.ldexp(deviations, -exponents) ** 2
            scale = np.ldexp(np.sqrt(share @ squares), exponents)
        if not (np.isfinite(mean).all() and np.isfinite(scale).all() and scale.max() < LARGEST):
            raise checks.BadInput(
                "X and y must be small enough for their variance to fit into float64; got values "
                "above 1e150; scale them down."
            )
        # Division by a subnormal scale would overflow.
        varies = (values.max(0) > values.min(0)) & (scale > np.finfo(float).tiny)
        return cls(mean, np.where(varies, scale, 1.0))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return (values - self.mean) / self.scale


def bucket(count: int, least: int, parts: int) -> int:
    """The size to which `count` is padded: one of few sizes, not much larger than `count`.

    The size is the next multiple of a step. The step is 1/`parts` of the largest power of two that
    is at most `count`, but at least `least`. Above that, padding adds at most a share 1/`parts`.

    >>> [bucket(n, 64, 4) for n in (1, 64, 65, 300, 1000)]
    [64, 64, 128, 320, 1024]
    """
    step = max(least, 2 ** (count.bit_length() - 1) // parts)
    return -(-count // step) * step


def padded(array: np.ndarray, count: int) -> np.ndarray:
    """`array` padded to `count` rows with copies of its first row."""
    return np.concatenate([array, np.repeat(array[:1], count - len(array), 0)])


def finite_result(values: np.ndarray) -> np.ndarray:
    """`values`; raises `BadInput` if one of them is not finite."""
    if not np.isfinite(values).all():
        raise checks.BadInput(
            "X must be of the same order of magnitude as the fitted rows; got values for which "
            "float64 overflows; check its units."
        )
    return values
