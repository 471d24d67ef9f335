"""Test set-up: one thread per process, float64, checked shapes, no implicit promotion."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Monotonic clocks have an arbitrary start, on Linux the boot of the machine. With this variable
# they start at half a second, as on a machine that has just booted (`test_clock.py`).
if os.environ.get("ATTNLENS_TEST_JUST_BOOTED"):

    def restarted(clock):
        start = clock() - 0.5
        return lambda: clock() - start

    time.monotonic, time.perf_counter = restarted(time.monotonic), restarted(time.perf_counter)

# Set before JAX is imported: with more threads, batched LAPACK calls can hang.
os.environ.update(NPROC="1", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
os.environ.update(JAX_ENABLE_X64="1", JAX_PLATFORMS="cpu", MPLBACKEND="agg")
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=2"  # as in workers; faster to compile

from jaxtyping import install_import_hook

CHECKED = [
    "attnlens.core.kernels",
    "attnlens.worlds",
    "attnlens.attention",
    "attnlens.networks",
    "attnlens.training",
    "attnlens.instruments",
]
install_import_hook(CHECKED, "beartype.beartype")

import jax  # noqa: E402 (after the hook is installed)
import numpy as np  # noqa: E402 (after the hook is installed)
import pytest  # noqa: E402 (after the hook is installed)
from hypothesis import settings  # noqa: E402 (after the hook is installed)

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Compiled programs are kept from one run to the next: a second run of the tests takes less than
# half of the processor time. The folder is set here and not in the environment, so that processes
# which a test starts, and may kill, use a folder of their own.
CACHE = os.environ.get("ATTNLENS_CACHE") or Path.home() / ".cache" / "attnlens"
jax.config.update("jax_compilation_cache_dir", str(Path(CACHE) / "tests"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# The same examples in every run: a test fails because of a change, not by chance.
settings.register_profile("attnlens", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("attnlens")


# The longest tests start first, so that no worker process waits for one of them at the end.
LONGEST = ("test_ray_cells_cluster.py::TestOnACluster", "test_killed_at_200_random_moments")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONGEST))


@pytest.fixture(autouse=True, scope="module")
def bounded_memory() -> Iterator[None]:
    """Drop compiled programs between files when a process uses more than 2 GB; otherwise they would
    grow to 5 GB per process."""
    yield
    statm = Path("/proc/self/statm")
    if statm.exists() and int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > 2e9:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def generators_start_anew(request: pytest.FixtureRequest) -> None:
    """Reset the module-level random generators of the test file to their state at import, so that
    no result depends on the order in which tests run."""
    for name, value in vars(request.module).items():
        if isinstance(value, np.random.Generator):
            place = (request.module.__name__, name)
            value.bit_generator.state = STATES.setdefault(place, value.bit_generator.state)


STATES: dict[tuple[str, str], Any] = {}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", place], check=True)
