"""Several models on the same rows, side by side."""

from __future__ import annotations  # so that help() shows types by name

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import category_order, check_threads, to_numpy
from refinecal._core.checks import check_keywords, check_sample
from refinecal._core.format import format_fixed, shorten_name
from refinecal._core.sample import Sample
from refinecal.calibrators.base import Calibrator
from refinecal.decomposition import Decomposition
from refinecal.evaluation._paired import Difference, paired_difference
from refinecal.evaluation._single import check_groups, check_titles, evaluate_sample
from refinecal.evaluation._summary import Evaluation
from refinecal.losses import get_loss
from refinecal.resampling import losses_at

Floats = NDArray[np.float64]
KINDS = ("log", "brier", "refinement", "brier_refinement")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several models on the same rows.

    Attributes
    ----------
    evaluations : dict of str to Evaluation
        By model, in the order given.
    ranking : tuple of str
        The models, the lowest log loss first.
    log, brier : dict of str to Difference
        By model, loss minus that of the best, row by row.
    refinement, brier_refinement : dict of str to Difference
        The same after each model's own calibration; negative if calibrating puts the model ahead.
    groups : dict of str to Comparison
        The same for each subgroup.
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
        """What the differences say, in a sentence or two."""
        return _verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON; what is not finite is ``None``."""
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
            f"{'above the best':>18}{'calibrated':>14}",
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
    """Evaluate several models on the same rows, and say how sure the differences are.

    Parameters
    ----------
    y_true, sample_weight, classes, names, by, calibrator, n_threads
        As for :func:`evaluate`.
    predictions : mapping of str to array-like
        By model, probabilities of the same rows in the same order.
    logits : bool, default False
        They are logits.

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
            y_true = to_numpy(y_true, "y_true")  # whose order has been warned of: once is enough
    _check_same(samples)
    titles = check_titles(names, next(iter(samples.values())))
    groups = {} if by is None else check_groups(by, next(iter(samples.values())).n)
    whole = _compare(samples, titles, calibrator, threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # said once, of all rows
        for name, rows in groups.items():
            part = {model: one.take(rows) for model, one in samples.items()}
            if next(iter(part.values())).total > 0:
                whole.groups[name] = _compare(part, titles, calibrator, threads)
    return whole


class _Rows(NamedTuple):
    """The loss of each row of one model."""

    log: Floats
    brier: Floats
    refinement: Floats
    brier_refinement: Floats


def _compare(
    samples: Mapping[str, Sample], titles: tuple[Any, ...], calibrator: Any, threads: int
) -> Comparison:
    evaluations, rows = {}, {}
    for name, one in samples.items():
        evaluations[name], fitted = evaluate_sample(one, titles, calibrator, threads)
        rows[name] = _rows_of(one, evaluations[name], fitted, threads)
    losses = {name: (each.log.risk, each.brier.risk) for name, each in evaluations.items()}
    ranking = tuple(sorted(samples, key=losses.__getitem__))  # Brier if log losses are infinite
    weights, best = samples[ranking[0]].weights, rows[ranking[0]]

    def above_best(kind: str) -> dict[str, Difference]:
        reference = getattr(best, kind)
        return {
            name: paired_difference(getattr(rows[name], kind), reference, weights)
            for name in ranking
        }

    return Comparison(evaluations, ranking, **{kind: above_best(kind) for kind in KINDS})  # type: ignore[arg-type]


def _rows_of(sample: Sample, found: Evaluation, fitted: Calibrator, threads: int) -> _Rows:
    """Return the losses of each row, and those whose means are the refinement errors."""
    losses = get_loss("log"), get_loss("brier")
    log, brier = (losses_at(sample, 1.0, loss, threads) for loss in losses)
    log_after, brier_after = (fitted._losses_in_sample(sample, loss, threads) for loss in losses)
    return _Rows(
        log,
        brier,
        log if _is_best_as_is(found.log) else log_after,
        brier if _is_best_as_is(found.brier) else brier_after,
    )


def _is_best_as_is(parts: Decomposition) -> bool:
    """Tell whether no calibration was found to help, so that the refinement is the risk."""
    return parts.refinement == parts.risk


# ---- arguments and words -----------------------------------------------------------------------------------


def _check_models(predictions: Any) -> None:
    if not isinstance(predictions, Mapping):
        raise TypeError(
            f"predictions is {type(predictions).__name__}: pass a mapping from the name of each model to "
            "its predictions, such as {'forest': probs_a, 'boosting': probs_b}"
        )
    if len(predictions) < 2:
        raise ValueError(
            f"predictions has {len(predictions)} models: it takes two to compare; evaluate takes one"
        )
    for name in predictions:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"predictions has a model called {name!r}: its name must be a text")


def _check_same(samples: Mapping[str, Sample]) -> None:
    """Refuse models that do not predict the same classes; their rows and labels are those of y_true."""
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
                f"predictions[{name!r}] has its classes in another order than {first!r}: pass classes=, "
                "the label of each column in order"
            )


def _verdict(found: Comparison) -> str:
    second = found.ranking[1]
    gap = found.log[second]
    if not math.isfinite(gap.mean):
        return f"{found.best!r} is best; the others call something impossible that happened."
    if gap.is_sure:
        text = f"{found.best!r} is better than {second!r} by more than chance would explain."
    else:
        text = f"{found.best!r} and {second!r} are too close to tell on these rows."
    after = min(found.ranking, key=lambda name: found.evaluations[name].log.refinement)
    if after == found.best:
        return text
    ahead = found.refinement[after]
    sure = "" if ahead.is_sure else ", though not surely"
    return f"{text} After calibration {after!r} would be best{sure}."
