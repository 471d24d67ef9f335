"""Pages and figures that are generated from stored runs: the lenses, the pretrained encoder."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from attnlens.core.drawing import Figure, Map, Point, Series, Surface
from attnlens.core.serialise import to_plain
from attnlens.runs.store.store import Store

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

sys.path.insert(0, str(ROOT / "tools"))  # tools are scripts that import one another
examples, stored = map(importlib.import_module, ("site_examples", "site_stored"))
lens_page, pretrained_page = stored.lens_page, stored.pretrained_page


def test_the_rows_in_the_readme_are_those_of_the_stored_run():
    text = (ROOT / "README.md").read_text()
    kept = json.loads(lens_page.RUN.read_text())["claims"]
    rows = re.findall(r"^([ABC]\.\S+ .*)\n  (.*)", text, re.MULTILINE)
    assert len(rows) >= 6
    for row, quantity in rows:
        claim, *shown = re.split(r" {2,}", row)
        entry = kept[claim]["entry"]
        assert quantity == entry["quantity"]
        interval = " to ".join(f"{end:.3g}" for end in entry["interval"])
        numbers = [f"{entry['estimate']:.3g}", interval]
        assert shown == [entry["verdict"], *numbers, entry["control"], f"{entry['seconds']:.1f}"], (
            claim
        )


@pytest.mark.parametrize("lens", ["A", "B", "C"])
def test_a_lens_page_is_what_its_generator_writes(lens: str):
    written = (DOCS / f"lens-{lens.lower()}.md").read_text()
    assert written == lens_page.page(lens), "run `python tools/lens_page.py write`"


def test_every_claim_that_was_not_supported_has_an_explanation():
    kept = json.loads(lens_page.RUN.read_text())["claims"]
    judged = {(name, claim["entry"]["verdict"]) for name, claim in kept.items()}
    not_supported = {pair for pair in judged if pair[1] != "supported"}
    assert not_supported
    assert not_supported <= lens_page.WHY.keys()


def test_the_full_profile_compares_widths_of_the_same_quantity_only(tmp_path: Path):
    machine = {"finished": "2026-01-02", "processor": "P", "cores": 2, "python": "3.11"}
    common = {"verdict": "supported", "estimate": 1.0, "control": "refuted", "seconds": 5.0}
    parts = {
        "A.one": ("slope (L 8 to 64)", False, [0.0, 1.0]),
        "A.two": ("other part", False, [0.0, 0.1]),
        "A.three": ("error", True, [0.4, 0.4]),
        "A.none": ("slope", False, [None, None]),
    }
    usual = {
        name: {"quantity": "slope (L 8 to 16)", "exact": False, "interval": [0.0, 3.0]}
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


def test_the_inspect_page_quotes_its_stored_runs_and_shows_their_figures():
    text = (DOCS / "howto" / "inspect.md").read_text()
    kept = json.loads(stored.inspect_figures.RUN.read_text())
    assert set(kept) == {"minilm", "decoder"}
    assert all(sentence in text for sentence in kept["minilm"]["summary"])
    assert kept["decoder"]["summary"][2] in text
    named = {name for name in stored.inspect_figures.figures() if f"figure: {name} -->" in text}
    assert named == {
        "inspect.minilm-order",
        "inspect.minilm-probe",
        "inspect.minilm-share",
        "inspect.decoder-induction",
    }


def test_the_pretrained_page_is_what_its_generator_writes():
    written = (DOCS / "pretrained.md").read_text()
    assert written == pretrained_page.page(), "run `python tools/pretrained_page.py write`"


def test_every_stored_figure_is_on_one_page_and_pictures_are_not_in_the_repository():
    marks = Counter(
        name for page in DOCS.rglob("*.md") for name in stored.MARK.findall(page.read_text())
    )
    assert marks == Counter(stored.stored().keys())
    pictures = {path.name for path in DOCS.rglob("*") if path.suffix in examples.PICTURES}
    assert pictures == {"report.png"}  # made by tools/screenshot.py for the README


def test_a_stored_figure_replaces_its_mark(tmp_path: Path):
    page = stored.with_figures(
        "Before.\n\n<!-- figure: B.softplus -->\n", "howto/page.md", tmp_path / "drawn"
    )
    title = stored.stored()["B.softplus"].title
    assert page == f"Before.\n\n![{title}](../drawn/B-softplus.svg)\n"
    assert "</svg>" in (tmp_path / "drawn" / "B-softplus.svg").read_text()
    with pytest.raises(SystemExit, match=r"page\.md asks for a figure B\.none"):
        stored.with_figures("<!-- figure: B.none -->", "page.md", tmp_path)


@pytest.mark.parametrize(("form", "kept"), [("keep", ["A.two"]), ("add", ["A.one", "A.two"])])
@pytest.mark.parametrize(("suffix", "drawn"), [("", 1), ("-full", 0)])
def test_a_run_replaces_the_stored_ones_or_is_added_to_them(
    form: str,
    kept: list[str],
    suffix: str,
    drawn: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Only the file of the named profile changes; of the full profile no figures are stored."""
    figure = to_plain(Figure("Line", "x", "y", (Series("s", (Point(1.0, 2.0, 0.1),)),)))
    for claim in ("A.one", "A.two"):
        with Store.writing(tmp_path / claim) as store:
            section = {"id": claim, "figure": figure, "verdict": {"parts": []}, "controls": []}
            store.write_document("ledger", {"profile": "smoke", "claims": [{"id": claim}]})
            store.write_document("page", {"profile": "smoke", "claims": [section]})
    for name in ("RUN", "FULL"):
        monkeypatch.setattr(lens_page, name, tmp_path / f"{name}.json")
    lens_page.main([f"keep{suffix}", str(tmp_path / "A.one")])
    lens_page.main([f"{form}{suffix}", str(tmp_path / "A.two")])
    file, other = (tmp_path / f"{name}.json" for name in ("FULL", "RUN"))
    file, other = (file, other) if suffix else (other, file)
    assert not other.exists()
    content = json.loads(file.read_text())
    assert list(content["claims"]) == kept
    assert [run["claims"] for run in content["runs"]] == [[name] for name in kept]
    assert len(content["claims"]["A.two"]["drawn"]) == drawn


def test_of_several_runs_the_last_judgement_of_a_claim_is_kept(tmp_path: Path):
    """Only the numbers of figures are rounded, to six digits."""
    third = 1 / 3
    figure = Figure("Line", "x", "y", (Series("s", (Point(1.0, third, 0.1),), slope=-0.5),))
    surface = Surface("loss", "x", "y", (0.0, 1.0), (0.0, 1.0), ((1.0, 2.0), (3.0, float("nan"))))
    weights = Map("Weights", "to", "from", (("one", ((0.25, 0.75),)),), x_names=("a", "b"))
    views = [to_plain(figure), to_plain(surface), to_plain(weights)]
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
    assert [run["claims"] for run in kept["runs"]] == [["A.one"], ["A.two"]]
    assert [kept["claims"][name]["entry"]["reason"] for name in ("A.one", "A.two")] == [
        "old",
        "new",
    ]
    assert kept["claims"]["A.one"]["entry"]["estimate"] == third
    figures = lens_page.figures(tmp_path / "kept.json")
    assert list(figures) == ["A.one", "A.one.2", "A.one.3", "A.two", "A.two.2", "A.two.3"]
    assert figures["A.one"].series[0].points == (Point(1.0, 0.333333, 0.1),)
    assert [to_plain(figures[name]) for name in ("A.one.2", "A.one.3")] == views[1:]
