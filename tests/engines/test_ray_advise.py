"""`attnlens advise` with its trainings on a cluster: options, output, and trainings that run at the
same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from attnlens.advice.budget import Deadline, Effort
from attnlens.advice.trials import Trial
from attnlens.cli import advise
from attnlens.cli.options import EngineName
from attnlens.core.checks import BadInput
from attnlens.instruments.samples.labelled import labelled
from attnlens.runs.engines.ray_connection import require_ray


@pytest.mark.parametrize("option", [{"address": "127.0.0.1:1"}, {"workers": 2}])
def test_cluster_options_without_the_ray_engine_are_bad_input(
    tmp_path: Path, option: dict[str, Any]
):
    (name,) = option
    with pytest.raises(BadInput, match=f"{name} belongs to engine='ray'"):
        advise.advise(tmp_path / "t.csv", out=tmp_path / "out", **option)
    assert list(tmp_path.iterdir()) == []


def test_output_of_ray_does_not_mix_with_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Ray prints lost nodes to standard output. With `--json` these lines go to standard error,
    because standard output must be JSON."""

    def ask(*_: Any, **__: Any) -> None:
        print("(raylet) a node has been marked dead")
        raise KeyboardInterrupt

    monkeypatch.setattr("attnlens.advice.advise", ask)
    (tmp_path / "t.csv").write_text("x,y\n1,0\n2,1\n3,0\n4,1\n")
    with pytest.raises(typer.Exit):
        advise.advise(tmp_path / "t.csv", target="y", as_json=True, out=tmp_path / "out")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "(raylet)" in printed.err


def test_an_address_without_a_cluster_raises_before_the_file_is_read(tmp_path: Path):
    message = "no Ray cluster answers at 127.0.0.1:1 "
    try:
        require_ray()
    except BadInput:
        message = r"needs the package ray: pip install"
    with pytest.raises(BadInput, match=message):
        advise.advise(
            tmp_path / "t.csv", engine=EngineName.ray, address="127.0.0.1:1", out=tmp_path / "out"
        )
    assert list(tmp_path.iterdir()) == []


def trial(deadline: Deadline | None) -> Trial:
    data = labelled(np.arange(40.0).reshape(20, 2), np.arange(20.0), "regression")
    return Trial.of(data, Effort(20, 4, 2, 1), 20, 1, 0, {}, deadline)


def test_with_a_deadline_trainings_run_at_once_and_without_one_in_order():
    both = threading.Barrier(2, timeout=30)  # passes only if two wait together
    assert sorted(trial(Deadline(60)).at_once([both.wait] * 2)) == [0, 1]
    order: list[int] = []
    trial(None).at_once([partial(order.append, i) for i in range(5)])
    assert order == [*range(5)]


@pytest.mark.parametrize("jobs", [lambda a, b: [a, b], lambda a, b: [b, a]], ids=["a", "b"])
def test_a_failing_training_ends_the_others(jobs: Callable[..., list[Any]]):
    deadline = Deadline(60)

    def fail() -> None:
        raise BadInput("no")

    def go_on() -> None:
        while True:
            time.sleep(0.001)
            deadline()

    with pytest.raises(BadInput, match="no"):
        trial(deadline).at_once(jobs(fail, go_on))
