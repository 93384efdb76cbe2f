"""Choose an ensemble among the predictions of several models, by the refinement of its pool."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.checks import check_keywords, check_whole
from refinecal._core.errors import fail_choice
from refinecal.calibrators.base import as_calibrator
from refinecal.ensembles.choosing import Trial, row_losses, try_kind
from refinecal.ensembles.greedy import (
    RAW,
    Kind,
    Pick,
    Pool,
    Stack,
    from_tiles,
    pick_members,
    value_of_pool,
)
from refinecal.ensembles.members import Members, read_members
from refinecal.ensembles.selected import SelectedEnsemble
from refinecal.evaluation import Difference, paired_difference
from refinecal.metrics import Metric, get_metric

__all__ = ["SelectedEnsemble", "select_ensemble"]

POOLS = ("arithmetic", "geometric")
TREATMENTS = ("raw", "calibrated")


@check_keywords()
def select_ensemble(
    y_val: Any,
    stack: Any = None,
    *,
    logits: Any = None,
    metric: Any = "refinement",
    pool: Literal["auto", "arithmetic", "geometric"] = "auto",
    members: Literal["auto", "raw", "calibrated"] = "auto",
    max_picks: int = 25,
    n_bags: int = 1,
    cv: int | None = 5,
    calibrator: Any = "temperature",
    sample_weight: Any = None,
    groups: Any = None,
    classes: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    random_state: int = 0,
) -> SelectedEnsemble:
    """Choose an ensemble of models from their predictions for the same rows, and calibrate it.

    Members are picked one after the other, with replacement, each time the one that makes the pool best
    (Caruana et al. 2004); by default by the refinement of the pool, its log loss after temperature scaling.
    So a member is judged by what it tells, not by its calibration.

    Parameters
    ----------
    y_val : array-like
        The labels.
    stack, logits : array-like ``(m, n, k)`` or ``(m, n)``, mapping, or iterable
        Probabilities, or else logits, of each of m models: an array, a mapping from names to predictions, or
        an iterable of predictions.
    metric : str, callable or Metric, default "refinement"
        What to optimize, as for :class:`RefinementMonitor`.
    pool : {"auto", "arithmetic", "geometric"}
        Take the mean of probabilities or of log-probabilities; by default chosen by cross-validation.
    members : {"auto", "raw", "calibrated"}
        Whether each member is calibrated by a temperature first; by default chosen by cross-validation.
    max_picks : int, default 25
        The largest number of picks; how many are used is chosen by cross-validation.
    n_bags : int, default 1
        Average over so many selections, each on a bootstrap sample of the rows.
    cv : int or None, default 5
        The number of folds. ``None``: no cross-validation; then the defaults are an arithmetic pool of raw
        members, and as many picks as are best on the given rows.
    calibrator : str or calibrator, default "temperature"
        Of the pool.
    sample_weight : array-like, optional
        Sample weights (frequency weights).
    groups : array-like, optional
        The group of each row; folds never split one.
    classes : array-like, optional
        The label of each column.
    names : sequence of str, optional
        The name of each member.
    random_state : int, default 0
        Of folds and bags.

    Returns
    -------
    SelectedEnsemble
        With ``weights``, ``path``, ``calibrator``, ``gain``, ``predict_proba``, ``save``; prints as a table.

    References
    ----------
    Caruana et al. (2004), Ensemble selection from libraries of models.

    Examples
    --------
    >>> import numpy as np
    >>> import refinecal as rc
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(2, size=1000)
    >>> good, also, noise = ((2 * y - 1) * s + rng.normal(size=1000) for s in (0.7, 0.7, 0.0))
    >>> chosen = rc.select_ensemble(y, logits={"a": 5 * good, "b": also, "noise": noise})
    >>> chosen.weights.round(1)
    array([0.5, 0.5, 0. ])
    """
    for name, value, known in (("pool", pool, POOLS), ("members", members, TREATMENTS)):
        if value not in ("auto", *known):
            fail_choice(name, value, ["auto", *known])
    most, n_bags = check_whole("max_picks", max_picks), check_whole("n_bags", n_bags)
    n_folds = 0 if cv is None else check_whole("cv", cv, 2, ", or None")
    chosen, fitted = get_metric(metric), as_calibrator(calibrator)
    found = read_members(
        y_val,
        stack,
        logits,
        sample_weight=sample_weight,
        groups=groups,
        classes=classes,
        names=names,
    )
    rows = Stack(found, n_folds, random_state)
    kinds = [
        Kind(each, treatment)
        for each in (POOLS if pool == "auto" else (pool,))
        for treatment in (TREATMENTS if members == "auto" else (members,))
    ]
    choice = _choose(rows, kinds, chosen, most)
    return _finish(rows, choice, chosen, fitted, n_bags, random_state)


class _Choice:
    """The kind of pool and the number of picks; 0 picks for the uniform average."""

    def __init__(self, kind: Kind, n_picks: int, most: int, trials: list[Trial]) -> None:
        self.kind, self.n_picks, self.most, self.trials = kind, n_picks, most, trials

    @property
    def trial(self) -> Trial | None:
        return next((trial for trial in self.trials if trial.kind == self.kind), None)


def _choose(rows: Stack, kinds: list[Kind], metric: Metric, most: int) -> _Choice:
    if rows.m == 1:
        return _Choice(kinds[0], 1, 1, [])
    if rows.n_folds < 2:
        return _Choice(kinds[0], most if rows.n > 1 else 1, most, [])
    trials = [try_kind(rows, kind, metric, most) for kind in kinds]
    best: tuple[float, Kind, int] | None = None
    for trial in trials:
        for picks, value in zip([*range(1, most + 1), 0], trial.values.tolist(), strict=True):
            if best is None or metric.better(value, best[0]):
                best = value, trial.kind, picks
    assert best is not None
    return _Choice(best[1], best[2], most, trials)


def _finish(
    rows: Stack, choice: _Choice, metric: Metric, calibrator: Any, n_bags: int, seed: int
) -> SelectedEnsemble:
    """Pick members on all rows, and calibrate their pool."""
    kind, given = choice.kind, rows.members
    pool = rows.pool(kind, None)
    picks = pick_members(pool, metric, choice.most)
    weights, what = _weigh(pool, picks, choice, metric, n_bags, seed)
    what = "best single" if np.count_nonzero(weights) == 1 else what
    logits = np.empty((rows.n, rows.k))
    logits[rows.order] = pool.logits(pool.weighted(weights), 1)
    fitted = calibrator.fit_logits(logits, given.y, given.weights, classes=given.classes)
    path = _path(given, picks, choice.trial)
    return SelectedEnsemble(
        names=given.names,
        weights=weights,
        pool=kind.pool,
        members=kind.members,
        betas=rows.alone(None)[1] if kind.members == "calibrated" else np.ones(rows.m),
        smoothing=given.smoothing,
        calibrator=fitted,
        classes=given.classes,
        metric=metric.name,
        path=path,
        choice=what,
        best_single=given.names[picks[0].member],
        gain=_gain(pool, weights, picks[0].member, choice),
        kinds=[_summary(trial, metric) for trial in choice.trials],
        table=_table(rows, weights),
    )


def _weigh(
    pool: Pool, picks: list[Pick], choice: _Choice, metric: Metric, n_bags: int, seed: int
) -> tuple[NDArray[np.float64], str]:
    """Return the weight of each member, and whether the choice is greedy, the best single, or uniform.

    On its own rows the ensemble is never worse than the best member.
    """
    m = pool.stack.m
    if choice.n_picks == 0:
        weights, what = np.full(m, 1 / m), "uniform"
    elif n_bags > 1 and choice.n_picks > 1:
        rng = np.random.default_rng(seed)
        bags = [pick_members(pool.draw(rng), metric, choice.n_picks) for _ in range(n_bags)]
        weights, what = np.mean([_count(own, m) for own in bags], axis=0), "bagged"
    else:
        return _count(_best_start(picks[: choice.n_picks], metric), m), "greedy"
    if metric.better(picks[0].value, value_of_pool(pool, weights, metric)):
        return _count(_best_start(picks[: max(choice.n_picks, 1)], metric), m), "greedy"
    return weights, what


def _count(picks: list[Pick], m: int) -> NDArray[np.float64]:
    return np.bincount([pick.member for pick in picks], minlength=m) / len(picks)


def _best_start(picks: list[Pick], metric: Metric) -> list[Pick]:
    """Return the picks up to the best value."""
    best = 0
    for place, pick in enumerate(picks):
        if metric.better(pick.value, picks[best].value):
            best = place
    return picks[: best + 1]


def _path(members: Members, picks: list[Pick], trial: Trial | None) -> list[dict[str, Any]]:
    values = [np.nan] * len(picks) if trial is None else trial.values[:-1].tolist()
    return [
        {"member": members.names[pick.member], "value": pick.value, "cv_value": value}
        for pick, value in zip(picks, values, strict=True)
    ]


def _summary(trial: Trial, metric: Metric) -> dict[str, Any]:
    values = trial.values
    best = np.nanmax(values) if metric.greater_is_better else np.nanmin(values)
    return {"pool": trial.kind.pool, "members": trial.kind.members, "cv_value": float(best)}


def _gain(pool: Pool, weights: NDArray[np.float64], best: int, choice: _Choice) -> Difference:
    """Return the log loss of the ensemble minus that of the best member, by cross-validation if there is."""
    stack = pool.stack
    each = from_tiles(stack.weights, stack.n)
    groups = None if stack.members.groups is None else stack.members.groups[stack.order]
    if choice.trial is not None:
        losses = choice.trial.losses[choice.n_picks - 1]
        return paired_difference(losses, choice.trial.losses[0], each, groups)
    parts = []
    for own in (weights, np.arange(stack.m) == best):
        total = pool.weighted(own.astype(float))
        beta = pool.fit(total, 1)[1]
        parts.append(row_losses(pool, total, 1, beta, np.arange(stack.n)))
    return paired_difference(parts[0], parts[1], each, groups)


def _table(rows: Stack, weights: NDArray[np.float64]) -> list[dict[str, Any]]:
    pool = rows.pool(RAW, None)
    points = pool.reader(pool.empty(), 1).points(np.ones(rows.m))
    each = zip(
        rows.members.names, rows.alone(None)[0].tolist(), points, weights.tolist(), strict=True
    )
    table = [
        {"member": name, "refinement": refinement, "log_loss": point.loss, "weight": weight}
        for name, refinement, point, weight in each
    ]
    return sorted(table, key=lambda row: row["refinement"])
