"""B.multi-layer: two layers of self-attention need fewer samples on data that have two layers.

Our formalisation of lens B (ICLR 2021 submission), section 3.3: x ← w_V x a(x), twice, each layer
with its own weights and d_v = t, then the output network of the baseline (docs/theory.md,
prediction 16). The student has the form of the teacher; the baseline is y = w₂ᵀ φ(w₁ vec(x)).

    E log [n_baseline(ε) / n_attention(ε)]  ≥  0.3,    ε = 0.6.

`attnlens.claims.token_students` has the settings and their reasons. A replicate is a seed, which
redraws teacher, data and starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attnlens.claims import token_students
from attnlens.claims.claim import Attribution, Claim, Meaning, Origin
from attnlens.networks import MultiLayerSelfAttention


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    student = partial(
        MultiLayerSelfAttention, layers=parameters["layers"], query_dim=parameters["query_dim"]
    )
    return token_students.measure(arm, parameters, seeds, student)


CLAIM = Claim(
    id="B.multi-layer",
    title="Two layers of self-attention need fewer samples on data that have two layers",
    statement=(
        "On tokens whose label comes from two layers of self-attention, a student of the same form "
        "needs fewer samples than a plain network to reach an error that both can reach."
    ),
    formula=(
        r"\mathbb{E}\,\log\frac{n_{\mathrm{baseline}}(\varepsilon)}"
        r"{n_{\mathrm{two\ layers}}(\varepsilon)}\;\geq\;$log_ratio_low"
    ),
    prediction=token_students.PREDICTED.format(student="two layers of self-attention"),
    controls=token_students.CONTROLS,
    assumptions=token_students.assumptions(
        "two layers of self-attention", "Both students can reach ε"
    ),
    meaning=Meaning(
        supported=(
            "Two layers of attention can be learned from few samples where the data have them. "
            "Where the data have none, two layers are harder to switch off than one."
        ),
        refuted=(
            "Two layers of attention save few samples or none even on data that have two layers: "
            "do not add a layer in order to save labels."
        ),
        undecided=(
            "Whether a second layer of attention saves samples is open: compare it with a plain "
            "network on held-out samples of your data."
        ),
    ),
    source=(
        "Lens B (ICLR 2021 submission), section 3.3 (multi-layer self-attention); our "
        "formalisation: docs/theory.md, prediction 16."
    ),
    attribution=Attribution(
        Origin.FORMALISATION,
        "Our results show that, under mild assumptions, every local minimum of the "
        "attention model has low prediction error, and attention models require lower "
        "sample complexity than models without attention.",
    ),
    plan=token_students.grid(layers=2, seconds=0.14),
    measure=measure,
    judge=token_students.RULE,
    figure=partial(
        token_students.figure,
        title="Error of two layers of self-attention and of the baseline, over samples",
    ),
)
