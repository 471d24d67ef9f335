"""The tools that build the documentation site: generated pages, executed examples, checks."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "tools"))  # tools are scripts that import one another
pages, check, examples = map(importlib.import_module, ("site_pages", "site_check", "site_examples"))


def test_imports_point_left_and_the_picture_has_an_arc_for_each_pair():
    chain, counts = pages.chain(), pages.import_counts()
    assert {*chain} == {path.parent.name for path in (ROOT / "src/attnlens").glob("*/__init__.py")}
    assert counts["claims", "worlds"] > 5
    right = {pair for pair in counts if chain.index(pair[1]) > chain.index(pair[0])}
    # The two exceptions that pyproject.toml names: figures draw themselves, and `networks.fit`
    # needs training.
    assert right == {("core", "report"), ("networks", "training")}
    assert pages.picture().count("<path") == len(counts)


def test_an_import_that_points_right_is_drawn_dashed(monkeypatch: pytest.MonkeyPatch):
    counts = Counter({("cli", "core"): 3, ("worlds", "core"): 1, ("core", "cli"): 1})
    monkeypatch.setattr(pages, "import_counts", lambda: counts)
    drawn = pages.picture()
    assert drawn.count("<path") == 3
    assert drawn.count("stroke-dasharray") == 1
    assert "<title>cli imports core: 3 modules</title>" in drawn


def test_the_table_of_packages_has_a_row_for_each():
    rows = [row.split(" | ") for row in pages.roles().splitlines()[2:]]
    assert [row[0] for row in rows] == [f"| `{name}`" for name in pages.chain()]
    assert all(len(row[1]) > 20 for row in rows)


def test_the_command_line_page_names_every_command():
    text = pages.command_line()
    assert {"verify", "claims", "report", "version"} <= set(re.findall(r"`attnlens (\w+)`", text))
    assert "--dry-run" in text


def test_output_and_pictures_are_inserted_below_a_block(tmp_path: Path):
    text = (
        "# Page\n\n```python\nx = 2\n```\n\n```python\nprint(x + 1)\n"
        'import pathlib; _ = pathlib.Path("drawn.svg").write_text("<svg/>")\n```\n\n'
        '<!-- not run: reason -->\n```python\nraise ValueError("not run")\n```\n\n'
        "<!-- saved as: kept.py -->\n```python\nX = 7\n```\n\n"
        "<!-- run -->\n```sh\ncat kept.py\n```\n\n```sh\nfalse\n```\n"
    )
    page = examples.run_page(text, "howto/page.md", tmp_path / "work", tmp_path / "figures")
    assert "```text\n3\n```" in page
    assert "![drawn](../figures/howto-page-drawn.svg)" in page
    assert "```text\nX = 7\n```" in page
    assert (tmp_path / "figures" / "howto-page-drawn.svg").read_text() == "<svg/>"


@pytest.mark.parametrize(
    "block",
    ["```python\n1 / 0\n```", "import warnings", "<!-- run -->\n```sh\nfalse\n```"],
    ids=["error", "warning", "command"],
)
def test_a_failing_example_ends_the_build(block: str, tmp_path: Path):
    if block == "import warnings":
        block = "```python\nimport warnings\nwarnings.warn('old', DeprecationWarning)\n```"
    with pytest.raises(examples.ExampleFailed, match=r"page\.md"):
        examples.run_page(f"{block}\n", "page.md", tmp_path / "work", tmp_path / "figures")


def test_broken_links_and_fetches_from_other_servers_are_reported(tmp_path: Path):
    (tmp_path / "good.html").write_text(
        '<h1 id="top">Good</h1><a href="#top">up</a><a href="https://elsewhere.org">away</a>'
    )
    assert list(check.problems(tmp_path)) == []
    (tmp_path / "bad.html").write_text(
        '<link rel="stylesheet" href="https://fonts.elsewhere.org/a.css">'
        '<a href="gone.html">gone</a><a href="good.html#nowhere">nowhere</a>'
        '<p style="background: url(//elsewhere.org/x.png)">'
    )
    (tmp_path / "site.css").write_text("@import 'https://elsewhere.org/b.css';")
    problems = list(check.problems(tmp_path))
    assert len(problems) == 5, problems
    assert sum("fetches" in sentence for sentence in problems) == 3


def test_docstrings_become_markdown():
    pytest.importorskip("griffe", reason="comes with the extra docs")
    pytest.importorskip("markdown", reason="comes with the extra docs")
    as_markdown = importlib.import_module("site_markdown").as_markdown
    assert as_markdown("One.\n\n>>> 1 + 1\n2") == "One.\n\n```pycon\n>>> 1 + 1\n2\n```"
    assert as_markdown("x: rows.\ny: labels,\n    as numbers.").startswith("- `x`: rows.\n- `y`:")
    assert as_markdown("a   first\nbc  second") == "    a   first\n    bc  second"
