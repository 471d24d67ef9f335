"""The effect of more sequences, and of longer ones.

A network with attention predicts the next token of a world with a hidden mean.
The generalisation gap, test loss minus training loss, falls with the number of sequences; it does
not grow with their length.
"""

import attnlens
from attnlens.worlds import NormalMean

result = attnlens.generalisation(
    NormalMean(dim=1), samples=(32, 128), lengths=(4, 16), seeds=4, training={"steps": 100}
)
print(result)
over_samples, over_length = result.plot()
over_samples.savefig("over-sequences.svg")
over_length.savefig("over-length.svg")
