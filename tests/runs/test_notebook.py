"""In a real notebook, a run shows a progress bar and its results are displayed."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat

from attnlens.core.notebook import in_notebook, notebook_line

CELLS = (
    "import attnlens",
    "ledger = attnlens.verify('smoke', ['A.weights-are-posterior'], 'run', workers=1)",
    "attnlens.load('run')",
    "attnlens.exchangeability([[[0.1], [0.4], [0.2], [0.9]]] * 4, permutations=19)",
    "from sklearn.linear_model import LinearRegression as Line; rows = [[x] for x in range(60)]\n"
    "given = {'models': {'line': Line()}, 'sizes': (8, 16), 'folds': 3}\n"
    "attnlens.learning_curve(rows, range(60), n_jobs=1, **given)\n"
    "attnlens.learning_curve(rows, range(60), **given)",
    "import numpy as np; from functools import partial; from attnlens import networks\n"
    "make = partial(networks.Baseline, features=1, hidden=1)\n"
    "x = np.linspace(-1, 1, 20)[:, None]\n"
    "fits = [networks.fit(make, x, x, seeds=(0, 1), steps=20, block=1, progress=progress)\n"
    "        for progress in (None, False)]\n"
    "assert (fits[0].vectors == fits[1].vectors).all()",
    "networks.stationary_points(make, x, x, l2=1e-3, starts=4, block=2);",
    "attnlens.landscape((np.ones(2), lambda w: (w**2).sum()), points=5);",
    "z = np.random.default_rng(0).normal(size=(200, 3))\n"
    "attnlens.transfer(z, z[:, :2], z[:, 2], resamples=24);",
)


def displayed(cell: dict, kind: str) -> str:
    return "".join("".join(out.get("data", {}).get(kind, "")) for out in cell["outputs"])


def test_a_notebook_shows_progress_and_results(tmp_path: Path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    _, run, loaded, reading, curves, *last = notebook.cells
    bar = displayed(run, "text/html")
    assert '<progress max="1" value="1">' in bar  # one bar, updated in place: its last state
    assert bar.count("<progress") == 1
    assert "<td>A.weights-are-posterior</td>" in displayed(loaded, "text/html")
    assert "<table>" in displayed(reading, "text/html")
    shown = displayed(curves, "text/html")
    assert shown.count("6 of 6 trainings: line with 16 rows") == 1
    assert shown.count("1 of 1 models") == 1
    assert "<table>" in shown
    assert "<svg" in shown
    finished = ("40 of 40 training steps", "2 of 2 groups of starts", "2 of 2 meas", "2 of 2 steps")
    for cell, words in zip(last, finished, strict=True):
        bar = displayed(cell, "text/html")
        assert bar.startswith(f'<progress max="1" value="1"></progress> {words}')
        assert bar.count("<progress") == 1


def test_outside_a_notebook_nothing_is_shown():
    assert not in_notebook()
    assert notebook_line(None) is None
    assert notebook_line(print) is print
