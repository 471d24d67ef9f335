"""Answers are found by name, and a sheet can be copied, pickled and written as JSON."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from attnlens.advice.phrases import QuestionWords, for_lack_of_time
from attnlens.core import Answer, AnswerOutcome, Completion, Ending, Question, Reading, Sheet

ORDER = QuestionWords(Question.ORDER, "Does the order of tokens matter?")
NEEDED = [
    QuestionWords(Question.LABELS_NEEDED, f"How many labels does {model} need?", model)
    for model in ("baseline", "self-attention")
]
SHEET = Sheet(
    "Mine",
    (("rows", "3"),),
    (
        ORDER.unknown("3 rows", "so few rows", {"p_value": Reading(0.5, 0.1, 3)}),
        *(question.answer(AnswerOutcome.VALUE, "64", "8 folds") for question in NEEDED),
        Answer("Is it?", "yes", "by hand"),
    ),
)


def test_an_answer_is_an_attribute_of_its_sheet():
    assert SHEET.order is SHEET.answers[0]
    assert SHEET[Question.ORDER] is SHEET.order
    assert SHEET.labels_needed == {"baseline": SHEET.answers[1], "self-attention": SHEET.answers[2]}
    assert SHEET.names == ("order", "labels_needed")
    assert {"order", "labels_needed", "plain"} <= set(dir(SHEET))


def test_an_unknown_name_raises_with_the_names_that_exist():
    with pytest.raises(AttributeError, match=r"no answer 'rank'; its answers are order, labels_n"):
        _ = SHEET.rank
    with pytest.raises(KeyError):
        _ = SHEET["Is there life elsewhere?"]
    assert not hasattr(SHEET, "sparsity")


def test_the_words_of_a_question_still_find_its_answer_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"use sheet\.order"):
        assert SHEET["Does the order of tokens matter?"] is SHEET.order
    with pytest.warns(DeprecationWarning, match="by name"):
        assert SHEET["Is it?"] is SHEET.answers[3]


def test_no_name_of_a_question_hides_another_attribute():
    assert not {str(name) for name in Question} & set(dir(Sheet("", (), ())))


def test_a_sheet_can_be_copied_and_pickled():
    assert copy.deepcopy(SHEET) == SHEET
    assert pickle.loads(pickle.dumps(SHEET)) == SHEET  # noqa: S301 (bytes of this test)


def test_the_json_of_an_answer_has_the_documented_keys():
    plain = json.loads(json.dumps(SHEET.plain(), allow_nan=False))
    assert set(plain) == {"title", "facts", "answers"}
    words = {"question", "answer", "evidence", "known", "readings"}
    assert set(plain["answers"][0]) == words | {"name", "subject", "outcome", "missing"}
    assert plain["answers"][0]["name"] == "order"


def test_lack_of_time_replaces_lack_of_data_only():
    late = for_lack_of_time(SHEET.order)
    assert late.outcome is AnswerOutcome.NO_TIME
    assert late.answer == "not enough time to say: so few rows"
    assert (late.known, late.readings) == (False, SHEET.order.readings)
    assert for_lack_of_time(SHEET.answers[1]) is SHEET.answers[1]


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Ending.ALL_ROUNDS, "all 4 rounds"),
        (Ending.OUT_OF_TIME, "the budget ended in round 2 of 4"),
        (Ending.INTERRUPTED, "interrupted in round 2 of 4"),
        (Ending.STOPPED, "stopped in round 2 of 4, because Ray was lost"),
    ],
)
def test_each_ending_has_its_words(ending: Ending, words: str):
    assert str(Completion(ending, 2, 4, "Ray was lost")) == words
