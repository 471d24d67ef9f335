"""A.same-limit: softmax and CME attention converge to the same limit.

Our formalisation of statement (b) of lens A (Zhang et al., 2022): attention approximates the
conditional mean, so two operators that both do must approach each other (docs/theory.md,
prediction 7). In a Gaussian-process world, with softmax at the falling temperature of
A.softmax-shrinking and CME with the noise variance as its ridge,

    ‖SM − CME‖ ≤ ‖SM − m(q, z)‖ + ‖CME − m(q, z)‖ → 0.

The rate is that of the slower operator, softmax, at most L^(−2/(m+4)). The rule requires only that
the distance falls: a slope of −0.10 or steeper.

A replicate is the mean square over a block of episodes; the logarithm is taken afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from attnlens.attention.cme import cme
from attnlens.attention.softmax import softmax
from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work
from attnlens.claims.rates import grid, judge_slopes, lines
from attnlens.core.drawing import Figure
from attnlens.core.verdicts import Part, Region
from attnlens.worlds import GaussianProcess
from attnlens.worlds.seeding import episode_keys

from .softmax_shrinking import schedule

TEMPERATURE = 2.0  # a smooth latent function: its bias is of second order, as in the derivation
NOISE_STD = 0.5
QUERIES = 16
EPISODES_PER_BLOCK = 16
LENGTHS = {"smoke": (32, 128), "default": (32, 128, 512), "full": (32, 128, 512, 1024)}
DIMS = {"smoke": (2,), "default": (1, 2, 3), "full": (1, 2, 3)}
BLOCKS = {"smoke": 16, "default": 16, "full": 144}
CONTROL_BLOCKS = {"smoke": 8, "default": 8, "full": 72}
SLOPE = Region(high=-0.10)
CONTROL = "own-temperature"


def plan(profile: Profile) -> Iterable[Work]:
    counts = {PREDICTION: BLOCKS[profile], CONTROL: CONTROL_BLOCKS[profile]}
    dims, lengths = DIMS[profile], LENGTHS[profile]
    return grid(
        counts, dims, lengths, lambda _: EPISODES_PER_BLOCK, lambda n: 2e-4 + (n / 2500) ** 2.5
    )


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Squared distance between the two operators, one per seed."""
    m, length = parameters["manifold_dim"], parameters["length"]
    world = GaussianProcess(key_dim=m + 1, temperature=TEMPERATURE, noise_std=NOISE_STD)
    # A traced temperature: prediction and control share one compiled program.
    temperature = schedule(m, length, NOISE_STD) if arm == PREDICTION else TEMPERATURE
    squared = _distances(world, episode_keys(seeds, m, length), length, jnp.asarray(temperature))
    return {"squared": squared}


@eqx.filter_jit
def _distances(world: GaussianProcess, keys: Array, length: int, temperature: Array) -> Array:
    """Mean over queries of (SM − CME)², one per key, computed one episode at a time."""

    def one(key: Array) -> Array:
        episode = world.sample(key, length, QUERIES)
        assert episode.query is not None
        ridge = NOISE_STD**2
        by_cme = cme(episode.query, *episode.tokens, ridge=ridge, temperature=TEMPERATURE)
        by_softmax = softmax(episode.query, *episode.tokens, temperature=temperature)
        return jnp.mean((by_softmax - by_cme) ** 2)

    return jax.lax.map(one, keys)


def judge(measured: Sequence[Measured]) -> list[Part]:
    return judge_slopes(measured, "slope of the distance in length", lambda _: SLOPE)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    names = {PREDICTION: "shrinking τ", CONTROL: f"τ = {TEMPERATURE:g}"}
    return Figure(
        "Distance between softmax and CME attention, over length",
        "tokens L",
        "root-mean-square distance",
        tuple(lines(arms, names)),
    )


CLAIM = Claim(
    id="A.same-limit",
    title="Softmax and CME attention have the same limit",
    statement=(
        "With a temperature that falls with the length, softmax attention approaches "
        "conditional-mean-embedding attention: both converge to the conditional mean."
    ),
    formula=(r"\left\|\mathrm{SM}_{\tau_L}(q)-\mathrm{CME}(q)\right\| \to 0 \quad (L\to\infty)"),
    prediction=(
        "The log–log slope of the root-mean-square distance between the two is at most −0.10 "
        "for keys on spheres of dimension m = 1, 2 and 3."
    ),
    controls={CONTROL: "Softmax has the temperature of the Gaussian process itself at every L."},
    assumptions=(
        "The latent is a Gaussian process with the operator's kernel (by construction).",
        "Keys are uniform on the sphere; the softmax temperature falls as in A.softmax-shrinking "
        "(by construction).",
    ),
    meaning=(
        "Softmax attention is a cheap approximation of the exact solve. A longer context makes it "
        "better only if its temperature falls as the context grows."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (b); our formalisation: "
        "docs/theory.md, prediction 7."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
