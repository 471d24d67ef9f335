"""A Ray cluster of several nodes on 127.0.0.1, in a process of its own that ends with the tests.

As a module: `Loopback`, a context manager. As a program: reads commands, one per line.

    add [1, {"NAME": "VALUE"}]   add a node with this number of CPUs and these environment
                                 variables; prints its number
    kill NUMBER                  kill that node with SIGKILL; prints "killed"

It starts with a head without CPUs (so that every other node may be killed) and prints the address
of the cluster. When its input closes it shuts the cluster down.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import pytest

from attnlens.runs.engines.ray_connection import LOOPBACK
from running import ENVIRONMENT

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs ray (extra `ray`)"
)
on_a_cluster = [pytest.mark.slow, needs_ray]
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    LOOPBACK: "0",
    # With these heartbeats a lost node is noticed after a few seconds instead of half a minute.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    # The memory monitor is off: all nodes share one machine, so its free memory says nothing about
    # a node.
    "RAY_memory_monitor_refresh_ms": "0",
}


class Loopback:
    """A cluster with `address`, `add` and `kill`."""

    def __init__(self, **environment: str):
        self.environment = {**ENVIRONMENT, **SETTINGS, **environment}

    def __enter__(self) -> Loopback:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__],
            env=self.environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.address = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        finally:
            self.process.kill()
            if self.process.stdout:
                self.process.stdout.close()

    def add(self, cpus: int = 1, **environment: str) -> int:
        return int(self._ask(f"add {json.dumps([cpus, environment])}"))

    def kill(self, number: int) -> None:
        assert self._ask(f"kill {number}") == "killed"

    def _ask(self, command: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        """The next line that starts with "= "; other lines are printed by Ray."""
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("= "):
                return line[2:].strip()
        raise AssertionError("the cluster did not start")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="r") as folder:  # short: for paths of sockets
        os.environ["RAY_TMPDIR"] = folder  # keeps other clusters apart
        from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports] (an optional package)

        small: dict[str, Any] = {
            "object_store_memory": 80_000_000,
            "include_dashboard": False,
            "node_ip_address": "127.0.0.1",
        }
        head = {"num_cpus": 0, **small}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        nodes: list[Any] = []
        try:
            print("=", cluster.address, flush=True)
            for line in sys.stdin:
                command, _, rest = line.partition(" ")
                if command == "add":
                    cpus, environment = json.loads(rest)
                    nodes.append(cluster.add_node(num_cpus=cpus, env_vars=environment, **small))
                    print("=", len(nodes) - 1, flush=True)
                elif command == "kill":
                    cluster.remove_node(nodes[int(rest)], allow_graceful=False)
                    print("= killed", flush=True)
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
