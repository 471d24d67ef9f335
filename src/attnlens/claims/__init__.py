"""Claims: one prediction each, with cells to measure, a rule to judge and a control that must fail.

`lens_a/` and `lens_b/` hold one file a claim; `registry.py` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
