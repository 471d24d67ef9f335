"""Is the loss surface healthy: is the point a minimum, is it flat, in how many directions curved?

With loss L, gradient g, Hessian H with largest eigenvalue λ_max, parameters w and D = diag(w):

    settled    one more step of gradient descent, with learning rate 1/λ_max, lowers a quadratic
               loss by at least ‖g‖²/(2 λ_max); at a minimum this is small compared with L
    downward   directions of eigenvalues λ < −λ_max/100, in which the loss curves down. The spectral
               density resolves a hundredth of the spectrum, so it cannot tell smaller values from
               zero. At a saddle there is λ < −λ_max/10
    sharp      changing every parameter at random by 10 % of its own size changes the loss by
               ½ · 0.1² · tr(D H D) on average, to second order; unlike λ_max this does not depend
               on how the same function is parametrised

Eigenvalues that were not computed from the whole matrix come from the Lanczos method: they are
those of a projection of H, so λ_max is at least the largest and λ_min at most the smallest of them.
Answers then say "at least" and "at most". Gradient descent with learning rates above 2/λ_max is
unstable, so it is also unstable above 2 divided by a lower bound of λ_max.

The thresholds are conventions of this package: a minimum is settled if the possible decrease is
less than one hundredth of the loss; it is flat if the random change raises the loss by at most a
tenth, and sharp if it raises the loss by more than its whole value.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attnlens.advice.phrases import QuestionWords, format_percent
from attnlens.core.readings import Reading
from attnlens.core.sheets import Answer, AnswerOutcome, Question

if TYPE_CHECKING:
    from attnlens.instruments import Curvature
    from attnlens.instruments.landscape.spectrum import Eigenpair

SETTLED, DOWNWARD, SADDLE = 0.01, 0.01, 0.1
NUDGE = 0.1
FLAT, SHARP = 0.1, 1.0
MINIMUM = QuestionWords(Question.MINIMUM, "Is it a minimum?")
SHARPNESS = QuestionWords(Question.SHARPNESS, "How sharp is it?")
BENDING = QuestionWords(Question.BENDING, "In how many directions does it bend?")
SPECTRUM = QuestionWords(Question.SPECTRUM, "What are the largest and smallest eigenvalues?")
HEALTH = QuestionWords(Question.HEALTH, "Is the loss surface of the chosen model healthy?")


def health(curvature: Curvature, subject: str) -> Answer:
    """Is the loss surface healthy? Joins `minimum`, `sharpness` and `bending` in one answer.

    Its outcome is that of `minimum`.

    subject: what was measured, in words, such as "baseline on 300 rows".
    """
    parts = (minimum(curvature), sharpness(curvature), bending(curvature))
    rest, flatness, directions = (part.answer for part in parts)
    words = f"a minimum? {rest}; {flatness}; it bends {directions}"
    evidence = f"{subject}: " + "; ".join(part.evidence for part in parts)
    readings = {name: reading for part in parts for name, reading in part.readings.items()}
    known = all(part.known for part in parts)
    return HEALTH.answer(parts[0].outcome, words, evidence, known=known, readings=readings)


def minimum(curvature: Curvature) -> Answer:
    """Is it a minimum?"""
    high, low = curvature.largest, curvature.smallest
    readings = {
        "gradient_norm": _exact(curvature.gradient_norm),
        "largest": Reading(high, curvature.top[0].residual, 1),
        "smallest": Reading(low, curvature.bottom[0].residual, 1),
    }
    evidence = (
        f"loss {curvature.loss:.4g}, gradient norm {curvature.gradient_norm:.2g}, eigenvalues from "
        f"{_eigenvalue(curvature.bottom[0])} to {_eigenvalue(curvature.top[0])}"
    )
    if high <= 0:
        words = "no: the loss bends down, or not at all, in every direction"
        return MINIMUM.answer(AnswerOutcome.NO, words, evidence, readings=readings)
    gain = curvature.gradient_norm**2 / (2 * high)
    share = gain / abs(curvature.loss) if curvature.loss else math.inf * bool(gain)
    readings["gain_of_a_step"] = _exact(gain)
    evidence += f"; one more step lowers it by about {gain:.2g}"
    if low < -DOWNWARD * high:
        saddle = low < -SADDLE * high
        outcome = AnswerOutcome.NO if saddle else AnswerOutcome.PARTLY
        verdict = "no, a saddle" if saddle else "nearly"
        strength = format_percent(abs(low) / high)
        words = f"{verdict}: it bends down {strength} as strongly as it bends up at most"
    elif share > SETTLED:
        outcome = AnswerOutcome.NO
        words = f"not yet: one more step still takes {format_percent(share)} off the loss"
    else:
        outcome, words = AnswerOutcome.YES, "yes, to within 1 % of the loss"
    if curvature.not_converged:
        words += f" (not converged: {', '.join(curvature.not_converged)})"
    return MINIMUM.answer(outcome, words, evidence, readings=readings)


def sharpness(curvature: Curvature) -> Answer:
    """How sharp is it? `curvature.scaled_trace` must not be None."""
    scaled = curvature.scaled_trace
    assert scaled is not None
    half = 0.5 * NUDGE**2
    measured = Reading(half * scaled.value, half * scaled.standard_error, scaled.count)
    rise, error = measured.value, measured.standard_error
    largest = curvature.largest
    step = f"; gradient descent is unstable with steps above {2 / largest:.2g}" * (largest > 0)
    evidence = (
        f"every parameter off by {format_percent(NUDGE)} at random: loss {rise:+.2g} ± "
        f"{error:.1g}; largest eigenvalue {_bound(curvature, top=True)}{largest:.3g}, trace "
        f"{curvature.trace.value:.3g} ± {curvature.trace.standard_error:.1g}{step}"
    )
    readings = {
        "rise": measured,
        "trace": Reading.of(curvature.trace),
    }
    loss = curvature.loss
    if loss <= 0:
        words = f"the loss changes by {rise:.2g}, which cannot be compared with {loss:.3g}"
        return SHARPNESS.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)
    share = rise / loss
    verdict = "flat" if share <= FLAT else "sharp" if share > SHARP else "neither flat nor sharp"
    low, high = (end / loss for end in measured.interval())
    known = all(not low <= edge <= high for edge in (FLAT, SHARP)) or error == 0
    words = f"{verdict}: 10 % off everywhere costs {format_percent(share)} of the loss"
    return SHARPNESS.answer(AnswerOutcome.VALUE, words, evidence, known=known, readings=readings)


def bending(curvature: Curvature) -> Answer:
    """In how many directions does it bend? `curvature.density` must not be None."""
    density = curvature.density
    assert density is not None
    strength = max(abs(curvature.largest), abs(curvature.smallest))
    down = density.share_below(-DOWNWARD * strength)
    up = density.mean(lambda values: (values >= DOWNWARD * strength).astype(float))
    readings = {"share_downward": Reading.of(down), "share_upward": Reading.of(up)}
    size = curvature.size
    words = (
        f"up in about {up.value * size:.0f} of {size}, down in about {down.value * size:.0f}; "
        f"the rest are flat"
    )
    source = "all eigenvalues" if density.exact else f"{up.count} random probes"
    evidence = (
        f"share of eigenvalues above a hundredth of the largest {up.value:.2g} ± "
        f"{up.standard_error:.1g}, below minus that {down.value:.2g} ± {down.standard_error:.1g}; "
        f"{source}"
    )
    return BENDING.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


def spectrum(curvature: Curvature) -> Answer:
    """What are the largest and smallest eigenvalues? Needs `curvature.scaled_largest`."""
    scaled = curvature.scaled_largest
    assert scaled is not None
    top, bottom = (
        ", ".join(f"{pair.value:.4g}" for pair in pairs)
        for pairs in (curvature.top, curvature.bottom)
    )
    worst = max(pair.residual for pair in (*curvature.top, *curvature.bottom))
    words = (
        f"largest {_bound(curvature, top=True)}{top}; smallest {_bound(curvature, top=False)}"
        f"{bottom}; trace {curvature.trace.value:.4g}"
    )
    evidence = (
        f"each to within {worst:.1g} (its residual); trace ± {curvature.trace.standard_error:.1g}; "
        f"scaled by the parameters: largest {_bound(curvature, top=True)}{scaled.value:.4g}"
    )
    readings = {
        f"{end}_{i}": Reading(pair.value, pair.residual, 1)
        for end, pairs in (("top", curvature.top), ("bottom", curvature.bottom))
        for i, pair in enumerate(pairs, 1)
    }
    readings["scaled_largest"] = Reading(scaled.value, scaled.residual, 1)
    return SPECTRUM.answer(AnswerOutcome.VALUE, words, evidence, readings=readings)


def _bound(curvature: Curvature, top: bool) -> str:
    """ "at least " or "at most ", unless the eigenvalues are those of the whole matrix."""
    if curvature.exact:
        return ""
    return "at least " if top else "at most "


def _eigenvalue(pair: Eigenpair) -> str:
    return f"{pair.value:.3g} (residual {pair.residual:.1g})"


def _exact(value: float) -> Reading:
    return Reading(value, 0.0, 1)
