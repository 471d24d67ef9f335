"""`inspect`: load a model, run it over its inputs, measure its layers and heads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlens.core import arrays, checks
from attnlens.core.inspections import Inspection, Measure, TokenView
from attnlens.core.labels import are_class_numbers
from attnlens.core.notebook import notebook_bar
from attnlens.instruments.layers.torch_recording import is_torch_module, record_torch_module
from attnlens.integrations.transformers.subjects import FunctionModel, InspectedModel

from ..loss_surface import from_name
from . import measures as made
from .batch_store import batch_store
from .collection import Collected, Progress, collect
from .summary import summary

TOKENS = 128  # tokens of a text that are read, by default
VIEW_TOKENS = 48  # tokens of an example whose attention is shown
VIEW_BYTES = 1_500_000  # for all examples: the whole page stays below 6 MB
GENERIC = ("model", "checkpoint")  # folder names that need the name of the parent folder
PER_CLASS = 5  # fewest inputs of a class: one per fold


def inspect(
    model: Any,
    inputs: Any = None,
    labels: Any = None,
    *,
    layers: Iterable[int] | None = None,
    tokens: int = TOKENS,
    examples: int = 2,
    causal: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    name: str | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> Inspection:
    """What a trained transformer does, layer by layer and head by head, with intervals over inputs.

    model: a Hugging Face folder (config.json, *.safetensors, tokenizer), read offline; a function
        of a batch of arrays (inputs, tokens, …) that returns a mapping with `hidden` (one array
        (inputs, tokens, width) per layer) and, if it has them, `weights`, `queries`, `keys` and
        `values` (inputs, heads, …) per layer; a PyTorch module that is a model of `transformers` or
        has layers torch.nn.TransformerEncoderLayer; or "module:function", the name of a function
        without arguments that returns (a function or module as above, its inputs), or without the
        inputs if `inputs` is given.
    inputs: texts; images (a folder, or uint8 arrays (n, height, width)); or arrays for a function.
    labels: one class or number per input, for probes of every layer.
    layers: measure the heads of these layers only, counted from 1. tokens: how many tokens of each
        text are read.
    examples: inputs whose attention is kept for the page. causal: whether the tokens of a function
        see earlier ones only (for a folder this is tested). progress: a function of (done, total);
        without it, a notebook shows a bar. keep: a folder in which finished batches are stored, if
        the model is a folder, so that a stopped run continues where it stopped.

    >>> def mean_of_tokens(x):
    ...     uniform = np.full((len(x), 1, x.shape[1], x.shape[1]), 1 / x.shape[1])
    ...     return {"hidden": [x, np.broadcast_to(x.mean(1, keepdims=True), x.shape)],
    ...             "weights": [uniform]}
    >>> result = inspect(mean_of_tokens, np.random.default_rng(0).normal(size=(8, 5, 3)))
    >>> print(result["effective tokens"].by_head[0][0])
    5 ± 0 (n = 8)
    >>> print(result.sentences[0])
    Order does not matter: a shuffle of tokens does not change any token's state.
    """
    checks.whole("tokens", tokens, at_least=4)
    checks.whole("examples", examples)
    checks.seed_number("seed", seed)
    title = name or _name(model)
    subject, labels = _subject(model, inputs, labels, title, tokens, causal)
    classes = None if labels is None else _labels(labels, len(subject.rows))
    subject, classes, dropped = _without_short(subject, classes)
    chosen_layers = None if layers is None else _layers(layers)
    with batch_store(keep, subject.identity) as kept:
        collected = collect(subject, chosen_layers, seed, progress or notebook_bar("inputs"), kept)
    all_measures = [*made.layer_measures(collected, classes, seed), *made.head_measures(collected)]
    by_name = {measure.name: measure for measure in all_measures}
    facts = (
        ("model", str(model) if isinstance(model, str | os.PathLike) else title),
        ("kind", "decoder: tokens see earlier ones only" if subject.causal else "encoder"),
        ("depth", _depth(collected, by_name)),
        *subject.notes,
        *([("continued", f"{kept.restored} finished batches were read")] if kept.restored else []),
        *([("left out", f"{dropped:,} inputs of fewer than two tokens")] if dropped else []),
        ("intervals", "95 %, over inputs"),
    )
    return Inspection(
        f"What {title} does, layer by layer",
        summary(by_name, subject.causal),
        facts,
        tuple(all_measures),
        tuple(_missing(collected, subject, classes)),
        _views(subject, collected, examples),
        made.distance_profiles(collected),
    )


def _name(model: Any) -> str:
    """A name for the model: the end of a folder's path, or the name of a function.

    >>> _name("run3/checkpoint-500"), _name("bert-mine")
    ('run3/checkpoint-500', 'bert-mine')
    >>> _name("hub/models--who--bert/snapshots/86b5e0934494bd15c9632b12f734a8a67f723594")
    'who/bert'
    """
    if isinstance(model, str) and ":" in model and not Path(model).exists():
        return model
    if isinstance(model, str | os.PathLike):
        path = Path(model).resolve()
        if path.parent.name == "snapshots":  # the cache of the Hugging Face hub
            return path.parents[1].name.removeprefix("models--").replace("--", "/")
        if path.name.startswith(GENERIC):
            return f"{path.parent.name}/{path.name}"
        return path.name
    return getattr(model, "__name__", "a model")


def _subject(
    model: Any, inputs: Any, labels: Any, title: str, tokens: int, causal: bool
) -> tuple[InspectedModel, Any]:
    if isinstance(model, str) and ":" in model and not Path(model).exists():
        named_model = from_name(model)
        if callable(named_model) and inputs is not None:
            named_model = (named_model, inputs)
        if not isinstance(named_model, tuple) or len(named_model) not in (2, 3):
            raise checks.BadInput(
                f"{model} must return (function, inputs) or (function, inputs, labels), or a "
                f"function whose inputs are given (--sequences FILE); got a "
                f"{type(named_model).__name__}."
            )
        if inputs is not None and inputs is not named_model[1]:
            raise checks.BadInput(
                f"{model} returns its own inputs; leave out the others, or return the function "
                f"alone."
            )
        model, inputs = named_model[:2]
        labels = named_model[2] if len(named_model) == 3 else labels
    if callable(model):
        function = _as_function(model)
        return FunctionModel(function, arrays.plain("inputs", inputs), title, causal), labels
    if not isinstance(model, str | os.PathLike):
        raise checks.BadInput(
            f"a model is a folder, module:function or a function; got a {type(model).__name__}."
        )
    from attnlens.integrations.transformers.image_model import ImageModel
    from attnlens.integrations.transformers.model_folder import folder_digest, load_folder
    from attnlens.integrations.transformers.subjects import TextModel

    if inputs is None:
        raise checks.BadInput(
            "a model needs inputs to be run on; give texts (--text FILE --column NAME) or images "
            "(--images FOLDER)."
        )
    loaded = load_folder(model)
    _check_kind(loaded.images is not None, inputs, title)
    subject = (
        TextModel(loaded, list(inputs), title, tokens)
        if loaded.images is None
        else ImageModel(loaded, inputs, title)
    )
    subject.identity = folder_digest(Path(model))
    return subject, labels


def _check_kind(reads_images: bool, inputs: Any, title: str) -> None:
    """Raise `BadInput` unless the inputs of a model folder are of the kind that it reads."""
    if not reads_images and isinstance(inputs, str):
        raise checks.BadInput("inputs must be several texts; got one; give a list of texts.")
    numeric = isinstance(inputs, np.ndarray) and inputs.dtype.kind in "iufb"
    first = inputs if numeric or isinstance(inputs, str | Path) else next(iter(inputs), None)
    if not reads_images and (numeric or isinstance(first, Path)):
        content = "an array of numbers" if numeric else "images"
        raise checks.BadInput(
            f"{title} reads texts; got {content}; give texts (--text FILE --column NAME)."
        )
    if reads_images and not isinstance(inputs, str) and isinstance(first, str):
        raise checks.BadInput(f"{title} reads images; got texts; give images (--images FOLDER).")


def _as_function(model: Any) -> Any:
    """A function of arrays; a PyTorch module is called with tensors and without gradients."""
    if not is_torch_module(model):
        return model

    def call(batch: np.ndarray) -> Any:
        recording = record_torch_module(model, batch)
        output = recording.output
        if isinstance(output, Mapping) and "hidden" in output:
            return {
                name: [
                    np.asarray(part.float().cpu() if hasattr(part, "cpu") else part)
                    for part in parts
                ]
                for name, parts in output.items()
            }
        if not recording.hidden:
            return output
        # Some modules attend to something other than their tokens, or more than once per layer:
        # their weights are left out.
        tokens = recording.hidden[0].shape[1]
        square = all(weights.shape[2:] == (tokens, tokens) for weights in recording.weights)
        fits = square and len(recording.weights) == len(recording.hidden) - 1
        return {"hidden": recording.hidden, "weights": recording.weights if fits else []}

    return call


def _labels(labels: Any, count: int) -> np.ndarray:
    """Labels as class numbers (integers from 0) or as floats; raises `BadInput` for others."""
    array = np.asarray(labels)
    if array.ndim != 1 or len(array) != count:
        raise checks.BadInput(
            f"labels must be one per input, {count} here; got shape {array.shape}."
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise checks.BadInput("labels must be finite numbers or classes; got NaN or infinity.")
    if array.dtype.kind == "f" and not are_class_numbers(array):
        if np.ptp(array) == 0:
            raise checks.BadInput("labels must vary; all of them are equal.")
        return array.astype(float)
    names, codes, sizes = np.unique(array, return_inverse=True, return_counts=True)
    if len(names) < 2:
        raise checks.BadInput(
            f"labels must have at least two classes; all {count} are {str(names[0])!r}; name "
            f"another column."
        )
    if sizes.min() < PER_CLASS:
        raise checks.BadInput(
            f"every class needs at least {PER_CLASS} inputs; {str(names[sizes.argmin()])!r} has "
            f"{sizes.min()}; leave out rare classes."
        )
    return codes.astype(int)


def _without_short(
    subject: InspectedModel, labels: np.ndarray | None
) -> tuple[InspectedModel, np.ndarray | None, int]:
    """Drop inputs of fewer than two tokens; return model, labels and the number dropped.

    Raises `BadInput` if fewer than two inputs remain.
    """
    kept = np.flatnonzero(subject.lengths >= 2)
    if len(kept) < 2:
        raise checks.BadInput(
            f"at least two inputs must have two tokens or more; got {len(kept)}; give more inputs."
        )
    dropped = len(subject.rows) - len(kept)
    if dropped:
        subject.keep(kept)
        labels = None if labels is None else labels[kept]
    return subject, labels, dropped


def _layers(layers: Iterable[int]) -> Sequence[int]:
    numbers = sorted({checks.whole("each layer", layer, at_least=1) for layer in layers})
    if not numbers:
        raise checks.BadInput("layers must name at least one layer, from 1; got none.")
    return numbers


def _depth(collected: Collected, by_name: Mapping[str, Measure]) -> str:
    used = by_name.get("effective tokens")
    return f"{len(collected.pooled) - 1} layers" + (
        f", {len(used.by_head[0])} heads each" if used else ""
    )


def _missing(collected: Collected, subject: InspectedModel, labels: Any) -> list[tuple[str, str]]:
    lacking = []
    if not collected.depth:
        lacking.append(("heads", "this architecture gives no attention weights"))
    elif not collected.has_values:
        lacking.append(("variance passed, subsets", "this architecture does not give its values"))
    elif not collected.is_plain:
        lacking.append(
            ("distance to the ridge estimate", "logits are not products of queries and keys alone")
        )
    if collected.depth and collected.has_values and collected.subsets is None:
        lacking.append(("subsets of tokens", "no input has 24 tokens or more"))
    if not subject.moves_pairs:
        lacking.append(("pairs", "positions of this model cannot be moved with its tokens"))
    if collected.depth and collected.repeats is None:
        lacking.append(("induction", "inputs are not tokens of a vocabulary"))
    if collected.held_out is None:
        lacking.append(("held-out tokens", "no token can be hidden from this model"))
    elif not made.can_be_predicted(collected.held_out):
        lacking.append(
            (
                "held-out tokens",
                f"a probe needs {made.FEWEST} or more, not all of them equal; give more texts",
            )
        )
    if labels is None:
        lacking.append(("probes", "no labels were given"))
    return lacking


def _views(subject: InspectedModel, collected: Collected, examples: int) -> tuple[TokenView, ...]:
    """The attention on `examples` inputs whose lengths are nearest to half of `VIEW_TOKENS`."""
    if not collected.depth or not examples:
        return ()
    order = np.argsort(np.abs(subject.lengths - VIEW_TOKENS // 2), kind="stable")
    views = []
    for index in order[:examples]:
        recording = subject.record([subject.rows[index]])
        heads = sum(weights.shape[1] for weights in recording.weights)
        most = min(VIEW_TOKENS, int((VIEW_BYTES / examples / heads) ** 0.5))
        shown = min(int(subject.lengths[index]), max(most, 2))
        layers = tuple(
            tuple(
                np.rint(255 * np.clip(head[:shown, :shown], 0, 1)).astype(np.uint8).tobytes()
                for head in weights[0]
            )
            for weights in recording.weights
        )
        names = tuple(subject.token_names(int(index))[:shown])
        views.append(TokenView(names, tuple(range(1, len(layers) + 1)), layers))
    return tuple(views)
