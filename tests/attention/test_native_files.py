"""Native libraries are loaded only if no other user can have changed them; otherwise they are
compiled again.

The compiler in these tests is a script that copies a small library. Each small library creates a
file when it is loaded, so that a test sees which one was loaded.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import pytest

from attnlens.attention.native import build, compiler, libraries, wheel
from attnlens.attention.native.variants import variant_here
from attnlens.core.numerical_path import NativeStatus

pytestmark = pytest.mark.skipif(
    variant_here() is None or shutil.which("cc") is None, reason="there is no compiler here"
)
NAME = "cholesky"
OTHER_USER = 12345
SOURCE = """
#include <fcntl.h>
__attribute__((constructor)) static void loaded(void) { open("%s", O_CREAT | O_WRONLY, 0600); }
"""


def small_library(folder: Path, name: str) -> Path:
    """Compile a library that creates the file `name`.loaded when it is loaded."""
    source, result = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(SOURCE % (folder / f"{name}.loaded"))
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", result], check=True)
    return result


def script(file: Path, text: str) -> Path:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the cache, `own.so`, which the compiler script copies, and `planted.so`, which
    the tests put in its place."""
    own = small_library(tmp_path, "own")
    small_library(tmp_path, "planted")
    copying = f'for last; do :; done; echo run >> {tmp_path}/log; cp {own} "$last"'
    result = script(tmp_path / "c++", copying)
    monkeypatch.setattr(compiler, "find_compiler", lambda: str(result))
    monkeypatch.setattr(wheel, "find", lambda name, variant: wheel.WheelLibrary())
    monkeypatch.setattr(build, "_failures", {})
    monkeypatch.setenv("ATTNLENS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def library_file() -> Path:
    variant = variant_here()
    assert variant
    return build.library_path(NAME, variant)


def compilations(place: Path) -> int:
    log = place / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def plant(place: Path, record: bool = True) -> Path:
    """Replace the stored library by `planted.so`; if `record`, replace its stored hash too."""
    file = library_file()
    file.unlink()
    shutil.copy(place / "planted.so", file)
    file.chmod(0o600)
    if record:
        import hashlib

        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        file.with_suffix(".sha256").write_text(f"{digest}  {file.name}\n")
    return file


def chown(path: Path) -> None:
    try:
        os.chown(path, OTHER_USER, OTHER_USER)
    except PermissionError:
        pytest.skip("only root can give a file to another user")


def test_a_library_is_compiled_once_and_stored_for_the_user_alone(place: Path):
    for _ in range(2):
        assert build.prepare(NAME).status is NativeStatus.IN_USE
    assert compilations(place) == 1
    assert (place / "own.loaded").exists()
    files = sorted((place / "cache").iterdir())
    assert [file.suffix for file in files] == [".sha256", ".so"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (place / "cache").stat().st_mode & 0o777 == 0o700
    checked = subprocess.run(["sha256sum", "--check", files[0].name], cwd=place / "cache")
    assert checked.returncode == 0


def wrong_hash(place: Path) -> None:
    plant(place, record=False)


def another_owner(place: Path) -> None:
    chown(plant(place))


def writable_by_the_group(place: Path) -> None:
    plant(place).chmod(0o660)


def writable_by_all(place: Path) -> None:
    plant(place).chmod(0o606)


def a_link(place: Path) -> None:
    file = plant(place)
    file.unlink()
    file.symlink_to(place / "planted.so")


def record_of_another_owner(place: Path) -> None:
    chown(plant(place).with_suffix(".sha256"))


def rewrite(content: bytes) -> None:
    """Write the stored library as a new file, because this process has mapped the old one."""
    library_file().unlink()
    library_file().write_bytes(content)
    library_file().chmod(0o600)


def truncated(place: Path) -> None:
    """Cut the library to a third. The dynamic linker maps a file without reading it, and access to
    a page beyond its end raises SIGBUS."""
    content = library_file().read_bytes()
    rewrite(content[: len(content) // 3])


def a_flipped_bit(place: Path) -> None:
    content = bytearray(library_file().read_bytes())
    content[-1] ^= 1
    rewrite(bytes(content))


def without_record(place: Path) -> None:
    plant(place).with_suffix(".sha256").unlink()


REBUILT = [
    wrong_hash,
    another_owner,
    writable_by_the_group,
    writable_by_all,
    a_link,
    record_of_another_owner,
    truncated,
    a_flipped_bit,
    without_record,
]


@pytest.mark.parametrize("change", REBUILT, ids=lambda change: change.__name__)
def test_a_file_that_was_changed_is_not_loaded_but_compiled_again(change, place: Path):
    build.prepare(NAME)
    change(place)
    assert build.status(NAME).status is NativeStatus.NOT_COMPILED
    assert build.prepare(NAME).status is NativeStatus.IN_USE
    assert compilations(place) == 2
    assert not (place / "planted.loaded").exists()
    assert library_file().read_bytes() == (place / "own.so").read_bytes()
    assert not library_file().is_symlink()


def folder_writable_by_the_group(place: Path) -> None:
    (place / "cache").chmod(0o770)


def folder_writable_by_all(place: Path) -> None:
    (place / "cache").chmod(0o777)


def sticky_folder(place: Path) -> None:
    (place / "cache").chmod(0o1777)


def folder_of_another_user(place: Path) -> None:
    chown(place / "cache")


def parent_writable_by_all(place: Path) -> None:
    place.chmod(0o777)


def parent_of_another_user(place: Path) -> None:
    chown(place)


def link_to_a_folder_that_all_can_write(place: Path) -> None:
    (place / "cache").rename(place / "elsewhere")
    (place / "elsewhere").chmod(0o777)
    (place / "cache").symlink_to(place / "elsewhere")


REFUSED = [
    folder_writable_by_the_group,
    folder_writable_by_all,
    sticky_folder,
    folder_of_another_user,
    parent_writable_by_all,
    parent_of_another_user,
    link_to_a_folder_that_all_can_write,
]


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
def test_nothing_is_loaded_from_a_folder_that_others_can_change(change, place: Path):
    build.prepare(NAME)
    plant(place)
    change(place)
    notices = []
    library = build.prepare(NAME, notices.append)
    assert (library.status, library.key) == (NativeStatus.UNTRUSTED, f"{NAME}=XLA")
    assert len(notices) == 1
    assert library.reason in notices[0]
    assert compilations(place) == 1
    assert not (place / "planted.loaded").exists()
    assert not build.switch_is_set()


def test_a_compiler_that_hangs_is_stopped_with_its_children(place: Path, monkeypatch):
    script(place / "c++", f"sleep 300 & echo $! > {place}/child; wait")
    monkeypatch.setattr(compiler, "SECONDS", 0.5)
    started = time.monotonic()
    library = build.prepare(NAME, lambda _: None)
    assert time.monotonic() - started < 30
    assert library.status is NativeStatus.FAILED
    child = Path("/proc") / (place / "child").read_text().strip() / "stat"
    # The child was killed, which takes a moment on a busy machine; its `sleep` would take longer.
    # It is a zombie until a process collects its exit status.
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() - started < 60
        time.sleep(0.05)
    assert [file.suffix for file in (place / "cache").iterdir()] == [".failed"]


def test_a_failure_is_reported_once_and_stored(place: Path, monkeypatch):
    failing = f"echo run >> {place}/log; echo 'In file x' >&2; echo 'x.cc:1: error: no' >&2; exit 1"
    script(place / "c++", failing)
    notices: list[str] = []
    for known in ({}, build._failures):
        monkeypatch.setattr(build, "_failures", known)  # no known failures, as in a new process
        path = libraries.prepare([NAME], notices.append)
        (library,) = path.libraries
        assert (library.status, library.reason) == (NativeStatus.FAILED, "x.cc:1: error: no")
        assert path.key == f"{NAME}=XLA"
        assert libraries.current_path([NAME]) == path
    assert compilations(place) == 1
    assert len(notices) == 2  # the start of the compiler, and its failure
    libraries.prepare([NAME], notices.append, retry=True)
    assert compilations(place) == 2
    # A compiler that has changed is tried without `retry`.
    script(place / "c++", f'for last; do :; done; cp {place}/own.so "$last"')
    monkeypatch.setattr(build, "_failures", {})
    assert libraries.prepare([NAME], notices.append).libraries[0].is_native


@pytest.mark.parametrize(
    ("writes", "reason"),
    [(': > "$last"', "the library cannot be loaded"), ("true", "it wrote no library")],
)
def test_a_library_that_cannot_be_loaded_is_never_said_to_be_in_use(
    writes: str, reason: str, place: Path, monkeypatch
):
    """As on a file system without permission to execute. Each pass of the loop stands for a new
    process."""
    script(place / "c++", f"for last; do :; done; echo run >> {place}/log; {writes}")
    notices: list[str] = []
    for _ in range(2):
        monkeypatch.setattr(build, "_failures", {})
        assert not build.prepare(NAME, notices.append).is_native
        monkeypatch.setattr(build, "_failures", {})
        library = build.status(NAME)
        assert library.status is NativeStatus.FAILED
        assert reason in library.reason
    assert compilations(place) == 1
    assert len(notices) == 2
    script(place / "c++", f'for last; do :; done; cp {place}/own.so "$last"')
    monkeypatch.setattr(build, "_failures", {})
    assert build.prepare(NAME, notices.append).status is NativeStatus.IN_USE


def test_native_code_can_be_switched_off_and_on(place: Path):
    build.prepare(NAME)
    build.switch(on=False)
    assert build.status(NAME).status is NativeStatus.SWITCHED_OFF
    build.switch(on=True)
    assert build.status(NAME).status is NativeStatus.IN_USE


def test_a_process_follows_the_path_of_its_driver_without_compiling(place: Path, monkeypatch):
    monkeypatch.setattr(build, "_by_xla", set())
    path = libraries.follow(f"{NAME}=XLA", libraries.prepare)
    assert path.key == f"{NAME}=XLA"
    assert compilations(place) == 0


def test_a_predicate_compiles_nothing(place: Path):
    from attnlens.attention.native import cholesky

    assert build.status(NAME).status is NativeStatus.NOT_COMPILED
    cholesky.fits(64, jnp.dtype("float64"))
    build.is_off()
    assert compilations(place) == 0
    assert not (place / "cache").exists()


HOME = """
from attnlens.core.private_files import cache_folder
cache_folder()
"""


def test_without_a_home_folder_the_reason_is_given():
    environment = {key: value for key, value in os.environ.items() if key != "ATTNLENS_CACHE"}
    code = f"import pathlib\ndef no(): raise RuntimeError\npathlib.Path.home = no\n{HOME}"
    environment.pop("XDG_CACHE_HOME", None)
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert "NotPrivate: there is no home folder" in process.stderr
