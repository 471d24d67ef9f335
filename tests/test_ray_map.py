"""Blocks of networks on a Ray cluster: the same answers, and every data set shipped once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import typer

from attnlens.checks import BadInput
from attnlens.commands import advising
from attnlens.commands.engines import EngineName
from attnlens.computing import map_of
from attnlens.engine import blocks_on_ray, ray_tasks
from attnlens.engine.base import ONE_THREAD
from attnlens.engine.blocks_on_ray import SMALL, RayMap, Shelf, Shipped, unpacked
from attnlens.engine.ray_connection import need_ray
from attnlens.instruments.labelled import labelled
from attnlens.practice.budget import Deadline, Effort
from attnlens.practice.trials import Trial
from ray_cluster import Loopback
from running import ENVIRONMENT, TESTS
from test_ray import _on_loopback_only as _on_loopback_only
from test_ray import needs_ray


class Block(NamedTuple):
    number: int
    data: tuple[np.ndarray, dict[str, np.ndarray]]


def total(block: Block) -> float:
    inputs, targets = block.data
    return block.number + float(inputs.sum()) + float(targets["y"].sum())


class FakeRay:
    """As much of Ray as the map needs. Tasks end in the order that `first` says: the newest."""

    class exceptions:
        class RayError(Exception): ...

        class RayTaskError(RayError):
            cause: Exception | None = None

        class RuntimeEnvSetupError(RayError): ...

        class NodeDiedError(RayError): ...

    def __init__(self, cpus: int = 2):
        self.cpus, self.store, self.most = cpus, dict[int, Any](), 0
        self.tasks: dict[int, Callable[[], Any]] = {}
        self.cancelled: list[int] = []
        self.number, self.nodes_there = 0, 2

    def put(self, array: np.ndarray) -> int:
        self.store[len(self.store)] = array
        return len(self.store) - 1

    def remote(self, *arguments, **options):
        if options:
            return lambda function: self
        function, block, *_ = arguments
        self.number += 1
        fetch = lambda references: [self.store[reference] for reference in references]  # noqa: E731
        self.tasks[self.number] = lambda: (None, function(unpacked(block, fetch)))
        self.most = max(self.most, len(self.tasks))
        return self.number

    def cluster_resources(self):
        return {"CPU": self.cpus}

    def wait(self, tasks, num_returns, timeout):
        return [max(tasks)], []

    def get(self, task):
        return self.tasks.pop(task)()

    def cancel(self, task, force):
        self.tasks.pop(task)
        self.cancelled.append(task)

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": 1.0}}] * self.nodes_there

    def available_resources(self):
        return {"CPU": 1.0}

    def is_initialized(self):
        return True

    def options(self, **_):
        return self


@pytest.fixture
def on_fake(monkeypatch: pytest.MonkeyPatch) -> RayMap:
    monkeypatch.setattr(blocks_on_ray, "need_ray", lambda: None)
    made = RayMap()
    made.use(FakeRay())
    return made


LARGE = np.arange(SMALL // 8 + 1, dtype=float)


def blocks(count: int) -> list[Block]:
    """Two data sets, both in every block, and targets that are small."""
    inputs = np.stack([LARGE, -2 * LARGE])
    return [Block(i, (inputs.copy(), {"y": np.ones(3)})) for i in range(count)]


@pytest.mark.parametrize("count", [1, 7, 40])
def test_a_data_set_is_put_once_whatever_the_number_of_tasks(on_fake: RayMap, count: int):
    work = blocks(count)
    assert list(on_fake(total, work)) == [total(block) for block in work]
    assert len(on_fake.ray.store) == 2
    list(on_fake(total, blocks(3)))  # another fit on the same data
    assert len(on_fake.ray.store) == 2
    assert on_fake.ray.most <= 4, "the window: two blocks a CPU"


def test_what_differs_in_one_number_or_in_shape_is_another_data_set():
    store: list[np.ndarray] = []
    shelf = Shelf(store.append)
    other = LARGE.copy()
    other[-1] += 1
    for array in (LARGE, other, LARGE[:, None], LARGE.astype("<i8"), LARGE.copy()):
        shelf.reference(array)
    assert len(store) == 4


def test_what_was_not_asked_for_longest_makes_room():
    store: list[np.ndarray] = []
    shelf = Shelf(store.append, room=2 * LARGE.nbytes)
    for factor in (1, 2, 1, 3, 1, 2):  # 2 goes when 3 comes
        shelf.reference(factor * LARGE)
    assert [array[1] for array in store] == [1, 2, 3, 2]
    assert shelf.size == 2 * LARGE.nbytes


@pytest.mark.parametrize(
    ("array", "parts"),
    [
        (LARGE, 1),
        (LARGE[None], 1),
        (np.stack([LARGE, LARGE, 2 * LARGE]), 3),
        (np.ones((SMALL, 2)), 1),  # its rows are small: it goes as a whole
        (np.asfortranarray(np.stack([LARGE, 3 * LARGE])), 2),
        (np.ones(3), 0),
        (np.float64(2.0), 0),
    ],
    ids=["vector", "one set", "three sets", "rows", "by columns", "small", "number"],
)
def test_arrays_come_out_as_they_went_in(array: Any, parts: int):
    store: list[np.ndarray] = []
    shelf = Shelf(lambda each: store.append(each) or len(store) - 1)
    packed = shelf.packed({"a": [array, (1, None)]})
    inside = packed["a"][0]
    assert (len(inside.parts) if isinstance(inside, Shipped) else 0) == parts
    back = unpacked(packed, lambda places: [store[i] for i in places])
    assert back["a"][1] == (1, None)
    assert back["a"][0].dtype == array.dtype
    np.testing.assert_array_equal(back["a"][0], array)


def test_when_the_time_is_up_the_rest_is_stopped(on_fake: RayMap):
    looked = []

    def check() -> None:
        looked.append(1)
        if len(looked) == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        list(on_fake(total, blocks(9), check=check))
    # Four were with Ray and one ended, which made room for a fifth.
    assert on_fake.ray.number == 5
    assert len(on_fake.ray.cancelled) == 4


def test_threads_share_the_window(on_fake: RayMap):
    def give_up() -> None:
        raise TimeoutError

    on_fake.out = 4  # of other threads; one of its own a call may have at any time
    with pytest.raises(TimeoutError):
        list(on_fake(total, blocks(9), check=give_up))
    assert (on_fake.ray.number, on_fake.out) == (1, 4)
    on_fake.out = 3
    assert len(list(on_fake(total, blocks(9)))) == 9
    assert (on_fake.ray.most, on_fake.out) == (1, 3)


def test_a_block_that_cannot_be_trained_gives_one_sentence(on_fake: RayMap):
    def fail(block: Block) -> None:
        error = FakeRay.exceptions.RayTaskError()
        error.cause = BadInput("node x has numpy 1\nand more")
        raise error

    with pytest.raises(BadInput, match=r"^the cluster cannot compute: node x has numpy 1$"):
        list(on_fake(fail, blocks(1)))


def test_a_lost_block_is_computed_again_and_the_loss_is_noted(on_fake: RayMap):
    left = [3, 1]  # so often blocks 0 and 1 are lost

    def lost(block: Block) -> int:
        if block.number < 2 and left[block.number]:
            left[block.number] -= 1
            raise FakeRay.exceptions.NodeDiedError
        return block.number

    assert list(on_fake(lost, blocks(5))) == [*range(5)]
    assert on_fake.faults == [("node lost", "NodeDiedError of Ray")] * 4
    assert on_fake.out == 0


def test_a_block_that_is_lost_every_time_gives_one_sentence(on_fake: RayMap):
    def lost(block: Block) -> None:
        raise FakeRay.exceptions.RayError

    with pytest.raises(BadInput, match=r"^a block of networks was lost 4 times \(RayError of Ray"):
        list(on_fake(lost, blocks(2)))
    assert on_fake.out == 0


def test_a_slow_block_is_started_again_and_what_ends_first_counts(
    on_fake: RayMap, monkeypatch: pytest.MonkeyPatch
):
    """Task 1 never ends; the fake lets the newest end first, so the copy of it does."""
    monkeypatch.setattr(ray_tasks, "SHORTEST_WAIT", 0.05)
    ray = on_fake.ray
    monkeypatch.setattr(ray, "wait", lambda tasks, num_returns, timeout: (
        [max(tasks)] if max(tasks) > 1 else time.sleep(0.01) or [], []))  # fmt: skip
    assert list(on_fake(total, blocks(2))) == [total(block) for block in blocks(2)]
    assert [fault.kind for fault in on_fake.faults] == ["slow"]
    assert ray.cancelled == [1]


def test_what_a_sick_node_cannot_do_is_tried_again(on_fake: RayMap):
    left = [1]

    def sick(block: Block) -> int:
        if left:
            left.pop()
            error = FakeRay.exceptions.RayTaskError()
            error.cause = OSError("no space left on device")
            raise error
        return block.number

    assert list(on_fake(sick, blocks(3))) == [0, 1, 2]
    assert on_fake.faults == [("raised", "OSError: no space left on device")]


def hung(monkeypatch: pytest.MonkeyPatch, on_fake: RayMap, *tasks: int) -> None:
    """These tasks of the fake never end."""
    ray = on_fake.ray

    def wait(pending: list[int], num_returns: int, timeout: float) -> tuple[list[int], list[int]]:
        others = [task for task in pending if task not in tasks]
        if not others:
            time.sleep(0.005)
        return others[-1:], []

    monkeypatch.setattr(ray, "wait", wait)


def test_a_block_that_hangs_ends_with_one_sentence(
    on_fake: RayMap, monkeypatch: pytest.MonkeyPatch
):
    hung(monkeypatch, on_fake, 2)
    on_fake.time_limit = 0.05
    results, ray = on_fake(total, blocks(3)), on_fake.ray
    assert next(results) == total(blocks(1)[0])
    said = r"^a block of networks gave no answer within its limit of 0\.05 s: look at the nodes, "
    with pytest.raises(BadInput, match=said):
        next(results)
    assert ray.cancelled == [2]
    assert [fault.kind for fault in on_fake.faults] == ["time limit"]
    assert on_fake.out == 0


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf")])
def test_a_time_limit_is_a_time(monkeypatch: pytest.MonkeyPatch, seconds: float):
    monkeypatch.setattr(blocks_on_ray, "need_ray", lambda: None)
    with pytest.raises(BadInput, match="time_limit must be a finite number above 0"):
        RayMap(time_limit=seconds)


@pytest.mark.parametrize(
    ("longest", "allowed"), [(200.0, 20_000.0), (1.0, 1800.0), (60.0, 6000.0)], ids=str
)
def test_by_default_no_honest_block_is_stopped(on_fake: RayMap, longest: float, allowed: float):
    """Half an hour at least, and a hundred times what was measured; 200 s is "not yet measured"."""
    tasks: ray_tasks.Tasks[Any] = ray_tasks.Tasks(on_fake.ray, on_fake.task)
    block = blocks_on_ray.Block(0, total, blocks(1)[0])
    tasks.send(block)
    for wait, late in ((allowed - 1, False), (allowed + 1, True)):
        block.began = time.monotonic() - wait
        if late:
            with pytest.raises(BadInput, match=f"its limit of {allowed:g} s"):
                on_fake._stop_if_late(tasks, longest)
        else:
            on_fake._stop_if_late(tasks, longest)
    on_fake.heard = time.monotonic()  # it may have waited for a CPU until now
    on_fake._stop_if_late(tasks, longest)


def test_results_that_waited_to_be_asked_for_are_not_late(
    on_fake: RayMap, monkeypatch: pytest.MonkeyPatch
):
    """All have ended when somebody asks for the second: none is started again, none stopped."""
    monkeypatch.setattr(ray_tasks, "SHORTEST_WAIT", 0.05)
    monkeypatch.setattr(on_fake.ray, "wait", lambda tasks, num_returns, timeout: ([min(tasks)], []))
    on_fake.time_limit = 0.05
    results = on_fake(total, blocks(4))
    got = [next(results)]
    time.sleep(0.1)
    assert [*got, *results] == [total(block) for block in blocks(4)]
    assert on_fake.ray.number == 4
    assert on_fake.faults == []


def test_faults_are_noted_also_where_the_time_is_up_before_they_are_made_good(on_fake: RayMap):
    looks = []

    def check() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise TimeoutError

    def lost(block: Block) -> None:
        raise FakeRay.exceptions.NodeDiedError

    with pytest.raises(TimeoutError):
        list(on_fake(lost, blocks(1), check=check))
    assert [fault.kind for fault in on_fake.faults] == ["node lost"] * 2


def test_two_calls_in_one_thread_do_not_wait_for_each_other(on_fake: RayMap):
    pairs = zip(on_fake(total, blocks(9)), on_fake(total, blocks(9)), strict=True)
    assert all(one == other for one, other in pairs)


def test_data_that_do_not_fit_the_object_store_get_one_sentence(on_fake: RayMap):
    def full(array: np.ndarray) -> None:
        raise FakeRay.exceptions.RayError

    on_fake.shelf.put = full
    with pytest.raises(BadInput, match=r"^the data do not fit Ray's object store"):
        list(on_fake(total, blocks(1)))
    assert on_fake.out == 0


def test_results_that_nobody_takes_are_stopped_with_the_map(
    on_fake: RayMap, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(on_fake.ray, "wait", lambda tasks, num_returns, timeout: ([min(tasks)], []))
    results = on_fake(total, blocks(9))
    next(results)
    ray = on_fake.ray
    on_fake.__exit__()
    assert sorted(ray.cancelled) == sorted(on_fake.live[0].pending)
    assert len(ray.cancelled) == 3


def test_a_map_is_connected_inside_with_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blocks_on_ray, "need_ray", lambda: None)
    with pytest.raises(BadInput, match="inside `with RayMap"):
        list(RayMap()(total, blocks(1)))


@pytest.mark.parametrize("option", [{"address": "127.0.0.1:1"}, {"workers": 2}])
def test_options_of_a_cluster_without_one_are_bad_input(tmp_path: Path, option: dict[str, Any]):
    (name,) = option
    with pytest.raises(BadInput, match=f"{name} belongs to engine='ray'"):
        advising.advise(tmp_path / "t.csv", out=tmp_path / "out", **option)
    assert list(tmp_path.iterdir()) == []


def test_what_ray_prints_does_not_mix_with_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """It tells of lost nodes on standard output, where `--json` puts what a program reads."""

    def ask(*_: Any, **__: Any) -> None:
        print("(raylet) a node has been marked dead")
        raise KeyboardInterrupt

    monkeypatch.setattr("attnlens.practice.advise", ask)
    (tmp_path / "t.csv").write_text("x,y\n1,0\n2,1\n3,0\n4,1\n")
    with pytest.raises(typer.Exit):
        advising.advise(tmp_path / "t.csv", target="y", as_json=True, out=tmp_path / "out")
    told = capsys.readouterr()
    assert told.out == ""
    assert "(raylet)" in told.err


def test_no_cluster_at_an_address_is_told_before_the_file_is_read(tmp_path: Path):
    said = "no Ray cluster answers at 127.0.0.1:1 "
    try:
        need_ray()
    except BadInput:
        said = r"needs the package ray: pip install"
    with pytest.raises(BadInput, match=said):
        advising.advise(
            tmp_path / "t.csv", engine=EngineName.ray, address="127.0.0.1:1", out=tmp_path / "out"
        )
    assert list(tmp_path.iterdir()) == []


def trial(deadline: Deadline | None) -> Trial:
    data = labelled(np.arange(40.0).reshape(20, 2), np.arange(20.0), "regression")
    return Trial.of(data, Effort(20, 4, 2, 1), 20, 1, 0, {}, deadline)


def test_where_others_train_trainings_are_under_way_together():
    both = threading.Barrier(2, timeout=30)  # passed only by two that wait at the same time
    assert sorted(trial(Deadline(60)).at_once([both.wait] * 2)) == [0, 1]
    order: list[int] = []
    trial(None).at_once([partial(order.append, i) for i in range(5)])
    assert order == [*range(5)]


@pytest.mark.parametrize("jobs", [lambda a, b: [a, b], lambda a, b: [b, a]], ids=["a", "b"])
def test_one_training_that_fails_ends_the_others(jobs: Callable[..., list[Any]]):
    deadline = Deadline(60)

    def fail() -> None:
        raise BadInput("no")

    def go_on() -> None:
        while True:
            time.sleep(0.001)
            deadline()

    with pytest.raises(BadInput, match="no"):
        trial(deadline).at_once(jobs(fail, go_on))


def test_engines_have_names():
    with pytest.raises(BadInput, match="engine must be"):
        map_of("cloud")  # pyright: ignore[reportArgumentType]


# -- on a cluster of several nodes -----------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(ATTNLENS_CACHE=str(tmp_path_factory.mktemp("cache"))) as cluster:
        cluster.add()
        cluster.add()
        yield cluster


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A program of a user, with as many threads as a user's process has."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)],
        env={k: v for k, v in ENVIRONMENT.items() if k not in ONE_THREAD}, cwd=TESTS,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def answer(process: subprocess.Popen[str]) -> Any:
    """What a program prints after "= ", as JSON; Ray prints lines of its own."""
    try:
        stdout, stderr = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, stderr
    (line,) = [line for line in stdout.splitlines() if line.startswith("= ")]
    return json.loads(line[2:])


def await_file(file: Path, process: subprocess.Popen[str]) -> None:
    """Until the process, which runs, has made it."""
    deadline = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def told(program: str, *arguments: object) -> Any:
    return answer(started(program, *arguments))


ADVISE = """
import contextlib, json, sys
import numpy as np
from attnlens.computing import map_of

address = sys.argv[1] if len(sys.argv) > 1 else None
with map_of("ray" if address else "local", address) as map:
    puts = []
    if map is not None:
        put = map.shelf.put
        map.shelf.put = lambda array: puts.append(array.nbytes) or put(array)
    import attnlens
    from attnlens.practice.budget import Effort

    random = np.random.default_rng(0)
    X = random.normal(size=(16_000, 2))  # 12,000 rows a fold, over 100 kB
    y = X[:, 0] * X[:, 1]
    effort = Effort(rows=16_000, folds=4, sizes=4, steps=40)
    sheet = attnlens.advise(
        (X, y), hidden=4, rounds=[effort], budget=3600, training={"block": 4}, map=map
    )
    curves = [[[p.y for p in s.points] for s in f.series] for f in sheet.figures[:2]]
    print("=", json.dumps({"sheet": sheet.plain(), "curves": curves, "puts": len(puts)}))
"""

TWICE = """
import json, sys
from attnlens.computing import map_of
import tiny_cells
with map_of("ray", sys.argv[1]) as map:
    found = list(map(tiny_cells.block_dies_once, [[sys.argv[2], i] for i in range(6)]))
    print("=", json.dumps([found, map.faults]))
"""

COMPILES = """
import json, sys
from attnlens.computing import map_of
import toy_claims
with map_of("ray", sys.argv[1]) as map:
    told = list(map(toy_claims.block_compiles, range(4)))
    print("=", json.dumps([[int(each[name]) for each in told] for name in ("missed", "hit")]))
"""

HUNG = """
import json, sys, time
import ray
import tiny_cells
from attnlens.checks import BadInput
from attnlens.engine.blocks_on_ray import RayMap

address, marker = sys.argv[1:]
ray.init(address, log_to_driver=False)  # a user's own: it outlives the first map
with RayMap(address, time_limit=8) as map:
    began = time.monotonic()
    try:
        list(map(tiny_cells.block_hangs, range(4)))
    except BadInput as refused:
        said = str(refused)
    waited, faults = time.monotonic() - began, map.faults
with RayMap(address) as map:
    found = list(map(tiny_cells.block_dies_once, [[marker, i] for i in (0, 1, 2, 4)]))
print("=", json.dumps([said, waited, faults, found]))
"""


@needs_ray
@pytest.mark.slow
class TestOnACluster:
    def test_advice_is_equal_to_the_local_one_to_the_last_bit(self, cluster: Loopback):
        here, there = told(ADVISE), told(ADVISE, cluster.address)
        assert there["sheet"] == here["sheet"]
        assert there["curves"] == here["curves"]
        assert (here["puts"], there["puts"] > 0) == (0, True)

    def test_a_block_whose_process_dies_is_computed_again(self, cluster: Loopback, tmp_path: Path):
        marker = tmp_path / "marker"
        found, faults = told(TWICE, cluster.address, marker)
        assert found == [i * i for i in range(6)]
        assert marker.exists()
        assert [kind for kind, _ in faults] == ["died"]

    def test_what_was_compiled_for_a_block_is_there_for_the_next_driver(self, cluster: Loopback):
        missed, _ = told(COMPILES, cluster.address)
        assert sum(missed) > 0
        missed, hit = told(COMPILES, cluster.address)
        assert missed == [0] * 4
        assert min(hit) > 0

    def test_blocks_that_hang_are_stopped_and_make_room(self, cluster: Loopback, tmp_path: Path):
        """Both CPUs hang. Were they not freed, the blocks that come next would wait for an hour."""
        said, waited, faults, found = told(HUNG, cluster.address, tmp_path / "marker")
        assert said.startswith("a block of networks gave no answer within its limit of 8 s: look")
        assert 8 <= waited < 60
        assert [kind for kind, _ in faults] == ["time limit"]
        assert found == [0, 1, 4, 16]


FIT = """
import hashlib, json, sys
from functools import partial
from pathlib import Path
import numpy as np
from attnlens.computing import map_of
from attnlens.networks import Baseline, fit
import tiny_cells

address, marker, connected = sys.argv[1:] or (None, None, None)
inputs = np.random.default_rng(0).normal(size=(20_000, 2))  # 160 kB: through the object store
targets = inputs[:, :1] * inputs[:, 1:]
with map_of("ray" if address else "local", address) as map:
    if map is not None:
        Path(connected).touch()

    def on_nodes(function, blocks):
        return map(partial(tiny_cells.trains, function, marker), blocks)

    fitted = fit(
        partial(Baseline, features=2, hidden=4), inputs, targets, seeds=range(12), steps=200,
        batch=64, block=2, map=map and on_nodes,
    )
    bits = hashlib.sha256(fitted.vectors.tobytes() + fitted.train.tobytes()).hexdigest()
    print("=", json.dumps([bits, map.faults if map else []]))
"""


@needs_ray
@pytest.mark.slow
def test_a_node_killed_in_mid_training_changes_no_bit(tmp_path: Path):
    """The node cannot be done with its block before it is killed: it trains it for a minute."""
    marker, connected = tmp_path / "marker", tmp_path / "connected"
    with Loopback(ATTNLENS_CACHE=str(tmp_path / "cache")) as cluster:
        process = started(FIT, cluster.address, marker, connected)
        # Nodes come later than the driver: it belongs to the head then, and not, as it may with
        # older versions of Ray, to the node that is killed.
        await_file(connected, process)
        lost = cluster.add(TOY_LOST_NODE="1")
        cluster.add()
        await_file(marker, process)
        cluster.kill(lost)
        bits, faults = answer(process)
    assert {kind for kind, _ in faults} & {"node lost", "died"}
    assert [bits, []] == told(FIT)
