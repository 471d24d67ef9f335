"""Self-attention over the features of a table, as scikit-learn estimators.

The features of a row are its tokens (`feature_attention`). Rows are a weighted set, standardised by
their weighted means and standard deviations (`weighted_rows`). Training uses every row at every
step (`networks.fit`: Adam with a cosine schedule of the learning rate). So it is deterministic, and
a row of weight k has the same effect as k copies of the row.

There is no `partial_fit`: the learning rate follows a schedule to its end, and features are scaled
by the means and standard deviations of all rows. A later batch of rows would change this scaling,
and the network would fit the last batch best. For rows that arrive in parts,
`KernelAttentionRegressor.partial_fit` is exact.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from .attention_estimator import AttentionEstimator
from .estimator_files import BadFile, classes_from_json, classes_to_json, expect, expect_scaling
from .feature_attention import weighted_softmax, weighted_squared
from .weighted_rows import RowScaling, finite_result, merge_rows, sample_weights


class AttentionClassifier(ClassifierMixin, AttentionEstimator):
    """Classifier with self-attention over the features of a row.

    Each feature x_i becomes a token u_i x_i + b_i (Gorishniy et al., Revisiting deep learning
    models for tabular data, 2021), and

        scores = w₂ φ(w₁ vec(tokens after attention)),   P(class | row) = softmax(scores).

    The network is trained on the softmax loss with Adam.

    Parameters
    ----------
    token_dim : int or None, default=None
        None makes each feature one token. An integer t divides a row into tokens of t numbers
        each; X may then have the shape (n_samples, tokens, t).
    width : int, default=8
        The number of coordinates of an embedded token.
    hidden : int, default=16
        The number of hidden units after attention.
    layers : int, default=1
        The number of attention layers.
    l2 : float, default=1e-2
        The penalty on the squared norm of all parameters. It is the first parameter to tune:
        noisy tables need more than the default, clean ones less.
    steps : int, default=300
        The number of steps of Adam.
    learning_rate : float, default=0.03
        The initial learning rate of Adam; it decreases to zero along a cosine.
    batch_size : int or None, default=None
        The number of rows per step, drawn without replacement in each epoch. None uses all rows at
        every step; only then is a weight exactly a repetition.
    starts : int, default=1
        The number of random initialisations; the network with the lowest training loss is kept.
    random_state : int, RandomState or None, default=0
        Determines the initialisations; the same integer gives the same network.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    n_features_in_ : int
        The number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the features, if X was a data frame.
    loss_ : float
        The training loss at the end.
    network_ : FeatureAttention
        The trained network, a function of the tokens of one row.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), ["low", "low", "high", "high"]
    >>> AttentionClassifier(steps=50).fit(X, y).predict([[0.5], [2.5]]).tolist()
    ['low', 'high']
    """

    _loss = staticmethod(weighted_softmax)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), default=None
            A weight of k is equivalent to the row given k times.
        """
        self._check_settings()
        X, y = self._read(X, y=y)
        check_classification_targets(y)
        weights = sample_weights(sample_weight, len(X))
        # A class whose rows all have weight zero is not among `classes_`.
        self.classes_, numbers = np.unique(y[weights > 0], return_inverse=True)
        self._shape()
        rows = merge_rows(X[weights > 0], numbers[:, None].astype(float), weights[weights > 0])
        self._train(rows.inputs, rows.labels[:, 0].astype(np.int32), rows.weights)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        best = np.argmax(self._raw(X), 1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, classes), in the order of `classes_`."""
        logits = self._raw(X)
        odds = np.exp(logits - logits.max(1, keepdims=True))
        return odds / odds.sum(1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities (n, classes)."""
        logits = self._raw(X)
        logits = logits - logits.max(1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))

    def decision_function(self, X: Any) -> np.ndarray:
        """The log odds of the second class (n,) if there are two classes, else the logits."""
        logits = self._raw(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def _outputs(self) -> int:
        return len(self.classes_)

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "classes": classes_to_json(self.classes_)}

    def _restore(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        expect(arrays, {"vector": (None,), "input_mean": (None,), "input_scale": (None,)})
        expect_scaling(arrays, "input")
        self.classes_ = classes_from_json(facts.get("classes"))
        self._restore_network(facts, arrays)


class AttentionRegressor(MultiOutputMixin, RegressorMixin, AttentionEstimator):
    """Regressor with self-attention over the features of a row.

        ŷ = mean(y) + std(y) · w₂ φ(w₁ vec(tokens after attention))

    The network is trained on the squared loss of standardised y with Adam.

    Parameters
    ----------
    token_dim : int or None, default=None
        None makes each feature one token. An integer t divides a row into tokens of t numbers
        each; X may then have the shape (n_samples, tokens, t).
    width, hidden, layers : int, default=8, 16, 1
        Coordinates of an embedded token, hidden units, and attention layers.
    l2 : float, default=1e-2
        The penalty on the squared norm of all parameters, the first parameter to tune.
    steps, learning_rate : int, float, default=300, 0.03
        The number of steps of Adam, and its initial learning rate, which decreases to zero along a
        cosine.
    batch_size : int or None, default=None
        The number of rows per step; None uses all rows at every step, and only then is a weight
        exactly a repetition.
    starts : int, default=1
        The number of random initialisations; the network with the lowest training loss is kept.
    random_state : int, RandomState or None, default=0
        Determines the initialisations; the same integer gives the same network.

    Attributes
    ----------
    n_features_in_ : int
        The number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the features, if X was a data frame.
    loss_ : float
        The training loss at the end.
    network_ : FeatureAttention
        The trained network, a function of the tokens of one row.

    Examples
    --------
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = AttentionRegressor(steps=100).fit(X, X[:, 0] ** 2)
    >>> model.predict(X).shape
    (20,)
    """

    _loss = staticmethod(weighted_squared)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Numbers to predict.
        sample_weight : array-like of shape (n_samples,), default=None
            A weight of k is equivalent to the row given k times.
        """
        self._check_settings()
        X, y = self._read(X, y=y, multi_output=True, y_numeric=True)
        weights = sample_weights(sample_weight, len(X))
        self.one_output_ = y.ndim == 1
        labels = np.asarray(y, float).reshape(len(y), -1)
        rows = merge_rows(X, labels, weights)
        self.target_mean_, self.target_scale_ = RowScaling.of(rows.labels, rows.weights)
        self._shape()
        scaled = RowScaling(self.target_mean_, self.target_scale_)(rows.labels)
        self._train(rows.inputs, scaled, rows.weights)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The predicted numbers, (n,) or (n, outputs) like y."""
        raw = self._raw(X)
        predicted = finite_result(raw * self.target_scale_ + self.target_mean_)
        return predicted[:, 0] if self.one_output_ else predicted

    def _outputs(self) -> int:
        return len(self.target_mean_)

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "one_output": self.one_output_}

    def _arrays(self) -> dict[str, np.ndarray]:
        target = {"target_mean": self.target_mean_, "target_scale": self.target_scale_}
        return {**super()._arrays(), **target}

    def _restore(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        names = ("vector", "input_mean", "input_scale", "target_mean", "target_scale")
        expect(arrays, dict.fromkeys(names, (None,)))
        expect_scaling(arrays, "input")
        expect_scaling(arrays, "target")
        self.target_mean_, self.target_scale_ = arrays["target_mean"], arrays["target_scale"]
        self.one_output_ = facts.get("one_output")
        single = len(self.target_mean_) == 1
        if not isinstance(self.one_output_, bool) or (self.one_output_ and not single):
            raise BadFile("must say how many outputs it has; got no consistent number")
        self._restore_network(facts, arrays)
