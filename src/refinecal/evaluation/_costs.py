"""Decisions that keep the costs of mistakes low, and what they cost."""

from __future__ import annotations  # so that help() shows types by name

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import to_floats
from refinecal._core.checks import check_group_of_rows, check_keywords, check_sample
from refinecal._core.files import plain
from refinecal._core.sample import Sample
from refinecal.evaluation._paired import Difference, paired_difference
from refinecal.evaluation._single import check_titles

Floats = NDArray[np.float64]
N_THRESHOLDS = 101
BAYES, LIKELIEST = "smallest expected cost", "most likely class"


@dataclass(frozen=True, slots=True)
class DecisionCost:
    """What a way to decide costs per row.

    Attributes
    ----------
    expected : float
        The mean cost according to the probabilities.
    realized : Difference
        The mean cost according to the labels, with its standard error.
    change : Difference
        The realized cost minus that of deciding for the smallest expected cost, paired by row.
    """

    expected: float
    realized: Difference
    change: Difference

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        both = {name: getattr(self, name).to_dict() for name in ("realized", "change")}
        return {"expected": plain(self.expected), **both}


@dataclass(frozen=True, slots=True, eq=False)
class CostEvaluation:
    """Decisions for given costs of mistakes.

    Attributes
    ----------
    classes : tuple
        The name of each column.
    costs : ndarray of shape (k, k)
        What deciding for a class (column) costs if the label is another (row).
    threshold : float or None
        For two classes: decide for the second if its probability is higher.
    decisions : ndarray of shape (n,)
        The column with the smallest expected cost.
    ways : dict of str to DecisionCost
        By the smallest expected cost, by the most likely class, and always the class that costs least.
    curve : ndarray of shape (3, 101) or None
        For two classes, thresholds from 0 to 1, and the mean expected and realized cost at each of them.
    """

    classes: tuple[Any, ...]
    costs: Floats
    threshold: float | None
    decisions: NDArray[np.int64]
    ways: dict[str, DecisionCost]
    curve: Floats | None = None

    @property
    def best(self) -> DecisionCost:
        """The cost of deciding for the smallest expected cost."""
        return self.ways[BAYES]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON, without the decisions."""
        return {
            "costs": self.costs.tolist(),
            "threshold": self.threshold,
            "decisions": {name: way.to_dict() for name, way in self.ways.items()},
        }


@check_keywords()
def evaluate_costs(
    y_true: Any,
    probs: Any = None,
    costs: Any = None,
    *,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
    names: Any = None,
    groups: Any = None,
) -> CostEvaluation:
    r"""Return the decisions with the smallest expected costs, and what they cost on labelled rows.

    If the probabilities p are calibrated, no other rule has lower costs C on average than

    .. math:: \arg\min_j \sum_i p_i C_{ij}.

    For two classes, this is a threshold of the probability. With probabilities that are not calibrated, the
    expected costs are wrong, and another threshold may cost less.

    Parameters
    ----------
    y_true, probs, logits, sample_weight, classes
        As for :func:`refinecal.decompose`.
    costs : (float, float) or array-like of shape (k, k)
        For two classes, of a false positive (the second class predicted, but the label is the first) and of a
        false negative. For more, ``costs[i, j]`` is that of deciding for class j if the label is i.
    names : sequence, optional
        The name of each class, in the order of the columns; by default the labels.
    groups : array-like, optional
        The group of each row, if rows are not independent, for the standard errors.

    Returns
    -------
    CostEvaluation

    Examples
    --------
    A missed case costs four times as much as a false alarm, so 20% is enough for an alarm.

    >>> from refinecal.evaluation import evaluate_costs
    >>> found = evaluate_costs([0, 0, 1, 1], [0.1, 0.3, 0.3, 0.9], (1, 4))
    >>> found.threshold, found.decisions, found.best.realized.mean
    (0.2, array([0, 1, 1, 1]), 0.25)
    """
    sample = check_sample(y_true, probs, logits, sample_weight, classes)
    titles = check_titles(names, sample)
    table = check_costs(costs, sample.k)
    groups = None if groups is None else check_group_of_rows(groups, sample.n)
    expected = sample.probs @ table
    certain = table[sample.labels] if sample.soft is None else sample.soft @ table
    weights = np.ones(sample.n) if sample.weights is None else sample.weights
    constant = int((weights @ certain).argmin())
    chosen = {
        BAYES: expected.argmin(axis=1),
        LIKELIEST: sample.probs.argmax(axis=1),
        f"always {titles[constant]!r}": np.full(sample.n, constant),
    }
    rows = np.arange(sample.n)
    paid = {name: certain[rows, way] for name, way in chosen.items()}

    def mean(a: Floats, b: Floats | float) -> Difference:
        return paired_difference(a, b + 0 * a, sample.weights, groups)

    ways = {
        name: DecisionCost(
            mean(expected[rows, way], 0.0).mean,
            mean(paid[name], 0.0),
            mean(paid[name], paid[BAYES]),
        )
        for name, way in chosen.items()
    }
    curve = _cost_curve(sample, expected, certain) if sample.k == 2 else None
    return CostEvaluation(titles, table, find_threshold(table), chosen[BAYES], ways, curve)


def check_costs(costs: Any, k: int) -> Floats:
    """Return costs as a matrix: of a pair for two classes, those of its two mistakes."""
    found = to_floats(costs, "costs").astype(np.float64)
    if k == 2 and found.shape == (2,):
        found = np.array([[0.0, found[0]], [found[1], 0.0]])
    if found.shape != (k, k):
        pair = "a pair (false positive, false negative) or " * (k == 2)
        raise ValueError(f"costs has shape {found.shape}: pass {pair}a matrix ({k}, {k})")
    if not np.isfinite(found).all():
        raise ValueError("costs has values that are not finite: pass numbers")
    extra = found - np.diag(found)[:, None]
    if extra.min() < 0:
        i, j = np.unravel_index(extra.argmin(), extra.shape)
        raise ValueError(
            f"costs[{i}, {j}] is {found[i, j]:g}, less than {found[i, i]:g} for the right decision: rows are "
            "labels, columns decisions, and a mistake costs at least as much as the right decision"
        )
    if not extra.any():
        raise ValueError("costs are the same for all decisions: a mistake must cost something")
    return found


def find_threshold(costs: Floats) -> float | None:
    """Return the probability of the second of two classes above which to decide for it."""
    if len(costs) != 2:
        return None
    alarm, missed = costs[0, 1] - costs[0, 0], costs[1, 0] - costs[1, 1]
    return float(alarm / (alarm + missed))


def _cost_curve(sample: Sample, expected: Floats, certain: Floats) -> Floats:
    """Return thresholds, and the mean expected and realized cost of two classes at each of them."""
    weights = np.ones(sample.n) if sample.weights is None else sample.weights
    thresholds = np.linspace(0, 1, N_THRESHOLDS)
    second = [sample.probs[:, 1] > each for each in thresholds]
    means = [
        [weights @ np.where(above, cost[:, 1], cost[:, 0]) / weights.sum() for above in second]
        for cost in (expected, certain)
    ]
    return np.array([thresholds, *means])
