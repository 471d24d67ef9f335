"""The judges of the landscape claims on given numbers, and the student networks whose descents
these claims measure."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.claims import Measured, find
from attnlens.claims.sample_complexity import flatness, landscape
from attnlens.claims.sample_complexity.landscape import SETTINGS
from attnlens.claims.sample_complexity.population_landscape import LogitLaw
from attnlens.core.statistics import verdicts
from attnlens.instruments.landscape.audit import DescentEnds
from attnlens.networks.layout import Layout

random = np.random.default_rng(0)


def flat(log_ratio: float, loss_ratio: float) -> list[Measured]:
    """Measurements of 16 teachers: each measure of flatness has log ratios with mean `log_ratio`
    and standard deviation 0.2; the training losses of one teacher have the ratio `loss_ratio`."""
    losses = np.zeros(16)
    losses[3] = np.log(loss_ratio)
    values: dict[str, np.ndarray] = {"own_loss": losses, "other_loss": np.zeros(16)}
    for name in (*flatness.INVARIANT, *flatness.RAW):
        values[f"own_{name}"] = log_ratio + 0.2 * random.normal(size=16)
        values[f"other_{name}"] = np.zeros(16)
    return [Measured({"samples": 256, "loss_margin": 0.05}, tuple(range(16)), values)]


@pytest.mark.parametrize(
    ("log_ratio", "loss_ratio", "outcome"),
    [
        (-1.0, 1.04, "supported"),
        (0.5, 1.04, "refuted"),
        (-1.0, 1.06, "undecided"),
        (0.5, 0.8, "undecided"),
    ],
)
def test_flatness_is_decided_only_at_equal_training_loss(log_ratio, loss_ratio, outcome):
    (verdict,) = verdicts([flatness.RULE(flat(log_ratio, loss_ratio))])
    assert verdict.outcome == outcome
    assert ("not comparable" in verdict.reason) == (outcome == "undecided")


def test_all_arms_of_flatness_compare_networks_of_equal_size():
    for work in flatness.GRID("default"):
        networks = flatness.sides(work.parameters).values()
        assert len({Layout.of(landscape.student(own)).size for own in networks}) == 1


def descent_ends(index, excess, loss) -> DescentEnds:
    zeros = np.zeros(len(index))
    return DescentEnds(np.array(index), np.array(excess), np.array(loss), zeros, zeros[:, None])


def test_saddles_and_unconverged_points_are_not_bad_minima():
    ended = descent_ends([0, 0, 2, -1], [0.1, 0.04, 9.0, 8.0], [0.3, 0.2, 0.1, 0.0])
    assert landscape.bad(ended).tolist() == [True, False, False, False]
    assert landscape.bad(ended, threshold=0.03).tolist() == [True, True, False, False]
    # The index of the lowest training loss among converged starts: of all starts, and of the first
    # start alone.
    assert (landscape.best(ended), landscape.best(ended, 1)) == (2, 0)


STUDENTS = [
    ("attention", True),
    ("given-attention", True),
    ("known-attention", True),
    ("baseline", False),
    ("given-values", True),
]


@pytest.mark.parametrize(("kind", "attend"), STUDENTS)
def test_a_student_at_the_parameters_of_its_teacher_gives_its_answers(kind, attend):
    changes = {"student": kind, "attend": attend, "samples": 4, "test_samples": 6}
    with jax.enable_x64(True):
        task = landscape.task({**SETTINGS, **changes}, 5)
        vector = task.teacher
        if vector is None:  # with given values the parameters are only queries and keys
            whole = landscape.task({**SETTINGS, **changes, "student": "attention"}, 5).teacher
            assert whole is not None
            vector = whole[: Layout.of(task.recipe).size]
        model = Layout.of(task.recipe).restore(jnp.asarray(vector))
        inputs = jax.tree.map(jnp.asarray, task.test.inputs)
        answers = np.asarray(jax.vmap(model)(inputs))
    # Both are sums of products of order one, added in different orders.
    np.testing.assert_allclose(answers, task.test.targets, rtol=1e-10, atol=1e-12)


def test_descents_end_at_stationary_points_and_the_last_one_starts_at_the_teacher():
    small = {**SETTINGS, "samples": 40, "test_samples": 20, "student": "given-attention"}
    ended, again = (landscape.descents(small, 3, 2, from_teacher=True) for _ in range(2))
    assert ended.vectors.tobytes() == again.vectors.tobytes()
    assert len(ended.index) == 3
    assert ended.gradient_norm.max() <= SETTINGS["tolerance"]
    assert ended.loss[2] <= ended.loss.min() + 1e-9  # the one from the teacher is lowest


def test_the_slope_of_a_share_that_is_a_power_of_the_odds_is_recovered():
    # The odds are n^(−1/2)/2. Each n has shares of 1000 outcomes, rounded to whole counts, in 10
    # equal blocks.
    cells = []
    for n in (4, 16, 64):
        share = 1 / (1 + 2 * n**0.5)
        outcomes = np.arange(100) < round(100 * share)
        cells += [
            Measured({"n": n}, tuple(range(100 * i, 100 * i + 100)), {"x": outcomes})
            for i in range(10)
        ]
    slopes = LogitLaw("x", "n", "block").slopes(cells)
    # Rounding changes a count of 100 outcomes by at most a half, and so the logit by at most
    # 0.5/(100 p q) ≤ 0.09.
    np.testing.assert_allclose(slopes, -0.5, atol=2 * 0.09 / np.log(16))


def test_landscape_claims_share_the_setting_that_defines_a_bad_minimum():
    names = ["B.stationary-points", "B.spurious-minima", "B.population-landscape", "B.restarts"]
    for claim in find(names):
        for work in claim.plan("default"):
            assert work.parameters["threshold"] == landscape.BAD
            assert work.parameters["unit_variance"]
