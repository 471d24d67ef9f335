"""Will these features do for that task? κ and its rivals, as a sheet.

`condition_number` does the measuring; here are only the words, and the files that features,
pretraining targets and downstream targets may come in.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from attnlens import checks
from attnlens.instruments import condition_number
from attnlens.instruments.labelled import MOST_CLASSES
from attnlens.instruments.transfer import Transfer
from attnlens.records import Answer, Reading, Sheet
from attnlens.statistics import t_interval

from .phrases import UNKNOWN, number, percent

ASKED = "Does pretraining ask about what the task needs?"
HELD = "Do the features hold what the task needs?"
ERROR = "How large is the error today?"
SCORES = "What do the usual scores say?"
CLOSE = 10.0  # κ² up to which a bound on the error is one that a person would act on
MOST_ROWS = 20_000  # of a file; κ's standard error there is below a hundredth for any useful target

Columns = dict[str, np.ndarray]


def transfer(
    features: Any, pretrain: Any, downstream: Any, *, resamples: int = 400, seed: int = 0
) -> Sheet:
    """Will a pretrained representation transfer to a task?

    features: a file (CSV, Parquet, NPZ, NPY) whose columns are the features of a pretrained model,
        a row a sample; or an array (n, d).
    pretrain: what the model was trained to predict, and downstream: what it shall predict now.
        Each is a column of `features`, several as a list or with commas, another file with as many
        rows, or an array. Text and whole numbers of few values are classes.

    Returns a `Sheet`. κ² = cᵀ (Aᵀ Σ A)⁺ c and the scores beside it are those of `condition_number`.

    >>> z = np.random.default_rng(0).standard_normal((200, 3))
    >>> transfer(z, z[:, :2], z[:, 2], resamples=24).answers[0].answer.startswith("no: κ is")
    True
    """
    if not isinstance(features, str | Path):
        table, asked, wanted = (np.asarray(part) for part in (features, pretrain, downstream))
        facts = [("features", "an array")]
        title = "arrays"
    else:
        apart = any(_is_file(given) for given in (pretrain, downstream))
        columns = _read(features, alone=not apart)
        asked, used = _targets("pretrain", pretrain, columns)
        wanted, also = _targets("downstream", downstream, columns)
        table, names, left = _features({k: v for k, v in columns.items() if k not in used | also})
        title = Path(features).name
        facts = [("features", f"{len(names)} columns" + (f"; left out: {left}" if left else ""))]
        lengths = {"the features": len(table), "pretrain": len(asked), "downstream": len(wanted)}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} {rows}" for name, rows in lengths.items())
            raise checks.BadInput(
                f"features, pretraining and downstream targets must have a row for each sample, "
                f"but they have: {told}."
            )
        whole = _complete(table) & _complete(asked) & _complete(wanted)
        if not whole.all():
            facts.append(("missing", f"{(~whole).sum()} rows with missing values left out"))
        table, asked, wanted = table[whole], asked[whole], wanted[whole]
    found = condition_number(table, asked, wanted, resamples=resamples, seed=seed)
    facts.append(("samples", f"{len(table):,}"))
    facts += [
        (name, _kind(target)) for name, target in (("pretrain", asked), ("downstream", wanted))
    ]
    return Sheet(f"Transfer of {title}", tuple(facts), _answers(found, wanted))


# -- words -----------------------------------------------------------------------------------------


def _answers(found: Transfer, wanted: np.ndarray) -> tuple[Answer, ...]:
    classes = wanted.ndim == 1 and wanted.dtype.kind in "iub"
    return (_asked(found), _held(found), _error(found, classes), _scored(found))


def _asked(found: Transfer) -> Answer:
    kappa, (low, high) = found.kappa, found.interval
    details = {"low": low, "high": high}
    reading = {
        "kappa": Reading(kappa.value, kappa.standard_error, kappa.count, kappa.status, details)
    }
    if math.isinf(kappa.value):
        return Answer(ASKED, "no: κ is infinite", kappa.status, readings=reading)
    if kappa.value == 0:
        evidence = "pretraining targets do not depend on the features by more than noise"
        return Answer(ASKED, UNKNOWN, evidence, known=False, readings=reading)
    evidence = f"κ = {kappa.value:.3g}, 95 % interval {low:.3g} to {high:.3g}"
    infinite = kappa.details["infinite"]
    if infinite > 0.025:
        evidence += f"; infinite in {percent(infinite)} of resamples"
        return Answer(ASKED, UNKNOWN, evidence, known=False, readings=reading)
    word = "yes" if high**2 <= CLOSE else "hardly" if low**2 > CLOSE else "more or less"
    said = (
        f"{word}: the task's excess error is at most {number(kappa.value**2)} times pretraining's"
    )
    return Answer(ASKED, said, evidence, readings=reading)


def _held(found: Transfer) -> Answer:
    share = found.kappa.details["explained"]
    said = f"a linear head explains {percent(max(share, 0.0))} of the target's variance"
    evidence = "1 − residual variance / variance, with the degrees of freedom taken off"
    return Answer(
        HELD, said, evidence, readings={"explained": Reading(share, math.nan, found.kappa.count)}
    )


def _error(found: Transfer, classes: bool) -> Answer:
    low, high = t_interval(found.error)
    what = "error rate" if classes else "squared error as a share of the variance"
    said = f"{what} {found.error.value:.3g} ({max(low, 0.0):.3g} to {high:.3g})"
    evidence = "a linear head on samples that it has not seen, five folds"
    return Answer(ERROR, said, evidence, readings={"transfer_error": found.error})


def _scored(found: Transfer) -> Answer:
    said = "; ".join(
        f"{name} {score.value:.4g}" if score.status == "ok" else f"{name} {score.status}"
        for name, score in found.scores.items()
    )
    evidence = "more is better; they order candidates for one task and mean little alone"
    readings = {name: score for name, score in found.scores.items() if score.status == "ok"}
    return Answer(SCORES, said, evidence, readings=readings)


# -- files -----------------------------------------------------------------------------------------


def _read(path: str | Path, alone: bool = True) -> Columns:
    """The columns of a file that vary; of one that goes with another every row must be read."""
    from attnlens.data import read

    loaded = read(path, rows=MOST_ROWS)
    if loaded.X is None or loaded.X.ndim != 2:
        raise checks.BadInput(
            f"{path} must be a table, a row a sample and a column a number, but it holds "
            f"{loaded.dataset.kind}."
        )
    if not alone and "all read" not in dict(loaded.facts)["rows"]:
        raise checks.BadInput(
            f"samples of two files cannot be matched row by row, and {path} has more than the "
            f"{len(loaded.X):,} rows that are read; put features and targets into one file."
        )
    return {name: column.values for name, column in loaded.columns.items()}


def _targets(what: str, given: Any, columns: Columns) -> tuple[np.ndarray, set[str]]:
    """A target, and which columns of the features' file it took."""
    if isinstance(given, np.ndarray) or (isinstance(given, list) and not _names(given)):
        return np.asarray(given), set()
    names = [str(given)] if isinstance(given, str | Path) else [str(each) for each in given]
    if len(names) == 1 and names[0] not in columns:
        names = [each.strip() for each in names[0].split(",") if each.strip()] or names
    taken = [own for name in names for own in _columns(name, columns)]
    if len(taken) and all(_columns(name, columns) for name in names):
        return _as_target(what, [columns[own] for own in taken]), set(taken)
    if len(names) == 1 and Path(names[0]).exists():
        other = _read(names[0], alone=False)
        return _as_target(what, list(other.values())), set()
    missing = next(name for name in names if not _columns(name, columns))
    shown = ", ".join([*columns][:8]) + (" …" if len(columns) > 8 else "")
    raise checks.BadInput(
        f"{what} must name columns of the features' file or another file, but {missing!r} is "
        f"neither; the columns that vary are {shown}."
    )


def _columns(name: str, columns: Columns) -> list[str]:
    """The column of this name, or those of the array of this name (`targets 0`, `targets 1`, …)."""
    if name in columns:
        return [name]
    return [own for own in columns if own.rpartition(" ")[0] == name and own.split()[-1].isdigit()]


def _is_file(given: Any) -> bool:
    return isinstance(given, str | Path) and Path(given).is_file()


def _names(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(each, str) for each in given)


def _features(columns: Columns) -> tuple[np.ndarray, list[str], str]:
    """The columns that are numbers, their names, and what was left out."""
    parts = {name: _numbers(values) for name, values in columns.items()}
    kept = {name: values for name, values in parts.items() if values is not None}
    kept = {name: values for name, values in kept.items() if np.nanstd(values) > 0}
    if not kept:
        raise checks.BadInput(
            "features must have a column of numbers that vary, beside the targets, but there is "
            "none; give the file that holds the model's features."
        )
    left = ", ".join(name for name in columns if name not in kept)
    return np.stack([*kept.values()], axis=1), [*kept], left


def _as_target(what: str, values: list[np.ndarray]) -> np.ndarray:
    """Class numbers (n,) where there is one column of few values, numbers (n, k) otherwise."""
    parts = [_numbers(each) for each in values]
    if len(parts) == 1:
        return _as_classes(values[0], parts[0])
    numbers = [part for part in parts if part is not None]
    if len(numbers) < len(parts):
        raise checks.BadInput(
            f"{what} must be one column of classes, or columns of numbers, but several came and "
            f"one of them holds text; name it alone."
        )
    return np.stack(numbers, axis=1)


def _as_classes(values: np.ndarray, numbers: np.ndarray | None) -> np.ndarray:
    if numbers is None:
        there = np.array([value is not None for value in values])
        codes = np.full(len(values), -1)
        codes[there] = np.unique([str(v) for v in values[there]], return_inverse=True)[1]
        return codes
    there = numbers[np.isfinite(numbers)]
    few = len(np.unique(there)) <= MOST_CLASSES and bool((there == np.round(there)).all())
    return np.where(np.isfinite(numbers), numbers, -1).astype(int) if few and len(there) == len(
        numbers
    ) else numbers  # fmt: skip


def _numbers(values: np.ndarray) -> np.ndarray | None:
    """A column as numbers, NaN where missing; None where it holds something else."""
    if values.dtype.kind in "iufb" and values.ndim == 1:
        return values.astype(float)
    if values.dtype.kind != "O":
        return None
    try:
        return np.array([math.nan if v is None or v == "" else float(v) for v in values])
    except (TypeError, ValueError):
        return None


def _complete(values: np.ndarray) -> np.ndarray:
    """Which rows miss nothing; class −1 stands for a missing one."""
    if values.dtype.kind in "iub":
        return np.array(values >= 0).reshape(len(values), -1).min(1)
    return np.isfinite(values.reshape(len(values), -1)).min(1)


def _kind(target: np.ndarray) -> str:
    if target.ndim == 1 and target.dtype.kind in "iub":
        return f"{len(np.unique(target))} classes"
    count = 1 if target.ndim == 1 else target.shape[1]
    return f"{count} number{'s' * (count > 1)} a sample"
