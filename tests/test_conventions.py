"""Conventions that the whole package keeps: names that are unique, helpers that stay private."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import attnlens

SOURCE = Path(attnlens.__file__).parent
TREES = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def repeated_classes(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    """Class names that are defined more than once, with the files that define them."""
    places = defaultdict[str, list[str]](list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.name)
    return {name: files for name, files in places.items() if len(files) > 1}


def private_imports(tree: ast.Module) -> Iterator[str]:
    """Names with a leading underscore that a module imports from another one of the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (
            node.level or (node.module or "").startswith("attnlens")
        ):
            for alias in node.names:
                if alias.name.startswith("_") and not alias.name.startswith("__"):
                    yield alias.name


def test_class_names_are_unique():
    assert repeated_classes(TREES) == {}
    twice = {Path("a.py"): ast.parse("class A: ..."), Path("b.py"): ast.parse("class A: ...")}
    assert repeated_classes(twice) == {"A": ["a.py", "b.py"]}


def test_private_helpers_are_not_imported_by_other_modules():
    offences = [(path.name, name) for path, tree in TREES.items() for name in private_imports(tree)]
    assert offences == []
    assert list(private_imports(ast.parse("from .other import _helper"))) == ["_helper"]


def decimal_literals(tree: ast.Module) -> set[float]:
    """The floating-point numbers that a module writes out."""
    nodes = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in nodes if isinstance(value, float)}


def test_quantiles_are_computed():
    """`Reading.interval` is the only interval: no quantile of 95 % or 90 % is written as a number.
    A quantile is computed by `scipy.special`."""
    quantiles = {1.96, 2 * 1.96, 1.95996, 1.645, 1.64}
    assert [path.name for path, tree in TREES.items() if decimal_literals(tree) & quantiles] == []
    assert [path.name for path in TREES if "1.96" in path.read_text()] == []
    assert decimal_literals(ast.parse("x = 1.96 * error")) == {1.96}


def test_the_formatter_decides_the_layout():
    assert [path.name for path in TREES if "fmt: skip" in path.read_text()] == []


def test_the_top_level_holds_packages_only():
    files = {path.name for path in SOURCE.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__init__.pyi", "__main__.py", "py.typed"}
