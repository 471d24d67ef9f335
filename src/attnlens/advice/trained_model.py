"""Train the chosen model on the rows of a round, and measure the curvature of its loss there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlens.instruments import Curvature, Supervised, curvature
from attnlens.instruments.samples import learners
from attnlens.instruments.samples.labelled import Fold
from attnlens.networks import fit

from .trials import Trial

MOST_ROWS = 1_000  # rows for the curvature: each Hessian product uses all of them


def trained_curvature(trial: Trial, model: str) -> Curvature:
    """Train the model on all rows of the round; return the curvature at the trained parameters."""
    make, layout = learners.built_in(model, trial.data, trial.hidden)
    rows = np.random.default_rng(trial.seed).permutation(len(trial.data.inputs))
    everything = [Fold(rows, rows[:1])]
    settings: dict[str, Any] = {**learners.TRAINING, **trial.training}
    inputs, _, targets, _ = learners.prepared(layout, trial.data, everything, (len(rows),))
    kind = "softmax" if trial.data.classes else "squared"
    fitted = fit(make, inputs[0], targets[0], loss=kind, seeds=(trial.seed,), **settings)
    penalty = settings["l2"]
    mean_loss = Supervised(kind)

    def loss(model: Any, data: Any) -> Any:
        """The loss that training minimised: the mean over rows and the penalty."""
        squares = [jnp.sum(leaf**2) for leaf in jax.tree.leaves(model)]
        return mean_loss(model, data) + penalty * jnp.sum(jnp.stack(squares))

    chosen = slice(None, MOST_ROWS)
    with jax.enable_x64(True):
        labels = targets[0][chosen]
        data = (
            inputs[0][chosen].astype(float),
            labels if trial.data.classes else labels.astype(float),
        )
        return curvature(
            loss,
            fitted.model(0),
            data,
            probes=4 if trial.effort.steps <= 300 else 10,
            steps=30,
            rtol=1e-3,
            max_products=200,
            seed=trial.seed,
        )
