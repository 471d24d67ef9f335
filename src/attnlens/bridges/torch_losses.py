"""The loss of a PyTorch module with its derivatives, by PyTorch itself: no torchax, no tracing.

    params, loss = torch_loss(module, criterion)
    L(w) = criterion(module_w(inputs), targets),   ∇L by torch.func.grad,
    H d  = ∇⟨∇L(w), d⟩                             by torch.func.grad of it (Pearlmutter, 1994)

`curvature(loss, params, (inputs, targets))` and `surface` then go through PyTorch for values,
gradients and Hessian products, and through the same code as ever for spectra, traces and slices.
Use it for modules that `from_torch` cannot convert; Gauss–Newton and Fisher matrices need that one.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from attnlens import checks
from attnlens.instruments.products import Outside

from .torch_modules import INSTALL, as_numpy


def torch_loss(
    module: Any, criterion: Callable[[Any, Any], Any]
) -> tuple[dict[str, np.ndarray], TorchLoss]:
    """(params, loss) of a `torch.nn.Module`, for `curvature` and `surface`; no torchax needed.

    criterion: (outputs, targets) -> a *mean* over the samples, such as
        `torch.nn.functional.mse_loss`, in torch's operations. `inputs` is one array or a tuple of
        them, the module's arguments.
    """
    if find_spec("torch") is None:
        raise checks.BadInput(f"torch_loss needs torch, which is not installed; {INSTALL}.")
    import torch

    if not isinstance(module, torch.nn.Module) or not callable(criterion):
        raise checks.BadInput(
            f"torch_loss takes a torch.nn.Module and a function of (outputs, targets), but "
            f"{type(module).__name__} and {type(criterion).__name__} came."
        )
    loss = TorchLoss(copy.deepcopy(module), criterion)
    named = module.named_parameters()
    return {name: as_numpy(torch, p) for name, p in named if p.requires_grad}, loss


class TorchLoss(Outside):
    """What `torch_loss` gives: values and derivatives at parameters that are handed in."""

    def __init__(self, module: Any, criterion: Callable[[Any, Any], Any]):
        self.module, self.criterion = module, criterion

    def value(self, params: Any, data: Any) -> float:
        import torch

        with self._running(torch), torch.no_grad():
            return float(self._of(torch, data)(_tensors(torch, params)))

    def value_and_gradient(self, params: Any, data: Any) -> tuple[float, Any]:
        import torch

        with self._running(torch):
            slope = torch.func.grad_and_value(self._of(torch, data))
            gradient, value = slope(_tensors(torch, params))
        return float(value), _arrays(torch, gradient)

    def product(self, params: Any, direction: Any, data: Any) -> Any:
        import torch

        with self._running(torch):
            slope = torch.func.grad(self._of(torch, data))
            along = _tensors(torch, direction)

            def steepness(at: Any) -> Any:
                return sum((part * along[name]).sum() for name, part in slope(at).items())

            bent = torch.func.grad(steepness)(_tensors(torch, params))
        return _arrays(torch, bent)

    def _of(self, torch: Any, data: Any) -> Callable[[Any], Any]:
        """The loss as a function of the parameters, in their precision."""
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise checks.BadInput(
                f"the loss of a PyTorch module needs data=(inputs, targets), but "
                f"{type(data).__name__} came."
            )
        inputs, targets = data
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)

        def loss(params: Any) -> Any:
            kind = next(iter(params.values())).dtype
            fixed = {
                name: tensor.detach().to(kind) if tensor.is_floating_point() else tensor
                for name, tensor in [*self.module.named_parameters(), *self.module.named_buffers()]
                if name not in params
            }
            given = tuple(_tensor(torch, x, kind) for x in inputs)
            outputs = torch.func.functional_call(self.module, {**fixed, **params}, given)
            return self.criterion(outputs, _tensor(torch, targets, kind))

        return loss

    @contextlib.contextmanager
    def _running(self, torch: Any) -> Iterator[None]:
        """torch's attention in its plain form, which has all derivatives, and no random numbers."""
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
                "this module draws random numbers (dropout in training mode?), so its loss is not "
                "a function of the parameters; call module.eval() before torch_loss."
            )


def _tensor(torch: Any, array: Any, kind: Any) -> Any:
    plain = torch.tensor(np.array(array))
    return plain.to(kind) if plain.is_floating_point() else plain


def _tensors(torch: Any, tree: Any) -> dict[str, Any]:
    return {name: torch.tensor(np.array(array)) for name, array in tree.items()}


def _arrays(torch: Any, tree: Any) -> dict[str, np.ndarray]:
    return {name: as_numpy(torch, tensor) for name, tensor in tree.items()}
