"""Side-by-side ratios against peers: `python -m benchmarks`.

Engines and the store have no peers: `python -m benchmarks.scaling` and `benchmarks.store`.
"""
