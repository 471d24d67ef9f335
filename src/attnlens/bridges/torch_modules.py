"""A PyTorch module as a pure JAX function: (parameters, apply), through torchax.

    params, apply = from_torch(module)
    apply(params, x) = module(x)                    to rounding, for every x that the module takes

`params` are the module's trainable parameters by name. Buffers, parameters that do not require a
gradient and tensors that are plain attributes stand in `apply`, as they were when it was made. What
comes out is made of JAX operations: it can be compiled, mapped and differentiated as often as
wanted, so every instrument that takes a loss, an encoder or a function of tokens takes it.

The module itself is never run: a deep copy is, with its tensors exchanged for traced ones. Python
that looks at the *values* of tensors cannot be traced, and random numbers need a key. torchax is
imported with what it changes put back (torch's fast attention path, a telemetry variable, JAX
settings); only the name "jax" for torch's spare device stays, since torch cannot take it back.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from attnlens import checks
from attnlens.instruments.products import is_parameter

INSTALL = "pip install 'attnlens[torch]'"
TELEMETRY = "ENABLE_RUNTIME_UPTIME_TELEMETRY"  # torchax sets it to 1 on import
# One trace at a time: tensors of the copy and torch's global switch change while it runs.
TRACING = threading.RLock()


def from_torch(module: Any) -> tuple[dict[str, np.ndarray], Callable[..., Any]]:
    """(params, apply) of a `torch.nn.Module`; the module is left exactly as it was.

    params: the trainable parameters by name, as NumPy arrays: a tree for `jax.grad`, `curvature`
        and all the others.
    apply(params, *inputs, dropout_key=None, **keywords): what the module returns, as JAX arrays
        (mappings as dictionaries). Everything is computed in the widest floating type among
        parameters and inputs. A module in training mode draws its dropout from `dropout_key`;
        without one, call `module.eval()` before it is converted.

    Weights that are tied stand in `params` once. Convert again after the module has changed.
    """
    torch = required()
    if not isinstance(module, torch.nn.Module):
        raise checks.BadInput(
            f"from_torch takes a torch.nn.Module, but {type(module).__name__} came; wrap a "
            f"function in a module whose forward calls it."
        )
    twin = _twin(torch, module)
    environment = _environment()
    named = dict(twin.named_parameters())
    params = {name: as_numpy(torch, p) for name, p in named.items() if p.requires_grad}
    fixed = {name: as_numpy(torch, p) for name, p in named.items() if not p.requires_grad}
    fixed |= {name: as_numpy(torch, buffer) for name, buffer in twin.named_buffers()}

    def apply(
        params: Mapping[str, Any], *inputs: Any, dropout_key: Any = None, **keywords: Any
    ) -> Any:
        if not isinstance(params, Mapping) or set(params) != wanted:
            came = sorted(params) if isinstance(params, Mapping) else type(params).__name__
            raise checks.BadInput(
                f"params must have the names that from_torch gave, {sorted(wanted)}, but {came} "
                f"came."
            )
        given = _plain(torch, (inputs, keywords))
        return _call(twin, environment, dict(params), fixed, given, dropout_key)

    wanted = set(params)
    return params, apply


def required() -> Any:
    """torch, or one sentence where it or torchax is missing."""
    missing = [name for name in ("torch", "torchax") if find_spec(name) is None]
    if missing:
        raise checks.BadInput(
            f"from_torch needs torch and torchax, but {' and '.join(missing)} is not installed; "
            f"get both with {INSTALL}."
        )
    import torch

    return torch


def as_numpy(torch: Any, tensor: Any) -> np.ndarray:
    """A copy of a tensor."""
    plain = tensor.detach().cpu()
    if plain.dtype == torch.bfloat16:  # NumPy knows it only through JAX
        return plain.view(torch.int16).numpy().view(jnp.bfloat16).copy()
    return plain.numpy().copy()


# -- the copy that is traced -----------------------------------------------------------------------


def _twin(torch: Any, module: Any) -> Any:
    name = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        raise checks.BadInput(
            f"from_torch needs a module whose forward is Python, but {name} is compiled by "
            f"TorchScript; give the module that it was made from."
        )
    if any(torch.nn.parameter.is_lazy(p) for p in [*module.parameters(), *module.buffers()]):
        raise checks.BadInput(
            f"from_torch needs parameters that have a shape, but {name} is lazy and has not seen "
            f"an input; call it once first."
        )
    try:
        twin = copy.deepcopy(module)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise checks.BadInput(
            f"from_torch works on a copy, but {name} cannot be copied ({_line(error)}); keep "
            f"computed tensors out of its attributes."
        ) from error
    for part in twin.modules():
        # A tensor that is a plain attribute is a constant, as a buffer is.
        for attribute, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor):
                delattr(part, attribute)
                part.register_buffer(attribute, value.detach(), persistent=False)
    return twin


@eqx.filter_jit
def _call(
    twin: Any, environment: Any, params: dict[str, Any], fixed: dict[str, Any], given: Any, key: Any
) -> Any:
    """The copy, with `params` and `fixed` in place of its tensors; compiled once a shape."""
    import torch

    inputs, keywords = given
    widest = _widest((params, given)) if params else _widest((fixed, given))
    lift = functools.partial(_lift, environment, widest)
    state, inputs, keywords = (
        _walk(lift, part) for part in ({**fixed, **params}, inputs, keywords)
    )
    with (
        TRACING,
        environment.drawing(key),
        _slow_attention(torch),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        try:
            with environment, torch.device("jax"):
                found = torch.func.functional_call(twin, state, inputs, keywords)
        except checks.BadInput:
            raise
        except Exception as error:
            raise checks.BadInput(_reason(type(twin).__name__, error)) from error
        return _walk(functools.partial(_lower, torch), found)


def _reason(name: str, error: Exception) -> str:
    """Why a module could not be run as a JAX function, in one sentence."""
    if isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError):
        return (
            f"{name} cannot be converted, because its Python code looks at the values of tensors "
            f"(if, int(), .item(), a boolean mask as an index); write it with torch.where, say."
        )
    if type(error).__name__ == "OperatorNotFound":
        return (
            f"{name} cannot be converted, because torchax has no JAX form of an operation that it "
            f"uses ({_line(error)}); replace that operation."
        )
    return (
        f"{name} cannot be run as a JAX function on these inputs ({type(error).__name__}: "
        f"{_line(error)}); check that PyTorch runs it on inputs of the same shapes."
    )


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


# -- values in and out -----------------------------------------------------------------------------


def _walk(change: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `change` at its leaves; mappings of any kind become dictionaries."""
    if isinstance(value, Mapping):
        return {name: _walk(change, part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_walk(change, part) for part in value))
    if isinstance(value, list | tuple):
        return type(value)([_walk(change, part) for part in value])
    return change(value)


def _plain(torch: Any, given: Any) -> Any:
    """Tensors among the inputs as NumPy arrays."""
    return _walk(lambda x: as_numpy(torch, x) if isinstance(x, torch.Tensor) else x, given)


def _widest(tree: Any) -> Any:
    types = [leaf.dtype for leaf in jax.tree.leaves(tree) if is_parameter(leaf)]
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*types) if types else None


def _lift(environment: Any, widest: Any, leaf: Any) -> Any:
    """An array as a torchax tensor; anything else as it is."""
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return leaf
    array = jnp.asarray(leaf)
    return environment.tensor(array.astype(widest) if is_parameter(array) else array)


def _lower(torch: Any, leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.jax() if hasattr(leaf, "jax") else jnp.asarray(as_numpy(torch, leaf))


# -- torchax, with what it changes put back --------------------------------------------------------


@contextlib.contextmanager
def _slow_attention(torch: Any) -> Iterator[None]:
    """torch's fast attention path off, since it cannot be traced, and then as it was."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _removed_overloads(torch: Any) -> Iterator[None]:
    """While torchax is imported, overloads that this torch no longer has are stand-ins.

    torchax 0.0.13 lists overloads for named tensors, which torch 2.13 has removed. It uses them as
    keys of tables only, so a key that never occurs does no harm.
    """
    packet = torch._ops.OpOverloadPacket
    before = packet.__getattr__

    def tolerant(self: Any, name: str) -> Any:
        try:
            return before(self, name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return f"{self._qualified_op_name}.{name} is not in this torch"

    packet.__getattr__ = tolerant
    try:
        yield
    finally:
        packet.__getattr__ = before


@functools.cache
def _torchax() -> Any:
    """torchax, imported once."""
    import torch

    fast = torch.backends.mha.get_fastpath_enabled()
    settings, telemetry = dict(jax.config.values), os.environ.get(TELEMETRY)
    try:
        with _removed_overloads(torch), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torchax
            import torchax.tensor

            torchax.tensor.Environment()  # loads the rest of its tables
    except (ImportError, AttributeError, RuntimeError) as error:
        raise checks.BadInput(
            f"torchax could not be imported ({_line(error)}); install the versions that belong "
            f"together with {INSTALL}."
        ) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        if telemetry is None:
            os.environ.pop(TELEMETRY, None)
        for name, value in settings.items():
            if jax.config.values[name] != value:
                jax.config.update(name, value)
    return torchax


def _environment() -> Any:
    """torchax's table of operations, whose random numbers come from a key that was given."""
    tensors = _torchax().tensor

    class Environment(tensors.Environment):
        key: Any = None

        def get_and_rotate_prng_key(self, generator: Any = None) -> Any:
            if self.key is None:
                raise checks.BadInput(
                    "this module draws random numbers (dropout in training mode?), which needs a "
                    "key; call module.eval() before from_torch, or apply(…, dropout_key=key)."
                )
            self.key, used = jax.random.split(self.key)
            return used

        @contextlib.contextmanager
        def drawing(self, key: Any) -> Iterator[None]:
            self.key = key
            try:
                yield
            finally:
                self.key = None

        def tensor(self, array: Any) -> Any:
            return tensors.Tensor(array, self)

    return Environment()
