"""The native libraries together: report the numerical path, compile what is missing, load.

`report` only looks. `prepare` compiles; it is called where a user expects to wait: at the start of
a run, and when a Ray node gets its first work. `load` makes the libraries callable in this process.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from attnlens.core.numerical_path import NativeStatus, NumericalPath

from . import build

LIBRARIES = tuple(sorted(source.stem for source in build.FOLDER.glob("*.cc")))


def report(names: Sequence[str] = LIBRARIES) -> NumericalPath:
    """The numerical path on the CPU of this machine; never compiles, writes or waits.

    >>> [library.name for library in report().libraries]
    ['cholesky', 'long_softmax', 'small_softmax']
    """
    return NumericalPath(tuple(build.status(name) for name in names))


def prepare(
    names: Sequence[str] = LIBRARIES, notice: Callable[[str], None] = lambda _: None
) -> NumericalPath:
    """Compile the libraries that are not in the cache folder yet; return the numerical path.

    `notice` is called with one sentence before the compiler is started for the first time.
    """
    missing = [
        library.name
        for library in report(names).libraries
        if library.status is NativeStatus.NOT_COMPILED
    ]
    if missing:
        notice(f"compiling native code, once on this machine: {', '.join(missing)}")
    return NumericalPath(tuple(build.prepare(name) for name in names))


def load(names: Sequence[str] = LIBRARIES) -> NumericalPath:
    """Load the libraries into this process; return the numerical path that it takes."""
    libraries = []
    for name in names:
        loaded = importlib.import_module(f"{__package__}.{name}").load()
        library = build.status(name)
        if library.is_native and not loaded:  # the backend of this process is not the CPU
            library = replace(library, status=NativeStatus.OTHER_PLATFORM, digest="")
        libraries.append(library)
    return NumericalPath(tuple(libraries))
