"""The setting of one round of `advise`: rows, folds and training, shared by all its questions.

Because all questions share the folds, every comparison is paired: two models, or one model with and
without a change of the inputs, are trained on the same rows and tested on the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from attnlens.core import checks
from attnlens.core.user_code import user_code
from attnlens.instruments import learning_curve
from attnlens.instruments.samples import learners
from attnlens.instruments.samples.curves import LearningCurves
from attnlens.instruments.samples.labelled import (
    Fold,
    Labelled,
    inflation,
    split_folds,
    usable_sizes,
)

from . import contenders
from .budget import Deadline, Effort, OutOfTime
from .comparisons import ErrorChange, KeptShare
from .questions.decision import ContenderCurve, Contest

T = TypeVar("T")
MODELS = ("baseline", "self-attention")  # networks of lens B (ICLR 2021 submission)
SHARES = (8, 4, 2)  # a contender is also trained with the labels divided by each of these
MOST_AT_ONCE = 16  # concurrent trainings: the number of folds in the last round


def trivial_error(data: Labelled) -> float:
    """The error of a prediction that ignores the inputs: the most frequent class, or the mean."""
    if not data.classes:
        return 1.0
    return 1 - float(np.bincount(data.labels).max()) / len(data.labels)


@dataclass(frozen=True)
class Trial:
    """The rows, folds and training of one round.

    `total` is how many labels the user has; the round uses some of them. `deadline` is set only if
    a `map` trains networks in other processes.
    """

    data: Labelled
    folds: list[Fold]
    effort: Effort
    total: int
    hidden: int
    seed: int
    training: Mapping[str, Any]
    deadline: Deadline | None = None
    models: Mapping[str, Any] = field(default_factory=dict)  # the user's own estimators

    @classmethod
    def of(
        cls,
        data: Labelled,
        effort: Effort,
        total: int,
        hidden: int,
        seed: int,
        training: Mapping[str, Any],
        deadline: Deadline | None = None,
        models: Mapping[str, Any] | None = None,
    ) -> Trial:
        folds = split_folds(data, effort.folds, seed)
        own = models or {}
        return cls(data, folds, effort, total, hidden, seed, training, deadline, own)

    @property
    def task(self) -> str:
        return "classification" if self.data.classes else "regression"

    @property
    def labels(self) -> int:
        """The number of training rows of a fold (the smallest one)."""
        return min(len(fold.train) for fold in self.folds)

    @property
    def quantity(self) -> str:
        return "error rate" if self.data.classes else "relative squared error"

    @property
    def trivial(self) -> float:
        """The error of a prediction that ignores the inputs."""
        return trivial_error(self.data)

    def check_rows(self) -> None:
        """Raise `BadInput` if the folds leave too few rows to learn from."""
        least = 2 * max(4, 2 * self.data.classes)  # twice the smallest size that is tried
        if self.labels < least:
            raise checks.BadInput(
                f"{len(self.data.inputs)} rows of {self.data.classes} classes are too few to learn "
                f"from: folds must leave {least} to train on, and leave {self.labels}; collect "
                f"more."
            )

    def learning_curves(self) -> LearningCurves:
        """The paired learning curves of all models on this round's folds."""
        self.check_rows()
        return learning_curve(
            self.data.inputs,
            self.data.labels,
            models=MODELS,
            sizes=usable_sizes(None, self.data, self.folds, self.effort.sizes),
            task=self.task,
            hidden=self.hidden,
            folds=len(self.folds),
            starts=self.effort.starts,
            seed=self.seed,
            training=self.training,
        )

    def first_contest(self) -> Contest:
        """The contest of the cheapest contenders: estimators, which need no network to be trained.

        They are trained on all training rows of a fold, as the networks in `contest` are.
        """
        self.check_rows()
        recipes = contenders.estimators(self.data, self.seed)
        errors = {name: self.contender_errors(name, recipes[name], self.labels) for name in recipes}
        if self.data.texts is not None:
            errors[contenders.TF_IDF] = self.text_errors(self.labels)
        missing = (*MODELS, contenders.TRANSFORMER, *self.models)
        return Contest(errors, self.labels, self.inflation, self.trivial, self.quantity, missing)

    def with_own_models(self, contest: Contest) -> Contest:
        """A copy of the contest with the user's own estimators."""
        errors = dict(contest.errors)
        for name, model in self.models.items():
            with user_code(f"the model {name!r}", OutOfTime):
                errors[name] = self.contender_errors(name, model, contest.labels)
        return contest.with_errors(errors)

    def contest(self, curves: LearningCurves, estimators: Contest | None = None) -> Contest:
        """The test errors of the networks of lens B at the largest size of their learning curves,
        and of the estimators trained on as many rows.

        `estimators` has the errors of all estimators, if they were measured before.
        """
        measured = estimators or self.with_own_models(self.first_contest())
        errors = {name: np.array(curves.errors[name])[:, -1] for name in curves}
        return measured.with_errors({**errors, **measured.errors})

    def with_transformers(self, contest: Contest) -> Contest:
        """A copy of the contest with two more models: the transformer with learned and with uniform
        attention."""
        recipes = contenders.transformers(self.data)
        errors = {
            name: self.contender_errors(name, recipes[name], contest.labels) for name in recipes
        }
        return contest.with_errors({**contest.errors, **errors})

    def contender_errors(self, name: str, recipe: Any, size: int) -> np.ndarray:
        """The test error of an estimator or a network in each fold, trained on `size` rows."""
        return self._contender_errors(name, recipe, (size,))[:, 0]

    def _contender_errors(self, name: str, recipe: Any, sizes: tuple[int, ...]) -> np.ndarray:
        """The test errors (fold, size) of an estimator or a network."""
        self._check_time()
        run = learners.choose({name: recipe}, self.data, None, self.hidden)[name]
        training = contenders.training_of(name, self.training)
        return run(self.folds, sizes, self.seed, training, self.effort.starts)

    def text_errors(self, size: int) -> np.ndarray:
        """The test error of a linear model on word counts in each fold."""
        self._check_time()
        assert self.data.texts is not None
        words = self.data._replace(inputs=self.data.texts)
        errors = []
        for fold in self.folds:
            model = contenders.tf_idf(self.data)
            model.fit(words.inputs[fold.train[:size]], words.labels[fold.train[:size]])
            errors.append(learners.test_error(words, fold, model.predict(words.inputs[fold.test])))
        return np.array(errors)

    def error_curve(self, name: str, contest: Contest, curves: LearningCurves) -> ContenderCurve:
        """The errors of a contender of `contest` with fewer labels and with all of them.

        A network that has a learning curve in `curves` is not trained again; another contender is
        trained with the shares `SHARES` of the labels.
        """
        if name in curves:
            sizes, errors = curves.sizes, np.array(curves.errors[name])
        else:
            least = max(4, 2 * self.data.classes)
            fewer = tuple(dict.fromkeys(max(least, contest.labels // k) for k in SHARES))
            fewer = tuple(size for size in fewer if size < contest.labels)
            if name == contenders.TF_IDF:
                columns = [self.text_errors(size) for size in fewer]
            else:
                recipes = {
                    **contenders.estimators(self.data, self.seed),
                    **contenders.transformers(self.data),
                    **self.models,
                }
                columns = [*self._contender_errors(name, recipes[name], fewer).T]
            sizes = (*fewer, contest.labels)
            errors = np.stack([*columns, contest.errors[name]], axis=1)
        factors = inflation(np.array(sizes, float), len(self.data.inputs), len(self.folds))
        tested = sum(len(fold.test) for fold in self.folds) if self.data.classes else 0
        return ContenderCurve(tuple(sizes), errors, tuple(factors.tolist()), tested)

    def _check_time(self) -> None:
        """Raise `OutOfTime` if the time is up; networks check it themselves, estimators do not."""
        self.training.get("progress", lambda: None)()

    def errors(
        self,
        model: str,
        data: Labelled | None = None,
        folds: list[Fold] | None = None,
        seed: int | None = None,
    ) -> np.ndarray:
        """A network's test error in each fold, trained on all training rows of the fold."""
        data = self.data if data is None else data
        folds = self.folds if folds is None else folds
        make, layout = learners.built_in(model, data, self.hidden)
        errors = learners.network_errors(
            make,
            layout,
            data,
            folds,
            (self.labels,),
            self.seed if seed is None else seed,
            self.training,
            self.effort.starts,
        )[:, 0]
        # A fold without a wrong row counts as half a wrong row: a smaller error cannot be
        # distinguished from none.
        return np.maximum(errors, 0.5 / max(len(f.test) for f in folds)) if data.classes else errors

    def at_once(self, jobs: Iterable[Callable[[], T]]) -> list[T]:
        """The results of several trainings, in order.

        Where a `map` trains in other processes, all jobs run together, each waiting in a thread;
        otherwise they run one after the other.
        """
        if self.deadline is None:
            return [job() for job in jobs]
        with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
            try:
                futures = [threads.submit(job) for job in jobs]
                for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                    future.result()  # raises the first failure, while others may still run
                return [future.result() for future in futures]
            except BaseException:  # out of time, or interrupted: do not wait for the others
                threads.shutdown(wait=False, cancel_futures=True)
                self.deadline.stop()
                raise

    @property
    def inflation(self) -> float:
        """The factor by which standard errors grow because folds share training rows."""
        rows, count = len(self.data.inputs), len(self.folds)
        return float(inflation(np.array([float(self.labels)]), rows, count)[0])

    def change(self, with_it: np.ndarray, without: np.ndarray) -> ErrorChange:
        """The change from errors `without` to errors `with_it`, paired by fold."""
        return ErrorChange(with_it, without, self.inflation)

    def kept_share(self, some: np.ndarray, everything: np.ndarray) -> KeptShare:
        """The share of the gain over ignoring the inputs that is kept with `some` of the inputs."""
        return KeptShare(some, everything, self.trivial, self.inflation)
