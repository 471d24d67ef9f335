"""Networks with parameters: the four models of B, the encoder of A, ensembles, stationary points.

A model is an Equinox module that maps *one* sample to its outputs, `model(inputs)`; `jax.vmap`
gives batches and stacked parameters give ensembles. `fit` trains many members as one program and
`stationary_points` finds where the gradient vanishes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
