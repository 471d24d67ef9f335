"""A map on a Ray cluster: `fit(map=…)` has its blocks of networks trained on many machines.

A task trains one block by the very function that trains it here, with one thread and in the node's
compilation cache, so the result is the same to the last bit where the processors are.

data    goes through Ray's object store, each data set once: what has the same bytes is put there
        once, however many blocks and fits need it, and a node fetches it once for all its processes
window  as for cells, at most two blocks a CPU are with Ray
losses  of a process or a node are noted and made good, and slow nodes overtaken (`ray_tasks.py`):
        a block depends on nothing but what it holds, so computing it again changes nothing
limit   a block that hangs on every node would be waited for without end, so there is one
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable
from functools import cache as once
from typing import Any, NamedTuple

import numpy as np

from attnlens.checks import BadInput, positive
from attnlens.claims.code_version import code_version
from attnlens.engine import cache
from attnlens.engine.base import PATIENCE, SHORTEST_LIMIT, Fault
from attnlens.engine.ray_connection import check_this_node, connect, knock, need_ray, versions
from attnlens.engine.ray_tasks import ATTEMPTS, WINDOW, Job, Tasks, remote

# Seconds that a block is taken to need before one has ended: thrice that is slow, a hundred times
# that (five and a half hours) too long.
UNKNOWN = 200.0
SMALL = 100_000  # bytes of an array below which Ray sends it along with the task anyway
ROOM = 1 << 30  # bytes of data sets that are kept for blocks to come; twice what one fit may hold


# -- data ------------------------------------------------------------------------------------------


class Shipped(NamedTuple):
    """A large array, by references to where it is: whole, or data set by data set."""

    parts: tuple[Any, ...]
    whole: bool


class Shelf:
    """What is in the object store already, by content. What was not asked for longest goes first;
    Ray keeps it as long as a task still needs it."""

    def __init__(self, put: Callable[[np.ndarray], Any], room: int = ROOM):
        self.put, self.room, self.size = put, room, 0
        self.kept: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def reference(self, array: np.ndarray) -> Any:
        array = np.ascontiguousarray(array)
        head = f"{array.dtype.str} {array.shape} ".encode()
        key = hashlib.sha256(head + array.data.cast("B")).hexdigest()
        if key not in self.kept:
            self.kept[key] = (self.put(array), array.nbytes)
            self.size += array.nbytes
        self.kept.move_to_end(key)
        found = self.kept[key][0]
        while self.size > self.room and len(self.kept) > 1:
            self.size -= self.kept.popitem(last=False)[1][1]
        return found

    def packed(self, tree: Any) -> Any:
        """The same tuples, lists and dictionaries with references for large arrays. Blocks have a
        leading axis of data sets, and the same one comes in many blocks: each goes by itself."""
        if isinstance(tree, np.ndarray) and tree.dtype != object and tree.nbytes >= SMALL:
            if tree.ndim > 1 and tree[0].nbytes >= SMALL:
                return Shipped(tuple(self.reference(part) for part in tree), whole=False)
            return Shipped((self.reference(tree),), whole=True)
        return _rebuilt(tree, self.packed)


def unpacked(tree: Any, get: Callable[[list[Any]], list[np.ndarray]]) -> Any:
    """What was packed, on a node."""
    if isinstance(tree, Shipped):
        parts = get(list(tree.parts))
        if tree.whole or len(parts) == 1:  # no copy: it stays in the memory that processes share
            return parts[0] if tree.whole else parts[0][None]
        return np.stack(parts)
    return _rebuilt(tree, lambda each: unpacked(each, get))


def _rebuilt(tree: Any, change: Callable[[Any], Any]) -> Any:
    """A container with its items changed; anything else as it is."""
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
    function: Callable[[Any], Any], block: Any, codes: list[tuple[str, str]],
    packages: dict[str, str],
) -> tuple[str, Any]:  # fmt: skip
    """Train one block: the node's id and the result."""
    import ray

    check_this_node(codes, packages)
    _use_the_cache()
    return ray.get_runtime_context().get_node_id(), function(unpacked(block, ray.get))


@once
def _use_the_cache() -> None:
    """Once a process, before it compiles anything."""
    try:
        folder = cache.default_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        cache.repair(folder)
        cache.use(folder)
    except OSError:
        return  # a home that cannot be written: compile every time


# -- the driver ------------------------------------------------------------------------------------


class Block(Job):
    """A block of networks and its place among the results."""

    def __init__(self, place: int, *arguments: Any):
        self.place = place
        super().__init__(*arguments)


class RayMap:
    """The function `map(function, blocks)` on a Ray cluster, while a `with` lasts.

    address: HOST:PORT; without one it is the cluster that runs on this machine, or a new one.
    workers: at most so many CPUs at a time.
    time_limit: seconds that a block may take; by default a hundred times the longest of its fit so
        far, half an hour at least, and 20,000 s before one has ended. They count from when it was
        handed to Ray or, if that is later, from the last result: until then it may have had to wait
        for a CPU.
    faults: processes and nodes that were lost, or slow, while it was used.

        with RayMap("first:6379") as on_cluster:
            fitted = fit(make, inputs, targets, seeds=range(64), map=on_cluster)
    """

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        time_limit: float | None = None,
    ):
        need_ray()
        if time_limit is not None:
            positive("time_limit", time_limit)
        if address:
            knock(address)
        self.address, self.wanted, self.time_limit = address, workers, time_limit
        self.ray: Any = None
        self.ours = False
        self.lock, self.out = threading.Lock(), 0  # blocks that are with Ray
        self.heard = 0.0  # when Ray last gave an answer
        self.faults: list[Fault] = []
        self.live: list[Tasks[Block]] = []

    def __enter__(self) -> RayMap:
        ray, self.ours = connect(self.address, self.wanted, None)
        self.use(ray)
        return self

    def use(self, ray: Any) -> None:
        self.ray, self.shelf, self.task = ray, Shelf(ray.put), remote(ray, work)

    def __exit__(self, *_: object) -> None:
        for tasks in self.live:  # of results that nobody took to their end
            tasks.stop()
        if self.ours and self.ray is not None:
            self.ray.shutdown()
        self.ray = None

    def __call__(
        self,
        function: Callable[[Any], Any],
        blocks: Iterable[Any],
        check: Callable[[], None] = lambda: None,
    ) -> Generator[Any]:
        """Results in the order of the blocks. `check` is called while it waits, several times a
        second, and may raise to end it. Several threads may call this at once."""
        ray = self.ray
        if ray is None:
            raise BadInput("a RayMap is connected inside `with RayMap(…) as map:` only.")
        home = getattr(function, "func", function)  # of a partial
        module, name = home.__module__, f"{home.__module__}:{home.__qualname__}"
        codes = [(name, code_version(module))] if module.startswith("attnlens.") else []
        waiting, ended = deque(enumerate(blocks)), dict[int, Any]()
        tasks: Tasks[Block] = Tasks(ray, self.task)
        self.live.append(tasks)
        place, longest, under_way = 0, 0.0, 0
        try:
            while waiting or tasks.pending:
                while waiting and self._enter(ray, first=not under_way):
                    under_way += 1
                    number, block = waiting.popleft()
                    tasks.send(Block(number, function, self._packed(block), codes, versions()))
                check()
                done = tasks.done()
                for task in done:
                    block = tasks.collect(task)
                    if block is None:
                        continue
                    if block.lost:
                        self._again(tasks, block.job)
                        continue
                    longest = max(longest, time.monotonic() - block.job.began)
                    ended[block.job.place] = block.value
                    self.faults += block.job.faults
                    self._leave(1)
                    under_way -= 1
                # Nothing is late before a look for results has found none: results may have been
                # there for long, if nobody asked for the next one.
                if done:
                    self.heard = time.monotonic()
                else:
                    self._stop_if_late(tasks, longest or UNKNOWN)
                    if not waiting:
                        tasks.hasten(longest or UNKNOWN)
                while place in ended:
                    yield ended.pop(place)
                    place += 1
        finally:
            self._leave(under_way)
            tasks.stop()
            self.live.remove(tasks)
            self.faults += [f for job in set(tasks.pending.values()) for f in job.faults]

    def _again(self, tasks: Tasks[Block], block: Block) -> None:
        if block.tries == ATTEMPTS:
            raise BadInput(
                f"a block of networks was lost {ATTEMPTS} times ({block.faults[-1].words}): look "
                f"at the nodes' memory, or ask for less."
            )
        block.copied = False
        tasks.send(block)

    def _stop_if_late(self, tasks: Tasks[Block], seconds: float) -> None:
        """End everything if a block, which should take `seconds`, has had all of its time."""
        allowed = self.time_limit or max(SHORTEST_LIMIT, PATIENCE * seconds)
        for block in tasks.pending.values():
            if time.monotonic() - max(block.began, self.heard) > allowed:
                words = f"no answer within its limit of {allowed:g} s"
                block.faults.append(Fault("time limit", words))
                raise BadInput(
                    f"a block of networks gave {words}: look at the nodes, ask for less, or allow "
                    f"more with `RayMap(time_limit=…)`."
                )

    def _packed(self, block: Any) -> Any:
        try:
            with self.lock:
                return self.shelf.packed(block)
        except self.ray.exceptions.RayError as error:
            raise BadInput(
                f"the data do not fit Ray's object store ({type(error).__name__}): start Ray with "
                f"a larger `--object-store-memory`, or give fewer rows."
            ) from error

    def _enter(self, ray: Any, first: bool) -> bool:
        """Whether another block may go to Ray now: nodes come and go. The `first` of a call always
        may, or calls could wait for each other."""
        there = max(1, int(ray.cluster_resources().get("CPU", 1)))
        wanted = self.wanted or there
        with self.lock:
            free = first or self.out < (wanted if wanted < there else WINDOW * there)
            self.out += free
        return free

    def _leave(self, count: int) -> None:
        with self.lock:
            self.out -= count
