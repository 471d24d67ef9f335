"""A change in a stream, detected while it happens.

A test martingale starts with one unit and bets against "the order does not matter", token by token.
If the order does not matter, no bet gains in expectation, and the wealth ever reaches 20 with a
probability of at most 1/20. Here the mean changes after 300 tokens, and the wealth grows quickly.
"""

import numpy as np

from attnlens.instruments import wealth

random = np.random.default_rng(1)
stream = np.concatenate([random.normal(size=300), random.normal(size=100) + 1.5])

course = wealth(stream)
print(course)
print("exchangeability is rejected at the 5 % level after token", course.reached(0.05))
course.plot().savefig("wealth.svg")
