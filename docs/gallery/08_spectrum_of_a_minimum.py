"""The spectrum of a Hessian at a minimum.

A small self-attention network at a local minimum (gradient norm below 1e−8). Most eigenvalues are
near zero: in these directions the loss hardly changes. The raw largest eigenvalue depends on how
the weights are scaled; the scaled one does not.
"""

from functools import partial

import jax
import numpy as np

import attnlens
from attnlens.instruments import Supervised
from attnlens.networks import SelfAttention, stationary_points
from attnlens.worlds import TokenTeacher

shape = {"tokens": 3, "token_dim": 3, "query_dim": 1, "value_dim": 1, "hidden": 3}
tokens = TokenTeacher(**shape).sample(jax.random.key(1), length=256).tokens
data = np.asarray(tokens.key), np.asarray(tokens.value)
result = stationary_points(partial(SelfAttention, **shape), *data, l2=1e-4, starts=4)
model = result.model(result.points[0])

curvature = attnlens.curvature(Supervised("squared"), model, data)
print(curvature)
print("share of eigenvalues below 0.01:", curvature.density.share_below(0.01))
curvature.plot().savefig("spectral-density.svg")
