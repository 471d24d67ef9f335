"""B.self-attention: on self-attention data, self-attention needs fewer samples than the baseline.

B, section 3: the data follow y = w₂ᵀ φ(w₁ vec(w_V x a(x))) + noise, and the student with the same
form is compared with the baseline y = w₂ᵀ φ(w₁ vec(x)) at an error that both can reach:

    E log [n_baseline(ε) / n_attention(ε)]  ≥  0.3,    ε = 0.6.

Why it should hold: softmax weights are products of inputs, which one hidden layer can only
approximate, unit by unit, from samples. Where the teacher has no attention (a is the identity) the
same student has to learn to switch its attention off, and needs more samples than the baseline.

`token_students` has the settings and their reasons. A replicate is a seed: teacher, data, starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnlens.claims import token_students
from attnlens.claims.base import Claim, Measured, Profile, Work
from attnlens.networks import SelfAttention
from attnlens.records import Figure

# A seed's log ratio has a standard deviation of about 0.7 and the effect is about 1.2, so that 16
# seeds put the interval at ± 0.37: above 0.3.
BLOCKS = {"smoke": (1, 2), "default": (2, 8), "full": (18, 8)}
SECONDS = 0.08  # a seed and size


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
        "fewer samples than a plain network for an error that both reach."
    ),
    formula=(
        r"\mathbb{E}\,\log\frac{n_{\mathrm{baseline}}(\varepsilon)}"
        r"{n_{\mathrm{attention}}(\varepsilon)}\;\geq\;0.3"
    ),
    prediction=(
        "The mean log ratio of n(0.6), baseline over self-attention, is at least 0.3; four tokens "
        "of dimension four, the baseline's width chosen on held-out samples."
    ),
    controls={token_students.CONTROL: "A teacher without attention: a is the identity."},
    assumptions=(
        "The labels come from a self-attention network (the control breaks this).",
        "Both students can reach ε; below 0.5 the baseline has an approximation floor.",
        "Stochastic gradient descent finds good minima of both.",
    ),
    meaning=(
        "The right architecture is worth labelled data, about a factor of three here; the wrong "
        "one costs as much: attention has to be switched off by samples where it is not needed."
    ),
    source="Lens B, section 3 (self-attention); prediction (16) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=token_students.judge,
    figure=figure,
)
