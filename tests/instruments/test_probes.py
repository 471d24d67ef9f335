"""Families and probes where the answer is known: densities, derivatives, regressions."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.linear_model import LogisticRegression as Logistic

from attnlens.checks import BadInput
from attnlens.instruments.families import CategoricalFamily, Gaussian, described, divergence
from attnlens.instruments.probes import (
    PROBES,
    Scaling,
    feature_map,
    read_law,
    read_numbers,
    split,
)
from attnlens.worlds import EXAMPLES, ExactWorld, FiniteMixture, GaussianProcess

NAMES = (
    "normal-mean-full", "normal-inverse-gamma", "dirichlet-categorical", "finite-mixture",
    "linear-regression",
)  # fmt: skip
each_world = pytest.mark.parametrize("name", NAMES)
COUNT, LENGTH = 6, 5
# Compiling is most of the work here, and optimising most of compiling.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@cache
def drawn(name: str):
    """Natural parameters of a few posteriors, as many latents, and the log density of each latent
    under each posterior; one compiled program a world."""
    world = EXAMPLES[name]
    assert isinstance(world, ExactWorld)

    @partial(jax.jit, compiler_options=QUICK)
    def compute(keys):
        episodes = jax.vmap(lambda key: world.sample(key, LENGTH))(keys)
        laws = jax.vmap(world.posterior)(episodes.tokens)
        eta = jax.vmap(world.representation)(episodes.tokens)
        densities = jax.vmap(lambda law: jax.vmap(law.log_prob)(episodes.latent))(laws)
        return eta, episodes.latent, densities

    found = compute(jax.random.split(jax.random.key(5), COUNT))
    return described(world).family, *jax.tree.map(np.asarray, found)


@each_world
def test_a_family_has_the_density_of_the_worlds_posterior(name: str):
    """log p(z) = ⟨η, T(z)⟩ − A(η) + log h(z): the difference of the two sides knows z only."""
    family, eta, latent, exact = drawn(name)
    ours = eta @ family.statistic(latent).T - family.log_partition(eta)[:, None]
    difference = ours - exact
    # Sums of about ten terms of the size of the largest, in another order: 1e−13 of it is
    # 450 rounding units.
    size = np.abs(ours).max() + np.abs(exact).max()
    np.testing.assert_allclose(
        difference, difference[:1].repeat(COUNT, 0), rtol=0, atol=1e-13 * size
    )


@each_world
def test_the_expected_statistic_and_its_derivative_are_those_of_the_log_partition(name: str):
    family, eta, _, _ = drawn(name)
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(eta.shape) * np.abs(eta).mean() * 1e-2
    step = 1e-5
    ahead, behind = eta + step * direction, eta - step * direction
    slope = (family.log_partition(ahead) - family.log_partition(behind)) / (2 * step)
    expected = (family.expected(eta) * direction).sum(-1)
    # Central differences: rounding ε·A/step and curvature step²·A‴ are both below 1e−8 here.
    np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-8)
    curve = (family.expected(ahead) - family.expected(behind)) / (2 * step)
    size = np.abs(curve).max()
    np.testing.assert_allclose(family.curve(eta)(direction), curve, rtol=1e-6, atol=1e-7 * size)


@each_world
def test_the_divergence_from_itself_is_zero_and_no_other_is(name: str):
    family, eta, _, _ = drawn(name)
    np.testing.assert_allclose(divergence(family, eta, eta), 0, atol=1e-12)
    assert (divergence(family, eta, eta[::-1]) > 0).all()


def test_the_divergence_is_the_expected_log_ratio():
    """KL(p ‖ q) = E_p log p/q, p drawn by SciPy; 4.5 standard errors (a false alarm in 1.5e5)."""
    family, eta, _, _ = drawn("dirichlet-categorical")
    draws = scipy.stats.dirichlet.rvs(eta[0], size=4000, random_state=0)
    logs = [scipy.stats.dirichlet.logpdf(draws.T, alpha) for alpha in eta[:2]]
    ratios = logs[0] - logs[1]
    (value,) = divergence(family, eta[:1], eta[1:2])
    assert abs(ratios.mean() - value) < 4.5 * ratios.std() / np.sqrt(len(ratios))


def test_normal_divergence_in_closed_form():
    # ½ [v/v' + (m − m')²/v' − 1 + log v'/v] with m = 1, v = 2, m' = 0, v' = 3.
    exact = 0.5 * (2 / 3 + 1 / 3 - 1 + np.log(3 / 2))
    found = divergence(Gaussian(1), np.array([[1 / 2, 1 / 2]]), np.array([[0.0, 1 / 3]]))
    np.testing.assert_allclose(found, exact, rtol=1e-14)


@each_world
def test_outside_of_the_allowed_set_the_divergence_is_infinite(name: str):
    family, eta, _, _ = drawn(name)
    if isinstance(family, CategoricalFamily):
        assert family.allowed(-eta).all()  # every log-odds are allowed
        return
    assert family.allowed(eta).all()
    assert not family.allowed(-eta).any()
    assert np.isinf(divergence(family, eta, -eta)).all()


def test_a_latent_function_is_judged_at_its_landmarks():
    world = GaussianProcess()
    family, natural = described(world)
    assert isinstance(family, Gaussian)

    @partial(jax.jit, compiler_options=QUICK)
    def compute(key):
        tokens = world.sample(key, 6).tokens
        points = world.landmarks(jnp.float64)[: family.dim]
        return natural(tokens), world.predict(tokens, points).mean

    eta, mean = jax.tree.map(np.asarray, compute(jax.random.key(0)))
    # The covariance is inverted once here and once there; four landmarks at temperature 0.5
    # have a condition number below 1e4.
    np.testing.assert_allclose(family.latent_mean(eta[None])[0], mean[:, 0], atol=1e-9)


def test_worlds_without_a_closed_form_are_refused():
    with pytest.raises(BadInput, match=r"posterior in closed form.*LogisticRegression came"):
        described(EXAMPLES["logistic-regression"])  # pyright: ignore[reportArgumentType]


# -- regressions -----------------------------------------------------------------------------

RNG = np.random.default_rng(3)
X = RNG.standard_normal((800, 3))
ROWS = split(len(X), np.random.default_rng(0))


def test_splits_do_not_overlap_and_leave_nothing_out():
    assert sorted(np.concatenate(ROWS)) == list(range(800))
    assert [len(part) for part in ROWS] == [480, 120, 200]


TARGETS = np.column_stack(
    [X @ [1.0, -2.0, 0.5], X[:, 0] * X[:, 1], 1.0 * (X[:, 2] > 0.7), 0 * X[:, 0]]
)
# Each probe's strength: the share of variance that it may leave, target by target.
LEAVES = {
    "ridge": (1e-6, 1.1, 1.0),
    "quadratic": (1e-6, 1e-6, 1.0),
    "kernel": (1e-6, 0.05, 0.5),
    "trees": (0.1, 0.2, 0.05),
}


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_finds_what_its_kind_can(probe: str):
    read = read_numbers(X, TARGETS, ROWS, (probe,), np.random.default_rng(1))
    left = ((TARGETS[ROWS.judge] - read.predicted) ** 2).mean(0)
    assert (left[:3] / TARGETS[ROWS.judge, :3].var(0) < LEAVES[probe]).all()
    assert left[3] == 0
    assert read.winners[0] == probe
    assert read.winners[3] == "constant"  # a target that does not vary needs no probe


def test_each_target_has_its_own_winner():
    read = read_numbers(X, TARGETS, ROWS, PROBES, np.random.default_rng(1))
    assert read.winners[1] == "quadratic"
    assert read.winners[2] == "trees"


def test_columns_that_do_not_vary_are_left_out():
    table = np.column_stack([np.full(50, 1 / 3), RNG.standard_normal(50)])
    assert Scaling.of(table).varies.tolist() == [False, True]
    assert feature_map("ridge", table[:, :1], table, RNG) is None
    wide = RNG.standard_normal((100, 41))
    assert feature_map("quadratic", wide, wide, RNG) is None  # 902 products and columns


def test_a_law_of_classes_is_logistic_regression():
    """scikit-learn's unpenalised fit, on the same rows."""
    family = CategoricalFamily(3)
    classes = (X @ RNG.standard_normal((3, 3)) + RNG.gumbel(size=(800, 3))).argmax(-1)
    labels = family.statistic(classes)
    eta = np.zeros((800, 2))
    read = read_law(
        family, X, eta, labels, labels, ROWS, ("ridge",), np.random.default_rng(0), False
    )
    model = Logistic(C=np.inf, tol=1e-8, max_iter=1000).fit(X[ROWS.fit], classes[ROWS.fit])
    exact = model.predict_proba(X[ROWS.judge])
    # The chosen penalty is at most 1e−2; with the weakest the two agree to 1e−6, and a stronger
    # one is only chosen where it does no harm to the validation loss.
    found = family.latent_mean(read.eta)
    logs = [np.log(p)[np.arange(200), classes[ROWS.judge]].mean() for p in (found, exact)]
    assert abs(logs[0] - logs[1]) < 0.01


def test_a_law_of_a_number_finds_mean_and_variance_together():
    """z ~ N(x, 1/(1 + x²)): the natural parameters (x + x³, 1 + x²) are cubic, and the moments
    that a probe must find vary with x. What is left falls to the quadratic probe's own bias."""
    x = np.linspace(-1.5, 1.5, 800)[:, None]
    exact = np.column_stack([x + x**3, 1 + x**2])
    family = Gaussian(1)
    labels = family.expected(exact)
    read = {
        probe: read_law(
            family, x, exact, labels, exact, ROWS, (probe,), np.random.default_rng(0), True
        )
        for probe in ("ridge", "quadratic", "kernel")
    }
    left = {name: divergence(family, exact[ROWS.judge], r.eta).mean() for name, r in read.items()}
    assert left["kernel"] < 1e-4 < left["quadratic"] < left["ridge"]


def test_laws_that_are_not_allowed_are_pulled_back_inside():
    """A linear precision 1 + x is negative below −1: far outside the fitted range it must still
    give a law."""
    x = np.concatenate([np.linspace(-0.5, 1, 700), np.full(100, -40.0)])[:, None]
    precision = np.maximum(1 + x, 0.5)
    exact = np.concatenate([0 * x, precision], axis=1)
    family = Gaussian(1)
    order = np.arange(800)
    rows = type(ROWS)(order[:600], order[600:700], order[700:])
    read = read_law(family, x, exact, family.expected(exact), exact, rows, ("ridge",), RNG, True)
    assert family.allowed(read.eta).all()
    assert np.isfinite(divergence(family, exact[700:], read.eta)).all()


def test_statistics_of_classes_are_their_rows():
    np.testing.assert_array_equal(CategoricalFamily(3).statistic([0, 2]), [[1, 0], [0, 0]])
    world = EXAMPLES["finite-mixture"]
    assert isinstance(world, FiniteMixture)
    probs = CategoricalFamily(2).latent_mean(np.array([[np.log(3.0)]]))
    np.testing.assert_allclose(probs, [[0.75, 0.25]], rtol=1e-15)


def test_normal_family_agrees_with_scipy():
    family = Gaussian(2)
    covariance: Any = np.array([[2.0, 0.3], [0.3, 0.5]])
    mean, point = np.array([1.0, -1.0]), np.array([[0.2, 0.4]])
    precision = np.linalg.inv(covariance)
    eta = np.concatenate([precision @ mean, precision[np.tril_indices(2)]])[None]
    log_prob = (eta * family.statistic(point)).sum() - family.log_partition(eta)[0]
    exact = scipy.stats.multivariate_normal.logpdf(point[0], mean, covariance)
    assert log_prob - np.log(2 * np.pi) == pytest.approx(exact, rel=1e-13)
