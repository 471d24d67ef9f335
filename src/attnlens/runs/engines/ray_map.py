"""A map on a Ray cluster: `fit(map=…)` trains its groups of networks on many machines.

A task trains one group of networks with the same function that trains it locally, with one thread
and the compilation cache of its node, so results agree to the last bit on equal processors.

data    goes through Ray's object store, each data set once: arrays with the same bytes are put
        there once, however many groups and fits need them, and a node fetches them once for all
        its processes
window  the backpressure window: as for cells, at most two groups per CPU are submitted to Ray
losses  a lost process or node is recorded and its group retried; a straggler is started a second
        time (`ray_tasks.py`): the result of a group depends on its content only, so computing it
        again changes nothing
limit   a time limit, because a group that hangs on every node would never end
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache as once
from typing import Any, NamedTuple

import numpy as np

from attnlens.core.cells import Fault
from attnlens.core.checks import BadInput, ClusterLost, ResourceError, positive
from attnlens.core.notices import print_notice
from attnlens.core.numerical_path import NumericalPath
from attnlens.runs.code_version import code_version
from attnlens.runs.engines import cache
from attnlens.runs.provenance import prepared_path

from .base import LIMIT_PER_COST, SHORTEST_LIMIT
from .ray_connection import check_address, check_this_node, connect, require_ray, versions
from .ray_tasks import ATTEMPTS, JOBS_PER_CPU, Job, Tasks, remote

# Expected seconds of a group until the first one has ended. A group that takes three times as long
# is a straggler; the time limit is a hundred times as long (five and a half hours).
UNKNOWN_SECONDS = 200.0
INLINE_BYTES = 100_000  # Ray sends smaller arrays inside the task anyway
# Bytes of data sets that stay in the object store for later groups: twice the limit of one fit.
CACHE_BYTES = 1 << 30


# -- data ------------------------------------------------------------------------------------------


class StoredArray(NamedTuple):
    """References to a large array in the object store: one for the whole array, or one per data set
    (per index of its first axis)."""

    parts: tuple[Any, ...]
    whole: bool


class ObjectCache:
    """References to arrays in the object store, by content. The least recently used is dropped
    first; Ray keeps the array as long as a task still needs it."""

    def __init__(self, put: Callable[[np.ndarray], Any], capacity: int = CACHE_BYTES):
        self.put, self.capacity, self.size = put, capacity, 0
        self.entries: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def reference(self, array: np.ndarray) -> Any:
        """A reference to the array, which is put into the object store if it is not there."""
        array = np.ascontiguousarray(array)
        head = f"{array.dtype.str} {array.shape} ".encode()
        key = hashlib.sha256(head + array.data.cast("B")).hexdigest()
        if key not in self.entries:
            self.entries[key] = (self.put(array), array.nbytes)
            self.size += array.nbytes
        self.entries.move_to_end(key)
        reference = self.entries[key][0]
        while self.size > self.capacity and len(self.entries) > 1:
            self.size -= self.entries.popitem(last=False)[1][1]
        return reference

    def packed(self, tree: Any) -> Any:
        """The same tuples, lists and dictionaries with references in place of large arrays.

        The first axis of an array counts data sets, and one data set occurs in many groups, so each
        data set gets a reference of its own.
        """
        if isinstance(tree, np.ndarray) and tree.dtype != object and tree.nbytes >= INLINE_BYTES:
            if tree.ndim > 1 and tree[0].nbytes >= INLINE_BYTES:
                return StoredArray(tuple(self.reference(part) for part in tree), whole=False)
            return StoredArray((self.reference(tree),), whole=True)
        return _rebuilt(tree, self.packed)


def unpacked(tree: Any, get: Callable[[list[Any]], list[np.ndarray]]) -> Any:
    """The inverse of `ObjectCache.packed`; `get` is `ray.get` on a node."""
    if isinstance(tree, StoredArray):
        parts = get(list(tree.parts))
        if tree.whole or len(parts) == 1:  # no copy: it stays in shared memory
            return parts[0] if tree.whole else parts[0][None]
        return np.stack(parts)
    return _rebuilt(tree, lambda item: unpacked(item, get))


def _rebuilt(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a container with `change` applied to its items; any other object unchanged."""
    if isinstance(tree, tuple):
        items = [change(item) for item in tree]
        return getattr(tree, "_make", tuple)(items)  # a named tuple, or a plain one
    if isinstance(tree, list):
        return [change(item) for item in tree]
    if isinstance(tree, dict):
        return {key: change(item) for key, item in tree.items()}
    return tree


# -- on a node -------------------------------------------------------------------------------------


def work(
    function: Callable[[Any], Any],
    group: Any,
    codes: list[tuple[str, str]],
    packages: dict[str, str],
    path: str = "",
    digests: Mapping[str, str] | None = None,
) -> tuple[str, Any]:
    """Train one group of networks; return the id of the node and the result."""
    import ray

    check_this_node(codes, packages, [path], digests)
    _use_compilation_cache()
    return ray.get_runtime_context().get_node_id(), function(unpacked(group, ray.get))


@once
def _use_compilation_cache() -> None:
    """Use the node's compilation cache; called once per process, before it compiles anything."""
    folder = cache.usable_folder()
    if folder:
        cache.use(folder)


# -- the driver ------------------------------------------------------------------------------------


class GroupJob(Job):
    """A group of networks and its number in the order of the results."""

    def __init__(self, number: int, *arguments: Any):
        self.number = number
        super().__init__(*arguments)


class RayMap:
    """The function `map(function, groups)` on a Ray cluster, inside a `with` statement.

    address: HOST:PORT; without one, the cluster that runs on this machine, or a new one.
    workers: the largest number of CPUs to use at a time.
    time_limit: seconds that a group of networks may take; by default a hundred times the longest
        group of the same fit so far, at least half an hour, and 20,000 s until a group has ended.
        Time counts from when the group was sent to Ray or, if that is later, from the last result:
        until then the group may have waited for a CPU.
    clock: a monotonic clock, in seconds from any start; tests pass their own.
    faults: processes and nodes that were lost or slow while the map was used.

        with RayMap("first:6379") as on_cluster:
            fitted = fit(make, inputs, targets, seeds=range(64), map=on_cluster)
    """

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        time_limit: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        require_ray()
        if time_limit is not None:
            positive("time_limit", time_limit)
        if address:
            check_address(address)
        self.address, self.max_workers, self.time_limit = address, workers, time_limit
        self.clock = clock
        self.ray: Any = None
        self.opened_here = False
        self.lock, self.sent = threading.Lock(), 0  # groups submitted to Ray
        self.last_result: float | None = None  # when Ray last returned a result; None: not yet
        self.faults: list[Fault] = []
        self.calls: list[Tasks[GroupJob]] = []  # calls of the map that have not ended

    def __enter__(self) -> RayMap:
        ray, self.opened_here = connect(self.address, self.max_workers, None)
        self.attach(ray)
        return self

    def attach(self, ray: Any) -> None:
        """Use this connected module `ray`."""
        self.ray, self.objects, self.task = ray, ObjectCache(ray.put), remote(ray, work)

    def __exit__(self, *_: object) -> None:
        for tasks in self.calls:  # calls that were left before their end
            tasks.cancel()
        if self.opened_here and self.ray is not None:
            self.ray.shutdown()
        self.ray = None

    def __call__(
        self,
        function: Callable[[Any], Any],
        groups: Iterable[Any],
        check: Callable[[], None] = lambda: None,
    ) -> Generator[Any]:
        """Yield results in the order of the groups. `check` is called several times per second
        while the map waits; it may raise to end the map. Several threads may call the map."""
        ray = self.ray
        if ray is None:
            raise BadInput(
                "a RayMap is connected only inside `with RayMap(…) as map:`; use it there."
            )
        inner = getattr(function, "func", function)  # the function of a `partial`
        module, name = inner.__module__, f"{inner.__module__}:{inner.__qualname__}"
        own = module.startswith("attnlens.")  # the source of other functions is not compared
        codes = [(name, code_version(module))] if own else []
        path = prepared_path([module]) if own else NumericalPath()
        waiting, values = deque(enumerate(groups)), dict[int, Any]()
        # Only the first call prints that no CPU is free: later ones share CPUs with other threads.
        notice = None if self.calls else print_notice
        tasks: Tasks[GroupJob] = Tasks(ray, self.task, self.clock, notice)
        self.calls.append(tasks)
        next_number, longest, submitted = 0, 0.0, 0
        try:
            while waiting or tasks.pending:
                while waiting and self._reserve(ray, first=not submitted):
                    submitted += 1
                    number, group = waiting.popleft()
                    arguments = (function, self._packed(group), codes, versions())
                    tasks.send(GroupJob(number, *arguments, path.key, path.digests))
                check()
                finished = tasks.finished()
                for task in finished:
                    result = tasks.collect(task)
                    if result is None:
                        continue
                    if result.lost:
                        self._retry(tasks, result.job)
                        continue
                    longest = max(longest, tasks.waited(result.job))
                    values[result.job.number] = result.value
                    self.faults += result.job.faults
                    self._release(1)
                    submitted -= 1
                # Look for late groups only when there was no new result: results may have been
                # ready for a long time if the caller did not ask for the next one.
                if finished:
                    self.last_result = self.clock()
                else:
                    self.enforce_time_limit(tasks, longest or UNKNOWN_SECONDS)
                    if not waiting:
                        tasks.copy_stragglers(longest or UNKNOWN_SECONDS)
                while next_number in values:
                    yield values.pop(next_number)
                    next_number += 1
        finally:
            self._release(submitted)
            tasks.cancel()
            self.calls.remove(tasks)
            self.faults += [f for job in set(tasks.pending.values()) for f in job.faults]

    def _retry(self, tasks: Tasks[GroupJob], job: GroupJob) -> None:
        if job.attempts == ATTEMPTS:
            raise ClusterLost(
                f"a group of networks was lost {ATTEMPTS} times ({job.faults[-1].words}): check "
                f"the memory of the nodes, or train fewer networks."
            )
        job.has_copy = False
        tasks.send(job)

    def enforce_time_limit(self, tasks: Tasks[GroupJob], seconds: float) -> None:
        """Raise if a group, which is expected to take `seconds`, has exceeded its time limit."""
        allowed = self.time_limit or max(SHORTEST_LIMIT, LIMIT_PER_COST * seconds)
        for job in tasks.pending.values():
            if tasks.waited(job, self.last_result) > allowed:
                words = f"no answer within its limit of {allowed:g} s"
                job.faults.append(Fault("time limit", words))
                raise ClusterLost(
                    f"a group of networks gave {words}: check the nodes, train fewer networks, or "
                    f"raise the limit with `RayMap(time_limit=…)`."
                )

    def _packed(self, group: Any) -> Any:
        try:
            with self.lock:
                return self.objects.packed(group)
        except self.ray.exceptions.RayError as error:
            raise ResourceError(
                f"the data do not fit Ray's object store ({type(error).__name__}): start Ray with "
                f"a larger `--object-store-memory`, or give fewer rows."
            ) from error

    def _reserve(self, ray: Any, first: bool) -> bool:
        """Reserve a place for a group in the backpressure window; return whether there was one.

        The `first` group of a call always gets one, or calls could wait for each other. The size of
        the cluster is read every time: nodes join and leave.
        """
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        workers = self.max_workers or cpus
        with self.lock:
            free = first or self.sent < (workers if workers < cpus else JOBS_PER_CPU * cpus)
            self.sent += free
        return free

    def _release(self, count: int) -> None:
        with self.lock:
            self.sent -= count
