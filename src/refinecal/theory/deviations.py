r"""Measured against predicted values, in standard errors, over several draws of the data.

Draw :math:`i` gives a measured expertise and confidence, a point :math:`x_i`, and theory predicts
:math:`t_i`. For a quantity :math:`q(x)` such as the risk, the mean of :math:`q(x_i)` is compared with that of

.. math:: q(t_i + (x_i - t_i) - \overline{(x - t)}),

that is, with the theoretical points plus the measured scatter. This matters for calibration, which is never
negative: where theory predicts 0, scatter alone raises its mean, by more standard errors the more draws there
are. The standard error is that of the mean of :math:`q(x_i) - q(t_i)`.

Deviations at neighboring λ are strongly correlated, so the probability of such a large maximum comes from a
rotation test (Langsrud 2005), which preserves all correlations: the t statistics of the mean are those along
the direction :math:`(1, \dots, 1)` among the draws, and have the same law along a random direction. This
holds for normal scatter; if the scatter is exponential, a level of 1% is actually about 4%.
"""

from __future__ import annotations  # so that help() shows types by name

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refinecal._core.format import format_signed, number, percent, significant
from refinecal.losses import ProperLoss
from refinecal.theory.gaussian import gaussian_decomposition

Floats = NDArray[np.float64]
Values = dict[str, Floats]

QUANTITIES = ("risk", "calibration", "refinement", "error_rate", "expertise", "confidence")
LEVEL = 0.01  # a maximum with a smaller probability is not sampling error
SIMULATED = 20_000  # maxima: a probability of 1% then has a standard error of 0.07%
BLOCK = 1000  # of them at once
LEAST = 0.001  # smallest probability that the simulations resolve
ENOUGH = 20  # draws; with fewer, only a large error of the theory would show
LITTLE = 1e-3  # fraction of a step, for derivatives
ROUNDING = 1e-13  # smaller standard errors, relative to the value, are rounding errors


class Deviation(NamedTuple):
    """The deviation of a measured mean at one λ, in standard errors."""

    quantity: str
    lam: float
    theory: float
    expected: float
    measured: float
    standard_error: float
    deviation: float

    def to_cells(self) -> list[str]:
        """Return a row of a table."""
        about = [self.quantity.replace("_", " "), significant(self.lam, 3)]
        values = [number(each, 4) for each in (self.theory, self.expected, self.measured)]
        return [*about, *values, significant(self.standard_error, 2), format_signed(self.deviation)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Measured means against theory: for each quantity one value at each λ.

    Attributes
    ----------
    lam : ndarray
        Regularization strengths.
    theory, expected, measured : dict of ndarray
        The prediction averaged over the draws; the same with the scatter of the draws, which ``measured``
        should equal; and the measured mean.
    standard_error, margin : dict of ndarray
        Standard error of the mean difference between measured and predicted values, and half the width of
        the 95% interval, from Student's t distribution.
    deviation : dict of ndarray
        ``measured - expected`` in standard errors.
    chance : float
        Probability of such a large deviation anywhere, if theory holds.
    notable : float
        The deviation that is exceeded anywhere with a probability of 1%, if theory holds.
    draws : int
        Number of draws.
    """

    lam: Floats
    theory: Values
    expected: Values
    measured: Values
    standard_error: Values
    margin: Values
    deviation: Values
    chance: float = field(kw_only=True)
    notable: float = field(kw_only=True)
    draws: int = field(kw_only=True)

    @property
    def holds(self) -> bool | None:
        """Whether the deviations are within sampling error: ``chance`` is at least 1%.

        ``None``, undecided, if they are but there are fewer than 20 draws, too few for theory to fail.
        """
        if self.chance < LEVEL:
            return False
        return True if self.draws >= ENOUGH else None

    @property
    def largest(self) -> Deviation:
        """The largest deviation of all."""
        return max(map(self.largest_of, QUANTITIES), key=lambda each: abs(each.deviation))

    def largest_of(self, quantity: str) -> Deviation:
        """Return the largest deviation of one quantity."""
        at = int(np.abs(self.deviation[quantity]).argmax())
        arrays = (self.theory, self.expected, self.measured, self.standard_error, self.deviation)
        values = [float(each[quantity][at]) for each in arrays]
        return Deviation(quantity, float(self.lam[at]), *values)

    @property
    def verdict(self) -> str:
        """The meaning of the largest deviation, in a sentence."""
        largest = self.largest
        found = (
            f"the largest of {len(QUANTITIES) * len(self.lam)} deviations, of the "
            f"{largest.quantity.replace('_', ' ')} at λ = {significant(largest.lam, 3)}, is "
            f"{number(abs(largest.deviation), 1)} standard errors"
        )
        if self.holds is None:
            return (
                f"Undecided: {self.draws} draws are too few; use {ENOUGH} or more. Only a deviation of "
                f"{number(self.notable, 1)} standard errors would have counted, but {found}."
            )
        return (
            f"{'Within' if self.holds else 'Not within'} sampling error: {found}. Such a large deviation "
            f"occurs by chance in {'' if self.chance >= LEAST else 'less than '}"
            f"{percent(max(self.chance, LEAST))} of cases."
        )

    def columns(self) -> dict[str, list[Any]]:
        """Return a row for each quantity and λ, as the columns of a table."""

        def flatten(values: Values) -> Floats:
            return np.concatenate([values[name] for name in QUANTITIES])

        fields = ("theory", "expected", "measured", "standard_error", "deviation")
        mean, margin = flatten(self.measured), flatten(self.margin)
        return {
            "quantity": [name for name in QUANTITIES for _ in self.lam],
            "lam": self.lam.tolist() * len(QUANTITIES),
            **{name: flatten(getattr(self, name)).tolist() for name in fields},
            "low": (mean - margin).tolist(),
            "high": (mean + margin).tolist(),
        }


def compare(
    lam: Floats,
    expertise: Floats,
    confidence: Floats,
    theory_expertise: Floats,
    theory_confidence: Floats,
    loss: str | ProperLoss = "log",
) -> Comparison:
    """Compare measurements of shape (draws, m) with predictions of shape (draws, m) or (m,) at m λ."""
    from scipy.stats import t

    shape, n = expertise.shape, len(expertise)
    a, s = np.broadcast_to(theory_expertise, shape), np.broadcast_to(theory_confidence, shape)
    off_a, off_s = expertise - a, confidence - s
    scattered_a, scattered_s = a + off_a - off_a.mean(axis=0), s + off_s - off_s.mean(axis=0)
    measured, theory = _values(expertise, confidence, loss), _values(a, s, loss)
    expected = _values(scattered_a, np.maximum(scattered_s, 0), loss)
    gaps = measured - theory
    mean, wanted, limit = measured.mean(axis=1), expected.mean(axis=1), theory.mean(axis=1)
    error = gaps.std(axis=1, ddof=1) / np.sqrt(n)
    error = np.maximum(error, ROUNDING * np.abs(limit))
    deviation = (mean - wanted) / error
    moves = _moves(a, s, off_a, off_s, loss)
    maxima = _maxima(moves, gaps)
    larger = np.count_nonzero(maxima >= np.abs(deviation).max())
    chance, notable = (1 + larger) / (1 + SIMULATED), float(np.quantile(maxima, 1 - LEVEL))
    margin = t.ppf(0.975, n - 1) * error
    arrays = (limit, wanted, mean, error, margin, deviation)
    parts = [dict(zip(QUANTITIES, each, strict=True)) for each in arrays]
    return Comparison(lam, *parts, chance=chance, notable=notable, draws=n)


def _values(expertise: Floats, confidence: Floats, loss: str | ProperLoss) -> Floats:
    """Return all quantities, of shape (quantities, draws, m)."""
    found = gaussian_decomposition(expertise, confidence, loss)
    return np.stack([getattr(found, name) for name in QUANTITIES])


def _moves(a: Floats, s: Floats, off_a: Floats, off_s: Floats, loss: str | ProperLoss) -> Floats:
    """Return the deviation of each quantity in each draw, to first order: 0 at a minimum."""
    ahead, behind = (
        _values(a + step * off_a, np.maximum(s + step * off_s, 0), loss)
        for step in (LITTLE, -LITTLE)
    )
    return (ahead - behind) / (2 * LITTLE)


def _maxima(moves: Floats, gaps: Floats) -> Floats:
    """Return simulated largest deviations if theory holds.

    For normal draws with mean 0, a t statistic has the same law along any direction as along (1, ..., 1), so
    directions are drawn at random.
    """
    quantities, n, strengths = moves.shape
    share = _ratio(moves.std(axis=1), gaps.std(axis=1)).ravel()
    flat = np.moveaxis(moves, 1, 0).reshape(n, quantities * strengths)
    flat = _ratio(flat, np.linalg.norm(flat, axis=0))
    rng = np.random.default_rng(0)  # the same answer for the same draws
    found = []
    for _ in range(SIMULATED // BLOCK):
        directions = rng.standard_normal((BLOCK, n))
        along = directions @ flat / np.linalg.norm(directions, axis=1, keepdims=True)
        t = np.abs(along) * np.sqrt((n - 1) / np.maximum(1 - along**2, 1e-300))
        found.append((share * t).max(axis=1))
    return np.concatenate(found)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)
