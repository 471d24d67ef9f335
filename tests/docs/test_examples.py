"""Every Python block of the README and of all pages runs, and so do the doctests."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import jax
import pytest

import attnlens

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(text: str) -> list[str]:
    """The Python blocks of a page; one that follows `<!-- not run: reason -->` is left out."""
    pattern = r"(<!-- not run: [^>]+ -->\n)?^```python\n(.*?)^```"
    result = re.findall(pattern, text, re.DOTALL | re.MULTILINE)
    return [code for skipped, code in result if not skipped]


# Pages about optional packages have no block to run here; tests of those packages run them.
WITH_CODE = [page for page in PAGES if blocks(page.read_text())]


def test_the_readme_has_an_example():
    assert ROOT / "README.md" in WITH_CODE


@pytest.mark.parametrize(
    "page",
    # A page of the docs draws figures and takes half a minute or more.
    [pytest.param(p, marks=[pytest.mark.slow] if p.parent != ROOT else []) for p in WITH_CODE],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__page__"}
    # As in the process of a reader: float32 by default, and ordinary promotion rules.
    with (
        jax.enable_x64(False),
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
    ):
        for number, code in enumerate(blocks(page.read_text()), 1):
            exec(compile(code, f"{page.name} block {number}", "exec"), namespace)
    assert len(namespace) > 2


MODULES = [
    module.name
    for module in pkgutil.walk_packages(attnlens.__path__, "attnlens.")
    if module.name not in ("attnlens.__main__", "attnlens.runs.engines.worker")
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str):
    module = importlib.import_module(name)
    with jax.enable_x64(False):
        result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
