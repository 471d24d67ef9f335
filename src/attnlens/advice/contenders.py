"""The models that `advise` compares: attention, and what people would use instead.

    linear              logistic or ridge regression on standardised inputs (for tokens, on their
                        mean); the penalty of ridge regression is chosen by cross-validation
    gradient-boosting   scikit-learn's histogram gradient-boosted trees; tokens are flattened
    baseline            the network without attention of lens B (ICLR 2021 submission)
    self-attention      the self-attention network of lens B
    transformer         `FeatureTransformer`: each column or position has its own embedding
    uniform-attention   the same transformer with every attention weight equal to 1/(number of
                        tokens); it is not a contender: its difference to the transformer shows what
                        attention adds
    the user's own      estimators of scikit-learn, on the same numbers as the others
    tf-idf              for texts: logistic or ridge regression on weighted word counts

All are trained on the same rows of the same folds. The two networks of lens B also have learning
curves; the others are trained on all rows that a fold leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnlens.core import checks
from attnlens.instruments.samples import learners, pipelines
from attnlens.instruments.samples.labelled import Labelled
from attnlens.networks import FeatureTransformer

LINEAR, BOOSTING, TRANSFORMER = "linear", "gradient-boosting", "transformer"
UNIFORM, TF_IDF = "uniform-attention", "tf-idf"
# Ordered from the cheapest to train and to explain to the most expensive: among models whose errors
# cannot be distinguished the first one is recommended. The user's own models come last.
CHEAPEST_FIRST = (LINEAR, TF_IDF, BOOSTING, "baseline", "self-attention", TRANSFORMER)
ATTENTION = ("self-attention", TRANSFORMER)
# Transformers diverge at the learning rate of the small networks and without warm-up. They overfit
# on few rows, so a seventh of the rows is held out, and the parameters with the lowest loss on
# these rows are kept.
TRANSFORMER_TRAINING = {"learning_rate": 5e-3, "validation": 1 / 7}
WARMUP_SHARE = 0.1  # the share of the training steps with a rising learning rate
PENALTIES = 10.0 ** np.arange(-3, 4)  # tried for ridge regression on standardised columns


def estimators(data: Labelled, seed: int) -> dict[str, Any]:
    """The estimators of scikit-learn for these data."""
    return {LINEAR: linear(data), BOOSTING: boosting(data, seed)}


def transformers(data: Labelled) -> dict[str, Any]:
    """Functions that make the transformer with learned and with uniform attention, by name."""
    return {TRANSFORMER: transformer(data), UNIFORM: transformer(data, uniform_attention=True)}


def check_own_models(models: Any) -> dict[str, Any]:
    """The user's own estimators by name; raises `BadInput` for anything else."""
    if models is None:
        return {}
    if not isinstance(models, Mapping):
        raise checks.BadInput(
            f"models must be a mapping from names to scikit-learn estimators, such as "
            f"{{'forest': RandomForestClassifier()}}; got a {type(models).__name__}."
        )
    for name, model in models.items():
        if not isinstance(name, str) or name in (*CHEAPEST_FIRST, UNIFORM):
            raise checks.BadInput(
                f"a model of your own must have a name that no other contender has; got {name!r}; "
                f"rename it."
            )
        if isinstance(model, type) or not pipelines.is_estimator(model):
            what = (
                f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
            )
            raise checks.BadInput(
                f"model {name!r} must be a scikit-learn estimator with fit and predict; got {what}."
            )
    return dict(models)


def linear(data: Labelled) -> Any:
    """Linear or logistic regression on standardised inputs; for tokens (flattened by the caller),
    on their mean."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    steps: list[Any] = [StandardScaler(), _linear_model(data)]
    if data.tokens:
        shape = data.inputs.shape[1:]
        steps.insert(0, FunctionTransformer(partial(_mean_token, shape=shape)))
    return make_pipeline(*steps)


def _mean_token(rows: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return rows.reshape(len(rows), *shape).mean(1)


def _linear_model(data: Labelled) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeCV

    return LogisticRegression(max_iter=1000) if data.classes else RidgeCV(PENALTIES)


def boosting(data: Labelled, seed: int) -> Any:
    """Gradient-boosted trees with scikit-learn's own settings."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if data.classes else HistGradientBoostingRegressor
    return kind(random_state=seed)


def transformer(data: Labelled, uniform_attention: bool = False) -> Any:
    """A function that makes the transformer, with learned or with uniform attention."""
    return partial(
        FeatureTransformer,
        features=data.inputs.shape[1],
        token_dim=data.inputs.shape[2] if data.tokens else 1,
        outputs=max(data.classes, 1),
        layers=1,
        uniform_attention=uniform_attention,
    )


def training_of(name: str, training: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `fit` for a contender."""
    if name not in (TRANSFORMER, UNIFORM):
        return dict(training)
    steps = training.get("steps", learners.TRAINING["steps"])
    own = {**TRANSFORMER_TRAINING, "warmup": round(WARMUP_SHARE * steps)}
    return {**own, **training}


def by_cost(names: Sequence[str]) -> list[str]:
    """Names sorted from the cheapest model on; the user's own names last, in the order given."""
    known = [name for name in CHEAPEST_FIRST if name in names]
    return known + [name for name in names if name not in known]


def tf_idf(data: Labelled) -> Any:
    """Logistic or ridge regression on tf-idf counts of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    return make_pipeline(TfidfVectorizer(ngram_range=(1, 2), min_df=2), _linear_model(data))
