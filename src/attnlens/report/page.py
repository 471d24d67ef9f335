"""`report.html` from the store: plain records in, one file out, nothing loaded from elsewhere.

Every text is escaped by the template; figures travel as JSON inside the page. plotly's script is
taken from the installed package, packed (gzip, base64) and unpacked by the browser: 2 MB, not 5.
"""

from __future__ import annotations

import base64
import gzip
import importlib.util
import os
import re
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import latex2mathml.converter
import markupsafe

from attnlens.checks import BadInput
from attnlens.figures import describe, to_plotly
from attnlens.records import Figure, Point, Series
from attnlens.store import Store, replace_file

from .findings import findings
from .picture import picture
from .tables import download

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
        with Store.reading(folder) as opened:
            return write_report(folder, opened)
    replace_file(folder / FILE, render(store))
    return folder / FILE


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
    return render_documents(*finished(store), store.failures())


def render_documents(
    ledger: dict[str, Any],
    page: dict[str, Any],
    failures: list[dict[str, Any]],
    running: str | None = None,
) -> str:
    """The page from its two documents; `running` says how far a run is that has not ended."""
    sections = [
        {
            **section,
            "anchor": re.sub(r"[^A-Za-z0-9-]", "-", section["id"]),
            "entry": entry,
            "mathml": _formula(section["formula"]),
            "plotly": _plotly(section["figure"]),
            "alternative": _alternative(section["figure"]),
        }
        for section, entry in zip(page["claims"], ledger["claims"], strict=True)
    ]
    for section in sections:
        section["csv"] = download(section)
    licence, script = _plotly_script()
    return (
        environment()
        .get_template("page.html")
        .render(
            ledger=ledger,
            sections=sections,
            picture=picture(sections),
            findings=findings(sections),
            counts=_counts(ledger["claims"]),
            failures=failures,
            running=running,
            licence=licence,
            script=script,
        )
    )


def environment() -> jinja2.Environment:
    """Templates that escape whatever they are given."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("attnlens.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(number=number, minus=minus)
    return made


def number(value: float | None) -> str:
    """A number as people read it: four figures, a true minus sign."""
    if value is None:
        return "–"
    return minus(f"{value:.4g}")


def minus(text: str) -> str:
    """True minus signs before digits."""
    return re.sub(r"(?<!\w)-(?=[\d.])|(?<=\de)-(?=\d)", "−", text)


def _counts(entries: list[dict[str, Any]]) -> dict[str, int]:
    outcomes = [entry["verdict"] for entry in entries]
    return {name: outcomes.count(name) for name in ("supported", "refuted", "undecided")}


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


def _figure(plain: dict[str, Any]) -> Figure:
    series = tuple(
        Series(**{**s, "points": tuple(Point(**point) for point in s["points"])})
        for s in plain["series"]
    )
    return Figure(**{**plain, "series": series})


def _plotly(plain: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if plain is None else to_plotly(_figure(plain))


def _alternative(plain: dict[str, Any] | None) -> str:
    return "" if plain is None else describe(_figure(plain))


@cache
def _plotly_script() -> tuple[str, str]:
    """The licence lines of plotly.js, and the script packed for the page."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise BadInput("the page needs the package plotly; install it with `pip install plotly`.")
    source = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    script = source.read_bytes()
    licence = re.match(rb"\s*/\*\*?(.*?)\*/", script, re.DOTALL)
    words = " ".join(licence[1].decode().replace("*", " ").split()) if licence else "plotly.js, MIT"
    # The time stamp in a gzip header would make two equal pages differ.
    return words, base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()
