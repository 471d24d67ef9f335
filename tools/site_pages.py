"""The generated pages of the site: reference, command line, gallery, the picture of the packages.

All of them are generated from the source: public names from the `__init__.pyi` files, the command
line from the commands, the picture from the imports that `attnlens.runs.code_version` finds.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
import types
from collections import Counter
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import site_examples

import attnlens
from attnlens.runs.code_version import imports

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCE = Path(attnlens.__file__).parent


def public_names(package: str) -> dict[str, str]:
    """Every public name of a package with the module it is imported from, in the listed order."""
    folder = SOURCE.joinpath(*package.split(".")[1:])
    stub = folder / "__init__.pyi"
    tree = ast.parse((stub if stub.is_file() else folder / "__init__.py").read_text())
    names = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            module = f"{package}.{node.module}" if node.module else package
            for alias in node.names:
                names[alias.asname or alias.name] = module
    return names


def packages() -> list[str]:
    """attnlens and its packages that have public names, in the order of imports.

    `cli` is not among them: the command line has a page of its own.
    """
    below = [f"attnlens.{name}" for name in chain() if name != "cli"]
    return ["attnlens", *(package for package in below if public_names(package))]


def home(module: str, name: str) -> tuple[str, str]:
    """The module that defines a public name, and the name; follows re-exports by packages."""
    while (SOURCE.parent.joinpath(*module.split(".")) / "__init__.py").is_file():
        names = public_names(module)
        if name not in names or names[name] == module:
            break
        module = names[name]
    return module, name


def reference(package: str) -> str:
    """The page of a package: a table of its names, then the documentation module by module."""
    text = (importlib.import_module(package).__doc__ or "").strip()
    lines = [f"# {package}", "", text, "", "| name | what it is | also in |", "|---|---|---|"]
    documented_here: dict[str, list[str]] = {}
    for name, module in public_names(package).items():
        where, name = home(module, name)
        if where == package:  # a package beneath this one
            lines.append(f"| [`{name}`]({name}.md) | {first_line(f'{package}.{name}')} | |")
            continue
        thing = getattr(importlib.import_module(where), name)
        pages = ", ".join(f"[{Path(page).stem}](../{page})" for page in used_in().get(name, ())[:3])
        lines.append(f"| [`{name}`][{where}.{name}] | {summary(thing)} | {pages} |")
        if isinstance(thing, types.ModuleType):
            documented_here[f"{where}.{name}"] = []
        elif package == "attnlens":
            if (where, name) not in documented_below():
                documented_here.setdefault(where, []).append(name)
        elif where.startswith(f"{package}."):
            documented_here.setdefault(where, []).append(name)
    for module, names in documented_here.items():
        members = "".join(f"\n        - {name}" for name in names)
        lines += ["", f"::: {module}"]
        lines += [f"    options:\n      members:{members}"] if names else []
    return "\n".join(lines) + "\n"


def summary(thing: Any) -> str:
    """The first paragraph of a docstring as text of a table cell; for a constant, its type."""
    documented = callable(thing) or isinstance(thing, types.ModuleType)
    text = (thing.__doc__ or "") if documented else f"a {type(thing).__name__}"
    return " ".join(text.strip().partition("\n\n")[0].split()).replace("|", "\\|")


@cache
def documented_below() -> set[tuple[str, str]]:
    """(module, name) of every name that is documented on the page of a package below attnlens."""
    below = packages()[1:]
    return {home(m, n) for package in below for n, m in public_names(package).items()}


def identifiers(source: str) -> set[str]:
    """Every name and attribute that a piece of Python mentions."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    imported = {a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
    return names | imported | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@cache
def used_in() -> dict[str, list[str]]:
    """For each name, the pages and gallery scripts whose executed examples mention it."""
    mentions: dict[str, list[str]] = {}
    for path in sorted([*DOCS.rglob("*.md"), *DOCS.rglob("gallery/*.py")]):
        text = path.read_text()
        blocks = [text] if path.suffix == ".py" else site_examples.run_blocks(text)
        for name in set().union(*map(identifiers, blocks)):
            page = path.relative_to(DOCS).with_suffix(".md").as_posix()
            mentions.setdefault(name, []).append(page)
    return mentions


def first_line(module: str) -> str:
    """The first sentence of a module's docstring."""
    text = (importlib.import_module(module).__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


def command_line() -> str:
    """Every command with its options, as Markdown from Typer's own generator."""
    command = [
        sys.executable,
        "-m",
        "typer",
        "attnlens.cli",
        "utils",
        "docs",
        "--name",
        "attnlens",
        "--title",
        "The command line",
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def gallery(entries: list[tuple[str, str, str | None]]) -> str:
    """The first page of the gallery: one picture and one title per script."""
    cards = []
    for stem, title, picture in entries:
        image = f"[![{title}](../figures/{picture})]({stem}.md)\n\n    " if picture else ""
        cards.append(f"-   {image}[{title}]({stem}.md)")
    return "\n".join(
        [
            "# Gallery",
            "",
            "Worked examples, each a script of fewer than 80 lines that was run when this page was "
            "built. The scripts are in `docs/gallery/`; copy one and change it.",
            "",
            '<div class="grid cards" markdown>',
            "",
            "\n\n".join(cards),
            "",
            "</div>",
            "",
        ]
    )


def chain() -> tuple[str, ...]:
    """The order of packages that `pyproject.toml` declares for import-linter, lowest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (layers,) = [
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    ]
    return tuple(reversed(layers))


def import_counts() -> Counter[tuple[str, str]]:
    """Counts of the modules in package `importer` that import from `imported`, by this pair."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        here = _package(module)
        if here in ("", "__main__"):
            continue
        counts.update((here, other) for other in {*map(_package, imports(module))} - {"", here})
    return counts


def _package(module: str) -> str:
    """The name below attnlens that a module belongs to: "claims" for attnlens.claims.registry."""
    return [*module.split("."), ""][1]


# Sizes in pixels: distance of packages, height of their names, margin of the picture.
STEP, LABELS, ROOM = 44, 110, 24


def picture() -> str:
    """The packages as an arc diagram in SVG: an arc joins a package to one that it imports."""
    counts = import_counts()
    at = {name: ROOM + i * STEP for i, name in enumerate(chain())}
    known = {pair: n for pair, n in counts.items() if pair[0] in at and pair[1] in at}
    reach = max(abs(at[a] - at[b]) for a, b in known) / 2
    down = max((at[b] - at[a] for a, b in known if at[b] > at[a]), default=0) / 2
    base = ROOM + reach
    width, height = 2 * ROOM + STEP * (len(at) - 1), base + max(down / 3, 12) + LABELS
    arcs = []
    for (importer, imported), n in sorted(known.items()):
        a, b = at[importer], at[imported]
        radius, left = abs(a - b) / 2, b < a
        shape = f"{radius} {radius}" if left else f"{radius} {radius / 3}"
        label = f"{importer} imports {imported}: {n} module{'s' * (n > 1)}"
        arcs.append(
            f'<path d="M {a} {base} A {shape} 0 0 0 {b} {base}" '
            f'stroke-width="{0.6 + 0.35 * n**0.5:.2f}"{"" if left else " stroke-dasharray=4"}>'
            f"<title>{escape(label)}</title></path>"
        )
    names = [
        f'<circle cx="{x}" cy="{base}" r="5"/>'
        f'<text transform="translate({x - 4} {base + 16}) rotate(60)">{escape(name)}</text>'
        for name, x in at.items()
    ]
    words = f"{len(at)} packages in a row; a solid arc leads from a package to one on its left"
    return (
        f'<svg class="chain" viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{words}">'
        f'<g fill="none" stroke="currentColor" stroke-opacity="0.45">{"".join(arcs)}</g>'
        f'<g fill="currentColor" font-size="15">{"".join(names)}</g></svg>'
    )


def roles() -> str:
    """A table of the packages, each with the first sentence of its docstring."""
    rows = [f"| `{name}` | {first_line(f'attnlens.{name}')} |" for name in chain()]
    return "\n".join(["| package | what it holds |", "|---|---|", *rows])
