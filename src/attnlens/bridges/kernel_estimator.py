"""CME attention over the training rows, as a scikit-learn estimator with standard deviations.

The rows are keys k with values v and weights w, a row to predict is a query q:

    mean(q) = κ(q, K) (κ(K, K) + λ W⁻¹)⁻¹ V          `attention.cme` where all weights are 1
    var(q)  = κ(q, q) − κ(q, K) (κ(K, K) + λ W⁻¹)⁻¹ κ(K, q)

the posterior mean and variance of a Gaussian process with covariance κ whose values are seen with
noise variance λ/w: a weight is a precision, and k equal rows are one row of weight k. Labels seen
at the same place enter as one, v̄ = Σ w v/Σ w, whose weight is the sum of theirs: the posterior is
the same. (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.2.)

**Choosing λ and τ.** With W^½ κ(K, K) W^½ = U diag(e) Uᵀ, c = Uᵀ W^½ V, m places, d outputs and
S = Σ w (v − v̄)² the scatter within places,

    evidence   ½ [Σ_k (d log(e_k + λ) + ‖c_k‖²/(e_k + λ)) + d (Σ w − m) log λ + S/λ]
    loo        Σ_i ‖(U c/(e + λ))_i / (Σ_k U_ik²/(e_k + λ))‖² / Σ w

are −log of the likelihood of all labels, up to a constant (a label of weight w counts as w labels),
and the weighted mean squared error at each place, fitted without it (all labels of a place leave
together: a copy left in would give the answer away). Both need one eigendecomposition for every λ
at once, and one for each τ.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Self

import jax
import numpy as np
import scipy.linalg
from jaxtyping import Array
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from attnlens import checks, kernels

from . import rows
from .feature_tokens import in_blocks
from .saving import BadFile, Saved, expect

RULES = ("evidence", "loo")
SMALLEST, LARGEST = 1e-8, 1e3  # λ in multiples of the mean of κ(k, k), as in `attention.ridge`
GRIDS = (65, 33, 33)  # points of a grid of log λ, then of a finer one about the best, twice
# τ in multiples of half the mean squared distance of two rows: powers of 4, then finer by halves.
COARSE, FINER = 4.0 ** np.arange(-4, 4), (2.0, 2.0**0.5)
MOST_ROWS = 2**14  # distinct rows; their matrix has 2 GB
KEYS = (64, 4)  # keys are filled up to `rows.bucket(m, *KEYS)`,
COLUMNS = (8, 2)  # features with zeros, which change no distance and no product


class Places(NamedTuple):
    """Where labels were seen: distinct inputs, mean labels, weights, and the scatter S."""

    inputs: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    scatter: float


class KernelAttentionRegressor(Saved, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Kernel ridge attention from rows to numbers, with its posterior standard deviation.

    kernel: "rbf", "laplace", "matern32", "matern52", "linear" or "polynomial".
    ridge: the noise variance λ, in units of the variance of y; or "evidence" or "loo" to have it
        chosen by marginal likelihood or by leave-one-out error.
    temperature: τ, a squared length; None is √p for p features; or "evidence" or "loo". Choosing
        costs one eigendecomposition of the rows' matrix for each of a dozen τ: seconds for a
        thousand rows, minutes for some thousands.
    standardize: centre and scale each feature by its weighted mean and standard deviation.

    After `fit`: `ridge_` and `temperature_` as used, `noise_std_` (the standard deviation of one
    label about the mean, in units of y), `n_features_in_`, `feature_names_in_`.

    `partial_fit` adds rows: afterwards the estimator is exactly what `fit` on all rows gives.

    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> model = KernelAttentionRegressor(ridge=1e-6, temperature=1.0).fit(X, [0.0, 1.0, 4.0])
    >>> mean, std = model.predict([[1.0], [9.0]], return_std=True)
    >>> mean.round(2).tolist(), std.round(2).tolist()
    ([1.0, 1.67], [0.0, 1.7])
    """

    def __init__(
        self,
        *,
        kernel: str = "rbf",
        ridge: float | str = "evidence",
        temperature: float | str | None = "evidence",
        standardize: bool = True,
    ):
        self.kernel = kernel
        self.ridge = ridge
        self.temperature = temperature
        self.standardize = standardize

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows X with numbers y; a weight w makes a label's noise variance λ/w."""
        return self._learn(X, y, sample_weight, seen=None)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from further rows: the same as `fit` on all rows so far."""
        seen = None
        if hasattr(self, "rows_"):
            seen = rows.Rows(self.rows_, self.labels_, self.weights_)
        return self._learn(X, y, sample_weight, seen)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The posterior mean of each row; with `return_std` also its standard deviation.

        That is the uncertainty about the mean; a new label scatters by √(std² + noise_std_²).
        """
        check_is_fitted(self)
        queries = self._scaled(self._read(X, reset=False))
        columns = rows.bucket(queries.shape[1], *COLUMNS)
        keys = _wide(rows.padded(self.keys_, rows.bucket(len(self.keys_), *KEYS)), columns)
        found = in_blocks(partial(self._posterior, return_std, keys), _wide(queries, columns))
        mean, *std = (
            rows.told(each)[:, 0] if self.one_output_ else rows.told(each) for each in found
        )
        return (mean, *std) if return_std else mean

    def _posterior(self, return_std: bool, keys: np.ndarray, queries: np.ndarray) -> Any:
        """Mean, and standard deviation if wanted, of one block of queries."""
        attended = _attend(self.kernel, keys, queries, np.float64(self.temperature_))
        cross, prior = (np.asarray(each) for each in attended)
        cross = cross[:, : len(self.keys_)]
        with np.errstate(over="ignore", invalid="ignore"):  # `predict` tells
            mean = cross @ self.alpha_ * self.target_scale_ + self.target_mean_
        if not return_std:
            return (mean,)
        weighted = np.sqrt(self.place_weights_)[:, None] * cross.T
        explained = scipy.linalg.solve_triangular(
            self.factor_, weighted, lower=True, check_finite=False
        )
        var = np.maximum(prior - np.sum(explained**2, 0), 0)
        return mean, np.sqrt(var)[:, None] * self.target_scale_

    # -- learning --------------------------------------------------------------------------------

    def _learn(self, X: Any, y: Any, sample_weight: Any, seen: rows.Rows | None) -> Self:
        rule = self._check_settings()
        X, y = self._read(X, y=y, multi_output=True, y_numeric=True, reset=seen is None)
        weights = rows.weights(sample_weight, len(X))
        one_output, labels = y.ndim == 1, np.asarray(y, float).reshape(len(y), -1)
        if seen is not None:
            if labels.shape[1] != seen.labels.shape[1]:
                raise checks.BadInput(
                    f"y must have {seen.labels.shape[1]} columns as before, but "
                    f"{labels.shape[1]} came; call fit to start again."
                )
            one_output = self.one_output_
            X = np.concatenate([seen.inputs, X])
            labels = np.concatenate([seen.labels, labels])
            weights = np.concatenate([seen.weights, weights])
        told = rows.merged(X, labels, weights)
        if len(told.weights) > MOST_ROWS:
            raise checks.BadInput(
                f"X may have {MOST_ROWS:,} distinct rows at most, since their matrix is held in "
                f"memory, but {len(told.weights):,} came; fit on a sample of them."
            )
        self.one_output_ = one_output
        self.rows_, self.labels_, self.weights_ = told
        places = self._places()
        self.temperature_, self.ridge_ = self._choose(places, rule)
        self._solve(places)
        return self

    def _places(self) -> Places:
        """Scaled inputs and labels, one row a place."""
        told = rows.Rows(self.rows_, self.labels_, self.weights_)
        if self.standardize:
            scaling = rows.Scaling.of(told.inputs, told.weights)
        else:
            features = told.inputs.shape[1]
            scaling = rows.Scaling(np.zeros(features), np.ones(features))
        self.input_mean_, self.input_scale_ = scaling
        target = rows.Scaling.of(told.labels, told.weights)
        self.target_mean_, self.target_scale_ = target
        return _by_place(told._replace(inputs=scaling(told.inputs), labels=target(told.labels)))

    def _choose(self, places: Places, rule: str | None) -> tuple[float, float]:
        """(τ, λ): as given, or the best by the rule."""
        free = isinstance(self.ridge, str)
        if not isinstance(self.temperature, str):
            features = places.inputs.shape[1]
            tau = features**0.5 if self.temperature is None else float(self.temperature)
            return tau, self._best_ridge(places, tau, rule)[1] if free else float(self.ridge)
        share = places.weights / places.weights.sum()
        spread = np.sum(share @ (places.inputs - share @ places.inputs) ** 2)
        middle = float(spread) if spread > 0 else 1.0
        ends = middle * COARSE[[0, -1]]
        tried = {tau: self._best_ridge(places, tau, rule) for tau in middle * COARSE}
        for factor in FINER:
            best = min(tried, key=lambda tau: tried[tau][0])
            for tau in np.clip([best / factor, best * factor], *ends):
                tried[tau] = self._best_ridge(places, tau, rule)
        best = min(tried, key=lambda tau: tried[tau][0])
        return float(best), tried[best][1]

    def _best_ridge(self, places: Places, tau: float, rule: str | None) -> tuple[float, float]:
        """The least value of the rule over λ, or at the λ that is given, and that λ."""
        eigenvalues, vectors = scipy.linalg.eigh(self._weighted_gram(places, tau))
        eigenvalues = np.maximum(eigenvalues, 0)
        root = np.sqrt(places.weights)[:, None]
        coordinates = vectors.T @ (root * places.labels)
        total, outputs = places.weights.sum(), places.labels.shape[1]
        squares = np.sum(coordinates**2, 1)

        def value(log_ridge: np.ndarray) -> np.ndarray:
            inverse = 1 / (eigenvalues[:, None] + np.exp(log_ridge))
            if rule == "evidence":
                volume = (total - len(root)) * log_ridge - np.sum(np.log(inverse), 0)
                spread = squares @ inverse + places.scatter * np.exp(-log_ridge)
                return (outputs * volume + spread) / 2
            diagonal = vectors**2 @ inverse
            errors = np.zeros(len(log_ridge))
            for column in coordinates.T:
                errors += np.sum((vectors @ (column[:, None] * inverse) / diagonal) ** 2, 0)
            return errors / total

        if not isinstance(self.ridge, str):
            at = np.log([float(self.ridge)])
            return float(value(at)[0]), float(self.ridge)
        scale = max(float(np.mean(eigenvalues)), np.finfo(float).tiny)
        smallest = max(SMALLEST, 32 * len(root) * np.finfo(float).eps)
        low, high = np.log(scale * smallest), np.log(scale * LARGEST)
        best = least = low
        for points in GRIDS:
            grid = np.linspace(low, high, points)
            values = value(grid)
            best, least = grid[np.argmin(values)], np.min(values)
            step = (high - low) / (points - 1)
            low, high = max(best - step, low), min(best + step, high)
        return float(least), float(np.exp(best))

    def _weighted_gram(self, places: Places, tau: float) -> np.ndarray:
        """W^½ κ(K, K) W^½."""
        root, count = np.sqrt(places.weights), len(places.weights)
        columns = rows.bucket(places.inputs.shape[1], *COLUMNS)
        keys = _wide(rows.padded(places.inputs, rows.bucket(count, *KEYS)), columns)
        with jax.enable_x64(True):
            gram = np.asarray(_gram(self.kernel, keys, np.float64(tau)))[:count, :count]
        return rows.told(root[:, None] * gram * root)

    def _solve(self, places: Places) -> None:
        """Factorise W^½ κ(K, K) W^½ + λ I; α = W^½ (that)⁻¹ W^½ V."""
        matrix = self._weighted_gram(places, self.temperature_)
        matrix[np.diag_indices_from(matrix)] += self.ridge_
        try:
            self.factor_ = scipy.linalg.cholesky(matrix, lower=True)
        except np.linalg.LinAlgError as error:
            raise checks.BadInput(
                f"ridge must be large enough for the rows' matrix to be positive definite in "
                f"float64, but {self.ridge_:.1e} is not; raise it."
            ) from error
        root = np.sqrt(places.weights)[:, None]
        solved = scipy.linalg.cho_solve((self.factor_, True), root * places.labels)
        self.alpha_ = root * solved
        self.keys_, self.place_weights_ = places.inputs, places.weights
        noise = np.sqrt(self.ridge_) * self.target_scale_
        self.noise_std_ = float(noise[0]) if self.one_output_ else noise

    # -- in and out ------------------------------------------------------------------------------

    def _check_settings(self) -> str | None:
        """The rule to choose by, if any; one sentence for each setting that no fit takes."""
        checks.one_of("kernel", self.kernel, kernels.KERNELS)
        if not isinstance(self.standardize, (bool, np.bool_)):
            raise checks.BadInput(
                f"standardize must be True or False, but {self.standardize!r} came."
            )
        rules = set()
        for name in ("ridge", "temperature"):
            value = getattr(self, name)
            if isinstance(value, str):
                rules.add(checks.one_of(f"{name}, when it is not a number,", value, RULES))
            elif value is not None or name == "ridge":
                checks.positive(name, rows.number(value))
        if len(rules) > 1:
            raise checks.BadInput(
                "ridge and temperature must be chosen by the same rule, but one has 'evidence' and "
                "the other 'loo'; give both the same."
            )
        return rules.pop() if rules else None

    def _read(self, X: Any, **given: Any) -> Any:
        read: Any = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, **given)
        table = read[0] if isinstance(read, tuple) else read
        rows.finite(table, getattr(self, "feature_names_in_", None))
        return read

    def _scaled(self, inputs: np.ndarray) -> np.ndarray:
        return rows.told(rows.Scaling(self.input_mean_, self.input_scale_)(inputs))

    # -- files -----------------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        return {
            "one_output": self.one_output_,
            "temperature": self.temperature_,
            "ridge": self.ridge_,
        }

    def _arrays(self) -> dict[str, np.ndarray]:
        return {"rows": self.rows_, "labels": self.labels_, "weights": self.weights_}

    def _restore(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """The rows and the chosen numbers are the estimator: the rest is computed from them."""
        self._check_settings()
        count = arrays["weights"].size if "weights" in arrays else 0
        expect(arrays, {"rows": (count, None), "labels": (count, None), "weights": (count,)})
        sizes = (count, arrays["rows"].shape[1], arrays["labels"].shape[1])
        if not all(sizes) or sizes[0] > MOST_ROWS or np.min(arrays["weights"]) <= 0:
            raise BadFile("has no rows or too many, or weights that are not above zero")
        if set(facts) != {"one_output", "temperature", "ridge"}:
            raise BadFile("has other entries than a fit leaves")
        checks.positive("ridge", facts["ridge"])
        checks.positive("temperature", facts["temperature"])
        if not isinstance(facts["one_output"], bool) or (facts["one_output"] and sizes[2] != 1):
            raise BadFile("does not say how many outputs it has")
        self.n_features_in_, self.one_output_ = sizes[1], facts["one_output"]
        self.temperature_, self.ridge_ = float(facts["temperature"]), float(facts["ridge"])
        told = rows.merged(arrays["rows"], arrays["labels"], arrays["weights"])
        self.rows_, self.labels_, self.weights_ = told
        self._solve(self._places())


def _by_place(told: rows.Rows) -> Places:
    """Rows that are sorted by their inputs, with those of equal inputs made one."""
    new = np.ones(len(told.weights), bool)
    new[1:] = np.any(told.inputs[1:] != told.inputs[:-1], 1)
    first, place = np.flatnonzero(new), np.cumsum(new) - 1
    weights = np.add.reduceat(told.weights, first)
    # About the first label of each place, so that a place with one label has that label exactly.
    apart = told.labels - told.labels[first][place]
    shift = np.add.reduceat(told.weights[:, None] * apart, first) / weights[:, None]
    scatter = np.sum(told.weights[:, None] * (apart - shift[place]) ** 2)
    return Places(told.inputs[first], told.labels[first] + shift, weights, float(scatter))


def _wide(array: np.ndarray, columns: int) -> np.ndarray:
    return np.pad(array, ((0, 0), (0, columns - array.shape[1])))


@partial(jax.jit, static_argnames="kernel")
def _gram(kernel: str, keys: Array, temperature: Array) -> Array:
    return kernels.KERNELS[kernel](keys, keys, temperature)


@partial(jax.jit, static_argnames="kernel")
def _attend(kernel: str, keys: Array, queries: Array, temperature: Array) -> tuple[Array, Array]:
    """κ(q, K) and κ(q, q) for every query."""
    kappa = kernels.KERNELS[kernel]
    prior = jax.vmap(lambda query: kappa(query[None], query[None], temperature)[0, 0])
    return kappa(queries, keys, temperature), prior(queries)
