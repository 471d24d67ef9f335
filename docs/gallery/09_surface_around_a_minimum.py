"""The loss around a minimum, and what a random slice hides.

The same minimum twice: over two random directions, scaled to the network's own weights, it looks
like a bowl. Over the directions of largest and smallest curvature, the loss is steep along one
and nearly flat along the other.
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
model, loss = result.model(result.points[0]), Supervised("squared")

for name in ("random", "hessian-ends"):
    plane = attnlens.surface(loss, model, data, directions=name, points=21)
    print(f"{name}: {plane}")
    plane.plot().savefig(f"{name}.svg")
