"""Compare several models on the same rows."""

from __future__ import annotations  # so that help() shows types by name

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import category_order, check_threads, to_numpy
from refinecal._core.checks import check_keywords, check_sample
from refinecal._core.format import format_fixed, shorten_name, with_error
from refinecal._core.sample import Sample
from refinecal.calibrators.base import Calibrator
from refinecal.evaluation._paired import Difference, paired_difference
from refinecal.evaluation._single import check_groups, check_titles, evaluate_sample
from refinecal.evaluation._summary import Evaluation
from refinecal.losses import get_loss, losses_at

Floats = NDArray[np.float64]
KINDS = ("log", "brier", "refinement", "brier_refinement")
VERDICTS = {
    "best": "{best!r} is best: its log loss is {gap} (s.e.) lower than that of {second!r}.",
    "tied": "{names} are tied: their log losses differ by {gap} (s.e.), which may be chance.",
    "all tied": "{names} are tied: their log losses differ by up to {gap} (s.e.), which may be chance.",
    "infinite": "{best!r} is best; the others assign probability 0 to an observed class.",
    "all infinite": "Every model assigns probability 0 to an observed class, so all log losses are infinite.",
    "after": " After calibration, {after!r} would be best: its log loss would be {change} (s.e.) lower than "
    "that of {best!r}.",
    "tied after": " After calibration, {after!r} and {best!r} would be tied.",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several models on the same rows.

    Attributes
    ----------
    evaluations : dict of str to Evaluation
        By model, in the order given.
    ranking : tuple of str
        The models, lowest log loss first.
    log, brier : dict of str to Difference
        By model, the loss minus that of the best, paired by row.
    refinement, brier_refinement : dict of str to Difference
        The same after calibration of each model; negative if the model is then better.
    groups : dict of str to Comparison
        The comparison in each group.
    """

    evaluations: dict[str, Evaluation]
    ranking: tuple[str, ...]
    log: dict[str, Difference]
    brier: dict[str, Difference]
    refinement: dict[str, Difference]
    brier_refinement: dict[str, Difference]
    groups: dict[str, Comparison] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The model with the lowest log loss."""
        return self.ranking[0]

    @property
    def verdict(self) -> str:
        """A summary of the differences, in a sentence or two."""
        if math.isinf(self.evaluations[self.best].log.risk):
            return VERDICTS["all infinite"]
        others = [name for name in self.ranking[1:] if math.isfinite(self.log[name].mean)]
        if not others:
            return VERDICTS["infinite"].format(best=self.best)
        tied = [name for name in others if not self.log[name].is_sure]
        case, gap = "best", self.log[others[0]]
        if tied:
            case = "tied" if len(tied) == 1 else "all tied"
            gap = max((self.log[name] for name in tied), key=lambda each: each.mean)
        after = min(self.ranking, key=lambda name: self.evaluations[name].log.refinement)
        change, then = self.refinement[after], ""
        if change.is_sure:
            then = VERDICTS["after"]
        elif after != self.best and after not in tied:
            then = VERDICTS["tied after"]
        names = ", ".join(map(repr, [self.best, *tied[:-1]]))
        return (VERDICTS[case] + then).format(
            best=self.best,
            names=f"{names} and {tied[-1]!r}" if tied else "",
            second=others[0],
            gap=with_error(gap.mean, gap.standard_error),
            after=after,
            change=with_error(-change.mean, change.standard_error),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON; numbers that are not finite become ``None``."""
        found: dict[str, Any] = {
            "ranking": list(self.ranking),
            "evaluations": {name: one.to_dict() for name, one in self.evaluations.items()},
            "differences": {
                name: {kind: getattr(self, kind)[name].to_dict() for kind in KINDS}
                for name in self.ranking[1:]
            },
        }
        if self.groups:
            found["groups"] = {name: one.to_dict() for name, one in self.groups.items()}
        return found

    def __repr__(self) -> str:
        first = self.evaluations[self.best]
        lines = [
            f"Comparison of {len(self.ranking)} models, {first.n} rows, {first.k} classes",
            f"  {'':<16}{'log loss':>10}{'calibr.':>10}{'refinem.':>10}"
            f"{'vs. best ± s.e.':>18}{'calibrated':>14}",
        ]
        lines += [self._line(name) for name in self.ranking]
        return "\n".join([*lines, *(f"  {line}" for line in wrap(self.verdict, 76))])

    def _line(self, name: str) -> str:
        log = self.evaluations[name].log
        terms = (log.risk, log.calibration, log.refinement)
        line = f"  {shorten_name(name, 15):<16}" + "".join(
            f" {format_fixed(term)}" for term in terms
        )
        if name == self.best:
            return line
        gap, after = self.log[name], self.refinement[name]
        shown = f"{gap.mean:+.4f} ± {gap.standard_error:.4f}"
        return f"{line}{shown:>18}{after.mean:>+14.4f}"


@check_keywords()
def compare_models(
    y_true: Any,
    predictions: Mapping[str, Any],
    *,
    logits: bool = False,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
    names: Sequence[Any] | None = None,
    by: Any = None,
    calibrator: Any = "temperature",
    n_threads: int | None = None,
) -> Comparison:
    """Evaluate several models on the same rows, with standard errors of their differences.

    Parameters
    ----------
    y_true, sample_weight, classes, names, by, calibrator, n_threads
        As for :func:`evaluate`.
    predictions : mapping of str to array-like
        By model, probabilities of the same rows in the same order.
    logits : bool, default False
        Whether they are logits.

    Returns
    -------
    Comparison
        With ``evaluations``, ``ranking``, ``best``, differences to the best, and ``verdict``.

    Examples
    --------
    >>> from refinecal.evaluation import compare_models
    >>> found = compare_models([0, 1, 1, 0], {"sure": [0.1, 0.9, 0.8, 0.1], "coin": [0.5] * 4})
    >>> found.ranking
    ('sure', 'coin')
    >>> found.log["coin"].mean > 0
    True
    """
    threads = check_threads(n_threads)
    _check_models(predictions)
    samples = {}
    for name, given in predictions.items():
        probs, odds = (None, given) if logits else (given, None)
        try:
            samples[name] = check_sample(
                y_true, probs, odds, sample_weight, classes, threads=threads
            )
        except (TypeError, ValueError) as error:
            raise type(error)(f"predictions[{name!r}]: {error}") from error
        if category_order(y_true) is not None:
            y_true = to_numpy(y_true, "y_true")  # warn about its order once
    _check_same(samples)
    titles = check_titles(names, next(iter(samples.values())))
    groups = {} if by is None else check_groups(by, next(iter(samples.values())).n)
    whole = _compare(samples, titles, calibrator, threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # warned for all rows
        for name, rows in groups.items():
            part = {model: one.take(rows) for model, one in samples.items()}
            if next(iter(part.values())).total > 0:
                whole.groups[name] = _compare(part, titles, calibrator, threads)
    return whole


def _compare(
    samples: Mapping[str, Sample], titles: tuple[Any, ...], calibrator: Any, threads: int
) -> Comparison:
    evaluations, rows = {}, {}
    for name, one in samples.items():
        evaluations[name], fitted = evaluate_sample(one, titles, calibrator, threads)
        rows[name] = _row_losses(one, evaluations[name], fitted, threads)
    losses = {name: (each.log.risk, each.brier.risk) for name, each in evaluations.items()}
    ranking = tuple(sorted(samples, key=losses.__getitem__))  # Brier if log losses are infinite
    weights, best = samples[ranking[0]].weights, rows[ranking[0]]

    differences: Any = {
        kind: {name: paired_difference(rows[name][kind], best[kind], weights) for name in ranking}
        for kind in KINDS
    }
    return Comparison(evaluations, ranking, **differences)


def _row_losses(
    sample: Sample, found: Evaluation, fitted: Calibrator, threads: int
) -> dict[str, Floats]:
    """Return the losses of each row before and after calibration, by ``KINDS``."""
    rows: dict[str, Floats] = {}
    for kind, after, parts in (
        ("log", "refinement", found.log),
        ("brier", "brier_refinement", found.brier),
    ):
        loss = get_loss(kind)
        rows[kind] = rows[after] = losses_at(sample, 1.0, loss, threads)
        if parts.refinement != parts.risk:  # else no calibration helped
            rows[after] = fitted._losses_in_sample(sample, loss, threads)
    return rows


# ---- arguments ---------------------------------------------------------------------------------------------


def _check_models(predictions: Any) -> None:
    if not isinstance(predictions, Mapping):
        raise TypeError(
            f"predictions is {type(predictions).__name__}: pass a mapping from the name of each model to "
            "its predictions, such as {'forest': probs_a, 'boosting': probs_b}"
        )
    if len(predictions) < 2:
        raise ValueError(
            f"predictions has {len(predictions)} models: pass at least two, or use evaluate for one"
        )
    for name in predictions:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"predictions has a model called {name!r}: its name must be a string")


def _check_same(samples: Mapping[str, Sample]) -> None:
    """Raise if models do not predict the same classes in the same order."""
    (first, one), *others = samples.items()
    for name, other in others:
        if other.k != one.k:
            raise ValueError(
                f"predictions[{name!r}] has {other.k} classes, but {first!r} has "
                f"{one.k}: compare models of the same classes"
            )
        labels = [None if each.classes is None else each.classes.tolist() for each in (one, other)]
        if labels[0] != labels[1]:
            raise ValueError(
                f"predictions[{name!r}] has its classes in a different order than {first!r}: pass classes=, "
                "the label of each column in order"
            )
