"""Linear algebra in a user's process, where JAX has its default threads, does not hang."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from functools import partial
import attnlens
from attnlens.attention import cme
from attnlens.worlds import GaussianProcess
operator = partial(cme, ridge=0.09, temperature=0.5)
for seed in range(60):
    attnlens.inference_error(operator, GaussianProcess(), (64, 256), episodes=16, seed=seed)
print("finished")
"""


@pytest.mark.slow
def test_linear_algebra_with_default_threads_does_not_hang():
    """Several batched LAPACK calls at the same time hang within 60 rounds in one of four runs.
    attnlens makes these calls one after the other, so 60 rounds must finish. They take about 20
    s."""
    default = {k: v for k, v in os.environ.items() if k not in ("NPROC", "OPENBLAS_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=default, capture_output=True, text=True, timeout=400
    )
    assert done.stdout.strip() == "finished", done.stderr
