"""Names come from users: no library may read them as markup."""

from __future__ import annotations

import html


def markup(text: str) -> str:
    """Text that plotly shows as it stands: it reads a little HTML in every label."""
    return html.escape(text, quote=False)


def literal(text: str) -> str:
    """Text that matplotlib shows as it stands: it reads formulas between dollar signs."""
    return text.replace("$", r"\$")
