"""The practitioner's questions: a user's own data and models under the calibrated instruments.

Each function takes data or a model as they come and returns a `Sheet`: answers in plain words, with
their evidence, and "not enough data to say" where that is so.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
