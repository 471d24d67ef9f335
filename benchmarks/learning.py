"""Learning curves, against scikit-learn's `learning_curve` and a joblib loop over its networks.

4 models × 8 sample sizes × 16 folds, 16 features, 16 hidden units, 600 Adam steps on batches of 32
rows: 512 networks by

    attnlens                    attnlens.learning_curve with baseline, known attention,
                                self-attention and two layers of self-attention, one worker process
                                per core
    scikit-learn learning_curve with `MLPRegressor(16 units, Adam, batches of 32)` on all cores
    joblib over scikit-learn    the same fits, without the other work of `learning_curve`

All contenders take the same number of Adam steps for every network. scikit-learn counts passes over
the data, so a small subclass of its regressor sets the number of passes at size n to the number of
steps divided by the batches per pass. scikit-learn has no attention, so its networks are plain:
only the rows of the baseline and of known attention compare the same kind of network. It runs 2 of
the 16 folds and one network in place of the four models, and its time is scaled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.contest import CORES, Contender, Run, Work
from benchmarks.networks import pool

ROWS, FEATURES, HIDDEN, FOLDS, BATCH = 544, 16, 16, 16, 32
SIZES = (16, 32, 64, 96, 128, 192, 256, 510)
STEPS = 600
BLOCK = len(SIZES) * FOLDS // 2  # networks trained together
MODELS = ("baseline", "known-attention", "self-attention", "multi-layer")


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    tokens = random.normal(size=(ROWS, 4, FEATURES // 4))
    y = tokens[:, 0, 0] * tokens[:, 1, 0] + tokens[:, 2, 1] + 0.1 * random.normal(size=ROWS)
    return tokens, y


def task(errors: Any) -> dict[str, float]:
    """The mean of squared errors at the largest size, given as shares of the variance of y."""
    return {"test error": float(np.mean(np.asarray(errors)))}


def curve_attnlens(models: Sequence[str], steps: int = STEPS) -> Run:
    from attnlens import learning_curve

    x, y = data()
    training = {"steps": steps, "batch": BATCH, "map": pool().map, "block": BLOCK}

    def call() -> Any:
        return learning_curve(
            x,
            y,
            models=models,
            sizes=SIZES,
            folds=FOLDS,
            hidden=HIDDEN,
            attention=np.abs(x),
            training=training,
        )

    def accuracy(curves: Any) -> dict[str, float]:
        return task([curves[name].readings[-1].value for name in models])

    return Run(call, accuracy, STEPS / steps)


def regressor(steps: int) -> Any:
    """scikit-learn's network, trained for `steps` Adam steps whatever the number of rows."""
    from sklearn.neural_network import MLPRegressor

    class Steps(MLPRegressor):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            self.batch_size: Any = min(BATCH, len(X))
            self.max_iter = max(1, round(steps / -(-len(X) // BATCH)))
            self.n_iter_no_change = self.max_iter + 1
            return super().fit(X, y)

    return Steps(hidden_layer_sizes=(HIDDEN,), learning_rate_init=1e-2, tol=0.0, random_state=0)


def sklearn_parts(folds: int) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    from attnlens.instruments.samples.labelled import labelled, split_folds

    # scikit-learn warns that training has not converged: intended. Workers inherit this filter.
    os.environ["PYTHONWARNINGS"] = "ignore"
    x, y = data()
    return x.reshape(len(x), -1), y, split_folds(labelled(x, y), FOLDS, 0)[:folds]


def curve_sklearn(models: Sequence[str], steps: int = STEPS, folds: int = 2) -> Run:
    from sklearn.model_selection import learning_curve

    x, y, parts = sklearn_parts(folds)
    splits = [(fold.train, fold.test) for fold in parts]

    def call() -> Any:
        return learning_curve(
            regressor(steps),
            x,
            y,
            train_sizes=np.array(SIZES),
            cv=splits,
            n_jobs=CORES,
            scoring="neg_mean_squared_error",
        )

    def accuracy(answer: Any) -> dict[str, float]:
        return task(-answer[2][-1] / y.var())

    return Run(call, accuracy, len(models) * FOLDS / folds * STEPS / steps)


def _one(x: Any, y: Any, train: Any, test: Any, steps: int) -> float:
    network = regressor(steps).fit(x[train], y[train])
    return float(((network.predict(x[test]) - y[test]) ** 2).mean())


def curve_joblib(models: Sequence[str], steps: int = STEPS, folds: int = 2) -> Run:
    from joblib import Parallel, delayed

    x, y, parts = sklearn_parts(folds)
    run = Parallel(n_jobs=CORES)

    def call() -> Any:
        return run(
            delayed(_one)(x, y, fold.train[:size], fold.test, steps)
            for size in SIZES
            for fold in parts
        )

    def accuracy(answer: Any) -> dict[str, float]:
        return task(np.array(answer[-folds:]) / y.var())

    return Run(call, accuracy, len(models) * FOLDS / folds * STEPS / steps)


MAKE = "benchmarks.learning:curve_"


def work(name: str, models: Sequence[str], description: str, why: str = "") -> Work:
    return Work(
        name=name,
        group="training",
        task=f"{description}, 8 sample sizes, 16 folds, 600 Adam steps each; scikit-learn's plain "
        "networks run on 2 folds and are scaled.",
        contenders=[
            Contender("attnlens", MAKE + "attnlens", threads="one"),
            Contender("scikit-learn learning_curve", MAKE + "sklearn", threads="one"),
            Contender("joblib over scikit-learn", MAKE + "joblib", threads="one"),
        ],
        setting={"models": list(models)},
        quick={"steps": 150},
        repeats=2,
        aims={"scikit-learn learning_curve": 10, "joblib over scikit-learn": 10},
        why=why,
    )


# From profiles on one core.
WHY = (
    "scikit-learn's networks are plain; a layer of attention costs about as much again as the "
    "rest, most of it in projections of 5 × 5, which XLA multiplies at 3 GFLOP/s."
)
WORKS = [
    work(
        "Learning curves", MODELS, "Baseline, known attention, self-attention and two layers", WHY
    ),
    work("Learning curve, baseline", MODELS[:1], "The plain network"),
    work("Learning curve, self-attention", MODELS[2:3], "Self-attention", WHY),
    work("Learning curve, two layers", MODELS[3:], "Two layers of self-attention", WHY),
]
