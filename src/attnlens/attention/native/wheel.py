"""The wheel `attnlens-native`: native libraries that were compiled elsewhere.

A library of the wheel is used if the wheel was built from the sources that are installed here and
for the same interface of XLA, and if the content of the file is what the wheel's own record says.
The wheel lies where Python finds packages, so it is trusted as much as Python code is.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .variants import ffi_version, source_hashes

DISTRIBUTION, PACKAGE = "attnlens-native", "attnlens_native"


class WheelLibrary(NamedTuple):
    """A library of the wheel: its file and the hash of its content, or why it cannot be used.

    All three fields are empty if the wheel is not installed.
    """

    file: Path | None = None
    digest: str = ""
    reason: str = ""


@cache
def find(name: str, variant: str) -> WheelLibrary:
    """Find the wheel's library `name` for a variant of the processor, and verify it."""
    try:
        files = importlib.metadata.distribution(DISTRIBUTION).files or []
    except importlib.metadata.PackageNotFoundError:
        return WheelLibrary()
    recorded = {str(file): file for file in files}
    try:
        manifest = json.loads(recorded[f"{PACKAGE}/manifest.json"].read_text())
        built_from, interface = dict(manifest["sources"]), manifest["ffi"]
    except (LookupError, OSError, TypeError, ValueError):
        return WheelLibrary(reason=f"{DISTRIBUTION} is damaged; install it again")
    if not source_hashes(name).items() <= built_from.items():
        return WheelLibrary(reason=f"{DISTRIBUTION} was built from other sources than attnlens")
    if interface != ffi_version():
        return WheelLibrary(reason=f"{DISTRIBUTION} was built for another version of XLA")
    file = recorded.get(f"{PACKAGE}/lib/{name}-{variant}.so")
    if file is None:
        return WheelLibrary(reason=f"{DISTRIBUTION} has no library for {variant}")
    place = Path(str(file.locate()))
    try:
        content = hashlib.sha256(place.read_bytes())
    except OSError as error:
        return WheelLibrary(reason=f"{DISTRIBUTION} cannot be read ({error.strerror})")
    encoded = base64.urlsafe_b64encode(content.digest()).rstrip(b"=").decode()
    if file.hash is None or file.hash.value != encoded:
        return WheelLibrary(reason=f"{DISTRIBUTION} is damaged; install it again")
    return WheelLibrary(place, content.hexdigest()[:16])
