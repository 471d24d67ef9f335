"""`attnlens native`: show whether native code is in use, and why not; build it; switch it off."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from attnlens.core.checks import ResourceError
from attnlens.core.numerical_path import NativeLibrary, NumericalPath

from .options import FAILED

native = typer.Typer(
    help="Native code: which of it is in use, build it, switch it off.", no_args_is_help=True
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@native.command("status")
def native_status(as_json: AsJson = False) -> None:
    """Print which native libraries are in use and where, or why not; compiles nothing."""
    from attnlens.attention.native import libraries

    _show(libraries.current_path(), as_json)


@native.command("build")
def native_build(as_json: AsJson = False) -> None:
    """Switch native code on and compile what is missing, also what failed before."""
    from attnlens.attention.native import build, libraries

    try:
        build.switch(on=True)
    except OSError as error:
        raise ResourceError(f"native code cannot be stored ({error}).") from None
    path = libraries.prepare(retry=True)
    _show(path, as_json)
    if not all(library.is_native for library in path.libraries):
        raise typer.Exit(FAILED)


@native.command("off")
def native_off() -> None:
    """Switch native code off for all later runs of this user; `build` switches it on again."""
    from attnlens.attention.native import build

    try:
        file = build.switch(on=False)
    except OSError as error:
        raise ResourceError(f"{error}; set ATTNLENS_KERNEL=0 instead.") from None
    print(f"Native code is switched off ({file}). XLA computes everything; last digits differ.")


def _show(path: NumericalPath, as_json: bool) -> None:
    from attnlens.attention.native import build, compiler
    from attnlens.attention.native.variants import variant_here

    files = {library.name: build.location(library.name) for library in path.libraries}
    if as_json:
        plain = [
            {**entry, "file": file and str(file)}
            for entry, file in zip(path.plain(), files.values(), strict=True)
        ]
        print(json.dumps(plain, indent=2, ensure_ascii=False))
        return
    for library in path.libraries:
        print(f"{library.name}: {_words(library)}")
        if file := files[library.name]:
            print(f"    {file}")
    variant = variant_here()
    print(f"Processor: {variant.name if variant else 'none that native code is written for'}")
    print(f"Compiler: {compiler.find_compiler() or 'none'}")


def _words(library: NativeLibrary) -> str:
    if library.origin:
        return f"in use, {library.origin.value}, {library.variant}, {library.digest}"
    reason = f": {library.reason}" if library.reason else ""
    return f"{library.status.value}{reason}" + ("" if library.is_native else "; XLA computes it")
