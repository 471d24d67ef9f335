"""`FeatureTransformer`, whose tokens are columns: identities of columns, sets without identities,
and uniform attention."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.networks import FeatureTransformer

ROW = jnp.array([0.3, -1.2, 0.7, 2.0])


def test_columns_have_an_identity_and_tokens_of_a_set_have_none():
    columns = FeatureTransformer(jax.random.key(0), features=4)
    assert abs(float((columns(ROW) - columns(ROW[::-1]))[0])) > 1e-3
    tokens = jax.random.normal(jax.random.key(1), (5, 3))
    reads_a_set = FeatureTransformer(jax.random.key(0), features=5, token_dim=3, identity=False)
    np.testing.assert_allclose(reads_a_set(tokens), reads_a_set(tokens[::-1]), atol=1e-5)


def test_uniform_attention_does_not_depend_on_queries_and_keys():
    """The network has the same parameters as with attention, but queries and keys have no
    effect."""
    model = FeatureTransformer(jax.random.key(0), features=4, uniform_attention=True)
    attending = FeatureTransformer(jax.random.key(0), features=4)

    def changed(network: FeatureTransformer) -> float:
        other = eqx.tree_at(lambda m: m.layers[0].query, network, network.layers[0].query * 3)
        return abs(float((other(ROW) - network(ROW))[0]))

    assert changed(model) == 0.0
    assert changed(attending) > 1e-4
    for one, two in zip(jax.tree.leaves(model), jax.tree.leaves(attending), strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(BadInput, match="multiple of heads"):
        FeatureTransformer(jax.random.key(0), features=4, width=10, heads=4)
