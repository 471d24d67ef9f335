"""Records that every other package uses, statistics, checks of inputs, and kernels."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
