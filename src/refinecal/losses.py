r"""Proper losses, with their entropy and divergence.

For a label distribution q, a proper loss has an entropy :math:`e(q) = \min_p E_{y \sim q}\, \ell(p, y)`,
reached at p = q, and a divergence :math:`d(p, q) = E_{y \sim q}\, \ell(p, y) - e(q) \ge 0`. Losses take
predictions as *log*-probabilities, since probabilities of confident models round to 0 and 1.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.arrays import map_rows
from refinecal._core.errors import fail_choice
from refinecal._core.sample import Sample, log_softmax, readonly, scale_logits

__all__ = ["BrierLoss", "LogLoss", "MatrixLoss", "ProperLoss", "SphericalLoss", "get_loss"]

Array = NDArray[Any]
SMALL_BETA = 1e-30  # the compiled loops multiply -inf by beta


@runtime_checkable
class ProperLoss(Protocol):
    """The interface of ``loss=``: a name and three methods, which :class:`MatrixLoss` implements."""

    name: str

    def per_sample(self, labels: Array, log_probs: Array) -> Array:
        """Return the loss of each row; ``labels`` are class numbers, or rows that sum to 1."""

    def entropy(self, probs: Array) -> Array:
        """Return the smallest expected loss for labels drawn from ``probs``, along the last axis."""

    def divergence(self, probs: Array, target: Array) -> Array:
        """Return what predicting ``probs`` costs above ``target`` when labels follow ``target``."""


class MatrixLoss(ABC):
    """A proper loss defined by one method: the loss of each label.

    Examples
    --------
    The Brier score as a custom loss:

    >>> import numpy as np
    >>> import refinecal as rc
    >>> class MyBrier(rc.losses.MatrixLoss):
    ...     name = "my-brier"
    ...     def matrix(self, log_probs):
    ...         p = np.exp(log_probs)
    ...         return (p**2).sum(axis=-1, keepdims=True) - 2 * p + 1
    >>> y, probs = [0, 1, 1], [0.2, 0.6, 0.9]
    >>> ours = rc.decompose(y, probs, loss=MyBrier())
    >>> bool(np.isclose(ours.risk, rc.decompose(y, probs, loss="brier").risk))
    True
    """

    name: str

    @abstractmethod
    def matrix(self, log_probs: Array) -> Array:
        """Return the loss of each row for each possible label, shape ``(..., k)``."""

    def per_sample(self, labels: Array, log_probs: Array) -> Array:
        """Return the loss of each row; ``labels`` are class numbers, or rows that sum to 1."""
        losses = self.matrix(log_probs)
        if labels.ndim == 1:
            return np.asarray(losses[np.arange(len(labels)), labels])
        return _expect(labels, losses)

    def entropy(self, probs: Array) -> Array:
        """Return the smallest expected loss for labels drawn from ``probs``, along the last axis."""
        with np.errstate(divide="ignore"):
            logs = np.log(probs)
        return _expect(probs, self.matrix(logs))

    def divergence(self, probs: Array, target: Array) -> Array:
        """Return what predicting ``probs`` costs above ``target`` when labels follow ``target``."""
        with np.errstate(divide="ignore"):
            logs = np.log(probs)
        return np.asarray(_expect(target, self.matrix(logs)) - self.entropy(target))


class LogLoss(MatrixLoss):
    r"""Logarithmic loss :math:`-\log p_y`, with Shannon entropy and Kullback-Leibler divergence."""

    name = "log"

    def matrix(self, log_probs: Array) -> Array:
        """Return minus the log-probabilities."""
        return -log_probs


class BrierLoss(MatrixLoss):
    r"""Brier score :math:`\sum_j (p_j - [j = y])^2`; for two classes twice the one-column form."""

    name = "brier"

    def matrix(self, log_probs: Array) -> Array:
        """Return the squared distance to each corner of the simplex."""
        probs = np.exp(log_probs)
        return np.asarray((probs**2).sum(axis=-1, keepdims=True) - 2 * probs + 1)


class SphericalLoss(MatrixLoss):
    r"""Spherical loss :math:`1 - p_y / \|p\|_2`, between 0 and 1, independent of the scale of p."""

    name = "spherical"

    def matrix(self, log_probs: Array) -> Array:
        """Return one minus the cosine between the prediction and each corner of the simplex."""
        probs = np.exp(log_probs)
        return np.asarray(1 - probs / np.sqrt((probs**2).sum(axis=-1, keepdims=True)))


LOSSES: dict[str, ProperLoss] = {
    loss.name: loss for loss in (LogLoss(), BrierLoss(), SphericalLoss())
}


def get_loss(loss: str | ProperLoss) -> ProperLoss:
    """Return the loss of that name, or the given object if it is a proper loss.

    >>> get_loss("brier").per_sample(np.array([0]), np.log([[0.75, 0.25]])).item()
    0.125
    """
    if isinstance(loss, str):
        if loss not in LOSSES:
            fail_choice(
                "loss", loss, list(LOSSES), "an object with per_sample, entropy and divergence"
            )
        return LOSSES[loss]
    missing = [
        part for part in ("name", "per_sample", "entropy", "divergence") if not hasattr(loss, part)
    ]
    if missing or isinstance(loss, type):
        lack = f"lacks {', '.join(missing)}" if missing else "is a class: pass an instance"
        raise TypeError(
            f"loss {loss!r} {lack}. Subclass refinecal.losses.MatrixLoss, which needs only matrix."
        )
    return loss


def _expect(weights: Array, losses: Array) -> Array:
    """Return the expected loss under the label distribution of each row; impossible labels count as 0."""
    weights, losses = np.broadcast_arrays(weights, losses)
    return np.asarray(
        np.where(weights > 0, weights * np.where(weights > 0, losses, 0), 0).sum(axis=-1)
    )


# ---- losses of rows ----------------------------------------------------------------------------------------


def losses_at(
    sample: Sample, beta: float | Array, loss: ProperLoss, threads: int | None = 1
) -> NDArray[np.float64]:
    """Return the loss of each row after scaling its logits by beta (one, or one per row)."""
    is_compiled = type(loss) in (BrierLoss, LogLoss) and sample.soft is None
    if is_compiled and np.ndim(beta) == 0 and beta > SMALL_BETA:
        logits, found = readonly(sample.logits.astype(np.float64, copy=False)), np.empty(sample.n)
        arguments = (logits, readonly(sample.labels), float(beta), type(loss) is LogLoss, found)
        map_rows(_kernels.rows.row_losses, sample.n, logits.size, threads, *arguments)
        return found
    betas = np.broadcast_to(np.asarray(beta), sample.n)
    return row_losses(
        sample, loss, lambda logits, betas: log_softmax(scale_logits(logits, betas)), betas
    )


def row_losses(
    sample: Sample, loss: ProperLoss, log_proba: Callable[..., Array], *more: Array
) -> NDArray[np.float64]:
    """Return the loss of each row under ``log_proba(logits, *more)``, in chunks of rows."""
    values = np.empty(sample.n)
    for rows, chunk in sample.chunks():
        labels = chunk.labels if chunk.soft is None else chunk.soft
        logs = log_proba(chunk.logits.astype(np.float64), *(each[rows] for each in more))
        values[rows] = loss.per_sample(labels, logs)
    return values
