"""What other packages add to attnlens, through entry points: lenses, worlds and operators.

    attnlens.lenses      letter = "module:NAME" of a `Lens`
    attnlens.worlds      name   = "module:NAME" of a small example of a world
    attnlens.operators   name   = "module:NAME" of an operator, ready to call

Reading entry points imports nothing. A plugin is imported when it is first needed. If it cannot be
used, a notice names its package, and the command continues without it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .checks import BadInput, ExplainedError
from .notices import Notice, print_notice
from .user_code import user_code

LENSES, WORLDS, OPERATORS = "attnlens.lenses", "attnlens.worlds", "attnlens.operators"
KINDS = {LENSES: "lens", WORLDS: "world", OPERATORS: "operator"}
SLOW_IMPORT = 10.0  # seconds; importing JAX alone takes 1 to 3, several times that if busy
LONGEST_OUTPUT = 60  # a notice repeats this many characters of what a plugin printed
T = TypeVar("T")


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package; `path` is "module:NAME".

    >>> print(Plugin(LENSES, "M", "attnlens_median:LENS", "attnlens-median", "0.1"))
    the lens 'M' of the package attnlens-median
    """

    group: str
    name: str
    path: str
    package: str
    version: str

    def __str__(self) -> str:
        return f"the {KINDS[self.group]} {self.name!r} of the package {self.package}"


def installed(group: str) -> list[Plugin]:
    """The plugins of a group, attnlens's own first; nothing is imported."""
    plugins = {
        Plugin(group, entry.name, entry.value, entry.dist.name, entry.dist.version)
        for entry in importlib.metadata.entry_points(group=group)
        if entry.dist is not None
    }
    return sorted(plugins, key=lambda p: (p.package != "attnlens", p.package, p.name))


def unique(plugins: list[Plugin], notice: Notice = print_notice) -> list[Plugin]:
    """The first plugin of each name; `notice` is called for every other plugin."""
    first: dict[str, Plugin] = {}
    for plugin in plugins:
        other = first.setdefault(plugin.name, plugin)
        if other != plugin:
            notice(
                f"{plugin} is left out, because {other.package} has one of that name; remove one "
                f"of the two packages, or ask its authors for another name"
            )
    return list(first.values())


def load(plugin: Plugin, kind: type[T], notice: Notice = print_notice) -> T | None:
    """The object that a plugin provides, an instance of `kind`.

    Returns None, after a notice, if the object cannot be imported or is not of that class.
    """
    try:
        with quiet_import(plugin.package, notice):
            thing = import_name(plugin.path, str(plugin))
        if not isinstance(thing, kind):
            raise BadInput(
                f"{plugin.path} must be of the class {kind.__name__}; got {type(thing).__name__}."
            )
    except ExplainedError as error:
        notice(f"{plugin} is left out: {str(error).rstrip('.')}")
        return None
    return thing


def extended(group: str, built_in: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """`built_in`, extended by the plugins that other packages add to `group`.

    A plugin is left out if its name is taken or if it cannot be used.
    """
    own = [Plugin(group, name, "", "attnlens", "") for name in built_in]
    added = [plugin for plugin in unique([*own, *installed(group)]) if plugin.path]
    loaded = {plugin.name: load(plugin, kind) for plugin in added}
    return {**built_in, **{name: thing for name, thing in loaded.items() if thing is not None}}


def import_name(path: str, what: str) -> Any:
    """The object at `path`, "module:NAME"; raises `BadInput`, which names `what`, if it fails."""
    module, _, name = path.partition(":")
    with user_code(f"the import of {what}"):
        imported = importlib.import_module(module)
    try:
        return getattr(imported, name)
    except AttributeError as error:
        raise BadInput(f"{what} cannot be loaded: {error}.") from error


@contextlib.contextmanager
def quiet_import(package: str, notice: Notice = print_notice) -> Iterator[None]:
    """Suppress what an import prints; call `notice` if it prints something or is slow."""
    printed, started = io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(printed):
        yield
    seconds = time.perf_counter() - started
    text = " ".join(printed.getvalue().split())
    if text:
        beginning = text[:LONGEST_OUTPUT]
        notice(
            f"the package {package} prints when it is imported, which is left out: {beginning!r}"
        )
    if seconds > SLOW_IMPORT:
        notice(f"the package {package} took {seconds:.0f} s to import; every command waits for it")
