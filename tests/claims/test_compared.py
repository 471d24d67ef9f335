"""How attention and baseline are compared on real data: pairing, choice on validation, hashes."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from attnlens.claims import Measured
from attnlens.claims.lens_b import compared, noisy_images
from attnlens.data import digits, split
from attnlens.networks import Baseline
from attnlens.statistics import control_verdict, verdicts

COUNTS = (10, 20)


def cells(difference: float, noise: float) -> list[Measured]:
    """Two cells of four splits; splits differ a lot, attention and baseline on one split little."""
    random = np.random.default_rng(0)
    made = []
    for seeds in ((0, 1, 2, 3), (4, 5, 6, 7)):
        baseline = random.uniform(0.3, 0.7, (4, 2))
        values = {
            "baseline": baseline,
            "attention": baseline + difference + noise * random.normal(size=(4, 2)),
            "mean token": baseline,
        }
        made.append(Measured({"place": "cell"}, seeds, values))
    return made


@pytest.mark.parametrize(
    ("difference", "outcome"),
    [(-0.05, "supported"), (-0.02, "undecided"), (0.0, "refuted"), (0.05, "refuted")],
)
def test_differences_are_paired_and_judged_against_the_margin(difference: float, outcome: str):
    parts = compared.judge(cells(difference, 0.002), "place", COUNTS)
    assert [part.count for part in parts] == [8, 8]
    assert "(cell, 20 labels)" in parts[1].quantity
    assert verdicts([parts])[0].outcome == outcome
    assert control_verdict(parts, claims=30).outcome == outcome


def test_every_model_and_arm_is_drawn():
    arms = {"prediction": cells(-0.05, 0.01), compared.CONTROL: cells(0.05, 0.01)}
    drawn = compared.lines(arms, "place", COUNTS)
    assert [series.control for series in drawn] == [False] * 3 + [True] * 3
    assert [point.x for point in drawn[0].points] == [10, 20]
    assert drawn[3].name == "attention, cell, scrambled"


def test_a_split_is_tokens_with_its_hashes_and_no_digit_twice():
    made, again = noisy_images.tokens("cell", 3), noisy_images.tokens("cell", 3)
    assert [part.array.shape for part in made] == [(512, 9, 64), (100, 9, 64), (1000, 9, 64)]
    sets = split(digits(), noisy_images.SIZES, 3)
    numbers = [int(sets[name].sha256[:14], 16) for name in ("train", "validation", "test")]
    assert compared._hashes(made).tolist() == numbers
    assert made.test.sha256 == again.test.sha256 != noisy_images.tokens("cell", 4).test.sha256
    # The noise of the three sets is drawn apart.
    assert len({part.array[0, 0, 0] for part in made}) == 3


def test_each_split_and_count_keeps_the_candidate_that_validates_best(
    monkeypatch: pytest.MonkeyPatch,
):
    """Two candidates whose validation losses and test errors are made up."""
    losses = {"small": [[1.0, 4.0], [3.0, 2.0]], "large": [[2.0, 3.0], [1.0, 5.0]]}
    wrong = {"small": [[0.1, 0.2], [0.3, 0.4]], "large": [[0.5, 0.6], [0.7, 0.8]]}

    class Made:
        def __init__(self, name: str):
            self.models = name
            # One row a member, seeds first; the lowest of its evaluations counts.
            self.validation = np.array([[9.0, x, np.nan] for row in losses[name] for x in row])

    monkeypatch.setattr(compared, "fit", lambda make, *_, **__: Made(make))
    monkeypatch.setattr(compared, "_wrong", lambda models, *_: np.array(wrong[models]))
    nothing = [np.zeros(1)] * 3
    chosen = compared._errors([("small", nothing), ("large", nothing)], nothing, (0, 1), COUNTS)
    assert chosen.tolist() == [[0.1, 0.6], [0.7, 0.4]]


def test_test_errors_are_counted_member_by_member():
    """Four baselines (two seeds, two counts) on samples of two features: the larger one wins."""
    first = np.eye(2, dtype=np.float32)
    turned = first[::-1].copy()
    one = jax.eval_shape(
        lambda key: Baseline(key, features=2, hidden=2, outputs=2), jax.random.key(0)
    )
    weights = [np.stack([first] * 4), np.stack([first, turned, turned, first])]
    models = jax.tree.unflatten(jax.tree.structure(one), weights)
    inputs = np.array([[[1, 0], [0, 1], [3, 2]], [[1, 0], [2, 0], [3, 2]]], np.float32)
    labels = np.array([[0, 1, 1], [0, 0, 0]])
    found = compared._wrong(models, inputs, labels)
    np.testing.assert_allclose(found, [[1 / 3, 2 / 3], [1, 0]])


def test_the_control_moves_numbers_and_loses_none(monkeypatch: pytest.MonkeyPatch):
    seen = {}
    monkeypatch.setattr(compared, "MODELS", ("attention",))

    def catch(candidates, *_):
        _, seen["tokens"] = candidates[0]
        return np.zeros((1, 2))

    monkeypatch.setattr(compared, "_errors", catch)
    made = noisy_images.tokens("cell", 0)
    plain, moved = (
        (compared.errors(arm, [made], (0,), COUNTS, [8]), seen["tokens"][2][0])[1]
        for arm in ("prediction", compared.CONTROL)
    )
    assert plain.shape == moved.shape == (1000, 64, 9)  # tokens as columns
    np.testing.assert_array_equal(plain, made.test.array.swapaxes(1, 2).astype("float32"))
    np.testing.assert_array_equal(
        np.sort(plain.reshape(1000, -1)), np.sort(moved.reshape(1000, -1))
    )
    # One and the same permutation for every sample, and it crosses tokens.
    where = np.argsort(np.argsort(moved[0].T.ravel()))
    order = np.argsort(plain[0].T.ravel())[where]
    rows = plain.swapaxes(1, 2).reshape(1000, -1)
    np.testing.assert_array_equal(rows[:, order], moved.swapaxes(1, 2).reshape(1000, -1))
    assert len(set(order[:64] // 64)) > 4
