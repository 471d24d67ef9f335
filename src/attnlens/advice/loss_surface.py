"""`landscape`: what the loss surface of a user's own model looks like, as a sheet.

`curvature` and `surface` measure; `questions/landscape.py` turns the measurements into answers. A
model is given as (params, loss, data). `loss` is a function of (params, data) that returns a mean
over the rows of data or, if `params` is a callable model, the name of a loss per sample.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from attnlens.core import checks
from attnlens.core.notebook import notebook_bar
from attnlens.core.sheets import Sheet
from attnlens.core.user_code import place, reason, user_code

from .questions import landscape as questions

KEYS = ("params", "loss", "data")


class LossAndData(NamedTuple):
    """Parameters, a loss function, and the data that the loss averages over (None: no data)."""

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
    """Eigenvalues, trace, spectral density and surface of a loss, with answers in words.

    model: (params, loss, data), (params, loss), a mapping with these names, or "module:function",
        a function without arguments that returns one of them. `loss` is a function of (params,
        data), or a name such as "squared" or "softmax" where params is a model that is called and
        data is (inputs, targets). A PyTorch module goes with loss(outputs, targets).
    eigenpairs: how many at each end of the spectrum. probes, steps: of the spectral density.
        points: along each side of the surface that is drawn.

    A notebook shows a bar.

    Returns a `Sheet`. The numbers are those of `curvature` (λ, trace and density of the Hessian)
    and of `surface`, whose docstrings have formulas and sources.
    """
    if isinstance(model, str):
        name, model = model, from_name(model)
    subject = _loss_and_data(model, name)
    from attnlens.instruments import curvature, surface
    from attnlens.instruments.landscape.products import ExternalLoss

    settings = {"eigenpairs": eigenpairs, "probes": probes, "steps": steps, "seed": seed}
    show = notebook_bar("measurements: curvature, surface")
    show(0, 2)
    result = _measure(name, curvature, subject, **settings)
    show(1, 2)
    plane = _measure(name, surface, subject, points=points, seed=seed)
    show(2, 2)
    by_torch = isinstance(subject.loss, ExternalLoss)
    source = "exact: the Hessian was formed" if result.exact else "estimated from products"
    facts = (
        ("parameters", f"{result.size:,}"),
        ("loss", f"{result.loss:.6g}"),
        ("data", _data_fact(subject.data)),
        ("numbers", source),
        *([("derivatives", "by PyTorch, nothing is compiled")] if by_torch else []),
    )
    answers = (
        questions.minimum(result),
        questions.sharpness(result),
        questions.spectrum(result),
        questions.bending(result),
    )
    return Sheet(f"Loss landscape of {name}", facts, answers, (result.figure(), plane))


def from_name(path: str) -> Any:
    """Import "module:function", call the function without arguments and return its result."""
    if not re.fullmatch(r"[\w.]+:\w+", path):
        raise checks.BadInput(
            f"a model is named module:function, such as my_model:make for make() in my_model.py; "
            f"got {path!r}."
        )
    module, _, name = path.partition(":")
    try:
        with user_code(f"the import of {module!r}", ModuleNotFoundError):
            imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise checks.BadInput(
                f"there is no module {module!r} in this folder or among the installed ones; give "
                f"the name of a Python file here, without .py."
            ) from error
        raise checks.BadInput(
            f"{module!r} cannot be imported: it needs {error.name!r}, which is not installed."
        ) from error
    function = getattr(imported, name, None)
    if not callable(function):
        own = [key for key, value in vars(imported).items() if _is_defined_in(value, module)]
        remedy = f"its functions are {', '.join(own[:8])}" if own else "it has none"
        raise checks.BadInput(f"{module!r} has no function {name!r}; {remedy}.")
    with user_code(path):
        return function()


def _is_defined_in(value: Any, module: str) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module


def _loss_and_data(model: Any, name: str) -> LossAndData:
    """A model given as a tuple or a mapping, as `LossAndData`; raises `BadInput` for others."""
    if isinstance(model, Mapping) and {"params", "loss"} <= set(model) <= set(KEYS):
        model = LossAndData(**model)
    if not isinstance(model, tuple | list) or len(model) not in (2, 3):
        what = type(model).__name__ + (f" of {len(model)}" if hasattr(model, "__len__") else "")
        raise checks.BadInput(
            f"{name} must give (params, loss, data), the parameters, a function of (params, data) "
            f"and the data; got a {what}."
        )
    subject = LossAndData(*model)
    if _is_torch(subject.params):
        return _from_torch(subject, name)
    if isinstance(subject.loss, str):
        from attnlens.instruments import Supervised

        subject = subject._replace(loss=Supervised(subject.loss))
    if not callable(subject.loss):
        raise checks.BadInput(
            f"{name} must give (params, loss, data) with loss a function of (params, data) or the "
            f"name of one, but the second is a {type(subject.loss).__name__}."
        )
    return subject


def _measure(name: str, instrument: Any, model: LossAndData, **settings: Any) -> Any:
    """The result of an instrument; an error in the user's loss becomes a `BadInput`."""
    try:
        return instrument(model.loss, model.params, model.data, **settings)
    except (checks.ExplainedError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the loss is the user's own code, and may call sys.exit
        raise checks.BadInput(
            f"the loss of {name} must be one number for (params, data) that can be differentiated, "
            f"but it failed{place(error)}: {reason(error)}."
        ) from error


def _is_torch(params: Any) -> bool:
    return any(kind.__module__.split(".")[0] == "torch" for kind in type(params).__mro__)


def _from_torch(model: LossAndData, name: str) -> LossAndData:
    """A PyTorch module with loss(outputs, targets): values and derivatives by PyTorch itself."""
    import jax

    from attnlens.integrations import torch_loss

    if not callable(model.loss):
        raise checks.BadInput(
            f"{name} must give (module, loss, data) with loss a function of (outputs, targets), "
            f"but the second is a {type(model.loss).__name__}."
        )
    params, loss = torch_loss(model.params, model.loss)
    data = jax.tree.map(lambda x: x.detach().cpu().numpy() if _is_torch(x) else x, model.data)
    return LossAndData(params, loss, data)


def _data_fact(data: Any) -> str:
    if data is None:
        return "none: the loss is a function of the parameters alone"
    import jax

    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(data)]
    rows = shapes[0][0] if shapes and shapes[0] else 0
    return f"{rows:,} rows; arrays of shape {', '.join(map(str, shapes))}"
