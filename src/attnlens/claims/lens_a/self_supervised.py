"""A.self-supervised: predicting hidden tokens finds a representation for other labels.

Our formalisation of claim (c) of lens A for masked self-supervised learning. A token is a noisy
look at a latent of dimension 3 through a random 24 × 3 matrix, x = W z + N(0, σ²). A network with a
bottleneck of three numbers is pretrained to predict the next token from L others; then it is
frozen, and a linear head on those three numbers is fitted by least squares to 64 labels
y = ⟨c, z⟩ + noise of a direction c that pretraining never saw.

    downstream error = E(head(frozen reads) − ⟨c, z⟩)²

It should fall with the number n of pretraining sequences, and not grow with L. The bottleneck
matters: an encoder that keeps all 24 numbers would leave the head to find the latent by itself, and
pretraining would have nothing to give.

Errors are positive, so seeds are replicates; a seed redraws W, c, data and start.

The control breaks the part in n. The part in L has none here: after shuffled pretraining the reads
are those of a chance bottleneck, and its error, large as it is, does not grow with L either (slope
−0.02, standard error 0.01, on eight other seeds). That the same rule refutes a slope in L where
there is one is shown by the control of A.generalisation-length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.claims.base import PREDICTION, Claim, Measured, Profile, Work, blocks, by
from attnlens.claims.trained import Logs, across, judge_slope, line, within
from attnlens.instruments.inference import episode_keys
from attnlens.instruments.learned import TRAINING
from attnlens.networks.ensemble import fit
from attnlens.networks.reader import Asked, Reader
from attnlens.records import Figure, Part, Region

TOKEN_DIM, LATENT_DIM = 24, 3
NOISE_STD = 2.0  # a token's noise has four times the variance of its signal
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
SAMPLES_AT = {"smoke": 256, "default": 512, "full": 512}
SEEDS_A_BLOCK = 4
BLOCKS = {"smoke": 1, "default": 2, "full": 18}
CONTROL = "shuffled"
IN_SAMPLES, IN_LENGTH = Region(high=-0.2), Region(high=0.10)


class Drawn(NamedTuple):
    """Sequences of every seed, the next token, and the downstream quantity ⟨c, z⟩."""

    tokens: np.ndarray
    following: np.ndarray
    wanted: np.ndarray


def plan(profile: Profile) -> Iterable[Work]:
    for seeds in blocks(BLOCKS[profile], SEEDS_A_BLOCK):
        samples = {"vary": "samples", "length": LENGTH, "samples": list(SAMPLES[profile])}
        for arm in (PREDICTION, CONTROL):
            yield Work(arm, samples, seeds, 5.0)
        for length in LENGTHS[profile]:
            parameters = {"vary": "length", "length": length, "samples": [SAMPLES_AT[profile]]}
            yield Work(PREDICTION, parameters, seeds, 0.5 + 0.03 * length)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The downstream error: rows are seeds, columns numbers of pretraining sequences."""
    length, samples = parameters["length"], parameters["samples"]
    pretraining, labelled, test = (
        _draw(seeds, count, length, part)
        for part, count in enumerate((max(samples), LABELS, TEST_SEQUENCES))
    )
    following = pretraining.following
    if arm != PREDICTION:
        following = np.roll(following, 1, axis=1)
    fitted = fit(
        NETWORK, Asked(pretraining.tokens, pretraining.tokens), following, seeds=seeds,
        samples=samples, data_per_seed=True, block=len(seeds) * len(samples),
        **{**TRAINING, "steps": 1000},
    )  # fmt: skip
    errors = []
    for i in range(len(fitted)):
        own = i // len(samples)
        seed = np.random.default_rng([seeds[own], length])
        noise = LABEL_NOISE_STD * seed.normal(size=LABELS)
        reads = [_reads(fitted.model(i), part.tokens[own]) for part in (labelled, test)]
        weights = np.linalg.lstsq(reads[0], labelled.wanted[own] + noise, rcond=None)[0]
        errors.append(np.mean((reads[1] @ weights - test.wanted[own]) ** 2))
    errors = np.array(errors).reshape(len(seeds), len(samples))
    return {"error": errors if parameters["vary"] == "samples" else errors[:, 0]}


def _reads(model: Reader, tokens: np.ndarray) -> np.ndarray:
    """The frozen representation with a constant beside it."""
    reads = np.asarray(_represent(model, tokens.astype(model.value.dtype)), float)
    return np.column_stack([reads, np.ones(len(reads))])


@jax.jit
def _represent(model: Reader, tokens: Any) -> Any:
    return jax.vmap(lambda x: model.represent(Asked(x, x)))(tokens)


def _draw(seeds: Sequence[int], count: int, length: int, part: int) -> Drawn:
    return Drawn(*map(np.asarray, _drawn(episode_keys(seeds), count, length, part)))


@partial(jax.jit, static_argnames=("count", "length"))
def _drawn(keys: Any, count: int, length: int, part: int) -> tuple[Any, Any, Any]:
    def one(key: Any) -> tuple[Any, Any, Any]:
        world = jax.random.normal(jax.random.fold_in(key, 0), (TOKEN_DIM + 1, LATENT_DIM))
        matrix, wanted = world[:-1] / jnp.sqrt(LATENT_DIM), world[-1] / jnp.linalg.norm(world[-1])
        latent_key, noise_key = jax.random.split(
            jax.random.fold_in(jax.random.fold_in(key, 1 + part), length)
        )
        latent = jax.random.normal(latent_key, (count, LATENT_DIM))
        noise = jax.random.normal(noise_key, (count, length + 1, TOKEN_DIM), jnp.float32)
        tokens = (latent @ matrix.T).astype(jnp.float32)[:, None] + NOISE_STD * noise
        return tokens[:, :-1], tokens[:, -1], latent @ wanted

    return jax.vmap(one)(keys)


def _logs(cells: Sequence[Measured], vary: str) -> Logs:
    return (within if vary == "samples" else across)(cells, "error", vary)


def judge(measured: Sequence[Measured]) -> list[Part]:
    regions = {"samples": IN_SAMPLES, "length": IN_LENGTH}
    names = {"samples": "pretraining sequences", "length": "length"}
    return [
        judge_slope(
            f"slope of the downstream error in {names[vary]}", _logs(cells, vary), regions[vary]
        )
        for vary, cells in by(measured, "vary").items()
    ]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = []
    for arm, measured in arms.items():
        for vary, cells in by(measured, "vary").items():
            fixed = (
                f"L = {LENGTH}" if vary == "samples" else f"n = {cells[0].parameters['samples'][0]}"
            )
            what = "over pretraining sequences n" if vary == "samples" else "over length L"
            name = f"{what}, {fixed}" + ("" if arm == PREDICTION else ", shuffled targets")
            series.append(line(name, _logs(cells, vary), control=arm != PREDICTION))
    return Figure(
        f"Downstream error with {LABELS} labels on a frozen, pretrained bottleneck",
        "pretraining sequences n, or tokens L", "mean squared error", tuple(series),
    )  # fmt: skip


CLAIM = Claim(
    id="A.self-supervised",
    title="Predicting hidden tokens prepares for other labels",
    statement=(
        "An attention network pretrained to predict hidden tokens, then frozen, serves a label it "
        "never saw with an error that falls with pretraining sequences and does not grow with "
        "length."
    ),
    formula=(
        r"\mathbb{E}\left(\langle w, r(X)\rangle-\langle c,z\rangle\right)^2"
        r"\;\text{falls in}\; n, \;\text{does not grow in}\; L"
    ),
    prediction="The slope in n is at most −0.2, and the slope in L at most 0.10.",
    controls={CONTROL: "Pretraining predicts the next token of another sequence."},
    assumptions=(
        "The bottleneck is as wide as the latent and narrower than a token (by construction).",
        "Pretraining targets depend on the latent (the control breaks this).",
        "The downstream label is a function of the same latent (by construction).",
    ),
    meaning=(
        "Unlabelled sequences can stand in for labels: with a bottleneck the size of the latent, "
        "64 labels are enough once pretraining has found it."
    ),
    source="Lens A, claim (c); prediction (13) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
