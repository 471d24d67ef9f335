"""A Hugging Face folder, read offline: configuration, safetensors weights, tokenizer.

No code of the folder runs (`trust_remote_code` is off), nothing is unpickled (safetensors only) and
nothing is fetched.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from attnlens.core import checks

from .attention_recorder import register

INSTALL = 'pip install ".[transformers]"'
# Parts of a model that do not affect hidden states and attention; their weights may be missing.
NOT_USED = ("pooler", "decoder.")
# Names of the class of tokenizers that tokenizer.json describes completely.
GENERAL_TOKENIZERS = ("PreTrainedTokenizerFast", "TokenizersBackend")
INPUTS = ("input_ids", "pixel_values")  # names of the inputs of text models and of image models


class LoadedFolder(NamedTuple):
    """A model in evaluation mode, its tokenizer (None for images) and its configuration."""

    module: Any
    tokenizer: Any
    config: Any
    images: Mapping[str, Any] | None  # settings of the image processor; None for text models


def load_folder(folder: str | os.PathLike[str]) -> LoadedFolder:
    """Read a folder; `BadInput` says what is missing or unsupported."""
    path = Path(folder)
    settings = _read_config(path)
    _check_weights(path)
    for package in ("torch", "transformers"):
        if find_spec(package) is None:
            raise checks.BadInput(
                f"reading {path} needs the package {package}, which is not installed; install it "
                f"with {INSTALL}."
            )
    with _quiet():
        module, config = _load_model(path, settings)
        images = _image_settings(path) if hasattr(config, "image_size") else None
        tokenizer = None if images is not None else _load_tokenizer(path, module)
    return LoadedFolder(module, tokenizer, config, images)


def folder_digest(folder: Path) -> str:
    """A hash of the names and contents of the JSON and safetensors files in a folder."""
    sha256 = hashlib.sha256()
    for file in sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")]):
        with file.open("rb") as content:
            sha256.update(file.name.encode() + hashlib.file_digest(content, "sha256").digest())
    return sha256.hexdigest()


def _read_config(path: Path) -> Mapping[str, Any]:
    if not path.is_dir():
        raise checks.BadInput(
            f"a model is a folder on this machine, or module:function; there is no folder {path}; "
            f"download the model first (nothing is fetched here)."
        )
    file = path / "config.json"
    if not file.is_file():
        raise checks.BadInput(
            f"a Hugging Face folder must hold config.json; {path} has none; name the folder that "
            f"save_pretrained wrote."
        )
    try:
        settings = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise checks.BadInput(f"{file} cannot be read as JSON ({error}).") from error
    if not isinstance(settings, dict) or not isinstance(settings.get("model_type"), str):
        raise checks.BadInput(
            f'{file} must name its model_type, such as "bert"; it does not; save the model again '
            f"with save_pretrained."
        )
    return settings


def _check_weights(path: Path) -> None:
    if any(path.glob("*.safetensors")):
        return
    pickled = sorted(file.name for kind in ("*.bin", "*.pt", "*.ckpt") for file in path.glob(kind))
    if pickled:
        raise checks.BadInput(
            f"weights must be safetensors; {path} holds {pickled[0]}, a pickle, which could run "
            f"code; convert it where you trust it with model.save_pretrained(folder)."
        )
    raise checks.BadInput(
        f"a Hugging Face folder must hold weights as *.safetensors; {path} has none; save the "
        f"model again with save_pretrained."
    )


def _load_model(path: Path, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    import torch
    from transformers import CONFIG_MAPPING, AutoModel

    kind = settings["model_type"]
    if kind not in CONFIG_MAPPING:
        raise checks.BadInput(
            f"the architecture {kind!r} of {path} is not known to the installed transformers; "
            f"update it, or give module:function (code in a model's folder is never run)."
        )

    def load(attention: str) -> Any:
        return AutoModel.from_pretrained(
            path,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            attn_implementation=attention,
            ignore_mismatched_sizes=True,  # they are reported below
            output_loading_info=True,
        )

    try:
        try:
            module, info = load(register())
        except KeyError:  # GPT-J, GPT-Neo, Falcon: they look up attention in their own table
            module, info = load("eager")
    except Exception as error:  # `transformers` and safetensors raise many types
        raise checks.BadInput(
            f"the model in {path} cannot be loaded ({_first_line(error)})."
        ) from error
    unfit = [name for name, *_ in info["mismatched_keys"] if not _is_not_used(name)]
    if unfit:
        raise checks.BadInput(
            f"{len(unfit)} arrays of the weights in {path} have other shapes than config.json says,"
            f" such as {sorted(unfit)[0]}; config.json and weights must belong together."
        )
    missing = [name for name in info["missing_keys"] if not _is_not_used(name)]
    if missing:
        raise checks.BadInput(
            f"the weights in {path} lack {len(missing)} arrays of the model, such as "
            f"{sorted(missing)[0]}; config.json and weights must belong together."
        )
    if module.config.is_encoder_decoder:
        module = module.get_encoder()
    if module.main_input_name not in INPUTS or any(
        hasattr(module.config, part) for part in ("text_config", "vision_config")
    ):
        raise checks.BadInput(
            f"a model must read either texts or images; the architecture {kind!r} of {path} reads "
            f"{module.main_input_name} or several kinds of input; save one of its parts as a "
            f"model of its own with save_pretrained."
        )
    return module.eval(), module.config


def _is_not_used(name: str) -> bool:
    return any(part in name for part in NOT_USED)


def _load_tokenizer(path: Path, module: Any) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    # For some architectures `AutoTokenizer` replaces a tokenizer of the general class by one of the
    # architecture's own, which cuts words in another way than tokenizer.json says.
    kind = PreTrainedTokenizerFast if _has_general_tokenizer(path) else AutoTokenizer
    try:
        tokenizer = kind.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        numbers = set(tokenizer.get_vocab().values())
    except Exception as error:  # `transformers` raises many types, also from compiled code
        raise checks.BadInput(
            f"the tokenizer in {path} cannot be read ({_first_line(error)}); copy tokenizer.json "
            f"and tokenizer_config.json of the model into the folder."
        ) from error
    # Without its files, `transformers` makes up a tokenizer that knows special tokens only.
    if numbers <= set(tokenizer.all_special_ids):
        raise checks.BadInput(
            f"the tokenizer in {path} must have a vocabulary; there is none; copy tokenizer.json "
            f"and tokenizer_config.json of the model into the folder."
        )
    largest = max(numbers)
    rows = module.get_input_embeddings().weight.shape[0]
    if largest >= rows:
        raise checks.BadInput(
            f"the tokenizer in {path} numbers tokens up to {largest}, but the model has "
            f"{rows} embeddings; use the tokenizer that belongs to the model."
        )
    return tokenizer


def _has_general_tokenizer(path: Path) -> bool:
    """Whether tokenizer.json alone says how texts are cut, by the class that the folder names."""
    if not (path / "tokenizer.json").is_file():
        return False
    try:
        settings = json.loads((path / "tokenizer_config.json").read_text("utf-8"))
        return settings["tokenizer_class"] in GENERAL_TOKENIZERS
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _image_settings(path: Path) -> Mapping[str, Any]:
    """The content of `preprocessor_config.json`; an empty mapping if there is no such file."""
    file = path / "preprocessor_config.json"
    try:
        return json.loads(file.read_text("utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise checks.BadInput(f"{file} cannot be read as JSON ({error}).") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200].rstrip(".")


@contextmanager
def _quiet():
    """Suppress the progress bars and warnings of `transformers` inside this context.

    Missing weights, of which `transformers` would warn, raise an error in `_load_model`.
    """
    from transformers.utils import logging

    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
