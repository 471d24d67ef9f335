"""Does the order of tokens matter, in what way, and how soon would it be noticed?

**The question has one rule, `order`.** Two measurements can answer it, and each statement in the
answer rests on one of them, with its own error rate:

    tokens   the exact permutation test of `exchangeability`, which needs no labels: "yes" if
             p ≤ 0.05, so by mistake in at most 5 % of data sets. The test compares the largest of
             several statistics with its values for shuffled orders, which corrects for multiple
             testing.
    label    the ratio of two errors of the chosen model, with each row's tokens shuffled and in
             their own order, paired by fold: "yes" if the whole 95 % interval of the log ratio
             lies above 0 (by mistake in at most 2.5 %), "no" only if it lies within ± 5 % or
             below 0.

`attnlens exchangeability` uses the first measurement, `advise` both. Nothing is decided if
sequences have so few orders that p cannot be small; constant sequences have no order. "No sign"
among the tokens does not mean "no" for the label: that needs an interval that excludes an effect.

The columns of a plain table are not a sequence: only the label can depend on which column a value
is in. So `advise` makes no permutation test of columns, and standardises columns before it shuffles
values among them; `attnlens exchangeability` tests rows, or columns with `--along columns`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from attnlens.advice.comparisons import ErrorChange
from attnlens.advice.phrases import QuestionWords
from attnlens.advice.trials import Trial
from attnlens.core.readings import Reading
from attnlens.core.sheets import Answer, AnswerOutcome, Question
from attnlens.core.statistics import holm
from attnlens.core.status import Status
from attnlens.instruments import exchangeability
from attnlens.instruments.order.exchange import LEVEL, Exchangeability
from attnlens.instruments.order.martingale import Wealth

from .labels import ModelChoice

ORDER = QuestionWords(Question.ORDER, "Does the order of tokens matter?")
STREAM = QuestionWords(
    Question.STREAM, "Would an observer who sees one token after the other have noticed?"
)
DRIFT = QuestionWords(Question.DRIFT, "Do tokens move from the beginning to the end?")
YES, NO, NO_SIGN = AnswerOutcome.YES, AnswerOutcome.NO, AnswerOutcome.NO_SIGN


class EffectWords(NamedTuple):
    """The question about an effect, and its outcome and words for effects above and below zero."""

    question: QuestionWords
    above: tuple[AnswerOutcome, str]
    below: tuple[AnswerOutcome, str]


EFFECTS = {
    "neighbours": EffectWords(
        QuestionWords(Question.NEIGHBOURS, "Are neighbouring tokens alike?"),
        (YES, "yes, more than by chance"),
        (NO, "no, they differ more than by chance"),
    ),
    "drift": EffectWords(DRIFT, (YES, "yes, upwards"), (YES, "yes, downwards")),
    "scale": EffectWords(
        QuestionWords(Question.SPREAD, "Does their spread change?"),
        (YES, "yes, it grows"),
        (YES, "yes, it shrinks"),
    ),
}
# The drift of vectors and categories is a squared length: it has no direction.
SQUARED_DRIFT = EffectWords(
    DRIFT, (YES, "yes, further than by chance"), (NO, "no, less far than by chance")
)
MOST_SEQUENCES = 200  # in `advise`; the permutation test is exact for any number of them


class LabelEffect(NamedTuple):
    """How a model's error changes when tokens are shuffled; `learned`: whether the model learns."""

    model: str
    learned: bool
    change: ErrorChange

    @property
    def present(self) -> bool:
        return self.learned and self.change.usable and self.change.worse

    @property
    def absent(self) -> bool:
        return (
            self.learned and self.change.usable and (self.change.better or self.change.negligible)
        )


# -- measurements of `advise` ----------------------------------------------------------------------


def label_effect(trial: Trial, choice: ModelChoice) -> LabelEffect:
    """Compare training on data with each row's tokens (or columns) shuffled and not shuffled."""
    random = np.random.default_rng(trial.seed)
    inputs = trial.data.inputs
    if not trial.data.tokens:  # columns have different units: standardise them
        spread = inputs.std(0)
        inputs = (inputs - inputs.mean(0)) / np.where(spread > 0, spread, 1.0)
    original = trial.data._replace(inputs=inputs)
    shuffled = original._replace(
        inputs=random.permuted(inputs, axis=1)
        if inputs.ndim == 2
        else _shuffle_tokens(inputs, random)
    )
    jobs = [partial(trial.errors, choice.model, data) for data in (shuffled, original)]
    return LabelEffect(choice.model, choice.learned, trial.change(*trial.at_once(jobs)))


def sequence_test(sequences: Sequence[np.ndarray], seed: int) -> Exchangeability | None:
    """The permutation test of at most `MOST_SEQUENCES` sequences; None if none has two tokens."""
    usable = [sequence for sequence in sequences if len(sequence) > 1][:MOST_SEQUENCES]
    return exchangeability(usable, wealth=False, seed=seed) if usable else None


def _shuffle_tokens(tokens: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Shuffle the tokens of each row independently; zeros that pad a row stay at its end.

    >>> tokens = np.arange(1.0, 4)[None, :, None] * [[[1.0], [1.0], [0.0]]]
    >>> sorted(_shuffle_tokens(tokens, np.random.default_rng(0))[0, :, 0].tolist()[:2])
    [1.0, 2.0]
    """
    places = np.arange(tokens.shape[1])
    length = ((tokens != 0).any(2) * (places + 1)).max(1)
    keys = random.random(tokens.shape[:2])
    keys = np.where(places < length[:, None], keys, 1.0 + places)
    return np.take_along_axis(tokens, keys.argsort(1)[:, :, None], axis=1)


# -- answers ---------------------------------------------------------------------------------------


def order(
    test: Exchangeability | None, label: LabelEffect | None = None, *, columns: bool = False
) -> Answer:
    """Does the order of tokens matter? See the module's docstring for the rule.

    test: the permutation test of the tokens; None if no sequence has two tokens, or if `columns`.
    label: the effect on a model's error; None without labels. columns: whether the tokens are the
    columns of a table.
    """
    if columns:
        assert label is not None
        return _column_order(label)
    if test is None:
        return ORDER.unknown("no sequence has two tokens")
    evidence, readings = _test_evidence(test, label)
    if test.constant:
        return ORDER.answer(NO, "no: every sequence is constant", evidence, readings=readings)
    if test.value <= LEVEL:
        words = f"yes, most of all by {test.strongest}{_label_words(label)}"
        return ORDER.answer(YES, words, evidence, readings=readings)
    if label is not None and label.present:
        words = "yes, for the label: shuffled tokens predict it less well"
        return ORDER.answer(YES, words, evidence, readings=readings)
    if 1 / (test.count + 1) > LEVEL:
        why = f"so few tokens have {test.count + 1} orders, and p cannot be small"
        return ORDER.unknown(evidence, why, readings)
    if label is None:
        return ORDER.answer(NO_SIGN, "no sign that it does", evidence, readings=readings)
    if label.absent:
        words = "no: neither the tokens nor the label depend on it"
        return ORDER.answer(NO, words, evidence, readings=readings)
    words = f"no sign that it does among the tokens{_label_words(label)}"
    return ORDER.answer(NO_SIGN, words, evidence, known=False, readings=readings)


def _label_words(label: LabelEffect | None) -> str:
    if label is None:
        return ""
    if label.present:
        return "; for the label too: shuffled tokens predict it less well"
    if label.absent:
        return "; for the label it does not"
    return "; whether it does for the label is not known yet"


def _test_evidence(
    test: Exchangeability, label: LabelEffect | None
) -> tuple[str, dict[str, Reading]]:
    sequences = test.sequences
    effects = ", ".join(
        f"{name} {effect.value:.2g} ± {effect.standard_error:.1g}"
        for name, effect in test.effects.items()
        if effect.status is Status.OK
    )
    evidence = (
        f"p = {test.value:.3g} of an exact permutation test, {test.orders}, "
        f"{sequences:,} sequence{'s' * (sequences > 1)} of {test.kind}"
        f"{f' ({effects})' if effects else ''}"
    )
    readings = {} if label is None else {"log_error_ratio": label.change.reading}
    readings["p_value"] = Reading(test.value, test.standard_error, test.count)
    readings |= {name: Reading.of(effect) for name, effect in test.effects.items()}
    if label is not None:
        evidence += f"; {label.model} with tokens shuffled: {label.change}"
    return evidence, readings


def _column_order(label: LabelEffect) -> Answer:
    evidence = f"{label.model}, each row's values mixed among its columns: {label.change}"
    readings = {"log_error_ratio": label.change.reading}
    if label.present:
        words = "which column a value stands in does; the columns' own order carries nothing"
        return ORDER.answer(AnswerOutcome.PARTLY, words, evidence, readings=readings)
    if label.absent:
        words = "no, not even which column is which: columns are interchangeable"
        return ORDER.answer(NO, words, evidence, readings=readings)
    return ORDER.unknown(evidence, readings=readings)


def effects(test: Exchangeability) -> list[Answer]:
    """In what way do tokens depend on their position? One question per measured effect.

    An effect is shown if its two-sided p-value (Student's t), corrected for the number of effects
    (Holm), is at most 0.05: in at most 5 % of data sets is any effect shown by mistake.
    """
    answers = []
    measured_effects = {n: e for n, e in test.effects.items() if _has_error(e)}
    p_values = holm([effect.p_value() for effect in measured_effects.values()])
    adjusted = dict(zip(measured_effects, p_values, strict=True))
    for name, effect in test.effects.items():
        signed = name != "drift" or test.kind == "numbers"
        question, above, below = EFFECTS[name] if signed else SQUARED_DRIFT
        meaning = test.meaning(name)
        if name not in adjusted:
            measured = effect.status is Status.OK
            why = "a single value has no error" if measured else effect.reason
            answers.append(question.unknown(meaning, why))
            continue
        shown = adjusted[name] <= LEVEL
        outcome, words = above if effect.value > 0 else below
        if not shown:
            outcome, words = NO_SIGN, "no sign of it"
        evidence = f"{effect.value:.3g} ± {effect.standard_error:.2g}: {meaning}"
        readings = {name: Reading.of(effect)}
        answers.append(question.answer(outcome, words, evidence, readings=readings))
    return answers


def _has_error(effect: Reading) -> bool:
    return effect.status is Status.OK and math.isfinite(effect.p_value())


def stream(wealth: Wealth) -> Answer:
    """After how many tokens does the test martingale reject exchangeability, if at all?"""
    tokens = wealth.reached(LEVEL)
    if tokens is None:
        return STREAM.answer(NO, "no", str(wealth))
    return STREAM.answer(YES, f"yes, after {tokens:,} tokens", str(wealth))
