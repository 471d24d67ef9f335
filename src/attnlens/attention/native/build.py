"""Finds, compiles and loads native libraries, and registers their functions with JAX.

A library comes from the wheel `attnlens-native` if it is installed (`wheel.py`); else it is
compiled on demand for this processor and stored in the cache folder, with the hash of its content.
It is loaded only from a folder and a file that nobody but the user can write, and only if its
content has that hash (`core/private_files.py`); otherwise it is compiled again. Where native code
is impossible the operators use XLA, and the last digits of their results differ.

`status` only reports. `prepare` and `load` compile if necessary; they print one line before the
compiler starts, and one line if it fails. A failure is stored, so that the compiler is not started
and the failure not reported again until another compiler is installed or `attnlens native build` is
called.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
from functools import cache
from pathlib import Path

import jax

from attnlens.core.notices import Notice, print_notice
from attnlens.core.numerical_path import NativeLibrary, NativeOrigin, NativeStatus
from attnlens.core.private_files import (
    NotPrivate,
    cache_folder,
    private_folder,
    read_private,
    why_unwritable,
    write_private,
)

from . import compiler, wheel
from .variants import Variant, ffi_version, source_hashes, variant_here

SWITCH, SWITCH_FILE = "ATTNLENS_KERNEL", "native-off"
# Reasons why a library cannot be loaded now, but may be later.
PASSING = (os.strerror(errno.ENOMEM), os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))

_failures: dict[Path, NativeLibrary] = {}  # libraries that failed in this process, by file
_by_xla: set[str] = set()  # libraries that this process must not use
_unloadable: dict[Path, str] = {}  # files of the wheel that this system cannot load, and why


# -- status ----------------------------------------------------------------------------------------


def status(name: str) -> NativeLibrary:
    """Whether the library `name` is in use on this machine; never compiles, writes or waits."""
    if is_off() or name in _by_xla:
        return NativeLibrary(name, NativeStatus.SWITCHED_OFF)
    variant = variant_here()
    if variant is None:
        return NativeLibrary(name, NativeStatus.OTHER_PLATFORM)
    wheel_library = _in_wheel(name, variant)
    if wheel_library.file is not None:
        return _in_use(name, variant, wheel_library.digest, NativeOrigin.WHEEL)
    try:
        path = library_path(name, variant)
        failure = _failures.get(path) or _stored_failure(name, path)
        digest = "" if failure else _verified_digest(path)
    except NotPrivate as error:
        return NativeLibrary(name, NativeStatus.UNTRUSTED, str(error))
    except OSError:  # the library is missing or damaged, and will be compiled if it can be stored
        failure, digest = None, ""
    if failure:
        return failure
    if digest:
        return _in_use(name, variant, digest, NativeOrigin.COMPILED)
    if not compiler.find_compiler():
        here, reason = NativeStatus.NO_COMPILER, wheel_library.reason
    elif reason := why_unwritable(cache_folder()):
        return NativeLibrary(name, NativeStatus.FAILED, reason)
    else:
        here, reason = NativeStatus.NOT_COMPILED, wheel_library.reason
    return NativeLibrary(name, here, reason, variant=variant.name)


def _in_wheel(name: str, variant: Variant) -> wheel.WheelLibrary:
    library = wheel.find(name, variant.name)
    if library.file in _unloadable:
        return wheel.WheelLibrary(reason=_unloadable[library.file])
    return library


def _in_use(name: str, variant: Variant, digest: str, origin: NativeOrigin) -> NativeLibrary:
    return NativeLibrary(name, NativeStatus.IN_USE, "", digest, variant.name, origin)


def location(name: str) -> Path | None:
    """The file of a library that is in use; None if it is not."""
    library, variant = status(name), variant_here()
    if library.status is not NativeStatus.IN_USE or variant is None:
        return None
    return _in_wheel(name, variant).file or library_path(name, variant)


def library_path(name: str, variant: Variant) -> Path:
    """The file of a library in the cache folder; its name hashes everything it depends on.

    Raises `NotPrivate` if others can change the folder.
    """
    try:
        folder = private_folder(cache_folder(), create=False)
    except FileNotFoundError:
        folder = cache_folder()
    return folder / f"{name}-{variant.name}-{_source_digest(name, variant)}.so"


@cache
def _source_digest(name: str, variant: Variant) -> str:
    content = json.dumps([source_hashes(name), variant.flags, ffi_version(), jax.__version__])
    return hashlib.sha256(content.encode()).hexdigest()[:24]


def _record_path(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _verified_digest(path: Path) -> str:
    """The short hash of a stored library; raises OSError if it is not what was compiled here."""
    digest = hashlib.sha256(_read_own(path)).hexdigest()
    if _read_own(_record_path(path)).decode(errors="replace") != _record(path, digest):
        raise OSError(f"{path} is damaged")
    return digest[:16]


def _read_own(path: Path) -> bytes:
    """The content of a file; raises OSError, as for a damaged file, if others could have changed
    it: the folder is private, so a new file can replace this one."""
    try:
        return read_private(path)
    except NotPrivate as error:
        raise OSError(str(error)) from None


def _record(path: Path, digest: str) -> str:
    """The hash of a library in the format of `sha256sum`, so that users can check the library."""
    return f"{digest}  {path.name}\n"


def _stored_failure(name: str, path: Path) -> NativeLibrary | None:
    """The failure that an earlier process stored, if the compiler is still the same."""
    compiler_path = compiler.find_compiler()
    try:
        failure = json.loads(_read_own(path.with_suffix(".failed")))
        if not compiler_path or failure["compiler"] != compiler.fingerprint(compiler_path):
            return None
        return NativeLibrary(name, NativeStatus.FAILED, str(failure["reason"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None


# -- switching off ---------------------------------------------------------------------------------


def is_off() -> bool:
    """Whether native code is switched off, by ATTNLENS_KERNEL=0 or by `attnlens native off`."""
    return os.environ.get(SWITCH, "1") == "0" or switch_is_set()


def switch_is_set() -> bool:
    """Whether native code is off by `attnlens native off`; False if the folder is not private."""
    try:
        return (private_folder(cache_folder(), create=False) / SWITCH_FILE).exists()
    except OSError:
        return False


def switch(on: bool) -> Path:
    """Switch native code on or off for all later runs; return the file that records it."""
    file = private_folder(cache_folder()) / SWITCH_FILE
    if on:
        file.unlink(missing_ok=True)
    else:
        write_private(file, b"attnlens native off\n")
    return file


def use_xla(name: str) -> None:
    """Make this process compute by XLA what the library `name` would compute."""
    _by_xla.add(name)


# -- compiling and loading -------------------------------------------------------------------------


def prepare(name: str, notice: Notice = print_notice, retry: bool = False) -> NativeLibrary:
    """Compile a library if necessary, check that it can be loaded, and return its status.

    `retry` also compiles a library that could not be compiled before.
    """
    _open(name, notice, retry)
    return status(name)


def _open(name: str, notice: Notice, retry: bool = False) -> ctypes.CDLL | None:
    """Open a library, compiled if necessary; None if it cannot be used, and `status` says why."""
    variant = variant_here()
    if variant is None or is_off() or name in _by_xla:
        return None
    wheel_library = _in_wheel(name, variant)
    if wheel_library.file is not None:
        try:
            return ctypes.CDLL(str(wheel_library.file))
        except OSError as error:  # built for another C library, for example
            _unloadable[wheel_library.file] = f"{wheel.DISTRIBUTION} cannot be loaded ({error})"
    try:
        if retry:
            _forget_failure(name, variant)
        here = status(name)
        if here.status is NativeStatus.UNTRUSTED:
            notice(f"native code is not used for {name}: {here.reason}")
        if not here.is_native:
            return None
        return load_library(name, variant, notice)
    except OSError as error:  # the compiler failed, or there is no space, no permission, …
        _keep_failure(name, variant, error)
        notice(f"native code is not used for {name} ({error}): XLA computes the same, more slowly")
        return None


def load_library(name: str, variant: Variant, notice: Notice = print_notice) -> ctypes.CDLL:
    """The library from the cache folder; compiled if it is missing, damaged or not the user's."""
    path = private_folder(cache_folder()) / library_path(name, variant).name
    try:
        _verified_digest(path)
    except OSError:
        notice(f"compiling native code, once on this machine: {name}")
        content = compiler.compile_library(name, variant, path.parent)
        write_private(path, content)
        record = _record(path, hashlib.sha256(content).hexdigest())
        write_private(_record_path(path), record.encode())
        _verified_digest(path)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        if any(cause in str(error) for cause in PASSING):
            raise
        # The compiled file cannot run here. It is removed: otherwise `status` would report that it
        # is in use.
        path.unlink(missing_ok=True)
        _record_path(path).unlink(missing_ok=True)
        raise compiler.CompilerFailed(f"the library cannot be loaded ({error})") from None


def _forget_failure(name: str, variant: Variant) -> None:
    path = library_path(name, variant)
    _failures.pop(path, None)
    path.with_suffix(".failed").unlink(missing_ok=True)


def _keep_failure(name: str, variant: Variant, error: OSError) -> None:
    try:
        path = library_path(name, variant)
        _failures[path] = NativeLibrary(name, NativeStatus.FAILED, str(error))
        compiler_path = compiler.find_compiler()
        if compiler_path and isinstance(error, compiler.CompilerFailed):
            failure = {"compiler": compiler.fingerprint(compiler_path), "reason": str(error)}
            write_private(path.with_suffix(".failed"), json.dumps(failure).encode())
    except OSError:
        pass  # the failure cannot be stored: only this process knows it


@cache
def load(name: str, functions: tuple[str, ...]) -> bool:
    """Load a library, compiling it if necessary, and register its `functions` with JAX.

    Returns whether JAX can call them. The first call may take seconds; later calls return the same
    answer at once.
    """
    library = _open(name, print_notice) if jax.default_backend() == "cpu" else None
    if library is None:
        return False
    for function in functions:
        capsule = jax.ffi.pycapsule(getattr(library, function))
        jax.ffi.register_ffi_target(function, capsule, platform="cpu")
    return True
