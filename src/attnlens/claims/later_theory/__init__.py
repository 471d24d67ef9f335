"""Claims of lens C: what later papers have proved about attention since lenses A and B.

This lens is declared in the same way as a lens of another package: as plain data, in one module
with light imports only (docs/howto/publish-a-lens.md).
"""

from attnlens.claims import Lens, Paper

LENS = Lens(
    "C",
    "later theory",
    Paper(
        "Later theory of attention: one paper per claim",
        (
            "Benjamin L. Edelman and others",
            "Ruiqi Zhang and others",
            "Bingqing Song and others",
            "Nicholas Barnfield and others",
            "Shai Zucker and others",
            "Léa Bohbot and others",
        ),
        2025,
        "arXiv:2110.10090, 2306.09927, 2411.07538, 2509.25153, 2510.11789, 2512.10656",
    ),
    {
        "C.token-rate": "attnlens.claims.later_theory.token_rate:CLAIM",
        "C.in-context": "attnlens.claims.later_theory.in_context:CLAIM",
        "C.sparse-variables": "attnlens.claims.later_theory.sparse_variables:CLAIM",
        "C.sparse-tokens": "attnlens.claims.later_theory.sparse_tokens:CLAIM",
        "C.pairwise": "attnlens.claims.later_theory.pairwise:CLAIM",
        "C.kernel-landscape": "attnlens.claims.later_theory.kernel_landscape:CLAIM",
    },
)
