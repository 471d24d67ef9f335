"""`guidelines` where the right recommendation is known: sparse data, attention data, pure noise."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from attnlens import guidelines
from attnlens.claims import CLAIMS as REGISTERED
from attnlens.core.checks import BadInput
from attnlens.instruments.samples.guidelines import CLAIMS, WORDS
from attnlens.worlds import SparseTeacher, TokenTeacher

ROWS, FEATURES = 72, 16


def draw(world, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        tokens = world.sample(jax.random.key(seed), rows).tokens
        return np.asarray(tokens.key), np.asarray(tokens.value)[:, 0]


def test_each_guideline_names_registered_claims():
    assert CLAIMS.keys() == WORDS.keys()
    assert set().union(*CLAIMS.values()) <= set(REGISTERED)


@pytest.mark.slow
def test_gates_are_recommended_on_sparse_data_and_nothing_on_noise():
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES))
    result = guidelines(x, x[:, 0] - x[:, 1], labels=20, starts=1)
    assert result["sparsity"].verdict == "recommended"
    assert "sparsity: recommended (put gates on the inputs" in str(result)
    # The labels do not depend on x, so no guideline can help. In 95 % of runs none is recommended.
    noise = guidelines(x, np.random.default_rng(1).normal(size=ROWS), labels=20, starts=1)
    assert noise["attention"].verdict != "recommended"
    assert noise.labels == 20
    assert [item.name for item in noise.recommendations] == ["attention", "sparsity"]
    assert noise.plot().axes


@pytest.mark.slow  # compiles programs for four networks
def test_attention_is_recommended_where_labels_come_from_attention():
    x, y = draw(TokenTeacher(tokens=4, token_dim=4, value_dim=4), 1200)
    result = guidelines(np.swapaxes(x, 1, 2), y, training={"steps": 1000})
    assert result["attention"].verdict == "recommended"
    assert result["low rank"].effect.count == 8
    plain_x, plain_y = draw(TokenTeacher(tokens=4, token_dim=4, value_dim=4, attend=False), 1200)
    plain = guidelines(np.swapaxes(plain_x, 1, 2), plain_y, training={"steps": 1000})
    assert plain["attention"].verdict == "advised against"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": 1000}, "labels must be at most 63, the training rows"),
        ({"labels": 1}, "labels must be a whole number of at least 4"),
        ({"training": {"loss": "squared"}}, "training may not set 'loss'"),
        ({"hidden": 0}, "hidden must be"),
    ],
)
def test_bad_input_raises_one_sentence(changes: dict, message: str):
    x, y = draw(SparseTeacher(features=4, attended=1), ROWS)
    with pytest.raises(BadInput, match=message):
        guidelines(x, y, **changes)
