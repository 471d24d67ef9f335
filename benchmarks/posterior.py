"""Reference posteriors: NUTS on many small episodes of the logistic world.

    z ~ N(0, 4 I₂),   k uniform on the circle,   v ~ Bernoulli(1/(1 + e^{−⟨z, k⟩}))

An episode has a latent z and tokens (k, v). All contenders use the same number N of draws, warm-up
steps and chains and the same acceptance target, in float64. Two statistics of the draws are
compared with their exact values. Errors are root mean squares over episodes, in units of the
standard error of N *independent* draws; Ê is the mean over draws, E the exact mean, σ the logistic
function:

    posterior mean     (Ê z_i − E z_i) / (sd(z_i)/√N)
    log predictive     log Ê σ(⟨z, q⟩) − log E σ(⟨z, q⟩), over sd(σ)/(√N E σ), at eight queries q

An error of 1 is as good as independent draws. N divided by the square of the first error is the
effective number of draws; divided by the seconds of the call it gives `effective draws per second`.
attnlens runs all episodes from one seed, so its errors are similar in similar episodes.

Exact values are sums over a grid. The trapezoidal rule on the plane is exact to e^{−2πa/h} with
spacing h, for a function that is analytic in a strip of half-width a (Trefethen and Weideman, SIAM
Review, 2014): here a = π, from the logistic function with |k| = 1, so h = 0.2 leaves e^{−98}. The
grid ends at eight prior standard deviations, where the prior density is e^{−32} of its maximum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from benchmarks.contest import CORES, Contender, Run, Work

PRIOR_STD, TARGET, QUERIES = 2.0, 0.9, 8
SPACING, REACH = 0.2, 8 * PRIOR_STD
EPISODES = 64
DEVICES = math.gcd(CORES, EPISODES)  # each with the same number of episodes


class Episodes(NamedTuple):
    """Keys (episode, token, 2), values (episode, token) of zeros and ones, queries."""

    key: np.ndarray
    value: np.ndarray
    query: np.ndarray


class Truth(NamedTuple):
    """Mean and standard deviation, per episode, of the latent and of σ(⟨z, q⟩) at the queries."""

    mean: np.ndarray
    std: np.ndarray
    probability: np.ndarray
    spread: np.ndarray


def draw(episodes: int, length: int) -> Episodes:
    generator = np.random.default_rng(0)
    angle = generator.uniform(0, 2 * np.pi, (episodes, length + QUERIES))
    points = np.stack([np.cos(angle), np.sin(angle)], -1)
    latent = PRIOR_STD * generator.standard_normal((episodes, 2, 1))
    chance = logistic(points[:, :length] @ latent)[..., 0]
    value = (generator.uniform(size=chance.shape) < chance).astype(float)
    return Episodes(points[:, :length], value, points[:, length:])


def logistic(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def exact(episodes: Episodes) -> Truth:
    axis = np.arange(-REACH, REACH + SPACING / 2, SPACING)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    prior = -0.5 * np.sum(grid**2, -1) / PRIOR_STD**2

    def one(key: np.ndarray, value: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, ...]:
        # log likelihood: log σ(u) for v = 1, log σ(−u) for v = 0, with u = ⟨z, k⟩
        signed = (grid @ key.T) * (2 * value - 1)
        log_density = prior - np.sum(np.logaddexp(0, -signed), -1)
        weight = np.exp(log_density - log_density.max())
        weight /= weight.sum()
        yes = logistic(grid @ query.T)
        mean, probability = weight @ grid, weight @ yes
        std = np.sqrt(weight @ (grid - mean) ** 2)
        return mean, std, probability, np.sqrt(weight @ (yes - probability) ** 2)

    return Truth(
        *map(
            np.stack, zip(*(one(*episode) for episode in zip(*episodes, strict=True)), strict=True)
        )
    )


def judged(sampler: Callable[[Episodes], np.ndarray], episodes: int, length: int, few: int) -> Run:
    """A `Run` of a sampler on the first `few` episodes; it returns draws (episode, draw, 2)."""
    every = draw(episodes, length)
    some = Episodes(*(part[:few] for part in every))
    spent: list[float] = []

    def call() -> np.ndarray:
        start = time.perf_counter()
        draws = sampler(some)
        spent.append(time.perf_counter() - start)
        return draws

    def accuracy(draws: np.ndarray) -> Mapping[str, float]:
        draws, truth = np.asarray(draws, float), exact(some)
        count = draws.shape[1]
        off = (draws.mean(1) - truth.mean) / (truth.std / count**0.5)
        log_predictive = np.log(logistic(draws @ some.query.swapaxes(1, 2)).mean(1))
        error = truth.spread / (truth.probability * count**0.5)
        off_predictive = (log_predictive - np.log(truth.probability)) / error
        mean_error = float(np.sqrt(np.mean(off**2)))
        # The median excludes the first call, which compiles. The root mean square of n normal
        # errors has a relative standard error of 1/√(2n). Queries of an episode share its draws, so
        # n counts coordinates of the latent only.
        rate = few * count / mean_error**2 / float(np.median(spent[1:] or spent))
        return {
            "error of the mean (standard errors)": mean_error,
            "of the log predictive": float(np.sqrt(np.mean(off_predictive**2))),
            "both known to a share of": (2 * off.size) ** -0.5,
            "effective draws per second": rate,
        }

    return Run(call, accuracy, episodes / few)


# -- contenders ------------------------------------------------------------------------------------


def attnlens(episodes: int, length: int, chains: int, warmup: int, draws: int, devices: int) -> Run:
    """All episodes in one vmapped run, which includes R-hat and effective sample size."""
    jax = with_jax(devices)
    from attnlens.worlds import LogisticRegression, Nuts, Pairs

    nuts = Nuts(chains=chains, warmup=warmup, draws=draws, target=TARGET)
    world = LogisticRegression(key_dim=2, prior_std=PRIOR_STD, nuts=nuts)

    def one(key: Any, value: Any) -> Any:
        posterior = world.posterior(Pairs(key, value[:, None]))
        return posterior.latent.reshape(-1, 2), posterior.ok

    together = spread(jax.vmap(one), devices)
    return judged(
        lambda data: np.asarray(together(data.key, data.value)[0]), episodes, length, episodes
    )


def numpyro(episodes: int, length: int, chains: int, warmup: int, draws: int, few: int) -> Run:
    """The model as a user would write it, one episode after the other with one sampler. Data are
    passed as arguments; NumPyro still spends most of a run on compilation."""
    jax = with_jax(1)
    import jax.numpy as jnp
    import numpyro.distributions as dist
    from numpyro import sample
    from numpyro.infer import MCMC, NUTS

    def model(key: Any, value: Any) -> None:
        weights = sample("weights", dist.Normal(jnp.zeros(2), PRIOR_STD).to_event(1))
        sample("value", dist.Bernoulli(logits=key @ weights), obs=value)

    sampler = MCMC(
        NUTS(model, target_accept_prob=TARGET),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
        jit_model_args=True,
    )

    def every(data: Episodes) -> np.ndarray:
        chains = []
        for i, (key, value) in enumerate(zip(data.key, data.value, strict=True)):
            sampler.run(jax.random.key(i), jnp.asarray(key), jnp.asarray(value))
            chains.append(np.asarray(sampler.get_samples()["weights"]))
        return np.stack(chains)

    return judged(every, episodes, length, few)


def blackjax(episodes: int, length: int, chains: int, warmup: int, draws: int, devices: int) -> Run:
    """Window adaptation and NUTS for one chain, vmapped over chains and over episodes."""
    jax = with_jax(devices)
    import blackjax as library  # pyright: ignore[reportMissingImports] (an optional package)
    import jax.numpy as jnp

    def chain(key: Any, value: Any, seed: Any) -> Any:
        def log_density(weights: Any) -> Any:
            signed = (key @ weights) * (2 * value - 1)
            prior = -0.5 * jnp.sum(weights**2) / PRIOR_STD**2
            return prior + jnp.sum(jax.nn.log_sigmoid(signed))

        for_start, for_warmup, for_draws = jax.random.split(seed, 3)
        adapt = library.window_adaptation(
            library.nuts, log_density, is_mass_matrix_diagonal=True, target_acceptance_rate=TARGET
        )
        # Start uniformly between −2 and 2, as NumPyro and Stan do.
        start = jax.random.uniform(for_start, (2,), minval=-2, maxval=2)
        (state, parameters), _ = adapt.run(for_warmup, start, num_steps=warmup)
        step = library.nuts(log_density, **parameters).step

        def one(state: Any, seed: Any) -> tuple[Any, Any]:
            state, _ = step(seed, state)
            return state, state.position

        return jax.lax.scan(one, state, jax.random.split(for_draws, draws))[1]

    def episode(key: Any, value: Any, seed: Any) -> Any:
        seeds = jax.random.split(jax.random.key(seed), chains)
        return jax.vmap(chain, (None, None, 0))(key, value, seeds).reshape(-1, 2)

    together = spread(jax.vmap(episode), devices)
    seeds = np.arange(episodes)
    return judged(
        lambda data: np.asarray(together(data.key, data.value, seeds)),
        episodes,
        length,
        episodes,
    )


def pymc(
    episodes: int, length: int, chains: int, warmup: int, draws: int, few: int, cores: int
) -> Run:
    """PyMC's own sampler, one episode after the other, with new data in the same model."""
    import pymc as library  # pyright: ignore[reportMissingImports] (an optional package)

    model = pymc_model(length)

    def every(data: Episodes) -> np.ndarray:
        chains = []
        with model:
            for i, (key, value) in enumerate(zip(data.key, data.value, strict=True)):
                library.set_data({"key": key, "value": value})
                trace = library.sample(
                    draws=draws,
                    tune=warmup,
                    chains=chains,
                    cores=cores,
                    target_accept=TARGET,
                    random_seed=i,
                    progressbar=False,
                    compute_convergence_checks=False,
                )
                chains.append(trace.posterior["weights"].values.reshape(-1, 2))
        return np.stack(chains)

    return judged(every, episodes, length, few)


def nutpie(
    episodes: int, length: int, chains: int, warmup: int, draws: int, few: int, cores: int
) -> Run:
    """The model of `pymc`, compiled once by nutpie, whose sampler is written in Rust."""
    import nutpie as library  # pyright: ignore[reportMissingImports] (an optional package)

    compiled = cache(lambda: library.compile_pymc_model(pymc_model(length)))  # at the first call

    def every(data: Episodes) -> np.ndarray:
        chains = []
        for i, (key, value) in enumerate(zip(data.key, data.value, strict=True)):
            trace = library.sample(
                compiled().with_data(key=key, value=value),
                draws=draws,
                tune=warmup,
                chains=chains,
                cores=cores,
                seed=i,
                target_accept=TARGET,
                progress_bar=False,
            )
            chains.append(trace.posterior["weights"].values.reshape(-1, 2))
        return np.stack(chains)

    return judged(every, episodes, length, few)


def pymc_model(length: int) -> Any:
    import pymc as library  # pyright: ignore[reportMissingImports] (an optional package)

    with library.Model() as model:
        key = library.Data("key", np.zeros((length, 2)))
        value = library.Data("value", np.zeros(length))
        weights = library.Normal("weights", 0.0, PRIOR_STD, shape=2)
        library.Bernoulli("seen", logit_p=key @ weights, observed=value)
    return model


def with_jax(devices: int) -> Any:
    """The module `jax` in float64 with several CPU devices; call it before JAX is imported."""
    import os

    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax


def spread(function: Callable[..., Any], devices: int) -> Callable[..., Any]:
    """`function` compiled for arrays with a leading axis of episodes, split over the devices.

    A vmapped NUTS step takes as long as the longest tree in the batch; episodes on different
    devices do not wait for each other.
    """
    import jax
    from jax.sharding import Mesh, PartitionSpec

    if devices == 1:
        return jax.jit(function)
    mesh, part = Mesh(np.array(jax.devices()), ("episode",)), PartitionSpec("episode")
    return jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=part, out_specs=part, check_vma=False)
    )


HERE, THERE = "benchmarks.posterior", "peers-bayes"
WORKS = [
    Work(
        name="64 logistic posteriors by NUTS",
        group="reference posterior",
        task="64 episodes of 16 tokens, latent of dimension 2, float64: 4 chains of 500 draws "
        "after 500 steps of warm-up, acceptance target 0.9. Peers that go episode by episode run "
        "on some of the episodes, and their time is scaled to 64. The truth is a grid in float64.",
        contenders=[
            Contender("attnlens", f"{HERE}:attnlens", setting={"devices": DEVICES}),
            Contender("NumPyro", f"{HERE}:numpyro", setting={"few": 2}),
            Contender("BlackJAX", f"{HERE}:blackjax", THERE, setting={"devices": DEVICES}),
            Contender("PyMC (one process)", f"{HERE}:pymc", THERE, setting={"few": 2, "cores": 1}),
            Contender(
                "PyMC (one process per core)",
                f"{HERE}:pymc",
                THERE,
                setting={"few": 2, "cores": CORES},
            ),
            Contender("nutpie", f"{HERE}:nutpie", THERE, setting={"few": 16, "cores": CORES}),
        ],
        setting={"episodes": EPISODES, "length": 16, "chains": 4, "warmup": 500, "draws": 500},
        quick={"warmup": 100, "draws": 100},
        repeats=3,
        rounds=1,  # a round is mostly compilation, for all contenders
    )
]
