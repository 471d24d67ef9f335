"""Provenance of results: a record of everything that can change a number of a run, and its hash.

    code         the versions of the source behind every claim, and of the judge
    path         native code or XLA, for every native library that a claim can reach
    environment  package versions, processor with its instruction sets, compiler flags, Python

Code and path are also part of the key of a cell; the environment is not. So a run may reuse cells
that an earlier run computed in another environment. The hash includes which cells these are:
therefore two complete runs with the same hash and profile have equal ledgers. (On a Ray cluster
this holds for processors of the same kind, because those of the nodes are not recorded. Packages
that provide the lenses of a run are recorded; others that only a user's own claims need are not.)
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlens.claims import registry
from attnlens.core.notices import Notice, print_notice
from attnlens.core.numerical_path import NumericalPath

from .code_version import code_version, native_libraries
from .store.schema import dump

if TYPE_CHECKING:
    from attnlens.claims.claim import Claim

    from .store.store import Store

# Packages whose version can change a number.
PACKAGES = (
    "attnlens",
    "jax",
    "jaxlib",
    "numpy",
    "scipy",
    "equinox",
    "optax",
    "optimistix",
    "lineax",
    "matfree",
    "numpyro",
    "scikit-learn",
)
JUDGE = "attnlens.runs.judge"
# Prefixes of the names of vector and fused instruction sets in /proc/cpuinfo, by its field "flags"
# (x86) or "Features" (Arm). Compilers and BLAS libraries choose code by these instruction sets;
# other flags, such as those of security fixes, change no number.
INSTRUCTION_SETS = {
    "flags": ("sse", "ssse", "avx", "fma", "f16c", "amx"),
    "Features": ("fp", "asimd", "sve", "sme", "bf16", "i8mm"),
}


@dataclass(frozen=True)
class RunEnvironment:
    """The packages, processor and compiler flags that all cells of a run share.

    >>> RunEnvironment.restore(environment().plain()) == environment()
    True
    """

    packages: Mapping[str, str]
    processor: str
    instructions: tuple[str, ...]
    compiler_flags: str
    python: str

    def plain(self) -> dict[str, Any]:
        """The environment as plain data."""
        return {**asdict(self), "instructions": list(self.instructions)}

    @staticmethod
    def restore(plain: Mapping[str, Any]) -> RunEnvironment:
        """The environment from plain data; raises TypeError if it is not of that form."""
        return RunEnvironment(**{**plain, "instructions": tuple(plain["instructions"])})


@dataclass(frozen=True)
class ClaimVersion:
    """The code behind a claim: hashes of the sources of its functions, and its numerical path.

    A claim that was not run, because a package is missing, has no code.
    """

    code: tuple[str, ...]
    path: str


@dataclass(frozen=True)
class RunRecord:
    """Everything that can change a number of a run. `reused` has (key, environment) of each cell
    that an earlier run computed in another environment; `seed_ranges` lists the ranges of seeds."""

    claims: Mapping[str, ClaimVersion]
    judge: str
    path: NumericalPath
    environment: RunEnvironment
    reused: tuple[tuple[str, str], ...] = ()
    seed_ranges: tuple[int, ...] = (0,)

    @property
    def hash(self) -> str:
        """A short SHA-256 of the record, without the reasons why native libraries are not used."""
        claims = {name: asdict(version) for name, version in self.claims.items()}
        here, reused = self.environment.plain(), sorted(self.reused)
        content = [claims, self.judge, self.path.digests, here, reused, list(self.seed_ranges)]
        return hashlib.sha256(dump(content).encode()).hexdigest()[:16]

    def plain(self) -> dict[str, Any]:
        """The record as plain data, for the ledger; it has the number of reused cells only."""
        claims = {
            name: {"code": list(version.code), "path": version.path}
            for name, version in self.claims.items()
        }
        return {
            "claims": claims,
            "judge": self.judge,
            "native": self.path.plain(),
            "environment": self.environment.plain(),
            "cells_of_other_environments": len(self.reused),
        }


def claim_versions(claims: Sequence[Claim], selected: Sequence[Claim]) -> dict[str, ClaimVersion]:
    """The version of each claim by id; empty for claims that are not in `selected` (not run)."""
    run = {claim.id for claim in selected}
    return {
        claim.id: _version(claim) if claim.id in run else ClaimVersion((), "") for claim in claims
    }


def judge_version() -> str:
    """The version of the code that judges the cells."""
    return code_version(JUDGE)


def _version(claim: Claim) -> ClaimVersion:
    functions = (claim.plan, claim.measure, claim.judge, claim.figure or claim.draw, claim.views)
    modules = sorted({_module(function) for function in functions})
    path = numerical_path(native_libraries(claim.measure.__module__)).key
    return ClaimVersion(tuple(code_version(module) for module in modules), path)


def _module(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    return function.__module__


def numerical_path(names: Sequence[str]) -> NumericalPath:
    """The numerical path for native libraries with these names; nothing is compiled."""
    if not names:
        return NumericalPath()
    from attnlens.attention.native import libraries  # imports JAX

    return libraries.current_path(names)


def native_code_is_off() -> bool:
    """Whether the user has switched native code off."""
    from attnlens.attention.native import build  # imports JAX

    return build.is_off()


def prepared_path(modules: Sequence[str], notice: Notice = print_notice) -> NumericalPath:
    """Compile the native libraries that `modules` can reach; return the numerical path.

    `notice` is called with one sentence if something must be compiled, or cannot be; by default it
    is printed on standard error.
    """
    names = sorted({name for module in modules for name in native_libraries(module)})
    if not names:
        return NumericalPath()
    from attnlens.attention.native import libraries  # imports JAX

    return libraries.prepare(names, notice)


def numerics(path: NumericalPath, here: RunEnvironment) -> dict[str, Any]:
    """What the store records with a run: its environment and its numerical path."""
    return {"environment": here.plain(), "native": path.plain()}


def cell_environment(path: str, packages: Any, numerics: Any) -> str:
    """The environment in which a cell was computed, as canonical JSON, from the record of its run.

    It names a compiled library only if the `path` of the cell says that native code was used.
    """
    try:
        taken = NumericalPath.restore(numerics["native"])
        native = {
            library.name: library.digest
            for library in taken.libraries
            if library.is_native and library.key in path.split()
        }
        return dump([packages, numerics["environment"], native])
    except (LookupError, TypeError, ValueError):  # not recorded, or invalid
        return dump([packages, numerics])


def facts(packages: Any, numerics: Any) -> dict[str, str]:
    """The record of a run as named values, for comparisons; values not recorded are left out."""
    values = dict(packages) if isinstance(packages, dict) else {}
    try:
        there = RunEnvironment.restore(numerics["environment"])
        values["the processor"] = there.processor
        values["the instruction sets"] = " ".join(there.instructions)
        values["the compiler flags"] = there.compiler_flags
        values["Python"] = there.python
        for library in NumericalPath.restore(numerics["native"]).libraries:
            values[library.name] = library.source
    except (LookupError, TypeError, ValueError):  # not recorded, or of another form
        pass
    return values


def reused_cells(
    store: Store, keys: Set[str], path: NumericalPath, here: RunEnvironment
) -> tuple[tuple[str, str], ...]:
    """(key, environment) of each cell among `keys` that was not computed in environment `here`."""
    recorded = numerics(path, here)
    cells = []
    for cell in store.origins():
        if cell.key in keys:
            there = cell_environment(cell.path, cell.packages, cell.numerics)
            if there != cell_environment(cell.path, here.packages, recorded):
                cells.append((cell.key, there))
    return tuple(sorted(cells))


def machine() -> dict[str, Any]:
    """A description of this machine; it is recorded with a run, but not part of its hash."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": cores(),
        "python": platform.python_version(),
    }


def environment(lenses: Iterable[str] = ()) -> RunEnvironment:
    """The environment of the workers that this process starts, for claims of these lenses."""
    from .engines.base import worker_environment

    return RunEnvironment(
        packages=packages(lenses),
        processor=_processor(),
        instructions=_instructions(),
        compiler_flags=worker_environment()["XLA_FLAGS"],
        python=platform.python_version(),
    )


def packages(lenses: Iterable[str] = ()) -> dict[str, str]:
    """The versions of the packages that numbers depend on, and of those that provide `lenses`."""
    return {
        **registry.providers(lenses),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


def lens_records(letters: Iterable[str]) -> list[dict[str, Any]]:
    """The installed lenses with these letters, as plain data; others, of a user, are left out."""
    installed = registry.lenses()
    return [installed[letter].plain() for letter in sorted(letters) if letter in installed]


def _processor() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _instructions() -> tuple[str, ...]:
    """The instruction sets of the processor that can change digits, sorted; () if not known."""
    return tuple(
        sorted(
            name
            for field, beginnings in INSTRUCTION_SETS.items()
            for name in set(_cpuinfo(field).split())
            if name.startswith(beginnings)
        )
    )


def _cpuinfo(field: str) -> str:
    """A field of the first processor in /proc/cpuinfo; empty where there is none."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == field:
                return value.strip()
    except OSError:
        pass
    return ""


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
