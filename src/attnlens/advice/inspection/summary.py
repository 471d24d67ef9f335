"""Five sentences that describe a transformer, derived from its measures by fixed rules.

A head counts as being of a kind, such as attending to the first token, if the lower end of its
interval is above `MOST` (for induction heads above `SOME`), so that chance alone does not decide.
"""

from __future__ import annotations

import numpy as np

from attnlens.core.inspections import Measure
from attnlens.core.readings import LEVEL, Reading

from .measures import EXCESS, GUESS, HEADS, INDUCTION, ORDER, PAIRS, PROBE, RATE, ROUNDING, SINGLE

MOST = 0.5  # a head attends mainly to something if that gets more than half of its attention
SOME = 0.3  # share of attention on the token that induction needs, one of about 25 visible tokens
NO_ATTENTION = "This architecture gives no attention weights, so its heads cannot be described."


def summary(measures: dict[str, Measure], causal: bool) -> tuple[str, ...]:
    """Sentences on the order of tokens, tokens used, kinds of heads, smoothing, and the label."""
    return (
        _order(measures),
        _tokens(measures),
        _kinds(measures),
        _smoothing(measures, causal),
        _label(measures),
    )


def _order(measures: dict[str, Measure]) -> str:
    order = measures[ORDER]
    usable = [
        (r, at) for r, at in zip(order.by_layer, order.at, strict=True) if r.status.has_number
    ]
    if not usable:
        return "Whether order matters is not known: the inputs do not differ."
    most, layer = max(usable, key=lambda pair: pair[0].value)
    pairs = measures.get(PAIRS)
    tail = ""
    if pairs is not None:
        worst = max(reading.value for reading in pairs.by_layer)
        tail = (
            "; moved together with their positions, tokens are exchangeable"
            if worst < ROUNDING
            else f"; tokens moved together with their positions change hidden states by {worst:.2g}"
            f" of their variance"
        )
    if most.interval()[1] < ROUNDING:
        single = max(
            (r.value for r in measures[SINGLE].by_layer if r.status.has_number), default=0.0
        )
        if not single < ROUNDING:
            return (
                f"Order does not change the mean token of any layer, but it changes single tokens: "
                f"the state of a token that is shuffled changes by up to {single:.2g} of the "
                f"states' variance{tail}."
            )
        return (
            f"Order does not matter: a shuffle of tokens does not change any token's state{tail}."
        )
    return (
        f"Order matters most in layer {layer}: a shuffle of tokens moves its mean token by "
        f"{_words(most)} of the squared distance between two inputs{tail}."
    )


def _tokens(measures: dict[str, Measure]) -> str:
    share = measures.get(HEADS["share used"][0])
    if share is None:
        return NO_ATTENTION
    effective = measures[HEADS["effective tokens"][0]]
    mean = np.mean([reading.value for reading in share.by_layer])
    least, low = _extreme(share, -1)
    most, high = _extreme(share, 1)
    rate = measures.get(RATE)
    tail = ""
    rates = [r.value for r in rate.by_layer if r.status.has_number] if rate else []
    if rates:
        slope = np.mean(rates)
        tail = f"; over m random tokens the error falls as m^({slope:.2f})".replace("-", "−")
    count = np.mean([reading.value for reading in effective.by_layer])
    return (
        f"On average a query looks at {count:.1f} tokens, {mean:.0%} of those that it can see,"
        f" from {low.value:.0%} in head {least} to {high.value:.0%} in head {most}{tail}."
    )


def _kinds(measures: dict[str, Measure]) -> str:
    first = measures.get(HEADS["first token"][0])
    if first is None:
        return "Kinds of heads are not known without attention weights."
    total = sum(map(len, first.by_head))
    kinds = {
        "look mostly at the first token": (HEADS["first token"][0], MOST),
        "at separators": (HEADS["separators"][0], MOST),
        "at the previous token": (HEADS["previous token"][0], MOST),
        "do induction": (INDUCTION, SOME),
    }
    parts = []
    for words, (name, least) in kinds.items():
        if name not in measures:
            continue
        heads = heads_above(measures[name], least)
        named = f" ({', '.join(heads[:3])}{' …' if len(heads) > 3 else ''})" if heads else ""
        parts.append(f"{len(heads)}{named} {words}")
    return f"Of {total} heads, {', '.join(parts)}."


def heads_above(measure: Measure, least: float) -> list[str]:
    """The heads whose whole interval is above `least`, as layer.head, the largest value first."""
    heads = [
        (reading.value, f"{layer}.{head}")
        for layer, row in zip(measure.at, measure.by_head, strict=True)
        for head, reading in enumerate(row, 1)
        if reading.status.has_number and reading.interval()[0] > least
    ]
    return [name for _, name in sorted(heads, key=lambda item: -item[0])]


def _smoothing(measures: dict[str, Measure], causal: bool) -> str:
    passed, distance = (measures.get(HEADS[name][0]) for name in ("passed", "to CME"))
    if passed is None:
        return "Whether heads smooth or interpolate is not known: their values are not accessible."
    values = np.array([r.value for row in passed.by_head for r in row if r.status.has_number])
    if not values.size:
        return "Whether heads smooth or interpolate is not known: the inputs are too short."
    smooth = int((values < MOST).sum())
    words = (
        f"{smooth} of {len(values)} heads smooth (less than half of the values' variance passes)"
    )
    if distance is None:
        return f"{words}; they are not compared with the ridge estimate, because a bias is added."
    numbers = [r.value for r in distance.by_layer if r.status.has_number]
    if not numbers:
        return f"{words}."
    return (
        f"{words}; from kernel ridge regression (CME) on the same keys and values their outputs "
        f"differ by {np.mean(numbers):.2g} of the values' variance."
    )


def _label(measures: dict[str, Measure]) -> str:
    probe = measures.get(PROBE)
    if probe is None:
        return "No labels were given, so it is not known what a layer predicts (use --label)."
    best = int(np.argmin([reading.value for reading in probe.by_layer]))
    lowest, excess = probe.by_layer[best], measures[EXCESS]
    gains = measures[GUESS].by_layer
    # The layer is chosen by the same errors that are tested: Bonferroni over the layers.
    level = 1 - (1 - LEVEL) / len(gains)
    if not any(gain.interval(level)[1] < 0 for gain in gains):
        return (
            f"No layer is shown to predict the label, with allowance for the choice among "
            f"{len(gains)} layers: the best linear probe, of layer {probe.at[best]}, errs by "
            f"{_words(lowest)}, and guessing without the model by "
            f"{lowest.value - gains[best].value:.2g}."
        )
    close = [
        at
        for at, reading in zip(excess.at, excess.by_layer, strict=True)
        if at != probe.at[best] and not reading.interval()[0] > 0
    ]
    others = f"layers {', '.join(map(str, close))} are not shown to be worse"
    return (
        f"For the label take layer {probe.at[best]}, whose linear probe errs by {_words(lowest)} "
        f"(guessing: {lowest.value - gains[best].value:.2g}); the last layer's errs by "
        f"{probe.by_layer[-1].value:.2g}, and "
        f"{others if close else 'every other layer is worse'}."
    )


def _extreme(measure: Measure, sign: int) -> tuple[str, Reading]:
    """(layer.head, reading) with the largest value, or the smallest for sign −1."""
    heads = [
        (sign * reading.value, f"{layer}.{head}", reading)
        for layer, row in zip(measure.at, measure.by_head, strict=True)
        for head, reading in enumerate(row, 1)
        if reading.status.has_number
    ]
    _, name, reading = max(heads, key=lambda item: item[0])
    return name, reading


def _words(reading: Reading) -> str:
    low, high = reading.interval()
    return f"{reading.value:.2g} ({low:.2g} to {high:.2g})"
