"""What the files of lens A say of themselves, where it can be counted."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.special import ndtr

from attnlens.claims import Measured
from attnlens.claims.lens_a import condition_number, generalisation_samples, heads
from attnlens.networks import count
from attnlens.statistics import control_verdict, verdicts
from attnlens.worlds import LinearRegression


def worlds(follows: bool) -> list[Measured]:
    """Sixteen seeds in six worlds; downstream excess rises as κ², or is the same in all."""
    random = np.random.default_rng(0)
    noise = np.exp(0.4 * random.normal(size=(6, 16)))
    return [
        Measured(
            {"kappa": kappa},
            tuple(range(16)),
            {"pretraining": np.ones(16), "downstream": (kappa**2 if follows else 1) * row / 6},
        )
        for kappa, row in zip(condition_number.ALIKE_WORLDS, noise, strict=True)
    ]


def test_ranks_alone_refute_an_excess_that_does_not_follow_kappa():
    (follows,) = verdicts([condition_number.judge(worlds(True))])
    assert follows.outcome == "supported"
    alike = control_verdict(condition_number.judge(worlds(False)), 28)
    assert alike.outcome == "refuted"
    assert alike.reason.startswith("Rank correlation")
    # The bound holds there all the same: only the ranks tell.
    assert max(part.p_support for part in alike.parts[:-1]) < 0.025


@pytest.mark.slow
def test_a_target_that_is_asked_about_alike_has_the_excess_of_its_own_row():
    with jax.enable_x64(True):
        moment = np.diag([1.0] * (condition_number.DIM - 1) + [0.01])
        world = LinearRegression(
            condition_number.DIM, condition_number.NOISE_STD,
            key_covariance=np.eye(condition_number.DIM), query_covariance=moment,
        )  # fmt: skip
        key = jax.random.key(0)
        first = condition_number._excesses(world, moment, key, np.eye(condition_number.DIM)[0])[1]
        learned = condition_number.train(
            *(np.asarray(part) for part in condition_number.sequences(world, key))
        )
    energy = condition_number.read_energy()
    row = learned[0] - np.eye(condition_number.DIM)[0] / energy
    assert first == pytest.approx(energy * row @ row, rel=1e-12)


def test_the_network_has_as_many_parameters_as_its_file_says():
    # Queries and keys 2·4·3 each, values 2; of 5 features: skip 5, hidden 16·5 + 16, answer 16 + 1.
    model = generalisation_samples.NETWORK(jax.random.key(0))
    assert count(model) == 24 + 24 + 2 + 5 + 96 + 17 == 168


def test_the_floor_of_the_maximum_is_what_its_file_says():
    """E Var(max z | X) = E max² − E (E[max | X])², by sampling the posterior means and integrating
    over the maximum's distribution function Π Φ((t − μ_g)/s)."""
    precision = 1 + heads.TOKENS_A_GROUP / heads.NOISE_STD**2
    assert precision == 33
    spread = precision**-0.5
    means = np.random.default_rng(0).normal(0, (1 - 1 / 33) ** 0.5, (4000, heads.GROUPS))
    t = means.max(1)[:, None] + spread * np.linspace(-7, 7, 201)
    below = np.prod(ndtr((t[:, :, None] - means[:, None, :]) / spread), -1)
    share, middle = np.diff(below, axis=1), (t[:, 1:] + t[:, :-1]) / 2
    variance = (share * middle**2).sum(1) - (share * middle).sum(1) ** 2
    # Bins of 0.07 s add at most their own variance, 0.07² s²/12, to each: 1e-5 of the floor.
    error = variance.std(ddof=1) / 4000**0.5
    assert error < 1e-4
    assert abs(variance.mean() - 0.0280) < 4.5 * error + 5e-5  # and the last digit's rounding
