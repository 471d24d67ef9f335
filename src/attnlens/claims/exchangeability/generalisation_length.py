"""A.generalisation-length: the generalisation gap does not grow with the length of sequences.

Our formalisation of statement (c) of lens A (Zhang et al., 2022), a generalisation error that is
"independent of input sizes" (docs/theory.md, prediction 10). An attention layer has the same
parameters for every number of tokens, and it reads weighted means, whose scale does not grow with
L. So with n training sequences, n fixed, the gap (see A.generalisation-samples) should not grow
with L. A plain network that reads the tokens as one long vector has a weight for every token: at
fixed n its gap grows with L.

The latent is a mean in the plane, tokens are noisy observations of it, and the label is the next
token. The plain network has 4 hidden units, so it has at most 1,024 input weights for 2,048
sequences in the default range. With more weights it could fit every label; then the gap would
saturate, and its slope would say nothing.

A gap of about p/n (p parameters) has a standard deviation over seeds as large as itself if few of
the p directions matter (a χ² with few degrees of freedom), so eight seeds are averaged before the
logarithm is taken.

*A limit of this world.* All tokens are equally relevant, so a mean over all of them is enough and
no head has to select tokens. In a pilot in which a head must select 8 relevant tokens among L (keys
of 8 dimensions, n = 1024) the gap was 0.0119 at L = 16 and 0.0146 at L = 128 over 16 seeds: a slope
of 0.10 ± 0.1, at the end of the region. So the claim is judged where no selection is needed, and is
open where tokens must be selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx

from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.exchangeability.statements import GENERALISATION, cite
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.trained_networks import FITTING, NETWORK, fitting, reader
from attnlens.core.verdicts import Region
from attnlens.instruments.inference.learned import TEST, TRAIN, draw, learn
from attnlens.networks.dense import Baseline
from attnlens.networks.reader import ReaderInputs
from attnlens.worlds import NormalMean

CONTROL = "flattened"
GRID = Grid(
    settings={
        "dim": 2,
        "noise_std": 1.0,
        "prior_std": 1.0,
        "samples": 2048,  # n·L = 2¹⁸ at the longest default length
        "test_sequences": 2048,
        "plain_hidden": 4,  # hidden units of the plain network; `hidden` is for attention
        **NETWORK,
        **FITTING,
        "steps": 1000,
    },
    axes={"length": {"smoke": (8, 32), "default": (8, 32, 128), "full": (8, 32, 128, 512)}},
    # The slope of the plain network is near one, ten times the margin, so the control needs few
    # blocks. It is limited to L ≤ 128: at L = 512 the plain network has more weights than there are
    # sequences.
    arm_settings={
        CONTROL: {"length": {"smoke": (8, 32), "default": (8, 32, 128), "full": (8, 32, 128)}}
    },
    blocks={
        PREDICTION: {"smoke": 2, "default": 8, "full": 72},
        CONTROL: {"smoke": 2, "default": 3, "full": 6},
    },
    seeds_per_block=8,
    cost=lambda parameters, seeds: 0.6 + 0.01 * parameters["length"],
    pilot=range(1000),
)
GAP = ScalingLaw("gap", "length", replicate="jackknife")
RULE = Rule(
    Quantity(
        "slope",
        "slope of the generalisation gap in the length ({span})",
        GAP.slopes,
        Region(high=0.10),
    )
)


class Flattened(eqx.Module):
    """A plain network that reads all tokens as one vector."""

    network: Baseline

    def __init__(self, key: Any, **sizes: Any):
        self.network = Baseline(key, **sizes)

    def __call__(self, inputs: ReaderInputs) -> Any:
        return self.network(inputs.value.reshape(-1))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The generalisation gap of every seed."""
    dim, length, samples = (parameters[n] for n in ("dim", "length", "samples"))
    world = NormalMean(dim, parameters["noise_std"], parameters["prior_std"])
    make: Any = reader(parameters, key_dim=dim, value_dim=dim, outputs=dim)
    if arm != PREDICTION:
        shape = {"features": length * dim, "hidden": parameters["plain_hidden"], "outputs": dim}
        make = partial(Flattened, **shape, sharpness=parameters["sharpness"])
    train = draw(world, seeds, samples, length, TRAIN, exact=False)
    test = draw(world, seeds, parameters["test_sequences"], length, TEST, exact=False)
    return {"gap": learn(make, train, test, seeds, (samples,), **fitting(parameters)).gap[:, 0]}


FIGURE = Lines(
    "Generalisation gap over the length of sequences, n = {samples}",
    "tokens L",
    "generalisation gap",
    GAP,
    {PREDICTION: "attention", CONTROL: "plain network on flattened tokens"},
)


CLAIM = Claim(
    id="A.generalisation-length",
    title="The generalisation gap does not grow with length",
    statement=(
        "At a fixed number of sequences, the generalisation gap of an attention network does not "
        "grow with the number of tokens in a sequence."
    ),
    formula=r"\mathrm{gap}(n, L) = O\left(L^{0}\right)\quad\text{at fixed } n",
    prediction="The slope of the gap in L, on log–log axes, is $slope.",
    controls={CONTROL: Control("A plain network reads the same tokens as one long vector.")},
    assumptions=(
        Assumption(
            "The parameters of the network do not depend on L", Check.CONTROL, control=CONTROL
        ),
        Assumption(
            "Tokens are exchangeable, so that weighted means are sufficient", Check.BY_CONSTRUCTION
        ),
    ),
    meaning=Meaning(
        supported=(
            "Where a mean of the tokens is enough, attention needs no more labelled sequences when "
            "contexts become longer; a network with a weight for every token needs more with every "
            "token. Where a head must select tokens, it is open: a pilot was on the boundary."
        ),
        refuted=(
            "The gap of attention grows with the context: plan for more labelled sequences when "
            "contexts become longer."
        ),
        undecided=(
            "Whether longer contexts need more labelled sequences is open: measure the gap at the "
            "longest context that you need."
        ),
    ),
    source=cite("statement (c)", "prediction 10"),
    attribution=GENERALISATION,
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
