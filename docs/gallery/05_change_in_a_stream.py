"""A change in a stream, noticed while it happens.

One unit of money is bet against "the order does not matter", token by token. If that is true,
nobody can expect to win, and the wealth ever reaches 20 with a probability of at most 1/20. Here
the mean moves after 300 tokens, and the wealth takes off.
"""

import numpy as np

from attnlens.instruments import wealth

random = np.random.default_rng(1)
stream = np.concatenate([random.normal(size=300), random.normal(size=100) + 1.5])

found = wealth(stream)
print(found)
print("could have been rejected at the 5 % level after token", found.reached(0.05))
found.plot().savefig("wealth.svg")
