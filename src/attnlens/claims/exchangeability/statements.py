"""Sentences of lens A (Zhang et al., 2022) that claims formalise, as attributions of claims."""

from attnlens.claims.claim import Attribution, Origin

PAPER = "Lens A (Zhang et al., 2022, arXiv 2212.14852)"
APPROXIMATION = Attribution(
    Origin.FORMALISATION,
    "attention with the desired parameter infers the latent posterior up to an approximation "
    "error, which is decreasing in input sizes",
)
INFERENCE = Attribution(
    Origin.FORMALISATION,
    "To answer (b) on inference, we prove that attention with the desired parameter infers "
    "the latent posterior up to an approximation error, which is decreasing in input sizes.",
)
CONDITION_NUMBER = Attribution(
    Origin.FORMALISATION,
    "Particularly, in the self-supervised setting, we identify a condition number that is "
    "pivotal to solving downstream tasks.",
)
GENERALISATION = Attribution(
    Origin.FORMALISATION,
    "both supervised and self-supervised objectives allow empirical risk minimization to "
    "learn the desired parameter up to a generalization error, which is independent of input "
    "sizes",
)
POSTERIOR = Attribution(
    Origin.FORMALISATION,
    "In particular, such a representation instantiates the posterior distribution of the "
    "latent variable given input tokens, which plays a central role in predicting output "
    "labels and solving downstream tasks.",
)
REPRESENTATION = Attribution(
    Origin.FORMALISATION,
    "To answer (a) on representation, we establish the existence of a sufficient and minimal "
    "representation of input tokens.",
)
OPTIMISATION = Attribution(
    Origin.FORMALISATION,
    "we prove that both supervised and self-supervised objectives allow empirical risk "
    "minimization to learn the desired parameter up to a generalization error",
)
CONDITIONAL_MEAN = Attribution(
    Origin.FORMALISATION,
    "we quantify how attention approximates the conditional mean of the value given the key",
)
LEARNING = Attribution(
    Origin.FORMALISATION,
    "To answer (c) on learning, we prove that both supervised and self-supervised objectives "
    "allow empirical risk minimization to learn the desired parameter up to a generalization "
    "error, which is independent of input sizes.",
)
SIZE_FREE = Attribution(
    Origin.FORMALISATION,
    "The notion of exchangeability induces a latent variable model that is invariant to input "
    "sizes, which enables our theoretical analysis.",
)
EXCHANGEABLE = Attribution(
    Origin.FORMALISATION,
    "We observe that, as is the case in BERT and ViT, input tokens are often exchangeable "
    "since they already include positional encodings.",
)


def cite(place: str, section: str) -> str:
    """The text of a claim's `source`: the place in the paper, and the section of docs/theory.md.

    >>> cite("statement (b)", "prediction 6").removeprefix(PAPER)
    ', statement (b); our formalisation: docs/theory.md, prediction 6.'
    """
    return f"{PAPER}, {place}; our formalisation: docs/theory.md, {section}."
