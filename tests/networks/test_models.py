"""The models against examples computed by hand, and the activation against its closed forms."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.networks import (
    Attended,
    Baseline,
    Encoder,
    Gated,
    KnownAttention,
    MultiLayerSelfAttention,
    SelfAttention,
    Tokens,
    count,
    softplus,
)
from network_builders import blank, put

KEY = jax.random.key(0)
EPS = np.finfo(float).eps


@pytest.mark.parametrize("sharpness", [0.5, 5.0, 300.0])
def test_softplus_is_within_log_2_over_sharpness_of_relu_and_reaches_it_at_zero(sharpness: float):
    x = jnp.linspace(-50, 50, 2001)
    gap = np.asarray(softplus(x, sharpness) - jnp.maximum(x, 0))
    assert gap[1000] == pytest.approx(math.log(2) / sharpness, rel=4 * EPS)
    # Rounding of values up to 50 adds 50 ε.
    assert np.all(gap >= -50 * EPS)
    assert np.all(gap <= gap[1000] + 50 * EPS)
    # The textbook form log(1 + e^{τ₀x})/τ₀, where it does not overflow.
    safe = np.abs(np.asarray(x)) * sharpness < 500
    np.testing.assert_allclose(
        np.asarray(softplus(x, sharpness))[safe],
        np.log1p(np.exp(sharpness * np.asarray(x)[safe])) / sharpness,
        # log1p of a number near 1 + e^(τ₀x) has a relative error of a few ε, and the absolute error
        # that x itself has.
        rtol=8 * EPS,
        atol=50 * EPS,
    )


def test_softplus_has_the_right_derivatives_at_zero():
    # The derivatives are φ' = σ, φ'' = τ₀ σ(1 − σ), φ''' = τ₀² σ(1 − σ)(1 − 2σ): at x = 0 they are
    # ½, τ₀/4, 0.
    phi = lambda x: softplus(x, 5.0)  # noqa: E731 (a formula in one line)
    first = jax.grad(phi)
    second = jax.grad(first)
    zero = jnp.zeros(())
    assert float(first(zero)) == 0.5
    assert float(second(zero)) == pytest.approx(1.25, rel=4 * EPS)
    assert float(jax.grad(second)(zero)) == pytest.approx(0, abs=25 * EPS)
    s = 1 / (1 + math.exp(-5 * 0.3))
    assert float(second(jnp.asarray(0.3))) == pytest.approx(5 * s * (1 - s), rel=20 * EPS)


def test_baseline_by_hand():
    model = put(
        blank(Baseline, features=2, hidden=3, sharpness=math.inf),
        first=[[1, 0], [0, 1], [-1, -1]],
        second=[[2, 3, 5]],
    )
    # The hidden units are max(1, 0) = 1, max(-2, 0) = 0, max(1, 0) = 1; the output is 2·1 + 3·0 +
    # 5·1 = 7.
    assert model(jnp.array([1.0, -2.0])).tolist() == [7.0]
    assert count(model) == 3 * 2 + 3
    soft = put(blank(Baseline, features=2, hidden=1, sharpness=2.0), first=[[0, 0]], second=[[4]])
    # φ(0) = log 2/2 whatever x is.
    assert float(soft(jnp.array([1.0, 9.0]))[0]) == pytest.approx(2 * math.log(2), rel=4 * EPS)


def test_baseline_reads_tokens_column_after_column():
    model = put(
        blank(Baseline, features=4, hidden=1, sharpness=math.inf),
        first=[[1, 10, 100, 1000]],
        second=[[1]],
    )
    # x has columns (1, 2) and (3, 4): 1 + 20 + 300 + 4000.
    assert model(jnp.array([[1.0, 3.0], [2.0, 4.0]])).tolist() == [4321.0]


def test_known_attention_by_hand():
    model = blank(KnownAttention, features=2, hidden=1, sharpness=math.inf)
    model = eqx.tree_at(
        lambda m: (m.body.first, m.body.second),
        model,
        (jnp.array([[1.0, 2.0]]), jnp.array([[3.0]])),
    )
    # x ⊙ f = (2, 0.5·4) = (2, 2); 1·2 + 2·2 = 6; 3·6 = 18.
    x, f = jnp.array([2.0, 4.0]), jnp.array([1.0, 0.5])
    assert model(Attended(x, f)).tolist() == [18.0]
    known = blank(KnownAttention, features=2, hidden=1, sharpness=math.inf, attention=lambda x: f)
    known = eqx.tree_at(lambda m: m.body, known, model.body)
    assert known(x).tolist() == [18.0]
    assert count(model) == 3
    with pytest.raises(BadInput, match="needs inputs Attended"):
        model(x)


def test_gates_multiply_inputs():
    body = put(
        blank(Baseline, features=2, hidden=1, sharpness=math.inf), first=[[1, 1]], second=[[1]]
    )
    model = put(Gated(body, shape=(2,)), gates=[3, 0])
    assert model(jnp.array([2.0, 100.0])).tolist() == [6.0]
    assert count(model) == 5


def hand_made(**changes):
    """A network small enough to compute by hand: token dimension t = 1, p = 2 tokens, d_q = d_v =
    1."""
    model = blank(SelfAttention, tokens=2, token_dim=1, hidden=1, sharpness=math.inf)
    layer = put(model.layer, query=[[math.log(2)]], key=[[1]], value=[[1]])
    model = eqx.tree_at(lambda m: m.layer, model, layer)
    return put(model, first=[[1, 10]], second=[[1]], **changes)


def test_self_attention_by_hand():
    # x = (0, 1). Query 1 is 0: logits (0, 0), weights (½, ½), value ½.
    # Query 2 is log 2: logits log 2·(0, 1), weights (1, 2)/3, value 2/3.
    model, x = hand_made(), jnp.array([[0.0, 1.0]])
    weights = np.asarray(model.attention(x)[0])
    # Column z belongs to query z.
    np.testing.assert_allclose(weights, [[1 / 2, 1 / 3], [1 / 2, 2 / 3]], rtol=8 * EPS)
    assert float(model(x)[0]) == pytest.approx(1 / 2 + 20 / 3, rel=8 * EPS)


def test_self_attention_divides_by_the_root_of_the_query_dimension():
    model = blank(SelfAttention, tokens=2, token_dim=1, hidden=1, query_dim=4)
    ones = put(model.layer, query=[[1], [1], [1], [1]], key=[[1], [1], [1], [1]])
    # Q·K = 4·x_z·x_l, over √4: the logits of query x = 1 are 2·(0, 1).
    weights = np.asarray(ones.weights(jnp.array([[0.0], [1.0]])))
    np.testing.assert_allclose(weights[1, 1], 1 / (1 + math.exp(-2)), rtol=8 * EPS)


def test_multi_layer_by_hand():
    model = blank(MultiLayerSelfAttention, tokens=2, token_dim=1, hidden=1, sharpness=math.inf)
    once = hand_made()
    twice = put(once.layer, query=[[0]])  # uniform attention: both tokens become the mean
    model = eqx.tree_at(lambda m: m.layers, model, (once.layer, twice))
    model = put(model, first=[[1, 10]], second=[[1]])
    # The first layer gives (½, ⅔) as in `test_self_attention_by_hand`. The second layer gives their
    # mean 7/12 twice, so the output is 11·7/12.
    assert float(model(jnp.array([[0.0, 1.0]]))[0]) == pytest.approx(77 / 12, rel=8 * EPS)


def test_parameter_counts():
    # For t = token_dim, p = tokens, d = hidden: 2 d_q t + d_v t + d p d_v + outputs d.
    model = blank(SelfAttention, tokens=16, token_dim=16, query_dim=8, value_dim=8, hidden=64)
    assert count(model) == 2 * 8 * 16 + 8 * 16 + 64 * 16 * 8 + 64
    small = blank(SelfAttention, tokens=4, token_dim=4, query_dim=2, value_dim=1, hidden=8)
    assert count(small) == 60
    # In the same letters: layers (2 d_q t + t²) + d p t + outputs d.
    layered = blank(
        MultiLayerSelfAttention, tokens=5, token_dim=3, query_dim=2, hidden=7, layers=3, outputs=4
    )
    assert count(layered) == 3 * (2 * 2 * 3 + 9) + 7 * 5 * 3 + 4 * 7
    # Encoder: embedding 8·3 + 8, blank token 8, one layer 4·64 + (16·8 + 16) + (8·16 + 8) + 2 norms
    # of 16, last norm 16, readout 2·8 + 2.
    encoder = blank(Encoder, token_dim=3, outputs=2, width=8, heads=2, layers=1)
    assert count(encoder) == 32 + 8 + (256 + 144 + 136 + 32) + 16 + 18


def test_encoder_by_hand():
    # Width 2, one head, attention and feed-forward switched off by zero output maps: tokens pass
    # through the embedding and the last norm, which maps (a, b) with a > b to (1, −1) up to the
    # constant in the variance: (a−b)/2 / √((a−b)²/4 + 1e−5).
    model = blank(Encoder, token_dim=2, outputs=1, width=2, heads=1, layers=1)
    model = put(model, embedding=np.eye(2), readout=[[3, 1]], readout_bias=[10])
    model = eqx.tree_at(lambda m: m.norm.scale, model, jnp.ones(2))
    layer = eqx.tree_at(lambda m: m.before_attention.scale, model.layers[0], jnp.ones(2))
    model = eqx.tree_at(lambda m: m.layers, model, (layer,))
    x = jnp.array([[4.0, 2.0], [1.0, 3.0], [5.0, 1.0]])
    two = 2 / math.sqrt(4 + 1e-5)
    # The last norm maps the half differences 1, −1 and 2 to one, −one and two. The readout gives 3a
    # − a = 2a per token; in the mean the first two tokens cancel.
    assert float(model(x)[0]) == pytest.approx(10 + 2 * two / 3, rel=8 * EPS)
    # Now with attention: uniform (queries zero), values = the normed tokens, output the identity.
    layer = put(layer, value=[np.eye(2)], output=[np.eye(2)])
    attending = eqx.tree_at(lambda m: m.layers, model, (layer,))
    # Normed tokens are (one, −one), −(one, −one), (two, −two): the mean is m = two/3 in the first
    # coordinate; each token moves by (m, −m), so half differences become 1 + m, −1 + m, 2 + m.
    m = two / 3
    halves = np.array([1 + m, m - 1, 2 + m])
    expected = 10 + 2 * np.mean(halves / np.sqrt(halves**2 + 1e-5))
    assert float(attending(x)[0]) == pytest.approx(expected, rel=32 * EPS)


def test_the_output_does_not_depend_on_hidden_values():
    # One program is called three times, because members of one vmapped call may differ in their
    # last bits.
    @jax.jit
    def outputs(x):
        model = Encoder(KEY, token_dim=3, outputs=3, head="masked", width=4, heads=1, layers=1)
        token = jnp.arange(5) == 2
        entry = jnp.zeros((5, 3), bool).at[2, 2].set(True)
        return model(Tokens(x, None, token)), model(Tokens(x, None, entry))

    x = np.random.default_rng(0).normal(size=(5, 3))
    far, near = x.copy(), x.copy()
    far[2, 2] = near[2, 1] = 100.0
    whole, part = zip(*(outputs(jnp.asarray(tokens)) for tokens in (x, far, near)), strict=True)
    assert np.array_equal(whole[0], whole[1])
    assert np.array_equal(whole[0], whole[2])
    # If a single entry is hidden, the other entries of its token are still read.
    assert np.array_equal(part[0], part[1])
    assert not np.array_equal(part[0], part[2])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Baseline(KEY, features=0, hidden=2), "features must be a whole number"),
        (lambda: Baseline(KEY, features=2, hidden=2, sharpness=0.0), "sharpness must be above 0"),
        (lambda: SelfAttention(KEY, tokens=2, token_dim=0, hidden=2), "token_dim must be"),
        (
            lambda: MultiLayerSelfAttention(KEY, tokens=2, token_dim=2, hidden=2, layers=0),
            "layers must be",
        ),
        (lambda: Encoder(KEY, token_dim=2, width=9, heads=2), "width must be a multiple of heads"),
        (lambda: Encoder(KEY, token_dim=2, operator="magic"), "operator must be one of softmax"),
        (lambda: Encoder(KEY, token_dim=2, head="tail"), "head must be one of labels"),
        (
            lambda: blank(Encoder, token_dim=2, positions=True, max_length=3)(jnp.ones((4, 2))),
            "max_length=4",
        ),
    ],
)
def test_bad_settings_raise_one_sentence(make, message: str):
    with pytest.raises(BadInput, match=message):
        make()
