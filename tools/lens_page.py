"""The pages of the lenses: each claim, what a stored run measured, and what it means.

    python tools/lens_page.py keep DIR [DIR ...]        results folders -> docs/runs/default.json
    python tools/lens_page.py keep-full DIR [DIR ...]   full profile -> docs/runs/full.json
    python tools/lens_page.py add DIR [DIR ...]         like keep, but adds to what is stored
    python tools/lens_page.py add-full DIR [DIR ...]    like keep-full, but adds to what is stored
    python tools/lens_page.py write                     both -> docs/lens-a.md and so on

`keep` copies from results folders of `attnlens verify` what the pages need: the claim's row of the
ledger, its parts, the outcomes of its controls, and the points of its figures. If several folders
hold a claim, the last one counts. Of the full profile only the rows are copied; the pages show them
beside those of the default profile, and the verdicts on other seeds that
`tools/lens_stability.py` stored. `write` makes the pages, without pictures: the build of the
site draws those from the same numbers (`site_stored.py`). Nothing on a page is typed by hand: words
come from the claim's file, numbers from the run. The explanations in `WHY` below are shown only
while the verdict that they explain stands. A test checks that the pages are what `write` writes.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import lens_stability
from stored_json import rounded, write_claims

from attnlens.claims import find
from attnlens.core.drawing import View
from attnlens.core.serialise import view_from_plain
from attnlens.core.verdicts import verdict_words
from attnlens.report.templating import minus, number
from attnlens.runs.pages import finished
from attnlens.runs.store.store import Store

DOCS = Path(__file__).parent.parent / "docs"
RUN = DOCS / "runs" / "default.json"
FULL = DOCS / "runs" / "full.json"

TITLES = {
    "A": "exchangeability and latent variables",
    "B": "sample complexity and the loss landscape",
    "C": "later theory",
}

NOT_BY_HOLM = " (not by Holm)"
WEAK = {"undecided": " (too weak)", "supported": " (must not be)"}  # remarks on controls
# Controls that were renamed: new name → name in older stored runs.
FORMER_ARMS = {"constant-attention": "not-told"}
# The texts of these claims depend on whether MiniLM is installed, so the page shows the texts of
# the stored run.
TEXTS = ("statement", "prediction", "refutation")
WITH_STORED_TEXTS = {"A.position-pairs"}
# Why a claim was not supported: explanations that cannot be derived from its numbers.
WHY = {
    ("A.size-free", "undecided"): (
        "Eleven of the twelve ratios lie inside the region. At L = 32, k = 2 the interval "
        "reaches beyond its upper end: the excess of a network trained at this length is small, "
        "and how closely its excess at 2L follows the closed form varies most between seeds."
    ),
    ("A.trained-efficiency", "refuted"): (
        "A softmax head does not whiten its keys: in the regression world the mean squared error "
        "of the best single head tends to 4.7 times the posterior variance as the length grows. "
        "So the network comes closer to the exact predictor in absolute terms "
        "(`A.trained-approaches-bayes`), but not relative to what is left to know."
    ),
    ("A.self-supervised", "undecided"): (
        "The default profile has 8 replicates, too few for regions this narrow: its power is near "
        "0. The full profile is planned to decide (power about 0.9). Both estimates lie inside "
        "their regions."
    ),
    ("A.learned-representation", "undecided"): (
        "The default profile has too few replicates for regions this narrow: its power is near 0. "
        "The full profile is planned to decide (power 0.97). All three estimates lie inside their "
        "regions."
    ),
    ("B.stationary-points", "refuted"): (
        "Nearly half of the starts end in a minimum that predicts badly, while the baseline on its "
        "own data has few (B.spurious-minima). More samples do not remove such minima "
        "(B.population-landscape); eight starts and the lowest training loss do (B.restarts). It "
        "is not the number of samples that fails, but the assumption that descents cannot end in "
        "such minima."
    ),
    ("B.population-landscape", "undecided"): (
        "The default profile has 4 blocks of teachers, too few for a region this narrow: its power "
        "is near 0. The full profile is planned to decide (power about 0.96)."
    ),
    ("B.flatness", "refuted"): (
        "At equal size and equal training loss the minima of attention are sharper, not flatter. "
        "An earlier design compared attention with a wider network that could not represent the "
        "teacher: it measured which of the two can, and its control, attention against itself "
        "with rescaled weights, could not fail."
    ),
    ("C.sparse-variables", "undecided"): (
        "The estimate for one head lies inside its region, and the interval reaches beyond the "
        "upper end. The full profile, with four times as many seeds, decides: it is supported."
    ),
    ("C.kernel-landscape", "refuted"): (
        "The Gaussian kernel ends badly about as often as softmax. Bad minima of these networks "
        "come from training attention and values together (B.spurious-minima), and that is the "
        "same for both kernels. The paper's networks are wide and ours are not, so this refutes "
        "the statement for small networks only."
    ),
    ("B.noisy-images", "refuted"): (
        "Attention does far better than the plain network, but weights by the norm of a patch do "
        "better still: the digit is the brightest patch. Where only the content of a token marks "
        "it (the positive controls), attention is ahead."
    ),
    ("B.reviews", "refuted"): (
        "The mean of the word vectors does as well as attention at these numbers of labels. Where "
        "one marked word decides (the positive control), attention is far ahead."
    ),
    ("B.reviews", "undecided"): (
        "The mean of the word vectors does about as well as attention at these numbers of labels. "
        "Where one marked word decides (the positive control), attention is far ahead."
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
    "C": (
        "Barnfield, N., Cui, H. and Lu, Y. M. (2025). High-dimensional analysis of single-layer "
        "attention for sparse-token classification. arXiv:2509.25153.",
        "Bohbot, L., Letrouit, C., Peyré, G. and Vialard, F.-X. (2025). Token sample complexity of "
        "attention. arXiv:2512.10656.",
        "Edelman, B. L., Goel, S., Kakade, S. and Zhang, C. (2022). Inductive biases and variable "
        "creation in self-attention mechanisms. *ICML*, 5793–5831. arXiv:2110.10090.",
        "Ng, A. Y. (2004). Feature selection, L1 vs. L2 regularization, and rotational invariance. "
        "*ICML*, 78.",
        "Song, B., Han, B., Zhang, S., Ding, J. and Hong, M. (2024). Unraveling the gradient "
        "descent dynamics of transformers. *Advances in Neural Information Processing Systems* 37. "
        "arXiv:2411.07538.",
        "Zhang, R., Frei, S. and Bartlett, P. L. (2024). Trained transformers learn linear models "
        "in-context. *Journal of Machine Learning Research* 25(49), 1–55. arXiv:2306.09927.",
        "Zucker, S., Wang, X., Lu, F. and Seroussi, I. (2025). Dimension-free minimax rates for "
        "learning pairwise interactions in attention-style models. arXiv:2510.11789.",
    ),
}


def keep(folders: list[Path], file: Path = RUN, draw: bool = True, add: bool = False) -> None:
    """Write to `file` what the pages need of these runs, one line per claim; with `add`, keep the
    claims that `file` already holds."""
    stored = json.loads(file.read_text()) if add else {"runs": [], "claims": {}}
    runs, claims = stored["runs"], stored["claims"]
    for folder in folders:
        with Store.reading(folder) as store:
            ledger, page = finished(store)
        sections = {section["id"]: section for section in page["claims"]}
        for entry in (*ledger.pop("claims"), *ledger.pop("exact_checks")):
            section = sections[entry["id"]]
            drawn = [section["figure"], *section.get("views", [])] if draw else []
            claims[entry["id"]] = {"entry": entry, "drawn": [rounded(d) for d in drawn if d]}
            if entry["id"] in WITH_STORED_TEXTS:
                claims[entry["id"]]["texts"] = {name: section[name] for name in TEXTS}
            if draw and "verdict" in section:
                claims[entry["id"]] |= judged(section)
        runs.append(ledger | {"claims": sorted(sections)})
    write_claims(file, latest(runs), claims)


def latest(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs, each with the claims that no later run judged again; runs without any are dropped.

    >>> latest([{"claims": ["A", "B"]}, {"claims": ["B"]}, {"claims": ["B"]}])
    [{'claims': ['A']}, {'claims': ['B']}]
    """
    kept, judged_later = [], set()
    for run in reversed(runs):
        if claims := sorted(set(run["claims"]) - judged_later):
            kept.append(run | {"claims": claims})
        judged_later |= set(claims)
    return kept[::-1]


def judged(section: dict[str, Any]) -> dict[str, Any]:
    """All parts of a claim, and for each control the reason of its verdict as a sentence."""
    controls = section["controls"]
    reasons = {control.get("arm", control["words"]): control["reason"] for control in controls}
    return {"parts": rounded(section["verdict"]["parts"]), "reasons": reasons}


def figures(file: Path = RUN) -> dict[str, View]:
    """The stored figures by name: the claim's id, with a number added for further views."""
    return {
        name_of(claim, place): view_from_plain(drawn)
        for claim, kept in json.loads(file.read_text())["claims"].items()
        for place, drawn in enumerate(kept["drawn"], 1)
    }


def name_of(claim: str, place: int) -> str:
    return claim if place == 1 else f"{claim}.{place}"


def page(
    lens: str, file: Path = RUN, full: Path = FULL, replication: Path = lens_stability.STORED
) -> str:
    """The page of a lens in Markdown, with `<!-- figure: NAME -->` in place of each figure."""
    kept = json.loads(file.read_text())
    of_lens = [claim for claim in find() if claim.lens == lens]
    claims = [claim for claim in of_lens if claim.id in kept["claims"]]
    entries = {claim.id: kept["claims"][claim.id]["entry"] for claim in claims}
    runs = [run for run in kept["runs"] if any(name in entries for name in run["claims"])]
    first, *later = runs or kept["runs"]
    lines = [
        f"# Lens {lens}: {TITLES[lens]}",
        "",
        f"Every claim of lens {lens}, as {about(first)}{afterwards(later, lens)} judged it. The "
        f"words come from the claims' files, the numbers from [the stored run](runs/{file.name}); "
        f"figures are drawn from it when the site is built (`tools/lens_page.py`). "
        f"[The theory](theory.md) derives the predictions, the [glossary](glossary.md) explains "
        f"the words.",
        "",
        *without_run([claim.id for claim in of_lens if claim.id not in entries]),
        *table([entries[claim.id] for claim in claims if not claim.exact]),
        *explained([entries[claim.id] for claim in claims if not claim.exact]),
        *exact_checks([entries[claim.id] for claim in claims if claim.exact]),
        *tightened(lens, entries, full),
        *lens_stability.section(lens, [claim.id for claim in of_lens], replication),
    ]
    for claim in claims:
        lines += section(claim, kept["claims"][claim.id])
    lines += ["## References", "", *[f"- {work}" for work in REFERENCES[lens]], ""]
    return "\n".join(lines)


def section(claim: Any, kept: dict[str, Any]) -> list[str]:
    """The section of one claim: statement, formula, measurement, controls and meaning."""
    entry, figures = kept["entry"], len(kept["drawn"])
    texts = kept.get("texts") or {name: getattr(claim, name) for name in TEXTS}
    controls = [control(arm, record.words, kept) for arm, record in claim.controls.items()]
    marks = [f"<!-- figure: {name_of(claim.id, place + 1)} -->" for place in range(figures)]
    return [
        f"## {claim.title}",
        "",
        f"`{claim.id}` · **{verdict_words(entry['verdict'], claim.exact)}** · {claim.source}",
        "",
        texts["statement"],
        "",
        f"$$ {claim.formula} $$",
        "",
        f"*Predicted:* {texts['prediction']}",
        "",
        *([f"*Whose prediction:* {claim.attribution}", ""] if claim.attribution else []),
        minus(texts["refutation"]),
        "",
        f"*Measured:* {minus(entry['reason'])}",
        "",
        *table_of_parts(kept.get("parts", [])),
        *planned_power(entry, claim.exact),
        *why(claim.id, entry["verdict"]),
        *controls,
        "",
        *assumptions(claim.assumptions),
        "",
        f"*For the design of a model:* {claim.meaning.of(entry['verdict'])}",
        "",
        *formalised(claim),
        *[line for mark in marks for line in (mark, "")],
    ]


def control(arm: str, words: str, kept: dict[str, Any]) -> str:
    """One control: description, outcome and, if the run stored it, the deciding number."""
    reasons = kept.get("reasons", {})
    former = FORMER_ARMS.get(arm, arm)
    measured = minus(reasons.get(arm, reasons.get(former, reasons.get(words, ""))))
    stored = kept["entry"]["controls"]
    outcome = stored.get(arm, stored.get(former, "not in that run"))
    return f"- *Control, {outcome}:* {words}" + (f" *Measured:* {measured}" if measured else "")


def table_of_parts(parts: list[dict[str, Any]]) -> list[str]:
    """A table of all parts, if the claim has several: the sentence above it names only one."""
    if len(parts) < 2:
        return []
    rows = [
        [
            in_cell(part["quantity"]),
            number(part["estimate"]),
            interval(part["exact"], part["low"], part["high"]),
            minus(part["region"]),
            outcome_of(part),
        ]
        for part in parts
    ]
    return [
        "| part | estimate | 95 % interval | needed | by itself |",
        "|---|---|---|---|---|",
        *[f"| {' | '.join(cells)} |" for cells in rows],
        "",
    ]


def outcome_of(part: dict[str, Any]) -> str:
    """The verdict of a single part: does its interval (or range, if exact) lie in its region?"""
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
    """Text for a cell of a table; a bar is escaped, since it would end the cell."""
    return minus(text).replace("|", "\\|")


def why(claim: str, verdict: str) -> list[str]:
    return [f"*Why:* {WHY[claim, verdict]}", ""] if (claim, verdict) in WHY else []


def formalised(claim: Any) -> list[str]:
    """The claim's derivation, from the docstring of its module."""
    text = inspect.getdoc(sys.modules[claim.measure.__module__]) or ""
    derivation = "\n".join(map(unemphatic, text.partition("\n\n")[2].split("\n")))
    summary = "<summary>How it was formalised here</summary>"
    return ["<details markdown>", summary, "", derivation, "", "</details>", ""]


def unemphatic(line: str) -> str:
    """A line in which the star after a letter (f*, the exact predictor) is escaped for Markdown.

    Code is unchanged: indented lines, and text between backticks.
    """
    if line.startswith("    "):
        return line
    pieces = line.split("`")
    pieces[::2] = [
        re.sub(r"(?<![\w*])([A-Za-z])\*(?!\w)", r"\1\\*", piece) for piece in pieces[::2]
    ]
    return "`".join(pieces)


def about(run: dict[str, Any]) -> str:
    """Date, machine and versions of a run."""
    machine = run["machine"]
    return (
        f"a run of `attnlens verify --profile {run['profile']}` on {machine['finished'][:10]} "
        f"({machine['processor']}, {machine['cores']} cores, Python {machine['python']}, "
        f"attnlens {run['attnlens']})"
    )


def afterwards(runs: list[dict[str, Any]], lens: str) -> str:
    """Words that name later runs and the claims of this lens that they judged again."""
    again = [[claim for claim in run["claims"] if claim.startswith(f"{lens}.")] for run in runs]
    return "".join(
        f" and a later one of {', '.join(f'`{c}`' for c in ids)}" for ids in again if ids
    )


def without_run(claims: list[str]) -> list[str]:
    """A line that names the claims that are newer than the stored run."""
    return [f"Not in that run: {', '.join(f'`{c}`' for c in claims)}.", ""] if claims else []


def table(entries: list[dict[str, Any]], check: bool = False) -> list[str]:
    """One row per claim."""
    return [
        "| claim | verdict | quantity | estimate | 95 % interval | needed | control | seconds |",
        "|---|---|---|---|---|---|---|---|",
        *[row(entry, check) for entry in entries],
        "",
    ]


def explained(entries: list[dict[str, Any]]) -> list[str]:
    """A paragraph that explains the remarks in the table; empty if there are none."""
    words = []
    if not all(entry.get("holm", True) for entry in entries):
        words.append(
            "*Not by Holm*: decided at a false-discovery rate of 5 %, but not under Holm's "
            "stricter correction."
        )
    if any(entry["control"] in WEAK for entry in entries):
        words.append(
            "A control that is undecided or failed shows nothing, and nor does the verdict of its "
            "claim until it does."
        )
    return [" ".join(words), ""] if words else []


def exact_checks(entries: list[dict[str, Any]]) -> list[str]:
    """The table of the exact checks; nothing for a lens without any."""
    words = "Exact checks hold by algebra, up to rounding or a probe's error. They are no evidence:"
    return (
        [f"{words} they are not counted as supported.", "", *table(entries, check=True)]
        if entries
        else []
    )


def row(entry: dict[str, Any], check: bool = False) -> str:
    cells = [
        f"`{entry['id']}`",
        verdict_words(entry["verdict"], check) + ("" if entry.get("holm", True) else NOT_BY_HOLM),
        in_cell(entry["quantity"]),
        number(entry["estimate"]),
        interval(entry["exact"], *entry["interval"]),
        minus(entry["region"]),
        entry["control"] + WEAK.get(entry["control"], ""),
        number(entry["seconds"]),
    ]
    return f"| {' | '.join(cells)} |"


def planned_power(entry: dict[str, Any], check: bool) -> list[str]:
    """The power of this profile as estimated from the pilot; nothing for an exact check."""
    if check:
        return []
    power = entry.get("power")
    if power is None:
        return ["*Power:* no effect was stated before the run.", ""]
    promised = f"{min(power['power'], 0.99):.2f} that it comes out {power['expected']}"
    later = "" if power["decisive"] == "default" else f"; the {power['decisive']} profile decides"
    return [f"*Power in this profile, from the pilot:* at least {promised}{later}.", ""]


def tightened(lens: str, entries: dict[str, dict[str, Any]], file: Path) -> list[str]:
    """The table of the full profile, with the ratio of the widths of intervals.

    Widths are compared only if the same quantity, possibly fitted over different ranges, decides
    in both profiles. (For a claim with several parts, the row shows the part that decides.)
    """
    kept = json.loads(file.read_text()) if file.is_file() else {"claims": {}, "runs": []}
    in_page_order = [
        name for name, entry in entries.items() if name in kept["claims"] and not entry["exact"]
    ]
    if not in_page_order:
        return []
    rows = []
    for name in in_page_order:
        entry = kept["claims"][name]["entry"]
        usual, exact = entries[name], entry["exact"]
        intervals = (usual["interval"], entry["interval"])
        same = not exact and rangeless(usual["quantity"]) == rangeless(entry["quantity"])
        same = same and None not in (
            *intervals[0],
            *intervals[1],
        )  # a missing estimate has no interval
        widths = [high - low for low, high in intervals] if same else []
        cells = [
            f"`{name}`",
            entry["verdict"],
            in_cell(entry["quantity"]),
            number(entry["estimate"]),
            interval(exact, *entry["interval"]),
            f"{widths[0] / widths[1]:.1f}" if same else "",
            entry["control"],
            number(entry["seconds"]),
        ]
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
    """The name of a quantity without its range of fit, which is longer in the full profile."""
    return re.sub(r"\d+ to \d+", "", quantity)


def assumptions(sentences: Any) -> list[str]:
    return ["*Assumed:*", "", *[f"- {sentence}" for sentence in sentences]]


def main(arguments: list[str]) -> None:
    match arguments:
        case ["keep" | "add" as form, _, *_]:
            keep([Path(folder) for folder in arguments[1:]], RUN, add=form == "add")
        case ["keep-full" | "add-full" as form, _, *_]:
            folders = [Path(folder) for folder in arguments[1:]]
            keep(folders, FULL, draw=False, add=form == "add-full")
        case ["write"]:
            for lens in TITLES:
                (DOCS / f"lens-{lens.lower()}.md").write_text(page(lens))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
