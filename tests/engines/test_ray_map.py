"""`RayMap`, which trains groups of networks on Ray, without a cluster: data sets, the window of
pending tasks, lost tasks, and time limits."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pytest

from attnlens.core.checks import BadInput, ClusterLost, ResourceError
from attnlens.runs.compute import map_of
from attnlens.runs.engines import ray_map, ray_tasks
from attnlens.runs.engines.ray_map import INLINE_BYTES, ObjectCache, RayMap, StoredArray, unpacked
from fake_ray import FakeRay


class Group(NamedTuple):
    """Stands for a group of networks: numbers to sum."""

    number: int
    data: tuple[np.ndarray, dict[str, np.ndarray]]


def total(group: Group) -> float:
    inputs, targets = group.data
    return group.number + float(inputs.sum()) + float(targets["y"].sum())


@pytest.fixture
def on_fake(monkeypatch: pytest.MonkeyPatch) -> RayMap:
    """A map on a fake cluster in which the newest task ends first."""
    monkeypatch.setattr(ray_map, "require_ray", lambda: None)
    ray = FakeRay()
    ray.candidates = lambda tasks: [max(tasks)]
    result = RayMap()
    result.attach(ray)
    return result


LARGE = np.arange(INLINE_BYTES // 8 + 1, dtype=float)


def groups(count: int) -> list[Group]:
    """`count` groups; each has the same two large data sets and the same small targets."""
    inputs = np.stack([LARGE, -2 * LARGE])
    return [Group(i, (inputs.copy(), {"y": np.ones(3)})) for i in range(count)]


@pytest.mark.parametrize("count", [1, 7, 40])
def test_a_data_set_is_put_once_whatever_the_number_of_tasks(on_fake: RayMap, count: int):
    work = groups(count)
    assert list(on_fake(total, work)) == [total(group) for group in work]
    assert len(on_fake.ray.objects) == 2
    list(on_fake(total, groups(3)))  # another fit on the same data
    assert len(on_fake.ray.objects) == 2
    assert on_fake.ray.most_pending <= 4, "the backpressure window: two groups per CPU"


def test_arrays_that_differ_in_one_number_or_in_shape_are_put_separately():
    store: list[np.ndarray] = []
    cache = ObjectCache(store.append)
    other = LARGE.copy()
    other[-1] += 1
    for array in (LARGE, other, LARGE[:, None], LARGE.astype("<i8"), LARGE.copy()):
        cache.reference(array)
    assert len(store) == 4


def test_the_least_recently_used_data_set_is_dropped_first():
    store: list[np.ndarray] = []
    cache = ObjectCache(store.append, capacity=2 * LARGE.nbytes)
    for factor in (1, 2, 1, 3, 1, 2):  # there is room for two, so 3 displaces 2
        cache.reference(factor * LARGE)
    assert [array[1] for array in store] == [1, 2, 3, 2]
    assert cache.size == 2 * LARGE.nbytes


@pytest.mark.parametrize(
    ("array", "parts"),
    [
        (LARGE, 1),
        (LARGE[None], 1),
        (np.stack([LARGE, LARGE, 2 * LARGE]), 3),
        (np.ones((INLINE_BYTES, 2)), 1),  # its rows are small: one reference for the whole array
        (np.asfortranarray(np.stack([LARGE, 3 * LARGE])), 2),
        (np.ones(3), 0),
        (np.float64(2.0), 0),
    ],
    ids=["vector", "one set", "three sets", "rows", "by columns", "small", "number"],
)
def test_unpacking_inverts_packing(array: Any, parts: int):
    store: list[np.ndarray] = []
    cache = ObjectCache(lambda part: store.append(part) or len(store) - 1)
    packed = cache.packed({"a": [array, (1, None)]})
    inside = packed["a"][0]
    assert (len(inside.parts) if isinstance(inside, StoredArray) else 0) == parts
    back = unpacked(packed, lambda places: [store[i] for i in places])
    assert back["a"][1] == (1, None)
    assert back["a"][0].dtype == array.dtype
    np.testing.assert_array_equal(back["a"][0], array)


def test_when_the_check_raises_all_tasks_are_cancelled(on_fake: RayMap):
    checks = []

    def check() -> None:
        checks.append(1)
        if len(checks) == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        list(on_fake(total, groups(9), check=check))
    # Four tasks were pending. One ended, so a fifth one was sent.
    assert on_fake.ray.started == 5
    assert len(on_fake.ray.cancelled) == 4


def test_threads_share_the_window(on_fake: RayMap):
    def give_up() -> None:
        raise TimeoutError

    on_fake.sent = 4  # other threads fill the window; each call may still send one task
    with pytest.raises(TimeoutError):
        list(on_fake(total, groups(9), check=give_up))
    assert (on_fake.ray.started, on_fake.sent) == (1, 4)
    on_fake.sent = 3
    assert len(list(on_fake(total, groups(9)))) == 9
    assert (on_fake.ray.most_pending, on_fake.sent) == (1, 3)


def test_a_group_that_cannot_be_trained_raises_one_sentence(on_fake: RayMap):
    def fail(group: Group) -> None:
        error = FakeRay.exceptions.RayTaskError()
        error.cause = ResourceError("node x has numpy 1\nand more")
        raise error

    with pytest.raises(ResourceError, match=r"^the cluster cannot compute: node x has numpy 1$"):
        list(on_fake(fail, groups(1)))


def test_a_lost_group_is_retried_and_the_loss_recorded(on_fake: RayMap):
    losses = [3, 1]  # how often groups 0 and 1 are lost

    def lost(group: Group) -> int:
        if group.number < 2 and losses[group.number]:
            losses[group.number] -= 1
            raise FakeRay.exceptions.NodeDiedError
        return group.number

    assert list(on_fake(lost, groups(5))) == [*range(5)]
    assert on_fake.faults == [("node lost", "NodeDiedError of Ray")] * 4
    assert on_fake.sent == 0


def test_a_group_that_is_lost_every_time_raises_one_sentence(on_fake: RayMap):
    def lost(group: Group) -> None:
        raise FakeRay.exceptions.RayError

    with pytest.raises(
        ClusterLost, match=r"^a group of networks was lost 4 times \(RayError of Ray"
    ):
        list(on_fake(lost, groups(2)))
    assert on_fake.sent == 0


def test_a_straggler_is_copied_and_the_first_result_counts(
    on_fake: RayMap, monkeypatch: pytest.MonkeyPatch
):
    """Task 1 never ends, but its copy does."""
    monkeypatch.setattr(ray_tasks, "SHORTEST_STRAGGLER", 0.05)
    hung(on_fake, 1)
    assert list(on_fake(total, groups(2))) == [total(group) for group in groups(2)]
    assert [fault.kind for fault in on_fake.faults] == ["slow"]
    assert on_fake.ray.cancelled == [1]


def test_an_operating_system_error_on_a_node_is_retried(on_fake: RayMap):
    failures = [1]

    def faulty(group: Group) -> int:
        if failures:
            failures.pop()
            error = FakeRay.exceptions.RayTaskError()
            error.cause = OSError("no space left on device")
            raise error
        return group.number

    assert list(on_fake(faulty, groups(3))) == [0, 1, 2]
    assert on_fake.faults == [("raised", "OSError: no space left on device")]


def hung(on_fake: RayMap, *tasks: int) -> None:
    """Make the fake Ray never finish `tasks`; of the others it finishes the newest first."""

    def candidates(pending: list[int]) -> list[int]:
        others = [task for task in pending if task not in tasks]
        if not others:
            time.sleep(0.005)
        return others[-1:]

    on_fake.ray.candidates = candidates


def test_a_group_that_hangs_raises_one_sentence(on_fake: RayMap):
    hung(on_fake, 2)
    on_fake.time_limit = 0.05
    results, ray = on_fake(total, groups(3)), on_fake.ray
    assert next(results) == total(groups(1)[0])
    message = r"^a group of networks gave no answer within its limit of 0\.05 s: check the nodes, "
    with pytest.raises(ClusterLost, match=message):
        next(results)
    assert ray.cancelled == [2]
    assert [fault.kind for fault in on_fake.faults] == ["time limit"]
    assert on_fake.sent == 0


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf")])
def test_invalid_time_limits_raise_one_sentence(monkeypatch: pytest.MonkeyPatch, seconds: float):
    monkeypatch.setattr(ray_map, "require_ray", lambda: None)
    with pytest.raises(BadInput, match="time_limit must be a finite number above 0"):
        RayMap(time_limit=seconds)


@pytest.mark.parametrize(
    ("longest", "allowed"), [(200.0, 20_000.0), (1.0, 1800.0), (60.0, 6000.0)], ids=str
)
@pytest.mark.parametrize("start", [0.0, 0.5, 1e9], ids=["boot", "just booted", "up for 30 years"])
def test_the_default_time_limit_is_far_above_the_measured_time(
    on_fake: RayMap, longest: float, allowed: float, start: float
):
    """The limit is at least half an hour and a hundred times the longest group so far, where 200 s
    are assumed before a group has ended."""
    now = start
    tasks: ray_tasks.Tasks[Any] = ray_tasks.Tasks(on_fake.ray, on_fake.task, clock=lambda: now)
    tasks.send(ray_map.GroupJob(0, total, groups(1)[0]))
    now = start + allowed - 1
    on_fake.enforce_time_limit(tasks, longest)
    now = start + allowed + 1
    with pytest.raises(ClusterLost, match=f"its limit of {allowed:g} s"):
        on_fake.enforce_time_limit(tasks, longest)
    on_fake.last_result = now  # the group may have waited for a CPU until now
    on_fake.enforce_time_limit(tasks, longest)


def test_results_that_the_caller_takes_late_are_not_late(
    on_fake: RayMap, monkeypatch: pytest.MonkeyPatch
):
    """All tasks have ended when the caller asks for the second result: none is copied or
    cancelled."""
    monkeypatch.setattr(ray_tasks, "SHORTEST_STRAGGLER", 0.05)
    on_fake.ray.candidates = lambda tasks: [min(tasks)]
    on_fake.time_limit = 0.05
    results = on_fake(total, groups(4))
    first = [next(results)]
    time.sleep(0.1)
    assert [*first, *results] == [total(group) for group in groups(4)]
    assert on_fake.ray.started == 4
    assert on_fake.faults == []


def test_faults_are_recorded_also_if_the_check_raises_before_a_retry(on_fake: RayMap):
    checks = []

    def check() -> None:
        checks.append(1)
        if len(checks) == 3:
            raise TimeoutError

    def lost(group: Group) -> None:
        raise FakeRay.exceptions.NodeDiedError

    with pytest.raises(TimeoutError):
        list(on_fake(lost, groups(1), check=check))
    assert [fault.kind for fault in on_fake.faults] == ["node lost"] * 2


def test_two_calls_in_one_thread_do_not_wait_for_each_other(on_fake: RayMap):
    pairs = zip(on_fake(total, groups(9)), on_fake(total, groups(9)), strict=True)
    assert all(one == other for one, other in pairs)


def test_data_that_do_not_fit_the_object_store_raise_one_sentence(on_fake: RayMap):
    def full(array: np.ndarray) -> None:
        raise FakeRay.exceptions.RayError

    on_fake.objects.put = full
    with pytest.raises(ResourceError, match=r"^the data do not fit Ray's object store"):
        list(on_fake(total, groups(1)))
    assert on_fake.sent == 0


def test_leaving_the_map_cancels_tasks_whose_results_nobody_takes(on_fake: RayMap):
    on_fake.ray.candidates = lambda tasks: [min(tasks)]
    results = on_fake(total, groups(9))
    next(results)
    ray = on_fake.ray
    on_fake.__exit__()
    assert sorted(ray.cancelled) == sorted(on_fake.calls[0].pending)
    assert len(ray.cancelled) == 3


def test_a_map_works_only_inside_with(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ray_map, "require_ray", lambda: None)
    with pytest.raises(BadInput, match="inside `with RayMap"):
        list(RayMap()(total, groups(1)))


def test_an_unknown_engine_has_no_map():
    with pytest.raises(BadInput, match="engine must be"):
        map_of("cloud")  # pyright: ignore[reportArgumentType] (an invalid value on purpose)
