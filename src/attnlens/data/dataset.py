"""The record of a data set, and splits that depend only on content and seed.

A row's digest is the SHA-256 of its input. It has three uses:

- *Duplicates*: rows with equal digests count as one row, so that no row can be in the training set
  and in the test set. If copies have different labels, all of them are dropped.
- *Splits*: rows are sorted by SHA-256(seed, digest). This order is as good as random, and depends
  neither on the order of the file nor on the version of a random number generator.
- *Hashes*: the hash of a set is the SHA-256 of its row digests and labels, in order.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from attnlens.core import arrays, checks

Kind = Literal["rows", "images", "tokens", "texts"]
AXES = {"rows": 2, "images": 3, "tokens": 3}


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels, with their source and licence.

    kind      inputs
    rows      (n, features)
    images    (n, height, width), from 0 to 1
    tokens    (n, tokens, token_dim)
    texts     a tuple of n strings

    `labels` (n,) are class numbers, whose names are in `classes`, or real numbers if `classes` is
    empty. Without labels, `labels` is NaN in every row. `history` describes each processing step in
    words. If this set was made by `split`, `splits` maps the name of each set that the same call
    returned to its hash.

    >>> rows = Dataset("mine", "rows", np.eye(3), np.array([0, 1, 1]), ("no", "yes"), "me", "none")
    >>> print(rows)
    mine: 3 rows of (3,), 2 classes
    """

    name: str
    kind: Kind
    inputs: np.ndarray | tuple[str, ...]
    labels: np.ndarray
    classes: tuple[str, ...]
    source: str
    licence: str
    history: tuple[str, ...] = ()
    splits: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.one_of("kind", self.kind, get_args(Kind))
        # Masked arrays, strings and complex numbers raise here. Object arrays become numeric.
        if self.kind != "texts":
            checked = arrays.plain(f"inputs of {self.name}", self.inputs)
            is_object = checked.dtype == object  # arrays of other types are kept without a copy
            read = checked if is_object else np.empty(0, checked.dtype)
            numbers = arrays.numbers(f"inputs of {self.name}", read)
            object.__setattr__(self, "inputs", numbers if is_object else checked)
        labels = arrays.plain(f"labels of {self.name}", self.labels)
        if labels.dtype.kind != "f" or not np.isnan(labels).all():
            labels = arrays.labels(f"labels of {self.name}", labels)
        object.__setattr__(self, "labels", labels)
        if self.labels.dtype.kind not in arrays.NUMBERS:
            raise checks.BadInput(
                f"labels of {self.name} must be class numbers, or real numbers without classes; "
                f"got {self.labels.dtype}; give the names of classes as `classes`."
            )
        shape = np.shape(self.inputs)
        if self.kind in AXES and len(shape) != AXES[self.kind]:
            raise checks.BadInput(
                f"{self.kind} must have {AXES[self.kind]} axes, samples first; got an array of "
                f"shape {shape}."
            )
        if np.shape(self.labels) != (len(self.inputs),):
            raise checks.BadInput(
                f"there must be one label for each of the {len(self.inputs)} inputs; got labels of "
                f"shape {np.shape(self.labels)}."
            )
        known = np.isin(self.labels, np.arange(len(self.classes)))
        if self.classes and not known.all():
            raise checks.BadInput(
                f"labels of {self.name} must be numbers of its {len(self.classes)} classes, from 0 "
                f"to {len(self.classes) - 1}; got {self.labels[~known][0]}."
            )
        if isinstance(self.inputs, np.ndarray) and not np.isfinite(self.inputs).all():
            raise checks.BadInput(
                f"{self.name} must hold finite numbers only; got NaN or infinity; drop or fill "
                f"these values."
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def __str__(self) -> str:
        size = "" if isinstance(self.inputs, tuple) else f" of {self.inputs.shape[1:]}"
        labels = f"{len(self.classes)} classes" if self.classes else "numbers as labels"
        return f"{self.name}: {len(self)} {self.kind}{size}, {labels}"

    @property
    def array(self) -> np.ndarray:
        """The inputs as an array; `BadInput` if they are texts."""
        if isinstance(self.inputs, tuple):
            raise checks.BadInput(
                f"{self.name} must hold numbers; got texts; convert them to tokens with "
                f"Embedding.learn(training_set)(data)."
            )
        return self.inputs

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """The SHA-256 of each input."""
        if isinstance(self.inputs, tuple):
            # Texts that differ only in case or spacing are duplicates.
            rows = (" ".join(text.lower().split()).encode() for text in self.inputs)
        else:
            little_endian = np.ascontiguousarray(self.inputs, self.inputs.dtype.newbyteorder("<"))
            rows = (row.tobytes() for row in little_endian)
        return tuple(hashlib.sha256(row).digest() for row in rows)

    @cached_property
    def sha256(self) -> str:
        """The hash of all rows and labels, in order."""
        labels = np.ascontiguousarray(self.labels, "<f8").tobytes()
        return hashlib.sha256(b"".join(self.digests) + labels).hexdigest()

    def take(self, rows: Sequence[int] | np.ndarray, description: str) -> Dataset:
        """The rows with these indices, in this order; `description` is added to the history."""
        rows = np.asarray(rows, int)
        inputs = (
            tuple(self.inputs[i] for i in rows)
            if isinstance(self.inputs, tuple)
            else self.inputs[rows]
        )
        history = (*self.history, description)
        return dataclasses.replace(self, inputs=inputs, labels=self.labels[rows], history=history)

    def tokens(self, tokens: np.ndarray, description: str) -> Dataset:
        """The same samples with `tokens` as inputs; `description` is added to the history."""
        history = (*self.history, description)
        return dataclasses.replace(self, kind="tokens", inputs=tokens, history=history)


def deduplicated(data: Dataset, conflicts: bool = False) -> Dataset:
    """`data` with each input once; inputs whose copies have different labels are dropped.

    If `conflicts` is True, such inputs are kept, each with the label of its first copy.

    >>> twice = np.array([[1.0], [1.0], [2.0]])
    >>> rows = Dataset("mine", "rows", twice, np.array([0, 0, 1]), ("no", "yes"), "me", "none")
    >>> len(deduplicated(rows))
    2
    """
    labels: dict[bytes, set[float]] = {}
    for digest, label in zip(data.digests, data.labels.tolist(), strict=True):
        labels.setdefault(digest, set()).add(label)
    first = dict(reversed([(digest, i) for i, digest in enumerate(data.digests)]))
    rows = sorted(i for digest, i in first.items() if conflicts or len(labels[digest]) == 1)
    if len(rows) == len(data):
        return data
    return data.take(rows, f"{len(data) - len(rows)} duplicates dropped")


def split(data: Dataset, sizes: Mapping[str, int], seed: int, part: int = 0) -> dict[str, Dataset]:
    """Named sets of these sizes that share no row; the same seed always gives the same sets.

    `part` selects the sets of one repetition of an experiment: with the same seed, parts 0, 1, 2, …
    share no row with each other. The number of parts is limited by the number of rows.

    >>> from attnlens.data import table
    >>> sets = split(table("wine"), {"train": 100, "test": 50}, seed=0)
    >>> len(sets["train"]), sorted(sets["test"].splits)
    (100, ['test', 'train'])
    """
    checks.seed_number("seed", seed)
    checks.whole("part", part)
    if not sizes:
        raise checks.BadInput("sizes must name at least one set, such as {'train': 100}; got none.")
    part_size = sum(checks.whole(f"the size of {name}", size, 1) for name, size in sizes.items())
    if len(set(data.digests)) < len(data):
        raise checks.BadInput(
            f"{data.name} must hold each input once before it is split; got repeated inputs; call "
            f"deduplicated(data) first."
        )
    if (part + 1) * part_size > len(data):
        raise checks.BadInput(
            f"{data.name} must have {(part + 1) * part_size} rows for part {part} of {part_size} "
            f"rows; got {len(data)}; give smaller sizes or another seed."
        )
    salt = f"{seed}:".encode()
    order = sorted(range(len(data)), key=lambda i: hashlib.sha256(salt + data.digests[i]).digest())
    sets, start = {}, part * part_size
    for name, size in sizes.items():
        step = f"{name}: rows {start} to {start + size - 1} in the order of seed {seed}"
        sets[name] = data.take(order[start : start + size], step)
        start += size
    hashes = {name: subset.sha256 for name, subset in sets.items()}
    return {name: dataclasses.replace(subset, splits=hashes) for name, subset in sets.items()}
