"""Contract of every registered world, and the stronger contract of exact worlds.

Tolerance of comparisons in float64: the systems behind the examples have condition numbers below
1e5 (a Gaussian process on 6 tokens with noise variance 0.04 has at most 6/0.04 = 150), so two
correct algorithms differ by at most about 1e5 · 2.2e-16 ≈ 2e-11 relative to the largest entry.
ROUNDING is five times that.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from attnlens.core.checks import BadInput
from attnlens.worlds import (
    EXAMPLES,
    ExactWorld,
    FiniteMixture,
    GaussianProcess,
    NormalMean,
    Pairs,
    ReferenceWorld,
    World,
)
from attnlens.worlds.normal_inverse_gamma import MeanVar

ROUNDING = 1e-10
LENGTH, QUERIES = 6, 3
# Worlds with a posterior in closed form; tests/runs/test_references.py tests worlds whose posterior
# comes from NUTS.
CLOSED = {
    name: world
    for name, world in EXAMPLES.items()
    if isinstance(world, ExactWorld) and not isinstance(world, ReferenceWorld)
}
over_closed = pytest.mark.parametrize("world", CLOSED.values(), ids=CLOSED.keys())
over_all = pytest.mark.parametrize("world", EXAMPLES.values(), ids=EXAMPLES.keys())


def episode_of(world: World, length: int = LENGTH, seed: int = 0):
    return _sample(world, jax.random.key(seed), length)


@eqx.filter_jit
def _sample(world, key, length):
    return world.sample(key, length, QUERIES)


def answers(world, tokens, mask, query):
    law = world.predict(tokens, query, mask)
    return (
        world.representation(tokens, mask),
        law.mean,
        law.var,
        world.log_evidence(tokens, mask),
    )


one = eqx.filter_jit(answers)


@eqx.filter_jit
def many(world, tokens, masks, query):
    return jax.vmap(lambda tokens, mask: answers(world, tokens, mask, query))(tokens, masks)


def assert_same(left, right, tolerance=ROUNDING):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        scale = 1 + np.max(np.abs(b), initial=0)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


def cut(tokens, *where):
    return jax.tree.map(lambda array: array[where], tokens)


FULL = jnp.ones(LENGTH, bool)


@over_all
def test_sampling_is_a_pure_function_of_the_key(world):
    assert isinstance(world, World)
    first, again, other = episode_of(world), episode_of(world), episode_of(world, seed=1)
    jax.tree.map(np.testing.assert_array_equal, first.tokens, again.tokens)
    assert not all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(first.tokens), jax.tree.leaves(other.tokens), strict=True)
    )
    for leaf in jax.tree.leaves(first.tokens):
        assert leaf.shape[0] == LENGTH
        assert leaf.dtype == jnp.float64
        assert np.isfinite(leaf).all()
    if isinstance(first.tokens, Pairs):
        assert first.query.shape == (QUERIES, *first.tokens.key.shape[1:])
        assert first.answer.shape == (QUERIES, *first.tokens.value.shape[1:])


@over_all
def test_an_episode_of_length_zero_has_no_tokens(world):
    episode = world.sample(jax.random.key(0), 0)
    assert all(leaf.shape[0] == 0 for leaf in jax.tree.leaves(episode.tokens))


@over_all
def test_sampling_follows_the_default_precision(world):
    with jax.enable_x64(False):
        tokens = world.sample(jax.random.key(0), 2, 1).tokens
    assert {leaf.dtype.name for leaf in jax.tree.leaves(tokens)} == {"float32"}


@over_closed
def test_order_masks_and_batches(world):
    """Permuting tokens changes nothing; masking tokens equals leaving them out, whatever the masked
    numbers are; and each member of a vmapped batch equals the same episode computed alone."""
    tokens, query = (episode := episode_of(world)).tokens, episode.query
    order = jnp.array([3, 0, 5, 1, 4, 2])
    keep = jnp.array([True, True, False, True, False, True])
    poisoned = jax.tree.map(
        lambda leaf: jnp.where(keep.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, jnp.nan), tokens
    )
    rows = [
        (tokens, FULL),
        (cut(tokens, order), FULL),
        (poisoned, keep),
        (poisoned, FULL & False),
    ]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    plain, permuted, masked, nothing = zip(*many(world, batch[0], batch[1], query), strict=True)
    assert_same(plain, one(world, tokens, None, query))
    assert_same(permuted, plain)
    assert_same(masked, one(world, cut(tokens, keep), None, query))
    assert_same(nothing, one(world, cut(tokens, slice(0, 0)), None, query))
    assert float(nothing[3]) == 0  # the log evidence of no tokens is 0
    # Control: the comparison fails if two tokens are left out.
    with pytest.raises(AssertionError):
        assert_same(masked, plain)


@over_closed
def test_sequential_update_equals_batch_update(world):
    episode = episode_of(world)

    @eqx.filter_jit
    def in_steps(world, tokens, query):
        posterior = world.prior()
        for start, stop in ((0, 1), (1, 1), (1, 3), (3, LENGTH)):
            posterior = world.update(posterior, cut(tokens, slice(start, stop)))
        law = world.predictive(posterior, query)
        return law.mean, law.var

    batch = one(world, episode.tokens, None, episode.query)
    assert_same(in_steps(world, episode.tokens, episode.query), batch[1:3])


@over_closed
def test_evidence_is_the_product_of_predictions(world):
    """log p(x¹ … x^L) = Σ_ℓ log p(x_ℓ | x¹ … x^{ℓ−1}): the evidence and the predictions are
    computed in independent ways."""
    episode = episode_of(world)

    def next_log_prob(tokens, mask, index):
        token = cut(tokens, index)
        if isinstance(tokens, Pairs):
            law = world.predict(tokens, token.key[None, :], mask)
            var = law.var + world.noise_std**2
            return jnp.sum(law._replace(var=var).log_prob(token.value[None, :]))
        return jnp.sum(world.predict(tokens, None, mask).log_prob(token))

    prefixes = jnp.tril(jnp.ones((LENGTH, LENGTH), bool), -1)
    over_prefixes = jax.jit(jax.vmap(next_log_prob, in_axes=(None, 0, 0)))
    terms = over_prefixes(episode.tokens, prefixes, jnp.arange(LENGTH))
    assert_same(jnp.sum(terms), one(world, episode.tokens, None, episode.query)[3])


@over_closed
def test_bayes_rule_holds_at_every_latent(world):
    """posterior(z) · evidence = prior(z) · likelihood(z) for latents z drawn from the prior."""
    if isinstance(world, GaussianProcess):
        pytest.skip("the latent is a function: tests/worlds/test_exact.py")
    tokens = episode_of(world).tokens

    def sides(key, tokens):
        latent = world.prior().sample(key)
        left = world.posterior(tokens).log_prob(latent) + world.log_evidence(tokens)
        return left, world.prior().log_prob(latent) + world.log_likelihood(latent, tokens)

    keys = jax.random.split(jax.random.key(3), 8)
    left, right = jax.jit(jax.vmap(sides, in_axes=(0, None)))(keys, tokens)
    assert_same(left, right)


@over_closed
def test_the_representation_is_additive_and_its_size_does_not_depend_on_the_length(world):
    """The representation is the statistics of the prior plus one term per token."""
    episode = episode_of(world)
    head = jnp.arange(LENGTH) < 2
    masks = jnp.stack([FULL, head, ~head, FULL & False])
    tokens = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(masks)), episode.tokens)
    whole, first, rest, none = many(world, tokens, masks, episode.query)[0]
    short = jax.eval_shape(world.representation, cut(episode.tokens, slice(0, 2)))
    assert whole.shape == short.shape
    assert whole.ndim == 1
    # The representation of a Gaussian process holds values at landmarks, not statistics.
    if not isinstance(world, GaussianProcess):
        assert_same(whole - none, (first - none) + (rest - none))


@over_closed
def test_float32_inputs_give_float32_answers(world):
    """Answers in float32 have four correct digits: eps 1.2e-7 times condition numbers up to 1e3."""
    episode = episode_of(world)
    exact = one(world, episode.tokens, None, episode.query)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (episode.tokens, episode.query))
    rounded = one(world, single[0], None, single[1])
    assert {leaf.dtype.name for leaf in jax.tree.leaves(rounded)} == {"float32"}
    assert_same(rounded, exact, tolerance=1e-4)


# Simulation-based calibration (Talts et al., 2018): the rank of the true latent among draws from
# the posterior is uniform. RANKS − 1 draws give RANKS equally likely ranks; EPISODES / RANKS is
# well above the 5 per bin that the chi-square approximation needs.
RANKS, EPISODES = 16, 2000
FALSE_POSITIVE_RATE = 1e-4  # per world
LIMIT = scipy.stats.chi2.isf(FALSE_POSITIVE_RATE, RANKS - 1)
SHORT = 4


@eqx.filter_jit
def trials(truth, judge, keys):
    """Draw episodes from the world `truth` and compare each with the posterior of the world
    `judge`.

    Returns, per episode: the rank of the first coordinate of the latent among draws from the
    posterior (for worlds with queries, the rank of the answer), the squared error of the
    prediction, and the uncertainty that `judge` reports.
    """

    def trial(key):
        for_episode, for_draws, for_ties = jax.random.split(key, 3)
        episode = truth.sample(for_episode, SHORT, 1)
        posterior = judge.posterior(episode.tokens)
        law = judge.predictive(posterior, episode.query)
        if isinstance(episode.tokens, Pairs):
            noise = jax.random.normal(for_draws, (RANKS - 1,))
            draws, latent = law.mean[0, 0] + jnp.sqrt(law.var[0, 0]) * noise, episode.answer[0, 0]
            squared = jnp.mean((law.mean - episode.answer) ** 2)
        else:
            latents = jax.vmap(posterior.sample)(jax.random.split(for_draws, RANKS - 1))
            first = [jnp.reshape(leaf, (RANKS - 1, -1))[:, 0] for leaf in jax.tree.leaves(latents)]
            draws, latent = first[0], jnp.ravel(jax.tree.leaves(episode.latent)[0])[0]
            squared = jnp.sum((law.mean - token_mean(truth, episode.latent)) ** 2)
        # Ties occur if the latent is a class; breaking them at random keeps the rank uniform.
        ties = jax.random.randint(for_ties, (), 0, jnp.sum(draws == latent) + 1)
        rank = jnp.sum(draws < latent) + ties
        return rank, squared, judge.uncertainty(posterior, episode.query)

    return jax.lax.map(trial, keys)


def token_mean(world, latent):
    """The mean of a token given the latent."""
    if isinstance(world, FiniteMixture):
        return jnp.asarray(world.means)[latent]
    return latent.mean if isinstance(latent, MeanVar) else latent


def departure(truth, judge) -> float:
    """The chi-square statistic of the ranks against the uniform distribution."""
    ranks = trials(truth, judge, jax.random.split(jax.random.key(11), EPISODES))[0]
    counts = np.bincount(np.asarray(ranks), minlength=RANKS)
    return float(np.sum((counts - EPISODES / RANKS) ** 2) / (EPISODES / RANKS))


@over_closed
def test_simulation_based_calibration(world):
    assert departure(world, world) < LIMIT


@over_closed
def test_risk_is_the_mean_squared_error_of_the_exact_prediction(world):
    """The Bayes risk is E ‖truth − prediction‖², which equals the mean uncertainty.

    The bound is 4.4 standard errors: false-positive rate 1e-5 (two-sided normal). In some worlds
    the uncertainty does not vary at all; then only rounding errors are left.
    """
    _, squared, uncertainty = trials(world, world, jax.random.split(jax.random.key(7), EPISODES))
    risk = world.risk(SHORT)
    for values in (np.asarray(squared), np.asarray(uncertainty)):
        error = np.hypot(values.std() / np.sqrt(values.size), risk.standard_error)
        assert abs(values.mean() - risk.value) < 4.4 * error + 1e-12 * risk.value


def test_calibration_detects_a_wrong_scale():
    """Calibration fails if `judge` takes the variance of the noise, 0.25, for its standard
    deviation, 0.5."""
    assert departure(NormalMean(noise_std=0.5), NormalMean(noise_std=0.25)) > LIMIT


def test_a_prediction_without_the_required_query_is_an_error():
    world = CLOSED["linear-regression"]
    with pytest.raises(BadInput, match=r"needs a query; got none; give query="):
        world.predict(episode_of(world).tokens)
