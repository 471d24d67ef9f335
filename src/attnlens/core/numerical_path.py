"""The numerical path: which native (C++) libraries compute results, and why the others do not.

Native code and XLA compute the same up to rounding, so the path can change the last digits of a
result. It is part of the key of every cell that can reach native code, and of the record of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class NativeStatus(Enum):
    """Whether a native library is used and, if not, the reason."""

    IN_USE = "in use"
    NOT_COMPILED = "not compiled yet"  # there is a compiler; the first use compiles it
    NO_COMPILER = "no C++ compiler"
    FAILED = "failed"  # it could not be compiled, stored or loaded
    SWITCHED_OFF = "switched off"  # ATTNLENS_KERNEL=0
    OTHER_PLATFORM = "not for this platform"  # not Linux, or JAX does not compute on the CPU


@dataclass(frozen=True)
class NativeLibrary:
    """One native library: its name, its status, and details.

    `reason` explains the status FAILED. `digest` is a hash of the compiled file: another compiler
    or another processor gives another file, which may round differently.

    >>> NativeLibrary("cholesky", NativeStatus.NO_COMPILER).is_native
    False
    """

    name: str
    status: NativeStatus
    reason: str = ""
    digest: str = ""

    @property
    def is_native(self) -> bool:
        """Whether results come from this library, or will once it is compiled; else from XLA."""
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
        """The part that can change digits, as it enters the key of a cell; "" without libraries."""
        sources = {True: "native", False: "XLA"}
        return " ".join(f"{each.name}={sources[each.is_native]}" for each in self.libraries)

    def __str__(self) -> str:
        native = [str(each) for each in self.libraries if each.is_native]
        by_xla = [str(each) for each in self.libraries if not each.is_native]
        parts = [f"native {', '.join(native)}"] if native else []
        return "; ".join(parts + ([f"XLA for {', '.join(by_xla)}"] if by_xla else []))

    def plain(self) -> list[dict[str, str]]:
        """The path as plain data."""
        return [{**asdict(each), "status": each.status.value} for each in self.libraries]

    @staticmethod
    def restore(plain: Sequence[Mapping[str, Any]]) -> NumericalPath:
        """The path from plain data; raises ValueError or TypeError if it is not of that form."""
        return NumericalPath(
            tuple(
                NativeLibrary(**{**each, "status": NativeStatus(each["status"])}) for each in plain
            )
        )


def library_names(key: str) -> tuple[str, ...]:
    """The names of the libraries in the key of a path.

    >>> library_names("cholesky=native long_softmax=XLA")
    ('cholesky', 'long_softmax')
    """
    return tuple(part.partition("=")[0] for part in key.split())
