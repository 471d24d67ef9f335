"""A PyTorch module as a pure JAX function: (parameters, apply), through torchax.

    params, apply = from_torch(module)
    apply(params, x) = module(x)                    to rounding, for every x that the module takes

`params` are the module's trainable parameters by name. Buffers, parameters that do not require a
gradient, and tensors that are plain attributes are constants of `apply`, with the values that they
had at conversion. The result consists of JAX operations: it can be compiled, vmapped and
differentiated any number of times, so it works with every instrument that takes a loss, an encoder
or a function of tokens.

The module itself is never run: a deep copy of it is run, in which traced tensors replace its
tensors. Python code that depends on the *values* of tensors cannot be traced. A module that draws
random numbers needs a key.
Importing torchax changes torch's fast attention path, environment variables and JAX settings; all
of them are restored. Only the name "jax" of torch's spare device (privateuse1) remains, because
torch cannot rename it back.
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

from attnlens.core import checks
from attnlens.instruments.landscape.flat_losses import is_parameter

INSTALL = "pip install 'attnlens[torch]'"
# Environment variables that change as a side effect: torchax sets the first to 1 on import, and
# torch sets the second when tracing loads torch's compiler.
VARIABLES = ("ENABLE_RUNTIME_UPTIME_TELEMETRY", "TORCHINDUCTOR_CACHE_DIR")
# Only one thread traces at a time: tracing changes the tensors of the copied module and a global
# setting of torch.
TRACING = threading.RLock()


def from_torch(module: Any) -> tuple[dict[str, np.ndarray], Callable[..., Any]]:
    """(params, apply) of a `torch.nn.Module`; the module is not changed.

    params: the trainable parameters by name, as NumPy arrays: a pytree for `jax.grad`, `curvature`
        and the other instruments.
    apply(params, *inputs, dropout_key=None, **keywords): the module's outputs as JAX arrays
        (mappings as dictionaries). Everything is computed in the widest floating-point type among
        parameters and inputs. A module in training mode draws its dropout from `dropout_key`;
        to convert without dropout, call `module.eval()` first.

    Tied weights occur in `params` once. If the module changes later, `apply` does not: convert it
    again.
    """
    torch = required()
    if not isinstance(module, torch.nn.Module):
        raise checks.BadInput(
            f"from_torch takes a torch.nn.Module; got {type(module).__name__}; wrap a "
            f"function in a module whose forward calls it."
        )
    module_copy = _copy(torch, module)
    environment = _environment()
    named = dict(module_copy.named_parameters())
    params = {name: as_numpy(torch, p) for name, p in named.items() if p.requires_grad}
    fixed = {name: as_numpy(torch, p) for name, p in named.items() if not p.requires_grad}
    fixed |= {name: as_numpy(torch, buffer) for name, buffer in module_copy.named_buffers()}

    def apply(
        params: Mapping[str, Any], *inputs: Any, dropout_key: Any = None, **keywords: Any
    ) -> Any:
        if not isinstance(params, Mapping) or set(params) != names:
            got = sorted(params) if isinstance(params, Mapping) else type(params).__name__
            raise checks.BadInput(
                f"params must have the names that from_torch returned, {sorted(names)}; got {got}."
            )
        arguments = _tensors_to_numpy(torch, (inputs, keywords))
        return _call(module_copy, environment, dict(params), fixed, arguments, dropout_key)

    names = set(params)
    return params, apply


def required() -> Any:
    """The module torch; raises `BadInput` if torch or torchax is not installed."""
    missing = [name for name in ("torch", "torchax") if find_spec(name) is None]
    if missing:
        raise checks.BadInput(
            f"from_torch needs torch and torchax, but {' and '.join(missing)} is not installed; "
            f"install both with {INSTALL}."
        )
    import torch

    return torch


def as_numpy(torch: Any, tensor: Any) -> np.ndarray:
    """A copy of a tensor as a NumPy array."""
    detached = tensor.detach().cpu()
    if detached.dtype == torch.bfloat16:  # NumPy has this type only through JAX
        return detached.view(torch.int16).numpy().view(jnp.bfloat16).copy()
    return detached.numpy().copy()


# -- the copy that is traced -----------------------------------------------------------------------


def _copy(torch: Any, module: Any) -> Any:
    """A deep copy of the module, with tensors that are plain attributes registered as buffers."""
    name = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        raise checks.BadInput(
            f"from_torch needs a module whose forward is Python code; got {name}, which is "
            f"compiled by TorchScript; give the original module."
        )
    if any(torch.nn.parameter.is_lazy(p) for p in [*module.parameters(), *module.buffers()]):
        raise checks.BadInput(
            f"from_torch needs parameters that have a shape; got {name}, which is lazy and has not "
            f"been called; call it once first."
        )
    try:
        module_copy = copy.deepcopy(module)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise checks.BadInput(
            f"from_torch needs a module that can be copied; got {name}, which cannot "
            f"({_first_line(error)}); keep computed tensors out of its attributes."
        ) from error
    for part in module_copy.modules():
        for attribute, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor):
                delattr(part, attribute)
                part.register_buffer(attribute, value.detach(), persistent=False)
    return module_copy


@eqx.filter_jit
def _call(
    module_copy: Any,
    environment: Any,
    params: dict[str, Any],
    fixed: dict[str, Any],
    arguments: Any,
    key: Any,
) -> Any:
    """Call the copied module with `params` and `fixed` in place of its tensors.

    It is compiled once per combination of input shapes.
    """
    import torch

    inputs, keywords = arguments
    widest = _widest((params, arguments)) if params else _widest((fixed, arguments))
    lift = functools.partial(_to_torchax, environment, widest)
    state, inputs, keywords = (
        _map_leaves(lift, part) for part in ({**fixed, **params}, inputs, keywords)
    )
    with (
        TRACING,
        environment.drawing(key),
        _slow_attention(torch),
        _same_variables(),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        try:
            with environment, torch.device("jax"):
                outputs = torch.func.functional_call(module_copy, state, inputs, keywords)
        except checks.ExplainedError:
            raise
        except Exception as error:
            raise checks.BadInput(_reason(type(module_copy).__name__, error)) from error
        return _map_leaves(functools.partial(_to_jax, torch), outputs)


def _reason(name: str, error: Exception) -> str:
    """The message that explains why the module `name` could not be run as a JAX function."""
    if isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError):
        return (
            f"{name} cannot be converted, because its Python code depends on the values of tensors "
            f"(if, int(), .item(), a boolean mask as an index); use torch.where, for example."
        )
    if type(error).__name__ == "OperatorNotFound":
        return (
            f"{name} cannot be converted, because it uses an operation that torchax does not have "
            f"({_first_line(error)}); replace that operation."
        )
    return (
        f"{name} cannot be run as a JAX function on these inputs ({type(error).__name__}: "
        f"{_first_line(error)}); check that PyTorch runs it on inputs of the same shapes."
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


# -- conversion of values --------------------------------------------------------------------------


def _map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `function` applied to its leaves; mappings of any kind become dictionaries."""
    if isinstance(value, Mapping):
        return {name: _map_leaves(function, part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map_leaves(function, part) for part in value))
    if isinstance(value, list | tuple):
        return type(value)([_map_leaves(function, part) for part in value])
    return function(value)


def _tensors_to_numpy(torch: Any, arguments: Any) -> Any:
    """The arguments, with torch tensors converted to NumPy arrays."""

    def convert(leaf: Any) -> Any:
        return as_numpy(torch, leaf) if isinstance(leaf, torch.Tensor) else leaf

    return _map_leaves(convert, arguments)


def _widest(tree: Any) -> Any:
    """The widest floating-point type in a pytree."""
    types = [leaf.dtype for leaf in jax.tree.leaves(tree) if is_parameter(leaf)]
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*types) if types else None


def _to_torchax(environment: Any, widest: Any, leaf: Any) -> Any:
    """An array as a torchax tensor; other values unchanged."""
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return leaf
    array = jnp.asarray(leaf)
    return environment.tensor(array.astype(widest) if is_parameter(array) else array)


def _to_jax(torch: Any, leaf: Any) -> Any:
    """A tensor as a JAX array; other values unchanged."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.jax() if hasattr(leaf, "jax") else jnp.asarray(as_numpy(torch, leaf))


# -- torchax, without its side effects -------------------------------------------------------------


@contextlib.contextmanager
def _slow_attention(torch: Any) -> Iterator[None]:
    """Disable torch's fast attention path, which cannot be traced, and restore the setting."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _same_variables() -> Iterator[None]:
    """On exit, remove the environment variables that were not set on entry."""
    absent = [name for name in VARIABLES if name not in os.environ]
    try:
        yield
    finally:
        for name in absent:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _removed_overloads(torch: Any) -> Iterator[None]:
    """Replace overloads that torch no longer has by placeholders while torchax is imported.

    torchax 0.0.13 refers to overloads for named tensors, which torch 2.13 has removed. It uses them
    only as keys of dictionaries, so a placeholder key, which is never looked up, does no harm.
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
    """The module torchax, imported once without side effects."""
    import torch

    fast = torch.backends.mha.get_fastpath_enabled()
    settings = dict(jax.config.values)
    try:
        with _removed_overloads(torch), _same_variables(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torchax
            import torchax.tensor

            torchax.tensor.Environment()  # imports the rest of torchax
    except (ImportError, AttributeError, RuntimeError) as error:
        raise checks.BadInput(
            f"torchax could not be imported ({_first_line(error)}); install compatible versions "
            f"with {INSTALL}."
        ) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for name, value in settings.items():
            if jax.config.values[name] != value:
                jax.config.update(name, value)
    return torchax


def _environment() -> Any:
    """torchax's environment, in which torch operations run on JAX arrays.

    Its random numbers come from an explicit key.
    """
    tensors = _torchax().tensor

    class Environment(tensors.Environment):
        key: Any = None

        def get_and_rotate_prng_key(self, generator: Any = None) -> Any:
            if self.key is None:
                raise checks.BadInput(
                    "this module draws random numbers (dropout in training mode?), which need a "
                    "key; call module.eval() before from_torch, or apply(…, dropout_key=key)."
                )
            self.key, subkey = jax.random.split(self.key)
            return subkey

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
