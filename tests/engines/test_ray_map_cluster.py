"""Groups of networks on a Ray cluster: results equal local ones to the last bit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlens.runs.engines.base import ONE_THREAD
from ray_cluster import Loopback, needs_ray
from running import ENVIRONMENT, SUPPORT


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(ATTNLENS_CACHE=str(tmp_path_factory.mktemp("cache"))) as cluster:
        cluster.add()
        cluster.add()
        yield cluster


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a program with the default number of threads, as a process of a user has."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)],
        env={k: v for k, v in ENVIRONMENT.items() if k not in ONE_THREAD},
        cwd=SUPPORT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> Any:
    """The JSON that a program prints after "= "; Ray prints other lines."""
    try:
        stdout, stderr = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"no answer within ten minutes: {process.communicate()}") from None
    assert process.returncode == 0, stderr
    (line,) = [line for line in stdout.splitlines() if line.startswith("= ")]
    return json.loads(line[2:])


def await_file(file: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the running process has created the file."""
    deadline = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def output(program: str, *arguments: object) -> Any:
    return answer(started(program, *arguments))


ADVISE = """
import contextlib, json, sys
import numpy as np
from attnlens.runs.compute import map_of

address = sys.argv[1] if len(sys.argv) > 1 else None
with map_of("ray" if address else "local", address) as map:
    puts = []
    if map is not None:
        put = map.objects.put
        map.objects.put = lambda array: puts.append(array.nbytes) or put(array)
    import attnlens
    from attnlens.advice.budget import Effort

    random = np.random.default_rng(0)
    X = random.normal(size=(16_000, 2))  # 12,000 rows per fold, over 100 kB
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
from attnlens.runs.compute import map_of
import tiny_cells
with map_of("ray", sys.argv[1]) as map:
    squares = list(map(tiny_cells.group_dies_once, [[sys.argv[2], i] for i in range(6)]))
    print("=", json.dumps([squares, map.faults]))
"""

COMPILES = """
import json, sys
from attnlens.runs.compute import map_of
import toy_claims
with map_of("ray", sys.argv[1]) as map:
    counts = list(map(toy_claims.group_compiles, range(4)))
    print("=", json.dumps([[int(c[name]) for c in counts] for name in ("missed", "hit")]))
"""

HUNG = """
import json, sys, time
import ray
import tiny_cells
from attnlens.core.checks import ClusterLost
from attnlens.runs.engines.ray_map import RayMap

address, marker = sys.argv[1:]
ray.init(address, log_to_driver=False)  # the user's connection outlives the first map
with RayMap(address, time_limit=8) as map:
    start = time.monotonic()
    try:
        list(map(tiny_cells.group_hangs, range(4)))
    except ClusterLost as error:
        message = str(error)
    waited, faults = time.monotonic() - start, map.faults
with RayMap(address) as map:
    squares = list(map(tiny_cells.group_dies_once, [[marker, i] for i in (0, 1, 2, 4)]))
print("=", json.dumps([message, waited, faults, squares]))
"""


@needs_ray
@pytest.mark.slow
class TestOnACluster:
    def test_advice_is_equal_to_the_local_one_to_the_last_bit(self, cluster: Loopback):
        here, there = output(ADVISE), output(ADVISE, cluster.address)
        assert there["sheet"] == here["sheet"]
        assert there["curves"] == here["curves"]
        assert (here["puts"], there["puts"] > 0) == (0, True)

    def test_a_group_whose_process_dies_is_retried(self, cluster: Loopback, tmp_path: Path):
        marker = tmp_path / "marker"
        squares, faults = output(TWICE, cluster.address, marker)
        assert squares == [i * i for i in range(6)]
        assert marker.exists()
        assert [kind for kind, _ in faults] == ["died"]

    def test_a_second_driver_finds_the_compiled_programs_of_the_first(self, cluster: Loopback):
        missed, _ = output(COMPILES, cluster.address)
        assert sum(missed) > 0
        missed, hit = output(COMPILES, cluster.address)
        assert missed == [0] * 4
        assert min(hit) > 0

    def test_groups_that_hang_free_their_cpus(self, cluster: Loopback, tmp_path: Path):
        """Groups hang on both CPUs. If the CPUs were not freed, the next groups would wait for an
        hour."""
        message, waited, faults, squares = output(HUNG, cluster.address, tmp_path / "marker")
        assert message.startswith("a group of networks gave no answer within its limit of 8 s: ")
        assert 8 <= waited < 60
        assert [kind for kind, _ in faults] == ["time limit"]
        assert squares == [0, 1, 4, 16]


FIT = """
import hashlib, json, sys
from functools import partial
from pathlib import Path
import numpy as np
from attnlens.runs.compute import map_of
from attnlens.networks import Baseline, fit
import tiny_cells

address, marker, connected = sys.argv[1:] or (None, None, None)
inputs = np.random.default_rng(0).normal(size=(20_000, 2))  # 160 kB: through the object store
targets = inputs[:, :1] * inputs[:, 1:]
with map_of("ray" if address else "local", address) as map:
    if map is not None:
        Path(connected).touch()

    def on_nodes(function, groups):
        return map(partial(tiny_cells.trains, function, marker), groups)

    fitted = fit(
        partial(Baseline, features=2, hidden=4), inputs, targets, seeds=range(12), steps=200,
        batch=64, block=2, map=map and on_nodes,
    )
    bits = hashlib.sha256(fitted.vectors.tobytes() + fitted.train.tobytes()).hexdigest()
    print("=", json.dumps([bits, map.faults if map else []]))
"""


@needs_ray
@pytest.mark.slow
def test_a_node_killed_during_training_changes_no_bit(tmp_path: Path):
    """The group on this node would take a minute, so the node is killed before the group ends."""
    marker, connected = tmp_path / "marker", tmp_path / "connected"
    with Loopback(ATTNLENS_CACHE=str(tmp_path / "cache")) as cluster:
        process = started(FIT, cluster.address, marker, connected)
        # Nodes join after the driver has connected, so that the driver belongs to the head node.
        # With older versions of Ray it could otherwise belong to the node that is killed.
        await_file(connected, process)
        lost = cluster.add(TOY_LOST_NODE="1")
        cluster.add()
        await_file(marker, process)
        cluster.kill(lost)
        bits, faults = answer(process)
    assert {kind for kind, _ in faults} & {"node lost", "died"}
    assert [bits, []] == output(FIT)
