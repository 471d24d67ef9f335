"""Which guidelines pay on this table?

Thirty-two columns of which the label needs three, and only forty labels. Gates on the inputs with
an ℓ₁ penalty are tried against the same network without them, on the same folds; so is self-
attention. An interval that lies wholly below zero is a recommendation.
"""

import numpy as np

import attnlens

random = np.random.default_rng(2)
X = random.normal(size=(200, 32))
y = X[:, :3] @ [1.0, -1.0, 0.5] + 0.1 * random.normal(size=200)

found = attnlens.guidelines(X, y, labels=40, starts=1, training={"steps": 300})
print(found)
found.plot().savefig("guidelines.svg")
