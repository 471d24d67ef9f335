"""Claims whose cells take milliseconds, for tests of engines, store and command line."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tiny_cells
from attnlens.claims import Assumption, Claim, Control, Meaning, Measured, Work, blocks
from attnlens.core.drawing import Figure, Point, Series
from attnlens.core.statistics import judge as judge_part
from attnlens.core.verdicts import Part, Region

COUNTED = ("hits", "misses")  # counted events of the compilation cache
CELLS = {"smoke": 12, "default": 40, "full": 400}


def plan(profile: str):
    for arm in ("prediction", "control"):
        for seeds in blocks(CELLS[profile], 4):
            yield Work(arm, {"shift": 0.0 if arm == "prediction" else 3.0}, seeds, 0.01)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    draws = [np.random.default_rng(seed).normal() for seed in seeds]
    return {"x": np.array(draws) + parameters["shift"], "process": np.array(os.getpid())}


def slow(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    time.sleep(float(os.environ.get("TOY_PAUSE", "0.05")))
    return measure(arm, parameters, seeds)


def raises(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    if seeds[0] == 4:
        raise ZeroDivisionError("seed 4 <script>alert(1)</script>\nsecond line")
    return measure(arm, parameters, seeds)


def dies(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    if seeds[0] == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return measure(arm, parameters, seeds)


def dies_once(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    marker = Path(os.environ["TOY_MARKER"])
    if seeds[0] == 4 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return measure(arm, parameters, seeds)


def prints(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    print("a measurement may print")
    os.write(1, b"even straight to the descriptor\n")
    return measure(arm, parameters, seeds)


def nan(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    return {"x": np.full(len(seeds), np.nan)}


def busy(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """A measurement of CPU time divided by wall time, of a program with batched LAPACK calls and
    products."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def program(matrices):
        roots = jnp.linalg.cholesky(matrices @ matrices.mT + 300 * jnp.eye(300))
        return jnp.linalg.eigvalsh(roots @ roots.mT)

    matrices = jax.random.normal(jax.random.key(0), (8, 300, 300))
    program(matrices).block_until_ready()
    cpu, wall = time.process_time(), time.perf_counter()
    while time.perf_counter() - wall < 1.5:
        program(matrices).block_until_ready()
    share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    return {"share": np.array(share), "double": np.array(matrices.dtype == jnp.float64)}


def compiles(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """A measurement of the number of programs compiled, and the number loaded from the cache on
    disk.

    If the parameters name a folder, two cells wait there for each other, so that two processes
    compute them. The cell with an odd seed then waits until the other one has compiled.
    """
    import jax
    import jax.monitoring
    import jax.numpy as jnp

    events: list[str] = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    if folder := parameters.get("folder"):
        number = seeds[0]
        _signal(folder, f"{number} is here")
        _wait_for(folder, f"{number ^ 1} is here")
        if number % 2:
            _wait_for(folder, f"{number ^ 1} has compiled")
    jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x))(jnp.ones((17, 17))).block_until_ready()
    if folder:
        _signal(folder, f"{seeds[0]} has compiled")
    counts = {name: events.count(f"/jax/compilation_cache/cache_{name}") for name in COUNTED}
    return {"missed": counts["misses"], "hit": counts["hits"], "process": os.getpid()}


def group_compiles(number: int) -> dict[str, Any]:
    """`compiles` for a map of groups."""
    return compiles("", {}, (number,))


def _signal(folder: str, event: str) -> None:
    (Path(folder) / event).touch()


def _wait_for(folder: str, event: str) -> None:
    deadline = time.monotonic() + 60
    while not (Path(folder) / event).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(event)
        time.sleep(0.02)


def judge(measured: Sequence[Measured]) -> list[Part]:
    values = np.concatenate([cell.values["x"] for cell in measured])
    return [judge_part("mean", values, Region(-1, 1))]


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    series = tuple(
        Series(arm, tuple(Point(1 + i, float(c.values["x"].mean())) for i, c in enumerate(cells)))
        for arm, cells in arms.items()
    )
    return Figure("Toy", "cell", "mean", series, log_x=False, log_y=False)


CLAIM = Claim(
    id="T.toy",
    title="Toy",
    statement="Standard normal draws have a mean near zero.",
    formula=r"\mathbb{E}\,x = 0",
    prediction="The mean is in −1 … 1.",
    controls={"control": Control("Shifted by three.")},
    assumptions=(Assumption("None"),),
    meaning=Meaning("Nothing."),
    source="Tests.",
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
SLOW = replace(CLAIM, id="T.slow", measure=slow)
RAISES = replace(CLAIM, id="T.raises", measure=raises)
DIES = replace(CLAIM, id="T.dies", measure=dies)
DIES_ONCE = replace(CLAIM, id="T.dies-once", measure=dies_once)
PRINTS = replace(CLAIM, id="T.prints", measure=prints)
NAN = replace(CLAIM, id="T.nan", measure=nan)
NEEDS = replace(CLAIM, id="T.needs", requires={"no_such_data": "pip install no-such-data"})


def weak_plan(profile: str):
    """A plan in which the control has the parameters of the prediction, so that its verdict is
    "supported"."""
    return [work._replace(parameters={"shift": 0.0}) for work in plan(profile)]


SUPPORTED_CONTROL = replace(CLAIM, id="T.supported-control", plan=weak_plan)

HOSTILE_TEXT = "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"
HOSTILE = replace(
    CLAIM,
    id=f"T.{HOSTILE_TEXT}",
    title=HOSTILE_TEXT,
    statement=HOSTILE_TEXT,
    formula=rf"\text{{{HOSTILE_TEXT}}}",
    prediction=HOSTILE_TEXT,
    controls={"control": Control(HOSTILE_TEXT)},
    assumptions=(Assumption(HOSTILE_TEXT),),
    meaning=Meaning(HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT),
    source=HOSTILE_TEXT,
    judge=lambda measured: [replace(part, quantity=HOSTILE_TEXT) for part in judge(measured)],
    figure=lambda arms: replace(
        figure(arms),
        title=HOSTILE_TEXT,
        x_label=HOSTILE_TEXT,
        y_label=HOSTILE_TEXT,
        series=tuple(replace(s, name=HOSTILE_TEXT) for s in figure(arms).series),
    ),
)


def huge_plan(profile: str):
    """A plan with ten thousand cells of one seed each."""
    for work in plan("smoke"):
        if work.seeds[0] == 0:
            for seeds in blocks(5000, 1):
                yield work._replace(seeds=seeds, cost=0.001)


HUGE = replace(CLAIM, id="T.huge", plan=huge_plan)


def tiny_plan(profile: str):
    """A plan with `TOY_CELLS` cells, half of them in the control."""
    for arm in ("prediction", "control"):
        for seeds in blocks(int(os.environ.get("TOY_CELLS", "100")) // 2, 1):
            yield Work(arm, {"shift": 0.0 if arm == "prediction" else 3.0}, seeds, 0.001)


def small_figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    means = [float(np.mean([cell.values["x"] for cell in cells])) for cells in arms.values()]
    points = tuple(Point(1 + i, mean) for i, mean in enumerate(means))
    return Figure("Toy", "arm", "mean", (Series("mean", points),), log_x=False, log_y=False)


def marked_plan(profile: str):
    """A plan whose cells have the marker file for a fault that happens once, from the environment
    of the driver."""
    for work in plan(profile):
        yield work._replace(parameters={**work.parameters, "marker": os.environ["TOY_MARKER"]})


TINY = replace(CLAIM, id="T.tiny", plan=tiny_plan, measure=tiny_cells.measure, figure=small_figure)
HANGS = replace(CLAIM, id="T.hangs", measure=tiny_cells.hangs)
HANGS_ONCE = replace(CLAIM, id="T.hangs-once", plan=marked_plan, measure=tiny_cells.hangs_once)
HOGS = replace(CLAIM, id="T.hogs", measure=tiny_cells.hogs)
HALF_NAN = replace(CLAIM, id="T.half-nan", measure=tiny_cells.half_nan)
FAULTLESS = replace(CLAIM, id="T.faultless", measure=tiny_cells.measure)
LOSES_WORKER = replace(CLAIM, id="T.loses-worker", plan=marked_plan, measure=tiny_cells.dies_once)
LOSES_HOST = replace(CLAIM, id="T.loses-host", plan=marked_plan, measure=tiny_cells.kills_host)
LOST_NODE = replace(CLAIM, id="T.lost-node", measure=tiny_cells.lost_node)
SLOW_NODE = replace(CLAIM, id="T.slow-node", measure=tiny_cells.slow_node)
BULKY = replace(CLAIM, id="T.bulky", measure=tiny_cells.bulky)
