"""CME attention over the training rows, as a scikit-learn regressor with standard deviations.

The training rows are keys k with values v and weights w; a row to predict is a query q:

    mean(q) = κ(q, K) (κ(K, K) + λ W⁻¹)⁻¹ V          `attention.cme` where all weights are 1
    var(q)  = κ(q, q) − κ(q, K) (κ(K, K) + λ W⁻¹)⁻¹ κ(K, q)

K, V and W stack the keys, the values and the weights. These are the posterior mean and variance of
a Gaussian process with covariance κ, observed with noise variance λ/w: a weight is a precision, and
k equal rows are equivalent to one row of weight k. Labels at the same input are replaced by their
mean v̄ = Σ w v/Σ w with the sum of their weights, which gives the same posterior (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, section 2.2).

**Choosing λ and τ.** With W^½ κ(K, K) W^½ = U diag(e) Uᵀ, c = Uᵀ W^½ V, m distinct inputs, d
outputs, and S = Σ w (v − v̄)² the scatter of labels at the same input,

    evidence   ½ [Σ_k (d log(e_k + λ) + ‖c_k‖²/(e_k + λ)) + d (Σ w − m) log λ + S/λ]
    loo        Σ_i ‖(U c/(e + λ))_i / (Σ_k U_ik²/(e_k + λ))‖² / Σ w

"evidence" is the negative log marginal likelihood of all labels, up to a constant (a label of
weight w counts as w labels). "loo" is the weighted leave-one-out mean squared error. It leaves out
all labels of an input together; otherwise the other labels at the same input would be used to
predict it. One eigendecomposition per τ is used for all λ.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
import scipy.linalg
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from attnlens.core import checks, kernels

from . import padded_kernels
from .estimator_files import BadFile, SaveLoadMixin, expect
from .feature_attention import in_chunks
from .weighted_rows import (
    DistinctInputs,
    RowScaling,
    WeightedRows,
    check_finite,
    finite_result,
    merge_equal_inputs,
    merge_rows,
    python_number,
    sample_weights,
    without_mask,
)

RULES = ("evidence", "loo")
SMALLEST, LARGEST = 1e-8, 1e3  # λ in multiples of the mean of κ(k, k), as in `attention.ridge`
GRIDS = (65, 33, 33)  # points of a grid of log λ, then of two finer grids around the best point
# τ in multiples of half the mean squared distance of two rows: first powers of 4, then the best of
# them times and divided by 2, then by √2.
COARSE, FINER = 4.0 ** np.arange(-4, 4), (2.0, 2.0**0.5)
MOST_ROWS = 2**14  # maximal number of distinct rows; their kernel matrix takes 2 GB


class KernelAttentionRegressor(SaveLoadMixin, MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Kernel ridge (CME) attention over the training rows, with posterior standard deviations.

    Parameters
    ----------
    kernel : str, default="rbf"
        "rbf", "laplace", "matern32", "matern52", "linear" or "polynomial".
    ridge : float, "evidence" or "loo", default="evidence"
        The noise variance λ, in units of the variance of y. "evidence" and "loo" choose it by the
        marginal likelihood and by the leave-one-out error.
    temperature : float, None, "evidence" or "loo", default="evidence"
        The temperature τ of the kernel, a squared length; None is √p for p features. To choose it,
        the kernel matrix of the rows is decomposed for each of a dozen τ: this takes seconds for a
        thousand rows, and minutes for several thousand.
    standardize : bool, default=True
        Whether each feature is centred and scaled by its weighted mean and standard deviation.

    Attributes
    ----------
    ridge_, temperature_ : float
        λ and τ, as given or chosen.
    noise_std_ : float or ndarray of shape (n_outputs,)
        The standard deviation of a label around the mean, in units of y.
    n_features_in_ : int
        The number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the features, if X was a data frame.

    Examples
    --------
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
        """Fit to rows X with numbers y.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Numbers to predict.
        sample_weight : array-like of shape (n_samples,), default=None
            A label of weight w has the noise variance λ/w.
        """
        return self._learn(X, y, sample_weight, previous=None)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows: the result is exactly that of `fit` on all rows so far.

        Parameters are those of `fit`.
        """
        previous = None
        if hasattr(self, "rows_"):
            previous = WeightedRows(self.rows_, self.labels_, self.weights_)
        return self._learn(X, y, sample_weight, previous)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The posterior mean of each row, and its standard deviation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        return_std : bool, default=False
            Whether to return the standard deviation too. It is the uncertainty of the mean; the
            standard deviation of a new label is √(std² + noise_std_²).

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        std : ndarray of the same shape, only with `return_std`
        """
        check_is_fitted(self)
        queries = self._scaled(self._read(X, reset=False))
        keys = padded_kernels.pad_keys(self.keys_)
        posterior = partial(self._posterior, return_std, keys)
        mean, *std = (
            finite_result(array)[:, 0] if self.one_output_ else finite_result(array)
            for array in in_chunks(posterior, padded_kernels.pad_features(queries))
        )
        return (mean, *std) if return_std else mean

    def _posterior(self, return_std: bool, keys: np.ndarray, queries: np.ndarray) -> Any:
        """The mean, and with `return_std` the standard deviation, for one chunk of queries."""
        values = padded_kernels.cross_and_prior(self.kernel, keys, queries, self.temperature_)
        cross, prior = (np.asarray(array) for array in values)
        cross = cross[:, : len(self.keys_)]
        with np.errstate(over="ignore", invalid="ignore"):  # `predict` raises on overflow
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

    def _learn(self, X: Any, y: Any, sample_weight: Any, previous: WeightedRows | None) -> Self:
        rule = self._check_settings()
        X, y = self._read(X, y=y, multi_output=True, y_numeric=True, reset=previous is None)
        weights = sample_weights(sample_weight, len(X))
        one_output, labels = y.ndim == 1, np.asarray(y, float).reshape(len(y), -1)
        if previous is not None:
            if labels.shape[1] != previous.labels.shape[1]:
                raise checks.BadInput(
                    f"y must have {previous.labels.shape[1]} columns as before; got "
                    f"{labels.shape[1]}; call fit to start again."
                )
            one_output = self.one_output_
            X = np.concatenate([previous.inputs, X])
            labels = np.concatenate([previous.labels, labels])
            weights = np.concatenate([previous.weights, weights])
        rows = merge_rows(X, labels, weights)
        if len(rows.weights) > MOST_ROWS:
            raise checks.BadInput(
                f"X must have at most {MOST_ROWS:,} distinct rows, because their matrix is held in "
                f"memory; got {len(rows.weights):,}; fit on a sample of them."
            )
        self.one_output_ = one_output
        self.rows_, self.labels_, self.weights_ = rows
        distinct = self._distinct_inputs()
        self.temperature_, self.ridge_ = self._choose(distinct, rule)
        self._solve(distinct)
        return self

    def _distinct_inputs(self) -> DistinctInputs:
        """Standardised inputs and labels, one row per distinct input."""
        rows = WeightedRows(self.rows_, self.labels_, self.weights_)
        if self.standardize:
            scaling = RowScaling.of(rows.inputs, rows.weights)
        else:
            features = rows.inputs.shape[1]
            scaling = RowScaling(np.zeros(features), np.ones(features))
        self.input_mean_, self.input_scale_ = scaling
        target = RowScaling.of(rows.labels, rows.weights)
        self.target_mean_, self.target_scale_ = target
        scaled = rows._replace(inputs=scaling(rows.inputs), labels=target(rows.labels))
        return merge_equal_inputs(scaled)

    def _choose(self, distinct: DistinctInputs, rule: str | None) -> tuple[float, float]:
        """(τ, λ): a number is used as given, and τ is √p where `temperature` is None; otherwise the
        value, of those tried, that minimises the criterion `rule`."""
        free = isinstance(self.ridge, str)
        if not isinstance(self.temperature, str):
            features = distinct.inputs.shape[1]
            tau = features**0.5 if self.temperature is None else float(self.temperature)
            return tau, self._best_ridge(distinct, tau, rule)[1] if free else float(self.ridge)
        share = distinct.weights / distinct.weights.sum()
        spread = np.sum(share @ (distinct.inputs - share @ distinct.inputs) ** 2)
        middle = float(spread) if spread > 0 else 1.0
        limits = middle * COARSE[[0, -1]]
        tried = {tau: self._best_ridge(distinct, tau, rule) for tau in middle * COARSE}
        for factor in FINER:
            best = min(tried, key=lambda tau: tried[tau][0])
            for tau in np.clip([best / factor, best * factor], *limits):
                tried[tau] = self._best_ridge(distinct, tau, rule)
        best = min(tried, key=lambda tau: tried[tau][0])
        return float(best), tried[best][1]

    def _best_ridge(
        self, distinct: DistinctInputs, tau: float, rule: str | None
    ) -> tuple[float, float]:
        """(value, λ): the minimum of the criterion `rule` over λ, and where it is attained.

        If the user gave λ, the criterion is evaluated at that λ only.
        """
        eigenvalues, vectors = scipy.linalg.eigh(self._weighted_gram(distinct, tau))
        eigenvalues = np.maximum(eigenvalues, 0)
        root = np.sqrt(distinct.weights)[:, None]
        coordinates = vectors.T @ (root * distinct.labels)
        total, outputs = distinct.weights.sum(), distinct.labels.shape[1]
        squares = np.sum(coordinates**2, 1)

        def value(log_ridge: np.ndarray) -> np.ndarray:
            inverse = 1 / (eigenvalues[:, None] + np.exp(log_ridge))
            if rule == "evidence":
                volume = (total - len(root)) * log_ridge - np.sum(np.log(inverse), 0)
                spread = squares @ inverse + distinct.scatter * np.exp(-log_ridge)
                return (outputs * volume + spread) / 2
            diagonal = vectors**2 @ inverse
            errors = np.zeros(len(log_ridge))
            for column in coordinates.T:
                errors += np.sum((vectors @ (column[:, None] * inverse) / diagonal) ** 2, 0)
            return errors / total

        if not isinstance(self.ridge, str):
            log_ridge = np.log([float(self.ridge)])
            return float(value(log_ridge)[0]), float(self.ridge)
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

    def _weighted_gram(self, distinct: DistinctInputs, tau: float) -> np.ndarray:
        """The weighted kernel matrix W^½ κ(K, K) W^½ at temperature `tau`."""
        root = np.sqrt(distinct.weights)
        gram = padded_kernels.gram(self.kernel, distinct.inputs, tau)
        return finite_result(root[:, None] * gram * root)

    def _solve(self, distinct: DistinctInputs) -> None:
        """Factorise M = W^½ κ(K, K) W^½ + λ I, and compute α = W^½ M⁻¹ W^½ V."""
        matrix = self._weighted_gram(distinct, self.temperature_)
        matrix[np.diag_indices_from(matrix)] += self.ridge_
        try:
            self.factor_ = scipy.linalg.cholesky(matrix, lower=True)
        except np.linalg.LinAlgError as error:
            raise checks.BadInput(
                f"ridge must be large enough for the rows' matrix to be positive definite in "
                f"float64; got {self.ridge_:.1e}; raise it."
            ) from error
        root = np.sqrt(distinct.weights)[:, None]
        solution = scipy.linalg.cho_solve((self.factor_, True), root * distinct.labels)
        self.alpha_ = root * solution
        self.keys_, self.place_weights_ = distinct.inputs, distinct.weights
        noise = np.sqrt(self.ridge_) * self.target_scale_
        self.noise_std_ = float(noise[0]) if self.one_output_ else noise

    # -- inputs and settings ---------------------------------------------------------------------

    def _check_settings(self) -> str | None:
        """The criterion ("evidence" or "loo") that chooses λ or τ; None if both are given.

        Invalid settings raise `BadInput`.
        """
        checks.one_of("kernel", self.kernel, kernels.KERNELS)
        if not isinstance(self.standardize, (bool, np.bool_)):
            raise checks.BadInput(f"standardize must be True or False; got {self.standardize!r}.")
        rules = set()
        for name in ("ridge", "temperature"):
            value = getattr(self, name)
            if isinstance(value, str):
                rules.add(checks.one_of(f"{name}, when it is not a number,", value, RULES))
            elif value is not None or name == "ridge":
                checks.positive(name, python_number(value))
        if len(rules) > 1:
            raise checks.BadInput(
                "ridge and temperature must be chosen by the same rule; got 'evidence' for one and "
                "'loo' for the other; give both the same."
            )
        return rules.pop() if rules else None

    def _read(self, X: Any, **options: Any) -> Any:
        """X as float64 rows, or (X, y) if `options` contains y; raises for invalid values."""
        X = without_mask("X", X)
        if "y" in options:
            options["y"] = without_mask("y", options["y"])
        data: Any = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, **options)
        table = data[0] if isinstance(data, tuple) else data
        check_finite(table, getattr(self, "feature_names_in_", None))
        return data

    def _scaled(self, inputs: np.ndarray) -> np.ndarray:
        return finite_result(RowScaling(self.input_mean_, self.input_scale_)(inputs))

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
        """Set rows, λ and τ from the content of a file, and compute all other fitted attributes."""
        self._check_settings()
        count = arrays["weights"].size if "weights" in arrays else 0
        expect(arrays, {"rows": (count, None), "labels": (count, None), "weights": (count,)})
        sizes = (count, arrays["rows"].shape[1], arrays["labels"].shape[1])
        if not all(sizes) or sizes[0] > MOST_ROWS or np.min(arrays["weights"]) <= 0:
            raise BadFile(
                f"must have 1 to {MOST_ROWS:,} rows with weights above zero; got no rows, too many "
                f"rows, or weights that are not above zero"
            )
        if set(facts) != {"one_output", "temperature", "ridge"}:
            raise BadFile("must have the facts of a fitted estimator; got other entries")
        checks.positive("ridge", facts["ridge"])
        checks.positive("temperature", facts["temperature"])
        if not isinstance(facts["one_output"], bool) or (facts["one_output"] and sizes[2] != 1):
            raise BadFile("must say how many outputs it has; got no consistent number")
        self.n_features_in_, self.one_output_ = sizes[1], facts["one_output"]
        self.temperature_, self.ridge_ = float(facts["temperature"]), float(facts["ridge"])
        rows = merge_rows(arrays["rows"], arrays["labels"], arrays["weights"])
        self.rows_, self.labels_, self.weights_ = rows
        self._solve(self._distinct_inputs())
