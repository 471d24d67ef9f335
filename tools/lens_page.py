"""The lenses' pages: what was claimed, what a stored run measured, and what it means.

    python tools/lens_page.py keep DIR [DIR ...]        results folders -> docs/runs/default.json
    python tools/lens_page.py keep-full DIR [DIR ...]   of the full profile -> docs/runs/full.json
    python tools/lens_page.py write                     those -> docs/lens-a.md and docs/lens-b.md

`keep` takes from results folders of `attnlens verify` what the pages need: a claim's row of the
ledger, its parts, what its controls came to, and the points of its figures, as the last folder that
holds the claim has them; of the full profile only the rows, which stand beside those of the default
one. `write` makes the pages, without pictures: the build of the site draws those from the same
numbers (`site_stored.py`). Nothing on a page is typed by hand: words come from the claim's file,
numbers from the run, and what is said below of a claim that was not supported is shown only while
that verdict stands. A test holds that the pages are what `write` writes.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

from attnlens.claims import find
from attnlens.records import View
from attnlens.report.page import finished
from attnlens.report.templating import minus, number
from attnlens.report.views import restored
from attnlens.store import Store

DOCS = Path(__file__).parent.parent / "docs"
RUN = DOCS / "runs" / "default.json"
FULL = DOCS / "runs" / "full.json"
DIGITS = 6  # of a number in a figure: a pixel is a thousandth of an axis

TITLES = {
    "A": "exchangeability and latent variables",
    "B": "sample complexity and the loss landscape",
}

# Why a claim came out as it did, in words that its numbers cannot say.
WHY = {
    ("B.stationary-points", "refuted"): (
        'The median minimum is good; the worst of sixteen starts is not, and "every" is about '
        "the worst. In pilots more samples improved the median and left the worst where it "
        "was, so such minima seem to belong to the expected loss itself. The assumption that "
        "fails is not the number of samples but that descents cannot end in them."
    ),
    ("B.self-attention", "undecided"): (
        "The estimate lies well inside the region, but sixteen seeds leave the interval's "
        "lower end below its edge: a seed's log ratio varies by about as much as the effect. "
        "Nothing speaks against the claim; the full profile has nine times the seeds."
    ),
    ("B.softplus", "undecided"): (
        "The exact half holds to rounding. The statistical half is a claim of equality, and "
        "such a claim needs an interval narrower than its region: here it lies below zero, so "
        "that there is a small dependence on the sharpness, and its far end reaches just beyond "
        "−0.2, so that it is open whether the dependence is as small as the claim says."
    ),
    ("B.guideline-low-rank", "undecided"): (
        "Narrow queries were better (the interval lies below zero), but it cannot be said "
        "that they are better by the factor that the claim names. Bad local minima of narrow "
        "attention make teachers differ; more of them, as in the full profile, are needed."
    ),
}
VASWANI = (
    "Vaswani, A., Shazeer, N., Parmar, N., Uszkoreit, J., Jones, L., Gomez, A. N., Kaiser, Ł. and "
    "Polosukhin, I. (2017). Attention is all you need. *Advances in Neural Information Processing "
    "Systems* 30, 5998–6008."
)
REFERENCES = {
    "A": (
        "Zhang, Y., Liu, B., Cai, Q., Wang, L. and Wang, Z. (2022). An analysis of attention "
        "via the lens of exchangeability and latent variable models. arXiv:2212.14852. *This "
        "is lens A.*",
        "de Finetti, B. (1937). La prévision: ses lois logiques, ses sources subjectives. "
        "*Annales de l'Institut Henri Poincaré* 7, 1–68.",
        "Higham, N. J. (2002). *Accuracy and Stability of Numerical Algorithms*, second "
        "edition. SIAM.",
        "Lehmann, E. L. and Scheffé, H. (1950). Completeness, similar regions, and unbiased "
        "estimation. *Sankhyā* 10, 305–340.",
        "Mardia, K. V. and Jupp, P. E. (2000). *Directional Statistics*. Wiley.",
        "Nadaraya, E. A. (1964). On estimating regression. *Theory of Probability and Its "
        "Applications* 9, 141–142.",
        "Rasmussen, C. E. and Williams, C. K. I. (2006). *Gaussian Processes for Machine "
        "Learning*. MIT Press.",
        "Song, L., Huang, J., Smola, A. and Fukumizu, K. (2009). Hilbert space embeddings of "
        "conditional distributions with applications to dynamical systems. *ICML*, 961–968.",
        VASWANI,
        "Watson, G. S. (1964). Smooth regression analysis. *Sankhyā A* 26, 359–372.",
    ),
    "B": (
        "Anonymous (2021). Analyzing attention mechanisms through lens of sample complexity "
        "and loss landscape. Submission to the *International Conference on Learning "
        "Representations*, OpenReview 8KhxoxKP3iL. *This is lens B.*",
        "Dinh, L., Pascanu, R., Bengio, S. and Bengio, Y. (2017). Sharp minima can generalize "
        "for deep nets. *ICML*, 1019–1028.",
        "Nocedal, J. and Wright, S. J. (2006). *Numerical Optimization*, second edition. Springer.",
        "Tibshirani, R. (1996). Regression shrinkage and selection via the lasso. *Journal of "
        "the Royal Statistical Society B* 58, 267–288.",
        VASWANI,
    ),
}


def keep(folders: list[Path], file: Path = RUN, draw: bool = True) -> None:
    """Write what the pages need of these runs, a line a claim."""
    runs, claims = [], {}
    for folder in folders:
        with Store.reading(folder) as store:
            ledger, page = finished(store)
        sections = {section["id"]: section for section in page["claims"]}
        for entry in ledger.pop("claims"):
            section = sections[entry["id"]]
            drawn = [section["figure"], *section.get("views", [])] if draw else []
            claims[entry["id"]] = {"entry": entry, "drawn": [rounded(d) for d in drawn if d]}
            if draw and "verdict" in section:
                claims[entry["id"]] |= judged(section)
        runs.append(ledger | {"claims": sorted(sections)})
    lines = ",\n".join(f"{json.dumps(name)}: {compact(claims[name])}" for name in sorted(claims))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{{"runs": {compact(runs)},\n"claims": {{\n{lines}\n}}}}\n')


def judged(section: dict[str, Any]) -> dict[str, Any]:
    """Every part of a claim, and of each control the sentence with the number that decided."""
    reasons = {told.get("arm", told["words"]): told["reason"] for told in section["controls"]}
    return {"parts": rounded(section["verdict"]["parts"]), "reasons": reasons}


def compact(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def rounded(content: Any) -> Any:
    """Every number to as many digits as can be seen."""
    if isinstance(content, float):
        return float(f"{content:.{DIGITS}g}")
    if isinstance(content, dict):
        return {name: rounded(part) for name, part in content.items()}
    return [rounded(part) for part in content] if isinstance(content, list) else content


def figures(file: Path = RUN) -> dict[str, View]:
    """What there is to draw, by name: a claim's id, and its id with a number for further views."""
    return {
        name_of(claim, place): restored(drawn)
        for claim, kept in json.loads(file.read_text())["claims"].items()
        for place, drawn in enumerate(kept["drawn"], 1)
    }


def name_of(claim: str, place: int) -> str:
    return claim if place == 1 else f"{claim}.{place}"


def page(lens: str, file: Path = RUN, full: Path = FULL) -> str:
    """A lens's page in Markdown; `<!-- figure: NAME -->` stands where the build draws one."""
    kept = json.loads(file.read_text())
    of_lens = [claim for claim in find() if claim.seed == lens]
    claims = [claim for claim in of_lens if claim.id in kept["claims"]]
    entries = {claim.id: kept["claims"][claim.id]["entry"] for claim in claims}
    first, *later = kept["runs"]
    lines = [
        f"# Lens {lens}: {TITLES[lens]}",
        "",
        f"Every claim of lens {lens}, as {about(first)}{afterwards(later, lens)} judged it. Words "
        f"are those of the claims' files, numbers those of [the stored run](runs/{file.name}), "
        f"from which figures are drawn when the site is built (`tools/lens_page.py`).",
        "",
        *without_run([claim.id for claim in of_lens if claim.id not in entries]),
        "| claim | verdict | quantity | estimate | 95 % interval | needed | control | seconds |",
        "|---|---|---|---|---|---|---|---|",
        *[row(entries[claim.id]) for claim in claims],
        "",
        *tightened(lens, entries, full),
    ]
    for claim in claims:
        lines += section(claim, kept["claims"][claim.id])
    lines += ["## References", "", *[f"- {each}" for each in REFERENCES[lens]], ""]
    return "\n".join(lines)


def section(claim: Any, kept: dict[str, Any]) -> list[str]:
    """One claim: in words, in a formula, what was measured, and what it means."""
    entry, figures = kept["entry"], len(kept["drawn"])
    controls = [control(arm, words, kept) for arm, words in claim.controls.items()]
    marks = [f"<!-- figure: {name_of(claim.id, place + 1)} -->" for place in range(figures)]
    return [
        f"## {claim.title}",
        "",
        f"`{claim.id}` · **{entry['verdict']}** · {claim.source}",
        "",
        f"{claim.statement}",
        "",
        f"$$ {claim.formula} $$",
        "",
        f"*Predicted:* {claim.prediction}",
        "",
        f"*Measured:* {minus(entry['reason'])}",
        "",
        *every(kept.get("parts", [])),
        *why(claim.id, entry["verdict"]),
        *controls,
        "",
        *assumptions(claim.assumptions),
        "",
        f"*For somebody who designs a model:* {claim.meaning}",
        "",
        *formalised(claim),
        *[line for mark in marks for line in (mark, "")],
    ]


def control(arm: str, words: str, kept: dict[str, Any]) -> str:
    """What a control is and came to, and the number that decided where the run kept it."""
    reasons = kept.get("reasons", {})
    measured = minus(reasons.get(arm, reasons.get(words, "")))
    outcome = kept["entry"]["controls"].get(arm, "not in that run")
    return f"- *Control, {outcome}:* {words}" + (f" *Measured:* {measured}" if measured else "")


def every(parts: list[dict[str, Any]]) -> list[str]:
    """All parts of a claim that has several: the sentence above tells of one."""
    if len(parts) < 2:
        return []
    rows = [
        [in_cell(part["quantity"]), number(part["estimate"]), interval(part["exact"], part["low"],
         part["high"]), minus(part["region"]), outcome_of(part)]
        for part in parts
    ]  # fmt: skip
    return [
        "| part | estimate | 95 % interval | needed | by itself |",
        "|---|---|---|---|---|",
        *[f"| {' | '.join(cells)} |" for cells in rows],
        "",
    ]


def outcome_of(part: dict[str, Any]) -> str:
    """A part's own verdict: its interval (of an exact part, all its values) against its region."""
    if None in (part["estimate"], part["low"], part["high"]):
        return "undecided"
    least, most = part["edges"]
    least = -math.inf if least is None else least
    most = math.inf if most is None else most
    if least <= part["low"] and part["high"] <= most:
        return "supported"
    outside = part["exact"] or part["high"] < least or part["low"] > most
    return "refuted" if outside else "undecided"


def interval(exact: bool, low: float | None, high: float | None) -> str:
    return "exact" if exact else f"{number(low)} to {number(high)}"


def in_cell(text: str) -> str:
    """Words in a cell of a table, where a bar would end the cell."""
    return minus(text).replace("|", "\\|")


def why(claim: str, verdict: str) -> list[str]:
    return [f"*Why:* {WHY[claim, verdict]}", ""] if (claim, verdict) in WHY else []


def formalised(claim: Any) -> list[str]:
    """The claim's own derivation, from the top of its file."""
    text = inspect.getdoc(sys.modules[claim.measure.__module__]) or ""
    derivation = "\n".join(map(unemphatic, text.partition("\n\n")[2].split("\n")))
    summary = "<summary>How it was formalised here</summary>"
    return ["<details markdown>", summary, "", derivation, "", "</details>", ""]


def unemphatic(line: str) -> str:
    """A line whose starred letters (f*, the exact predictor) are no emphasis. Code stays as it is:
    indented lines, and what stands between backticks."""
    if line.startswith("    "):
        return line
    pieces = line.split("`")
    pieces[::2] = [
        re.sub(r"(?<![\w*])([A-Za-z])\*(?!\w)", r"\1\\*", piece) for piece in pieces[::2]
    ]
    return "`".join(pieces)


def about(run: dict[str, Any]) -> str:
    """When, where and with what a run was made."""
    machine = run["machine"]
    return (
        f"a run of `attnlens verify --profile {run['profile']}` on {machine['finished'][:10]} "
        f"({machine['processor']}, {machine['cores']} cores, Python {machine['python']}, "
        f"attnlens {run['attnlens']})"
    )


def afterwards(runs: list[dict[str, Any]], lens: str) -> str:
    """Later runs, with those of this lens's claims that they judged again."""
    again = [[claim for claim in run["claims"] if claim.startswith(f"{lens}.")] for run in runs]
    return "".join(
        f" and a later one of {', '.join(f'`{c}`' for c in ids)}" for ids in again if ids
    )


def without_run(claims: list[str]) -> list[str]:
    """What is left to say of claims that are newer than the stored run."""
    return [f"Not in that run: {', '.join(f'`{c}`' for c in claims)}.", ""] if claims else []


def row(entry: dict[str, Any]) -> str:
    cells = [
        f"`{entry['id']}`", entry["verdict"], in_cell(entry["quantity"]), number(entry["estimate"]),
        interval(entry["exact"], *entry["interval"]), minus(entry["region"]), entry["control"],
        number(entry["seconds"]),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def tightened(lens: str, entries: dict[str, dict[str, Any]], file: Path) -> list[str]:
    """The full profile's table: how much narrower its intervals are, where the same quantity leads
    in both, be it over another range. (A claim of several parts is told by the one that decides.)
    """
    kept = json.loads(file.read_text()) if file.is_file() else {"claims": {}, "runs": []}
    found = {
        name: kept["claims"][name]["entry"] for name in entries if name in kept["claims"]
    }  # in the order of the page
    if not found:
        return []
    rows = []
    for name, entry in found.items():
        usual, exact = entries[name], entry["exact"]
        ends = (usual["interval"], entry["interval"])
        same = not exact and rangeless(usual["quantity"]) == rangeless(entry["quantity"])
        same = same and None not in (*ends[0], *ends[1])  # what could not be measured has no width
        widths = [high - low for low, high in ends] if same else []
        cells = [
            f"`{name}`", entry["verdict"], in_cell(entry["quantity"]), number(entry["estimate"]),
            interval(exact, *entry["interval"]), f"{widths[0] / widths[1]:.1f}" if same else "",
            entry["control"], number(entry["seconds"]),
        ]  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    first, *later = kept["runs"]
    return [
        f"With more seeds, lengths and samples, {about(first)}{afterwards(later, lens)} found the "
        f"following; *narrower* is how many times as narrow the interval is, where the same "
        f"quantity decides in both (a rate perhaps over a longer range).",
        "",
        "| claim | verdict | quantity | estimate | 95 % interval | narrower | control | seconds |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def rangeless(quantity: str) -> str:
    """A quantity without the range that it was fitted on, which the full profile extends."""
    return re.sub(r"\d+ to \d+", "", quantity)


def assumptions(given: Any) -> list[str]:
    return ["*Assumed:*", "", *[f"- {line}" for line in given]]


def main(given: list[str]) -> None:
    match given:
        case ["keep", _, *_]:
            keep([Path(folder) for folder in given[1:]])
        case ["keep-full", _, *_]:
            keep([Path(folder) for folder in given[1:]], FULL, draw=False)
        case ["write"]:
            for lens in TITLES:
                (DOCS / f"lens-{lens.lower()}.md").write_text(page(lens))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
