"""Reference posteriors by the No-U-Turn sampler (NUTS) of NumPyro, and evidence from their draws.

A run is a pure function of its inputs, so one compiled program serves many episodes: vmap over
episodes, and over the chains of each (Hoffman and Gelman, JMLR 2014; Phan, Pradhan and
Jankowiak, Composable effects for flexible and accelerated probabilistic programming, 2019).

Evidence: with u the latent in unconstrained coordinates and U(u) minus the log joint density,
log p(tokens) = log E_q exp(−U(u) − log q(u)) for any density q with heavier tails. q is a
Student t with five degrees of freedom whose mean and covariance are those of the draws.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array, Float, Int, Key

from attnlens.core import checks

from .diagnostics import effective_sample_size, split_r_hat


class Nuts(eqx.Module):
    """Settings of NUTS: `draws` per chain are kept after `warmup` steps of adaptation.

    The defaults keep 2,000 draws. At the target acceptance probability of 0.9 divergences are rare
    in the worlds of this package.

    (Hoffman and Gelman, The no-U-turn sampler, JMLR 2014.)

    >>> settings = Nuts(chains=2, draws=250)
    >>> settings.chains * settings.draws
    500
    """

    chains: int = eqx.field(default=4, static=True)
    warmup: int = eqx.field(default=500, static=True)
    draws: int = eqx.field(default=500, static=True)
    target: float = eqx.field(default=0.9, static=True)
    seed: int = eqx.field(default=0, static=True)

    def __check_init__(self):
        checks.whole("chains", self.chains, at_least=2)
        checks.whole("warmup", self.warmup, at_least=10)
        checks.whole("draws", self.draws, at_least=4)
        checks.whole("seed", self.seed)
        if not 0.5 <= self.target < 1:
            raise checks.BadInput(f"target must be from 0.5 to below 1; got {self.target!r}.")


class Chains(NamedTuple):
    """Draws of every site, with leading axes (chains, draws), and convergence diagnostics."""

    sites: Any
    r_hat: Float[Array, " dim"]
    effective: Float[Array, " dim"]
    divergences: Int[Array, ""]


@contextlib.contextmanager
def relaxed() -> Iterator[None]:
    """Allow implicit promotion of ranks and dtypes, which NumPyro relies on."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@eqx.filter_jit
def run(program: Callable[..., Any], arguments: tuple[Any, ...], nuts: Nuts) -> Chains:
    """NUTS on a NumPyro program; can be traced, and vmapped over `arguments`."""
    from numpyro.infer import MCMC, NUTS

    def chain(key: Key[Array, ""]) -> tuple[Any, Array]:
        kernel = NUTS(program, target_accept_prob=nuts.target)
        sampler = MCMC(kernel, num_warmup=nuts.warmup, num_samples=nuts.draws, progress_bar=False)
        sampler.run(key, *arguments)
        return sampler.get_samples(), sampler.get_extra_fields()["diverging"]

    with relaxed():
        keys = jax.random.split(jax.random.key(nuts.seed), nuts.chains)
        sites, diverging = jax.vmap(chain)(keys)
        flat = flatten(sites)
        return Chains(sites, split_r_hat(flat), effective_sample_size(flat), jnp.sum(diverging))


@eqx.filter_jit
def log_evidence(
    program: Callable[..., Any], arguments: tuple[Any, ...], sites: Any, nuts: Nuts
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """log p(tokens) by importance sampling around the draws, and its standard error."""
    from numpyro.infer.util import potential_energy, unconstrain_fn

    freedom = 5.0
    with relaxed():
        pooled = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), sites)
        free = jax.vmap(lambda site: unconstrain_fn(program, arguments, {}, site))(pooled)
        _, back = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], free))
        points = jax.vmap(lambda site: ravel_pytree(site)[0])(free)
        count, dim = points.shape
        mean, centred = jnp.mean(points, 0), points - jnp.mean(points, 0)
        # A t law with covariance C has scale matrix C (ν − 2)/ν.
        root = jnp.linalg.cholesky(centred.T @ centred * ((freedom - 2) / (freedom * count)))
        for_normal, for_scale = jax.random.split(jax.random.fold_in(jax.random.key(nuts.seed), 1))
        normal = jax.random.normal(for_normal, (count, dim))
        chi = jax.random.chisquare(for_scale, freedom, (count, 1)) / freedom
        proposed = mean + (normal / jnp.sqrt(chi)) @ root.T
        distance = jnp.sum(normal**2, -1) / chi[:, 0]
        log_density = (
            gammaln((freedom + dim) / 2)
            - gammaln(freedom / 2)
            - 0.5 * dim * jnp.log(freedom * jnp.pi)
            - jnp.sum(jnp.log(jnp.diag(root)))
            - 0.5 * (freedom + dim) * jnp.log1p(distance / freedom)
        )
        energy = jax.vmap(lambda u: potential_energy(program, arguments, {}, back(u)))(proposed)
        log_weights = -energy - log_density
        value = logsumexp(log_weights) - jnp.log(count)
        relative = jnp.exp(log_weights - value)
        return value, jnp.std(relative) / jnp.sqrt(count)


def flatten(sites: Any) -> Float[Array, "chains draws dim"]:
    """All coordinates of all sites along one axis."""
    leaves = [leaf.reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(sites)]
    return jnp.concatenate(leaves, -1)
