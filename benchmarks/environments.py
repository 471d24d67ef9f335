"""The environments of peers: a virtual environment for each benchmark-only extra of pyproject.toml.

Peers pin versions of libraries that attnlens cannot use, so they are not installed in its
environment. Packages are installed one at a time, all with the same version of PyTorch, so that a
package that cannot be installed affects only its own rows; its error is shown in the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import venv
from importlib.util import find_spec
from pathlib import Path

from benchmarks.contest import HERE, ROOT

PREFIX = "peers-"
FOLDER = ROOT / ".peers"


def extras() -> dict[str, list[str]]:
    """The benchmark-only extras and their requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return {name: packages for name, packages in extras.items() if name.startswith(PREFIX)}


class Environments:
    """The environments of peers, one per extra; created in `folder` on first use."""

    def __init__(self, folder: Path, install: bool = True):
        self.folder, self.install = folder, install

    def python(self, home: str) -> str:
        """The interpreter of an environment; LookupError says why there is none."""
        if home == HERE:
            return sys.executable
        python = self.folder / home / "bin" / "python"
        if not python.exists():
            if not self.install:
                raise LookupError(f"extra {home} is not installed in {self.folder.name}")
            self._make(home)
        return str(python)

    def package(self, name: str, home: str) -> Path:
        """The folder of a package, here or in an environment; LookupError says why there is none.

        The package is not imported.
        """
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent
        program = f"from importlib.util import find_spec; print(find_spec({name!r}).origin)"
        command = [self.python(home), "-c", program]
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode:
            why = "; ".join(self.failures(home).values()) or "pip did not report an error"
            raise LookupError(f"{name} is not in environment {home}: {why}")
        return Path(found.stdout.strip()).parent

    def failures(self, home: str) -> dict[str, str]:
        """Requirements that did not install, with the error line of pip."""
        file = self.folder / home / "failures.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def _make(self, home: str) -> None:
        print(f"installing {home} into {self.folder.name} …", file=sys.stderr, flush=True)
        place = self.folder / home
        venv.create(place, with_pip=True)
        failures = {}
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        held = place / "held.txt"
        held.write_text("torch==2.13.0\n")  # as the extra `torch` pins it; CPU builds only
        for package in extras()[home]:
            done = subprocess.run([*pip, package, "-c", str(held)], capture_output=True, text=True)
            if done.returncode:
                lines = [x for x in done.stderr.splitlines() if x.strip()] or ["pip failed"]
                error = next((x for x in lines if x.startswith("ERROR")), lines[-1])
                failures[package] = error[:300]
        (place / "failures.json").write_text(json.dumps(failures, indent=1))
