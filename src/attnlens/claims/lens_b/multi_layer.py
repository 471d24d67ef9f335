"""B.multi-layer: the same for two layers of self-attention.

B, section 3: x ← w_V x a(x), twice, each layer with its own weights and d_v = t, then the head of
the baseline. The student has the teacher's form; the baseline is y = w₂ᵀ φ(w₁ vec(x)).

    E log [n_baseline(ε) / n_attention(ε)]  ≥  0.3,    ε = 0.6.

`token_students` has the settings and their reasons. A replicate is a seed: teacher, data, starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnlens.claims import token_students
from attnlens.claims.base import Claim, Measured, Profile, Work
from attnlens.networks import MultiLayerSelfAttention
from attnlens.records import Figure

BLOCKS = {"smoke": (1, 2), "default": (2, 8), "full": (18, 8)}
SECONDS = 0.14  # a seed and size


def plan(profile: Profile) -> Iterable[Work]:
    return token_students.plan(profile, BLOCKS, SECONDS)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    return token_students.measure(arm, parameters, seeds, layers=2, student=MultiLayerSelfAttention)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    title = "Error of two layers of self-attention and of the baseline, over samples"
    return token_students.figure(arms, title)


CLAIM = Claim(
    id="B.multi-layer",
    title="Two layers of self-attention need fewer samples on data that have two",
    statement=(
        "On tokens whose label comes from two layers of self-attention, a student of the same form "
        "needs fewer samples than a plain network for an error that both reach."
    ),
    formula=(
        r"\mathbb{E}\,\log\frac{n_{\mathrm{baseline}}(\varepsilon)}"
        r"{n_{\mathrm{two\ layers}}(\varepsilon)}\;\geq\;0.3"
    ),
    prediction=(
        "The mean log ratio of n(0.6), baseline over two layers of self-attention, is at least "
        "0.3; four tokens of dimension four, the baseline's width chosen on held-out samples."
    ),
    controls={token_students.CONTROL: "A teacher without attention: a is the identity."},
    assumptions=(
        "The labels come from two layers of self-attention (the control breaks this).",
        "Both students can reach ε.",
        "Stochastic gradient descent finds good minima of both.",
    ),
    meaning=(
        "Depth in attention is learnable from samples where the data have it; where they have "
        "none, two layers are harder to switch off than one."
    ),
    source="Lens B, section 3 (multi-layer self-attention); prediction (16) of our formalisation.",
    plan=plan,
    measure=measure,
    judge=token_students.judge,
    figure=figure,
)
