"""Worlds without a closed form: NUTS against numerical integration and against closed forms.

Monte Carlo tolerance: with at least 400 effective draws a posterior mean is known to
1/√400 = 0.05 posterior standard deviations. The tests allow FIVE standard errors (two-sided
false-positive rate 6e-7 per comparison), from the effective sample size that the run reports.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import gammaln

import attnlens
from attnlens.attention import softmax
from attnlens.core.checks import BadInput
from attnlens.core.status import Status
from attnlens.runs import references
from attnlens.runs.code_version import code_version
from attnlens.runs.engines import local
from attnlens.runs.store.store import Store
from attnlens.worlds import (
    FromModel,
    LinearRegression,
    LogisticRegression,
    NonlinearGaussian,
    NormalInverseGamma,
    Nuts,
)
from attnlens.worlds.model import ReferenceReading

pytestmark = pytest.mark.slow  # compiling takes most of a minute

FIVE = 5.0
LENGTH = 6
QUICK = Nuts(warmup=300, draws=500)
GAMMA_POISSON = FromModel(dist.Gamma(2.0, 1.0), lambda rate: dist.Poisson(rate), nuts=QUICK)


def grid_posterior(world, tokens, edge=10.0, points=401):
    """Mean, covariance and log evidence over a square grid of a two-dimensional latent.

    The integrands are smooth and vanish at the edge. There the error of the trapezoid rule falls
    faster than any power of the spacing (Trefethen and Weideman, 2014): with a spacing of 0.05 it
    is 1e-8.
    """
    axis = np.linspace(-edge, edge, points)
    grid = jnp.asarray(np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2))
    std = getattr(world, "prior_std", 1.0)
    prior = -0.5 * jnp.sum(grid**2, -1) / std**2 - np.log(2 * np.pi * std**2)
    joint = np.asarray(prior + jax.vmap(lambda z: world.log_likelihood(z, tokens))(grid))
    weights = np.exp(joint - joint.max())
    total = weights.sum()
    mean = weights @ np.asarray(grid) / total
    centred = np.asarray(grid) - mean
    cov = (weights[:, None] * centred).T @ centred / total
    return mean, cov, np.log(total) + joint.max() + 2 * np.log(axis[1] - axis[0])


@eqx.filter_jit
def all_answers(world, tokens, query):
    posterior = world.posterior(tokens)
    return posterior, world.predictive(posterior, query), world.evidence_of(posterior)


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(LogisticRegression(nuts=QUICK), id="logistic"),
        pytest.param(NonlinearGaussian(), id="nonlinear", marks=pytest.mark.slow),
    ],
)
def test_nuts_agrees_with_numerical_integration(world):
    episode = world.sample(jax.random.key(2), LENGTH, 2)
    posterior, _, (evidence, error) = all_answers(world, episode.tokens, episode.query)
    mean, cov, exact = grid_posterior(world, episode.tokens)
    assert posterior.status == "ok"
    std = np.sqrt(np.diag(cov))
    standard_error = std / np.sqrt(posterior.effective)
    assert (np.abs(posterior.mean - mean) < FIVE * standard_error).all()
    # The standard error of a variance is about √2 times that of a mean, if tails are nearly normal.
    # The squares of the draws are correlated too, so twice that is allowed.
    assert (
        np.abs(np.diag(posterior.cov) / std**2 - 1) < FIVE * 2 * np.sqrt(2 / posterior.effective)
    ).all()
    assert abs(evidence - exact) < FIVE * error
    assert error < 0.05


@pytest.mark.slow
def test_a_world_from_a_numpyro_model_has_the_conjugate_answer():
    """For a Gamma(2, 1) rate and Poisson tokens the posterior is Gamma(2 + Σx, 1 + L)."""
    world = GAMMA_POISSON
    episode = world.sample(jax.random.key(3), LENGTH)
    posterior, law, (evidence, error) = all_answers(world, episode.tokens, None)
    total = float(episode.tokens.sum())
    shape, rate = 2 + total, 1 + LENGTH
    standard_error = np.sqrt(shape) / rate / np.sqrt(posterior.effective[0])
    assert abs(posterior.mean[0] - shape / rate) < FIVE * standard_error
    assert abs(law.mean[0] - shape / rate) < FIVE * standard_error
    # The variance of a token is the variance of the rate plus the mean of the Poisson variance.
    np.testing.assert_allclose(law.var[0], shape / rate**2 + shape / rate, rtol=0.15)
    exact = gammaln(shape) - gammaln(2) - shape * np.log(rate) - gammaln(episode.tokens + 1).sum()
    assert abs(evidence - exact) < FIVE * error


@pytest.mark.slow
def test_masks_and_updates_agree_with_the_conjugate_posterior():
    """Masking tokens gives the posterior without them, and updating gives the posterior of all
    tokens. Only the draws differ."""
    world = GAMMA_POISSON
    tokens = world.sample(jax.random.key(3), LENGTH).tokens
    keep = jnp.arange(LENGTH) < 4
    spoilt = jnp.where(keep[:, None], tokens, jnp.nan)
    masked = world.posterior(spoilt, keep)
    both = world.update(masked, tokens[4:])
    for posterior, seen in ((masked, tokens[:4]), (both, tokens)):
        shape, rate = 2 + float(seen.sum()), 1 + len(seen)
        error = np.sqrt(shape) / rate / np.sqrt(posterior.effective[0])
        assert abs(posterior.mean[0] - shape / rate) < FIVE * error


@pytest.mark.slow
def test_exact_worlds_against_nuts_for_the_same_model():
    """Worlds with latent mean and variance, and with latent weights: closed forms and NUTS agree
    within five Monte Carlo standard errors of the posterior means."""
    exact = NormalInverseGamma(1, prior_count=1.0, freedom=6.0, noise_var=1.0)

    def prior():
        var = numpyro.sample("var", dist.InverseGamma(3.0, 3.0))
        mean = numpyro.sample("mean", dist.Normal(0.0, jnp.sqrt(var)))
        return mean, var

    twin = FromModel(prior, lambda z: dist.Normal(z[0], jnp.sqrt(z[1])), nuts=Nuts(draws=1000))
    tokens = exact.sample(jax.random.key(5), LENGTH).tokens
    law, draws = exact.posterior(tokens), twin.posterior(tokens)
    errors = np.sqrt(np.diag(draws.cov) / draws.effective)
    assert draws.status == "ok"
    assert abs(draws.mean[0] - law.mean[0]) < FIVE * errors[0]
    assert abs(draws.mean[1] - law.expected_var[0]) < FIVE * errors[1]
    evidence, error = twin.evidence_of(draws)
    assert abs(evidence - exact.log_evidence(tokens)) < FIVE * error

    line = LinearRegression(2, noise_std=0.5)
    weights = FromModel(
        dist.Normal(jnp.zeros(2), 1.0).to_event(1),
        lambda z, k: dist.Normal(jnp.dot(z, k), 0.5),
        key_dim=2,
        nuts=Nuts(draws=1000),
    )
    episode = line.sample(jax.random.key(6), LENGTH, 3)
    chains = weights.posterior(episode.tokens)
    best = line.posterior(episode.tokens).mean
    errors = np.sqrt(np.diag(chains.cov) / chains.effective)
    assert (np.abs(chains.mean - best) < FIVE * errors).all()


def test_a_prior_may_have_several_sites_and_return_any_pytree():
    def prior():
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        return {"centre": centre, "spread": spread}

    world = FromModel(prior, lambda z: dist.Normal(z["centre"], 0.1 + z["spread"]), nuts=QUICK)
    episode = world.sample(jax.random.key(0), LENGTH)
    assert set(episode.latent) == {"centre", "spread"}
    assert world.representation(episode.tokens[:0]).shape == (2 + 3,)
    prior_draws = world.posterior(episode.tokens[:0])
    # Without tokens the draws are 2,000 independent draws from the prior.
    assert abs(prior_draws.mean[0]) < FIVE / np.sqrt(2000)
    assert float(world.log_evidence(episode.tokens[:0])) == 0


def test_a_failed_convergence_check_is_a_status_and_the_values_are_nan():
    """Ten warm-up steps and twenty draws cannot give an effective sample size of 400."""
    world = LogisticRegression(nuts=Nuts(chains=2, warmup=10, draws=20))
    episode = world.sample(jax.random.key(0), LENGTH, 2)
    posterior, law, evidence = all_answers(world, episode.tokens, episode.query)
    assert posterior.status is Status.NOT_CONVERGED
    assert posterior.reason.startswith("the reference posterior has not converged: largest split")
    numbers = posterior.mean, posterior.pooled(), posterior.sample(jax.random.key(0))
    assert all(np.isnan(part).all() for part in (*numbers, posterior.latent))
    assert np.isfinite(posterior.refused_draws["weights"]).all()
    assert np.isnan(law.mean).all()
    assert np.isnan(evidence[0])


@pytest.mark.slow
def test_a_risk_without_converged_references_is_nan():
    risk = LogisticRegression(nuts=Nuts(chains=2, warmup=10, draws=20)).risk(2)
    assert isinstance(risk, ReferenceReading)
    assert risk.status is Status.SOME_NOT_CONVERGED
    assert (risk.failed, risk.episodes, risk.cause) == (64, 64, Status.NOT_CONVERGED)
    assert "longer chains" in risk.reason
    assert np.isnan(risk.value)


@pytest.mark.slow
def test_reference_cells_run_on_the_engine_and_are_stored(tmp_path):
    """Reference posteriors are ordinary cells: workers compute them, and the store keeps them. A
    failed convergence check fails the cell."""
    code = code_version("attnlens.runs.references")
    quick = {"warmup": 300, "draws": 300}
    good = references.cells("logistic-regression", [4], [1, 2, 3], code=code, nuts=quick)
    poor = {"warmup": 10, "draws": 20, "chains": 2}
    bad = references.cells("logistic-regression", [4], [1, 2, 3], code=code, nuts=poor)
    with Store.writing(tmp_path) as store:
        store.start_run({}, {})
        for outcome in local.run([*good, *bad], workers=1, cache_folder=tmp_path / "cache"):
            if outcome.values is None:
                store.keep_failure(outcome.cell, outcome.failure or "")
            else:
                store.keep(outcome.cell, outcome.values, outcome.seconds)
        assert store.keys() == {good[0].key}
        result = store.result(good[0].key)
        [failure] = store.failures()
    assert result is not None
    assert result.values["mean"].shape == (3, 2)
    assert result.values["prediction"].shape == result.values["answer"].shape == (3, 8, 1)
    assert (result.values["r_hat"] < 1.05).all()
    assert failure["reason"].startswith("NotConverged: 3 of 3 reference posteriors have not")
    # The same cell in this process has the same draws, so the numbers agree up to rounding.
    again = references.measure("reference", good[0].parameters, good[0].seeds)
    np.testing.assert_allclose(again["mean"], result.values["mean"], rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_calibration_of_a_reference():
    """In each of 64 episodes, the latent is a draw from the posterior, so its squared Mahalanobis
    distance has the mean 2, the dimension. For a normal posterior it is χ²₂ (variance 4), so the
    mean of 64 has a standard error of 0.25. Skewed posteriors have a little more; five times 0.3 is
    allowed."""
    values = references.measure(
        "reference",
        {
            "world": "attnlens.worlds:LogisticRegression",
            "settings": {"prior_std": 1.0},
            "length": LENGTH,
            "nuts": {"warmup": 300, "draws": 500},
        },
        range(64),
    )
    gap = values["latent"] - values["mean"]
    distance = np.einsum("ni,nij,nj->n", gap, np.linalg.inv(values["covariance"]), gap)
    assert abs(distance.mean() - 2) < FIVE * 0.3
    error = values["answer"] - values["prediction"]
    # On average, the squared error of the prediction equals its variance.
    ratio = np.mean(error**2) / np.mean(values["prediction_var"])
    assert abs(ratio - 1) < 0.5


@pytest.mark.slow
def test_an_instrument_accepts_a_world_of_the_user():
    """The instrument for inference errors accepts a world that a user defines by a prior and a
    likelihood."""
    world = FromModel(
        dist.Normal(jnp.zeros(2), 2.0).to_event(1),
        lambda z, k: dist.Bernoulli(logits=3 * jnp.dot(z, k)),
        key_dim=2,
        nuts=QUICK,
    )
    curve = attnlens.inference_error(softmax, world, (4, 16), episodes=8, queries=4)
    assert all(np.isfinite(reading.value) for reading in curve.readings)
    # With more tokens the posterior uncertainty is smaller.
    assert curve.exact[1] < curve.exact[0]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FromModel(dist.Normal(), 3.0), "likelihood must be a function of the latent"),
        (lambda: Nuts(chains=1), "chains must be a whole number of at least 2"),
        (lambda: references.find("nowhere:World", {}), "cannot be imported"),
        (lambda: references.find("linear-regression", {}), "are for worlds without a closed form"),
        (lambda: references.find("logistic-regression", {"key_dim": 3}), "is a finished world"),
        (lambda: references.replace(Nuts(), {"steps": 3}), "each setting of nuts must be one of"),
        (lambda: LogisticRegression(prior_std=0.0), "prior_std must be a finite number above 0"),
    ],
)
def test_invalid_settings_raise_one_sentence(make, sentence):
    with pytest.raises(BadInput, match=sentence):
        make()
