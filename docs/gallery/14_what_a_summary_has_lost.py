"""What a summary of the tokens has lost.

The hidden mean is to be inferred from eight tokens. How many nats of information does a summary
lose if it keeps only the first one, two, four or six of them? The line is the closed form
½ log((1 + 8)/(1 + k)).
"""

import math

import attnlens
from attnlens.core import Figure, Point, Series
from attnlens.worlds import NormalMean

world, kept = NormalMean(dim=1), (1, 2, 4, 6)
measured, exact = [], []
for k in kept:
    result = attnlens.representation(
        lambda tokens, k=k: tokens[:k].mean(0), world, length=8, episodes=2000, probes=("ridge",)
    )
    measured.append(result.gap.point(k))
    exact.append(Point(k, 0.5 * math.log(9 / (1 + k))))
    print(f"first {k} tokens: gap {result.gap}, exact {exact[-1].y:.4f}")

series = (Series("measured", tuple(measured)), Series("closed form", tuple(exact), line=True))
figure = Figure("What is lost by keeping k of 8 tokens", "k", "sufficiency gap in nats", series)
figure.plot().savefig("sufficiency-gap.svg")
