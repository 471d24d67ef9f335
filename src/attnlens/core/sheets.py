"""Answers to a practitioner's questions.

Answer    the answer to one question about a user's data or model, with its evidence
Sheet     the result of one command: facts, answers and figures
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .drawing import View
from .readings import Reading
from .serialise import to_plain


@dataclass(frozen=True)
class Answer:
    """The answer to one question about a user's data or model, in plain words, with its evidence.

    `known` is False where there is not enough data to answer. `readings` are the numbers behind
    the answer, by name.
    """

    question: str
    answer: str
    evidence: str
    known: bool = True
    readings: Mapping[str, Reading] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.question} {self.answer} ({self.evidence})"


@dataclass(frozen=True)
class Sheet:
    """The result of one command: facts about its subject, answers, and figures."""

    title: str
    facts: tuple[tuple[str, str], ...]
    answers: tuple[Answer, ...]
    figures: tuple[View, ...] = ()

    def __getitem__(self, question: str) -> Answer:
        """The answer to a question."""
        return {answer.question: answer for answer in self.answers}[question]

    def __str__(self) -> str:
        facts = [f"  {name}: {words}" for name, words in self.facts]
        return "\n".join([self.title, *facts, *(f"- {answer}" for answer in self.answers)])

    def plain(self) -> dict[str, Any]:
        """Plain data for JSON, without the figures; numbers that are not finite become None."""
        return to_plain({"title": self.title, "facts": dict(self.facts), "answers": self.answers})
