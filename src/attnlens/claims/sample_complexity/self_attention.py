"""B.self-attention: on self-attention data, self-attention needs fewer samples than the baseline.

Our formalisation of lens B (ICLR 2021 submission), sections 2 and 3.2 (docs/theory.md,
prediction 16). The data follow y = w₂ᵀ φ(w₁ vec(w_V x a(x))) + noise. A student of the same form is
compared with the baseline y = w₂ᵀ φ(w₁ vec(x)) at an error that both can reach:

    E log [n_baseline(ε) / n_attention(ε)]  ≥  0.3,    ε = 0.6.

Why it should hold: softmax weights depend on products of inputs, which one hidden layer can only
approximate, unit by unit, from samples. Where the teacher has no attention (a is the identity), the
same student must learn to switch its attention off, and needs more samples than the baseline.

`attnlens.claims.token_students` has the settings and their reasons. A replicate is a seed, which
redraws teacher, data and starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnlens.claims import token_students
from attnlens.claims.claim import Claim, Measured, Profile, Work
from attnlens.core.drawing import Figure
from attnlens.networks import SelfAttention

# (blocks, seeds per block). The log ratio of a seed has a standard deviation of about 0.7 and the
# effect is about 1.2, so with 16 seeds the interval is ± 0.37 and lies above 0.3.
BLOCKS = {"smoke": (1, 2), "default": (2, 8), "full": (18, 8)}
SECONDS = 0.08  # per seed and sample size


def plan(profile: Profile) -> Iterable[Work]:
    return token_students.plan(profile, BLOCKS, SECONDS)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    return token_students.measure(arm, parameters, seeds, layers=1, student=SelfAttention)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    title = "Error of self-attention and of the baseline, over samples"
    return token_students.figure(arms, title)


CLAIM = Claim(
    id="B.self-attention",
    title="Self-attention needs fewer samples on self-attention data",
    statement=(
        "On tokens whose label comes from a self-attention network, a self-attention student needs "
        "fewer samples than a plain network to reach an error that both can reach."
    ),
    formula=(
        r"\mathbb{E}\,\log\frac{n_{\mathrm{baseline}}(\varepsilon)}"
        r"{n_{\mathrm{attention}}(\varepsilon)}\;\geq\;0.3"
    ),
    prediction=(
        "The mean log ratio of n(0.6), baseline over self-attention, is at least 0.3; four tokens "
        "of dimension four; the baseline's width is chosen on held-out samples."
    ),
    controls={token_students.CONTROL: "A teacher without attention: a is the identity."},
    assumptions=(
        "The labels come from a self-attention network (the control breaks this).",
        "Both students can reach ε; below 0.5 the baseline has an approximation floor.",
        "Stochastic gradient descent finds good minima of both.",
    ),
    meaning=(
        "The right architecture saves labelled samples, here a factor of about three. The wrong "
        "one costs as many: where attention is not needed, the network must learn from samples to "
        "switch it off."
    ),
    source=(
        "Lens B (ICLR 2021 submission), sections 2 and 3.2 (self-attention); our formalisation: "
        "docs/theory.md, prediction 16."
    ),
    plan=plan,
    measure=measure,
    judge=token_students.judge,
    figure=figure,
)
