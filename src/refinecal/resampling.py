"""Refinement on rows that the calibrator has not seen: folds, and leave-one-out without refitting."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _twins
from refinecal._checks import Sample, to_numpy
from refinecal._search import MAX_BETA
from refinecal._softmax import log_softmax, scaled
from refinecal.losses import LogLoss, ProperLoss
from refinecal.temperature import KernelReader

Floats = NDArray[np.float64]
SMALL_CHANGE = 0.02  # relative: the first term left out of the series is below 0.02**5
SORT_COLUMNS = 8  # enough to tell rows of equal label and equal largest logit apart


def leave_one_out(sample: Sample, beta: float, loss: ProperLoss) -> float:
    r"""Return the mean loss of each row under the temperature of all the others, approximately.

    At the best beta of all rows, dropping one copy of row i leaves the slope :math:`A - a_i`, the curvature
    :math:`B - b_i` and the third derivative :math:`C - c_i`; the minimum of that cubic model is the row's
    own beta. One read gives them all, and nothing is fitted again.
    """
    if sample.total <= 1:
        raise ValueError(
            "cv='loo' needs at least two rows: nothing is left when the only one is dropped"
        )
    derivatives = _derivatives(sample, beta)
    betas = _betas_without(sample, beta, derivatives)
    if type(loss) is not LogLoss:
        return sample.mean(losses_at(sample, betas, loss))
    change = betas - beta
    terms = (part * change**m / math.factorial(m) for m, part in enumerate(derivatives))
    values = np.sum([*terms], axis=0)
    far = np.flatnonzero(~(np.abs(change) < SMALL_CHANGE * beta))  # beyond the reach of the series
    values[far] = losses_at(sample.take(far), betas[far], loss) if far.size else 0
    return sample.mean(values)


def _derivatives(sample: Sample, beta: float) -> Sequence[Floats]:
    """Return the loss of each row and its first four derivatives in beta."""
    if not 1e-30 < beta < 1e30:
        return _twins.rows(sample, beta)
    found = KernelReader.of(sample).rows(beta)
    return [part / beta**m for m, part in enumerate(found)]


def _betas_without(sample: Sample, beta: float, derivatives: Sequence[Floats]) -> Floats:
    """Return, for each row, the approximate best beta of the other rows."""
    weights = np.ones(sample.n) if sample.weights is None else sample.weights
    copies = np.minimum(weights, 1)  # how much of a row is dropped: one copy, or all there is
    _, a, b, c, _ = derivatives
    endless = np.isinf(a)  # a label of probability 0, which only beta = 0 mends
    others_endless = weights @ endless > copies * endless
    a = np.where(endless, 0, a)
    slope, curvature, third = ((weights @ part) - copies * part for part in (a, b, c))
    with np.errstate(divide="ignore", invalid="ignore"):
        newton = np.where(curvature > 0, -slope / curvature, 0.0)
        bend = np.where(curvature > 0, newton * third / (2 * curvature), 0.0)
    betas = np.clip(beta + newton / (1 + np.maximum(bend, -0.5)), 0, MAX_BETA)
    return np.asarray(np.where(others_endless, 0.0, betas))


def losses_at(sample: Sample, beta: float | Floats, loss: ProperLoss) -> Floats:
    """Return the loss of each row after scaling its logits by beta (one, or one each)."""
    values = np.empty(sample.n)
    for rows, chunk in sample.chunks():
        own = beta if isinstance(beta, float) else beta[rows]
        labels = chunk.labels if chunk.soft is None else chunk.soft
        values[rows] = loss.per_sample(
            labels, log_softmax(scaled(chunk.logits.astype(np.float64), own))
        )
    return values


def folds(sample: Sample, cv: Any, groups: Any) -> Iterator[NDArray[np.int64]]:
    """Yield the test rows of each fold, every row in exactly one.

    A number shuffles the rows with a fixed seed, after sorting them so that the folds do not depend on
    the order in which the rows came; anything with ``split`` is asked, as in scikit-learn.
    """
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        if groups is not None:
            raise ValueError("groups= needs a splitter that knows groups, such as cv=GroupKFold(5)")
        if not 2 <= cv <= sample.n:
            raise ValueError(
                f"cv is {cv}: the number of folds must lie in 2..{sample.n}, the number of rows"
            )
        tops = sample.logits.max(axis=1), sample.logits.argmax(axis=1)
        order = np.lexsort((*sample.logits.T[:SORT_COLUMNS], *tops, sample.labels))
        order = order[np.random.default_rng(0).permutation(sample.n)]
        for fold in range(int(cv)):
            yield np.sort(order[fold::cv])
    elif hasattr(cv, "split"):
        yield from _split(sample, cv, groups)
    else:
        raise TypeError(
            f"cv is {cv!r}: it must be None, a number of folds, 'loo', or a scikit-learn splitter"
        )


def _split(sample: Sample, cv: Any, groups: Any) -> Iterator[NDArray[np.int64]]:
    if groups is not None:
        groups = to_numpy(groups, "groups").reshape(-1)
        if len(groups) != sample.n:
            raise ValueError(f"groups has {len(groups)} entries, but there are {sample.n} rows")
    tests = [
        np.asarray(test) for _, test in cv.split(np.zeros((sample.n, 1)), sample.labels, groups)
    ]
    seen = np.bincount(np.concatenate(tests), minlength=sample.n)
    if len(seen) != sample.n or not np.all(seen == 1):
        row = int(np.flatnonzero(seen != 1)[0])
        raise ValueError(
            f"cv tests row {row} {seen[row]} times: every row must be in exactly one test fold"
        )
    yield from tests


def training_rows(n: int, test: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows that are not in the test fold."""
    kept = np.ones(n, dtype=bool)
    kept[test] = False
    return np.flatnonzero(kept)
