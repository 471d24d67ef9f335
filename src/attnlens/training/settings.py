"""Settings of a fit: everything about training that is not data.

A user gives `TrainingSettings` (or single keywords of `fit`). `complete` checks them and adds the
settings that depend on the ensemble; it returns the `Settings` for which programs are compiled.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import optax
from jaxtyping import Array

from attnlens.core import checks
from attnlens.networks.losses import Loss, named

SCHEDULES = ("constant", "linear", "cosine")
OPTIMISERS: dict[str, Callable[..., optax.GradientTransformation]] = {
    "adam": optax.adam,
    "sgd": optax.sgd,
    "momentum": partial(optax.sgd, momentum=0.9),
}
PRECISIONS = ("float32", "float64")
EVALUATIONS = 20  # number of evaluations per fit if `every` is left out: enough for a curve


class Member(NamedTuple):
    """One network of an ensemble: its seed, how many samples it sees, and its penalties.

    >>> Member(seed=3, samples=128)
    Member(seed=3, samples=128, l2=0.0, l1_gates=0.0, entropy=0.0)
    """

    seed: int
    samples: int
    l2: float = 0.0
    l1_gates: float = 0.0
    entropy: float = 0.0


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A function that makes a network, with its arguments.

    Recipes are compared by content, so that equal recipes share their compiled programs.
    """

    make: Callable[..., Any]
    positional: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, make: Any) -> Recipe:
        if isinstance(make, Recipe):
            return make
        if isinstance(make, partial):
            return cls(make.func, make.args, tuple(sorted(make.keywords.items())))
        if not callable(make):
            raise checks.BadInput(
                f"make must be a function of a random key that returns a network, such as "
                f"partial(Baseline, features=8, hidden=16); got {type(make).__name__}."
            )
        return cls(make)

    def __call__(self, key: Array) -> Any:
        return self.make(*self.positional, key, **dict(self.keywords))


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """How to train, as one object: `fit(make, inputs, targets, settings=TrainingSettings(…))`.

    Each field is also a keyword of `fit`, whose documentation says what it means. Type checkers see
    the types of the fields here.

    >>> short = TrainingSettings(steps=100, learning_rate=0.05)
    >>> short.changed(batch=16).batch
    16
    """

    loss: str | Loss = "squared"
    steps: int = 1000
    batch: int | None = None
    learning_rate: float = 1e-2
    schedule: str | Callable[[Any], Any] = "constant"
    warmup: int = 0
    optimiser: str | Callable[..., Any] = "adam"
    clip: float | None = None
    entropy_warmup: int = 0
    patience: int | None = None
    every: int | None = None
    dtype: str = "float32"
    transform: Callable[..., Any] | None = None

    def changed(self, **changes: Any) -> TrainingSettings:
        """Return the same settings with some fields changed."""
        names = {field.name for field in dataclasses.fields(self)}
        if unknown := [name for name in changes if name not in names]:
            raise TypeError(f"fit() got an unexpected keyword argument {unknown[0]!r}")
        return dataclasses.replace(self, **changes)

    def complete(
        self,
        *,
        penalised_gates: bool = False,
        penalised_entropy: bool = False,
        validation_share: float = 0.0,
    ) -> Settings:
        """Check the settings, and add those that depend on an ensemble's penalties and validation.

        penalised_gates, penalised_entropy: whether any member has this penalty.
        validation_share: the share of each member's samples that is used for validation.
        """
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.every is None:
            values["every"] = max(1, math.ceil(self.steps / EVALUATIONS))
        return Settings(
            **values,
            penalised_gates=penalised_gates,
            penalised_entropy=penalised_entropy,
            validation_share=validation_share,
        )


@dataclasses.dataclass(frozen=True)
class Settings:
    """The checked settings of one ensemble; hashable, because programs are compiled for them.

    The fingerprint of a checkpoint contains the names of this class and of its fields: after a
    rename, `fit` would refuse the checkpoints written before.
    """

    loss: str | Loss
    steps: int
    batch: int | None
    learning_rate: float
    schedule: str | Callable[[Any], Any]
    warmup: int
    optimiser: str | Callable[..., optax.GradientTransformation]
    clip: float | None
    entropy_warmup: int
    penalised_gates: bool
    penalised_entropy: bool
    validation_share: float
    patience: int | None
    every: int
    dtype: str
    transform: Callable[..., Any] | None

    def __post_init__(self):
        named(self.loss)
        checks.whole("steps", self.steps, at_least=1)
        checks.whole("every", self.every, at_least=1)
        checks.positive("learning_rate", self.learning_rate)
        checks.whole("warmup", self.warmup)
        checks.whole("entropy_warmup", self.entropy_warmup)
        checks.one_of("dtype", self.dtype, PRECISIONS)
        if self.batch is not None:
            checks.whole("batch", self.batch, at_least=1)
        if self.clip is not None:
            checks.positive("clip", self.clip)
        if self.patience is not None:
            checks.whole("patience", self.patience, at_least=1)
        if isinstance(self.schedule, str):
            checks.one_of("schedule", self.schedule, SCHEDULES)
        if isinstance(self.optimiser, str):
            checks.one_of("optimiser", self.optimiser, OPTIMISERS)
        if self.warmup >= self.steps:
            raise checks.BadInput(
                f"warmup must be shorter than the {self.steps} steps; got {self.warmup}."
            )
        if not 0 <= self.validation_share < 1:
            raise checks.BadInput(
                f"validation, when a share, must be at least 0 and below 1; got "
                f"{self.validation_share}; give validation=0.2, for example."
            )

    def rate(self) -> Callable[[Any], Any]:
        """Return the learning rate as a function of the step."""
        if callable(self.schedule):
            return self.schedule
        remaining = self.steps - self.warmup
        after = {
            "constant": optax.constant_schedule(self.learning_rate),
            "linear": optax.linear_schedule(self.learning_rate, 0.0, remaining),
            "cosine": optax.cosine_decay_schedule(self.learning_rate, remaining),
        }[self.schedule]
        if not self.warmup:
            return after
        before = optax.linear_schedule(0.0, self.learning_rate, self.warmup)
        return optax.join_schedules([before, after], [self.warmup])

    def optimise(self) -> optax.GradientTransformation:
        """Return the optimiser; if `clip` is set, it first clips the gradient to this norm."""
        chosen = OPTIMISERS[self.optimiser] if isinstance(self.optimiser, str) else self.optimiser
        steps = chosen(self.rate())
        if self.clip is None:
            return steps
        return optax.chain(optax.clip_by_global_norm(self.clip), steps)
