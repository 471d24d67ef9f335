"""Claims of lens B (ICLR 2021 submission): sample complexity and the loss landscape."""

from attnlens.claims.lens import Paper, built_in_lens
from attnlens.claims.registry import CLAIMS

LENS = built_in_lens(
    "B",
    "sample complexity and the loss landscape",
    Paper(
        "Analyzing attention mechanisms through lens of sample complexity and loss landscape",
        ("Anonymous",),
        2021,
        "OpenReview:8KhxoxKP3iL",
    ),
    CLAIMS,
)
