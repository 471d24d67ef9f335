"""An estimator as one file: safetensors for its arrays, JSON in the header for the rest.

Nothing in a file is executed, and nothing is trusted: a file is refused with one sentence unless
its class, its parameters, its keys and the shapes of its arrays are those that a fit would leave.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors
import safetensors.numpy

from attnlens import checks

from .rows import number

LAYOUT = 1  # of the file; raised when an older attnlens could not read a newer file
HEADER = "attnlens"
PLAIN = (bool, int, float, str, type(None))
NUMBERS = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
}  # fmt: skip


class Saved:
    """`save` and `load` for an estimator that can give and take its state.

    `_facts()` is what JSON holds, `_arrays()` what safetensors holds, all float64; `_restore`
    takes both back and raises `BadFile` where they do not fit together.
    """

    n_features_in_: int
    feature_names_in_: np.ndarray  # only after a data frame

    def save(self: Any, path: str | Path) -> None:
        """Write the fitted estimator to one file, without pickle; `load` reads it."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        params = {name: _plain(name, value) for name, value in self.get_params(deep=False).items()}
        names = getattr(self, "feature_names_in_", None)
        about = {
            "layout": LAYOUT,
            "estimator": type(self).__name__,
            "params": params,
            "feature_names": None if names is None else [str(name) for name in names],
            "facts": self._facts(),
        }
        arrays = {name: np.ascontiguousarray(a, float) for name, a in self._arrays().items()}
        _write(Path(path), safetensors.numpy.save(arrays, {HEADER: json.dumps(about)}))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted estimator from the file that `save` wrote."""
        path = Path(path)
        about, arrays = _read(path)
        try:
            return cls._loaded(about, arrays)
        except BadFile as error:
            raise checks.BadInput(f"{path} {error}; save the estimator again.") from error
        except checks.BadInput as error:
            raise checks.BadInput(f"{path} holds settings that no fit takes: {error}") from error

    @classmethod
    def _loaded(cls: Any, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        keys = {"layout", "estimator", "params", "feature_names", "facts"}
        if set(about) != keys or not isinstance(about["facts"], dict):
            raise BadFile("has a header with other entries than attnlens writes")
        if about["layout"] != LAYOUT:
            raise BadFile(f"has layout {about['layout']!r}, and this attnlens reads {LAYOUT}")
        if about["estimator"] != cls.__name__:
            raise BadFile(f"holds {about['estimator']!r}, not {cls.__name__!r}")
        params, estimator = about["params"], cls()
        if not isinstance(params, dict) or set(params) != set(estimator.get_params(deep=False)):
            raise BadFile(f"has other parameters than {cls.__name__} takes")
        if not all(isinstance(value, PLAIN) for value in params.values()):
            raise BadFile("has parameters that are neither numbers nor text")
        estimator.set_params(**params)
        estimator._restore(about["facts"], arrays)
        names = about["feature_names"]
        if names is not None:
            listed = isinstance(names, list) and all(isinstance(name, str) for name in names)
            if not listed or len(names) != estimator.n_features_in_:
                raise BadFile("has feature names that do not fit its features")
            estimator.feature_names_in_ = np.array(names, object)
        return estimator


class BadFile(Exception):
    """What is wrong with a file, to go after its name."""


def expect(arrays: dict[str, np.ndarray], shapes: dict[str, tuple[int | None, ...]]) -> None:
    """Raise unless exactly these arrays are there; None in a shape stands for any length."""
    if set(arrays) != set(shapes):
        raise BadFile(f"should hold the arrays {sorted(shapes)}, but holds {sorted(arrays)[:9]}")
    for name, shape in shapes.items():
        found = arrays[name].shape
        fits = len(found) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, found, strict=True)
        )
        if not fits:
            raise BadFile(f"has {name!r} of shape {found}, which does not fit the rest")


def expect_scaling(arrays: dict[str, np.ndarray], name: str) -> None:
    """Raise unless the scale belongs to the mean and can be divided by."""
    mean, scale = arrays[f"{name}_mean"], arrays[f"{name}_scale"]
    if mean.shape != scale.shape or not np.all(scale > 0):
        raise BadFile(f"has an {name} scale that does not fit its mean or is not above zero")


def classes_to_json(classes: np.ndarray) -> dict[str, Any]:
    """Class labels of any kind that JSON can hold."""
    if classes.dtype.kind in "US" or all(isinstance(label, str) for label in classes):
        kind = "object" if classes.dtype == object else "str"
        return {"kind": kind, "labels": [str(label) for label in classes]}
    if classes.dtype.name not in NUMBERS:
        raise checks.BadInput(
            f"classes must be text, numbers or booleans to be saved, but {classes.dtype} came; "
            f"encode them before fitting."
        )
    return {"kind": classes.dtype.name, "labels": classes.tolist()}


def classes_from_json(given: Any) -> np.ndarray:
    """Class labels as they were: distinct and in order."""
    if not isinstance(given, dict) or set(given) != {"kind", "labels"}:
        raise BadFile("has no classes")
    kind, labels = given["kind"], given["labels"]
    if not isinstance(labels, list) or not labels or not isinstance(kind, str):
        raise BadFile("has no classes")
    if kind in ("str", "object"):
        if not all(isinstance(label, str) for label in labels):
            raise BadFile("has classes of mixed kinds")
        classes = np.array(labels, object if kind == "object" else None)
    else:
        numbers = all(isinstance(label, (bool, int, float)) for label in labels)
        if kind not in NUMBERS or not numbers:
            raise BadFile("has classes of an unknown kind")
        try:
            classes = np.array(labels, kind)
        except (OverflowError, ValueError) as error:
            raise BadFile("has classes that do not fit their kind") from error
    if len(np.unique(classes)) != len(labels) or list(np.sort(classes)) != labels:
        raise BadFile("has classes that are not distinct and in order")
    return classes


def _plain(name: str, value: Any) -> Any:
    value = number(value)
    if not isinstance(value, PLAIN):
        raise checks.BadInput(
            f"{name} must be a number, text or None to be saved, but {type(value).__name__} came; "
            f"set_params({name}=…) first."
        )
    return value


def _write(path: Path, content: bytes) -> None:
    """The whole file or none of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            draft.write_bytes(content)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise checks.BadInput(
            f"{path} cannot be written ({error.strerror or error}): choose another place."
        ) from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    arrays = {}
    try:
        with safetensors.safe_open(path, framework="numpy") as opened:
            header = (opened.metadata() or {}).get(HEADER)
            for name in sorted(opened.keys()):
                if opened.get_slice(name).get_dtype() != "F64":
                    raise checks.BadInput(f"{path} has {name!r} in another precision than float64.")
                arrays[name] = opened.get_tensor(name)
        about = json.loads(header or "null")
    except OSError as error:
        reason = error.strerror or error
        raise checks.BadInput(f"{path} cannot be read ({reason}): check its name.") from error
    except safetensors.SafetensorError as error:
        raise checks.BadInput(f"{path} is not a whole safetensors file ({error}).") from error
    except checks.BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise checks.BadInput(f"{path} has a header that is not JSON.") from error
    if not isinstance(about, dict):
        raise checks.BadInput(
            f"{path} holds arrays, but no estimator of attnlens; expected a file that save wrote."
        )
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise checks.BadInput(f"{path} has NaN or infinity in {name!r}.")
    return about, arrays
