"""Markdown extensions of the site: formulas as MathML, and docstrings as Markdown.

`$…$` and `$$…$$` become MathML when the page is built (latex2mathml), so that showing them needs
neither a script nor a font. `Docstrings` is an extension of Griffe, which reads the source
for the reference: it converts our docstrings to Markdown.
"""

# The packages of the extra `docs` are not installed where types are checked.
# pyright: reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import re
import xml.etree.ElementTree as etree
from typing import Any

import griffe
from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

# Priority among the inline patterns of Markdown: after code spans (190), before escapes (180).
PRIORITY = 185


class Formula(InlineProcessor):
    """Converts LaTeX between dollar signs to MathML: inline, or as a block between $$."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[etree.Element | str, int, int]:
        block = m["block"] is not None
        latex = (m["block"] if block else m["inline"]).strip()
        formula = convert(latex, display="block" if block else "inline")
        return self.md.htmlStash.store(formula), m.start(0), m.end(0)


class MathML(Extension):
    """Registers `Formula`."""

    def extendMarkdown(self, md: Markdown) -> None:
        pattern = r"\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\s](?:[^$\n]*[^$\s])?)\$"
        md.inlinePatterns.register(Formula(pattern, md), "mathml", PRIORITY)


def makeExtension(**settings: Any) -> MathML:
    return MathML(**settings)


class Docstrings(griffe.Extension):
    """Converts every docstring to Markdown."""

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        waiting = [pkg]
        while waiting:
            thing = waiting.pop()
            if not thing.is_alias:
                if thing.docstring is not None:
                    thing.docstring.value = as_markdown(thing.docstring.value)
                waiting += thing.members.values()


def as_markdown(docstring: str) -> str:
    """A docstring as Markdown: examples are fenced, tables stay, arguments become a list."""
    return "\n\n".join(map(_paragraph, re.split(r"\n{2,}", docstring.strip("\n"))))


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if lines[0].startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if len(lines) > 2 and re.fullmatch("-{3,}", lines[1]):
        return _section(lines[0], "\n".join(lines[2:]))
    if text.startswith("    "):
        return text  # a formula: unchanged
    if len(lines) > 1 and all(re.search(r"\S {2,}\S|^ {4}", line) for line in lines):
        return "\n".join(f"    {line}" for line in lines)  # a table in columns
    if re.match(ARGUMENT, text) and (len(lines) == 1 or re.search(f"^({ARGUMENT}|    )", lines[1])):
        return re.sub(rf"^({ARGUMENT})", r"- `\2`: ", text, flags=re.MULTILINE)
    # Escape the star of f*, the exact predictor: in Markdown it would start emphasis.
    return re.sub(r"\b([fg])\*", r"\1\\*", text)


ARGUMENT = r"(\w+(?:, \w+)*): (?=\S)"


def _section(title: str, body: str) -> str:
    """A numpydoc section: the title in bold, then a fenced example or a list of its entries."""
    if body.startswith(">>>"):
        return f"**{title}**\n\n{_paragraph(body)}"
    entries = re.sub(r"^(\S[^:\n]*?) : (.*)$", r"- `\1` (\2):", body, flags=re.MULTILINE)
    return f"**{title}**\n\n{entries}"
