"""Real data sets as tokens, images, texts or rows, with labels; nothing is downloaded.

A loader returns a `Dataset` without duplicates. `split` divides it into named sets that share no
row, and records their hashes. `canvases`, `patches` and `Embedding` turn images and texts into
tokens. `read` loads the user's own files.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
