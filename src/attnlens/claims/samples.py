"""What claims about sample complexity share: teachers' data, trained students, n(ε) a seed.

A seed redraws teacher, data and start. A student's error is the mean squared distance to the
teacher's noise-free answers on fresh inputs, as a share of the answers' variance: 1 is what a
constant achieves, 0 is the teacher.

n(ε) is read off each seed's own curve (see `instruments.sample_size.crossing`). Where ε lies
outside the grid of sample sizes, n(ε) is *censored*: the end of the grid stands in for it and the
seed is kept. Whoever needs more samples than the grid has is thus credited with fewer than it
needs, and whoever needs fewer with more: censoring pulls every ratio towards one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax import Array

from attnlens.instruments.sample_size import crossing
from attnlens.networks import Baseline, fit
from attnlens.worlds import Episode, SparseTeacher, World

TEST = 512  # fresh inputs a seed; their part of an error's variance is a few per cent

# Known attention: students of one size whatever p is. Unused inputs are zero, so that start and
# program are the same for all; with f given, known attention is the baseline on x ⊙ f(x).
WIDEST = 32
SPARSE_HIDDEN = 16  # twice the teacher's; 64 gave the same slopes in a pilot
# 400 steps of Adam on 32 rows with a cosine schedule; 600 and 1000 steps gave the same slopes.
SPARSE_TRAINING: dict[str, Any] = {
    "steps": 400, "batch": 32, "learning_rate": 1e-2, "schedule": "cosine", "l2": 1e-4,
}  # fmt: skip


class Samples(NamedTuple):
    """Training rows, and fresh inputs with noise-free answers; seeds first."""

    inputs: np.ndarray
    targets: np.ndarray
    fresh: np.ndarray
    answers: np.ndarray

    def rows(self, first: int, last: int) -> Samples:
        """The same teachers with only these training rows."""
        cut = slice(first, last)
        return self._replace(inputs=self.inputs[:, cut], targets=self.targets[:, cut])


class Students(NamedTuple):
    """Relative errors, the loss on held-out rows where some were held out, and the mean training
    loss since the evaluation before the last: (seeds, members of a seed)."""

    errors: np.ndarray
    validation: np.ndarray
    train: np.ndarray


@eqx.filter_jit
def episodes(world: World, keys: Array, rows: int) -> Episode:
    """One teacher with `rows` labelled samples and `TEST` fresh ones a key."""
    # In sequence, not vmapped: half the compile time.
    return jax.lax.map(lambda key: world.sample(key, rows, TEST), keys)


@eqx.filter_jit
def _attentions(world: SparseTeacher, latent: Any, *inputs: Any) -> tuple[Array, ...]:
    """f(x) of each teacher at each of its inputs."""
    return tuple(jax.vmap(world.attention)(latent, x) for x in inputs)


@eqx.filter_jit
def _answers(world: Any, latent: Any, *inputs: Any) -> tuple[Array, ...]:
    """Noise-free answers of each teacher at each of its inputs."""
    return tuple(jax.vmap(world.answer)(latent, x) for x in inputs)


def _samples(world: World, keys: Array, rows: int, answering: World | None) -> tuple[Samples, Any]:
    """The samples and the teachers; see `teacher_samples`."""
    episode = episodes(world, keys, rows)
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
    world: World, keys: Array, rows: int, answering: World | None = None
) -> Samples:
    """The samples of one teacher a key.

    With `answering`, a world of the same kind but with another activation or without attention,
    the teachers' weights, inputs and noise stay, and the answers are its own.
    """
    return _samples(world, keys, rows, answering)[0]


def sparse_samples(
    world: SparseTeacher, keys: Array, rows: int, answering: SparseTeacher | None = None
) -> tuple[Samples, Samples]:
    """The samples of sparse teachers as the baseline and as known attention sees them."""
    seen, latent = _samples(world, keys, rows, answering)
    attention = [np.asarray(f) for f in _attentions(world, latent, seen.inputs, seen.fresh)]

    def padded(inputs: np.ndarray) -> np.ndarray:
        return np.pad(inputs, ((0, 0), (0, 0), (0, WIDEST - inputs.shape[-1])))

    plain = seen._replace(inputs=padded(seen.inputs), fresh=padded(seen.fresh))
    return plain, seen._replace(
        inputs=padded(seen.inputs * attention[0]), fresh=padded(seen.fresh * attention[1])
    )


def train(
    make: Callable[..., Any],
    samples: Samples,
    seeds: Sequence[int],
    sizes: Sequence[int],
    **training: Any,
) -> Students:
    """Students of every seed and size (and penalty), in one block of one program, in float32."""
    fitted = fit(
        make, samples.inputs, samples.targets, seeds=seeds, samples=sizes, data_per_seed=True,
        test=(samples.fresh, samples.answers), dtype="float32",
        **{"every": training["steps"], "block": 10**6, **training},
    )  # fmt: skip
    spread = samples.answers.reshape(len(seeds), -1).var(1)
    errors = fitted.test_loss.reshape(len(seeds), -1) / spread[:, None]
    losses = (part[:, -1].reshape(len(seeds), -1) for part in (fitted.validation, fitted.train))
    return Students(errors, *losses)


def train_sparse(
    samples: Samples, seeds: Sequence[int], sizes: Sequence[int], sharpness: float = 5.0
) -> np.ndarray:
    """Relative errors (seeds, sizes) of baselines on (attended) features."""
    make = partial(Baseline, features=WIDEST, hidden=SPARSE_HIDDEN, sharpness=sharpness)
    return train(make, samples, seeds, sizes, **SPARSE_TRAINING).errors


def best_width(
    make: Callable[..., Any],
    widths: Sequence[int],
    samples: Samples,
    seeds: Sequence[int],
    sizes: Sequence[int],
    **training: Any,
) -> np.ndarray:
    """Relative errors (seeds, sizes) with the width that did best on held-out rows, each time."""
    tried = [
        train(partial(make, hidden=width), samples, seeds, sizes, **training) for width in widths
    ]
    errors, held_out, _ = (np.stack(parts) for parts in zip(*tried, strict=True))
    return np.take_along_axis(errors, held_out.argmin(0)[None], axis=0)[0]


def log_sizes(sizes: Sequence[int], errors: np.ndarray, goal: float) -> np.ndarray:
    """log n(ε) a seed, with censored ones at the end of the grid beyond which they lie."""
    grid = np.array(sizes, float)
    return np.clip(crossing(grid, np.log(errors), goal), np.log(grid[0]), np.log(grid[-1]))
