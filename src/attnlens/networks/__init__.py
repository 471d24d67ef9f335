"""Networks with parameters: the four models of lens B and the encoder of lens A.

Lens A is Zhang et al. (2022), lens B the ICLR 2021 submission; docs/theory.md describes both. A
model is an Equinox module that maps *one* sample to its outputs, `model(inputs)`; `jax.vmap` gives
batches and stacked parameters give ensembles. `fit` trains many members as one program and
`stationary_points` finds where the gradient vanishes.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
