"""What the loss surface of a user's own model looks like, as a sheet.

`curvature` and `surface` do the measuring. A model is (params, loss, data): `loss` is a function of
(params, data) that is a mean over the rows of data, or the name of a loss of one sample where
`params` is a model that can be called.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from attnlens import checks
from attnlens.records import Answer, Reading, Sheet

from . import health

SPECTRUM = "What are the largest and smallest eigenvalues?"
KEYS = ("params", "loss", "data")


class Model(NamedTuple):
    """Parameters, their loss, and the data it is a mean over (None where there are none)."""

    params: Any
    loss: Any
    data: Any = None


def landscape(
    model: Any,
    *,
    eigenpairs: int = 3,
    probes: int = 10,
    steps: int = 80,
    points: int = 25,
    seed: int = 0,
    name: str = "a model",
) -> Sheet:
    """Eigenvalues, trace, density and surface of a loss, and what they mean.

    model: (params, loss, data), (params, loss), a mapping with these names, or "module:function",
        a function without arguments that returns one of them. `loss` is a function of (params,
        data), or a name such as "squared" or "softmax" where params is a model that is called and
        data is (inputs, targets). A PyTorch module goes with loss(outputs, targets).
    eigenpairs: how many at each end. probes, steps: of the spectral density. points: along each
        side of the picture.

    Returns a `Sheet`. The numbers are those of `curvature` (λ, trace and density of the Hessian)
    and of `surface`, whose docstrings have formulas and sources.
    """
    if isinstance(model, str):
        name, model = model, from_name(model)
    given = _model(model, name)
    from attnlens.instruments import curvature, surface

    settings = {"eigenpairs": eigenpairs, "probes": probes, "steps": steps, "seed": seed}
    found = _measured(name, curvature, given, **settings)
    plane = _measured(name, surface, given, points=points, seed=seed)
    seen = health.examined(found)
    ends = _spectrum(found)
    facts = (
        ("parameters", f"{found.size:,}"),
        ("loss", f"{found.loss:.6g}"),
        ("data", _described(given.data)),
        ("numbers", "exact: the Hessian was formed" if found.exact else "estimated from products"),
    )
    answers = (seen.minimum, seen.sharpness, ends, seen.bending)
    return Sheet(f"Loss landscape of {name}", facts, answers, (found.figure(), plane))


def from_name(path: str) -> Any:
    """What the function of that name returns: "module:function", called without arguments."""
    if not re.fullmatch(r"[\w.]+:\w+", path):
        raise checks.BadInput(
            f"a model is named module:function, such as my_model:make for make() in my_model.py, "
            f"but {path!r} came."
        )
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise checks.BadInput(
                f"there is no module {module!r} in this folder or among the installed ones; give "
                f"the name of a Python file here, without .py."
            ) from error
        raise checks.BadInput(
            f"{module!r} cannot be imported: it needs {error.name!r}, which is not installed."
        ) from error
    except Exception as error:  # whatever the user's own file does
        raise checks.BadInput(f"{module!r} cannot be imported: {_line(error)}.") from error
    function = getattr(found, name, None)
    if not callable(function):
        own = [each for each, value in vars(found).items() if _made_in(value, module)]
        told = f"its functions are {', '.join(own[:8])}" if own else "it has none"
        raise checks.BadInput(f"{module!r} has no function {name!r}; {told}.")
    try:
        return function()
    except checks.BadInput:
        raise
    except Exception as error:
        raise checks.BadInput(f"{path} failed: {_line(error)}.") from error


def _made_in(value: Any, module: str) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module


def _model(given: Any, name: str) -> Model:
    """(params, loss, data) of whatever came."""
    if isinstance(given, Mapping) and {"params", "loss"} <= set(given) <= set(KEYS):
        given = Model(**given)
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        what = type(given).__name__ + (f" of {len(given)}" if hasattr(given, "__len__") else "")
        raise checks.BadInput(
            f"{name} must give (params, loss, data), the parameters, a function of (params, data) "
            f"and the data, but a {what} came."
        )
    found = Model(*given)
    if _of_torch(found.params):
        return _from_torch(found, name)
    if isinstance(found.loss, str):
        from attnlens.instruments import Supervised

        found = found._replace(loss=Supervised(found.loss))
    if not callable(found.loss):
        raise checks.BadInput(
            f"{name} must give (params, loss, data) with loss a function of (params, data) or the "
            f"name of one, but the second is a {type(found.loss).__name__}."
        )
    return found


def _measured(name: str, instrument: Any, model: Model, **settings: Any) -> Any:
    """What an instrument finds; what the user's loss does wrong becomes one sentence."""
    try:
        return instrument(model.loss, model.params, model.data, **settings)
    except checks.BadInput:
        raise
    except Exception as error:  # the loss is the user's own code
        raise checks.BadInput(
            f"the loss of {name} must be one number for (params, data) that can be differentiated, "
            f"but it failed: {_line(error)}."
        ) from error


def _of_torch(params: Any) -> bool:
    return any(kind.__module__.split(".")[0] == "torch" for kind in type(params).__mro__)


def _from_torch(model: Model, name: str) -> Model:
    """A PyTorch module with loss(outputs, targets): values and derivatives by PyTorch itself."""
    import jax

    from attnlens.bridges import torch_loss

    if not callable(model.loss):
        raise checks.BadInput(
            f"{name} must give (module, loss, data) with loss a function of (outputs, targets), "
            f"but the second is a {type(model.loss).__name__}."
        )
    params, loss = torch_loss(model.params, model.loss)
    data = jax.tree.map(lambda x: x.detach().cpu().numpy() if _of_torch(x) else x, model.data)
    return Model(params, loss, data)


def _spectrum(found: Any) -> Answer:
    top, bottom = (
        ", ".join(f"{pair.value:.4g}" for pair in pairs) for pairs in (found.top, found.bottom)
    )
    worst = max(pair.residual for pair in (*found.top, *found.bottom))
    said = f"largest {top}; smallest {bottom}; trace {found.trace.value:.4g}"
    evidence = (
        f"each to within {worst:.1g} (its residual); trace ± {found.trace.standard_error:.1g}; "
        f"scaled by the parameters: largest {found.scaled_largest.value:.4g}"
    )
    readings = {
        f"{end}_{i}": Reading(pair.value, pair.residual, 1)
        for end, pairs in (("top", found.top), ("bottom", found.bottom))
        for i, pair in enumerate(pairs, 1)
    }
    readings["scaled_largest"] = Reading(
        found.scaled_largest.value, found.scaled_largest.residual, 1
    )
    return Answer(SPECTRUM, said, evidence, readings=readings)


def _described(data: Any) -> str:
    if data is None:
        return "none: the loss is a function of the parameters alone"
    import jax

    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(data)]
    rows = shapes[0][0] if shapes and shapes[0] else 0
    return f"{rows:,} rows; arrays of shape {', '.join(map(str, shapes))}"


def _line(error: BaseException) -> str:
    """An error of someone else's code in one line."""
    text = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return said.rstrip(".")[:300]
