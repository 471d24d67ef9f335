"""Claims: one prediction each, with cells to measure, a rule to judge and a control that must fail.

`exchangeability/` (lens A), `sample_complexity/` (lens B) and `later_theory/` (lens C) hold one
file per claim; `registry.py` finds them. `README.md` in this folder describes the steps from a
claim's file to its entry in the ledger.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
