"""Will it transfer? The condition number of a downstream target.

Pretraining targets depend on three hidden directions, on the third one only weakly. The downstream
target needs the third. The weaker the queries in that direction, the larger κ; κ² is the factor by
which the pretraining error can grow downstream. The line is the exact value, the points are
estimated from 400 rows.
"""

import numpy as np

import attnlens
from attnlens.core import Figure, Point, Series

head = np.array([1.0, 0.0, 1.0]) / np.sqrt(2)
draws = np.random.default_rng(0)
estimated, exact = [], []
for weak in (1.0, 0.7, 0.5, 0.35, 0.25):
    latent = draws.standard_normal((400, 3))
    queries = draws.standard_normal((24, 3)) * [1.0, 1.0, weak]
    values = latent @ queries.T + 0.3 * draws.standard_normal((400, 24))
    target = latent @ head + 0.3 * draws.standard_normal(400)
    result = attnlens.condition_number(latent, values, target, resamples=100)
    low, high = result.interval
    estimated.append(Point(weak, result.kappa.value, (high - low) / 2))
    exact.append(
        Point(weak, attnlens.known_condition_number(head, query_moment=queries.T @ queries / 24))
    )
    print(f"strength {weak}: κ = {result.kappa.value:.2f} ({low:.2f} to {high:.2f})")

series = (Series("estimated", tuple(estimated)), Series("exact", tuple(exact), line=True))
figure = Figure("κ over the strength of the queries", "strength of the queries", "κ", series)
figure.plot().savefig("condition-number.svg")
