"""Does the order of tokens matter?

In a hundred short sequences each number contains three tenths of the one before. An exact
permutation test detects this, and the figure shows which kind of order it is: neighbours are alike.
Single sequences therefore drift ("own drift"), but there is no drift that all of them share, and
the spread does not change.
"""

import numpy as np

import attnlens

random = np.random.default_rng(0)
sequences = random.normal(size=(100, 30))
for i in range(1, 30):
    sequences[:, i] += 0.3 * sequences[:, i - 1]

result = attnlens.exchangeability(sequences)
print(result)
shuffled = attnlens.exchangeability(random.permuted(sequences, axis=1))
print(f"the same tokens, shuffled: p = {shuffled.value:.2f}")
result.plot().savefig("kinds-of-order.svg")
