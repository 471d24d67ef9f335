"""Amortised posteriors of two public tasks: two moons, and "simple likelihood, complex posterior".

    two moons   z uniform on (−1, 1)², one token x = c + (−|z₁ + z₂|, z₂ − z₁)/√2, c a point of a
                crescent (Greenberg, Nonnenmacher and Macke, 2019)
    SLCP        z uniform on (−3, 3)⁵, four tokens from N((z₁, z₂), S), where S has the standard
                deviations z₃² and z₄² and the correlation tanh z₅: four modes (Papamakarios,
                Sterratt and Murray, 2019)

All contenders get the same simulations (z, x), the same seconds for training (including compilation
and validation), and the same number of settings to try, each for an equal share of the seconds. The
setting with the best validation loss is judged by

    log-score   mean of log q(z | x) at the true latents of 512 new episodes: higher is better
    C2ST        accuracy of gradient-boosted trees between draws of q and of the exact posterior,
                mean over 8 episodes: 0.5 is perfect

Exact posterior draws for two moons come from inverting the simulator, those for SLCP from
importance sampling of 2,000,000 draws from the prior. If that leaves fewer than 2,000 effective
draws, which happens with narrow posteriors, the episode is skipped in C2ST.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.contest import Contender, Run, Work

NEW, JUDGED, DRAWS = 512, 8, 1000  # episodes for the log-score and for C2ST; draws for C2ST
PRIOR_DRAWS, CHUNK = 2_000_000, 200_000
EVERY = 50  # steps between validations


class Simulations(NamedTuple):
    latent: np.ndarray  # (count, dim)
    tokens: np.ndarray  # (count, length, 2)


class Task(NamedTuple):
    """A uniform prior on (−bound, bound)^dim, a simulator, and exact draws for one episode."""

    bound: float
    dim: int
    tokens: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    exact: Callable[[np.ndarray, int, np.random.Generator], np.ndarray | None]

    def simulate(self, count: int, seed: int) -> Simulations:
        random = np.random.default_rng(seed)
        latent = random.uniform(-self.bound, self.bound, (count, self.dim))
        return Simulations(latent, self.tokens(latent, random))


def crescent(count: int, random: np.random.Generator) -> np.ndarray:
    angle = random.uniform(-np.pi / 2, np.pi / 2, count)
    radius = random.normal(0.1, 0.01, count)
    return radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]) + [0.25, 0.0]


def moons_tokens(latent: np.ndarray, random: np.random.Generator) -> np.ndarray:
    total, difference = np.abs(latent.sum(1)), latent[:, 1] - latent[:, 0]
    shift = np.column_stack([-total, difference]) / np.sqrt(2)
    return (crescent(len(latent), random) + shift)[:, None]


def moons_exact(tokens: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    accepted = np.zeros((0, 2))
    while len(accepted) < count:
        shift = np.sqrt(2) * (tokens[0] - crescent(4 * count, random))
        total = -shift[:, 0] * random.choice([-1, 1], len(shift))
        latent = np.column_stack([total - shift[:, 1], total + shift[:, 1]]) / 2
        accepted = np.concatenate(
            [accepted, latent[(shift[:, 0] <= 0) & (np.abs(latent) < 1).all(1)]]
        )
    return accepted[:count]


def slcp_roots(latent: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The standard deviations and the correlation of S; 1e-3 keeps S invertible."""
    rho = np.clip(np.tanh(latent[:, 4]), -0.9999, 0.9999)
    return latent[:, 2] ** 2 + 1e-3, latent[:, 3] ** 2 + 1e-3, rho


def slcp_tokens(latent: np.ndarray, random: np.random.Generator) -> np.ndarray:
    first, second, rho = (part[:, None] for part in slcp_roots(latent))
    e = random.standard_normal((len(latent), 4, 2))
    across = rho * e[..., 0] + np.sqrt(1 - rho**2) * e[..., 1]
    return latent[:, None, :2] + np.stack([first * e[..., 0], second * across], -1)


def slcp_exact(tokens: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray | None:
    """Posterior draws by importance sampling; None if fewer than 2 · count are effective."""
    points, logs = [], []
    for _ in range(PRIOR_DRAWS // CHUNK):
        latent = random.uniform(-3, 3, (CHUNK, 5))
        first, second, rho = (part[:, None] for part in slcp_roots(latent))
        a = (tokens[None, :, 0] - latent[:, :1]) / first
        b = ((tokens[None, :, 1] - latent[:, 1:2]) / second - rho * a) / np.sqrt(1 - rho**2)
        scale = np.log(first * second * np.sqrt(1 - rho**2))
        log = (-0.5 * (a**2 + b**2) - scale).sum(1)
        near = log > log.max() - 25
        points.append(latent[near])
        logs.append(log[near])
    latent, log = np.concatenate(points), np.concatenate(logs)
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    if 1 / (weights**2).sum() < 2 * count:
        return None
    return latent[random.choice(len(log), count, p=weights)]


TASKS = {
    "two moons": Task(1.0, 2, moons_tokens, moons_exact),
    "SLCP": Task(3.0, 5, slcp_tokens, slcp_exact),
}


class Posterior(NamedTuple):
    """An estimated posterior q as two functions: `log_prob` maps tokens (episodes, …) and latents
    (episodes, dim) to log q, `sample` maps the tokens of one episode and a count to draws."""

    log_prob: Callable[[np.ndarray, np.ndarray], np.ndarray]
    sample: Callable[[np.ndarray, int], np.ndarray]


def judge(posterior: Posterior, task: Task) -> dict[str, float]:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import cross_val_score

    random = np.random.default_rng(2)
    latent, tokens = task.simulate(NEW, seed=1)
    scores = posterior.log_prob(tokens, latent)
    accuracies = []
    for one in tokens:
        exact = task.exact(one, DRAWS, random)
        if exact is None:
            continue
        drawn = posterior.sample(one, DRAWS)
        order = random.permutation(2 * DRAWS)
        points, labels = np.concatenate([exact, drawn])[order], np.repeat([0, 1], DRAWS)[order]
        trees = HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=8)
        accuracies.append(cross_val_score(trees, points, labels, cv=5).mean())
        if len(accuracies) == JUDGED:
            break
    return {
        "C2ST": float(np.mean(accuracies)),
        "C2ST ±": float(np.std(accuracies, ddof=1) / JUDGED**0.5),
        "log-score": float(scores.mean()),
        "log-score ±": float(scores.std(ddof=1) / NEW**0.5),
    }


# -- contenders ------------------------------------------------------------------------------------

OUR_SETTINGS: list[dict[str, Any]] = [
    {"components": components, "rate": rate} for components in (8, 16) for rate in (3e-3, 1e-2)
]
THEIR_SETTINGS: list[dict[str, Any]] = [
    {"model": model, "rate": rate} for model in ("nsf", "maf") for rate in (5e-4, 2e-3)
]


def attnlens(task: str, simulations: int, seconds: float) -> Run:
    """attnlens; a short first fit measures the time per step, which gives the number of steps that
    fit into `seconds`. The first fit and both compilations count as training time."""
    from attnlens.instruments import posterior_from_simulations

    chosen = TASKS[task]
    latent, tokens = chosen.simulate(simulations, seed=0)

    def one(seconds: float, components: int, rate: float) -> Any:
        begun, seen = time.perf_counter(), []

        def train(steps: int, **more: Any) -> Any:
            return posterior_from_simulations(
                latent,
                tokens,
                bounds=(-chosen.bound, chosen.bound),
                components=components,
                training={"steps": steps, "every": EVERY, "learning_rate": rate, **more},
            )

        def note(progress: Any) -> None:
            seen.append((progress.step, time.perf_counter()))

        train(3 * EVERY, progress=note)
        (first, at), (last, end) = seen[1], seen[-1]  # seen[0] is before the first step
        seconds_per_step = (end - at) / (last - first)
        compiling = at - begun - first * seconds_per_step
        left = seconds - (time.perf_counter() - begun) - compiling
        return train(max(2 * EVERY, int(left / seconds_per_step)))

    def call() -> Any:
        share = seconds / len(OUR_SETTINGS)
        candidates = [one(share, **setting) for setting in OUR_SETTINGS]
        return min(candidates, key=lambda posterior: np.nanmin(posterior.fitted.validation))

    def accuracy(posterior: Any) -> Mapping[str, float]:
        def log_prob(tokens: np.ndarray, latent: np.ndarray) -> np.ndarray:
            return posterior.log_densities(tokens, latent[:, None])[:, 0]

        return judge(Posterior(log_prob, posterior.sample), chosen)

    return Run(call, accuracy)


def sbi(task: str, simulations: int, seconds: float) -> Run:
    """Neural posterior estimation with sbi's default networks, on the tokens as one vector."""
    import torch  # pyright: ignore[reportMissingImports] (an optional package)
    from sbi.inference import NPE  # pyright: ignore[reportMissingImports] (an optional package)
    from sbi.utils import BoxUniform  # pyright: ignore[reportMissingImports] (an optional package)

    chosen = TASKS[task]
    drawn = chosen.simulate(simulations, seed=0)
    latent, tokens = (
        torch.as_tensor(part.reshape(simulations, -1), dtype=torch.float32) for part in drawn
    )
    end = chosen.bound * torch.ones(chosen.dim)
    prior = BoxUniform(-end, end)

    class Timed(NPE):
        until = 0.0

        def _converged(self, epoch: int, stop_after_epochs: int) -> bool:
            late = time.perf_counter() > self.until
            return super()._converged(epoch, 0 if late else stop_after_epochs)

    def train(count: int, seconds: float, model: str, rate: float) -> tuple[float, Any]:
        torch.manual_seed(0)
        # sbi always writes a log into the working folder and prints a message at the end.
        with (
            tempfile.TemporaryDirectory() as scratch,
            contextlib.chdir(scratch),
            contextlib.redirect_stdout(sys.stderr),
        ):
            trainer = Timed(prior, density_estimator=model, show_progress_bars=False)
            trainer.until = time.perf_counter() + seconds
            trainer.append_simulations(latent[:count], tokens[:count])
            trainer.train(learning_rate=rate)
            return float(trainer.summary["best_validation_loss"][-1]), trainer.build_posterior()

    train(500, 0.0, **THEIR_SETTINGS[0])  # a first call imports modules: not training time

    def call() -> Any:
        share = seconds / len(THEIR_SETTINGS)
        candidates = [train(simulations, share, **setting) for setting in THEIR_SETTINGS]
        return min(candidates, key=lambda pair: pair[0])[1]

    def accuracy(posterior: Any) -> Mapping[str, float]:
        def log_prob(tokens: np.ndarray, latent: np.ndarray) -> np.ndarray:
            """log q, normalised over the support of the prior by rejection draws per episode."""
            rows = torch.as_tensor(tokens.reshape(len(tokens), -1), dtype=torch.float32)
            values = torch.as_tensor(latent, dtype=torch.float32)
            pairs = zip(rows, values, strict=True)
            logs = [
                float(posterior.log_prob(z[None], x=x[None], leakage_correction_params=LEAKAGE)[0])
                for x, z in pairs
            ]
            return np.array(logs)

        def sample(tokens: np.ndarray, count: int) -> np.ndarray:
            x = torch.as_tensor(tokens.reshape(1, -1), dtype=torch.float32)
            return posterior.sample((count,), x=x, show_progress_bars=False).numpy()

        return judge(Posterior(log_prob, sample), chosen)

    return Run(call, accuracy)


LEAKAGE = {"num_rejection_samples": 1000, "show_progress_bars": False}
HERE, THERE = "benchmarks.amortised_tasks", "peers-sbi"
WORKS = [
    Work(
        name=f"posterior of {name}",
        group="amortised posterior after training",
        task=f"{what}, 8,192 simulations, and 120 seconds of training for everybody, shared "
        "equally by four settings, of which the best on validation data is judged: times are equal "
        "by design. C2ST (0.5 is perfect) is that of gradient-boosted trees.",
        contenders=[
            Contender("attnlens", f"{HERE}:attnlens"),
            Contender("sbi (flows)", f"{HERE}:sbi", THERE, "one"),
        ],
        setting={"task": name, "simulations": 8192, "seconds": 120.0},
        quick={"simulations": 2048, "seconds": 24.0},
        repeats=0,
        rounds=1,
    )
    for name, what in (
        ("two moons", "One token, a latent of dimension 2 with two crescents"),
        ("SLCP", "Four tokens, a latent of dimension 5 with four modes"),
    )
]
