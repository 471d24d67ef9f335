"""Runs a model over its inputs and collects one number per input, layer and head.

Inputs are sorted by length and processed in batches with about the same number of tokens. Attention
is measured batch by batch and not kept. The numbers of a batch depend only on its inputs, so a
batch that an earlier run finished is not computed again (`batch_store.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from attnlens.core.checks import BadInput
from attnlens.instruments.layers import attention_rows, conditional_mean, token_subsets
from attnlens.instruments.layers.layer_measures import pair_deviation
from attnlens.instruments.layers.recording import Recording
from attnlens.integrations.transformers.subjects import HeldOut, InspectedModel, RepeatedTokens

from .batch_store import Arrays, BatchStore, digest

TOKENS = 2048  # tokens per batch: 12 heads of 12 layers on 16 × 128 tokens take 150 MB
LARGEST_BATCH = 32
PAIRED = 32  # inputs whose (content, position) pairs are shuffled
CLOSE = 48  # inputs for the slow measures: subsets of tokens, distance to the ridge estimate
REPEATS = 8  # random sequences for induction
HALF = 24  # tokens in each half of a random sequence; the second half repeats the first
BATCH_ARRAYS = ("depth", "has_values", "is_plain")  # arrays that do not have one row per input
NOT_HEADS = ("pooled", "shuffled", "moved", "subsets", "profile")
HIDDEN = 3  # tokens per input to predict from the rest: a seventh of twenty tokens

Progress = Callable[[int, int], None]


class HeldOutTokens(NamedTuple):
    """Masked tokens to predict (in a decoder: next tokens): the hidden states at their positions
    (layers, tokens, width), their input embeddings (tokens, width), and the index of the input of
    each token (tokens,)."""

    features: np.ndarray
    targets: np.ndarray
    inputs: np.ndarray


@dataclass
class Collected:
    """The collected numbers of all inputs, with their shapes.

    heads: name → (inputs, layers, heads), NaN where an input is too short
    subsets: (inputs, layers, heads, sizes); profile: (inputs, layers, heads, bins)
    pooled, shuffled: (hidden states, inputs, width) of mean tokens
    moved: (inputs, hidden states, 2), change of single tokens' states when contents are shuffled:
        numerators and denominators
    pairs: the same when (content, position) pairs are shuffled; empty if that is not possible
    repeats: (sequences, layers, heads), scores of induction on repeated random tokens
    """

    depth: int
    pooled: np.ndarray
    shuffled: np.ndarray
    moved: np.ndarray
    heads: dict[str, np.ndarray]
    subsets: np.ndarray | None
    profile: np.ndarray | None
    pairs: np.ndarray
    repeats: np.ndarray | None
    held_out: HeldOutTokens | None
    has_values: bool
    is_plain: bool  # attention logits are scaled products of queries and keys, nothing else


def batches(lengths: np.ndarray, chosen: Sequence[int] | np.ndarray) -> Iterator[np.ndarray]:
    """Yield the indices of inputs of each batch, longest inputs first: memory peaks at the start.

    >>> [part.tolist() for part in batches(np.array([3, 2000, 1500]), [0, 1, 2])]
    [[1], [2], [0]]
    """
    order = np.asarray(chosen)[np.argsort(-lengths[chosen], kind="stable")]
    start = 0
    while start < len(order):
        count = max(1, min(LARGEST_BATCH, TOKENS // max(int(lengths[order[start]]), 1)))
        yield order[start : start + count]
        start += count


def random_order(subject: InspectedModel, index: int, random: np.random.Generator) -> np.ndarray:
    """A random permutation of the movable tokens of an input; the other tokens keep their place."""
    order = np.arange(subject.lengths[index])
    places = subject.movable(index)
    order[places] = random.permutation(places)
    return order


def collect(
    subject: InspectedModel,
    layers: Sequence[int] | None,
    seed: int,
    progress: Progress,
    kept: BatchStore | None = None,
) -> Collected:
    """Run all forward passes and measure the heads of `layers` (None: of all layers)."""
    kept = kept or BatchStore()
    count = len(subject.rows)
    random = np.random.default_rng(seed)
    orders = [random_order(subject, i, random) for i in range(count)]
    close = set(_close(subject, random).tolist())
    paired = random.permutation(count)[:PAIRED] if subject.moves_pairs else np.empty(0, int)
    hidden = {
        i: item for i in range(count) if (item := subject.held_out(i, HIDDEN, random)) is not None
    }
    repeated = [subject.repeated(HALF, random) for _ in range(REPEATS)]
    sequences = [item for item in repeated if item is not None]
    plan = [*batches(subject.lengths, np.arange(count))]
    paired_plan = [*batches(subject.lengths, paired)] if len(paired) else []
    hidden_plan = [*batches(subject.lengths, [*hidden])] if len(hidden) > 1 else []
    total = len(plan) + len(paired_plan) + len(hidden_plan) + 1
    done = 0

    def finished(arrays: Arrays) -> Arrays:
        nonlocal done
        progress(done := done + 1, total)
        return arrays

    all_arrays = []
    for part in plan:
        rows, own = [subject.rows[i] for i in part], [orders[i] for i in part]
        near = [int(i) in close for i in part]
        name = digest(*rows, *own)
        chosen = None if layers is None else list(layers)
        # Each batch has its own random numbers: they do not depend on which batches are restored.
        draws = np.random.default_rng([seed, int(name[:16], 16)])
        compute = partial(_batch, subject, part, orders, near, layers, draws)
        content = {"inputs": name, "near": near, "layers": chosen, "causal": subject.causal}
        all_arrays.append(finished(kept.arrays("batch", content, seed, compute)))
    pairs = []
    for part in paired_plan:
        content = {"inputs": digest(*(a[i] for i in part for a in (subject.rows, orders)))}
        compute = partial(_pairs, subject, part, orders)
        pairs.append(finished(kept.arrays("pairs", content, seed, compute))["pairs"])
    features = []
    for part in hidden_plan:
        items = [hidden[i] for i in part]
        content = {"inputs": digest(*(a for item in items for a in (item.row, item.places)))}
        compute = partial(_held_out, subject, items)
        features.append(finished(kept.arrays("held out", content, seed, compute))["features"])
    content = {"inputs": digest(*(item.row for item in sequences))}
    depth = int(all_arrays[0]["depth"])
    repeats = None
    if depth and sequences:
        repeats = kept.arrays("repeats", content, seed, partial(_repeats, subject, sequences))
    finished({})
    joined = {name: _joined(all_arrays, plan, name, count) for name in _names(all_arrays)}
    return Collected(
        depth,
        joined["pooled"].swapaxes(0, 1),
        joined["shuffled"].swapaxes(0, 1),
        joined["moved"],
        {name: array for name, array in joined.items() if name not in NOT_HEADS},
        joined.get("subsets"),
        joined.get("profile"),
        np.concatenate(pairs) if pairs else np.empty((0, len(all_arrays[0]["pooled"][0]), 2)),
        None if repeats is None else repeats["repeats"],
        HeldOutTokens(
            np.concatenate(features, 1),
            np.concatenate([hidden[i].targets for part in hidden_plan for i in part]),
            np.repeat(np.concatenate(hidden_plan), HIDDEN),
        )
        if features
        else None,
        bool(all_arrays[0]["has_values"]),
        bool(all_arrays[0]["is_plain"]),
    )


def _names(all_arrays: Sequence[Arrays]) -> set[str]:
    """Names of the arrays that have one row per input."""
    return {name for arrays in all_arrays for name in arrays} - set(BATCH_ARRAYS)


def _joined(
    all_arrays: Sequence[Arrays], plan: Sequence[np.ndarray], name: str, count: int
) -> np.ndarray:
    """The array `name` of all batches in the order of the inputs; NaN where a batch lacks it."""
    shape = next(arrays[name].shape[1:] for arrays in all_arrays if name in arrays)
    whole = np.full((count, *shape), np.nan)
    for arrays, part in zip(all_arrays, plan, strict=True):
        if name in arrays:
            whole[part] = arrays[name]
    return whole


def _check(recording: Recording, layers: Sequence[int] | None) -> None:
    """Raise `BadInput` unless all layers have one width and number of heads, and `layers` exist."""
    depth = len(recording.weights)
    widths = sorted({h.shape[-1] for h in recording.hidden})
    if len(widths) > 1:
        raise BadInput(f"hidden states of all layers must have one width; got {widths}.")
    heads = sorted({w.shape[1] for w in recording.weights})
    if len(heads) > 1:
        raise BadInput(f"all layers must have the same number of heads; got {heads}.")
    if layers is not None and depth and max(layers) > depth:
        raise BadInput(f"layers must be from 1 to {depth}; got {max(layers)}.")


def _close(subject: InspectedModel, random: np.random.Generator) -> np.ndarray:
    """Indices of `CLOSE` random inputs for the slow measures, those with enough tokens first."""
    order = random.permutation(len(subject.rows))
    enough = subject.lengths[order] >= token_subsets.LEAST
    return np.concatenate([order[enough], order[~enough]])[:CLOSE]


def _batch(
    subject: InspectedModel,
    part: np.ndarray,
    orders: Sequence[np.ndarray],
    near: Sequence[bool],
    layers: Sequence[int] | None,
    random: np.random.Generator,
) -> dict[str, np.ndarray]:
    """All arrays of a batch, with one row per input except those in `BATCH_ARRAYS`."""
    recording = subject.record([subject.rows[i] for i in part])
    _check(recording, layers)
    moved = subject.record([subject.shuffled(i, orders[i]) for i in part])
    depth = len(recording.weights)
    table: dict[str, np.ndarray] = {}
    # One thread: matrices of single heads are so small that threads would wait for each other.
    with threadpool_limits(1, "blas"):
        for layer in range(depth):
            if layers is not None and layer + 1 not in layers:
                continue
            weights = recording.each(recording.weights, layer)
            after = moved.each(moved.weights, layer)
            for place, (index, one, other) in enumerate(zip(part, weights, after, strict=True)):
                measures = _rows(subject, int(index), one, other, orders[index])
                if near[place] and recording.values:
                    measures |= _outputs(subject, recording, layer, place, one, random)
                for name, values in measures.items():
                    if name not in table:
                        table[name] = np.full((len(part), depth, *values.shape), np.nan)
                    table[name][place, layer] = values
    return {
        "pooled": recording.pooled().swapaxes(0, 1),
        "shuffled": moved.pooled().swapaxes(0, 1),
        "moved": _moved(recording, moved, [orders[i] for i in part]),
        "depth": np.array(depth),
        "has_values": np.array(bool(recording.values)),
        "is_plain": np.array(recording.has_heads and bool(np.isfinite(recording.scales).all())),
        **table,
    }


def _moved(recording: Recording, moved: Recording, orders: Sequence[np.ndarray]) -> np.ndarray:
    """How far the states of single tokens change when contents are shuffled but positions stay:
    an array (inputs, hidden states, 2) of numerators and denominators."""
    deviations = np.empty((len(orders), len(recording.layers), 2))
    for layer in recording.layers:
        both = (recording.each(recording.hidden, layer), moved.each(moved.hidden, layer))
        for place, (order, one, other) in enumerate(zip(orders, *both, strict=True)):
            deviations[place, layer] = pair_deviation(one, other, order)
    return deviations


def _rows(
    subject: InspectedModel,
    index: int,
    weights: np.ndarray,
    moved: np.ndarray,
    order: np.ndarray,
) -> dict[str, np.ndarray]:
    """The measures of the attention weights of one layer on one input."""
    measures = attention_rows.row_measures(
        weights, causal=subject.causal, separators=subject.separators(index)
    )
    measures |= attention_rows.shuffle_measures(weights, moved, order)
    return measures | {"profile": attention_rows.distance_profile(weights)}


def _outputs(
    subject: InspectedModel,
    recording: Recording,
    layer: int,
    place: int,
    weights: np.ndarray,
    random: np.random.Generator,
) -> dict[str, np.ndarray]:
    """The measures of the head outputs of one layer on one input, as far as they are available."""
    causal, length = subject.causal, recording.lengths[place]
    values = recording.values[layer][place][:, :length]
    measures = {
        "passed": conditional_mean.passed_share(weights, values, causal=causal),
        "subsets": token_subsets.subset_errors(weights, values, random, causal=causal),
    }
    if recording.has_heads and np.isfinite(recording.scales[layer]):
        queries, keys = (
            array[layer][place][:, :length] for array in (recording.queries, recording.keys)
        )
        measures["to CME"] = conditional_mean.distance_to_cme(
            weights, queries, keys, values, recording.scales[layer], causal=causal
        )
    return {name: numbers for name, numbers in measures.items() if numbers is not None}


def _pairs(
    subject: InspectedModel, part: np.ndarray, orders: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    rows = [subject.rows[i] for i in part]
    original = subject.record(rows)
    permuted = subject.record(rows, [orders[i] for i in part])
    deviations = np.empty((len(part), len(original.layers), 2))
    for layer in original.layers:
        both = (original.each(original.hidden, layer), permuted.each(permuted.hidden, layer))
        for place, (index, hidden, moved) in enumerate(zip(part, *both, strict=True)):
            deviations[place, layer] = pair_deviation(hidden, moved, orders[index])
    return {"pairs": deviations}


def _held_out(subject: InspectedModel, items: Sequence[HeldOut]) -> dict[str, np.ndarray]:
    recording = subject.record([item.row for item in items])
    features = [
        np.concatenate(
            [h[item.places] for h, item in zip(states, items, strict=True)], dtype=np.float32
        )
        for states in (recording.each(recording.hidden, layer) for layer in recording.layers)
    ]
    return {"features": np.array(features)}


def _repeats(subject: InspectedModel, sequences: Sequence[RepeatedTokens]) -> dict[str, np.ndarray]:
    recording = subject.record([item.row for item in sequences])
    by_layer = [
        [
            attention_rows.induction(weights, item.start, item.half)
            for weights, item in zip(
                recording.each(recording.weights, layer), sequences, strict=True
            )
        ]
        for layer in range(len(recording.weights))
    ]
    return {"repeats": np.array(by_layer).swapaxes(0, 1)}
