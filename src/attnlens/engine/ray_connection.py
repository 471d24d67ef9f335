"""The way to a Ray cluster: connecting, what a process there is given, which node may compute."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from attnlens.checks import BadInput
from attnlens.claims.code_version import code_version
from attnlens.engine.base import ONE_THREAD, PRECISION
from attnlens.engine.local import cores

PACKAGES = ("attnlens", "jax", "jaxlib", "numpy")  # whose versions decide about bits
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0": Ray stays on 127.0.0.1, on Linux too
LEFT_BEHIND = [".git", ".venv*", "*.sqlite", "*.sqlite-*", "attnlens-run", "__pycache__"]


# -- the driver ------------------------------------------------------------------------------------


def need_ray() -> None:
    """One sentence if Ray is not installed; it is not imported for that."""
    if importlib.util.find_spec("ray") is None:
        raise BadInput("engine ray needs the package ray: pip install 'attnlens[ray]'.")


def connect(address: str | None, workers: int | None, folder: Path | None) -> tuple[Any, bool]:
    """The module `ray`, connected, and whether the connection is ours to close."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before it is imported
    alone = address is None and not _is_running()
    if alone:
        os.environ[LOOPBACK] = "0"  # our own cluster is nobody else's business
    import ray

    if ray.is_initialized():
        there = ray.get_runtime_context().gcs_address
        if address and not same_cluster(address, there):
            raise BadInput(
                f"the cluster at {address} was asked for, but Ray is connected to {there} in this "
                f"process: call `ray.shutdown()` first, or leave out the address."
            )
        return ray, False
    if address:
        knock(address)
    shipped = {"working_dir": str(folder), "excludes": LEFT_BEHIND} if folder else {}
    settings: dict[str, Any] = {
        "runtime_env": shipped, "log_to_driver": False, "logging_level": logging.ERROR,
    }  # fmt: skip
    if alone:
        settings.update(num_cpus=workers or cores(), include_dashboard=False)
    try:
        ray.init("local" if alone else address or "auto", **settings)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"at {address}" if address else "here"
        raise BadInput(
            f"no Ray cluster can be used {where} ({first_line(error)}): start one with `ray start "
            f"--head`, and join it with `ray start --address=HOST:PORT` on this machine too."
        ) from error
    return ray, True


def knock(address: str) -> None:
    """One sentence at once where nobody listens; Ray itself would try for minutes."""
    host, port = _host_and_port(address)
    try:
        if address != "auto":
            socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise BadInput(
            f"no Ray cluster answers at {address} ({error}): give HOST:PORT as `ray start --head` "
            f"prints it."
        ) from None


def same_cluster(address: str, there: str) -> bool:
    """Whether `address`, as a user wrote it, leads to the cluster whose head is at `there`.

    A client's address, ray://HOST:PORT, has a port of its own, so hosts alone are compared then.

    >>> same_cluster("localhost:6379", "127.0.0.1:6379")
    True
    >>> same_cluster("127.0.0.1:6380", "127.0.0.1:6379")
    False
    """
    if address in ("auto", there):
        return True
    (host, port), (head, its_port) = _host_and_port(address), _host_and_port(there)
    if port != its_port and not address.startswith("ray://"):
        return False
    return not _machines(host).isdisjoint(_machines(head))


def _host_and_port(address: str) -> tuple[str, str]:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    return host.strip("[]"), port  # [::1]:6379


def _machines(host: str) -> set[str]:
    """The numbers that a name stands for; one name for all numbers of this machine, because its
    cluster calls it 192.168.1.5 where the user says localhost."""
    try:
        numbers = {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return {host}
    return {"this machine" if _is_ours(number) else number for number in numbers}


def _is_ours(number: str) -> bool:
    """Only a machine's own numbers can be bound to."""
    family = socket.AF_INET6 if ":" in number else socket.AF_INET
    try:
        with socket.socket(family) as own:
            own.bind((number, 0))
    except OSError:
        return False
    return True


def _is_running() -> bool:
    """Whether Ray has noted a cluster that runs on this machine."""
    noted = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    return "RAY_ADDRESS" in os.environ or noted.exists()


def environment() -> dict[str, str]:
    """For every process on a node: one thread, float64, the driver's choice of kernels and of flags
    for the compiler, and the places of the user's own code (which a node with the same file system
    has; nobody minds the others)."""
    own = [p for p in sys.path if p and not installed(Path(p))]
    return {
        **ONE_THREAD, **PRECISION, "RAY_USAGE_STATS_ENABLED": "0",
        "ATTNLENS_KERNEL": os.environ.get("ATTNLENS_KERNEL", "1"),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "PYTHONPATH": os.pathsep.join(own),
    }  # fmt: skip


def installed(folder: Path) -> bool:
    """Whether it belongs to Python and its packages, which every node has its own of."""
    places = [Path(place) for place in (sys.prefix, sys.base_prefix)]
    packages = {"site-packages", "dist-packages"} & set(folder.parts)
    return bool(packages) or any(folder.is_relative_to(place) for place in places)


# -- on a node -------------------------------------------------------------------------------------


def check_this_node(codes: Iterable[tuple[str, str]], packages: dict[str, str]) -> None:
    """Refuse to compute what another node would compute otherwise. `codes` are functions,
    "module:name", with the driver's version of their source."""
    name = socket.gethostname()
    for package, version in versions().items():
        if version != packages[package]:
            raise BadInput(
                f"node {name} has {package} {version}, the driver has {packages[package]}: install "
                f"the same versions on every node."
            )
    for function, code in set(codes):
        if code_version(function.partition(":")[0]) != code:
            raise BadInput(f"node {name} has another source of {function} than the driver.")


@cache
def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def first_line(error: BaseException | None) -> str:
    return (str(error).strip().splitlines() or ["no reason was given"])[0]
