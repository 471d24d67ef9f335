"""`landscape` on quadratics whose every number is known, and on invalid models."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from attnlens import landscape
from attnlens.core import AnswerOutcome, BadInput, Question

CENTRE = np.array([1.0, 2.0, -1.0])
SMALL: dict[str, Any] = {"points": 3, "eigenpairs": 2}


def quadratic(bend: tuple[float, ...], height: float, away: tuple[float, ...] = (0, 0, 0)):
    """(point, loss, data) for the loss ½ (w − m)ᵀ diag(`bend`) (w − m) + `height`, where m is
    CENTRE and the point is m + `away`."""

    def loss(w, data):
        apart = w - jnp.asarray(CENTRE)
        return 0.5 * jnp.sum(data[0] * apart**2) + height

    return CENTRE + np.array(away, float), loss, np.array([bend], float)


def test_a_flat_minimum_has_its_exact_numbers():
    sheet = landscape(quadratic((3, 1, 2), 1.0), **SMALL)
    assert sheet.minimum.outcome is AnswerOutcome.YES
    sharp = sheet.sharpness
    # Changes of 10 % of each parameter: tr(D H D) = 3·1² + 1·2² + 2·1² = 9 with D = diag(m), so the
    # mean rise of the loss is ½ · 0.01 · 9 = 0.045.
    assert math.isclose(sharp.readings["rise"].value, 0.045, rel_tol=1e-12)
    assert sharp.answer.startswith("flat")
    assert "unstable with steps above 0.67" in sharp.evidence  # the bound is 2/λ_max
    spectrum = sheet.spectrum.readings
    assert math.isclose(spectrum["top_1"].value, 3, rel_tol=1e-12)
    assert math.isclose(spectrum["bottom_1"].value, 1, rel_tol=1e-12)
    assert sheet.bending.answer.startswith("up in about 3 of 3, down in about 0")
    density, plane = sheet.figures
    assert density.plot().axes
    assert plane.plot().axes


@pytest.mark.parametrize(
    ("bend", "height", "away", "question", "words"),
    [
        ((3, 1, -2), 1.0, (0, 0, 0), Question.MINIMUM, "no, a saddle: it bends down 67 %"),
        ((2, 2, 2), 1.0, (1, 0, 0), Question.MINIMUM, "not yet: one more step still takes 50 %"),
        ((-1, -1, -1), 1.0, (0, 0, 0), Question.MINIMUM, "no: the loss bends down"),
        ((300, 1, 2), 1.0, (0, 0, 0), Question.SHARPNESS, "sharp"),
        ((30, 1, 2), 1.0, (0, 0, 0), Question.SHARPNESS, "neither flat nor sharp"),
        ((3, 1, 2), -1.0, (0, 0, 0), Question.SHARPNESS, "the loss changes by 0.045"),
        ((3, 1, -2), 1.0, (0, 0, 0), Question.BENDING, "up in about 2 of 3, down in about 1"),
    ],
    ids=["saddle", "descending", "maximum", "sharp", "between", "negative", "bends"],
)
def test_answers_follow_the_curvature(bend, height, away, question, words):
    assert landscape(quadratic(bend, height, away), **SMALL)[question].answer.startswith(words)


@pytest.mark.parametrize(
    ("bend", "away", "outcome"),
    [
        ((3, 1, 2), (0, 0, 0), AnswerOutcome.YES),
        ((3, 1, -0.1), (0, 0, 0), AnswerOutcome.PARTLY),
        ((3, 1, -2), (0, 0, 0), AnswerOutcome.NO),
        ((2, 2, 2), (1, 0, 0), AnswerOutcome.NO),
        ((-1, -1, -1), (0, 0, 0), AnswerOutcome.NO),
    ],
    ids=["minimum", "nearly", "saddle", "descending", "maximum"],
)
def test_the_outcome_says_whether_it_is_a_minimum(bend, away, outcome: AnswerOutcome):
    assert landscape(quadratic(bend, 1.0, away), **SMALL).minimum.outcome is outcome


def test_eigenvalues_of_the_lanczos_method_are_bounds():
    """With 600 parameters the Hessian is not formed. Ritz values lie inside of the spectrum, so
    they bound the largest eigenvalue from below and the smallest from above."""
    scales = np.linspace(1.0, 2.0, 600)

    def loss(w, data):
        return 0.5 * jnp.sum(jnp.asarray(scales) * w**2) + jnp.mean(data[0])

    sheet = landscape((np.ones(600), loss, np.ones((1, 1))), points=3, eigenpairs=1)
    spectrum = sheet.spectrum.readings
    assert (
        spectrum["top_1"].value <= 2 <= spectrum["top_1"].value + spectrum["top_1"].standard_error
    )
    assert (
        spectrum["bottom_1"].value
        >= 1
        >= spectrum["bottom_1"].value - spectrum["bottom_1"].standard_error
    )
    assert sheet.spectrum.answer.startswith("largest at least ")
    assert "smallest at most " in sheet.spectrum.answer
    assert "largest eigenvalue at least " in sheet.sharpness.evidence
    exact = landscape(quadratic((3, 1, 2), 1.0), **SMALL)
    assert exact.spectrum.answer.startswith("largest 3")


def test_the_sheet_is_strict_json():
    plain = landscape(quadratic((3, 1, 2), 1.0), **SMALL).plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (3, "must give (params, loss, data)"),
        ((1, 2, 3, 4), "got a tuple of 4"),
        ({"params": 1}, "must give (params, loss, data)"),
        ((CENTRE, 7, None), "the second is a int"),
        ((CENTRE, "no such loss", None), "loss must be one of"),
        ((CENTRE, lambda w: jnp.sum(w) * jnp.nan), "must be finite at params"),
        ((CENTRE, lambda w: w), "must return one floating-point number; got float64 of shape (3,)"),
        ((CENTRE, lambda w: 1 / 0), "ZeroDivisionError"),
        (({}, lambda w: 0.0), "at least one floating-point array"),
        ((CENTRE, lambda w, data: jnp.sum(w), {"x": np.ones(3), "y": np.ones(4)}), "equally many"),
        ("no colon", "a model is named module:function"),
        ("no_such_module_here:make", "there is no module 'no_such_module_here'"),
        ("json:no_such_function", "'json' has no function 'no_such_function'"),
        ("json:decoder", "has no function 'decoder'"),
        ("json:loads", "json:loads failed: TypeError"),
    ],
    ids=[
        "number",
        "four",
        "mapping",
        "loss",
        "name",
        "nan",
        "vector",
        "raises",
        "empty",
        "rows",
        "colon",
        "module",
        "function",
        "not callable",
        "failing",
    ],
)
def test_an_invalid_model_raises_one_sentence(model, message: str):
    with pytest.raises(BadInput) as caught:
        landscape(model, **SMALL)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_failing_import_is_explained(tmp_path: Path, monkeypatch):
    (tmp_path / "needs_something.py").write_text("import no_such_package_at_all\n")
    (tmp_path / "is_broken.py").write_text("def make(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match="needs 'no_such_package_at_all', which is not installed"):
        landscape("needs_something:make")
    with pytest.raises(
        BadInput, match=r"the import of 'is_broken' failed in line 1 of is_broken\.py: SyntaxError"
    ):
        landscape("is_broken:make")


@pytest.mark.slow  # importing PyTorch takes seconds
@pytest.mark.filterwarnings("ignore:.*torch.jit.*")
def test_a_pytorch_module_has_the_hessian_of_its_loss():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, 3)), random.normal(size=(20, 1))
    module = torch.nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        module.weight[:] = torch.tensor(np.linalg.lstsq(x, y, rcond=None)[0].T)
    before = module.weight.detach().clone()
    data = (torch.tensor(x), torch.tensor(y))
    sheet = landscape((module, torch.nn.functional.mse_loss, data), **SMALL)
    exact = np.linalg.eigvalsh(2 * x.T @ x / len(x))
    eigenvalues = sheet.spectrum.readings
    assert math.isclose(eigenvalues["top_1"].value, exact[-1], rel_tol=1e-9)
    assert math.isclose(eigenvalues["bottom_1"].value, exact[0], rel_tol=1e-9)
    assert sheet.minimum.outcome is AnswerOutcome.YES
    assert torch.equal(before, module.weight)
    with pytest.raises(BadInput, match="loss a function of \\(outputs, targets\\)"):
        landscape((module, "squared", data), **SMALL)
