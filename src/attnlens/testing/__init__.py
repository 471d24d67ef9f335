"""The contracts of claims, worlds and operators, for the tests of a package that adds its own.

Each function raises AssertionError with a sentence that says what is wrong. They need no test
framework: call them from any test.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
