"""Benchmark results as text for the terminal, as a page of the documentation, and as HTML."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from benchmarks.results import Ratio, base, entries_of, ratio, share

HEAD = (
    "contender",
    "median s",
    "quartiles",
    "× as long as ours (range)",
    "first call, extra s",
    "peak MB",
    "accuracy",
)
INTRODUCTION = """\
The speed of attnlens and of other libraries (peers), on the same work in the same run. Every
contender runs in a separate process, and rounds alternate between them. *Times as long as ours* is
the peer's median over that of attnlens: above 1 attnlens is faster. Its range is from the peer's
lower quartile over our upper one to its upper quartile over our lower one. The first call, which
includes compilation, is listed separately. Peak memory is the growth of the process and its
children. A peer with a sentence instead of numbers could not run here, for the stated reason."""


class Row(NamedTuple):
    """A row of a table: the cells of one contender, its ratio, and whether it is attnlens."""

    cells: tuple[str, ...]
    ratio: Ratio | None
    own: bool


def rows(work: Mapping[str, Any]) -> Iterator[Row]:
    entries = entries_of(work)
    for entry in entries:
        own = base(entry.name) == base(entries[0].name)
        if not entry.seconds:
            yield Row(
                (entry.name, f"cannot run here: {entry.error}", "", "", "", "", ""), None, own
            )
            continue
        low, high = entry.quartiles
        timing = ratio(work, entry)
        accuracy = ", ".join(f"{name} {number(value)}" for name, value in entry.accuracy.items())
        yield Row(
            (
                entry.name,
                number(entry.median),
                f"{number(low)} to {number(high)}",
                compared(timing),
                number(entry.compiling),
                f"{max(entry.peak, 0):.0f}",
                accuracy,
            ),
            timing,
            own,
        )


def number(value: float) -> str:
    """A number with three significant digits.

    >>> number(0.0123456), number(1234.5), number(2e-13)
    ('0.0123', '1230', '2e-13')
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e5:
        return f"{value:.2g}"
    digits = 2 - math.floor(math.log10(abs(value)))
    words = f"{round(value, digits):.{max(digits, 0)}f}"
    return words.rstrip("0").rstrip(".") if digits > 0 else words


def compared(timing: Ratio | None) -> str:
    if timing is None:
        return ""
    words = f"{timing.value:.2f} ({timing.low:.2f} to {timing.high:.2f})"
    if timing.aim is None:
        return words
    return (
        f"{words}; aim {timing.aim:g}: {'reached' if timing.value >= timing.aim else 'not reached'}"
    )


def limited(work: Mapping[str, Any], limits: Mapping[str, float]) -> str:
    part = share(work, limits)
    if part is None:
        return ""
    aim = work["aims"].get(work["limit"])
    goal = f" (aim {aim:.0%}: {'reached' if part >= aim else 'not reached'})" if aim else ""
    return f"attnlens runs at {part:.0%} of this machine's {work['limit']} rate{goal}."


def groups(record: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for name, works in groupby(record["works"], key=lambda work: work["group"]):
        yield name, [*works]


def rates(record: Mapping[str, Any]) -> list[str]:
    unit = {True: "GB/s", False: "GFLOP/s"}
    return [
        f"{name} {rate / 1e9:.1f} {unit[name.startswith('bandwidth')]}"
        for name, rate in record["limits"].items()
    ]


def described(record: Mapping[str, Any]) -> str:
    its = record["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in its["packages"].items())
    return (
        f"{its['processor']}, {its['cores']} cores, {its['memory']}, {its['system']}, Python "
        f"{its['python']}, {packages}. At most: {'; '.join(rates(record))}. "
        f"{record['rounds']} rounds{', quick form' if record['quick'] else ''}; load before the "
        f"start {record['load before']:.1f}."
    )


def growth_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    slope, error = row["time"]
    memory = row.get("memory")
    kept = f"{memory[0]:.2f} ± {memory[1]:.2f}" if memory else "too little to fit"
    sizes = ", ".join(f"{size:,}" for size in row["sizes"])
    return (
        row["name"],
        f"{row['argument']} {sizes}",
        ", ".join(number(seconds) for seconds in row["seconds"]),
        f"{slope:.2f} ± {error:.2f}",
        f"{row['theory']['time']:g}",
        ", ".join(f"{mega:.0f}" for mega in row["peak"]),
        kept,
        f"{row['theory']['memory']:g}",
    )


GROWTH_HEAD = (
    "computation",
    "sizes",
    "seconds",
    "time exponent",
    "in theory",
    "peak MB",
    "memory exponent",
    "in theory",
)
GROWTH_INTRODUCTION = """\
Exponents are slopes of log cost over log size over all sizes, with their standard errors; at small
sizes, fixed costs make them smaller than in theory."""


def missing(record: Mapping[str, Any]) -> list[str]:
    """Sentences on peers that could not be installed and on rows that were not measured."""
    packages = [
        f"{package} ({extra}) did not install: {reason}"
        for extra, failures in record["not installed"].items()
        for package, reason in failures.items()
    ]
    names = [name for names in record["not measured"].values() for name in names]
    return [*packages, f"not measured in this run: {', '.join(names)}"] if names else packages


# -- text ------------------------------------------------------------------------------------------


def text(record: Mapping[str, Any]) -> str:
    lines = [described(record)]
    for group, works in groups(record):
        lines += ["", f"== {group}"]
        for work in works:
            lines += ["", f"{work['name']}: {work['task']}"]
            lines += aligned([HEAD, *(row.cells for row in rows(work))])
            lines += [
                f"  {line}" for line in (limited(work, record["limits"]), work["why"]) if line
            ]
    if record["growth"]:
        lines += ["", "== how cost grows"]
        lines += aligned([GROWTH_HEAD, *map(growth_cells, record["growth"])])
    lines += [f"missing: {line}" for line in missing(record)]
    return "\n".join(lines)


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines with padded columns; an error message does not widen its column."""
    plain = [row for row in table if not (len(row) > 2 and row[1] and not row[2])]
    widths = [max(len(row[i]) for row in plain) for i in range(len(table[0]))]
    widths[0] = max(len(row[0]) for row in table)
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


# -- the documentation's page ----------------------------------------------------------------------


def markdown(record: Mapping[str, Any]) -> str:
    parts = [
        "# Side by side",
        "",
        "<!-- Made by `python -m benchmarks table benchmarks/results.json`; do not edit. -->",
        "",
        INTRODUCTION,
        "",
        "`python -m benchmarks` measures everything again, `--quick` a smaller form, and",
        "`--only TEXT` a part. The machine: " + described(record),
    ]
    for group, works in groups(record):
        parts += ["", f"## {group}"]
        for work in works:
            parts += ["", f"### {work['name']}", "", work["task"], ""]
            parts += piped([HEAD, *(row.cells for row in rows(work))])
            after = [line for line in (limited(work, record["limits"]), work["why"]) if line]
            parts += ["", " ".join(after)] if after else []
    if record["growth"]:
        parts += ["", "## How cost grows", "", GROWTH_INTRODUCTION, ""]
        parts += piped([GROWTH_HEAD, *map(growth_cells, record["growth"])])
    if missing(record):
        parts += ["", "## Missing", ""]
        parts += [f"- {plain(line)}" for line in missing(record)]
    return "\n".join(parts) + "\n"


def plain(words: str) -> str:
    """Text in which characters with a meaning in Markdown or HTML are escaped."""
    for sign in "\\`*_[]<>|":
        words = words.replace(sign, f"&#{ord(sign)};")
    return words


def piped(table: Sequence[Sequence[str]]) -> list[str]:
    head, *body = ["| " + " | ".join(map(plain, row)) + " |" for row in table]
    return [head, "|" + "---|" * len(table[0]), *body]


# -- page with bars --------------------------------------------------------------------------------

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem;
  color: #1b1f24; background: #fff; }
h2 { margin-top: 2.5rem; } h3 { margin-bottom: .2rem; } p { margin: .3rem 0 .8rem; }
.bar { display: grid; grid-template-columns: 17rem 1fr 15rem; gap: .8rem; align-items: center;
  margin: .25rem 0; }
.rail { position: relative; height: 1.1rem; background: #eef1f4; }
.rail i { position: absolute; top: 0; bottom: 0; }
.rail b { position: absolute; top: -2px; bottom: -2px; width: 2px; background: #444; }
.ahead { background: #2a7f62; } .behind { background: #b5482f; }
.range { height: 3px; margin: auto 0; background: #0007; }
.soft { color: #57606a; font-size: .92em; } table { border-collapse: collapse; display: block;
  overflow-x: auto; }
td, th { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #ddd; }
@media (max-width: 50rem) { .bar { grid-template-columns: 1fr; gap: 0; } }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #16181c; }
  .rail { background: #2a2e35; } .rail b { background: #ccc; } .range { background: #fff9; }
  .soft { color: #a0a8b0; } td, th { border-color: #333; } }
"""
DECADES = 2.0  # bars show ratios from 1/100 to 100


def page(record: Mapping[str, Any]) -> str:
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>attnlens beside its peers</title><style>{STYLE}</style>",
        "<h1>attnlens beside its peers</h1>",
        f"<p>{escape(INTRODUCTION.replace('*', ''))}</p>",
        f"<p class='soft'>{escape(described(record))}</p>",
        "<p class='soft'>Bars: how many times as long the peer takes, on a logarithmic scale; the "
        "line in the middle is 1. Green, to the right: attnlens is faster. Thin: the range.</p>",
    ]
    for group, works in groups(record):
        parts.append(f"<h2>{escape(group)}</h2>")
        for work in works:
            parts.append(
                f"<h3>{escape(work['name'])}</h3><p class='soft'>{escape(work['task'])}</p>"
            )
            parts += [bar(row) for row in rows(work) if not row.own]
            parts.append(details(HEAD, [row.cells for row in rows(work)]))
            after = " ".join(x for x in (limited(work, record["limits"]), work["why"]) if x)
            parts.append(f"<p>{escape(after)}</p>" if after else "")
    if record["growth"]:
        parts.append(f"<h2>How cost grows</h2><p>{escape(GROWTH_INTRODUCTION)}</p>")
        parts.append(html_table(GROWTH_HEAD, [growth_cells(growth) for growth in record["growth"]]))
    if missing(record):
        items = "".join(f"<li>{escape(line)}</li>" for line in missing(record))
        parts.append(f"<h2>Missing</h2><ul>{items}</ul>")
    return "\n".join(parts) + "</html>\n"


def bar(row: Row) -> str:
    if row.ratio is None:
        name, reason, *_ = map(escape, row.cells)
        return f"<div class='bar'><span>{name}</span><span>{reason}</span></div>"
    at, low, high = (_place(x) for x in (row.ratio.value, row.ratio.low, row.ratio.high))
    left, width = min(at, 50.0), abs(at - 50.0)
    kind = "ahead" if at >= 50 else "behind"
    return (
        f"<div class='bar'><span>{escape(row.cells[0])}</span><span class='rail'>"
        f"<i class='{kind}' style='left:{left:.2f}%;width:{width:.2f}%'></i>"
        f"<i class='range' style='left:{low:.2f}%;width:{high - low:.2f}%'></i>"
        f"<b style='left:50%'></b></span><span>{escape(row.cells[3])}</span></div>"
    )


def _place(value: float) -> float:
    """The position of a ratio on the bar in per cent: 1/100 is at 0, 1 at 50, 100 at 100."""
    decades = math.log10(min(max(value, 10**-DECADES), 10**DECADES))
    return 50.0 * (1 + decades / DECADES)


def details(head: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    return f"<details><summary>Numbers</summary>{html_table(head, table)}</details>"


def html_table(head: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
