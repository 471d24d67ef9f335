"""The Ray engine on a cluster of several nodes: results equal local ones to the last bit, whatever
fails."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ray_cluster import Loopback, needs_ray, on_a_cluster
from results_folders import (
    bits,
    comparable,
    faults,
    fill_the_disk_and_go_on,
    kept,
    kill_points,
    ledger,
    query,
)
from running import ENVIRONMENT, attnlens, start, toy


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    cache = tmp_path_factory.mktemp("cache")
    # With this pause the cells of the claim SLOW take long enough to kill a run in the middle.
    with Loopback(ATTNLENS_CACHE=str(cache), TOY_PAUSE="0.3") as cluster:
        cluster.add()
        cluster.add()
        yield cluster


def on(cluster: Loopback, name: str, out: Path, *more: object) -> list[object]:
    """The command-line arguments that verify a toy claim on the cluster."""
    return toy(name, out, "--engine", "ray", "--address", cluster.address, *more)


class TestOnACluster:
    pytestmark = on_a_cluster

    def test_results_are_equal_to_local_ones_bit_for_bit(self, cluster: Loopback, tmp_path: Path):
        names = ("--claim", "A.cme-is-posterior")
        done = attnlens(*on(cluster, "FAULTLESS", tmp_path / "ray", *names))
        assert done.returncode == 0, done.stderr
        assert attnlens(*toy("FAULTLESS", tmp_path / "local", *names)).returncode == 0
        assert bits(tmp_path / "ray") == bits(tmp_path / "local")
        assert comparable(tmp_path / "ray") == comparable(tmp_path / "local")
        assert faults(tmp_path / "ray") == []

    def test_a_replication_equals_a_local_one(self, cluster: Loopback, tmp_path: Path):
        words = ("replicate", "--times", 2, "--profile", "smoke", "--claim", "toy_claims:FAULTLESS")
        done = attnlens(
            *words, "--out", tmp_path / "ray", "--engine", "ray", "--address", cluster.address
        )
        assert done.returncode == 0, done.stderr
        assert attnlens(*words, "--out", tmp_path / "local").returncode == 0
        assert bits(tmp_path / "ray") == bits(tmp_path / "local")
        one, two = (
            json.loads((tmp_path / name / "replication.json").read_text())
            for name in ("ray", "local")
        )
        assert one["summary"] == two["summary"]
        assert one["hash"] == two["hash"]
        for entry, other in zip(one["claims"], two["claims"], strict=True):
            assert entry | {"seconds": 0.0} == other | {"seconds": 0.0}

    def test_a_worker_uses_one_thread_and_float64(self, cluster: Loopback, tmp_path: Path):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", ONE_THREAD, cluster.address],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        share, double = done.stdout.split()
        assert float(share) <= 1.1
        assert double == "True"

    def test_an_existing_connection_is_used_only_if_the_address_fits(self, cluster: Loopback):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CONNECTED, cluster.address],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        *values, message, connected = done.stdout.splitlines()[-5:]
        assert values == ["[ True]"] * 3
        assert f"is connected to in this process, {cluster.address}; got" in message
        assert connected == "True"

    @pytest.mark.parametrize(("name", "kind"), [("LOSES_WORKER", "died"), ("LOSES_HOST", "died")])
    def test_a_process_killed_during_a_cell_costs_one_retry(
        self, cluster: Loopback, tmp_path: Path, name: str, kind: str
    ):
        marker = str(tmp_path / "marker")
        done = attnlens(*on(cluster, name, tmp_path / "faulty"), TOY_MARKER=marker)
        assert done.returncode == 0, done.stderr
        assert attnlens(*toy(name, tmp_path / "clean"), TOY_MARKER=marker).returncode == 0
        assert [fault for fault, _ in faults(tmp_path / "faulty")] == [kind]
        assert bits(tmp_path / "faulty") == bits(tmp_path / "clean")
        assert comparable(tmp_path / "faulty") == comparable(tmp_path / "clean")
        assert "Faults during the run: 1" in (tmp_path / "faulty" / "report.html").read_text()

    @pytest.mark.parametrize(
        ("name", "options", "kind"),
        [
            ("RAISES", (), "raised"),
            ("HANGS", ("--time-limit", 3), "time limit"),
            ("HOGS", ("--memory-limit", 1.5), "memory"),
        ],
    )
    def test_a_faulty_cell_fails_alone_and_is_listed(
        self, cluster: Loopback, tmp_path: Path, name: str, options: tuple[object, ...], kind: str
    ):
        done = attnlens(*on(cluster, name, tmp_path, *options))
        assert done.returncode == 1, done.stderr
        assert kept(tmp_path) == 22
        assert ledger(tmp_path)["claims"][0]["cells_without_result"] == 2
        assert {fault for fault, _ in faults(tmp_path)} - {"slow"} == {kind}

    def test_nan_is_stored_and_listed(self, cluster: Loopback, tmp_path: Path):
        assert attnlens(*on(cluster, "HALF_NAN", tmp_path)).returncode == 0
        assert kept(tmp_path) == 24
        assert faults(tmp_path) == [("not a number", "NaN in x")] * 2

    def test_a_disk_that_fills_during_a_run_loses_no_committed_cell(
        self, cluster: Loopback, small_disk: Path, tmp_path: Path
    ):
        options = ("--engine", "ray", "--address", cluster.address)
        fill_the_disk_and_go_on(small_disk, tmp_path / "clean", *options)

    def test_a_run_whose_driver_is_killed_can_be_resumed(self, cluster: Loopback, tmp_path: Path):
        process = start(*on(cluster, "SLOW", tmp_path / "killed"))
        deadline = time.monotonic() + 120
        while kept(tmp_path / "killed") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        before = {key for (key,) in query(tmp_path / "killed", "SELECT key FROM cells")}
        assert before
        assert attnlens(*on(cluster, "SLOW", tmp_path / "killed")).returncode == 0
        after = {key for (key,) in query(tmp_path / "killed", "SELECT key FROM cells")}
        assert before <= after
        assert attnlens(*toy("SLOW", tmp_path / "clean")).returncode == 0
        assert comparable(tmp_path / "killed") == comparable(tmp_path / "clean")
        assert [kind for kind, _ in faults(tmp_path / "killed")] == ["stopped"]

    def test_killed_at_20_random_moments_nothing_is_lost(self, cluster: Loopback, tmp_path: Path):
        kill_points(tmp_path, 20, cluster.address, str(cluster.process.pid))


# Each of these tests starts its own cluster, because nodes are lost or slow, or because the cache
# is inspected.


@pytest.mark.slow
@needs_ray
def test_a_killed_node_changes_no_result(tmp_path: Path):
    """The node is killed in the middle of a cell, which it would never finish."""
    begun = tmp_path / "begun"
    cache = str(tmp_path / "cache")
    with Loopback(TINY_PAUSE="0.3", TOY_BEGUN=str(begun), ATTNLENS_CACHE=cache) as cluster:
        lost = cluster.add(TOY_LOST_NODE="1")
        cluster.add()
        process = start(*on(cluster, "LOST_NODE", tmp_path / "faulty"))
        deadline = time.monotonic() + 120
        while not begun.exists() or kept(tmp_path / "faulty") < 4:
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        cluster.kill(lost)
        _, stderr = process.communicate(timeout=240)
        assert process.returncode == 0, stderr
    assert attnlens(*toy("LOST_NODE", tmp_path / "clean")).returncode == 0
    assert bits(tmp_path / "faulty") == bits(tmp_path / "clean")
    assert comparable(tmp_path / "faulty") == comparable(tmp_path / "clean")
    listed = {kind for kind, _ in faults(tmp_path / "faulty")}
    assert listed & {"node lost", "died"}


@pytest.mark.slow
@needs_ray
def test_stragglers_of_a_slow_node_are_copied_to_another(tmp_path: Path):
    environment = {
        "TOY_BEGUN": str(tmp_path / "begun"),
        "ATTNLENS_CACHE": str(tmp_path / "cache"),
    }
    with Loopback(**environment) as cluster:
        cluster.add(TOY_SLOW_NODE="1")
        cluster.add()
        start_time = time.monotonic()
        done = attnlens(*on(cluster, "SLOW_NODE", tmp_path / "faulty"))
        assert done.returncode == 0, done.stderr
        assert time.monotonic() - start_time < 110  # one cell alone takes 120 s on the slow node
    assert attnlens(*toy("SLOW_NODE", tmp_path / "clean")).returncode == 0
    assert bits(tmp_path / "faulty") == bits(tmp_path / "clean")
    assert comparable(tmp_path / "faulty") == comparable(tmp_path / "clean")
    assert "slow" in {kind for kind, _ in faults(tmp_path / "faulty")}


class Compiled(NamedTuple):
    """How many programs a cell compiled, how many it took from the cache, and the id of its
    process."""

    missed: int
    hit: int
    process: int


def compiled(cluster: Loopback, meeting: Path, *seeds: int) -> list[Compiled]:
    """Run one cell per seed at the same time, each in its own process of the cluster, from a new
    driver."""
    meeting.mkdir(exist_ok=True)
    arguments = (cluster.address, meeting, *map(str, seeds))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILES, *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [Compiled(*map(int, line.split())) for line in done.stdout.splitlines()[-len(seeds) :]]


@pytest.mark.slow
@needs_ray
def test_the_workers_of_a_node_share_their_compilation_cache(tmp_path: Path):
    """Cell 1 compiles after cell 0 in another process, and cells 2 and 3 run in two more processes:
    only cell 0 compiles, and the others read the cache."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    cache, meeting = tmp_path / "cache", tmp_path / "meeting"
    cache.symlink_to(folders[0])

    def entries() -> list[str]:
        return sorted(entry.name for entry in cache.glob("*-cache"))

    with Loopback(ATTNLENS_CACHE=str(cache)) as cluster:
        cluster.add(cpus=2)
        first, second = compiled(cluster, meeting, 0, 1)
        programs, stored = first.missed, entries()
        assert programs > 0
        assert len(stored) == programs
        assert first[:2] == (programs, 0)
        assert second[:2] == (0, programs)
        later = compiled(cluster, meeting, 2, 3)
        assert [counts[:2] for counts in later] == [(0, programs)] * 2
        assert entries() == stored
        processes = {counts.process for counts in (first, second, *later)}
        assert len(processes) == 4

        # There is no other cache: with an empty folder everything is compiled again.
        cache.unlink()
        cache.symlink_to(folders[1])
        first, second = compiled(cluster, meeting, 4, 5)
        assert first[:2] == (programs, 0)
        assert second[:2] == (0, programs)


COMPILES = """
import sys
from attnlens.runs.engines import ray_cells
from attnlens.core.cells import Cell

address, folder, *seeds = sys.argv[1:]
cells = [
    Cell("T", "prediction", "toy_claims:compiles", {"folder": folder}, (int(seed),), "")
    for seed in seeds
]
outcomes = {outcome.cell.key: outcome for outcome in ray_cells.run(cells, address=address)}
for cell in cells:
    outcome = outcomes[cell.key]
    assert outcome.values is not None, outcome.failure
    print(*(int(outcome.values[name]) for name in ("missed", "hit", "process")))
"""


@pytest.mark.slow
@needs_ray
def test_the_loss_of_the_drivers_raylet_ends_the_run_with_one_sentence(tmp_path: Path):
    with Loopback(TINY_PAUSE="0.3", ATTNLENS_CACHE=str(tmp_path / "cache")) as cluster:
        cluster.add()
        cluster.add()
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", LOST_RAYLET, cluster.address],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("= ")]
    assert line.startswith("= 0 failed: Ray's raylet on this machine was lost (")


LOST_RAYLET = """
import os, signal, sys
from pathlib import Path
import ray
from attnlens.core.checks import ClusterLost
from attnlens.runs.engines import ray_cells
from attnlens.core.cells import Cell

def raylet() -> int:
    own = ray.get_runtime_context().get_node_id()
    (socket,) = [n["RayletSocketName"] for n in ray.nodes() if n["NodeID"] == own]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\\0")
        except OSError:
            continue  # the process has ended meanwhile
        if command[0].endswith(b"/raylet") and any(socket.encode() in part for part in command):
            return int(process.name)

cells = [
    Cell("T", "prediction", "tiny_cells:measure", {"shift": 0.0}, (seed,), "") for seed in range(60)
]
outcomes = []
try:
    for outcome in ray_cells.run(cells, address=sys.argv[1]):
        outcomes.append(outcome)
        if len(outcomes) == 4:
            os.kill(raylet(), signal.SIGKILL)
except ClusterLost as error:
    print("=", sum(outcome.values is None for outcome in outcomes), "failed:", error)
"""

ONE_THREAD = """
import sys
from attnlens.runs.engines import ray_cells
from attnlens.core.cells import Cell
cell = Cell("T", "prediction", "toy_claims:busy", {}, (0,), "")
(outcome,) = ray_cells.run([cell], address=sys.argv[1])
assert outcome.values is not None, outcome.failure
print(outcome.values["share"], outcome.values["double"])
"""

CONNECTED = """
import socket, sys
import ray
import tiny_cells
from attnlens.core.checks import BadInput
from attnlens.runs.engines import ray_cells
from attnlens.core.cells import Cell

address = sys.argv[1]
port = address.rpartition(":")[2]
ray.init(address, log_to_driver=False)
cell = Cell("T", "prediction", "tiny_cells:measure", {"shift": 0.0}, (3,), "")
here = tiny_cells.measure("prediction", {"shift": 0.0}, (3,))
for same in (address, f"localhost:{port}", None):
    (outcome,) = ray_cells.run([cell], address=same)
    assert outcome.values is not None, outcome.failure
    print(outcome.values["x"] == here["x"])
with socket.create_server(("127.0.0.1", 0)) as other:  # a server that is not this cluster
    try:
        list(ray_cells.run([cell], address="127.0.0.1:%d" % other.getsockname()[1]))
    except BadInput as error:
        print(error)
print(ray.is_initialized())
"""
