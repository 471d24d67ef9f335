"""A.minimal: the posterior can be computed from every other sufficient representation.

Our formalisation of claim (a) of lens A ("a … minimal representation"). A minimal representation
holds nothing that another sufficient one lacks. For a representation B and a sufficient one R,
the share of B's variance (coordinates standardised) that R does not determine,

    excess(B | R) = 1 − R² of the best probe from R to B, on held-out episodes,

must be 0 for B the posterior's statistics and every sufficient R. Three are tried:

    odds     log p(X | z_j) − log p(X | z_0) at 33 latents drawn from the prior
    sums     Σ x and Σ x² (Σ k v and Σ k kᵀ where tokens carry keys)
    tokens   all tokens, in sorted order

What is trivial and what is not: from `sums` the statistics are linear by the world's own update,
and from `tokens` they must be computable, being a function of them; there the probe is on trial.
`odds` are the posterior as a law, free of any parametrisation: the likelihood as a function of z,
up to a factor, is *the* minimal sufficient statistic (Lehmann and Scheffé, Sankhyā 1950), and it
comes from the world's density of tokens, not from its update. That the statistics are a function
of it, and not of some other property of the tokens, is the excess content of the posterior. In
these conjugate worlds all three maps are linear or quadratic, within reach of the probes, so that
a share of rounding size is expected; the margin of 0.02 is for worlds where a probe must
approximate.

The control puts sorted tokens in the place of B. They are sufficient, but in a continuous world
neither odds nor sums determine them. (Sorted categorical tokens *are* the counts, so the control
has no categorical world.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from attnlens.claims.base import PREDICTION, Claim, Measured, Profile, Work, blocks, by
from attnlens.claims.lens_a.sufficient import EPISODES as DRAWN
from attnlens.claims.lens_a.sufficient import WORLDS
from attnlens.instruments.families import described
from attnlens.instruments.inference import episode_keys
from attnlens.instruments.probes import split
from attnlens.instruments.sufficiency import sampled, share_left
from attnlens.records import Figure, Part, Point, Region, Series
from attnlens.statistics import judge as judge_part
from attnlens.statistics import mean_reading, t_interval
from attnlens.worlds import ExactWorld
from attnlens.worlds.base import Pairs

CONTROL = "sorted-tokens"
LENGTH = 8
EPISODES = 1024  # 614 to fit: a quadratic in 24 coordinates has 325 numbers
LATENTS = 33  # more than twice the numbers in any of the five worlds' statistics
SOURCES = ("odds", "sums", "tokens")
# The control gets a stronger probe, so that what is left is not a weak probe's.
PROBES = {PREDICTION: ("ridge", "quadratic"), CONTROL: ("ridge", "quadratic", "kernel")}
# Where tokens are normal given the latent. (With a latent variance they have heavy tails, and
# the share that a quadratic probe leaves is a matter of the largest few.)
CONTINUOUS = ("normal mean", "one of three classes")
KINDS = {"smoke": tuple(WORLDS)[:1], "default": tuple(WORLDS), "full": tuple(WORLDS)}
CONTROL_KINDS = {"smoke": CONTINUOUS[:1], "default": CONTINUOUS, "full": CONTINUOUS}
BLOCKS = {"smoke": 1, "default": 3, "full": 27}  # of two seeds
EXCESS = Region(high=0.02)


def plan(profile: Profile) -> Iterable[Work]:
    for arm, kinds in ((PREDICTION, KINDS[profile]), (CONTROL, CONTROL_KINDS[profile])):
        for kind in kinds:
            for seeds in blocks(BLOCKS[profile], 2):
                yield Work(arm, {"world": kind}, seeds, 0.5)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """excess(B | R) for each R, one a seed: each draws episodes, fits, chooses and judges anew."""
    found: dict[str, list[float]] = {}
    for seed in seeds:
        drawn = tables(parameters["world"], seed)
        inner = drawn.pop("posterior" if arm == PREDICTION else "tokens")
        draws = np.random.default_rng([seed, 2])
        rows = split(EPISODES, draws)
        for source in SOURCES:
            if source in drawn:
                reading = share_left(drawn[source], inner, rows, PROBES[arm], draws)
                found.setdefault(source, []).append(reading.value)
    return {name: np.array(values) for name, values in found.items()}


def tables(kind: str, seed: int) -> dict[str, np.ndarray]:
    """The posterior's statistics and each sufficient representation, one row an episode."""
    world = WORLDS[kind]
    # As many episodes as A.sufficient draws: the same compiled program serves both.
    keys = jax.random.split(episode_keys((seed,), LENGTH, 1)[0], DRAWN[kind])
    latent, tokens, _, statistics = sampled(world, described(world).natural, keys, LENGTH)
    # Latents of episodes that are not used otherwise.
    latents = jax.tree.map(lambda leaf: leaf[-LATENTS:], latent)
    kept = jax.tree.map(lambda leaf: leaf[:EPISODES], tokens)
    logs = np.asarray(log_likelihoods(world, latents, kept))
    return {
        "posterior": np.asarray(statistics)[:EPISODES],
        "odds": logs[:, 1:] - logs[:, :1],
        "sums": sums(kept),
        "tokens": in_order(kept),
    }


@eqx.filter_jit
def log_likelihoods(
    world: ExactWorld, latents: Any, tokens: Any
) -> Float[Array, "episodes latents"]:
    each = jax.vmap(world.log_likelihood, (0, None))
    return jax.vmap(each, (None, 0))(latents, tokens)


def sums(tokens: Any) -> np.ndarray:
    """Σ x and Σ x²; Σ k v and Σ k kᵀ."""
    if isinstance(tokens, Pairs):
        key, value = np.asarray(tokens.key), np.asarray(tokens.value)
        outer = np.einsum("nli,nlj->nij", key, key).reshape(len(key), -1)
        return np.concatenate([(key * value).sum(1), outer], axis=1)
    x = np.asarray(tokens)
    return np.concatenate([x.sum(1), (x**2).sum(1)], axis=1)


def in_order(tokens: Any) -> np.ndarray:
    """All tokens, by their first coordinate."""
    x = np.concatenate([np.asarray(leaf) for leaf in jax.tree.leaves(tokens)], axis=2)
    order = np.argsort(x[:, :, :1], axis=1, kind="stable")
    return np.take_along_axis(x, order, axis=1).reshape(len(x), -1)


def judge(measured: Sequence[Measured]) -> list[Part]:
    parts = []
    for kind, cells in by(measured, "world").items():
        for source in cells[0].values:
            values = np.concatenate([cell.values[source] for cell in cells])
            quantity = f"share that is not determined by {source} ({kind})"
            parts.append(judge_part(quantity, values, EXCESS))
    return parts


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        name = "posterior" if arm == PREDICTION else "sorted tokens"
        for source in SOURCES[: 3 if arm == PREDICTION else 2]:
            drawn = []
            for kind, cells in by(measured, "world").items():
                values = np.concatenate([cell.values[source] for cell in cells])
                reading = mean_reading(values)
                half = t_interval(reading)[1] - reading.value
                # Rounding is all that is left in places; a logarithmic axis shows that at 1e−16.
                drawn.append(Point(1.0 + list(WORLDS).index(kind), max(reading.value, 1e-16), half))
            series.append(Series(f"{name}, from {source}", tuple(drawn), control=arm != PREDICTION))
    edge = tuple(Point(float(at), EXCESS.high) for at in (1, len(WORLDS)))
    series.append(Series("what the claim allows", edge, line=True))
    return Figure(
        f"Share not determined: {', '.join(f'{i} {name}' for i, name in enumerate(WORLDS, 1))}",
        "world", "share of variance", tuple(series), log_x=False,
    )  # fmt: skip


CLAIM = Claim(
    id="A.minimal",
    title="The posterior is a minimal representation",
    statement=(
        "The posterior's statistics are a function of every other sufficient representation of "
        "the tokens: they hold nothing beside what is needed."
    ),
    formula=(
        r"M(B\mid R)=1-\frac{\mathrm{Var}\,\mathbb{E}\left[B\mid R\right]}{\mathrm{Var}\,B}=0"
        r"\quad\text{for every sufficient } R"
    ),
    prediction=(
        "At most 0.02 of the variance of the posterior's statistics is left undetermined by each "
        "of three sufficient representations, in each of five worlds."
    ),
    controls={CONTROL: "Sorted tokens of a continuous world in the place of the posterior."},
    assumptions=(
        "Tokens are exchangeable: independent given the latent (by construction).",
        "The probes can express the map between two representations (a weak probe could only "
        "raise the share).",
    ),
    meaning=(
        "A representation that is larger than the posterior carries what no label of the latent "
        "needs: room that a smaller layer could save."
    ),
    source="Lens A, claim (a).",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
