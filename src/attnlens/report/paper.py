"""Tables of a run for papers: LaTeX, CSV and Markdown, and a document that shows everything.

Rows are mappings with one value per column. LaTeX needs no package for the tables; text is escaped
in every format.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from .latex import escape_latex, latex_number
from .tables import escape_formula

TABLE_FORMATS = ("latex", "csv", "markdown")
# The columns of tables that are read by people, with their headings; CSV files have all columns.
CLAIM_COLUMNS = {
    "id": "claim",
    "verdict": "verdict",
    "quantity": "quantity",
    "estimate": "estimate",
    "low": "low",
    "high": "high",
    "region": "region",
    "control": "control",
}
PART_COLUMNS = {
    "claim": "claim",
    "arm": "arm",
    "quantity": "quantity",
    "estimate": "estimate",
    "low": "low",
    "high": "high",
    "region": "region",
    "replicates": "replicates",
    "outcome": "outcome",
}
STABILITY_COLUMNS = {"id": "claim", "pooled": "pooled", "stability": "stability"}
RANGE_PART_COLUMNS = {
    "claim": "claim",
    "quantity": "quantity",
    "seed_range": "range",
    "estimate": "estimate",
    "low": "low",
    "high": "high",
    "region": "region",
    "replicates": "replicates",
}
NUMBERS = ("estimate", "low", "high", "replicates", "seed_range")
WIDTHS = {"id": 0.18, "claim": 0.18, "arm": 0.09, "quantity": 0.22}  # shares of the line width
ROWS_PER_TABLE = 18  # a tabular does not break across pages
MARKDOWN = frozenset("\\`*_{}[]<>#|~$&!")  # characters with a meaning in Markdown
Rows = Sequence[Mapping[str, Any]]


def csv_table(rows: Rows, columns: Sequence[str]) -> str:
    """The rows as CSV, with full precision; text that a spreadsheet would execute is marked.

    >>> csv_table([{"name": "=1+1", "value": 0.1}], ["name", "value"])
    "name,value\\r\\n'=1+1,0.1\\r\\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180
    writer.writerow(columns)
    for row in rows:
        values = (row[name] for name in columns)
        writer.writerow([escape_formula(v) if isinstance(v, str) else v for v in values])
    return text.getvalue()


def markdown_table(rows: Rows, headings: Mapping[str, str]) -> str:
    """The rows as a table in Markdown.

    >>> headings = {"id": "claim", "estimate": "value"}
    >>> print(markdown_table([{"id": "A|b", "estimate": 0.5}], headings))
    | claim | value |
    | --- | ---: |
    | A\\|b | 0.5 |
    <BLANKLINE>
    """
    lines = [
        [escape_markdown(heading) for heading in headings.values()],
        ["---:" if name in NUMBERS else "---" for name in headings],
        *([_markdown_cell(row[name]) for name in headings] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _markdown_cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else escape_markdown(str(value))


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return "".join(f"\\{c}" if c in MARKDOWN else c for c in " ".join(text.split()))


def latex_table(rows: Rows, headings: Mapping[str, str]) -> str:
    """The rows as plain `tabular` environments of at most `ROWS_PER_TABLE` rows each."""
    parts = [rows[i : i + ROWS_PER_TABLE] for i in range(0, len(rows), ROWS_PER_TABLE)] or [rows]
    return "\n\\medskip\n\n".join(_tabular(part, headings) for part in parts)


def _tabular(rows: Rows, headings: Mapping[str, str]) -> str:
    columns = " ".join(map(_column, headings))
    head = " & ".join(f"{{{escape_latex(heading)}}}" for heading in headings.values())
    lines = [" & ".join(_latex_cell(name, row[name]) for name in headings) for row in rows]
    body = "".join(f"{line} \\\\\n" for line in lines)
    return f"\\begin{{tabular}}{{{columns}}}\n\\hline\n{head} \\\\\n\\hline\n{body}\\hline\n" + (
        "\\end{tabular}\n"
    )


def _column(name: str) -> str:
    if name in NUMBERS:
        return "r"
    return f"p{{{WIDTHS[name]}\\linewidth}}" if name in WIDTHS else "l"


def _latex_cell(name: str, value: Any) -> str:
    if name in NUMBERS:
        return latex_number(value)
    return escape_latex("" if value is None else str(value))


def latex_tables(
    claims: Rows,
    parts: Rows,
    claim_columns: Mapping[str, str] = CLAIM_COLUMNS,
    part_columns: Mapping[str, str] = PART_COLUMNS,
) -> str:
    """The tables of claims and of judged quantities, as a file for \\input."""
    return f"""% Written by attnlens; no package is needed. Numbers and headings have the form that
% S columns of siunitx read: with \\usepackage{{siunitx}}, r may be replaced by S.
{{\\footnotesize
\\noindent Claims and exact checks\\par\\medskip\\noindent
{latex_table(claims, claim_columns)}
\\bigskip

\\noindent Judged quantities of every arm\\par\\medskip\\noindent
{latex_table(parts, part_columns)}}}
"""


def latex_document(title: str, figures: Mapping[str, str], width: float) -> str:
    """A document with all tables and figures; `figures` has a caption for each file."""
    shown = "\n".join(_figure(file, caption, width) for file, caption in figures.items())
    return f"""\\documentclass{{article}}
\\usepackage[T1]{{fontenc}}
\\usepackage[utf8]{{inputenc}}
\\usepackage[margin=2cm]{{geometry}}
\\usepackage{{graphicx}}
\\setlength{{\\tabcolsep}}{{3pt}}
\\begin{{document}}
\\section*{{{escape_latex(title)}}}
\\input{{tables}}
\\clearpage
{shown}
\\nocite{{*}}
\\bibliographystyle{{plain}}
\\bibliography{{references}}
\\end{{document}}
"""


def _figure(file: str, caption: str, width: float) -> str:
    """A figure with its caption; not a float: LaTeX can hold only a few dozen floats."""
    return (
        f"\\begin{{center}}\n\\includegraphics[width={width:g}in]{{{file}}}\\\\*\n"
        f"{escape_latex(caption)}\n\\end{{center}}"
    )
