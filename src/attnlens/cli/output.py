"""How every command shows a sheet: a short table and a page, or JSON."""

from __future__ import annotations

import json
from pathlib import Path

from attnlens.core.sheets import Sheet


def show_sheet(sheet: Sheet, out: Path, as_json: bool) -> None:
    """Print a sheet and write its page to `out`/report.html."""
    from attnlens.report import write_sheet

    page = write_sheet(sheet, out)
    if as_json:
        print(json.dumps({**sheet.plain(), "page": str(page)}, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    print(sheet.title)
    for name, words in sheet.facts:
        print(f"  {name}: {words}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("question", "answer", "evidence"):
        table.add_column(name)
    for answer in sheet.answers:
        style = "" if answer.known else "bright_black"
        cells = (answer.question, answer.answer, answer.evidence)
        table.add_row(*(Text(words, style) for words in cells))
    Console().print(table)
    print(f"\nThe page: {page}")
