"""Where a command computes: options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


Address = Annotated[
    str | None,
    typer.Option(help="The Ray cluster, host:port; if not given, the one that runs here."),
]
