"""Answers to a practitioner's questions.

Question        the names of all questions: `sheet.order` is the answer to `Question.ORDER`
AnswerOutcome   what an answer says, for code; its words are for people
Answer          the answer to one question about a user's data or model, with its evidence
Ending          why a command with a budget ended
Completion      how far such a command got
Sheet           the result of one command: facts, answers and figures
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .drawing import View
from .frames import Tabular
from .readings import Reading
from .serialise import to_plain


class Question(enum.StrEnum):
    """The name of a question, and of the attribute of a `Sheet` that holds its answer.

    >>> print(Question.FEWEST_LABELS)
    fewest_labels
    """

    # which model
    DECISION = "decision"
    ATTENTION = "attention"
    TWICE_THE_LABELS = "twice_the_labels"
    # order of tokens
    ORDER = "order"
    NEIGHBOURS = "neighbours"
    DRIFT = "drift"
    SPREAD = "spread"
    STREAM = "stream"
    # labels
    FEWEST_LABELS = "fewest_labels"
    MORE_LABELS = "more_labels"
    LABELS_NEEDED = "labels_needed"  # one answer per model
    LABEL_RATIO = "label_ratio"  # one answer per model that is compared with the best
    GAIN_OF_LABELS = "gain_of_labels"
    # tokens and structure
    CONTEXT = "context"
    COLUMNS = "columns"
    SPARSITY = "sparsity"
    LOW_RANK = "low_rank"
    # loss surface
    HEALTH = "health"
    MINIMUM = "minimum"
    SHARPNESS = "sharpness"
    SPECTRUM = "spectrum"
    BENDING = "bending"
    # transfer
    CONDITION = "condition"
    FEATURES = "features"
    ERROR_TODAY = "error_today"
    SCORES = "scores"


class AnswerOutcome(enum.Enum):
    """What an answer says.

    >>> AnswerOutcome("no sign")
    <AnswerOutcome.NO_SIGN: 'no sign'>
    """

    YES = "yes"
    NO = "no"
    PARTLY = "partly"
    WEAKLY = "weakly"
    NO_SIGN = "no sign"  # an effect is not shown, and not excluded either
    VALUE = "value"  # a number or a name, where the question is not one of yes or no
    NOT_APPLICABLE = "not applicable"
    UNKNOWN = "unknown"  # the data do not decide
    NO_TIME = "no time"  # the command ended before the data could decide


@dataclass(frozen=True)
class Answer(Tabular):
    """The answer to one question about a user's data or model, in plain words, with its evidence.

    `known` is False where there is not enough data to answer. `readings` are the numbers behind
    the answer, by name. `name` is the name of the question; `subject` is the model that it is
    asked about, where a sheet asks it once per model. `outcome` says what the answer is, and
    `missing` what is missing where the outcome is `UNKNOWN` or `NO_TIME`.
    """

    question: str
    answer: str
    evidence: str
    known: bool = True
    readings: Mapping[str, Reading] = field(default_factory=dict)
    name: Question | None = None
    subject: str = ""
    outcome: AnswerOutcome = AnswerOutcome.VALUE
    missing: str = ""

    def rows(self) -> list[dict[str, Any]]:
        """One row per reading behind the answer."""
        return [{"reading": name, **reading.row()} for name, reading in self.readings.items()]

    def __str__(self) -> str:
        return f"{self.question} {self.answer} ({self.evidence})"


class Ending(enum.Enum):
    """Why a command with a budget ended.

    >>> Ending.OUT_OF_TIME.value
    'out of time'
    """

    ALL_ROUNDS = "all rounds"
    OUT_OF_TIME = "out of time"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"  # a resource was lost, or cannot hold more rows


class Completion(NamedTuple):
    """How far a command with a budget got: why and in which of its rounds it ended.

    >>> print(Completion(Ending.INTERRUPTED, round=2, rounds=4))
    interrupted in round 2 of 4
    """

    ending: Ending
    round: int
    rounds: int
    reason: str = ""  # why the command `STOPPED`: a sentence without its full stop

    def __str__(self) -> str:
        where = f"in round {self.round} of {self.rounds}"
        return {
            Ending.ALL_ROUNDS: f"all {self.rounds} rounds",
            Ending.OUT_OF_TIME: f"the budget ended {where}",
            Ending.INTERRUPTED: f"interrupted {where}",
            Ending.STOPPED: f"stopped {where}, because {self.reason}",
        }[self.ending]


@dataclass(frozen=True)
class Sheet(Tabular):
    """The result of one command: facts about its subject, answers, and figures.

    The answer to a question is an attribute with the question's name (`Question`). Where a question
    is asked about several models, the attribute holds a mapping from models to answers.
    `completion` says how far a command with a budget got.

    >>> words = "Does the order of tokens matter?"
    >>> sheet = Sheet("Mine", (), (Answer(words, "yes", "p = 0.001", name=Question.ORDER),))
    >>> sheet.order.answer
    'yes'
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    answers: tuple[Answer, ...]
    figures: tuple[View, ...] = ()
    completion: Completion | None = None

    def rows(self) -> list[dict[str, Any]]:
        """One row per answer; `answer.to_frame()` has the readings behind an answer."""
        return [
            {
                "name": None if answer.name is None else answer.name.value,
                "subject": answer.subject,
                "question": answer.question,
                "answer": answer.answer,
                "evidence": answer.evidence,
                "known": answer.known,
                "outcome": answer.outcome.value,
                "missing": answer.missing,
            }
            for answer in self.answers
        ]

    def drawings(self) -> tuple[View, ...]:
        return self.figures

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the questions that this sheet answers."""
        names = (str(answer.name) for answer in self.answers if answer.name is not None)
        return tuple(dict.fromkeys(names))

    def __getattr__(self, name: str) -> Any:
        """The answer to the question of this name, or a mapping from models to its answers."""
        # Python looks up special names here, and also fields while an object is copied.
        if name.startswith("_") or "answers" not in vars(self):
            raise AttributeError(name)
        if name not in self.names:
            listing = ", ".join(self.names) or "none"
            raise AttributeError(f"this sheet has no answer {name!r}; its answers are {listing}.")
        answers = [answer for answer in self.answers if answer.name == name]
        if any(answer.subject for answer in answers):
            return {answer.subject: answer for answer in answers}
        return answers[-1]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.names]

    def __getitem__(self, question: str) -> Any:
        """The answer to a question by its name; access by its words is deprecated."""
        if question in self.names:
            return getattr(self, question)
        answers = {answer.question: answer for answer in self.answers}
        if question not in answers:
            raise KeyError(question)
        attribute = answers[question].name
        hint = f"; use sheet.{attribute}" if attribute else ""
        warnings.warn(
            f"answers are found by name, not by the words of a question{hint}.",
            DeprecationWarning,
            stacklevel=2,
        )
        return answers[question]

    def __str__(self) -> str:
        facts = [f"  {name}: {words}" for name, words in self.facts]
        return "\n".join([self.title, *facts, *(f"- {answer}" for answer in self.answers)])

    def plain(self) -> dict[str, Any]:
        """Plain data for JSON, without the figures; numbers that are not finite become None."""
        return to_plain({"title": self.title, "facts": dict(self.facts), "answers": self.answers})
