"""Will it transfer? The condition number of a downstream target.

Pretraining asks about three hidden directions, about the third one only weakly. The downstream
target needs the third. The weaker the questions were, the larger κ, and κ² is how many times the
pretraining error can come back downstream. The line is the exact value, the points are estimated
from 400 rows.
"""

import numpy as np

import attnlens
from attnlens.records import Figure, Point, Series

head = np.array([1.0, 0.0, 1.0]) / np.sqrt(2)
draws = np.random.default_rng(0)
estimated, exact = [], []
for weak in (1.0, 0.7, 0.5, 0.35, 0.25):
    latent = draws.standard_normal((400, 3))
    queries = draws.standard_normal((24, 3)) * [1.0, 1.0, weak]
    asked = latent @ queries.T + 0.3 * draws.standard_normal((400, 24))
    target = latent @ head + 0.3 * draws.standard_normal(400)
    found = attnlens.condition_number(latent, asked, target, resamples=100)
    low, high = found.interval
    estimated.append(Point(weak, found.kappa.value, (high - low) / 2))
    exact.append(
        Point(weak, attnlens.known_condition_number(head, query_moment=queries.T @ queries / 24))
    )
    print(f"weakness {weak}: κ = {found.kappa.value:.2f} ({low:.2f} to {high:.2f})")

series = (Series("estimated", tuple(estimated)), Series("exact", tuple(exact), line=True))
figure = Figure("κ over how much was asked", "strength of the questions", "κ", series)
figure.plot().savefig("condition-number.svg")
