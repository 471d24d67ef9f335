"""`representation` where gap and excess content are known.

Readings are compared with closed forms within 4.5 standard errors (false positives: 1 in 1.5e5). A
gap is an upper bound, so the error of the probe is allowed in addition. With the correct family and
exact labels, the only noise is in the sample that a regression is fitted on. Its K parameters cost
about K/2n of a gap's own scale; SLACK is ten times that for K = 10 and n = 1,200.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln

from attnlens import representation
from attnlens.core.checks import BadInput
from attnlens.core.readings import Reading
from attnlens.core.status import Status
from attnlens.instruments.representation.sufficiency import draw, encode_episodes
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
measure = partial(representation, length=LENGTH, episodes=EPISODES, probes=("ridge", "quadratic"))

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


def information_lost(noise_var: float, kept_noise_var: float, dims: int) -> float:
    """½ log of the ratio of posterior variances per dimension: the loss when the mean of all tokens
    is replaced by a statistic with noise variance `kept_noise_var`."""
    precision, kept = (PRIOR**-2 + 1 / var for var in (noise_var, kept_noise_var))
    return 0.5 * dims * np.log(precision / kept)


@pytest.mark.parametrize(
    "world", [NORMAL, BOTH, COUNTS, CLASSES, LINE], ids=lambda world: type(world).__name__
)
def test_the_posterior_has_no_gap_and_no_excess(world):
    result = measure(world.representation, world)
    # The search stops within 1e−6 nats of the lower bound on the validation rows.
    assert 0 <= result.gap.value < 1e-5
    assert result.squared_error.value < 1e-5
    assert abs(result.excess.value) < 1e-10


def test_the_gap_of_one_token_is_half_the_log_of_the_variance_ratio():
    result = measure(first, NORMAL)
    assert within(result.gap, information_lost(NOISE**2 / LENGTH, NOISE**2, 2), SLACK)
    # E‖E[z|X] − E[z|x¹]‖² is the difference of the posterior variances.
    var = [1 / (PRIOR**-2 + n / NOISE**2) for n in (1, LENGTH)]
    assert within(result.squared_error, 2 * (var[0] - var[1]), SLACK)
    # Given the mean of all tokens, a single token still varies: Var(x¹ | x̄) = σ²(1 − 1/L), a share
    # of its variance ω² + σ².
    share = NOISE**2 * (1 - 1 / LENGTH) / (PRIOR**2 + NOISE**2)
    assert within(result.excess, share, SLACK * share)


def test_the_gap_of_a_noisy_mean_has_the_closed_form():
    """x¹ − x² is a function of the tokens with variance 2σ² that is independent of z and of x̄, so
    it acts as noise."""
    amount = 0.5
    result = measure(lambda tokens: mean(tokens) + amount * (tokens[0] - tokens[1]), NORMAL)
    kept = NOISE**2 / LENGTH + 2 * amount**2 * NOISE**2
    assert within(result.gap, information_lost(NOISE**2 / LENGTH, kept, 2), SLACK)
    share = 2 * amount**2 * NOISE**2 / (PRIOR**2 + kept)
    assert within(result.excess, share, SLACK * share)


def test_sorted_tokens_are_sufficient_and_have_excess_content():
    for world in (NORMAL, BOTH):
        result = measure(ordered, world)
        assert result.gap.value < 1e-4
        assert result.excess.value > 0.02 + 4.5 * result.excess.standard_error


def test_sorted_categorical_tokens_are_the_counts():
    """Sorted columns are step functions of the counts, which trees can represent."""
    result = representation(ordered, COUNTS, episodes=EPISODES, probes=("ridge", "trees"))
    assert result.gap.value < 1e-5
    # Steps that occur in very few episodes cannot be learned. With ridge alone the excess is 0.3.
    assert result.excess.value < 0.005
    counts = measure(lambda tokens: jnp.sum(tokens, 0), COUNTS)
    assert counts.gap.value < 1e-5
    assert counts.excess.value < 1e-10


def test_the_mean_is_not_sufficient_where_the_variance_is_latent():
    """x̄ ~ N(μ, σ²/n) is one observation that adds n to κ and one to ν, so P(z|x̄) is in the
    family. The expected KL is computed from the densities, averaged over many episodes of the same
    world."""
    rng = np.random.default_rng(0)
    freedom, count, n, episodes = 6.0, 1.0, LENGTH, 200_000
    var = freedom / rng.chisquare(freedom, episodes)
    centre = rng.standard_normal(episodes) * np.sqrt(var / count)
    average = centre + rng.standard_normal(episodes) * np.sqrt(var / n)
    scatter = var * rng.chisquare(n - 1, episodes)
    energy = freedom + count * n / (count + n) * average**2
    # Both posteriors have the same m' and κ' and differ only in their inverse gamma laws (ν', b').
    a, b = (freedom + n) / 2, (energy + scatter) / 2
    a_kept, b_kept = (freedom + 1) / 2, energy / 2
    kl = (
        (a - a_kept) * digamma(a)
        - gammaln(a)
        + gammaln(a_kept)
        + a_kept * np.log(b / b_kept)
        + a * (b_kept - b) / b
    )
    result = measure(mean, BOTH)
    assert result.gap.value > 0.1 + 4.5 * result.gap.standard_error
    assert within(result.gap, kl.mean(), SLACK)
    assert result.squared_error.value < 1e-4  # x̄ determines the posterior mean of μ
    assert result.excess.value < 1e-10


def test_one_token_and_the_posterior_after_it_have_the_same_gap():
    """P(z | x¹) is the posterior after one token, for classes and for counts."""
    for world in (CLASSES, COUNTS):
        result = measure(first, world)
        one = measure(lambda tokens, world=world: world.representation(tokens[:1]), world)
        assert result.gap.value > 0.1
        # Both representations encode the same information and are fitted on the same rows.
        assert abs(result.gap.value - one.gap.value) < SLACK


@pytest.mark.slow
def test_all_tokens_of_a_regression_are_sufficient():
    """Σ k kᵀ and Σ k v are quadratic in the tokens."""
    result = measure(lambda t: jnp.concatenate([t.key.ravel(), t.value.ravel()]), LINE)
    assert result.gap.value < 1e-3
    assert result.excess.value > 0.5
    short = measure(lambda t: jnp.concatenate([t.key[0], t.value[0]]), LINE)
    assert short.gap.value > 0.5


@pytest.mark.slow
def test_the_statistics_of_a_latent_function_are_sufficient_and_one_value_is_not():
    from attnlens.instruments.representation.families import posterior_family

    world = GaussianProcess()
    natural = posterior_family(world).natural
    fewer = {"episodes": 400, "probes": ("ridge",)}
    assert representation(natural, world, **fewer).gap.value < 1e-5
    assert representation(lambda t: t.value[0], world, **fewer).gap.value > 0.5


@pytest.mark.slow
def test_with_several_lengths_the_mean_is_sufficient_only_with_the_length():
    """With lengths 2 and 8 the mean alone does not determine the posterior variance."""
    exact = measure(NORMAL.representation, NORMAL, length=LENGTHS)
    assert exact.gap.value < 1e-5
    without_length = measure(mean, NORMAL, length=LENGTHS)
    assert without_length.gap.value > 0.05
    with_length = measure(
        lambda t: jnp.append(jnp.mean(t, 0) * len(t), len(t) * 1.0), NORMAL, length=LENGTHS
    )
    assert with_length.gap.value < 1e-5


def test_learning_from_drawn_latents_costs_half_a_nat_per_parameter_and_sample():
    """If P(z|R) is learned from pairs (R, z) alone, K parameters cost K/2n nats on average (Wilks).
    Here K = 5 × 3, for two means and a precision from two coordinates and a constant; χ²_15 is
    below 44 except with probability 1e−4. Learning cannot make the gap smaller than 0."""
    result = measure(NORMAL.representation, NORMAL, labels="drawn", probes=("ridge",))
    assert 0 < result.gap.value < 44 / (2 * 0.6 * EPISODES)
    loss = measure(first, NORMAL, labels="drawn", probes=("ridge",))
    assert within(loss.gap, information_lost(NOISE**2 / LENGTH, NOISE**2, 2), SLACK)


def test_drawn_latents_detect_a_wrong_posterior():
    """A posterior that assumes twice the true noise does not agree with the drawn latents."""

    class Mistaken(NormalMean):
        def sample(self, key, length, queries=0):
            return NormalMean(dim=1, noise_std=1.0).sample(key, length, queries)

    world = Mistaken(dim=1, noise_std=2.0)  # pyright: ignore[reportCallIssue] (the subclass inherits the fields of a dataclass)
    result = measure(world.representation, world, labels="drawn", probes=("ridge",))
    assert result.gap.value > 0.1
    assert measure(world.representation, world, probes=("ridge",)).gap.value < 1e-5


def test_a_constant_has_no_excess_and_the_largest_gap():
    result = measure(lambda tokens: jnp.ones(2), NORMAL)
    assert result.excess.status is Status.CONSTANT_REPRESENTATION
    assert "no number" in str(result)
    # The gap is the mutual information of tokens and latent, ½ log(1 + L ω²/σ²) per dimension.
    assert within(result.gap, np.log(1 + LENGTH * PRIOR**2 / NOISE**2), SLACK)
    assert result.gap.probe == "constant"
    assert result.gap.value == result.gap.of_nothing


def test_encoders_that_jax_cannot_trace_are_called_one_by_one():
    tokens = np.arange(12.0).reshape(2, 3, 2)
    plain = encode_episodes(lambda t: float(np.sum(np.asarray(t))), tokens)
    np.testing.assert_array_equal(plain, [[15.0], [51.0]])
    np.testing.assert_array_equal(encode_episodes(lambda t: jnp.sum(t), tokens), plain)


def test_a_plain_function_is_traced_again_at_each_call():
    tokens = np.ones((2, 3, 2))
    state = {"scale": 1.0}

    def encode(tokens):
        return state["scale"] * jnp.sum(tokens)

    before = encode_episodes(encode, tokens)
    state["scale"] = 2.0
    np.testing.assert_array_equal(encode_episodes(encode, tokens), 2 * before)
    method = eqx.filter_jit(NORMAL.representation)  # a method of a network or a world
    assert (
        encode_episodes(method, tokens).shape
        == encode_episodes(NORMAL.representation, tokens).shape
    )


def test_episodes_are_divided_equally_among_lengths():
    samples = draw(mean, NORMAL, LENGTHS, EPISODES, "exact", 0)
    assert {len(part) for part in samples} == {EPISODES}
    precision = np.unique(samples.eta[:, 2], return_counts=True)  # 1/ω² + L/σ²
    np.testing.assert_allclose(precision[0], PRIOR**-2 + np.array(LENGTHS), rtol=1e-14)
    assert precision[1].tolist() == [EPISODES // 2] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 0}, "each length must be a whole number of at least 1"),
        ({"length": (4, 2)}, "lengths must be increasing"),
        ({"episodes": 10}, "episodes must be a whole number of at least 64"),
        ({"probes": ("forest",)}, "each probe must be one of ridge, quadratic, kernel, trees"),
        ({"labels": "guessed"}, "labels must be one of exact, drawn"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"encode": lambda tokens: jnp.zeros(0)}, "at least one number.*got none"),
        ({"encode": lambda tokens: tokens[0] * jnp.nan}, "finite; got NaN or infinity"),
        ({"encode": lambda t: t.ravel(), "length": LENGTHS}, r"equally many.*got \[4, 16\]"),
        ({"world": GaussianProcess(), "labels": "drawn"}, "needs a latent with finitely many"),
    ],
)
def test_bad_input_raises_one_sentence(changes: dict, message: str):
    settings = {
        "encode": mean,
        "world": NORMAL,
        "episodes": EPISODES,
        "probes": ("ridge",),
        **changes,
    }
    with pytest.raises(BadInput, match=message):
        representation(settings.pop("encode"), settings.pop("world"), **settings)
