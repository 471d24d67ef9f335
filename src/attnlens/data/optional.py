"""Data that come inside optional packages: found without importing the package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from attnlens import checks

INSTALL = "pip install 'attnlens[data]'"


def installed(module: str) -> bool:
    """Whether Python can find the module; it is not imported.

    >>> installed("json"), installed("no_such_package")
    (True, False)
    """
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent is missing, or something stands in its place
        return False


def file_of(module: str, path: str, what: str) -> Path:
    """The file at `path` inside an optional package that holds `what`."""
    spec = importlib.util.find_spec(module) if installed(module) else None
    if spec is None:
        raise checks.BadInput(
            f"{what} come with the package {module.replace('_', '-')}, which is not installed; "
            f"get it with {INSTALL}."
        )
    for folder in spec.submodule_search_locations or ():
        if (found := Path(folder) / path).is_file():
            return found
    raise checks.BadInput(
        f"{what} should be in the file {path} of the package {module.replace('_', '-')}, but it is "
        f"not there; install the package again with {INSTALL}."
    )
