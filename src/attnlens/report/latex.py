"""Text and numbers for LaTeX.

Text is escaped, so that it is set as it is: names of quantities may come from anybody. Symbols that
the Latin fonts of LaTeX lack become formulas; other characters that they lack become "?".
"""

from __future__ import annotations

import math
import unicodedata

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    '"': "''",
    "[": "{[}",  # after \\, a bracket or a star would be read as an argument
    "]": "{]}",
    "*": "{*}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "’": "'",
    "‘": "`",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
    "\u00a0": "~",
    "\u202f": r"\,",
    "\u2009": r"\,",
    "\u200b": "",
}
# The LaTeX formula of each symbol.
FORMULAS = {
    "<": "<",
    ">": ">",
    "|": "|",
    "−": "-",
    "±": r"\pm",
    "×": r"\times",
    "·": r"\cdot",
    "≤": r"\le",
    "≥": r"\ge",
    "≠": r"\ne",
    "≈": r"\approx",
    "∝": r"\propto",
    "→": r"\to",
    "←": r"\leftarrow",
    "↦": r"\mapsto",
    "∞": r"\infty",
    "√": r"\surd",
    "∑": r"\sum",
    "Σ": r"\Sigma",
    "∇": r"\nabla",
    "∈": r"\in",
    "∼": r"\sim",
    "‖": r"\|",
    "ℓ": r"\ell",
    "ᵀ": r"^{\top}",
    "𝔼": r"\mathrm{E}",
    "ϕ": r"\phi",
    "φ": r"\varphi",
    "ε": r"\varepsilon",
    "ϵ": r"\epsilon",
    "²": "^{2}",
    "³": "^{3}",
    "¹": "^{1}",
    "½": r"\frac{1}{2}",
}
GREEK_CAPITALS = {"Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi"}
GREEK_CAPITALS |= {"Φ": "Phi", "Ψ": "Psi", "Ω": "Omega"}
LATIN_END = 0x180  # Latin-1 and Latin Extended-A: characters of the T1 encoding


def escape_latex(text: str) -> str:
    r"""Text that LaTeX sets as it is, in one line.

    >>> escape_latex("50% of $x_1$ \\input{a} ≤ 3")
    '50\\% of \\$x\\_1\\$ \\textbackslash{}input\\{a\\} \\ensuremath{\\le} 3'
    """
    line = "".join(map(_escaped, " ".join(text.split())))
    return line.replace("--", "-{}-").replace("--", "-{}-")  # or LaTeX joins two hyphens to a dash


def _escaped(character: str) -> str:
    if character in SPECIAL:
        return SPECIAL[character]
    if character in FORMULAS:
        return rf"\ensuremath{{{FORMULAS[character]}}}"
    if character in GREEK_CAPITALS:
        return rf"\ensuremath{{\{GREEK_CAPITALS[character]}}}"
    words = unicodedata.name(character, "").split()
    if words[:3] == ["GREEK", "SMALL", "LETTER"] and len(words) == 4:
        name = {"LAMDA": "lambda", "OMICRON": "o"}.get(words[3], words[3].lower())
        return "o" if name == "o" else rf"\ensuremath{{\{name}}}"
    if {"SUBSCRIPT", "SUPERSCRIPT"} & set(words):
        mark = "_" if "SUBSCRIPT" in words else "^"
        plain = unicodedata.normalize("NFKC", character)
        return rf"\ensuremath{{{mark}{{{''.join(map(_plain, plain))}}}}}"
    return character if character.isprintable() and ord(character) < LATIN_END else "?"


def _plain(character: str) -> str:
    """A character inside of a formula: letters, digits and signs only."""
    if character == "−":
        return "-"
    return (
        character if character.isascii() and (character.isalnum() or character in "+-=()") else ""
    )


def latex_number(value: float | None, digits: int = 4) -> str:
    """A number for an `S` column of siunitx, or a word in braces where there is none.

    >>> latex_number(-1.2345678), latex_number(1.5e-9), latex_number(None)
    ('-1.235', '1.5e-9', '{--}')
    """
    if value is None or math.isnan(value):
        return "{--}"
    if math.isinf(value):
        return r"{$\infty$}" if value > 0 else r"{$-\infty$}"
    text = f"{value:.{digits}g}"
    return text.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
