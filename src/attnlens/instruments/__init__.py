"""Instruments measure a subject and return readings; they never change the subject.

A subject is what is measured: data, a trained network, a posterior. The tests calibrate each
instrument on a subject with a known answer.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
