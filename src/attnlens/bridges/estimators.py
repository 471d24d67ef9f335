"""Self-attention over a table's features, as scikit-learn estimators.

A row's features are its tokens (`feature_tokens`); rows are a weighted set, centred and scaled by
their weighted means (`rows`); training takes every row at every step (`networks.fit`, Adam, the
learning rate falling along a cosine), so it is deterministic and a weight is a repetition.

There is no `partial_fit`: training runs along a schedule to its end, with means and scales of all
rows, and a later batch would change what the earlier ones were scaled by and be what the network
remembers best. Where rows come in parts, `KernelAttentionRegressor.partial_fit` is exact.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from attnlens import checks

from . import feature_tokens, rows
from .feature_tokens import Shape, weighted_softmax, weighted_squared
from .saving import BadFile, Saved, classes_from_json, classes_to_json, expect, expect_scaling

MOST = 2**31 - 1  # a seed below this is one everywhere


class AttentionEstimator(Saved, BaseEstimator):
    """What the classifier and the regressor share: settings, training, and the way in and out."""

    _loss: Any  # (outputs, Weighted) -> number

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
    def network_(self) -> feature_tokens.FeatureTokens:
        """The trained network, a function of one row of tokens: what instruments take."""
        from attnlens.networks.parameters import Layout

        check_is_fitted(self)
        return Layout.of(self._shape().recipe()).restore(self.vector_)

    def tokens(self, X: Any) -> np.ndarray:
        """Rows as `network_` takes them, (n, tokens, token_dim): scaled, with constant tokens."""
        return self._shape().read(self._scaled(X))

    def attention(self, X: Any) -> np.ndarray:
        """Attention weights (n, layers, tokens, tokens): who looks (rows, each sums to one) at
        whom (columns). Features come first; the tokens after them are constants."""
        inputs = self._scaled(X)
        return feature_tokens.attention(self._shape(), self.vector_, inputs)

    # -- settings --------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        """One sentence for each setting that no fit takes."""
        for name in ("width", "hidden", "layers", "steps", "starts"):
            checks.whole(name, getattr(self, name), at_least=1)
        for name in ("token_dim", "batch_size"):
            if getattr(self, name) is not None:
                checks.whole(name, getattr(self, name), at_least=1)
        checks.positive("learning_rate", rows.number(self.learning_rate))
        l2 = rows.number(self.l2)
        if not (isinstance(l2, (int, float)) and math.isfinite(l2) and l2 >= 0):
            raise checks.BadInput(f"l2 must be a finite number of at least 0, but {l2!r} came.")

    def _shape(self) -> Shape:
        """The network for the features and outputs seen in `fit`."""
        features, token_dim = self.n_features_in_, self.token_dim
        if token_dim is not None and features % token_dim:
            raise checks.BadInput(
                f"token_dim must divide the number of features, but {features} features and "
                f"token_dim={token_dim} came."
            )
        sizes = (self.width, self.hidden, self.layers, self._outputs())
        return Shape(features, token_dim, *(int(size) for size in sizes))

    def _outputs(self) -> int:
        raise NotImplementedError

    # -- in and out ------------------------------------------------------------------------------

    def _read(self, X: Any, **given: Any) -> Any:
        """X as float64 rows (with `y` as scikit-learn reads it), or one sentence."""
        X = rows.flat(X, self.token_dim)
        read: Any = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, **given)
        table = read[0] if isinstance(read, tuple) else read
        rows.finite(table, getattr(self, "feature_names_in_", None))
        return read

    def _train(self, inputs: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> None:
        """Centre and scale the inputs, train, keep the parameters."""
        self.input_mean_, self.input_scale_ = self._scaling(inputs, weights)
        scaled = rows.Scaling(self.input_mean_, self.input_scale_)(inputs)
        seed = int(check_random_state(self.random_state).randint(MOST - self.starts))
        self.vector_, self.loss_ = feature_tokens.train(
            self._shape(), scaled, labels, weights, loss=self._loss, l2=float(self.l2),
            steps=int(self.steps), learning_rate=float(self.learning_rate),
            batch=self.batch_size and int(self.batch_size),
            seeds=range(seed, seed + int(self.starts)),
        )  # fmt: skip

    def _scaling(self, inputs: np.ndarray, weights: np.ndarray) -> rows.Scaling:
        """Of each feature; of each of a token's numbers over all tokens, where tokens are given."""
        if self.token_dim is None:
            return rows.Scaling.of(inputs, weights)
        tokens = inputs.reshape(-1, self.token_dim)
        length = inputs.shape[1] // self.token_dim
        mean, scale = rows.Scaling.of(tokens, np.repeat(weights, length))
        return rows.Scaling(np.tile(mean, length), np.tile(scale, length))

    def _scaled(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        inputs = self._read(X, reset=False)
        return rows.told(rows.Scaling(self.input_mean_, self.input_scale_)(inputs))

    def _raw(self, X: Any) -> np.ndarray:
        """The network's outputs for each row."""
        inputs = self._scaled(X)
        return rows.told(feature_tokens.outputs(self._shape(), self.vector_, inputs))

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
        """Everything but the outputs, which must be known by now."""
        self._check_settings()
        features = arrays["input_mean"].shape[0]
        if not features or not isinstance(facts.get("loss"), float):
            raise BadFile("has no features, or does not say what its training loss was")
        self.n_features_in_ = features
        # A count first: settings that ask for a giant are refused before one is thought of.
        if arrays["vector"].shape != (self._shape().parameters,):
            raise BadFile("has a network of another size than its settings say")
        self.vector_, self.loss_ = arrays["vector"], facts["loss"]
        self.input_mean_, self.input_scale_ = arrays["input_mean"], arrays["input_scale"]


class AttentionClassifier(ClassifierMixin, AttentionEstimator):
    """Self-attention over a row's features, trained on the softmax loss.

    X is (n, features), y (n,). Each feature x_i becomes a token u_i x_i + b_i (Gorishniy et al.,
    Revisiting deep learning models for tabular data, 2021), and

        scores = w₂ φ(w₁ vec(tokens after attention)),   P(class | row) = softmax(scores).

    token_dim: None makes each feature a token; t reads a row as tokens of t numbers each, and X
        may then have the shape (n, tokens, t).
    width, hidden, layers: numbers a token is embedded as; hidden units; attention layers.
    l2: penalty on the squared norm of all parameters; the first thing to search over: noisy tables
        want more than the default, clean ones less.
    steps, learning_rate: of Adam; the rate falls to zero along a cosine.
    batch_size: rows a step, drawn in passes; None takes all of them, and only then is a weight
        exactly a repetition.
    starts: trained from so many random starts; the one with the lowest training loss is kept.
    random_state: where the starts come from; the same number gives the same network.

    After `fit`: `classes_`, `n_features_in_`, `feature_names_in_` (from a data frame), `loss_` (the
    training loss at the end), `network_` and `attention(X)`.

    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), ["low", "low", "high", "high"]
    >>> AttentionClassifier(steps=50).fit(X, y).predict([[0.5], [2.5]]).tolist()
    ['low', 'high']
    """

    _loss = staticmethod(weighted_softmax)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows X with classes y; a weight of k counts as the row given k times."""
        self._check_settings()
        X, y = self._read(X, y=y)
        check_classification_targets(y)
        weights = rows.weights(sample_weight, len(X))
        # As with repetitions, a class of weight zero was never seen.
        self.classes_, numbers = np.unique(y[weights > 0], return_inverse=True)
        self._shape()
        told = rows.merged(X[weights > 0], numbers[:, None].astype(float), weights[weights > 0])
        self._train(told.inputs, told.labels[:, 0].astype(np.int32), told.weights)
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
        """Logarithms of the probabilities, (n, classes)."""
        logits = self._raw(X)
        logits = logits - logits.max(1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))

    def decision_function(self, X: Any) -> np.ndarray:
        """The log odds of the second class, (n,), where there are two; the logits otherwise."""
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
    """Self-attention over a row's features, trained on the squared loss of y, centred and scaled.

        ŷ = mean(y) + std(y) · w₂ φ(w₁ vec(tokens after attention))

    X is (n, features), y (n,) or (n, outputs).
    Parameters are those of `AttentionClassifier`; y may have several columns. After `fit`:
    `n_features_in_`, `feature_names_in_`, `loss_`, `network_` and `attention(X)`, as there.

    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = AttentionRegressor(steps=100).fit(X, X[:, 0] ** 2)
    >>> model.predict(X).shape
    (20,)
    """

    _loss = staticmethod(weighted_squared)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on rows X with numbers y; a weight of k counts as the row given k times."""
        self._check_settings()
        X, y = self._read(X, y=y, multi_output=True, y_numeric=True)
        weights = rows.weights(sample_weight, len(X))
        self.one_output_ = y.ndim == 1
        labels = np.asarray(y, float).reshape(len(y), -1)
        told = rows.merged(X, labels, weights)
        self.target_mean_, self.target_scale_ = rows.Scaling.of(told.labels, told.weights)
        self._shape()
        scaled = rows.Scaling(self.target_mean_, self.target_scale_)(told.labels)
        self._train(told.inputs, scaled, told.weights)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The predicted numbers, in the shape of y."""
        raw = self._raw(X)
        predicted = rows.told(raw * self.target_scale_ + self.target_mean_)
        return predicted[:, 0] if self.one_output_ else predicted

    def _outputs(self) -> int:
        return len(self.target_mean_)

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "one_output": self.one_output_}

    def _arrays(self) -> dict[str, np.ndarray]:
        own = {"target_mean": self.target_mean_, "target_scale": self.target_scale_}
        return {**super()._arrays(), **own}

    def _restore(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        names = ("vector", "input_mean", "input_scale", "target_mean", "target_scale")
        expect(arrays, dict.fromkeys(names, (None,)))
        expect_scaling(arrays, "input")
        expect_scaling(arrays, "target")
        self.target_mean_, self.target_scale_ = arrays["target_mean"], arrays["target_scale"]
        self.one_output_ = facts.get("one_output")
        single = len(self.target_mean_) == 1
        if not isinstance(self.one_output_, bool) or (self.one_output_ and not single):
            raise BadFile("does not say how many outputs it has")
        self._restore_network(facts, arrays)
