"""What every page shares: templates that escape, numbers as people read them, plotly's script.

plotly's script is taken from the installed package, packed (gzip, base64) and unpacked by the
browser: 2 MB, not 5.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from attnlens.checks import BadInput


def rendered(template: str, *, drawn: bool, running: str | None = None, **content: Any) -> str:
    """A page as text; with the script for figures where some are `drawn`."""
    licence, script = plotly_script() if drawn else (None, None)
    page = environment().get_template(template)
    content |= {"licence": licence, "script": script, "running": running}
    # Only scripts with the page's own word run. A text cannot hold that word: it is the hash of
    # the page with the text in it, so it changes with the text, and equal pages stay equal.
    word = hashlib.sha256(page.render(nonce="", **content).encode()).hexdigest()
    return page.render(nonce=word, **content)


@cache
def environment() -> jinja2.Environment:
    """Templates that escape whatever they are given."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("attnlens.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(number=number, minus=minus, duration=duration)
    return made


def number(value: float | None) -> str:
    """A number as people read it: four figures, a true minus sign."""
    if value is None or math.isnan(value):
        return "–"
    return minus(f"{value:.4g}").replace("inf", "∞")


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def minus(text: str) -> str:
    """True minus signs before digits."""
    return re.sub(r"(?<!\w)-(?=[\d.])|(?<=\de)-(?=\d)", "−", text)


@cache
def plotly_script() -> tuple[str, str]:
    """The licence lines of plotly.js, and the script packed for the page."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise BadInput("the page needs the package plotly; install it with `pip install plotly`.")
    source = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    script = source.read_bytes()
    licence = re.match(rb"\s*/\*\*?(.*?)\*/", script, re.DOTALL)
    words = " ".join(licence[1].decode().replace("*", " ").split()) if licence else "plotly.js, MIT"
    # The time stamp in a gzip header would make two equal pages differ.
    return words, base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()
