"""Whether an assumption of a claim was checked, from what its sentence says in parentheses."""

from __future__ import annotations

import re

# In this order: an assumption that a control breaks is put to the test by it.
SIGNS = (
    (r"\([^)]*\b(control|breaks?)\b", "a control breaks it"),
    (r"\([^)]*\bchecked\b", "checked"),
    (r"\([^)]*\bby construction\b", "by construction"),
)


def checked(sentence: str) -> str:
    """How it was checked, in two or three words; "not checked" unless the sentence says so."""
    return next((how for sign, how in SIGNS if re.search(sign, sentence)), "not checked")
