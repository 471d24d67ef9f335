"""Numbers that the texts of the exchangeability claims state, computed independently."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import ndtr

from attnlens.claims import Measured
from attnlens.claims.exchangeability import condition_number, generalisation_samples, heads
from attnlens.claims.trained_networks import reader
from attnlens.core.statistics import control_verdict, verdicts
from attnlens.networks import count


def worlds(follows: bool) -> list[Measured]:
    """Sixteen seeds in six worlds; the downstream excess rises as κ², or is the same in all."""
    random = np.random.default_rng(0)
    noise = np.exp(0.4 * random.normal(size=(6, 16)))
    return [
        Measured(
            {"kappa": kappa, "last_direction_asked": True},
            tuple(range(16)),
            {"pretraining": np.ones(16), "downstream": (kappa**2 if follows else 1) * row / 6},
        )
        for kappa, row in zip(condition_number.KAPPAS[::2], noise, strict=True)
    ]


def test_the_rank_correlation_refutes_an_excess_that_does_not_rise_with_kappa():
    (rising,) = verdicts([condition_number.RULE(worlds(True))])
    assert rising.outcome == "supported"
    constant = control_verdict(condition_number.RULE(worlds(False)), 28)
    assert constant.outcome == "refuted"
    assert constant.reason.startswith("Rank correlation")
    # The bound holds there nevertheless: only the rank correlation refutes.
    assert max(part.p_support for part in constant.parts[:-1]) < 0.025


@pytest.mark.slow
def test_the_excess_of_the_other_target_comes_from_its_own_row_of_the_weights():
    parameters = {**condition_number.GRID.settings, "kappa": 7.0, "target": [0]}
    key = jax.random.key(0)
    with jax.enable_x64(True):
        first = condition_number.excesses(parameters, key)[1]
        learned = condition_number.train(*condition_number.pretraining_data(parameters, key))
    energy = condition_number.read_energy(parameters)
    row = learned[0] - np.eye(parameters["dim"])[0] / energy
    assert first == pytest.approx(energy * row @ row, rel=1e-12)


def test_the_network_of_the_generalisation_claim_has_the_stated_parameter_count():
    # Queries and keys 2·4·3 each, values 2; of 5 features: skip 5, hidden 16·5 + 16, answer 16 + 1.
    settings: Any = generalisation_samples.GRID.settings
    dim = settings["key_dim"]
    model = reader(settings, key_dim=dim, query_dim=dim)(jax.random.key(0))
    assert count(model) == 24 + 24 + 2 + 5 + 96 + 17 == 168


def test_the_floor_of_the_maximum_is_the_stated_one():
    """E Var(max z | X) = E max² − E (E[max | X])², by sampling the posterior means and integrating
    over the maximum's distribution function Π Φ((t − μ_g)/s)."""
    settings: Any = heads.GRID.settings
    precision = 1 + settings["tokens_per_group"] / settings["noise_std"] ** 2
    assert precision == 33
    spread = precision**-0.5
    means = np.random.default_rng(0).normal(0, (1 - 1 / 33) ** 0.5, (4000, settings["groups"]))
    t = means.max(1)[:, None] + spread * np.linspace(-7, 7, 201)
    below = np.prod(ndtr((t[:, :, None] - means[:, None, :]) / spread), -1)
    share, middle = np.diff(below, axis=1), (t[:, 1:] + t[:, :-1]) / 2
    variance = (share * middle**2).sum(1) - (share * middle).sum(1) ** 2
    # Bins of width 0.07 s add at most their own variance, 0.07² s²/12: 1e-5 of the floor.
    error = variance.std(ddof=1) / 4000**0.5
    assert error < 1e-4
    assert abs(variance.mean() - 0.0280) < 4.5 * error + 5e-5  # 5e-5 for rounding of the last digit
