"""Training: ensembles of networks, checkpoints, streaming, and the search for stationary points.

The trainer is `trainer.fit`; `steps` is its compiled inner loop.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
