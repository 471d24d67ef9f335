"""Whether a measurement has a number and, where it has none, why.

A `Status` is a string, so JSON stores it unchanged, and it can be compared with a string such as
"ok". If the reason contains numbers, they are fields of the record that has the status, and
`sentence` inserts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """The outcome of a measurement: a number, a bound, or the reason why there is none.

    >>> Status.OK == "ok", Status("at most").has_number, Status.NOT_REACHED.has_number
    (True, True, False)
    >>> Status.NOT_COVERED.sentence({"outside": 0.5})
    '50% of the target lies in directions where pretraining has no more than noise'
    """

    OK = "ok"
    # There is a number, but it is a bound, an extrapolation or not confirmed.
    EXTRAPOLATED = "extrapolated"
    AT_MOST = "at most"
    AT_LEAST = "at least"
    UNCONFIRMED = "there is no second opinion on the reference posterior"
    # There is no number.
    NOT_REACHED = "not reached"
    NEITHER_KNOWN = "neither n(ε) is known"
    FEW_REPLICATES = "fewer than two finite replicates"
    FEW_TOKENS = "needs at least three tokens"
    NO_SPREAD = "too few tokens, or a half without spread"
    NOT_FINITE = "an output is not finite"
    ZERO_ERROR = "an error of zero has no logarithm"
    GAP_NOT_POSITIVE = "a mean gap is not positive: use more seeds"
    CONSTANT_REPRESENTATION = "excess content is undefined, since the representation does not vary"
    NOT_COVERED = "the target lies in directions where pretraining has no more than noise"
    NEEDS_CLASSES = "not defined: it needs downstream classes"
    NEEDS_SOURCE = "not defined: it needs source=… or pretraining classes"
    NOT_CONVERGED = "the reference posterior has not converged"
    SEPARATE_MODES = "chains of the reference posterior stay in different modes"
    DIVERGENT = "chains of the reference posterior diverge"
    LOW_ENERGY = "chains of the reference posterior explore its tails too slowly"
    DISAGREES = "two samplers of the reference posterior disagree"
    SOME_NOT_CONVERGED = "reference posteriors have not converged"
    OTHER = "other"  # the reason is the remark of the reading

    @property
    def has_number(self) -> bool:
        """Whether the value can be used, if only as a bound."""
        return self in _WITH_NUMBER

    def sentence(self, details: Mapping[str, Any] | None = None) -> str:
        """The status in words, with the numbers in `details`; without numbers if one is missing."""
        try:
            return SENTENCES.get(self, self.value).format(**(details or {}))
        except KeyError:
            return self.value

    @classmethod
    def read(cls, text: str) -> tuple[Status, str]:
        """The status, and a remark, for the text that a stored document has as its status.

        Documents written before this enumeration have sentences there. A text that is not a status
        gives `OTHER`, with the text as the remark.

        >>> Status.read("64 of 64 reference posteriors have not converged")[0]
        <Status.OTHER: 'other'>
        """
        if text in cls._value2member_map_:
            return cls(text), ""
        return cls.OTHER, text


# What helps against a failed check of a reference posterior, without numbers.
ADVICE = {
    Status.SEPARATE_MODES: "remove the symmetry from the prior, or give Nuts more particles",
    Status.DIVERGENT: "reparametrise the model, or raise Nuts(target=…)",
    Status.LOW_ENERGY: "reparametrise the model, such as a scale by its logarithm",
    Status.NOT_CONVERGED: "run longer chains, Nuts(warmup=…, draws=…)",
    Status.DISAGREES: "give Nuts more particles, or reparametrise the model",
}

# Sentences of the statuses whose reason contains numbers; names in braces are keys of `details`.
SENTENCES = {
    Status.NOT_COVERED: "{outside:.0%} of " + Status.NOT_COVERED,
    Status.NOT_CONVERGED: (
        Status.NOT_CONVERGED + ": largest split R-hat {r_hat:.3f} (limit {r_hat_limit}), smallest "
        "effective sample size {effective:.0f} (limit {effective_limit:.0f}); {advice}."
    ),
    Status.SEPARATE_MODES: (
        Status.SEPARATE_MODES + ": of {modes} modes, one has a share from {low_share:.0%} to "
        "{high_share:.0%} of a chain (largest split R-hat {r_hat:.3f}); longer chains do not help: "
        "remove the symmetry from the prior, or give Nuts more particles."
    ),
    Status.DIVERGENT: (
        Status.DIVERGENT + " in {divergences} of {draws} draws, which then leave out a part of it; "
        "reparametrise the model (an effect as mean + spread × standard normal), or raise "
        "Nuts(target=…) above {target}."
    ),
    Status.LOW_ENERGY: (
        Status.LOW_ENERGY + ": E-BFMI {energy:.2f} (limit {energy_limit}); reparametrise the "
        "model, such as a scale by its logarithm."
    ),
    Status.DISAGREES: (
        Status.DISAGREES + ": means by {mean_gap:.2f} and spreads by {spread_gap:.2f} standard "
        "deviations, shares of modes by {mode_gap:.2f} (limit {gap_limit}; 0 where not "
        "significant); {modes} modes; give Nuts more particles, or reparametrise the model."
    ),
    Status.UNCONFIRMED: (
        Status.UNCONFIRMED + ": {particles:.0f} effective particles (limit {particles_limit:.0f}); "
        "give Nuts more particles."
    ),
    Status.SOME_NOT_CONVERGED: (
        "{failed} of {episodes} reference posteriors failed a check; most often {cause}; {advice}, "
        "and see the reason of the posterior of one episode."
    ),
    Status.OTHER: "{reason}",
}

_WITH_NUMBER = (
    Status.OK,
    Status.EXTRAPOLATED,
    Status.AT_MOST,
    Status.AT_LEAST,
    Status.UNCONFIRMED,
)
