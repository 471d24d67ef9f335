"""Will a pretrained representation transfer to a task?

The numbers are those of `condition_number`: with κ² = cᵀ (Aᵀ Σ A)⁺ c the task's excess error is at
most κ² times that of pretraining (lens A, Zhang et al., 2022; docs/theory.md, prediction 14).
`condition_number` defines c, A and Σ. Each function answers one question.
"""

from __future__ import annotations

import math

from attnlens.advice.phrases import QuestionWords, format_number, format_percent
from attnlens.core.readings import Reading
from attnlens.core.sheets import Answer, AnswerOutcome, Question
from attnlens.core.status import Status
from attnlens.instruments.transfer.condition import Transfer

CONDITION = QuestionWords(Question.CONDITION, "Does pretraining cover what the task needs?")
FEATURES = QuestionWords(Question.FEATURES, "Do the features hold what the task needs?")
ERROR = QuestionWords(Question.ERROR_TODAY, "How large is the error today?")
SCORES = QuestionWords(Question.SCORES, "What do the usual scores say?")
CLOSE = 10.0  # largest κ² for which the bound on the error is useful in practice


def condition(result: Transfer) -> Answer:
    """Does pretraining cover what the task needs?

    "Yes" needs the whole 95 % interval of κ² below `CLOSE`, "weakly" needs it above. "No" means
    that κ is infinite (a part of the target lies in directions that pretraining does not cover) and
    that the interval lies above `CLOSE`. If κ is finite, but more than 2.5 % of resamples make it
    infinite, the interval has no upper end and nothing is decided.
    """
    kappa, (low, high) = result.kappa, result.interval
    readings = {"kappa": kappa}
    if math.isinf(kappa.value):
        if low**2 <= CLOSE:
            evidence = f"{kappa.reason}; κ is at least {low:.3g} (95 %)"
            return CONDITION.unknown(evidence, readings=readings)
        words = "no: κ is infinite"
        if math.isfinite(low):
            words = f"no: κ is at least {low:.3g} (95 %), without an upper end"
        return CONDITION.answer(AnswerOutcome.NO, words, kappa.reason, readings=readings)
    if kappa.value == 0:
        evidence = "pretraining targets do not depend on the features by more than noise"
        return CONDITION.unknown(evidence, readings=readings)
    evidence = f"κ = {kappa.value:.3g}, 95 % interval {low:.3g} to {high:.3g}"
    if result.infinite > 0.025:
        evidence += f"; infinite in {format_percent(result.infinite)} of resamples"
        return CONDITION.unknown(evidence, readings=readings)
    outcome = AnswerOutcome.PARTLY
    if high**2 <= CLOSE:
        outcome = AnswerOutcome.YES
    elif low**2 > CLOSE:
        outcome = AnswerOutcome.WEAKLY
    bound = format_number(kappa.value**2)
    words = f"{outcome.value}: the task's excess error is at most {bound} times pretraining's"
    return CONDITION.answer(outcome, words, evidence, readings=readings)


def features(result: Transfer) -> Answer:
    """Do the features hold what the task needs?"""
    share = result.explained
    words = f"a linear head explains {format_percent(max(share, 0.0))} of the target's variance"
    evidence = "1 − residual variance / variance, corrected for the degrees of freedom"
    readings = {"explained": Reading(share, math.nan, result.kappa.count)}
    return FEATURES.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


def error_today(result: Transfer, classes: bool) -> Answer:
    """How large is the error today? `classes`: whether the target is a class."""
    low, high = result.error.interval()
    what = "error rate" if classes else "squared error as a share of the variance"
    low, high = max(low, 0.0), min(high, 1.0) if classes else high
    words = f"{what} {result.error.value:.3g} ({low:.3g} to {high:.3g})"
    evidence = "a linear head on samples that it has not seen, five folds"
    readings = {"transfer_error": result.error}
    return ERROR.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


def scores(result: Transfer) -> Answer:
    """What do the usual scores say?"""
    words = "; ".join(
        f"{name} {score.value:.4g}" if score.status is Status.OK else f"{name} {score.reason}"
        for name, score in result.scores.items()
    )
    evidence = "more is better; they order candidates for one task and mean little alone"
    readings = {name: score for name, score in result.scores.items() if score.status is Status.OK}
    return SCORES.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)
