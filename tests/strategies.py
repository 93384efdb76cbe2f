"""Data and independent answers that several test files share."""

import math

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from refinecal.temperature.fit import Point, row_derivatives

MAX_BETA = math.exp(16)  # the search interval of the paper's appendix D


def examples(number):
    """Take more or fewer examples than other properties, whose number the profile sets: 50 in ``full``."""
    return settings(max_examples=max(1, number * settings.default.max_examples // 50))


@st.composite
def predictions(draw, max_rows=12, max_classes=5):
    """Labels and small integer logits: ties and separable sets are common, and shifts are exact."""
    n, k = draw(st.integers(1, max_rows)), draw(st.integers(2, max_classes))
    rows = st.lists(st.integers(-3, 3), min_size=k, max_size=k)
    logits = draw(st.lists(rows, min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    return np.array(labels), np.array(logits, dtype=np.float64)


def drawn(n, k, seed=0, spread=2.0, confidence=1.0):
    """Labels drawn from softmax(truth) by Gumbel's trick, and the logits ``confidence * truth``."""
    rng = np.random.default_rng(seed)
    truth = spread * rng.standard_normal((n, k))
    return (truth + rng.gumbel(size=(n, k))).argmax(axis=1), confidence * truth


class Exact:
    """The mean log loss, in extended precision unless large, and its minimum by bracketing."""

    def __init__(self, labels, logits, weights=None):
        logits = np.asarray(logits)
        self.type = np.longdouble if logits.size < 1e5 else np.float64
        logits = logits.astype(self.type)
        labels = np.asarray(labels)
        self.possible = ~np.isneginf(logits)
        gaps = logits - logits.max(axis=1, keepdims=True)
        self.gaps = np.where(self.possible, gaps, 0)
        if labels.ndim == 2:
            self.label = (labels * self.gaps).sum(axis=1)
        else:
            self.label = gaps[np.arange(len(gaps)), labels]
        weights = np.ones(len(gaps)) if weights is None else np.asarray(weights)
        self.shares = weights.astype(self.type) / weights.sum()

    def _probs(self, beta):
        exps = np.where(self.possible, np.exp(self.type(beta) * self.gaps), 0)
        sums = exps.sum(axis=1)
        return exps / sums[:, None], sums

    def loss(self, beta):
        return float(self.shares @ (np.log(self._probs(beta)[1]) - self.type(beta) * self.label))

    def slopes(self, beta):
        return (self._probs(beta)[0] * self.gaps).sum(axis=1) - self.label

    def slope(self, beta):
        return float(self.shares @ self.slopes(beta))

    def beta(self):
        """Return the root of the slope in [0, MAX_BETA], or the bound where there is none."""
        if self.slope(0.0) >= 0:
            return 0.0
        if self.slope(MAX_BETA) <= 0:
            return MAX_BETA
        low = high = 1.0
        while self.slope(low) >= 0:
            low, high = low / 16, low
        while self.slope(high) < 0:
            low, high = high, high * 16
        return brentq(self.slope, low, min(high, MAX_BETA), xtol=1e-300, rtol=1e-15)

    def conditioning(self, beta):
        """Return by how much rounding of the slopes moves beta, in units of one rounding error.

        That is sum |a_i| / sum b_i with a_i = beta L_i' and b_i = beta^2 L_i''.
        """
        probs, _ = self._probs(beta)
        mean = (probs * self.gaps).sum(axis=1, keepdims=True)
        variance = (probs * (self.gaps - mean) ** 2).sum(axis=1)
        curvature = float(self.shares @ variance) * beta**2
        size = float(self.shares @ (np.abs(mean[:, 0]) + np.abs(self.label))) * beta
        return size / curvature if curvature > 0 else math.inf


def assert_is_best(fit, exact, rel=1e-9):
    """Check beta where rounding leaves it that exact, else the loss; and that the loss belongs to beta."""
    best = exact.beta()
    assert exact.loss(fit.beta) <= exact.loss(best) * (1 + 1e-14) + 1e-15
    assert math.isclose(fit.loss, exact.loss(fit.beta), rel_tol=1e-12, abs_tol=1e-15)
    if 0 < best < MAX_BETA:
        noise = 1e-15 * exact.conditioning(best)
        if noise < rel:
            assert abs(fit.beta / best - 1) < rel + noise, (fit.beta, best)
    elif exact.loss(best) < exact.loss(best / 2 or 1e-3) * (1 - 1e-12):
        tiny = (
            best == 0 and fit.beta * np.abs(exact.gaps).max() < 1e-14
        )  # a slope of 0, but for rounding
        assert fit.beta == best or tiny


class NumpyReader:
    """Reads a sample with NumPy, for a search."""

    def __init__(self, sample):
        self.sample = sample

    def at(self, beta):
        means = [self.sample.mean(values) for values in row_derivatives(self.sample, beta)]
        return Point(beta, *(beta**m * mean for m, mean in enumerate(means)))

    def at_zero(self):
        _, slope, curvature, _, _ = row_derivatives(self.sample, 0.0)
        return self.sample.mean(slope), self.sample.mean(curvature)
