"""`docs/reliability.md`: every promise names a test that exists, and the numbers on the page are
those of the tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
REFERENCES = sorted(set(REFERENCE.findall(PAGE)))


@cache
def functions(path: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text())
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "name"), REFERENCES, ids=lambda part: part.rpartition("/")[2])
def test_the_tests_that_hold_the_promises_exist(file: str, name: str):
    path = ROOT / file
    assert path.is_file()
    if name:
        assert name.startswith("test_")
        assert name in functions(path)
    elif "support" not in path.parts:
        assert any(function.startswith("test_") for function in functions(path))


def promises() -> Iterator[str]:
    """The rows of all tables, without their headings."""
    for line in PAGE.splitlines():
        if line.startswith("|") and not line.startswith(("| promise |", "|---")):
            yield line


def test_every_promise_names_a_test():
    rows = list(promises())
    assert len(rows) > 50
    assert [row for row in rows if not REFERENCE.search(row)] == []


def examples(path: Path) -> dict[str, int]:
    """The number of examples of every fuzzer in a file, for example 600 for `@fuzzed(600)`."""
    return {
        name: decorator.args[0].value
        for name, function in functions(path).items()
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "fuzzed"
        and isinstance(decorator.args[0], ast.Constant)
        and isinstance(decorator.args[0].value, int)
    }


def test_the_fuzzers_try_as_many_inputs_as_the_page_says():
    total = sum(examples(ROOT / "tests" / "cli" / "test_fuzz.py").values())
    assert total >= 2000
    assert f"{total:,} examples" in PAGE
