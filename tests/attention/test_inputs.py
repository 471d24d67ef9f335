"""What operators accept: any type of real numbers, and masks whose meaning is not in doubt."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from attnlens.attention import OPERATORS, MultiHead
from attnlens.core.checks import BadInput

every_operator = pytest.mark.parametrize("name", sorted(OPERATORS))
QUERY, KEY = np.array([[1, 0], [0, 1], [1, 1]]), np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
VALUE = np.array([[1, 0], [2, 1], [0, 1], [1, 1]])  # integers whose means are fractions


@pytest.fixture(autouse=True)
def unchecked_types():
    """Switch off the type checks at run time: the tests below pass other types than the annotated
    ones."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def reference(name: str, **settings):
    return np.asarray(OPERATORS[name](*(np.float64(x) for x in (QUERY, KEY, VALUE)), **settings))


@every_operator
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, bool, object])
def test_integers_are_not_truncated(name: str, dtype: type):
    value = VALUE.astype(bool) if dtype is bool else VALUE
    exact = OPERATORS[name](*(np.float64(x) for x in (QUERY, KEY, value)))
    everything = OPERATORS[name](*(x.astype(dtype) for x in (QUERY, KEY, value)))
    assert everything.dtype == jnp.float64
    np.testing.assert_array_equal(everything, exact)
    values_only = OPERATORS[name](QUERY.astype(np.float64), KEY.astype(np.float64), value)
    np.testing.assert_array_equal(values_only, exact)


@every_operator
@pytest.mark.filterwarnings("ignore:iterative. not converged")
@pytest.mark.parametrize("number", [2**40, -(2**60)])
def test_integers_of_more_than_32_bits_do_not_wrap(name: str, number: int):
    """In the default mode of JAX integers have 32 bits; these numbers would become 0."""
    value = VALUE * number
    with jax.enable_x64(False):
        output = OPERATORS[name](QUERY, KEY, value)
        expected = OPERATORS[name](QUERY, KEY, np.float32(value))
    np.testing.assert_array_equal(output, expected)


@every_operator
def test_a_temperature_is_one_number(name: str):
    """An array would be broadcast along the features or the tokens."""
    for bad in (np.array([1.0, 2.0]), jnp.ones((3, 1)), [1.0, 2.0, 3.0, 4.0]):
        with pytest.raises(BadInput, match="temperature must be one number"):
            reference(name, temperature=bad)
        with pytest.raises(BadInput, match="temperature must be one number"):
            jax.jit(lambda scale: OPERATORS[name](QUERY, KEY, VALUE, temperature=scale))(
                jnp.asarray(bad)
            )


def test_the_offset_of_sigmoid_attention_is_one_number():
    with pytest.raises(BadInput, match="offset must be one number"):
        reference("sigmoid", offset=np.arange(4.0))


def test_integers_take_the_type_of_the_other_operands():
    query, key = QUERY.astype(np.float32), KEY.astype(np.float32)
    assert OPERATORS["softmax"](query, key, VALUE.astype(np.int8)).dtype == jnp.float32


@every_operator
def test_a_mask_must_be_boolean(name: str):
    seen = np.array([[True, True, False, True]])
    exact = reference(name, mask=seen)
    np.testing.assert_array_equal(reference(name, mask=jnp.asarray(seen)), exact)
    np.testing.assert_array_equal(reference(name, mask=seen.tolist()), exact)
    additive = np.where(seen, 0.0, -np.inf)
    np.testing.assert_array_equal(reference(name, mask=additive == 0), exact)
    for mask in (additive, additive.astype(np.float32), seen.astype(int), seen.astype(float)):
        with pytest.raises(BadInput, match="mask must be boolean"):
            reference(name, mask=mask)
        with pytest.raises(BadInput, match="mask must be boolean"):
            jax.jit(lambda mask: OPERATORS[name](QUERY, KEY, VALUE, mask=mask))(mask)


@every_operator
@pytest.mark.filterwarnings("ignore:iterative. not converged")
@pytest.mark.parametrize("place", range(3))
def test_arrays_that_are_masked_complex_text_or_dates_raise(name: str, place: int):
    operands = [np.float64(x) for x in (QUERY, KEY, VALUE)]
    with_none = operands[place].astype(object)
    with_none[with_none == 1] = None
    bad = [
        np.ma.masked_array(operands[place], operands[place] == 1),
        operands[place] + 1j,
        jnp.asarray(operands[place] + 1j),
        operands[place].astype(str),
        operands[place].astype("datetime64[s]"),
        with_none,
    ]
    for values in bad[:-1]:
        with pytest.raises(BadInput):
            OPERATORS[name](*operands[:place], values, *operands[place + 1 :])
    # None is read as NaN and reaches the result of every query that reads this entry.
    missing = OPERATORS[name](*operands[:place], bad[-1], *operands[place + 1 :])
    assert np.isnan(missing).any()


@every_operator
@pytest.mark.parametrize("bad", [np.float32(-1), np.array(0.0), jnp.array(-1.0), np.array(np.nan)])
def test_temperatures_of_any_type_must_be_positive(name: str, bad):
    with pytest.raises(BadInput, match="temperature must be"):
        reference(name, temperature=bad)


def test_ridges_of_any_type_must_be_positive():
    for bad in (np.float32(-1), np.array(0.0), jnp.array(-1.0), -1):
        with pytest.raises(BadInput, match="ridge must be"):
            OPERATORS["cme"](*(np.float64(x) for x in (QUERY, KEY, VALUE)), ridge=bad)


def test_heads_take_integers_and_boolean_masks():
    layer: Any = MultiHead(jax.random.key(0), dim=2, heads=1)
    tokens = VALUE.astype(np.int8)
    np.testing.assert_array_equal(
        layer(tokens, tokens, tokens), layer(*3 * [tokens.astype(np.float64)])
    )
    with pytest.raises(BadInput, match="mask must be boolean"):
        layer(tokens, tokens, tokens, mask=np.zeros((4, 4)))
    with pytest.raises(BadInput, match="no masked entries"):
        layer(np.ma.masked_array(tokens, tokens == 1), tokens, tokens)
