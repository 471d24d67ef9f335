"""Write the requirements of CI with the hash of every file, from pip's own resolution.

    python tools/ci_requirements.py > requirements-ci.txt
    python tools/ci_requirements.py transformers > requirements-transformers.txt

pip resolves the project with its extras and `constraints.txt` and reports the files that it would
install, without installing them. The result is valid for the Python version and the platform on
which the tool runs. CI installs it with
`pip install --require-hashes --no-deps -r requirements-ci.txt`, then the project itself with
`--no-deps`. The second file has what PyTorch and transformers need beyond the first. PyTorch itself
is left out: CI machines have it in a separate folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXTRAS = ("test", "ray", "docs", "data")
TORCH_EXTRAS = ("torch", "transformers")
LEFT_OUT = ("attnlens", "torch")
FILE, TORCH_FILE = "requirements-ci.txt", "requirements-transformers.txt"
HEADER = """\
# Written by tools/ci_requirements.py; do not edit. Files that CI installs, with their hashes:
#     pip install --require-hashes --no-deps -r {file}
"""


def build_requirements() -> list[str]:
    """The build requirements of the project and of the wheel of native code, as pinned there."""
    requirements = []
    for folder in (ROOT, ROOT / "native"):
        content = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        requirements += [name for name in content["build-system"]["requires"] if "==" in name]
    return [*requirements, "editables", "cmake", "ninja"]


def resolution(extras: Sequence[str], *requirements: str) -> list[dict[str, Any]]:
    """The packages that pip would install into an empty environment, as it reports them."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    project = f"{ROOT}[{','.join(extras)}]"
    constraints = ["-c", str(ROOT / "constraints.txt"), "--report", "-"]
    done = subprocess.run(
        [*command, *constraints, project, *requirements], capture_output=True, check=True
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


def main(arguments: Sequence[str]) -> None:
    if list(arguments) == ["transformers"]:
        hashed = (ROOT / FILE).read_text("utf-8").splitlines()
        lines = requirement_lines(resolution(TORCH_EXTRAS))
        names = {line.partition("==")[0] for line in hashed}
        lines = [line for line in lines if line.partition("==")[0] not in names]
        print(HEADER.format(file=TORCH_FILE) + "\n".join(lines))
    elif not arguments:
        lines = requirement_lines(resolution(EXTRAS, *build_requirements()))
        print(HEADER.format(file=FILE) + "\n".join(lines))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
