"""A fake of the module `ray`, whose tasks end when the test says so.

It has the part of Ray that the engines use (`ray_connection`, `ray_tasks`, `ray_cells`, `ray_map`).
Nothing runs in parallel: a task is computed when the driver waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attnlens.core.cells import Cell
from attnlens.runs.engines.ray_map import unpacked

Compute = Callable[..., Any]


def cell_results(task: int, cells: list[Cell], *_: Any) -> tuple[None, list[Any]]:
    """What `ray_cells.work` returns for a batch of cells: no node id, and empty values per cell."""
    return None, [(number, ({}, None, 0.001, ())) for number in range(len(cells))]


class FakeRay:
    """The module `ray`, connected to a cluster of two nodes.

    compute(task, *arguments): the result of a task; None while it is still running. An exception,
        returned or raised, is raised when the result is fetched. Default: `work` of `ray_map`.
    candidates(tasks): which of the waiting tasks may end now, by default all.
    """

    class exceptions:
        class RayError(Exception): ...

        class RayTaskError(RayError):
            cause: Exception | None = None

        class RuntimeEnvSetupError(RayError): ...

        class NodeDiedError(RayError): ...

        class WorkerCrashedError(RayError): ...

        class LocalRayletDiedError(RayError): ...

    def __init__(self, compute: Compute | None = None, cpus: int = 2):
        self.compute: Compute = compute or self.train
        self.candidates: Callable[[list[int]], list[int]] = list
        self.cpus, self.idle_cpus, self.node_count = cpus, 1.0, 2
        self.gcs_address = "127.0.0.1:6379"  # address of the head of the cluster
        self.objects: list[np.ndarray] = []  # the object store
        self.started, self.most_pending = 0, 0  # numbers of tasks: so far, and most at once
        self.pending: dict[int, tuple[Any, ...]] = {}  # arguments of unfetched tasks
        self.results: dict[int, Any] = {}
        self.cancelled: list[int] = []

    def train(self, task: int, function: Callable[[Any], Any], group: Any, *_: Any) -> Any:
        """The result of `ray_map.work` for a group of networks, without the id of a node."""
        return None, function(unpacked(group, lambda places: [self.objects[i] for i in places]))

    # -- the part of Ray's interface that the engines use ------------------------------------------

    def put(self, array: np.ndarray) -> int:
        self.objects.append(array)
        return len(self.objects) - 1

    def remote(self, *arguments: Any, **options: Any) -> Any:
        """Stands for both `ray.remote(**options)(function)` and `task.remote(*arguments)`."""
        if options:
            return lambda function: self
        self.started += 1
        self.pending[self.started] = arguments
        self.most_pending = max(self.most_pending, len(self.pending))
        return self.started

    def options(self, **_: Any) -> FakeRay:
        return self

    def wait(self, tasks: list[int], num_returns: int, timeout: float) -> tuple[list[int], list]:
        for task in self.candidates(tasks):
            if task not in self.results:
                try:
                    result = self.compute(task, *self.pending[task])
                except Exception as error:
                    result = error
                if result is not None:
                    self.results[task] = result
        return [task for task in tasks if task in self.results], []

    def get(self, task: int) -> Any:
        del self.pending[task]
        result = self.results.pop(task)
        if isinstance(result, Exception):
            raise result
        return result

    def cancel(self, task: int, force: bool) -> None:
        self.pending.pop(task, None)
        self.cancelled.append(task)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cpus}

    def available_resources(self) -> dict[str, float]:
        return {"CPU": self.idle_cpus}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 1.0}}] * self.node_count

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> FakeRay:
        return self
