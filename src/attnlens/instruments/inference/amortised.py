"""Amortised posteriors: a network that gives the posterior of a latent for any set of tokens.

Simulated pairs (z, x) train an attention encoder whose head is a mixture of Gaussians with full
covariances (`networks.mixture`), by

    minimise  −(1/n) Σ_i log q(z_i | x_i),

whose expectation is smallest if q(· | x) is the posterior (Papamakarios and Murray, Fast ε-free
inference of simulation models, 2016). Neither the density of the prior nor the likelihood is
needed, only samples. Tokens are a set: their order does not matter.

Latents with bounds are first mapped to the whole real line (`supports`), and latents and tokens are
standardised; `log_prob` is the density of the latent in its original units. Several networks are
mixed with equal weights, which tends to make q wider rather than too narrow (Hermans et al., A
trust crisis in simulation-based inference?, 2022).

Two instruments check q: `calibration` (ranks and coverage), and `reference_c2st` (comparison with
the reference posterior, in a world that has one).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.core import checks
from attnlens.networks.encoder import Encoder
from attnlens.networks.layout import Layout
from attnlens.networks.mixture import FullMixture
from attnlens.networks.reader import ReaderInputs
from attnlens.training import fitted_files
from attnlens.training.steps import TrainingStatus
from attnlens.training.trainer import Fitted, fit
from attnlens.worlds.base import Pairs, World
from attnlens.worlds.seeding import episode_keys

from .episodes import episodes
from .supports import Support, support_of

# Chosen in pilot runs on two moons, SLCP and a Gaussian world; not tuned further.
TRAINING: dict[str, Any] = {
    "steps": 4000,
    "batch": 128,
    "learning_rate": 3e-3,
    "schedule": "cosine",
    "clip": 5.0,
}
FEWEST = 64  # minimum number of simulations; with fewer, training is useless
HELD_OUT = 0.1  # share of the simulations that is used for validation
DEPENDENT = 1e-9  # below this eigenvalue of its correlation matrix a latent has no density
SIMULATED, FRESH = 1, 2  # folded into the random keys of training and of test episodes


class Scales(NamedTuple):
    """Centres and scales that standardise tokens and latents: (x − centre)/scale.

    Latents are first mapped to the whole real line by `support.opened`.
    """

    token_centre: np.ndarray
    token_scale: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    support: Support


@dataclasses.dataclass(frozen=True)
class AmortisedPosterior:
    """q(z | x) for any set x of `length` tokens; made by `amortised_posterior`.

    Latents are vectors of `dim` numbers. If the latent of a NumPyro model has several parts, they
    are concatenated (dictionaries in the order of their keys).

    >>> from attnlens.worlds import NormalMean
    >>> small, short = {"width": 4, "heads": 1, "layers": 1}, {"steps": 2}
    >>> posterior = amortised_posterior(
    ...     NormalMean(), 4, simulations=64, components=1, encoder=small, training=short
    ... )
    >>> posterior.log_prob([[0.1], [0.2]], np.ones((4, 1))).shape
    (2,)
    """

    fitted: Fitted
    length: int
    scales: Scales

    @property
    def dim(self) -> int:
        return len(self.scales.centre)

    def sample(self, tokens: Any, count: int = 1000, seed: int = 0) -> np.ndarray:
        """Return `count` draws from q(· | tokens), one per row."""
        checks.whole("count", count, at_least=1)
        matrix = self._matrix(tokens)
        with jax.enable_x64(True):
            key = jax.random.key(checks.seed_number("seed", seed))
            return self.draws(matrix[None], key[None], count)[0]

    def log_prob(self, latent: Any, tokens: Any) -> Any:
        """Return log q(latent | tokens): a number for one latent, an array for many (draws, dim).

        It is −∞ outside of the bounds of the latent.
        """
        points = _vector(latent)
        if points.ndim not in (1, 2) or points.shape[-1] != self.dim:
            raise checks.BadInput(
                f"latents must be vectors of {self.dim} numbers, or an array (draws, {self.dim}); "
                f"got shape {points.shape}."
            )
        densities = self.log_densities(self._matrix(tokens)[None], np.atleast_2d(points)[None])[0]
        return float(densities[0]) if points.ndim == 1 else densities

    def draws(self, tokens: np.ndarray, keys: Any, count: int) -> np.ndarray:
        """Return draws (episodes, count, dim) for token matrices (episodes, L, token_dim)."""
        with jax.enable_x64(True):
            law = self._laws(tokens)
            standardised = np.asarray(_sampled(law, keys, count))
        return self.scales.support.closed(standardised * self.scales.scale + self.scales.centre)

    def log_densities(self, tokens: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return log q at points (episodes, draws, dim), given tokens (episodes, L, token_dim)."""
        scales = self.scales
        inside = scales.support.contains(points)
        opened = (scales.support.opened(points) - scales.centre) / scales.scale
        with jax.enable_x64(True):
            law = self._laws(tokens)
            logs = np.asarray(_log_densities(law, np.where(inside[..., None], opened, 0)))
        moved = scales.support.log_volume(points) - np.log(scales.scale).sum()
        return np.where(inside, logs + moved, -np.inf)

    def save(self, path: str | Path) -> None:
        """Write the posterior to one file (safetensors, no pickle)."""
        fields = {f.name: getattr(self.fitted, f.name) for f in dataclasses.fields(self.fitted)}
        numbers = {**self.scales._asdict(), **self.scales.support._asdict()}
        numbers.pop("support")
        notes = {name: np.asarray(values).tolist() for name, values in numbers.items()}
        fitted_files.write(Path(path), fields, {"length": self.length, **notes})

    @classmethod
    def load(cls, path: str | Path, make: Any = None) -> AmortisedPosterior:
        """Return the posterior in a file that `save` wrote; nothing in the file is executed.

        `make` is needed if a setting of the encoder is not a number, a string or a boolean.
        """
        fitted, notes = Fitted.load(path, make), fitted_files.read_notes(Path(path))
        try:
            arrays = {name: np.asarray(notes[name], float) for name in Scales._fields[:-1]}
            support = Support(*(np.asarray(notes[name], float) for name in Support._fields))
            return cls(fitted, int(notes["length"]), Scales(**arrays, support=support))
        except (KeyError, TypeError, ValueError):
            raise checks.BadInput(
                f"{path} must be a file that AmortisedPosterior.save wrote; got one with networks "
                f"only; read it with Fitted.load."
            ) from None

    def _laws(self, tokens: np.ndarray) -> FullMixture:
        """Return one mixture per episode (leading axis), over unbounded, standardised latents."""
        scaled = (tokens - self.scales.token_centre) / self.scales.token_scale
        recipe, dim = self.fitted.recipe, self.dim
        return _mixtures(recipe, dim, jnp.asarray(self.fitted.vectors, float), jnp.asarray(scaled))

    def _matrix(self, tokens: Any) -> np.ndarray:
        """The tokens of one episode as (length, token_dim)."""
        matrix = token_matrix(tokens)
        expected = (self.length, len(self.scales.token_centre))
        if matrix.shape != expected:
            raise checks.BadInput(
                f"this posterior was trained on sets of {expected[0]} tokens of dimension "
                f"{expected[1]}; got shape {matrix.shape}."
            )
        if not np.isfinite(matrix).all():
            raise checks.BadInput("tokens must be finite numbers; got NaN or infinity.")
        return matrix


def amortised_posterior(
    world: World,
    length: int,
    *,
    simulations: int = 8192,
    components: int = 8,
    networks: int = 1,
    encoder: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> AmortisedPosterior:
    """Train a network that gives the posterior of a world's latent for any `length` tokens.

    world: a world whose latent is a vector of continuous numbers and whose tokens are vectors, with
        or without keys. Its posterior is not needed.
    simulations: number of episodes to train on; a tenth of them is held out to choose the
        parameters.
    components: number of Gaussians per network.
    networks: number of networks that are trained and mixed.
    encoder: settings of the `Encoder`, such as {"width": 64}.
    training: settings of `fit`, such as {"steps": 1000}.

    >>> from attnlens.worlds import NormalMean
    >>> small, short = {"width": 4, "heads": 1, "layers": 1}, {"steps": 2}
    >>> posterior = amortised_posterior(
    ...     NormalMean(), 4, simulations=64, components=1, encoder=small, training=short
    ... )
    >>> tokens = np.array([[1.0], [0.5], [1.5], [1.0]])
    >>> posterior.sample(tokens, 10).shape
    (10, 1)
    """
    checks.whole("length", length, at_least=1)
    checks.whole("simulations", simulations, at_least=FEWEST)
    with jax.enable_x64(True):
        seed = checks.seed_number("seed", seed)
        latent, tokens = simulated(world, simulations, length, seed, SIMULATED)
        support = support_of(world, latent.shape[1])
    return posterior_from_simulations(
        latent,
        tokens,
        bounds=(support.low, support.high),
        components=components,
        networks=networks,
        encoder=encoder,
        training=training,
        seed=seed,
    )


def posterior_from_simulations(
    latent: Any,
    tokens: Any,
    *,
    bounds: tuple[Any, Any] | None = None,
    components: int = 8,
    networks: int = 1,
    encoder: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> AmortisedPosterior:
    """Train an amortised posterior on existing simulations, from any simulator.

    latent: an array (simulations, dim).
    tokens: an array (simulations, length, token_dim).
    bounds: (low, high): two numbers, or two arrays with one bound per coordinate of the latent;
        infinite where there is no bound.
    The other arguments are those of `amortised_posterior`.

    >>> random = np.random.default_rng(0)
    >>> chance = random.uniform(size=(64, 1))
    >>> flips = (random.uniform(size=(64, 5)) < chance)[..., None]
    >>> small, short = {"width": 4, "heads": 1, "layers": 1}, {"steps": 2}
    >>> settings = {"components": 1, "encoder": small, "training": short}
    >>> posterior = posterior_from_simulations(chance, flips, bounds=(0, 1), **settings)
    >>> posterior.length, posterior.dim
    (5, 1)
    """
    latent, tokens = np.asarray(latent, float), np.asarray(tokens, float)
    if latent.ndim != 2 or tokens.ndim != 3 or not FEWEST <= len(latent) == len(tokens):
        raise checks.BadInput(
            f"simulations must be latents (count, dim) and tokens (count, length, token_dim), at "
            f"least {FEWEST} of each; got shapes {latent.shape} and {tokens.shape}."
        )
    checks.whole("networks", networks, at_least=1)
    seed = checks.seed_number("seed", seed)
    low, high = (-np.inf, np.inf) if bounds is None else bounds
    ends = (np.broadcast_to(np.asarray(end, float), latent.shape[1:]) for end in (low, high))
    support = Support(*ends)
    if not np.isfinite(tokens).all() or not support.contains(latent).all():
        raise checks.BadInput(
            "simulations must be finite numbers, with latents strictly inside of their bounds."
        )
    _check_density(latent)
    opened = support.opened(latent)
    scales = Scales(*_standard(tokens.reshape(-1, tokens.shape[-1])), *_standard(opened), support)
    make = partial(
        Encoder,
        token_dim=tokens.shape[-1],
        outputs=latent.shape[1],
        head="mixture",
        components=checks.whole("components", components, at_least=1),
        **(encoder or {}),
    )
    settings = {**TRAINING, "loss": "mixture", "validation": HELD_OUT, **(training or {})}
    if "warmup" not in settings:
        settings["warmup"] = settings["steps"] // 20
    settings["batch"] = min(settings["batch"], int(len(latent) * (1 - HELD_OUT)))
    with jax.enable_x64(True):  # makes the initial parameters the same in every process
        fitted = fit(
            make,
            (tokens - scales.token_centre) / scales.token_scale,
            (opened - scales.centre) / scales.scale,
            seeds=range(seed * networks, (seed + 1) * networks),
            **settings,
        )
    if TrainingStatus.DIVERGED in fitted.status:
        raise checks.BadInput(
            f"training diverged in {fitted.status.count(TrainingStatus.DIVERGED)} of {networks} "
            f"networks; give training={{'learning_rate': …}} below {settings['learning_rate']}."
        )
    return AmortisedPosterior(fitted, tokens.shape[1], scales)


def simulated(
    world: World, count: int, length: int, seed: int, part: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return latents (count, dim) and tokens (count, length, token_dim) of new episodes.

    `part` is folded into the random keys, so that training and test episodes differ.
    """
    keys = jax.random.split(episode_keys((seed,), part, length)[0], count)
    drawn = episodes(world, keys, length, "latent", exact=False)
    inputs: ReaderInputs = drawn.inputs
    if inputs.value.ndim != 3:
        raise checks.BadInput(
            f"an amortised posterior reads tokens that are vectors; those of "
            f"{type(world).__name__} have {inputs.value.ndim - 2} dimensions."
        )
    parts = [inputs.key, inputs.value] if _has_keys(world) else [inputs.value]
    return np.asarray(drawn.target, float), np.concatenate(parts, -1).astype(float)


def token_matrix(tokens: Any) -> np.ndarray:
    """Return tokens as a matrix (L, token_dim), with keys and values side by side."""
    parts = [tokens.key, tokens.value] if isinstance(tokens, Pairs) else [tokens]
    parts = [np.asarray(part, float) for part in parts]
    return np.concatenate([part[:, None] if part.ndim == 1 else part for part in parts], -1)


def split_tokens(world: World, matrices: np.ndarray) -> Any:
    """Invert `token_matrix` for a batch: return tokens in the form that the world uses."""
    if not _has_keys(world):
        return jnp.asarray(matrices)
    dim = _example(world).key.shape[-1]
    return Pairs(jnp.asarray(matrices[..., :dim]), jnp.asarray(matrices[..., dim:]))


def _has_keys(world: World) -> bool:
    return isinstance(_example(world), Pairs)


def _example(world: World) -> Any:
    return jax.eval_shape(lambda key: world.sample(key, 1).tokens, jax.random.key(0))


def _check_density(latent: np.ndarray) -> None:
    """Raise `BadInput` if latents have no density, such as classes and points of a simplex."""
    centred = latent - latent.mean(0)
    spread = centred.std(0)
    if not np.isfinite(latent).all() or (spread == 0).any():
        low = 0.0
    else:
        low = np.linalg.eigvalsh(np.corrcoef((centred / spread).T).reshape(len(spread), -1))[0]
    if low < DEPENDENT:
        raise checks.BadInput(
            "an amortised posterior needs a latent with a density, of finite coordinates none of "
            "which the others determine; got one without; leave out the redundant coordinate."
        )


def _standard(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = rows.std(0)
    return rows.mean(0), np.where(scale > 0, scale, 1.0)


def _vector(latent: Any) -> np.ndarray:
    """Return a latent as a vector, with its parts concatenated; an array of latents is kept."""
    parts = jax.tree.leaves(latent)
    if isinstance(latent, list) or len(parts) == 1:
        return np.atleast_1d(np.asarray(latent if isinstance(latent, list) else parts[0], float))
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in parts])


@partial(jax.jit, static_argnames=("recipe", "dim"))
def _mixtures(recipe: Any, dim: int, vectors: Any, tokens: Any) -> FullMixture:
    def one_network(vector: Any, matrix: Any) -> FullMixture:
        return FullMixture.of(Layout.of(recipe).restore(vector)(matrix), dim)

    def one_episode(matrix: Any) -> FullMixture:
        laws = jax.vmap(one_network, (0, None))(vectors, matrix)
        together = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), laws)
        share = jnp.log(jnp.asarray(vectors.shape[0], together.log_weights.dtype))
        return together._replace(log_weights=together.log_weights - share)

    return jax.lax.map(one_episode, tokens, batch_size=64)


@partial(jax.jit, static_argnames="count")
def _sampled(laws: FullMixture, keys: Any, count: int) -> Any:
    return jax.vmap(lambda law, key: jax.vmap(law.sample)(jax.random.split(key, count)))(laws, keys)


@jax.jit
def _log_densities(laws: FullMixture, points: Any) -> Any:
    return jax.vmap(lambda law, rows: jax.vmap(law.log_prob)(rows))(laws, points)
