"""Measurements of milliseconds, some of them faulty, in a module that a worker loads at once.

Where a fault must happen only once, the parameters name a file that says that it has.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FAULTY = 4  # the first seed of the cells that go wrong


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    time.sleep(float(os.environ.get("TINY_PAUSE", "0")))
    draws = [np.random.default_rng(seed).normal() for seed in seeds]
    return {"x": np.array(draws) + parameters["shift"]}


def hangs(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    if seeds[0] == FAULTY:
        time.sleep(3600)
    return measure(arm, parameters, seeds)


def hangs_once(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    if seeds[0] == FAULTY and _first_time(parameters):
        time.sleep(3600)
    return measure(arm, parameters, seeds)


def hogs(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    if seeds[0] == FAULTY:
        np.ones(2_000_000_000 // 8)
    return measure(arm, parameters, seeds)


def half_nan(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    values = measure(arm, parameters, seeds)
    return {"x": values["x"] + (np.nan if seeds[0] == FAULTY else 0.0)}


def bulky(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """80 kB beside the number: two dozen do not fit a disk of 1 MB."""
    noise = np.random.default_rng(seeds[0]).normal(size=10_000)
    return {**measure(arm, parameters, seeds), "noise": noise}


def half_precision(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    return {"x": np.zeros(1, np.float16)}


def dies_once(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    if seeds[0] == FAULTY and _first_time(parameters):
        os.kill(os.getpid(), signal.SIGKILL)
    return measure(arm, parameters, seeds)


def kills_host(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Ends the process that this worker belongs to."""
    if seeds[0] == FAULTY and _first_time(parameters):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return measure(arm, parameters, seeds)


def slow_node(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    _others_wait_for("TOY_SLOW_NODE")
    time.sleep(120 if "TOY_SLOW_NODE" in os.environ else 0.2)
    return measure(arm, parameters, seeds)


def lost_node(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """A node that is to be lost never ends its cell."""
    _others_wait_for("TOY_LOST_NODE")
    time.sleep(3600 if "TOY_LOST_NODE" in os.environ else 0)
    return measure(arm, parameters, seeds)


def _others_wait_for(special: str) -> None:
    """On a cluster, no node begins before the special one has: it might get nothing to do."""
    begun, deadline = os.environ.get("TOY_BEGUN"), time.monotonic() + 60
    if begun and special in os.environ:
        Path(begun).touch()
    while begun and not Path(begun).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _first_time(parameters: Mapping[str, Any]) -> bool:
    try:
        Path(parameters["marker"]).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def block_dies_once(block: Sequence[Any]) -> int:
    """For a map of blocks: the first process that comes to number 3 is ended."""
    marker, number = block
    if number == 3 and _first_time({"marker": marker}):
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def block_hangs(block: Any) -> None:
    time.sleep(3600)


def trains(function: Callable[[Any], Any], marker: str, block: Any) -> Any:
    """`function` of a block. A node that is to be lost goes on training, after the marker is there,
    until it is: for a minute at most."""
    result, began = function(block), time.monotonic()
    while "TOY_LOST_NODE" in os.environ and time.monotonic() - began < 60:
        Path(marker).touch()
        result = function(block)
    return result
