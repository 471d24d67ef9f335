"""A.learned-representation: what masked pretraining learns is sufficient, minimal and reusable.

Our formalisation of statements (a) and (c) of lens A (Zhang et al., 2022) together (docs/theory.md,
section A(a) and prediction 13). A.sufficient and A.minimal are about the posterior, which is
sufficient and minimal by definition. This claim measures the representation R(X) of a *trained*
encoder: the three numbers of its bottleneck (`attnlens.claims.masked_pretraining`). The encoder is
pretrained on n sequences to predict the next token, then frozen.

    sufficiency gap   S = E[log P(z|X) − log P(z|R)], in nats: the posterior is normal, and P(z|R)
                      is fitted as a normal law with a linear mean on half of the test sequences
                      and evaluated on the other half. The same fit on the exact posterior mean is
                      subtracted. A fitted law is never better than the true P(z|R), so this is an
                      upper bound of the true gap.
    excess content    M = the share of the variance of R that the posterior mean does not determine
                      (linear regression on one half, residual on the other)
    reuse             the largest of 20 ratios: error of a head on R with 64 labels ⟨c, z⟩ + noise,
                      over the error of the same head on the exact posterior mean

Nine directions of a token contain only noise. The bottleneck's weights on them are learned with a
variance of order 1/n (see A.self-supervised). They add noise to R, which increases S and M in
proportion to the squared weights: both fall with slope −1. The curves bend: in the pilot (16 seeds,
logs of means) the slopes from 512 to 2048 were −1.22 (S) and −1.30 (M), and from 2048 to 8192 −1.01
and −1.02. So the last local slope is judged, with the region −1 ± 0.2. At n = 8192 the worst of the
20 ratios must be at most 1.10 (1.045 ± 0.015 in the pilot; 1.13 at n = 2048).

A sceptic may say that any linear projection has these properties. In the control the same network
is trained on the next tokens of other sequences, and S and M of its bottleneck do not fall. Other
worlds are not tested: here one weighted mean of the tokens is sufficient, and the network can
represent it.

A replicate is a seed: it redraws the world, the directions, data and start. S and M scatter by 30
to 50 % between seeds, so logarithms of means over seeds are taken, with jackknife pseudo-values. A
local slope over a factor of four then needs more seeds than the default profile has, so the full
profile decides the claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnlens.claims.cells import Measured
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw, log_of
from attnlens.claims.exchangeability.statements import POSTERIOR, cite
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.masked_pretraining import (
    SETTINGS,
    Frozen,
    bottlenecks,
    logs_in_samples,
    with_ones,
)
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Figure
from attnlens.core.statistics import slopes
from attnlens.core.verdicts import Region

CONTROL = "shuffled"
SIZES = [2048, 8192]
# The standard deviation of one seed is 0.3 for a slope (S and M scatter by 0.3 to 0.5, over log 4)
# and 0.015 for a log ratio. So a slope from 64 seeds has a standard error of 0.04, a fifth of the
# margin.
GRID = Grid(
    settings={
        **SETTINGS,
        # With half as many steps of half as many sequences, S and M stop falling at n = 8192.
        "steps": {"smoke": 300, "default": 2000, "full": 2000},
        "batch": 128,
        "length": 16,
        "samples": {"smoke": [512, 2048], "default": SIZES, "full": SIZES},
    },
    arm_settings={CONTROL: {"shuffled": True}},
    blocks={PREDICTION: {"smoke": 1, "default": 3, "full": 16}, CONTROL: 2},
    seeds_per_block=4,
    cost=lambda parameters, seeds: 8.0,
    pilot=range(24),
)
GAP = ScalingLaw("gap", "samples", within=True)
CONTENT = ScalingLaw("content", "samples", within=True)
FALL = Region(-1.2, -0.8)


def last_ratio(cell: Measured) -> np.ndarray:
    """The largest of the 20 ratios of errors, at the largest n, one per seed."""
    return cell.values["ratio"][:, -1]


RULE = Rule(
    Quantity(
        "gap",
        "last local slope of the sufficiency gap in pretraining sequences",
        lambda cells: slopes(*logs_in_samples("gap", cells)),
        FALL,
        power=Power(effect=-1.02, std=0.3),
    ),
    Quantity(
        "content",
        "last local slope of the excess content in pretraining sequences",
        lambda cells: slopes(*logs_in_samples("content", cells)),
        FALL,
        power=Power(effect=-1.03, std=0.35),
    ),
    Quantity(
        "reuse",
        "log of the largest of 20 ratios of error to the oracle's, at the largest n",
        log_of(last_ratio),
        Region(high=math.log(1.1)),
        power=Power(effect=math.log(1.045), std=0.015),
    ),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Gap, content and largest ratio: rows are seeds, columns are sizes n."""
    values = {name: [] for name in ("gap", "content", "ratio")}
    for seed, row in zip(seeds, bottlenecks(parameters, seeds), strict=True):
        values["gap"].append([sufficiency_gap(network) for network in row])
        values["content"].append([excess_content(network) for network in row])
        errors = [network.errors(parameters, seed) for network in row]
        values["ratio"].append([np.max(own / oracle) for own, oracle in errors])
    return {name: np.array(rows) for name, rows in values.items()}


def sufficiency_gap(network: Frozen) -> float:
    """S in nats: the loss of the normal law of z fitted on R, minus that on the posterior mean."""
    latent = network.test.latent
    return normal_loss(network.test_reads, latent) - normal_loss(network.test.posterior, latent)


def normal_loss(features: np.ndarray, latent: np.ndarray) -> float:
    """Mean of −log density of the latent given the features, without its constant.

    A normal law with a linear mean is fitted on the first half of the rows, and evaluated on the
    second half.
    """
    half = len(latent) // 2
    weights = np.linalg.lstsq(with_ones(features[:half]), latent[:half], rcond=None)[0]
    residual = latent - with_ones(features) @ weights
    covariance = residual[:half].T @ residual[:half] / half
    squares = np.einsum("ni,ij,nj->n", residual, np.linalg.inv(covariance), residual)
    return float(np.linalg.slogdet(covariance)[1] + squares[half:].mean()) / 2


def excess_content(network: Frozen) -> float:
    """M: the share of the variance of R that the posterior mean does not determine."""
    features, reads = with_ones(network.test.posterior), network.test_reads
    half = len(reads) // 2
    weights = np.linalg.lstsq(features[:half], reads[:half], rcond=None)[0]
    left = np.sum((reads[half:] - features[half:] @ weights) ** 2)
    return float(left / np.sum((reads[half:] - reads[half:].mean(0)) ** 2))


FIGURE = Lines(
    "Information about the latent that a pretrained bottleneck has lost",
    "pretraining sequences n",
    "sufficiency gap S, nats",
    GAP,
    {PREDICTION: "masked pretraining", CONTROL: "shuffled targets"},
    reference=lambda: -1.0,
)


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Figure]:
    """A figure of the excess content M over n."""
    lines = Lines(
        "Share of the bottleneck's variance that the posterior does not determine",
        "pretraining sequences n",
        "excess content M",
        CONTENT,
        {PREDICTION: "masked pretraining", CONTROL: "shuffled targets"},
        reference=lambda: -1.0,
    )
    return [lines(arms)] if arms[PREDICTION] else []


CLAIM = Claim(
    id="A.learned-representation",
    title="Masked pretraining learns a representation that becomes sufficient and minimal",
    statement=(
        "The sufficiency gap and the excess content of the representation of a network that was "
        "pretrained on n sequences fall as 1/n, and one frozen representation serves 20 random "
        "labels almost as well as the exact posterior mean."
    ),
    formula=r"S(R_n)\propto n^{-1},\qquad M(R_n)\propto n^{-1}",
    prediction=(
        "The slopes in n are $gap (sufficiency gap) and $content (excess content); at the largest "
        "n the error of a head on the representation is at most $reuse_high_exp times that of the "
        "same head on the exact posterior mean, for the worst of $targets labels."
    ),
    controls={
        CONTROL: Control(
            "Pretraining predicts the next token of another sequence.",
            quantities=("gap", "content", "reuse"),
        )
    },
    assumptions=(
        Assumption(
            "The targets of pretraining depend on the latent", Check.CONTROL, control=CONTROL
        ),
        Assumption(
            "The bottleneck is as wide as the latent, and one weighted mean of the tokens is "
            "sufficient",
            Check.BY_CONSTRUCTION,
        ),
        Assumption("The posterior is normal", Check.BY_CONSTRUCTION),
    ),
    meaning=Meaning(
        supported=(
            "A bottleneck that was pretrained on enough unlabelled sequences can be kept for tasks "
            "that are not known yet: for any linear label of the latent it is about as good as the "
            "exact posterior."
        ),
        refuted=(
            "The pretrained bottleneck keeps losing information about the latent, or keeps noise, "
            "as unlabelled data grow: test it on each task before it is reused."
        ),
        undecided=(
            "How fast a pretrained bottleneck becomes sufficient is open: compare its heads with "
            "networks that are trained on the labels."
        ),
    ),
    source=cite("statements (a) and (c)", "section A(a) and prediction 13"),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
    views=views,
    attribution=POSTERIOR,
    decisive="full",
)
