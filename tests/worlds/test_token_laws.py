"""Tokens of NumPyro models: bad input is one sentence, and masked tokens have no derivative."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from attnlens.core.checks import BadInput
from attnlens.worlds import FromModel, Pairs

KEY, NAN = jax.random.key(0), np.array([[np.nan], [1.0]])
PLAIN = FromModel(dist.Normal(0.0, 1.0), lambda z: dist.Normal(z, 1.0))
KEYED = FromModel(dist.Normal(0.0, 1.0), lambda z, k: dist.Normal(z * k[0], 1.0), key_dim=2)
PAIRS = Pairs(jnp.ones((3, 1)), jnp.ones((3, 1)))


def sampled(prior, likelihood, **settings):
    return FromModel(prior, likelihood, **settings).sample(KEY, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FromModel(3.0, lambda z: dist.Normal(z)), "prior must be"),
        (lambda: FromModel(lambda n: n, lambda z: dist.Normal(z)), "without arguments"),
        (lambda: sampled(lambda: None, lambda z: dist.Normal(0.0)), "must return the latent"),
        (lambda: sampled(dist.Normal(), lambda z: z), "must return a NumPyro distribution"),
        (lambda: FromModel(dist.Normal(), dist.Normal()), "a function of the latent"),
        (lambda: FromModel(dist.Normal(), lambda z, k: dist.Normal(z)), "give key_dim"),
        (lambda: FromModel(dist.Normal(), lambda z: dist.Normal(z), key_dim=1), "leave key_dim"),
        (lambda: PLAIN.posterior(NAN), "must be finite"),
        (lambda: PLAIN.posterior(np.ones((3, 2))), r"shape \(length, 1\); got \(3, 2\)"),
        (lambda: PLAIN.posterior(PAIRS), "must be an array"),
        (lambda: KEYED.posterior(np.ones((3, 2))), r"must be Pairs\(key, value\)"),
        (lambda: KEYED.posterior(PAIRS), r"keys of tokens must have shape \(length, 2\)"),
    ],
    ids=[
        "number-as-prior",
        "prior-with-argument",
        "prior-without-return",
        "number-as-law",
        "law-as-likelihood",
        "key-without-key-dim",
        "key-dim-without-key",
        "not-finite",
        "too-wide",
        "pairs-without-keys",
        "no-pairs",
        "short-keys",
    ],
)
def test_bad_input_is_one_sentence(call, message):
    with pytest.raises(BadInput, match=message) as caught:
        call()
    assert str(caught.value).endswith(".")
    assert " at 0x" not in str(caught.value)


def test_the_derivative_of_a_masked_token_is_zero():
    """The zero that hides a token lies outside of the support of a Gamma law, where the derivative
    of its density is NaN."""
    world = FromModel(dist.Gamma(2.0, 1.0), lambda rate: dist.Gamma(rate, 1.0))
    tokens, mask = jnp.array([[1.0], [np.nan]]), jnp.array([True, False])
    # log p(1 | a) = −log Γ(a) − 1, whose derivative at a = 2 is −ψ(2) = γ − 1.
    derivative = jax.grad(lambda rate: world.log_likelihood(rate, tokens, mask))(2.0)
    np.testing.assert_allclose(derivative, np.euler_gamma - 1, rtol=1e-6)
