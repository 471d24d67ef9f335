"""The documentation: every public name has a docstring with an example, every link in the pages
leads somewhere, and the tools that build the site notice what is wrong.

`tools/site_build.py` runs every example and follows every link of the finished site; it needs the
packages of the extra `docs`, and `.ci/run` runs it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import types
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from attnlens.records import Figure, Map, Point, Series, Surface, plain
from attnlens.store import Store
from test_structure import CHAIN, LAZY_LEAF

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))


sys.path.insert(0, str(ROOT / "tools"))  # no package: scripts that import one another
pages, check, examples = map(importlib.import_module, ("site_pages", "site_check", "site_examples"))
stored = importlib.import_module("site_stored")
lens_page, pretrained_page = stored.lens_page, stored.pretrained_page
NAMES = [
    (package, name, *pages.home(module, name))
    for package in pages.packages()
    for name, module in pages.public_names(package).items()
]


def words_under(module: str, name: str) -> str:
    """The string that stands under the assignment of a constant: its documentation."""
    source = Path(importlib.import_module(module).__file__ or "").read_text()
    body = ast.parse(source).body
    for node, after in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        assigned = [ast.unparse(target) for target in targets if target is not None]
        if (
            name in assigned
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            return str(after.value.value)
    return ""


def undocumented(module: str, name: str) -> str | None:
    """What a public name lacks: a docstring, or an example that runs, there or on a page."""
    thing = getattr(importlib.import_module(module), name)
    if isinstance(thing, types.ModuleType):
        return None if thing.__doc__ else "no docstring"
    if not (isinstance(thing, type) or inspect.isroutine(inspect.unwrap(thing))):
        return None if words_under(module, name) else "no words under its assignment"
    # A dataclass without a docstring has its signature for one.
    if not thing.__doc__ or thing.__doc__.startswith(f"{name}("):
        return "no docstring"
    return None if ">>>" in thing.__doc__ or name in pages.used_in() else "no example"


def test_there_are_public_names():
    assert len(NAMES) > 100


@pytest.mark.parametrize("package", pages.packages())
def test_every_public_name_is_documented_with_an_example(package: str):
    found = {
        f"{module}.{name}": lacks
        for of, _, module, name in NAMES
        if of == package and (lacks := undocumented(module, name))
    }
    assert found == {}


def test_an_undocumented_name_is_noticed():
    assert undocumented("attnlens.claims.base", "by") == "no example"
    assert undocumented("attnlens.claims.base", "PREDICTION") == "no words under its assignment"
    assert undocumented("attnlens.claims.base", "Profile") is None


def docstrings(path: Path) -> str:
    """All words under modules, classes and functions of a file."""
    nodes = ast.walk(ast.parse(path.read_text()))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return "\n".join(ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds))


SOURCED = ("attnlens.worlds", "attnlens.attention", "attnlens.instruments")


def sourceless(module: str, name: str) -> bool:
    """Whether a name, its module and those beside it that this one names all lack a source."""
    thing, home = getattr(importlib.import_module(module), name), importlib.import_module(module)
    if not callable(thing):
        return False
    said = f"{thing.__doc__}{home.__doc__}"
    folder = Path(home.__file__ or "").parent
    beside = [folder / f"{word}.py" for word in re.findall(r"`(\w+)`", said)]
    said += "".join(docstrings(path) for path in beside if path.is_file())
    return not re.search(r"\b(?:1[6-9]|20)\d\d\b|[Ll]ens [AB]|\bB's\b", said)


def test_what_computes_names_the_source_of_its_result():
    asked = [(module, name) for package, _, module, name in NAMES if package in SOURCED]
    assert len(asked) > 50
    assert [found for found in asked if sourceless(*found)] == []
    assert sourceless("attnlens.networks", "count")


@pytest.mark.parametrize(
    "page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS))
)
def test_links_between_pages_resolve(page: Path):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    words = page.read_text()
    assert words.count("<!-- repository -->") == words.count("<!-- /repository -->")
    for link in links:  # in the repository; those of the finished site are followed by its build
        assert re.match(r"https?://", link) or (page.parent / link).exists(), link


def test_the_rows_in_the_readme_are_those_of_the_stored_run():
    text = (ROOT / "README.md").read_text()
    kept = json.loads(lens_page.RUN.read_text())["claims"]
    rows = [re.split(r" {2,}", line) for line in re.findall(r"^[AB]\.\S+ .*", text, re.MULTILINE)]
    assert len(rows) >= 6
    for claim, *shown in rows:
        entry = kept[claim]["entry"]
        interval = " to ".join(f"{end:.3g}" for end in entry["interval"])
        numbers = [f"{entry['estimate']:.3g}", interval]
        assert shown == [
            entry["verdict"], *numbers, entry["control"], f"{entry['seconds']:.1f}"
        ], claim  # fmt: skip


def test_the_gallery_has_twelve_short_scripts_that_save_figures():
    assert len(SCRIPTS) >= 12
    for script in SCRIPTS:
        source = script.read_text()
        assert len(source.splitlines()) < 80, script
        assert len(ast.get_docstring(ast.parse(source)) or "") > 80, script
        assert "savefig(" in source, script


def test_the_citation_file_names_this_version():
    text = (ROOT / "CITATION.cff").read_text()
    import attnlens

    assert f"\nversion: {attnlens.__version__}\n" in text
    assert text.startswith("cff-version: 1.2.0\n")


OWN_CLAIM = (DOCS / "howto" / "own-claim.md").read_text()


def own_claim() -> tuple[str, str]:
    """The claim's file and the command of the page on claims of one's own."""
    saved, run = list(examples.BLOCK.finditer(OWN_CLAIM))[:2]
    assert saved["mark"] == "saved as"
    return saved["code"], run["code"]


def test_a_claim_of_ones_own_takes_fewer_than_sixty_lines():
    assert len(own_claim()[0].splitlines()) < 60


@pytest.mark.slow
def test_a_claim_of_ones_own_is_judged(tmp_path: Path):
    code, command = own_claim()
    (tmp_path / "median_claim.py").write_text(code)
    command = command.replace("attnlens ", f"{sys.executable} -m attnlens ", 1)
    subprocess.run(["bash", "-euc", command], cwd=tmp_path, check=True)
    (entry,) = json.loads((tmp_path / "median-run" / "ledger.json").read_text())["claims"]
    assert (entry["id"], entry["verdict"], entry["control"]) == ("M.median", "supported", "refuted")


def test_the_picture_of_the_chain_is_drawn_from_imports_that_point_left():
    assert pages.chain() == CHAIN
    counts = pages.import_counts()
    assert counts["claims", "worlds"] > 5
    right = {pair for pair in counts if CHAIN.index(pair[1]) > CHAIN.index(pair[0])}
    assert right == {LAZY_LEAF}
    assert pages.picture().count("<path") == len(counts)


def test_the_command_line_page_names_every_command():
    text = pages.command_line()
    assert {"verify", "claims", "report", "version"} <= set(re.findall(r"`attnlens (\w+)`", text))
    assert "--dry-run" in text


def test_a_page_shows_what_its_blocks_print_and_draw(tmp_path: Path):
    text = (
        "# Page\n\n```python\nx = 2\n```\n\n```python\nprint(x + 1)\n"
        'import pathlib; _ = pathlib.Path("drawn.svg").write_text("<svg/>")\n```\n\n'
        '<!-- not run: reason -->\n```python\nraise ValueError("not run")\n```\n\n'
        "<!-- saved as: kept.py -->\n```python\nX = 7\n```\n\n"
        "<!-- run -->\n```sh\ncat kept.py\n```\n\n```sh\nfalse\n```\n"
    )
    made = examples.run_page(text, "howto/page.md", tmp_path / "work", tmp_path / "figures")
    assert "```text\n3\n```" in made
    assert "![drawn](../figures/howto-page-drawn.svg)" in made
    assert "```text\nX = 7\n```" in made
    assert (tmp_path / "figures" / "howto-page-drawn.svg").read_text() == "<svg/>"


@pytest.mark.parametrize(
    "block",
    ["```python\n1 / 0\n```", "import warnings", "<!-- run -->\n```sh\nfalse\n```"],
    ids=["error", "warning", "command"],
)
def test_an_example_that_fails_ends_the_build(block: str, tmp_path: Path):
    if block == "import warnings":
        block = "```python\nimport warnings\nwarnings.warn('old', DeprecationWarning)\n```"
    with pytest.raises(examples.ExampleFailed, match=r"page\.md"):
        examples.run_page(f"{block}\n", "page.md", tmp_path / "work", tmp_path / "figures")


def test_broken_links_and_fetches_from_elsewhere_are_found(tmp_path: Path):
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
    found = list(check.problems(tmp_path))
    assert len(found) == 5, found
    assert sum("fetches" in sentence for sentence in found) == 3


def test_docstrings_become_markdown():
    pytest.importorskip("griffe", reason="comes with the extra docs")
    pytest.importorskip("markdown", reason="comes with the extra docs")
    as_markdown = importlib.import_module("site_markdown").as_markdown
    assert as_markdown("One.\n\n>>> 1 + 1\n2") == "One.\n\n```pycon\n>>> 1 + 1\n2\n```"
    assert as_markdown("x: rows.\ny: labels,\n    as numbers.").startswith("- `x`: rows.\n- `y`:")
    assert as_markdown("a   first\nbc  second") == "    a   first\n    bc  second"


# -- works that are named --------------------------------------------------------------------------

# Surnames at the beginning of a citation, then what was written, then the year.
CITATION = re.compile(
    r"(?P<first>[A-Z][\w-]+)(?:, [A-Z][\w-]+)*(?: and [A-Z][\w-]+(?: [A-Z]\w+)?,| et al\.,?|,) "
    r"(?:.*? )?(?P<year>(?:1[6-9]|20)\d\d)\b"
)
LISTED = [
    " ".join(entry.split()) for entry in (DOCS / "references.md").read_text().split("\n- ")[1:]
]


def citations(text: str) -> set[tuple[str, str]]:
    """(first surname, year) of every work that a text names in brackets."""
    brackets = re.findall(r"\(([^()]*\d{4}[^()]*)\)", " ".join(text.split()))
    parts = [part.strip() for bracket in brackets for part in bracket.split(";")]
    return {(found["first"], found["year"]) for part in parts if (found := CITATION.match(part))}


def test_every_work_that_is_named_is_listed_in_full():
    named = {
        (*cited, path.name)
        for path in [*pages.SOURCE.rglob("*.py"), *DOCS.rglob("*.md")]
        for cited in citations(docstrings(path) if path.suffix == ".py" else path.read_text())
    }
    assert len(named) > 60
    missing = [
        cited for cited in sorted(named)
        if not any(cited[0] in entry and f"({cited[1]})" in entry for entry in LISTED)
    ]  # fmt: skip
    assert missing == [], "docs/references.md lacks these"
    of_lenses = {*lens_page.REFERENCES["A"], *lens_page.REFERENCES["B"]}
    assert of_lenses <= {entry.partition(" ## ")[0] for entry in LISTED}


def test_a_work_that_is_named_is_noticed():
    text = "as (Golub and Van Loan, Matrix\nComputations, 2013; Li et al., 2018, p. 3), (n, 2000)"
    assert citations(text) == {("Golub", "2013"), ("Li", "2018")}


# -- what stored runs measured ---------------------------------------------------------------------


@pytest.mark.parametrize("lens", ["A", "B"])
def test_a_lens_page_says_what_the_claims_and_the_stored_run_say(lens: str):
    written = (DOCS / f"lens-{lens.lower()}.md").read_text()
    assert written == lens_page.page(lens), "`python tools/lens_page.py write` writes it again"


def test_a_claim_that_was_not_supported_says_why():
    kept = json.loads(lens_page.RUN.read_text())["claims"]
    judged = {(name, claim["entry"]["verdict"]) for name, claim in kept.items()}
    open_ones = {pair for pair in judged if pair[1] != "supported"}
    assert open_ones
    assert open_ones <= lens_page.WHY.keys()


def test_the_full_profile_says_how_much_narrower_it_is_where_it_can(tmp_path: Path):
    machine = {"finished": "2026-01-02", "processor": "P", "cores": 2, "python": "3.11"}
    common = {"verdict": "supported", "estimate": 1.0, "control": "refuted", "seconds": 5.0}
    parts = {
        "A.one": ("slope (L 8 to 64)", False, [0.0, 1.0]),
        "A.two": ("other part", False, [0.0, 0.1]),
        "A.three": ("error", True, [0.4, 0.4]),
        "A.none": ("slope", False, [None, None]),
    }
    usual = {
        name: {"quantity": "slope (L 8 to 16)", "interval": [0.0, 3.0]}
        for name in (*parts, "A.four")
    }
    kept = {
        name: {"entry": common | {"quantity": quantity, "exact": exact, "interval": interval}}
        for name, (quantity, exact, interval) in parts.items()
    }
    run = {"profile": "full", "attnlens": "1", "machine": machine, "claims": []}
    file = tmp_path / "full.json"
    file.write_text(json.dumps({"runs": [run], "claims": kept}))
    words, _, _, _, *rows, _ = lens_page.tightened("A", usual, file)
    assert "--profile full` on 2026-01-02" in words
    assert [row.split(" | ")[2:6:3] for row in rows] == [
        ["slope (L 8 to 64)", "3.0"],
        ["other part", ""],
        ["error", ""],
        ["slope", ""],
    ]
    assert [row.split(" | ")[4] for row in rows] == ["0 to 1", "0 to 0.1", "exact", "– to –"]
    assert lens_page.tightened("A", usual, tmp_path / "none.json") == []


def test_the_pretrained_page_says_what_the_stored_run_says():
    written = (DOCS / "pretrained.md").read_text()
    assert written == pretrained_page.page(), (
        "`python tools/pretrained_page.py write` does it again"
    )


def test_every_stored_figure_has_its_place_and_no_picture_is_kept():
    asked = Counter(
        name for page in DOCS.rglob("*.md") for name in stored.MARK.findall(page.read_text())
    )
    assert asked == Counter(stored.stored().keys())
    pictures = {path.name for path in DOCS.rglob("*") if path.suffix in examples.PICTURES}
    assert pictures == {"report.png"}  # by tools/screenshot.py, for the README


def test_a_stored_figure_is_drawn_where_a_page_asks_for_it(tmp_path: Path):
    made = stored.drawn(
        "Before.\n\n<!-- figure: B.softplus -->\n", "howto/page.md", tmp_path / "drawn"
    )
    title = stored.stored()["B.softplus"].title
    assert made == f"Before.\n\n![{title}](../drawn/B-softplus.svg)\n"
    assert "</svg>" in (tmp_path / "drawn" / "B-softplus.svg").read_text()
    with pytest.raises(SystemExit, match=r"page\.md asks for a figure B\.none"):
        stored.drawn("<!-- figure: B.none -->", "page.md", tmp_path)


def test_of_several_runs_a_claim_is_kept_as_the_last_one_judged_it(tmp_path: Path):
    """Points of figures lose digits that cannot be seen, and nothing else."""
    third = 1 / 3
    figure = Figure("Line", "x", "y", (Series("s", (Point(1.0, third, 0.1),), slope=-0.5),))
    surface = Surface("loss", "x", "y", (0.0, 1.0), (0.0, 1.0), ((1.0, 2.0), (3.0, float("nan"))))
    weights = Map("Weights", "to", "from", (("one", ((0.25, 0.75),)),), x_names=("a", "b"))
    views = [plain(figure), plain(surface), plain(weights)]
    for run, claims in (("old", ("A.one", "A.two")), ("new", ("A.two",))):
        with Store.writing(tmp_path / run) as store:
            entries = [
                {"id": claim, "seed": "A", "estimate": third, "reason": run} for claim in claims
            ]
            sections = [{"id": claim, "figure": views[0], "views": views[1:]} for claim in claims]
            store.write_document("ledger", {"profile": "smoke", "claims": entries})
            store.write_document("page", {"profile": "smoke", "claims": sections})
    lens_page.keep([tmp_path / "old", tmp_path / "new"], tmp_path / "kept.json")
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert [run["claims"] for run in kept["runs"]] == [["A.one", "A.two"], ["A.two"]]
    assert [kept["claims"][name]["entry"]["reason"] for name in ("A.one", "A.two")] == [
        "old",
        "new",
    ]
    assert kept["claims"]["A.one"]["entry"]["estimate"] == third
    found = lens_page.figures(tmp_path / "kept.json")
    assert list(found) == ["A.one", "A.one.2", "A.one.3", "A.two", "A.two.2", "A.two.3"]
    assert found["A.one"].series[0].points == (Point(1.0, 0.333333, 0.1),)
    assert [plain(found[name]) for name in ("A.one.2", "A.one.3")] == views[1:]
