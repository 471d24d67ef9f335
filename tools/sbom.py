"""Write a software bill of materials (CycloneDX 1.6, JSON) of the environment that this runs in.

    python tools/sbom.py sbom.json

It lists the packages that attnlens needs, with their versions, licences and dependencies.
"""

from __future__ import annotations

import json
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from licences import EXTRAS, licence, needed
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def bill_of_materials(packages: dict[str, Distribution], root: str = "attnlens") -> dict[str, Any]:
    """The document: components and dependencies of `packages`, one of which is the `root`."""
    components = {name: _component(name, package) for name, package in packages.items()}
    main = components.pop(root) | {"type": "application"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": main,
        },
        "components": list(components.values()),
        "dependencies": [
            {"ref": _address(name, package), "dependsOn": sorted(_needs(package, packages))}
            for name, package in packages.items()
        ],
    }


def _component(name: str, package: Distribution) -> dict[str, Any]:
    address = _address(name, package)
    return {
        "type": "library",
        "bom-ref": address,
        "name": name,
        "version": package.version,
        "purl": address,
        "licenses": [{"license": {"name": licence(package)}}] if licence(package) else [],
    }


def _address(name: str, package: Distribution) -> str:
    """The package URL (purl) of a package."""
    return f"pkg:pypi/{name}@{package.version}"


def _needs(package: Distribution, packages: dict[str, Distribution]) -> set[str]:
    names = {canonicalize_name(Requirement(text).name) for text in package.requires or ()}
    return {_address(name, packages[name]) for name in names & set(packages)}


if __name__ == "__main__":
    document = bill_of_materials(needed(extras=EXTRAS))
    Path(sys.argv[1]).write_text(json.dumps(document, indent=2) + "\n", "utf-8")
