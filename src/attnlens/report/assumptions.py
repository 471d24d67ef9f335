"""How an assumption of a claim was checked, read from the parentheses of its sentence."""

from __future__ import annotations

import re

# The first pattern that matches decides; a control that breaks the assumption tests it.
PATTERNS = (
    (r"\([^)]*\b(control|breaks?)\b", "a control breaks it"),
    (r"\([^)]*\bchecked\b", "checked"),
    (r"\([^)]*\bby construction\b", "by construction"),
)


def check_status(sentence: str) -> str:
    """How the assumption was checked, in two or three words; "not checked" by default."""
    matches = (status for pattern, status in PATTERNS if re.search(pattern, sentence))
    return next(matches, "not checked")
