"""`transfer`: will a pretrained representation transfer to a task, as a sheet.

`condition_number` measures; `questions/transfer.py` turns the measurements into answers. This
module reads features, pretraining targets and downstream targets from files.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnlens.core import arrays, checks
from attnlens.core.labels import are_class_numbers
from attnlens.core.notebook import notebook_bar
from attnlens.core.sheets import Sheet
from attnlens.instruments import condition_number
from attnlens.instruments.transfer.condition import COMPARES

from .questions import transfer as questions

MOST_ROWS = 20_000  # rows read; κ's standard error is then below 0.01 for any useful target


class FileColumns(NamedTuple):
    """The columns of a file that vary; `arrays` lists the columns of each array (NPY, NPZ)."""

    values: dict[str, np.ndarray]
    arrays: dict[str, list[str]]

    def named(self, name: str) -> list[str]:
        """The column of this name, or the columns of the array of this name."""
        return [name] if name in self.values else self.arrays.get(name, [])


def transfer(
    features: Any, pretrain: Any, downstream: Any, *, resamples: int = 400, seed: int = 0
) -> Sheet:
    """Will a pretrained representation transfer to a task?

    features: a file (CSV, Parquet, NPZ, NPY) whose columns are the features of a pretrained model,
        one row per sample; or an array (n, d).
    pretrain: what the model was trained to predict. downstream: what it is to predict now.
        Each of the two is a column of `features`, several columns (as a list or joined by commas),
        another file with as many rows, or an array. Text and whole numbers with few distinct
        values are classes.

    A notebook shows a bar.

    Returns a `Sheet`. κ² = cᵀ (Aᵀ Σ A)⁺ c and the scores beside it are those of `condition_number`.

    >>> z = np.random.default_rng(0).standard_normal((200, 3))
    >>> transfer(z, z[:, :2], z[:, 2], resamples=24).condition.outcome
    <AnswerOutcome.NO: 'no'>
    """
    show = notebook_bar("steps: the targets and features, κ and the scores")
    show(0, 2)
    if not isinstance(features, str | Path):
        table = arrays.numbers("features", features)
        pretraining = _array_target("pretrain", pretrain)
        task = _array_target("downstream", downstream)
        facts = [("features", "an array")]
        title = "arrays"
    else:
        several_files = any(_is_file(target) for target in (pretrain, downstream))
        file = _read(features, alone=not several_files)
        pretraining, pretraining_columns = _targets("pretrain", pretrain, file)
        task, task_columns = _targets("downstream", downstream, file)
        target_columns = pretraining_columns | task_columns
        table, names, left_out = _features(
            {name: values for name, values in file.values.items() if name not in target_columns}
        )
        title = Path(features).name
        remark = f"; left out: {left_out}" if left_out else ""
        facts = [("features", f"{len(names)} columns{remark}")]
        _check_lengths(
            {"the features": len(table), "pretrain": len(pretraining), "downstream": len(task)}
        )
        complete = _complete(table) & _complete(pretraining) & _complete(task)
        if not complete.all():
            facts.append(("missing", f"{(~complete).sum()} rows with missing values left out"))
        table, pretraining, task = table[complete], pretraining[complete], task[complete]
    show(1, 2)
    result = condition_number(table, pretraining, task, resamples=resamples, seed=seed)
    show(2, 2)
    facts.append(("samples", f"{len(table):,}"))
    facts += [("pretrain", _kind(pretraining)), ("downstream", _kind(task))]
    facts.append(("κ compares", COMPARES))
    answers = (
        questions.condition(result),
        questions.features(result),
        questions.error_today(result, _are_classes(task)),
        questions.scores(result),
    )
    return Sheet(f"Transfer of {title}", tuple(facts), answers)


def _check_lengths(lengths: dict[str, int]) -> None:
    if len(set(lengths.values())) > 1:
        listing = ", ".join(f"{name} {rows}" for name, rows in lengths.items())
        raise checks.BadInput(
            f"features, pretraining and downstream targets must have one row per sample; got "
            f"{listing} rows."
        )


def _read(path: str | Path, alone: bool = True) -> FileColumns:
    """The columns of a file that vary.

    alone: whether features and targets are all in this file. Otherwise row i of one file belongs to
    row i of the other, and no rows may be left out.
    """
    from attnlens.data import read

    loaded = read(path, rows=MOST_ROWS)
    if loaded.X is None or loaded.X.ndim != 2:
        raise checks.BadInput(
            f"{path} must be a table with one row per sample and one number per column; got "
            f"{loaded.dataset.kind}."
        )
    if not alone and not loaded.rows_read.complete:
        raise checks.BadInput(
            f"samples of two files cannot be matched row by row, and {path} has more than the "
            f"{len(loaded.X):,} rows that are read; put features and targets into one file."
        )
    values = {name: column.values for name, column in loaded.columns.items()}
    arrays = {
        array: [name for name in names if name in values] for array, names in loaded.arrays.items()
    }
    return FileColumns(values, arrays)


def _targets(what: str, target: Any, file: FileColumns) -> tuple[np.ndarray, set[str]]:
    """A target as an array, and the names of the columns of `file` that it was taken from."""
    if isinstance(target, np.ndarray) or (isinstance(target, list) and not _are_names(target)):
        return np.asarray(target), set()
    names = [str(target)] if isinstance(target, str | Path) else [str(name) for name in target]
    if len(names) == 1 and names[0] not in file.values:
        names = [name.strip() for name in names[0].split(",") if name.strip()] or names
    used = [column for name in names for column in file.named(name)]
    if used and all(file.named(name) for name in names):
        return _as_target(what, [file.values[column] for column in used]), set(used)
    if len(names) == 1 and Path(names[0]).exists():
        other = _read(names[0], alone=False)
        return _as_target(what, list(other.values.values())), set()
    missing = next(name for name in names if not file.named(name))
    shown = ", ".join([*file.values][:8]) + (" …" if len(file.values) > 8 else "")
    raise checks.BadInput(
        f"{what} must name columns of the features' file, or another file; {missing!r} is neither; "
        f"the columns that vary are {shown}."
    )


def _array_target(what: str, target: Any) -> np.ndarray:
    """A target given as an array: text becomes class numbers; other arrays stay unchanged."""
    array = arrays.plain(what, target)
    if array.dtype.kind not in "OUS":
        return array
    array = arrays.labels(what, array)
    return np.unique(array, return_inverse=True)[1] if array.dtype.kind == "U" else array


def _is_file(target: Any) -> bool:
    return isinstance(target, str | Path) and Path(target).is_file()


def _are_names(target: Any) -> bool:
    return isinstance(target, list | tuple) and all(isinstance(name, str) for name in target)


def _features(columns: dict[str, np.ndarray]) -> tuple[np.ndarray, list[str], str]:
    """An array of the numeric columns that vary, their names, and the names of other columns."""
    numbers = {name: _numbers(values) for name, values in columns.items()}
    features = {name: values for name, values in numbers.items() if values is not None}
    features = {name: values for name, values in features.items() if np.nanstd(values) > 0}
    if not features:
        raise checks.BadInput(
            "features must have a column of numbers that vary, beside the targets, but there is "
            "none; give the file that holds the model's features."
        )
    left_out = ", ".join(name for name in columns if name not in features)
    return np.stack([*features.values()], axis=1), [*features], left_out


def _as_target(what: str, values: list[np.ndarray]) -> np.ndarray:
    """Class numbers (n,) for one column with few distinct values, else numbers (n,) or (n, k)."""
    parts = [_numbers(column) for column in values]
    if len(parts) == 1:
        return _as_classes(values[0], parts[0])
    numbers = [part for part in parts if part is not None]
    if len(numbers) < len(parts):
        raise checks.BadInput(
            f"{what} must be one column of classes, or columns of numbers; got several, and one of "
            f"them holds text; name it alone."
        )
    return np.stack(numbers, axis=1)


def _as_classes(values: np.ndarray, numbers: np.ndarray | None) -> np.ndarray:
    if numbers is None:
        present = np.array([value is not None for value in values])
        codes = np.full(len(values), -1)
        codes[present] = np.unique([str(v) for v in values[present]], return_inverse=True)[1]
        return codes
    finite = numbers[np.isfinite(numbers)]
    if are_class_numbers(finite) and len(finite) == len(numbers):
        return numbers.astype(int)
    return numbers


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
    """Which rows have no missing value; class −1 stands for a missing value."""
    if values.dtype.kind in "iub":
        return np.array(values >= 0).reshape(len(values), -1).min(1)
    return np.isfinite(values.reshape(len(values), -1)).min(1)


def _are_classes(target: np.ndarray) -> bool:
    return target.ndim == 1 and target.dtype.kind in "iub"


def _kind(target: np.ndarray) -> str:
    if _are_classes(target):
        return f"{len(np.unique(target))} classes"
    count = 1 if target.ndim == 1 else target.shape[1]
    return f"{count} number{'s' * (count > 1)} per sample"
