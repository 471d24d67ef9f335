"""The shape of the house: imports point left along the chain, and starting is light."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import attnlens
from attnlens.claims.code_version import imports

SOURCE = Path(attnlens.__file__).parent

# Left to right; a module imports only from its left, or from its own package.
CHAIN = (
    "checks", "durations", "records", "statistics", "kernels", "worlds", "attention", "networks",
    "instruments", "data", "bridges", "practice", "claims", "engine", "layout", "store", "upkeep",
    "figures", "report", "computing", "verification", "progress", "commands", "cli",
)  # fmt: skip
# `reading.plot()` draws: records import the figures, which import only records, when called.
LAZY_LEAF = ("records", "figures")


def place(module: str) -> str:
    return [*module.split("."), ""][1]


def modules() -> list[str]:
    paths = [p.relative_to(SOURCE.parent) for p in SOURCE.rglob("*.py")]
    return [".".join(p.with_suffix("").parts).removesuffix(".__init__") for p in paths]


def offences(importer: str, imported: tuple[str, ...]) -> list[str]:
    if importer in ("attnlens", "attnlens.__main__"):
        return []  # the table of public names, and the door
    here = place(importer)
    return [
        f"{importer} imports {target}"
        for target in imported
        if place(target) not in ("", here)
        and (here, place(target)) != LAZY_LEAF
        and CHAIN.index(place(target)) > CHAIN.index(here)
    ]


def test_imports_point_left():
    wrong = [offence for module in modules() for offence in offences(module, imports(module))]
    assert wrong == []


def test_the_import_rule_can_fail():
    assert offences("attnlens.worlds.base", ("attnlens.claims.base",))
    assert not offences("attnlens.claims.base", ("attnlens.worlds.base",))


def test_every_module_has_its_place_in_the_chain():
    known = {"", "__main__", *CHAIN}
    assert {place(module) for module in modules()} <= known


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
def test_starting_imports_nothing_heavy(command: str, absent: tuple[str, ...]):
    check = f"{command}\nimport sys; print('LOADED', *(m for m in {absent} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["LOADED"]


def test_public_names_resolve_and_the_precision_flag_is_left_alone():
    check = (
        "import attnlens, jax; [getattr(attnlens, n) for n in attnlens.__all__]; "
        "from attnlens import worlds, attention; "
        "[getattr(m, n) for m in (worlds, attention) for n in m.__all__]; "
        "print(jax.config.jax_enable_x64, callable(attnlens.verify))"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True,
        env={**os.environ, "JAX_ENABLE_X64": "0"},
    )  # fmt: skip
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_public_names_are_what_they_are_after_every_module_was_imported():
    """A lazy name that is also a module's name would turn into the module."""
    check = (
        "import importlib, pkgutil, types, attnlens\n"
        "skip = ('attnlens.__main__', 'attnlens.engine.worker')\n"
        "found = [m for m in pkgutil.walk_packages(attnlens.__path__, 'attnlens.')]\n"
        "loaded = [importlib.import_module(m.name) for m in found if m.name not in skip]\n"
        "for package in loaded:\n"
        "    for public in getattr(package, '__all__', ()):\n"
        "        if isinstance(getattr(package, public), types.ModuleType):\n"
        "            print(package.__name__, public)\n"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_no_source_file_executes_or_unpickles_data():
    forbidden = {"eval", "exec", "pickle", "cPickle", "dill", "marshal", "shelve"}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in forbidden, path
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & forbidden, path
