"""Write a lens's page from a stored run: what was claimed, what was measured, and what it means.

    python tools/lens_page.py A docs DIR [DIR ...]

reads results folders of `attnlens verify` and writes docs/lens-a.md with one figure a claim in
docs/lens-a/. A claim is shown as the last folder that holds it judged it. Nothing on the page is
typed by hand: words come from the claim's file, numbers from the run, and what is said below of a
claim that was not supported is shown only while that verdict stands. Run it again after a new run.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib

from attnlens.claims import find
from attnlens.report.page import finished
from attnlens.report.templating import minus, number
from attnlens.report.views import restored
from attnlens.store import Store

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
        "Vaswani, A. et al. (2017). Attention is all you need. *Advances in Neural Information"
        " Processing Systems* 30.",
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
        "Vaswani, A. et al. (2017). Attention is all you need. *Advances in Neural Information"
        " Processing Systems* 30.",
    ),
}


def main(lens: str, docs: Path, runs: list[Path]) -> None:
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "attnlens"  # the same figure gives the same file
    entries, drawn, told = {}, {}, []
    for run in runs:
        with Store.reading(run) as store:
            ledger, page = finished(store)
        of_lens = {entry["id"]: entry for entry in ledger["claims"] if entry["seed"] == lens}
        entries |= of_lens
        drawn |= {section["id"]: section["figure"] for section in page["claims"]}
        told.append(about(ledger, list(of_lens) if told else None))
    claims = [claim for claim in find() if claim.id in entries]
    name = f"lens-{lens.lower()}"
    (docs / name).mkdir(parents=True, exist_ok=True)
    lines = [
        f"# Lens {lens}: {TITLES[lens]}",
        "",
        f"Every claim of lens {lens}, as {' and '.join(told)} judged it. This page is written by "
        f"`tools/lens_page.py` from what was stored.",
        "",
        "| claim | verdict | estimate | 95 % interval | needed | control | seconds |",
        "|---|---|---|---|---|---|---|",
        *[row(entries[claim.id]) for claim in claims],
        "",
    ]
    for claim in claims:
        entry = entries[claim.id]
        lines += [
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
            *why(claim.id, entry["verdict"]),
            *[
                f"- *Control, {entry['controls'][arm]}:* {words}"
                for arm, words in claim.controls.items()
            ],
            "",
            *assumptions(claim.assumptions),
            "",
            f"*For somebody who designs a model:* {claim.meaning}",
            "",
            *formalised(claim),
        ]
        if drawn.get(claim.id):
            file = f"{name}/{claim.id[2:]}.svg"
            figure = restored(drawn[claim.id]).plot()
            figure.savefig(docs / file, metadata={"Date": None}, bbox_inches="tight")
            lines += [f"![{drawn[claim.id]['title']}]({file})", ""]
    lines += ["## References", "", *[f"- {each}" for each in REFERENCES[lens]], ""]
    (docs / f"{name}.md").write_text("\n".join(lines))


def why(claim: str, verdict: str) -> list[str]:
    return [f"*Why:* {WHY[claim, verdict]}", ""] if (claim, verdict) in WHY else []


def formalised(claim: Any) -> list[str]:
    """The claim's own derivation, from the top of its file."""
    text = inspect.getdoc(sys.modules[claim.measure.__module__]) or ""
    derivation = text.partition("\n\n")[2]
    # f* is the exact predictor; its star is no emphasis.
    derivation = re.sub(r"\bf\*", r"f\\*", derivation)
    summary = "<summary>How it was formalised here</summary>"
    return ["<details markdown>", summary, "", derivation, "", "</details>", ""]


def about(ledger: dict[str, Any], only: list[str] | None) -> str:
    """When, where and with what a run was made; `only` names the claims of a later one."""
    machine = ledger["machine"]
    said = (
        f"a run of `attnlens verify --profile {ledger['profile']}` on "
        f"{machine['finished'][:10]} ({machine['processor']}, {machine['cores']} cores, Python "
        f"{machine['python']}, attnlens {ledger['attnlens']})"
    )
    return said if only is None else f"a later one of {', '.join(f'`{name}`' for name in only)}"


def row(entry: dict[str, Any]) -> str:
    interval = "exact" if entry["exact"] else " to ".join(number(end) for end in entry["interval"])
    cells = [
        f"`{entry['id']}`", entry["verdict"], number(entry["estimate"]), interval,
        minus(entry["region"]), entry["control"], number(entry["seconds"]),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def assumptions(given: Any) -> list[str]:
    return ["*Assumed:*", "", *[f"- {line}" for line in given]]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [Path(folder) for folder in sys.argv[3:]])
