"""List the licences of installed packages, and check that they are allowed.

    python tools/licences.py

prints one line per package; the exit status is 1 if a licence is not allowed. Only the packages
that attnlens and its extras need are checked, not everything that is installed.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError

# Words that identify, in the metadata of a package, licences compatible with Apache-2.0.
ALLOWED = (
    "0bsd",
    "apache",
    "blueoak-1.0.0",
    "bsd",
    "bsl-1.0",  # Boost
    "cc0",
    "cnri-python",
    "hpnd",
    "isc",
    "mit",
    "mpl",
    "mozilla public license",
    "psf",
    "python software foundation",
    "python-2.0",
    "unlicense",
    "zlib",
    "zpl",
)


EXTRAS = ("test", "ray", "docs", "data", "torch", "transformers")


def needed(root: str = "attnlens", extras: tuple[str, ...] = ()) -> dict[str, Distribution]:
    """The installed packages that `root` with `extras` needs, directly or indirectly."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    distributions: dict[str, Distribution] = {}
    waiting = [(root, extras)]
    while waiting:
        name, needed_extras = waiting.pop()
        name = canonicalize_name(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except PackageNotFoundError:
            continue
        if name in distributions and not needed_extras:
            continue
        distributions[name] = distribution
        for text in distribution.requires or ():
            requirement = Requirement(text)
            environments = [{"extra": extra} for extra in ("", *needed_extras)]
            marker = requirement.marker
            applies = marker is None or any(marker.evaluate(extra) for extra in environments)
            if applies and canonicalize_name(requirement.name) not in distributions:
                waiting.append((requirement.name, tuple(sorted(requirement.extras))))
    return dict(sorted(distributions.items()))


def licence(distribution: Distribution) -> str:
    """What a package declares: the SPDX expression, else its classifiers, else its free text."""
    metadata = distribution.metadata
    if expressions := metadata.get_all("License-Expression"):
        return expressions[0]
    classifiers = metadata.get_all("Classifier") or []
    names = [c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License :: ")]
    names = [name for name in names if name != "OSI Approved"]
    if names:
        return " or ".join(names)
    text = " ".join(metadata.get_all("License") or []).strip().splitlines()
    return text[0][:80] if text else ""


def is_allowed(declared: str) -> bool:
    """Whether a declared licence is allowed: all parts of an AND, one part of an OR.

    >>> is_allowed("MIT AND (Apache-2.0 OR GPL-3.0-only)"), is_allowed("GPL-3.0-only")
    (True, False)
    """
    words = declared.lower().replace("(", " ").replace(")", " ")
    conjuncts = re.split(r"\s+and\s+", words)
    return bool(words.strip()) and all(
        any(_is_known(part) for part in re.split(r"\s+or\s+", conjunct)) for conjunct in conjuncts
    )


def _is_known(name: str) -> bool:
    copyleft = re.search(r"\b[al]?gpl\b|general public", name)
    return not copyleft and any(re.search(rf"\b{word}", name) for word in ALLOWED)


def listing(extras: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """Name, version and licence of every package that is needed."""
    for name, distribution in needed(extras=extras).items():
        yield name, distribution.version, licence(distribution)


def main() -> int:
    refused = 0
    for name, version, declared in listing(EXTRAS):
        allowed = is_allowed(declared)
        refused += not allowed
        mark = "" if allowed else "  <- not allowed"
        print(f"{name} {version}: {declared or 'no licence declared'}{mark}")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
