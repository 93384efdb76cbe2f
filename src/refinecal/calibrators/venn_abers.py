"""Venn-Abers prediction: isotonic regression with an interval for the probability."""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.checks import check_whole
from refinecal._core.sample import ROUNDING, Sample, clipped_odds, log_softmax, readonly
from refinecal.calibrators._pairs import Curve, steps
from refinecal.calibrators.base import Calibrator, Floats, check_two_classes
from refinecal.calibrators.isotonic import LARGEST, sum_scores
from refinecal.resampling import folds

MOST = 2.0**200  # total mass up to which products of masses cannot overflow


class _Intervals(Calibrator):
    """The public methods that return intervals."""

    _weighs_rows = True  # relative to a new one of weight 1

    def predict_interval(self, probs: Any) -> NDArray[np.float64]:
        """Return the two probabilities of class 1, p0 and p1, of each row, shape ``(n, 2)``.

        They are the isotonic fits with the new row as one more calibration row, of label 0 and of label 1.
        The fewer rows have similar scores, the wider the interval. Not smoothed.
        """
        return self._interval(self._check(probs, "probs", "use predict_interval_logits"))

    def predict_interval_logits(self, logits: Any) -> NDArray[np.float64]:
        """Return p0 and p1 for logits; else like :meth:`predict_interval`."""
        return self._interval(self._check(logits, "logits"))

    @abstractmethod
    def _interval(self, logits: NDArray[Any]) -> Floats:
        """Return p0 and p1 of checked logits."""


class VennAbers(_Intervals):
    r"""Calibrate two classes by inductive Venn-Abers prediction.

    Isotonic regression is fitted twice for each new row, with it as one more row of label 0 and of label 1.
    Its values there are p0 and p1, one of which is calibrated for any classifier. The probability is
    :math:`p_1 / (1 - p_0 + p_1)`, which limits the regret under log loss, and is never 0 or 1.

    Fitting finds all possible values in :math:`O(n \log n)`; predictions look them up. New rows weigh 1.

    Parameters
    ----------
    laplace : bool, default False
        Whether to smooth as other calibrators do, which is not needed here.

    Attributes
    ----------
    lower_log_odds_, lower_shares_ : ndarray
        p0 is a step function: the log-odds where steps begin, and p0 before the first and on each.
    upper_log_odds_, upper_shares_ : ndarray
        p1 is a step function: the log-odds where steps end, and p1 on each and after the last.

    References
    ----------
    Vovk, Petej, Fedorova, "Large-scale probabilistic predictors with and without guarantees of validity",
    2015.

    Examples
    --------
    >>> import refinecal as rc
    >>> va = rc.make_calibrator("venn-abers").fit([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1])
    >>> va.predict_interval([0.6])  # with 0.4 and 0.6: 1 of 3 rows, then 2 of 3
    array([[0.33333333, 0.66666667]])
    >>> va.predict_proba([0.6])
    array([[0.5, 0.5]])
    """

    lower_log_odds_: Floats
    lower_shares_: Floats
    upper_log_odds_: Floats
    upper_shares_: Floats

    def __init__(self, laplace: bool = False) -> None:
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """The number of steps of p0 and p1."""
        return len(self.lower_shares_) + len(self.upper_shares_)

    def _summary(self) -> str:
        return f"{len(self.lower_shares_)} and {len(self.upper_shares_)} steps"

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        check_two_classes(sample, "Venn-Abers calibration", "venn-abers")
        scores, mass, hits = sum_scores(sample)
        unit = 1.0
        if mass.sum() > MOST:
            unit = float(2.0 ** -np.frexp(mass.sum())[1])
            mass, hits = mass * unit, hits * unit
        add = _kernels.pav.add_test_object
        lower, upper = (add(mass, hits, unit, label) for label in (0.0, 1.0))
        # They are monotone up to rounding; p0 stays below 1.
        lower = np.maximum.accumulate(np.clip(lower, 0, np.nextafter(1, 0)))
        upper = np.maximum(np.maximum.accumulate(np.clip(upper, 0, 1)), lower)
        begins, ends = np.diff(lower, prepend=0) > 0, np.diff(upper, append=1) > 0
        self.lower_log_odds_, self.upper_log_odds_ = scores[begins], scores[ends]
        self.lower_shares_ = np.append(0.0, lower[begins])
        self.upper_shares_ = np.append(upper[ends], 1.0)

    def _interval(self, logits: NDArray[Any]) -> Floats:
        """Look up p0 at the next score below, p1 at the next above."""
        odds = clipped_odds(logits, LARGEST)
        margin = ROUNDING * np.maximum(1, np.abs(odds))
        first, last = readonly(self.lower_log_odds_), readonly(self.upper_log_odds_)
        lower = self.lower_shares_[_kernels.pav.count_knots(odds + margin, first)]
        upper = self.upper_shares_[_kernels.pav.count_knots(odds - margin, last)]
        return np.stack([lower, upper], axis=1)

    def _curve(self) -> Curve:
        low, high = self.lower_log_odds_, self.upper_log_odds_
        if len(low) + 1 != len(self.lower_shares_) or len(high) + 1 != len(self.upper_shares_):
            raise ValueError("shares must have one entry more than log_odds")  # in a damaged file
        low = low - ROUNDING * np.maximum(1, np.abs(low))
        high = high + ROUNDING * np.maximum(1, np.abs(high))
        zeros, ones = -np.log1p(-self.lower_shares_), np.log(self.upper_shares_)
        knots, levels = _kernels.pav.add_steps(low, zeros, high, ones)
        return steps(knots, levels, is_odds=True)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        lower, upper = self._interval(logits).T
        logs = np.stack([np.log1p(-lower), np.log(upper)], axis=1)
        return np.asarray(logs - np.log(1 - lower + upper)[:, None])


class CrossVennAbers(_Intervals):
    r"""Calibrate two classes by several Venn-Abers predictors, each fitted on a part of the rows.

    With p0 and p1 of each part, and G the geometric mean over the parts, the probability is
    :math:`G(p_1) / (G(1 - p_0) + G(p_1))`: the mean of the log-odds. Its steps are smaller than those of
    :class:`VennAbers`, but each part has fewer rows. The random parts do not depend on the order of rows.

    Parameters
    ----------
    n_folds : int, default 5
        The number of parts, at most one per row.
    random_state : int, default 0
        The random seed.
    laplace : bool, default False
        As for :class:`VennAbers`.

    Attributes
    ----------
    calibrators_ : list of VennAbers
        One per part.

    References
    ----------
    Vovk, Petej, Fedorova, "Large-scale probabilistic predictors with and without guarantees of validity",
    2015, sections 3 and 4. There, each part is scored by a classifier trained on the other parts: pass
    out-of-fold predictions, or those for new rows.

    Examples
    --------
    >>> import refinecal as rc
    >>> cva = rc.make_calibrator("cross-venn-abers", n_folds=2).fit([0.5] * 4, [1, 1, 1, 1])
    >>> cva.predict_interval([0.5])  # each part: 2 of 3 rows, then 3 of 3
    array([[0.66666667, 1.        ]])
    >>> cva.predict_proba([0.5])  # odds of 1 to 1 - 2/3
    array([[0.25, 0.75]])
    """

    calibrators_: list[VennAbers]

    def __init__(self, n_folds: int = 5, random_state: int = 0, laplace: bool = False) -> None:
        self.n_folds = n_folds
        self.random_state = random_state
        self.laplace = laplace

    @property
    def n_parameters(self) -> int:
        """The number of steps of p0 and p1 of all parts."""
        return sum(member.n_parameters for member in self.calibrators_)

    def _summary(self) -> str:
        return f"{len(self.calibrators_)} parts"

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        n_folds = check_whole("n_folds", self.n_folds, 2)
        seed = check_whole("random_state", self.random_state, 0)
        check_two_classes(sample, "cross Venn-Abers calibration", "cross-venn-abers")
        parts: list[Any] = [slice(None)]
        if sample.n > 1:
            parts = [test for _, test in folds(sample, min(n_folds, sample.n), None, seed)]
        self.calibrators_ = [VennAbers()._fit_sample(sample.take(rows), threads) for rows in parts]

    def _interval(self, logits: NDArray[Any]) -> Floats:
        """Average the log-odds of p0 and p1, so that the probability lies between them."""
        found = [member._interval(logits) for member in self.calibrators_]
        with np.errstate(divide="ignore"):
            ones = np.mean([np.log(part) for part in found], axis=0)
            zeros = np.mean([np.log1p(-part) for part in found], axis=0)
        return np.asarray(np.exp(ones - np.logaddexp(ones, zeros)))

    def _curve(self) -> Curve:
        parts = [member._curve() for member in self.calibrators_]
        knots, levels = parts[0].knots, parts[0].pieces[:, 0]
        for part in parts[1:]:
            knots, levels = _kernels.pav.add_steps(knots, levels, part.knots, part.pieces[:, 0])
        return steps(knots, levels / len(parts), is_odds=True)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        logs = np.mean([member._map(logits) for member in self.calibrators_], axis=0)
        return log_softmax(logs)
