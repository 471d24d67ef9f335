"""B.multi-layer: two layers of self-attention need fewer samples on data that have two layers.

Our formalisation of lens B (ICLR 2021 submission), section 3.3: x ← w_V x a(x), twice, each layer
with its own weights and d_v = t, then the output network of the baseline (docs/theory.md,
prediction 16). The student has the form of the teacher; the baseline is y = w₂ᵀ φ(w₁ vec(x)).

    E log [n_baseline(ε) / n_attention(ε)]  ≥  0.3,    ε = 0.6.

`attnlens.claims.token_students` has the settings and their reasons. A replicate is a seed, which
redraws teacher, data and starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnlens.claims import token_students
from attnlens.claims.claim import Claim, Measured, Profile, Work
from attnlens.core.drawing import Figure
from attnlens.networks import MultiLayerSelfAttention

# (blocks, seeds per block), as in B.self-attention.
BLOCKS = {"smoke": (1, 2), "default": (2, 8), "full": (18, 8)}
SECONDS = 0.14  # per seed and sample size


def plan(profile: Profile) -> Iterable[Work]:
    return token_students.plan(profile, BLOCKS, SECONDS)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    return token_students.measure(arm, parameters, seeds, layers=2, student=MultiLayerSelfAttention)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    title = "Error of two layers of self-attention and of the baseline, over samples"
    return token_students.figure(arms, title)


CLAIM = Claim(
    id="B.multi-layer",
    title="Two layers of self-attention need fewer samples on data that have two layers",
    statement=(
        "On tokens whose label comes from two layers of self-attention, a student of the same form "
        "needs fewer samples than a plain network to reach an error that both can reach."
    ),
    formula=(
        r"\mathbb{E}\,\log\frac{n_{\mathrm{baseline}}(\varepsilon)}"
        r"{n_{\mathrm{two\ layers}}(\varepsilon)}\;\geq\;0.3"
    ),
    prediction=(
        "The mean log ratio of n(0.6), baseline over two layers of self-attention, is at least "
        "0.3; four tokens of dimension four; the baseline's width is chosen on held-out samples."
    ),
    controls={token_students.CONTROL: "A teacher without attention: a is the identity."},
    assumptions=(
        "The labels come from two layers of self-attention (the control breaks this).",
        "Both students can reach ε.",
        "Stochastic gradient descent finds good minima of both.",
    ),
    meaning=(
        "Two layers of attention can be learned from few samples where the data have them. Where "
        "the data have none, two layers are harder to switch off than one."
    ),
    source=(
        "Lens B (ICLR 2021 submission), section 3.3 (multi-layer self-attention); our "
        "formalisation: docs/theory.md, prediction 16."
    ),
    plan=plan,
    measure=measure,
    judge=token_students.judge,
    figure=figure,
)
