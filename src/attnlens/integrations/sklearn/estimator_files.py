"""Files of fitted estimators: arrays as safetensors, everything else as JSON in the header.

Nothing in a file is executed or trusted: `load` raises `BadInput` unless the class, the parameters,
the keys and the shapes of the arrays are those of a fitted estimator.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors
import safetensors.numpy

from attnlens.core import checks, files

from .weighted_rows import python_number

FORMAT = 1  # version of the file format; increased if older code cannot read the new files
HEADER = "attnlens"  # the key of the JSON text in the header of the safetensors file
PARAMETER_TYPES = (bool, int, float, str, type(None))
NUMBER_TYPES = {  # NumPy's names of the types that class labels may have besides text
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
}


class SaveLoadMixin:
    """`save` and `load` for estimators.

    An estimator defines `_facts()`, which are written as JSON, `_arrays()`, which are written as
    float64 arrays, and `_restore(facts, arrays)`, which sets the fitted attributes from them and
    raises `BadFile` if they are inconsistent.
    """

    n_features_in_: int
    feature_names_in_: np.ndarray  # only if the estimator was fitted on a data frame

    def save(self: Any, path: str | Path) -> None:
        """Write the fitted estimator to one file, without pickle; `load` reads it.

        Parameters
        ----------
        path : str or Path
            The file to write; an existing file is replaced.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        params = {
            name: _plain_value(name, value) for name, value in self.get_params(deep=False).items()
        }
        names = getattr(self, "feature_names_in_", None)
        header = {
            "layout": FORMAT,
            "estimator": type(self).__name__,
            "params": params,
            "feature_names": None if names is None else [str(name) for name in names],
            "facts": self._facts(),
        }
        arrays = {name: np.ascontiguousarray(a, float) for name, a in self._arrays().items()}
        _write(Path(path), safetensors.numpy.save(arrays, {HEADER: json.dumps(header)}))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The fitted estimator in a file that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file to read. Nothing in it is executed.
        """
        path = Path(path)
        header, arrays = _read(path)
        try:
            return cls._from_file(header, arrays)
        except BadFile as error:
            raise checks.BadInput(f"{path} {error}; save the estimator again.") from error
        except checks.BadInput as error:
            raise checks.BadInput(f"{path} holds invalid settings: {error}") from error

    @classmethod
    def _from_file(cls: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        keys = {"layout", "estimator", "params", "feature_names", "facts"}
        if set(header) != keys or not isinstance(header["facts"], dict):
            raise BadFile("must have the header entries that attnlens writes; got other entries")
        if header["layout"] != FORMAT:
            raise BadFile(f"must have format {FORMAT}; got format {header['layout']!r}")
        if header["estimator"] != cls.__name__:
            raise BadFile(f"must hold {cls.__name__!r}; got {header['estimator']!r}")
        params, estimator = header["params"], cls()
        if not isinstance(params, dict) or set(params) != set(estimator.get_params(deep=False)):
            raise BadFile(f"must have the parameters of {cls.__name__}; got other parameters")
        if not all(isinstance(value, PARAMETER_TYPES) for value in params.values()):
            raise BadFile("must have numbers or text as parameters; got other types")
        estimator.set_params(**params)
        estimator._restore(header["facts"], arrays)
        names = header["feature_names"]
        if names is not None:
            strings = isinstance(names, list) and all(isinstance(name, str) for name in names)
            if not strings or len(names) != estimator.n_features_in_:
                raise BadFile("must have one string per feature as feature names; got others")
            estimator.feature_names_in_ = np.array(names, object)
        return estimator


class BadFile(Exception):
    """A file is invalid; the message continues a sentence that starts with the file's name."""


def expect(arrays: dict[str, np.ndarray], shapes: dict[str, tuple[int | None, ...]]) -> None:
    """Raise `BadFile` unless the arrays have these names and shapes; None means any length."""
    if set(arrays) != set(shapes):
        raise BadFile(f"must hold the arrays {sorted(shapes)}; got {sorted(arrays)[:9]}")
    for name, shape in shapes.items():
        actual = arrays[name].shape
        fits = len(actual) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, actual, strict=True)
        )
        if not fits:
            raise BadFile(f"has {name!r} of shape {actual}, which does not fit the other arrays")


def expect_scaling(arrays: dict[str, np.ndarray], name: str) -> None:
    """Raise `BadFile` unless {name}_scale has the shape of {name}_mean and is above zero."""
    mean, scale = arrays[f"{name}_mean"], arrays[f"{name}_scale"]
    if mean.shape != scale.shape or not np.all(scale > 0):
        raise BadFile(f"has an {name} scale that does not fit its mean or is not above zero")


def classes_to_json(classes: np.ndarray) -> dict[str, Any]:
    """Class labels (text, numbers or booleans) as a JSON object with their type."""
    if classes.dtype.kind in "US" or all(isinstance(label, str) for label in classes):
        kind = "object" if classes.dtype == object else "str"
        return {"kind": kind, "labels": [str(label) for label in classes]}
    if classes.dtype.name not in NUMBER_TYPES:
        raise checks.BadInput(
            f"classes must be text, numbers or booleans to be saved; got {classes.dtype}; "
            f"encode them before fitting."
        )
    return {"kind": classes.dtype.name, "labels": classes.tolist()}


def classes_from_json(value: Any) -> np.ndarray:
    """Class labels from the object of `classes_to_json`; `BadFile` if not distinct and sorted."""
    if not isinstance(value, dict) or set(value) != {"kind", "labels"}:
        raise BadFile("has no classes")
    kind, labels = value["kind"], value["labels"]
    if not isinstance(labels, list) or not labels or not isinstance(kind, str):
        raise BadFile("has no classes")
    if kind in ("str", "object"):
        if not all(isinstance(label, str) for label in labels):
            raise BadFile("has classes of mixed kinds")
        classes = np.array(labels, object if kind == "object" else None)
    else:
        numbers = all(isinstance(label, (bool, int, float)) for label in labels)
        if kind not in NUMBER_TYPES or not numbers:
            raise BadFile("has classes of an unknown kind")
        try:
            classes = np.array(labels, kind)
        except (OverflowError, ValueError) as error:
            raise BadFile("has classes that do not fit their kind") from error
    if len(np.unique(classes)) != len(labels) or list(np.sort(classes)) != labels:
        raise BadFile("has classes that are not distinct and in order")
    return classes


def _plain_value(name: str, value: Any) -> Any:
    value = python_number(value)
    if not isinstance(value, PARAMETER_TYPES):
        raise checks.BadInput(
            f"{name} must be a number, text or None to be saved; got {type(value).__name__}; "
            f"set_params({name}=…) first."
        )
    return value


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically: after an error, the file is as it was before."""
    try:
        with files.replacement(path) as draft:
            draft.write_bytes(content)
    except OSError as error:
        raise checks.BadInput(
            f"{path} cannot be written ({error.strerror or error}); give another path."
        ) from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a file."""
    arrays = {}
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(HEADER)
            for name in sorted(file.keys()):
                if (dtype := file.get_slice(name).get_dtype()) != "F64":
                    raise checks.BadInput(
                        f"{path} must hold float64 arrays; got {dtype} in {name!r}; save the "
                        f"estimator again."
                    )
                arrays[name] = file.get_tensor(name)
        header = json.loads(text or "null")
    except OSError as error:
        reason = error.strerror or error
        raise checks.BadInput(f"{path} cannot be read ({reason}); check its name.") from error
    except safetensors.SafetensorError as error:
        raise checks.BadInput(
            f"{path} must be a complete safetensors file, but it cannot be read ({error})."
        ) from error
    except checks.BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise checks.BadInput(
            f"{path} must have a JSON header; got other text; save the estimator again."
        ) from error
    if not isinstance(header, dict):
        raise checks.BadInput(
            f"{path} must be a file that `save` of an attnlens estimator wrote; got other arrays."
        )
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise checks.BadInput(
                f"{path} must hold finite numbers; got NaN or infinity in {name!r}; save the "
                f"estimator again."
            )
    return header, arrays
