"""The same cells on a Ray cluster: equal to the last bit, whatever breaks on the way."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from attnlens.checks import BadInput
from attnlens.computing import runner_of
from attnlens.engine import on_ray, ray_connection, ray_tasks
from attnlens.engine.base import ONE_THREAD as ONE_THREAD_EACH
from attnlens.engine.base import Fault, Limits
from attnlens.engine.on_ray import Batch, Driver, Line, own_folder
from attnlens.engine.ray_tasks import Tasks
from attnlens.records import Cell
from ray_cluster import Loopback
from running import ENVIRONMENT, TESTS, attnlens, one_sentence, start, toy
from test_faults import bits, faults, fill_the_disk_and_go_on, kill_points
from test_verify import comparable, kept, ledger, query

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs ray (extra `ray`)"
)
on_a_cluster = [pytest.mark.slow, needs_ray]


def cell(seed: int, letter: str = "a", cost: float = 1.0) -> Cell:
    return Cell("T", "prediction", "tiny_cells:measure", {"l": letter}, (seed,), "", cost)


# -- without a cluster: how batches are made, and what happens to them -----------------------------


def test_batches_are_single_until_measured_then_about_a_second():
    line = Line([cell(seed) for seed in range(10_000)])
    first = line.next(workers=2)
    assert len(first.cells) == 1
    line.pace[first.kind] = 0.01
    assert len(line.next(2).cells) == 100
    line.pace[first.kind] = 1e-9
    assert len(line.next(2).cells) == on_ray.MOST_A_BATCH
    line.pace[first.kind] = 7.0
    assert len(line.next(2).cells) == 1


def test_scheduling_costs_less_than_a_twentieth_of_the_work():
    """Ray needs a few milliseconds a task at most; full batches take `SECONDS_A_BATCH`."""
    milliseconds_a_task = 0.005
    for seconds in (0.0011, 0.01, 0.3, 0.99):
        line = Line([cell(seed) for seed in range(5000)])
        (kind,) = line.kinds
        line.pace[kind] = seconds
        work = seconds * line.size(kind, workers=2)
        assert milliseconds_a_task / work < 0.05


def test_one_driver_can_hand_out_work_to_thirty_thousand_workers():
    line = Line([cell(seed) for seed in range(1)])
    (kind,) = line.kinds
    line.pace[kind] = 1.0
    workers = 32_000
    line.kinds[kind].extend([cell(0)] * (100 * workers))
    seconds = line.size(kind, workers) * line.pace[kind]
    assert workers / seconds <= 1 / on_ray.SECONDS_A_TASK


@pytest.mark.parametrize(
    ("pace", "expected"),
    [
        (0.1, [2, 2, 1, 1, 1, 1, 1, 1, 1, 1]),  # ⌈left / 8⌉: half a worker's share
        (0.001, [3, 3, 2, 1, 1, 1, 1]),  # ⌈left / 4⌉: halves would keep the driver busy
    ],
)
def test_the_last_batches_are_shared_by_all_workers(pace: float, expected: list[int]):
    line = Line([cell(seed) for seed in range(12)])
    (kind,) = line.kinds
    line.pace[kind] = pace
    sizes = []
    while line:
        sizes.append(len(line.next(4).cells))
    assert sizes == expected


def test_kinds_with_the_fewest_batches_under_way_go_first():
    line = Line([cell(0, "a"), cell(1, "a"), cell(2, "b")])
    taken = []
    while line:
        batch = line.next(2)
        line.out[batch.kind] += 1
        taken.append(batch.cells[0].parameters["l"])
    assert taken == ["a", "b", "a"]


class FakeRay:
    """As much of Ray as the driver needs, with tasks that end when the test says so."""

    class exceptions:
        class RayError(Exception): ...

        class RayTaskError(RayError):
            cause: Exception | None = None

        class RuntimeEnvSetupError(RayError): ...

        class NodeDiedError(RayError): ...

        class WorkerCrashedError(RayError): ...

        class LocalRayletDiedError(RayError): ...

    def __init__(self, cpus: int = 2):
        self.cpus, self.count, self.most = cpus, 0, 0
        self.nodes_there, self.idle = 2, 1.0
        self.batches: dict[int, list[Cell]] = {}
        self.results: dict[int, object] = {}
        self.cancelled: list[int] = []
        self.decide: Callable[[int, list[Cell]], object] = lambda task, cells: self.good(cells)

    def good(self, cells: list[Cell]) -> tuple[None, list]:
        return None, [(i, ({}, None, 0.001, ())) for i in range(len(cells))]

    def remote(self, *arguments, **options):
        if options:
            return lambda function: self
        cells, _, _ = arguments
        self.count += 1
        self.batches[self.count] = cells
        self.most = max(self.most, len(self.batches))
        return self.count

    def options(self, **_):
        return self

    def cluster_resources(self):
        return {"CPU": self.cpus}

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 1.0}}] * self.nodes_there

    def available_resources(self):
        return {"CPU": self.idle}

    def is_initialized(self):
        return True

    def wait(self, tasks, num_returns, timeout):
        for task in tasks:
            if task not in self.results:
                result = self.decide(task, self.batches[task])
                if result is not None:
                    self.results[task] = result
        return [task for task in tasks if task in self.results], []

    def get(self, task):
        self.batches.pop(task)
        result = self.results.pop(task)
        if isinstance(result, Exception):
            raise result
        return result

    def cancel(self, task, force):
        self.batches.pop(task, None)
        self.cancelled.append(task)


def ended(ray: FakeRay, cells: list[Cell], workers: int | None = None):
    return list(Driver(ray, cells, workers, Limits()).run())


def test_a_hundred_thousand_cells_never_sit_with_ray_all_at_once():
    ray = FakeRay(cpus=4)
    outcomes = ended(ray, [cell(seed) for seed in range(100_000)])
    assert len({outcome.cell.seeds for outcome in outcomes}) == len(outcomes) == 100_000
    assert ray.most <= ray_tasks.WINDOW * 4
    assert ray.count < 500  # tasks: batches of up to a thousand, not one a cell


def test_fewer_workers_than_cpus_means_fewer_tasks_at_a_time():
    ray = FakeRay(cpus=4)
    ended(ray, [cell(seed) for seed in range(50)], workers=1)
    assert ray.most == 1


def test_a_lost_node_is_noted_once_and_its_batch_computed_again():
    ray = FakeRay()
    lost = ray.exceptions.NodeDiedError()
    ray.decide = lambda task, cells: lost if task == 3 else ray.good(cells)
    outcomes = ended(ray, [cell(seed) for seed in range(50)])
    assert len({outcome.cell.seeds for outcome in outcomes}) == len(outcomes) == 50
    assert [f for o in outcomes for f in o.faults] == [Fault("node lost", "NodeDiedError of Ray")]


def test_what_is_lost_every_time_ends_with_the_reason_and_alone():
    ray, bad = FakeRay(), cell(7)
    lost = ray.exceptions.WorkerCrashedError()
    ray.decide = lambda task, cells: lost if bad in cells else ray.good(cells)
    outcomes = ended(ray, [cell(seed) for seed in range(50)])
    assert len(outcomes) == 50
    (failed,) = [outcome for outcome in outcomes if outcome.values is None]
    assert failed.cell == bad
    assert failed.failure == "WorkerCrashedError of Ray (tried 4 times)"
    # Lost with its batch, with its batch again, and twice alone; nobody else's fault is noted.
    assert [fault.kind for o in outcomes for fault in o.faults] == ["died"] * 4
    assert len(failed.faults) >= 2


@pytest.mark.parametrize("error", [FakeRay.exceptions.LocalRayletDiedError, BrokenPipeError])
def test_a_driver_that_is_cut_off_blames_no_cell(error: type[Exception]):
    """Every later task would fail at once, and every cell that is left with it."""
    ray, outcomes = FakeRay(), []
    ray.decide = lambda task, cells: error() if task > 3 else ray.good(cells)
    run = Driver(ray, [cell(seed) for seed in range(50)], None, Limits()).run()
    with pytest.raises(BadInput, match=r"Ray's raylet on this machine was lost \("):
        outcomes.extend(run)  # which keeps what comes before
    assert outcomes
    assert all(outcome.values is not None for outcome in outcomes)
    assert [f for o in outcomes for f in o.faults] == []


def test_a_straggler_is_started_again_and_the_slower_one_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ray_tasks, "SHORTEST_WAIT", 0.05)
    ray = FakeRay()
    ray.decide = lambda task, cells: None if task == 2 else ray.good(cells)
    outcomes = ended(ray, [cell(seed, cost=0.001) for seed in range(2)])
    assert len({outcome.cell.seeds for outcome in outcomes}) == len(outcomes) == 2
    assert ray.cancelled == [2]
    assert [f.kind for o in outcomes for f in o.faults] == ["slow"]


@pytest.mark.parametrize(("nodes", "idle"), [(1, 1.0), (2, 0.0)])
def test_nothing_is_started_twice_on_one_node_or_without_a_free_cpu(
    monkeypatch: pytest.MonkeyPatch, nodes: int, idle: float
):
    monkeypatch.setattr(ray_tasks, "SHORTEST_WAIT", 0.05)
    ray = FakeRay()
    ray.nodes_there, ray.idle = nodes, idle
    began = time.monotonic()
    ray.decide = lambda task, cells: ray.good(cells) if time.monotonic() - began > 0.3 else None
    outcomes = ended(ray, [cell(seed, cost=0.001) for seed in range(2)])
    assert [f for o in outcomes for f in o.faults] == []
    assert ray.count == 2


def test_what_ended_while_a_result_was_being_kept_is_not_slow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ray_tasks, "SHORTEST_WAIT", 0.05)
    ray = FakeRay()
    ray.decide = lambda task, cells: ray.good(cells) if task == 1 or 1 not in ray.batches else None
    outcomes = []
    for outcome in Driver(ray, [cell(seed, cost=0.001) for seed in range(2)], None, Limits()).run():
        outcomes.append(outcome)
        time.sleep(0.1)  # a slow disk
    assert [f for o in outcomes for f in o.faults] == []
    assert ray.count == len(outcomes) == 2


def test_a_copy_goes_where_most_results_came_from():
    tasks: Tasks[Batch] = Tasks(FakeRay(), None)
    assert tasks._quick_node() is None
    tasks.results.update({"slow": 1, "quick": 9, "other": 8})
    assert [tasks._quick_node() for _ in range(4)] == ["quick", "other", "quick", "other"]


@pytest.mark.parametrize("first", ["copy", "original"])
def test_one_of_two_copies_may_be_lost(monkeypatch: pytest.MonkeyPatch, first: str):
    monkeypatch.setattr(ray_tasks, "SHORTEST_WAIT", 0.05)
    ray, lost = FakeRay(), FakeRay.exceptions.WorkerCrashedError()
    loser = 2 if first == "copy" else 1
    ray.decide = lambda task, cells: (
        None if ray.count < 2 else lost if task == loser
        else ray.good(cells) if loser not in ray.batches else None
    )  # fmt: skip
    (outcome,) = ended(ray, [cell(0, cost=0.001)])
    assert outcome.values is not None
    assert [fault.kind for fault in outcome.faults] == ["slow", "died"]


def test_a_node_with_other_versions_or_another_source_is_refused():
    packages = {**ray_connection.versions(), "numpy": "0.1"}
    with pytest.raises(BadInput, match=r"has numpy .*, the driver has 0\.1: install the same"):
        ray_connection.check_this_node([], packages)
    with pytest.raises(BadInput, match="another source of tiny_cells:measure"):
        ray_connection.check_this_node(
            [("tiny_cells:measure", "another")], ray_connection.versions()
        )


def test_what_a_task_cannot_do_ends_the_run_with_one_sentence():
    ray = FakeRay()
    error = ray.exceptions.RayTaskError()
    error.cause = BadInput("node x has numpy 1, the driver has 2")
    ray.decide = lambda task, cells: error
    with pytest.raises(BadInput, match="cannot compute: node x has numpy 1"):
        ended(ray, [cell(0)])


def test_the_users_own_folder_travels_and_installed_code_does_not():
    inside = Cell("A", "prediction", "attnlens.claims.base:blocks", {}, (0,), "")
    assert own_folder([inside]) is None
    assert own_folder([cell(0), inside]) == TESTS
    assert own_folder([Cell("A", "prediction", "scipy.stats:norm", {}, (0,), "")]) is None


def test_a_batch_knows_what_it_should_take():
    line = Line([])
    batch = Batch([cell(0, cost=2.0), cell(1, cost=2.0)])
    assert line.seconds(batch) == 4.0
    line.pace[batch.kind] = 10.0
    assert line.seconds(batch) == 20.0


def test_without_ray_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install 'attnlens\[ray\]'"):
        runner_of("ray")


def test_the_examples_are_well_formed():
    yaml = pytest.importorskip("yaml")
    examples = TESTS.parent / "docs" / "examples"
    content = yaml.safe_load((examples / "cluster.yaml").read_text())
    assert content["provider"]["type"] == "local"
    assert subprocess.run(["bash", "-n", examples / "slurm.sh"]).returncode == 0


def test_processes_on_a_node_have_one_thread_and_tell_nobody(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=1")
    given = ray_connection.environment()
    assert given["XLA_FLAGS"] == "--xla_backend_optimization_level=1"
    assert {name: given[name] for name in ONE_THREAD_EACH} == ONE_THREAD_EACH
    assert given["RAY_USAGE_STATS_ENABLED"] == "0"


def test_an_address_without_ray_is_bad_input(tmp_path: Path):
    done = attnlens(*toy("CLAIM", tmp_path / "run", "--address", "127.0.0.1:1"))
    assert done.returncode == 2
    assert "belongs to engine='ray'" in one_sentence(done.stderr)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "127.0.0.1:99999999"])
def test_no_cluster_at_an_address_gets_one_sentence(address: str):
    with pytest.raises(BadInput, match=f"no Ray cluster answers at {address} "):
        ray_connection.knock(address)


class Connected:
    """Ray as a user's process has it that called `ray.init` before."""

    def __init__(self, gcs_address: str):
        self.gcs_address = gcs_address

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Connected:
        return self


@pytest.mark.parametrize(
    ("address", "there", "same"),
    [
        (None, "127.0.0.1:6379", True),
        ("auto", "127.0.0.1:6379", True),
        ("127.0.0.1:6379", "127.0.0.1:6379", True),
        ("localhost:6379", "127.0.0.1:6379", True),
        ("192.0.2.7:6379", "192.0.2.7:6379", True),
        ("ray://127.0.0.1:10001", "127.0.0.1:6379", True),  # the port of a client is its own
        ("127.0.0.1:6380", "127.0.0.1:6379", False),
        ("192.0.2.8:6379", "192.0.2.7:6379", False),  # numbers that no machine has (RFC 5737)
        ("192.0.2.7:6379", "127.0.0.1:6379", False),
        ("ray://192.0.2.8:10001", "192.0.2.7:6379", False),
        ("nowhere", "127.0.0.1:6379", False),
    ],
)
def test_an_address_is_heeded_where_ray_is_connected_already(
    monkeypatch: pytest.MonkeyPatch, address: str | None, there: str, same: bool
):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")  # both are set by `connect`
    monkeypatch.setenv(ray_connection.LOOPBACK, "0")
    ray = Connected(there)
    monkeypatch.setitem(sys.modules, "ray", ray)
    if same:
        assert ray_connection.connect(address, None, None) == (ray, False)
        return
    with pytest.raises(BadInput) as refused:
        ray_connection.connect(address, None, None)
    assert str(refused.value) == (
        f"the cluster at {address} was asked for, but Ray is connected to {there} in this process: "
        f"call `ray.shutdown()` first, or leave out the address."
    )


# -- on a cluster of several nodes -----------------------------------------------------------------


@pytest.fixture(autouse=True)
def _on_loopback_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ENVIRONMENT, ray_connection.LOOPBACK, "0")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    cache = tmp_path_factory.mktemp("cache")
    # Cells of SLOW take so long on its nodes that a run of them can be killed in the middle.
    with Loopback(ATTNLENS_CACHE=str(cache), TOY_PAUSE="0.3") as cluster:
        cluster.add()
        cluster.add()
        yield cluster


def on(cluster: Loopback, name: str, out: Path, *more: object) -> list[object]:
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

    def test_workers_are_held_to_one_thread(self, cluster: Loopback, tmp_path: Path):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", ONE_THREAD, cluster.address],
            env=ENVIRONMENT, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        share, double = done.stdout.split()
        assert float(share) <= 1.1
        assert double == "True"

    def test_a_users_own_connection_is_used_only_if_it_leads_there(self, cluster: Loopback):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CONNECTED, cluster.address],
            env=ENVIRONMENT, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        *values, said, still = done.stdout.splitlines()[-5:]
        assert values == ["[ True]"] * 3
        assert f"but Ray is connected to {cluster.address} in this process" in said
        assert still == "True"

    @pytest.mark.parametrize(("name", "kind"), [("LOSES_WORKER", "died"), ("LOSES_HOST", "died")])
    def test_a_process_killed_in_mid_cell(
        self, cluster: Loopback, tmp_path: Path, name: str, kind: str
    ):
        marker = str(tmp_path / "marker")
        done = attnlens(*on(cluster, name, tmp_path / "faulty"), TOY_MARKER=marker)
        assert done.returncode == 0, done.stderr
        assert attnlens(*toy(name, tmp_path / "clean"), TOY_MARKER=marker).returncode == 0
        assert [each for each, _ in faults(tmp_path / "faulty")] == [kind]
        assert bits(tmp_path / "faulty") == bits(tmp_path / "clean")
        assert comparable(tmp_path / "faulty") == comparable(tmp_path / "clean")
        assert "Faults on the way: 1" in (tmp_path / "faulty" / "report.html").read_text()

    @pytest.mark.parametrize(
        ("name", "options", "kind"),
        [
            ("RAISES", (), "raised"),
            ("HANGS", ("--time-limit", 3), "time limit"),
            ("HOGS", ("--memory-limit", 1.5), "memory"),
        ],
    )
    def test_a_faulty_cell_ends_alone_and_is_listed(
        self, cluster: Loopback, tmp_path: Path, name: str, options: tuple[object, ...], kind: str
    ):
        done = attnlens(*on(cluster, name, tmp_path, *options))
        assert done.returncode == 1, done.stderr
        assert kept(tmp_path) == 22
        assert ledger(tmp_path)["claims"][0]["cells_without_result"] == 2
        assert {each for each, _ in faults(tmp_path)} - {"slow"} == {kind}

    def test_numbers_that_are_none_are_kept_and_listed(self, cluster: Loopback, tmp_path: Path):
        assert attnlens(*on(cluster, "HALF_NAN", tmp_path)).returncode == 0
        assert kept(tmp_path) == 24
        assert faults(tmp_path) == [("not a number", "NaN in x")] * 2

    def test_a_disk_that_fills_in_mid_run_loses_nothing_that_was_kept(
        self, cluster: Loopback, small_disk: Path, tmp_path: Path
    ):
        options = ("--engine", "ray", "--address", cluster.address)
        fill_the_disk_and_go_on(small_disk, tmp_path / "clean", *options)

    def test_a_killed_driver_is_followed_by_one_that_ends(self, cluster: Loopback, tmp_path: Path):
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


# Clusters of their own: nodes are lost or slow in them, or their cache is looked at.


@pytest.mark.slow
@needs_ray
def test_a_killed_node_costs_nothing_but_time(tmp_path: Path):
    """The node is in the middle of a cell when it is killed: it would never end it."""
    begun = tmp_path / "begun"
    told = {"TINY_PAUSE": "0.3", "TOY_BEGUN": str(begun), "ATTNLENS_CACHE": str(tmp_path / "cache")}
    with Loopback(**told) as cluster:
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
def test_a_slow_node_is_overtaken(tmp_path: Path):
    told = {"TOY_BEGUN": str(tmp_path / "begun"), "ATTNLENS_CACHE": str(tmp_path / "cache")}
    with Loopback(**told) as cluster:
        cluster.add(TOY_SLOW_NODE="1")
        cluster.add()
        began = time.monotonic()
        done = attnlens(*on(cluster, "SLOW_NODE", tmp_path / "faulty"))
        assert done.returncode == 0, done.stderr
        assert time.monotonic() - began < 110  # one cell alone takes 120 s on the slow node
    assert attnlens(*toy("SLOW_NODE", tmp_path / "clean")).returncode == 0
    assert bits(tmp_path / "faulty") == bits(tmp_path / "clean")
    assert comparable(tmp_path / "faulty") == comparable(tmp_path / "clean")
    assert "slow" in {kind for kind, _ in faults(tmp_path / "faulty")}


class Compiled(NamedTuple):
    """What a cell that compiles tells: programs compiled, taken from the cache, and its process."""

    missed: int
    hit: int
    process: int


def compiled(cluster: Loopback, meeting: Path, *seeds: int) -> list[Compiled]:
    """Two cells at the same time, in two processes of the cluster, asked for by a new driver."""
    meeting.mkdir(exist_ok=True)
    asked = (cluster.address, meeting, *map(str, seeds))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILES, *asked],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Compiled(*map(int, line.split())) for line in done.stdout.splitlines()[-len(seeds) :]]


@pytest.mark.slow
@needs_ray
def test_the_workers_of_a_node_share_what_they_have_compiled(tmp_path: Path):
    """Cell 1 compiles after cell 0 has, in another process; cells 2 and 3 are other processes'."""
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
        programs, kept_there = first.missed, entries()
        assert programs > 0
        assert len(kept_there) == programs
        assert first[:2] == (programs, 0)
        assert second[:2] == (0, programs)
        later = compiled(cluster, meeting, 2, 3)
        assert [each[:2] for each in later] == [(0, programs)] * 2
        assert entries() == kept_there
        processes = {each.process for each in (first, second, *later)}
        assert len(processes) == 4

        # Nothing is taken from anywhere else: with an empty folder it is compiled again.
        cache.unlink()
        cache.symlink_to(folders[1])
        first, second = compiled(cluster, meeting, 4, 5)
        assert first[:2] == (programs, 0)
        assert second[:2] == (0, programs)


COMPILES = """
import sys
from attnlens.engine import on_ray
from attnlens.records import Cell

address, folder, *seeds = sys.argv[1:]
cells = [
    Cell("T", "prediction", "toy_claims:compiles", {"folder": folder}, (int(seed),), "")
    for seed in seeds
]
outcomes = {outcome.cell.key: outcome for outcome in on_ray.run(cells, address=address)}
for cell in cells:
    outcome = outcomes[cell.key]
    assert outcome.values is not None, outcome.failure
    print(*(int(outcome.values[name]) for name in ("missed", "hit", "process")))
"""


@pytest.mark.slow
@needs_ray
def test_a_driver_whose_raylet_is_lost_ends_with_one_sentence(tmp_path: Path):
    with Loopback(TINY_PAUSE="0.3", ATTNLENS_CACHE=str(tmp_path / "cache")) as cluster:
        cluster.add()
        cluster.add()
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CUT_OFF, cluster.address],
            env=ENVIRONMENT, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("= ")]
    assert line.startswith("= 0 failed: Ray's raylet on this machine was lost (")


CUT_OFF = """
import os, signal, sys
from pathlib import Path
import ray
from attnlens.checks import BadInput
from attnlens.engine import on_ray
from attnlens.records import Cell

def raylet() -> int:
    own = ray.get_runtime_context().get_node_id()
    (socket,) = [n["RayletSocketName"] for n in ray.nodes() if n["NodeID"] == own]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\\0")
        except OSError:
            continue  # it has ended meanwhile
        if command[0].endswith(b"/raylet") and any(socket.encode() in each for each in command):
            return int(process.name)

cells = [
    Cell("T", "prediction", "tiny_cells:measure", {"shift": 0.0}, (seed,), "") for seed in range(60)
]
ended = []
try:
    for outcome in on_ray.run(cells, address=sys.argv[1]):
        ended.append(outcome)
        if len(ended) == 4:
            os.kill(raylet(), signal.SIGKILL)
except BadInput as refused:
    print("=", sum(outcome.values is None for outcome in ended), "failed:", refused)
"""

ONE_THREAD = """
import sys
from attnlens.engine import on_ray, ray_connection, ray_tasks
from attnlens.records import Cell
cell = Cell("T", "prediction", "toy_claims:busy", {}, (0,), "")
(outcome,) = on_ray.run([cell], address=sys.argv[1])
assert outcome.values is not None, outcome.failure
print(outcome.values["share"], outcome.values["double"])
"""

CONNECTED = """
import socket, sys
import ray
import tiny_cells
from attnlens.checks import BadInput
from attnlens.engine import on_ray
from attnlens.records import Cell

address = sys.argv[1]
port = address.rpartition(":")[2]
ray.init(address, log_to_driver=False)
cell = Cell("T", "prediction", "tiny_cells:measure", {"shift": 0.0}, (3,), "")
here = tiny_cells.measure("prediction", {"shift": 0.0}, (3,))
for same in (address, f"localhost:{port}", None):
    (outcome,) = on_ray.run([cell], address=same)
    assert outcome.values is not None, outcome.failure
    print(outcome.values["x"] == here["x"])
with socket.create_server(("127.0.0.1", 0)) as other:  # somebody listens, but not this cluster
    try:
        list(on_ray.run([cell], address="127.0.0.1:%d" % other.getsockname()[1]))
    except BadInput as refused:
        print(refused)
print(ray.is_initialized())
"""
