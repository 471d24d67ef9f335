"""A.self-supervised: predicting hidden tokens yields a representation for other labels.

Our formalisation of statement (c) of lens A (Zhang et al., 2022) for masked self-supervised
learning (docs/theory.md, prediction 13). A network with a bottleneck of three numbers is pretrained
to predict the next token from L others (`attnlens.claims.masked_pretraining`: every second token
is three times as noisy, and attention must learn to weigh it less). Then it is frozen, and linear
heads on the three numbers are fitted by least squares to 64 labels ⟨c, z⟩ + noise each, for 20
directions c that pretraining never saw. The oracle is the same head, fitted to the same labels, on
the exact posterior mean. Averaged over the directions,

    excess = E(head(frozen reads) − ⟨c, z⟩)² − E(head(posterior mean) − ⟨c, z⟩)²,

which is the part of the error that is due to pretraining, and not to the limited number of labels
or tokens.

Dependence on n, the number of pretraining sequences: a bottleneck that spans the columns of W (the
map from the latent to tokens of D numbers) loses nothing, because the head can undo any invertible
map. Only weights on the other D − 3 directions, which contain only noise, increase the error. The
regression of the next token on the weighted mean x̄ estimates these weights with a variance
(noise of the target)/(n Var x̄), so they add a squared error of order 1/n: slope −1.

Dependence on L: the noise of x̄ has variance ∝ 1/L. So the variance of the weights on the noise
directions is L times as large, and the same weights add 1/L of the error. The two cancel: the
excess does not depend on L (slope 0), while the oracle's own error falls as 1/L. This is the
paper's "generalization error, which is independent of input sizes", on the scale of the excess.
(Relative to the oracle, the excess *grows* with L, as L: an error of 1.09 times the oracle's at
L = 16 is 1.33 times the oracle's at L = 64.)

The bottleneck is necessary: if the encoder kept all numbers of a token, the head alone could find
the latent, and pretraining could not improve it. The slope in n is a rate only if training finds
the minimum of its empirical risk: with 1,000 steps of 64 sequences the excess stops falling at
n = 8192 (0.0051, against 0.0030 with 2,000 steps of 128). The curve bends: from 512 to 2048 the
slope is −1.34, from 2048 to 8192 −0.99 (16 seeds of the pilot), because with small samples the
attention weights and the span of W are not learned well either. A slope over the whole range,
−1.16, is not a rate, so the claim judges the last local slope.

Controls: for the dependence on n, a network that is pretrained on the next token of another
sequence; its excess does not fall. For the dependence on L, a network that sees only the last 8
tokens; its excess over the oracle, which reads all tokens, grows with L.

A replicate is a seed: it redraws W, the directions, data and start. The excess of a seed scatters
by 40 % and could be negative, so logarithms of means over seeds are taken, with jackknife
pseudo-values. For a slope in L within ± 0.1, and a local slope in n within ± 0.2, this needs more
seeds than the default profile has, so the full profile decides the claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attnlens.claims.cells import Measured, group_by
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.exchangeability.statements import LEARNING, cite
from attnlens.claims.figures import log_points
from attnlens.claims.grid import Grid, Grids
from attnlens.claims.masked_pretraining import SETTINGS, bottlenecks, logs_in_samples
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.core.drawing import Figure, Series
from attnlens.core.statistics import log_of_mean, slopes
from attnlens.core.verdicts import Region

SHUFFLED, LAST_TOKENS = "shuffled", "last-tokens"
PILOT = range(24)
# Slopes of single seeds have a standard deviation of about 0.4 in n and 0.25 in L (an excess
# scatters by 0.4, over a range of log 4 = 1.4 in n and log 16 = 2.8 in L).
STEPS = {"smoke": 300, "default": 1500, "full": 1500}  # 1,500 steps are enough at n = 1024
SIZES, LENGTHS = [2048, 8192], (8, 32, 128)
IN_SAMPLES = Grid(
    settings={
        **SETTINGS,
        "steps": {"smoke": 300, "default": 2000, "full": 2000},
        "batch": 128,
        "length": 16,
        "samples": {"smoke": [512, 2048], "default": SIZES, "full": SIZES},
    },
    axes={"vary": ("samples",)},
    arm_settings={SHUFFLED: {"shuffled": True}},
    blocks={PREDICTION: {"smoke": 1, "default": 2, "full": 18}, SHUFFLED: 2},
    seeds_per_block=4,
    cost=lambda parameters, seeds: 12.0,
    pilot=PILOT,
)
IN_LENGTH = Grid(
    settings={**SETTINGS, "steps": STEPS, "batch": 64, "samples": [1024]},
    axes={"vary": ("length",), "length": {"smoke": (8, 32), "default": LENGTHS, "full": LENGTHS}},
    arm_settings={LAST_TOKENS: {"seen_tokens": 8}},
    blocks={PREDICTION: {"smoke": 1, "default": 1, "full": 12}, LAST_TOKENS: 1},
    seeds_per_block=8,
    cost=lambda parameters, seeds: 3 + 0.05 * parameters["length"],
    pilot=PILOT,
)


def logs_in_length(cells: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
    """log L, and pseudo-values of the log excess (seed, L)."""
    groups = group_by(cells, "length")
    columns = [np.concatenate([cell.values["excess"] for cell in g]) for g in groups.values()]
    return np.log(list(groups)), log_of_mean(np.concatenate(columns, axis=1))


LOGS = {"samples": partial(logs_in_samples, "excess"), "length": logs_in_length}
RULE = Rule(
    Quantity(
        "slope_in_samples",
        "last local slope of the excess over the oracle in pretraining sequences",
        lambda cells: slopes(*logs_in_samples("excess", cells)),
        Region(-1.2, -0.8),
        where={"vary": "samples"},
        power=Power(effect=-1.0, std=0.4),
    ),
    Quantity(
        "slope_in_length",
        "slope of the excess over the oracle in length",
        lambda cells: slopes(*logs_in_length(cells)),
        Region(-0.1, 0.1),
        where={"vary": "length"},
        power=Power(effect=0.0, std=0.25),
    ),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Excess over the oracle, and the oracle's error: rows are seeds, columns are sizes n."""
    excess, oracles = [], []
    for seed, row in zip(seeds, bottlenecks(parameters, seeds), strict=True):
        pairs = [network.errors(parameters, seed) for network in row]
        excess.append([np.mean(own - oracle) for own, oracle in pairs])
        oracles.append([np.mean(oracle) for _, oracle in pairs])
    return {"excess": np.array(excess), "oracle": np.array(oracles)}


NAMES = {
    PREDICTION: "excess over the oracle",
    SHUFFLED: "shuffled targets",
    LAST_TOKENS: "the last 8 tokens only",
}


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for vary, cells in group_by(measured, "vary").items():
            at, logs = LOGS[vary](cells)
            if np.isfinite(logs).all():
                slope = float(slopes(at, logs).mean())
                name = f"{NAMES[arm]}, over {'n' if vary == 'samples' else 'L'}"
                points = log_points(at, logs)
                series.append(Series(name, points, slope, control=arm != PREDICTION))
    return Figure(
        "Excess of a head on a frozen bottleneck over one on the exact posterior mean",
        "pretraining sequences n, or tokens L",
        "excess squared error",
        tuple(series),
    )


CLAIM = Claim(
    id="A.self-supervised",
    title="Predicting hidden tokens yields a representation for other labels",
    statement=(
        "An attention network is pretrained to predict hidden tokens and then frozen. The excess "
        "of a linear head on it over the same head on the exact posterior mean, for labels that "
        "pretraining never saw, falls as one over the number of pretraining sequences and does not "
        "depend on the length."
    ),
    formula=(
        r"\mathbb{E}\left(\langle w, r(X)\rangle-\langle c,z\rangle\right)^2-"
        r"\mathbb{E}\left(\langle w^*, \mathbb{E}[z\mid X]\rangle-\langle c,z\rangle\right)^2"
        r"\;\propto\; n^{-1} L^{0}"
    ),
    prediction=(
        "The slope of the excess in n is $slope_in_samples, and the slope in L $slope_in_length."
    ),
    controls={
        SHUFFLED: Control(
            "Pretraining predicts the next token of another sequence.",
            quantities=("slope_in_samples",),
        ),
        LAST_TOKENS: Control(
            "The network sees the last $seen_tokens tokens only, and the oracle all: it forgets "
            "with L.",
            quantities=("slope_in_length",),
        ),
    },
    assumptions=(
        Assumption(
            "The bottleneck is as wide as the latent and narrower than a token",
            Check.BY_CONSTRUCTION,
        ),
        Assumption(
            "The targets of pretraining depend on the latent", Check.CONTROL, control=SHUFFLED
        ),
        Assumption("The network reads all tokens", Check.CONTROL, control=LAST_TOKENS),
        Assumption("The downstream label is a function of the same latent", Check.BY_CONSTRUCTION),
    ),
    meaning=Meaning(
        supported=(
            "Unlabelled sequences can replace labels: four times as many divide by four what "
            "pretraining costs a task with $labels labels, at any length of the sequences."
        ),
        refuted=(
            "The cost of pretraining for a label that it never saw does not follow 1/n at every "
            "length: measure it before planning the number of unlabelled sequences."
        ),
        undecided=(
            "Whether the cost of pretraining follows 1/n at every length is open: run the full "
            "profile."
        ),
    ),
    source=cite("statement (c)", "prediction 13"),
    plan=Grids(IN_SAMPLES, IN_LENGTH),
    measure=measure,
    judge=RULE,
    figure=figure,
    attribution=LEARNING,
    decisive="full",
)
