"""B.noisy-images: on digits in a noisy canvas, attention has a lower error with the same labels.

Lens B (ICLR 2021 submission) states that "attention models require lower sample complexity than
models without attention"; this claim tests it on real images (docs/theory.md, prediction 16). A
digit of 8 × 8 pixels is placed in a larger canvas with noise at every pixel, and tokens are
patches:

    cell     canvas 24 × 24; tokens are its 9 cells of 8 × 8, and the digit fills one of them
    pixel    canvas 12 × 12; the digit is at one of 25 places, and tokens are the 25 overlapping
             patches of 8 × 8 at these places, so that one of them holds the whole digit

Why it should hold: the token with the digit has more than twice the norm of the others, so queries
can find it at any place, and every output becomes the value of that token: the output network
learns a digit once. The baseline must learn it separately at each place, from a ninth (or a 25th)
of the labels.

A patch must hold the whole digit. With patches of 4 × 4, or with 8 × 8 patches that may cut the
digit, neither network was better than guessing at 512 labels in a pilot: attention can move tokens,
but the output network of lens B does not know which tokens are neighbours.

Replicates are random splits of the 1,797 digits, with new places, noise and starts: independent
given these digits. So the interval applies to this data set, not to all handwriting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlens.claims.claim import (
    PREDICTION,
    Assumption,
    Attribution,
    Check,
    Claim,
    Control,
    Meaning,
    Measured,
    Origin,
    Profile,
)
from attnlens.claims.grid import Grid, Grids
from attnlens.core.drawing import Figure
from attnlens.data.dataset import split
from attnlens.data.files.image_patches import patches
from attnlens.data.sets.images import canvases, digits

from .real_data import ARM_SETTINGS, CONTROL, SETTINGS, Split, errors, lines, rule, set_sizes

KIND = "place"
# In a pilot the difference had a standard deviation of 0.04 over splits: 8 splits give ± 0.035, and
# the effect is 0.4. The effect of the control is 0.2 in the opposite direction.
BLOCKS: dict[Profile, int] = {"smoke": 1, "default": 2, "full": 18}


def _grid(
    place: str, size: int, stride: int, blocks: Mapping[Profile, int], seconds: float
) -> Grid:
    """`size` of the canvas, `stride` of the patches, `seconds` per split."""
    return Grid(
        settings={
            "place": place,
            "canvas": size,
            "stride": stride,
            "side": 8,  # pixels along the side of a digit, and of a patch
            "noise_std": 0.2,  # for pixels from 0 to 1; a patch of noise has 0.4 of a digit's norm
            "counts": [128, 512],  # labels: 13 and 51 per class, 1.4 and 5.7 per class and cell
            "validation_samples": 100,
            "test_samples": 1000,  # of 1,797
            **SETTINGS,
        },
        arm_settings=ARM_SETTINGS,
        blocks={PREDICTION: blocks, CONTROL: blocks},
        seeds_per_block={"smoke": 2, "default": 4, "full": 4},
        cost=lambda parameters, seeds: seconds * seeds,
    )


GRID = Grids(
    _grid("cell", size=24, stride=8, blocks=BLOCKS, seconds=0.3),
    _grid("pixel", size=12, stride=1, blocks={**BLOCKS, "smoke": 0, "default": 0}, seconds=1.0),
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Test errors of the models, one per split and number of labels."""
    return errors([draw_split(parameters, seed) for seed in seeds], seeds, parameters)


def draw_split(parameters: Mapping[str, Any], seed: int) -> Split:
    """A split of the digits, each in its own canvas, as patches."""
    size, noise_std, place = (parameters[name] for name in ("canvas", "noise_std", "place"))
    sets = split(digits(), set_sizes(parameters), seed)
    images = [
        canvases(part, size=size, noise_std=noise_std, place=place, seed=len(sets) * seed + i)
        for i, part in enumerate(sets.values())
    ]
    side, stride = parameters["side"], parameters["stride"]
    return Split(*(patches(part, size=side, stride=stride) for part in images))


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    title = "Test error on digits in noisy canvases, over the number of labels"
    return Figure(title, "labels", "test error", lines(arms, KIND))


CLAIM = Claim(
    id="B.noisy-images",
    title="Attention finds the digit in a noisy canvas",
    statement=(
        "A digit is at a random place in a larger noisy canvas that is cut into patches, one of "
        "which holds the whole digit. Trained with the same labels, self-attention has a lower "
        "test error than a network without attention."
    ),
    formula=(
        r"\mathrm{error}_n\left(w_2^{\top}\varphi(w_1\,\mathrm{vec}(w_V x\,a(x)))\right)"
        r"-\mathrm{error}_n\left(w_2^{\top}\varphi(w_1\,\mathrm{vec}(x))\right)\;\le\;$fewer_labels_high"
    ),
    prediction=(
        "The test error of self-attention minus that of the baseline is $fewer_labels at each of "
        "$counts labels, over random splits; widths are chosen on validation data."
    ),
    controls={
        CONTROL: Control(
            "The pixels of the canvas are permuted, in the same way in every sample: no "
            "information is lost and the baseline is not affected, but a token is no longer a "
            "patch."
        )
    },
    assumptions=(
        Assumption(
            "A token holds the whole digit; with patches that cut it both networks only guess",
            Check.BY_CONSTRUCTION,
        ),
        Assumption("The digit differs clearly from the noise"),
        Assumption("The interval is over splits of these digits, not over other data sets"),
    ),
    meaning=Meaning(
        supported=(
            "Where an object can be at any place and one token can hold it, attention learns it "
            "once instead of once per place. Averaging the tokens achieves part of that without "
            "attention if they do not overlap, as the figure shows. If tokens are too small to "
            "hold the object, nothing is gained."
        ),
        refuted=(
            "Attention gains nothing where one token holds the whole object: do not choose it in "
            "order to find objects at unknown places with few labels."
        ),
        undecided=(
            "Whether attention gains where one token holds the whole object is open: compare it "
            "with averaged tokens on validation data."
        ),
    ),
    source=(
        "Lens B (ICLR 2021 submission), abstract and section 3 (sample complexity); our "
        "formalisation on the digits of scikit-learn: docs/theory.md, prediction 16."
    ),
    attribution=Attribution(
        Origin.FORMALISATION,
        "Experiments on various datasets validate our theoretical findings.",
    ),
    plan=GRID,
    measure=measure,
    judge=rule(KIND),
    figure=figure,
)
