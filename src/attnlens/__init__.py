"""attnlens: what an attention layer has inferred, from how many samples, on what loss surface.

The public names are listed once, in `__init__.pyi` beside this file, and each is loaded when it
is first used: `import attnlens` imports neither JAX nor anything else that is heavy.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
