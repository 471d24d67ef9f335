"""Side-by-side ratios against peers; run each with `python -m benchmarks.NAME`."""
