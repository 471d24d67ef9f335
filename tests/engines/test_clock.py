"""No code may assume that a monotonic clock has a large reading."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# The tests of code that reads a clock: Ray tasks and maps, local workers, deadlines, progress.
TIMED = (
    "engines/test_ray_map.py",
    "engines/test_ray_cells.py",
    "engines/test_ray_advise.py",
    "engines/test_local.py",
    "runs/test_compute.py",
    "advice/test_budget.py",
)


@pytest.mark.slow
def test_code_that_reads_a_clock_works_just_after_boot():
    """The tests of all code that reads a clock pass when the clock starts near zero."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n=0", "-q", *(str(TESTS / name) for name in TIMED)],
        env={**os.environ, "ATTNLENS_TEST_JUST_BOOTED": "1"},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-4000:]
