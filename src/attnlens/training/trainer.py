"""Training many networks at once: seeds × sample sizes × penalties.

`fit` divides the members into groups, trains the groups (in this process, or through a function
`map`, such as that of a process pool) and joins the results. The docstring of `steps` gives the
objective; the optimiser is Adam (Kingma and Ba, ICLR 2015) by default.
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

from attnlens.core import checks
from attnlens.core.notebook import in_notebook, notebook_bar
from attnlens.networks.layout import Layout

from . import fitted_files, groups, steps, streaming
from .data import Data, as_data, check_model, row_count
from .groups import Clock, Group, GroupResult, Progress
from .settings import Member, Recipe, Settings, TrainingSettings
from .steps import Members

GROUP_SIZE = 16  # members trained together by default: half of the benchmark's ensemble; not tuned
PENALTIES = ("l2", "l1_gates", "entropy")


@dataclasses.dataclass(frozen=True)
class Fitted:
    """An ensemble after training, in NumPy arrays with one entry per member.

    `vectors` holds the parameters with the lowest validation loss if there are validation data,
    otherwise the last parameters (for a diverged member: those of its last finite evaluation).
    `status` is `FINISHED`, `STOPPED_EARLY` or `DIVERGED`; `steps` is the number of steps taken.
    Curves have one column per evaluation, after the steps in `at`: `train` (mean over the steps
    since the last evaluation), `validation` and `test`; NaN where nothing was measured. `test_loss`
    is the test loss of `vectors`.

    `fit` returns a `Fitted`; `model(i)` returns member i as a network; `save` and `load` write and
    read a file.

    >>> from attnlens.networks import Baseline
    >>> make = partial(Baseline, features=1, hidden=1)
    >>> fit(make, np.ones((8, 1)), np.ones((8, 1)), seeds=(0, 1), steps=2).vectors.shape
    (2, 2)
    """

    members: tuple[Member, ...]
    vectors: np.ndarray
    status: tuple[steps.TrainingStatus, ...]
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
        """Return member `index` as a network."""
        return self._restore(self.vectors[index])

    @property
    def models(self) -> Any:
        """All members as one network whose arrays have a leading axis of members."""
        one = self.model(0)
        leaves = [jax.tree.leaves(self.model(i)) for i in range(len(self))]
        stacked = [np.stack(parts) for parts in zip(*leaves, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(one), stacked)

    def save(self, path: str | Path) -> None:
        """Write the networks and their curves to one file (safetensors, no pickle)."""
        fields = (field.name for field in dataclasses.fields(self))
        fitted_files.write(Path(path), {name: getattr(self, name) for name in fields})

    @classmethod
    def load(cls, path: str | Path, make: Any = None) -> Fitted:
        """Return the networks in a file that `save` wrote; nothing in the file is executed.

        `make` must be given, as it was given to `fit`, if the network is not a class of
        `attnlens.networks`, or if one of its settings is not a number, a string or a boolean.
        """
        return cls(**fitted_files.read(Path(path), make))

    def _restore(self, vector: np.ndarray) -> Any:
        return Layout.of(self.recipe).restore(vector)


def fit(
    make: Any,
    inputs: Any,
    targets: Any,
    *,
    seeds: Iterable[int] = (0,),
    samples: Sequence[int] | None = None,
    l2: float | Sequence[float] = 0.0,
    l1_gates: float | Sequence[float] = 0.0,
    entropy: float | Sequence[float] = 0.0,
    validation: float | tuple[Any, Any] | None = None,
    test: tuple[Any, Any] | None = None,
    data_per_seed: bool = False,
    settings: TrainingSettings | None = None,
    block: int = GROUP_SIZE,
    map: Callable[..., Iterable[Any]] | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    progress: Callable[[Progress], None] | bool | None = None,
    **training: Any,
) -> Fitted:
    """Empirical risk minimisation of a whole ensemble in two compiled programs.

        minimise  (1/n) Σ_i ℓ(model_w(x_i), y_i) + λ₂ ‖w‖² + λ₁ Σ gates + λ_H · entropy of attention

    make: a function of a random key that returns a network, such as
        `partial(Baseline, features=8, hidden=16)`.
    inputs, targets: arrays (or trees of arrays) with samples along the first axis. With
        `data_per_seed`, the first axis is for seeds and the second for samples: seed i trains on
        data set i. Memory-mapped arrays stay on disk, and only the batches up to the next
        evaluation are read at a time.
    seeds, samples, l2, l1_gates, entropy: the members are all combinations of these values. A
        member with sample size n gets the first n rows, so shuffle rows that are sorted. λ₂, λ₁ and
        λ_H are `l2`, `l1_gates` and `entropy`.
    validation: a share of each member's samples (the last ones), or (inputs, targets). The
        parameters with the lowest validation loss are returned.
    test: (inputs, targets); their loss is measured at each evaluation and has no other effect.
    block, map: members are trained in groups of `block`, which `map(function, groups)` runs; the
        result does not depend on how `map` does that. Without `map`, the groups run in this
        process, one after the other.
    checkpoint: a folder; a fit that was interrupted continues from there, bit for bit. A group's
        state is saved at the first evaluation at least `checkpoint_every` steps after the last
        save.
    progress: True prints a line at each evaluation (with `map`, after each group); a function is
        given each `Progress`. By default a notebook shows a bar; False shows none.

    The following keywords say how to train (defaults in brackets). They may be given as
    `settings=TrainingSettings(…)`; keywords given in addition replace single fields of it.

    loss ("squared"): a name from `LOSSES` or a function of (outputs, target).
    steps (1000), batch (None): `batch=None` takes all of a member's samples at each step;
        otherwise each pass over the samples is in a new order.
    learning_rate (0.01), schedule ("constant"), warmup (0): "constant", "linear" or "cosine" (to
        zero at the end), after `warmup` steps of linear rise; or a function of the step.
    optimiser ("adam"), clip (None): "adam", "sgd", "momentum", or a function of a learning-rate
        schedule that returns an optax optimiser. Gradients whose norm exceeds `clip` are first
        scaled down to that norm.
    entropy_warmup (0): steps over which the penalty on the entropy rises to its full value.
    patience (None): a member stops after this many evaluations without a new lowest validation
        loss.
    every (None): steps between evaluations; by default a twentieth of all steps.
    dtype ("float32"): "float32" or "float64".
    transform (None): a function (key, input, target) -> (input, target), applied to each sample at
        each step; for example, it can hide different tokens at each step.

    >>> inputs = np.linspace(-1, 1, 64).reshape(64, 1)
    >>> from attnlens.networks import Baseline
    >>> make = partial(Baseline, features=1, hidden=4)
    >>> fitted = fit(make, inputs, np.abs(inputs), seeds=range(2), samples=(16, 64), steps=20)
    >>> fitted.members[1]
    Member(seed=0, samples=64, l2=0.0, l1_gates=0.0, entropy=0.0)
    """
    share = float(validation) if isinstance(validation, (int, float)) else 0.0
    complete = (
        (settings or TrainingSettings())
        .changed(**training)
        .complete(
            penalised_gates=bool(np.any(np.asarray(l1_gates) != 0)),
            penalised_entropy=bool(np.any(np.asarray(entropy) != 0)),
            validation_share=share,
        )
    )
    dtype = complete.dtype
    recipe, seeds = Recipe.of(make), tuple(checks.whole("each seed", seed) for seed in seeds)
    if len(set(seeds)) < len(seeds) or max(seeds, default=0) >= 2**32:
        raise checks.BadInput(f"seeds must differ from each other and be below 2^32; got {seeds}.")
    data = as_data("the data", inputs, targets, dtype, data_per_seed)
    held_out = None
    if isinstance(validation, tuple):
        held_out = as_data("validation", *validation, dtype, data_per_seed)
    test_data = None if test is None else as_data("test", *test, dtype, data_per_seed)
    rows = row_count("the data", data)
    members = _members(seeds, (rows,) if samples is None else tuple(samples), l2, l1_gates, entropy)
    _check(complete, members, rows, data, held_out, len(seeds), data_per_seed)
    check_model(complete, recipe, data)
    checks.whole("block", block, at_least=1)
    checks.whole("checkpoint_every", checkpoint_every, at_least=1)

    width = min(block, len(members))
    folder = None if checkpoint is None else Path(checkpoint)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    divided = [members[i : i + width] for i in range(0, len(members), width)]
    set_of_seed = {seed: i for i, seed in enumerate(seeds)}
    most_sets = max(len({m.seed for m in part}) for part in divided) if data_per_seed else 1
    work = [
        _group(
            recipe,
            complete,
            part,
            width,
            (data, held_out, test_data),
            set_of_seed if data_per_seed else None,
            most_sets,
            # The name is that of earlier versions, so that their checkpoints can be resumed.
            None if folder is None else str(folder / f"block-{i:05d}.safetensors"),
            checkpoint_every,
        )
        for i, part in enumerate(divided)
    ]
    show = _shown_by(progress)
    clock = Clock(len(work), complete.steps, show)
    results: list[GroupResult] = []
    if map is None:
        for i, group in enumerate(work):
            results.append(groups.run(group, partial(clock, i)))
    else:
        for i, result in enumerate(map(groups.run, work)):
            results.append(result)
            clock(i, complete.steps, 0)
    return _joined(recipe, complete, members, results)


def _members(
    seeds: Sequence[int],
    samples: Sequence[int],
    l2: float | Sequence[float],
    l1_gates: float | Sequence[float],
    entropy: float | Sequence[float],
) -> tuple[Member, ...]:
    """Return all combinations of seeds, sample sizes and penalties; penalties vary fastest."""
    values = zip(PENALTIES, (l2, l1_gates, entropy), strict=True)
    penalties = [*itertools.product(*(_penalties(name, value) for name, value in values))]
    return tuple(
        Member(seed, count, *penalty)
        for seed in seeds
        for count in samples
        for penalty in penalties
    )


def _penalties(name: str, values: float | Sequence[float]) -> tuple[float, ...]:
    numbers = tuple(float(v) for v in np.atleast_1d(np.asarray(values, float)))
    if not numbers or min(numbers) < 0 or not all(math.isfinite(number) for number in numbers):
        raise checks.BadInput(f"{name} must be numbers of at least 0; got {values!r}.")
    return numbers


def _held_out_rows(settings: Settings, samples: int) -> int:
    return math.ceil(settings.validation_share * samples)


def _check(
    settings: Settings,
    members: Sequence[Member],
    rows: int,
    data: Data,
    validation: Data | None,
    seeds: int,
    per_seed: bool,
) -> None:
    for member in members:
        if not 1 <= checks.whole("each sample size", member.samples) <= rows:
            raise checks.BadInput(
                f"samples must be from 1 to the {rows} rows there are; got {member.samples}."
            )
        share = settings.validation_share
        if share and member.samples - _held_out_rows(settings, member.samples) < 1:
            raise checks.BadInput(
                f"validation={share} leaves no sample of {member.samples} to train on; give a "
                f"smaller share or larger samples."
            )
    if not members:
        raise checks.BadInput("seeds and samples must each have at least one entry; got none.")
    sets = jax.tree.leaves(data, is_leaf=streaming.is_mapped)[0].shape[0]
    if per_seed and sets != seeds:
        raise checks.BadInput(
            f"data_per_seed needs one data set for each of the {seeds} seeds; got {sets}."
        )
    if streaming.any_mapped(data) and (settings.batch is None or settings.validation_share):
        raise checks.BadInput(
            "data on disk need batch=… (one step cannot read them all), and validation as "
            "(inputs, targets) in memory, not as a share."
        )
    if settings.patience is not None and validation is None and not settings.validation_share:
        raise checks.BadInput("patience needs validation=…, a share such as 0.2 or held-out data.")


def _group(
    recipe, settings, members, width, data, set_of_seed, most_sets, checkpoint, checkpoint_every
) -> Group:
    """Return a group of exactly `width` members: the last group repeats its last member to fill up.

    With one data set per seed (`set_of_seed` is not None), a group gets only the data sets of its
    own seeds. The last one is repeated until there are `most_sets`, so that all groups have the
    same shapes and share their compiled programs.
    """
    full = [*members, *[members[-1]] * (width - len(members))]
    held_out = [_held_out_rows(settings, m.samples) for m in full]
    place = [0] * width
    parts = data
    if set_of_seed is not None:
        sets = list(dict.fromkeys(set_of_seed[m.seed] for m in full))
        place = [sets.index(set_of_seed[m.seed]) for m in full]
        sets += [sets[-1]] * (most_sets - len(sets))
        parts = tuple(part and jax.tree.map(lambda leaf: leaf[sets], part) for part in data)
    values: dict[str, Any] = {
        "seed": np.array([m.seed for m in full], np.uint32),
        "data_set": np.array(place, np.int32),
        "training": np.array([m.samples for m in full], np.uint32) - np.array(held_out, np.uint32),
        "held_out": np.array(held_out, np.uint32),
        **{name: np.array([getattr(m, name) for m in full], settings.dtype) for name in PENALTIES},
    }
    own, validation, test = parts
    return Group(
        recipe, settings, Members(**values), own, validation, test, checkpoint, checkpoint_every
    )


def _joined(recipe, settings, members, results: list[GroupResult]) -> Fitted:
    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(result, name) for result in results])[: len(members)]

    curves = np.concatenate([result.curves for result in results], axis=1)[:, : len(members)]
    points = curves.shape[2]
    at = np.minimum(np.arange(1, points + 1) * settings.every, settings.steps)
    return Fitted(
        members=members,
        vectors=joined("vectors"),
        status=tuple(steps.STATUS[code] for code in joined("status")),
        steps=joined("taken"),
        best_step=joined("best_step"),
        at=at,
        train=curves[0],
        validation=curves[1],
        test=curves[2],
        test_loss=joined("test"),
        recipe=recipe,
    )


def _shown_by(progress: Callable[[Progress], None] | bool | None) -> Callable[..., None] | None:
    """The function that shows each `Progress`; None if nothing is shown."""
    if progress is True:
        return _print_line
    if progress is not None or not in_notebook():
        return progress or None
    show = notebook_bar("training steps")
    return lambda now: show(now.group * now.steps + now.step, now.groups * now.steps)


def _print_line(progress: Progress) -> None:
    remaining = progress.seconds_left
    remaining = "" if remaining is None else f", about {remaining:.0f} s left"
    done = f"group {progress.group + 1} of {progress.groups}, step {progress.step}"
    print(f"fit: {done} of {progress.steps}{remaining}", file=sys.stderr, flush=True)
