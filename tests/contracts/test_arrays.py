"""The contract of every public function that takes arrays: the answer for float64, or one sentence.

Arrays of other types with the same numbers give the same answer, bit for bit where the function
computes in float64. Arrays that do not hold numbers raise `BadInput`. If all numbers are extremely
large or small and units do not matter, the answer is that for ordinary numbers, or `BadInput`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import attnlens
from array_forms import BITS, EXACT, FLOATS, UNUSABLE
from attnlens.attention import OPERATORS, linear, softmax
from attnlens.core.checks import BadInput
from attnlens.instruments import wealth
from attnlens.worlds import LinearRegression, Nuts, RandomFeatures

pytest.importorskip("pandas", reason="needs pandas")
pytest.importorskip("sklearn", reason="needs scikit-learn")

ROWS = 24
TABLE = np.random.default_rng(3).integers(-4, 5, size=(ROWS, 3)).astype(float)
TOKENS = (jnp.asarray(TABLE),) * 3
OTHER = np.random.default_rng(4).normal(size=(ROWS, 2))
TARGET = TABLE[:, 0] - 0.5 * TABLE[:, 1] + OTHER[:, 0]


@pytest.fixture(autouse=True)
def unchecked_types() -> Iterator[None]:
    """Switch off the type checks at run time: the tests below pass other types than the annotated
    ones."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def curve(X: Any, y: Any = TARGET) -> Any:
    from sklearn.linear_model import LinearRegression

    models = {"linear": LinearRegression()}
    return attnlens.learning_curve(X, y, models=models, sizes=(8, 12), folds=3, task="regression")


def errors(X: Any, y: Any = TARGET) -> Any:
    return np.array(curve(X, y).errors["linear"])


def centred(tokens: Any) -> Any:
    array = np.asarray(tokens, float)
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        return array - array.mean(0) + 1


def transfer(features: Any, pretraining: Any, downstream: Any) -> Any:
    result = attnlens.condition_number(features, pretraining, downstream, resamples=24)
    return [result.kappa.value, *result.interval, result.explained, result.error.value]


def sheet(features: Any) -> Any:
    answers = attnlens.transfer(features, OTHER, TARGET, resamples=24).answers
    return [reading.value for answer in answers for reading in answer.readings.values()]


def predictions(estimator: Any, X: Any) -> Any:
    return estimator.fit(X, TARGET).predict(X)


def probabilities(X: Any) -> Any:
    classifier = attnlens.AttentionClassifier(steps=5)
    return classifier.fit(X, TARGET > 0).predict_proba(X)


# Tests of order read integers as categories, so these functions are tested with floating-point
# arrays only.
ORDER: dict[str, Callable[[Any], Any]] = {
    "exchangeability": lambda tokens: attnlens.exchangeability(tokens, permutations=99).value,
    "wealth": lambda tokens: wealth(tokens).log_values,
}
QUICK: dict[str, Callable[[Any], Any]] = {
    "equivariance": lambda x: attnlens.equivariance(centred, x, permutations=4).value,
    "known_condition_number": lambda x: attnlens.known_condition_number(TABLE[0], mixing=x),
    "attention_maps": lambda x: [w for _, w in attnlens.attention_maps(x).panels],
    "condition_number, features": lambda x: transfer(x, OTHER, TARGET),
    "condition_number, pretraining": lambda x: transfer(OTHER, x, TARGET),
    "learning_curve, X": errors,
}
SLOW: dict[str, Callable[[Any], Any]] = {
    "condition_number, downstream": lambda x: transfer(OTHER, TARGET, x),
    "transfer": sheet,
    "KernelAttentionRegressor": lambda x: predictions(
        attnlens.KernelAttentionRegressor(temperature=2.0, ridge=0.1), x
    ),
    "AttentionRegressor": lambda x: predictions(attnlens.AttentionRegressor(steps=5), x),
    "AttentionClassifier": probabilities,
}
EVERYTHING = ORDER | QUICK | SLOW


@cache
def reference(name: str) -> np.ndarray:
    return np.asarray(EVERYTHING[name](TABLE), float)


def of(names: Any, forms: Any, slow: bool) -> Any:
    marks = [pytest.mark.slow] if slow else []
    pairs = [(name, form) for name in names for form in forms]
    return [pytest.param(*pair, marks=marks, id="-".join(pair)) for pair in pairs]


@pytest.mark.parametrize(
    ("name", "form"),
    of(QUICK, EXACT, False) + of(ORDER, FLOATS, False) + of(SLOW, EXACT, True),
)
def test_the_same_numbers_give_the_same_answer(name: str, form: str):
    answer = np.asarray(EVERYTHING[name](EXACT[form](TABLE)), float)
    np.testing.assert_array_equal(answer, reference(name))


# Zeros and ones with independent columns. Tests of order are left out, because they read integers
# as categories.
ONES = (np.arange(ROWS)[:, None] >> np.arange(3) & 1).astype(float)


@cache
def reference_of_ones(name: str) -> np.ndarray:
    return np.asarray(EVERYTHING[name](ONES), float)


@pytest.mark.parametrize(("name", "form"), of(QUICK, BITS, False) + of(SLOW, BITS, True))
def test_truth_values_and_unsigned_numbers_are_numbers(name: str, form: str):
    answer = np.asarray(EVERYTHING[name](BITS[form](ONES)), float)
    np.testing.assert_array_equal(answer, reference_of_ones(name))


@pytest.mark.parametrize("name", sorted(OPERATORS))
@pytest.mark.parametrize("form", ["bool", "uint8"])
def test_operators_compute_with_truth_values_and_unsigned_numbers(name: str, form: str):
    array = BITS[form](ONES)
    answer = np.asarray(OPERATORS[name](array, array, array))
    expected = np.asarray(OPERATORS[name](ONES, ONES, ONES))
    tolerance = 0 if answer.dtype == expected.dtype else 1e-4  # computed in single precision
    np.testing.assert_allclose(answer, expected, rtol=0, atol=tolerance)


# Estimators leave the conversion of their inputs to scikit-learn, which converts text and dates to
# numbers and reports complex numbers in a longer message.
ESTIMATORS = [name for name in SLOW if "Attention" in name]
OTHERS = [name for name in SLOW if name not in ESTIMATORS]
REFUSED_BY_SCIKIT_LEARN = [form for form in UNUSABLE if form in ("masked", "ragged")]


@pytest.mark.parametrize(
    ("name", "form"),
    of(ORDER | QUICK, UNUSABLE, False)
    + of(OTHERS, UNUSABLE, True)
    + of(ESTIMATORS, REFUSED_BY_SCIKIT_LEARN, True),
)
def test_what_holds_no_numbers_raises_one_sentence(name: str, form: str):
    if name in ORDER and form in ("text", "masked", "ragged"):
        pytest.skip("text is categories, masked entries are no tokens, a list is ragged")
    if (name, form) == ("learning_curve, X", "one text"):
        pytest.skip(
            "pipelines get objects as they are; scikit-learn reads the text '1' as a number"
        )
    # The checks of scikit-learn itself raise ValueError and TypeError.
    ours = (ValueError, TypeError) if "Attention" in name else BadInput
    with pytest.raises(ours) as caught:
        EVERYTHING[name](UNUSABLE[form](TABLE))
    assert len(str(caught.value).strip().splitlines()) <= (8 if "Attention" in name else 1)


# Functions whose answer does not depend on the unit of their argument. Estimators are left out:
# they treat a column whose variance underflows, below 1e-154, as constant.
UNIT_FREE = (*ORDER, "condition_number, features", "learning_curve, X", *OTHERS[1:])
# Relative tolerance by function; 1e-10 otherwise. A unit is not a power of two, so every number is
# rounded once, and the answer is a continuous function with a condition number below 1,000. A
# logistic regression is solved to a gradient of 1e-4.
ROUNDING = {"transfer": 1e-5}


@pytest.mark.parametrize(
    ("name", "size"),
    of([n for n in UNIT_FREE if n not in SLOW], ["1e-310", "1e-200", "1e200"], False)
    + of([n for n in UNIT_FREE if n in SLOW], ["1e-310", "1e-200", "1e200"], True),
)
def test_numbers_of_extreme_size_give_the_answer_or_raise(name: str, size: str):
    try:
        answer = np.asarray(EVERYTHING[name](TABLE * float(size)), float)
    except BadInput:
        return
    # Denormal numbers have few digits: multiples of 1e-310 by whole numbers keep 13 bits or more.
    tolerance = 1e-2 if size == "1e-310" else ROUNDING.get(name, 1e-10)
    np.testing.assert_allclose(answer, reference(name), rtol=tolerance, atol=tolerance)


# -- operators: they compute in the precision of what they get -----------------------------------


@cache
def attended(name: str) -> np.ndarray:
    return np.asarray(OPERATORS[name](TABLE, TABLE, TABLE))


@pytest.mark.parametrize("name", sorted(OPERATORS))
@pytest.mark.parametrize(
    "form", [pytest.param(f, marks=[pytest.mark.slow] if f != "int8" else []) for f in EXACT]
)
def test_operators_give_the_answer_in_their_precision(name: str, form: str):
    array = EXACT[form](TABLE)
    answer = np.asarray(OPERATORS[name](array, array, array))
    precision = float(np.finfo(answer.dtype).eps)
    # The answer is a sum over 24 tokens of numbers up to 4. CME amplifies errors by (24 · κ(k, k) +
    # λ)/λ, and κ(k, k) is at most (1 + 48/√3)² = 823. Half precision is computed in single
    # precision and rounded once.
    factor = 24 * 4 * (24 * 823 / 0.1 if name.startswith("cme") else 823)
    tolerance = max(precision, factor * min(precision, float(np.finfo(np.float32).eps)))
    if precision < 1e-10:
        tolerance = 0.0 if form != "float128" else factor * precision
    np.testing.assert_allclose(answer, attended(name), rtol=0, atol=4 * tolerance)


@pytest.mark.parametrize("name", sorted(OPERATORS))
@pytest.mark.parametrize("form", ["text", "one text", "complex", "dates", "masked", "ragged"])
def test_operators_refuse_what_is_not_a_number(name: str, form: str):
    for place in range(3):
        operands = [TABLE, TABLE, TABLE]
        operands[place] = UNUSABLE[form](TABLE)
        with pytest.raises(BadInput):
            OPERATORS[name](*operands)


def test_every_function_of_the_package_that_takes_an_array_is_here():
    """Every public name is tested in this file or is in the list of names that take no array."""
    no_arrays = {
        # These take worlds, functions or models instead of arrays. Their own tests pass arrays to
        # them.
        *("advise", "curvature", "from_torch", "generalisation", "inference_error", "inspect"),
        *("landscape", "representation", "stationarity", "surface", "tightening", "verify"),
        *("amortised_posterior", "calibration", "guidelines", "load", "replicate"),
        # These are records and modules.
        *("Cell", "Curve", "Reading", "Surface", "Verdict", "__version__"),
        *("attention", "data", "integrations", "networks", "worlds"),
    }
    tested = {name.partition(",")[0] for name in EVERYTHING}
    public = {name for name in dir(attnlens) if not name.startswith("_")} | {"__version__"}
    assert public - no_arrays <= tested, public - no_arrays - tested


WORLD = LinearRegression()
SEEDED: dict[str, Callable[[int], Any]] = {
    "condition_number": lambda seed: attnlens.condition_number(OTHER, OTHER, TARGET, seed=seed),
    "curvature": lambda seed: attnlens.curvature(np.sum, TARGET, seed=seed),
    "equivariance": lambda seed: attnlens.equivariance(centred, TABLE, seed=seed),
    "exchangeability": lambda seed: attnlens.exchangeability(TARGET, seed=seed),
    "generalisation": lambda seed: attnlens.generalisation(WORLD, seed=seed),
    "guidelines": lambda seed: attnlens.guidelines(TABLE, TARGET, seed=seed),
    "inference_error": lambda seed: attnlens.inference_error(softmax, WORLD, (4,), seed=seed),
    "learning_curve": lambda seed: attnlens.learning_curve(TABLE, TARGET, seed=seed),
    "stationarity": lambda seed: attnlens.stationarity({"a": None}, WORLD, seed=seed),
    "linear": lambda seed: linear(*TOKENS, features="positive", seed=seed),
    "Nuts": lambda seed: Nuts(seed=seed),
    "RandomFeatures": lambda seed: RandomFeatures(2, 3, seed=seed),
    "surface": lambda seed: attnlens.surface(np.sum, TARGET, seed=seed),
    "tightening": lambda seed: attnlens.tightening(WORLD, length=4, seed=seed),
}


@pytest.mark.parametrize("name", SEEDED)
@pytest.mark.parametrize("seed", [2**32, 2**32 + 5, 2**64, -1, 1.0, True])
def test_a_seed_that_would_give_the_numbers_of_another_raises(name: str, seed: Any):
    with pytest.raises(BadInput, match="seed must be"):
        SEEDED[name](seed)


def test_seeds_of_starts_stay_below_the_bound():
    with pytest.raises(BadInput, match=r"seed × teachers × starts must be below 2\^32"):
        attnlens.stationarity({"a": None}, WORLD, seed=2**31)


@pytest.mark.parametrize("function", [attnlens.learning_curve, attnlens.guidelines])
@pytest.mark.parametrize("size", [{"hidden": 10**12}, {"starts": 10**9}], ids=str)
def test_sizes_that_no_machine_holds_raise_before_anything_is_allocated(function: Any, size: Any):
    with pytest.raises(BadInput, match=r"must be at most 1,?0"):
        function(TABLE, TARGET, **size)


TOO_MANY: dict[str, Callable[[], Any]] = {
    "permutations of tokens": lambda: attnlens.exchangeability(TABLE, permutations=5 * 10**7),
    "permutations of inputs": lambda: attnlens.equivariance(centred, TABLE, permutations=10**9),
    "resamples": lambda: attnlens.condition_number(OTHER, OTHER, TARGET, resamples=10**9),
    "points": lambda: attnlens.surface(np.sum, TARGET, points=20_000),
}


@pytest.mark.parametrize("name", TOO_MANY)
def test_numbers_for_which_a_computation_would_not_end_raise(name: str):
    with pytest.raises(BadInput, match="must be at most"):
        TOO_MANY[name]()
