"""Cells on a Ray cluster: the same cells, by the same worker program, on many machines.

A Ray task takes a batch of cells to a node. There the task's process has a worker of its own, the
very program that computes cells locally (`worker.py`): one thread, the same limits, the node's
compilation cache. So a result does not depend on the engine, and a cell that dies, hangs or asks
for too much memory harms nothing but itself.

batches     of about a second of work, from measured seconds: Ray needs about a millisecond a task.
            Longer ones for many workers, so that one driver can hand out work to all of them
window      at most twice as many batches as there are CPUs are with Ray; the rest wait here
retries     ours, not Ray's (`max_retries=0`), so that every loss of a process or a node is noted
stragglers  when nothing is waiting, a batch that takes far too long is started a second time, where
            the last result came from; what ends first counts, and the other is stopped
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import logging
import math
import os
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attnlens.checks import BadInput
from attnlens.claims.code_version import code_version
from attnlens.engine.base import ONE_THREAD, PRECISION, USUAL, Fault, Limits, Outcome
from attnlens.engine.local import Machine, cores, kind_of
from attnlens.records import Cell

SECONDS_A_BATCH, MOST_A_BATCH = 1.0, 1000  # a millisecond of overhead is then 0.1 %
SECONDS_A_TASK = 0.002  # of the driver, handing out and collecting; about twice what was measured
WINDOW = 2  # batches a CPU: one being computed, one at hand
ATTEMPTS = 4  # of a batch whose Ray process or node is lost; a cell's own faults count in `local`
# A straggler: thrice what the longest batch should take, and as many seconds as a busy node may
# need to start its processes and to compile.
SLOW, SHORTEST_WAIT = 3.0, 30.0
PAUSE, SECONDS_BETWEEN_LOOKS = 0.2, 5.0
PACKAGES = ("attnlens", "jax", "jaxlib", "numpy")  # whose versions decide about bits
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0": Ray stays on 127.0.0.1, on Linux too
LEFT_BEHIND = [".git", ".venv*", "*.sqlite", "*.sqlite-*", "attnlens-run", "__pycache__"]


# -- on a node -------------------------------------------------------------------------------------

_host: Machine | None = None  # a Ray process's own worker, kept from batch to batch


def work(cells: Sequence[Cell], limits: Limits, packages: dict[str, str]) -> tuple[str, list[Any]]:
    """Compute a batch: the node's id and, cell by cell, (number, everything but the cell)."""
    global _host
    import ray

    check_this_node(((cell.measure, cell.code) for cell in cells if cell.code), packages)
    if _host is None or _host.limits != limits:
        _host = Machine(1, None, limits)
    place = {cell.key: number for number, cell in enumerate(cells)}
    ended = [(place[outcome.cell.key], outcome[1:5]) for outcome in _host.run(cells)]
    return ray.get_runtime_context().get_node_id(), ended


def check_this_node(codes: Iterable[tuple[str, str]], packages: dict[str, str]) -> None:
    """Refuse to compute what another node would compute otherwise. `codes` are functions,
    "module:name", with the driver's version of their source."""
    name = socket.gethostname()
    for package, version in versions().items():
        if version != packages[package]:
            raise BadInput(
                f"node {name} has {package} {version}, the driver has {packages[package]}: install "
                f"the same versions on every node."
            )
    for function, code in set(codes):
        if code_version(function.partition(":")[0]) != code:
            raise BadInput(f"node {name} has another source of {function} than the driver.")


@cache
def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}


# -- the driver ------------------------------------------------------------------------------------


def run(
    cells: Sequence[Cell],
    workers: int | None = None,
    limits: Limits = USUAL,
    address: str | None = None,
) -> Generator[Outcome]:
    """Compute cells on the Ray cluster at `address`, on at most `workers` CPUs at a time.

    Without an address it is the cluster that runs on this machine, or a new one for this run.
    """
    if not cells:
        return
    ray, ours = connect(address, workers, own_folder(cells))
    try:
        yield from Driver(ray, cells, workers, limits).run()
    finally:
        if ours:
            ray.shutdown()


def need_ray() -> None:
    """One sentence if Ray is not installed; it is not imported for that."""
    if importlib.util.find_spec("ray") is None:
        raise BadInput("engine ray needs the package ray: pip install 'attnlens[ray]'.")


def connect(address: str | None, workers: int | None, folder: Path | None) -> tuple[Any, bool]:
    """The module `ray`, connected, and whether the connection is ours to close."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before it is imported
    alone = address is None and not _is_running()
    if alone:
        os.environ[LOOPBACK] = "0"  # our own cluster is nobody else's business
    import ray

    if ray.is_initialized():
        return ray, False
    if address:
        knock(address)
    shipped = {"working_dir": str(folder), "excludes": LEFT_BEHIND} if folder else {}
    settings: dict[str, Any] = {
        "runtime_env": shipped, "log_to_driver": False, "logging_level": logging.ERROR,
    }  # fmt: skip
    if alone:
        settings.update(num_cpus=workers or cores(), include_dashboard=False)
    try:
        ray.init("local" if alone else address or "auto", **settings)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"at {address}" if address else "here"
        raise BadInput(
            f"no Ray cluster can be used {where} ({first_line(error)}): start one with `ray start "
            f"--head`, and join it with `ray start --address=HOST:PORT` on this machine too."
        ) from error
    return ray, True


def knock(address: str) -> None:
    """One sentence at once where nobody listens; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if address != "auto":
            socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise BadInput(
            f"no Ray cluster answers at {address} ({error}): give HOST:PORT as `ray start --head` "
            f"prints it."
        ) from None


def _is_running() -> bool:
    """Whether Ray has noted a cluster that runs on this machine."""
    noted = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    return "RAY_ADDRESS" in os.environ or noted.exists()


def own_folder(cells: Iterable[Cell]) -> Path | None:
    """The folder of the user's own claims, which nodes need a copy of; None if there are none."""
    folders = set()
    for module in {cell.measure.partition(":")[0].partition(".")[0] for cell in cells}:
        spec = importlib.util.find_spec(module) if module != "attnlens" else None
        if spec is None or spec.origin is None:
            continue
        file = Path(spec.origin).resolve()
        folder = file.parent.parent if spec.submodule_search_locations else file.parent
        if not _installed(folder):
            folders.add(folder)
    if len(folders) > 1:
        names = ", ".join(sorted(map(str, folders)))
        raise BadInput(f"claims of your own must lie in one folder, but they lie in {names}.")
    return folders.pop() if folders else None


def environment() -> dict[str, str]:
    """For every process on a node: one thread, float64, the driver's choice of kernels, and the
    places of the user's own code (which a node with the same file system has; nobody minds the
    others)."""
    own = [p for p in sys.path if p and not _installed(Path(p))]
    return {
        **ONE_THREAD, **PRECISION, "RAY_USAGE_STATS_ENABLED": "0",
        "ATTNLENS_KERNEL": os.environ.get("ATTNLENS_KERNEL", "1"),
        "PYTHONPATH": os.pathsep.join(own),
    }  # fmt: skip


def _installed(folder: Path) -> bool:
    """Whether it belongs to Python and its packages, which every node has its own of."""
    places = [Path(place) for place in (sys.prefix, sys.base_prefix)]
    packages = {"site-packages", "dist-packages"} & set(folder.parts)
    return bool(packages) or any(folder.is_relative_to(place) for place in places)


class Batch:
    """Cells of a kind that travel together, and the Ray tasks that compute them."""

    def __init__(self, cells: Sequence[Cell], tries: int = 0):
        self.cells, self.tries = list(cells), tries
        self.kind = kind_of(self.cells[0])
        self.began = 0.0
        self.tasks: set[Any] = set()
        self.faults: list[Fault] = []
        self.copied = False


class Line:
    """What is waiting, and how large a batch of it should be."""

    def __init__(self, cells: Iterable[Cell]):
        self.kinds: dict[str, deque[Cell]] = {}
        self.again: deque[Batch] = deque()
        self.pace: dict[str, float] = {}  # seconds a cell, in the last batch of a kind
        self.out: Counter[str] = Counter()  # batches under way
        for cell in cells:
            self.kinds.setdefault(kind_of(cell), deque()).append(cell)

    def __bool__(self) -> bool:
        return bool(self.kinds or self.again)

    def next(self, workers: int) -> Batch:
        """The next batch. Kinds with fewest batches under way go first, so that few processes
        compile the same program at the same time."""
        if self.again:
            return self.again.popleft()
        kind = min(self.kinds, key=self.out.__getitem__)
        line = self.kinds[kind]
        batch = Batch([line.popleft() for _ in range(self.size(kind, workers))])
        if not line:
            del self.kinds[kind]
        return batch

    def size(self, kind: str, workers: int) -> int:
        """Cells for `SECONDS_A_BATCH`, or for as long as the driver needs for every worker's turn:
        one while their seconds are unknown, and towards the end ever fewer, so that all workers end
        at about the same time (guided self-scheduling; Polychronopoulos and Kuck, 1987)."""
        if kind not in self.pace:
            return 1
        left, pace = len(self.kinds[kind]), max(self.pace[kind], 1e-6)
        turn = workers * SECONDS_A_TASK  # of the driver, for a batch to every worker
        filling = int(max(SECONDS_A_BATCH, turn) / pace)
        # Half of a worker's share of what is left, but not so little that the driver falls behind.
        share = max(
            math.ceil(left / (2 * workers)), min(int(turn / pace), math.ceil(left / workers))
        )
        return max(1, min(filling, share, MOST_A_BATCH))

    def seconds(self, batch: Batch) -> float:
        """What a batch should take."""
        each = max(self.pace.get(batch.kind, 0.0), batch.cells[0].cost)
        return each * len(batch.cells)


class Driver:
    """Hands out batches and collects what becomes of them."""

    def __init__(self, ray: Any, cells: Sequence[Cell], workers: int | None, limits: Limits):
        self.ray, self.limits, self.wanted = ray, limits, workers
        self.line, self.left = Line(cells), len(cells)
        self.pending: dict[Any, Batch] = {}
        self.looked = -math.inf
        self.workers, self.window, self.nodes, self.good_node = 1, 1, 1, None
        self.task = ray.remote(
            num_cpus=1, max_retries=0, runtime_env={"env_vars": environment()},
            scheduling_strategy="SPREAD",
        )(work)  # fmt: skip

    def run(self) -> Generator[Outcome]:
        try:
            while self.left:
                self._look()
                while self.line and len(self.pending) < self.window:
                    self._send(self.line.next(self.workers))
                self._hasten()
                for task in self._done():
                    ready = deque(self._collect(task))
                    while ready:
                        self.left -= 1
                        yield ready.popleft()._replace(more=len(ready) > 0)
        finally:
            for task in self.pending:
                stop(self.ray, task)

    def _look(self) -> None:
        """How large the cluster is now: nodes come and go."""
        if time.monotonic() - self.looked > SECONDS_BETWEEN_LOOKS:
            self.looked = time.monotonic()
            there = max(1, int(self.ray.cluster_resources().get("CPU", 1)))
            self.workers = min(there, self.wanted or there)
            # Fewer workers than there are CPUs: what is with Ray is also being computed.
            self.window = self.workers if self.workers < there else WINDOW * there
            self.nodes = sum(node["Alive"] for node in self.ray.nodes())

    def _send(self, batch: Batch, node: str | None = None) -> None:
        task = self.task
        if node:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            task = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True))
        reference = task.remote(batch.cells, self.limits, versions())
        batch.began = time.monotonic()
        batch.tasks.add(reference)
        self.pending[reference] = batch
        self.line.out[batch.kind] += 1

    def _hasten(self) -> None:
        """Start stragglers a second time, when nothing else is waiting."""
        if self.line or self.nodes < 2:
            return
        batches = set(self.pending.values())
        usual = max((self.line.seconds(batch) for batch in batches), default=0.0)
        allowed = max(SHORTEST_WAIT, SLOW * usual)
        for batch in batches:
            if time.monotonic() - batch.began > allowed and not batch.copied:
                batch.copied = True
                words = f"no answer after {allowed:.0f} s, so it was started on another node too"
                batch.faults.append(Fault("slow", words))
                self._send(batch, self.good_node)

    def _done(self) -> list[Any]:
        """Tasks that have ended, after a wait for the first."""
        tasks = list(self.pending)
        first, _ = self.ray.wait(tasks, num_returns=1, timeout=PAUSE)
        return self.ray.wait(tasks, num_returns=len(tasks), timeout=0)[0] if first else []

    def _collect(self, task: Any) -> list[Outcome]:
        """The outcomes that a task brought, if it did not only bring a reason to try again."""
        batch = self.pending.pop(task, None)
        if batch is None:
            return []  # the slower of two copies
        batch.tasks.discard(task)
        self.line.out[batch.kind] -= 1
        errors = self.ray.exceptions
        try:
            self.good_node, ended = self.ray.get(task)
        except errors.RayTaskError as error:
            raise BadInput(f"the cluster cannot compute: {first_line(error.cause)}") from error
        except errors.RuntimeEnvSetupError as error:
            raise BadInput(f"a node could not be set up: {first_line(error)}") from error
        except errors.RayError as error:
            kind = "node lost" if isinstance(error, _node_errors(errors)) else "died"
            return self._lost(batch, Fault(kind, f"{type(error).__name__} of Ray"))
        for slower in batch.tasks:
            del self.pending[slower]
            self.line.out[batch.kind] -= 1
            stop(self.ray, slower)
        self.line.pace[batch.kind] = sum(each[1][2] for each in ended) / len(ended)
        outcomes = [Outcome(batch.cells[number], *rest) for number, rest in ended]
        outcomes[0] = outcomes[0]._replace(faults=(*batch.faults, *outcomes[0].faults))
        return outcomes

    def _lost(self, batch: Batch, fault: Fault) -> list[Outcome]:
        """A task was lost with its process or node: the batch again, then cell by cell."""
        batch.faults.append(fault)
        if batch.tasks:
            return []  # its copy is still at it
        tries = batch.tries + 1
        if tries == ATTEMPTS:
            reason, faults = f"{fault.words} (tried {ATTEMPTS} times)", tuple(batch.faults)
            return [Outcome(cell, None, reason, 0.0, faults) for cell in batch.cells]
        parts = [batch.cells] if tries == 1 else [[cell] for cell in batch.cells]
        again = [Batch(cells, tries) for cells in parts]
        again[0].faults = batch.faults
        self.line.again.extend(again)
        self.looked = -math.inf  # the cluster may have become smaller
        return []


def stop(ray: Any, task: Any) -> None:
    with contextlib.suppress(Exception):  # it may have ended, or Ray with it
        ray.cancel(task, force=True)


def _node_errors(errors: Any) -> tuple[type[Exception], ...]:
    names = ("NodeDiedError", "LocalRayletDiedError", "ObjectLostError", "OwnerDiedError")
    return tuple(getattr(errors, name) for name in names if hasattr(errors, name))


def first_line(error: BaseException | None) -> str:
    return (str(error).strip().splitlines() or ["no reason was given"])[0]
