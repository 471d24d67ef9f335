"""What all pages share: templates that escape text, number formats, and plotly's script.

plotly's script comes from the installed package. It is compressed (gzip, base64) and decompressed
by the browser: 2 MB instead of 5.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import math
import re
import secrets
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from attnlens.core.checks import BadInput


def render_template(
    template: str, *, drawn: bool, running: str | None = None, **content: Any
) -> str:
    """Render a template as text; `drawn` includes the script that draws figures."""
    licence, script = plotly_script() if drawn else (None, None)
    page = environment().get_template(template)
    content |= {"licence": licence, "script": script, "running": running}
    # CSP nonce: only scripts that carry it run. A text in the page cannot contain it, because it is
    # the hash of the page with that text. Equal pages have equal nonces. The page is rendered once,
    # with a random word in place of the nonce, which no text of the page can contain either.
    word = secrets.token_hex(32)
    text = page.render(nonce=word, **content)
    nonce = hashlib.sha256(text.replace(word, "").encode()).hexdigest()
    return text.replace(word, nonce)


@cache
def environment() -> jinja2.Environment:
    """The environment of the page templates; it escapes every value."""
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("attnlens.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(number=number, minus=minus, duration=duration)
    return templates


def number(value: float | None) -> str:
    """A number with four significant digits and a true minus sign."""
    if value is None or math.isnan(value):
        return "–"
    return minus(f"{value:.4g}").replace("inf", "∞")


def duration(seconds: float) -> str:
    """A duration as text in seconds, minutes, or hours and minutes."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def minus(text: str) -> str:
    """The text with true minus signs before digits."""
    return re.sub(r"(?<!\w)-(?=[\d.])|(?<=\de)-(?=\d)", "−", text)


def anchor(name: str) -> str:
    """The id of a claim as the anchor of its section.

    >>> anchor("A.softmax-smoothed[noise_std=0.5]")
    'A-softmax-smoothed-noise-std-0-5-'
    """
    return "".join(c if c.isascii() and (c.isalnum() or c == "-") else "-" for c in name)


@cache
def plotly_script() -> tuple[str, str]:
    """The licence of plotly.js in one line, and its script compressed for the page."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise BadInput("the page needs the package plotly; install it with `pip install plotly`.")
    source = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    script = source.read_bytes()
    licence = re.match(rb"\s*/\*\*?(.*?)\*/", script, re.DOTALL)
    line = " ".join(licence[1].decode().replace("*", " ").split()) if licence else "plotly.js, MIT"
    # A time stamp in the gzip header would make two equal pages differ.
    return line, base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()
