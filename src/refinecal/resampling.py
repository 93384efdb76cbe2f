"""Cross-validation folds, and leave-one-out without refitting."""

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.checks import check_group_of_rows
from refinecal._core.errors import warn
from refinecal._core.sample import Sample, row_keys
from refinecal.losses import LogLoss, ProperLoss, losses_at
from refinecal.temperature.fit import (
    MAX_BETA,
    KernelReader,
    fit_sample,
    row_derivatives,
)

Floats = NDArray[np.float64]
LARGE_CHANGE = (
    0.1  # of beta, relative to itself plus 1 / logit: beyond, the row is left out for real
)
SMALL_CHANGE = 0.02  # relative: the first omitted term of the series is below 0.02**5


def leave_one_out(sample: Sample, beta: float, loss: ProperLoss) -> float:
    r"""Return the mean loss of each row under the temperature of all the others, approximately.

    At the best beta of all rows, dropping one copy of row i leaves the slope :math:`A - a_i`, the curvature
    :math:`B - b_i` and the third derivative :math:`C - c_i`, whose model gives the beta without the row. One
    read gives them all. Only the few rows that move beta far are refitted.
    """
    rows = sample.n if sample.weights is None else np.count_nonzero(sample.weights)
    if rows == 1 and sample.total <= 1:
        raise ValueError("cv='loo' needs at least two rows")
    reader = KernelReader(sample)
    if 1e-30 < beta < 1e30:
        derivatives = [part / beta**m for m, part in enumerate(reader.rows(beta))]
    else:
        derivatives = list(row_derivatives(sample, beta))
    betas = _betas_without(sample, beta, derivatives)
    change = betas - beta
    _, curvature = reader.at_zero()
    scale = beta + (1 / math.sqrt(curvature) if curvature > 0 else math.inf)
    for row in np.flatnonzero(np.abs(change) > LARGE_CHANGE * scale).tolist():
        weights = np.ones(sample.n) if sample.weights is None else sample.weights.copy()
        weights[row] = max(weights[row] - 1, 0)
        betas[row] = fit_sample(sample.replace(weights=weights), betas[row] or 1.0).beta
        if betas[row] >= 0.999 * MAX_BETA > beta:
            warn(
                f"without row {row} no prediction is wrong, so its leave-one-out loss is that of the "
                "largest beta allowed: use a number of folds, which smooths, such as cv=5"
            )
    if type(loss) is not LogLoss:
        return sample.mean(losses_at(sample, betas, loss))
    with np.errstate(invalid="ignore"):  # rows of infinite loss are computed below
        terms = [part * change**m / math.factorial(m) for m, part in enumerate(derivatives)]
        values = np.sum(terms, axis=0)
    near = (np.abs(change) < SMALL_CHANGE * beta) & np.isfinite(values)
    far = np.flatnonzero(~near)  # too far for the series
    values[far] = losses_at(sample.take(far), betas[far], loss) if far.size else 0
    return sample.mean(values)


def _betas_without(sample: Sample, beta: float, derivatives: Sequence[Floats]) -> Floats:
    """Return, for each row, the approximate best beta of the other rows."""
    weights = np.ones(sample.n) if sample.weights is None else sample.weights
    copies = np.minimum(weights, 1)  # one copy, or the whole weight
    _, a, b, c, _ = derivatives
    endless = np.isinf(a)  # a label of probability 0: only beta = 0 gives a finite loss
    others_endless = weights @ endless > copies * endless
    a = np.where(endless, 0, a)
    slope, curvature, third = ((weights @ part) - copies * part for part in (a, b, c))
    with np.errstate(divide="ignore", invalid="ignore"):
        newton = np.where(curvature > 0, -slope / curvature, 0.0)
        bend = np.where(curvature > 0, newton * third / (2 * curvature), 0.0)
    betas = np.clip(beta + newton / (1 + np.maximum(bend, -0.5)), 0, MAX_BETA)
    return np.asarray(np.where(others_endless, 0.0, betas))


def folds(
    sample: Sample, cv: Any, groups: Any, seed: int = 0
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the training and test rows of each fold; every row is tested exactly once.

    A number shuffles the rows with the given seed, after sorting them, so that folds do not depend on the
    order of rows; splitters and lists of pairs are those of scikit-learn.
    """
    if isinstance(cv, numbers.Integral) and not isinstance(cv, bool):
        cv = int(cv)
        if not 2 <= cv <= sample.n:
            raise ValueError(
                f"cv is {cv}: the number of folds must lie in 2..{sample.n}, the number of rows"
            )
        order = np.lexsort(row_keys(sample))
        tests = [np.sort(order[places]) for places in deal_shuffled(sample.n, cv, seed)]
        return [(np.delete(np.arange(sample.n), test), test) for test in tests]
    if hasattr(cv, "split"):
        if groups is not None:
            groups = check_group_of_rows(groups, sample.n)
        return _check_pairs(
            list(cv.split(np.zeros((sample.n, 1)), sample.labels, groups)), sample.n
        )
    if isinstance(cv, Iterable):
        return _check_pairs(cv, sample.n)
    raise TypeError(
        f"cv is {cv!r}: it must be None, a number of folds, 'loo', or a scikit-learn splitter or list "
        "of pairs of training and test rows"
    )


def _check_pairs(pairs: Any, n: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    try:
        found = [(np.asarray(train), np.asarray(test)) for train, test in pairs]
        seen = np.bincount(np.concatenate([test for _, test in found]), minlength=n)
    except (TypeError, ValueError) as error:
        raise TypeError("cv must give pairs of training and test rows, as numbers") from error
    if len(seen) != n or not np.all(seen == 1):
        row = int(np.flatnonzero(seen != 1)[0]) if len(seen) == n else n
        raise ValueError(
            f"cv tests row {row} {seen[row]} times: every row must be in exactly one test fold"
        )
    return found


# ---- assignment of rows to folds ---------------------------------------------------------------------------


def deal_shuffled(n: int, n_folds: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """Return the row numbers of each fold, in random order."""
    order = np.random.default_rng(seed).permutation(n)
    return [order[fold::n_folds] for fold in range(n_folds)]
