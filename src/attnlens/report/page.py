"""`report.html` from the store: plain records in, one file out, nothing loaded from elsewhere.

Every text is escaped by the template; figures travel as JSON inside the page.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import latex2mathml.converter
import markupsafe

from attnlens.checks import BadInput
from attnlens.store import Store, replace_file

from .assumptions import checked
from .findings import findings
from .picture import picture
from .tables import download
from .templating import rendered
from .views import restored, views

FILE = "report.html"
MATHML = "{http://www.w3.org/1998/Math/MathML}"
ELEMENTS = {
    "math", "menclose", "mfenced", "mfrac", "mi", "mn", "mo", "mover", "mpadded", "mphantom",
    "mroot", "mrow", "mspace", "msqrt", "mstyle", "msub", "msubsup", "msup", "mtable", "mtd",
    "mtext", "mtr", "munder", "munderover",
}  # fmt: skip
ATTRIBUTES = {
    "accent", "accentunder", "close", "columnalign", "columnspacing", "depth", "display",
    "displaystyle", "fence", "form", "height", "largeop", "linethickness", "lspace",
    "mathvariant", "maxsize", "minsize", "movablelimits", "notation", "open", "rowspacing",
    "rspace", "scriptlevel", "separator", "stretchy", "symmetric", "width",
}  # fmt: skip


def write_report(folder: str | os.PathLike[str], store: Store | None = None) -> Path:
    """Write the page of a results folder beside its results, and return where it is.

    Only what the folder holds is needed, not the code that measured it.

    >>> write_report("no-such-run")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    attnlens.checks.BadInput: ...
    """
    folder = Path(folder)
    if store is None:
        with Store.reading(folder) as opened, readable(folder):
            return write_report(folder, opened)
    replace_file(folder / FILE, render(store))
    return folder / FILE


@contextmanager
def readable(*folders: Path) -> Iterator[None]:
    """One sentence where documents that somebody else wrote are not what a page is made of."""
    try:
        yield
    except BadInput:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, jinja2.UndefinedError) as error:
        names = " or ".join(map(str, folders))
        raise BadInput(
            f"the ledger in {names} is not one that attnlens wrote ({type(error).__name__}); "
            f"`attnlens verify --out DIR` writes it again."
        ) from error


def finished(store: Store) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ledger of a run and the content of its page, or the sentence that it has none yet."""
    ledger, page = store.document("ledger"), store.document("page")
    if ledger is None or page is None:
        raise BadInput(
            f"{store.folder} holds an unfinished run without verdicts; finish it with `attnlens "
            f"verify --out {store.folder}`, then ask for the report."
        )
    return ledger, page


def render(store: Store) -> str:
    """The page of a finished run as text.

    >>> with Store.reading(Path("no-such-run")) as store:  # doctest: +ELLIPSIS
    ...     page = render(store)
    Traceback (most recent call last):
    attnlens.checks.BadInput: ...
    """
    return render_documents(*finished(store), store.failures(), None, store.faults())


def render_documents(
    ledger: dict[str, Any],
    page: dict[str, Any],
    failures: list[dict[str, Any]],
    running: str | None = None,
    faults: Sequence[dict[str, Any]] = (),
) -> str:
    """The page from its two documents; `running` says how far a run is that has not ended."""
    sections = [
        {
            **section,
            "anchor": re.sub(r"[^A-Za-z0-9-]", "-", section["id"]),
            "entry": entry,
            "mathml": _formula(section["formula"]),
            "assumed": [(said, checked(said)) for said in section["assumptions"]],
            "drawn": views(restored(plain) for plain in _records(section)),
        }
        for section, entry in zip(page["claims"], ledger["claims"], strict=True)
    ]
    for section in sections:
        section["csv"] = download(section)
    return rendered(
        "page.html",
        drawn=True,
        running=running,
        ledger=ledger,
        sections=sections,
        picture=picture(sections),
        findings=findings(sections),
        counts=_counts(ledger["claims"]),
        failures=failures,
        faults=_alike(faults),
    )


def _records(section: dict[str, Any]) -> list[dict[str, Any]]:
    """A claim's figure and its further views; folders of older versions have no views."""
    figure = [] if section["figure"] is None else [section["figure"]]
    return figure + section.get("views", [])


def _counts(entries: list[dict[str, Any]]) -> dict[str, int]:
    outcomes = [entry["verdict"] for entry in entries]
    return {name: outcomes.count(name) for name in ("supported", "refuted", "undecided")}


def _alike(faults: Sequence[dict[str, Any]]) -> list[tuple[tuple[str, str, str], int]]:
    """Faults in the same words of the same claim, with how many there were."""
    return list(Counter((f["kind"], f["claim"], f["words"]) for f in faults).items())


def _formula(latex: str) -> markupsafe.Markup:
    """LaTeX as MathML; text that is no formula is shown as it stands, escaped.

    The converter copies what stands in \\text{…} unescaped, so its output is not trusted: it must
    be well-formed XML of presentation elements without content or event attributes.
    """
    try:
        tree = ElementTree.fromstring(latex2mathml.converter.convert(latex, display="block"))
    except Exception:  # the converter raises whatever its parser stumbles over
        return markupsafe.escape(latex)
    for element in tree.iter():
        element.tag = element.tag.removeprefix(MATHML)
        if element.tag not in ELEMENTS or not ATTRIBUTES.issuperset(element.attrib):
            return markupsafe.escape(latex)
    return markupsafe.Markup(ElementTree.tostring(tree, encoding="unicode"))
