"""A Ray cluster of several nodes on 127.0.0.1, in a process of its own that ends with the tests.

As a module: `Loopback`, to be used in a `with`. As a program: reads commands, one a line.

    add [1, {"NAME": "VALUE"}]   a node more, with so many CPUs and these environment variables;
                                 prints its number
    kill NUMBER                  that node, with SIGKILL; prints "killed"

It starts with a head that has no CPUs (so that every other node may be killed) and prints the
cluster's address. When its input closes it takes the cluster down.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from attnlens.engine.ray_connection import LOOPBACK
from running import ENVIRONMENT

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    LOOPBACK: "0",
    # A lost node is noticed after a few seconds, not half a minute.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    # These nodes share a machine with everything else: how full it is says nothing about them.
    "RAY_memory_monitor_refresh_ms": "0",
}


class Loopback:
    """The cluster: `address`, `add` and `kill`."""

    def __init__(self, **environment: str):
        self.environment = {**ENVIRONMENT, **SETTINGS, **environment}

    def __enter__(self) -> Loopback:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__],
            env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
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
        """The next line of ours; Ray prints lines of its own."""
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("= "):
                return line[2:].strip()
        raise AssertionError("the cluster did not start")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="r") as folder:  # short: sockets lie below it
        os.environ["RAY_TMPDIR"] = folder  # nothing of other clusters is seen, or overwritten
        from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

        small: dict[str, Any] = {
            "object_store_memory": 80_000_000, "include_dashboard": False,
            "node_ip_address": "127.0.0.1",
        }  # fmt: skip
        head = {"num_cpus": 0, **small}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        nodes: list[Any] = []
        try:
            print("=", cluster.address, flush=True)
            for line in sys.stdin:
                command, _, rest = line.partition(" ")
                if command == "add":
                    cpus, given = json.loads(rest)
                    nodes.append(cluster.add_node(num_cpus=cpus, env_vars=given, **small))
                    print("=", len(nodes) - 1, flush=True)
                elif command == "kill":
                    cluster.remove_node(nodes[int(rest)], allow_graceful=False)
                    print("= killed", flush=True)
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
