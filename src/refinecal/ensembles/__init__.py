"""Choose an ensemble among the predictions of several models, by the refinement of its pool."""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal._core.checks import check_keywords, check_whole
from refinecal._core.errors import fail_choice
from refinecal.calibrators.base import as_calibrator
from refinecal.ensembles.choosing import Choice, Trial, choose, losses_held_out, row_losses
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
from refinecal.ensembles.selected import POOLS, TREATMENTS, SelectedEnsemble
from refinecal.evaluation import Difference, paired_difference
from refinecal.metrics import Metric, get_metric

__all__ = ["SelectedEnsemble", "select_ensemble"]


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
    y_val : array-like or None
        The labels; ``None`` if files hold them.
    stack, logits : array-like ``(m, n, k)`` or ``(m, n)``, mapping, iterable, or files
        Probabilities, or else logits, of each of m models: an array, a mapping from names to predictions, an
        iterable of predictions; or a folder, a pattern or a list of files as for :func:`post_mortem`, each
        with one model, or all of them (named by an array ``models``). Only files whose names of arrays or
        columns do not say so need be passed as logits.
    metric : str, callable or Metric, default "refinement"
        What to optimize, as for :class:`RefinementMonitor`.
    pool : {"auto", "arithmetic", "geometric"}
        Take the mean of probabilities or of log-probabilities; by default chosen by cross-validation.
    members : {"auto", "raw", "calibrated"}
        Whether each member is calibrated by a temperature first; by default chosen by cross-validation.
    max_picks : int, default 25
        The largest number of picks; how many are used is chosen by cross-validation.
    n_bags : int, default 1
        Average over so many selections, each on a bootstrap sample of the rows. The numbers by
        cross-validation are those of a single one.
    cv : int or None, default 5
        The number of folds. ``None``: no cross-validation; then the defaults are an arithmetic pool of raw
        members, and as many picks as are best on the given rows.
    calibrator : str or calibrator, default "temperature"
        Of the pool, for ``predict_proba``. ``log_loss`` and ``gain`` are after temperature scaling.
    sample_weight : array-like, optional
        Sample weights (frequency weights).
    groups : array-like, optional
        The group of each row, none missing; folds never split one.
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
    >>> chosen.weights > 0
    array([ True,  True, False])
    """
    for name, value, known in (("pool", pool, POOLS), ("members", members, TREATMENTS)):
        if value not in ("auto", *known):
            fail_choice(name, value, ["auto", *known])
    most, n_bags = check_whole("max_picks", max_picks), check_whole("n_bags", n_bags)
    n_folds = 0 if cv is None else check_whole("cv", cv, 2, ", or None")
    seed = check_whole("random_state", random_state, 0)
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
    rows = Stack(found, n_folds, seed)
    kinds = [
        Kind(each, treatment)
        for each in (POOLS if pool == "auto" else (pool,))
        for treatment in (TREATMENTS if members == "auto" else (members,))
    ]
    choice = choose(rows, kinds, chosen, most)
    return _finish(rows, choice, chosen, fitted, n_bags, seed)


def _finish(
    rows: Stack, choice: Choice, metric: Metric, calibrator: Any, n_bags: int, seed: int
) -> SelectedEnsemble:
    """Pick members on all rows, and calibrate their pool."""
    kind, given = choice.kind, rows.members
    pool = rows.pool(kind, None)
    picks = pick_members(pool, metric, choice.most)
    if np.isnan(picks[0].value):
        one = len(np.unique(given.labels)) == 1
        why = "all rows have the same label" if one else "it returned NaN for every member"
        raise ValueError(
            f"metric {metric.name!r} cannot choose members: {why}. Pass rows for which it is a number, or "
            "another metric"
        )
    weights, what, n_used = _weigh(pool, picks, choice, metric, n_bags, seed)
    what = "best single" if weights[picks[0].member] == 1 else what
    log_loss, gain = _compare(pool, weights, picks[0].member, what, choice, metric)
    logits = np.empty((rows.n, rows.k))
    logits[rows.order] = pool.logits(pool.weighted(weights), 1)
    fitted = calibrator.fit_logits(logits, given.y, given.weights, classes=given.classes)
    trial = choice.trial
    path = _path(given, picks, n_used, None if trial is None else trial.mean())
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
        log_loss=log_loss,
        gain=gain,
        kinds=[_summary(trial, metric) for trial in choice.trials],
        table=_table(rows, weights),
        columns=given.columns if any(given.columns) else [],
    )


def _weigh(
    pool: Pool, picks: list[Pick], choice: Choice, metric: Metric, n_bags: int, seed: int
) -> tuple[NDArray[np.float64], str, int]:
    """Return the weight of each member, whether they are uniform, greedy or bagged, and the picks used.

    What cross-validation chose is taken as it is, though another may be better on the rows that pick. Only
    without it, these rows decide; then the ensemble is never worse on them than the best member.
    """
    m = pool.stack.m
    if choice.n_picks == 0:
        return np.full(m, 1 / m), "uniform", 0
    used = picks[: choice.n_picks]
    if not choice.trials:
        used = _best_start(used, metric)
    if n_bags > 1 and choice.n_picks > 1:
        rng = np.random.default_rng(seed)
        bags = [pick_members(pool.draw(rng), metric, choice.n_picks) for _ in range(n_bags)]
        weights = np.mean([_count(own, m) for own in bags], axis=0)
        if choice.trials or not metric.better(picks[0].value, value_of_pool(pool, weights, metric)):
            return weights, "bagged", 0
    return _count(used, m), "greedy", len(used)


def _count(picks: list[Pick], m: int) -> NDArray[np.float64]:
    return np.bincount([pick.member for pick in picks], minlength=m) / len(picks)


def _best_start(picks: list[Pick], metric: Metric) -> list[Pick]:
    """Return the picks up to the best value."""
    best = 0
    for place, pick in enumerate(picks):
        if metric.better(pick.value, picks[best].value):
            best = place
    return picks[: best + 1]


def _path(
    members: Members, picks: list[Pick], n_used: int, cv_values: NDArray[np.float64] | None
) -> list[dict[str, Any]]:
    values = [np.nan] * len(picks) if cv_values is None else cv_values[:-1].tolist()
    return [
        {
            "member": members.names[pick.member],
            "value": pick.value,
            "cv_value": value,
            "used": place < n_used,
        }
        for place, (pick, value) in enumerate(zip(picks, values, strict=True))
    ]


def _summary(trial: Trial, metric: Metric) -> dict[str, Any]:
    best = (np.fmax if metric.greater_is_better else np.fmin).reduce(trial.mean())  # ignores NaN
    return {"pool": trial.kind.pool, "members": trial.kind.members, "cv_value": float(best)}


def _compare(
    pool: Pool,
    weights: NDArray[np.float64],
    best: int,
    what: str,
    choice: Choice,
    metric: Metric,
) -> tuple[float, Difference]:
    """Return the log loss of the ensemble, and minus that of the best member, if possible cross-validated."""
    stack = pool.stack
    each = from_tiles(stack.weights, stack.n).astype(np.float64)
    if choice.trials:
        ours, theirs = losses_held_out(stack, choice.trials, metric)
        ours = theirs if what == "best single" else ours
    else:
        alone = np.arange(stack.m) == best
        ours, theirs = (_losses_in_sample(pool, own) for own in (weights, alone.astype(float)))
    return float(np.average(ours, weights=each)), paired_difference(
        ours, theirs, each, stack.units[stack.order]
    )


def _losses_in_sample(pool: Pool, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    total = pool.weighted(weights)
    return row_losses(pool, total, 1, pool.fit(total, 1)[1], np.arange(pool.stack.n))


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
