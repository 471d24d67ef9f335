"""The benchmarks' machinery: who is measured how, what is derived, what is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import environments, regression, results, telling
from benchmarks.contest import HERE, ROOT, Contender, Growth, Work, apart, compete

TOY = "tests.toy_contest"
HOSTILE = "<script>alert(1)</script> | *x*"


def python(home: str) -> str:
    if home != HERE:
        raise LookupError("not installed")
    return sys.executable


@pytest.fixture(scope="module")
def found() -> dict:
    """A run of two contenders that sleep, one that fails and one without a home."""
    work = Work(
        "naps", "sleeping", f"Sleeps. {HOSTILE}",
        [
            Contender("attnlens", f"{TOY}:sleeper", setting={"seconds": 0.02}),
            Contender("peer (slow)", f"{TOY}:sleeper", setting={"seconds": 0.2}),
            Contender("peer (fast)", f"{TOY}:sleeper", setting={"seconds": 0.1}),
            Contender(HOSTILE, f"{TOY}:broken"),
            Contender("homeless", f"{TOY}:sleeper", home="peers-none"),
        ],
        repeats=3, aims={"peer": 3.0, "matmul float32": 0.001}, operations=4e9,
        limit="matmul float32", why="Because.",
    )  # fmt: skip
    run = results.empty(quick=False, rounds=1)
    run["load before"] = 0.0
    run["limits"] = {"matmul float32": 1e11, "bandwidth": 1e10}
    run["works"].append(results.record(work, compete(work, python, 1), 0.0))
    growth = Growth("naps", f"{TOY}:sleeper", (1, 2, 4, 8), {}, 2, 1)
    costs = [{"seconds": [0.1 * n**2], "peak": 3.0 * n} for n in growth.sizes]
    run["growth"].append(results.grown(growth, growth.sizes, costs))
    run["not installed"] = {"peers-x": {"thing": f"ERROR: {HOSTILE}"}}
    run["not measured"] = {"works": ["another"], "growth": []}
    return json.loads(json.dumps(run))


def test_contenders_are_measured_and_failures_are_kept(found):
    own, slow, fast, broken, homeless = results.entries_of(found["works"][0])
    # A sleep never ends early; the first call slept three times as long, so two sleeps more.
    assert len(own.seconds) == 3
    assert min(own.seconds) >= 0.02
    assert slow.compiling >= 0.35
    assert own.median == 2.0 * sorted(own.seconds)[1]  # the maker says it ran half of the work
    assert own.accuracy == {"relative error": pytest.approx(1e-3, abs=1e-15)}
    assert "No module named 'peer'" in broken.error
    assert not broken.seconds
    assert homeless.error == "not installed"
    assert results.best([own, slow, fast], "peer") is fast


def test_ratios_and_shares(found):
    work = found["works"][0]
    own, slow, *_, broken, _ = results.entries_of(work)
    ratio = results.ratio(work, slow)
    assert ratio is not None
    assert ratio.value == slow.median / own.median
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.aim == 3.0
    assert results.ratio(work, own) is None
    assert results.ratio(work, broken) is None
    assert results.share(work, found["limits"]) == 4e9 / own.median / 1e11


def test_exponents_of_growth(found):
    (grown,) = found["growth"]
    assert grown["time"][0] == pytest.approx(2, abs=1e-12)
    assert grown["memory"][0] == pytest.approx(1, abs=1e-12)
    # Residuals ±h around a line over x = 0, 1, 2, 3 (in logarithms to base 2) by hand:
    # slope 0 by symmetry, s² = 4h²/2, Σ(x − x̄)² = 5.
    noisy = results.slope([1, 2, 4, 8], [2.0, 1.0, 1.0, 2.0])
    assert noisy.value == pytest.approx(0, abs=1e-12)
    assert noisy.error == pytest.approx((2 * 0.5**2 / 5) ** 0.5, rel=1e-12)


def test_peak_memory_is_what_a_call_adds():
    found = apart(f"{TOY}:hoarder", {"megabytes": 80}, sys.executable, repeats=1)
    assert 75 <= found["peak"] <= 100  # 80, and what the allocator and the interpreter add


def test_everything_is_told_and_nothing_is_taken_for_markup(found):
    text, markdown, page = telling.text(found), telling.markdown(found), telling.page(found)
    for told in (text, markdown, page):
        for words in (
            "naps",
            "homeless",
            "cannot run here",
            "aim 3: reached",
            "Because.",
            "peers-x",
        ):
            assert words in told
    assert "<script" not in page
    assert "<script" not in markdown.replace(found["works"][0]["said"], "")
    assert "(aim 0%: reached)" in text
    assert "http" not in page
    assert page.count("class='bar'") == 4


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0"), (0.012345, "0.0123"), (1.0, "1"), (12.34, "12.3"), (123.4, "123"),
     (1234.5, "1230"), (2e-13, "2e-13"), (float("nan"), "nan"), (-0.5, "-0.5"), (100.0, "100")],
)  # fmt: skip
def test_numbers_have_three_figures(value, words):
    assert telling.number(value) == words


def test_the_page_of_the_documentation_is_made_from_the_committed_numbers():
    found = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    assert not found["quick"]
    assert (ROOT / "docs" / "benchmarks.md").read_text() == telling.markdown(found)


def test_every_row_of_the_table_still_exists():
    """What the committed numbers name is what the program would measure."""
    from benchmarks.__main__ import growths, works

    found = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    for kind, every in (("works", works()), ("growth", growths())):
        missing = found["not measured"][kind]
        measured = [each["name"] for each in found[kind]]
        assert measured == [each.name for each in every if each.name not in missing]
    words = {each["name"]: (each["said"], each["why"]) for each in found["works"]}
    assert words == {each.name: (each.said, each.why) for each in works() if each.name in words}
    homes = {each.home for work in works() for each in work.contenders}
    assert homes == {HERE, *environments.extras()}


def test_a_run_goes_on_from_one_that_was_made_in_the_same_way(found, tmp_path: Path):
    kept, like = tmp_path / "results.json", results.empty(quick=False, rounds=1)
    assert results.earlier(kept, like) is None
    results.write(kept, found)
    before = results.earlier(kept, like)
    assert before is not None
    assert before["works"] == found["works"]
    assert results.earlier(kept, results.empty(quick=True, rounds=1)) is None
    kept.write_text("{")
    assert results.earlier(kept, like) is None


def test_wrong_orders_get_a_sentence(tmp_path: Path):
    (tmp_path / "x.json").write_text("[1]")
    for order, words in (
        (["table", str(tmp_path / "x.json")], "is not a result"),
        (["table", str(tmp_path / "none.json")], "is not a result"),
        (["--only", "no such work", "--out", str(tmp_path)], "No work is called"),
    ):
        command = [sys.executable, "-m", "benchmarks", *order]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_a_ratio_that_fell_by_a_third_fails(monkeypatch, tmp_path, capsys):
    kept = tmp_path / "kept.json"
    kept.write_text('{"training": 3.0}')
    tries = []

    def ratio(case: str) -> float:
        tries.append(case)
        return seen[min(len(tries), len(seen)) - 1]

    monkeypatch.setattr(regression, "KEPT", kept)
    monkeypatch.setattr(regression, "ratio", ratio)
    monkeypatch.setattr(regression, "CASES", {"training": None})
    seen = [1.99]
    assert regression.main() == 1
    assert len(tries) == regression.TRIES
    assert "more than a third slower" in capsys.readouterr().out
    tries.clear()
    seen = [1.0, 2.01]  # a disturbance, then what it can do
    assert regression.main() == 0
    assert len(tries) == 2
    tries.clear()
    assert regression.main(write=True) == 0
    assert json.loads(kept.read_text()) == {"training": 2.01}


def test_the_kept_ratios_are_those_of_the_cases():
    assert set(json.loads(regression.KEPT.read_text())) == set(regression.CASES)
