"""The judges of the landscape claims, on given numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.claims import Measured
from attnlens.claims.sample_complexity import flatness, landscape, stationary_points
from attnlens.core.statistics import verdicts

random = np.random.default_rng(0)


def flat(log_ratio: float, loss_ratio: float) -> list[Measured]:
    """16 teachers whose log ratios have mean `log_ratio` and standard deviation 0.2."""
    values: dict[str, np.ndarray] = {
        "own_loss": np.full((16, 2), 0.01),
        "other_loss": np.full((16, 2), 0.01 * loss_ratio),
    }
    for name in (*flatness.INVARIANT, *flatness.RAW):
        values[f"own_{name}"] = log_ratio + 0.2 * random.normal(size=16)
        values[f"other_{name}"] = np.zeros(16)
    return [Measured({"samples": 256}, tuple(range(16)), values)]


@pytest.mark.parametrize(
    ("log_ratio", "loss_ratio", "outcome"),
    [
        (-1.0, 1.05, "supported"),
        (0.5, 1.05, "refuted"),
        (-1.0, 1.2, "undecided"),
        (0.5, 0.8, "undecided"),
    ],
)
def test_flatness_is_decided_only_at_equal_training_loss(log_ratio, loss_ratio, outcome):
    (verdict,) = verdicts([flatness.RULE(flat(log_ratio, loss_ratio))])
    assert verdict.outcome == outcome
    assert ("not comparable" in verdict.reason) == (outcome == "undecided")


def test_rescaling_changes_the_parameters_and_not_the_function():
    model = landscape.attention(landscape.SETTINGS)(jax.random.key(0))
    other = flatness.rescale(model, alpha=10.0)
    x = jnp.asarray(random.normal(size=(3, 3)))
    np.testing.assert_allclose(other(x), model(x), rtol=1e-13)
    assert np.abs(other.layer.query - model.layer.query).max() > 1


def test_saddles_and_unconverged_points_do_not_count_as_minima():
    index = np.array([[0, 0, 2, -1], [0, 0, 0, 0], [1, -1, 1, 1]])
    excess = np.array([[0.1, 0.3, 9.0, 8.0], [0.01, 0.02, 0.03, 0.04], [1.0, 1.0, 1.0, 1.0]])
    cells = [
        Measured({"samples": 512, "role": "judged"}, (0, 1, 2), {"index": index, "excess": excess})
    ]
    np.testing.assert_allclose(stationary_points.worst_minima(cells), [0.3, 0.04, np.nan])
    (part,) = stationary_points.RULE(cells)
    assert not np.isfinite(part.estimate)  # a teacher without a minimum is not silently ignored
