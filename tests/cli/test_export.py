"""`attnlens export`: figures, tables and references of a run for a paper."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import attnlens
from attnlens.core.drawing import Figure, Map, Point, Series, Surface
from attnlens.report.draw.paper import paper_figure
from attnlens.report.latex import escape_latex, latex_number
from attnlens.report.paper import csv_table, escape_markdown, latex_document, latex_tables
from attnlens.runs.paper import export_run
from in_process import run as run_command
from results_folders import ledger
from running import one_sentence

CLAIM = "A.weights-are-posterior"
TEXT = {"references.bib", "tables.tex", "document.tex"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    attnlens.verify("smoke", [CLAIM], out, workers=1)
    return out


def test_figures_tables_and_references(folder: Path, tmp_path: Path):
    to = tmp_path / "paper"
    to.mkdir()
    (to / "notes.txt").write_text("mine")
    formats = ["--figures", "pdf", "--figures", "svg", "--figures", "png"]
    formats += ["--tables", "latex", "--tables", "csv", "--tables", "markdown"]
    done = run_command("export", folder, "--to", to, *formats)
    assert (done.returncode, done.stderr) == (0, "")
    names = {path.name for path in to.iterdir()}
    tables = {f"{table}.{end}" for table in ("claims", "parts") for end in ("csv", "md")}
    figures = {
        f"{CLAIM.replace('.', '-')}{view}.{end}"
        for view in ("", "-view-1")
        for end in ("pdf", "svg", "png")
    }
    assert names == {"notes.txt", *TEXT, *tables, *figures}
    assert (to / "notes.txt").read_text() == "mine"
    beginnings = {".pdf": b"%PDF-", ".svg": b"<?xml", ".png": b"\x89PNG"}
    for name in figures:
        assert (to / name).read_bytes().startswith(beginnings[Path(name).suffix])

    (entry,) = ledger(folder)["exact_checks"]
    (row,) = csv.DictReader(io.StringIO((to / "claims.csv").read_text()))
    assert (row["id"], row["verdict"]) == (CLAIM, entry["verdict"])
    numbers = [float(row[name]) for name in ("estimate", "low", "high")]
    assert numbers == [entry["estimate"], *entry["interval"]]
    parts = list(csv.DictReader(io.StringIO((to / "parts.csv").read_text())))
    loaded = attnlens.load(folder, frames="pyarrow").parts.to_pylist()
    assert [float(part["estimate"]) for part in parts] == [part["estimate"] for part in loaded]
    assert (to / "parts.md").read_text().count("\n") == len(parts) + 2
    assert f"{entry['estimate']:.4g}" in (to / "tables.tex").read_text()
    assert ledger(folder)["hash"] in (to / "references.bib").read_text()


def test_equal_runs_give_equal_files(folder: Path, tmp_path: Path):
    for name in ("one", "two"):
        export_run(folder, tmp_path / name, figures=FIGURES, tables=("latex",))
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert one == two


FIGURES = ("pdf", "svg", "png")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--figures", "gif"], "figures must be one of pdf, svg, png; got 'gif'"),
        (["--tables", "html"], "tables must be one of latex, csv, markdown; got 'html'"),
        (["--width", "0"], "width must be between 1 and 20 inches"),
        (["--width", "nan"], "width must be between 1 and 20 inches"),
    ],
)
def test_an_unknown_format_is_refused(folder: Path, tmp_path: Path, options, message: str):
    done = run_command("export", folder, "--to", tmp_path / "paper", *options)
    assert done.returncode == 2
    assert message in one_sentence(done.stderr)
    assert not (tmp_path / "paper").exists()


def test_a_folder_without_a_run_is_refused(folder: Path, tmp_path: Path):
    done = run_command("export", tmp_path, "--to", tmp_path / "paper")
    assert done.returncode == 2
    assert "there are no results" in one_sentence(done.stderr)
    (tmp_path / "file").write_text("")
    done = run_command("export", folder, "--to", tmp_path / "file")
    assert done.returncode == 2
    one_sentence(done.stderr)


def svg_width(record: object, width: float) -> float:
    """The width in inches of the exported figure; SVG states it in points."""
    text = paper_figure(record, "svg", width).decode()  # pyright: ignore[reportArgumentType] (the record comes from a file)
    return float(text[text.index('width="') + 7 :].partition("pt")[0]) / 72


LINES = Figure("T", "x", "y", (Series("a " * 60, (Point(1, 1), Point(10, 2))),))
PLANE = Surface("loss", "x", "y", (0.0, 1.0), (0.0, 1.0), ((0.0, 1.0), (1.0, 2.0)))
HEADS = Map("T", "x", "y", tuple((f"head {i}", ((0.5, 0.5), (0.2, 0.8))) for i in range(4)))


@pytest.mark.parametrize("record", [LINES, PLANE, HEADS], ids=["lines", "surface", "map"])
@pytest.mark.parametrize("width", [3.4, 7.0])
def test_a_figure_has_the_width_of_a_column(record: object, width: float):
    assert svg_width(record, width) == pytest.approx(width, abs=0.01)


HOSTILE = "=cmd|' /C calc'!A0\n\\input{/etc/passwd}%$&_#^~<>\"[1]*--☃≤𝔼²ₙλ"


def test_hostile_text_is_only_text():
    row = {"name": HOSTILE, "value": -1.0}
    assert csv_table([row], ["name", "value"]).splitlines()[1].startswith("\"'=cmd")
    latex = escape_latex(HOSTILE)
    assert "\\input" not in latex.replace("\\textbackslash{}", "")
    assert "\n" not in latex
    assert latex.isascii()
    assert all(latex[i - 1] == "\\" for i, c in enumerate(latex) if c in "%$&#")
    assert "--" not in latex
    markdown = escape_markdown(HOSTILE)
    assert all(markdown[i - 1] == "\\" for i, c in enumerate(markdown) if c in "|<[")


def test_numbers_for_latex():
    values = [0.5, -12345678.0, float("inf"), float("nan")]
    texts = ["0.5", "-1.235e7", r"{$\infty$}", "{--}"]
    assert [latex_number(value) for value in values] == texts


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_document_compiles(folder: Path, tmp_path: Path):
    export_run(folder, tmp_path, figures=["pdf"], tables=["latex"])
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    if shutil.which("bibtex") is not None:
        cited = subprocess.run(["bibtex", "document"], cwd=tmp_path, capture_output=True, text=True)
        assert cited.returncode == 0, cited.stdout
        assert "Warning" not in cited.stdout
        assert ledger(folder)["hash"] in (tmp_path / "document.bbl").read_text()
    claims = attnlens.load(folder, frames="pyarrow").claims.to_pylist()
    parts = attnlens.load(folder, frames="pyarrow").parts.to_pylist()
    for row in claims + parts:
        row["quantity"] = HOSTILE
    (tmp_path / "tables.tex").write_text(latex_tables(claims * 30, parts * 30))
    (tmp_path / "document.tex").write_text(latex_document(HOSTILE, {}, 3.4))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_group_of_the_latex_files_is_closed(folder: Path, tmp_path: Path):
    export_run(folder, tmp_path, figures=["pdf"], tables=["latex"])
    for name in ("tables.tex", "document.tex"):
        text = (tmp_path / name).read_text()
        plain = text.replace("\\{", "").replace("\\}", "")
        assert plain.count("{") == plain.count("}")
        assert text.count("\\begin{") == text.count("\\end{")


def test_loading_and_exporting_need_no_jax(folder: Path, tmp_path: Path):
    check = (
        "import sys; from attnlens.runs.paper import export_run; "
        f"export_run({str(folder)!r}, {str(tmp_path)!r}, tables=['csv']); "
        "print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr
    assert json.loads((folder / "ledger.json").read_text())["hash"]
