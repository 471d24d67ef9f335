"""Paths between two minima of losses whose barriers are known in closed form."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.instruments import connect, interpolate

EPS = np.finfo(float).eps


def ring(w):
    """The loss (|w|² − 1)², which is lowest on the unit circle."""
    return (jnp.sum(w**2) - 1) ** 2


def test_barriers_of_line_and_curve_between_two_minima_of_a_ring():
    start, end = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    # On the line, |w|² = (1 − t)² + t² is smallest in the middle, 1/2: the barrier is 1/4.
    curve = interpolate(ring, start, end, beyond=0.5, points=41)
    values = [reading.value for reading in curve.readings]
    assert values[20] == pytest.approx(0.25, rel=10 * EPS)
    assert curve.at[0] == -0.5
    path = connect(ring, start, end, steps=200)
    assert path.straight_barrier == pytest.approx(0.25, rel=10 * EPS)
    # By symmetry the middle point of the curve is c = s·(1, 1); with the best s the highest loss is
    # below 0.0015.
    assert path.curved_barrier < 0.005
    np.testing.assert_allclose(path.middle[0], path.middle[1], atol=0.02)
    assert "barrier" in str(path)
    assert path.plot() is not None
    ends = (path.curved.readings[0].value, path.curved.readings[-1].value)
    np.testing.assert_allclose(ends, 0, atol=10 * EPS)


def test_a_curve_can_be_trained_on_random_batches():
    def loss(w, scales):
        return jnp.mean(scales) * ring(w)

    scales = np.linspace(0.5, 1.5, 9)
    path = connect(loss, np.array([1.0, 0.0]), np.array([0.0, 1.0]), scales, batch=4, steps=100)
    assert path.straight_barrier == pytest.approx(0.25, rel=100 * EPS)
    assert path.curved_barrier < 0.02
