"""The numerical path: which native (C++) libraries compute results, and why the others do not.

Native code and XLA compute the same up to rounding, so the path can change the last digits of a
result. It is part of the key of every cell that can reach native code, and of the record of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

BY_XLA = "XLA"


class NativeStatus(Enum):
    """Whether a native library is used and, if not, the reason."""

    IN_USE = "in use"
    NOT_COMPILED = "not compiled yet"  # there is a compiler; the first use compiles it
    NO_COMPILER = "no C++ compiler"
    FAILED = "failed"  # it could not be compiled, stored or loaded
    SWITCHED_OFF = "switched off"  # ATTNLENS_KERNEL=0, or `attnlens native off`
    OTHER_PLATFORM = "not for this platform"  # system or processor; or JAX does not use the CPU
    UNTRUSTED = "not trusted"  # somebody else can change the cache folder


class NativeOrigin(Enum):
    """Where the file of a native library comes from."""

    WHEEL = "attnlens-native"  # the installed wheel of this name
    COMPILED = "compiled here"


@dataclass(frozen=True)
class NativeLibrary:
    """One native library: its name, its status, and details.

    `reason` explains the statuses FAILED and UNTRUSTED. `digest` is a hash of the compiled file:
    another compiler gives another file, which may round differently. `variant` is the kind of
    processor that it is compiled for.

    >>> NativeLibrary("cholesky", NativeStatus.NO_COMPILER).is_native
    False
    """

    name: str
    status: NativeStatus
    reason: str = ""
    digest: str = ""
    variant: str = ""
    origin: NativeOrigin | None = None

    @property
    def key(self) -> str:
        """The part of a cell's key that describes this library.

        >>> NativeLibrary("cholesky", NativeStatus.NOT_COMPILED, variant="x86-64-v3").key
        'cholesky=native-x86-64-v3'
        """
        return f"{self.name}={self.source}"

    @property
    def source(self) -> str:
        """What computes the results: native code, with its variant, or XLA."""
        native = f"native-{self.variant}" if self.variant else "native"
        return native if self.is_native else BY_XLA

    @property
    def is_native(self) -> bool:
        """Whether results come from this library (once it is compiled), and not from XLA."""
        return self.status in (NativeStatus.IN_USE, NativeStatus.NOT_COMPILED)

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return self.name if self.is_native else f"{self.name} ({self.status.value}{reason})"


@dataclass(frozen=True)
class NumericalPath:
    """The native libraries that some code can reach, in the order of their names.

    >>> path = NumericalPath((NativeLibrary("cholesky", NativeStatus.IN_USE),))
    >>> path.key
    'cholesky=native'
    >>> NumericalPath.restore(path.plain()) == path
    True
    """

    libraries: tuple[NativeLibrary, ...] = ()

    @property
    def key(self) -> str:
        """The part of a cell's key that says which libraries are native and which XLA replaces."""
        return " ".join(library.key for library in self.libraries)

    @property
    def digests(self) -> dict[str, str]:
        """The hashes of the compiled files that are in use, by library."""
        return {library.name: library.digest for library in self.libraries if library.is_native}

    def __str__(self) -> str:
        native = [str(library) for library in self.libraries if library.is_native]
        by_xla = [str(library) for library in self.libraries if not library.is_native]
        parts = [f"native {', '.join(native)}"] if native else []
        return "; ".join(parts + ([f"XLA for {', '.join(by_xla)}"] if by_xla else []))

    def plain(self) -> list[dict[str, str | None]]:
        """The path as plain data."""
        return [
            {
                **asdict(library),
                "status": library.status.value,
                "origin": library.origin.value if library.origin else None,
            }
            for library in self.libraries
        ]

    @staticmethod
    def restore(plain: Sequence[Mapping[str, Any]]) -> NumericalPath:
        """Restore a path from the output of `plain`; raises ValueError or TypeError for others."""
        return NumericalPath(tuple(_library(entry) for entry in plain))


def _library(plain: Mapping[str, Any]) -> NativeLibrary:
    """A library from plain data; records of earlier versions have neither variant nor origin."""
    typed: dict[str, Any] = {"status": NativeStatus(plain["status"])}
    if plain.get("origin"):
        typed["origin"] = NativeOrigin(plain["origin"])
    return NativeLibrary(**{**plain, **typed})


def library_names(key: str) -> tuple[str, ...]:
    """The names of the libraries in the key of a path.

    >>> library_names("cholesky=native long_softmax=XLA")
    ('cholesky', 'long_softmax')
    """
    return tuple(part.partition("=")[0] for part in key.split())


def names_by_xla(key: str) -> tuple[str, ...]:
    """The names of the libraries that XLA replaces in the key of a path.

    >>> names_by_xla("cholesky=native long_softmax=XLA")
    ('long_softmax',)
    """
    parts = [part.partition("=") for part in key.split()]
    return tuple(name for name, _, source in parts if source == BY_XLA)
