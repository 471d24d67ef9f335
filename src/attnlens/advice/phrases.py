"""Words that all answers share: how questions, numbers, names and missing evidence are written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from attnlens.core.readings import BoundedReading, Reading
from attnlens.core.sheets import Answer, AnswerOutcome, Question
from attnlens.core.statistics import implied_error
from attnlens.instruments.samples.sample_size import SampleSize

# How an answer reads if its outcome decides nothing.
UNDECIDED = {
    AnswerOutcome.UNKNOWN: "not enough data to say",
    AnswerOutcome.NO_TIME: "not enough time to say",
}


@dataclasses.dataclass(frozen=True)
class QuestionWords:
    """A question: its name, its words and, if it is asked once per model, the model (`subject`)."""

    name: Question
    words: str
    subject: str = ""

    def answer(
        self,
        outcome: AnswerOutcome,
        words: str,
        evidence: str,
        *,
        known: bool = True,
        readings: Mapping[str, Reading] | None = None,
    ) -> Answer:
        """Make the `Answer` to this question; `known` is false where the data do not decide it."""
        return Answer(
            self.words, words, evidence, known, readings or {}, self.name, self.subject, outcome
        )

    def undecided(
        self,
        outcome: AnswerOutcome,
        evidence: str,
        missing: str = "",
        readings: Mapping[str, Reading] | None = None,
    ) -> Answer:
        """An answer that decides nothing; `outcome` is one of the keys of `UNDECIDED`."""
        words = undecided_words(outcome, missing)
        answer = self.answer(outcome, words, evidence, known=False, readings=readings)
        return dataclasses.replace(answer, missing=missing)

    def unknown(
        self, evidence: str, missing: str = "", readings: Mapping[str, Reading] | None = None
    ) -> Answer:
        """The answer where the data do not decide; `missing` says what is missing."""
        return self.undecided(AnswerOutcome.UNKNOWN, evidence, missing, readings)


def undecided_words(outcome: AnswerOutcome, missing: str) -> str:
    """The words of an answer that decides nothing."""
    return f"{UNDECIDED[outcome]}: {missing}" if missing else UNDECIDED[outcome]


def for_lack_of_time(answer: Answer) -> Answer:
    """Turn an unknown answer into "not enough time to say"; return other answers unchanged."""
    if answer.outcome is not AnswerOutcome.UNKNOWN:
        return answer
    outcome = AnswerOutcome.NO_TIME
    words = undecided_words(outcome, answer.missing)
    return dataclasses.replace(answer, answer=words, outcome=outcome)


def estimate_reading(estimate: SampleSize, count: int) -> BoundedReading:
    """An estimate of a number of labels as a reading with a standard error.

    `count` is the number of folds. Draws of the mean curve have Student's t distribution with
    count − 1 degrees of freedom (`instruments.samples.sample_size`), so the standard error is the
    width of the 95 % interval divided by twice the 97.5 % quantile of that distribution. It is
    infinite if the interval has no upper end.
    """
    error = implied_error(estimate.low, estimate.high, count)
    low, high = estimate.low, estimate.high
    return BoundedReading(estimate.value, error, count, estimate.status, low=low, high=high)


def format_number(value: float) -> str:
    """A number as text: without decimals from 100 on, with three significant digits below."""
    if not math.isfinite(value):
        return "no end" if value > 0 else "none"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def join_names(names: list[str]) -> str:
    """Join names as "a", "a and b" or "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
