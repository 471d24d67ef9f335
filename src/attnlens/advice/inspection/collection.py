"""Runs a model over its inputs and collects one number per input, layer and head.

Inputs are taken in the order of their lengths, in batches of about equal size in tokens. Attention
is measured batch by batch and not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from attnlens.core.checks import BadInput
from attnlens.instruments.layers import attention_rows, conditional_mean, token_subsets
from attnlens.instruments.layers.layer_measures import pair_deviation
from attnlens.instruments.layers.recording import Recording
from attnlens.integrations.transformers.subjects import HeldOut, InspectedModel

TOKENS = 2048  # tokens per batch: 12 heads of 12 layers on 16 × 128 tokens take 150 MB
LARGEST_BATCH = 32
PAIRED = 32  # inputs of which (content, position) pairs are moved
CLOSE = 48  # inputs whose heads are compared with subsets of tokens and with the ridge estimate
REPEATS = 8  # random sequences for induction
HALF = 24  # tokens that are repeated in them
HIDDEN = 3  # tokens per input that are to be predicted: one in seven of twenty

Progress = Callable[[int, int], None]


class HeldOutTokens(NamedTuple):
    """Hidden states (layers, tokens, width) where tokens are to be predicted, their embeddings
    (tokens, width), and the inputs that they belong to (tokens,)."""

    features: np.ndarray
    targets: np.ndarray
    inputs: np.ndarray


@dataclass
class Collected:
    """Numbers of all inputs.

    heads: name → (inputs, layers, heads), NaN where an input is too short
    subsets: (inputs, layers, heads, sizes); profile: (inputs, layers, heads, bins)
    pooled, shuffled: (hidden states, inputs, width) of mean tokens
    pairs: (inputs, hidden states, 2), numerators and denominators
    """

    inputs: int
    depth: int = 0
    heads: dict[str, np.ndarray] = field(default_factory=dict)
    subsets: np.ndarray | None = None
    pooled: np.ndarray = field(default_factory=lambda: np.empty(0))
    shuffled: np.ndarray = field(default_factory=lambda: np.empty(0))
    pairs: np.ndarray = field(default_factory=lambda: np.empty(0))
    repeats: np.ndarray | None = None  # induction: (sequences, layers, heads)
    held_out: HeldOutTokens | None = None
    has_values: bool = False
    is_plain: bool = False  # logits are products of queries and keys alone

    def put(self, name: str, index: int, layer: int, values: np.ndarray | None) -> None:
        """Keep the numbers of the heads of one layer on one input."""
        if values is None:
            return
        if name not in self.heads:
            self.heads[name] = np.full((self.inputs, self.depth, len(values)), np.nan)
        self.heads[name][index, layer] = values


def batches(lengths: np.ndarray, chosen: Sequence[int] | np.ndarray) -> Iterator[np.ndarray]:
    """Indices of inputs, the longest first, so that memory is largest at the start.

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
    """A permutation of the tokens that may move; the others stay."""
    order = np.arange(subject.lengths[index])
    places = subject.movable(index)
    order[places] = random.permutation(places)
    return order


def collect(
    subject: InspectedModel, layers: Sequence[int] | None, seed: int, progress: Progress
) -> Collected:
    """All forward passes and all measures of heads; `layers` are those whose heads are measured."""
    count = len(subject.rows)
    random = np.random.default_rng(seed)
    orders = [random_order(subject, i, random) for i in range(count)]
    close = set(_close(subject, random).tolist())
    paired = random.permutation(count)[:PAIRED] if subject.moves_pairs else np.empty(0, int)
    plan = [*batches(subject.lengths, np.arange(count))]
    paired_plan = [*batches(subject.lengths, paired)] if len(paired) else []
    hidden = [subject.held_out(i, HIDDEN, random) for i in range(count)]
    known = np.array([i for i, item in enumerate(hidden) if item is not None], int)
    hidden_plan = [*batches(subject.lengths, known)] if len(known) > 1 else []
    total, done = len(plan) + len(paired_plan) + len(hidden_plan) + 1, 0
    found = Collected(count)
    for part in plan:
        recording = subject.record([subject.rows[i] for i in part])
        moved = subject.record([subject.shuffled(i, orders[i]) for i in part])
        _start(found, recording)
        found.pooled[:, part], found.shuffled[:, part] = recording.pooled(), moved.pooled()
        # Matrices of single heads are small: threads would wait for each other.
        with threadpool_limits(1, "blas"):
            for layer in range(len(recording.weights)):
                if layers is None or layer + 1 in layers:
                    _heads(found, subject, recording, moved, layer, part, orders, close, random)
        progress(done := done + 1, total)
    for part in paired_plan:
        _pairs(found, subject, part, orders)
        progress(done := done + 1, total)
    parts = []
    for part in hidden_plan:
        parts.append(_held_out(subject, part, [item for i in part if (item := hidden[i])]))
        progress(done := done + 1, total)
    if parts:
        columns = zip(*parts, strict=True)
        found.held_out = HeldOutTokens(
            *(np.concatenate(column, axis) for column, axis in zip(columns, (1, 0, 0), strict=True))
        )
    _repeats(found, subject, random)
    progress(total, total)
    return found


def _start(found: Collected, recording: Recording) -> None:
    """Arrays of the right size, once the first batch shows the depth."""
    if found.pooled.size:
        return
    widths = sorted({h.shape[-1] for h in recording.hidden})
    if len(widths) > 1:
        raise BadInput(f"hidden states of all layers must have one width; got {widths}.")
    shape = (len(recording.hidden), found.inputs, widths[0])
    found.depth = len(recording.weights)
    found.pooled, found.shuffled = np.zeros(shape), np.zeros(shape)
    found.pairs = np.full((found.inputs, len(recording.hidden), 2), np.nan)
    found.has_values = bool(recording.values)
    found.is_plain = recording.has_heads and bool(np.isfinite(recording.scales).all())


def _close(subject: InspectedModel, random: np.random.Generator) -> np.ndarray:
    """Inputs for the measures that take longest, those with enough tokens first."""
    order = random.permutation(len(subject.rows))
    enough = subject.lengths[order] >= token_subsets.LEAST
    return np.concatenate([order[enough], order[~enough]])[:CLOSE]


def _heads(found, subject, recording, moved, layer, part, orders, close, random) -> None:
    """The measures of one layer's heads on the inputs of a batch."""
    all_weights = [*recording.each(recording.weights, layer)]
    all_moved = [*moved.each(moved.weights, layer)]
    for place, index in enumerate(part):
        weights, causal = all_weights[place], subject.causal
        measures = attention_rows.row_measures(
            weights, causal=causal, separators=subject.separators(index)
        )
        measures |= attention_rows.shuffle_measures(weights, all_moved[place], orders[index])
        for name, values in measures.items():
            found.put(name, index, layer, values)
        if index not in close or not recording.values:
            continue
        length = recording.lengths[place]
        values = recording.values[layer][place][:, :length]
        passed = conditional_mean.passed_share(weights, values, causal=causal)
        found.put("passed", index, layer, passed)
        errors = token_subsets.subset_errors(weights, values, random, causal=causal)
        if errors is not None:
            if found.subsets is None:
                shape = (found.inputs, found.depth, *errors.shape)
                found.subsets = np.full(shape, np.nan)
            found.subsets[index, layer] = errors
        if recording.has_heads and np.isfinite(recording.scales[layer]):
            queries, keys = (
                array[layer][place][:, :length] for array in (recording.queries, recording.keys)
            )
            distance = conditional_mean.distance_to_cme(
                weights, queries, keys, values, recording.scales[layer], causal=causal
            )
            found.put("to CME", index, layer, distance)


def _pairs(
    found: Collected, subject: InspectedModel, part: np.ndarray, orders: list[np.ndarray]
) -> None:
    rows = [subject.rows[i] for i in part]
    original = subject.record(rows)
    permuted = subject.record(rows, [orders[i] for i in part])
    for layer in original.layers:
        both = (original.each(original.hidden, layer), permuted.each(permuted.hidden, layer))
        for index, hidden, moved in zip(part, *both, strict=True):
            found.pairs[index, layer] = pair_deviation(hidden, moved, orders[index])


def _held_out(subject: InspectedModel, part: np.ndarray, items: Sequence[HeldOut]) -> HeldOutTokens:
    recording = subject.record([item.row for item in items])
    features = [
        np.concatenate(
            [h[item.places] for h, item in zip(states, items, strict=True)], dtype=np.float32
        )
        for states in (recording.each(recording.hidden, layer) for layer in recording.layers)
    ]
    targets = np.concatenate([item.targets for item in items])
    return HeldOutTokens(np.array(features), targets, np.repeat(part, HIDDEN))


def _repeats(found: Collected, subject: InspectedModel, random: np.random.Generator) -> None:
    if not found.depth:
        return
    made = [subject.repeated(HALF, random) for _ in range(REPEATS)]
    sequences = [item for item in made if item is not None]
    if not sequences:
        return
    recording = subject.record([item.row for item in sequences])
    by_layer = [
        [
            attention_rows.induction(weights, item.start, item.half)
            for weights, item in zip(
                recording.each(recording.weights, layer), sequences, strict=True
            )
        ]
        for layer in range(found.depth)
    ]
    found.repeats = np.array(by_layer).swapaxes(0, 1)
