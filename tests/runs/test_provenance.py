"""The record of a run: everything that can change a number is in it, and in its hash."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from attnlens import verify
from attnlens.attention.native.variants import variant_here
from attnlens.claims.registry import find
from attnlens.core.cells import Cell
from attnlens.core.numerical_path import NativeLibrary, NativeStatus, NumericalPath
from attnlens.runs import provenance
from attnlens.runs.engines import local
from attnlens.runs.ledger import upgraded
from attnlens.runs.pages import write_report
from attnlens.runs.planning import cells_of, plan
from attnlens.runs.provenance import ClaimVersion, RunEnvironment, RunRecord
from attnlens.runs.store.store import Store
from results_folders import comparable, kept, ledger, query
from running import attnlens

VARIANT = variant_here()
NATIVE_SOURCE = f"native-{VARIANT.name}" if VARIANT else ""
needs_compiler = pytest.mark.skipif(
    VARIANT is None or shutil.which("c++") is None,
    reason="there is no C++ compiler here",
)
NATIVE, WITHOUT_NATIVE = "A.weights-are-posterior", "A.sufficient"
LIBRARY = NativeLibrary("cholesky", NativeStatus.IN_USE, digest="d1")
ENVIRONMENT = RunEnvironment({"jax": "1"}, "a processor", ("avx2",), "", "3.11")
RECORD = RunRecord(
    {"A.x": ClaimVersion(("c0de",), "cholesky=native")},
    "judge",
    NumericalPath((LIBRARY,)),
    ENVIRONMENT,
)


def test_the_hash_depends_on_everything_that_can_change_a_number():
    others = [
        replace(RECORD, claims={}),
        replace(RECORD, claims={"A.x": ClaimVersion(("c0df",), "cholesky=native")}),
        replace(RECORD, claims={"A.x": ClaimVersion(("c0de",), "cholesky=XLA")}),
        replace(RECORD, judge="other"),
        replace(RECORD, path=NumericalPath((replace(LIBRARY, digest="d2"),))),
        replace(RECORD, environment=replace(ENVIRONMENT, packages={"jax": "2"})),
        replace(RECORD, environment=replace(ENVIRONMENT, processor="another")),
        replace(RECORD, environment=replace(ENVIRONMENT, instructions=())),
        replace(RECORD, environment=replace(ENVIRONMENT, compiler_flags="-O1")),
        replace(RECORD, environment=replace(ENVIRONMENT, python="3.12")),
        replace(RECORD, reused=(("key", "elsewhere"),)),
    ]
    assert len({record.hash for record in (RECORD, *others)}) == len(others) + 1


def test_the_hash_does_not_depend_on_why_native_code_is_not_used():
    off, failed = (
        replace(RECORD, path=NumericalPath((NativeLibrary("cholesky", status),)))
        for status in (NativeStatus.SWITCHED_OFF, NativeStatus.FAILED)
    )
    assert off.hash == failed.hash


def test_the_record_of_this_machine_comes_back_from_json():
    here = provenance.environment()
    assert RunEnvironment.restore(json.loads(json.dumps(here.plain()))) == here
    assert {"jax", "optax", "optimistix", "lineax", "matfree", "numpyro", "scikit-learn"} <= set(
        here.packages
    )


@needs_compiler
def test_the_path_is_part_of_the_keys_of_claims_that_can_reach_native_code(
    monkeypatch: pytest.MonkeyPatch,
):
    keys = {}
    for switch in ("1", "0"):
        monkeypatch.setenv("ATTNLENS_KERNEL", switch)
        for claim in find([NATIVE, WITHOUT_NATIVE]):
            keys[claim.id, switch] = {cell.key for cell in cells_of(claim, "smoke")}
    assert not keys[NATIVE, "1"] & keys[NATIVE, "0"]
    assert keys[WITHOUT_NATIVE, "1"] == keys[WITHOUT_NATIVE, "0"]


@needs_compiler
def test_nothing_is_reused_between_native_code_and_xla(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ledgers = {}
    for switch in ("1", "0", "1"):
        monkeypatch.setenv("ATTNLENS_KERNEL", switch)
        ledgers.setdefault(switch, []).append(verify("smoke", [NATIVE], tmp_path, workers=1))
        path = NumericalPath.restore(ledgers[switch][-1]["record"]["native"])
        expected = NativeStatus.IN_USE if switch == "1" else NativeStatus.SWITCHED_OFF
        assert {library.status for library in path.libraries} == {expected}
    cells = len(plan("smoke", [NATIVE]).cells)
    assert kept(tmp_path) == 2 * cells  # the third run computed no cell
    assert query(tmp_path, "SELECT path, COUNT(*) FROM cells GROUP BY path ORDER BY path") == [
        ("long_softmax=XLA small_softmax=XLA", cells),
        (f"long_softmax={NATIVE_SOURCE} small_softmax={NATIVE_SOURCE}", cells),
    ]
    (native, again), (by_xla,) = ledgers["1"], ledgers["0"]
    assert native["hash"] == again["hash"] != by_xla["hash"]
    assert native["record"] == again["record"]
    assert "native long_softmax, small_softmax" in (tmp_path / "report.html").read_text()


@needs_compiler
@pytest.mark.parametrize("source", [NATIVE_SOURCE, "XLA", "native-another"])
def test_a_worker_takes_the_path_in_the_key_of_its_cell_or_fails_the_cell(source: str):
    path = f"cholesky={source}"
    cell = Cell("T", "prediction", "tiny_cells:measure", {"shift": 0.0}, (0,), "", path=path)
    (outcome,) = local.run([cell], workers=1)
    if source == "native-another":
        assert f"the key of the cell says {path}" in (outcome.failure or "")
    else:
        assert outcome.failure is None


def test_runs_print_and_store_their_hash(tmp_path: Path):
    hashes = []
    for name in ("first", "second"):
        done = attnlens(
            *("verify", "--profile", "smoke", "--claim", "toy_claims:TINY"),
            *("--out", tmp_path / name),
            TOY_CELLS="8",
        )
        assert done.returncode == 0, done.stderr
        content = ledger(tmp_path / name)
        hashes.append(content["hash"])
        assert done.stdout.splitlines()[-1] == f"Run hash: {content['hash']}"
        assert content["hash"] in (tmp_path / name / "report.html").read_text()
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 16
    assert comparable(tmp_path / "first") == comparable(tmp_path / "second")


def test_cells_of_another_environment_change_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TOY_CELLS", "8")
    with monkeypatch.context() as earlier:
        earlier.setattr(provenance, "packages", lambda _: {"jax": "0.1"})
        verify("smoke", ["toy_claims:TINY"], tmp_path / "mixed", workers=1)
    mixed = verify("smoke", ["toy_claims:TINY"], tmp_path / "mixed", workers=1)
    pure = verify("smoke", ["toy_claims:TINY"], tmp_path / "pure", workers=1)
    assert mixed["record"].pop("cells_of_other_environments") == 8
    assert pure["record"].pop("cells_of_other_environments") == 0
    assert mixed["record"] == pure["record"]
    assert mixed["hash"] != pure["hash"]


def test_a_ledger_without_a_record_is_still_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOY_CELLS", "8")
    content = verify("smoke", ["toy_claims:TINY"], tmp_path, workers=1)
    old = {name: value for name, value in content.items() if name not in ("hash", "record")}
    old["schema"] = 2
    with Store.writing(tmp_path) as store:
        store.write_document("ledger", old)
    assert (upgraded(old)["hash"], upgraded(old)["record"]) == (None, None)
    assert "run hash" not in write_report(tmp_path).read_text()
