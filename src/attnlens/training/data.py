"""The data of a fit as arrays in one precision, and checks that network, data and loss match."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from attnlens.core import arrays, checks
from attnlens.networks.layout import Layout
from attnlens.networks.losses import named

from . import streaming
from .settings import Recipe, Settings

ENTRY_BY_ENTRY = ("squared", "logistic")  # losses that compare each output with its own target


class Data(NamedTuple):
    """Inputs and targets; leaves have axes (data set, sample, …)."""

    inputs: Any
    targets: Any


def as_data(name: str, inputs: Any, targets: Any, dtype: str, per_seed: bool) -> Data:
    """Return inputs and targets as arrays with a leading axis of data sets.

    The axis is added unless `per_seed` is true: then it is there already. Floating-point arrays are
    converted to `dtype`. `name` is the name of the data in error messages.
    """

    def leaf(array: Any) -> Any:
        if isinstance(array, np.memmap):
            if per_seed:
                raise checks.BadInput(
                    f"{name} on disk cannot hold one data set per seed; call fit once for each."
                )
            arrays.real_numbers(name, array[:0])  # checks the type only, without reading the file
            mapped = streaming.handle(array)
            return mapped._replace(shape=(1, *mapped.shape))
        array = arrays.real_numbers(name, array)
        if np.issubdtype(array.dtype, np.floating):
            try:
                with np.errstate(over="raise"):
                    array = array.astype(dtype)
            except FloatingPointError as error:
                raise checks.BadInput(
                    f"{name} must fit into {dtype}; got numbers as large as "
                    f"{np.nanmax(np.abs(array)):.3g}; change their unit."
                ) from error
        elif np.issubdtype(array.dtype, np.integer):
            array = streaming.int32(name, array)
        return array if per_seed else array[None]

    return jax.tree.map(leaf, Data(inputs, targets))


def row_count(name: str, data: Data) -> int:
    """The number of samples in each data set, the same for inputs and targets."""
    leaves = jax.tree.leaves(data, is_leaf=streaming.is_mapped)
    if any(len(leaf.shape) < 2 for leaf in leaves):
        raise checks.BadInput(
            f"inputs and targets of {name} must be arrays with samples along the first axis; got "
            f"single numbers; convert lists by numpy.asarray."
        )
    lengths = {leaf.shape[1] for leaf in leaves}
    if len(lengths) != 1:
        raise checks.BadInput(
            f"inputs and targets of {name} must have equally many samples; got {sorted(lengths)}."
        )
    if any(0 in leaf.shape for leaf in jax.tree.leaves(data.targets, is_leaf=streaming.is_mapped)):
        raise checks.BadInput(
            f"targets of {name} must hold at least one number per sample; got an empty array."
        )
    return lengths.pop()


def check_model(settings: Settings, recipe: Recipe, data: Data) -> None:
    """Pass the shapes of one sample through network and loss, so that a mismatch is found early."""
    layout = Layout.of(recipe)
    if settings.penalised_gates and not layout.gates:
        raise checks.BadInput(
            "l1_gates needs a network with input gates; wrap it: Gated(network, shape=…)."
        )
    sample = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], _kind(leaf.dtype, settings.dtype)),
        data,
        is_leaf=streaming.is_mapped,
    )
    with jax.enable_x64(settings.dtype == "float64"):
        vector = jax.ShapeDtypeStruct((layout.size,), settings.dtype)
        key = jax.eval_shape(jax.random.key, 0)
        if settings.penalised_entropy and not hasattr(jax.eval_shape(recipe, key), "attention"):
            raise checks.BadInput(
                "entropy needs a network with attention(x), such as SelfAttention; leave it at 0."
            )
        try:
            outputs = jax.eval_shape(lambda v, x: layout.restore(v)(x), vector, sample.inputs)
            jax.eval_shape(named(settings.loss), outputs, sample.targets)
            if settings.loss in ENTRY_BY_ENTRY:
                _check_entries(outputs, sample.targets)
        except checks.ExplainedError:
            raise
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            raise checks.BadInput(
                f"network, data and loss must fit together, but a sample with inputs "
                f"{_shapes(sample.inputs)} and targets {_shapes(sample.targets)} does not: {reason}"
            ) from error


def _check_entries(outputs: Any, targets: Any) -> None:
    """Raise `BadInput` for outputs and targets of different sizes, which would be broadcast."""
    together = math.prod(np.broadcast_shapes(outputs.shape, targets.shape))
    if not math.prod(outputs.shape) == math.prod(targets.shape) == together:
        raise checks.BadInput(
            f"a sample's target must have one entry per output of the network; got targets of "
            f"shape {targets.shape} for outputs of shape {outputs.shape}."
        )


def _kind(dtype: Any, precision: str) -> Any:
    return np.dtype(precision) if np.issubdtype(np.dtype(dtype), np.floating) else np.dtype(dtype)


def _shapes(tree: Any) -> str:
    return ", ".join(str(leaf.shape) for leaf in jax.tree.leaves(tree))
