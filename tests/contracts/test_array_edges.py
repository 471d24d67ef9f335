"""Arrays that `test_arrays` does not cover: parameters, targets, settings and replicates.

NumPy's own functions drop the mask of a masked array, wrap whole numbers that are too large, and
round the square of 1e-200 to zero. Each function here gives the right answer or raises `BadInput`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import attnlens
from attnlens import networks, worlds
from attnlens.core.checks import BadInput
from attnlens.core.shares import judge_share
from attnlens.core.statistics import judge, judge_exactly, mean_reading
from attnlens.core.verdicts import Region
from attnlens.data import Dataset
from attnlens.instruments import connect, interpolate
from attnlens.integrations.sklearn.weighted_rows import RowScaling
from attnlens.runs.engines import base
from attnlens.training import streaming

HIDDEN = np.ma.masked_array([0.0, 1.0, 100.0], [False, False, True])
TABLE = np.arange(12.0).reshape(4, 3)
MASKED_TABLE = np.ma.masked_array(TABLE, TABLE > 8)
LABELS = np.array([0, 1, 0, 1])
PLAIN = np.ones(3)
BASELINE = partial(networks.Baseline, features=3, hidden=2)


def bowl(w: Any, data: Any = None) -> Any:
    return jnp.sum(w**2) if data is None else jnp.mean(data @ w) ** 2


def rows(**changes: Any) -> Dataset:
    settings = {"inputs": TABLE, "labels": LABELS, "classes": ("no", "yes"), **changes}
    return Dataset("mine", "rows", source="me", licence="none", **settings)


MASKED: dict[str, Callable[[], Any]] = {
    "curvature, params": lambda: attnlens.curvature(bowl, HIDDEN),
    "curvature, data": lambda: attnlens.curvature(bowl, PLAIN, MASKED_TABLE),
    "surface, params": lambda: attnlens.surface(bowl, {"w": HIDDEN}),
    "surface, directions": lambda: attnlens.surface(bowl, PLAIN, directions=[PLAIN, HIDDEN]),
    "interpolate": lambda: interpolate(bowl, PLAIN, HIDDEN),
    "connect": lambda: connect(bowl, HIDDEN, PLAIN),
    "fit, inputs": lambda: networks.fit(BASELINE, MASKED_TABLE, PLAIN, steps=1),
    "fit, test": lambda: networks.fit(
        BASELINE, TABLE, TABLE[:, :1], test=(TABLE, MASKED_TABLE[:, :1]), steps=1
    ),
    "Dataset, inputs": lambda: rows(inputs=MASKED_TABLE),
    "Dataset, labels": lambda: rows(labels=np.ma.masked_array(LABELS, LABELS == 1)),
    "NormalMean": lambda: worlds.NormalMean(3, prior_mean=HIDDEN),
    "FiniteMixture": lambda: worlds.FiniteMixture(means=MASKED_TABLE),
    "LinearRegression": lambda: worlds.LinearRegression(3, key_covariance=MASKED_TABLE),
    "mean_reading": lambda: mean_reading(HIDDEN),
    "judge": lambda: judge("x", HIDDEN, Region(high=2.0)),
    "judge_exactly": lambda: judge_exactly("x", HIDDEN, Region(high=2.0)),
    "judge_share": lambda: judge_share("x", HIDDEN, Region(high=2.0)),
    "a measured cell": lambda: base.compute("tiny_cells:masked", "", {"shift": 0}, (1, 2)),
}


@pytest.mark.parametrize("name", MASKED)
def test_masked_entries_are_never_taken_for_numbers(name: str):
    with pytest.raises(BadInput, match="must have no masked entries"):
        MASKED[name]()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": TABLE.astype(str)}, "must be real numbers; got text"),
        ({"inputs": TABLE + 1j}, "must be real numbers; got complex numbers"),
        ({"inputs": TABLE.astype("datetime64[s]")}, "must be real numbers; got dates"),
        ({"inputs": np.where(TABLE > 8, np.array(None, object), TABLE)}, "finite numbers"),
        ({"labels": np.array([0, None, 1, 1], object)}, "a label in every row; got None in row 1"),
        ({"labels": np.array([0, 1, np.nan, 1])}, "NaN or infinity in row 2"),
        ({"labels": np.array(["a", "b", "a", "b"])}, "must be class numbers"),
        ({"labels": np.array([0, 1, 2, 1])}, "numbers of its 2 classes, from 0 to 1; got 2"),
        ({"labels": np.array([0, 1, 0.5, 1])}, "numbers of its 2 classes, from 0 to 1; got 0.5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_data_set_holds_numbers_and_labels_of_its_classes(changes: Any, message: str):
    with pytest.raises(BadInput, match=message):
        rows(**changes)


def test_a_data_set_of_objects_and_lists_holds_their_numbers():
    for form in (TABLE.astype(object), TABLE.tolist()):
        assert rows(inputs=form).digests == rows().digests


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 3 * 10**9])
def test_whole_numbers_that_would_wrap_in_training_raise(number: int, tmp_path: Any):
    inputs = np.full((4, 3), number)
    with pytest.raises(BadInput, match="must fit into 32 bits"):
        networks.fit(BASELINE, inputs, TABLE[:, :1], steps=1)
    np.save(tmp_path / "x.npy", inputs)
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    with pytest.raises(BadInput, match="must fit into 32 bits"):
        streaming.gather(on_disk, np.arange(2), "float32")


@pytest.mark.parametrize("inputs", [TABLE + 1j, TABLE.tolist()], ids=["complex", "lists"])
def test_training_refuses_what_holds_no_rows_of_numbers(inputs: Any):
    with pytest.raises(BadInput):
        networks.fit(BASELINE, inputs, TABLE[:, :1], steps=1)


@pytest.mark.parametrize("power", [-600, 400])
def test_the_unit_of_a_target_is_the_unit_of_its_predictions(power: int):
    """Predictions scale with the target. The factor is a power of two, so no digit changes,
    although the square of 2^-600 is below the smallest float64."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    y = X[:, 0] + X[:, 1]
    model = attnlens.KernelAttentionRegressor(temperature=2.0, ridge=0.1)
    expected = np.ldexp(model.fit(X, y).predict(X), power)
    np.testing.assert_array_equal(model.fit(X, np.ldexp(y, power)).predict(X), expected)
    # The scaled targets on which an `AttentionRegressor` trains its network.
    scaling, scaled = (
        RowScaling.of(part[:, None], np.ones(30)) for part in (y, np.ldexp(y, power))
    )
    np.testing.assert_array_equal(scaled(np.ldexp(y, power)[:, None]), scaling(y[:, None]))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda w: w**2, r"must return one floating-point number; got float64 of shape \(3,\)"),
        (lambda w: jnp.sum(w > 0), "must return one floating-point number; got int"),
        (lambda w: float(np.sum(np.asarray(w) ** 2)), "loss must consist of JAX operations"),
        (lambda w: jnp.sum(w) * jnp.nan, "must be finite"),
    ],
    ids=["a vector", "a whole number", "NumPy", "NaN"],
)
def test_a_loss_that_is_not_one_number_raises(loss: Callable[..., Any], message: str):
    for instrument in (attnlens.curvature, partial(attnlens.surface, points=3)):
        with pytest.raises(BadInput, match=message):
            instrument(loss, PLAIN)
