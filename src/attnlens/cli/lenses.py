"""`attnlens lenses`."""

from __future__ import annotations

import json
import re
import string
from pathlib import Path
from typing import Annotated

import typer

from attnlens import __version__
from attnlens.core.checks import BadInput

TEMPLATES = Path(__file__).with_name("lens_template")
# Files of a new package: template → path in the package; @MODULE@ stands for the module's name.
FILES = {
    "pyproject.txt": "pyproject.toml",
    "readme.txt": "README.md",
    "lens.txt": "src/@MODULE@/__init__.py",
    "world.txt": "src/@MODULE@/location.py",
    "claim.txt": "src/@MODULE@/median.py",
    "tests.txt": "tests/test_contract.py",
}


def lenses(
    action: Annotated[
        str | None,
        typer.Argument(help="new: write a package with a lens of your own.", metavar="[new]"),
    ] = None,
    name: Annotated[str | None, typer.Argument(help="With new: the name, such as mypaper.")] = None,
    letter: Annotated[
        str | None,
        typer.Option(help="With new: the letter of the lens; by default one that is free."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List every lens: its paper, package and claims; or write a package with a new one."""
    if action not in (None, "new") or (action == "new") != (name is not None):
        raise BadInput("attnlens lenses takes nothing, or new and a name such as mypaper.")
    if name is not None:
        _write_package(name, letter)
        return
    if letter is not None:
        raise BadInput("--letter is for a new lens; give new and a name too, or leave it out.")
    from attnlens.claims import lenses as installed_lenses

    installed = installed_lenses().values()
    if as_json:
        records = [lens.plain() | {"claims": list(lens.lens.claims)} for lens in installed]
        print(json.dumps(records, indent=2, ensure_ascii=False))
        return
    for lens, package, version in installed:
        count = "1 claim" if len(lens.claims) == 1 else f"{len(lens.claims)} claims"
        print(f"{lens.letter}  {lens.name}: {count}, from {package} {version}")
        print(f"   {lens.paper}")


def _write_package(name: str, letter: str | None) -> None:
    """Write a package with one world and one claim, whose tests pass as they are."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise BadInput(
            f"the name of a lens must be words of small letters and digits joined by hyphens, such "
            f"as mypaper; got {name!r}."
        )
    package = f"attnlens-{name}"
    folder, module = Path(package), package.replace("-", "_")
    values = {
        "@PACKAGE@": package,
        "@MODULE@": module,
        "@NAME@": name,
        "@LETTER@": _free_letter(name, letter),
        "@VERSION@": __version__,
    }
    try:
        folder.mkdir()
        for template, place in FILES.items():
            path = folder / _filled(place, values)
            path.parent.mkdir(parents=True, exist_ok=True)
            text = (TEMPLATES / template).read_text("utf-8")
            path.write_text(_filled(text, values), encoding="utf-8")
    except FileExistsError:
        raise BadInput(f"{folder} must not exist yet; rename it, or choose another name.") from None
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror}).") from None
    print(f"Wrote {folder}, lens {values['@LETTER@']}. Install it and run it with:")
    print(f"pip install -e ./{folder}")
    print(f"attnlens verify --claim {values['@LETTER@']}.median --profile smoke --out median-run")


def _free_letter(name: str, preferred: str | None) -> str:
    """A letter of no installed lens: `preferred`, or the first free one of `name` or A to Z."""
    from attnlens.claims.registry import declared_letters

    taken = declared_letters()
    free = [x for x in (*name.upper(), *string.ascii_uppercase) if x in set(string.ascii_uppercase)]
    free = [x for x in dict.fromkeys(free) if x not in taken]
    if not free or (preferred is not None and preferred not in free):
        raise BadInput(
            f"the letter of a new lens must be one of {', '.join(sorted(free)) or '(none is free)'}"
            f"; got {preferred!r}; the letters of installed lenses are taken."
        )
    return preferred or free[0]


def _filled(text: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text
