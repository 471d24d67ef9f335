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

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.claims.claim import PREDICTION, Assumption, Check, Claim, Control, Meaning, Profile
from attnlens.claims.estimates import ScalingLaw
from attnlens.claims.figures import Lines
from attnlens.claims.grid import Grid, Grids
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.trained_networks import FITTING, fitting, reader
from attnlens.core.verdicts import Region
from attnlens.networks.reader import Reader, ReaderInputs
from attnlens.training.trainer import fit
from attnlens.worlds.seeding import episode_keys

CONTROL = "shuffled"
BLOCKS: Mapping[Profile, int] = {"smoke": 1, "default": 2, "full": 18}
SETTINGS = {
    "token_dim": 24,
    "latent_dim": 3,
    "noise_std": 2.0,  # the noise of a token has four times the variance of its signal
    "labels": 64,
    "label_noise_std": 0.3,
    "test_sequences": 1024,
    "heads": 1,
    "head_dim": 4,
    "hidden": 0,  # the answer is linear in the bottleneck
    "sharpness": 5.0,
    **FITTING,
    "steps": 1000,
}
# `samples` lists the numbers of pretraining sequences of one cell.
IN_SAMPLES = Grid(
    settings={
        **SETTINGS,
        "length": 16,
        "samples": {
            "smoke": [64, 512],
            "default": [64, 256, 1024, 4096, 16384],  # n·L ≤ 2¹⁸
            "full": [64, 256, 1024, 4096, 16384, 65536],
        },
    },
    axes={"vary": ("samples",)},
    blocks={PREDICTION: BLOCKS, CONTROL: BLOCKS},
    seeds_per_block=4,
    cost=lambda parameters, seeds: 5.0,
)
IN_LENGTH = Grid(
    settings={**SETTINGS, "samples": {"smoke": [256], "default": [512], "full": [512]}},
    axes={
        "vary": ("length",),
        "length": {"smoke": (8, 32), "default": (8, 32, 128), "full": (8, 32, 128, 512)},
    },
    blocks={PREDICTION: BLOCKS},
    seeds_per_block=4,
    cost=lambda parameters, seeds: 0.5 + 0.03 * parameters["length"],
)
ERROR = {
    "length": ScalingLaw("error", "length"),
    "samples": ScalingLaw("error", "samples", within=True),
}
RULE = Rule(
    Quantity(
        "slope_in_length",
        "slope of the downstream error in length ({span})",
        ERROR["length"].slopes,
        Region(high=0.10),
        where={"vary": "length"},
    ),
    Quantity(
        "slope_in_samples",
        "slope of the downstream error in pretraining sequences ({span})",
        ERROR["samples"].slopes,
        Region(high=-0.2),
        where={"vary": "samples"},
    ),
)


class MaskedSequences(NamedTuple):
    """For every seed: sequences, their next tokens, and the downstream targets ⟨c, z⟩."""

    tokens: np.ndarray
    next_token: np.ndarray
    target: np.ndarray


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """The downstream error: rows are seeds, columns are numbers of pretraining sequences."""
    length, samples, labels = (parameters[n] for n in ("length", "samples", "labels"))
    token_dim, latent_dim = parameters["token_dim"], parameters["latent_dim"]
    sizes = (length, token_dim, latent_dim)
    pretraining, labelled, test = (
        _draw(seeds, count, sizes, parameters["noise_std"], part)
        for part, count in enumerate((max(samples), labels, parameters["test_sequences"]))
    )
    next_token = pretraining.next_token
    if arm != PREDICTION:
        next_token = np.roll(next_token, 1, axis=1)
    fitted = fit(
        reader(
            parameters,
            key_dim=token_dim,
            value_dim=token_dim,
            outputs=token_dim,
            read_dim=latent_dim,
        ),
        ReaderInputs(pretraining.tokens, pretraining.tokens),
        next_token,
        seeds=seeds,
        samples=samples,
        data_per_seed=True,
        block=len(seeds) * len(samples),
        **fitting(parameters),
    )
    errors = []
    for i in range(len(fitted)):
        place = i // len(samples)  # of the seed that network i belongs to
        random = np.random.default_rng([seeds[place], length])
        noise = parameters["label_noise_std"] * random.normal(size=labels)
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
    return jax.vmap(lambda x: model.represent(ReaderInputs(x, x)))(tokens)


def _draw(
    seeds: Sequence[int], count: int, sizes: tuple[int, int, int], noise_std: float, part: int
) -> MaskedSequences:
    arrays = _draw_arrays(episode_keys(seeds), count, sizes, noise_std, part)
    return MaskedSequences(*map(np.asarray, arrays))


@partial(jax.jit, static_argnames=("count", "sizes", "noise_std"))
def _draw_arrays(
    keys: Any, count: int, sizes: tuple[int, int, int], noise_std: float, part: int
) -> tuple[Any, Any, Any]:
    length, token_dim, latent_dim = sizes

    def one(key: Any) -> tuple[Any, Any, Any]:
        world = jax.random.normal(jax.random.fold_in(key, 0), (token_dim + 1, latent_dim))
        matrix, head = world[:-1] / jnp.sqrt(latent_dim), world[-1] / jnp.linalg.norm(world[-1])
        latent_key, noise_key = jax.random.split(
            jax.random.fold_in(jax.random.fold_in(key, 1 + part), length)
        )
        latent = jax.random.normal(latent_key, (count, latent_dim))
        noise = jax.random.normal(noise_key, (count, length + 1, token_dim), jnp.float32)
        tokens = (latent @ matrix.T).astype(jnp.float32)[:, None] + noise_std * noise
        return tokens[:, :-1], tokens[:, -1], latent @ head

    return jax.vmap(one)(keys)


NAMES = {
    "length": "over length L, n = {samples[0]}",
    "samples": "over pretraining sequences n, L = {length}",
}
FIGURE = Lines(
    "Downstream error with {labels} labels on a frozen, pretrained bottleneck",
    "pretraining sequences n, or tokens L",
    "mean squared error",
    ERROR.__getitem__,
    {
        PREDICTION: NAMES.__getitem__,
        CONTROL: lambda vary: f"{NAMES[vary]}, shuffled targets",
    },
    per=("vary",),
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
    prediction="The slope in n is $slope_in_samples, and the slope in L $slope_in_length.",
    controls={
        CONTROL: Control(
            "Pretraining predicts the next token of another sequence.",
            quantities=("slope_in_samples",),
        )
    },
    assumptions=(
        Assumption(
            "The bottleneck is as wide as the latent and narrower than a token",
            Check.BY_CONSTRUCTION,
        ),
        Assumption(
            "The targets of pretraining depend on the latent", Check.CONTROL, control=CONTROL
        ),
        Assumption("The downstream label is a function of the same latent", Check.BY_CONSTRUCTION),
    ),
    meaning=Meaning(
        supported=(
            "Unlabelled sequences can replace labels: with a bottleneck of the dimension of the "
            "latent, $labels labels are enough after pretraining."
        ),
        refuted=(
            "Pretraining on hidden tokens does not reliably serve a label that it never saw: do "
            "not rely on unlabelled or longer sequences in place of labels."
        ),
        undecided=(
            "Whether pretraining on hidden tokens serves other labels is open: compare it with "
            "training on the labels alone before paying for it."
        ),
    ),
    source=(
        "Lens A (Zhang et al., 2022, arXiv 2212.14852), statement (c); our formalisation: "
        "docs/theory.md, prediction 13."
    ),
    plan=Grids(IN_SAMPLES, IN_LENGTH),
    measure=measure,
    judge=RULE,
    figure=FIGURE,
)
