"""Instruments measure a subject and return readings; they never change the subject.

Each is calibrated in the tests on a subject with a known answer before it is used elsewhere.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
