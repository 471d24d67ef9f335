"""What to do with a data set: every question of a practitioner, answered as far as the data allow.

The first round gives an answer to each question from a sample of the rows. Further rounds ask
again with more rows, folds, sizes and steps while the budget lasts, and a newer answer takes the
place of an older one. Stopping at any moment loses only what was being computed.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from attnlens import checks
from attnlens.durations import seconds
from attnlens.instruments import learners
from attnlens.records import Answer, Sheet, View

from . import inputs_asked, model_choice, models_asked
from .budget import FIRST, ROUNDS, Deadline, Effort, OutOfTime, affordable, sample
from .phrases import UNKNOWN
from .subjects import Subject, subject
from .trials import Trial

NO_TIME = "not enough time to say"
Found = tuple[list[Answer], list[View]]
# Networks that are trained together, here and on a cluster alike: another number would give other
# last digits. So many that a core is as quick as with more (a network and step of 8 columns takes
# 19 µs plain and 53 µs with attention; 17 and 53 µs in blocks of 128), and so few that the later
# rounds have several blocks for a cluster to share.
BLOCK = 16


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
) -> Sheet:
    """Does attention pay on these data, and what would more labels, tokens or structure buy?

    data: a path, a pandas DataFrame (both with `target`, the column of labels), a pair of arrays
        (X, y) with X of shape (n, p) or (n, L, t), or what `attnlens.data.read` returned.
    text: the column that holds text, if the data are texts.
    error: the error ε that labels are counted for: an error rate, or for numbers the mean squared
        error as a share of the variance. Left out, it is chosen by a rule that the answer states.
    budget: seconds, or "30s", "10m", "2h". The first round may take a minute in any case, and the
        first answer as long as it needs.
    progress: is given each answer as it comes, as a line of text.
    rounds, training: how hard each round looks, and arguments for `fit`.
    map: what trains blocks of networks, `map(function, blocks, check)`, such as a `RayMap`; check()
        is called while it waits, and raises when the time is up. Left out, they are trained here.
        It changes no answer, only how far the budget reaches.

    Interrupting it (Ctrl-C) after the first answer, or losing the cluster, gives the answers so
    far. Returns a `Sheet`: one answer a question, each with its evidence. The instruments behind it
    have the formulas: `exchangeability`, `learning_curve`, `guidelines` and `curvature`.
    """
    total = seconds(budget)
    checks.whole("seed", seed)
    checks.whole("hidden", hidden, at_least=1)
    if error is not None:
        checks.positive("error", error)
    settings = learners.settings(training)
    say = progress or (lambda line: None)
    clock, first = Deadline(total, say=say), Deadline(max(total, FIRST), held=True, say=say)
    case = subject(data, target, text=text, seed=seed)
    book: dict[str, tuple[int, Answer]] = {}
    pictures: dict[str, View] = {}
    efforts = list(dict.fromkeys(affordable(effort, case.data) for effort in rounds))
    ended = f"all {len(efforts)} rounds"
    before = len(getattr(map, "faults", []))  # of other calls
    at = 0
    try:
        for at, effort in enumerate(efforts, 1):
            deadline = first if at == 1 else clock
            say(f"round {at} of {len(efforts)}, {clock.left}: {effort}")
            found = _round(case, effort, error, hidden, seed, settings, deadline, map)
            for answers, figures in found:
                for answer in answers:
                    book[answer.question] = (at, answer)
                    say(f"  {answer.question} {answer.answer}")
                pictures |= {_about(figure): figure for figure in figures}
                deadline.held = False
                deadline()
    except OutOfTime:
        ended = f"the budget ended in round {at} of {len(efforts)}"
    except KeyboardInterrupt:
        if not book:
            raise
        ended = f"interrupted in round {at} of {len(efforts)}"
    except checks.BadInput as refusal:  # a cluster that was lost, or that has no room for more rows
        if not book:
            raise
        ended = f"stopped in round {at} of {len(efforts)}, because {str(refusal).rstrip('.')}"
        say(ended)
    early = not ended.startswith("all")
    answers = [
        _so_far(book[q][1], early) if q in book else _unasked(q, ended) for q in _questions(case)
    ]
    rounds_used = sorted({number for number, _ in book.values()})
    spent = "; ".join(f"round {n}: {efforts[n - 1]}" for n in rounds_used)
    facts = (
        *case.facts,
        ("error", _meant(case)),
        ("looked", f"{ended}; answers from {spent or 'no round'}"),
        *_faults(getattr(map, "faults", [])[before:]),
    )
    return Sheet(f"Advice on {case.title}", facts, tuple(answers), tuple(pictures.values()))


def _round(
    case: Subject, effort: Effort, error: float | None, hidden: int, seed: int,
    settings: Mapping[str, Any], deadline: Deadline, map: Callable[..., Iterable[Any]] | None,
) -> Iterator[Found]:  # fmt: skip
    """The questions in the order in which their answers are wanted; each as soon as it is known."""
    deadline()
    used = sample(case.data, effort.rows, seed)
    given = {"steps": effort.steps, "progress": deadline, "block": BLOCK, **settings}
    elsewhere = None if map is None else deadline
    if map is not None:
        given["map"] = partial(map, check=deadline)
    trial = Trial.of(used, effort, len(case.data.inputs), hidden, seed, given, elsewhere)
    choice, answer = model_choice.compared(trial, error)
    more = model_choice.more_labels(trial, choice, error)
    yield [answer, more], [choice.curves.figure()]
    yield [inputs_asked.order(case, trial, choice)], []
    yield models_asked.structure(trial, choice), []
    answer, figure = inputs_asked.length(trial, choice, deadline)
    yield [answer], [] if figure is None else [figure]
    answer, figure = models_asked.surface_health(trial, choice)
    yield [answer], [figure]


def _questions(case: Subject) -> list[str]:
    """In the order of the sheet."""
    length = inputs_asked.CONTEXT if case.data.tokens else inputs_asked.COLUMNS
    return [
        inputs_asked.ORDER, model_choice.FEWEST, model_choice.MORE, length, models_asked.SPARSE,
        models_asked.RANK, models_asked.HEALTH,
    ]  # fmt: skip


def _meant(case: Subject) -> str:
    if case.data.classes:
        return "the share of test rows whose class is wrong"
    return "the mean squared error on test rows as a share of the variance"


def _unasked(question: str, ended: str) -> Answer:
    evidence = "the time was up before it could be asked; give a larger budget"
    if ended.startswith("stopped"):
        evidence = f"it could not be asked: {ended}"
    return Answer(question, NO_TIME, evidence, known=False)


def _so_far(answer: Answer, early: bool) -> Answer:
    """Rounds that were not run would have looked at more: then it is time that was missing."""
    if not early or not answer.answer.startswith(UNKNOWN):
        return answer
    return dataclasses.replace(answer, answer=answer.answer.replace(UNKNOWN, NO_TIME, 1))


def _faults(faults: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What went wrong on a cluster, each kind with how often."""
    counted = Counter(f"{kind} ({words})" for kind, words in faults)
    told = "; ".join(
        f"{words}, {count} times" if count > 1 else words for words, count in counted.items()
    )
    return [("faults on the way", told)] if told else []


def _about(figure: View) -> str:
    """What a figure is about: a newer one takes the place of the older."""
    return f"{getattr(figure, 'x_label', '')}|{getattr(figure, 'y_label', '')}"
