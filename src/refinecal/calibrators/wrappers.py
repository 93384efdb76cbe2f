"""Calibrators built on others: one-vs-rest, one-vs-one, smoothing, and custom objects."""

from __future__ import annotations  # so that help() shows types by name

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import Sample, against_rest, log_odds, log_softmax, split_odds
from refinecal.calibrators._pairs import Curves, couple, evaluate, pack, polynomial
from refinecal.calibrators.base import Calibrator, Floats, as_calibrator

NUMBERS = 2**22  # worked on together: 32 MB
NEAR = 2**19  # numbers that stay in a cache, 4 MB
SEVERAL = 16  # rows that make the curves of all pairs worth evaluating


class _Wrapper(Calibrator):
    """A calibrator with another as its parameter; the inner parameters are ``calibrator__name``."""

    laplace = False

    def __init__(self, calibrator: Any = "isotonic") -> None:
        self.calibrator = calibrator

    def _counts_rows(self) -> bool:
        return self.laplace or as_calibrator(self.calibrator)._counts_rows()


class LaplaceSmoothing(_Wrapper):
    r"""Smooth the probabilities of any calibrator.

    With k classes and n calibration rows, :math:`\frac{n}{n+1} g(p) + \frac{1}{n+1} \frac1k`, so that
    log loss stays finite. For custom calibrators, and for one-vs-rest and one-vs-one as a whole; those of
    this package with ``laplace=True`` are not smoothed twice.

    Parameters
    ----------
    calibrator : str or object with ``fit`` and ``predict_proba``, default "isotonic"
        What to smooth; a copy is fitted.

    Attributes
    ----------
    calibrator_ : Calibrator
        The fitted copy.

    References
    ----------
    Appendix D of the paper.

    Examples
    --------
    >>> import refinecal as rc
    >>> iso = rc.make_calibrator("isotonic", laplace=False)
    >>> smooth = rc.calibrators.LaplaceSmoothing(iso).fit([0.2, 0.7, 0.8], [0, 1, 1])
    >>> smooth.predict_proba([0.1])  # 3/4 of (1, 0), and 1/4 of (1/2, 1/2)
    array([[0.875, 0.125]])
    """

    laplace = True
    calibrator_: Calibrator

    @property
    def n_parameters(self) -> int:
        """That of its calibrator."""
        return self.calibrator_.n_parameters

    def _summary(self) -> str:
        return self.calibrator_._summary()

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        try:
            self.calibrator_ = as_calibrator(self.calibrator)._fit_sample(sample, threads, start)
        except ValueError as error:  # name the inner calibrator
            raise ValueError(f"LaplaceSmoothing of {self.calibrator}: {error}") from error

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        return self.calibrator_._map(logits)


class UserCalibrator(Calibrator):
    """Any object with ``fit(probs, y)`` and ``predict_proba(probs)``, such as a classifier."""

    laplace = False

    def __init__(self, user: Any) -> None:
        self.user = user

    @property
    def n_parameters(self) -> int:
        raise AttributeError(
            "the number of parameters is only known for calibrators of this package"
        )

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        sample = sample.expand_soft_labels()
        probs = np.exp(log_softmax(sample.logits))
        if sample.weights is None:
            self.user.fit(probs, sample.labels)
            return
        try:
            self.user.fit(probs, sample.labels, sample_weight=sample.weights)
        except TypeError as error:
            raise TypeError(
                f"{type(self.user).__name__}.fit takes no sample_weight: omit sample_weight= and soft "
                "labels"
            ) from error

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        k = logits.shape[1]
        found = np.asarray(self.user.predict_proba(np.exp(log_softmax(logits))), dtype=np.float64)
        if found.ndim == 1:
            found = np.stack([1 - found, found], axis=1)
        known = np.asarray(getattr(self.user, "classes_", np.arange(k))).astype(int)
        name = f"{type(self.user).__name__}.predict_proba"
        expected = len(logits), len(known)
        if found.shape != expected:
            raise ValueError(f"{name} returned shape {found.shape}, expected {expected}")
        good = (found >= 0).all(axis=1) & (np.abs(found.sum(axis=1) - 1) <= 1e-3)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise ValueError(
                f"{name} returned {found[row]} for one row: it must return probabilities that sum to 1"
            )
        probs = np.zeros((len(logits), k))
        probs[:, known] = found  # a class missing from a fold has probability 0
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(probs))


class _BinaryProblems(_Wrapper):
    """Several binary problems, each with a calibrator if both of its labels occur.

    If a label does not occur, its probability is divided by 1 plus its expected number of rows: the posterior
    mean of the factor by which the probabilities are wrong, if that is exponential with mean 1 a priori.
    """

    calibrators_: list[Calibrator]
    members_: NDArray[np.int64]  # for each problem, the index of its calibrator, or -1
    expected_: Floats  # for each problem without one, the expected rows of missing labels

    @property
    def n_parameters(self) -> int:
        """The sum over its calibrators."""
        return sum(part.n_parameters for part in self.calibrators_)

    def _summary(self) -> str:
        return f"{len(self.calibrators_)} calibrators"

    @abstractmethod
    def _problems(self, sample: Sample) -> Iterable[Sample]:
        """Return the binary problems."""

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        self.calibrators_, members, expected = [], [], []
        for problem in [sample] if sample.k == 2 else self._problems(sample):
            weights = np.ones(problem.n) if problem.weights is None else problem.weights
            if problem.soft is None:
                occurs = np.bincount(problem.labels, weights, minlength=2) > 0
            else:
                occurs = weights @ problem.soft > 0
            if occurs.all() or sample.k == 2:
                members.append(len(self.calibrators_))
                expected.append(np.zeros(2))
                fitted = as_calibrator(self.calibrator)._fit_sample(problem, threads)
                self.calibrators_.append(fitted)
            else:
                members.append(-1)
                expected.append(np.where(occurs, 0, weights @ np.exp(log_softmax(problem.logits))))
        self.members_, self.expected_ = np.array(members), np.array(expected)

    def _proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        if logits.shape[1] == 2:
            return self.calibrators_[0]._proba(logits)
        return np.asarray(np.exp(self._map(logits)))

    def _infer(self, problem: int, logits: Floats) -> Floats:
        """Return the log-probabilities of the two labels of a problem without calibrator."""
        logs: Floats = log_softmax(logits) - np.log1p(self.expected_[problem])
        for label in np.flatnonzero(self.expected_[problem]):
            with np.errstate(divide="ignore"):
                logs[:, 1 - label] = np.log(-np.expm1(logs[:, label]))
        return logs


class OneVsRest(_BinaryProblems):
    r"""Calibrate many classes one-vs-rest by a binary calibrator.

    The score of class j is its log-odds :math:`\log p_j - \log (1 - p_j)`, computed from the logits. The
    calibrated probabilities are normalized; where all are 0, they become uniform.

    The probability of a class without calibration rows is divided by 1 plus its expected number of rows. Two
    classes are calibrated directly.

    Parameters
    ----------
    calibrator : str or object with ``fit`` and ``predict_proba``, default "isotonic"
        The binary calibrator; copies are fitted. ``make_calibrator("isotonic-ovr")`` is the short form.

    Attributes
    ----------
    calibrators_ : list of Calibrator
        Those of the classes with rows.
    members_ : ndarray
        The index of each class's calibrator; -1 for a class without rows, or with all of them.
    expected_ : ndarray
        The expected number of missing rows, against and for the class.

    References
    ----------
    Zadrozny, Elkan, "Transforming classifier scores into accurate multiclass probability estimates", 2002.

    Examples
    --------
    >>> import refinecal as rc
    >>> probs = [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]] * 2
    >>> iso = rc.make_calibrator("isotonic-ovr", laplace=False).fit(probs, [0, 1, 2, 0, 1, 0])
    >>> iso.predict_proba(probs[1:3])  # class 0 has 1 of the 4 rows that give it 0.2, class 2 has none
    array([[0.2       , 0.8       , 0.        ],
           [0.33333333, 0.        , 0.66666667]])
    """

    def _problems(self, sample: Sample) -> Iterator[Sample]:
        odds = log_odds(sample.logits.astype(np.float64))
        return (against_rest(sample, odds[:, j], j) for j in range(sample.k))

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        if logits.shape[1] == 2:
            return self.calibrators_[0]._log_proba(logits)
        logs, step = np.empty(logits.shape), max(1, NUMBERS // len(self.members_))
        for start in range(0, len(logits), step):
            odds = log_odds(logits[start : start + step].astype(np.float64))
            part = logs[start : start + step]
            for j in range(logits.shape[1]):
                pair, member = split_odds(odds[:, j]), self.members_[j]
                if member >= 0:
                    part[:, j] = self.calibrators_[member]._log_proba(pair)[:, 1]
                else:
                    part[:, j] = self._infer(j, pair)[:, 1]
            part[np.isneginf(part).all(axis=1)] = 0  # impossible: becomes uniform
            part[:] = log_softmax(part)
        return logs


class OneVsOne(_BinaryProblems):
    r"""Calibrate many classes one-vs-one by a binary calibrator.

    For classes i and j, the calibrator learns :math:`r_{ij}`, the probability of i given that it is i or j,
    from their rows and the difference of their logits. The probabilities of all classes then solve

    .. math:: \min_p \sum_{i < j} (r_{ji} p_i - r_{ij} p_j)^2 \quad\text{with}\quad \sum_i p_i = 1,

    exactly: one linear system per row. This is the second method of Wu, Lin and Weng.

    In a pair, the probability of a class without calibration rows is divided by 1 plus its expected number of
    rows. Two classes are calibrated directly.

    Parameters
    ----------
    calibrator : str or object with ``fit`` and ``predict_proba``, default "isotonic"
        The binary calibrator; copies are fitted. ``make_calibrator("isotonic-ovo")`` is the short form.

    Attributes
    ----------
    calibrators_ : list of Calibrator
        Those of the pairs in which both classes have rows.
    members_ : ndarray
        The index of the calibrator of each pair, or -1; pairs are (0, 1), (0, 2), (1, 2), (0, 3) ...
    expected_ : ndarray
        The expected number of missing rows, of the first and of the second class.

    References
    ----------
    Wu, Lin, Weng, "Probability estimates for multi-class classification by pairwise coupling", 2004.

    Examples
    --------
    >>> import refinecal as rc
    >>> logits = [[0.0, 0.0, 0.0]] * 6
    >>> iso = rc.make_calibrator("isotonic-ovo", laplace=False).fit_logits(logits, [0, 0, 0, 1, 1, 2])
    >>> iso.predict_proba_logits(logits[:1]).round(6)  # 3, 2 and 1 of 6: the pairs agree
    array([[0.5     , 0.333333, 0.166667]])
    """

    def _problems(self, sample: Sample) -> Iterator[Sample]:
        order = np.argsort(sample.labels, kind="stable")
        own = np.split(order, np.cumsum(np.bincount(sample.labels, minlength=sample.k))[:-1])
        for i, j in _pairs(sample.k):
            if sample.soft is not None:
                yield _make_soft_pair(sample, sample.soft, i, j)
                continue
            rows = np.concatenate([own[i], own[j]])
            labels = np.repeat([0, 1], [len(own[i]), len(own[j])])
            weights = None if sample.weights is None else sample.weights[rows]
            yield Sample(labels, _take_pair(sample.logits, i, j, rows), weights)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        if logits.shape[1] == 2:
            return self.calibrators_[0]._log_proba(logits)
        curves, n_pairs = self._curves(), len(self.members_)
        ratios = self._ratios if curves is None else partial(evaluate, curves)
        step = NUMBERS // n_pairs if curves is None else max(SEVERAL, NEAR // n_pairs)
        logs = np.empty(logits.shape)
        for start in range(0, len(logits), max(1, step)):
            rows = slice(start, start + max(1, step))
            with np.errstate(divide="ignore"):
                logs[rows] = np.log(couple(*ratios(logits[rows].astype(np.float64))))
        return logs

    def _curves(self) -> Curves | None:
        """Return the curves of all pairs; ``None`` if a calibrator has no curve."""
        curves, mix, given = [], [], polynomial(0.0, 1.0)
        for member, (first, second) in zip(self.members_, self.expected_, strict=True):
            curve = self.calibrators_[member]._curve() if member >= 0 else given
            if curve is None:
                return None
            curves.append(curve)
            if member >= 0:
                fitted = self.calibrators_[member]
                n = fitted.n_samples_
                added = 1 / ((n + 1) * 2)
                mix.append((n / (n + 1), added, added) if fitted.laplace else (1.0, 0.0, 0.0))
            else:  # one of the labels is missing, if any
                factor = 1 / (1 + first + second)
                mix.append((factor, second * factor, first * factor))
        return pack(curves, mix)

    def _ratios(self, logits: Floats) -> tuple[Floats, Floats]:
        """Return the probabilities of the second and of the first class of each pair, one pair at a time."""
        up, down = np.empty((2, len(logits), len(self.members_)))
        fitted = self.calibrators_
        for problem, (i, j) in enumerate(_pairs(logits.shape[1])):
            pair, member = _take_pair(logits, i, j), self.members_[problem]
            logs = self._infer(problem, pair) if member < 0 else fitted[member]._log_proba(pair)
            down[:, problem], up[:, problem] = np.exp(logs).T
        return up, down


def _pairs(k: int) -> list[tuple[int, int]]:
    return [(i, j) for j in range(k) for i in range(j)]


def _take_pair(logits: NDArray[Any], i: int, j: int, rows: Any = slice(None)) -> Floats:
    """Return the logits of two classes, i < j; equal where both are -inf."""
    pair = np.array(logits[:, i : j + 1 : j - i][rows], dtype=np.float64, order="C")
    if pair.min(initial=0) == -np.inf:
        pair[np.isneginf(pair).all(axis=1)] = 0
    return pair


def _make_soft_pair(sample: Sample, soft: Floats, i: int, j: int) -> Sample:
    """Return the rows with a share of two classes, weighted by it."""
    mass = soft[:, i] + soft[:, j]
    rows = np.flatnonzero(mass)
    weights = mass[rows] * (1 if sample.weights is None else sample.weights[rows])
    share = soft[rows, j] / mass[rows]
    pair = np.stack([1 - share, share], axis=1)
    return Sample(pair.argmax(axis=1), _take_pair(sample.logits, i, j, rows), weights, pair)
