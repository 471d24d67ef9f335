"""The base class of estimators with self-attention over the features of a table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from attnlens.core import checks

from . import feature_attention
from .estimator_files import BadFile, SaveLoadMixin
from .feature_attention import Shape
from .weighted_rows import (
    RowScaling,
    check_finite,
    finite_result,
    flatten_tokens,
    python_number,
    without_mask,
)

LARGEST_SEED = 2**31 - 1  # random seeds up to this are valid in NumPy and in JAX


class AttentionEstimator(SaveLoadMixin, BaseEstimator):
    """Base class of `AttentionClassifier` and `AttentionRegressor`.

    It holds what they share: settings, training, input checks, saving and loading.
    """

    _loss: Any  # a function (outputs, Weighted) -> loss of one row, set by subclasses

    def __init__(
        self,
        *,
        token_dim: int | None = None,
        width: int = 8,
        hidden: int = 16,
        layers: int = 1,
        l2: float = 1e-2,
        steps: int = 300,
        learning_rate: float = 0.03,
        batch_size: int | None = None,
        starts: int = 1,
        random_state: Any = 0,
    ):
        self.token_dim = token_dim
        self.width = width
        self.hidden = hidden
        self.layers = layers
        self.l2 = l2
        self.steps = steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.starts = starts
        self.random_state = random_state

    @property
    def network_(self) -> feature_attention.FeatureAttention:
        """The trained network, a function of the tokens of one row, for use with instruments."""
        from attnlens.networks.layout import Layout

        check_is_fitted(self)
        return Layout.of(self._shape().recipe()).restore(self.vector_)

    def tokens(self, X: Any) -> np.ndarray:
        """The rows of X, standardised, as inputs of `network_`: (n, tokens, token_dim).

        If the network has more tokens than a row, the row is padded with zero tokens.
        """
        return self._shape().read(self._scaled(X))

    def attention(self, X: Any) -> np.ndarray:
        """Attention weights on the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        weights : ndarray of shape (n_samples, layers, tokens, tokens)
            Axis 2 is the query token, axis 3 the key token; the sum over key tokens is one. Tokens
            of features come first; the tokens after them are padding, the same for every row.
        """
        inputs = self._scaled(X)
        return feature_attention.attention(self._shape(), self.vector_, inputs)

    # -- settings --------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        """Raise an error for invalid settings."""
        for name in ("width", "hidden", "layers", "steps", "starts"):
            checks.whole(name, getattr(self, name), at_least=1)
        for name in ("token_dim", "batch_size"):
            if getattr(self, name) is not None:
                checks.whole(name, getattr(self, name), at_least=1)
        checks.positive("learning_rate", python_number(self.learning_rate))
        l2 = python_number(self.l2)
        if not (isinstance(l2, (int, float)) and math.isfinite(l2) and l2 >= 0):
            raise checks.BadInput(f"l2 must be a finite number of at least 0; got {l2!r}.")

    def _shape(self) -> Shape:
        """The sizes of the network for the features and outputs seen in `fit`."""
        features, token_dim = self.n_features_in_, self.token_dim
        if token_dim is not None and features % token_dim:
            raise checks.BadInput(
                f"token_dim must divide the number of features; got {features} features and "
                f"token_dim={token_dim}."
            )
        sizes = (self.width, self.hidden, self.layers, self._outputs())
        return Shape(features, token_dim, *(int(size) for size in sizes))

    def _outputs(self) -> int:
        raise NotImplementedError

    # -- inputs and outputs ----------------------------------------------------------------------

    def _read(self, X: Any, **options: Any) -> Any:
        """X as float64 rows, or (X, y) if `options` contains y; raises for invalid values."""
        X = flatten_tokens(without_mask("X", X), self.token_dim)
        if "y" in options:
            options["y"] = without_mask("y", options["y"])
        data: Any = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, **options)
        table = data[0] if isinstance(data, tuple) else data
        check_finite(table, getattr(self, "feature_names_in_", None))
        return data

    def _train(self, inputs: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> None:
        """Standardise the inputs, train, and set the fitted attributes."""
        self.input_mean_, self.input_scale_ = self._scaling(inputs, weights)
        scaled = RowScaling(self.input_mean_, self.input_scale_)(inputs)
        seed = int(check_random_state(self.random_state).randint(LARGEST_SEED - self.starts))
        self.vector_, self.loss_ = feature_attention.train(
            self._shape(),
            scaled,
            labels,
            weights,
            loss=self._loss,
            l2=float(self.l2),
            steps=int(self.steps),
            learning_rate=float(self.learning_rate),
            batch=self.batch_size and int(self.batch_size),
            seeds=range(seed, seed + int(self.starts)),
        )

    def _scaling(self, inputs: np.ndarray, weights: np.ndarray) -> RowScaling:
        """The mean and scale of each feature.

        With `token_dim`, coordinate i of all tokens of a row has the same mean and scale.
        """
        if self.token_dim is None:
            return RowScaling.of(inputs, weights)
        tokens = inputs.reshape(-1, self.token_dim)
        length = inputs.shape[1] // self.token_dim
        mean, scale = RowScaling.of(tokens, np.repeat(weights, length))
        return RowScaling(np.tile(mean, length), np.tile(scale, length))

    def _scaled(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        inputs = self._read(X, reset=False)
        return finite_result(RowScaling(self.input_mean_, self.input_scale_)(inputs))

    def _raw(self, X: Any) -> np.ndarray:
        """The network's outputs, (n, outputs)."""
        inputs = self._scaled(X)
        return finite_result(feature_attention.outputs(self._shape(), self.vector_, inputs))

    # -- files -----------------------------------------------------------------------------------

    def _facts(self) -> dict[str, Any]:
        return {"loss": self.loss_}

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "vector": self.vector_,
            "input_mean": self.input_mean_,
            "input_scale": self.input_scale_,
        }

    def _restore_network(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Set the fitted attributes of network and inputs from the content of a file.

        Attributes of the outputs (such as `classes_`) must be set before: they give the network's
        size.
        """
        self._check_settings()
        features = arrays["input_mean"].shape[0]
        if not features or not isinstance(facts.get("loss"), float):
            raise BadFile("must have features and a training loss; got no features or no loss")
        self.n_features_in_ = features
        # The parameters are counted without creating the network: a file with settings of a huge
        # network must not allocate memory.
        if arrays["vector"].shape != (self._shape().parameters,):
            raise BadFile("has a network of another size than its settings")
        self.vector_, self.loss_ = arrays["vector"], facts["loss"]
        self.input_mean_, self.input_scale_ = arrays["input_mean"], arrays["input_scale"]
