"""A.minimal: the posterior can be computed from every other sufficient representation.

Our formalisation of statement (a) of lens A (Zhang et al., 2022), "a sufficient and minimal
representation of input tokens" (docs/theory.md, section A(a)). A minimal representation holds
nothing that another sufficient one lacks. For a representation B and a sufficient one R, the share
of the variance of B (coordinates standardised) that R does not determine,

    excess(B | R) = 1 − R² of the best probe from R to B, on held-out episodes,

must be 0 if B is the posterior's statistics, for every sufficient R. Three R are tried:

    odds     log p(X | z_j) − log p(X | z_0) at 33 latents drawn from the prior
    sums     Σ x and Σ x² (Σ k v and Σ k kᵀ where tokens carry keys)
    tokens   all tokens, in sorted order

Two of these are trivial: from `sums` the statistics are linear by the update formula of the world,
and from `tokens` they can be computed because they are a function of them; both only test the
probe. `odds` are not: they are the posterior as a law, without any parametrisation. The likelihood
as a function of z, up to a factor, is *the* minimal sufficient statistic (Lehmann and Scheffé,
Sankhyā 1950), and it comes from the world's density of tokens, not from its update. The excess
content of the posterior is 0 if its statistics are a function of the odds, and not of some other
property of the tokens. In these conjugate worlds all three maps are linear or quadratic, and the
probes can express them, so a share of rounding size is expected; the margin of 0.02 is for worlds
where a probe must approximate.

The control has sorted tokens in place of B. They are sufficient, but in a continuous world neither
odds nor sums determine them. (Sorted categorical tokens *are* the counts, so the control has no
categorical world.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work, blocks, group_by
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.statistics import judge as judge_part
from attnlens.core.statistics import mean_reading
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.representation.families import posterior_family
from attnlens.instruments.representation.probes import split
from attnlens.instruments.representation.sufficiency import sample_episodes, unexplained_share
from attnlens.worlds import ExactWorld
from attnlens.worlds.base import Pairs
from attnlens.worlds.seeding import episode_keys

from .sufficient import EPISODES as EPISODES_DRAWN
from .sufficient import WORLDS

CONTROL = "sorted-tokens"
LENGTH = 8
EPISODES = 1024  # 614 to fit: a quadratic in 24 coordinates has 325 coefficients
LATENTS = 33  # more than twice the dimension of the statistics of each of the five worlds
SOURCES = ("odds", "sums", "tokens")
# The control has a stronger probe too, so that a large share is not due to a weak probe.
PROBES = {PREDICTION: ("ridge", "quadratic"), CONTROL: ("ridge", "quadratic", "kernel")}
# Worlds whose tokens are normal given the latent. (With a latent variance tokens have heavy tails,
# and the share that a quadratic probe leaves depends on the few largest tokens.)
CONTINUOUS = ("normal mean", "one of three classes")
PROFILE_WORLDS = {"smoke": tuple(WORLDS)[:1], "default": tuple(WORLDS), "full": tuple(WORLDS)}
CONTROL_WORLDS = {"smoke": CONTINUOUS[:1], "default": CONTINUOUS, "full": CONTINUOUS}
BLOCKS = {"smoke": 1, "default": 3, "full": 27}  # of two seeds
EXCESS = Region(high=0.02)


def plan(profile: Profile) -> Iterable[Work]:
    for arm, worlds in ((PREDICTION, PROFILE_WORLDS[profile]), (CONTROL, CONTROL_WORLDS[profile])):
        for world in worlds:
            for seeds in blocks(BLOCKS[profile], 2):
                yield Work(arm, {"world": world}, seeds, 0.5)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """excess(B | R) for each R, one per seed.

    Every seed draws its own episodes, on which probes are fitted, chosen and scored.
    """
    excess: dict[str, list[float]] = {}
    for seed in seeds:
        representations = draw_representations(parameters["world"], seed)
        inner = representations.pop("posterior" if arm == PREDICTION else "tokens")
        draws = np.random.default_rng([seed, 2])
        rows = split(EPISODES, draws)
        for source in SOURCES:
            if source in representations:
                reading = unexplained_share(
                    representations[source], inner, rows, PROBES[arm], draws
                )
                excess.setdefault(source, []).append(reading.value)
    return {name: np.array(values) for name, values in excess.items()}


def draw_representations(name: str, seed: int) -> dict[str, np.ndarray]:
    """The posterior's statistics and each sufficient representation, one row per episode."""
    world = WORLDS[name]
    # As many episodes as A.sufficient draws, so that both claims share one compiled program.
    keys = jax.random.split(episode_keys((seed,), LENGTH, 1)[0], EPISODES_DRAWN[name])
    latent, tokens, _, statistics = sample_episodes(
        world, posterior_family(world).natural, keys, LENGTH
    )
    # The latents come from episodes that are not used otherwise.
    latents = jax.tree.map(lambda leaf: leaf[-LATENTS:], latent)
    tokens = jax.tree.map(lambda leaf: leaf[:EPISODES], tokens)
    logs = np.asarray(log_likelihoods(world, latents, tokens))
    return {
        "posterior": np.asarray(statistics)[:EPISODES],
        "odds": logs[:, 1:] - logs[:, :1],
        "sums": token_sums(tokens),
        "tokens": sorted_tokens(tokens),
    }


@eqx.filter_jit
def log_likelihoods(
    world: ExactWorld, latents: Any, tokens: Any
) -> Float[Array, "episodes latents"]:
    """log p(tokens of the episode | latent)."""
    over_latents = jax.vmap(world.log_likelihood, (0, None))
    return jax.vmap(over_latents, (None, 0))(latents, tokens)


def token_sums(tokens: Any) -> np.ndarray:
    """Σ x and Σ x²; Σ k v and Σ k kᵀ where tokens carry keys."""
    if isinstance(tokens, Pairs):
        key, value = np.asarray(tokens.key), np.asarray(tokens.value)
        outer = np.einsum("nli,nlj->nij", key, key).reshape(len(key), -1)
        return np.concatenate([(key * value).sum(1), outer], axis=1)
    x = np.asarray(tokens)
    return np.concatenate([x.sum(1), (x**2).sum(1)], axis=1)


def sorted_tokens(tokens: Any) -> np.ndarray:
    """All tokens, sorted by their first coordinate."""
    x = np.concatenate([np.asarray(leaf) for leaf in jax.tree.leaves(tokens)], axis=2)
    order = np.argsort(x[:, :, :1], axis=1, kind="stable")
    return np.take_along_axis(x, order, axis=1).reshape(len(x), -1)


def judge(measured: Sequence[Measured]) -> list[Part]:
    parts = []
    for world, cells in group_by(measured, "world").items():
        for source in cells[0].values:
            values = np.concatenate([cell.values[source] for cell in cells])
            quantity = f"share that is not determined by {source} ({world})"
            parts.append(judge_part(quantity, values, EXCESS))
    return parts


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        name = "posterior" if arm == PREDICTION else "sorted tokens"
        for source in SOURCES[: 3 if arm == PREDICTION else 2]:
            shares = []
            for world, cells in group_by(measured, "world").items():
                values = np.concatenate([cell.values[source] for cell in cells])
                reading = mean_reading(values)
                # Where the share is of rounding size, the logarithmic axis shows it at 1e−16.
                place = 1.0 + list(WORLDS).index(world)
                shares.append(Point(place, max(reading.value, 1e-16), reading.half_width()))
            label = f"{name}, from {source}"
            series.append(Series(label, tuple(shares), control=arm != PREDICTION))
    edge = tuple(Point(float(place), EXCESS.high) for place in (1, len(WORLDS)))
    series.append(Series("largest share that the claim allows", edge, line=True))
    return Figure(
        f"Share not determined: {', '.join(f'{i} {name}' for i, name in enumerate(WORLDS, 1))}",
        "world",
        "share of variance",
        tuple(series),
        log_x=False,
    )


CLAIM = Claim(
    id="A.minimal",
    title="The posterior is a minimal representation",
    statement=(
        "The posterior's statistics are a function of every other sufficient representation of "
        "the tokens: they hold nothing that is not needed."
    ),
    formula=(
        r"M(B\mid R)=1-\frac{\mathrm{Var}\,\mathbb{E}\left[B\mid R\right]}{\mathrm{Var}\,B}=0"
        r"\quad\text{for every sufficient } R"
    ),
    prediction=(
        "At most 0.02 of the variance of the posterior's statistics is left undetermined by each "
        "of three sufficient representations, in each of five worlds."
    ),
    controls={CONTROL: "Sorted tokens of a continuous world in place of the posterior."},
    assumptions=(
        "Tokens are exchangeable: independent given the latent (by construction).",
        "The probes can express the map between two representations (a weak probe could only "
        "raise the share).",
    ),
    meaning=(
        "A representation that holds more than the posterior holds numbers that no label of the "
        "latent needs: a smaller layer would be enough."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (a); our formalisation: "
        "docs/theory.md, section A(a)."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
