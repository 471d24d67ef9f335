"""Shared by the claims about trained networks: how they are made and trained, as parameters.

The settings are parameters of every cell, so each claim puts them into its `Grid`, with its own
values where they differ, and `measure` reads them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from attnlens.instruments.inference.learned import TRAINING
from attnlens.networks.reader import Reader

# One attention layer with a small output network (`attnlens.networks.reader`).
NETWORK = {"heads": 2, "head_dim": 4, "hidden": 16, "sharpness": 5.0}
# `TRAINING` has the steps, the batch and the learning rate, with the reasons.
FITTING = {**TRAINING, "optimiser": "adam", "loss": "squared", "dtype": "float32"}


def reader(parameters: Mapping[str, Any], **sizes: int) -> partial[Reader]:
    """The attention network of a cell, without its random key; `sizes` are those of the tokens."""
    return partial(Reader, **{name: parameters[name] for name in NETWORK}, **sizes)


def fitting(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `fit` that a cell sets."""
    return {name: parameters[name] for name in FITTING}
