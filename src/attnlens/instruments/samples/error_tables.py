"""What is done with tables of errors (fold, size) before curves are drawn through them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attnlens.core import checks


def default_target(errors: Mapping[str, np.ndarray], test_rows: int) -> float:
    """A little above what the best learner reaches, so that its n(ε) lies inside the range.

    One that does not learn must not decide what error the others are asked for. An error of less
    than one wrong test row cannot be measured.
    """
    means = [table.mean(0) for table in errors.values()]
    reached = [mean[np.isfinite(mean)].min() for mean in means if np.isfinite(mean).any()]
    if not reached:
        raise checks.BadInput(
            f"a learning curve needs a learner with finite predictions; got none from "
            f"{', '.join(errors)}; check the estimators, or lower training's learning_rate."
        )
    target = 1.1 * float(min(reached))
    return max(target, 1 / test_rows) if test_rows else target


def above_zero(errors: np.ndarray, test_rows: int) -> np.ndarray:
    """Errors with a logarithm: at sizes where all are zero, the smallest that can be measured.

    Error rates: half a row counts as wrong. With none of n rows wrong, the posterior of the error
    under Jeffreys' prior is Beta(½, n + ½): its mean is ½/(n + 1), and its standard deviation,
    about √½/n, is the reported standard error. Numbers: ε², the squared rounding of a prediction
    relative to the standard deviation of the labels.
    """
    least = 0.5 / test_rows if test_rows else float(np.finfo(float).eps) ** 2
    return np.where((errors == 0).all(0), least, errors)
