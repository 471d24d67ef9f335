"""The documentation: every public name has a docstring with an example, links and imports on pages
resolve, and every cited work is listed.

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
from itertools import pairwise
from pathlib import Path

import pytest

from attnlens.claims import find

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))
GLOSSARY = (DOCS / "glossary.md").read_text()


sys.path.insert(0, str(ROOT / "tools"))  # tools are scripts that import one another
pages, examples, lens_page = map(
    importlib.import_module, ("site_pages", "site_examples", "lens_page")
)
NAMES = [
    (package, name, *pages.home(module, name))
    for package in pages.packages()
    for name, module in pages.public_names(package).items()
]


def constant_docstring(module: str, name: str) -> str:
    """The documentation of a constant: the string below its assignment."""
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
    """What the documentation of a public name lacks: a docstring, or an example that runs, in the
    docstring or on a page. None if it is complete."""
    thing = getattr(importlib.import_module(module), name)
    if isinstance(thing, types.ModuleType):
        return None if thing.__doc__ else "no docstring"
    if not (isinstance(thing, type) or inspect.isroutine(inspect.unwrap(thing))):
        return None if constant_docstring(module, name) else "no docstring below its assignment"
    # A dataclass without a docstring gets its signature as `__doc__`.
    if not thing.__doc__ or thing.__doc__.startswith(f"{name}("):
        return "no docstring"
    return None if ">>>" in thing.__doc__ or name in pages.used_in() else "no example"


def test_there_are_public_names():
    assert len(NAMES) > 100


@pytest.mark.parametrize("package", pages.packages())
def test_every_public_name_is_documented_with_an_example(package: str):
    missing = {
        f"{module}.{name}": what
        for of, _, module, name in NAMES
        if of == package and (what := undocumented(module, name))
    }
    assert missing == {}


def test_undocumented_names_are_reported():
    assert undocumented("attnlens.claims.cells", "group_by") == "no example"
    assert undocumented("attnlens.claims.claim", "PROFILES") == "no docstring below its assignment"
    assert undocumented("attnlens.claims.claim", "Profile") is None


def docstrings(path: Path) -> str:
    """All docstrings of a file: of the module, its classes and its functions."""
    nodes = ast.walk(ast.parse(path.read_text()))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return "\n".join(ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds))


SOURCED = ("attnlens.worlds", "attnlens.attention", "attnlens.instruments")
# (authors' surnames, year) of every work on the page of references
WORKS = [
    (re.findall(r"([^\W\d_][\w'’-]+), [A-Z]", entry[: year.start()]), year[1])
    for entry in (DOCS / "references.md").read_text().split("\n- ")[1:]
    if (year := re.search(r"\((\d{4})", entry))
]


def cites_a_work(text: str) -> bool:
    """Whether a text names a lens, or an author and the year of a work in the references."""
    works = (
        rf"\b{re.escape(author)}\b.{{0,200}}?\b{year}\b"
        for authors, year in WORKS
        for author in authors
    )
    lens = re.search(r"\b[Ll]ens [AB]\b", text)
    return lens is not None or any(re.search(work, text, re.S) for work in works)


def test_a_citation_is_an_author_with_a_year_that_the_references_list():
    assert cites_a_work("The sampler of Hoffman and Gelman (2014).")
    assert cites_a_work("The encoder of lens A.")
    assert not cites_a_work("In 2014 samples of 2048 tokens.")
    assert not cites_a_work("Nobody (2014)")


def lacks_source(module: str, name: str) -> bool:
    """Whether no source is cited: neither in the docstring of a name, nor in that of its module,
    nor in the sibling modules that these docstrings mention."""
    thing, home = getattr(importlib.import_module(module), name), importlib.import_module(module)
    if not callable(thing):
        return False
    text = f"{thing.__doc__}{home.__doc__}"
    folder = Path(home.__file__ or "").parent
    siblings = [folder / f"{word}.py" for word in re.findall(r"`(\w+)`", text)]
    text += "".join(docstrings(path) for path in siblings if path.is_file())
    return not cites_a_work(text)


def test_worlds_operators_and_instruments_cite_the_source_of_their_results():
    names = [(module, name) for package, _, module, name in NAMES if package in SOURCED]
    assert len(names) > 50
    assert [name for name in names if lacks_source(*name)] == []
    assert lacks_source("attnlens.networks.parameters", "count")


@pytest.mark.parametrize(
    "page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS))
)
def test_links_between_pages_resolve(page: Path):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    marks = [page.read_text().count(f"<!-- {mark} -->") for mark in ("repository", "/repository")]
    assert marks[0] == marks[1]
    # Links lead to files of the repository; the build of the site checks links between its pages.
    for link in links:
        assert re.match(r"https?://", link) or (page.parent / link).exists(), link


# -- imports on pages ------------------------------------------------------------------------------

PACKAGES = {"attnlens", *(f"attnlens.{name}" for name in pages.chain())}


def private_imports(source: str) -> list[str]:
    """The imports of attnlens in Python code that are not public.

    Public are `import attnlens` and imports of names that `attnlens` or one of its packages lists.
    """
    private = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            private += [name for name in names if name.startswith("attnlens.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "attnlens":
            public = pages.public_names(node.module) if node.module in PACKAGES else {}
            names = [alias.name for alias in node.names]
            private += [f"{node.module}.{name}" for name in names if name not in public]
    return private


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")), *SCRIPTS],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_pages_import_from_public_places(path: Path):
    text = path.read_text()
    blocks = [block["code"] for block in examples.BLOCK.finditer(text) if block["language"] != "sh"]
    for source in [text] if path.suffix == ".py" else blocks:
        assert private_imports(source) == []


@pytest.mark.parametrize(
    ("source", "private"),
    [
        ("import attnlens\nfrom attnlens import worlds\nfrom attnlens.core import Reading", []),
        ("from attnlens.core.readings import Reading", ["attnlens.core.readings.Reading"]),
        ("from attnlens.core import readings", ["attnlens.core.readings"]),
        ("import attnlens.core.readings as r", ["attnlens.core.readings"]),
        ("from numpy import array", []),
    ],
)
def test_private_imports_are_recognised(source: str, private: list[str]):
    assert private_imports(source) == private


def test_no_lazy_name_is_also_a_module_of_its_package():
    """Importing a module of the same name would replace the lazily loaded name by the module."""
    modules = {
        package: {path.stem for path in pages.SOURCE.joinpath(*package.split(".")[1:]).iterdir()}
        for package in pages.packages()
        if package != "attnlens.attention"  # imported eagerly for this reason
    }
    clashes = [
        f"{package}.{name}"
        for package, names in modules.items()
        for name, module in pages.public_names(package).items()
        if name in names and module != package
    ]
    assert clashes == []


# -- the theory ------------------------------------------------------------------------------------


def test_the_theory_page_numbers_its_predictions_and_names_every_claim():
    text = (DOCS / "theory.md").read_text()
    numbers = re.findall(r"^### Prediction (\d+): ", text, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 27))
    assert set(re.findall(r"`([ABC]\.[a-z-]+)`", text)) == {claim.id for claim in find()}


def test_every_word_of_the_glossary_is_explained_once():
    words = re.findall(r"^\| \*\*(.+?)\*\* \| .{20,} \|$", GLOSSARY, re.MULTILINE)
    needed = "claim arm cell part lens replicate world episode reading profile control native"
    assert {*needed.split()} <= {*words}
    assert len(words) == len({*words})
    assert GLOSSARY.count("\n| **") == len(words)


def test_gallery_scripts_are_short_and_save_a_figure():
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
    """(content of the file, command) of the example on the page howto/own-claim.md."""
    saved, run = list(examples.BLOCK.finditer(OWN_CLAIM))[:2]
    assert saved["mark"] == "saved as"
    return saved["code"], run["code"]


def test_the_example_of_an_own_claim_has_fewer_than_forty_lines_of_code():
    lines = own_claim()[0].splitlines()
    assert sum(bool(line.strip()) for line in lines) < 40


@pytest.mark.slow
def test_the_example_of_an_own_claim_is_supported(tmp_path: Path):
    code, command = own_claim()
    (tmp_path / "median_claim.py").write_text(code)
    command = command.replace("attnlens ", f"{sys.executable} -m attnlens ", 1)
    subprocess.run(["bash", "-euc", command], cwd=tmp_path, check=True)
    (entry,) = json.loads((tmp_path / "median-run" / "ledger.json").read_text())["claims"]
    assert (entry["id"], entry["verdict"], entry["control"]) == ("M.median", "supported", "refuted")


# -- citations -------------------------------------------------------------------------------------

# A citation: surnames, then possibly a title, then the year.
CITATION = re.compile(
    r"(?P<first>(?:(?:Del|de|ter|van den|van) )?[A-Z][\w-]+)"
    r"(?:, [A-Z][\w-]+)*(?: and [A-Z][\w-]+(?: [A-Z]\w+)?,| et al\.,?|,) "
    r"(?:.*? )?(?P<year>(?:1[6-9]|20)\d\d)\b"
)
LISTED = [
    " ".join(entry.split()) for entry in (DOCS / "references.md").read_text().split("\n- ")[1:]
]


def citations(text: str) -> set[tuple[str, str]]:
    """(first surname, year) of every work that a text cites in brackets."""
    brackets = re.findall(r"\(([^()]*\d{4}[^()]*)\)", " ".join(text.split()))
    parts = [part.strip() for bracket in brackets for part in bracket.split(";")]
    return {(result["first"], result["year"]) for part in parts if (result := CITATION.match(part))}


def test_every_cited_work_is_listed_in_full():
    works = {
        (*cited, path.name)
        for path in [*pages.SOURCE.rglob("*.py"), *DOCS.rglob("*.md")]
        for cited in citations(docstrings(path) if path.suffix == ".py" else path.read_text())
    }
    assert len(works) > 60
    missing = [
        cited
        for cited in sorted(works)
        if not any(cited[0] in entry and f"({cited[1]})" in entry for entry in LISTED)
    ]
    assert missing == [], "docs/references.md lacks these"
    of_lenses = {*lens_page.REFERENCES["A"], *lens_page.REFERENCES["B"]}
    assert of_lenses <= {entry.partition(" ## ")[0] for entry in LISTED}


def test_citations_are_recognised():
    text = "as (Golub and Van Loan, Matrix\nComputations, 2013; Li et al., 2018, p. 3), (n, 2000)"
    assert citations(text) == {("Golub", "2013"), ("Li", "2018")}
