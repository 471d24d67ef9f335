"""Softmax attention stays biased.

Tokens carry a key on the sphere and a noisy value of a linear function there. At a fixed
temperature softmax attention averages over a neighbourhood whose size does not depend on the
number of tokens, so its error levels off. The dotted line is the slope of the best possible
answer, the exact posterior mean.
"""

from functools import partial

import attnlens
from attnlens.attention import softmax
from attnlens.worlds import LinearRegression

world = LinearRegression(key_dim=3, noise_std=0.5)
operator = partial(softmax, temperature=0.5)
curve = attnlens.inference_error(operator, world, lengths=(16, 64, 256, 1024), episodes=64)

print(curve)
curve.plot().savefig("error.svg")
