"""`advise`: every question of a practitioner, answered as far as data and time allow.

The first round answers each question from a sample of the rows. Further rounds ask again with more
rows, folds, sizes and training steps while the budget lasts, and a newer answer replaces an older
one. Stopping at any moment loses only the computation in progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from attnlens.core import checks
from attnlens.core.drawing import View
from attnlens.core.durations import parse_duration
from attnlens.core.notebook import notebook_line
from attnlens.core.sheets import Answer, AnswerOutcome, Completion, Ending, Question, Sheet
from attnlens.instruments.samples import learners
from attnlens.instruments.samples.curves import LearningCurves

from .budget import (
    FIRST_ROUND_SECONDS,
    ROUNDS,
    Deadline,
    Effort,
    OutOfTime,
    limit_effort,
    sample_rows,
)
from .contenders import check_own_models
from .phrases import QuestionWords, for_lack_of_time
from .questions import decision, guidelines, labels, landscape, order, tokens
from .questions.decision import Contest, Decision
from .subjects import DataSubject, data_subject
from .trained_model import trained_curvature
from .trials import Trial

Answers = tuple[list[Answer], list[View]]
# Networks that are trained together. The number is the same on this machine and on a cluster,
# because another one would change the last digits. Groups of 16 are about as fast per network on
# one core as larger ones (with 8 columns, a step of one network takes 19 µs without and 53 µs with
# attention; 17 and 53 µs in groups of 128), and small enough that later rounds have several groups
# for a cluster to share.
GROUP_SIZE = 16
DECIDED = decision.DECISION.name


def advise(
    data: Any,
    target: Any = None,
    *,
    text: str | None = None,
    error: float | None = None,
    budget: float | str = "2m",
    hidden: int = 16,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    rounds: Sequence[Effort] = ROUNDS,
    training: Mapping[str, Any] | None = None,
    map: Callable[..., Iterable[Any]] | None = None,
    models: Mapping[str, Any] | None = None,
) -> Sheet:
    """Does attention help on these data? Would more labels, more tokens or more structure help?

    data: a path, a pandas DataFrame (both with `target`, the column of labels), a pair of arrays
        (X, y) with X of shape (n, p) or (n, L, t), or what `attnlens.data.read` returned.
    text: the column that holds text, if the data are texts.
    error: the error ε that labels are counted for: an error rate, or for numbers the mean squared
        error as a share of the variance. If not given, it is chosen by a rule that the answer
        states.
    budget: seconds, or "30s", "10m", "2h". The first round may always take a minute, and its first
        answer, a decision between estimators that need no network, as long as it needs.
    progress: a function that receives each new answer as a line of text; without it, a notebook
        shows the latest one.
    rounds, training: the work of each round, and arguments for `fit`.
    map: a function that trains groups of networks, `map(function, groups, check)`, such as a
        `RayMap`; check() is called while it waits, and raises when the time is up. If not given,
        networks are trained in this process. It changes no answer, only how far the budget reaches.
    models: scikit-learn estimators of your own by name, as further contenders; they receive the
        same numbers as the others, tokens flattened.

    If it is interrupted (Ctrl-C) after the first answer, or the cluster is lost, it returns the
    answers so far. Returns a `Sheet` with one answer per question, each with its evidence. The
    formulas are those of `exchangeability`, `learning_curve`, `guidelines` and `curvature`.
    """
    total = parse_duration(budget)
    checks.seed_number("seed", seed)
    checks.whole("hidden", hidden, at_least=1, at_most=10_000)
    if error is not None:
        checks.positive("error", error)
    settings, own = learners.settings(training), check_own_models(models)
    say = notebook_line(progress) or (lambda line: None)
    deadline = Deadline(total, say=say)
    first_deadline = Deadline(max(total, FIRST_ROUND_SECONDS), held=True, say=say)
    subject = data_subject(data, target, text=text, seed=seed)
    latest: dict[Question | None, tuple[int, Answer]] = {}  # question → (round, answer)
    figures: dict[tuple[str, str], View] = {}
    efforts = list(dict.fromkeys(limit_effort(effort, subject.data) for effort in rounds))
    earlier_faults = len(getattr(map, "faults", []))  # faults in earlier uses of the map
    number, ending, reason = 0, Ending.ALL_ROUNDS, ""
    try:
        for number, effort in enumerate(efforts, 1):
            limit = first_deadline if number == 1 else deadline
            say(f"round {number} of {len(efforts)}, {deadline.remaining}: {effort}")
            results = _round(
                subject, effort, error, hidden, seed, settings, limit, map, own, number == 1
            )
            for new_answers, new_figures in results:
                for answer in new_answers:
                    latest[answer.name] = (number, answer)
                    say(f"  {answer.question} {answer.answer}")
                figures |= {_axes(figure): figure for figure in new_figures}
                limit.held = False
                limit()
    except OutOfTime:
        ending = Ending.OUT_OF_TIME
    except KeyboardInterrupt:
        if not latest:
            raise
        ending = Ending.INTERRUPTED
    except checks.ExplainedError as explained:  # a lost cluster, or no room for more rows
        # Before a network was trained, bad input is an error although there is a first decision.
        if not latest or (isinstance(explained, checks.BadInput) and {*latest} == {DECIDED}):
            raise
        ending, reason = Ending.STOPPED, str(explained).rstrip(".")
    completion = Completion(ending, number, len(efforts), reason)
    if ending is Ending.STOPPED:
        say(str(completion))
    answers = [
        _final(latest[question.name][1], completion)
        if question.name in latest
        else _open(question, completion)
        for question in _questions(subject, error)
    ]
    rounds_used = sorted({number for number, _ in latest.values()})
    spent = "; ".join(f"round {n}: {efforts[n - 1]}" for n in rounds_used)
    facts = (
        *subject.facts,
        ("error", _error_meaning(subject)),
        ("looked", f"{completion}; answers from {spent or 'no round'}"),
        *_fault_facts(getattr(map, "faults", [])[earlier_faults:]),
    )
    title = f"Advice on {subject.title}"
    return Sheet(title, facts, tuple(answers), tuple(figures.values()), completion)


def _round(
    subject: DataSubject,
    effort: Effort,
    error: float | None,
    hidden: int,
    seed: int,
    settings: Mapping[str, Any],
    deadline: Deadline,
    map: Callable[..., Iterable[Any]] | None,
    models: Mapping[str, Any],
    first_round: bool,
) -> Iterator[Answers]:
    """Yield answers and figures of one round as soon as they are known, the most useful first.

    The first round decides between estimators before a network is trained, so that there is a
    decision on a busy machine and with any budget; it says which contenders were left out.
    """
    deadline()
    rows = sample_rows(subject.data, effort.rows, seed)
    training = {"steps": effort.steps, "progress": deadline, "block": GROUP_SIZE, **settings}
    if map is not None:
        training["map"] = partial(map, check=deadline)
    elsewhere = None if map is None else deadline
    total = len(subject.data.inputs)
    trial = Trial.of(rows, effort, total, hidden, seed, training, elsewhere, models)

    # A decision between all contenders is not replaced by one between some of them.
    estimators = trial.first_contest()
    if first_round:
        yield [decision.decision(estimators)[1]], []
    if models:
        estimators = trial.with_own_models(estimators)
        if first_round:
            yield [decision.decision(estimators)[1]], []

    curves = trial.learning_curves()
    goal = labels.default_goal(curves, trial.trivial) if error is None else labels.Goal(error)
    choice, fewest = labels.fewest_labels(curves, goal, trial.trivial)
    more = [] if error is None else [labels.more_labels(choice, error, trial.total)]
    contest = trial.contest(curves, estimators)
    first, words = decision.decision(contest)
    yield [*([words] if first_round else []), fewest, *more], [choice.curves.figure()]
    if first_round:
        yield [_twice_the_labels(trial, contest, first, curves)], []

    contest = trial.with_transformers(contest)
    recommended, words = decision.decision(contest)
    drawn: list[View] = [decision.figure(contest, recommended)] if recommended.ranking else []
    yield [words, decision.attention_adds(contest)], drawn

    known = first_round and (recommended.model, recommended.learned) == (first.model, first.learned)
    if not known:
        yield [_twice_the_labels(trial, contest, recommended, curves)], []

    effect = order.label_effect(trial, choice)
    if subject.sequences is None:
        yield [order.order(None, effect, columns=True)], []
    else:
        yield [order.order(order.sequence_test(subject.sequences, seed), effect)], []

    yield guidelines.structure(trial, choice), []

    answer, figure = tokens.tokens_needed(trial, choice, deadline, subject.names)
    yield [answer], [] if figure is None else [figure]

    curvature = trained_curvature(trial, choice.model)
    description = f"{choice.model} on {len(trial.data.inputs):,} rows"
    yield [landscape.health(curvature, description)], [curvature.figure()]


def _twice_the_labels(
    trial: Trial, contest: Contest, recommended: Decision, curves: LearningCurves
) -> Answer:
    """What twice the labels would buy with the recommended contender."""
    if not recommended.learned:
        return decision.DOUBLED.unknown("no contender learns from these labels yet")
    model = recommended.model
    return decision.twice_the_labels(model, trial.error_curve(model, contest, curves))


def _questions(subject: DataSubject, error: float | None) -> list[QuestionWords]:
    """The questions in the order of the sheet."""
    return [
        decision.DECISION,
        decision.ADDED,
        decision.DOUBLED,
        order.ORDER,
        labels.FEWEST,
        *([] if error is None else [labels.MORE]),
        tokens.CONTEXT if subject.data.tokens else tokens.COLUMNS,
        guidelines.SPARSE,
        guidelines.RANK,
        landscape.HEALTH,
    ]


def _error_meaning(subject: DataSubject) -> str:
    if subject.data.classes:
        return "the share of test rows whose class is wrong"
    return "the mean squared error on test rows as a share of the variance"


def _open(question: QuestionWords, completion: Completion) -> Answer:
    """The answer to a question that no round has answered: not enough time, or the run stopped."""
    evidence = "the budget ended before this question was reached; give a larger one"
    if completion.ending is Ending.STOPPED:
        evidence = f"this question could not be answered: {completion}"
    return question.undecided(AnswerOutcome.NO_TIME, evidence)


def _final(answer: Answer, completion: Completion) -> Answer:
    """The answer, in which "not enough data" becomes "not enough time" if rounds are missing."""
    return answer if completion.ending is Ending.ALL_ROUNDS else for_lack_of_time(answer)


def _fault_facts(faults: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Faults of a cluster, each kind with its count."""
    counts = Counter(f"{kind} ({words})" for kind, words in faults)
    listing = "; ".join(
        f"{words}, {count} times" if count > 1 else words for words, count in counts.items()
    )
    return [("faults during the run", listing)] if listing else []


def _axes(figure: View) -> tuple[str, str]:
    """The axis labels of a figure: a newer figure replaces an older one with the same labels."""
    return getattr(figure, "x_label", ""), getattr(figure, "y_label", "")
