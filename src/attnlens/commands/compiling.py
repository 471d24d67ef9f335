"""Programs that an earlier run compiled are not compiled again."""

from __future__ import annotations

import os


def compile_once() -> None:
    """Take compiled programs from the cache on disk; to be called before JAX is imported."""
    from attnlens.engine import cache

    folder = cache.default_folder()
    cache.repair(folder)
    os.environ.update(cache.settings(folder))
