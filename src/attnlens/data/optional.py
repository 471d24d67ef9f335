"""Data files inside optional packages, located without importing the package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from attnlens.core import checks

INSTALL = "pip install 'attnlens[data]'"


def installed(module: str) -> bool:
    """Whether Python can find the module, without importing it.

    >>> installed("json"), installed("no_such_package")
    (True, False)
    """
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its parent package is missing, or its __spec__ is None
        return False


def file_of(module: str, path: str, what: str) -> Path:
    """The path of a file inside an optional package; error messages call its content `what`."""
    spec = importlib.util.find_spec(module) if installed(module) else None
    if spec is None:
        raise checks.BadInput(
            f"{what} come with the package {module.replace('_', '-')}, which is not installed; "
            f"install it with {INSTALL}."
        )
    for folder in spec.submodule_search_locations or ():
        if (file := Path(folder) / path).is_file():
            return file
    raise checks.BadInput(
        f"{what} must be in the file {path} of the package {module.replace('_', '-')}; there is no "
        f"such file; install the package again with {INSTALL}."
    )
