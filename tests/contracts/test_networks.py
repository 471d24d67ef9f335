"""Every registered network is pure, differentiable, works under vmap and keeps its precision.

Encoders without positions are equivariant under permutations of the tokens.
"""

from __future__ import annotations

from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from attnlens.attention import OPERATORS
from attnlens.networks import LOSSES, NETWORKS, Encoder, Tokens, count

each_network = pytest.mark.parametrize("name", NETWORKS)
EPS = np.finfo(float).eps
STEP = 1e-5
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@cache
def program(name: str):
    """One compiled program that returns everything that the tests of a network compare."""
    example = NETWORKS[name]

    def compute(keys):
        model = example.make(keys[0])
        inputs, targets = jax.vmap(example.sample)(jax.random.split(keys[1]))
        arrays, rest = eqx.partition(model, eqx.is_inexact_array)
        flat, restore = ravel_pytree(arrays)

        def loss(flat):
            model = eqx.combine(restore(flat), rest)
            return jnp.mean(jax.vmap(LOSSES[example.loss])(jax.vmap(model)(inputs), targets))

        value, gradient = jax.value_and_grad(loss)(flat)
        direction = jnp.cos(jnp.arange(flat.size, dtype=flat.dtype))
        moved = flat[None] + jnp.array([[STEP], [-STEP]]) * direction[None]
        ahead, behind = jax.lax.map(loss, moved)
        return {
            "parameters": flat,
            "together": jax.vmap(model)(inputs),
            "alone": model(jax.tree.map(lambda leaf: leaf[1], inputs)),
            "loss": value,
            "gradient": gradient,
            "slope": (ahead - behind) / (2 * STEP),
            "along": gradient @ direction,
        }

    # Most of the time is spent on compiling, and most of that on optimisations.
    return jax.jit(compute, compiler_options=QUICK)


@cache
def measured(name: str, seed: int = 1):
    return jax.tree.map(np.asarray, program(name)(jax.random.split(jax.random.key(seed))))


@each_network
def test_the_key_decides_the_parameters(name: str):
    first, other = (measured(name, seed)["parameters"] for seed in (1, 2))
    assert np.array_equal(first, measured.__wrapped__(name)["parameters"])  # a second draw
    assert not np.array_equal(first, other)
    assert first.size == count(eqx.filter_eval_shape(NETWORKS[name].make, jax.random.key(0)))


@each_network
def test_a_batch_gives_the_same_outputs_as_single_samples(name: str):
    # A few layers of sums of at most 16 terms of order one, added in another order. CME also has a
    # linear system with a condition number of at most (5 + 0.1)/0.1.
    np.testing.assert_allclose(
        measured(name)["together"][1], measured(name)["alone"], rtol=0, atol=51 * 64 * EPS
    )


@each_network
def test_loss_and_gradient_are_finite(name: str):
    values = measured(name)
    assert values["loss"].shape == ()
    assert np.isfinite(values["loss"])
    assert np.isfinite(values["gradient"]).all()
    assert np.any(values["gradient"] != 0)


@each_network
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_precision_is_kept(name: str, precision: str):
    with jax.enable_x64(precision == "float64"):
        values = jax.eval_shape(program(name), jax.random.split(jax.random.key(0)))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(values)} == {precision}


@each_network
def test_the_gradient_agrees_with_central_differences(name: str):
    values = measured(name)
    # The error of central differences is h² times a third derivative (up to ~1e3 here) and ε/h of
    # rounding.
    bound = 1e3 * STEP**2 + 10 * EPS / STEP
    assert float(values["slope"]) == pytest.approx(float(values["along"]), rel=1e-5, abs=bound)


@pytest.mark.slow  # compiles fourteen operators
@pytest.mark.parametrize("operator", OPERATORS)
def test_an_encoder_without_positions_is_equivariant_with_any_operator(operator: str):
    shape = {"token_dim": 3, "width": 8, "heads": 2, "layers": 1, "operator": operator}
    order = jnp.array([3, 1, 5, 0, 4, 2])

    @partial(jax.jit, compiler_options=QUICK)
    def compute(key):
        x = jax.random.normal(key, (6, 3))
        model = Encoder(key, positions=True, max_length=6, **shape)
        pooled = eqx.tree_at(lambda m: m.positions, model, None)
        both = jnp.stack([x, x[order]])
        (tokens, moved), placed = jax.lax.map(pooled.represent, both), jax.lax.map(model, both)
        padded = Tokens(x.at[4:].set(50.0), jnp.arange(6) < 4)
        return (moved, tokens[order]), (pooled(padded), pooled(x[:4])), placed

    *equal, (placed, moved) = compute(jax.random.key(1))
    for values, expected in equal:
        # Sums are added in another order, with an error of 100 ε; the systems of CME have a
        # condition number ≤ 61. The error is relative to the layer-normed rows, which are of order
        # one: a pooled output near zero by cancellation has the rounding error of these rows.
        bound = 100 * EPS * (61 if operator.startswith("cme") else 1)
        scale = max(1.0, np.max(np.abs(expected)))
        np.testing.assert_allclose(values, expected, rtol=0, atol=bound * scale)
    assert np.max(np.abs(moved - placed)) > 1e-3  # control: positions break the equivariance


def test_an_encoder_takes_any_function_as_operator():
    def first_value(query, key, value, *, mask=None):
        return jnp.broadcast_to(value[:1], (query.shape[0], value.shape[1]))

    @partial(jax.jit, compiler_options=QUICK)
    def compute(key):
        x = jax.random.normal(key, (6, 3))
        model = Encoder(key, token_dim=3, width=8, heads=2, layers=1, operator=first_value)
        return model(x), model(x[::-1])

    forward, backward = compute(jax.random.key(1))
    assert forward.shape == (1,)
    assert not np.array_equal(forward, backward)
