"""All native libraries together: find the numerical path, compile missing libraries, load them.

`current_path` only reports. `prepare` compiles; it is called where a user expects to wait: at the
start of a run, by `attnlens native build`, and when a Ray node gets its first work. `load` makes
the libraries callable in this process. `follow` makes this process use native code and XLA for the
same libraries as another process.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from attnlens.core.notices import Notice, print_notice
from attnlens.core.numerical_path import (
    NativeStatus,
    NumericalPath,
    library_names,
    names_by_xla,
)

from . import build
from .variants import FOLDER

LIBRARIES = tuple(sorted(source.stem for source in FOLDER.glob("*.cc")))


def current_path(names: Sequence[str] = LIBRARIES) -> NumericalPath:
    """The numerical path on the CPU of this machine; never compiles, writes or waits.

    >>> [library.name for library in current_path().libraries]
    ['cholesky', 'long_softmax', 'small_softmax']
    """
    return NumericalPath(tuple(build.status(name) for name in names))


def prepare(
    names: Sequence[str] = LIBRARIES,
    notice: Notice = print_notice,
    retry: bool = False,
) -> NumericalPath:
    """Compile the libraries that are missing; return the numerical path.

    `notice` is called with one sentence before the compiler starts, and if it fails. `retry` also
    compiles libraries that could not be compiled before.
    """
    return NumericalPath(tuple(build.prepare(name, notice, retry) for name in names))


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


def follow(key: str, step: Callable[[Sequence[str]], NumericalPath] = load) -> NumericalPath:
    """Use the numerical path with this key as far as this machine can; return the path in use.

    Libraries that XLA replaces according to `key` are switched off in this process, so that no
    compiler is started for them. `step` (`load` or `prepare`) is applied to all libraries of `key`.
    """
    for name in names_by_xla(key):
        build.use_xla(name)
    return step(library_names(key))
