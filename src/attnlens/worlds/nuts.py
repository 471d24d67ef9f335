"""Reference posteriors by the No-U-Turn sampler (NUTS) of NumPyro, and evidence from their draws.

A run is a pure function of its inputs, so one compiled program serves many episodes: vmap over
episodes, and over the chains of each (Hoffman and Gelman, JMLR 2014; Phan, Pradhan and
Jankowiak, Composable effects for flexible and accelerated probabilistic programming, 2019).

    1. draws from the prior are tempered to the posterior (`tempering`): particles
    2. every chain of NUTS starts from one of the particles; after each step of NUTS the chain
       tries `JUMPS` Metropolis steps u' = u + a − b, with two particles a and b drawn at random.
       These steps are symmetric, so they leave the posterior unchanged; they let a chain change
       from one mode to another
    3. the draws of the chains are compared with the particles (`second_opinion`)

Random keys come from `Nuts.seed` and from the tokens, so the Monte Carlo errors of different
episodes are independent.

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

from . import modes, second_opinion, tempering
from .diagnostics import effective_sample_size, energy_fraction, split_r_hat
from .second_opinion import Opinion

JUMPS = 16  # jumps per step of NUTS; the step needs gradients at some ten times as many points


class Nuts(eqx.Module):
    """Settings of NUTS: `draws` per chain are kept after `warmup` steps of adaptation.

    The defaults keep 2,000 draws. At the target acceptance probability of 0.9 divergences are rare
    in the worlds of this package. `particles` is the number of draws from the prior that are
    tempered to the posterior, for starting points and a second opinion.

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
    particles: int = eqx.field(default=1024, static=True)

    def __check_init__(self):
        checks.whole("chains", self.chains, at_least=2)
        checks.whole("warmup", self.warmup, at_least=10)
        checks.whole("draws", self.draws, at_least=4)
        checks.seed_number("seed", self.seed)
        checks.whole("particles", self.particles, at_least=4 * modes.REFERENCES)
        if not 0.5 <= self.target < 1:
            raise checks.BadInput(f"target must be from 0.5 to below 1; got {self.target!r}.")


class Chains(NamedTuple):
    """Draws of every site, with leading axes (chains, draws), and convergence diagnostics.

    `energy` is the smallest E-BFMI of a chain.
    """

    sites: Any
    r_hat: Float[Array, " dim"]
    effective: Float[Array, " dim"]
    divergences: Int[Array, ""]
    energy: Float[Array, ""]
    opinion: Opinion


class Target(NamedTuple):
    """The distribution to sample: `program`, a NumPyro program of prior and tokens, with its
    `arguments`; `prior`, the program of the prior alone; and `latent_at`, which maps the values of
    the sites to the latent."""

    program: Callable[..., Any]
    arguments: tuple[Any, ...]
    prior: Callable[[], Any]
    latent_at: Callable[[Any], Any]


@contextlib.contextmanager
def relaxed() -> Iterator[None]:
    """Allow implicit promotion of ranks and dtypes, which NumPyro relies on."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@eqx.filter_jit
def run(target: Target, nuts: Nuts, key: Key[Array, ""]) -> Chains:
    """Run NUTS on a target; the function can be traced, and vmapped over arguments and keys."""
    for_prior, for_stages, for_starts, for_chains = jax.random.split(key, 4)
    with relaxed():
        free, back = prior_points(target.prior, for_prior, nuts.particles)
        particles = tempering.temper(_densities(target, back), free, for_stages)
        points = particles.points
        starts = points[jax.random.randint(for_starts, (nuts.chains,), 0, nuts.particles)]

        def chain(key: Key[Array, ""], start: Array) -> tuple[Any, Array, Array]:
            from numpyro.infer import MCMC

            kernel = _jumping(target, back, points, nuts)
            sampler = MCMC(
                kernel, num_warmup=nuts.warmup, num_samples=nuts.draws, progress_bar=False
            )
            sampler.run(key, *target.arguments, init_params=back(start), extra_fields=("energy",))
            fields = sampler.get_extra_fields()
            return sampler.get_samples(), fields["diverging"], fields["energy"]

        sites, diverging, energy = jax.vmap(chain)(
            jax.random.split(for_chains, nuts.chains), starts
        )
        flat = flatten(sites)
        return Chains(
            sites,
            split_r_hat(flat),
            effective_sample_size(flat),
            jnp.sum(diverging),
            jnp.min(energy_fraction(energy)),
            _opinion(target, back, particles, sites),
        )


def prior_points(
    prior: Callable[[], Any], key: Key[Array, ""], count: int
) -> tuple[Float[Array, "count dim"], Callable[[Any], Any]]:
    """Draws from the prior as vectors in unconstrained coordinates, and the function that maps such
    a vector to the values of the sites by name."""
    from numpyro import handlers
    from numpyro.infer.util import unconstrain_fn

    def one(key: Key[Array, ""]) -> Any:
        recorded = handlers.trace(handlers.seed(prior, key)).get_trace()
        return unconstrain_fn(prior, (), {}, free_sites(recorded))

    named = jax.vmap(one)(jax.random.split(key, count))
    _, back = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], named))
    return jax.vmap(lambda site: ravel_pytree(site)[0])(named), back


def free_sites(recorded: Any) -> dict[str, Any]:
    """The values of the sites of a trace that are drawn, not observed.

    Raises `BadInput` if one of these sites is discrete.
    """
    sites = {
        name: site
        for name, site in recorded.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
    for name, site in sites.items():
        if site["fn"].support.is_discrete:
            raise checks.BadInput(
                f"NUTS needs a latent of real numbers; got the discrete site {name!r} "
                f"({type(site['fn']).__name__}); sum it out of the likelihood, with "
                f"numpyro.distributions.Mixture…, or use FiniteMixture."
            )
    return {name: site["value"] for name, site in sites.items()}


def _densities(target: Target, back: Callable[[Any], Any]) -> tempering.Densities:
    from numpyro.infer.util import potential_energy

    def densities(point: Array) -> tuple[Array, Array]:
        named = back(point)
        prior = -jnp.asarray(potential_energy(target.prior, (), {}, named))
        joint = -jnp.asarray(potential_energy(target.program, target.arguments, {}, named))
        return prior, joint - prior

    return densities


def _jumping(
    target: Target, back: Callable[[Any], Any], points: Float[Array, "particles dim"], nuts: Nuts
) -> Any:
    """The kernel of NUTS, followed by jumps from mode to mode."""
    from numpyro.infer import NUTS
    from numpyro.infer.util import potential_energy

    def potential(point: Array) -> Array:
        return jnp.asarray(potential_energy(target.program, target.arguments, {}, back(point)))

    class JumpingNuts(NUTS):
        def sample(self, state: Any, model_args: Any, model_kwargs: Any) -> Any:
            state = super().sample(state, model_args, model_kwargs)
            key, for_jumps = jax.random.split(state.rng_key)
            random = jax.random.uniform(for_jumps, (JUMPS, 3), points.dtype)

            def jump(i: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
                point, energy = now
                count = points.shape[0]
                first, second = jnp.minimum((random[i, :2] * count).astype(int), count - 1)
                proposed = point + points[first] - points[second]
                other = potential(proposed)
                accepted = jnp.log(random[i, 2]) < energy - other
                return jnp.where(accepted, proposed, point), jnp.where(accepted, other, energy)

            start, energy = ravel_pytree(state.z)[0], state.potential_energy
            point, energy = jax.lax.fori_loop(0, JUMPS, jump, (start, energy))
            return state._replace(
                z=back(point),
                z_grad=back(jax.grad(potential)(point)),
                potential_energy=energy,
                rng_key=key,
            )

    return JumpingNuts(target.program, target_accept_prob=nuts.target)


def _opinion(
    target: Target, back: Callable[[Any], Any], particles: tempering.Particles, sites: Any
) -> Opinion:
    """Compare the draws of the chains with the particles, after converting both to latents."""
    from numpyro.infer.util import constrain_fn

    def latent_of(point: Array) -> Array:
        named = constrain_fn(target.prior, (), {}, back(point))
        return ravel_pytree(target.latent_at(named))[0]

    others = jax.vmap(latent_of)(particles.points)
    draws = flatten(jax.vmap(jax.vmap(target.latent_at))(sites))
    # Reference points are taken at this distance, because neighbours have a common ancestor.
    step = others.shape[0] // modes.REFERENCES
    densities = _densities(target, back)
    width = jnp.quantile(others, 0.84, axis=0) - jnp.quantile(others, 0.16, axis=0)
    minima = modes.find(
        lambda point: jnp.add(*densities(point)),
        particles.points[::step][: modes.REFERENCES],
        others[::step][: modes.REFERENCES],
        jnp.where(width > 0, width, 1),
    )
    return second_opinion.opinion(draws, others, particles.ancestor, particles.beta, minima)


@eqx.filter_jit
def log_evidence(
    program: Callable[..., Any], arguments: tuple[Any, ...], sites: Any, key: Key[Array, ""]
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
        for_normal, for_scale = jax.random.split(key)
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
