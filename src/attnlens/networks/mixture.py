"""Mixtures of Gaussians with full covariances, as the output of a posterior head.

    q(z) = Σ_c w_c N(z; m_c, Λ_c⁻¹),   Λ_c = R_c R_cᵀ,   R_c lower triangular, R_c,ii > 0

A network returns one row per component: the logit of w_c, the d entries of m_c, and the d (d + 1)/2
entries of R_c, row by row, those on the diagonal as logarithms. Every such array is a mixture, so
training needs no constraints (Bishop, Mixture density networks, 1994).

For thin curved posteriors a normalising flow, which transforms space, suits better than a mixture,
which needs many components. A mixture is used here because its density, draws and mean are exact
and cheap, and because the mixtures of several networks can be combined to one. Its parameters are
one vector of floats, like those of every other network, so `fit` trains it and `Fitted.save` writes
it without another library.

distrax (0.1.9) has mixtures too, but requires a nightly build of TensorFlow Probability. flowjax
(19.1.2; equinox and paramax) has conditional flows and mixtures whose parameters are fixed, so that
the layout above would still be needed, and only `log_prob` and `sample` would be saved.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

LOG_2PI = math.log(2 * math.pi)


def row_size(dim: int) -> int:
    """The number of outputs per component for a latent of `dim` coordinates.

    >>> row_size(2)  # a logit, two means, three entries of a triangle
    6
    """
    return 1 + dim + dim * (dim + 1) // 2


class FullMixture(NamedTuple):
    """Log weights, means and lower triangular roots of the precisions, one per component.

    >>> law = FullMixture.of(jnp.zeros((3, 6)), 2)  # three times the standard normal law
    >>> round(float(law.log_prob(jnp.zeros(2))), 4)
    -1.8379
    """

    log_weights: Float[Array, " components"]
    means: Float[Array, "components dim"]
    roots: Float[Array, "components dim dim"]

    @classmethod
    def of(cls, outputs: Float[Array, "components entries"], dim: int) -> FullMixture:
        """The mixture that these outputs of a network describe."""
        rows, columns = np.tril_indices(dim)
        triangle = outputs[:, 1 + dim :]
        entries = jnp.where(jnp.asarray(rows == columns)[None], jnp.exp(triangle), triangle)
        roots = jnp.zeros((outputs.shape[0], dim, dim), outputs.dtype)
        return cls(
            jax.nn.log_softmax(outputs[:, 0]),
            outputs[:, 1 : 1 + dim],
            roots.at[:, rows, columns].set(entries),
        )

    def log_prob(self, value: Float[Array, " dim"]) -> Float[Array, ""]:
        """log q(z) = log Σ_c w_c det R_c e^{−½‖R_cᵀ(z − m_c)‖²} − (d/2) log 2π at z = `value`."""
        whitened = jnp.einsum("cij,ci->cj", self.roots, value[None] - self.means)
        scale = jnp.sum(jnp.log(jnp.diagonal(self.roots, axis1=1, axis2=2)), 1)
        logs = self.log_weights + scale - 0.5 * jnp.sum(whitened**2, 1)
        return jax.nn.logsumexp(logs) - 0.5 * LOG_2PI * value.shape[0]

    def sample(self, key: Key[Array, ""]) -> Float[Array, " dim"]:
        """One draw: m_c + R_c⁻ᵀ e with e ~ N(0, I), from a component c that is drawn first."""
        for_component, for_point = jax.random.split(key)
        c = jax.random.categorical(for_component, self.log_weights)
        noise = jax.random.normal(for_point, self.means.shape[1:], self.means.dtype)
        return self.means[c] + _solve_transposed(self.roots[c], noise)

    @property
    def mean(self) -> Float[Array, " dim"]:
        return jnp.exp(self.log_weights) @ self.means


def _solve_transposed(
    root: Float[Array, "dim dim"], right: Float[Array, " dim"]
) -> Float[Array, " dim"]:
    """The solution x of Rᵀ x = right, by back substitution.

    It does not call LAPACK, because batches of LAPACK calls must not overlap where JAX runs many
    threads.
    """
    x = jnp.zeros_like(right)
    for i in reversed(range(right.shape[0])):
        x = x.at[i].set((right[i] - root[:, i] @ x) / root[i, i])
    return x
