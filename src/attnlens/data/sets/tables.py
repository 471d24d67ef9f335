"""Small tables that come with scikit-learn; none of them is downloaded."""

from __future__ import annotations

import numpy as np

from attnlens.core import checks
from attnlens.data.dataset import Dataset, deduplicated

TABLES: dict[str, tuple[str, bool, str, str]] = {
    "breast-cancer": (
        "load_breast_cancer",
        True,
        "UCI Breast Cancer Wisconsin (Diagnostic)",
        "CC BY 4.0 (UCI)",
    ),
    "diabetes": (
        "load_diabetes",
        False,
        "Efron, Hastie, Johnstone and Tibshirani, Least Angle Regression",
        "distributed with scikit-learn (BSD); no licence of its own is stated",
    ),
    "iris": ("load_iris", True, "UCI Iris (Fisher, 1936)", "CC BY 4.0 (UCI)"),
    "wine": ("load_wine", True, "UCI Wine recognition", "CC BY 4.0 (UCI)"),
}
"""By name: (loader in sklearn.datasets, whether labels are classes, source, licence)."""


def table(name: str) -> Dataset:
    """A table by name, unscaled: "breast-cancer", "diabetes", "iris" or "wine".

    >>> print(table("wine"))
    wine: 178 rows of (13,), 3 classes
    """
    loader, classes, source, licence = TABLES[checks.one_of("name", name, TABLES)]
    from sklearn import datasets

    loaded = getattr(datasets, loader)()
    labels = np.asarray(loaded["target"], np.int64 if classes else float)
    names = tuple(map(str, loaded["target_names"])) if classes else ()
    rows = np.asarray(loaded["data"], float)
    source = f"{source}, as in scikit-learn"
    return deduplicated(Dataset(name, "rows", rows, labels, names, source, licence))
