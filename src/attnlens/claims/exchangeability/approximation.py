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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work, blocks
from attnlens.claims.trained_networks import across_cells, judge_slope, line
from attnlens.core.drawing import Figure
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.inference.episodes import Episodes
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, learn
from attnlens.networks.reader import Reader
from attnlens.worlds import LinearRegression

KEY_DIM, NOISE_STD = 3, 0.5
NETWORK = partial(Reader, key_dim=KEY_DIM, query_dim=KEY_DIM, heads=2, hidden=16)
SAMPLES = 2048
TEST_SEQUENCES = 1024
LENGTHS = {"smoke": (4, 16), "default": (4, 16, 64), "full": (4, 16, 64, 256)}
SEEDS_PER_BLOCK = 8  # trained as one program
# The full profile has eleven times as many blocks as the default: with nine times as many the
# interval was 2.9 times as narrow instead of 3.
BLOCKS = {"smoke": 1, "default": 2, "full": 22}
TRAINING = {"steps": 1000}
CONTROL = "unrelated"
SLOPE = Region(high=-0.2)  # of a squared error


def plan(profile: Profile) -> Iterable[Work]:
    for arm in (PREDICTION, CONTROL):
        for length in LENGTHS[profile]:
            for seeds in blocks(BLOCKS[profile], SEEDS_PER_BLOCK):
                yield Work(arm, {"length": length}, seeds, 1 + 0.02 * length)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """E(f̂ − m)² for every seed."""
    world, length = LinearRegression(key_dim=KEY_DIM, noise_std=NOISE_STD), parameters["length"]
    train = draw(world, seeds, SAMPLES, length, TRAIN)
    test = draw(world, seeds, TEST_SEQUENCES, length, TEST)
    if arm != PREDICTION:
        train, test = _unrelated(world, train), _unrelated(world, test)
    return {"risk": learn(NETWORK, train, test, seeds, (SAMPLES,), **TRAINING).risk[:, 0]}


def _unrelated(world: LinearRegression, episodes: Episodes) -> Episodes:
    """The tokens of another sequence with the label of this one.

    The tokens then say nothing about z, so the exact answer is the prior mean, zero, and its
    variance is that of ⟨z, q⟩.
    """
    inputs = episodes.inputs
    key, value = (np.roll(part, 1, axis=1) for part in (inputs.key, inputs.value))
    prior = world.prior()
    variance = jax.vmap(jax.vmap(lambda q: world.uncertainty(prior, q[None])))(inputs.query)
    inputs = inputs._replace(key=key, value=value)
    return Episodes(inputs, episodes.target, np.zeros_like(episodes.exact), np.asarray(variance))


def judge(measured: Sequence[Measured]) -> list[Part]:
    logs = across_cells(measured, "risk", "length")
    return [judge_slope("slope of the squared distance to knowing the latent", logs, SLOPE)]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    names = {PREDICTION: "trained attention", CONTROL: "tokens of another sequence"}
    series = [
        line(names[arm], across_cells(cells, "risk", "length"), control=arm != PREDICTION)
        for arm, cells in arms.items()
    ]
    return Figure(
        "Error of the trained network against m(q, z), over length",
        "tokens L",
        "mean squared error to m(q, z)",
        tuple(series),
    )


CLAIM = Claim(
    id="A.approximation",
    title="The approximation error falls with length",
    statement=(
        "The squared distance between a trained attention network and the answer that knows the "
        "latent falls as sequences become longer."
    ),
    formula=r"\mathbb{E}\left(\hat f(X,q)-m(q,z)\right)^2 \;\text{falls in}\; L",
    prediction="The slope of that squared error in L, on log–log axes, is at most −0.2.",
    controls={CONTROL: "The tokens come from another sequence and say nothing about z."},
    assumptions=("Tokens carry information about the latent (the control breaks this).",),
    meaning=(
        "More context helps even a small network of fixed size: its error falls as the posterior "
        "becomes narrower, unless the context is unrelated to the question."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (c); our formalisation: "
        "docs/theory.md, prediction 11."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
