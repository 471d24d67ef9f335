"""Jobs on Ray: retries of lost jobs and second copies of stragglers. (Scheduling: `ray_cells.py`.)

retries     are made here, not by Ray (`max_retries=0`), so that every loss of a process or a node
            is recorded as a fault
raylet      if the raylet on the driver's machine is lost, no job can be sent to Ray any more. That
            is not the fault of a job: the run ends, and the remaining jobs do not count as failed
stragglers  a job that takes far too long is started a second time, on one of the nodes that
            returned most results; the first result counts, and the other task is cancelled
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from attnlens.core.cells import Fault
from attnlens.core.checks import BadInput, ClusterLost, ResourceError
from attnlens.core.notices import Notice, print_notice

from .ray_connection import environment, first_line

ATTEMPTS = 4  # per job, if its Ray process or node is lost
# The backpressure window: jobs per CPU submitted to Ray, one being computed and one waiting.
JOBS_PER_CPU = 2
# A job is a straggler after three times the expected time of the longest job, and at least the
# seconds that a busy node may need to start its processes and to compile.
STRAGGLER_FACTOR, SHORTEST_STRAGGLER = 3.0, 30.0
SECONDS_WITHOUT_CPU = 10.0  # a node that is starting needs less than this
WAIT_SECONDS = 0.2  # longest wait for the next result, before the driver does something else


class Job:
    """The arguments of a Ray task, and the tasks that compute it: one, or two for a straggler."""

    def __init__(self, *arguments: Any, attempts: int = 0):
        self.arguments, self.attempts = arguments, attempts
        self.sent: float | None = None  # when it was last sent to Ray; None: not yet
        self.tasks: set[Any] = set()
        self.faults: list[Fault] = []
        self.has_copy = False


J = TypeVar("J", bound=Job)


class JobResult(NamedTuple, Generic[J]):
    """The result of a job: its value, or `lost` if its process or node was lost."""

    job: J
    value: Any
    lost: bool


def remote(ray: Any, work: Callable[..., tuple[str, Any]]) -> Any:
    """Make a Ray task on one CPU from `work`, which returns the id of its node and a value."""
    return ray.remote(
        num_cpus=1,
        max_retries=0,
        runtime_env={"env_vars": environment()},
        scheduling_strategy="SPREAD",
    )(work)


class Tasks(Generic[J]):
    """Sends jobs to Ray and collects their results."""

    def __init__(
        self,
        ray: Any,
        task: Any,
        clock: Callable[[], float] = time.monotonic,
        notice: Notice | None = print_notice,
    ):
        self.ray, self.task, self.clock, self.notice = ray, task, clock, notice
        self.waiting_since: float | None = None  # set if no CPU was free at the first job
        self.pending: dict[Any, J] = {}
        self.results: Counter[str] = Counter()  # number of results per node
        self.copies = itertools.count()

    def send(self, job: J, node: str | None = None) -> None:
        """Start a task for the job, preferably on `node`."""
        if self.notice and not self.pending and not self.results and self._free_cpus() < 1:
            self.waiting_since = self.clock()
        task = self.task
        if node:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            task = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True))
        with self._explained_raylet_loss():
            reference = task.remote(*job.arguments)
        job.sent = self.clock()
        job.tasks.add(reference)
        self.pending[reference] = job

    def waited(self, job: J, last_result: float | None = None) -> float:
        """Seconds since the job was sent to Ray or, if that is later, since `last_result`.

        "Not yet" is None and never a number: a monotonic clock may start anywhere, so no reading
        of it means "long ago".
        """
        times = [moment for moment in (job.sent, last_result) if moment is not None]
        return self.clock() - max(times) if times else 0.0

    def copy_stragglers(self, seconds: float) -> None:
        """Start a second copy of jobs that take far longer than `seconds`, the expected time of the
        longest job, if a CPU is idle and there is more than one node."""
        allowed = max(SHORTEST_STRAGGLER, STRAGGLER_FACTOR * seconds)
        pending = set(self.pending.values())
        slow = [job for job in pending if self.waited(job) > allowed and not job.has_copy]
        if not slow or not self._copies_can_help():
            return
        for job in slow:
            job.has_copy = True
            words = f"no answer after {allowed:.0f} s, so it was started a second time"
            job.faults.append(Fault("slow", words))
            self.send(job, self.fast_node())

    def _copies_can_help(self) -> bool:
        """Whether a CPU is idle and there are several nodes.

        Otherwise the job may be waiting for a CPU, or a copy on the only node would be as slow.
        """
        computing = [n for n in self.ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) > 0]
        return len(computing) > 1 and self._free_cpus() >= 1

    def fast_node(self) -> str | None:
        """A node of the half with the most results, each in turn; None if there are no results."""
        ranked = [node for node, _ in self.results.most_common()]
        half = ranked[: (len(ranked) + 1) // 2]
        return half[next(self.copies) % len(half)] if half else None

    def _free_cpus(self) -> float:
        return self.ray.available_resources().get("CPU", 0)

    def _say_what_is_missing(self) -> None:
        """Print once that no CPU is free, if none was at the start and there is no result yet."""
        if self.waiting_since is None or self.notice is None or self.results:
            return
        if self.clock() - self.waiting_since > SECONDS_WITHOUT_CPU and self._free_cpus() < 1:
            total = int(self.ray.cluster_resources().get("CPU", 0))
            self.notice(
                f"no CPU of the Ray cluster is free ({total} in all), so nothing is computed yet: "
                f"wait for other jobs or stop them, add a node (`ray start --address=HOST:PORT`), "
                f"or stop this command and use --engine local"
            )
            self.waiting_since = None

    def finished(self) -> list[Any]:
        """Tasks that have ended; waits at most `WAIT_SECONDS` for the first one."""
        self._say_what_is_missing()
        tasks = list(self.pending)
        with self._explained_raylet_loss():
            first, _ = self.ray.wait(tasks, num_returns=1, timeout=WAIT_SECONDS)
            return self.ray.wait(tasks, num_returns=len(tasks), timeout=0)[0] if first else []

    def collect(self, task: Any) -> JobResult[J] | None:
        """The result of the job of an ended task.

        None if a second task of the same job still computes it, or has already returned its value.
        """
        job = self.pending.pop(task, None)
        if job is None:
            return None  # the slower of two tasks
        job.tasks.discard(task)
        errors = self.ray.exceptions
        try:
            with self._explained_raylet_loss():
                node, value = self.ray.get(task)
        except errors.RayTaskError as error:
            cause = error.cause
            if not isinstance(cause, OSError | errors.RayError):  # it would fail on every node
                kind = BadInput if isinstance(cause, BadInput) else ResourceError
                raise kind(f"the cluster cannot compute: {first_line(cause)}") from error
            return self._lost(job, Fault("raised", f"{type(cause).__name__}: {first_line(cause)}"))
        except errors.RuntimeEnvSetupError as error:
            raise ResourceError(f"a node could not be set up: {first_line(error)}") from error
        except errors.RayError as error:
            kind = "node lost" if isinstance(error, _node_errors(errors)) else "died"
            return self._lost(job, Fault(kind, f"{type(error).__name__} of Ray"))
        self.results[node] += 1
        for slower in job.tasks:
            del self.pending[slower]
            self._cancel(slower)
        return JobResult(job, value, lost=False)

    @contextlib.contextmanager
    def _explained_raylet_loss(self) -> Iterator[None]:
        """Turn the loss of the local raylet into `ClusterLost`: Ray reports it, or the socket to it
        breaks. (An OSError raised by a task arrives as a RayError and is raised unchanged.)"""
        errors = self.ray.exceptions
        local = getattr(errors, "LocalRayletDiedError", ())
        try:
            yield
        except (errors.RayError, OSError) as error:
            if isinstance(error, errors.RayError) and not isinstance(error, local):
                raise
            reason = first_line(error) if isinstance(error, OSError) else type(error).__name__
            raise ClusterLost(
                f"Ray's raylet on this machine was lost ({reason}), and with it the connection to "
                f"the cluster: start Ray here again and repeat the command; finished results in "
                f"a results folder are kept."
            ) from error

    def _lost(self, job: J, fault: Fault) -> JobResult[J] | None:
        """Record a loss. An error of a faulty node counts as a loss: another node may succeed."""
        job.faults.append(fault)
        if job.tasks:
            return None  # the other task still computes it
        job.attempts += 1
        return JobResult(job, None, lost=True)

    def cancel(self) -> None:
        """Cancel all tasks that have not ended."""
        for task in self.pending:
            self._cancel(task)

    def _cancel(self, task: Any) -> None:
        with contextlib.suppress(Exception):  # the task may have ended, or Ray with it
            if self.ray.is_initialized():  # otherwise the call would start a new cluster
                self.ray.cancel(task, force=True)


def _node_errors(errors: Any) -> tuple[type[Exception], ...]:
    names = ("NodeDiedError", "ObjectLostError", "OwnerDiedError")
    return tuple(getattr(errors, name) for name in names if hasattr(errors, name))
