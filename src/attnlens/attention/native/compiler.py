"""Runs the C++ compiler, with a time limit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import jax

from .variants import FOLDER, Variant

SECONDS = 300.0  # time limit; the largest source takes about fifteen seconds


class CompilerFailed(OSError):
    """The compiler failed, was stopped, or wrote no usable library; the message says why."""


def find_compiler() -> str | None:
    """The path of the C++ compiler, `c++`; None if there is none."""
    return shutil.which("c++")


def fingerprint(compiler: str) -> str:
    """A text that identifies the compiler: it changes when another one is installed."""
    state = Path(compiler).resolve().stat()
    return f"{compiler} {state.st_size} {state.st_mtime_ns}"


def compile_library(name: str, variant: Variant, folder: Path) -> bytes:
    """Compile `name`.cc in a scratch folder inside `folder`; return the content of the library."""
    compiler = find_compiler()
    if compiler is None:
        raise CompilerFailed("there is no C++ compiler")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
        result, messages = Path(scratch) / f"{name}.so", Path(scratch) / "messages"
        source = FOLDER / f"{name}.cc"
        command = [compiler, *variant.flags, f"-I{jax.ffi.include_dir()}", str(source)]
        with messages.open("wb") as stream:
            code = _run([*command, "-o", str(result)], scratch, stream.fileno(), SECONDS)
        if code:
            raise CompilerFailed(_first_error(messages, code))
        try:
            return result.read_bytes()
        except FileNotFoundError:
            raise CompilerFailed("it wrote no library") from None


def _run(command: list[str], scratch: str, messages: int, seconds: float) -> int:
    """Run a command and return its exit status. After the time limit the command is killed with its
    children: `c++` starts the actual compiler as a child, which would continue otherwise."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=messages,
        stderr=messages,
        env={**os.environ, "TMPDIR": scratch},
        start_new_session=True,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise CompilerFailed(f"it did not finish in {seconds:g} s and was stopped") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _first_error(messages: Path, code: int) -> str:
    """The first error that the compiler reported, else its exit status."""
    lines = messages.read_text(errors="replace").splitlines()
    errors = [line for line in lines if "error" in line] or [f"exit status {code}"]
    return errors[0].strip()[:300]
