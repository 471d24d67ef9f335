"""`report.html` of a run, from the plain records of the store; it loads nothing from elsewhere.

The template escapes every text; figures are JSON inside the page.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import latex2mathml.converter
import markupsafe

from attnlens.core.numerical_path import NumericalPath
from attnlens.core.serialise import ledger_entries, view_from_plain
from attnlens.core.verdicts import verdict_words

from .findings import findings
from .ledger_plot import ledger_plot
from .tables import section_csv
from .templating import anchor, render_template
from .views import views

MATHML = "{http://www.w3.org/1998/Math/MathML}"
ELEMENTS = {
    "math",
    "menclose",
    "mfenced",
    "mfrac",
    "mi",
    "mn",
    "mo",
    "mover",
    "mpadded",
    "mphantom",
    "mroot",
    "mrow",
    "mspace",
    "msqrt",
    "mstyle",
    "msub",
    "msubsup",
    "msup",
    "mtable",
    "mtd",
    "mtext",
    "mtr",
    "munder",
    "munderover",
}
ATTRIBUTES = {
    "accent",
    "accentunder",
    "close",
    "columnalign",
    "columnspacing",
    "depth",
    "display",
    "displaystyle",
    "fence",
    "form",
    "height",
    "largeop",
    "linethickness",
    "lspace",
    "mathvariant",
    "maxsize",
    "minsize",
    "movablelimits",
    "notation",
    "open",
    "rowspacing",
    "rspace",
    "scriptlevel",
    "separator",
    "stretchy",
    "symmetric",
    "width",
}


# Fields of a section that folders of older versions do not have.
ADDED_LATER = {"refutation": "", "attribution": None, "planned_power": {}}


def render_documents(
    ledger: dict[str, Any],
    page: dict[str, Any],
    failures: list[dict[str, Any]],
    running: str | None = None,
    faults: Sequence[dict[str, Any]] = (),
) -> str:
    """The page from the ledger and the page document; `running` is the progress of a live run."""
    entries = {entry["id"]: entry for entry in ledger_entries(ledger)}
    checks = {entry["id"] for entry in ledger["exact_checks"]}
    sections = [
        {
            **ADDED_LATER,
            "name": section["id"],
            **section,
            "anchor": anchor(section["id"]),
            "entry": entries[section["id"]],
            "check": section["id"] in checks,
            "mathml": render_formula(section["formula"]),
            "assumed": [_assumption(record) for record in section["assumptions"]],
            "drawn": views(view_from_plain(plain) for plain in _records(section)),
        }
        for section in page["claims"]
    ]
    for section in sections:
        section["words"] = verdict_words(section["entry"]["verdict"], section["check"])
        section["csv"] = section_csv(section)
        section["command"] = command(ledger, section)
    return render_template(
        "page.html",
        drawn=True,
        running=running,
        ledger=ledger,
        path=_path(ledger),
        sections=sections,
        ledger_plot=ledger_plot(sections),
        findings=findings(sections),
        counts=_counts(ledger["claims"]),
        groups=_groups(sections),
        failures=failures,
        faults=_count_faults(faults),
    )


def command(ledger: dict[str, Any], section: dict[str, Any]) -> str:
    """The command line that runs only this claim, with the same settings and seeds.

    >>> ledger = {"profile": "smoke", "seed_range": 3}
    >>> command(ledger, {"name": "mine:CLAIM", "variation": {"noise_std": 0.5}})
    'attnlens verify --profile smoke --claim mine:CLAIM --set noise_std=0.5 --seed-range 3'
    """
    words = ["attnlens", "verify", "--profile", str(ledger["profile"]), "--claim", section["name"]]
    for name, value in section.get("variation", {}).items():
        words += ["--set", f"{name}={json.dumps(value)}"]
    if ledger.get("seed_range"):
        words += ["--seed-range", str(ledger["seed_range"])]
    return shlex.join(words)


def _assumption(record: dict[str, Any] | str) -> dict[str, Any]:
    """An assumption as a mapping; folders of older versions hold its words only."""
    return {"words": record, "check": ""} if isinstance(record, str) else record


def _path(ledger: dict[str, Any]) -> str:
    """The numerical path of the run in words; empty if it has none, or did not record it."""
    record = ledger.get("record")
    return str(NumericalPath.restore(record["native"])) if record else ""


def _records(section: dict[str, Any]) -> list[dict[str, Any]]:
    """The drawing records of a claim: its figure and its views (older folders lack views)."""
    figure = [] if section["figure"] is None else [section["figure"]]
    return figure + section.get("views", [])


def _groups(sections: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The rows of the ledger: claims, then exact checks under a heading of their own."""
    claims = [section for section in sections if not section["check"]]
    exact = [section for section in sections if section["check"]]
    hold = sum(section["entry"]["verdict"] == "supported" for section in exact)
    heading = (
        f"Exact checks: {hold} of {len(exact)} hold. What holds by algebra, compared up to "
        f"rounding; not evidence, and not counted among the claims."
    )
    return [("", claims), *([(heading, exact)] if exact else [])]


def _counts(entries: list[dict[str, Any]]) -> dict[str, int]:
    """Claims per verdict, without the exact checks: they are no evidence."""
    outcomes = [entry["verdict"] for entry in entries]
    return {name: outcomes.count(name) for name in ("supported", "refuted", "undecided")}


def _count_faults(faults: Sequence[dict[str, Any]]) -> list[tuple[tuple[str, str, str], int]]:
    """Faults as (kind, claim, words), each with the number of times that it occurred."""
    return list(Counter((f["kind"], f["claim"], f["words"]) for f in faults).items())


def render_formula(latex: str) -> markupsafe.Markup:
    """LaTeX as MathML; text that is not a formula is shown unchanged, escaped.

    The converter copies the argument of \\text{…} unescaped, so its output is not trusted: it must
    be well-formed XML that has only the presentation elements and attributes listed above.
    """
    try:
        tree = ElementTree.fromstring(latex2mathml.converter.convert(latex, display="block"))
    except Exception:  # the converter raises errors of many types
        return markupsafe.escape(latex)
    for element in tree.iter():
        element.tag = element.tag.removeprefix(MATHML)
        if element.tag not in ELEMENTS or not ATTRIBUTES.issuperset(element.attrib):
            return markupsafe.escape(latex)
    return markupsafe.Markup(ElementTree.tostring(tree, encoding="unicode"))
