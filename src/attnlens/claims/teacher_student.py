"""Shared by the claims about sample complexity: samples of teachers, trained students, n(ε).

A seed redraws teacher, data and start. Teachers have noise-free answers of variance one. The
relative error of a student is the mean squared distance to these answers on new inputs, divided by
their variance: the best constant has error 1, the teacher itself has error 0.

n(ε) is the sample size at which the learning curve of a seed crosses the error ε (see
`attnlens.instruments.samples.sample_size`). If the curve does not cross ε within the grid of sample
sizes, n(ε) is *censored*: it is only known to be below or above the grid. `log_sample_size`
estimates the mean of log n(ε) by the likelihood of a normal distribution that is censored at the
ends of the grid (Tobit). Replacing censored values by the ends would move every ratio towards one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax import Array

from attnlens.instruments.samples.sample_size import crossing
from attnlens.networks import Baseline, fit
from attnlens.worlds import Episode, SparseTeacher, TokenTeacher, World

from .cells import Measured
from .estimates import Estimate, Tobit, Values, difference, pooled, values_of

# Training settings of all students; each claim adds steps, batch and penalty.
ADAM: dict[str, Any] = {
    "loss": "squared",
    "optimiser": "adam",
    "schedule": "cosine",
    "warmup": 0,
    "dtype": "float32",
}
# Settings of the claims about known attention.
SPARSE_SETTINGS: dict[str, Any] = {
    **ADAM,
    "goal": 0.3,  # ε; B.known-attention explains the value
    "attended": 4,
    # The teacher's attended features are among the first eight, at every number of features p.
    "core_features": 8,
    "unit_variance": True,
    "teacher_hidden": 8,
    "attend": True,
    "noise": "gaussian",
    "noise_std": 0.1,
    "test_samples": 512,  # per seed; a few per cent of an error's variance come from them
    # All students have 32 inputs, at every p. Unused inputs are zero, so that all students share
    # starts and one compiled program. With f given, known attention is the baseline on x ⊙ f(x).
    "padded_features": 32,
    # Twice the width of the teacher; with 64 the baseline needed 6 % fewer samples in a pilot.
    "hidden": 16,
    "steps": 400,
    "batch": 32,
    "learning_rate": 1e-2,
    # The penalty with which the baseline needs the fewest samples: with 1e-4, 3e-3, 0.01, 0.03, 0.1
    # and 0.3 it needed 441, 346, 243, 205, 476 and more than 1024 (pilot of 24 seeds, p = 32).
    # Known attention hardly depends on the penalty (4.8 to 5.7 samples up to 0.03), so this choice
    # favours the baseline.
    "l2": 3e-2,
    # Powers of two that contain n(ε) of the pilot (known attention 3 to 30, baseline 30 to 500).
    "baseline_sizes": [16, 32, 64, 128, 256, 512, 1024],
    "known_sizes": [1, 2, 4, 8, 16, 32, 64],
}
_TRAINING = (
    *("loss", "optimiser", "steps", "batch", "learning_rate", "schedule", "warmup"),
    *("every", "l2", "validation", "dtype"),
)


class Samples(NamedTuple):
    """Training rows, and new inputs (`fresh`) with noise-free answers; axis 0 is the seed."""

    inputs: np.ndarray
    targets: np.ndarray
    fresh: np.ndarray
    answers: np.ndarray

    def rows(self, first: int, last: int) -> Samples:
        """The same teachers with training rows `first` to `last` only."""
        rows = slice(first, last)
        return self._replace(inputs=self.inputs[:, rows], targets=self.targets[:, rows])


class Students(NamedTuple):
    """Results of trained students, as arrays (seed, student of the seed).

    They are the relative error, the loss on held-out rows (if there are any), and the mean training
    loss between the last two evaluations.
    """

    errors: np.ndarray
    validation: np.ndarray
    train: np.ndarray


def sparse_teacher(parameters: Mapping[str, Any], **changes: Any) -> SparseTeacher:
    """The teacher with known attention that the parameters of a cell describe."""
    names = ("features", "attended", "core_features", "constant", "unit_variance")
    names += ("noise", "noise_std", "sharpness", "attend")
    settings = {name: parameters[name] for name in names if name in parameters}
    return SparseTeacher(**{"hidden": parameters["teacher_hidden"], **settings, **changes})


def token_teacher(parameters: Mapping[str, Any], **changes: Any) -> TokenTeacher:
    """The self-attention teacher that the parameters of a cell describe."""
    names = ("tokens", "token_dim", "query_dim", "value_dim", "layers", "rank")
    names += ("noise", "noise_std", "sharpness", "focus", "attend", "hard", "unit_variance")
    settings = {name: parameters[name] for name in names if name in parameters}
    return TokenTeacher(**{"hidden": parameters["teacher_hidden"], **settings, **changes})


def training_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a cell that are training settings, as arguments of `train`."""
    return {name: parameters[name] for name in _TRAINING if name in parameters}


@eqx.filter_jit
def episodes(world: World, keys: Array, rows: int, tested: int) -> Episode:
    """One teacher per key, with `rows` training samples and `tested` test samples."""
    # A sequential map needs half the compile time of vmap.
    return jax.lax.map(lambda key: world.sample(key, rows, tested), keys)


@eqx.filter_jit
def _attentions(world: SparseTeacher, latent: Any, *inputs: Any) -> tuple[Array, ...]:
    """The attention weights f(x) of every teacher at all of its inputs."""
    return tuple(jax.vmap(world.attention)(latent, x) for x in inputs)


@eqx.filter_jit
def _answers(world: Any, latent: Any, *inputs: Any) -> tuple[Array, ...]:
    """The noise-free answers of every teacher at all of its inputs."""
    return tuple(jax.vmap(world.answer)(latent, x) for x in inputs)


def _samples(
    world: World, keys: Array, rows: int, tested: int, answering: World | None
) -> tuple[Samples, Any]:
    """The samples and the teachers; see `teacher_samples`."""
    episode = episodes(world, keys, rows, tested)
    parts = (*episode.tokens, episode.query, episode.answer)
    samples = Samples(*(np.asarray(part) for part in parts))
    if answering is not None:
        inputs = episode.tokens.key, episode.query
        before, _ = _answers(world, episode.latent, *inputs)
        after, fresh = _answers(answering, episode.latent, *inputs)
        targets = samples.targets + np.asarray(after - before)
        samples = samples._replace(targets=targets, answers=np.asarray(fresh))
    return samples, episode.latent


def teacher_samples(
    world: World, keys: Array, rows: int, tested: int, answering: World | None = None
) -> Samples:
    """The samples of one teacher per key: `rows` to train on, `tested` to test on.

    `answering` is a world of the same kind with another activation or without attention. If it is
    given, the answers are computed by `answering`, with the same weights, inputs and noise.
    """
    return _samples(world, keys, rows, tested, answering)[0]


def sparse_samples(
    world: SparseTeacher,
    keys: Array,
    rows: int,
    tested: int,
    padded_features: int,
    answering: SparseTeacher | None = None,
    support: bool = False,
) -> tuple[Samples, Samples]:
    """The samples of sparse teachers with inputs x (baseline) and x ⊙ f(x) (known attention).

    Inputs have zeros appended, up to `padded_features`. With `support` the second inputs are the
    attended features without their weights: x_i where f_i(x) > 0, and 0 elsewhere.
    """
    samples, latent = _samples(world, keys, rows, tested, answering)
    attention = [np.asarray(f) for f in _attentions(world, latent, samples.inputs, samples.fresh)]
    if support:
        attention = [np.sign(f) for f in attention]

    def padded(inputs: np.ndarray) -> np.ndarray:
        return np.pad(inputs, ((0, 0), (0, 0), (0, padded_features - inputs.shape[-1])))

    plain = samples._replace(inputs=padded(samples.inputs), fresh=padded(samples.fresh))
    return plain, samples._replace(
        inputs=padded(samples.inputs * attention[0]), fresh=padded(samples.fresh * attention[1])
    )


def train(
    make: Callable[..., Any],
    samples: Samples,
    seeds: Sequence[int],
    sizes: Sequence[int],
    **training: Any,
) -> Students:
    """Train one student per seed and sample size (and penalty), as one group of networks.

    Students are evaluated after the last step only, unless `every` is given.
    """
    fitted = fit(
        make,
        samples.inputs,
        samples.targets,
        seeds=seeds,
        samples=sizes,
        data_per_seed=True,
        test=(samples.fresh, samples.answers),
        **{"every": training["steps"], "block": 10**6, **training},
    )
    variance = samples.answers.reshape(len(seeds), -1).var(1)
    errors = fitted.test_loss.reshape(len(seeds), -1) / variance[:, None]
    losses = (part[:, -1].reshape(len(seeds), -1) for part in (fitted.validation, fitted.train))
    return Students(errors, *losses)


def train_sparse(
    samples: Samples,
    seeds: Sequence[int],
    sizes: Sequence[int],
    parameters: Mapping[str, Any],
    sharpness: float,
) -> np.ndarray:
    """Relative errors of baselines on the inputs of `samples`, (seed, sample size)."""
    features, hidden = parameters["padded_features"], parameters["hidden"]
    make = partial(Baseline, features=features, hidden=hidden, sharpness=sharpness)
    return train(make, samples, seeds, sizes, **training_of(parameters)).errors


def best_candidate(
    candidates: Sequence[tuple[Callable[..., Any], Samples]],
    seeds: Sequence[int],
    sizes: Sequence[int],
    **training: Any,
) -> np.ndarray:
    """Relative errors of the candidate with the lowest loss on held-out rows, (seed, sample size).

    A candidate is a network constructor with its samples, combined with each penalty `l2`. The
    choice is made separately for each seed and sample size.
    """
    shape = (len(seeds), len(sizes), -1)
    students = [train(make, samples, seeds, sizes, **training) for make, samples in candidates]
    errors = np.concatenate([student.errors.reshape(shape) for student in students], -1)
    held_out = np.concatenate([student.validation.reshape(shape) for student in students], -1)
    return np.take_along_axis(errors, held_out.argmin(-1)[..., None], -1)[..., 0]


def log_sizes(sizes: Sequence[int], errors: np.ndarray, goal: float) -> np.ndarray:
    """log n(ε) per seed; a censored value is replaced by the nearer end of the grid."""
    grid = np.array(sizes, float)
    return np.clip(crossing(grid, np.log(errors), goal), np.log(grid[0]), np.log(grid[-1]))


def log_sample_size(
    errors: Values, sizes: str, goal: float | None = None
) -> Callable[[Sequence[Measured]], np.ndarray]:
    """An estimate: the mean of log n(ε) with censoring (`Tobit`), one pseudo-value per seed.

    errors  the name of the array (seed, sample size) of relative errors, or a function of a cell
    sizes   the parameter that lists the sample sizes
    goal    ε; by default the parameter `goal`

    If more than half of the values are censored, the likelihood would extrapolate from a minority
    (with 0.4 to 0.6 censored in pilots, the jackknife's standard deviation was 2 to 8 times that of
    the values). Then censored values are replaced by the ends of the grid. This happens for
    controls in which hardly any student reaches ε, and moves their ratio towards one.
    """

    def values(cell: Measured) -> np.ndarray:
        at = cell.parameters["goal"] if goal is None else goal
        return log_sizes(cell.parameters[sizes], values_of(cell, errors), at)

    def estimate(cells: Sequence[Measured]) -> np.ndarray:
        numbers = pooled(values)(cells)
        ends = np.log(np.asarray(cells[0].parameters[sizes], float)[[0, -1]])
        inside = (numbers > ends[0]) & (numbers < ends[1])
        return Tobit(values, sizes)(cells) if inside.sum() >= max(3, len(inside) / 2) else numbers

    return estimate


def log_size_ratio(
    top: Values, bottom: Values, sizes: tuple[str, str], goal: float | None = None
) -> Estimate:
    """An estimate: E log n(ε) of `top` minus that of `bottom`, one paired pseudo-value per seed."""
    return difference(log_sample_size(top, sizes[0], goal), log_sample_size(bottom, sizes[1], goal))
