"""Runs of claims: plan, compute, judge, ledger, provenance. README.md describes these steps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
