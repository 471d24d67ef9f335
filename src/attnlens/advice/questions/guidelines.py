"""Do sparsity or a lower rank help?

`guidelines` tries each design guideline of lens B (ICLR 2021 submission) on the user's data. Its
intervals hold for all guidelines together with 95 % (each at the level 1 − 0.05/number), so
"yes", "harm" and "no" below account for asking several questions.
"""

from __future__ import annotations

import math

from attnlens.advice.comparisons import NEGLIGIBLE
from attnlens.advice.phrases import QuestionWords, format_percent
from attnlens.advice.trials import Trial
from attnlens.core.readings import Reading
from attnlens.core.sheets import Answer, AnswerOutcome, Question
from attnlens.instruments import guidelines
from attnlens.instruments.samples.guidelines import Recommendation

from .labels import ModelChoice

SPARSE = QuestionWords(Question.SPARSITY, "Does sparsity help?")
RANK = QuestionWords(Question.LOW_RANK, "Does a lower rank help?")


def structure(trial: Trial, choice: ModelChoice) -> list[Answer]:
    """Do sparse inputs, and queries and keys of lower dimension, lower the error?"""
    measured = guidelines(
        trial.data.inputs,
        trial.data.labels,
        task=trial.task,
        hidden=trial.hidden,
        folds=len(trial.folds),
        starts=trial.effort.starts,
        seed=trial.seed,
        training=trial.training,
    )
    sparsity = guideline(SPARSE, measured["sparsity"], measured.labels, choice.learned)
    if trial.data.tokens:
        return [sparsity, guideline(RANK, measured["low rank"], measured.labels, choice.learned)]
    # The token of a column has two entries, its number and a constant, so its queries cannot be
    # made narrower.
    words = "not a question here: a column is a token of one number"
    evidence = "lower rank is tried on tokens of several numbers"
    return [sparsity, RANK.answer(AnswerOutcome.NOT_APPLICABLE, words, evidence)]


def guideline(
    question: QuestionWords, result: Recommendation, labels: int, learned: bool
) -> Answer:
    """Does this guideline help? `learned`: whether any model learns from these data."""
    middle, low, high = (
        100 * math.expm1(v) for v in (result.effect.value, result.low, result.high)
    )
    evidence = (
        f"{result.words}: error {middle:+.0f} %, interval {low:+.0f} to {high:+.0f} %; "
        f"{labels:,} labels; {' and '.join(result.claims)}"
    )
    readings = {"log_error_ratio": Reading.of(result.effect)}
    if not learned:
        return question.unknown(evidence, readings=readings)
    if result.verdict == "recommended":
        words = f"yes: {result.words}"
        return question.answer(AnswerOutcome.YES, words, evidence, readings=readings)
    if result.verdict == "advised against":
        words = "no, it does harm"
        return question.answer(AnswerOutcome.NO, words, evidence, readings=readings)
    if result.low > -NEGLIGIBLE and result.high < NEGLIGIBLE:
        words = f"no: it changes the error by less than {format_percent(NEGLIGIBLE)}"
        return question.answer(AnswerOutcome.NO, words, evidence, readings=readings)
    return question.unknown(evidence, readings=readings)
