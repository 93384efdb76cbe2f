r"""Proper losses of two classes as functions of log-odds, exact where probabilities would round.

With :math:`\sigma(t) = 1/(1 + e^{-t})`, a label of log-odds p and a prediction of log-odds p + d:

.. math:: e(p) &= E_{y \sim \sigma(p)}\, \ell(\sigma(p), y), \\
          D(p, d) &= E_{y \sim \sigma(p)}[\ell(\sigma(p + d), y) - \ell(\sigma(p), y)] \ge 0, \\
          L(t) &= \ell(\sigma(t), 1).

The gap d is a separate argument: a model that is almost calibrated has a divergence of order :math:`d^2`,
which a difference of two rounded log-odds would lose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from refinecal.losses import BrierLoss, LogLoss, ProperLoss, SphericalLoss

Floats = NDArray[np.float64]

TINY_GAP = 1e-2  # below, series; above, differences lose at most two digits
WIDE_GAP = 30.0  # above, exp(d) may overflow, and log(1 + e^t) no longer cancels
SATURATED = 700.0  # log-odds beyond which a probability may round to 0
STEP = 3e-3  # of first differences of fourth order: their error is STEP**4 / 30 + 1e-16 / STEP
WIDE_STEP = 1e-2  # of second differences: WIDE_STEP**4 / 90 + 1e-16 / WIDE_STEP**2


class BinaryLoss(NamedTuple):
    """A loss of two classes in terms of log-odds."""

    entropy: Callable[[Floats], Floats]  # e(p)
    divergence: Callable[[Floats, Floats], Floats]  # D(p, d)
    slopes: Callable[
        [Floats, int], tuple[Floats, Floats]
    ]  # of the loss of a label: L'(t) and L''(t)
    symmetric: bool  # whether exchanging the classes changes nothing


def binary_loss(loss: ProperLoss) -> BinaryLoss:
    """Return the closed form of a built-in loss, or wrap a custom one."""
    if type(loss) in _BUILT_IN:  # a subclass may change anything
        entropy, divergence, slopes = _BUILT_IN[type(loss)]

        def of_label(t: Floats, label: int) -> tuple[Floats, Floats]:
            first, second = slopes(t if label else -t)  # the loss of label 0 is L(-t)
            return first if label else -first, second

        return BinaryLoss(entropy, divergence, of_label, symmetric=True)
    own = _Custom(loss)
    return BinaryLoss(own.entropy, own.divergence, own.slopes, symmetric=False)


# ---- log loss: Shannon entropy, Kullback-Leibler divergence; L = log(1 + exp(-t)) -------------------------


def _log_entropy(p: Floats) -> Floats:
    size = np.abs(p)
    odds = np.exp(-size)
    return np.asarray(np.log1p(odds) + size * odds / (1 + odds))


def _log_divergence(p: Floats, d: Floats) -> Floats:
    """Return log(1 + P (e^d - 1)) - P d, where exchanging the classes makes P = sigma(p) <= 1/2."""
    odds = np.exp(-np.abs(p))
    rare = odds / (1 + odds)
    d = np.where(p > 0, -d, d)
    wide = d > WIDE_GAP
    near = np.where(wide, 0.0, d)
    x = rare * np.expm1(near)
    found = np.log1p(x) - rare * near
    tiny = np.abs(near) < TINY_GAP
    if tiny.any():
        found = np.where(tiny, _series(rare, *(np.where(tiny, v, 0) for v in (near, x))), found)
    if wide.any():
        ahead = np.where(wide, d - np.abs(p), 0.0)
        found = np.where(wide, np.logaddexp(0, ahead) - np.log1p(odds) - rare * d, found)
    return np.asarray(found)


def _series(rare: Floats, d: Floats, x: Floats) -> Floats:
    """Return log(1 + x) - rare d = rare (e^d - 1 - d) - (x - log(1 + x)) for a tiny d.

    The first term is about twice the second, or more, so nothing cancels once each has its own series.
    """
    exponential = d * d / 2 * (1 + d / 3 * (1 + d / 4 * (1 + d / 5 * (1 + d / 6))))
    logarithm = x * x * (1 / 2 - x * (1 / 3 - x * (1 / 4 - x * (1 / 5 - x * (1 / 6 - x / 7)))))
    return np.asarray(rare * exponential - logarithm)


def _log_slopes(t: Floats) -> tuple[Floats, Floats]:
    wrong = expit(-t)
    return -wrong, expit(t) * wrong


# ---- Brier score of both columns: e = 2 P (1 - P), D = 2 (P - Q)^2, L = 2 sigma(-t)^2 ---------------------


def _brier_entropy(p: Floats) -> Floats:
    return np.asarray(2 * expit(p) * expit(-p))


def _brier_divergence(p: Floats, d: Floats) -> Floats:
    """Return twice the square of sigma(m) - sigma(l) = sigma(m) sigma(-l) (1 - exp(l - m))."""
    more, less = p + np.maximum(d, 0), p + np.minimum(d, 0)
    return np.asarray(2 * (expit(more) * expit(-less) * np.expm1(-np.abs(d))) ** 2)


def _brier_slopes(t: Floats) -> tuple[Floats, Floats]:
    right, wrong = expit(t), expit(-t)
    return -4 * right * wrong**2, 4 * right * wrong**2 * (2 * right - wrong)


# ---- spherical loss: with v = (P, 1 - P) of length r, e = 1 - r, D = r (1 - cos), L = 1 - sqrt(sigma(2t)) --


def _spherical_entropy(p: Floats) -> Floats:
    twice = 2 * expit(p) * expit(-p)  # 1 - |v|^2
    return np.asarray(twice / (1 + np.sqrt(1 - twice)))


def _spherical_divergence(p: Floats, d: Floats) -> Floats:
    """Return r sin^2 / (1 + cos), with the angle between (1, e^m) and (1, e^l)."""
    more, less = p + np.maximum(d, 0), p + np.minimum(d, 0)
    up, low = expit(2 * more), expit(-2 * less)
    squared_sine = np.expm1(-np.abs(d)) ** 2 * up * low
    cosine = np.sqrt(up * expit(2 * less)) + np.sqrt(expit(-2 * more) * low)
    length = np.sqrt(1 - 2 * expit(p) * expit(-p))
    return np.asarray(length * squared_sine / (1 + cosine))


def _spherical_slopes(t: Floats) -> tuple[Floats, Floats]:
    right, wrong = expit(2 * t), expit(-2 * t)
    return -np.sqrt(right) * wrong, np.sqrt(right) * wrong * (2 * right - wrong)


_BUILT_IN: dict[type[ProperLoss], tuple[Any, Any, Any]] = {
    LogLoss: (_log_entropy, _log_divergence, _log_slopes),
    BrierLoss: (_brier_entropy, _brier_divergence, _brier_slopes),
    SphericalLoss: (_spherical_entropy, _spherical_divergence, _spherical_slopes),
}

# ---- any other loss ---------------------------------------------------------------------------------------


class _Custom:
    """A custom loss, through its methods on rows of two columns."""

    def __init__(self, loss: ProperLoss) -> None:
        self.loss = loss

    def entropy(self, p: Floats) -> Floats:
        return np.asarray(self.loss.entropy(_rows(p))).reshape(p.shape)

    def divergence(self, p: Floats, d: Floats) -> Floats:
        q = p + d
        target, likely = _rows(p), np.abs(q).ravel() < SATURATED
        found = np.empty(q.size)
        if likely.any():
            found[likely] = self.loss.divergence(_rows(q)[likely], target[likely])
        if not likely.all():  # log-probabilities stay exact where probabilities are 0
            rows, logs = target[~likely], _log_rows(q)[~likely]
            found[~likely] = self.loss.per_sample(rows, logs) - self.loss.entropy(rows)
        return np.maximum(found, 0).reshape(p.shape)

    def slopes(self, t: Floats, label: int) -> tuple[Floats, Floats]:
        """Return central differences of fourth order, with wider steps where the loss is large."""

        def around(step: Floats) -> list[Floats]:
            logs = [_log_rows(t + times * step) for times in (1, 2, -1, -2, 0)]
            labels = np.full(t.size, label)
            return [np.reshape(self.loss.per_sample(labels, each), t.shape) for each in logs]

        step, wide = (each * (1 + np.abs(t) / 8) for each in (STEP, WIDE_STEP))
        right, further, left, furthest, _ = around(step)
        first = (8 * (right - left) - (further - furthest)) / (12 * step)
        right, further, left, furthest, middle = around(wide)
        second = (16 * (right + left) - (further + furthest) - 30 * middle) / (12 * wide**2)
        return first, second


def _rows(t: Floats) -> Floats:
    return np.stack([expit(-t), expit(t)], axis=-1).reshape(-1, 2)


def _log_rows(t: Floats) -> Floats:
    return -np.stack([np.logaddexp(0, t), np.logaddexp(0, -t)], axis=-1).reshape(-1, 2)
