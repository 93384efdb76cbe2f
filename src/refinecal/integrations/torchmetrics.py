"""Refinement as a torchmetrics ``Metric``: exact over all batches and processes."""

from __future__ import annotations  # so that help() shows types by name

import math
from copy import deepcopy
from typing import Any

from numpy.typing import ArrayLike

from refinecal._core.arrays import check_threads
from refinecal._core.checks import check_sample
from refinecal._core.errors import fail_choice, needs_extra, warn
from refinecal.decomposition import Decomposition, decompose_sample
from refinecal.losses import ProperLoss
from refinecal.stopping import DeferredCalibrator, RefinementMonitor

with needs_extra("torchmetrics", "torchmetrics", "torch"):
    import torch
    from torch import Tensor
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat

__all__ = ["RefinementLoss"]

TERMS = ("refinement", "calibration", "risk", "beta")


class RefinementLoss(Metric):
    """The loss left after the best calibration.

    Keeps all predictions and labels until ``reset``: the value is that of :func:`refinecal.decompose` on all
    rows, for any batches and number of processes. Call ``update`` rather than the metric itself, which also
    computes the value of each batch: that takes time and says little.

    Parameters
    ----------
    term : {"refinement", "calibration", "risk", "beta", "all"}, default "refinement"
        What ``compute`` returns. "all" gives a dict for ``log_dict``: ``refinement_loss``,
        ``calibration_loss``, ``log_loss`` (the risk, named after the loss) and ``beta``.
    logits : bool, default True
        Whether ``update`` gets logits, or probabilities.
    loss, calibrator, cv, classes, n_threads
        As for :func:`refinecal.decompose`.
    **kwargs
        Keywords of :class:`torchmetrics.Metric`, such as ``sync_on_compute``.

    Attributes
    ----------
    decomposition : Decomposition or None
        All terms at the last ``compute``, in double precision; ``reset`` leaves it in place.

    Examples
    --------
    >>> import torch
    >>> metric = RefinementLoss()
    >>> metric.update(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 0]))
    >>> metric.update(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
    >>> metric.compute()  # entropy of (3/4, 1/4): the logits are all the same
    tensor(0.5623)
    >>> round(metric.calibrator.beta_, 6)  # log(3) / 2
    0.549306
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    preds: Any  # lists of tensors; joined tensors while processes are synchronized
    target: Any
    weight: Any

    def __init__(
        self,
        term: str = "refinement",
        *,
        logits: bool = True,
        loss: str | ProperLoss = "log",
        calibrator: Any = "temperature",
        cv: Any = None,
        classes: ArrayLike | None = None,
        n_threads: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if term not in (*TERMS, "all"):
            fail_choice("term", term, list(TERMS), "'all'")
        self.term = term
        self.logits = logits
        # Checks the options, and keeps the folds of an iterator.
        self.options = RefinementMonitor(loss=loss, calibrator=calibrator, cv=cv, classes=classes)
        self.threads = check_threads(n_threads)
        self.decomposition: Decomposition | None = None
        self._deferred: DeferredCalibrator | None = None
        for name in ("preds", "target", "weight"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor, weight: Tensor | None = None) -> None:
        """Add one batch.

        Parameters
        ----------
        preds : tensor ``(n, k)``, or ``(n,)`` or ``(n, 1)`` for two classes
            Logits or log-odds; probabilities if the metric was made with ``logits=False``.
        target : tensor
            Labels as for :func:`refinecal.decompose`.
        weight : tensor, optional
            Sample weights; 0 for rows that a sampler repeats.
        """
        if weight is None:
            weight = torch.ones(len(preds), device=preds.device)
        for name, found in (("target", target), ("weight", weight)):
            if len(found) != len(preds):
                raise ValueError(
                    f"{name} has {len(found)} rows, but preds has {len(preds)}: pass one for each prediction"
                )
        self.preds.append(preds.detach())
        self.target.append(target.detach())
        self.weight.append(weight.detach())

    def compute(self) -> Tensor | dict[str, Tensor]:
        """Return the chosen term, or all of them, over all rows."""
        self.decomposition = self._decompose()
        terms = {} if self.decomposition is None else self.decomposition.to_dict()

        def tensor(term: str) -> Tensor:
            value = math.nan if terms.get(term) is None else terms[term]
            return torch.tensor(value, dtype=self.dtype, device=self.device)

        if self.term != "all":
            return tensor(self.term)
        names = ("refinement_loss", "calibration_loss", f"{self.options.loss.name}_loss", "beta")
        return {name: tensor(term) for name, term in zip(names, TERMS, strict=True)}

    def _decompose(self) -> Decomposition | None:
        preds, target, weight = map(dim_zero_cat, (self.preds, self.target, self.weight))
        if not preds.max() < math.inf:
            warn("the predictions are not finite: the value is NaN. Lower the learning rate.")
            return None
        probs, logits = (None, preds) if self.logits else (preds, None)
        weights = None if bool((weight == 1).all()) else weight
        given, fix = self.options, "make it with logits=True"
        sample = check_sample(target, probs, logits, weights, given.classes, "target", True, fix)
        if given.family is not given.calibration:
            self._deferred = DeferredCalibrator(given.calibration, sample, self.threads)
        family = deepcopy(given.family)
        return decompose_sample(sample, family, given.loss, given.cv, None, self.threads)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add one batch, and return its value."""
        kept = self.decomposition, self._deferred
        value = super().forward(*args, **kwargs)
        self.decomposition, self._deferred = kept  # those of all rows, not of this batch
        return value

    @property
    def calibrator(self) -> Any:
        """The calibrator fitted at the last ``compute``; ``None`` before the first."""
        if self.decomposition is None:
            return None
        return self.decomposition.calibrator if self._deferred is None else self._deferred.resolve()
