"""Lenses of other packages: a broken lens is named in one sentence and left out; all others are
loaded."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import running
from attnlens import load
from attnlens.claims import CLAIMS, Lens, Paper, find, lenses
from attnlens.claims.later_theory import LENS as LATER
from attnlens.core import plugins
from attnlens.core.checks import BadInput, ResourceError
from attnlens.runs import provenance
from attnlens.runs.engines import ray_connection
from attnlens.worlds import EXAMPLES
from attnlens.worlds.installed import installed_worlds
from running import ENVIRONMENT, attnlens

HEAD = """
from attnlens.claims import Lens, Paper
PAPER = Paper("A title", ("Ada One",), 2024, "arXiv:2401.00001")
"""
GOOD = HEAD + 'LENS = Lens("{0}", "a good lens", PAPER, {{"{0}.median": "toy_claims:CLAIM"}})\n'


class Packages:
    """Packages with entry points in a folder on the path, as an installer would write them."""

    def __init__(self, folder: Path):
        self.folder = folder

    def add(self, name: str, source: str, *entries: str, group: str = plugins.LENSES) -> None:
        """Install a package and its module `name`; `entries` are lines of entry_points.txt."""
        (self.folder / f"{name}.py").write_text(source)
        information = self.folder / f"{name}-1.2.3.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n"
        )
        (information / "entry_points.txt").write_text("\n".join([f"[{group}]", *entries, ""]))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty folder for packages; at the end, modules and caches loaded from it are removed."""
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    caches = (lenses, installed_worlds, ray_connection.versions, ray_connection.version_here)
    for cached in caches:
        cached.cache_clear()
    yield Packages(tmp_path)
    for cached in caches:
        cached.cache_clear()
    for name in {path.stem for path in tmp_path.glob("*.py")} & (set(sys.modules) - modules):
        del sys.modules[name]


BROKEN = {
    "raises": ("1 / 0", "Q = raises:LENS", "ZeroDivisionError"),
    "exits": ("import sys; sys.exit(0)", "Q = exits:LENS", "it called sys.exit(0)"),
    "nameless": ("", "Q = nameless:LENS", "has no attribute 'LENS'"),
    "other_class": ("LENS = 3", "Q = other_class:LENS", "must be of the class Lens; got int"),
    "no_module": ("", "Q = nowhere_at_all:LENS", "ModuleNotFoundError"),
    "other_letter": (GOOD.format("Z"), "Q = other_letter:LENS", "its letter is 'Z'"),
    "takes_a": (GOOD.format("A"), "A = takes_a:LENS", "because attnlens has one of that name"),
    "wrong_id": (
        HEAD + 'LENS = Lens("Q", "a lens", PAPER, {"Z.median": "toy_claims:CLAIM"})',
        "Q = wrong_id:LENS",
        "such as Q.median; got 'Z.median'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_lens_is_named_and_left_out(name: str, packages: Packages, capsys):
    source, entry, says = BROKEN[name]
    packages.add(name, source, entry)
    packages.add("good", GOOD.format("Y"), "Y = good:LENS")
    assert list(lenses()) == ["A", "B", "C", "Y"]
    assert lenses()["A"].package == "attnlens"
    lenses()  # a second call prints nothing
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert f"the package {name} is left out" in line
    assert says in line
    assert captured.out == ""


def test_of_two_lenses_with_one_letter_the_first_is_kept(packages: Packages, capsys):
    for name in ("second", "first"):
        packages.add(name, GOOD.format("Y"), f"Y = {name}:LENS")
    assert lenses()["Y"].package == "first"
    assert provenance.packages("Y").items() >= {("first", "1.2.3")}
    assert "second" not in provenance.packages("Y")
    (line,) = capsys.readouterr().err.splitlines()
    assert "the package second is left out, because first has one" in line


def test_a_lens_that_prints_and_is_slow_is_named_and_kept(packages: Packages, capsys, monkeypatch):
    monkeypatch.setattr(plugins, "SLOW_IMPORT", -1.0)
    packages.add("loud", "print('hello from loud')\n" + GOOD.format("Y"), "Y = loud:LENS")
    plugin = plugins.installed(plugins.LENSES)[-1]
    assert isinstance(plugins.load(plugin, Lens), Lens)
    captured = capsys.readouterr()
    assert captured.out == ""
    printed, slow = captured.err.splitlines()
    assert "the package loud prints when it is imported" in printed
    assert "hello from loud" in printed
    assert "the package loud took" in slow


def test_claims_of_other_packages_are_found_and_broken_ones_left_out(packages: Packages, capsys):
    source = HEAD + (
        'LENS = Lens("Y", "a lens", PAPER, {"Y.median": "y_claims:CLAIM", "Y.gone": "y_claims:GONE"'
        ', "Y.other": "toy_claims:CLAIM"})'
    )
    packages.add("partly", source, "Y = partly:LENS")
    template = Path(plugins.__file__).parents[1] / "cli" / "claim_template.txt"
    (packages.folder / "y_claims.py").write_text(template.read_text().replace("@ID@", "Y.median"))
    assert [claim.id for claim in find()] == [*CLAIMS, *LATER.claims, "Y.median"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" is left out")[0] for line in lines] == [
        f"attnlens: the claim {name} of the package partly" for name in ("Y.gone", "Y.other")
    ]
    assert [claim.id for claim in find(["Y.median", "A.heads"])] == ["A.heads", "Y.median"]
    with pytest.raises(BadInput, match=r"must have the id Y\.other"):
        find(["Y.other"])
    with pytest.raises(BadInput, match=r"there is no claim 'Y.none'; .*Y\.median"):
        find(["Y.none"])


def test_the_version_of_a_lens_is_recorded_and_compared_on_nodes(packages: Packages):
    packages.add("good", "1 / 0  # never imported for its version", "Y = good:LENS")
    driver = ray_connection.versions(frozenset("Y"))
    assert driver["good"] == "1.2.3"
    assert provenance.environment("Y").packages == driver
    assert "good" not in provenance.environment("AB").packages  # only packages of lenses that run
    ray_connection.check_this_node([], driver)
    with pytest.raises(ResourceError, match=r"has good 1\.2\.3, the driver has 1\.2\.4"):
        ray_connection.check_this_node([], {**driver, "good": "1.2.4"})
    with pytest.raises(ResourceError, match=r"has absent None, the driver has 1\.0"):
        ray_connection.check_this_node([], {**driver, "absent": "1.0"})


def test_worlds_of_other_packages_are_found(packages: Packages, capsys):
    source = "from attnlens.worlds import NormalMean\nWORLD, OTHER = NormalMean(), 3\n"
    entries = (
        "mine = own_worlds:WORLD",
        "normal-mean = own_worlds:WORLD",
        "bad = own_worlds:OTHER",
    )
    packages.add("own_worlds", source, *entries, group=plugins.WORLDS)
    assert list(installed_worlds()) == [*EXAMPLES, "mine"]
    taken, wrong = capsys.readouterr().err.splitlines()
    assert "the world 'normal-mean' of the package own_worlds is left out" in taken
    assert "must be of the class World; got int" in wrong


def test_the_entry_points_of_attnlens_are_those_of_a_source_tree():
    import tomllib

    from attnlens.claims.registry import BUILT_IN

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][plugins.LENSES] == BUILT_IN
    names = [name for lens, *_ in lenses().values() for name in lens.claims]
    assert names == [*CLAIMS, *LATER.claims]


def test_a_paper_has_authors():
    with pytest.raises(BadInput, match="must have a title, authors"):
        Paper("A title", (), 2024, "arXiv:2401.00001")


def new_environment(folder: Path) -> Path:
    """The Python of a new environment with the packages of this one, but none installed in it."""
    venv.create(folder, with_pip=False)
    (place,) = folder.glob("lib/python*/site-packages")
    here = [*site.getsitepackages(), ENVIRONMENT["PYTHONPATH"].split(os.pathsep)[1]]
    (place / "others.pth").write_text("\n".join(here))
    return folder / "bin" / "python"


@pytest.mark.slow
def test_a_new_package_passes_its_tests_and_appears_everywhere(tmp_path: Path, monkeypatch):
    """A lens package is created, built, installed in a new environment, tested and run as the page
    docs/howto/publish-a-lens.md describes."""
    page = (Path(__file__).parents[2] / "docs/howto/publish-a-lens.md").read_text()
    create, test, verify = (
        "lenses new mypaper",
        "pytest attnlens-mypaper",
        "verify --claim M.median",
    )
    assert all(command in page for command in (create, test, verify))
    assert attnlens(*create.split(), cwd=tmp_path).returncode == 0
    package = tmp_path / "attnlens-mypaper"
    pip = [sys.executable, "-m", "pip", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", tmp_path]
    subprocess.run([*pip, *build, package], check=True)
    (wheel,) = tmp_path.glob("attnlens_mypaper-*.whl")
    python = new_environment(tmp_path / "environment")
    install = ["--python", str(python), "install", "--no-deps", "--no-index", wheel]
    subprocess.run([*pip, *install], check=True)
    monkeypatch.setattr(running, "ATTNLENS", [str(python), "-m", "attnlens"])
    path = ENVIRONMENT["PYTHONPATH"].split(os.pathsep)[0]
    environment = {**ENVIRONMENT, "PYTHONPATH": path}
    tests = [python, "-m", *test.split(), "-q", "-p", "no:cacheprovider", "-W", "error"]
    subprocess.run(tests, cwd=tmp_path, env=environment, check=True)
    listed = json.loads(attnlens("lenses", "--json", PYTHONPATH=path).stdout)
    assert [(lens["letter"], lens["package"]) for lens in listed] == [
        ("A", "attnlens"),
        ("B", "attnlens"),
        ("C", "attnlens"),
        ("M", "attnlens-mypaper"),
    ]
    claims = json.loads(attnlens("claims", "--json", PYTHONPATH=path).stdout)
    assert claims[-1]["id"] == "M.median"
    out = tmp_path / "run"
    arguments = (*verify.split(), "--profile", "smoke", "--out", out)
    done = attnlens(*arguments, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    ledger = json.loads((out / "ledger.json").read_text())
    (entry,) = ledger["claims"]
    assert (entry["verdict"], entry["control"], entry["lens"]) == ("supported", "refuted", "M")
    assert ledger["packages"]["attnlens-mypaper"] == "0.1.0"
    assert ledger["record"]["environment"]["packages"]["attnlens-mypaper"] == "0.1.0"
    page = (out / "report.html").read_text()
    assert "M.median" in page
    assert "Lens M, mean and median: Pierre-Simon Laplace (1818)." in page
    assert "attnlens-mypaper 0.1.0" in page
    assert "author = {Pierre-Simon Laplace}" in load(out).bibtex()
