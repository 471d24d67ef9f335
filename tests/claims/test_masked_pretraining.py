"""The world of the claims on masked pretraining: exact posterior, oracle and measures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnlens.claims import masked_pretraining as masked
from attnlens.claims.exchangeability import learned_representation, position_pairs
from attnlens.integrations.transformers import minilm

PARAMETERS: dict[str, Any] = {**masked.SETTINGS, "length": 6, "samples": [64]}


def test_the_posterior_mean_is_that_of_the_joint_normal_law():
    """The posterior mean equals Σ_zX Σ_XX⁻¹ x, computed from the joint covariance of all tokens
    instead of sums of weighted tokens."""
    drawn = masked.draw(PARAMETERS, 3, masked.TEST, 5)
    dim, length = PARAMETERS["token_dim"], PARAMETERS["length"]
    matrix = np.random.default_rng([3, masked.HEADS]).normal(size=(dim, 3)) / 3**0.5
    std = np.where(drawn.tokens[0, :, -1] == 1, PARAMETERS["noisy_std"], PARAMETERS["noise_std"])
    assert sorted(set(std)) == [2.0, 6.0]
    stacked = np.tile(matrix, (length, 1))
    covariance = stacked @ stacked.T + np.diag(np.repeat(std**2, dim))
    tokens = drawn.tokens[..., :-1].astype(float) * PARAMETERS["token_scale"]
    expected = np.linalg.solve(covariance, tokens.reshape(5, -1).T).T @ stacked
    # Tokens are numbers up to 20, stored in float32 with a relative error of 6e−8.
    np.testing.assert_allclose(drawn.posterior, expected, atol=1e-5)


def bottleneck(share: float) -> masked.Frozen:
    """A frozen network whose representation is a linear map of the posterior mean plus noise;
    `share` is the share of the noise in the variance."""
    random = np.random.default_rng(0)
    labelled = masked.draw(PARAMETERS, 1, masked.LABELLED, 20 * 64)
    test = masked.draw(PARAMETERS, 1, masked.TEST, 4096)
    mix = random.normal(size=(3, 3))
    reads = []
    for part in (labelled, test):
        read = part.posterior @ mix
        noise = read.std(0) * (share / (1 - share)) ** 0.5
        reads.append(read + noise * random.normal(size=read.shape))
    return masked.Frozen(labelled, test, *reads)


def test_an_invertible_map_of_the_posterior_mean_has_neither_gap_nor_content_nor_excess():
    network = bottleneck(0.0)
    assert abs(learned_representation.sufficiency_gap(network)) < 1e-9  # both fits are the same
    assert learned_representation.excess_content(network) < 1e-12
    own, oracle = network.errors(PARAMETERS, 1)
    np.testing.assert_allclose(own, oracle, rtol=1e-8)


def test_noise_in_the_bottleneck_is_lost_information_and_content():
    network = bottleneck(0.2)
    assert learned_representation.excess_content(network) == pytest.approx(0.2, abs=0.02)
    assert learned_representation.sufficiency_gap(network) > 0.1
    own, oracle = network.errors(PARAMETERS, 1)
    assert own.mean() > 1.1 * oracle.mean()


def test_a_network_that_forgets_sees_the_last_tokens():
    tokens = np.arange(12).reshape(1, 6, 2)
    assert masked.visible({"seen_tokens": 0}, tokens).shape == (1, 6, 2)
    assert masked.visible({"seen_tokens": 2}, tokens)[0, :, 0].tolist() == [8, 10]


def test_contents_that_move_alone_leave_the_ends_and_the_positions():
    random = np.random.default_rng(0)
    contents, positions = position_pairs.orders("pairs", 9, random)
    np.testing.assert_array_equal(contents, positions)
    contents, positions = position_pairs.orders("contents", 9, random)
    assert positions.tolist() == list(range(9))
    assert (contents[0], contents[-1]) == (0, 8)
    assert sorted(contents) == list(range(9))
    assert contents.tolist() != list(range(9))


def test_minilm_is_part_of_the_check_only_where_its_package_is_installed():
    installed = minilm.installed()
    assert (position_pairs.MINILM in position_pairs.ENCODERS) == installed
    assert position_pairs.OURS in position_pairs.ENCODERS
    assert ("is left out" in position_pairs.CLAIM.prediction) != installed
