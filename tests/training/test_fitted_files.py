"""Fitted networks as files."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from attnlens.core.checks import BadInput
from attnlens.networks import Encoder, Fitted, fit

TOKENS = np.random.default_rng(0).normal(size=(16, 3, 2)).astype(np.float32)
LATENT = TOKENS.mean(1)
POSTERIOR = partial(Encoder, token_dim=2, outputs=2, head="posterior", width=4, heads=1, layers=1)


def fitted(make: Any = POSTERIOR) -> Fitted:
    return fit(make, TOKENS, LATENT, seeds=(0, 3), loss="gaussian", steps=4)


def test_a_posterior_head_is_saved_and_loaded(tmp_path):
    networks, path = fitted(), tmp_path / "head.safetensors"
    networks.save(path)
    again = Fitted.load(path)
    assert (again.members, again.status, again.recipe) == (
        networks.members,
        networks.status,
        networks.recipe,
    )
    for name in ("vectors", "steps", "train", "test_loss", "at"):
        np.testing.assert_array_equal(getattr(again, name), getattr(networks, name))
    mean, log_var = jax.tree.map(jnp.asarray, again.model(1))(jnp.asarray(TOKENS[0]))
    assert mean.shape == log_var.shape == (2,)


def own(key):
    return POSTERIOR(key)


def test_a_network_of_the_user_is_loaded_with_its_function(tmp_path):
    fitted(own).save(tmp_path / "own")
    with pytest.raises(BadInput, match="give make="):
        Fitted.load(tmp_path / "own")
    assert len(Fitted.load(tmp_path / "own", own)) == 2
    with pytest.raises(BadInput, match="parameters for each of 2 networks"):
        Fitted.load(tmp_path / "own", partial(POSTERIOR, width=8))


def test_other_files_are_refused(tmp_path):
    for name, content in {
        "none": None,
        "text": b"no safetensors",
        "other": safetensors.numpy.save({"a": np.ones(2)}),
        "header": safetensors.numpy.save({"a": np.ones(2)}, {"attnlens": '{"layout": 9}'}),
    }.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(BadInput, match="must be a file that"):
            Fitted.load(tmp_path / name)
