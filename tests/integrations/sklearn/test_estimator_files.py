"""Files of estimators: loading restores them, and any other file raises an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import sklearn.base
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from attnlens import AttentionClassifier, AttentionRegressor, KernelAttentionRegressor
from attnlens.core.checks import BadInput

clone: Any = sklearn.base.clone
random = np.random.default_rng(1)
X = random.normal(size=(40, 3))
Y = X[:, 0] - X[:, 1] ** 2
NEW = random.normal(size=(12, 3))
KINDS: dict[str, Any] = {
    "classifier": AttentionClassifier(),
    "regressor": AttentionRegressor(),
    "kernel": KernelAttentionRegressor(kernel="matern32", ridge="loo", temperature="loo"),
}


def answers(model: Any) -> list[np.ndarray]:
    if hasattr(model, "predict_proba"):
        return [model.predict_proba(NEW)]
    if isinstance(model, KernelAttentionRegressor):
        return [*model.predict(NEW, return_std=True)]
    return [model.predict(NEW)]


def as_fitted(network: Any) -> Any:
    """An estimator with the attributes of a fitted one, set without the time of a fit."""
    model = clone(network)
    model.n_features_in_, model.loss_ = 3, 0.5
    model.input_mean_, model.input_scale_ = np.zeros(3), np.ones(3)
    if isinstance(model, AttentionClassifier):
        model.classes_ = np.array(["down", "up"])
    else:
        model.target_mean_, model.target_scale_, model.one_output_ = np.zeros(1), np.ones(1), True
    model.vector_ = np.random.default_rng(2).normal(size=model._shape().parameters)
    return model


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    networks = {kind: as_fitted(KINDS[kind]) for kind in ("classifier", "regressor")}
    return {**networks, "kernel": clone(KINDS["kernel"]).fit(X, Y)}


@pytest.fixture(scope="module")
def files(fitted: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("saved")
    for kind, model in fitted.items():
        model.save(folder / f"{kind}.safetensors")
    return {kind: folder / f"{kind}.safetensors" for kind in fitted}


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_and_loaded_estimator_is_the_same(
    kind: str, fitted: dict[str, Any], files: dict[str, Path]
):
    again = type(KINDS[kind]).load(files[kind])
    for one, other in zip(answers(again), answers(fitted[kind]), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.get_params() == fitted[kind].get_params()
    # Every fitted attribute is restored.
    assert set(vars(again)) == set(vars(fitted[kind]))
    assert [p.name for p in files[kind].parent.iterdir() if p.suffix == ".tmp"] == []


def test_feature_names_are_restored(tmp_path: Path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = KernelAttentionRegressor(ridge=0.1, temperature=1.0).fit(frame, Y)
    model.save(tmp_path / "named")
    again = KernelAttentionRegressor.load(tmp_path / "named")
    assert again.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[["b", "a", "c"]])


def test_partial_fit_continues_after_loading(files: dict[str, Path], fitted: dict[str, Any]):
    again = KernelAttentionRegressor.load(files["kernel"]).partial_fit(NEW, NEW[:, 0])
    whole = clone(fitted["kernel"]).fit(np.concatenate([X, NEW]), np.concatenate([Y, NEW[:, 0]]))
    for one, other in zip(answers(again), answers(whole), strict=True):
        np.testing.assert_array_equal(one, other)


Arrays = dict[str, np.ndarray]


def header(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any], Arrays], Any]:
    return lambda about, arrays: change(about)


def parameter(name: str, value: Any) -> Callable[[dict[str, Any], Arrays], Any]:
    return lambda about, arrays: about["params"].update({name: value})


def fact(name: str, value: Any) -> Callable[[dict[str, Any], Arrays], Any]:
    return lambda about, arrays: about["facts"].update({name: value})


def array(
    name: str, change: Callable[[np.ndarray], Any]
) -> Callable[[dict[str, Any], Arrays], Any]:
    return lambda about, arrays: arrays.update({name: change(arrays[name])})


TAMPERED: dict[str, tuple[str, Callable[[dict[str, Any], Arrays], Any], str]] = {
    "other class": ("regressor", header(lambda a: a.update(estimator="os.system")), "got 'os"),
    "newer layout": ("regressor", header(lambda a: a.update(layout=2)), "got format 2"),
    "extra entry": ("regressor", header(lambda a: a.update(code="1+1")), "other entries"),
    "no facts": ("regressor", header(lambda a: a.update(facts=[])), "other entries"),
    "extra setting": ("regressor", parameter("hook", "x"), "other parameters"),
    "settings as list": ("regressor", header(lambda a: a.update(params=[])), "other parameters"),
    "list setting": ("regressor", parameter("width", [8]), "numbers or text as parameters"),
    "text setting": ("regressor", parameter("width", "8"), "holds invalid settings"),
    "giant": ("regressor", parameter("hidden", 10**18), "another size"),
    "giant depth": ("regressor", parameter("layers", 10**18), "another size"),
    "odd tokens": ("regressor", parameter("token_dim", 2), "holds invalid settings"),
    "no loss": ("regressor", fact("loss", None), "training loss"),
    "outputs": ("regressor", fact("one_output", "yes"), "how many outputs"),
    "names": ("regressor", header(lambda a: a.update(feature_names=["a"])), "feature names"),
    "name kinds": (
        "regressor",
        header(lambda a: a.update(feature_names=[1, 2, 3])),
        "feature names",
    ),
    "missing array": ("regressor", lambda _, a: a.pop("vector"), "must hold the arrays"),
    "extra array": ("regressor", lambda _, a: a.update(more=np.ones(3)), "must hold the arrays"),
    "short": ("regressor", array("vector", lambda v: v[:-1]), "another size"),
    "square": ("regressor", array("vector", lambda v: v[None]), "does not fit the other arrays"),
    "no features": (
        "regressor",
        lambda _, a: a.update(input_mean=np.ones(0), input_scale=np.ones(0)),
        "no features",
    ),
    "zero scale": ("regressor", array("input_scale", np.zeros_like), "not above zero"),
    "long scale": ("regressor", array("target_scale", lambda v: np.ones(2)), "does not fit its"),
    "NaN": ("regressor", array("vector", lambda v: v * np.nan), "NaN or infinity"),
    "single": (
        "regressor",
        array("vector", lambda v: v.astype("f4")),
        "float64 arrays; got F32",
    ),
    "no classes": ("classifier", fact("classes", None), "no classes"),
    "empty classes": ("classifier", fact("classes", {"kind": "str", "labels": []}), "no classes"),
    "mixed classes": (
        "classifier",
        fact("classes", {"kind": "str", "labels": ["a", 1]}),
        "mixed kinds",
    ),
    "class code": ("classifier", fact("classes", {"kind": "O", "labels": [1, 2]}), "unknown kind"),
    "class range": (
        "classifier",
        fact("classes", {"kind": "int8", "labels": [1, 999]}),
        "do not fit",
    ),
    "class order": (
        "classifier",
        fact("classes", {"kind": "int8", "labels": [2, 1]}),
        "not distinct",
    ),
    "three classes": (
        "classifier",
        fact("classes", {"kind": "int8", "labels": [1, 2, 3]}),
        "another size",
    ),
    "kernel name": ("kernel", parameter("kernel", "__import__"), "holds invalid settings"),
    "negative ridge": ("kernel", fact("ridge", -1.0), "holds invalid settings"),
    "no temperature": ("kernel", fact("temperature", None), "holds invalid settings"),
    "kernel facts": ("kernel", fact("more", 1), "other entries"),
    "kernel outputs": ("kernel", fact("one_output", 1), "how many outputs"),
    "flat rows": ("kernel", array("rows", np.ravel), "does not fit the other arrays"),
    "scalar weights": ("kernel", array("weights", lambda w: np.ones(())), "does not fit"),
    "fewer labels": ("kernel", array("labels", lambda y: y[1:]), "does not fit the other arrays"),
    "negative weight": ("kernel", array("weights", lambda w: -w), "not above zero"),
    "no rows": (
        "kernel",
        lambda _, a: a.update({name: values[:0] for name, values in a.items()}),
        "got no rows",
    ),
}


def header_and_arrays(path: Path) -> tuple[dict[str, Any], Arrays]:
    with safetensors.safe_open(path, framework="numpy") as opened:
        about = json.loads(opened.metadata()["attnlens"])
        return about, {name: opened.get_tensor(name) for name in sorted(opened.keys())}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_tampered_file_raises_one_sentence(case: str, files: dict[str, Path], tmp_path: Path):
    kind, change, message = TAMPERED[case]
    about, arrays = header_and_arrays(files[kind])
    change(about, arrays)
    path = tmp_path / "tampered"
    safetensors.numpy.save_file(arrays, path, {"attnlens": json.dumps(about)})
    with pytest.raises(BadInput, match=message) as caught:
        type(KINDS[kind]).load(path)
    assert "\n" not in str(caught.value)


def test_a_rewritten_file_without_changes_loads(files: dict[str, Path], tmp_path: Path):
    for kind, model in KINDS.items():
        about, arrays = header_and_arrays(files[kind])
        safetensors.numpy.save_file(arrays, tmp_path / kind, {"attnlens": json.dumps(about)})
        type(model).load(tmp_path / kind)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be a complete safetensors file"),
        (b"\x80\x04cos\nsystem\n(S'true'\ntR.", "must be a complete safetensors file"),  # a pickle
        (b"\xff" * 64, "must be a complete safetensors file"),
        (
            safetensors.numpy.save({"vector": np.ones(3)}),
            "attnlens estimator wrote",
        ),
        (safetensors.numpy.save({"v": np.ones(3)}, {"attnlens": "{"}), "must have a JSON header"),
        (
            safetensors.numpy.save({"v": np.ones(3)}, {"attnlens": "[" * 10**5}),
            "must have a JSON header",
        ),
        (
            safetensors.numpy.save({"v": np.ones(3)}, {"attnlens": "[]"}),
            "attnlens estimator wrote",
        ),
    ],
    ids=["empty", "pickle", "noise", "other arrays", "half JSON", "deep JSON", "list"],
)
def test_a_file_of_another_kind_raises_one_sentence(content: bytes, message: str, tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message) as caught:
        AttentionRegressor.load(path)
    assert "\n" not in str(caught.value)


def test_invalid_paths_and_estimators_raise_one_sentence(
    fitted: dict[str, Any], files: dict[str, Path], tmp_path: Path
):
    with pytest.raises(BadInput, match="cannot be read"):
        AttentionRegressor.load(tmp_path / "missing")
    with pytest.raises(BadInput, match="cannot be read"):
        AttentionRegressor.load(tmp_path)
    with pytest.raises(BadInput, match="cannot be written"):
        fitted["kernel"].save(tmp_path / "no" / "folder")
    with pytest.raises(BadInput, match="cannot be written"):
        fitted["kernel"].save(tmp_path)
    with pytest.raises(NotFittedError):
        KernelAttentionRegressor().save(tmp_path / "unfitted")
    random_state = as_fitted(AttentionRegressor(random_state=np.random.RandomState(0)))
    with pytest.raises(BadInput, match="random_state must be a number"):
        random_state.save(tmp_path / "state")
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(BadInput, match="got 'KernelAttentionRegressor'"):
        AttentionRegressor.load(files["kernel"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_file_raises_one_sentence_or_loads(
    at: int, byte: int, cut: bool, files: dict[str, Path], tmp_path: Path
):
    content = bytearray(files["kernel"].read_bytes())
    at %= len(content)
    content[at] = byte
    path = tmp_path / "damaged"
    path.write_bytes(content[:at] if cut else content)
    try:
        loaded = KernelAttentionRegressor.load(path)
    except BadInput as error:
        loaded = str(error)
    assert "\n" not in loaded if isinstance(loaded, str) else loaded.n_features_in_ == 3
