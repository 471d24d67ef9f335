"""Words that all answers share: how numbers, names and missing evidence are written."""

from __future__ import annotations

import math

from attnlens.core.readings import Reading
from attnlens.core.sheets import Answer
from attnlens.core.statistics import implied_error
from attnlens.instruments.samples.sample_size import SampleSize

UNKNOWN = "not enough data to say"


def unknown(question: str, evidence: str, why: str = "", /, **readings: Reading) -> Answer:
    """The answer where the data do not decide; `why` says what is missing."""
    words = f"{UNKNOWN}: {why}" if why else UNKNOWN
    return Answer(question, words, evidence, known=False, readings=readings)


def estimate_reading(estimate: SampleSize, count: int) -> Reading:
    """An estimate as a reading.

    `count` is the number of folds. Draws of the mean curve have Student's t distribution with
    count − 1 degrees of freedom (`instruments.samples.sample_size`), so the standard error is the
    width of the 95 % interval over twice that quantile. It is infinite where the interval has no
    upper end.
    """
    error = implied_error(estimate.low, estimate.high, count)
    details = {"low": estimate.low, "high": estimate.high}
    return Reading(estimate.value, error, count, estimate.status, details)


def plain_reading(reading: Reading) -> Reading:
    """A reading without its details and its subclass: what a sheet keeps."""
    return Reading(
        reading.value,
        reading.standard_error,
        reading.count,
        reading.status,
        freedom=reading.freedom,
    )


def format_number(value: float) -> str:
    """A whole number from 100 on, three digits below."""
    if not math.isfinite(value):
        return "no end" if value > 0 else "none"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def join_names(names: list[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
