"""`advise` on data whose right advice is known, on noise, and on bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.dummy import DummyRegressor

import attnlens
from attnlens.advice import rounds as rounds_module
from attnlens.advice import subjects
from attnlens.advice.budget import Effort
from attnlens.advice.questions import labels
from attnlens.advice.trials import Trial
from attnlens.core.checks import BadInput, ClusterLost
from attnlens.core.sheets import AnswerOutcome, Completion, Ending, Question
from attnlens.instruments.samples.curves import LearningCurves
from attnlens.instruments.samples.labelled import labelled
from attnlens.worlds import TokenTeacher

QUESTIONS = [
    Question.DECISION,
    Question.ATTENTION,
    Question.TWICE_THE_LABELS,
    Question.ORDER,
    Question.FEWEST_LABELS,
    Question.COLUMNS,
    Question.SPARSITY,
    Question.LOW_RANK,
    Question.HEALTH,
]


def noise(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


# -- rounds and budget, without training -----------------------------------------------------------


def advise_without_training(
    monkeypatch, failure: BaseException | None, rounds: int = 1, budget: float = 60, map=None
):
    """Run `advise` with up to three rounds that answer one question and train nothing; round
    `rounds` then raises `failure`, if there is one. Return the sheet and the progress lines."""
    lines = []

    def one_round(subject, effort, *rest):
        words = f"round of {effort.steps} steps"
        answer = labels.FEWEST.answer(AnswerOutcome.VALUE, words, "made up")
        yield [answer], []
        if failure is not None and effort.steps == rounds:
            raise failure

    monkeypatch.setattr(rounds_module, "_round", one_round)
    monkeypatch.setattr(rounds_module, "FIRST_ROUND_SECONDS", 1e-9)
    x = noise(40, 3)
    efforts = [Effort(40, 4, 4, steps + 1) for steps in range(3)]
    sheet = attnlens.advise(
        (x, x[:, 0]), rounds=efforts, progress=lines.append, budget=budget, map=map
    )
    return sheet, lines


def test_a_newer_answer_replaces_an_older_one(monkeypatch):
    sheet, lines = advise_without_training(monkeypatch, None)
    assert [answer.name for answer in sheet.answers] == QUESTIONS
    assert sheet.fewest_labels.answer == "round of 3 steps"
    assert sheet.completion == Completion(Ending.ALL_ROUNDS, 3, 3)
    assert dict(sheet.facts)["looked"].startswith("all 3 rounds")
    assert sum("round of" in line for line in lines) == 3
    assert sheet.health.known is False
    assert sheet.health.answer == "not enough time to say"


def test_each_round_says_how_much_time_is_left(monkeypatch):
    _, lines = advise_without_training(monkeypatch, None, budget=7200)
    assert lines[0].startswith("round 1 of 3, 2 h 00 min left: up to 40 rows")


def test_faults_of_a_cluster_are_listed_on_the_sheet(monkeypatch):
    class Map:
        def __init__(self):
            self.seen = [("died", "of an earlier call")]

        @property
        def faults(self):
            now = list(self.seen)
            self.seen += [("died", "WorkerCrashedError of Ray")] * 2
            self.seen += [("slow", "no answer after 30 s")]
            return now

    facts = dict(advise_without_training(monkeypatch, None, map=Map())[0].facts)
    listed = "died (WorkerCrashedError of Ray), 2 times; slow (no answer after 30 s)"
    assert facts["faults during the run"] == listed
    assert not [
        name for name, _ in advise_without_training(monkeypatch, None)[0].facts if "faults" in name
    ]


def test_an_interrupt_keeps_the_answers_so_far(monkeypatch):
    sheet, _ = advise_without_training(monkeypatch, KeyboardInterrupt(), rounds=2)
    assert sheet.fewest_labels.answer == "round of 2 steps"
    assert sheet.completion == Completion(Ending.INTERRUPTED, 2, 3)
    assert dict(sheet.facts)["looked"].startswith("interrupted in round 2 of 3")


def test_losing_the_cluster_keeps_the_answers_so_far(monkeypatch):
    sheet, lines = advise_without_training(
        monkeypatch, ClusterLost("Ray was lost: start it again."), rounds=2
    )
    assert sheet.fewest_labels.answer == "round of 2 steps"
    assert sheet.completion == Completion(Ending.STOPPED, 2, 3, "Ray was lost: start it again")
    looked = dict(sheet.facts)["looked"]
    assert looked.startswith("stopped in round 2 of 3, because Ray was lost: start it again;")
    assert "because Ray was lost" in sheet.health.evidence
    assert "because Ray was lost" in lines[-1]


def test_bad_input_before_the_first_answer_is_raised(monkeypatch):
    def refused(*rest):
        raise BadInput("one class only.")
        yield

    monkeypatch.setattr(rounds_module, "_round", refused)
    with pytest.raises(BadInput, match="one class only"):
        attnlens.advise((noise(40, 3), noise(40, 1)[:, 0]))


def test_an_interrupt_before_the_first_answer_is_raised(monkeypatch):
    def interrupted(*rest):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(rounds_module, "_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attnlens.advise((noise(40, 3), noise(40, 1)[:, 0]))


def test_a_spent_budget_leaves_all_questions_open_but_the_first(monkeypatch):
    sheet, _ = advise_without_training(monkeypatch, None, budget=1e-9)
    assert sheet.fewest_labels.answer == "round of 1 steps"
    open_questions = [q for q in QUESTIONS if q is not Question.FEWEST_LABELS]
    assert {sheet[q].outcome for q in open_questions} == {AnswerOutcome.NO_TIME}
    assert sheet.completion == Completion(Ending.OUT_OF_TIME, 1, 3)
    assert not any(sheet[q].known for q in open_questions)
    assert "the budget ended in round 1" in dict(sheet.facts)["looked"]
    json.dumps(sheet.plain(), allow_nan=False)


# -- the first decision, which needs no network ----------------------------------------------------


class _Fails(DummyRegressor):
    def fit(self, X, y, sample_weight=None):
        raise KeyError("no such column")


def linear_table() -> tuple[np.ndarray, np.ndarray]:
    x = noise(60, 3)
    return x, x @ [1.0, -1.0, 0.0]


def test_estimators_decide_before_a_network_is_trained_whatever_the_budget(monkeypatch):
    """The budget is over before the first computation, as on a machine that is busy."""
    monkeypatch.setattr(rounds_module, "FIRST_ROUND_SECONDS", 1e-9)
    monkeypatch.setattr(Trial, "learning_curves", lambda _: pytest.fail("a network was trained"))
    lines: list[str] = []
    sheet = attnlens.advise(linear_table(), budget=1e-9, progress=lines.append)
    assert sheet.completion == Completion(Ending.OUT_OF_TIME, 1, 4)
    assert sheet.decision.outcome is AnswerOutcome.VALUE
    assert {"linear", "gradient_boosting"} <= sheet.decision.readings.keys()
    left_out = "; not trained so far: baseline, self-attention, transformer"
    assert sheet.decision.answer.startswith("use linear")
    assert sheet.decision.answer.endswith(left_out)
    others = [question for question in QUESTIONS if question is not Question.DECISION]
    assert {sheet[question].outcome for question in others} == {AnswerOutcome.NO_TIME}


def test_bad_input_that_is_found_after_the_first_decision_is_raised():
    with pytest.raises(BadInput, match="the model 'mine' failed in line"):
        attnlens.advise(linear_table(), models={"mine": _Fails()})
    with pytest.raises(BadInput, match="steps must be"):
        attnlens.advise(linear_table(), training={"steps": -1})


def test_contenders_that_were_trained_are_no_longer_missing():
    trial = Trial.of(labelled(*linear_table()), Effort(60, 3, 4, 10), 60, 4, 0, {})
    first = trial.first_contest()
    assert first.missing == ("baseline", "self-attention", "transformer")
    # Of the curves of the networks, `contest` uses only the sizes and the errors.
    rows = ((1.0, 0.5),) * 3
    tables = {"baseline": rows, "self-attention": rows}
    curves = LearningCurves("", "", (10, 40), 0.5, tables, (1.0, 1.0))
    contest = trial.contest(curves, first)
    assert contest.missing == ("transformer",)
    assert [*contest.errors] == ["baseline", "self-attention", "linear", "gradient-boosting"]
    assert contest.errors["linear"] is first.errors["linear"]  # not trained again


# -- reading data ----------------------------------------------------------------------------------


def test_wide_tables_keep_the_columns_that_matter():
    x = noise(400, 100)
    y = x[:, 7] * 3 + x[:, 90] * 3
    subject = subjects.data_subject((x, y))
    assert subject.data.inputs.shape == (320, 64)
    assert {"column 7", "column 90"} <= set(subject.names)
    # The 80 rows that the columns were chosen on are left out of the data.
    kept = {tuple(row) for row in subject.data.inputs.round(9).tolist()}
    chosen = [int(name.split()[1]) for name in subject.names]
    assert sum(tuple(row) in kept for row in x[:, chosen].round(9).tolist()) == 320
    assert "chosen on 80 rows" in dict(subject.facts)["columns"]


def test_long_sequences_are_cut_and_the_facts_say_so():
    x = noise(40, 70 * 2).reshape(40, 70, 2)
    subject = subjects.data_subject((x, x[:, 0, 0]))
    assert subject.data.inputs.shape == (40, 64, 2)
    assert dict(subject.facts)["tokens"] == "the first 64 of 70 are used"
    assert subject.sequences is not None


def test_the_ranking_finds_columns_that_matter_only_together():
    x = np.random.default_rng(0).choice([-1.0, 1.0], size=(600, 6))
    data = labelled(x, (x[:, 2] * x[:, 4] > 0))
    ranking = subjects.column_ranking(data, np.arange(600), seed=0)
    assert set(ranking[:2].tolist()) == {2, 4}


def test_a_frame_and_its_file_give_the_same_data(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"a": np.arange(50) % 7, "b": noise(50, 1)[:, 0], "y": ["u", "v"] * 25}
    )
    frame.to_csv(tmp_path / "frame.csv", index=False)
    one, two = (subjects.data_subject(source, "y") for source in (frame, tmp_path / "frame.csv"))
    np.testing.assert_array_equal(one.data.inputs, two.data.inputs)
    assert (one.title, two.title) == ("the DataFrame", "frame")


def write_table(folder: Path, text: str) -> Path:
    (folder / "data.csv").write_text(text)
    return folder / "data.csv"


TABLE = "a,b,y\n" + "\n".join(f"{i % 5},{i % 3},{i % 2}" for i in range(40))


@pytest.mark.parametrize(
    ("data", "target", "more", "message"),
    [
        ("no-such-file.csv", "y", {}, "cannot be read: there is no such file"),
        (TABLE, None, {}, "no target was named; the columns are"),
        (TABLE, "z", {}, "target must name a column"),
        (TABLE, 3, {}, "target must be the name of a column"),
        (TABLE, "y", {"text": "y"}, "a column must have one role only"),
        (TABLE, "y", {"text": "a"}, "text"),
        (TABLE, "y", {"error": 0}, "error must be a finite number above 0"),
        (TABLE, "y", {"error": float("nan")}, "error must be a finite number above 0"),
        (TABLE, "y", {"budget": "a while"}, "the budget must be a time"),
        (TABLE, "y", {"hidden": 0}, "hidden must be"),
        (TABLE, "y", {"seed": -1}, "seed must be"),
        (TABLE, "y", {"training": {"loss": "squared"}}, "training may not set 'loss'"),
        ("a,y\n1,2\n3,4\n4,4\n2,2\n", "y", {}, "at least 20 rows"),
        ("a,y\n" + "1,5\n2,5\n" * 30, "y", {}, "at least two classes"),
        ((1, 2, 3), None, {}, "got a tuple of 3"),
        ((np.ones((30, 2)), np.ones(30)), "y", {}, "holds its own labels"),
        ((np.ones((30, 2)), np.ones(31)), None, {}, "one label per row"),
        ((np.full((30, 2), np.nan), np.arange(30.0)), None, {}, "X must be finite"),
        (7, None, {}, "got a int"),
        (7, "y", {}, "got a int"),
    ],
    ids=[
        "missing file",
        "no target",
        "unknown",
        "not a name",
        "twice",
        "numbers as text",
        "zero error",
        "nan error",
        "budget",
        "hidden",
        "seed",
        "training",
        "two rows",
        "one class",
        "triple",
        "pair and target",
        "lengths",
        "nan",
        "number",
        "number and target",
    ],
)
def test_bad_input_raises_one_sentence(tmp_path, data, target, more, message):
    if isinstance(data, str) and "\n" in data:
        data = write_table(tmp_path, data)
    with pytest.raises(BadInput) as caught:
        attnlens.advise(data, target, **more)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# -- known answers ---------------------------------------------------------------------------------

HOUR = 3600  # seconds; enough for all rounds, even on a busy machine
TINY: dict[str, Any] = {
    "hidden": 4,
    "rounds": [Effort(rows=120, folds=4, sizes=4, steps=100)],
    "budget": HOUR,
}


@pytest.mark.slow
def test_noise_as_labels_gives_no_winner_and_no_advice():
    lines: list[str] = []
    data = noise(120, 4), noise(120, 1, seed=1)[:, 0]
    sheet = attnlens.advise(data, progress=lines.append, **TINY)
    # Questions that need no transformer are answered before a transformer is trained.
    text = "\n".join(lines)
    assert text.index("What would twice the labels buy?") < text.index("What does attention itself")
    answered = (Question.LOW_RANK, Question.HEALTH, Question.ATTENTION)
    undecided = [q for q in QUESTIONS if q not in answered]
    assert [q for q in undecided if sheet[q].known] == []
    assert sheet.attention.outcome is AnswerOutcome.NO_SIGN
    assert "ignores the inputs" in sheet.fewest_labels.answer
    json.dumps(sheet.plain(), allow_nan=False)


@pytest.mark.slow
def test_the_baseline_is_advised_on_a_linear_table(tmp_path: Path):
    x = noise(240, 4)
    y = x @ [1.0, -1.0, 0.0, 0.0] + 0.1 * noise(240, 1, seed=1)[:, 0]
    table = np.column_stack([x, y])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,b,c,d,y", comments="")
    effort = Effort(rows=240, folds=4, sizes=4, steps=600)
    sheet = attnlens.advise(tmp_path / "t.csv", "y", rounds=[effort], error=0.2, budget=HOUR)
    chosen = sheet.fewest_labels
    assert chosen.answer.startswith("baseline") or "take baseline" in chosen.answer
    assert sheet.order.outcome is AnswerOutcome.PARTLY
    columns = sheet.columns
    assert columns.known
    assert columns.answer.startswith("2 of 4, the most important ones, are enough")
    assert len(sheet.figures) == 4
    assert sheet.decision.answer.startswith("use linear")
    assert sheet.decision.readings["linear"].value < 0.02  # variances: noise 0.01, signal 2
    assert sheet.more_labels.known  # because the call gives `error`


def teacher(rows: int, **settings) -> tuple[np.ndarray, np.ndarray]:
    with jax.enable_x64(True):
        world = TokenTeacher(tokens=4, token_dim=4, value_dim=4, **settings)
        episode = world.sample(jax.random.key(0), rows).tokens
        return np.swapaxes(np.asarray(episode.key), 1, 2), np.asarray(episode.value)[:, 0]


@pytest.mark.slow
def test_attention_is_advised_where_the_labels_come_from_it():
    effort = Effort(rows=2400, folds=8, sizes=4, steps=1500)
    data = labelled(*teacher(2400))
    trial = Trial.of(data, effort, 2400, 16, 0, {"steps": effort.steps})
    curves = trial.learning_curves()
    goal = labels.default_goal(curves, trial.trivial)
    choice, answer = labels.fewest_labels(curves, goal, trial.trivial)
    assert answer.known, answer
    assert choice.model == "self-attention"
    # Self-attention is ahead by the ratio of the two n(ε) or, where the baseline does not come near
    # ε, by the errors: then there is also a reading `baseline_more_error`.
    readings = answer.readings
    more = readings.get("baseline_more_error", readings["baseline_over_self_attention"])
    assert more.value > (0 if "baseline_more_error" in readings else 1)


@pytest.mark.slow
def test_order_matters_to_a_drifting_sequence_and_not_to_an_exchangeable_one():
    random = np.random.default_rng(0)
    noise_tokens = random.normal(size=(160, 8, 1))
    walk = np.zeros_like(noise_tokens)
    for step in range(8):  # AR(1) with coefficient 0.8
        walk[:, step] = 0.8 * walk[:, step - 1] * (step > 0) + noise_tokens[:, step]
    effort = Effort(rows=160, folds=4, sizes=4, steps=300)
    for x, moves in ((noise_tokens, False), (walk, True)):
        sheet = attnlens.advise((x, x.mean((1, 2))), rounds=[effort], hidden=4, budget=HOUR)
        p = sheet.order.readings["p_value"].value
        assert (p <= 0.05) == moves
        assert (sheet.order.outcome is AnswerOutcome.YES) == moves
