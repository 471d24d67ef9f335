"""The version of the code behind a measurement: a hash of the sources it can reach.

Starting from the module of a measure function, imports of this package (and of the module's own
package) are followed through the syntax tree. A package's `__init__.pyi` says which file a public
name comes from, so a claim about softmax does not depend on the source of other operators. Change
one of these files and the cells that rest on it are computed again; change any other and they
are kept. Versions of libraries are recorded beside each run, not part of this.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from functools import cache
from pathlib import Path

DRAWS_ONLY = "attnlens.figures."  # imported inside `plot` methods; no number comes from it


@cache
def code_version(module: str) -> str:
    """A short hash of the sources that `module` reaches inside its own top-level packages."""
    digest = hashlib.sha256()
    for name in sorted(reached(module)):
        source = _file(name)
        compiled = source.with_suffix(".cc")  # what a module compiles lies beside it, with headers
        files = [compiled, *sorted(source.parent.glob("*.h"))] if compiled.is_file() else []
        parts = [each.read_bytes() for each in (source, *files)]
        digest.update(name.encode() + b"\0" + b"\0".join(parts) + b"\0")
    return digest.hexdigest()[:16]


def reached(module: str) -> set[str]:
    """Every module that `module` imports, directly or not, of attnlens or of its own package."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found and not f"{name}.".startswith(DRAWS_ONLY):
            found.add(name)
            waiting += imports(name)
    return found


@cache
def imports(module: str) -> tuple[str, ...]:
    """The modules of attnlens, or of its own package, that one module's source imports."""
    path = _file(module)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    roots = {"attnlens", module.partition(".")[0]}
    targets: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets += [a.name for a in node.names if a.name.partition(".")[0] in roots]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if base.partition(".")[0] in roots:
                targets += [_home(base, alias.name) for alias in node.names]
    return tuple(targets)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
    return f"{base}.{node.module}" if node.module else base


def _home(base: str, name: str) -> str:
    """The module that holds `name` when somebody writes `from base import name`."""
    if _spec(f"{base}.{name}") is not None:
        return f"{base}.{name}"
    path = _file(base)
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
    except ModuleNotFoundError:  # its parent is a plain module, or is not there
        return None


def _file(module: str) -> Path:
    spec = _spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no source for module {module!r}")
    return Path(spec.origin)
