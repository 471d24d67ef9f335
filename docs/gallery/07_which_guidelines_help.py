"""Which guidelines lower the error on this table?

The label depends on three of thirty-two columns, and there are only forty labels. Gates on the
inputs with an ℓ₁ penalty are compared with the same network without them, on the same folds; so is
self-attention. An interval that lies wholly below zero is a recommendation.
"""

import numpy as np

import attnlens

random = np.random.default_rng(2)
X = random.normal(size=(200, 32))
y = X[:, :3] @ [1.0, -1.0, 0.5] + 0.1 * random.normal(size=200)

result = attnlens.guidelines(X, y, labels=40, starts=1, training={"steps": 300})
print(result)
result.plot().savefig("guidelines.svg")
