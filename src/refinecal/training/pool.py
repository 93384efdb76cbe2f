"""Ensembles of several candidates in one pool: each is calibrated and averaged, then they are weighted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refinecal._core.sample import log_probs
from refinecal.calibrators.base import Calibrator
from refinecal.ensembles import SelectedEnsemble, select_ensemble
from refinecal.metrics import Metric
from refinecal.training.crossfit import Disagreement, Ensemble, FoldModel, sharpen
from refinecal.training.rows import Rows


@dataclass(frozen=True, slots=True)
class Pool:
    """The members of a pool that have a weight, by name, and how they are weighted and calibrated.

    ``beta`` sharpens the pool of averages: its calibrator has only seen pools of single models, since a row
    is held out of one model of each member.
    """

    groups: Mapping[str, Ensemble]  # the models of each member, one after the other
    selected: SelectedEnsemble
    beta: float = 1.0

    @classmethod
    def select(
        cls,
        members: Mapping[str, tuple[Ensemble, Sequence[FoldModel]]],
        metric: Metric,
        classes: Any,
        rows: Rows | None = None,
        cv: int | None = 5,
    ) -> Self:
        """Choose members by what they predict for the rows held out of them, the same rows for all.

        ``rows`` are those that the folds were cut from; no fold of the cross-validation splits their groups.
        """
        stack = {
            name: np.concatenate(ensemble.predict_held_out(models, metric.name))
            for name, (ensemble, models) in members.items()
        }
        models = next(iter(members.values()))[1]
        weights = [model.weights for model in models if model.weights is not None]
        groups = None
        if rows is not None and rows.groups is not None and rows.places is not None:
            order = np.argsort(rows.places)
            places = np.concatenate([model.places for model in models])
            groups = rows.groups[order[np.searchsorted(rows.places, places, sorter=order)]]
        selected = select_ensemble(
            np.concatenate([model.y for model in models]),
            stack,
            metric=metric,
            members="raw",  # they are calibrated
            classes=classes,
            cv=cv,
            sample_weight=np.concatenate(weights) if weights else None,
            groups=groups,
        )
        used = dict(zip(selected.names, selected.weights, strict=True))
        return cls({n: each for n, (each, _) in members.items() if used[n] > 0}, selected)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each candidate that was considered."""
        return dict(zip(self.selected.names, self.selected.weights.tolist(), strict=True))

    @property
    def calibrator(self) -> Calibrator:
        """What calibrates the weighted mean."""
        return self.selected.calibrator

    @property
    def known(self) -> tuple[NDArray[np.int64], ...]:
        """The columns of the classes that each model knows."""
        return tuple(known for each in self.groups.values() for known in each.known)

    def predict_proba(self, logits: Iterable[Any]) -> NDArray[np.float64]:
        """Return probabilities from the logits ``(n, k)`` of each model, member by member."""
        rest = iter(logits)
        return self.join(
            {
                name: each.predict_proba(islice(rest, len(each.known)))
                for name, each in self.groups.items()
            }
        )

    def join(self, probs: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return the probabilities of the pool from those of its members by name."""
        return sharpen(self._predict(probs), self.beta, self._frequencies)

    def _predict(self, probs: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the probabilities before they are sharpened; those of members need no check."""
        logs = {name: log_probs(each) for name, each in probs.items()}
        return self.selected.predict_proba(logits=logs)

    def disagreement(self, logits: Mapping[str, Sequence[Any]], weights: Any) -> Disagreement:
        """Measure how far the pools of each fold's models disagree on new rows.

        ``logits`` are those of the models of each member, as many for all.
        """
        found = []
        for fold, models in enumerate(zip(*logits.values(), strict=True)):
            probs = {}
            for name, each in zip(logits, models, strict=True):
                member = self.groups[name]
                probs[name] = member.calibrate(each, member.known[fold])
            found.append(self._predict(probs))
        return Disagreement.measure(found, self._frequencies, weights)

    def sharpen(self, disagreement: Disagreement | None, n: float) -> Self:
        """Return the pool sharpened for its number of models; n rows calibrate it."""
        if disagreement is None:
            return self
        m = min(len(each.known) for each in self.groups.values())
        return replace(self, beta=disagreement.sharpening(m, n))

    @property
    def _frequencies(self) -> Any:
        """The class frequencies, the same for all members."""
        return next(iter(self.groups.values())).frequencies

    def predict_held_out(
        self, models: Sequence[FoldModel], metric: str, n: int | None = None
    ) -> list[NDArray[np.float64]]:
        """Return the probabilities of the rows held out of the first n models of each member."""
        rest, found = iter(models), []
        for name, each in self.groups.items():
            own = list(islice(rest, len(each.known)))
            found.append([(name, probs) for probs in each.predict_held_out(own, metric, n)])
        return [self._predict(dict(fold)) for fold in zip(*found, strict=True)]
