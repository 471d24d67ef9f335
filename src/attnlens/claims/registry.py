"""Every claim by id. To add one: write its file, then add its line here."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence

from attnlens.core.checks import BadInput

from .claim import Claim

CLAIMS: dict[str, str] = {
    "A.exchangeable": "attnlens.claims.exchangeability.exchangeable:CLAIM",
    "A.sufficient": "attnlens.claims.exchangeability.sufficient:CLAIM",
    "A.minimal": "attnlens.claims.exchangeability.minimal:CLAIM",
    "A.size-free": "attnlens.claims.exchangeability.size_free:CLAIM",
    "A.cme-is-posterior": "attnlens.claims.exchangeability.cme_is_posterior:CLAIM",
    "A.weights-are-posterior": "attnlens.claims.exchangeability.weights_are_posterior:CLAIM",
    "A.softmax-smoothed": "attnlens.claims.exchangeability.softmax_smoothed:CLAIM",
    "A.softmax-shrinking": "attnlens.claims.exchangeability.softmax_shrinking:CLAIM",
    "A.cme-rate": "attnlens.claims.exchangeability.cme_rate:CLAIM",
    "A.same-limit": "attnlens.claims.exchangeability.same_limit:CLAIM",
    "A.trained-is-bayes": "attnlens.claims.exchangeability.trained_is_bayes:CLAIM",
    "A.heads": "attnlens.claims.exchangeability.heads:CLAIM",
    "A.generalisation-samples": "attnlens.claims.exchangeability.generalisation_samples:CLAIM",
    "A.generalisation-length": "attnlens.claims.exchangeability.generalisation_length:CLAIM",
    "A.approximation": "attnlens.claims.exchangeability.approximation:CLAIM",
    "A.optimisation": "attnlens.claims.exchangeability.optimisation:CLAIM",
    "A.self-supervised": "attnlens.claims.exchangeability.self_supervised:CLAIM",
    "A.condition-number": "attnlens.claims.exchangeability.condition_number:CLAIM",
    "B.known-attention": "attnlens.claims.sample_complexity.known_attention:CLAIM",
    "B.self-attention": "attnlens.claims.sample_complexity.self_attention:CLAIM",
    "B.multi-layer": "attnlens.claims.sample_complexity.multi_layer:CLAIM",
    "B.stationary-points": "attnlens.claims.sample_complexity.stationary_points:CLAIM",
    "B.flatness": "attnlens.claims.sample_complexity.flatness:CLAIM",
    "B.softplus": "attnlens.claims.sample_complexity.softplus:CLAIM",
    "B.guideline-sparsity": "attnlens.claims.sample_complexity.guideline_sparsity:CLAIM",
    "B.guideline-low-rank": "attnlens.claims.sample_complexity.guideline_low_rank:CLAIM",
    "B.noisy-images": "attnlens.claims.sample_complexity.noisy_images:CLAIM",
    "B.reviews": "attnlens.claims.sample_complexity.reviews:CLAIM",
}
"""Claims by id, as "module:NAME"; in the order of the ledger."""


def find(names: Sequence[str] | None = None) -> list[Claim]:
    """The claims with these ids, in the order of the ledger; all of them when no name is given.

    A name may also be "module:NAME": a claim of your own in a module that Python can import.

    >>> [claim.id for claim in find(["A.cme-rate", "A.heads"])]
    ['A.cme-rate', 'A.heads']
    """
    if not names:
        return [_load(path) for path in CLAIMS.values()]
    own = [name for name in names if re.fullmatch(r"[\w.]+:\w+", name)]
    unknown = [name for name in names if name not in CLAIMS and name not in own]
    if unknown:
        raise BadInput(
            f"there is no claim {unknown[0]!r}; the claims are {', '.join(CLAIMS)}, and one of "
            f"your own is named module:NAME."
        )
    listed = [path for name, path in CLAIMS.items() if name in names]
    return [_load(path) for path in (*listed, *dict.fromkeys(own))]


def _load(path: str) -> Claim:
    module, _, name = path.partition(":")
    try:
        claim = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"the claim {path!r} cannot be loaded: {error}.") from error
    if not isinstance(claim, Claim):
        raise BadInput(f"{path!r} must be an attnlens Claim; got {type(claim).__name__}.")
    return claim
