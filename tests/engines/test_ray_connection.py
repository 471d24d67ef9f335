"""Connecting to Ray: addresses, the environment of processes on nodes, the check of nodes."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from attnlens.attention.native import build
from attnlens.core.cells import Cell
from attnlens.core.checks import BadInput, ResourceError
from attnlens.core.numerical_path import NativeLibrary, NativeStatus, NumericalPath
from attnlens.core.private_files import private_folder
from attnlens.runs.compute import runner_of
from attnlens.runs.engines import ray_cells, ray_connection
from attnlens.runs.engines.base import DEFAULT_LIMITS, ONE_THREAD
from fake_ray import FakeRay
from running import attnlens, one_sentence, toy


def test_a_node_with_other_versions_or_another_source_raises():
    packages = {**ray_connection.versions(), "numpy": "0.1"}
    with pytest.raises(ResourceError, match=r"has numpy .*, the driver has 0\.1: install the same"):
        ray_connection.check_this_node([], packages)
    with pytest.raises(ResourceError, match="another source of tiny_cells:measure"):
        ray_connection.check_this_node(
            [("tiny_cells:measure", "another")], ray_connection.versions()
        )


def test_a_node_on_another_numerical_path_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "second")
    monkeypatch.setattr(build, "status", lambda name: NativeLibrary(name, NativeStatus.NO_COMPILER))
    monkeypatch.setattr(build, "_by_xla", set())
    ray_connection._path_here.cache_clear()
    cells = [
        Cell("T", "prediction", "tiny_cells:measure", {}, (s,), "", path="cholesky=native")
        for s in range(3)
    ]

    def on_the_node(task: int, *arguments: Any) -> Any:
        try:
            return ray_cells.work(*arguments)
        except ResourceError as error:
            failed = FakeRay.exceptions.RayTaskError()
            failed.cause = error
            return failed

    ray = FakeRay(on_the_node)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(ResourceError) as error:
        list(ray_cells.Driver(ray, cells, None, DEFAULT_LIMITS).run())
    assert str(error.value) == (
        "the cluster cannot compute: node second has the numerical path cholesky=XLA (XLA for "
        "cholesky (no C++ compiler)), the driver has cholesky=native: install attnlens-native, "
        "or the same C++ compiler, on every node, or set ATTNLENS_KERNEL=0 where the driver runs."
    )
    ray_connection.check_this_node([], ray_connection.versions(), ["cholesky=XLA", ""])


def test_a_node_with_another_build_of_a_library_is_refused(monkeypatch: pytest.MonkeyPatch):
    here = NativeLibrary("cholesky", NativeStatus.IN_USE, digest="1a")
    monkeypatch.setattr(ray_connection, "_path_here", lambda path: NumericalPath((here,)))
    check = partial(ray_connection.check_this_node, [], ray_connection.versions(), [here.key])
    check({"cholesky": "1a"})
    with pytest.raises(ResourceError, match=r"another build of the native library .*\(2b\)"):
        check({"cholesky": "2b"})


def test_without_ray_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install 'attnlens\[ray\]'"):
        runner_of("ray")


def test_the_cache_folder_of_the_slurm_example_is_private(tmp_path: Path):
    """The cache is a private folder with an unpredictable name in a folder that all users can write
    to, such as /tmp."""
    text = (Path(__file__).parents[2] / "docs" / "examples" / "slurm.sh").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("ATTNLENS_CACHE=")]
    tmp_path.chmod(0o1777)
    script = ["bash", "-euc", f'{line}; echo "$ATTNLENS_CACHE"']
    names = {
        subprocess.run(script, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True)
        .stdout.decode()
        .strip()
        for _ in range(3)
    }
    assert len(names) == 3
    for name in names:
        folder = private_folder(Path(name))
        assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path.resolve(), 0o700)


def test_the_cluster_examples_of_the_documentation_are_well_formed():
    yaml = pytest.importorskip("yaml")
    examples = Path(__file__).parents[2] / "docs" / "examples"
    content = yaml.safe_load((examples / "cluster.yaml").read_text())
    assert content["provider"]["type"] == "local"
    assert subprocess.run(["bash", "-n", examples / "slurm.sh"]).returncode == 0


def test_the_environment_of_processes_on_a_node(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=1")
    environment = ray_connection.environment()
    assert environment["XLA_FLAGS"] == "--xla_backend_optimization_level=1"
    assert {name: environment[name] for name in ONE_THREAD} == ONE_THREAD
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"


def test_an_address_without_the_ray_engine_is_bad_input(tmp_path: Path):
    done = attnlens(*toy("CLAIM", tmp_path / "run", "--address", "127.0.0.1:1"))
    assert done.returncode == 2
    assert "belongs to engine='ray'" in one_sentence(done.stderr)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "127.0.0.1:99999999"])
def test_an_address_without_a_cluster_raises_one_sentence(address: str):
    with pytest.raises(BadInput, match=f"no Ray cluster answers at {address} "):
        ray_connection.check_address(address)


@pytest.mark.parametrize(
    ("address", "there", "same"),
    [
        (None, "127.0.0.1:6379", True),
        ("auto", "127.0.0.1:6379", True),
        ("127.0.0.1:6379", "127.0.0.1:6379", True),
        ("localhost:6379", "127.0.0.1:6379", True),
        ("192.0.2.7:6379", "192.0.2.7:6379", True),
        ("ray://127.0.0.1:10001", "127.0.0.1:6379", True),  # Ray clients use another port
        ("127.0.0.1:6380", "127.0.0.1:6379", False),
        ("192.0.2.8:6379", "192.0.2.7:6379", False),  # addresses that no machine has (RFC 5737)
        ("192.0.2.7:6379", "127.0.0.1:6379", False),
        ("ray://192.0.2.8:10001", "192.0.2.7:6379", False),
        ("nowhere", "127.0.0.1:6379", False),
    ],
)
def test_an_address_must_fit_an_existing_connection(
    monkeypatch: pytest.MonkeyPatch, address: str | None, there: str, same: bool
):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")  # `connect` sets both variables
    monkeypatch.setenv(ray_connection.LOOPBACK, "0")
    ray = FakeRay()
    ray.gcs_address = there
    monkeypatch.setitem(sys.modules, "ray", ray)
    if same:
        assert ray_connection.connect(address, None, None) == (ray, False)
        return
    with pytest.raises(BadInput) as error:
        ray_connection.connect(address, None, None)
    assert str(error.value) == (
        f"address must be that of the cluster which Ray is connected to in this process, {there}; "
        f"got {address}: call `ray.shutdown()` first, or leave out the address."
    )
