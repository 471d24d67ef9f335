"""Where cells run. An engine takes cells and yields outcomes as they finish, in any order."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
