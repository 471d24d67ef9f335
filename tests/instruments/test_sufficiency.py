"""`representation` where gap and excess content are known.

Readings are compared with closed forms within 4.5 standard errors (a false alarm in 1.5e5). A
gap is an upper bound, so what a probe fails to read is allowed on top: with the family right and
exact labels nothing is noisy but the sample that a regression is fitted on, whose K free numbers
cost about K/2n of a gap's own scale; SLACK is ten times that for K = 10 and n = 1,200.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln

from attnlens import representation
from attnlens.checks import BadInput
from attnlens.instruments.sufficiency import draw, encoded
from attnlens.records import Reading
from attnlens.worlds import (
    DirichletCategorical,
    FiniteMixture,
    GaussianProcess,
    LinearRegression,
    NormalInverseGamma,
    NormalMean,
)

LENGTH, EPISODES = 8, 2000
LENGTHS = (2, 8)
SLACK = 10 * 10 / (2 * 1200)
measured = partial(representation, length=LENGTH, episodes=EPISODES, probes=("ridge", "quadratic"))

NOISE, PRIOR = 1.0, 1.5
NORMAL = NormalMean(dim=2, noise_std=NOISE, prior_std=PRIOR)
BOTH = NormalInverseGamma(dim=1, freedom=6.0, prior_count=1.0)
COUNTS = DirichletCategorical(classes=3, concentration=1.0)
CLASSES = FiniteMixture(means=[[-1.0, 0.0], [1.0, 0.0], [0.0, 1.5]], noise_std=1.2)
LINE = LinearRegression(key_dim=2, noise_std=0.5)


def first(tokens):
    return tokens[0]


def mean(tokens):
    return jnp.mean(tokens, 0)


def ordered(tokens):
    return jnp.sort(tokens, 0).ravel()


def within(reading: Reading, exact: float, slack: float = 0.0) -> bool:
    error = 4.5 * reading.standard_error
    return exact - error <= reading.value <= exact + error + slack


def lost(noise_var: float, kept_noise_var: float, dims: int) -> float:
    """½ log of the ratio of posterior variances, a dimension: what is lost when the mean of all
    tokens is replaced by something with noise variance `kept_noise_var`."""
    precision, kept = (PRIOR**-2 + 1 / var for var in (noise_var, kept_noise_var))
    return 0.5 * dims * np.log(precision / kept)


@pytest.mark.parametrize(
    "world", [NORMAL, BOTH, COUNTS, CLASSES, LINE], ids=lambda world: type(world).__name__
)
def test_the_posterior_is_sufficient_and_nothing_more(world):
    found = measured(world.representation, world)
    # The search ends within 1e−6 nats of the floor on its validation rows.
    assert 0 <= found.gap.value < 1e-5
    assert found.squared_error.value < 1e-5
    assert abs(found.excess.value) < 1e-10


def test_one_token_has_lost_half_the_log_of_the_variance_ratio():
    found = measured(first, NORMAL)
    assert within(found.gap, lost(NOISE**2 / LENGTH, NOISE**2, 2), SLACK)
    # E‖E[z|X] − E[z|x¹]‖² is the difference of the posterior variances.
    var = [1 / (PRIOR**-2 + n / NOISE**2) for n in (1, LENGTH)]
    assert within(found.squared_error, 2 * (var[0] - var[1]), SLACK)
    # Given all tokens a single one still varies: Var(x¹ | x̄) = σ²(1 − 1/L) of ω² + σ².
    share = NOISE**2 * (1 - 1 / LENGTH) / (PRIOR**2 + NOISE**2)
    assert within(found.excess, share, SLACK * share)


def test_a_mean_with_noise_has_lost_what_the_noise_hides():
    """x¹ − x² knows nothing about z and is independent of x̄: noise from the tokens themselves,
    of variance 2σ²."""
    amount = 0.5
    found = measured(lambda tokens: mean(tokens) + amount * (tokens[0] - tokens[1]), NORMAL)
    kept = NOISE**2 / LENGTH + 2 * amount**2 * NOISE**2
    assert within(found.gap, lost(NOISE**2 / LENGTH, kept, 2), SLACK)
    share = 2 * amount**2 * NOISE**2 / (PRIOR**2 + kept)
    assert within(found.excess, share, SLACK * share)


def test_sorted_tokens_are_sufficient_and_more():
    for world in (NORMAL, BOTH):
        found = measured(ordered, world)
        assert found.gap.value < 1e-4
        assert found.excess.value > 0.02 + 4.5 * found.excess.standard_error


def test_sorted_categorical_tokens_are_the_counts():
    """Sorted columns are steps in the counts: a matter for trees."""
    found = representation(ordered, COUNTS, episodes=EPISODES, probes=("ridge", "trees"))
    assert found.gap.value < 1e-5
    # A step that hardly any episode takes cannot be learned; ridge alone leaves 0.3.
    assert found.excess.value < 0.005
    counts = measured(lambda tokens: jnp.sum(tokens, 0), COUNTS)
    assert counts.gap.value < 1e-5
    assert counts.excess.value < 1e-10


def test_the_mean_is_not_enough_where_the_variance_is_latent_too():
    """x̄ ~ N(μ, σ²/n) is one observation that counts n times for κ and once for ν, so P(z|x̄) is
    in the family. E KL between the two is averaged over the same kind of episodes, many of them,
    from the density's own terms."""
    rng = np.random.default_rng(0)
    freedom, count, n, episodes = 6.0, 1.0, LENGTH, 200_000
    var = freedom / rng.chisquare(freedom, episodes)
    centre = rng.standard_normal(episodes) * np.sqrt(var / count)
    average = centre + rng.standard_normal(episodes) * np.sqrt(var / n)
    scatter = var * rng.chisquare(n - 1, episodes)
    energy = freedom + count * n / (count + n) * average**2
    # Both have the same m' and κ'; only (ν', b') differ: an inverse gamma each.
    a, b = (freedom + n) / 2, (energy + scatter) / 2
    a_kept, b_kept = (freedom + 1) / 2, energy / 2
    kl = (
        (a - a_kept) * digamma(a) - gammaln(a) + gammaln(a_kept)
        + a_kept * np.log(b / b_kept) + a * (b_kept - b) / b
    )  # fmt: skip
    found = measured(mean, BOTH)
    assert found.gap.value > 0.1 + 4.5 * found.gap.standard_error
    assert within(found.gap, kl.mean(), SLACK)
    assert found.squared_error.value < 1e-4  # μ's posterior mean is all there
    assert found.excess.value < 1e-10


def test_one_token_of_classes_and_of_counts():
    """P(z | x¹) is the posterior after one token: KL to it on the judged kind of episodes."""
    for world in (CLASSES, COUNTS):
        found = measured(first, world)
        one = measured(lambda tokens, world=world: world.representation(tokens[:1]), world)
        assert found.gap.value > 0.1
        # Two encodings of the same knowledge, fitted on the same rows.
        assert abs(found.gap.value - one.gap.value) < SLACK


@pytest.mark.slow
def test_all_tokens_of_a_regression_are_sufficient():
    """Σ k kᵀ and Σ k v are quadratic in the tokens."""
    found = measured(lambda t: jnp.concatenate([t.key.ravel(), t.value.ravel()]), LINE)
    assert found.gap.value < 1e-3
    assert found.excess.value > 0.5
    short = measured(lambda t: jnp.concatenate([t.key[0], t.value[0]]), LINE)
    assert short.gap.value > 0.5


@pytest.mark.slow
def test_a_latent_function_is_known_from_its_own_statistics_only():
    from attnlens.instruments.families import described

    world = GaussianProcess()
    natural = described(world).natural
    fewer = {"episodes": 400, "probes": ("ridge",)}
    assert representation(natural, world, **fewer).gap.value < 1e-5
    assert representation(lambda t: t.value[0], world, **fewer).gap.value > 0.5


@pytest.mark.slow
def test_lengths_may_vary():
    """With lengths 2 and 8 the mean alone does not say how sure to be; the posterior does."""
    exact = measured(NORMAL.representation, NORMAL, length=LENGTHS)
    assert exact.gap.value < 1e-5
    blind = measured(mean, NORMAL, length=LENGTHS)
    assert blind.gap.value > 0.05
    told = measured(
        lambda t: jnp.append(jnp.mean(t, 0) * len(t), len(t) * 1.0), NORMAL, length=LENGTHS
    )
    assert told.gap.value < 1e-5


def test_learning_from_drawn_latents_costs_half_a_nat_a_number_and_sample():
    """P(z|R) learned from pairs (R, z) alone: K free numbers cost K/2n nats on average (Wilks),
    K = 5 × 3 for two means and a precision from two coordinates and a constant; χ²_15 is below 44
    in all but 1e−4 of cases. Learning cannot make the gap smaller than 0."""
    found = measured(NORMAL.representation, NORMAL, labels="drawn", probes=("ridge",))
    assert 0 < found.gap.value < 44 / (2 * 0.6 * EPISODES)
    loss = measured(first, NORMAL, labels="drawn", probes=("ridge",))
    assert within(loss.gap, lost(NOISE**2 / LENGTH, NOISE**2, 2), SLACK)


def test_a_wrong_posterior_is_found_out_by_drawn_latents():
    """With the noise taken for twice its scale, what z shows is not what the 'posterior' says."""

    class Mistaken(NormalMean):
        def sample(self, key, length, queries=0):
            return NormalMean(dim=1, noise_std=1.0).sample(key, length, queries)

    world = Mistaken(dim=1, noise_std=2.0)  # pyright: ignore[reportCallIssue]
    found = measured(world.representation, world, labels="drawn", probes=("ridge",))
    assert found.gap.value > 0.1
    assert measured(world.representation, world, probes=("ridge",)).gap.value < 1e-5


def test_a_constant_has_no_content_to_speak_of():
    found = measured(lambda tokens: jnp.ones(2), NORMAL)
    assert "does not vary" in found.excess.status
    assert "no number" in str(found)
    # Nothing is kept: the gap is the information that tokens have, ½ log(1 + L ω²/σ²) each.
    assert within(found.gap, np.log(1 + LENGTH * PRIOR**2 / NOISE**2), SLACK)
    assert found.gap.details["probe"] == "constant"
    assert found.gap.value == found.gap.details["of nothing"]


def test_encoders_that_jax_cannot_trace_are_called_one_by_one():
    tokens = np.arange(12.0).reshape(2, 3, 2)
    plain = encoded(lambda t: float(np.sum(np.asarray(t))), tokens)
    np.testing.assert_array_equal(plain, [[15.0], [51.0]])
    np.testing.assert_array_equal(encoded(lambda t: jnp.sum(t), tokens), plain)


def test_an_encoder_may_change_between_two_calls():
    tokens = np.ones((2, 3, 2))
    state = {"scale": 1.0}

    def encode(tokens):
        return state["scale"] * jnp.sum(tokens)

    first_time = encoded(encode, tokens)
    state["scale"] = 2.0
    np.testing.assert_array_equal(encoded(encode, tokens), 2 * first_time)
    method = eqx.filter_jit(NORMAL.representation)  # a network's or a world's method
    assert encoded(method, tokens).shape == encoded(NORMAL.representation, tokens).shape


def test_episodes_are_shared_among_lengths():
    drawn = draw(mean, NORMAL, LENGTHS, EPISODES, "exact", 0)
    assert [len(part) for part in drawn] == [EPISODES] * 5
    precision = np.unique(drawn.eta[:, 2], return_counts=True)  # 1/ω² + L/σ²
    np.testing.assert_allclose(precision[0], PRIOR**-2 + np.array(LENGTHS), rtol=1e-14)
    assert precision[1].tolist() == [EPISODES // 2] * 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"length": 0}, "each length must be a whole number of at least 1"),
        ({"length": (4, 2)}, "lengths must be increasing"),
        ({"episodes": 10}, "episodes must be a whole number of at least 64"),
        ({"probes": ("forest",)}, "each probe must be one of ridge, quadratic, kernel, trees"),
        ({"labels": "guessed"}, "labels must be one of exact, drawn"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"encode": lambda tokens: jnp.zeros(0)}, "at least one number.*but none came"),
        ({"encode": lambda tokens: tokens[0] * jnp.nan}, "finite, but NaN or infinity came"),
        ({"encode": lambda t: t.ravel(), "length": LENGTHS}, r"equally many.*\[4, 16\] came"),
        ({"world": GaussianProcess(), "labels": "drawn"}, "needs a latent with finitely many"),
    ],
)
def test_bad_input_gets_one_sentence(changes: dict, says: str):
    given = {"encode": mean, "world": NORMAL, "episodes": EPISODES, "probes": ("ridge",), **changes}
    with pytest.raises(BadInput, match=says):
        representation(given.pop("encode"), given.pop("world"), **given)
