"""Lenses: a lens is a paper and the claims that test its statements.

Other packages can publish lenses, as entry points of the group `attnlens.lenses`
(docs/howto/publish-a-lens.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from attnlens.core.checks import BadInput, one_of


@dataclass(frozen=True)
class Paper:
    """The paper of a lens; `identifier` is "arXiv:…", "doi:…" or another identifier.

    >>> print(Paper("A title", ("Ada One", "Bo Two", "Cy Three"), 2022, "arXiv:2212.14852"))
    Ada One et al. (2022). A title. arXiv:2212.14852
    """

    title: str
    authors: tuple[str, ...]
    year: int
    identifier: str

    def __post_init__(self) -> None:
        texts = (self.title, self.identifier, *self.authors)
        if not self.authors or not all(isinstance(t, str) and t.strip() for t in texts):
            raise BadInput(
                f"a paper must have a title, authors and an identifier such as arXiv:2212.14852; "
                f"got {(self.title, self.authors, self.identifier)}."
            )

    def __str__(self) -> str:
        authors = " and ".join(self.authors)
        if len(self.authors) > 2:
            authors = f"{self.authors[0]} et al."
        return f"{authors} ({self.year}). {self.title}. {self.identifier}"


@dataclass(frozen=True)
class Lens:
    """A paper and its claims. `claims` maps ids, such as "M.median", to "module:NAME"; a claim's
    module is imported when the claim is first used.

    >>> from attnlens.claims import lenses
    >>> lens = lenses()["A"].lens
    >>> lens.paper.year, lens.claims["A.heads"]
    (2022, 'attnlens.claims.exchangeability.heads:CLAIM')
    """

    letter: str
    name: str
    paper: Paper
    claims: Mapping[str, str]

    def __post_init__(self) -> None:
        if not re.fullmatch("[A-Z]", self.letter):
            raise BadInput(f"the letter of a lens must be one of A to Z; got {self.letter!r}.")
        if not isinstance(self.paper, Paper):
            raise BadInput(f"the paper of lens {self.letter} must be a Paper; got {self.paper!r}.")
        for name, path in self.claims.items():
            if not re.fullmatch(rf"{self.letter}\.[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
                raise BadInput(
                    f"the claims of lens {self.letter} must have names such as "
                    f"{self.letter}.median; got {name!r}."
                )
            if not re.fullmatch(r"[\w.]+:\w+", path):
                raise BadInput(f"the claim {name} must be at 'module:NAME'; got {path!r}.")


class InstalledLens(NamedTuple):
    """A lens, and the name and version of the package that provides it.

    >>> from attnlens.claims import lenses
    >>> lenses()["B"].package
    'attnlens'
    """

    lens: Lens
    package: str
    version: str

    def plain(self) -> dict[str, Any]:
        """Letter, name, paper and package as plain data."""
        paper = {**asdict(self.lens.paper), "authors": list(self.lens.paper.authors)}
        return {
            "letter": self.lens.letter,
            "name": self.lens.name,
            "paper": paper | {"words": str(self.lens.paper)},
            "package": self.package,
            "version": self.version,
        }


def built_in_lens(letter: str, name: str, paper: Paper, claims: Mapping[str, str]) -> Lens:
    """A lens of attnlens itself; its claims are those of `claims` whose id begins with `letter`."""
    one_of("letter", letter, sorted({claim[0] for claim in claims}))
    return Lens(letter, name, paper, {id: path for id, path in claims.items() if id[0] == letter})
