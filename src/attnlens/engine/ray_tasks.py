"""Jobs that are with Ray: what was lost is tried again by us, and what is slow is started twice.

retries     ours, not Ray's (`max_retries=0`), so that every loss of a process or a node is noted
cut off     when the driver's own raylet is lost nothing can be handed to Ray any more; that is no
            fault of any job, so the run ends, and the jobs that are left are not tried
stragglers  a job that takes far too long is started a second time, on one of the nodes that most
            results came from; what ends first counts, and the other is stopped
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from attnlens.checks import BadInput
from attnlens.engine.base import Fault
from attnlens.engine.ray_connection import environment, first_line

ATTEMPTS = 4  # of a job whose Ray process or node is lost
WINDOW = 2  # jobs a CPU: one being computed, one at hand
# A straggler: thrice what the longest job should take, and as many seconds as a busy node may need
# to start its processes and to compile.
SLOW, SHORTEST_WAIT = 3.0, 30.0
PAUSE = 0.2  # seconds that one look at Ray takes, if nothing ends


class Job:
    """The arguments of a Ray task, and the tasks that are at it."""

    def __init__(self, *arguments: Any, tries: int = 0):
        self.arguments, self.tries = arguments, tries
        self.began = 0.0
        self.tasks: set[Any] = set()
        self.faults: list[Fault] = []
        self.copied = False


J = TypeVar("J", bound=Job)


class Ended(NamedTuple, Generic[J]):
    """A job that has ended: with a value, or lost with its process or node."""

    job: J
    value: Any
    lost: bool


def remote(ray: Any, work: Callable[..., tuple[str, Any]]) -> Any:
    """`work`, which returns its node's id and a value, as a Ray task on one CPU."""
    return ray.remote(
        num_cpus=1, max_retries=0, runtime_env={"env_vars": environment()},
        scheduling_strategy="SPREAD",
    )(work)  # fmt: skip


class Tasks(Generic[J]):
    """Hands jobs to Ray and says what became of them."""

    def __init__(self, ray: Any, task: Any):
        self.ray, self.task = ray, task
        self.pending: dict[Any, J] = {}
        self.results: Counter[str] = Counter()  # of each node
        self.copies = itertools.count()

    def send(self, job: J, node: str | None = None) -> None:
        task = self.task
        if node:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            task = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True))
        with self._attached():
            reference = task.remote(*job.arguments)
        job.began = time.monotonic()
        job.tasks.add(reference)
        self.pending[reference] = job

    def hasten(self, seconds: float) -> None:
        """Start jobs a second time that take far longer than `seconds`, what the longest should
        take, while CPUs are idle and there is more than one node."""
        allowed, now = max(SHORTEST_WAIT, SLOW * seconds), time.monotonic()
        slow = [j for j in set(self.pending.values()) if now - j.began > allowed and not j.copied]
        if not slow or not self._idle():
            return
        for job in slow:
            job.copied = True
            words = f"no answer after {allowed:.0f} s, so it was started a second time"
            job.faults.append(Fault("slow", words))
            self.send(job, self._quick_node())

    def _idle(self) -> bool:
        """A job that has to wait for a CPU is not slow, and on one node a copy would be as slow."""
        computing = [n for n in self.ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) > 0]
        return len(computing) > 1 and self.ray.available_resources().get("CPU", 0) >= 1

    def _quick_node(self) -> str | None:
        """Of the half of the nodes with the most results, one after the other."""
        ranked = [node for node, _ in self.results.most_common()]
        half = ranked[: (len(ranked) + 1) // 2]
        return half[next(self.copies) % len(half)] if half else None

    def done(self) -> list[Any]:
        """Tasks that have ended, after a wait for the first."""
        tasks = list(self.pending)
        with self._attached():
            first, _ = self.ray.wait(tasks, num_returns=1, timeout=PAUSE)
            return self.ray.wait(tasks, num_returns=len(tasks), timeout=0)[0] if first else []

    def collect(self, task: Any) -> Ended[J] | None:
        """What an ended task means for its job; None while another task is at it, or was."""
        job = self.pending.pop(task, None)
        if job is None:
            return None  # the slower of two copies
        job.tasks.discard(task)
        errors = self.ray.exceptions
        try:
            with self._attached():
                node, value = self.ray.get(task)
        except errors.RayTaskError as error:
            cause = error.cause
            if not isinstance(cause, OSError | errors.RayError):  # would come again anywhere
                raise BadInput(f"the cluster cannot compute: {first_line(cause)}") from error
            return self._lost(job, Fault("raised", f"{type(cause).__name__}: {first_line(cause)}"))
        except errors.RuntimeEnvSetupError as error:
            raise BadInput(f"a node could not be set up: {first_line(error)}") from error
        except errors.RayError as error:
            kind = "node lost" if isinstance(error, _node_errors(errors)) else "died"
            return self._lost(job, Fault(kind, f"{type(error).__name__} of Ray"))
        self.results[node] += 1
        for slower in job.tasks:
            del self.pending[slower]
            self._stop(slower)
        return Ended(job, value, lost=False)

    @contextlib.contextmanager
    def _attached(self) -> Iterator[None]:
        """Ray says that its local raylet died, or the socket to it breaks. (What a task raised may
        be an OSError too, but that is a RayError as well.)"""
        errors = self.ray.exceptions
        local = getattr(errors, "LocalRayletDiedError", ())
        try:
            yield
        except (errors.RayError, OSError) as error:
            if isinstance(error, errors.RayError) and not isinstance(error, local):
                raise
            reason = first_line(error) if isinstance(error, OSError) else type(error).__name__
            raise BadInput(
                f"Ray's raylet on this machine was lost ({reason}), and with it the way to the "
                f"cluster: start Ray here again and repeat the command; what a results folder "
                f"holds is kept."
            ) from error

    def _lost(self, job: J, fault: Fault) -> Ended[J] | None:
        """What a sick node could not do is lost too: another one may."""
        job.faults.append(fault)
        if job.tasks:
            return None  # its copy is still at it
        job.tries += 1
        return Ended(job, None, lost=True)

    def stop(self) -> None:
        for task in self.pending:
            self._stop(task)

    def _stop(self, task: Any) -> None:
        with contextlib.suppress(Exception):  # it may have ended, or Ray with it
            if self.ray.is_initialized():  # or asking would start a new one
                self.ray.cancel(task, force=True)


def _node_errors(errors: Any) -> tuple[type[Exception], ...]:
    names = ("NodeDiedError", "ObjectLostError", "OwnerDiedError")
    return tuple(getattr(errors, name) for name in names if hasattr(errors, name))
