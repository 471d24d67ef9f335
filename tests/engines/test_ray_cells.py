"""The Ray engine without a cluster: sizes of batches, retries, stragglers."""

from __future__ import annotations

import time
from typing import Any

import pytest

from attnlens.core.cells import Cell, Fault
from attnlens.core.checks import ClusterLost, ResourceError
from attnlens.runs.engines import ray_cells, ray_tasks
from attnlens.runs.engines.base import Limits, Outcome
from attnlens.runs.engines.ray_cells import Batch, BatchQueue, Driver, own_folder
from attnlens.runs.engines.ray_tasks import SECONDS_WITHOUT_CPU, Tasks
from fake_ray import FakeRay, cell_results
from running import SUPPORT


def cell(seed: int, letter: str = "a", cost: float = 1.0) -> Cell:
    return Cell("T", "prediction", "tiny_cells:measure", {"l": letter}, (seed,), "", cost)


def test_a_batch_is_one_cell_until_one_was_timed_then_about_a_second():
    queue = BatchQueue([cell(seed) for seed in range(10_000)])
    first = queue.next(workers=2)
    assert len(first.cells) == 1
    queue.pace[first.program] = 0.01
    assert len(queue.next(2).cells) == 100
    queue.pace[first.program] = 1e-9
    assert len(queue.next(2).cells) == ray_cells.MOST_PER_BATCH
    queue.pace[first.program] = 7.0
    assert len(queue.next(2).cells) == 1


def test_scheduling_costs_less_than_a_twentieth_of_the_work():
    """Ray needs at most 5 ms per task; full batches take `SECONDS_PER_BATCH`."""
    seconds_per_task = 0.005
    for seconds in (0.0011, 0.01, 0.3, 0.99):
        queue = BatchQueue([cell(seed) for seed in range(5000)])
        (program,) = queue.programs
        queue.pace[program] = seconds
        work = seconds * queue.size(program, workers=2)
        assert seconds_per_task / work < 0.05


def test_one_driver_can_send_work_to_thirty_thousand_workers():
    queue = BatchQueue([cell(seed) for seed in range(1)])
    (program,) = queue.programs
    queue.pace[program] = 1.0
    workers = 32_000
    queue.programs[program].extend([cell(0)] * (100 * workers))
    seconds = queue.size(program, workers) * queue.pace[program]
    assert workers / seconds <= 1 / ray_cells.SECONDS_PER_TASK


@pytest.mark.parametrize(
    ("pace", "expected"),
    [
        (0.1, [2, 2, 1, 1, 1, 1, 1, 1, 1, 1]),  # ⌈cells left / 8⌉: half of a worker's share
        (0.001, [3, 3, 2, 1, 1, 1, 1]),  # ⌈left / 4⌉: half shares are more tasks than one can send
    ],
)
def test_the_last_batches_are_shared_by_all_workers(pace: float, expected: list[int]):
    queue = BatchQueue([cell(seed) for seed in range(12)])
    (program,) = queue.programs
    queue.pace[program] = pace
    sizes = []
    while queue:
        sizes.append(len(queue.next(4).cells))
    assert sizes == expected


def test_programs_with_the_fewest_batches_at_ray_go_first():
    queue = BatchQueue([cell(0, "a"), cell(1, "a"), cell(2, "b")])
    taken = []
    while queue:
        batch = queue.next(2)
        queue.sent[batch.program] += 1
        taken.append(batch.cells[0].parameters["l"])
    assert taken == ["a", "b", "a"]


def outcomes_of(ray: FakeRay, cells: list[Cell], workers: int | None = None) -> list[Outcome]:
    return list(Driver(ray, cells, workers, Limits()).run())


def test_of_a_hundred_thousand_cells_few_are_with_ray_at_a_time():
    ray = FakeRay(cell_results, cpus=4)
    outcomes = outcomes_of(ray, [cell(seed) for seed in range(100_000)])
    assert len({outcome.cell.seeds for outcome in outcomes}) == len(outcomes) == 100_000
    assert ray.most_pending <= ray_tasks.JOBS_PER_CPU * 4
    assert ray.started < 500  # batches of up to a thousand cells, not one task per cell


def test_fewer_workers_than_cpus_means_fewer_tasks_at_a_time():
    ray = FakeRay(cell_results, cpus=4)
    outcomes_of(ray, [cell(seed) for seed in range(50)], workers=1)
    assert ray.most_pending == 1


def test_a_lost_node_is_recorded_once_and_its_batch_is_retried():
    ray = FakeRay(cell_results)
    lost = ray.exceptions.NodeDiedError()
    ray.compute = lambda task, *work: lost if task == 3 else cell_results(task, *work)
    outcomes = outcomes_of(ray, [cell(seed) for seed in range(50)])
    assert len({outcome.cell.seeds for outcome in outcomes}) == len(outcomes) == 50
    assert [f for o in outcomes for f in o.faults] == [Fault("node lost", "NodeDiedError of Ray")]


def test_a_cell_that_is_lost_every_time_fails_alone_with_the_reason():
    ray, bad = FakeRay(cell_results), cell(7)
    lost = ray.exceptions.WorkerCrashedError()
    ray.compute = lambda task, cells, *_: lost if bad in cells else cell_results(task, cells)
    outcomes = outcomes_of(ray, [cell(seed) for seed in range(50)])
    assert len(outcomes) == 50
    (failed,) = [outcome for outcome in outcomes if outcome.values is None]
    assert failed.cell == bad
    assert failed.failure == "WorkerCrashedError of Ray (tried 4 times)"
    # The cell is lost twice with its batch and twice alone. Cells that only shared the batch do not
    # fail.
    assert [fault.kind for o in outcomes for fault in o.faults] == ["died"] * 4
    assert len(failed.faults) >= 2


@pytest.mark.parametrize("error", [FakeRay.exceptions.LocalRayletDiedError, BrokenPipeError])
def test_the_loss_of_the_local_raylet_fails_no_cell(error: type[Exception]):
    """The run ends with `ClusterLost`: otherwise every later task, and so every remaining cell,
    would fail at once."""
    ray, outcomes = FakeRay(cell_results), []
    ray.compute = lambda task, *work: error() if task > 3 else cell_results(task, *work)
    run = Driver(ray, [cell(seed) for seed in range(50)], None, Limits()).run()
    with pytest.raises(ClusterLost, match=r"Ray's raylet on this machine was lost \("):
        outcomes.extend(run)  # keeps the outcomes before the error
    assert outcomes
    assert all(outcome.values is not None for outcome in outcomes)
    assert [f for o in outcomes for f in o.faults] == []


def test_a_straggler_is_copied_and_the_slower_task_cancelled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ray_tasks, "SHORTEST_STRAGGLER", 0.05)
    ray = FakeRay(cell_results)
    ray.compute = lambda task, *work: None if task == 2 else cell_results(task, *work)
    outcomes = outcomes_of(ray, [cell(seed, cost=0.001) for seed in range(2)])
    assert len({outcome.cell.seeds for outcome in outcomes}) == len(outcomes) == 2
    assert ray.cancelled == [2]
    assert [f.kind for o in outcomes for f in o.faults] == ["slow"]


@pytest.mark.parametrize(("nodes", "idle"), [(1, 1.0), (2, 0.0)])
def test_nothing_is_copied_on_one_node_or_without_an_idle_cpu(
    monkeypatch: pytest.MonkeyPatch, nodes: int, idle: float
):
    monkeypatch.setattr(ray_tasks, "SHORTEST_STRAGGLER", 0.05)
    ray = FakeRay(cell_results)
    ray.node_count, ray.idle_cpus = nodes, idle
    start = time.monotonic()
    ray.compute = lambda task, *work: (
        cell_results(task, *work) if time.monotonic() - start > 0.3 else None
    )
    outcomes = outcomes_of(ray, [cell(seed, cost=0.001) for seed in range(2)])
    assert [f for o in outcomes for f in o.faults] == []
    assert ray.started == 2


def test_a_task_that_ended_during_a_commit_is_not_a_straggler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ray_tasks, "SHORTEST_STRAGGLER", 0.05)
    ray = FakeRay(cell_results)
    ray.compute = lambda task, *work: (
        cell_results(task, *work) if task == 1 or 1 not in ray.pending else None
    )
    outcomes = []
    for outcome in Driver(ray, [cell(seed, cost=0.001) for seed in range(2)], None, Limits()).run():
        outcomes.append(outcome)
        time.sleep(0.1)  # a slow commit
    assert [f for o in outcomes for f in o.faults] == []
    assert ray.started == len(outcomes) == 2


def test_copies_go_to_the_nodes_with_the_most_results():
    tasks: Tasks[Batch] = Tasks(FakeRay(cell_results), None)
    assert tasks.fast_node() is None
    tasks.results.update({"slow": 1, "fast": 9, "other": 8})
    assert [tasks.fast_node() for _ in range(4)] == ["fast", "other", "fast", "other"]


@pytest.mark.parametrize("lost", ["copy", "original"])
def test_one_of_two_tasks_of_a_straggler_may_be_lost(monkeypatch: pytest.MonkeyPatch, lost: str):
    monkeypatch.setattr(ray_tasks, "SHORTEST_STRAGGLER", 0.05)
    ray, lost_task = FakeRay(), 2 if lost == "copy" else 1

    def compute(task: int, *work: Any) -> Any:
        if ray.started < 2:
            return None  # the copy does not exist yet
        if task == lost_task:
            raise FakeRay.exceptions.WorkerCrashedError
        return None if lost_task in ray.pending else cell_results(task, *work)

    ray.compute = compute
    (outcome,) = outcomes_of(ray, [cell(0, cost=0.001)])
    assert outcome.values is not None
    assert [fault.kind for fault in outcome.faults] == ["slow", "died"]


def test_an_error_of_the_task_itself_ends_the_run_with_one_sentence():
    ray = FakeRay(cell_results)
    error = ray.exceptions.RayTaskError()
    error.cause = ResourceError("node x has numpy 1, the driver has 2")
    ray.compute = lambda *_: error
    with pytest.raises(ResourceError, match="cannot compute: node x has numpy 1"):
        outcomes_of(ray, [cell(0)])


def test_the_folder_of_the_users_claims_is_copied_and_installed_code_is_not():
    inside = Cell("A", "prediction", "attnlens.claims.cells:blocks", {}, (0,), "")
    assert own_folder([inside]) is None
    assert own_folder([cell(0), inside]) == SUPPORT
    assert own_folder([Cell("A", "prediction", "scipy.stats:norm", {}, (0,), "")]) is None


def test_the_expected_seconds_of_a_batch():
    queue = BatchQueue([])
    batch = Batch([cell(0, cost=2.0), cell(1, cost=2.0)])
    assert queue.seconds(batch) == 4.0
    queue.pace[batch.program] = 10.0
    assert queue.seconds(batch) == 20.0


@pytest.mark.parametrize(("idle", "sentences"), [(0.0, 1), (1.0, 0)])
def test_a_cluster_without_a_free_cpu_is_reported_once(idle: float, sentences: int):
    now, notices = [0.0], []
    ray = FakeRay(lambda *_: None, cpus=3)  # tasks never end
    ray.idle_cpus = idle
    tasks: Tasks[Batch] = Tasks(ray, ray, lambda: now[0], notices.append)
    tasks.send(Batch([Cell("T", "prediction", "tiny_cells:measure", {}, (0,), "")]))
    assert tasks.finished() == []
    assert notices == []  # no notice yet: the cluster may be starting
    for _ in range(3):
        now[0] += SECONDS_WITHOUT_CPU
        tasks.finished()
    assert len(notices) == sentences
    assert all("(3 in all)" in notice for notice in notices)
