"""The kinds of processors that native code is compiled for, their flags, and the kind of this one.

`flags.json` is read by the compilation on demand (`build.py`) and by the wheel `attnlens-native`
(`native/CMakeLists.txt`): both compile the same sources with the same flags, once per variant:

x86-64-v4   AVX-512     x86-64-v3   AVX2 and FMA     armv8-a   NEON

Floating-point contraction is on (`-ffp-contract=fast`): every variant has fused multiply-add, and
a product that is added to a sum is rounded once. Sums are never reordered (no `-ffast-math`).
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
FLAGS_FILE = FOLDER / "flags.json"


class Variant(NamedTuple):
    """A kind of processor: its name, and the compiler's flags for it."""

    name: str
    flags: tuple[str, ...]


@cache
def variants(machine: str) -> tuple[tuple[Variant, frozenset[str]], ...]:
    """The variants for a machine such as x86_64, best first, and the features that each needs.

    >>> [variant.name for variant, _ in variants("x86_64")]
    ['x86-64-v4', 'x86-64-v3']
    """
    content = json.loads(FLAGS_FILE.read_text())
    return tuple(
        (Variant(name, (*content["common"], *entry["flags"])), frozenset(entry["needs"]))
        for name, entry in content["variants"].items()
        if entry["machine"] == machine
    )


@cache
def variant_here() -> Variant | None:
    """The best variant for this processor; None if there is none, or if the system is not Linux."""
    if not sys.platform.startswith("linux"):
        return None
    features = processor_features()
    for variant, needs in variants(platform.machine()):
        if needs <= features:
            return variant
    return None


def processor_features() -> frozenset[str]:
    """Names of instruction sets that /proc/cpuinfo lists for the first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        field, _, value = line.partition(":")
        if field.strip() in ("flags", "Features"):  # x86, Arm
            return frozenset(value.split())
    return frozenset()


@cache
def source_hashes(name: str) -> dict[str, str]:
    """SHA-256 of the files that the library `name` is compiled from, by file name."""
    files = (FOLDER / f"{name}.cc", *sorted(FOLDER.glob("*.h")), FLAGS_FILE)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@cache
def ffi_version() -> str:
    """The version of the interface between XLA and native code, from the headers of JAX."""
    import jax

    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    numbers = [
        re.search(rf"^#define XLA_FFI_API_{part} (\d+)$", header, re.MULTILINE)
        for part in ("MAJOR", "MINOR")
    ]
    return ".".join(number[1] for number in numbers if number)
