"""No deadlock with JAX's default threads, where concurrent LAPACK calls can hang."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import jax, jax.numpy as jnp
from attnlens.attention import cme
jax.config.update("jax_enable_x64", True)
keys = jax.random.split(jax.random.key(0), 3)
query, key, value = (jax.random.normal(k, (8, 96, 3)) for k in keys)

@jax.jit
def step(key, scale):
    def loss(key):
        chosen = cme(query, key, value, ridge="loo", residuals=True, variance=True)
        mapped = jax.vmap(lambda q, k, v: cme(q, k, v, ridge=0.1))(query, key, value)
        return jnp.sum(chosen.mean) + jnp.sum(chosen.var) + scale * jnp.sum(mapped)
    return jax.grad(loss)(key)

for i in range({steps}):
    step(key, jnp.array(float(i))).block_until_ready()
    print(i, flush=True)
"""


@pytest.mark.slow
def test_gradients_of_cme_do_not_hang_with_default_threads():
    """Run several solves, an eigendecomposition and their gradients 200 times. The loss is linear,
    so a backward solve can run at the same time as a forward solve."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    }
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(steps=200)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[-1] == "199"
