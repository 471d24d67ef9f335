"""`guidelines` where the right advice is known: sparse data, data of attention, labels of noise."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from attnlens import guidelines
from attnlens.checks import BadInput
from attnlens.worlds import SparseTeacher, TokenTeacher

ROWS, FEATURES = 72, 16


def drawn(world, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        tokens = world.sample(jax.random.key(seed), rows).tokens
        return np.asarray(tokens.key), np.asarray(tokens.value)[:, 0]


@pytest.mark.slow
def test_gates_are_recommended_on_sparse_data_and_nothing_on_noise():
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES))
    found = guidelines(x, x[:, 0] - x[:, 1], labels=20, starts=1)
    assert found["sparsity"].verdict == "recommended"
    assert "sparsity: recommended (put gates on the inputs" in str(found)
    # Labels that do not depend on x: nothing can help, and at 95 % together nothing is claimed.
    noise = guidelines(x, np.random.default_rng(1).normal(size=ROWS), labels=20, starts=1)
    assert noise["attention"].verdict != "recommended"
    assert noise.labels == 20
    assert [each.name for each in noise.recommendations] == ["attention", "sparsity"]
    assert noise.plot().axes


@pytest.mark.slow  # four networks, each with programs of its own
def test_attention_is_recommended_where_the_labels_come_from_it():
    x, y = drawn(TokenTeacher(tokens=4, token_dim=4, value_dim=4), 1200)
    found = guidelines(np.swapaxes(x, 1, 2), y, training={"steps": 1000})
    assert found["attention"].verdict == "recommended"
    assert found["low rank"].effect.count == 8
    plain_x, plain_y = drawn(TokenTeacher(tokens=4, token_dim=4, value_dim=4, attend=False), 1200)
    plain = guidelines(np.swapaxes(plain_x, 1, 2), plain_y, training={"steps": 1000})
    assert plain["attention"].verdict == "advised against"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"labels": 1000}, "labels must be at most the 63 rows"),
        ({"labels": 1}, "labels must be a whole number of at least 4"),
        ({"training": {"loss": "squared"}}, "training may not set 'loss'"),
        ({"hidden": 0}, "hidden must be"),
    ],
)
def test_bad_input_gets_one_sentence(changes: dict, says: str):
    x, y = drawn(SparseTeacher(features=4, attended=1), ROWS)
    with pytest.raises(BadInput, match=says):
        guidelines(x, y, **changes)
