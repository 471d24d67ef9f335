"""The package as a whole: imports at start, public names, and no execution of data."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import attnlens

SOURCE = Path(attnlens.__file__).parent


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        (
            "import attnlens",
            ("jax", "numpy", "scipy", "sklearn", "matplotlib", "typer", "plotly", "ray"),
        ),
        (
            "import sys; sys.argv = ['attnlens', '--help']; import attnlens.cli as c\n"
            "try: c.main()\nexcept SystemExit: pass",
            ("jax", "numpy", "scipy", "pandas", "matplotlib", "equinox", "plotly", "ray"),
        ),
    ],
    ids=["import", "help"],
)
def test_start_imports_no_heavy_package(command: str, absent: tuple[str, ...]):
    check = f"{command}\nimport sys; print('LOADED', *(m for m in {absent} if m in sys.modules))"
    process = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1].split() == ["LOADED"]


def test_public_names_resolve_without_changing_the_precision_flag():
    check = (
        "import attnlens, jax; [getattr(attnlens, n) for n in attnlens.__all__]; "
        "from attnlens import worlds, attention; "
        "[getattr(m, n) for m in (worlds, attention) for n in m.__all__]; "
        "print(jax.config.jax_enable_x64, callable(attnlens.verify))"
    )
    process = subprocess.run(
        [sys.executable, "-c", check],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_ENABLE_X64": "0"},
    )
    assert process.stdout.split() == ["False", "True"], process.stderr


def test_no_public_name_is_replaced_by_a_module_of_its_package():
    """Importing a submodule replaces a lazily loaded public name that equals the name of the
    submodule."""
    check = (
        "import importlib, pkgutil, sys, types, attnlens\n"
        "skip = ('attnlens.__main__', 'attnlens.runs.engines.worker')\n"
        "modules = [m for m in pkgutil.walk_packages(attnlens.__path__, 'attnlens.')]\n"
        "loaded = [importlib.import_module(m.name) for m in modules if m.name not in skip]\n"
        "for package in loaded:\n"
        "    for public in getattr(package, '__all__', ()):\n"
        "        value = getattr(package, public)\n"
        "        own = f'{package.__name__}.{public}'\n"
        "        if isinstance(value, types.ModuleType) and value.__name__ == own:\n"
        "            print(own)\n"
    )
    process = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert (process.stdout, process.stderr) == ("", "")


def test_no_source_file_executes_or_unpickles_data():
    forbidden = {"eval", "exec", "pickle", "cPickle", "dill", "marshal", "shelve"}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in forbidden, path
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & forbidden, path
