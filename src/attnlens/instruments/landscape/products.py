"""A loss at a point: its value, its gradient, and products with its curvature matrices.

    L(w) = (1/N) Σ_i ℓ(f(w, x_i), y_i)

    hessian        H = ∇²L(w)
    gauss-newton   G = (1/N) Σ_i J_iᵀ ℓ''_i J_i    J_i = ∂f(w, x_i)/∂w      (Schraudolph, 2002)
    fisher         F = (1/N) Σ_i g_i g_iᵀ          g_i = ∇ℓ_i: empirical, with y_i as observed

No matrix is formed. A product with H is the derivative of the gradient along a direction
(Pearlmutter, 1994). A product with G is a forward pass, a multiplication by ℓ'' and a backward
pass; a product with F is a forward and a backward pass through the losses of single samples.
Several directions are computed together, so that the gradient itself is computed once for all of
them. Data are processed in chunks, whose products are summed in NumPy, so data that do not fit into
memory can stay on disk (`np.memmap`).

All compiled functions take parameters and data as arguments: data in a closure would become
constants of the compiled program, and compilation would take minutes.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from attnlens.core import arrays, checks
from attnlens.networks.losses import Loss, named

from .flat_losses import flat_loss, is_parameter, traced_bytes

MATRICES = ("hessian", "gauss-newton", "fisher")
PRECISIONS = ("float32", "float64")
# Maximum size in bytes of the intermediate arrays of one chunk, if `chunk` is not given. Larger
# arrays do not fit the processor's cache: for a transformer of 20,000 parameters, a product with
# 512 rows at a time took 1.6 times as long as with 16 rows at a time.
CACHE = 1 << 24
REUSED = 1 << 28  # data of at most this many bytes stay converted for the next product


@dataclasses.dataclass(frozen=True)
class Supervised:
    """The mean loss of a model over data = (inputs, targets). Its parts can be called separately:
    Gauss–Newton needs the outputs and Fisher the loss of each sample.

    `criterion` is a loss of one sample, (outputs, target) -> number, or its name (`squared`,
    `logistic`, `softmax`, …). `apply(params, input)` returns the outputs of one sample; without it,
    the parameters must be a model that can be called: params(input).

    >>> from attnlens.networks import Baseline
    >>> model = Baseline(jax.random.key(0), features=2, hidden=3)
    >>> loss = Supervised("squared")
    >>> loss(model, (jnp.ones((4, 2)), jnp.ones((4, 1)))).shape
    ()
    """

    criterion: str | Loss = "squared"
    apply: Callable[[Any, Any], Any] | None = None

    def __post_init__(self):
        named(self.criterion)

    def outputs(self, params: Any, inputs: Any) -> Any:
        return jax.vmap(params if self.apply is None else lambda x: self.apply(params, x))(inputs)  # pyright: ignore[reportOptionalCall] (not None in this branch)

    def sample_losses(self, outputs: Any, targets: Any) -> Float[Array, " samples"]:
        return jax.vmap(named(self.criterion))(outputs, targets)

    def __call__(self, params: Any, data: Any) -> Float[Array, ""]:
        inputs, targets = data
        return jnp.mean(self.sample_losses(self.outputs(params, inputs), targets))


class ExternalLoss(ABC):
    """A loss that does not consist of JAX operations and computes its own derivatives.

    The arguments of its methods are trees of arrays (parameters, a direction of the same structure,
    a chunk of data); the methods return numbers and trees of NumPy arrays. Only the Hessian is
    available, not the Gauss–Newton and Fisher matrices.
    """

    @abstractmethod
    def value(self, params: Any, data: Any) -> float: ...

    @abstractmethod
    def value_and_gradient(self, params: Any, data: Any) -> tuple[float, Any]: ...

    @abstractmethod
    def product(self, params: Any, direction: Any, data: Any) -> Any: ...

    def __call__(self, params: Any, data: Any) -> float:
        return self.value(params, data)


class Subject:
    """A loss at one point of its parameters, on its data, in one precision; never changed.

    loss: a function of (params, data) that is a *mean* over the rows of data; without data, a
        function of params alone.
    params: any tree; its floating-point arrays are the parameters, in the order of the tree.
    data: any tree of arrays with samples along the first axis.
    chunk: rows of data per computation; by default as many as fit the processor's cache.
    precision: the precision of computations, "float64" or "float32".
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        params: Any,
        data: Any = None,
        *,
        chunk: int | None = None,
        precision: str = "float64",
    ):
        self.loss, self.precision = loss, checks.one_of("precision", precision, PRECISIONS)
        if not callable(loss):
            raise checks.BadInput(
                f"loss must be a function of (params, data); got {type(loss).__name__}."
            )
        self.chunk = None if chunk is None else checks.whole("chunk", chunk, at_least=1)
        self.data = None if data is None else jax.tree.map(self._native, data)
        self.rows = 0 if data is None else _rows(self.data)
        _check_masks("params", params)
        with self.numbers():
            trainable, self.rest = eqx.partition(params, is_parameter)
            self.leaves, self.tree = jax.tree.flatten(trainable)
            if not self.leaves:
                raise checks.BadInput(
                    "params must hold at least one floating-point array; got none."
                )
            if not any(np.size(leaf) for leaf in self.leaves):
                raise checks.BadInput("params must hold at least one number; got empty arrays.")
            self.paths = [
                jax.tree_util.keystr(path, simple=True, separator=".")
                for path, _ in jax.tree_util.tree_flatten_with_path(trainable)[0]
            ]
            self.shapes = [np.shape(leaf) for leaf in self.leaves]
            flat = [np.asarray(leaf, self.precision).ravel() for leaf in self.leaves]
        self.vector = np.concatenate(flat).astype(float)
        self.vector.flags.writeable = False
        self.size = self.vector.size
        self._converted: dict[int, list[tuple[float, Any]]] = {}
        self._row_bytes: int | None = None

    def _native(self, leaf: Any) -> Any:
        """Convert a leaf of the data to a type that JAX supports; `np.memmap` stays on disk."""
        if isinstance(leaf, np.memmap):
            arrays.real_numbers("data", leaf[:0])
            return leaf
        if not (isinstance(leaf, np.ndarray) or hasattr(leaf, "to_numpy")):
            return leaf
        array = arrays.real_numbers("data", leaf)
        if array.dtype.itemsize > 8:  # a float type of more than 64 bits
            return array.astype(np.float64)
        if self.precision == "float32" and array.dtype.kind in "iu" and array.size:
            limits = np.iinfo(np.int32)
            if array.min() < limits.min or array.max() > limits.max:
                raise checks.BadInput(
                    f"whole numbers of data must fit into 32 bits in float32; got {array.min()} "
                    f"to {array.max()}; convert them to floating point."
                )
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def numbers(self) -> Any:
        """Return a context in which float64 is enabled if `precision` is "float64"."""
        return jax.enable_x64(self.precision == "float64")

    def places(self) -> Iterator[tuple[str, slice]]:
        """Yield the path of each array of parameters in the tree, and its slice of the vector."""
        start = 0
        for path, shape in zip(self.paths, self.shapes, strict=True):
            size = int(np.prod(shape))
            yield path, slice(start, start + size)
            start += size

    def restore(self, vector: np.ndarray) -> Any:
        """Return a parameter vector as a tree with the structure of the parameters."""
        parts = [
            np.asarray(vector[place], self.precision).reshape(shape)
            for (_, place), shape in zip(self.places(), self.shapes, strict=True)
        ]
        return eqx.combine(jax.tree.unflatten(self.tree, parts), self.rest)

    def flatten(self, params: Any) -> np.ndarray:
        """Return a tree with the structure of the parameters as a vector."""
        _check_masks("every tree", params)
        leaves, tree = jax.tree.flatten(eqx.filter(params, is_parameter))
        shapes = [np.shape(leaf) for leaf in leaves]
        if tree != self.tree or shapes != self.shapes:
            raise checks.BadInput(
                f"every tree must have the arrays of the parameters, {self.shapes}; got {shapes}."
            )
        return np.concatenate([np.asarray(leaf, float).ravel() for leaf in leaves])

    def rows_at_once(self, width: int = 1) -> int:
        """Return the number of rows per chunk if `width` directions are computed together."""
        # The memory of an external loss is not known, because it cannot be traced.
        if self.chunk is not None or isinstance(self.loss, ExternalLoss):
            return min(self.chunk or self.rows, self.rows)
        most = int(np.clip(CACHE // (width * self.row_bytes()), 1, self.rows))
        return math.ceil(self.rows / math.ceil(self.rows / most))  # chunks of about equal size

    def row_bytes(self) -> int:
        """Return how many bytes one sample adds to the intermediate arrays of the loss."""
        if self._row_bytes is None:
            with self.numbers():
                point = self.point(None)
                sizes = [
                    traced_bytes(self.loss, point, jax.tree.map(lambda leaf: leaf[:n], self.data))  # noqa: B023 (called before the loop goes on)
                    for n in (1, 2)
                ]
            self._row_bytes = max(sizes[1] - sizes[0], 1)
        return self._row_bytes

    def chunks(self, width: int = 1) -> Iterator[tuple[float, Any]]:
        """Yield (share of the samples, data) per chunk; (1, None) if there are no data."""
        if self.data is None:
            yield 1.0, None
            return
        count = self.rows_at_once(width)
        if count in self._converted:
            yield from self._converted[count]
            return
        leaves = jax.tree.leaves(self.data)
        # Small data are kept as JAX arrays for the next product; data on disk are read each time.
        keep = not any(isinstance(leaf, np.memmap) for leaf in leaves)
        keep &= sum(leaf.nbytes for leaf in leaves) <= REUSED
        parts = []
        for start in range(0, self.rows, count):
            part = jax.tree.map(lambda leaf: leaf[start : start + count], self.data)  # noqa: B023 (called before the loop goes on)
            share = min(count, self.rows - start) / self.rows
            chunk = (share, jax.tree.map(self.cast, part))
            parts += [chunk] if keep else []
            yield chunk
        if keep:
            self._converted[count] = parts

    def value_and_gradient(self, vector: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        with self.numbers():
            at, total, gradient = self.point(vector), 0.0, np.zeros(self.size)
            for share, data in self.chunks():
                if isinstance(self.loss, ExternalLoss):
                    value, slope = self.loss.value_and_gradient(at, data)
                    slope = self.flatten(slope)
                else:
                    value, slope = _value_and_gradient(self.loss, at, data)
                total += share * float(value)
                gradient += share * np.asarray(slope, float)
        return total, gradient

    def times(
        self,
        vectors: np.ndarray,
        matrix: str = "hessian",
        *,
        at: np.ndarray | None = None,
        width: int = 1,
    ) -> np.ndarray:
        """Return the matrix times each row of `vectors`; a compiled call computes `width` rows.

        The matrix is taken at the parameters `at`, by default at the subject's own parameters.
        """
        checks.one_of("matrix", matrix, MATRICES)
        if matrix != "hessian" and not isinstance(self.loss, Supervised):
            raise checks.BadInput(
                f"the {matrix} matrix needs the outputs separately from the loss; give "
                f"loss=Supervised(criterion, apply) and data=(inputs, targets)."
            )
        directions = np.atleast_2d(vectors)
        products = np.empty(directions.shape)
        with self.numbers():
            point = self.point(at)
            if isinstance(self.loss, ExternalLoss):
                products = [self._product(point, row) for row in directions]
                return np.reshape(products, np.shape(vectors))
            for start in range(0, len(directions), width):
                part = directions[start : start + width]
                # The last part is padded: another number of rows would need another compilation.
                full = np.zeros((width, self.size), self.precision)
                full[: len(part)] = part
                rows = jnp.asarray(full)
                total = np.zeros((width, self.size))
                for share, data in self.chunks(width):
                    total += share * np.asarray(_times(matrix, self.loss, point, rows, data))
                products[start : start + len(part)] = total[: len(part)]
        return products.reshape(np.shape(vectors))

    def _product(self, point: Any, row: np.ndarray) -> np.ndarray:
        """Return the Hessian of an external loss times one direction."""
        loss, direction = cast(ExternalLoss, self.loss), self.restore(row)
        total = np.zeros(self.size)  # a running sum: memory does not grow with the number of chunks
        for share, data in self.chunks():
            total += share * self.flatten(loss.product(point, direction, data))
        return total

    def point(self, vector: np.ndarray | None) -> Any:
        point = self.restore(self.vector if vector is None else vector)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf) if is_parameter(leaf) else leaf, point)

    def cast(self, leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(np.asarray(leaf), self.precision)
        return jnp.asarray(leaf)


def _check_masks(name: str, tree: Any) -> None:
    """Raise `BadInput` if an array of a tree has masked entries, because JAX ignores masks."""
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, np.ma.MaskedArray):
            arrays.plain(name, leaf)


def _rows(data: Any) -> int:
    counts = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(data)}
    if len(counts) != 1 or () in counts or (0,) in counts:
        shapes = [str(np.shape(leaf)) for leaf in jax.tree.leaves(data)]
        raise checks.BadInput(
            f"data must be arrays with equally many samples along the first axis; got shapes "
            f"{', '.join(shapes[:4])}{', …' * (len(shapes) > 4)}; convert lists by numpy.asarray."
        )
    return counts.pop()[0]


@eqx.filter_jit
def _value_and_gradient(loss: Any, params: Any, data: Any) -> tuple[Array, Array]:
    vector, value = flat_loss(loss, params, data)
    return jax.value_and_grad(value)(vector)


@eqx.filter_jit
def _times(
    matrix: str,
    loss: Any,
    params: Any,
    directions: Float[Array, "width size"],
    data: Any,
) -> Float[Array, "width size"]:
    vector, value = flat_loss(loss, params, data)
    if matrix == "hessian":
        slope = jax.grad(value)
        return jax.vmap(lambda d: jax.jvp(slope, (vector,), (d,))[1])(directions)

    (inputs, targets), trainable_rest = data, eqx.partition(params, is_parameter)
    restore = ravel_pytree(trainable_rest[0])[1]

    def outputs(w: Array) -> Any:
        return loss.outputs(eqx.combine(restore(w), trainable_rest[1]), inputs)

    if matrix == "gauss-newton":
        here, back = jax.vjp(outputs, vector)
        output_slope = jax.grad(lambda predicted: jnp.mean(loss.sample_losses(predicted, targets)))

        def product(direction: Array) -> Array:
            forward = jax.jvp(outputs, (vector,), (direction,))[1]
            return back(jax.jvp(output_slope, (here,), (forward,))[1])[0]

    else:
        sample_losses = lambda w: loss.sample_losses(outputs(w), targets)  # noqa: E731 (a formula in one line)
        back = jax.vjp(sample_losses, vector)[1]

        def product(direction: Array) -> Array:
            slopes = jax.jvp(sample_losses, (vector,), (direction,))[1]
            return back(slopes / slopes.shape[0])[0]

    return jax.vmap(product)(directions)
