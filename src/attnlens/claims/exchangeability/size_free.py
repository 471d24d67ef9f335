"""A.size-free: what a network trained at one length does at two, four and eight times that length.

Our formalisation of statement (a) of lens A (Zhang et al., 2022), "a latent variable model that is
invariant to input sizes" (docs/theory.md, section A(a), size-free). The posterior lies in the same
space for every number of tokens, so a network that infers it can also read more tokens. A network
is trained to predict the latent mean z from L tokens and tested on kL tokens, without further
training. With f* the exact posterior mean, the excess of the network f̂ over f* is compared with
the exact risk,

    E(f̂ − f*)² / E(f* − z)²      at kL.

The ratio is not zero, and theory predicts its value. Softmax weights sum to one, so the network
sees the mean of the tokens and not their number: the best answer that it can learn at L multiplies
this mean by a = L/(L + 1) (noise and prior have equal variance), and it keeps this factor at kL.
With n = kL,

    E(a x̄ − f*)² / E(f* − z)² = (a − n/(n + 1))² (1 + 1/n) (n + 1).

The claim judges the measured ratio divided by this closed form: it must be 1 ± 0.2 in each of the
twelve cells. So the claim says exactly how far such a network is size-free: the exact answer is a
different function for each length, the learned answer is not. Where the closed form itself is
large, "works at any length" is false: at L = 4 the excess is 0.36 of the exact risk at k = 4 and
0.98 at k = 8, at L = 8 it is 0.22 and 0.60. The view marks the cells above one quarter. At L = 32
and k = 2 the closed form is 0.015, so that 0.2 of it is 0.3 % of the risk; the numbers of samples
and training steps were chosen for this cell (with the learning rate 0.01 the attention was not
fully trained there, and the ratio was 1.2 to 1.8).

The estimation error adds to the excess: at L = 32 and k = 2 by 7 % in the pilot, so that the
interval of 24 seeds may end above 1.2. The full profile therefore decides the claim.

Is this an identity? No. The closed form is that of the best answer of the class. Two things are
measured: training finds this answer to 0.3 % of the risk, and at new lengths a network with a
hidden layer, which could represent other functions, gives the same answer.

Not tested: worlds in which the number of tokens matters less (a = L/(L + 1) is for equal noise and
prior), and networks that can count their tokens (sums instead of means).

The control is a network with learned positions. Training never uses positions beyond L, so the
position vectors there keep their initial random values (standard deviation one). Ratios are judged
on the log scale, on which a few very large ratios of the control have less weight. A replicate is a
seed: it redraws data and start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from attnlens.claims.cells import Measured, group_by
from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning
from attnlens.claims.estimates import ScalingLaw, log_of
from attnlens.claims.exchangeability.statements import SIZE_FREE, cite
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.trained_networks import FITTING, NETWORK, reader
from attnlens.core.drawing import Map, Point, Series
from attnlens.core.verdicts import Region
from attnlens.networks.reader import Reader, ReaderInputs
from attnlens.training.trainer import fit

CONTROL = "positions"
TRAIN, TEST = 1, 2  # parts of the data of a seed
FACTORS = (2, 4, 8)
FAILS = 0.25  # share of the exact risk above which the view marks a cell as not size-free
LENGTHS = {"smoke": (4, 16), "default": (4, 8, 16, 32), "full": (4, 8, 16, 32)}
TRAINING = {**FITTING, "batch": 256, "learning_rate": 0.03}
GRID = Grid(
    settings={
        "factors": list(FACTORS),
        "noise_std": 1.0,
        "prior_std": 1.0,
        # The excess of about 50 parameters is 50/n of the risk: at 32,768 a tenth of the smallest
        # closed form, 0.015.
        "samples": {"smoke": 4096, "default": 32768, "full": 32768},
        "test_sequences": 2048,
        **NETWORK,
        "positions": False,
        "training": {
            "smoke": {**TRAINING, "steps": 300},
            "default": TRAINING,
            "full": TRAINING,
        },
    },
    axes={"length": LENGTHS},
    arm_settings={
        CONTROL: {
            "positions": True,
            "length": (16,),
        }
    },
    derived={"test_lengths": lambda p: [k * p["length"] for k in (1, *p["factors"])]},
    # The log ratio of one seed has a standard deviation of 0.21 at L = 32 and k = 2, of 0.12 at
    # k = 2 and other L, and of 0.06 to 0.1 at larger k. At L = 32 and k = 2 the estimation error
    # takes a third of the margin, and the standard error of 24 seeds is 0.04: the default profile
    # often does not decide this cell, but the 96 seeds of the full profile do.
    blocks={
        PREDICTION: {"smoke": 1, "default": 1, "full": 4},
        CONTROL: {"smoke": 1, "default": 3, "full": 4},  # its log ratios scatter by 1.5
    },
    seeds_per_block=lambda parameters: 24 if parameters["length"] == 32 else 12,
    cost=lambda parameters, seeds: 4 + 0.2 * parameters["length"],
    pilot=range(48),
)
REGION = Region(math.log(0.8), math.log(1.2))


def closed_form(length: int, factor: int) -> float:
    """The ratio excess/exact risk at `factor` times `length`, for the best answer at `length`."""
    n = factor * length
    return (length / (length + 1) - n / (n + 1)) ** 2 * (1 + 1 / n) * (n + 1)


def over_closed_form(factor: int) -> Callable[[Sequence[Measured]], np.ndarray]:
    """An estimate: log(measured ratio / closed form) at the factor k = `factor`, per seed."""

    def logs(cells: Sequence[Measured]) -> np.ndarray:
        place = 1 + cells[0].parameters["factors"].index(factor)
        measured = log_of(lambda cell: cell.values["ratio"][:, place])(cells)
        return measured - math.log(closed_form(cells[0].parameters["length"], factor))

    return logs


def log_ratio_effect(length: int, factor: int) -> float:
    """The expected log ratio: above 0 by the estimation error of training."""
    # At L = 32 the mean of twelve pilot seeds is 0.071, 0.017 and 0.011 for k = 2, 4 and 8.
    return {2: 0.07, 4: 0.02, 8: 0.01}[factor] if length == 32 else 0.0


def log_ratio_std(length: int, factor: int) -> float:
    """The standard deviation of one seed's log ratio in the pilot."""
    if length == 32:
        return 0.21 if factor == 2 else 0.10
    return 0.12 if factor == 2 else 0.06


RULE = Rule(
    *(
        Quantity(
            f"ratio_{k}",
            f"log of excess ratio over closed form (L = {{length}}, k = {k})",
            over_closed_form(k),
            REGION,
            per=("length",),
            power=Power(
                effect=lambda length, k=k: log_ratio_effect(length, k),
                std=lambda length, k=k: log_ratio_std(length, k),
            ),
        )
        for k in FACTORS
    )
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The ratio excess/exact risk at every test length, (seed, length)."""
    positions = max(parameters["test_lengths"]) if parameters["positions"] else 0
    make = reader(parameters, key_dim=1, max_length=positions)
    count, tested = parameters["samples"], parameters["test_sequences"]
    drawn = [draw(parameters, seed, TRAIN, count, parameters["length"]) for seed in seeds]
    tokens, latents = (np.stack(part).astype(np.float32) for part in zip(*drawn, strict=True))
    fitted = fit(
        make,
        ReaderInputs(tokens, tokens),
        latents,
        seeds=seeds,
        data_per_seed=True,
        block=len(seeds),
        **parameters["training"],
    )
    ratios = np.empty((len(seeds), len(parameters["test_lengths"])))
    for i, seed in enumerate(seeds):
        for j, length in enumerate(parameters["test_lengths"]):
            tokens = draw(parameters, seed, TEST, tested, length)[0]
            answers = np.asarray(_answers(fitted.model(i), tokens.astype(np.float32)), float)
            mean, variance = posterior(parameters, tokens)
            ratios[i, j] = np.mean((answers - mean) ** 2) / variance
    return {"ratio": ratios}


def draw(
    parameters: Mapping[str, Any], seed: int, part: int, count: int, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (n, L, 1) and latents (n, 1) of the normal-mean world."""
    random = np.random.default_rng([seed, part, length])
    latent = parameters["prior_std"] * random.normal(size=(count, 1))
    noise = random.normal(size=(count, length, 1))
    return latent[:, None] + parameters["noise_std"] * noise, latent


def posterior(parameters: Mapping[str, Any], tokens: np.ndarray) -> tuple[np.ndarray, float]:
    """The exact posterior mean (n, 1) and the exact posterior variance."""
    noise_var, prior_var = parameters["noise_std"] ** 2, parameters["prior_std"] ** 2
    precision = 1 / prior_var + tokens.shape[1] / noise_var
    return tokens.sum(1) / noise_var / precision, 1 / precision


@jax.jit
def _answers(model: Reader, tokens: Any) -> Any:
    return jax.vmap(lambda x: model(ReaderInputs(x, x)))(tokens)


def predicted(arms: Mapping[str, Sequence[Measured]]) -> list[Series]:
    """Lines of the closed form over the test length, one per training length."""
    lines = []
    for length, cells in group_by(arms[PREDICTION], "length").items():
        factors = cells[0].parameters["factors"]
        points = tuple(Point(k * length, closed_form(length, k)) for k in factors)
        lines.append(Series(f"closed form, L = {length}", points, line=True))
    return lines


FIGURE = Lines(
    "Excess over the exact risk at k times the training length L",
    "tokens kL at test time",
    "excess / exact risk",
    ScalingLaw("ratio", "test_lengths", within=True),
    {
        PREDICTION: lambda length: f"trained at L = {length}",
        CONTROL: lambda length: f"L = {length}, absolute positions",
    },
    per=("length",),
    fit=False,
    extra=predicted,
)


def views(arms: Mapping[str, Sequence[Measured]]) -> list[Map]:
    """Maps over L and k: the ratio excess/exact risk, and the cells where it is above `FAILS`."""
    groups = group_by(arms[PREDICTION], "length")
    if not groups:
        return []
    shares = tuple(
        tuple(
            float(np.exp(log_of(lambda cell, i=i: cell.values["ratio"][:, 1 + i])(cells).mean()))
            for i in range(len(FACTORS))
        )
        for cells in groups.values()
    )
    fails = tuple(tuple(float(share > FAILS) for share in row) for row in shares)
    return [
        Map(
            "Where a network trained at L is size-free, and where it is not",
            "k: test length / training length",
            "training length L",
            (("excess / exact risk", shares), (f"1 = fails: above {FAILS:g}", fails)),
            x_names=tuple(f"k = {k}" for k in FACTORS),
            y_names=tuple(f"L = {length}" for length in groups),
        )
    ]


CLAIM = Claim(
    id="A.size-free",
    title="A network trained at one length keeps the shrinkage of that length at others",
    statement=(
        "An attention network without positions that was trained at length L has, at k times that "
        "length, the excess over the exact risk that follows from keeping its factor L/(L + 1): "
        "small where L is large, and as large as the exact risk at L = 4 and k = 8."
    ),
    formula=(
        r"\frac{\mathbb{E}(\hat f_L(X_{n})-f^*(X_{n}))^2}{\mathbb{E}(f^*(X_{n})-z)^2} \;=\;"
        r"\left(\tfrac{L}{L+1}-\tfrac{n}{n+1}\right)^2\left(1+\tfrac1n\right)(n+1),\quad n=kL"
    ),
    prediction=(
        "The excess at kL, as a share of the exact risk there, is between $ratio_2_low_exp and "
        "$ratio_2_high_exp of the closed form, for L = $length and k = $factors."
    ),
    controls={
        CONTROL: Control(
            "The same network with absolute positions; those beyond L are untrained.",
            quantities=("ratio_2", "ratio_4", "ratio_8"),
        )
    },
    assumptions=(
        Assumption(
            "Tokens are exchangeable, and the network does not see their order",
            Check.CONTROL,
            control=CONTROL,
        ),
        Assumption(
            "Softmax weights sum to one, so the network cannot count", Check.BY_CONSTRUCTION
        ),
        Assumption("Training reaches the best answer of the class at L", Check.NOT_CHECKED),
    ),
    meaning=Meaning(
        supported=(
            "A network that reads tokens as a set may be trained on contexts of 16 tokens or more "
            "and used on longer ones at a known price. Its limit is that softmax averages: it "
            "cannot count tokens, and so it keeps the certainty of its training length. Trained on "
            "4 tokens and used on 32, it has twice the exact risk."
        ),
        refuted=(
            "A network that reads tokens as a set loses accuracy on longer contexts in a way that "
            "the closed form does not predict: train it at the lengths at which it will be used."
        ),
        undecided=(
            "Whether training on short contexts is enough is open: test the network at the "
            "longest length at which it will be used."
        ),
    ),
    source=cite("statement (a)", "section A(a), size-free"),
    plan=GRID,
    measure=measure,
    judge=RULE,
    figure=FIGURE,
    views=views,
    attribution=SIZE_FREE,
    decisive="full",
)
