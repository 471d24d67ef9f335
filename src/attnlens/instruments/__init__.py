"""Instruments: (subject, key) -> Reading. An instrument never changes its subject.

Each is calibrated in the tests on a subject whose answer is known before it is used elsewhere.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
