"""Every claim by id. To add one: write its file, then add its line here."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence

from attnlens.checks import BadInput

from .base import Claim

CLAIMS: dict[str, str] = {
    "A.exchangeable": "attnlens.claims.lens_a.exchangeable:CLAIM",
    "A.sufficient": "attnlens.claims.lens_a.sufficient:CLAIM",
    "A.minimal": "attnlens.claims.lens_a.minimal:CLAIM",
    "A.size-free": "attnlens.claims.lens_a.size_free:CLAIM",
    "A.cme-is-posterior": "attnlens.claims.lens_a.cme_is_posterior:CLAIM",
    "A.weights-are-posterior": "attnlens.claims.lens_a.weights_are_posterior:CLAIM",
    "A.softmax-smoothed": "attnlens.claims.lens_a.softmax_smoothed:CLAIM",
    "A.softmax-shrinking": "attnlens.claims.lens_a.softmax_shrinking:CLAIM",
    "A.cme-rate": "attnlens.claims.lens_a.cme_rate:CLAIM",
    "A.same-limit": "attnlens.claims.lens_a.same_limit:CLAIM",
    "A.trained-is-bayes": "attnlens.claims.lens_a.trained_is_bayes:CLAIM",
    "A.heads": "attnlens.claims.lens_a.heads:CLAIM",
    "A.generalisation-samples": "attnlens.claims.lens_a.generalisation_samples:CLAIM",
    "A.generalisation-length": "attnlens.claims.lens_a.generalisation_length:CLAIM",
    "A.approximation": "attnlens.claims.lens_a.approximation:CLAIM",
    "A.optimisation": "attnlens.claims.lens_a.optimisation:CLAIM",
    "A.self-supervised": "attnlens.claims.lens_a.self_supervised:CLAIM",
    "A.condition-number": "attnlens.claims.lens_a.condition_number:CLAIM",
    "B.known-attention": "attnlens.claims.lens_b.known_attention:CLAIM",
    "B.self-attention": "attnlens.claims.lens_b.self_attention:CLAIM",
    "B.multi-layer": "attnlens.claims.lens_b.multi_layer:CLAIM",
    "B.stationary-points": "attnlens.claims.lens_b.stationary_points:CLAIM",
    "B.flatness": "attnlens.claims.lens_b.flatness:CLAIM",
    "B.softplus": "attnlens.claims.lens_b.softplus:CLAIM",
    "B.guideline-sparsity": "attnlens.claims.lens_b.guideline_sparsity:CLAIM",
    "B.guideline-low-rank": "attnlens.claims.lens_b.guideline_low_rank:CLAIM",
    "B.noisy-images": "attnlens.claims.lens_b.noisy_images:CLAIM",
    "B.reviews": "attnlens.claims.lens_b.reviews:CLAIM",
}
"""Claims by id, as "module:NAME"; in ledger order."""


def find(names: Sequence[str] | None = None) -> list[Claim]:
    """The claims with these ids, in ledger order; all of them when no name is given.

    A name may also be "module:NAME", a claim of your own in a module that Python can import.

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
        raise BadInput(f"{path!r} must be an attnlens Claim, but it is a {type(claim).__name__}.")
    return claim
