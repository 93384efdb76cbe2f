"""Choose the calibrator by cross-validation: families compared out of fold, and blended."""

from __future__ import annotations  # so that help() shows types by name

import logging
import textwrap
import warnings
from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refinecal._core.checks import check_whole
from refinecal._core.sample import Sample, deal_at_random, row_keys
from refinecal.calibrators._newton import mixture_weights
from refinecal.calibrators.base import Calibrator, as_calibrator, make_calibrator
from refinecal.losses import get_loss, row_losses

Floats = NDArray[np.float64]
log = logging.getLogger(__name__)

MOST_CLASSES = 60  # for matrices: beyond, fitting one six times takes too long
TWO_CLASSES = ("temperature", "affine", "spline", "venn-abers")
SEVERAL_CLASSES = ("temperature", "affine-ovr", "structured-matrix")
WEAK = {"diagonal": 0.1, "off_diagonal": 0.1, "intercept": 0.1}  # of a matrix for large data sets
MANY_CLASSES = ("temperature", "structured-vector")
MOST_ROWS = 20_000  # for the comparison; the families are then fitted on all rows
CLEARLY = 3.0  # standard errors by which a family must be worse to be dropped
WITHIN_NOISE = 1.0  # standard errors within which the simplest family is picked
PRIOR_ROWS = 10.0  # weight of the prior, in rows
TRUST = 100.0  # rows per class but one at which other families than the first get half the prior
LEAST_WEIGHT = 0.02
FEW_ROWS = 20  # too few to compare
LARGEST = 700.0  # of a loss: the smallest probability of float64


@dataclass(frozen=True, slots=True)
class Score:
    """A family's cross-validated loss."""

    name: str
    loss: float
    difference: float  # to the family of smallest loss
    error: float  # standard error of the difference
    weight: float


class AutoCalibrator(Calibrator):
    r"""Calibrate by a blend of families whose weights are chosen by cross-validation.

    Two classes: temperature, affine, spline and Venn-Abers; more: temperature, structured matrix scaling
    with two strengths, and one-vs-rest affine scaling; more than 60: temperature and structured vector
    scaling. Cross-validation gives the probability :math:`q_{ij}` of the label of row i under family j.
    Families whose loss is worse than the best by more than three standard errors are dropped (temperature
    only if there are enough rows). The others are averaged:

    .. math:: g(p) = \sum_j w_j g_j(p), \qquad
              w = \arg\max \sum_i \log \sum_j w_j q_{ij} + 10 \sum_j v_j \log w_j,

    where the prior v, worth ten rows, favors temperature while there are few rows.

    Parameters
    ----------
    candidates : sequence of str or calibrators, optional
        Other families, in order of their number of parameters.
    cv : int, default 5
        Number of folds.
    blend : bool, default True
        If ``False``, pick the simplest family within one standard error of the best. On nearly 200 sets of
        real predictions the blend had the smaller loss.
    weights : sequence of float, optional
        Blend the families with these weights, without comparing them.

    Attributes
    ----------
    names_ : list of str
        The families that were compared.
    losses_, differences_, errors_ : ndarray
        Their cross-validated log loss, its difference to the smallest, and the standard error of that.
    weights_ : ndarray
        Their weights; 0 if dropped.
    calibrators_ : list of Calibrator
        Those with a weight, fitted on all rows.
    reason_ : str
        Why they were chosen.

    Notes
    -----
    A monitor with ``calibrator="auto"`` compares steps by temperature scaling, and chooses at the best step.

    Examples
    --------
    All log-odds are too high by 1, which no temperature corrects:

    >>> import numpy as np
    >>> import refinecal as rc
    >>> rng = np.random.default_rng(0)
    >>> odds = rng.normal(size=2000) * 2
    >>> y = (rng.random(2000) < 1 / (1 + np.exp(-odds))).astype(int)
    >>> auto = rc.make_calibrator("auto").fit_logits(odds + 1, y)
    >>> "temperature" in auto.chosen_
    False
    >>> bool(abs(auto.predict_proba_logits([1.0])[0, 1] - 0.5) < 0.02)
    True
    """

    laplace = False  # the families smooth
    _weighs_rows = True
    _steps_by = "temperature"
    names_: list[str]
    losses_: Floats
    differences_: Floats
    errors_: Floats
    weights_: Floats
    calibrators_: list[Calibrator]
    reason_: str

    def __init__(
        self,
        candidates: Sequence[Any] | None = None,
        cv: int = 5,
        blend: bool = True,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.candidates = candidates
        self.cv = cv
        self.blend = blend
        self.weights = weights

    # ---- what was chosen ---------------------------------------------------------------------------------

    @property
    def chosen_(self) -> list[str]:
        """The names of the families that have a weight."""
        return [name for name, weight in zip(self.names_, self.weights_, strict=True) if weight > 0]

    @property
    def beta_(self) -> float:
        """The inverse temperature, if only temperature scaling was chosen."""
        if len(self.calibrators_) > 1 or not hasattr(self.calibrators_[0], "temperature_"):
            raise AttributeError(f"the calibrator is {self._summary()}, which has no temperature")
        beta: float = self.calibrators_[0].beta_  # type: ignore[attr-defined]
        return beta

    @property
    def n_parameters(self) -> int:
        """Those of the chosen families, and their weights."""
        return sum(one.n_parameters for one in self.calibrators_) + len(self.calibrators_) - 1

    def scores(self) -> list[Score]:
        """Return the cross-validated loss and the weight of each family."""
        columns = (self.losses_, self.differences_, self.errors_, self.weights_)
        rows = zip(self.names_, *(column.tolist() for column in columns), strict=True)
        return [Score(*row) for row in rows]

    def explain(self) -> str:
        """Return what was compared, what was chosen and why, as a table (± is one standard error)."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        lines = textwrap.wrap(self.reason_, 80)
        compared = bool(self.losses_.any())
        if compared:
            lines.append(f"  {'':<24}{'log loss':>10}{'above best (± s.e.)':>22}{'weight':>9}")
        for one in self.scores() if compared else ():
            above = f"{one.difference:.5f} ± {one.error:.5f}" if one.error > 0 else ""
            weight = f"{one.weight:.2f}" if one.weight > 0 else "-"
            lines.append(f"  {one.name:<24}{one.loss:>10.5f}{above:>22}{weight:>9}")
        return "\n".join(lines)

    # ---- choosing ----------------------------------------------------------------------------------------

    def _learn(self, sample: Sample, threads: int, start: float) -> None:
        families = self._families(sample)
        m = len(families)
        self.names_ = list(families)
        self.losses_, self.differences_, self.errors_ = np.zeros((3, m))
        if self.weights is not None:
            found = np.asarray(self.weights, dtype=np.float64)
            legal = np.isfinite(found) & (found >= 0)
            if found.shape != (m,) or not legal.all() or not found.sum() > 0:
                raise ValueError(
                    f"weights is {self.weights!r}: it must hold {m} numbers of at least 0, one per family, "
                    "not all 0"
                )
            self.weights_ = found / found.sum()
            self.reason_ = f"{self._summary()}: given weights"
        else:
            cv = check_whole("cv", self.cv, 2)
            compared = cross_validate(families.values(), sample, cv, threads) if m > 1 else None
            self._weigh(compared, sample)
        self.calibrators_ = [
            family._fit_sample(sample, threads, start)
            for family, weight in zip(families.values(), self.weights_, strict=True)
            if weight > 0
        ]
        log.info("%s", self.reason_)

    def _families(self, sample: Sample) -> dict[str, Calibrator]:
        """Return the families to compare, in order of their number of parameters."""
        families: dict[str, Calibrator] = {}
        given = self.candidates
        if given is None and 2 < sample.k <= MOST_CLASSES:
            families = {name: make_calibrator(name) for name in SEVERAL_CLASSES}
            return families | {
                "weak structured-matrix": make_calibrator("structured-matrix", **WEAK)
            }
        if given is None:
            given = TWO_CLASSES if sample.k == 2 else MANY_CLASSES
        if isinstance(given, str) or not len(given):
            raise ValueError(
                f"candidates is {given!r}: pass several names or calibrators, such as "
                "['temperature', 'isotonic']"
            )
        for one in given:
            family = as_calibrator(one)
            if isinstance(family, AutoCalibrator):
                raise ValueError("candidates holds 'auto': it cannot choose itself")
            name = one if isinstance(one, str) else repr(getattr(family, "user", family))
            families[name] = family
        return families

    def _weigh(self, compared: tuple[Floats, Floats] | None, sample: Sample) -> None:
        """Set the weights, and the reason for them."""
        if compared is None:
            self.weights_ = np.eye(len(self.names_))[0]
            why = "too few rows to compare" if len(self.names_) > 1 else "the only candidate"
            self.reason_ = f"{self.names_[0]}: {why}"
            return
        losses, counts = compared
        total = counts.sum()
        gaps = losses - losses[:, [int((counts @ losses / total).argmin())]]
        self.differences_ = counts @ gaps / total
        self.errors_ = np.sqrt(counts @ (gaps - self.differences_) ** 2) / total
        self.losses_ = counts @ losses / total
        best, how = self.names_[int(self.losses_.argmin())], f"{self.cv}-fold cross-validation"
        if not self.blend:
            picked = int(np.flatnonzero(self.differences_ <= WITHIN_NOISE * self.errors_)[0])
            name, self.weights_ = self.names_[picked], np.eye(len(self.names_))[picked]
            self.reason_ = f"{name}: smallest loss in {how}"
            if name != best:
                self.reason_ = (
                    f"{name}: simplest within noise of the best in {how}, which is {best}"
                )
            return
        near = self.differences_ <= CLEARLY * self.errors_
        few = TRUST * (sample.k - 1)
        near[0] |= sample.total < few  # with few rows it may be chance
        self.weights_ = _blend(np.exp(-losses), counts, near, sample.total / (sample.total + few))
        done = "blended" if len(self.chosen_) > 1 else "chosen"
        self.reason_ = f"{self._summary()}: {done} by {how}"
        if not near.all():
            worse = [name for name, kept in zip(self.names_, near, strict=True) if not kept]
            self.reason_ += f"; clearly worse than {best}: {', '.join(worse)}"

    def _summary(self) -> str:
        if len(self.chosen_) == 1:
            return self.chosen_[0]
        pairs = zip(self.names_, self.weights_, strict=True)
        return " + ".join(f"{weight:.0%} {name}" for name, weight in pairs if weight > 0)

    def _map(self, logits: NDArray[Any]) -> NDArray[Any]:
        if len(self.calibrators_) == 1:
            return self.calibrators_[0]._log_proba(logits)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self._proba(logits)))

    def _proba(self, logits: NDArray[Any]) -> NDArray[Any]:
        if len(self.calibrators_) == 1:
            return self.calibrators_[0]._proba(logits)
        weights = self.weights_[self.weights_ > 0]
        mixed: Floats = np.zeros(logits.shape)
        for weight, one in zip(weights, self.calibrators_, strict=True):
            mixed += weight * one._proba(logits)
        return mixed


def cross_validate(
    families: Collection[Calibrator], sample: Sample, cv: int, threads: int
) -> tuple[Floats, Floats] | None:
    """Return the out-of-fold loss of each row under each family, and the weight of each row.

    ``None`` if there are too few rows, or fewer than two labels.
    """
    rows, parts = deal_by_label(sample, cv, MOST_ROWS)
    total = parts.sum(axis=1)
    if total.sum() < max(FEW_ROWS, 2 * cv) or np.count_nonzero(rows.frequencies) < 2:
        return None
    losses: list[Floats] = []
    counts: list[Floats] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the fit to all rows repeats it
        for part in parts.T:
            known = rows.replace(weights=total - part).drop_weightless()
            new = rows.replace(weights=part).drop_weightless().expand_soft_labels()
            fitted = [deepcopy(one)._fit_sample(known, threads) for one in families]
            each = [row_losses(new, get_loss("log"), one._log_proba) for one in fitted]
            losses.append(np.stack(each, axis=1))
            counts.append(np.asarray(new.weights))
    return np.minimum(np.concatenate(losses), LARGEST), np.concatenate(counts)


def deal_by_label(sample: Sample, n_folds: int, most: int) -> tuple[Sample, Floats]:
    """Return distinct rows, at most ``most``, and the weight of each in each fold.

    Within each label, rows are assigned to folds in turn, and copies of a row at random. The order of rows
    and the numbers of the labels do not matter.
    """
    plain = sample.replace(weights=None)
    keys = np.stack(row_keys(plain))
    order = np.lexsort(keys)
    new = np.ones(sample.n, dtype=bool)  # whether a row differs from the one before
    new[1:] = (np.diff(keys[:, order]) != 0).any(axis=0)
    weights = np.ones(sample.n) if sample.weights is None else sample.weights
    copies: Floats = np.bincount(np.cumsum(new) - 1, weights[order]).astype(np.float64)
    rows = plain.take(order[new])
    pack = np.random.default_rng(0).permutation(rows.n)[:most]
    rows, copies = rows.take(np.sort(pack)), copies[np.sort(pack)]
    pack = np.argsort(np.argsort(pack))  # the rank of each row
    first = np.empty(rows.n, dtype=np.int64)  # the fold of a single copy
    for label in np.unique(rows.labels):
        own = np.flatnonzero(rows.labels == label)
        own = own[np.argsort(pack[own])]
        first[own] = pack[own[0]] + np.arange(len(own))
    turn = (np.arange(n_folds) - first[:, None]) % n_folds
    parts = np.where(turn == 0, copies[:, None], 0.0)
    several = copies >= 2
    parts[several] = deal_at_random(copies[several], n_folds)
    return rows, parts


def _blend(probs: Floats, counts: Floats, near: NDArray[np.bool_], share: float) -> Floats:
    """Return the weights of a blend; very small ones become 0.

    The prior is equal up to this share, worth 1 for many rows; the rest favors the first family.
    """
    weights = np.zeros(len(near))
    favor = np.full(len(near), share / len(near))
    favor[0] += 1 - share
    while True:
        prior = favor[near] / favor[near].sum() * PRIOR_ROWS
        parts = np.concatenate([probs[:, near], np.eye(len(prior))]).T  # log w_j is one more row
        shares = np.concatenate([counts, prior])
        weights[near] = mixture_weights(np.maximum(parts, 1e-300), shares / shares.sum())
        if weights[near].min() >= LEAST_WEIGHT:
            return weights
        near = near & (weights >= LEAST_WEIGHT)
        weights[:] = 0
