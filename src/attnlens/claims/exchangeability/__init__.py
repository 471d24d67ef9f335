"""Claims of lens A (Zhang et al., 2022): exchangeability and latent variables."""

from attnlens.claims.lens import Paper, built_in_lens
from attnlens.claims.registry import CLAIMS

LENS = built_in_lens(
    "A",
    "exchangeability and latent variables",
    Paper(
        "An analysis of attention via the lens of exchangeability and latent variable models",
        ("Yufeng Zhang", "Boyi Liu", "Qi Cai", "Lingxiao Wang", "Zhaoran Wang"),
        2022,
        "arXiv:2212.14852",
    ),
    CLAIMS,
)
