"""Shared by the claims about masked pretraining: data, the frozen bottleneck and its oracle.

A token is a noisy observation of a latent z ∈ R^m through a random D × m matrix, x = W z + noise,
together with a flag. Half of the tokens have three times the noise of the others, and the flag is 1
for these. A network that takes the mean of the tokens loses half of the information; a network
whose attention weights tokens by 1/variance loses none. Each sequence has the same number of noisy
tokens, so that the posterior mean, with w_ℓ = 1/σ_ℓ² and P = Σ w_ℓ,

    E[z | X] = (I + P WᵀW)⁻¹ Wᵀ Σ w_ℓ x_ℓ,

is a linear map of one softmax-weighted mean of the tokens. One head with a bottleneck of m numbers
can represent it exactly, so all errors come from training. (If the number of noisy tokens were
random, P would vary, and a linear head on any weighted mean would have an additional error.)

Pretraining predicts the next token, from L others, through the bottleneck of m numbers. The
network is then frozen. Its input tokens are divided by `token_scale`, so that logits are of order
one when Adam starts; without this, a third of the networks had not converged after 3,000 steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from attnlens.claims.cells import Measured
from attnlens.claims.trained_networks import FITTING, fitting, reader
from attnlens.core.statistics import log_of_mean
from attnlens.networks.reader import Reader, ReaderInputs
from attnlens.training.trainer import Fitted, fit

PRETRAIN, LABELLED, TEST, HEADS = range(4)  # parts of the data of a seed
SETTINGS: dict[str, Any] = {
    "token_dim": 12,
    "latent_dim": 3,
    "noise_std": 2.0,
    "noisy_std": 6.0,  # standard deviation of the noise in every second token
    "token_scale": 4.0,
    "shuffled": False,
    "seen_tokens": 0,  # number of last tokens that the network sees; 0: all, as the oracle does
    "targets": 20,  # number of directions c of the labels ⟨c, z⟩ + noise
    "labels": 64,  # number of labels for each direction
    "label_noise_std": 0.3,
    "test_sequences": 4096,
    "heads": 1,
    "head_dim": 4,
    "hidden": 0,  # no hidden units: the output is linear in the bottleneck
    "sharpness": 5.0,
    **FITTING,
    "learning_rate": 0.03,
}


class NoisySequences(NamedTuple):
    """Sequences with their latents and the exact posterior.

    Tokens with flags have the shape (n, L, D + 1), next tokens (n, D), latents and posterior means
    (n, m). The posterior covariance (m, m) is the same for all sequences.
    """

    tokens: np.ndarray
    next_token: np.ndarray
    latent: np.ndarray
    posterior: np.ndarray
    covariance: np.ndarray


def draw(parameters: Mapping[str, Any], seed: int, part: int, count: int) -> NoisySequences:
    """`count` sequences of the world of a seed; different `part`s and lengths are independent."""
    dim, latent_dim, length = (parameters[n] for n in ("token_dim", "latent_dim", "length"))
    matrix = np.random.default_rng([seed, HEADS]).normal(size=(dim, latent_dim))
    matrix /= np.sqrt(latent_dim)
    random = np.random.default_rng([seed, part, length])
    latent = random.normal(size=(count, latent_dim))
    noisy = np.arange(length) % 2 == 0
    std = np.where(noisy, parameters["noisy_std"], parameters["noise_std"])
    noise = random.normal(size=(count, length, dim))
    tokens = (latent @ matrix.T)[:, None] + std[:, None] * noise
    following = latent @ matrix.T + parameters["noise_std"] * random.normal(size=(count, dim))
    weighted = np.einsum("l,nld->nd", std**-2, tokens)
    precision = np.eye(latent_dim) + np.sum(std**-2) * matrix.T @ matrix
    flags = np.broadcast_to(noisy[:, None], (count, length, 1))
    scale = parameters["token_scale"]
    return NoisySequences(
        np.concatenate([tokens / scale, flags], -1).astype(np.float32),
        (following / scale).astype(np.float32),
        latent,
        np.linalg.solve(precision, (weighted @ matrix).T).T,
        np.linalg.inv(precision),
    )


def pretrain(parameters: Mapping[str, Any], seeds: Sequence[int]) -> Fitted:
    """Train one network per seed and number of pretraining sequences."""
    samples, dim = parameters["samples"], parameters["token_dim"]
    drawn = [draw(parameters, seed, PRETRAIN, max(samples)) for seed in seeds]
    tokens = np.stack([visible(parameters, part.tokens) for part in drawn])
    targets = np.stack([part.next_token for part in drawn])
    if parameters["shuffled"]:
        targets = np.roll(targets, 1, axis=1)  # the next token of another sequence
    sizes = {"key_dim": dim + 1, "value_dim": dim + 1, "outputs": dim}
    return fit(
        reader(parameters, read_dim=parameters["latent_dim"], **sizes),
        ReaderInputs(tokens, tokens),
        targets,
        seeds=seeds,
        samples=samples,
        data_per_seed=True,
        block=len(seeds) * len(samples),
        **fitting(parameters),
    )


def visible(parameters: Mapping[str, Any], tokens: np.ndarray) -> np.ndarray:
    """The tokens that the network sees: the last `seen_tokens`, or all."""
    return tokens[:, -parameters["seen_tokens"] :]


def frozen(model: Reader, parameters: Mapping[str, Any], data: NoisySequences) -> np.ndarray:
    """The bottleneck values of a frozen network on `data`, (n, m), in float64."""
    tokens = visible(parameters, data.tokens).astype(model.value.dtype)
    return np.asarray(_represent(model, tokens), float)


@jax.jit
def _represent(model: Reader, tokens: Any) -> Any:
    return jax.vmap(lambda x: model.represent(ReaderInputs(x, x)))(tokens)


def with_ones(features: np.ndarray) -> np.ndarray:
    """The features with a column of ones appended."""
    return np.column_stack([features, np.ones(len(features))])


def head_errors(
    parameters: Mapping[str, Any],
    seed: int,
    labelled: NoisySequences,
    test: NoisySequences,
    features: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """E(head − ⟨c, z⟩)² for each target c; heads are fitted by least squares.

    `features` are those of the labelled sample, on which heads are fitted, and of the test sample.
    Given X, z is the posterior mean plus an independent rest with the posterior covariance Σ, so

        E(head − ⟨c, z⟩)² = E(head − ⟨c, E[z|X]⟩)² + cᵀ Σ c:

    the second term is exact, and only the first is estimated on test sequences. Directions and
    label noise depend only on the seed, so heads on other features are fitted to the same labels.
    """
    random = np.random.default_rng([seed, HEADS, 1])
    count, labels = parameters["targets"], parameters["labels"]
    heads = random.normal(size=(count, parameters["latent_dim"]))
    heads /= np.linalg.norm(heads, axis=1, keepdims=True)
    noise = parameters["label_noise_std"] * random.normal(size=(count, labels))
    inputs, latents = (part.reshape(count, labels, -1) for part in (features[0], labelled.latent))
    errors = []
    for i, head in enumerate(heads):
        answers = latents[i] @ head + noise[i]
        weights = np.linalg.lstsq(with_ones(inputs[i]), answers, rcond=None)[0]
        off = with_ones(features[1]) @ weights - test.posterior @ head
        errors.append(np.mean(off**2) + head @ test.covariance @ head)
    return np.array(errors)


class Frozen(NamedTuple):
    """Labelled and test sequences, and the values of a frozen bottleneck on them (`…_reads`)."""

    labelled: NoisySequences
    test: NoisySequences
    labelled_reads: np.ndarray
    test_reads: np.ndarray

    def errors(self, parameters: Mapping[str, Any], seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Errors of heads on the bottleneck, and on the exact posterior mean, one per target."""
        own = (self.labelled_reads, self.test_reads)
        exact = (self.labelled.posterior, self.test.posterior)
        samples = self.labelled, self.test
        return (
            head_errors(parameters, seed, *samples, own),
            head_errors(parameters, seed, *samples, exact),
        )


def logs_in_samples(name: str, cells: Sequence[Measured]) -> tuple[np.ndarray, np.ndarray]:
    """log n, and jackknife pseudo-values (seed, n) of the log of the mean over seeds.

    The values are those of the array `name` of the cells.
    """
    rows = [cell.values[name] for cell in sorted(cells, key=lambda cell: cell.seeds)]
    return np.log(cells[0].parameters["samples"]), log_of_mean(np.concatenate(rows))


def bottlenecks(parameters: Mapping[str, Any], seeds: Sequence[int]) -> list[list[Frozen]]:
    """The frozen bottlenecks: one list per seed, with one entry per number of sequences n."""
    fitted, sizes = pretrain(parameters, seeds), len(parameters["samples"])
    rows = []
    for i, seed in enumerate(seeds):
        labelled = draw(parameters, seed, LABELLED, parameters["targets"] * parameters["labels"])
        test = draw(parameters, seed, TEST, parameters["test_sequences"])
        models = [fitted.model(i * sizes + j) for j in range(sizes)]
        rows.append(
            [
                Frozen(labelled, test, *(frozen(m, parameters, part) for part in (labelled, test)))
                for m in models
            ]
        )
    return rows
