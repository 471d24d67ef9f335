"""Measurements that take milliseconds, some with faults, in a module that loads quickly.

If a fault must happen only once, the parameters name a marker file, which is created when it
happens.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FAULTY = 4  # the first seed of the cell that has the fault


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    time.sleep(float(os.environ.get("TINY_PAUSE", "0")))
    draws = [np.random.default_rng(seed).normal() for seed in seeds]
    return {"x": np.array(draws) + parameters["shift"]}


def masked(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    return {"x": np.ma.masked_array(measure(arm, parameters, seeds)["x"], [True] * len(seeds))}


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
    """A measurement that adds 80 kB: 24 such cells do not fit on a disk of 1 MB."""
    noise = np.random.default_rng(seeds[0]).normal(size=10_000)
    return {**measure(arm, parameters, seeds), "noise": noise}


def half_precision(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    return {"x": np.zeros(1, np.float16)}


def name_with_a_surrogate(
    arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]
) -> dict[str, Any]:
    return {"x\udc80": np.zeros(1)}


def exits(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    sys.exit(0)


def dies_once(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    if seeds[0] == FAULTY and _first_time(parameters):
        os.kill(os.getpid(), signal.SIGKILL)
    return measure(arm, parameters, seeds)


def kills_host(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """A measurement that kills the parent process of its worker."""
    if seeds[0] == FAULTY and _first_time(parameters):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return measure(arm, parameters, seeds)


def slow_node(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    _others_wait_for("TOY_SLOW_NODE")
    time.sleep(120 if "TOY_SLOW_NODE" in os.environ else 0.2)
    return measure(arm, parameters, seeds)


def lost_node(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """A measurement that never ends on the node that will be lost."""
    _others_wait_for("TOY_LOST_NODE")
    time.sleep(3600 if "TOY_LOST_NODE" in os.environ else 0)
    return measure(arm, parameters, seeds)


def _others_wait_for(special: str) -> None:
    """Wait until the node with the environment variable `special` has begun a cell, so that this
    node surely gets one."""
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


def group_dies_once(group: Sequence[Any]) -> int:
    """For a map of groups, the square of a number; the first process that computes number 3 is
    killed."""
    marker, number = group
    if number == 3 and _first_time({"marker": marker}):
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def group_hangs(group: Any) -> None:
    time.sleep(3600)


def trains(function: Callable[[Any], Any], marker: str, group: Any) -> Any:
    """Apply `function` to a group. With TOY_LOST_NODE set, create `marker`, which tells the test
    that it may kill this node, and repeat the computation until then, for a minute at most."""
    result, began = function(group), time.monotonic()
    while "TOY_LOST_NODE" in os.environ and time.monotonic() - began < 60:
        Path(marker).touch()
        result = function(group)
    return result
