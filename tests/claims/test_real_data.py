"""Attention and baseline on real data: paired differences, choice on validation data, hashes."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from attnlens.claims import Measured
from attnlens.claims.sample_complexity import noisy_images, real_data
from attnlens.core.statistics import control_verdict, verdicts
from attnlens.data import digits, split
from attnlens.networks import Baseline

COUNTS = [10, 20]
SPLIT = next(noisy_images.GRID("smoke")).parameters  # of the digits


def cells(difference: float, noise: float) -> list[Measured]:
    """Two cells of four splits; splits differ much, attention and baseline on one split little."""
    random = np.random.default_rng(0)
    measured = []
    for seeds in ((0, 1, 2, 3), (4, 5, 6, 7)):
        baseline = random.uniform(0.3, 0.7, (4, 2))
        values = {
            "baseline": baseline,
            "attention": baseline + difference + noise * random.normal(size=(4, 2)),
            "mean token": baseline,
        }
        measured.append(Measured({"place": "cell", "counts": COUNTS}, seeds, values))
    return measured


@pytest.mark.parametrize(
    ("difference", "outcome"),
    [(-0.05, "supported"), (-0.02, "undecided"), (0.0, "refuted"), (0.05, "refuted")],
)
def test_differences_are_paired_and_judged_against_the_margin(difference: float, outcome: str):
    parts = real_data.rule("place")(cells(difference, 0.002))
    assert [part.count for part in parts] == [8, 8]
    assert "(cell, 20 labels)" in parts[1].quantity
    assert verdicts([parts])[0].outcome == outcome
    assert control_verdict(parts, claims=30).outcome == outcome


def test_every_model_and_arm_is_drawn():
    arms = {"prediction": cells(-0.05, 0.01), real_data.CONTROL: cells(0.05, 0.01)}
    lines = real_data.lines(arms, "place")
    assert [line.control for line in lines] == [False] * 3 + [True] * 3
    assert [point.x for point in lines[0].points] == [10, 20]
    assert lines[3].name == "attention, cell, scrambled"


def test_a_split_of_the_digits_has_the_stated_shapes_and_hashes():
    drawn, again = (noisy_images.draw_split(SPLIT, 3) for _ in range(2))
    assert [part.array.shape for part in drawn] == [(512, 9, 64), (100, 9, 64), (1000, 9, 64)]
    sets = split(digits(), {"train": 512, "validation": 100, "test": 1000}, 3)
    numbers = [int(sets[name].sha256[:14], 16) for name in ("train", "validation", "test")]
    assert real_data._hashes(drawn).tolist() == numbers
    other = noisy_images.draw_split(SPLIT, 4)
    assert drawn.test.sha256 == again.test.sha256 != other.test.sha256
    # The noise of the three sets is drawn independently.
    assert len({part.array[0, 0, 0] for part in drawn}) == 3


def test_each_split_and_count_keeps_the_candidate_that_validates_best(
    monkeypatch: pytest.MonkeyPatch,
):
    """Two candidates with given validation losses and test errors."""
    losses = {"small": [[1.0, 4.0], [3.0, 2.0]], "large": [[2.0, 3.0], [1.0, 5.0]]}
    rates = {"small": [[0.1, 0.2], [0.3, 0.4]], "large": [[0.5, 0.6], [0.7, 0.8]]}

    class GivenFit:
        def __init__(self, name: str):
            self.models = name
            # One row per network, sorted by seed; the lowest of its evaluations counts.
            self.validation = np.array([[9.0, x, np.nan] for row in losses[name] for x in row])

    monkeypatch.setattr(real_data, "fit", lambda make, *_, **__: GivenFit(make))
    monkeypatch.setattr(real_data, "_error_rates", lambda models, *_: np.array(rates[models]))
    unused = [np.zeros(1)] * 3
    candidates = [("small", unused), ("large", unused)]
    chosen = real_data._errors(candidates, unused, (0, 1), {"counts": COUNTS})
    assert chosen.tolist() == [[0.1, 0.6], [0.7, 0.4]]


def test_error_rates_are_counted_for_each_network():
    """Four baselines (two seeds, two counts) on two features; the class is the larger feature, or
    the smaller one where the second layer is swapped."""
    identity = np.eye(2, dtype=np.float32)
    swapped = identity[::-1].copy()
    structure = jax.eval_shape(
        lambda key: Baseline(key, features=2, hidden=2, outputs=2), jax.random.key(0)
    )
    weights = [np.stack([identity] * 4), np.stack([identity, swapped, swapped, identity])]
    models = jax.tree.unflatten(jax.tree.structure(structure), weights)
    inputs = np.array([[[1, 0], [0, 1], [3, 2]], [[1, 0], [2, 0], [3, 2]]], np.float32)
    labels = np.array([[0, 1, 1], [0, 0, 0]])
    rates = real_data._error_rates(models, inputs, labels)
    np.testing.assert_allclose(rates, [[1 / 3, 2 / 3], [1, 0]])


def test_the_control_permutes_the_numbers_of_every_sample_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch,
):
    inputs = {}
    monkeypatch.setattr(real_data, "MODELS", ("attention",))

    def record(candidates, *_):
        _, inputs["tokens"] = candidates[0]
        return np.zeros((1, 2))

    monkeypatch.setattr(real_data, "_errors", record)
    drawn = noisy_images.draw_split(SPLIT, 0)
    plain, moved = (
        (
            real_data.errors([drawn], (0,), {**SPLIT, "permuted": permuted}),
            inputs["tokens"][2][0],
        )[1]
        for permuted in (False, True)
    )
    assert plain.shape == moved.shape == (1000, 64, 9)  # tokens as columns
    np.testing.assert_array_equal(plain, drawn.test.array.swapaxes(1, 2).astype("float32"))
    np.testing.assert_array_equal(
        np.sort(plain.reshape(1000, -1)), np.sort(moved.reshape(1000, -1))
    )
    # The same permutation for every sample, and it moves numbers between tokens.
    where = np.argsort(np.argsort(moved[0].T.ravel()))
    order = np.argsort(plain[0].T.ravel())[where]
    rows = plain.swapaxes(1, 2).reshape(1000, -1)
    np.testing.assert_array_equal(rows[:, order], moved.swapaxes(1, 2).reshape(1000, -1))
    assert len(set(order[:64] // 64)) > 4
