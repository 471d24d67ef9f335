"""Provenance of results: the machine and the package versions that computed them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

PACKAGES = ("attnlens", "jax", "jaxlib", "numpy", "scipy", "equinox")


def machine() -> dict[str, Any]:
    """A description of this machine; it is recorded, and is not part of any result."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": cores(),
        "python": platform.python_version(),
    }


def packages() -> dict[str, str]:
    """The versions of the packages that numbers depend on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
