"""Shared by the claims on real data: attention and its strongest competitor, with the same labels.

The judged number of a split is

    error of attention − error of the best other network,

both on the same test samples. Each side is chosen on the same validation samples, from the same
number of candidates: attention has three times as many random starts of every width as each of the
three other networks. Optimiser, schedule, steps and learning rate are the same for all; the
validation loss also decides when training stops.

    attention      y = w₂ φ(w₁ vec(w_V x a(x))), self-attention of lens B (ICLR 2021 submission)
    plain network  y = w₂ φ(w₁ vec(x)), the baseline of lens B
    mean token     y = w₂ φ(w₁ Σ_i x_i/√p): pooling without attention
    norm gate      y = w₂ φ(w₁ Σ_i a_i x_i/‖a‖),  a = softmax(β e): pooling by the standardised
                   squared norm e of a token; β is a setting, chosen on the pilot's seeds

The mean token and the norm gate cannot compare tokens and cannot learn which ones matter. If they
are as good as attention, attention's gain over the plain network is due to pooling.

Controls of both claims:

    uniform    attention with equal weights: y = w₂ φ(w₁ vec(w_V x̄ 1ᵀ)), trained in the same way
    planted    a task in which the label depends on one marked token: attention must win
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from attnlens.claims.cells import Measured, group_by
from attnlens.claims.claim import PREDICTION
from attnlens.claims.estimates import pooled
from attnlens.claims.figures import mean_point
from attnlens.claims.power import Power
from attnlens.claims.rule import Quantity, Rule
from attnlens.claims.teacher_student import ADAM, training_of
from attnlens.core.drawing import Point, Series
from attnlens.core.verdicts import Region
from attnlens.data.dataset import Dataset
from attnlens.networks import Baseline, SelfAttention, fit
from attnlens.networks.dense import head
from attnlens.networks.parameters import normals

UNIFORM, SCRAMBLED, PLANTED = "uniform-attention", "scrambled", "one-marked-token"
ATTENTION = "attention"
OTHERS = ("plain network", "mean token", "norm gate")
MODELS = (ATTENTION, *OTHERS)
# The formula of both claims: attention against the best other network.
FORMULA = (
    r"\mathrm{error}_n\left(w_2^{\top}\varphi(w_1\,\mathrm{vec}(w_V x\,a(x)))\right)"
    r"-\min_{g}\,\mathrm{error}_n\left(w_2^{\top}\varphi(w_1\,g(x))\right)"
    r"\;\le\;$fewer_labels_high,\qquad "
    r"g \in \left\{\mathrm{vec}(x),\;{\textstyle\sum_i} x^i/\sqrt{p},\;"
    r"{\textstyle\sum_i} a_i x^i/\lVert a\rVert\right\}"
)
KEYS = ("fewer_labels", "more_labels")  # the quantities, in the order of the setting `counts`
MARGIN = 0.02  # smallest difference in error that is worth a more complex network
SETTINGS: dict[str, Any] = {
    "weights": "learned",  # the attention weights: "learned" or "uniform"
    "starts": 1,  # starts of each other network per width; attention has three times as many
    "query_dim": 8,
    "value_dim": 16,
    "sharpness": 5.0,
    # If `scrambled`, the numbers of every sample are permuted, in an order drawn with
    # `permutation_seed`.
    "scrambled": False,
    "permutation_seed": 0,
    "planted": False,
    **ADAM,
    "loss": "softmax",
    "batch": 32,
    "learning_rate": 1e-2,  # with 5e-3 and 2e-2, errors of all networks changed by at most 0.03
    "every": 10,  # number of steps between evaluations of the validation loss
}


class Split(NamedTuple):
    """One split of a data set, as tokens; with n labels, the first n rows of `train` are used."""

    train: Dataset
    validation: Dataset
    test: Dataset


class Arrays(NamedTuple):
    """Tokens and labels of all splits: lists of the training, validation and test array.

    Arrays have the shape (split, sample, …).
    """

    tokens: list[np.ndarray]
    labels: list[np.ndarray]


class Candidate(NamedTuple):
    """A kind of network to train: its constructor, its inputs in each set, and starts per split."""

    make: Any
    inputs: list[np.ndarray]
    starts: int = 1


class Chosen(NamedTuple):
    """The validation loss and test error of the network with the lowest validation loss.

    Arrays have the shape (split, n).
    """

    validation: np.ndarray
    error: np.ndarray


class UniformAttention(eqx.Module):
    """Self-attention of lens B whose weights are all 1/p: every output is the mean value."""

    value: Float[Array, "value_dim token_dim"]
    first: Float[Array, "hidden flat"]
    second: Float[Array, "outputs hidden"]
    tokens: int = eqx.field(static=True)
    sharpness: float = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        *,
        tokens: int,
        token_dim: int,
        value_dim: int,
        hidden: int,
        outputs: int,
        sharpness: float,
    ):
        wide = tokens * value_dim
        self.value, self.first, self.second = normals(
            key,
            ((value_dim, token_dim), token_dim),
            ((hidden, wide), wide),
            ((outputs, hidden), hidden),
        )
        self.tokens, self.sharpness = tokens, sharpness

    def __call__(self, mean: Float[Array, " token_dim"]) -> Float[Array, " outputs"]:
        """The outputs for the mean token."""
        outputs = jnp.tile(self.value @ mean, self.tokens)
        return head(self.first, self.second, outputs, self.sharpness)


def set_sizes(parameters: Mapping[str, Any]) -> dict[str, int]:
    """The number of samples in each set of a split; training has the largest of `counts`."""
    own = {name: parameters[f"{name}_samples"] for name in ("validation", "test")}
    return {"train": max(parameters["counts"]), **own}


def errors(
    splits: Sequence[Split], seeds: Sequence[int], parameters: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Test errors (split, n) of attention, of each other network, and of the best other network.

    n are the `counts`. Networks are chosen on validation data. The result also has shortened hashes
    of the splits.
    """
    classes = len(splits[0].train.classes)
    values = errors_of(arrays(splits), classes, seeds, parameters)
    return {**values, "hashes": np.stack([_hashes(split) for split in splits])}


def arrays(splits: Sequence[Split]) -> Arrays:
    """The sets of all splits, stacked."""
    sets = [*zip(*splits, strict=True)]
    return Arrays(
        [np.stack([data.array for data in group]).astype(np.float32) for group in sets],
        [np.stack([data.labels for data in group]) for group in sets],
    )


def errors_of(
    data: Arrays, classes: int, seeds: Sequence[int], parameters: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The errors that `errors` returns, from arrays."""
    tokens = data.tokens
    if parameters["scrambled"]:
        random = np.random.default_rng(parameters["permutation_seed"])
        order = random.permutation(tokens[0][0, 0].size)
        tokens = [_flat(array)[..., order].reshape(array.shape) for array in tokens]
    chosen = {
        model: _choose(
            [
                _trained(candidate, data.labels, seeds, parameters)
                for candidate in _candidates(model, tokens, classes, parameters)
            ]
        )
        for model in MODELS
    }
    rates = {model: chosen[model].error for model in MODELS}
    return {**rates, "best other": _choose([chosen[model] for model in OTHERS]).error}


def _candidates(
    model: str, tokens: Sequence[np.ndarray], classes: int, parameters: Mapping[str, Any]
) -> Iterator[Candidate]:
    """The candidates of a model, one per width."""
    length, dim = tokens[0].shape[2:]
    starts = parameters["starts"]
    for hidden in parameters["widths"]:
        shared = {"hidden": hidden, "outputs": classes, "sharpness": parameters["sharpness"]}
        if model == ATTENTION:
            shared |= {"tokens": length, "token_dim": dim, "value_dim": parameters["value_dim"]}
            if parameters["weights"] == "uniform":
                make, inputs = partial(UniformAttention, **shared), [t.mean(2) for t in tokens]
            else:
                make = partial(SelfAttention, query_dim=parameters["query_dim"], **shared)
                inputs = [t.swapaxes(-1, -2) for t in tokens]
            yield Candidate(make, inputs, len(OTHERS) * starts)
        elif model == "plain network":
            make = partial(Baseline, features=length * dim, **shared)
            yield Candidate(make, [_flat(t) for t in tokens], starts)
        else:
            slope = parameters["gate"] if model == "norm gate" else 0.0
            make = partial(Baseline, features=dim, **shared)
            yield Candidate(make, pool(tokens, slope), starts)


def pool(tokens: Sequence[np.ndarray], slope: float) -> list[np.ndarray]:
    """The pooled token Σ_i a_i x_i/‖a‖ with a = softmax(slope · e) of every sample, for each set.

    e is the squared norm of a token, standardised with the training set (the first) of each split.
    The division by ‖a‖ gives the result the scale of one token.
    """
    energies = [np.sum(np.square(t, dtype=np.float64), -1) for t in tokens]
    centre, scale = (
        getattr(energies[0], name)(axis=(1, 2), keepdims=True) for name in ("mean", "std")
    )
    # If all tokens have equal norms up to rounding, weights are equal.
    scale = np.where(scale > 1e-5 * centre, scale, np.inf)
    pooled_tokens = []
    for array, energy in zip(tokens, energies, strict=True):
        logits = slope * (energy - centre) / scale
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= np.linalg.norm(weights, axis=-1, keepdims=True)
        pooled_tokens.append(np.einsum("snp,snpd->snd", weights, array).astype(np.float32))
    return pooled_tokens


def _trained(
    candidate: Candidate,
    labels: Sequence[np.ndarray],
    seeds: Sequence[int],
    parameters: Mapping[str, Any],
) -> Chosen:
    """Train a candidate on every split and n; choose the start with the lowest validation loss."""
    counts, starts = parameters["counts"], candidate.starts
    repeated = [np.repeat(array, starts, 0) for array in (*candidate.inputs, *labels)]
    train, validation, test, *targets = repeated
    fitted = fit(
        candidate.make,
        train,
        targets[0],
        validation=(validation, targets[1]),
        data_per_seed=True,
        seeds=[starts * seed + start for seed in seeds for start in range(starts)],
        samples=counts,
        block=len(seeds) * starts * len(counts),
        **training_of(parameters),
    )
    losses = np.nanmin(fitted.validation, 1).reshape(len(seeds), starts, len(counts))
    rates = _error_rates(fitted.models, test, targets[2]).reshape(losses.shape)
    return _choose([Chosen(losses[:, start], rates[:, start]) for start in range(starts)])


def _choose(options: Sequence[Chosen]) -> Chosen:
    """For each split and n, the option with the lowest validation loss."""
    losses, rates = (np.array(part) for part in zip(*options, strict=True))
    best = np.argmin(losses, 0)[None]
    return Chosen(*(np.take_along_axis(part, best, 0)[0] for part in (losses, rates)))


def _error_rates(models: Any, test: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The share of test samples that each network classifies wrongly, (split and start, n)."""
    by_set = jax.tree.map(lambda leaf: leaf.reshape(len(test), -1, *leaf.shape[1:]), models)
    with jax.enable_x64(False):
        predicted = np.asarray(_classes(by_set, test))
    return (predicted != labels[:, None]).mean(-1)


@jax.jit
def _classes(models: Any, inputs: Any) -> Any:
    """The most probable classes (set, n, sample) for models (set, n) and inputs (set, sample)."""
    of_set = jax.vmap(lambda model, x: jnp.argmax(jax.vmap(model)(x), -1), in_axes=(0, None))
    return jax.vmap(of_set)(models, inputs)


def _flat(tokens: np.ndarray) -> np.ndarray:
    return tokens.reshape(*tokens.shape[:-2], -1)


def _hashes(split: Split) -> np.ndarray:
    """The first seven bytes of the SHA-256 of each set, as integers, which can be stored."""
    return np.array([int(digest[:14], 16) for digest in split.train.splits.values()], np.int64)


def rule(per: tuple[str, ...], pilot: Mapping[str, Mapping[Any, tuple[float, float]]]) -> Rule:
    """The rule of both claims, on the error of attention minus that of the best other network.

    There is one part per number of labels and values of the parameters `per`. `pilot` maps a
    quantity's key and these values to the effect and the standard deviation of one split.
    """
    where = ", ".join(f"{{{name}}}" for name in per)

    def power(key: str) -> Power:
        def expected(entry: int, *values: Any) -> float:
            return pilot[key][values if len(per) > 1 else values[0]][entry]

        return Power(partial(expected, 0), partial(expected, 1))

    return Rule(
        *(
            Quantity(
                key,
                f"test error of attention minus the best other network ({where}, "
                f"{{counts[{column}]}} labels)",
                pooled(partial(_difference, column=column)),
                Region(high=-MARGIN),
                per=per,
                power=power(key),
            )
            for column, key in enumerate(KEYS)
        )
    )


def _difference(cell: Measured, column: int) -> np.ndarray:
    return (cell.values[ATTENTION] - cell.values["best other"])[:, column]


def lines(
    arms: Mapping[str, Sequence[Measured]], per: tuple[str, ...], words: Mapping[str, str]
) -> tuple[Series, ...]:
    """Lines of the test error over the number of labels, one per model, arm and values of `per`.

    `words` maps arms to labels. For the control with uniform attention only attention is drawn,
    because the other models are those of the prediction.
    """
    series = []
    for arm, measured in arms.items():
        for values, cells in group_by(measured, *per).items():
            place = [*values] if isinstance(values, tuple) else [values]
            for model in MODELS if arm != UNIFORM else (ATTENTION,):
                name = ", ".join(filter(None, (model, *map(str, place), words.get(arm, ""))))
                rows = np.concatenate([cell.values[model] for cell in cells])
                points = _points(rows, cells[0].parameters)
                series.append(Series(name, points, control=arm != PREDICTION))
    return tuple(series)


def _points(errors: np.ndarray, parameters: Mapping[str, Any]) -> tuple[Point, ...]:
    return tuple(map(mean_point, parameters["counts"], errors.T))
