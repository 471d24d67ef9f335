"""Sentences of lens B (ICLR 2021 submission) that claims formalise, as attributions of claims."""

from attnlens.claims.claim import Attribution, Origin

PAPER = "Lens B (ICLR 2021 submission)"
MASKS = Attribution(
    Origin.FORMALISATION,
    "In computer vision, spatial/spatiotemporal attention masks are employed to focus only on "
    "relevant regions of images/video frames for underlying downstream tasks (Mnih et al., "
    "2014) .",
)
RESULTS = Attribution(
    Origin.FORMALISATION,
    "Our results show that, under mild assumptions, every local minimum of the attention "
    "model has low prediction error, and attention models require lower sample complexity "
    "than models without attention.",
)
EXPERIMENTS = Attribution(
    Origin.FORMALISATION,
    "Experiments on various datasets validate our theoretical findings.",
)
SOFTPLUS_LIMIT = Attribution(
    Origin.FORMALISATION,
    "Note φ τ0 converges to ReLU as τ → ∞ (Glorot et al., 2011) .",
)


def cite(place: str, section: str) -> str:
    """The text of a claim's `source`: the place in the paper, and the section of docs/theory.md.

    >>> cite("section 3.1", "prediction 15").removeprefix(PAPER)
    ', section 3.1; our formalisation: docs/theory.md, prediction 15.'
    """
    return f"{PAPER}, {place}; our formalisation: docs/theory.md, {section}."
