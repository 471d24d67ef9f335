"""The loss of a PyTorch module with derivatives computed by PyTorch: no torchax, no tracing.

    params, loss = torch_loss(module, criterion)
    L(w) = criterion(module_w(inputs), targets),   ∇L by torch.func.grad,
    H d  = ∇⟨∇L(w), d⟩                             by torch.func.grad of ∇L (Pearlmutter, 1994)

L is the loss at parameters w, H its Hessian, d a direction. `curvature(loss, params, (inputs,
targets))` and `surface` then compute values, gradients and Hessian products with PyTorch; spectra,
traces and slices are computed from these by the same code as for JAX losses. Use `torch_loss` for
modules that `from_torch` cannot convert. Gauss–Newton and Fisher matrices need `from_torch`.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from attnlens.core import checks
from attnlens.instruments.landscape.products import ExternalLoss

from .modules import INSTALL, as_numpy


def torch_loss(
    module: Any, criterion: Callable[[Any, Any], Any]
) -> tuple[dict[str, np.ndarray], TorchLoss]:
    """(params, loss) of a `torch.nn.Module`, for `curvature` and `surface`, without torchax.

    criterion: a function (outputs, targets) that returns the *mean* loss over the samples, computed
        with torch operations, such as `torch.nn.functional.mse_loss`.

    The returned `loss` takes (params, data) with data = (inputs, targets); inputs is one array, or
    a tuple with the arguments of the module.
    """
    if find_spec("torch") is None:
        raise checks.BadInput(
            f"torch_loss needs torch, which is not installed; install it with {INSTALL}."
        )
    import torch

    if not isinstance(module, torch.nn.Module) or not callable(criterion):
        raise checks.BadInput(
            f"torch_loss takes a torch.nn.Module and a function of (outputs, targets); got "
            f"{type(module).__name__} and {type(criterion).__name__}."
        )
    loss = TorchLoss(copy.deepcopy(module), criterion)
    named = module.named_parameters()
    return {name: as_numpy(torch, p) for name, p in named if p.requires_grad}, loss


class TorchLoss(ExternalLoss):
    """The loss that `torch_loss` returns: values and derivatives as functions of the parameters."""

    def __init__(self, module: Any, criterion: Callable[[Any, Any], Any]):
        self.module, self.criterion = module, criterion

    def value(self, params: Any, data: Any) -> float:
        import torch

        with self._deterministic(torch), torch.no_grad():
            return float(self._loss_function(torch, data)(_tensors(torch, params)))

    def value_and_gradient(self, params: Any, data: Any) -> tuple[float, Any]:
        import torch

        with self._deterministic(torch):
            derivative = torch.func.grad_and_value(self._loss_function(torch, data))
            gradient, value = derivative(_tensors(torch, params))
        return float(value), _arrays(torch, gradient)

    def product(self, params: Any, direction: Any, data: Any) -> Any:
        import torch

        with self._deterministic(torch):
            gradient = torch.func.grad(self._loss_function(torch, data))
            tensors = _tensors(torch, direction)

            def directional(point: Any) -> Any:
                """The inner product ⟨∇L(point), d⟩."""
                slopes = gradient(point)
                return sum((slope * tensors[name]).sum() for name, slope in slopes.items())

            product = torch.func.grad(directional)(_tensors(torch, params))
        return _arrays(torch, product)

    def _loss_function(self, torch: Any, data: Any) -> Callable[[Any], Any]:
        """The loss on `data` as a function of the parameters, in the parameters' dtype."""
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise checks.BadInput(
                f"the loss of a PyTorch module needs data=(inputs, targets); got "
                f"{type(data).__name__}."
            )
        inputs, targets = data
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)

        def loss(params: Any) -> Any:
            dtype = next(iter(params.values())).dtype
            fixed = {
                name: tensor.detach().to(dtype) if tensor.is_floating_point() else tensor
                for name, tensor in [*self.module.named_parameters(), *self.module.named_buffers()]
                if name not in params
            }
            arguments = tuple(_tensor(torch, x, dtype) for x in inputs)
            outputs = torch.func.functional_call(self.module, {**fixed, **params}, arguments)
            return self.criterion(outputs, _tensor(torch, targets, dtype))

        return loss

    @contextlib.contextmanager
    def _deterministic(self, torch: Any) -> Iterator[None]:
        """Inside this context, torch computes attention without its fast kernels, which have no
        second derivatives. On exit, `BadInput` is raised if random numbers were drawn.
        """
        from torch.nn.attention import SDPBackend, sdpa_kernel

        fast, before = torch.backends.mha.get_fastpath_enabled(), torch.get_rng_state()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with sdpa_kernel(SDPBackend.MATH):
                yield
            drawn = not torch.equal(before, torch.get_rng_state())
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            torch.set_rng_state(before)
        if drawn:
            raise checks.BadInput(
                "the loss must be a function of the parameters, but this module draws random "
                "numbers (dropout in training mode?); call module.eval() before torch_loss."
            )


def _tensor(torch: Any, array: Any, dtype: Any) -> Any:
    """`array` as a tensor: floating-point values in `dtype`, integers in 64 bits.

    torch's losses need class numbers in 64 bits; JAX has them in 32 bits unless x64 is enabled.
    """
    values = np.array(array)
    tensor = torch.tensor(values.astype(np.int64) if values.dtype.kind in "iu" else values)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _tensors(torch: Any, tree: Any) -> dict[str, Any]:
    return {name: torch.tensor(np.array(array)) for name, array in tree.items()}


def _arrays(torch: Any, tree: Any) -> dict[str, np.ndarray]:
    return {name: as_numpy(torch, tensor) for name, tensor in tree.items()}
