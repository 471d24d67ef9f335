"""Numbers that the texts of the exchangeability claims state, computed independently."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from scipy.special import ndtr

from attnlens.claims import Measured
from attnlens.claims.exchangeability import (
    condition_number,
    condition_reads,
    generalisation_samples,
    heads,
    optimisation,
    size_free,
)
from attnlens.claims.trained_networks import reader
from attnlens.core.statistics import control_verdict, verdicts
from attnlens.networks import count


def worlds(follows: bool) -> list[Measured]:
    """768 seeds per value of κ. The downstream excess is κ² times `row_factor` if `follows`, and
    else 1 for every κ; both are multiplied by noise."""
    random = np.random.default_rng(0)
    cells = []
    for kappa in condition_number.KAPPAS:
        parameters = {**condition_number.LINEAR.settings, "kappa": kappa}
        noise = np.exp(0.5 * random.normal(size=768) - 0.125)  # log-normal with mean one
        law = kappa**2 * condition_reads.row_factor(parameters)
        pretraining = np.full(768, condition_reads.row_variances(parameters).sum())
        values = {"pretraining": pretraining, "downstream": (law if follows else 1.0) * noise}
        cells.append(Measured(parameters, tuple(range(768)), values))
    return cells


def test_the_law_of_linear_reads_is_supported_and_a_constant_excess_refuted():
    quantities = condition_number.RULE.by_key(worlds(True))
    (law,) = verdicts([[*quantities["law"], *quantities["slope"]]])
    assert law.outcome == "supported"
    constant = condition_number.RULE.by_key(worlds(False))
    for key in ("law", "slope"):
        assert control_verdict(constant[key], 28).outcome == "refuted"


def test_the_residual_factor_is_that_of_simulated_least_squares_errors():
    """The factor h is the same with simulated errors: row i of the error of the weights has an
    expected square R_i/Σ_ii proportional to E r² q_i² ‖s‖²/(e² Σ_ii²), computed by drawing q, z and
    s."""
    parameters = {**condition_number.LINEAR.settings, "kappa": 30.0}
    dim, length, noise = (parameters[n] for n in ("dim", "length", "noise_std"))
    assert condition_reads.residual_factor(parameters) == pytest.approx(0.777, abs=5e-4)
    random = np.random.default_rng(0)
    moment = condition_reads.query_moment(parameters)
    energy = condition_reads.read_energy(parameters)
    rows = []
    for _ in range(20):
        latent, keys = random.normal(size=(10_000, dim)), random.normal(size=(10_000, length, dim))
        values = np.einsum("nld,nd->nl", keys, latent) + noise * random.normal(
            size=(10_000, length)
        )
        read = np.einsum("nl,nld->nd", values, keys) / length
        query = random.normal(size=(10_000, dim)) * np.sqrt(moment)
        residual = np.sum(query * (latent - read / energy), 1) + noise * random.normal(size=10_000)
        weights = (residual**2 * np.sum(read**2, 1))[:, None]
        rows.append(np.mean(weights * query**2 / moment, 0))
    simulated = np.mean(rows, 0)
    weak = moment[-1]
    factors = dim * (weak * np.array(rows)[:, 0] + np.array(rows)[:, -1])
    factors /= (1 + weak) * simulated.sum()
    error = factors.std(ddof=1) / 20**0.5
    # The 0.006 allows for the dependence between z − s/e and s, which h neglects.
    assert abs(factors.mean() - 0.777) < 4 * error + 0.006


def test_the_excess_of_the_other_target_comes_from_its_own_row_of_the_weights():
    parameters = {**condition_number.LINEAR.settings, "kappa": 7.0, "target": [0]}
    error = np.random.default_rng(0).normal(size=(2, 6, 6))
    excess = condition_reads.excesses(parameters, error)["downstream"]
    energy = condition_reads.read_energy(parameters)
    np.testing.assert_allclose(excess, energy * np.sum(error[:, 0] ** 2, -1), rtol=1e-12)


def test_the_closed_form_of_the_size_free_claim():
    """The closed form equals the ratio of errors in a draw, where the mean of n tokens is shrunk by
    the factor for the training length."""
    for length, factor, stated in ((4, 4, 0.36), (4, 8, 0.98), (8, 4, 0.22), (8, 8, 0.60)):
        n = length * factor
        expected = size_free.closed_form(length, factor)
        assert expected == pytest.approx(stated, abs=0.006)
        random = np.random.default_rng(n)
        latent = random.normal(size=40_000)
        mean = latent + random.normal(size=40_000) / n**0.5
        kept, exact = mean * length / (length + 1), mean * n / (n + 1)
        ratio = np.mean((kept - exact) ** 2) / np.mean((exact - latent) ** 2)
        # The ratio is one of two means of squares of normal numbers, each with a relative error of
        # √(2/40,000) = 0.7 %.
        assert ratio == pytest.approx(expected, rel=4 * 0.01)


def test_the_networks_of_the_claims_have_the_stated_parameter_counts():
    # Parameters of the first network: queries and keys 3·3 each, value 1; on the 4 features, skip
    # connection 4 and answer 1. The second one also has a hidden layer: 8·4 + 8, and 8.
    counts = []
    for claim in (generalisation_samples, optimisation):
        settings: Any = claim.GRID.settings
        dim = settings["key_dim"]
        counts.append(count(reader(settings, key_dim=dim, query_dim=dim)(jax.random.key(0))))
    assert counts == [24, 72]


def test_the_best_softmax_head_is_4_7_times_as_inefficient_as_ridge_regression():
    """The limit in the docstring of A.trained-efficiency: t = ⟨q, k⟩ is uniform on [−1, 1] for keys
    on the sphere in R³; the integrals are sums at 20,001 points."""
    t = np.linspace(-1, 1, 20_001)
    noise_var, dim = 0.25, 3
    ratios = []
    for temperature in np.geomspace(0.05, 2, 100):
        kappa = np.exp((t - 1) / temperature)
        scale = (kappa * t).sum() / kappa.sum()
        error = (kappa**2 * (1 - 2 * scale * t + scale**2 + noise_var)).mean()
        ratios.append(error / (kappa.mean() * scale) ** 2 / (dim * noise_var))
    assert round(min(ratios), 1) == 4.7
    assert max(ratios[0], ratios[-1]) > 8  # so the minimum is inside the range of temperatures


def test_the_floor_of_the_maximum_is_the_stated_one():
    """The floor of the loss is E Var(max z | X) = E max² − E (E[max | X])². The posterior means are
    sampled, and the variance is integrated over the distribution function Π Φ((t − μ_g)/s) of the
    maximum."""
    settings: Any = heads.GRID.settings
    precision = 1 + settings["tokens_per_group"] / settings["noise_std"] ** 2
    assert precision == 33
    spread = precision**-0.5
    means = np.random.default_rng(0).normal(0, (1 - 1 / 33) ** 0.5, (4000, settings["groups"]))
    t = means.max(1)[:, None] + spread * np.linspace(-7, 7, 201)
    below = np.prod(ndtr((t[:, :, None] - means[:, None, :]) / spread), -1)
    share, middle = np.diff(below, axis=1), (t[:, 1:] + t[:, :-1]) / 2
    variance = (share * middle**2).sum(1) - (share * middle).sum(1) ** 2
    # Bins of width 0.07 s add at most the variance of a uniform law of this width, 0.07² s²/12:
    # 1e-5 of the floor.
    error = variance.std(ddof=1) / 4000**0.5
    assert error < 1e-4
    assert abs(variance.mean() - 0.0280) < 4.5 * error + 5e-5  # 5e-5 for rounding of the last digit
