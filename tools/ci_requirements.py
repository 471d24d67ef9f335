"""Write the requirements of CI with the hash of every file, from pip's own resolution.

    python tools/ci_requirements.py > requirements-ci.txt

pip resolves the project with its extras and `constraints.txt` and reports the files that it would
install, without installing them. The result is valid for the Python version and the platform on
which the tool runs. CI installs it with
`pip install --require-hashes --no-deps -r requirements-ci.txt`, then the project itself with
`--no-deps`. PyTorch is left out: CI machines have it in a separate folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXTRAS = ("test", "ray", "docs", "data")
LEFT_OUT = ("attnlens", "torch", "torchax")
HEADER = """\
# Written by tools/ci_requirements.py; do not edit. Every file that CI installs, with its hash:
#     pip install --require-hashes --no-deps -r requirements-ci.txt
"""


def build_requirements() -> list[str]:
    """The build requirements of the project and of the wheel of native code, as pinned there."""
    requirements = []
    for folder in (ROOT, ROOT / "native"):
        content = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        requirements += [name for name in content["build-system"]["requires"] if "==" in name]
    return [*requirements, "editables", "cmake", "ninja"]


def resolution() -> list[dict[str, Any]]:
    """The packages that pip would install into an empty environment, as it reports them."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    project = f"{ROOT}[{','.join(EXTRAS)}]"
    constraints = ["-c", str(ROOT / "constraints.txt"), "--report", "-"]
    done = subprocess.run(
        [*command, *constraints, project, *build_requirements()], capture_output=True, check=True
    )
    return json.loads(done.stdout)["install"]


def requirement_lines(packages: list[dict[str, Any]]) -> list[str]:
    """One requirement per package, sorted by name: exact version, hash of the file.

    >>> package = {
    ...     "metadata": {"name": "Mine", "version": "1.0"},
    ...     "download_info": {"archive_info": {"hashes": {"sha256": "00ff"}}},
    ... }
    >>> requirement_lines([package])
    ['mine==1.0 --hash=sha256:00ff']
    """
    lines = []
    for package in packages:
        name = package["metadata"]["name"].lower().replace("_", "-")
        if name not in LEFT_OUT:
            digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name}=={package['metadata']['version']} --hash=sha256:{digest}")
    return sorted(lines)


if __name__ == "__main__":
    print(HEADER + "\n".join(requirement_lines(resolution())))
