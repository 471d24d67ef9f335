"""The mean that softmax attention does converge to.

The same operator as in the first example, compared with another target: the mean of values
*smoothed* by the kernel, which is known in closed form for linear functions on the sphere. The
distance to it falls as one over the square root of the number of tokens.
"""

from functools import partial

import attnlens
from attnlens.attention import softmax
from attnlens.worlds import LinearRegression

world = LinearRegression(key_dim=3, noise_std=0.5)
operator = partial(softmax, temperature=0.5)
curve = attnlens.inference_error(
    operator, world, (16, 64, 256, 1024), target="smoothed", temperature=0.5, episodes=64
)

print(f"the smoothed mean is the truth times {world.smoothing(0.5):.3f}")
print(curve)
assert abs(curve.slope.value + 0.5) < 5 * curve.slope.standard_error + 0.02
curve.plot().savefig("distance-to-the-smoothed-mean.svg")
