"""The pages of the site that nobody writes: reference, command line, gallery, the chain's picture.

All of them come from the source: public names from the `__init__.pyi` files, the command line from
the commands themselves, the chain from the imports that the code version follows.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections import Counter
from functools import cache
from html import escape
from pathlib import Path

import site_examples

import attnlens
from attnlens.claims.code_version import imports

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SOURCE = Path(attnlens.__file__).parent


def public_names(package: str) -> dict[str, str]:
    """Every public name of a package with the module that defines it, in the order listed."""
    folder = SOURCE.joinpath(*package.split(".")[1:])
    stub = folder / "__init__.pyi"
    tree = ast.parse((stub if stub.is_file() else folder / "__init__.py").read_text())
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            module = f"{package}.{node.module}" if node.module else package
            for alias in node.names:
                found[alias.asname or alias.name] = module
    return found


def packages() -> list[str]:
    """The package itself and those beneath it that have public names, along the chain."""
    below = [f"attnlens.{place}" for place in chain() if (SOURCE / place).is_dir()]
    return ["attnlens", *(package for package in below if public_names(package))]


def home(module: str, name: str) -> tuple[str, str]:
    """(module, name) where a public name is defined, through packages that pass it on."""
    while (SOURCE.parent.joinpath(*module.split(".")) / "__init__.py").is_file():
        names = public_names(module)
        if name not in names or names[name] == module:
            break
        module = names[name]
    return module, name


def reference(package: str) -> str:
    """A package's page: a table of its names, then module by module what Griffe reads there."""
    text = (importlib.import_module(package).__doc__ or "").strip()
    lines = [f"# {package}", "", text, "", "| name | what it is | also in |", "|---|---|---|"]
    own: dict[str, list[str]] = {}
    for name, module in public_names(package).items():
        where, name = home(module, name)
        if where == package:  # a package beneath this one
            lines.append(f"| [`{name}`]({name}.md) | {first_line(f'{package}.{name}')} | |")
            continue
        thing = getattr(importlib.import_module(where), name)
        said = (thing.__doc__ or "") if callable(thing) else f"a {type(thing).__name__}"
        said = said.strip().partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        pages = [f"[{Path(page).stem}](../{page})" for page in used_in().get(name, ())[:3]]
        said = f"{' '.join(said.split())} | {', '.join(pages)}"
        lines.append(f"| [`{name}`][{where}.{name}] | {said} |")
        if where.startswith(f"{package}.") and (package != "attnlens" or where.count(".") == 1):
            own.setdefault(where, []).append(name)
    for module, names in own.items():
        listed = "".join(f"\n        - {name}" for name in names)
        lines += ["", f"::: {module}", f"    options:\n      members:{listed}"]
    return "\n".join(lines) + "\n"


def identifiers(source: str) -> set[str]:
    """Every name and attribute that a piece of Python mentions."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    imported = {a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
    return names | imported | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@cache
def used_in() -> dict[str, list[str]]:
    """The pages and gallery scripts whose examples, which are run, mention a name."""
    found: dict[str, list[str]] = {}
    for path in sorted([*DOCS.rglob("*.md"), *DOCS.rglob("gallery/*.py")]):
        text = path.read_text()
        blocks = [text] if path.suffix == ".py" else site_examples.run_blocks(text)
        for name in set().union(*map(identifiers, blocks)):
            found.setdefault(name, []).append(path.relative_to(DOCS).with_suffix(".md").as_posix())
    return found


def first_line(module: str) -> str:
    """The first sentence of a module's docstring."""
    text = (importlib.import_module(module).__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


def command_line() -> str:
    """Every command with its options, by Typer's own generator."""
    command = [
        sys.executable, "-m", "typer", "attnlens.cli", "utils", "docs", "--name", "attnlens",
        "--title", "The command line",
    ]  # fmt: skip
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def gallery(entries: list[tuple[str, str, str | None]]) -> str:
    """The gallery's first page: a picture and a title each."""
    cards = []
    for stem, title, picture in entries:
        shown = f"[![{title}](../figures/{picture})]({stem}.md)\n\n    " if picture else ""
        cards.append(f"-   {shown}[{title}]({stem}.md)")
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
    """The order that `tests/test_structure.py` holds imports to."""
    for node in ast.parse((ROOT / "tests" / "test_structure.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHAIN":
            return ast.literal_eval(node.value)
    raise SystemExit("tests/test_structure.py must assign CHAIN.")


def import_counts() -> Counter[tuple[str, str]]:
    """How many modules of one place import from another."""
    counts: Counter[tuple[str, str]] = Counter()
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        here = _place(module)
        if here in ("", "__main__"):
            continue
        counts.update((here, place) for place in {*map(_place, imports(module))} - {"", here})
    return counts


def _place(module: str) -> str:
    return [*module.split("."), ""][1]


STEP, LABELS, ROOM = 44, 110, 24  # pixels: between places, for their names, around the picture


def picture() -> str:
    """The chain as an arc diagram in SVG: an arc above joins a place to one that it imports."""
    counts = import_counts()
    at = {name: ROOM + i * STEP for i, name in enumerate(chain())}
    known = {pair: n for pair, n in counts.items() if pair[0] in at and pair[1] in at}
    reach = max(abs(at[a] - at[b]) for a, b in known) / 2
    down = max((at[b] - at[a] for a, b in known if at[b] > at[a]), default=0) / 2
    base = ROOM + reach
    width, height = 2 * ROOM + STEP * (len(at) - 1), base + max(down / 3, 12) + LABELS
    drawn = []
    for (importer, imported), n in sorted(known.items()):
        a, b = at[importer], at[imported]
        radius, left = abs(a - b) / 2, b < a
        shape = f"{radius} {radius}" if left else f"{radius} {radius / 3}"
        said = f"{importer} imports {imported}: {n} module{'s' * (n > 1)}"
        drawn.append(
            f'<path d="M {a} {base} A {shape} 0 0 0 {b} {base}" '
            f'stroke-width="{0.6 + 0.35 * n**0.5:.2f}"{"" if left else " stroke-dasharray=4"}>'
            f"<title>{escape(said)}</title></path>"
        )
    names = [
        f'<circle cx="{x}" cy="{base}" r="5"/>'
        f'<text transform="translate({x - 4} {base + 16}) rotate(60)">{escape(name)}</text>'
        for name, x in at.items()
    ]
    words = f"{len(at)} places in a row; a solid arc leads from a place to one on its left"
    return (
        f'<svg class="chain" viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{words}">'
        f'<g fill="none" stroke="currentColor" stroke-opacity="0.45">{"".join(drawn)}</g>'
        f'<g fill="currentColor" font-size="15">{"".join(names)}</g></svg>'
    )


def roles() -> str:
    """A table of places, each with the first sentence of its own docstring."""
    rows = [f"| `{name}` | {first_line(f'attnlens.{name}')} |" for name in chain() if _exists(name)]
    return "\n".join(["| place | what it is, in its own words |", "|---|---|", *rows])


def _exists(name: str) -> bool:
    return (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()
