"""Showing a sheet, the answers of a command: print it as text or JSON, and write its page."""

from __future__ import annotations

import json
from pathlib import Path

from attnlens.core.sheets import Sheet


def one_line(text: str) -> str:
    """Text as one line without control characters, which names in files of others may hold.

    >>> one_line("a\\x1b[2Jb")
    'a�[2Jb'
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def show_sheet(sheet: Sheet, out: Path, as_json: bool, verbose: bool = False) -> None:
    """Print a sheet and write its page to `out`/report.html; `verbose` adds the evidence."""
    from attnlens.report import write_sheet

    page = write_sheet(sheet, out)
    if as_json:
        print(json.dumps({**sheet.plain(), "page": str(page)}, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    print(sheet.title)
    for answer in sheet.answers:
        console.print(f"\n{answer.question}", style="bold")
        console.print(f"  {answer.answer}", style="" if answer.known else "bright_black")
        if verbose:
            console.print(f"  evidence: {answer.evidence}", style="bright_black")
    print("\nHow this was done")
    for name, words in sheet.facts:
        print(f"  {name}: {words}")
    more = "" if verbose else " (with the evidence beside each answer; or use --verbose)"
    print(f"\nThe page{more}: {page}")
