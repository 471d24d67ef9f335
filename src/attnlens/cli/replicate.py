"""`attnlens replicate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attnlens.core.notices import print_notice
from attnlens.core.verdicts import stability_words, verdict_words

from .options import (
    Address,
    CellEngine,
    EngineName,
    TimeLimit,
    WorkerMemory,
    Workers,
)
from .verify import Ids, ProfileName, add_current_folder, exit_status, interrupted


def replicate(
    times: Annotated[int, typer.Option(min=2, help="How many disjoint ranges of seeds.")] = 8,
    claim: Ids = None,
    profile: Annotated[
        ProfileName, typer.Option(help="The profile of every range, as in `verify`.")
    ] = ProfileName.default,
    out: Annotated[
        Path, typer.Option(help="Folder for results and page; one of `verify` is reused.")
    ] = Path("attnlens-replication"),
    first: Annotated[
        int, typer.Option(min=0, help="The first range; 0 has the seeds of `verify`.")
    ] = 0,
    engine: CellEngine = EngineName.local,
    address: Address = None,
    workers: Workers = None,
    time_limit: TimeLimit = None,
    memory_limit: WorkerMemory = None,
) -> None:
    """Judge claims on several disjoint ranges of seeds: do the verdicts agree?"""
    add_current_folder(claim)
    from attnlens.runs.replicate import replicate as run_ranges

    from .progress import reporter

    try:
        with reporter() as progress:
            result = run_ranges(
                times,
                claim,
                profile.value,
                out,
                first=first,
                workers=workers,
                engine=engine.value,
                address=address,
                time_limit=time_limit,
                memory_limit=memory_limit and memory_limit * 1e9,
                progress=progress,
                notice=print_notice,
            )
    except KeyboardInterrupt:
        raise interrupted() from None
    _print_table(result)
    for reason in result["skipped"]:
        print(f"Not run: {reason}")
    _print_summary(result["summary"])
    print(f"\nThe page: {out / 'replication.html'}")
    print(f"Run hash: {result['hash']}")
    broken = [e["id"] for e in result["claims"] if "supported" in e["controls"]]
    exit_status(broken, [e["id"] for e in result["claims"] if e["cells_without_result"]])


def _print_table(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("claim", "verdicts", "pooled", "smallest p of Q", "contain pooled", "controls"):
        table.add_column(name, no_wrap=name == "claim")
    for entry in result["claims"]:
        flags = [flag for part in entry["parts"] for flag in part["contained"] or ()]
        p_values = [part["p"] for part in entry["parts"] if part["p"] is not None]
        table.add_row(
            Text(entry["id"]),
            stability_words(entry["verdicts"], entry["exact_check"]),
            verdict_words(entry["pooled"]["outcome"], entry["exact_check"]),
            f"{min(p_values):.3g}" if p_values else "–",
            f"{sum(flags)} of {len(flags)}" if flags else "–",
            f"{entry['controls'].count('refuted')} of {len(entry['controls'])}",
        )
    Console().print(table)


def _print_summary(summary: dict[str, Any]) -> None:
    print(
        f"\n{summary['stable']} of {summary['claims']} claims have the same verdict in every "
        f"range; {summary['controls_as_expected']} of {summary['controls']} controls came out as "
        f"they must."
    )
    for name in summary["supported_and_refuted"]:
        print(f"Supported in one range and refuted in another: {name}.")
    if summary["coverage"] is not None:
        low, high = summary["coverage_interval"]
        print(
            f"{summary['intervals_with_pooled_estimate']} of {summary['intervals']} intervals "
            f"contain the pooled estimate: {summary['coverage']:.3f} (95 % interval {low:.3f} to "
            f"{high:.3f}); expected of correct 95 % intervals: {summary['expected_coverage']:.3f}."
        )
