"""Checkpoints, data on disk, worker processes and progress: none of them changes the result."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.networks import Baseline, Fitted, Progress, fit
from attnlens.training import checkpoints

MAKE = partial(Baseline, features=4, hidden=3)
random = np.random.default_rng(0)
X = random.normal(size=(32, 4)).astype("float32")
Y = (X[:, :1] * X[:, 1:2]).astype("float32")
SETTINGS = {
    "seeds": (0, 1, 2),
    "samples": (8, 32),
    "batch": 4,
    "steps": 40,
    "every": 10,
    "block": 4,
    "validation": (X[:8], Y[:8]),
}


def equal(first, other) -> None:
    for name in ("vectors", "steps", "best_step", "train", "validation", "test_loss"):
        assert np.array_equal(getattr(first, name), getattr(other, name), equal_nan=True), name
    assert first.status == other.status


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", [1, 3, 6])
def test_an_interrupted_fit_resumes_bit_for_bit(after: int, tmp_path: Path):
    calls = 0

    def interrupt(progress: Progress) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Stop

    with pytest.raises(Stop):
        fit(MAKE, X, Y, checkpoint=tmp_path, progress=interrupt, **SETTINGS)
    reports: list[Progress] = []
    resumed = fit(MAKE, X, Y, checkpoint=tmp_path, progress=reports.append, **SETTINGS)
    equal(resumed, fit(MAKE, X, Y, **SETTINGS))
    # The fit continued from the checkpoint instead of starting again.
    assert reports[0].step + 40 * reports[0].group >= 10 * (after - 1) - 10
    if after < 5:
        assert reports[0].step == 10 * after
    finished = fit(MAKE, X, Y, checkpoint=tmp_path, **SETTINGS)  # no step is left
    equal(resumed, finished)


def test_a_checkpoint_of_other_settings_or_data_is_refused(tmp_path: Path):
    short = {**SETTINGS, "steps": 10, "seeds": (0, 1)}
    fit(MAKE, X, Y, checkpoint=tmp_path, **short)
    for changes in ({"learning_rate": 0.5}, {"seeds": (0, 7)}):
        with pytest.raises(BadInput, match="other settings or data"):
            fit(MAKE, X, Y, checkpoint=tmp_path, **{**short, **changes})
    with pytest.raises(BadInput, match="other settings or data"):
        fit(MAKE, X, Y + 1, checkpoint=tmp_path, **short)
    with pytest.raises(BadInput, match="other settings or data"):
        fit(partial(MAKE, sharpness=4.0), X, Y, checkpoint=tmp_path, **short)
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(BadInput, match="not a readable checkpoint"):
        fit(MAKE, X, Y, checkpoint=tmp_path, **short)


def test_data_on_disk_give_the_same_batches_and_the_same_result(tmp_path: Path):
    np.save(tmp_path / "x.npy", X)
    raw = np.memmap(tmp_path / "y.bin", "float64", "w+", shape=Y.shape)
    raw[:] = Y
    raw.flush()
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    y = np.memmap(tmp_path / "y.bin", "float64", "r", shape=Y.shape)
    from_disk = fit(MAKE, x, y, **SETTINGS)
    in_memory = fit(MAKE, X, Y, **SETTINGS)
    # The batches are the same, in the same order, but another program computes them: rounding may
    # differ by the float32 ε, 1.2e-7, over 40 Adam steps of 0.01.
    np.testing.assert_allclose(from_disk.vectors, in_memory.vectors, rtol=0, atol=40 * 0.01 * 1e-3)
    np.testing.assert_allclose(from_disk.train, in_memory.train, rtol=1e-3)
    with pytest.raises(BadInput, match="need batch="):
        fit(MAKE, x, y, **{**SETTINGS, "batch": None})
    with pytest.raises(BadInput, match="got a slice of one"):
        fit(MAKE, x[:8], y[:8], **{**SETTINGS, "samples": None})


def test_only_the_rows_of_the_batches_are_read(tmp_path: Path):
    # A sparse file of 64 GB, more than the memory: the test can only end if the file is not read
    # completely.
    rows = 2**30
    x = np.memmap(tmp_path / "x", "float32", "w+", shape=(rows, 16))
    y = np.memmap(tmp_path / "y", "float32", "w+", shape=(rows, 1))
    fitted = fit(partial(Baseline, features=16, hidden=2), x, y, batch=4, steps=6, every=3)
    assert fitted.status == ("finished",)
    assert np.isfinite(fitted.vectors).all()


def test_progress_reports_steps_and_the_remaining_time(capsys: pytest.CaptureFixture[str]):
    reports: list[Progress] = []
    fit(MAKE, X, Y, progress=reports.append, **SETTINGS)
    assert [(p.group, p.step) for p in reports] == [
        (group, step) for group in range(2) for step in (0, 10, 20, 30, 40)
    ]
    assert (
        (reports[-1].block, reports[-1].blocks) == (reports[-1].group, reports[-1].groups) == (1, 2)
    )
    assert reports[0].seconds_left is None
    assert reports[-1].seconds_left == 0
    assert all(p.seconds_left > 0 for p in reports[1:-1] if p.seconds_left is not None)
    fit(MAKE, X, Y, progress=True, **SETTINGS)
    assert "fit: group 2 of 2, step 40 of 40, about 0 s left" in capsys.readouterr().err


PROGRAM = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
import numpy as np
from attnlens.networks import Baseline, fit, stationary_points

if __name__ == "__main__":
    workers, out = int(sys.argv[1]), sys.argv[2]
    random = np.random.default_rng(0)
    x = random.normal(size=(32, 4))
    y = x[:, :1] * x[:, 1:2]
    make = partial(Baseline, features=4, hidden=3)
    pool = None
    if workers:
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    map = None if pool is None else pool.map
    fitted = fit(make, x, y, seeds=range(8), batch=8, steps=50, block=2, map=map)
    points = stationary_points(make, x, y, starts=4, l2=1e-3, block=1, map=map)
    np.savez(out, fit=fitted.vectors, curve=fitted.train, points=points.points[0].vector)
"""


@pytest.mark.slow
def test_the_number_of_workers_changes_no_bit(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    results = []
    for workers in (0, 1, 2):
        out = tmp_path / f"{workers}.npz"
        subprocess.run(
            [sys.executable, program, str(workers), out],
            check=True,
            timeout=300,
            env={**os.environ, "NPROC": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        results.append(dict(np.load(out)))
    for other in results[1:]:
        for name, array in results[0].items():
            assert np.array_equal(array, other[name]), name


@pytest.mark.parametrize("writer", ["checkpoint", "fitted"])
def test_simultaneous_writers_with_one_process_id_do_not_disturb_each_other(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Processes in two containers may have equal ids. Just before one writer replaces the file,
    another writes and replaces it; the last one wins."""
    path = tmp_path / "networks.safetensors"
    networks = [fit(MAKE, X, Y, steps=2, seeds=(seed,)) for seed in (0, 1)]
    replace, writers = Path.replace, [1]

    def write(number: int) -> None:
        if writer == "checkpoint":
            checkpoints.save(path, [networks[number].vectors], "mark", number)
        else:
            networks[number].save(path)

    def replace_later(draft: Path, target: Path) -> Path:
        if writers:
            write(writers.pop())
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", replace_later)
    write(0)
    assert list(tmp_path.iterdir()) == [path]
    if writer == "checkpoint":
        found = checkpoints.load(path, "mark")
        assert found is not None
        assert found[1] == 0
        assert np.array_equal(found[0][0], networks[0].vectors)
    else:
        equal(Fitted.load(path), networks[0])
