"""Measurements of the layers of a small random encoder with known properties."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens import integrations
from attnlens.core.checks import BadInput
from attnlens.instruments.transfer.condition import predicts
from attnlens.integrations.transformers import minilm
from attnlens.integrations.transformers.minilm import SentenceEncoder
from small_bert import encoder, reviews, rows

pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra `transformers`)")


def without_order(one: SentenceEncoder) -> SentenceEncoder:
    """The encoder with zero position embeddings."""
    bare = eqx.tree_at(lambda m: m.places, one.model, jnp.zeros_like(one.model.places))
    return dataclasses.replace(one, model=bare)


def uniform_attention(one: SentenceEncoder) -> SentenceEncoder:
    """The encoder with zero queries, so that all attention weights are equal."""
    bare = eqx.tree_at(
        lambda m: [part for layer in m.layers for part in layer.query],
        one.model,
        replace_fn=jnp.zeros_like,
    )
    return dataclasses.replace(one, model=bare)


def test_order_matters_only_with_position_embeddings():
    one, texts = encoder(), reviews()
    sensitivity = integrations.permutation_sensitivity(one, texts)
    assert sensitivity.at == (0.0, 1.0, 2.0)
    bag = integrations.permutation_sensitivity(without_order(one), texts)
    # The rounding is that of means of 32 tokens in another order, after two layers of 60 products,
    # squared.
    rounding = (2 * 60 * 32 * np.finfo(float).eps) ** 2
    assert all(r.value <= rounding for r in bag.readings)
    assert all(r.value > 1e6 * rounding and r.standard_error > 0 for r in sensitivity.readings)


def test_uniform_attention_has_the_error_of_a_sample_mean():
    sizes, length = (2, 4, 8, 16), 32
    one, texts = uniform_attention(encoder()), reviews()
    curves = integrations.token_rates(one, texts, sizes=sizes, length=length, draws=16)
    assert len(curves) == 2
    every = jax.jit(jax.vmap(one.model.represent))(jnp.asarray(one.read(texts, length)[0]))
    for layer, curve in enumerate(curves):
        assert curve.slope is not None
        low, high = (curve.slope.value + k * curve.slope.standard_error for k in (-4, 4))
        assert low < -0.5 < high
        # After the finite-population correction, the exact squared error of a mean of m of L values
        # is σ²/m.
        values = jax.vmap(partial(one.model.heads_of, one.model.layers[layer].value))(every[layer])
        values = np.asarray(values)  # (texts, heads, length, dim)
        squares = values.var(2).mean((1, 2)) / (values.mean(2) ** 2).mean((1, 2))
        for m, reading in zip(sizes, curve.readings, strict=True):
            # The root of a mean of 16 draws is smaller than the root of its expectation. The
            # relative difference is at most 1/(8·16) of the squared coefficient of variation, which
            # is at most 2: 2 %.
            expected = np.sqrt(squares / m).mean()
            assert abs(reading.value - expected) <= 4 * reading.standard_error + 0.02 * expected


def test_rows_of_attention_maps_sum_to_one():
    one, text = encoder(), str(reviews(2).inputs[0])
    maps = integrations.attention_maps(one, text)
    assert maps.shape == (2, 2, 32, 32)
    np.testing.assert_allclose(maps.sum(-1), 1, rtol=0, atol=32 * np.finfo(float).eps)
    surface = integrations.attention_map(one, text, layer=2, head=1)
    np.testing.assert_array_equal(surface.values, maps[1, 0])
    assert surface.pieces[0] == "[CLS]"
    with pytest.raises(BadInput, match="layer must be from 1 to 2"):
        integrations.attention_map(one, text, layer=3, head=1)
    even = integrations.attended_share(uniform_attention(one), reviews(4, words=6))
    # The logarithm of 8 equal weights is rounded 8 times, at order one.
    assert all(abs(r.value - 1) <= 50 * np.finfo(float).eps for r in even.readings)
    shares = integrations.attended_share(one, reviews(4, words=6))
    assert all(0 < r.value < 1 for r in shares.readings)


@pytest.mark.slow
def test_transfer_and_probe_of_each_layer():
    one, texts = encoder(), reviews(120)
    layers = one.pooled(*one.read(texts))
    results = integrations.transfers(layers, texts.labels, coordinates=4, resamples=24)
    assert len(results) == 3
    assert set(predicts(results)) >= {"LogME"}
    largest, trace = integrations.probe_curvature(layers, texts.labels, coordinates=4, parts=2)
    for high, whole in zip(largest.readings, trace.readings, strict=True):
        # λ_max ≤ trace ≤ 5/4, because p (1 − p) ≤ 1/4 and five coordinates have mean square one.
        assert 0 < high.value <= whole.value <= 5 / 4


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda one: integrations.token_rates(one, reviews(), length=39), "a smaller length"),
        (
            lambda one: integrations.token_rates(one, reviews(), sizes=(4,), length=16),
            "at least two",
        ),
        (lambda one: integrations.permutation_sensitivity(one, rows()), "reads texts"),
        (lambda one: integrations.transfers(np.ones((3, 2)), np.ones(2)), "layers, texts, width"),
        (
            lambda one: integrations.probe_curvature(np.ones((3, 4, 2)), np.ones(4)),
            "hold two labels",
        ),
        (lambda one: minilm.embed(reviews(2), layer=5, encoder=one), "from 0 to 2"),
    ],
    ids=["length", "sizes", "rows", "shape", "labels", "layer"],
)
def test_invalid_settings_raise_one_sentence(measure, message):
    with pytest.raises(BadInput, match=message):
        measure(encoder())
