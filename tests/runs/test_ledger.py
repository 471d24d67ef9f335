"""Ledgers of every schema, in which exact checks are listed separately from claims."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from attnlens.claims import find
from attnlens.claims.power import claim_power
from attnlens.cli.claims import claims, description
from attnlens.core.checks import BadInput
from attnlens.core.serialise import ledger_entries
from attnlens.report.page import render_documents
from attnlens.runs.ledger import SCHEMA, upgraded
from attnlens.runs.pages import finished
from attnlens.runs.store.store import Store
from attnlens.runs.verify import verify


def test_older_ledgers_have_their_exact_checks_moved():
    entries = [{"id": "A.one", "seed": "A", "exact": True}, {"id": "B.two", "exact": False}]
    ledger = upgraded({"schema": 1, "claims": entries})
    assert ledger["schema"] == SCHEMA
    assert [entry["id"] for entry in ledger["claims"]] == ["B.two"]
    assert [entry["id"] for entry in ledger["exact_checks"]] == ["A.one"]
    assert ledger["exact_checks"][0]["lens"] == "A"
    assert all(entry["power"] is entry["attribution"] is None for entry in ledger_entries(ledger))
    assert upgraded(ledger) == ledger


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("check")
    verify("smoke", ["A.weights-are-posterior"], out, workers=1)
    return out


def test_an_exact_check_holds_and_is_not_counted_as_supported(folder: Path):
    with Store.reading(folder) as store:
        ledger, page = finished(store)
    assert ledger["claims"] == []
    (entry,) = ledger["exact_checks"]
    assert (entry["verdict"], entry["control"]) == ("supported", "refuted")
    assert entry["attribution"]["origin"] == "our formalisation of the paper's statement"
    text = render_documents(ledger, page, [])
    assert re.search(r"<b>0</b>supported", text)
    assert re.search(r'<td class="supported">holds', text)
    assert page["claims"][0]["refutation"].startswith("Refuted if a value of largest error")
    assert entry["attribution"]["sentence"] in text


def test_a_page_of_an_older_run_is_still_shown(folder: Path):
    """In schema 3 exact checks were listed among the claims, and sections lacked the newer
    fields."""
    with Store.reading(folder) as store:
        ledger, page = finished(store)
    new = ("attribution", "power")
    entries = [{k: v for k, v in e.items() if k not in new} for e in ledger["exact_checks"]]
    old = {k: v for k, v in ledger.items() if k != "exact_checks"}
    old |= {"schema": 3, "claims": entries}
    newer = ("attribution", "refutation", "planned_power")
    sections = [{k: v for k, v in s.items() if k not in newer} for s in page["claims"]]
    text = render_documents(upgraded(old), {**page, "claims": sections}, [])
    assert re.search(r'<td class="supported">holds', text)


def test_attnlens_claims_describes_the_claim_that_is_named(capsys: pytest.CaptureFixture[str]):
    claims("A.weights-are-posterior")
    printed = capsys.readouterr().out
    (described,) = find(["A.weights-are-posterior"])
    assert printed.startswith("A.weights-are-posterior\n")
    assert described.refutation in printed
    assert str(described.attribution) in printed
    claims("A.weights-are-posterior", as_json=True)
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["exact"], record["decisive"], record["power"]) == (True, "default", None)
    assert record["attribution"]["origin"] == "our formalisation of the paper's statement"


@pytest.mark.parametrize(("action", "name"), [("new", None), ("A.heads", "M.median")])
def test_claims_takes_a_name_or_new_and_a_name(action: str, name: str | None):
    with pytest.raises(BadInput):
        claims(action, name)


def test_the_power_of_a_claim_is_printed_in_every_profile(capsys: pytest.CaptureFixture[str]):
    """`attnlens claims NAME` prints the power of a claim that states an effect."""
    (claim,) = find(["A.softmax-smoothed"])
    planned = claim_power(claim, "default")
    assert planned is not None
    lines = description(claim, with_power=True)
    assert sum(line.startswith("Power in ") for line in lines) == 3
    assert any(f"{planned.power:.3f}" in line and "decides" in line for line in lines)
    assert sum("replicates" in line for line in lines) >= len(planned.parts)
