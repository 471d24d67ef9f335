"""Split R-hat and effective sample size: comparison with NumPyro, and chains that have not
converged."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size as numpyro_effective
from numpyro.diagnostics import split_gelman_rubin

from attnlens.core.status import Status
from attnlens.worlds.diagnostics import (
    EFFECTIVE_LIMIT,
    R_HAT_LIMIT,
    effective_sample_size,
    split_r_hat,
)
from attnlens.worlds.sampled_posterior import OUTCOMES, ReferenceReading, judged

CHAINS, DRAWS = 4, 500


def auto_regressive(coefficient: float, seed: int = 0) -> np.ndarray:
    """Auto-regressive chains, whose effective sample size is known: n (1 − c)/(1 + c)."""
    noise = np.random.default_rng(seed).standard_normal((CHAINS, DRAWS + 200, 1))
    chain = np.zeros_like(noise)
    for step in range(1, noise.shape[1]):
        chain[:, step] = coefficient * chain[:, step - 1] + noise[:, step]
    return chain[:, 200:]


@pytest.mark.parametrize("coefficient", [0.0, 0.5, 0.9])
def test_against_numpyro(coefficient):
    """R-hat has the same formula as in NumPyro, so both agree up to rounding. The effective sample
    size of NumPyro does not split chains, so it gets half-chains. Then both use the estimator of
    Geyer and differ only in where they truncate the autocorrelations: 10 % is allowed."""
    chain = auto_regressive(coefficient)
    np.testing.assert_allclose(
        split_r_hat(jnp.asarray(chain)), split_gelman_rubin(chain), rtol=1e-10
    )
    halves = np.concatenate([chain[:, :250], chain[:, 250:]])
    np.testing.assert_allclose(
        effective_sample_size(jnp.asarray(chain)), numpyro_effective(halves), rtol=0.1
    )


@pytest.mark.parametrize("coefficient", [0.0, 0.5, 0.8])
def test_effective_size_of_a_known_chain(coefficient):
    """The mean estimate over 20 sets of chains is n (1 − c)/(1 + c). One estimate has a standard
    deviation of about 10 %, so the mean has 2 to 3 %: 12 % is at least four standard errors."""
    exact = CHAINS * DRAWS * (1 - coefficient) / (1 + coefficient)
    estimates = [
        float(effective_sample_size(jnp.asarray(auto_regressive(coefficient, seed)))[0])
        for seed in range(20)
    ]
    assert abs(np.mean(estimates) / exact - 1) < 0.12


def test_converged_chains_pass_and_others_do_not():
    converged = jnp.asarray(auto_regressive(0.3))
    assert split_r_hat(converged)[0] < R_HAT_LIMIT
    assert effective_sample_size(converged)[0] > EFFECTIVE_LIMIT
    separate = converged + jnp.arange(CHAINS, dtype=converged.dtype)[:, None, None]
    assert split_r_hat(separate)[0] > R_HAT_LIMIT
    drifting = converged + jnp.linspace(0, 3, DRAWS)[None, :, None]
    assert split_r_hat(drifting)[0] > R_HAT_LIMIT
    correlated = jnp.asarray(auto_regressive(0.95))
    assert effective_sample_size(correlated)[0] < EFFECTIVE_LIMIT


def test_a_coordinate_that_does_not_vary_is_converged_if_another_one_does():
    fixed = np.concatenate([auto_regressive(0.3), np.zeros((CHAINS, DRAWS, 1))], -1)
    assert split_r_hat(jnp.asarray(fixed))[1] == 1
    assert effective_sample_size(jnp.asarray(fixed))[1] == CHAINS * DRAWS
    stuck = jnp.asarray(np.zeros_like(fixed))
    assert np.isnan(split_r_hat(stuck)).all()


def test_a_reading_has_the_status_of_the_posteriors_behind_it():
    fine, unconfirmed, divergent, slow = (
        OUTCOMES.index(s)
        for s in (Status.OK, Status.UNCONFIRMED, Status.DIVERGENT, Status.LOW_ENERGY)
    )
    reading = ReferenceReading(0.5, 0.1, 4)
    assert judged(reading, np.array([fine] * 4)) == reading
    assert "failed" not in reading.details
    assert judged(reading, np.array([fine, unconfirmed])).status is Status.UNCONFIRMED
    refused = judged(reading, np.array([divergent, slow, divergent, unconfirmed]))
    assert refused.status is Status.SOME_NOT_CONVERGED
    assert (refused.failed, refused.episodes, refused.cause) == (3, 4, Status.DIVERGENT)
    assert np.isnan(refused.value)
    assert "3 of 4" in refused.reason
    assert "reparametrise" in refused.reason
