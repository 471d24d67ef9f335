"""Models with their inputs, to be measured: `record` runs a forward pass and returns a `Recording`.

InspectedModel  abstract base class: inputs, shuffled inputs, and a recorded forward pass
TorchSubject    base class of models of `transformers`; for image models see `image_model.py`
TextModel       a text model of `transformers` and the texts that it reads
FunctionModel   any function of arrays, and the arrays that it takes
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attnlens.core import checks
from attnlens.core.user_code import user_code
from attnlens.instruments.layers.recording import Recording, recording_from

from .attention_recorder import recording_calls
from .model_folder import LoadedFolder

MANY = 0.1  # share of unknown tokens above which a note is added; with subwords it is near 0
# Two hidden states are equal if they differ by less than this share of the largest entry: float32
# has a rounding error of 6e−8 per operation, which accumulates over some 30 layers.
SAME = 1e-4


class RepeatedTokens(NamedTuple):
    """A sequence `row` in which `half` tokens, the first at index `start`, are followed by the same
    tokens once more.
    """

    row: np.ndarray
    start: int
    half: int


class HeldOut(NamedTuple):
    """An input with tokens to predict, which the model cannot see where it predicts them.

    places: indices of the hidden states to predict from. targets: input embeddings of the tokens.
    """

    row: np.ndarray
    places: np.ndarray
    targets: np.ndarray


class InspectedModel(ABC):
    """A model with its inputs, `rows`, one array per input.

    lengths: the number of tokens of each input. causal: whether tokens attend only to themselves
    and earlier tokens. moves_pairs: whether a token can be moved together with its position. notes:
    what was done to the inputs. identity: a hash of the model, or "" if a later run cannot know
    that the model is the same.
    """

    name: str
    rows: Sequence[np.ndarray]
    lengths: np.ndarray
    causal: bool = False
    moves_pairs: bool = False
    notes: tuple[tuple[str, str], ...] = ()
    identity: str = ""

    @abstractmethod
    def record(
        self, rows: Sequence[np.ndarray], orders: Sequence[np.ndarray] | None = None
    ) -> Recording:
        """Record the forward pass of these rows.

        With `orders`, the tokens of each row are permuted together with their positions.
        """

    def keep(self, chosen: np.ndarray) -> None:
        """Drop all inputs except those with the indices `chosen`."""
        self.rows, self.lengths = [self.rows[i] for i in chosen], self.lengths[chosen]

    def movable(self, index: int) -> np.ndarray:
        """The indices of the tokens of an input that a shuffle may move."""
        return np.arange(self.lengths[index])

    def shuffled(self, index: int, order: np.ndarray) -> np.ndarray:
        """An input with its tokens in another order; positions stay in place."""
        return self.rows[index][order]

    def token_names(self, index: int) -> list[str]:
        return [str(place) for place in range(1, self.lengths[index] + 1)]

    def separators(self, index: int) -> np.ndarray | None:
        """A mask of the tokens that separate or end texts; None if the model has no such tokens."""
        return None

    def repeated(self, half: int, random: np.random.Generator) -> RepeatedTokens | None:
        """A sequence of `half` random tokens followed by the same tokens.

        None if tokens are not numbers of a vocabulary, or if the model cannot read such a sequence.
        """
        return None

    def held_out(self, index: int, count: int, random: np.random.Generator) -> HeldOut | None:
        """An input with `count` tokens to predict: masked tokens, or in a causal model next tokens.

        None if the model is not causal and has no mask token, or if the input is too short.
        """
        return None


class TorchSubject(InspectedModel):
    """Base class of models of `transformers`, whose forward pass is recorded."""

    def __init__(self, loaded: LoadedFolder, name: str):
        self.module, self.config, self.name = loaded.module, loaded.config, name

    def _record(self, lengths: np.ndarray, **arguments: Any) -> Recording:
        import torch

        options = {"output_hidden_states": True, "output_attentions": True, "return_dict": True}
        if "use_cache" in inspect.signature(self.module.forward).parameters:
            options["use_cache"] = False
        try:
            with torch.inference_mode(), recording_calls() as calls:
                outputs = self.module(**arguments, **options)
        except Exception as error:  # architectures of `transformers` raise many types of errors
            first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise checks.BadInput(
                f"the architecture {self.config.model_type!r} cannot be run on these inputs "
                f"({type(error).__name__}: {first.rstrip('.')}); give other inputs, or "
                f"module:function."
            ) from error
        hidden = tuple(h.float().numpy() for h in outputs.get("hidden_states") or ())
        if not hidden or any(h.ndim != 3 or h.shape[1] != hidden[0].shape[1] for h in hidden):
            raise checks.BadInput(
                f"hidden states must be (inputs, tokens, width) in every layer; those of the "
                f"architecture {self.config.model_type!r} are not, so its layers cannot be "
                f"compared token by token."
            )
        _check_finite(hidden, lengths)
        if calls:
            parts = {
                name: tuple(getattr(call, part).float().numpy() for call in calls)
                for name, part in zip(
                    ("queries", "keys", "values", "weights"),
                    ("query", "key", "value", "weights"),
                    strict=True,
                )
            }
            scales = tuple(call.scaling if call.plain else np.nan for call in calls)
            return Recording(lengths, hidden, **parts, scales=scales)
        attentions = outputs.get("attentions") or ()
        weights = tuple(a.float().numpy() for a in attentions if a is not None)
        tokens = hidden[0].shape[1]
        # Attention in windows (Longformer) has no weight for every pair of tokens.
        if any(w.shape[2:] != (tokens, tokens) for w in weights):
            weights = ()
        return Recording(lengths, hidden, weights)


class TextModel(TorchSubject):
    """A text model of `transformers` with texts.

    Texts are cut to `most` tokens, or to the number of positions of the model if that is smaller.
    """

    def __init__(self, loaded: LoadedFolder, texts: Sequence[str], name: str, most: int):
        super().__init__(loaded, name)
        self.tokenizer = loaded.tokenizer
        texts = [str(text) for text in texts]
        if not texts or not any(text.strip() for text in texts):
            raise checks.BadInput(
                "there is no text to read: every text is empty; give a column that holds texts."
            )
        longest = self._longest()
        limit = most if longest is None else min(most, longest)
        encoding = self.tokenizer(texts, return_special_tokens_mask=True, verbose=False)
        cut = sum(len(ids) > limit for ids in encoding["input_ids"])
        encoding = self.tokenizer(
            texts, truncation=True, max_length=limit, return_special_tokens_mask=True
        )
        self.rows = [np.asarray(ids, np.int64) for ids in encoding["input_ids"]]
        self._special = list(set(self.tokenizer.all_special_ids))
        self.lengths = np.array([len(row) for row in self.rows])
        self.notes = (
            ("texts", f"{len(texts):,}, of {self.lengths.min()} to {self.lengths.max()} tokens"),
            *([("cut", f"{cut:,} texts longer than {limit} tokens were cut")] if cut else []),
            *self._unknown(),
        )
        self._probe()

    def _unknown(self) -> list[tuple[str, str]]:
        """A note if many tokens are unknown: the tokenizer may belong to another model."""
        unknown = self.tokenizer.unk_token_id
        share = 0.0 if unknown is None else float(np.mean(np.concatenate(self.rows) == unknown))
        words = (
            f"{share:.0%} of tokens are {self.tokenizer.unk_token}; is it the model's tokenizer?"
        )
        return [("unknown tokens", words)] if share > MANY else []

    def _longest(self) -> int | None:
        """The maximal number of tokens that the model can read; None if it has no limit."""
        positions = getattr(self.config, "max_position_embeddings", None)
        positions = getattr(self.config, "n_positions", positions)
        if not positions or int(positions) < 1:  # XLNet says −1
            return None
        return int(positions) - self._offset()

    def _offset(self) -> int:
        """The number of the first position: 0, but in RoBERTa-like models padding number + 1."""
        embeddings = getattr(self.module, "embeddings", None)
        table = getattr(embeddings, "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)
        return 0 if padding is None else int(padding) + 1

    def _probe(self) -> None:
        """Set `causal` and `moves_pairs` from a forward pass of the longest input."""
        longest = int(self.lengths.argmax())
        row = self.rows[longest]
        recording = self.record([row])
        if recording.weights:
            self.causal = all(not np.triu(w, 1).any() for w in recording.weights)
        plain = recording.has_heads and np.isfinite(recording.scales).all()
        accepted = inspect.signature(self.module.forward).parameters
        if "position_ids" in accepted and plain:
            # Passing the positions that the model uses by default must not change its output.
            same = self.record([row], [np.arange(len(row))])
            pairs = zip(recording.hidden, same.hidden, strict=True)
            self.moves_pairs = all(np.abs(a - b).max() <= SAME * np.abs(a).max() for a, b in pairs)

    def record(
        self, rows: Sequence[np.ndarray], orders: Sequence[np.ndarray] | None = None
    ) -> Recording:
        import torch

        lengths = np.array([len(row) for row in rows])
        padding = self.tokenizer.pad_token_id or 0
        numbers = np.full((len(rows), lengths.max()), padding, np.int64)
        positions = np.zeros_like(numbers)
        mask = np.zeros_like(numbers)
        for i, row in enumerate(rows):
            order = np.arange(len(row)) if orders is None else orders[i]
            numbers[i, : len(row)], mask[i, : len(row)] = row[order], 1
            positions[i, : len(row)] = order + self._offset()
        arguments = {"input_ids": numbers, "attention_mask": mask}
        if orders is not None:
            arguments["position_ids"] = positions
        return self._record(lengths, **{k: torch.from_numpy(v) for k, v in arguments.items()})

    def movable(self, index: int) -> np.ndarray:
        return np.flatnonzero(~np.isin(self.rows[index], self._special))

    def token_names(self, index: int) -> list[str]:
        pieces = self.tokenizer.convert_ids_to_tokens(self.rows[index].tolist())
        return [str(piece).replace("Ġ", "␣").replace("▁", "␣") for piece in pieces]

    def separators(self, index: int) -> np.ndarray | None:
        marks = {self.tokenizer.sep_token_id, self.tokenizer.eos_token_id} - {None}
        places = np.isin(self.rows[index], list(marks))
        places[:1] = False  # the first token is measured separately, as an attention sink
        return places

    def repeated(self, half: int, random: np.random.Generator) -> RepeatedTokens | None:
        numbers = self.tokenizer.get_vocab().values()
        ordinary = [number for number in numbers if number not in self._special]
        longest = self._longest()
        outside = self._outside()
        if longest is not None:
            half = min(half, (longest - sum(map(len, outside))) // 2)
        # Tokens of a half are distinct, so each token of the second half occurs once before it.
        half = min(half, len(ordinary))
        if half < 2:
            return None
        tokens = random.choice(np.sort(ordinary), half, replace=False)
        before, after = outside
        row = np.concatenate([before, tokens, tokens, after]).astype(np.int64)
        return RepeatedTokens(row, len(before), half)

    def held_out(self, index: int, count: int, random: np.random.Generator) -> HeldOut | None:
        row, inner = self.rows[index], self.movable(index)
        inner = inner[inner > 0] if self.causal else inner
        mask = self.tokenizer.mask_token_id
        if len(inner) < count or (mask is None and not self.causal):
            return None
        chosen = np.sort(random.choice(inner, count, replace=False))
        table = self.module.get_input_embeddings().weight.detach().numpy()
        targets = table[row[chosen]]
        if self.causal:
            return HeldOut(row, chosen - 1, targets)
        hidden = row.copy()
        hidden[chosen] = mask
        return HeldOut(hidden, chosen, targets)

    def _outside(self) -> tuple[np.ndarray, np.ndarray]:
        """The special tokens before and after a text."""
        index = int(self.lengths.argmax())
        row, inner = self.rows[index], self.movable(index)
        if not inner.size:
            return row[:0], row[:0]
        return row[: inner[0]], row[inner[-1] + 1 :]


def _check_finite(hidden: tuple[np.ndarray, ...], lengths: np.ndarray) -> None:
    """Raise `BadInput` if hidden states contain NaN or infinity; padding is not checked."""
    for layer, states in enumerate(hidden):
        for state, length in zip(states, lengths, strict=True):
            if not np.isfinite(state[: length or None]).all():
                raise checks.BadInput(
                    f"hidden states must be finite numbers; those of layer {layer} hold NaN or "
                    f"infinity; check the weights of the model."
                )


class FunctionModel(InspectedModel):
    """The user's function as a model; it takes a batch of inputs (inputs, tokens, …).

    The function returns a mapping with `hidden`, one array (inputs, tokens, width) per layer, and
    optionally `weights`, `queries`, `keys` and `values`, one array (inputs, heads, …) per layer.
    """

    def __init__(self, function: Callable[..., Any], inputs: Any, name: str, causal: bool = False):
        array = np.asarray(inputs)
        if array.ndim < 2 or len(array) < 2 or array.dtype.kind not in "iufb":
            raise checks.BadInput(
                f"the inputs of {name} must be an array of numbers (inputs, tokens, …) with at "
                f"least two inputs; got shape {array.shape} of {array.dtype}."
            )
        self.function, self.name, self.causal = function, name, causal
        self.rows = list(array)
        self.lengths = np.full(len(array), array.shape[1])
        self.notes = (("inputs", f"{len(array):,} of {array.shape[1]} tokens"),)

    def record(
        self, rows: Sequence[np.ndarray], orders: Sequence[np.ndarray] | None = None
    ) -> Recording:
        with user_code(self.name):
            output = self.function(np.stack(rows))
        if not isinstance(output, Mapping) or "hidden" not in output:
            raise checks.BadInput(
                f"{self.name} must return a mapping with `hidden`, one array (inputs, tokens, "
                f"width) per layer; got a {type(output).__name__}."
            )
        lengths = np.full(len(rows), len(rows[0]))
        recording = recording_from(output, lengths)
        shape = (len(rows), len(rows[0]))
        wrong = [h.shape for h in recording.hidden if h.ndim != 3 or h.shape[:2] != shape]
        if wrong or not recording.hidden:
            raise checks.BadInput(
                f"`hidden` of {self.name} must be arrays {(*shape, 'width')}; got "
                f"{wrong[0] if wrong else 'none'}."
            )
        return recording
