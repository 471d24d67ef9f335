"""Whether a measurement has a number and, where it has none, why.

A `Status` is a string, so JSON stores it as it is, and a comparison with "ok" holds. Where the
reason contains numbers, these are fields of the record that has the status, and `sentence` writes
them out.
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
    # The number is no direct measurement.
    EXTRAPOLATED = "extrapolated"
    AT_MOST = "at most"
    AT_LEAST = "at least"
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
    SOME_NOT_CONVERGED = "reference posteriors have not converged"
    OTHER = "other"  # the reason is the remark of the reading

    @property
    def has_number(self) -> bool:
        """Whether the value can be used, if only as a bound."""
        return self in (Status.OK, Status.EXTRAPOLATED, Status.AT_MOST, Status.AT_LEAST)

    def sentence(self, details: Mapping[str, Any] | None = None) -> str:
        """The status in words, with the numbers in `details`; without them where one is missing."""
        try:
            return SENTENCES.get(self, self.value).format(**(details or {}))
        except KeyError:
            return self.value

    @classmethod
    def read(cls, text: str) -> tuple[Status, str]:
        """The status that a document holds, and a remark.

        Documents written before this enumeration hold sentences. Words that are no status become
        `OTHER`, with the words as the remark.

        >>> Status.read("64 of 64 reference posteriors have not converged")[0]
        <Status.OTHER: 'other'>
        """
        if text in cls._value2member_map_:
            return cls(text), ""
        return cls.OTHER, text


# Statuses whose reason contains numbers; the names are those of the details.
SENTENCES = {
    Status.NOT_COVERED: "{outside:.0%} of " + Status.NOT_COVERED,
    Status.NOT_CONVERGED: (
        Status.NOT_CONVERGED + ": largest split R-hat {r_hat:.3f} (limit {r_hat_limit}), smallest "
        "effective sample size {effective:.0f} (limit {effective_limit:.0f}); run longer chains, "
        "such as Nuts(warmup=2000, draws=2000)."
    ),
    Status.SOME_NOT_CONVERGED: "{failed} of {episodes} " + Status.SOME_NOT_CONVERGED,
    Status.OTHER: "{reason}",
}
