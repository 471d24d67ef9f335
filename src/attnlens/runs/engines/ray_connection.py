"""Connecting to a Ray cluster, the environment of its processes, and the check of its nodes."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attnlens.core.checks import BadInput, ResourceError
from attnlens.core.numerical_path import NumericalPath, library_names
from attnlens.runs.code_version import code_version
from attnlens.runs.provenance import cores, native_code_is_off, numerical_path, packages

from .base import ONE_THREAD, PRECISION

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0": Ray stays on 127.0.0.1, on Linux too
# Advice in error messages: how native code becomes the same on every node.
SAME_PATH = (
    "install attnlens-native, or the same C++ compiler, on every node, or set ATTNLENS_KERNEL=0 "
    "where the driver runs"
)
EXCLUDED_FILES = [".git", ".venv*", "*.sqlite", "*.sqlite-*", "attnlens-run", "__pycache__"]


# -- the driver ------------------------------------------------------------------------------------


ANSWER_SECONDS = 10.0
# Ray talks gRPC, which is HTTP/2: a server answers the preface and an empty SETTINGS frame with
# settings of its own (RFC 9113, section 3.4).
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def require_ray() -> None:
    """Raise if Ray is not installed, without importing it."""
    if importlib.util.find_spec("ray") is None:
        raise BadInput("engine ray needs the package ray: pip install 'attnlens[ray]'.")


def connect(address: str | None, workers: int | None, folder: Path | None) -> tuple[Any, bool]:
    """Connect to Ray; return the module `ray` and whether this call opened the connection.

    The caller must close a connection that this call opened.

    `folder`, if given, is copied to every node: it holds the user's own claims.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before Ray is imported
    new_cluster = address is None and not _cluster_is_running()
    if new_cluster:
        os.environ[LOOPBACK] = "0"  # a new cluster is not reachable from other machines
    import ray

    if ray.is_initialized():
        there = ray.get_runtime_context().gcs_address
        if address and not same_cluster(address, there):
            raise BadInput(
                f"address must be that of the cluster which Ray is connected to in this process, "
                f"{there}; got {address}: call `ray.shutdown()` first, or leave out the address."
            )
        return ray, False
    if address:
        check_address(address)
    runtime_env = {"working_dir": str(folder), "excludes": EXCLUDED_FILES} if folder else {}
    settings: dict[str, Any] = {
        "runtime_env": runtime_env,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    if new_cluster:
        settings.update(num_cpus=workers or cores(), include_dashboard=False)
    try:
        ray.init("local" if new_cluster else address or "auto", **settings)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"at {address}" if address else "here"
        raise ResourceError(
            f"no Ray cluster can be used {where} ({first_line(error)}): start one with `ray start "
            f"--head`, and join it with `ray start --address=HOST:PORT` on this machine too."
        ) from error
    return ray, True


def check_address(address: str) -> None:
    """Raise if no server answers at `address`: Ray itself would wait without an end."""
    host, port = _host_and_port(address)
    try:
        if address != "auto":
            with socket.create_connection((host, int(port)), ANSWER_SECONDS) as connection:
                connection.sendall(HTTP2_GREETING)
                if not connection.recv(1):
                    raise ConnectionError("the connection was closed")
    except (OSError, ValueError, OverflowError) as error:
        raise BadInput(
            f"no Ray cluster answers at {address} ({error}): give HOST:PORT as `ray start --head` "
            f"prints it."
        ) from None


def same_cluster(address: str, there: str) -> bool:
    """Whether `address`, as the user wrote it, means the cluster whose head node is at `there`.

    The address of a Ray client, ray://HOST:PORT, has another port, so only hosts are compared then.

    >>> same_cluster("localhost:6379", "127.0.0.1:6379")
    True
    >>> same_cluster("127.0.0.1:6380", "127.0.0.1:6379")
    False
    """
    if address in ("auto", there):
        return True
    (host, port), (head, head_port) = _host_and_port(address), _host_and_port(there)
    if port != head_port and not address.startswith("ray://"):
        return False
    return not _ip_addresses(host).isdisjoint(_ip_addresses(head))


def _host_and_port(address: str) -> tuple[str, str]:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    return host.strip("[]"), port  # IPv6 has brackets: [::1]:6379


def _ip_addresses(host: str) -> set[str]:
    """The IP addresses of a host. All addresses of this machine become "this machine", because its
    cluster may call it 192.168.1.5 where the user writes localhost."""
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return {host}
    return {"this machine" if _is_local(address) else address for address in addresses}


def _is_local(address: str) -> bool:
    """Whether an IP address belongs to this machine: a socket can be bound only to its own."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _cluster_is_running() -> bool:
    """Whether Ray has recorded a cluster that runs on this machine."""
    record = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    return "RAY_ADDRESS" in os.environ or record.exists()


def environment() -> dict[str, str]:
    """Environment variables of every process on a node: one thread, float64, native code and
    compiler flags as on the driver, and the paths of the user's own code (they exist on a node that
    shares the file system; on others Python ignores them)."""
    own_paths = [p for p in sys.path if p and not is_installed(Path(p))]
    return {
        **ONE_THREAD,
        **PRECISION,
        "RAY_USAGE_STATS_ENABLED": "0",
        "ATTNLENS_KERNEL": "0" if native_code_is_off() else "1",
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "PYTHONPATH": os.pathsep.join(own_paths),
    }


def is_installed(folder: Path) -> bool:
    """Whether a folder belongs to Python or its packages, which every node has itself."""
    places = [Path(place) for place in (sys.prefix, sys.base_prefix)]
    packages = {"site-packages", "dist-packages"} & set(folder.parts)
    return bool(packages) or any(folder.is_relative_to(place) for place in places)


# -- on a node -------------------------------------------------------------------------------------


def check_this_node(
    codes: Iterable[tuple[str, str]],
    packages: dict[str, str],
    paths: Iterable[str] = (),
    digests: Mapping[str, str] | None = None,
) -> None:
    """Raise unless this node has the package versions, the source and the numerical path of the
    driver: results must not depend on the node. `codes` pairs functions, "module:name", with the
    version of their source on the driver; `paths` are keys of the driver's `NumericalPath`, and
    `digests` the hashes of its compiled libraries. Native code that `paths` name is compiled here
    if this node has not compiled it yet."""
    name = socket.gethostname()
    for package in {**versions(), **packages}:
        version = version_here(package)
        if version != packages.get(package):
            raise ResourceError(
                f"node {name} has {package} {version}, the driver has {packages.get(package)}: "
                f"install the same versions on every node."
            )
    for function, code in set(codes):
        if code_version(function.partition(":")[0]) != code:
            raise ResourceError(
                f"node {name} has another source of {function} than the driver, or of its data: "
                f"install the same packages on every node."
            )
    for path in set(paths) - {""}:
        here = _path_here(path)
        if here.key != path:
            raise ResourceError(
                f"node {name} has the numerical path {here.key} ({here}), the driver has {path}: "
                f"{SAME_PATH}."
            )
        for library, digest in here.digests.items():
            if digests and digests.get(library) != digest:
                raise ResourceError(
                    f"node {name} has another build of the native library {library} ({digest}) "
                    f"than the driver ({digests.get(library)}): {SAME_PATH}."
                )


@cache
def _path_here(path: str) -> NumericalPath:
    from attnlens.attention.native import libraries  # imports JAX

    return libraries.follow(path, libraries.prepare)


@cache
def native_digests(path: str) -> dict[str, str]:
    """The hashes of the compiled libraries that `path` names, by library, in this process."""
    return numerical_path(library_names(path)).digests


@cache
def versions(lenses: frozenset[str] = frozenset()) -> dict[str, str]:
    """The versions of the packages that numbers depend on, and of those that provide `lenses`."""
    return packages(lenses)


@cache
def version_here(package: str) -> str | None:
    """The version of a package in this process; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def first_line(error: BaseException | None) -> str:
    """The first line of the message of an error."""
    return (str(error).strip().splitlines() or ["no reason was given"])[0]
