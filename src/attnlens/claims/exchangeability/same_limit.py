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

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from attnlens.attention.cme import cme
from attnlens.attention.softmax import softmax
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.verdicts import Region
from attnlens.worlds import GaussianProcess
from attnlens.worlds.seeding import episode_keys

from .softmax_shrinking import schedule

CONTROL = "own-temperature"
GRID = Grid(
    settings={
        # A smooth latent function: its bias is of second order, as in the derivation.
        "temperature": 2.0,
        "noise_std": 0.5,
        "queries": 16,
    },
    axes={
        "manifold_dim": {"smoke": (2,), "default": (1, 2, 3), "full": (1, 2, 3)},
        "length": {"smoke": (32, 128), "default": (32, 128, 512), "full": (32, 128, 512, 1024)},
    },
    blocks={
        PREDICTION: {"smoke": 16, "default": 16, "full": 144},
        CONTROL: {"smoke": 8, "default": 8, "full": 72},
    },
    seeds_per_block=16,
    cost=lambda parameters, seeds: 0.005 + seeds * (2e-4 + (parameters["length"] / 2500) ** 2.5),
)
DISTANCE = ScalingLaw("squared", "length", replicate="block", root=True)
RULE = Rule(
    Quantity(
        "slope",
        "slope of the distance in length "
        "(keys on a sphere of dimension m = {manifold_dim}, L {span})",
        DISTANCE.slopes,
        Region(high=-0.10),
        per=("manifold_dim",),
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Squared distance between the two operators, one per seed."""
    m, length, noise_std = (parameters[n] for n in ("manifold_dim", "length", "noise_std"))
    own = parameters["temperature"]
    world = GaussianProcess(key_dim=m + 1, temperature=own, noise_std=noise_std)
    # A traced temperature: prediction and control share one compiled program.
    temperature = jnp.asarray(schedule(m, length, noise_std) if arm == PREDICTION else own)
    exact = jax.tree_util.Partial(cme, ridge=noise_std**2, temperature=own)
    keys = episode_keys(seeds, m, length)
    return {"squared": _distances(world, exact, keys, length, parameters["queries"], temperature)}


@eqx.filter_jit
def _distances(
    world: GaussianProcess, exact: Any, keys: Array, length: int, queries: int, temperature: Array
) -> Array:
    """Mean over queries of (SM − CME)², one per key, computed one episode at a time."""

    def one(key: Array) -> Array:
        episode = world.sample(key, length, queries)
        assert episode.query is not None
        by_cme = exact(episode.query, *episode.tokens)
        by_softmax = softmax(episode.query, *episode.tokens, temperature=temperature)
        return jnp.mean((by_softmax - by_cme) ** 2)

    return jax.lax.map(one, keys)


FIGURE = Lines(
    "Distance between softmax and CME attention, over length",
    "tokens L",
    "root-mean-square distance",
    DISTANCE,
    {
        PREDICTION: "shrinking τ, m = {manifold_dim}",
        CONTROL: "τ = {temperature:g}, m = {manifold_dim}",
    },
    per=("manifold_dim",),
)


CLAIM = Claim(
    id="A.same-limit",
    title="Softmax and CME attention have the same limit",
    statement=(
        "With a temperature that falls with the length, softmax attention approaches "
        "conditional-mean-embedding attention: both converge to the conditional mean."
    ),
    formula=r"\left\|\mathrm{SM}_{\tau_L}(q)-\mathrm{CME}(q)\right\| \to 0 \quad (L\to\infty)",
    prediction=(
        "The log–log slope of the root-mean-square distance between the two is $slope for keys on "
        "spheres of dimension m = $manifold_dim."
    ),
    controls={
        CONTROL: Control("Softmax has the temperature of the Gaussian process itself at every L.")
    },
    assumptions=(
        Assumption(
            "The latent is a Gaussian process with the operator's kernel", Check.BY_CONSTRUCTION
        ),
        Assumption(
            "Keys are uniform on the sphere; the softmax temperature falls as in "
            "A.softmax-shrinking",
            Check.BY_CONSTRUCTION,
        ),
    ),
    meaning=Meaning(
        supported=(
            "Softmax attention is a cheap approximation of the exact solve. A longer context makes "
            "it better only if its temperature falls as the context grows."
        ),
        refuted=(
            "Softmax attention does not approach the exact solve as the context grows: do not use "
            "it in place of the solve, even with a falling temperature."
        ),
        undecided=(
            "Whether softmax attention approaches the exact solve is open: compare the two at the "
            "lengths that you need before replacing one by the other."
        ),
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (b); our formalisation: "
        "docs/theory.md, prediction 7."
    ),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
