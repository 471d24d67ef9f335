"""Write a lens's page from a stored run: what was claimed, what was measured, and what it means.

    python tools/lens_page.py A docs DIR [DIR ...]

reads results folders of `attnlens verify` and writes docs/lens-a.md with one figure a claim in
docs/lens-a/. A claim is shown as the last folder that holds it judged it. Nothing on the page is
typed by hand: run it again after a new run.
"""

from __future__ import annotations

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
            f"*Predicted:* {claim.prediction}",
            "",
            f"*Measured:* {minus(entry['reason'])}",
            "",
            *[
                f"*Control, {entry['controls'][arm]}:* {words}"
                for arm, words in claim.controls.items()
            ],
            "",
            *assumptions(claim.assumptions),
            "",
            f"*For somebody who designs a model:* {claim.meaning}",
            "",
        ]
        if drawn.get(claim.id):
            file = f"{name}/{claim.id[2:]}.svg"
            figure = restored(drawn[claim.id]).plot()
            figure.savefig(docs / file, metadata={"Date": None}, bbox_inches="tight")
            lines += [f"![{drawn[claim.id]['title']}]({file})", ""]
    (docs / f"{name}.md").write_text("\n".join(lines))


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
