"""Test set-up: one thread a process, float64, shapes checked, implicit promotion forbidden."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

# Before JAX is imported: with more threads, batched LAPACK calls can hang.
os.environ.update(NPROC="1", OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
os.environ.update(JAX_ENABLE_X64="1", JAX_PLATFORMS="cpu", MPLBACKEND="agg")
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=2"  # as in workers: quicker to compile

from jaxtyping import install_import_hook

CHECKED = [
    "attnlens.kernels", "attnlens.worlds", "attnlens.attention", "attnlens.networks",
    "attnlens.instruments",
]  # fmt: skip
install_import_hook(CHECKED, "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# The same examples on every run: a red test is a change of ours, not of the dice.
settings.register_profile("attnlens", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("attnlens")


@pytest.fixture(autouse=True, scope="module")
def bounded_memory() -> Iterator[None]:
    """Compiled programs are dropped between files once a process holds more than 2 GB: kept to the
    end they would come to 5 GB a process."""
    yield
    statm = Path("/proc/self/statm")
    if statm.exists() and int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > 2e9:
        jax.clear_caches()


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
