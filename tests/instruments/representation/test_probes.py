"""Families and probes with known answers: densities, derivatives, regressions."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.linear_model import LogisticRegression as Logistic

from attnlens.core.checks import BadInput
from attnlens.instruments.representation.families import (
    CategoricalFamily,
    GaussianFamily,
    divergence,
    from_moments,
    posterior_family,
)
from attnlens.instruments.representation.law_probes import fit_law
from attnlens.instruments.representation.probes import (
    PROBES,
    ProbeScaling,
    feature_map,
    fit_numbers,
    split,
)
from attnlens.worlds import (
    EXAMPLES,
    ExactWorld,
    FiniteMixture,
    GaussianProcess,
    LogisticRegression,
)

NAMES = (
    "normal-mean-full",
    "normal-inverse-gamma",
    "dirichlet-categorical",
    "finite-mixture",
    "linear-regression",
)
each_world = pytest.mark.parametrize("name", NAMES)
COUNT, LENGTH = 6, 5
# Most of the time is spent on compiling, and most of that on optimisations.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@cache
def posteriors(name: str):
    """Natural parameters of a few posteriors, an equal number of latents, and the log density of
    each latent under each posterior, from one compiled program per world."""
    world = EXAMPLES[name]
    assert isinstance(world, ExactWorld)

    @partial(jax.jit, compiler_options=QUICK)
    def compute(keys):
        episodes = jax.vmap(lambda key: world.sample(key, LENGTH))(keys)
        laws = jax.vmap(world.posterior)(episodes.tokens)
        eta = jax.vmap(world.representation)(episodes.tokens)
        densities = jax.vmap(lambda law: jax.vmap(law.log_prob)(episodes.latent))(laws)
        return eta, episodes.latent, densities

    arrays = compute(jax.random.split(jax.random.key(5), COUNT))
    return posterior_family(world).family, *jax.tree.map(np.asarray, arrays)


@each_world
def test_a_family_has_the_density_of_the_worlds_posterior(name: str):
    """The family has log p(z) = ⟨η, T(z)⟩ − A(η) + log h(z). The difference of the two sides
    without log h(z) must depend on z only."""
    family, eta, latent, exact = posteriors(name)
    ours = eta @ family.statistic(latent).T - family.log_partition(eta)[:, None]
    difference = ours - exact
    # The two sides add about ten terms of the size of the largest one in different orders: 1e−13 of
    # it is 450 rounding units.
    size = np.abs(ours).max() + np.abs(exact).max()
    np.testing.assert_allclose(
        difference, difference[:1].repeat(COUNT, 0), rtol=0, atol=1e-13 * size
    )


@each_world
def test_the_expected_statistic_and_its_derivative_are_those_of_the_log_partition(name: str):
    family, eta, _, _ = posteriors(name)
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(eta.shape) * np.abs(eta).mean() * 1e-2
    step = 1e-5
    ahead, behind = eta + step * direction, eta - step * direction
    slope = (family.log_partition(ahead) - family.log_partition(behind)) / (2 * step)
    expected = (family.expected(eta) * direction).sum(-1)
    # The errors of central differences, rounding ε·A/step and curvature step²·A‴, are both below
    # 1e−8 here.
    np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-8)
    product = (family.expected(ahead) - family.expected(behind)) / (2 * step)
    size = np.abs(product).max()
    np.testing.assert_allclose(family.hessian(eta)(direction), product, rtol=1e-6, atol=1e-7 * size)


@each_world
def test_the_divergence_is_zero_only_from_itself(name: str):
    family, eta, _, _ = posteriors(name)
    np.testing.assert_allclose(divergence(family, eta, eta), 0, atol=1e-12)
    assert (divergence(family, eta, eta[::-1]) > 0).all()


def test_the_divergence_is_the_expected_log_ratio():
    """KL(p ‖ q) = E_p log p/q, with draws from p by SciPy; 4.5 standard errors are allowed."""
    family, eta, _, _ = posteriors("dirichlet-categorical")
    draws = scipy.stats.dirichlet.rvs(eta[0], size=4000, random_state=0)
    logs = [scipy.stats.dirichlet.logpdf(draws.T, alpha) for alpha in eta[:2]]
    ratios = logs[0] - logs[1]
    (value,) = divergence(family, eta[:1], eta[1:2])
    assert abs(ratios.mean() - value) < 4.5 * ratios.std() / np.sqrt(len(ratios))


def test_normal_divergence_in_closed_form():
    # ½ [v/v' + (m − m')²/v' − 1 + log v'/v] with m = 1, v = 2, m' = 0, v' = 3.
    exact = 0.5 * (2 / 3 + 1 / 3 - 1 + np.log(3 / 2))
    value = divergence(GaussianFamily(1), np.array([[1 / 2, 1 / 2]]), np.array([[0.0, 1 / 3]]))
    np.testing.assert_allclose(value, exact, rtol=1e-14)


@each_world
def test_outside_of_the_allowed_set_the_divergence_is_infinite(name: str):
    family, eta, _, _ = posteriors(name)
    if isinstance(family, CategoricalFamily):
        assert family.allowed(-eta).all()  # all real vectors are log-odds
        return
    assert family.allowed(eta).all()
    assert not family.allowed(-eta).any()
    assert np.isinf(divergence(family, eta, -eta)).all()


def test_a_latent_function_is_represented_by_its_values_at_landmarks():
    world = GaussianProcess()
    family, natural = posterior_family(world)
    assert isinstance(family, GaussianFamily)

    @partial(jax.jit, compiler_options=QUICK)
    def compute(key):
        tokens = world.sample(key, 6).tokens
        points = world.landmarks(jnp.float64)[: family.dim]
        return natural(tokens), world.predict(tokens, points).mean

    eta, mean = jax.tree.map(np.asarray, compute(jax.random.key(0)))
    # Both sides invert a covariance matrix of four landmarks at temperature 0.5, whose condition
    # number is below 1e4.
    np.testing.assert_allclose(family.latent_mean(eta[None])[0], mean[:, 0], atol=1e-9)


def test_the_family_of_a_sampled_posterior_is_normal():
    """Mean and covariance are converted to natural parameters and back; copies of a coordinate are
    refused."""
    assert posterior_family(LogisticRegression(key_dim=2)).family == GaussianFamily(2)
    moments = np.array([[1.0, -2.0, 4.0, 1.0, 0.5]])  # mean, then covariance 4, 1, ½
    expected = GaussianFamily(2).expected(from_moments(moments, 2))
    second = [4 + 1, 1 - 2, 0.5 + 4]  # E z zᵀ
    np.testing.assert_allclose(expected[0], [1, -2, *np.multiply(second, [-0.5, -1, -0.5])])
    with pytest.raises(BadInput, match="not functions of each other"):
        from_moments(np.array([[0.0, 0.0, 1.0, 1.0, 1.0]]), 2)


# -- regressions -----------------------------------------------------------------------------

RNG = np.random.default_rng(3)
X = RNG.standard_normal((800, 3))
ROWS = split(len(X), np.random.default_rng(0))


def test_splits_are_disjoint_and_contain_every_row():
    assert sorted(np.concatenate(ROWS)) == list(range(800))
    assert [len(part) for part in ROWS] == [480, 120, 200]


TARGETS = np.column_stack(
    [X @ [1.0, -2.0, 0.5], X[:, 0] * X[:, 1], 1.0 * (X[:, 2] > 0.7), 0 * X[:, 0]]
)
# The largest share of variance that a probe may leave unexplained, per target.
UNEXPLAINED = {
    "ridge": (1e-6, 1.1, 1.0),
    "quadratic": (1e-6, 1e-6, 1.0),
    "kernel": (1e-6, 0.05, 0.5),
    "trees": (0.1, 0.2, 0.05),
}


@pytest.mark.parametrize("probe", PROBES)
def test_every_probe_explains_the_targets_it_can_represent(probe: str):
    fitted = fit_numbers(X, TARGETS, ROWS, (probe,), np.random.default_rng(1))
    residual = ((TARGETS[ROWS.test] - fitted.predicted) ** 2).mean(0)
    assert (residual[:3] / TARGETS[ROWS.test, :3].var(0) < UNEXPLAINED[probe]).all()
    assert residual[3] == 0
    assert fitted.winners[0] == probe
    assert fitted.winners[3] == "constant"  # because the target is constant


def test_the_probe_is_chosen_for_each_target_separately():
    fitted = fit_numbers(X, TARGETS, ROWS, PROBES, np.random.default_rng(1))
    assert fitted.winners[1] == "quadratic"
    assert fitted.winners[2] == "trees"


def test_constant_columns_are_left_out_and_wide_tables_have_no_products():
    table = np.column_stack([np.full(50, 1 / 3), RNG.standard_normal(50)])
    assert ProbeScaling.of(table).varies.tolist() == [False, True]
    assert feature_map("ridge", table[:, :1], table, RNG) is None
    wide = RNG.standard_normal((100, 41))
    assert feature_map("quadratic", wide, wide, RNG) is None  # it would have 902 columns


def test_a_law_of_classes_is_logistic_regression():
    """The fitted law is compared with the unpenalised fit of scikit-learn on the same rows."""
    family = CategoricalFamily(3)
    classes = (X @ RNG.standard_normal((3, 3)) + RNG.gumbel(size=(800, 3))).argmax(-1)
    labels = family.statistic(classes)
    eta = np.zeros((800, 2))
    law = fit_law(family, X, eta, labels, labels, ROWS, ("ridge",), np.random.default_rng(0), False)
    model = Logistic(C=np.inf, tol=1e-8, max_iter=1000).fit(X[ROWS.train], classes[ROWS.train])
    exact = model.predict_proba(X[ROWS.test])
    # The chosen penalty is at most 1e−2. With the weakest penalty the two fits agree to 1e−6; a
    # stronger one is only chosen if it does not raise the validation loss.
    probabilities = family.latent_mean(law.eta)
    logs = [np.log(p)[np.arange(200), classes[ROWS.test]].mean() for p in (probabilities, exact)]
    assert abs(logs[0] - logs[1]) < 0.01


def test_a_law_of_a_number_predicts_mean_and_variance_together():
    """For z ~ N(x, 1/(1 + x²)) the natural parameters (x + x³, 1 + x²) are cubic in x. So the ridge
    and quadratic probes have a bias and a divergence; the kernel probe has almost none."""
    x = np.linspace(-1.5, 1.5, 800)[:, None]
    exact = np.column_stack([x + x**3, 1 + x**2])
    family = GaussianFamily(1)
    labels = family.expected(exact)
    laws = {
        probe: fit_law(
            family, x, exact, labels, exact, ROWS, (probe,), np.random.default_rng(0), True
        )
        for probe in ("ridge", "quadratic", "kernel")
    }
    gap = {name: divergence(family, exact[ROWS.test], law.eta).mean() for name, law in laws.items()}
    assert gap["kernel"] < 1e-4 < gap["quadratic"] < gap["ridge"]


def test_parameters_that_are_not_allowed_are_moved_into_the_allowed_set():
    """A linear precision 1 + x is negative below −1. Far outside of the fitted range the prediction
    must still be a valid law."""
    x = np.concatenate([np.linspace(-0.5, 1, 700), np.full(100, -40.0)])[:, None]
    precision = np.maximum(1 + x, 0.5)
    exact = np.concatenate([0 * x, precision], axis=1)
    family = GaussianFamily(1)
    order = np.arange(800)
    rows = type(ROWS)(order[:600], order[600:700], order[700:])
    law = fit_law(family, x, exact, family.expected(exact), exact, rows, ("ridge",), RNG, True)
    assert family.allowed(law.eta).all()
    assert np.isfinite(divergence(family, exact[700:], law.eta)).all()


def test_statistics_of_classes_are_one_hot_rows():
    np.testing.assert_array_equal(CategoricalFamily(3).statistic([0, 2]), [[1, 0], [0, 0]])
    world = EXAMPLES["finite-mixture"]
    assert isinstance(world, FiniteMixture)
    probs = CategoricalFamily(2).latent_mean(np.array([[np.log(3.0)]]))
    np.testing.assert_allclose(probs, [[0.75, 0.25]], rtol=1e-15)


def test_normal_family_agrees_with_scipy():
    family = GaussianFamily(2)
    covariance: Any = np.array([[2.0, 0.3], [0.3, 0.5]])
    mean, point = np.array([1.0, -1.0]), np.array([[0.2, 0.4]])
    precision = np.linalg.inv(covariance)
    eta = np.concatenate([precision @ mean, precision[np.tril_indices(2)]])[None]
    log_prob = (eta * family.statistic(point)).sum() - family.log_partition(eta)[0]
    exact = scipy.stats.multivariate_normal.logpdf(point[0], mean, covariance)
    assert log_prob - np.log(2 * np.pi) == pytest.approx(exact, rel=1e-13)
