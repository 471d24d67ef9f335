"""A.self-supervised: predicting hidden tokens yields a representation for other labels.

Our formalisation of statement (c) of lens A (Zhang et al., 2022) for masked self-supervised
learning (docs/theory.md, prediction 13). A token is a noisy observation of a latent of dimension 3
through a random 24 × 3 matrix, x = W z + N(0, σ²). A network with a bottleneck of three numbers is
pretrained to predict the next token from L others. Then it is frozen, and a linear head on the
three numbers is fitted by least squares to 64 labels y = ⟨c, z⟩ + noise, with a direction c that
pretraining never saw.

    downstream error = E(head(frozen reads) − ⟨c, z⟩)²

The error should fall with the number n of pretraining sequences, and not grow with L. The
bottleneck is necessary: if the encoder kept all 24 numbers, the head alone could find the latent,
and pretraining could not improve it.

Errors are positive, so seeds are the replicates; a seed redraws W, c, data and start.

The control breaks the part in n. The part in L has no control here: pretraining on shuffled targets
leaves a random bottleneck, whose large error does not grow with L either (slope −0.02, standard
error 0.01, on eight other seeds). The control of A.generalisation-length shows that the same rule
refutes a slope in L where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work, blocks, group_by
from attnlens.claims.trained_networks import Logs, across_cells, judge_slope, line, within_cells
from attnlens.core.drawing import Figure
from attnlens.core.verdicts import Part, Region
from attnlens.instruments.inference.learned import TRAINING
from attnlens.networks.reader import Asked, Reader
from attnlens.training.ensemble import fit
from attnlens.worlds.seeding import episode_keys

TOKEN_DIM, LATENT_DIM = 24, 3
NOISE_STD = 2.0  # the noise of a token has four times the variance of its signal
LABELS, LABEL_NOISE_STD = 64, 0.3
TEST_SEQUENCES = 1024
NETWORK = partial(
    Reader, key_dim=TOKEN_DIM, value_dim=TOKEN_DIM, outputs=TOKEN_DIM, read_dim=LATENT_DIM, hidden=0
)
LENGTH = 16
SAMPLES = {
    "smoke": (64, 512),
    "default": (64, 256, 1024, 4096, 16384),  # n·L ≤ 2¹⁸
    "full": (64, 256, 1024, 4096, 16384, 65536),
}
LENGTHS = {"smoke": (8, 32), "default": (8, 32, 128), "full": (8, 32, 128, 512)}
FIXED_SAMPLES = {"smoke": 256, "default": 512, "full": 512}  # while the length varies
SEEDS_PER_BLOCK = 4
BLOCKS = {"smoke": 1, "default": 2, "full": 18}
CONTROL = "shuffled"
IN_SAMPLES, IN_LENGTH = Region(high=-0.2), Region(high=0.10)


class MaskedSequences(NamedTuple):
    """For every seed: sequences, their next tokens, and the downstream targets ⟨c, z⟩."""

    tokens: np.ndarray
    next_token: np.ndarray
    target: np.ndarray


def plan(profile: Profile) -> Iterable[Work]:
    for seeds in blocks(BLOCKS[profile], SEEDS_PER_BLOCK):
        samples = {"vary": "samples", "length": LENGTH, "samples": list(SAMPLES[profile])}
        for arm in (PREDICTION, CONTROL):
            yield Work(arm, samples, seeds, 5.0)
        for length in LENGTHS[profile]:
            parameters = {"vary": "length", "length": length, "samples": [FIXED_SAMPLES[profile]]}
            yield Work(PREDICTION, parameters, seeds, 0.5 + 0.03 * length)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The downstream error: rows are seeds, columns are numbers of pretraining sequences."""
    length, samples = parameters["length"], parameters["samples"]
    pretraining, labelled, test = (
        _draw(seeds, count, length, part)
        for part, count in enumerate((max(samples), LABELS, TEST_SEQUENCES))
    )
    next_token = pretraining.next_token
    if arm != PREDICTION:
        next_token = np.roll(next_token, 1, axis=1)
    fitted = fit(
        NETWORK,
        Asked(pretraining.tokens, pretraining.tokens),
        next_token,
        seeds=seeds,
        samples=samples,
        data_per_seed=True,
        block=len(seeds) * len(samples),
        **{**TRAINING, "steps": 1000},
    )
    errors = []
    for i in range(len(fitted)):
        place = i // len(samples)  # of the seed that network i belongs to
        random = np.random.default_rng([seeds[place], length])
        noise = LABEL_NOISE_STD * random.normal(size=LABELS)
        reads = [_reads(fitted.model(i), part.tokens[place]) for part in (labelled, test)]
        weights = np.linalg.lstsq(reads[0], labelled.target[place] + noise, rcond=None)[0]
        errors.append(np.mean((reads[1] @ weights - test.target[place]) ** 2))
    errors = np.array(errors).reshape(len(seeds), len(samples))
    return {"error": errors if parameters["vary"] == "samples" else errors[:, 0]}


def _reads(model: Reader, tokens: np.ndarray) -> np.ndarray:
    """The frozen representation with a column of ones."""
    reads = np.asarray(_represent(model, tokens.astype(model.value.dtype)), float)
    return np.column_stack([reads, np.ones(len(reads))])


@jax.jit
def _represent(model: Reader, tokens: Any) -> Any:
    return jax.vmap(lambda x: model.represent(Asked(x, x)))(tokens)


def _draw(seeds: Sequence[int], count: int, length: int, part: int) -> MaskedSequences:
    arrays = _draw_arrays(episode_keys(seeds), count, length, part)
    return MaskedSequences(*map(np.asarray, arrays))


@partial(jax.jit, static_argnames=("count", "length"))
def _draw_arrays(keys: Any, count: int, length: int, part: int) -> tuple[Any, Any, Any]:
    def one(key: Any) -> tuple[Any, Any, Any]:
        world = jax.random.normal(jax.random.fold_in(key, 0), (TOKEN_DIM + 1, LATENT_DIM))
        matrix, head = world[:-1] / jnp.sqrt(LATENT_DIM), world[-1] / jnp.linalg.norm(world[-1])
        latent_key, noise_key = jax.random.split(
            jax.random.fold_in(jax.random.fold_in(key, 1 + part), length)
        )
        latent = jax.random.normal(latent_key, (count, LATENT_DIM))
        noise = jax.random.normal(noise_key, (count, length + 1, TOKEN_DIM), jnp.float32)
        tokens = (latent @ matrix.T).astype(jnp.float32)[:, None] + NOISE_STD * noise
        return tokens[:, :-1], tokens[:, -1], latent @ head

    return jax.vmap(one)(keys)


def _logs(cells: Sequence[Measured], vary: str) -> Logs:
    return (within_cells if vary == "samples" else across_cells)(cells, "error", vary)


def judge(measured: Sequence[Measured]) -> list[Part]:
    regions = {"samples": IN_SAMPLES, "length": IN_LENGTH}
    names = {"samples": "pretraining sequences", "length": "length"}
    return [
        judge_slope(
            f"slope of the downstream error in {names[vary]}", _logs(cells, vary), regions[vary]
        )
        for vary, cells in group_by(measured, "vary").items()
    ]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for vary, cells in group_by(measured, "vary").items():
            fixed = (
                f"L = {LENGTH}" if vary == "samples" else f"n = {cells[0].parameters['samples'][0]}"
            )
            axis = "over pretraining sequences n" if vary == "samples" else "over length L"
            name = f"{axis}, {fixed}" + ("" if arm == PREDICTION else ", shuffled targets")
            series.append(line(name, _logs(cells, vary), control=arm != PREDICTION))
    return Figure(
        f"Downstream error with {LABELS} labels on a frozen, pretrained bottleneck",
        "pretraining sequences n, or tokens L",
        "mean squared error",
        tuple(series),
    )


CLAIM = Claim(
    id="A.self-supervised",
    title="Predicting hidden tokens yields a representation for other labels",
    statement=(
        "An attention network is pretrained to predict hidden tokens and then frozen. The error of "
        "a linear head on it, for a label that pretraining never saw, falls with the number of "
        "pretraining sequences and does not grow with the length."
    ),
    formula=(
        r"\mathbb{E}\left(\langle w, r(X)\rangle-\langle c,z\rangle\right)^2"
        r"\;\text{falls in}\; n, \;\text{does not grow in}\; L"
    ),
    prediction="The slope in n is at most −0.2, and the slope in L at most 0.10.",
    controls={CONTROL: "Pretraining predicts the next token of another sequence."},
    assumptions=(
        "The bottleneck is as wide as the latent and narrower than a token (by construction).",
        "The targets of pretraining depend on the latent (the control breaks this).",
        "The downstream label is a function of the same latent (by construction).",
    ),
    meaning=(
        "Unlabelled sequences can replace labels: with a bottleneck of the dimension of the "
        "latent, 64 labels are enough after pretraining."
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (c); our formalisation: "
        "docs/theory.md, prediction 13."
    ),
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
