"""The contract of `test_arrays` for training, landscapes, scores, samples and core statistics.

Arrays of other types with the same numbers give the answer for float64. Arrays that do not hold
numbers raise `BadInput` with one sentence; for functions in `MARKED`, the answer may instead be NaN
or infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import attnlens
from array_forms import BITS, EXACT, FLOATS, UNUSABLE, frame
from attnlens import networks
from attnlens.core import mean_reading, slopes
from attnlens.core.checks import BadInput
from attnlens.core.heterogeneity import heterogeneity
from attnlens.core.statistics import judge, judge_exactly, log_of_mean, rank_correlations
from attnlens.core.verdicts import Region
from attnlens.data import Dataset
from attnlens.instruments import c2st, calibration_of, connect, interpolate
from attnlens.instruments.transfer.scores import h_score, leep, left_out_leep, log_me

pytest.importorskip("pandas", reason="needs pandas")
pytest.importorskip("sklearn", reason="needs scikit-learn")

RANDOM = np.random.default_rng(3)
TABLE = RANDOM.integers(-4, 5, size=(24, 3)).astype(float)
SQUARE = np.arange(9.0).reshape(3, 3)
TARGETS = TABLE[:, :1] + 1
CLASSES = np.arange(24) % 2
DRAWS = RANDOM.normal(size=(24, 19, 3))
BASELINE = partial(networks.Baseline, features=3, hidden=2)
WIDE = partial(networks.Baseline, features=3, hidden=2, outputs=3)


@pytest.fixture(autouse=True)
def as_users_have_it() -> Iterator[None]:
    """Switch off the type checks at run time, because the tests pass other types than the annotated
    ones. Also use the default promotion rules of JAX, which are stricter in other tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
    jaxtyping.config.update("jaxtyping_disable", False)


def trained(inputs: Any, targets: Any) -> Any:
    fitted = networks.fit(BASELINE, inputs, targets, steps=2)
    return np.where(np.array(fitted.status) == "diverged", np.nan, fitted.vectors.T)


def stationary(inputs: Any) -> Any:
    settings = {"l2": 0.1, "starts": 1, "max_steps": 200}
    result = networks.stationary_points(BASELINE, inputs, TARGETS, **settings)
    return [point.loss for point in result.points] or [np.nan]


def rows(**changes: Any) -> Any:
    settings = {"inputs": TABLE, "labels": CLASSES, "classes": ("no", "yes"), **changes}
    data = Dataset("mine", "rows", source="me", licence="none", **settings)
    return np.column_stack([data.array, data.labels])


def bowl(w: Any, data: Any = None) -> Any:
    return jnp.sum((w - 1) ** 2) if data is None else jnp.mean((data @ w) ** 2)


def curved(params: Any, data: Any = None) -> Any:
    result = attnlens.curvature(bowl, params, data, steps=0)
    return [result.loss, result.largest, result.smallest, result.trace.value]


def heights(*arguments: Any, **settings: Any) -> Any:
    plane: Any = attnlens.surface(bowl, *arguments, points=3, **settings)
    return plane.values


def path(curve: Any) -> Any:
    return [reading.value for reading in curve.readings]


def told_apart(sample: Any) -> float:
    from sklearn.neighbors import KNeighborsClassifier

    return c2st(sample, TABLE + 1, classifier=KNeighborsClassifier(1)).value


def ranked(latent: Any, draws: Any, tokens: Any) -> Any:
    result = calibration_of(latent, draws, tokens)
    return np.column_stack([result.ranks, result.distance_ranks])


def part(judged: Any) -> Any:
    return [judged.estimate, judged.low, judged.high, judged.p_support]


class Subject(NamedTuple):
    """A function of one array, and an array of small whole numbers to call it with."""

    function: Callable[[Any], Any]
    numbers: np.ndarray = TABLE


QUICK: dict[str, Subject] = {
    "fit, inputs": Subject(lambda x: trained(x, TARGETS)),
    "fit, targets": Subject(lambda y: trained(TABLE, y), TARGETS),
    "Dataset, inputs": Subject(lambda x: rows(inputs=x)),
    "curvature, data": Subject(lambda x: curved(np.ones(3), x)),
    "c2st": Subject(told_apart),
    "calibration_of, latent": Subject(lambda z: ranked(z, DRAWS, TABLE[:, :, None])),
    "log_me, features": Subject(lambda x: log_me(x, TARGETS)),
    "log_me, targets": Subject(lambda y: log_me(TABLE, y)),
    "h_score": Subject(lambda x: h_score(x, CLASSES)),
    "leep": Subject(lambda p: leep(p, CLASSES), np.eye(3)[np.arange(24) % 3]),
    "left_out_leep": Subject(lambda p: left_out_leep(p, CLASSES), np.eye(3)[np.arange(24) % 3]),
    "slopes": Subject(lambda y: slopes([0, 1, 2], y)),
    "rank_correlations": Subject(lambda y: rank_correlations([0, 1, 2], y)),
    "log_of_mean": Subject(log_of_mean, TABLE + 5),
    "mean_reading": Subject(lambda x: [mean_reading(x).value, mean_reading(x).standard_error]),
    "judge": Subject(lambda x: part(judge("x", x, Region(high=1.0)))),
    "judge_exactly": Subject(lambda x: part(judge_exactly("x", x, Region(high=1.0)))),
    "heterogeneity": Subject(
        lambda x: list(heterogeneity(x, np.ones((24, 3)), np.full((24, 3), 8)) or [np.nan])
    ),
}
SLOW: dict[str, Subject] = {
    "surface, data": Subject(lambda x: heights(np.ones(3), x)),
    "stationary_points": Subject(stationary),
    "curvature, params": Subject(curved, SQUARE),
    "surface, params": Subject(heights, SQUARE),
    "surface, directions": Subject(
        lambda d: heights(SQUARE, directions=[SQUARE, d]), SQUARE.T + np.eye(3)
    ),
    "interpolate, end": Subject(lambda w: path(interpolate(bowl, SQUARE, w, points=3)), SQUARE + 1),
    "connect, end": Subject(
        lambda w: path(connect(bowl, SQUARE, w, points=3, steps=1).curved), SQUARE + 1
    ),
}
EVERYTHING = QUICK | SLOW
PARAMETERS = [name for name in SLOW if name.partition(", ")[2] in ("params", "directions", "end")]
# These functions, like JAX, read a list as a tree of single numbers.
TREES = [name for name in EVERYTHING if name.startswith(("fit", "stationary"))] + [
    name for name in EVERYTHING if name.startswith(("curvature", "surface", "inter", "connect"))
]
# Forms that are no parameters: only floating-point arrays are parameters; whole numbers and objects
# are settings of a model.
NO_PARAMETERS = ("lists", "objects", "pandas float64", "pandas Float32", "Python bools")
# Functions in whose answer a missing or infinite number shows as NaN or infinity, never as a finite
# number.
MARKED = ("fit", "stationary", "c2st", "slopes", "rank", "log_of", "mean_r", "judge", "hetero")
MISSING = ("NaN", "infinity", "None", "pandas NA")


@cache
def reference(name: str, of_bits: bool = False) -> np.ndarray:
    return np.asarray(EVERYTHING[name].function(table(name, of_bits)), float)


def table(name: str, of_bits: bool = False) -> np.ndarray:
    numbers = EVERYTHING[name].numbers
    return (numbers > numbers.min()).astype(float) if of_bits else numbers


def is_refused(name: str, form: str) -> bool:
    if name in PARAMETERS:
        return form in NO_PARAMETERS or form not in FLOATS
    return name in TREES and form in ("lists", "Python bools")


def one_sentence(name: str, array: Any) -> None:
    with pytest.raises(BadInput) as caught:
        EVERYTHING[name].function(array)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 250
    assert "dtype(" not in message


def pairs(forms: Any) -> Any:
    return [
        pytest.param(name, form, marks=[pytest.mark.slow] * (name in SLOW), id=f"{name}-{form}")
        for name in EVERYTHING
        for form in forms
    ]


@pytest.mark.parametrize(("name", "form"), pairs(EXACT))
def test_the_same_numbers_give_the_same_answer(name: str, form: str):
    array = EXACT[form](table(name))
    if is_refused(name, form):
        one_sentence(name, array)
        return
    answer = np.asarray(EVERYTHING[name].function(array), float)
    np.testing.assert_array_equal(answer, reference(name))
    assert np.isfinite(answer).all()


@pytest.mark.parametrize(("name", "form"), pairs(BITS))
def test_truth_values_and_unsigned_numbers_are_numbers(name: str, form: str):
    array = BITS[form](table(name, True))
    if is_refused(name, form):
        one_sentence(name, array)
        return
    answer = np.asarray(EVERYTHING[name].function(array), float)
    np.testing.assert_array_equal(answer, reference(name, True))


@pytest.mark.parametrize(("name", "form"), pairs(UNUSABLE))
def test_what_holds_no_numbers_raises_or_is_marked(name: str, form: str):
    if form == "no columns" and name.endswith(", data"):
        pytest.skip("the loss, a function of the user, raises")
    if (name, form) in (("Dataset, inputs", "no columns"), ("h_score", "no columns")):
        pytest.skip("no columns are no features")
    if (name, form) == ("log_me, features", "no columns"):
        pytest.skip("the evidence of no features is a number")
    array = UNUSABLE[form](table(name))
    empty = form in ("no rows", "no columns")
    if name.startswith(MARKED) and (form in MISSING or empty):
        try:
            answer = np.asarray(EVERYTHING[name].function(array), float)
        except BadInput:
            return
        assert not answer.size or not np.isfinite(answer).all()
        return
    one_sentence(name, array)


SIZES = [1e-310, 1e-200, 1e200]
# For functions of numbers in any unit: the power with which the unit enters the answer.
UNITS = {"slopes": 1, "mean_reading": 1, "rank_correlations": 0, "h_score": 0}


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_numbers_of_extreme_size_give_the_answer_or_raise(name: str, size: float):
    try:
        answer = np.asarray(EVERYTHING[name].function(table(name) * size), float)
    except BadInput:
        return
    tolerance = 1e-2 if size < 1e-300 else 1e-10  # denormal numbers have few digits
    expected = reference(name)
    np.testing.assert_allclose(answer / size ** UNITS[name], expected, rtol=tolerance, atol=1e-9)


@pytest.mark.parametrize("name", ["fit, inputs", "fit, targets"])
def test_training_refuses_what_single_precision_cannot_hold(name: str):
    with pytest.raises(BadInput, match="must fit into float32; got numbers as large as"):
        EVERYTHING[name].function(table(name) * 1e200)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_ranks_among_draws_do_not_depend_on_units(size: float):
    tokens = TABLE[:, :, None]
    with pytest.raises(BadInput, match="between 1e-100 and 1e100"):
        ranked(TABLE * size, DRAWS * size, tokens)
    power = 2.0 ** (200 if size > 1 else -200)  # a power of two changes no digit
    np.testing.assert_array_equal(
        ranked(TABLE * power, DRAWS * power, tokens), ranked(TABLE, DRAWS, tokens)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"latent": TABLE[:, :2]},
        {"latent": TABLE[:, 0]},
        {"draws": DRAWS[:5]},
        {"draws": DRAWS[:, :0]},
        {"tokens": TABLE},
        {"tokens": TABLE[:3, :, None]},
        {"draws": np.ma.masked_array(DRAWS, DRAWS > 1)},
        {"tokens": np.where(TABLE > 3, np.nan, TABLE)[:, :, None]},
        {"seed": -1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_ranks_need_latents_draws_and_tokens_that_belong_together(changes: Any):
    named_arrays = {"latent": TABLE, "draws": DRAWS, "tokens": TABLE[:, :, None], **changes}
    with pytest.raises(BadInput):
        calibration_of(**named_arrays)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (TARGETS[:, 0], "one entry per output"),
        (TARGETS, "one entry per output"),
        (np.ones((24, 3, 1)), "one entry per output"),
        (np.ones((24, 0)), "at least one number per sample"),
    ],
    ids=["a vector", "one column", "a column per sample", "no columns"],
)
def test_a_target_is_not_repeated_for_several_outputs(targets: Any, message: str):
    with pytest.raises(BadInput, match=message):
        networks.fit(WIDE, TABLE, targets, steps=1)


def test_whole_numbers_of_objects_stay_class_numbers():
    """A class is an index and must stay an integer: a floating-point number cannot be an index."""
    classes = np.arange(24) % 3
    fitted = partial(networks.fit, WIDE, TABLE, loss="softmax", steps=2)
    expected = fitted(classes).vectors
    for labels in (classes.astype(object), frame("Int64")(classes[:, None])["c0"]):
        np.testing.assert_array_equal(fitted(labels).vectors, expected)


def test_whole_numbers_that_would_wrap_in_single_precision_raise():
    data = np.full((24, 3), 2**40)
    with pytest.raises(BadInput, match="must fit into 32 bits in float32"):
        attnlens.curvature(bowl, np.ones(3), data, precision="float32", steps=0)
