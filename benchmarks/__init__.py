"""Speed of attnlens relative to other libraries (peers): `python -m benchmarks`.

Engines and the store have no peers; `python -m benchmarks.scaling` and
`python -m benchmarks.store` measure them alone.
"""
