"""A.approximation: more tokens bring a trained network closer to the answer that knows the latent.

Our formalisation of statement (c) of lens A (Zhang et al., 2022), approximation error
(docs/theory.md, prediction 11). If z were known, the answer would be m(q, z). A network f̂ that sees
L tokens has the risk E(f̂ − m(q, z))². With f* the exact predictor, the conditional mean of m given
the tokens,

    E(f̂ − m)² = E(f̂ − f*)² + E(f* − m)²

and the second term is the posterior variance, which is known for every sequence. Both terms fall
with L. One network is trained per length, to predict the next token of a linear regression with
latent weights.

The risk of every seed is positive by construction, so seeds are the replicates.

*A limit of this claim.* The second term falls in any case as the posterior becomes narrower, so the
sum falls even if the first term does not: the posterior variance alone has a slope of −1.12 over
these lengths. An untrained linear read with one fitted number has a slope of −0.84, and a smaller
error than the network at every length. A.trained-efficiency judges the first term relative to the
second, and is refuted. How the error depends on the width of the network is not judged here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning, Profile
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.exchangeability.statements import APPROXIMATION, cite
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.trained_networks import FITTING, NETWORK, fitting, reader
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.episodes import Episodes
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, learn
from attnlens.worlds import LinearRegression

CONTROL = "unrelated"
BLOCKS: Mapping[Profile, int] = {"smoke": 1, "default": 2, "full": 22}
GRID = Grid(
    settings={
        "key_dim": 3,
        "noise_std": 0.5,
        "samples": 2048,
        "test_sequences": 1024,
        **NETWORK,
        **FITTING,
        "steps": 1000,
    },
    axes={"length": {"smoke": (4, 16), "default": (4, 16, 64), "full": (4, 16, 64, 256)}},
    # The interval of the full profile must be a third of the default's: with nine times as many
    # blocks it was narrower by a factor of 2.9 only, so there are eleven times as many.
    blocks={PREDICTION: BLOCKS, CONTROL: BLOCKS},
    seeds_per_block=8,  # the networks of a block are trained in one compiled program
    cost=lambda parameters, seeds: 1 + 0.02 * parameters["length"],
    pilot=range(1000),
)
RISK = ScalingLaw("risk", "length")
RULE = Rule(
    Quantity(
        "slope",
        "slope of the squared distance to knowing the latent ({span})",
        RISK.slopes,
        Region(high=-0.2),  # slope of the squared error; that of its root is half as large
        power=Power(-0.86, 0.048),  # pilot of sixteen seeds
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The risk E(f̂ − m)² of the trained network, one per seed."""
    dim, length, samples = (parameters[n] for n in ("key_dim", "length", "samples"))
    world = LinearRegression(dim, parameters["noise_std"])
    train = draw(world, seeds, samples, length, TRAIN)
    test = draw(world, seeds, parameters["test_sequences"], length, TEST)
    if arm != PREDICTION:
        train, test = _unrelated(world, train), _unrelated(world, test)
    make = reader(parameters, key_dim=dim, query_dim=dim)
    return {"risk": learn(make, train, test, seeds, (samples,), **fitting(parameters)).risk[:, 0]}


def _unrelated(world: LinearRegression, episodes: Episodes) -> Episodes:
    """Episodes in which each label is combined with the tokens of another sequence.

    The tokens then have no information about z. So the exact answer is the prior mean, zero, and
    its variance is the prior variance of ⟨z, q⟩.
    """
    inputs = episodes.inputs
    key, value = (np.roll(part, 1, axis=1) for part in (inputs.key, inputs.value))
    prior = world.prior()
    variance = jax.vmap(jax.vmap(lambda q: world.uncertainty(prior, q[None])))(inputs.query)
    inputs = inputs._replace(key=key, value=value)
    return Episodes(inputs, episodes.target, np.zeros_like(episodes.exact), np.asarray(variance))


FIGURE = Lines(
    "Error of the trained network against m(q, z), over length",
    "tokens L",
    "mean squared error to m(q, z)",
    RISK,
    {PREDICTION: "trained attention", CONTROL: "tokens of another sequence"},
)


CLAIM = Claim(
    id="A.approximation",
    title="The error of a trained network falls as the posterior narrows",
    statement=(
        "The squared distance between a trained attention network and the answer that knows the "
        "latent falls as sequences become longer."
    ),
    formula=r"\mathbb{E}\left(\hat f(X,q)-m(q,z)\right)^2 \;\text{falls in}\; L",
    prediction="The slope of that squared error in L, on log–log axes, is $slope.",
    controls={CONTROL: Control("The tokens come from another sequence and say nothing about z.")},
    assumptions=(
        Assumption("Tokens carry information about the latent", Check.CONTROL, control=CONTROL),
    ),
    meaning=Meaning(
        supported=(
            "More context helps even a small network of fixed size: its error falls as the "
            "posterior becomes narrower, unless the context is unrelated to the question. This "
            "says that the network uses the context, not how well: simpler predictors pass the "
            "same rule."
        ),
        refuted=(
            "A small network of fixed size does not use a longer context: do not lengthen the "
            "context without a larger network."
        ),
        undecided=(
            "Whether a small network of fixed size gains from a longer context is open: compare "
            "two lengths on your own data."
        ),
    ),
    source=cite("statement (c)", "prediction 11"),
    attribution=APPROXIMATION,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
