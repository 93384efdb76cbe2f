"""Evaluate the predictions of one model."""

from __future__ import annotations  # so that help() shows types by name

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.arrays import check_threads, is_missing, to_numpy
from refinecal._core.checks import check_keywords, check_sample
from refinecal._core.sample import Sample
from refinecal.calibrators.base import Calibrator, as_calibrator
from refinecal.decomposition import Decomposition
from refinecal.evaluation._summary import ClassSummary, Evaluation
from refinecal.losses import get_loss
from refinecal.metrics.bins import confidence_parts
from refinecal.metrics.events import Event
from refinecal.metrics.smoothing import smooth_ece_of
from refinecal.metrics.tally import Tally, areas_of, mean_area, tally

MOST_GROUPS = 1000
MISSING = "(missing)"


@check_keywords()
def evaluate(
    y_true: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    sample_weight: Any = None,
    classes: ArrayLike | None = None,
    names: Sequence[Any] | None = None,
    by: Any = None,
    calibrator: Any = "temperature",
    n_threads: int | None = None,
) -> Evaluation:
    """Return all metrics of a model's predictions, also by class and by group.

    Parameters
    ----------
    y_true, probs, logits, sample_weight, classes
        As for :func:`refinecal.decompose`.
    names : sequence, optional
        The name of each class, in the order of the columns; by default the labels.
    by : array-like, optional
        The group of each row, to evaluate each group separately.
    calibrator : str or an object with ``fit`` and ``predict_proba``
        As for :func:`refinecal.decompose`. Fitted once, by log loss, for both losses.
    n_threads : int, optional
        As for :func:`refinecal.fit_temperature`.

    Returns
    -------
    Evaluation
        With ``log``, ``brier``, ``beta``, ``accuracy``, ``auroc``, ``ece``, ``smooth_ece``, ``per_class``,
        ``groups``, a readable ``repr`` and ``to_dict()``.

    Notes
    -----
    Losses are computed after dividing each row by its sum; other metrics use the probabilities as given.

    Examples
    --------
    >>> from refinecal.evaluation import evaluate
    >>> found = evaluate([0, 1, 1, 1], [0.2, 0.9, 0.6, 0.4], by=["a", "a", "b", "b"])
    >>> found.accuracy, found.auroc
    (0.75, 1.0)
    >>> {name: group.accuracy for name, group in found.groups.items()}
    {'a': 1.0, 'b': 0.5}
    """
    threads = check_threads(n_threads)
    sample = check_sample(y_true, probs, logits, sample_weight, classes, threads=threads)
    titles = check_titles(names, sample)
    groups = {} if by is None else check_groups(by, sample.n)
    whole = evaluate_sample(sample, titles, calibrator, threads)[0]
    if not groups:
        return whole
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # warned for all rows
        for name, rows in groups.items():
            part = sample.take(rows)
            if part.total > 0:
                found[name] = evaluate_sample(part, titles, calibrator, threads)[0]
    return replace(whole, groups=found)


def evaluate_sample(
    sample: Sample, titles: tuple[Any, ...], calibrator: Any, threads: int
) -> tuple[Evaluation, Calibrator]:
    """Return the evaluation of checked predictions, and the fitted calibrator."""
    sums, k, n = tally(sample, threads), sample.k, sample.n
    fitted = as_calibrator(calibrator)
    log, brier = _decompositions(sample, sums, fitted, threads)
    areas = areas_of(sample, threads, sums)
    errors = np.abs(sums.bins - sums.hits).sum(axis=1) / sums.total
    over, under = confidence_parts(sums.events, binary=k == 2)
    share = sums.weights / sums.weights.sum()
    found = Evaluation(
        n=n,
        k=k,
        classes=titles,
        log=log,
        brier=brier,
        accuracy=float(sums.right.sum() / sums.total),
        auroc=mean_area(areas),
        ece=over + under,
        overconfidence=over,
        underconfidence=under,
        smooth_ece=smooth_ece_of(Event(sums.scores, sums.happened, sums.weights)),
        per_class=_per_class(
            sample, sums, titles, areas, errors, _refine(sample, sums, fitted, threads)
        ),
        n_effective=float(1 / (share @ share)) if share.size else n,
    )
    return found, fitted


def _decompositions(
    sample: Sample, sums: Tally, fitted: Calibrator, threads: int
) -> tuple[Decomposition, Decomposition]:
    """Return the decompositions of both losses, fitting the calibrator once."""
    fitted._warn_if_infinite(float(sums.log.sum() / sums.total), sample)
    fitted._fit_sample(sample, threads)
    found = getattr(fitted, "user", fitted)
    terms = []
    for name, total in (("log", sums.log.sum()), ("brier", sums.brier.sum())):
        loss, risk = get_loss(name), float(total / sums.total)
        refinement = min(fitted._loss_in_sample(sample, loss, threads), risk)
        uncertainty = float(loss.entropy(sample.frequencies))
        terms.append(Decomposition(risk, refinement, uncertainty, found, name, sample.n, sample.k))
    return terms[0], terms[1]


def _refine(sample: Sample, sums: Tally, fitted: Calibrator, threads: int) -> NDArray[np.float64]:
    """Return the sum of the log losses of each class after calibration, unless it raises the loss."""
    rows = sample.expand_soft_labels()
    losses = fitted._losses_in_sample(rows, get_loss("log"), threads)
    if rows.weights is not None:
        losses = np.where(rows.weights > 0, losses, 0.0) * rows.weights
    after = np.bincount(rows.labels, losses, minlength=sample.k)
    return np.asarray(after if after.sum() <= sums.log.sum() else sums.log, np.float64)


def _per_class(
    sample: Sample,
    sums: Tally,
    titles: tuple[Any, ...],
    areas: NDArray[np.float64],
    errors: NDArray[np.float64],
    after: NDArray[np.float64],
) -> tuple[ClassSummary, ...]:
    counts = np.bincount(sample.labels, minlength=sample.k)
    with np.errstate(invalid="ignore"):  # a class without rows has no recall and no loss
        recall, loss, refined = (each / sums.mass for each in (sums.right, sums.log, after))
    columns = (
        *(counts, sums.mass / sums.total, sums.bins.sum(axis=1) / sums.total),
        *(recall, areas, errors, loss, refined),
    )
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(ClassSummary(title, *row) for title, row in zip(titles, numbers, strict=True))


# ---- arguments -------------------------------------------------------------------------------------------


def check_titles(names: Sequence[Any] | None, sample: Sample) -> tuple[Any, ...]:
    """Return the names of the classes."""
    if names is None:
        return tuple(range(sample.k) if sample.classes is None else sample.classes.tolist())
    titles = tuple(names)
    if len(titles) != sample.k:
        raise ValueError(f"names has {len(titles)} names, but there are {sample.k} classes")
    return titles


def check_groups(by: Any, n: int) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each group, sorted by value; missing values are a group."""
    values = to_numpy(by, "by")
    if values.shape not in ((n,), (n, 1)):
        raise ValueError(
            f"by has shape {values.shape}, but there are {n} rows: pass one value per row, ({n},)"
        )
    values = values.reshape(-1)
    found, codes = _distinct(values)
    if len(found) > MOST_GROUPS:
        raise ValueError(
            f"by has {len(found)} different values, such as {found[0]!r}, but at most {MOST_GROUPS} groups "
            "are allowed: bin the values first"
        )
    rows = np.argsort(codes, kind="stable")
    cuts = np.cumsum(np.bincount(codes, minlength=len(found)))[:-1]
    return dict(zip(found, np.split(rows, cuts), strict=True))


def _distinct(values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct values as sorted strings, and the index of each row's value."""
    if values.dtype.kind == "O":
        listed = values.tolist()
        places: dict[Any, int] = {}
        codes = np.array(
            [places.setdefault(None if is_missing(v) else v, len(places)) for v in listed]
        )
        found = list(places)
    else:
        unique, codes = np.unique(values, return_inverse=True)
        found = [None if is_missing(v) else v for v in unique.tolist()]
    texts = [_to_text(value) for value in found]
    order = sorted(range(len(found)), key=lambda i: _sort_key(found[i]))
    names: dict[str, int] = {}  # values with the same text are one group
    target = np.empty(len(found), np.int64)
    for i in order:
        target[i] = names.setdefault(texts[i], len(names))
    return list(names), target[codes.reshape(-1)]


def _to_text(value: Any) -> str:
    if value is None:
        return MISSING
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _sort_key(value: Any) -> tuple[int, float, str]:
    """Sort numbers first, also numbers as text, then other text, then missing values."""
    if value is None:
        return 2, 0.0, ""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    return (1, 0.0, str(value)) if math.isnan(number) else (0, number, str(value))
