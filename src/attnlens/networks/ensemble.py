"""Training many networks at once: seeds × sample sizes × penalties.

`fit` lays the members out in blocks, has the blocks run (here, or by any map that is given, such as
that of a process pool) and puts the results together. See `training` for what is minimised; the
optimiser is Adam (Kingma and Ba, ICLR 2015) unless another is asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from attnlens import checks

from . import blocks as running
from . import streaming, training
from .blocks import Block, Clock, Progress, Result
from .losses import Loss
from .parameters import Layout
from .settings import Member, Recipe, Settings
from .training import Data, Members

# Members trained together by default: a guess, half of the benchmark's ensemble; not tuned.
BLOCK = 16
PENALTIES = ("l2", "l1_gates", "entropy")


@dataclasses.dataclass(frozen=True)
class Fitted:
    """An ensemble after training, in NumPy arrays with one entry a member.

    `vectors` holds the parameters: those with the best validation loss where there was validation,
    the last ones otherwise (a diverged member's are from the evaluation before). `status` is
    "finished", "stopped early" or "diverged"; `steps` says how many steps were taken. Curves have
    one column an evaluation, at `at`: `train` (mean over the steps since the last evaluation),
    `validation`, `test`; NaN where there was none. `test_loss` belongs to `vectors`.

    `fit` makes one; `model(i)` is member i as a network.

    >>> from attnlens.networks import Baseline
    >>> make = partial(Baseline, features=1, hidden=1)
    >>> fit(make, np.ones((8, 1)), np.ones((8, 1)), seeds=(0, 1), steps=2).vectors.shape
    (2, 2)
    """

    members: tuple[Member, ...]
    vectors: np.ndarray
    status: tuple[str, ...]
    steps: np.ndarray
    best_step: np.ndarray
    at: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    test_loss: np.ndarray
    recipe: Recipe

    def __len__(self) -> int:
        return len(self.members)

    def model(self, index: int) -> Any:
        """One member as a network."""
        return self._restore(self.vectors[index])

    @property
    def models(self) -> Any:
        """All members as one network whose arrays have a leading axis of members."""
        one = self.model(0)
        leaves = [jax.tree.leaves(self.model(i)) for i in range(len(self))]
        stacked = [np.stack(parts) for parts in zip(*leaves, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(one), stacked)

    def _restore(self, vector: np.ndarray) -> Any:
        return Layout.of(self.recipe).restore(vector)


def fit(
    make: Any,
    inputs: Any,
    targets: Any,
    *,
    seeds: Iterable[int] = (0,),
    samples: Sequence[int] | None = None,
    loss: str | Loss = "squared",
    steps: int = 1000,
    batch: int | None = None,
    learning_rate: float = 1e-2,
    schedule: str | Callable[[Any], Any] = "constant",
    warmup: int = 0,
    optimiser: str | Callable[..., Any] = "adam",
    clip: float | None = None,
    l2: float | Sequence[float] = 0.0,
    l1_gates: float | Sequence[float] = 0.0,
    entropy: float | Sequence[float] = 0.0,
    entropy_warmup: int = 0,
    validation: float | tuple[Any, Any] | None = None,
    patience: int | None = None,
    test: tuple[Any, Any] | None = None,
    every: int | None = None,
    data_per_seed: bool = False,
    transform: Callable[..., Any] | None = None,
    dtype: str = "float32",
    block: int = BLOCK,
    map: Callable[..., Iterable[Any]] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    progress: Callable[[Progress], None] | bool = False,
) -> Fitted:
    """Empirical risk minimisation of a whole ensemble in two compiled programs.

        minimise  (1/n) Σ_i ℓ(model_w(x_i), y_i) + λ₂ ‖w‖² + λ₁ Σ gates + λ_H · entropy of attention

    make: a function of a random key that returns a network, such as
        `partial(Baseline, features=8, hidden=16)`.
    inputs, targets: arrays (or trees of them) with samples along the first axis. With
        `data_per_seed` the first axis is that of seeds, and seed i trains on data set i.
        Memory-mapped arrays stay on disk; one evaluation interval's batches are read at a time.
    seeds, samples, l2, l1_gates, entropy: members are all combinations. A member with sample size n
        sees the first n rows, so shuffle rows that are sorted.
    steps, batch: `batch=None` takes all of a member's samples at each step; otherwise each pass
        goes through them in a new order.
    schedule: "constant", "linear" or "cosine" (to zero at the end), after `warmup` steps of linear
        rise; or a function of the step.
    optimiser: "adam", "sgd", "momentum", or a function of a learning-rate schedule that returns an
        optax optimiser. `clip` bounds the gradient's norm first.
    validation: a share of each member's samples (the last ones), or (inputs, targets). The
        parameters with the lowest validation loss are returned; after `patience` evaluations
        without a new lowest the member stops.
    every: steps between evaluations, a twentieth of all by default.
    transform: a function (key, input, target) -> (input, target), applied to each sample at each
        step: hide other tokens each time, say.
    block, map: members are trained in blocks of this size, which `map(function, blocks)` runs; the
        result does not depend on how `map` does that. Left out, blocks run here, one by one.
    checkpoint: a folder; a fit that was interrupted goes on from there, bit for bit.
    progress: True prints a line now and then; a function gets each `Progress`.

    >>> inputs = np.linspace(-1, 1, 64).reshape(64, 1)
    >>> from attnlens.networks import Baseline
    >>> make = partial(Baseline, features=1, hidden=4)
    >>> fitted = fit(make, inputs, np.abs(inputs), seeds=range(2), samples=(16, 64), steps=20)
    >>> fitted.members[1]
    Member(seed=0, samples=64, l2=0.0, l1_gates=0.0, entropy=0.0)
    """
    share = float(validation) if isinstance(validation, (int, float)) else 0.0
    settings = Settings(
        loss=loss, steps=steps, batch=batch, learning_rate=learning_rate, schedule=schedule,
        warmup=warmup, optimiser=optimiser, clip=clip, entropy_warmup=entropy_warmup,
        penalised_gates=bool(np.any(np.asarray(l1_gates) != 0)),
        penalised_entropy=bool(np.any(np.asarray(entropy) != 0)),
        validation_share=share, patience=patience,
        every=max(1, math.ceil(steps / 20)) if every is None else every,
        dtype=dtype, transform=transform,
    )  # fmt: skip
    recipe, seeds = Recipe.of(make), tuple(checks.whole("each seed", seed) for seed in seeds)
    if len(set(seeds)) < len(seeds) or max(seeds, default=0) >= 2**32:
        raise checks.BadInput(
            f"seeds must differ from each other and be below 2^32, but {seeds} came."
        )
    data = _data("the data", inputs, targets, dtype, data_per_seed)
    held_back = None
    if isinstance(validation, tuple):
        held_back = _data("validation", *validation, dtype, data_per_seed)
    tested = None if test is None else _data("test", *test, dtype, data_per_seed)
    rows = _rows("the data", data)
    samples = (rows,) if samples is None else tuple(samples)
    given = {"l2": l2, "l1_gates": l1_gates, "entropy": entropy}
    penalties = [_penalties(name, values) for name, values in given.items()]
    together = [*itertools.product(*penalties)]
    members = tuple(
        Member(seed, count, *rest) for seed in seeds for count in samples for rest in together
    )
    _check(settings, recipe, members, rows, data, held_back, len(seeds), data_per_seed)
    checks.whole("block", block, at_least=1)
    checks.whole("checkpoint_every", checkpoint_every, at_least=1)

    width = min(block, len(members))
    folder = None if checkpoint is None else Path(checkpoint)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    groups = [members[i : i + width] for i in range(0, len(members), width)]
    of_seed = {seed: i for i, seed in enumerate(seeds)}
    most = max(len({m.seed for m in group}) for group in groups) if data_per_seed else 1
    work = [
        _block(
            recipe, settings, group, width, (data, held_back, tested),
            of_seed if data_per_seed else None, most,
            None if folder is None else str(folder / f"block-{i:05d}.safetensors"),
            checkpoint_every,
        )
        for i, group in enumerate(groups)
    ]  # fmt: skip
    show = _print_line if progress is True else progress or None
    clock = Clock(len(work), steps, show)
    results: list[Result] = []
    if map is None:
        for i, each in enumerate(work):
            results.append(running.run(each, partial(clock, i)))
    else:
        for i, result in enumerate(map(running.run, work)):
            results.append(result)
            clock(i, steps, 0)
    return _together(recipe, settings, members, results)


def _data(name: str, inputs: Any, targets: Any, dtype: str, per_seed: bool) -> Data:
    """Arrays with a leading axis of data sets, floating point in the precision of the fit."""

    def leaf(array: Any) -> Any:
        if isinstance(array, np.memmap):
            if per_seed:
                raise checks.BadInput(
                    f"{name} on disk cannot hold one data set a seed; call fit once for each."
                )
            kept = streaming.handle(array)
            return kept._replace(shape=(1, *kept.shape))
        array = np.asarray(array)
        if np.issubdtype(array.dtype, np.floating):
            array = array.astype(dtype)
        elif np.issubdtype(array.dtype, np.integer):
            array = array.astype(np.int32)
        return array if per_seed else array[None]

    return jax.tree.map(leaf, Data(inputs, targets))


def _rows(name: str, data: Data) -> int:
    lengths = {leaf.shape[1] for leaf in jax.tree.leaves(data, is_leaf=streaming.is_mapped)}
    if len(lengths) != 1:
        raise checks.BadInput(
            f"inputs and targets of {name} must have equally many samples, but "
            f"{sorted(lengths)} came."
        )
    return lengths.pop()


def _penalties(name: str, values: float | Sequence[float]) -> tuple[float, ...]:
    given = tuple(float(v) for v in np.atleast_1d(np.asarray(values, float)))
    if not given or min(given) < 0 or not all(map(math.isfinite, given)):
        raise checks.BadInput(f"{name} must be numbers of at least 0, but {values!r} came.")
    return given


def _held_out(settings: Settings, samples: int) -> int:
    return math.ceil(settings.validation_share * samples)


def _check(settings, recipe, members, rows, data, validation, seeds, per_seed) -> None:
    for member in members:
        if not 1 <= checks.whole("each sample size", member.samples) <= rows:
            raise checks.BadInput(
                f"samples must be from 1 to the {rows} rows there are, but {member.samples} came."
            )
        if settings.validation_share and member.samples - _held_out(settings, member.samples) < 1:
            raise checks.BadInput(
                f"validation={settings.validation_share} leaves no sample of {member.samples} to "
                f"train on; give a smaller share or larger samples."
            )
    if not members:
        raise checks.BadInput("seeds and samples must each have at least one entry, but none came.")
    sets = jax.tree.leaves(data, is_leaf=streaming.is_mapped)[0].shape[0]
    if per_seed and sets != seeds:
        raise checks.BadInput(
            f"data_per_seed needs one data set for each of the {seeds} seeds, but {sets} came."
        )
    if streaming.any_mapped(data) and (settings.batch is None or settings.validation_share):
        raise checks.BadInput(
            "data on disk need batch=… (a step cannot read them all), and validation as "
            "(inputs, targets) in memory, not as a share."
        )
    if settings.patience is not None and validation is None and not settings.validation_share:
        raise checks.BadInput("patience needs validation=…, a share such as 0.2 or held-out data.")
    _check_model(settings, recipe, data)


def _check_model(settings: Settings, recipe: Recipe, data: Data) -> None:
    """Run one sample through network and loss in shapes only, so that misfits are found at once."""
    layout = Layout.of(recipe)
    if settings.penalised_gates and not layout.gates:
        raise checks.BadInput(
            "l1_gates needs a network with input gates; wrap it: Gated(network, shape=…)."
        )
    one = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], _kind(leaf.dtype, settings.dtype)),
        data, is_leaf=streaming.is_mapped,
    )  # fmt: skip
    from .losses import named

    with jax.enable_x64(settings.dtype == "float64"):
        vector = jax.ShapeDtypeStruct((layout.size,), settings.dtype)
        model = layout.restore
        if settings.penalised_entropy and not hasattr(jax.eval_shape(recipe, _key()), "attention"):
            raise checks.BadInput(
                "entropy needs a network with attention(x), such as SelfAttention; leave it at 0."
            )
        try:
            outputs = jax.eval_shape(lambda v, x: model(v)(x), vector, one.inputs)
            jax.eval_shape(named(settings.loss), outputs, one.targets)
        except checks.BadInput:
            raise
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            raise checks.BadInput(
                f"network, data and loss must fit together, but a sample with inputs "
                f"{_shapes(one.inputs)} and targets {_shapes(one.targets)} does not: {reason}"
            ) from error


def _key() -> Any:
    return jax.eval_shape(jax.random.key, 0)


def _kind(dtype: Any, precision: str) -> Any:
    return np.dtype(precision) if np.issubdtype(np.dtype(dtype), np.floating) else np.dtype(dtype)


def _shapes(tree: Any) -> str:
    return ", ".join(str(leaf.shape) for leaf in jax.tree.leaves(tree))


def _block(
    recipe, settings, group, width, data, of_seed, most, checkpoint, checkpoint_every
) -> Block:
    """A block of exactly `width` members: the last block repeats its last member to fill up."""
    full = [*group, *[group[-1]] * (width - len(group))]
    held_out = [_held_out(settings, m.samples) for m in full]
    numbers = settings.dtype
    place = [0] * width
    parts = data
    if of_seed is not None:
        wanted = list(dict.fromkeys(of_seed[m.seed] for m in full))
        place = [wanted.index(of_seed[m.seed]) for m in full]
        wanted += [wanted[-1]] * (most - len(wanted))
        parts = tuple(part and jax.tree.map(lambda leaf: leaf[wanted], part) for part in data)
    given: dict[str, Any] = {
        "seed": np.array([m.seed for m in full], np.uint32),
        "data_set": np.array(place, np.int32),
        "training": np.array([m.samples for m in full], np.uint32) - np.array(held_out, np.uint32),
        "held_out": np.array(held_out, np.uint32),
        **{name: np.array([getattr(m, name) for m in full], numbers) for name in PENALTIES},
    }
    own, validation, test = parts
    return Block(
        recipe, settings, Members(**given), own, validation, test, checkpoint, checkpoint_every
    )


def _together(recipe, settings, members, results: list[Result]) -> Fitted:
    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(result, name) for result in results])[: len(members)]

    curves = np.concatenate([result.curves for result in results], axis=1)[:, : len(members)]
    points = curves.shape[2]
    at = np.minimum(np.arange(1, points + 1) * settings.every, settings.steps)
    return Fitted(
        members=members, vectors=joined("vectors"),
        status=tuple(training.STATUS[code] for code in joined("status")),
        steps=joined("taken"), best_step=joined("best_step"), at=at,
        train=curves[0], validation=curves[1], test=curves[2], test_loss=joined("test"),
        recipe=recipe,
    )  # fmt: skip


def _print_line(progress: Progress) -> None:
    left = "" if progress.seconds_left is None else f", about {progress.seconds_left:.0f} s left"
    done = f"block {progress.block + 1} of {progress.blocks}, step {progress.step}"
    print(f"fit: {done} of {progress.steps}{left}", file=sys.stderr, flush=True)
