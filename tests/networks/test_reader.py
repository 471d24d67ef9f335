"""`Reader` against an example computed by hand, its symmetry, and its error messages."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.networks import Reader, ReaderInputs, count
from network_builders import blank, put

EPS = np.finfo(float).eps


def test_a_forward_pass_by_hand():
    # One head and keys of dimension one: the query is q_h = 2·3·1 = 6 in key space, the temperature
    # is √4 = 2, and the logits are 3·(0, 1).
    model = blank(Reader, key_dim=1, value_dim=2, query_dim=1, head_dim=4, read_dim=1, hidden=1)
    model = put(
        model,
        query=[[[2.0], [0.0], [0.0], [0.0]]],
        key=[[[3.0], [0.0], [0.0], [0.0]]],
        value=[[[1.0, -1.0]]],
        skip=[[10.0, 1.0]],
        first=[[0.0, 0.0]],
        second=[[5.0]],
        second_bias=[0.25],
    )
    inputs = ReaderInputs(
        jnp.array([[0.0], [1.0]]), jnp.array([[1.0, 2.0], [3.0, 1.0]]), jnp.ones(1)
    )
    weight = np.exp(3.0) / (1 + np.exp(3.0))
    read = (1 - weight) * (1 - 2) + weight * (3 - 1)
    hidden = np.log(2) / 5  # softplus of zero at sharpness 5
    expected = 10 * read + 1 + 5 * hidden + 0.25
    # Some twenty operations on numbers up to 30.
    np.testing.assert_allclose(model(inputs), [expected], atol=20 * 30 * EPS)
    np.testing.assert_allclose(model.represent(inputs), [read], atol=20 * 3 * EPS)


def test_parameter_counts_by_hand():
    sizes = {"key_dim": 3, "value_dim": 2, "heads": 2, "head_dim": 4, "hidden": 5, "outputs": 1}
    with_query = blank(Reader, query_dim=3, read_dim=6, **sizes)
    # w_Q 2·4·3, w_K 2·4·3, w_V 2·6·2; features 2·6 + 3 = 15: w₀ 15, w₁ 75, b₁ 5, w₂ 5, b₂ 1.
    assert count(with_query) == 24 + 24 + 24 + 15 + 75 + 5 + 5 + 1
    # Learned queries: w_Q 2·4; features 2·2 = 4; positions 7·(3 + 2).
    pooled = blank(Reader, max_length=7, **sizes)
    assert count(pooled) == 8 + 24 + 8 + 4 + 20 + 5 + 5 + 1 + 35


def test_order_does_not_matter_without_positions_and_does_with_them():
    tokens = jax.random.normal(jax.random.key(1), (6, 2))
    for places, symmetric in ((0, True), (6, False)):
        model = Reader(jax.random.key(0), key_dim=2, value_dim=2, heads=2, max_length=places)
        forth, back = (model(ReaderInputs(x, x)) for x in (tokens, tokens[::-1]))
        # A mean over six tokens in another order: six roundings of numbers near one.
        assert (abs(float((forth - back)[0])) < 100 * EPS) == symmetric


def test_tokens_outside_the_mask_are_not_read():
    model = Reader(jax.random.key(0), key_dim=2, value_dim=2)
    tokens = jax.random.normal(jax.random.key(1), (4, 2))
    longer = jnp.concatenate([tokens, jnp.full((2, 2), 7.0)])
    masked = model(ReaderInputs(longer, longer, mask=jnp.arange(6) < 4))
    np.testing.assert_allclose(masked, model(ReaderInputs(tokens, tokens)), atol=100 * EPS)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"heads": 0}, "heads"), ({"operator": "none"}, "operator"), ({"hidden": -1}, "hidden")],
)
def test_wrong_settings_raise_a_sentence_with_their_name(wrong: dict, name: str):
    with pytest.raises(BadInput, match=name):
        Reader(jax.random.key(0), **{"key_dim": 2, **wrong})


def test_more_tokens_than_positions_raise_one_sentence():
    model = Reader(jax.random.key(0), key_dim=1, max_length=2)
    with pytest.raises(BadInput, match="positions for 2 tokens; got 3"):
        model(ReaderInputs(jnp.ones((3, 1)), jnp.ones((3, 1))))
