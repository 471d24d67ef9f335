"""What people would otherwise use, beside attention: the models that `advise` decides between.

    linear              logistic or ridge regression, standardised, its penalty chosen by
                        cross-validation; of tokens, on their mean
    gradient-boosting   scikit-learn's histogram gradient-boosted trees; tokens are flattened
    baseline            the plain network of lens B
    self-attention      the self-attention network of lens B
    transformer         `FeatureTransformer`: columns or positions with an identity of their own
    uniform-attention   the same transformer, every weight of attention 1/L: what attention adds is
                        the difference between the two; it is not a contender
    the user's own      estimators of scikit-learn, on the same numbers as the others
    tf-idf              of texts: logistic or ridge regression on weighted word counts

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
# From the cheapest to train and to explain to the most expensive: of models that cannot be
# distinguished the first one is recommended. Models of the user's own come last.
CHEAPEST_FIRST = (LINEAR, TF_IDF, BOOSTING, "baseline", "self-attention", TRANSFORMER)
ATTENTION = ("self-attention", TRANSFORMER)
# At the learning rate of the small networks, and without warm-up, transformers diverge. A network
# of this size overfits with so few rows: a seventh of them is held out, and the parameters with the
# lowest loss there are kept.
TRANSFORMER_TRAINING = {"learning_rate": 5e-3, "validation": 1 / 7}
WARMUP_SHARE = 0.1  # the share of the training steps with a rising learning rate
PENALTIES = 10.0 ** np.arange(-3, 4)  # of ridge regression on standardised columns


def estimators(data: Labelled, seed: int) -> dict[str, Any]:
    """The estimators of scikit-learn for these data."""
    return {LINEAR: linear(data), BOOSTING: boosting(data, seed)}


def transformers(data: Labelled) -> dict[str, Any]:
    """Recipes for the transformer and for the same one with uniform attention."""
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
    """Standardised linear regression; of tokens (flattened by the caller), on their mean."""
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
    """A recipe for the transformer, or for the same one without what attention adds."""
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
    """From the cheapest on; names that are not ours last, in the order given."""
    known = [name for name in CHEAPEST_FIRST if name in names]
    return known + [name for name in names if name not in known]


def tf_idf(data: Labelled) -> Any:
    """Linear regression on weighted counts of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    return make_pipeline(TfidfVectorizer(ngram_range=(1, 2), min_df=2), _linear_model(data))
