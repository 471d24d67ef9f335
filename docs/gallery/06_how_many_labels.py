"""How many labels does each model need?

The label is the product of two of six columns. Attention multiplies inputs, so one might expect it
to need fewer labels. It does not: a plain network needs fewer, because it is always the same two
columns that matter, and attention first has to learn to select them. A linear model does not learn
the label at all. Measure before you choose. Every learner is trained on the same nested samples of
the same folds.
"""

import numpy as np
from sklearn.linear_model import Ridge

import attnlens

random = np.random.default_rng(0)
X = random.normal(size=(300, 6))
y = X[:, 0] * X[:, 1] + 0.1 * random.normal(size=300)

models = {"plain network": "baseline", "self-attention": "self-attention", "ridge": Ridge()}
curves = attnlens.learning_curve(
    X, y, models=models, sizes=(16, 32, 64, 128, 256), target_error=0.5
)
print(curves)
curves.plot().savefig("learning-curves.svg")
