"""Amortised posteriors: a network that gives the posterior of a latent for any set of tokens.

    z ~ N(0, I₃),   k uniform on the sphere,   v = ⟨z, k⟩ + σ e,   tokens x = (k, v), L of them

All contenders get the same simulations (z, x) and the same seconds for training, including
compilation and validation; none is given the formulas above. The name of a contender says what it
assumes about the form of the posterior: attnlens fits a Gaussian (the nine outputs of a softmax
encoder are its mean and the triangle of a root of its precision); sbi fits flows without this
assumption or, for equal assumptions, one Gaussian. The exact posterior p(· | x) is a Gaussian, so
the assumption holds here and need not hold in general. The fitted densities q(· | x) are judged on
new sets of tokens x:

    log-score      mean of log q(z | x) at the true latent; no q has a larger expected value than p
    lost           mean over exact draws z ~ p(· | x) of log p − log q (Kullback–Leibler divergence)
    C2ST           accuracy of the best possible classifier between draws of p and of q,
                   ½ + ½ E_p (1 − q/p)₊, since the total variation distance is E_p (1 − q/p)₊

The usual C2ST (classifier two-sample test) trains a classifier (Lopez-Paz and Oquab, Revisiting
classifier two-sample tests, 2017), which can only be worse than the best one, and so overrates q.
Both densities are known here, so no classifier has to be trained. An accuracy of 0.5 is perfect;
its standard error is computed over the sets.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.contest import Contender, Run, Work

DIM, NOISE_STD = 3, 0.5
SETS, DRAWS = 512, 64  # for judging: new sets of tokens, and exact posterior draws per set
HELD_OUT = 0.1  # share of the simulations for validation: sbi's default
EVERY = 50  # steps between validations, so that validation takes a tenth of the time

# (tokens of every set, points (set, point, dim)) -> log q at the points
Density = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Simulated(NamedTuple):
    latent: np.ndarray
    tokens: np.ndarray


class Gaussians(NamedTuple):
    """Gaussians, one per set of tokens: means, and lower triangular roots of precisions."""

    mean: np.ndarray
    root: np.ndarray

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """Log densities ½ log det Λ − ½ ‖Rᵀ(z − m)‖² − (d/2) log 2π, with mean m, Λ = R Rᵀ."""
        whitened = np.einsum("sij,spi->spj", self.root, points - self.mean[:, None])
        scale = np.log(np.diagonal(self.root, axis1=1, axis2=2)).sum(1)
        return scale[:, None] - 0.5 * (whitened**2).sum(-1) - 0.5 * DIM * np.log(2 * np.pi)

    def sample(self, count: int, generator: np.random.Generator) -> np.ndarray:
        normal = generator.standard_normal((len(self.mean), DIM, count))
        moved = np.linalg.solve(self.root.swapaxes(1, 2), normal)
        return self.mean[:, None] + moved.swapaxes(1, 2)


def simulate(count: int, length: int, seed: int) -> Simulated:
    generator = np.random.default_rng(seed)
    latent = generator.standard_normal((count, DIM))
    key = generator.standard_normal((count, length, DIM))
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    noise = NOISE_STD * generator.standard_normal((count, length, 1))
    return Simulated(latent, np.concatenate([key, key @ latent[..., None] + noise], -1))


def exact(tokens: np.ndarray) -> Gaussians:
    """The exact posteriors: precision Λ = I + KᵀK/σ² and mean m = Λ⁻¹ Kᵀv/σ²."""
    key, value = tokens[..., :DIM], tokens[..., DIM:]
    precision = np.eye(DIM) + key.swapaxes(1, 2) @ key / NOISE_STD**2
    mean = np.linalg.solve(precision, key.swapaxes(1, 2) @ value / NOISE_STD**2)[..., 0]
    return Gaussians(mean, np.linalg.cholesky(precision))


def judge(log_density: Density, length: int) -> dict[str, float]:
    latent, tokens = simulate(SETS, length, seed=1)
    truth = exact(tokens)
    points = truth.sample(DRAWS, np.random.default_rng(2))
    points = np.concatenate([latent[:, None], points], 1)
    ours, theirs = truth.log_density(points), np.asarray(log_density(tokens, points), float)
    lost = (ours - theirs)[:, 1:].mean(1)
    apart = 0.5 + 0.5 * np.maximum(0, -np.expm1((theirs - ours)[:, 1:])).mean(1)
    return {
        "C2ST": apart.mean(),
        "C2ST ±": apart.std() / SETS**0.5,
        "log-score": theirs[:, 0].mean(),
        "exact log-score": ours[:, 0].mean(),
        "lost nats": lost.mean(),
        "lost nats ±": lost.std() / SETS**0.5,
    }


# -- contenders ------------------------------------------------------------------------------------


def attnlens(
    simulations: int,
    length: int,
    seconds: float,
    width: int = 16,
    heads: int = 2,
    layers: int = 2,
    batch: int = 64,
    rate: float = 1e-2,
) -> Run:
    """The encoder of lens A (Zhang et al., 2022), with the batch size, learning rate and schedule
    of the claims about it.

    A short first fit measures the time per step. It gives the number of steps that fit into
    `seconds`, so that the learning rate reaches zero when the time is over. The first fit and both
    compilations count as training time."""
    import jax
    import jax.numpy as jnp

    from attnlens.networks import Encoder, fit

    below = np.tril_indices(DIM)
    diagonal = jnp.asarray(below[0] == below[1])

    def unpack(outputs: Any) -> tuple[Any, Any]:
        """The mean, and the triangular root of the precision, whose diagonal is output as logs."""
        mean, rest = outputs[:DIM], outputs[DIM:]
        entries = jnp.where(diagonal, jnp.exp(rest), rest)
        return mean, jnp.zeros((DIM, DIM), outputs.dtype).at[below].set(entries)

    def loss(outputs: Any, latent: Any) -> Any:
        mean, root = unpack(outputs)
        return 0.5 * jnp.sum((root.T @ (latent - mean)) ** 2) - jnp.sum(jnp.log(jnp.diag(root)))

    make = partial(
        Encoder,
        token_dim=DIM + 1,
        outputs=DIM + len(below[0]),
        width=width,
        heads=heads,
        layers=layers,
    )
    latent, tokens = simulate(simulations, length, seed=0)
    split = simulations - int(HELD_OUT * simulations)
    train = partial(
        fit,
        make,
        tokens[:split],
        latent[:split],
        loss=loss,
        batch=batch,
        learning_rate=rate,
        schedule="cosine",
        validation=(tokens[split:], latent[split:]),
        every=EVERY,
        clip=5.0,
    )

    def call() -> Any:
        begun, seen = time.perf_counter(), []

        def note(progress: Any) -> None:
            seen.append((progress.step, time.perf_counter()))

        train(steps=3 * EVERY, progress=note)
        (first, at), (last, end) = seen[1], seen[-1]  # seen[0] is before the first step
        seconds_per_step = (end - at) / (last - first)
        compiling = at - begun - first * seconds_per_step
        left = seconds - (time.perf_counter() - begun) - compiling
        steps = max(2 * EVERY, int(left / seconds_per_step))
        return train(steps=steps, warmup=steps // 20).model(0)

    @jax.jit
    def read(model: Any, tokens: Any) -> Any:
        return jax.vmap(lambda x: unpack(model(x)))(tokens)

    def accuracy(model: Any) -> Mapping[str, float]:
        def log_density(tokens: np.ndarray, points: np.ndarray) -> np.ndarray:
            parameters = read(model, tokens.astype(np.float32))
            return Gaussians(*(np.asarray(part, float) for part in parameters)).log_density(points)

        return judge(log_density, length)

    return Run(call, accuracy)


def sbi(
    simulations: int, length: int, seconds: float, model: str, batch: int = 200, rate: float = 3e-3
) -> Run:
    """Neural posterior estimation with sbi's embedding of sets, at the epoch of lowest validation
    loss. Training ends by sbi's own rule (20 epochs without an improvement) or when time is up.
    All settings are sbi's defaults except for the learning rate: the default 5e-4 is meant for
    longer runs; of two values tried in short runs 3e-3 was better. Four settings were tried for
    the network of attnlens, so the two sides were not tuned equally."""
    import torch  # pyright: ignore[reportMissingImports] (an optional package)
    from sbi.inference import NPE  # pyright: ignore[reportMissingImports] (an optional package)
    from sbi.neural_nets import posterior_nn  # pyright: ignore[reportMissingImports] (an optional package)
    from sbi.neural_nets.embedding_nets import (  # pyright: ignore[reportMissingImports] (an optional package)
        FCEmbedding,
        PermutationInvariantEmbedding,
    )

    drawn = simulate(simulations, length, seed=0)
    latent, tokens = (torch.as_tensor(part, dtype=torch.float32) for part in drawn)

    class Timed(NPE):
        until = 0.0

        def _converged(self, epoch: int, stop_after_epochs: int) -> bool:
            late = time.perf_counter() > self.until
            return super()._converged(epoch, 0 if late else stop_after_epochs)

    def train(count: int, seconds: float) -> Any:
        torch.manual_seed(0)
        token_network = FCEmbedding(input_dim=DIM + 1, output_dim=40, num_hiddens=40, num_layers=2)
        embedding = PermutationInvariantEmbedding(
            token_network, trial_net_output_dim=40, num_hiddens=40, num_layers=2, output_dim=20
        )
        # No z-scoring of sets, as in sbi's tutorial on independent trials.
        density = posterior_nn(
            model=model,
            embedding_net=embedding,
            z_score_x="none",
            **({"num_components": 1} if model == "mdn" else {}),
        )
        prior = torch.distributions.MultivariateNormal(torch.zeros(DIM), torch.eye(DIM))
        # sbi always writes a log into the working folder and prints a message at the end.
        with (
            tempfile.TemporaryDirectory() as scratch,
            contextlib.chdir(scratch),
            contextlib.redirect_stdout(sys.stderr),
        ):
            trainer = Timed(prior, density_estimator=density, show_progress_bars=False)
            trainer.until = time.perf_counter() + seconds
            trainer.append_simulations(latent[:count], tokens[:count])
            return trainer.train(
                training_batch_size=batch, learning_rate=rate, validation_fraction=HELD_OUT
            )

    train(2 * batch, 0.0)  # a first call imports modules: not training time
    call = partial(train, simulations, seconds)

    def accuracy(estimator: Any) -> Mapping[str, float]:
        def log_density(tokens: np.ndarray, points: np.ndarray) -> np.ndarray:
            sets = torch.as_tensor(tokens, dtype=torch.float32)
            values = torch.as_tensor(points, dtype=torch.float32).swapaxes(0, 1)
            with torch.no_grad():
                return estimator.log_prob(values, condition=sets).swapaxes(0, 1).numpy()

        return judge(log_density, length)

    return Run(call, accuracy)


HERE, THERE = "benchmarks.amortised", "peers-sbi"
PEERS = {"neural spline flow": "nsf", "masked autoregressive flow": "maf", "a Gaussian": "mdn"}
WORKS = [
    Work(
        name="posterior of a linear regression's weights",
        group="amortised posterior after training",
        task="Sets of 16 tokens, a latent of dimension 3, 16,384 simulations, and 30 seconds of "
        "training for everybody, so times are equal by design; a peer that ends earlier has "
        "stopped by its own rule. C2ST is that of the best possible classifier (0.5 is perfect).",
        contenders=[
            Contender("attnlens (a Gaussian)", f"{HERE}:attnlens"),
            *(
                # Layers of width 40 are too small for two threads.
                Contender(f"sbi ({name})", f"{HERE}:sbi", THERE, "one", {"model": model})
                for name, model in PEERS.items()
            ),
        ],
        setting={"simulations": 16384, "length": 16, "seconds": 30.0},
        quick={"seconds": 10.0},
        repeats=0,
        rounds=1,
    )
]
