"""The benchmark framework: measuring contenders, derived quantities, tables and pages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import environments, forecast_cases, regression, rendering, results
from benchmarks.contest import HERE, ROOT, Contender, Growth, Work, apart, compete

TOY = "tests.support.toy_contest"
HOSTILE = "<script>alert(1)</script> | *x*"


def python(home: str) -> str:
    if home != HERE:
        raise LookupError("not installed")
    return sys.executable


@pytest.fixture(scope="module")
def result() -> dict:
    """The record of a run with contenders that sleep, one that fails and one whose environment is
    not installed."""
    work = Work(
        "naps",
        "sleeping",
        f"Sleeps. {HOSTILE}",
        [
            Contender("attnlens", f"{TOY}:sleeper", setting={"seconds": 0.02}),
            Contender("peer (slow)", f"{TOY}:sleeper", setting={"seconds": 0.2}),
            Contender("peer (fast)", f"{TOY}:sleeper", setting={"seconds": 0.1}),
            Contender(HOSTILE, f"{TOY}:broken"),
            Contender("homeless", f"{TOY}:sleeper", home="peers-none"),
        ],
        repeats=3,
        aims={"peer": 3.0, "matmul float32": 0.001},
        operations=4e9,
        limit="matmul float32",
        why="Because.",
    )
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


def test_contenders_are_measured_and_failures_are_recorded(result):
    own, slow, fast, broken, homeless = results.entries_of(result["works"][0])
    # A sleep never ends early. In the toy, the first call sleeps three times as long as later ones:
    # `compiling` is the difference, two sleeps.
    assert len(own.seconds) == 3
    assert min(own.seconds) >= 0.02
    assert slow.compiling >= 0.35
    assert own.median == 2.0 * sorted(own.seconds)[1]  # the toy says that it did half of the work
    assert own.accuracy == {"relative error": pytest.approx(1e-3, abs=1e-15)}
    assert "No module named 'peer'" in broken.error
    assert not broken.seconds
    assert homeless.error == "not installed"
    assert results.best([own, slow, fast], "peer") is fast


def test_ratios_and_shares(result):
    work = result["works"][0]
    own, slow, *_, broken, _ = results.entries_of(work)
    ratio = results.ratio(work, slow)
    assert ratio is not None
    assert ratio.value == slow.median / own.median
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.aim == 3.0
    assert results.ratio(work, own) is None
    assert results.ratio(work, broken) is None
    assert results.share(work, result["limits"]) == 4e9 / own.median / 1e11


def test_exponents_of_growth(result):
    (grown,) = result["growth"]
    assert grown["time"][0] == pytest.approx(2, abs=1e-12)
    assert grown["memory"][0] == pytest.approx(1, abs=1e-12)
    # Computed by hand: residuals ±h around a line over x = 0, 1, 2, 3 (logarithms to base 2); slope
    # 0 by symmetry, s² = 4h²/2, Σ(x − x̄)² = 5.
    noisy = results.slope([1, 2, 4, 8], [2.0, 1.0, 1.0, 2.0])
    assert noisy.value == pytest.approx(0, abs=1e-12)
    assert noisy.error == pytest.approx((2 * 0.5**2 / 5) ** 0.5, rel=1e-12)


def test_peak_memory_is_what_a_call_adds():
    result = apart(f"{TOY}:hoarder", {"megabytes": 80}, sys.executable, repeats=1)
    assert 75 <= result["peak"] <= 100  # 80 MB, and what the allocator and the interpreter add


def test_tables_and_pages_show_every_fact_and_escape_markup(result):
    text, markdown, page = (
        rendering.text(result),
        rendering.markdown(result),
        rendering.page(result),
    )
    for output in (text, markdown, page):
        for words in (
            "naps",
            "homeless",
            "cannot run here",
            "aim 3: reached",
            "Because.",
            "peers-x",
        ):
            assert words in output
    assert "<script" not in page
    assert "<script" not in markdown.replace(result["works"][0]["task"], "")
    assert "(aim 0%: reached)" in text
    assert "http" not in page
    assert page.count("class='bar'") == 4


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (0.012345, "0.0123"),
        (1.0, "1"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234.5, "1230"),
        (2e-13, "2e-13"),
        (float("nan"), "nan"),
        (-0.5, "-0.5"),
        (100.0, "100"),
    ],
)
def test_numbers_have_three_significant_digits(value, words):
    assert rendering.number(value) == words


def test_the_documentation_page_shows_the_committed_numbers():
    result = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    assert not result["quick"]
    assert (ROOT / "docs" / "benchmarks.md").read_text() == rendering.markdown(result)


def test_every_row_of_the_table_still_exists():
    """Every row of the committed results has the name and the description that the program gives it
    now."""
    from benchmarks.__main__ import growths, works

    result = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    for kind, rows in (("works", works()), ("growth", growths())):
        missing = result["not measured"][kind]
        measured = [row["name"] for row in result[kind]]
        assert measured == [row.name for row in rows if row.name not in missing]
    words = {row["name"]: (row["task"], row["why"]) for row in result["works"]}
    assert words == {work.name: (work.task, work.why) for work in works() if work.name in words}
    homes = {contender.home for work in works() for contender in work.contenders}
    assert homes | {forecast_cases.EXTRA} == {HERE, *environments.extras()}


def test_a_package_with_data_is_found_without_importing_it(tmp_path: Path):
    peers = environments.Environments(tmp_path, install=False)
    assert peers.package("numpy", "peers-none") == Path(np.__file__).parent
    with pytest.raises(LookupError, match="extra peers-none is not installed"):
        peers.package("no_such_package", "peers-none")
    python = tmp_path / "peers-none" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "peers-none" / "failures.json").write_text('{"no_such_package": "ERROR: none"}')
    with pytest.raises(LookupError, match=r"no_such_package is not in .* peers-none: ERROR: none"):
        peers.package("no_such_package", "peers-none")


def test_a_run_continues_an_earlier_one_with_the_same_settings(result, tmp_path: Path):
    kept, like = tmp_path / "results.json", results.empty(quick=False, rounds=1)
    assert results.earlier(kept, like) is None
    results.write(kept, result)
    before = results.earlier(kept, like)
    assert before is not None
    assert before["works"] == result["works"]
    assert results.earlier(kept, results.empty(quick=True, rounds=1)) is None
    kept.write_text("{")
    assert results.earlier(kept, like) is None


def test_invalid_arguments_give_one_sentence(tmp_path: Path):
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
    kept.write_text(json.dumps({regression.processor(): {"training": 3.0}}))
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
    seen = [1.0, 2.01]  # a first measurement that was disturbed, then the usual ratio
    assert regression.main() == 0
    assert len(tries) == 2
    tries.clear()
    assert regression.main(write=True) == 0
    assert json.loads(kept.read_text()) == {regression.processor(): {"training": 2.01}}
    kept.write_text('{"another": {"training": 300.0}}')
    assert regression.main() == 0
    assert "nothing was compared" in capsys.readouterr().out
    assert regression.main(write=True) == 0
    assert list(json.loads(kept.read_text())) == ["another", regression.processor()]


def test_every_regression_case_has_a_stored_ratio():
    stored = json.loads(regression.KEPT.read_text())
    assert stored
    assert all(ratios.keys() == regression.CASES.keys() for ratios in stored.values())
