"""Report refinement to Optuna at each step, prune, and store the best step in the trial."""

from __future__ import annotations  # so that help() shows types by name

import math
from collections.abc import Sequence
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from refinecal._core.arrays import to_numpy
from refinecal._core.checks import check_keywords
from refinecal._core.errors import needs_extra
from refinecal._core.files import atomic_write
from refinecal.calibrators.base import Calibrator
from refinecal.ensembles import SelectedEnsemble, select_ensemble
from refinecal.integrations._adapter import from_stored, to_stored
from refinecal.stopping import MonitorOptions, RefinementMonitor

with needs_extra("optuna", package="optuna"):
    import optuna

__all__ = ["TrialMonitor", "calibrator_of", "ensemble_of", "keep_predictions", "record_best"]


class TrialMonitor(RefinementMonitor):
    """A monitor for one trial: each update is reported to Optuna, which may prune the trial.

    The best step, its decomposition, beta and calibrator are stored in the trial's user attributes.

    Choosing among many trials favors those whose temperature fits the validation rows by chance; ``cv=5`` or
    ``cv="loo"`` measures refinement on rows that the temperature was not fitted to.

    Parameters
    ----------
    trial : optuna.Trial
        Of a study that minimizes, or that maximizes if ``metric`` is better when greater.
    patience : int, optional
        Sets ``should_stop`` after this many steps in a row without improvement; by default never.
    prune : bool, default True
        Whether Optuna's pruner may end the trial. Must be False if the study has several objectives.
    keep : path, optional
        A folder in which the predictions of the best step are kept, for :func:`ensemble_of`.
    **options
        Keywords of :class:`refinecal.RefinementMonitor`, such as ``metric`` or ``calibrator``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import SGDClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> def objective(trial):
    ...     alpha = trial.suggest_float("alpha", 1e-4, 1, log=True)
    ...     model = SGDClassifier(loss="log_loss", alpha=alpha, random_state=0)
    ...     monitor = TrialMonitor(trial, patience=3, cv=5)
    ...     while not monitor.should_stop:
    ...         model.partial_fit(X[::2], y[::2], classes=[0, 1, 2])
    ...         monitor.update(y[1::2], model.predict_proba(X[1::2]))
    ...     return monitor.finish()
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    >>> study.optimize(objective, n_trials=2)
    >>> study.best_value == study.best_trial.user_attrs["refinement"]
    True
    """

    @check_keywords(MonitorOptions)
    def __init__(
        self,
        trial: Any,
        patience: int | None = None,
        *,
        prune: bool = True,
        keep: str | PathLike[str] | None = None,
        **options: Unpack[MonitorOptions],
    ) -> None:
        super().__init__(patience=patience, **options)
        self.trial = trial
        self.prune = prune
        self.keep = keep
        self._kept: dict[str, Any] = {}  # the predictions of the best step
        self._reports = True  # whether the trial takes intermediate values
        study = getattr(trial, "study", None)  # a FixedTrial has none
        if study is None:
            return
        if len(study.directions) > 1:
            if prune:
                raise ValueError(
                    f"the study has {len(study.directions)} objectives, but Optuna prunes only with one: "
                    "pass TrialMonitor(trial, prune=False)"
                )
            self._reports = False
            return
        wanted = "maximize" if self.metric.greater_is_better else "minimize"
        found = study.direction.name.lower()
        if found != wanted:
            raise ValueError(
                f"the study has direction={found!r}, but {self.metric.name!r} must {wanted}: make it with "
                f"optuna.create_study(direction={wanted!r})"
            )

    def update(
        self,
        y_val: Any,
        probs: Any = None,
        *,
        logits: Any = None,
        step: int | None = None,
        sample_weight: Any = None,
    ) -> bool:
        """Add one step's predictions as :meth:`RefinementMonitor.update` does, and report their value.

        Raises
        ------
        optuna.TrialPruned
            If the pruner says so; leave it to Optuna. The best step so far has been stored in the trial.
        """
        best = super().update(y_val, probs, logits=logits, step=step, sample_weight=sample_weight)
        if best and self.keep is not None:
            given = {
                "y_val": y_val,
                "probs": probs,
                "logits": logits,
                "sample_weight": sample_weight,
            }
            self._kept = {  # copied: frameworks may reuse the memory
                name: np.array(to_numpy(array, name))
                for name, array in given.items()
                if array is not None
            }
        if self._reports:
            self.trial.report(self.history[-1][self.metric.name], self.last_step)
        if self.prune and self.trial.should_prune():
            if self.best is not None:
                self.finish()
            raise optuna.TrialPruned(f"pruned at step {self.last_step}")
        return best

    def finish(self) -> float:
        """Store the best step in the trial and return its value, for the objective to return."""
        if self.keep is not None and self._kept:
            keep_predictions(self.trial, self.keep, **self._kept)
        return record_best(self.trial, self)


def record_best(trial: Any, monitor: RefinementMonitor) -> float:
    """Store the best step of any monitor in a trial's user attributes; return its metric.

    For objectives that train with another integration: ``return record_best(trial, stopping.monitor)``.
    """
    best = monitor.best
    if best is None:
        if not monitor.history:
            raise ValueError(
                "the monitor has seen no step: call update with validation predictions first"
            )
        raise optuna.TrialPruned(f"{monitor.metric.name} was NaN at every step")
    trial.set_user_attr("best_step", best.step)
    for name, value in best.record.items():
        if name != "step" and not math.isnan(value):
            trial.set_user_attr(name, value)
    stored = to_stored(best.calibrator)
    if stored is not None:
        trial.set_user_attr("calibrator", stored)
    return best.value


def calibrator_of(trial: Any) -> Calibrator:
    """Return the calibrator of the best step of a trial, such as ``study.best_trial``."""
    return from_stored(
        trial.user_attrs.get("calibrator"),
        f"trial {trial.number} holds no calibrator: let its objective return the value of finish() or "
        "record_best(). Custom calibrators are not stored.",
    )


# ---- ensembles of trials -----------------------------------------------------------------------------------


def keep_predictions(
    trial: Any,
    folder: str | PathLike[str],
    y_val: Any,
    probs: Any = None,
    *,
    logits: Any = None,
    sample_weight: Any = None,
) -> None:
    """Write a trial's validation predictions to a folder, for :func:`ensemble_of`.

    :class:`TrialMonitor` does so with ``keep=``; this is for objectives that train otherwise. The file, such
    as ``trial_12_5f0c9a1e.npz``, has ``probs`` or ``logits`` and the labels, as :func:`refinecal.post_mortem`
    reads; its name has a hash of the study's name and the time at which the trial started, so that studies
    may share a folder.
    """
    if (probs is None) == (logits is None):
        raise TypeError("pass either probs or logits=")
    kind, values = ("probs", probs) if logits is None else ("logits", logits)
    labels = to_numpy(y_val, "y_val")
    labels = np.asarray(labels.tolist()) if labels.dtype.kind == "O" else labels
    arrays: dict[str, Any] = {kind: to_numpy(values, kind), "labels": labels}
    if sample_weight is not None:
        arrays["sample_weight"] = to_numpy(sample_weight, "sample_weight")
    Path(folder).mkdir(parents=True, exist_ok=True)
    study = getattr(getattr(trial, "study", None), "study_name", "")  # a FixedTrial has none
    identity = blake2b(f"{study} {trial.datetime_start}".encode(), digest_size=4).hexdigest()
    path = Path(folder).resolve() / f"trial_{trial.number}_{identity}.npz"
    with atomic_write(path) as part, part.open("wb") as file:
        np.savez(file, **arrays)
    trial.set_user_attr("predictions", str(path))


def ensemble_of(
    study: Any, *, names: Sequence[str] | None = None, **options: Any
) -> SelectedEnsemble:
    """Return an ensemble of the trials of a study whose predictions were kept.

    Parameters
    ----------
    study : optuna.Study
        Whose objective used ``TrialMonitor(trial, keep=folder)`` or :func:`keep_predictions`. Pruned trials
        count too: Optuna stops them because they are not the best, not because they add nothing.
    names : sequence of str, optional
        The name of each trial with kept predictions, in the order of the trials; by default "trial 12".
    **options
        Keywords of :func:`refinecal.select_ensemble`, such as ``metric`` or ``groups``.

    Returns
    -------
    SelectedEnsemble
        For new rows, pass ``predict_proba`` a mapping from the names with a positive weight to their
        predictions.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    >>> with TemporaryDirectory() as folder:
    ...     def objective(trial):
    ...         C = trial.suggest_float("C", 1e-3, 1e3, log=True)
    ...         model = LogisticRegression(C=C, max_iter=2000).fit(X[::2], y[::2])
    ...         monitor = TrialMonitor(trial, keep=folder)
    ...         monitor.update(y[1::2], model.predict_proba(X[1::2]))
    ...         return monitor.finish()
    ...     study.optimize(objective, n_trials=4)
    ...     chosen = ensemble_of(study)
    >>> chosen.names
    ('trial 0', 'trial 1', 'trial 2', 'trial 3')
    """
    paths = {
        f"trial {trial.number}": Path(trial.user_attrs["predictions"])
        for trial in study.trials
        if "predictions" in trial.user_attrs
    }
    if not paths:
        raise ValueError(
            "no trial of the study has kept its predictions: use TrialMonitor(trial, keep=folder), or "
            "keep_predictions(trial, folder, y_val, probs) in the objective"
        )
    gone = [str(path) for path in paths.values() if not path.exists()]
    if gone:
        raise FileNotFoundError(
            f"{gone[0]}, the predictions of a trial, is not there: it was moved or deleted since"
        )
    names = list(paths) if names is None else names
    return select_ensemble(None, list(paths.values()), names=names, **options)
