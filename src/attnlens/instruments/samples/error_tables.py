"""The default target error, and the treatment of zero errors, for tables of errors (fold, size)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attnlens.core import checks


def default_target(errors: Mapping[str, np.ndarray], test_rows: int) -> float:
    """Return an error 10 % above the smallest that a learner reaches, and at least one wrong row.

    So the n(ε) of the best learner lies inside the range of sizes, and a learner that does not
    learn has no influence. An error of less than one wrong test row could not be measured.
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
    """Replace errors by the smallest measurable error at sizes where all folds have error zero.

    Logarithms of the mean errors are needed. For error rates (`test_rows` > 0), half a row counts
    as wrong. With none of n rows wrong, the posterior of the error under Jeffreys' prior is
    Beta(½, n + ½): its mean is ½/(n + 1), here ½/n, and its standard deviation, about √½/n, is the
    standard error that `curves` reports. For numbers, the smallest error is ε², where ε is the
    machine precision: the squared rounding error of a prediction relative to the standard deviation
    of the labels.
    """
    least = 0.5 / test_rows if test_rows else float(np.finfo(float).eps) ** 2
    return np.where((errors == 0).all(0), least, errors)
