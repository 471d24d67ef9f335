"""A.minimal: the posterior can be computed from every other sufficient representation.

Our formalisation of statement (a) of lens A (Zhang et al., 2022), "a sufficient and minimal
representation of input tokens" (docs/theory.md, section A(a)). A minimal representation has no
information that another sufficient representation lacks. For a representation B and a sufficient
representation R, the share of the variance of B (coordinates standardised) that R does not
determine,

    excess(B | R) = 1 − R² of the best probe from R to B, on held-out episodes,

must be 0 if B is the posterior's statistics, for every sufficient R. Three R are tried:

    odds     log p(X | z_j) − log p(X | z_0) at 33 latents drawn from the prior
    sums     Σ x and Σ x² (Σ k v and Σ k kᵀ where tokens carry keys)
    tokens   all tokens, in sorted order

Two of these are trivial and only test the probe: by the update formula of the world the posterior's
statistics are linear in `sums`, and they are a function of `tokens`. `odds` are not trivial: they
represent the posterior as a law, without any parametrisation. The likelihood as a function of z, up
to a factor, is *the* minimal sufficient statistic (Lehmann and Scheffé, Sankhyā 1950), and it is
computed from the world's density of tokens, not from its update formula. The excess content of the
posterior is 0 if its statistics are a function of the odds, and not of some other property of the
tokens. In these conjugate worlds all three maps are linear or quadratic, and the probes can express
them, so a share of the size of rounding errors is expected; the margin of 0.02 is for worlds in
which a probe can only approximate the map.

In the control, B is the sorted tokens. They are sufficient, but in a continuous world neither odds
nor sums determine them. (Sorted categorical tokens *are* the counts, so the control has no
categorical world.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from attnlens.claims.cells import Measured, group_by
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import pooled
from attnlens.claims.exchangeability.statements import REPRESENTATION, cite
from attnlens.claims.figures import level_line, mean_point
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.verdicts import Region
from attnlens.instruments.representation.families import posterior_family
from attnlens.instruments.representation.probes import split
from attnlens.instruments.representation.sufficiency import sample_episodes, unexplained_share
from attnlens.worlds import ExactWorld
from attnlens.worlds.base import Pairs
from attnlens.worlds.seeding import episode_keys

from .sufficient import NAMES, make_world, world_settings
from .sufficient import episodes as episodes_drawn

CONTROL = "sorted-tokens"
# Worlds of the control: their tokens are normal given the latent. (If the variance is latent too,
# tokens have heavy tails, and the share that a quadratic probe does not explain depends on the few
# largest tokens.)
CONTINUOUS = ("normal mean", "one of three classes")
BLOCKS = {"smoke": 1, "default": 3, "full": 27}
GRID = Grid(
    settings={
        "length": 8,
        # 614 of them are used to fit; a quadratic in 24 coordinates has 325 coefficients.
        "episodes": 1024,
        "latents": 33,  # more than twice the dimension of the statistics in each world
        "representation": "posterior",  # B
        "sources": ["odds", "sums", "tokens"],  # R
        "probes": ["ridge", "quadratic"],
    },
    axes={"world": {"smoke": NAMES[:1], "default": NAMES, "full": NAMES}},
    arm_settings={
        CONTROL: {
            "representation": "tokens",
            "sources": ["odds", "sums"],
            # With the stronger kernel probe, a large share cannot be due to weak probes.
            "probes": ["ridge", "quadratic", "kernel"],
            "world": {"smoke": CONTINUOUS[:1], "default": CONTINUOUS, "full": CONTINUOUS},
        }
    },
    # As many episodes as A.sufficient draws, so that both claims share one compiled program.
    derived={"world_settings": world_settings, "episodes_drawn": episodes_drawn},
    blocks={PREDICTION: BLOCKS, CONTROL: BLOCKS},
    seeds_per_block=2,
    cost=lambda parameters, seeds: 0.5,
)
EXCESS = Region(high=0.02)


def share(source: str, **where: Any) -> Quantity:
    name = f"share that is not determined by {source} ({{world}})"
    return Quantity(source, name, pooled(source), EXCESS, per=("world",), where=where)


# For the control, the share of `tokens` is not judged, because there B is the sorted tokens.
RULE = Rule(share("odds"), share("sums"), share("tokens", representation="posterior"))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """excess(B | R) for each R, one per seed.

    Every seed draws its own episodes; probes are fitted, chosen and scored on parts of them.
    """
    excess: dict[str, list[float]] = {source: [] for source in parameters["sources"]}
    for seed in seeds:
        representations = draw_representations(parameters, seed)
        inner = representations[parameters["representation"]]
        draws = np.random.default_rng([seed, 2])
        rows = split(parameters["episodes"], draws)
        for source, shares in excess.items():
            outer, probes = representations[source], parameters["probes"]
            shares.append(unexplained_share(outer, inner, rows, probes, draws).value)
    return {name: np.array(values) for name, values in excess.items()}


def draw_representations(parameters: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
    """The posterior's statistics and each sufficient representation, one row per episode."""
    world, length = make_world(parameters["world_settings"]), parameters["length"]
    key, rows = episode_keys((seed,), length, 1)[0], parameters["episodes"]
    latent, tokens, _, statistics = sample_episodes(
        world,
        posterior_family(world).natural,
        jax.random.split(key, parameters["episodes_drawn"]),
        length,
    )
    # The latents are those of further episodes, whose tokens are not used.
    latents = jax.tree.map(lambda leaf: leaf[-parameters["latents"] :], latent)
    tokens = jax.tree.map(lambda leaf: leaf[:rows], tokens)
    logs = np.asarray(log_likelihoods(world, latents, tokens))
    return {
        "posterior": np.asarray(statistics)[:rows],
        "odds": logs[:, 1:] - logs[:, :1],
        "sums": token_sums(tokens),
        "tokens": sorted_tokens(tokens),
    }


@eqx.filter_jit
def log_likelihoods(
    world: ExactWorld, latents: Any, tokens: Any
) -> Float[Array, "episodes latents"]:
    """log p(tokens of the episode | latent), for every episode and every latent."""
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


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        name = "posterior" if arm == PREDICTION else "sorted tokens"
        for source in measured[0].parameters["sources"] if measured else ():
            shares = []
            for world, cells in group_by(measured, "world").items():
                point = mean_point(1.0 + NAMES.index(world), pooled(source)(cells))
                # On the logarithmic axis, shares below 1e−16 are shown at 1e−16.
                shares.append(Point(point.x, max(point.y, 1e-16), point.half_width))
            label = f"{name}, from {source}"
            series.append(Series(label, tuple(shares), control=arm != PREDICTION))
    series.append(level_line("largest share that the claim allows", EXCESS.high, 1, len(NAMES)))
    return Figure(
        f"Share not determined: {', '.join(f'{i} {name}' for i, name in enumerate(NAMES, 1))}",
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
        "At most $odds_high of the variance of the posterior's statistics is left undetermined by "
        "each of three sufficient representations, in each of five worlds: $world."
    ),
    controls={
        CONTROL: Control(
            "Sorted tokens of a continuous world in place of the posterior.",
            quantities=("odds", "sums"),
        )
    },
    assumptions=(
        Assumption("Tokens are exchangeable: independent given the latent", Check.BY_CONSTRUCTION),
        Assumption(
            "The probes can express the map between two representations; a weak probe could only "
            "raise the share"
        ),
    ),
    meaning=Meaning(
        supported=(
            "A representation that holds more than the posterior holds numbers that no label of "
            "the latent needs: a smaller layer would be enough."
        ),
        refuted=(
            "The posterior's statistics hold something that another sufficient representation "
            "lacks: do not take their number as the smallest width of a layer."
        ),
        undecided=(
            "Whether the posterior's statistics are the smallest sufficient summary is open: do "
            "not narrow a layer for this reason yet."
        ),
    ),
    source=cite("statement (a)", "section A(a)"),
    attribution=REPRESENTATION,
    plan=GRID,
    measure=measure,
    judge=RULE,
    exact=True,
    figure=figure,
)
