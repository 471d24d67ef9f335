"""Files of fitted networks: arrays as safetensors, everything else as JSON in the header.

Nothing in a file is executed. The header names a class of `NETWORKS` and its settings, which are
numbers, strings or booleans. Any other network is saved without a name; to load it, the caller
passes the function that makes it. The number of parameters in a file must be that of the network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from attnlens.core import checks, files
from attnlens.networks import dense, encoder, feature_transformer, reader, self_attention
from attnlens.networks.layout import Layout

from .settings import Member, Recipe
from .steps import TrainingStatus

FORMAT = 1  # increased when older versions of attnlens could not read newer files
HEADER = "attnlens"
PLAIN = (bool, int, float, str, type(None))
ARRAYS = ("vectors", "steps", "best_step", "at", "train", "validation", "test", "test_loss")
NETWORKS = {
    kind.__name__: kind
    for kind in (
        dense.Attended,
        dense.Baseline,
        dense.Gated,
        dense.KnownAttention,
        encoder.Encoder,
        feature_transformer.FeatureTransformer,
        reader.Reader,
        self_attention.MultiLayerSelfAttention,
        self_attention.SelfAttention,
    )
}


def write(path: Path, parts: Mapping[str, Any], notes: Mapping[str, Any] | None = None) -> None:
    """Write the fields of a `Fitted` to one file, atomically, with `notes` (stored as JSON)."""
    recipe: Recipe = parts["recipe"]
    header = {
        "layout": FORMAT,
        **_described(recipe),
        "members": [list(member) for member in parts["members"]],
        "status": [status.value for status in parts["status"]],
        "notes": dict(notes or {}),
    }
    arrays = {name: np.ascontiguousarray(parts[name]) for name in ARRAYS}
    with files.replacement(path) as draft:
        draft.write_bytes(safetensors.numpy.save(arrays, {HEADER: json.dumps(header)}))


def read(path: Path, make: Any = None) -> dict[str, Any]:
    """Return the fields of a `Fitted`.

    `make` is the function that makes the network; it is required if the file names no network.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[HEADER])
            arrays = {name: file.get_tensor(name) for name in ARRAYS}
        if header["layout"] != FORMAT:
            raise checks.BadInput(f"{path} must have format {FORMAT}; got {header['layout']!r}.")
        members = tuple(Member(*member) for member in header["members"])
        status = tuple(TrainingStatus(word) for word in header["status"])
        recipe = Recipe.of(make) if make is not None else _recipe(path, header)
    except FileNotFoundError:
        raise checks.BadInput(f"{path} must be a file that Fitted.save wrote; got none.") from None
    except (OSError, safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, checks.BadInput):
            raise
        raise checks.BadInput(
            f"{path} must be a file that Fitted.save wrote; got one that cannot be read as such "
            f"({type(error).__name__}); save the networks again."
        ) from None
    size = Layout.of(recipe).size
    if arrays["vectors"].shape != (len(members), size) or len(status) != len(members):
        raise checks.BadInput(
            f"{path} must hold {size} parameters for each of {len(members)} networks; got an array "
            f"of shape {arrays['vectors'].shape}; give make=… as it was when they were fitted."
        )
    return {**arrays, "members": members, "status": status, "recipe": recipe}


def read_notes(path: Path) -> dict[str, Any]:
    """Return the `notes` that `write` stored in a file. Call `read` first: it checks the file."""
    with safetensors.safe_open(path, framework="numpy") as file:
        return json.loads((file.metadata() or {})[HEADER]).get("notes", {})


def _described(recipe: Recipe) -> dict[str, Any]:
    """Return a network's name and settings; the name is None if only a user's code can make it."""
    settings = dict(recipe.keywords)
    name = getattr(recipe.make, "__name__", None)
    known = NETWORKS.get(name or "") is recipe.make
    plain = all(isinstance(value, PLAIN) for value in settings.values())
    if not known or recipe.positional or not plain:
        return {"network": None, "settings": {}}
    return {"network": name, "settings": settings}


def _recipe(path: Path, header: Mapping[str, Any]) -> Recipe:
    name, settings = header["network"], header["settings"]
    if name is None:
        raise checks.BadInput(
            f"{path} holds networks of a user's own function, which a file cannot contain; give "
            f"make=…, as it was when they were fitted."
        )
    checks.one_of(f"the network in {path}", name, NETWORKS)
    if not all(isinstance(value, PLAIN) for value in settings.values()):
        raise TypeError("settings must be numbers, text or truth values")
    return Recipe(NETWORKS[name], (), tuple(sorted(settings.items())))
