"""Questions about the model: do sparsity or a lower rank help, is its loss surface healthy?"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.instruments import Supervised, curvature, guidelines, learners
from attnlens.instruments.advice import Recommendation
from attnlens.instruments.labelled import Fold
from attnlens.networks import fit
from attnlens.records import Answer, Figure, Reading

from . import health
from .model_choice import Choice
from .phrases import SAME, percent, unknown
from .trials import Trial

SPARSE = "Does sparsity help?"
RANK = "Does a lower rank help?"
HEALTH = "Is the loss surface of the chosen model healthy?"
MOST_ROWS = 1_000  # for curvature: products go through all of them


def structure(trial: Trial, choice: Choice) -> list[Answer]:
    """Sparse inputs and narrow queries, by B's guidelines."""
    found = guidelines(
        trial.data.inputs, trial.data.labels,
        task="classification" if trial.data.classes else "regression", hidden=trial.hidden,
        folds=len(trial.parts), starts=trial.effort.starts, seed=trial.seed,
        training=trial.training,
    )  # fmt: skip
    answers = [_guideline(SPARSE, found["sparsity"], found.labels, choice.learned)]
    if trial.data.tokens:
        return [*answers, _guideline(RANK, found["low rank"], found.labels, choice.learned)]
    # A column's token is a number and a constant: queries have no width to take away.
    said = "not a question here: a column is a token of one number"
    return [*answers, Answer(RANK, said, "lower rank is tried on tokens of several numbers")]


def _guideline(question: str, one: Recommendation, labels: int, learned: bool) -> Answer:
    told = str(one).partition("(")[2].removesuffix(")")
    evidence = f"{told}; {labels:,} labels"
    reading = {"log_error_ratio": Reading(one.effect.value, one.effect.standard_error,
                                          one.effect.count, one.effect.status)}  # fmt: skip
    if not learned:
        return unknown(question, evidence, **reading)
    if one.verdict == "recommended":
        return Answer(question, f"yes: {one.words}", evidence, readings=reading)
    if one.verdict == "advised against":
        return Answer(question, "no, it does harm", evidence, readings=reading)
    if one.low > -SAME and one.high < SAME:
        said = f"no: it changes the error by less than {percent(SAME)}"
        return Answer(question, said, evidence, readings=reading)
    return unknown(question, evidence, **reading)


def surface_health(trial: Trial, choice: Choice) -> tuple[Answer, Figure]:
    """The chosen model, trained on this round's rows, and the curvature where training ended."""
    make, layout = learners.built_in(choice.model, trial.data, trial.hidden)
    rows = np.random.default_rng(trial.seed).permutation(len(trial.data.inputs))
    everything = [Fold(rows, rows[:1])]
    settings: dict[str, Any] = {**learners.TRAINING, **trial.training}
    inputs, _, targets, _ = learners.prepared(layout, trial.data, everything, (len(rows),))
    kind = "softmax" if trial.data.classes else "squared"
    fitted = fit(make, inputs[0], targets[0], loss=kind, seeds=(trial.seed,), **settings)
    penalty = settings["l2"]
    plain = Supervised(kind)

    def loss(model: Any, data: Any) -> Any:
        """What training descended: the mean loss and the penalty."""
        squares = [jnp.sum(leaf**2) for leaf in jax.tree.leaves(model)]
        return plain(model, data) + penalty * jnp.sum(jnp.stack(squares))

    chosen = slice(None, MOST_ROWS)
    with jax.enable_x64(True):
        labels = targets[0][chosen]
        data = (inputs[0][chosen].astype(float), labels if trial.data.classes else
                labels.astype(float))  # fmt: skip
        probes = 4 if trial.effort.steps <= 300 else 10
        found = curvature(loss, fitted.model(0), data, probes=probes, steps=30, rtol=1e-3,
                          max_products=200, seed=trial.seed)  # fmt: skip
    seen = health.examined(found)
    parts = (seen.minimum, seen.sharpness, seen.bending)
    said = (
        f"a minimum? {seen.minimum.answer}; {seen.sharpness.answer}; it bends {seen.bending.answer}"
    )
    evidence = f"{choice.model} on {len(rows):,} rows: " + "; ".join(p.evidence for p in parts)
    readings = {name: r for part in parts for name, r in part.readings.items()}
    known = all(part.known for part in parts)
    return Answer(HEALTH, said, evidence, known=known, readings=readings), found.figure()
