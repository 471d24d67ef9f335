"""What curvature at a point says in plain words.

With loss L, gradient g, curvature H, parameters w and D = diag(w):

    settled    one more step of gradient descent, of length 1/λ_max, lowers a quadratic loss by at
               least ‖g‖²/(2 λ_max); at a minimum that is nothing against L
    downward   directions in which the loss bends down: λ < −λ_max/100, below what a density whose
               width is a hundredth of the spectrum can tell from zero; a saddle below −λ_max/10
    sharp      changing every parameter at random by 10 % of its own size changes the loss by
               ½ · 0.1² · tr(D H D) on average, to second order; unlike λ_max this is the same
               however the same function is written down

The thresholds are conventions of ours: one part in a hundred of the loss counts as settled, a rise
by up to a tenth of the loss as flat, by more than all of it as sharp.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from attnlens.records import Answer, Reading

from .phrases import percent

if TYPE_CHECKING:
    from attnlens.instruments import Curvature
    from attnlens.instruments.spectrum import Eigenpair

SETTLED, DOWNWARD, SADDLE = 0.01, 0.01, 0.1
NUDGE = 0.1
FLAT, SHARP = 0.1, 1.0
MINIMUM = "Is it a minimum?"
SHARPNESS = "How sharp is it?"
BENDING = "In how many directions does it bend?"


class Health(NamedTuple):
    """The three answers, and whether nothing is wrong."""

    minimum: Answer
    sharpness: Answer
    bending: Answer
    sound: bool


def examined(found: Curvature) -> Health:
    """Curvature in words; it must have its density and its scaled measures."""
    at_rest, resting = _minimum(found)
    return Health(at_rest, _sharpness(found), _bending(found), resting)


def _minimum(found: Curvature) -> tuple[Answer, bool]:
    high, low = found.largest, found.smallest
    readings = {
        "gradient_norm": _exact(found.gradient_norm),
        "largest": Reading(high, found.top[0].residual, 1),
        "smallest": Reading(low, found.bottom[0].residual, 1),
    }
    evidence = (
        f"loss {found.loss:.4g}, gradient norm {found.gradient_norm:.2g}, eigenvalues from "
        f"{_eigenvalue(found.bottom[0])} to {_eigenvalue(found.top[0])}"
    )
    if high <= 0:
        said = "no: the loss bends down, or not at all, in every direction"
        return Answer(MINIMUM, said, evidence, readings=readings), False
    gain = found.gradient_norm**2 / (2 * high)
    share = gain / abs(found.loss) if found.loss else math.inf * bool(gain)
    readings["gain_of_a_step"] = _exact(gain)
    evidence += f"; one more step lowers it by about {gain:.2g}"
    if low < -DOWNWARD * high:
        word = "no, a saddle" if low < -SADDLE * high else "nearly"
        said = (
            f"{word}: it bends down {percent(abs(low) / high)} as strongly as it bends up at most"
        )
        return Answer(MINIMUM, said, evidence, readings=readings), False
    if share > SETTLED:
        said = f"not yet: one more step still takes {percent(share)} off the loss"
        return Answer(MINIMUM, said, evidence, readings=readings), False
    return Answer(MINIMUM, "yes, to within 1 % of the loss", evidence, readings=readings), True


def _sharpness(found: Curvature) -> Answer:
    scaled = found.scaled_trace
    assert scaled is not None
    rise, error = (0.5 * NUDGE**2 * value for value in (scaled.value, scaled.standard_error))
    high = found.largest
    step = f"; gradient descent is stable with steps below {2 / high:.2g}" if high > 0 else ""
    evidence = (
        f"every parameter off by {percent(NUDGE)} at random: loss {rise:+.2g} ± {error:.1g}; "
        f"largest eigenvalue {high:.3g}, trace {found.trace.value:.3g} ± "
        f"{found.trace.standard_error:.1g}{step}"
    )
    readings = {"rise": Reading(rise, error, scaled.count), "trace": _plain(found.trace)}
    if found.loss <= 0:
        said = f"the loss changes by {rise:.2g}, which cannot be compared with {found.loss:.3g}"
        return Answer(SHARPNESS, said, evidence, readings=readings)
    share = rise / found.loss
    word = "flat" if share <= FLAT else "sharp" if share > SHARP else "neither flat nor sharp"
    low, high = (rise - 1.96 * error) / found.loss, (rise + 1.96 * error) / found.loss
    settled = all(not low <= edge <= high for edge in (FLAT, SHARP)) or error == 0
    said = f"{word}: 10 % off everywhere costs {percent(share)} of the loss"
    return Answer(SHARPNESS, said, evidence, known=settled, readings=readings)


def _bending(found: Curvature) -> Answer:
    density = found.density
    assert density is not None
    strength = max(abs(found.largest), abs(found.smallest))
    down = density.share_below(-DOWNWARD * strength)
    up = density.mean(lambda values: (values >= DOWNWARD * strength).astype(float))
    readings = {"share_downward": _plain(down), "share_upward": _plain(up)}
    said = (
        f"up in about {_count(up, found.size)} of {found.size}, down in about "
        f"{_count(down, found.size)}; the rest are flat"
    )
    how = "all eigenvalues" if density.exact else f"{up.count} random probes"
    evidence = (
        f"share of eigenvalues above a hundredth of the largest {up.value:.2g} ± "
        f"{up.standard_error:.1g}, below minus that {down.value:.2g} ± {down.standard_error:.1g}; "
        f"{how}"
    )
    return Answer(BENDING, said, evidence, readings=readings)


def _count(share: Reading, size: int) -> str:
    return f"{share.value * size:.0f}"


def _eigenvalue(pair: Eigenpair) -> str:
    return f"{pair.value:.3g} (residual {pair.residual:.1g})"


def _exact(value: float) -> Reading:
    return Reading(value, 0.0, 1)


def _plain(reading: Reading) -> Reading:
    return Reading(reading.value, reading.standard_error, reading.count, reading.status)
