"""Escaping of names, which come from users: no drawing library may read them as markup."""

from __future__ import annotations

import html


def escape_plotly(text: str) -> str:
    """Text that plotly shows unchanged; it reads some HTML in every label."""
    return html.escape(text, quote=False)


def escape_matplotlib(text: str) -> str:
    """Text that matplotlib shows unchanged; it reads formulas between dollar signs."""
    return text.replace("$", r"\$")
