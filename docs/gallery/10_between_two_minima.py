"""Do two minima lie in one valley?

Two networks with different starts end in different minima. The straight line between
them crosses a barrier; on a curve that was trained to stay low the barrier is lower.
"""

from functools import partial

import jax
import numpy as np

from attnlens.instruments import Supervised, connect
from attnlens.networks import SelfAttention, fit
from attnlens.worlds import TokenTeacher

shape = {"tokens": 3, "token_dim": 3, "query_dim": 1, "value_dim": 1, "hidden": 3}
tokens = TokenTeacher(**shape).sample(jax.random.key(1), length=256).tokens
data = np.asarray(tokens.key), np.asarray(tokens.value)
fitted = fit(partial(SelfAttention, **shape), *data, seeds=(0, 1), steps=600, every=600)

path = connect(Supervised("squared"), fitted.model(0), fitted.model(1), data, steps=200)
print(path)
path.plot().savefig("two-ways.svg")
