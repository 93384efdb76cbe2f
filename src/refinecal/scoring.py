"""Scorers for scikit-learn's searches: choose hyperparameters by refinement."""

from __future__ import annotations  # so that help() shows types by name

from copy import deepcopy
from typing import Any, Self, Unpack

import numpy as np

from refinecal._core.arrays import to_numpy
from refinecal._core.checks import check_keywords
from refinecal._core.errors import warn
from refinecal.stopping import MonitorOptions, RefinementMonitor
from refinecal.training.predictions import predictions_of, smooth_zeros

__all__ = ["RefinementScorer", "refinement_scorer"]


class RefinementScorer:
    """Score a fitted classifier by minus its refinement error, so that greater is better.

    Called as ``scorer(estimator, X, y, sample_weight=None)``. It uses ``decision_function`` where the model's
    probabilities are its softmax, else ``predict_proba``; ``method`` says which. Rows of a class that the
    model has not seen are dropped with a warning. Make one with :func:`refinement_scorer`.
    """

    def __init__(self, **options: Unpack[MonitorOptions]) -> None:
        self.options = options
        self._monitor = RefinementMonitor(**options)  # raises for wrong options now
        self._request: Any = None

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return minus the metric, or the metric itself if greater is better."""
        found = predictions_of(estimator, X)
        self.method = found.method
        labels = to_numpy(y, "y").reshape(-1)
        known = np.asarray(estimator.classes_)
        seen = np.isin(labels, known)
        if not seen.all():
            unseen = np.unique(labels[~seen]).tolist()
            if not seen.any():
                raise ValueError(f"y holds only {unseen}, which the estimator has not seen")
            warn(f"dropped {int((~seen).sum())} rows of {unseen}, which the estimator has not seen")
            labels, found = labels[seen], found._replace(values=found.values[seen])
            sample_weight = None if sample_weight is None else np.asarray(sample_weight)[seen]
        monitor = deepcopy(self._monitor)
        if monitor.classes is None:
            monitor.classes = known
        found, _ = smooth_zeros(found, labels, known)
        monitor.update(labels, **found.arguments, sample_weight=sample_weight)
        value = monitor.history[-1][monitor.metric.name]
        return value if monitor.metric.greater_is_better else -value

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"refinement_scorer({given})"

    # ---- scikit-learn's metadata routing -----------------------------------------------------------------

    def set_score_request(self, **requests: bool | str | None) -> Self:
        """Request metadata, with ``sample_weight=True``; return the scorer."""
        self._request = requests
        return self

    def get_metadata_routing(self) -> Any:
        """Return the requests of :meth:`set_score_request`."""
        from sklearn.utils.metadata_routing import MetadataRequest

        routing = MetadataRequest(owner=self)
        for name, alias in (self._request or {"sample_weight": None}).items():
            routing.score.add_request(param=name, alias=alias)
        return routing

    def _accept_sample_weight(self) -> bool:
        return True


@check_keywords(RefinementMonitor)
def refinement_scorer(**options: Unpack[MonitorOptions]) -> RefinementScorer:
    """Return a scorer for ``GridSearchCV(scoring=...)``, ``cross_val_score`` and Optuna objectives.

    Parameters
    ----------
    **options
        Keywords of :class:`RefinementMonitor`, such as ``metric`` (by default "refinement") or ``cv``
        ("loo" for few rows and many candidates).

    Returns
    -------
    RefinementScorer
        Greater is better: minus the refinement error.

    Examples
    --------
    >>> import refinecal as rc
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression(max_iter=1000)
    >>> search = GridSearchCV(model, {"C": [0.1, 1, 10]}, scoring=rc.refinement_scorer())
    >>> bool(search.fit(X, y).best_score_ < 0)
    True
    """
    return RefinementScorer(**options)
