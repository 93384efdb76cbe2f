r"""The λ chosen by loss, calibration or refinement, and their losses, for classes of any frequency.

Rows of unequal class frequencies :math:`\pi, 1 - \pi` are worth :math:`m = 4 \pi (1 - \pi) n` balanced rows:
their difference of means is as accurate as that of m balanced rows, and so is the average curvature of their
loss. So the balanced theory is solved with m instead of n, and its weights, of expertise a and confidence s,
are used with the true frequencies. With margins :math:`m_\pm = s(z + a/2) \pm t` and
:math:`\ell(x) = \log(1 + e^{-x})`,

.. math:: L(\beta, s, t) = \pi E\,\ell(\beta m_+) + (1 - \pi) E\,\ell(\beta m_-)

the risk is the minimum of L(1, s, t) over the intercept t; the loss after temperature scaling is the minimum
over :math:`\beta` with that t; and the loss after affine calibration is the risk at s = a. If classes are
equally frequent, t = 0 and the last two are equal: the refinement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit, roots_hermitenorm

from refinecal.theory.curves import path
from refinecal.theory.spectrum import Spectrum

Floats = NDArray[np.float64]

LAM_RANGE = (1e-6, 1e3)  # times the mean eigenvalue, wider if eigenvalues are far apart
PER_DECADE = 10
MOST_POINTS = 161
N_NODES = 100
NEWTON = 15  # steps at most for an intercept or a temperature: both losses are smooth and convex
EXACT = 1e-8
NOTHING = 1e-6  # nats
ALIKE = 1e-3  # of the log loss: λ whose loss is at most this much higher are equally good


@dataclass(frozen=True)
class Choices:
    """The λ chosen by risk, by calibration and by refinement, and their losses.

    Attributes
    ----------
    lam_risk, lam_calibration, lam_refinement : float
        For :math:`1/n` times the sum of losses, with n the true number of rows.
    risk, risk_calibrated : float
        Expected log loss if chosen by loss, before and after temperature scaling.
    refinement, refinement_affine : float
        Expected log loss if chosen by the loss after temperature scaling, then scaled; the same with
        affine calibration.
    at_bound_risk, at_bound_calibration, at_bound_refinement : bool
        Whether the λ is an end of the search range.
    cut_off : tuple of {"risk", "refinement"}
        Those that still decrease at an end by more than 0.1% per decade: their minimum is unknown.
    as_good_for_risk, as_good_for_refinement : (float, float)
        Range of λ around the best whose loss is at most 0.1% higher.
    """

    lam_risk: float
    lam_calibration: float
    lam_refinement: float
    risk: float
    risk_calibrated: float
    refinement: float
    refinement_affine: float
    at_bound_risk: bool
    at_bound_calibration: bool
    at_bound_refinement: bool
    cut_off: tuple[str, ...]
    as_good_for_risk: tuple[float, float]
    as_good_for_refinement: tuple[float, float]

    @property
    def gain(self) -> float:
        """Fraction of the loss saved by choosing by refinement, then calibrating, over choosing by loss."""
        return _compute_gain(self.refinement, self.risk)

    @property
    def gain_calibrated(self) -> float:
        """The same, compared with choosing by loss, then calibrating."""
        return _compute_gain(self.refinement, self.risk_calibrated)

    @property
    def gain_affine(self) -> float:
        """The same as ``gain`` if calibration has an intercept."""
        return _compute_gain(self.refinement_affine, self.risk)

    @property
    def log10_gap(self) -> float:
        """log10 of ``lam_calibration / lam_refinement``."""
        return float(np.log10(self.lam_calibration / self.lam_refinement))


def _compute_gain(loss: float, other: float) -> float:
    """Return the fraction of the other loss that is saved; 0 if that is negligible."""
    return max(1 - loss / other, 0.0) if other > NOTHING else 0.0  # below 0 is rounding


def choose(
    spectrum: Spectrum, signal: float, n_rows: float, n_features: int, prevalence: float = 0.5
) -> Choices:
    """Return the best λ for data with this spectrum, signal and size."""
    from scipy.interpolate import CubicSpline

    share = 4 * prevalence * (1 - prevalence)
    scale = spectrum.mean(lambda sigma: sigma)
    x = _grid(spectrum, scale)
    ratio = n_features / (share * n_rows)
    found = path(10**x * scale, ratio=ratio, spectrum=spectrum, signal=signal)
    risk, tempered, affine = losses(found.expertise, found.confidence, prevalence)
    by_risk, least_risk = _lowest(x, risk)
    by_calibration, _ = _lowest(x, np.abs(np.log(found.scale)))
    by_refinement, least = _lowest(x, tempered)
    least = min(least, least_risk)  # it is more only by rounding
    calibrated = float(CubicSpline(x, tempered)(by_risk))
    unit, ends, curves = scale * share, (x[0], x[-1]), {"risk": risk, "refinement": tempered}
    return Choices(
        lam_risk=10**by_risk * unit,
        lam_calibration=10**by_calibration * unit,
        lam_refinement=10**by_refinement * unit,
        risk=least_risk,
        risk_calibrated=float(np.clip(calibrated, least, least_risk)),
        refinement=least,
        refinement_affine=min(_lowest(x, affine)[1], least),
        at_bound_risk=by_risk in ends,
        at_bound_calibration=by_calibration in ends,
        at_bound_refinement=by_refinement in ends,
        cut_off=tuple(name for name, curve in curves.items() if _falls(x, curve)),
        as_good_for_risk=_as_good(x, risk, unit),
        as_good_for_refinement=_as_good(x, tempered, unit),
    )


def _grid(spectrum: Spectrum, scale: float) -> Floats:
    """Return log10 of λ, in units of the mean eigenvalue, from far below to far above the eigenvalues.

    One column of large variance moves the mean away from all other eigenvalues.
    """
    low, high = (PER_DECADE * np.log10(end / scale) for end in spectrum.bulk)
    first, last = PER_DECADE * np.log10(LAM_RANGE)
    first += min(np.floor(low) + PER_DECADE, 0.0)  # 1e-5 of the least
    last += max(np.ceil(high) - PER_DECADE, 0.0)  # 100 times the largest
    steps = round(last - first)
    return np.linspace(first, last, min(steps + 1, MOST_POINTS)) / PER_DECADE


def losses(
    expertise: Floats, confidence: Floats, prevalence: float = 0.5
) -> tuple[Floats, Floats, Floats]:
    """Return the expected log loss: uncalibrated, after temperature scaling, after affine calibration."""
    z, weights = roots_hermitenorm(N_NODES)
    weights = np.concatenate([prevalence * weights, (1 - prevalence) * weights]) / weights.sum()
    label = np.repeat([1.0, -1.0], N_NODES)  # margins are those of class 1, then of class 0
    margins = [
        s[:, None] * (np.tile(z, 2) + expertise[:, None] / 2) for s in (confidence, expertise)
    ]
    if prevalence != 0.5:  # else the best intercept is 0, and affine calibration only a temperature
        start = logit(prevalence) * label
        own, affine = (_minimize_loss(each + start, weights, label) for each in margins)
        scaled = (expertise / confidence)[:, None] * own
        margins = [own, _minimize_loss(scaled, weights), affine]
    found = [-log_expit(each) @ weights for each in margins]
    return found[0], found[1], found[-1]


def _minimize_loss(margins: Floats, weights: Floats, shift: Floats | None = None) -> Floats:
    """Return the multiple of the margins, or the margins plus a multiple of a shift, of the least loss."""
    for _ in range(NEWTON):
        direction, lowest = (margins, -2 / 3) if shift is None else (shift, -2)
        wrong = expit(-margins)
        slope = (wrong * direction) @ weights
        bend = (wrong * (1 - wrong) * direction**2) @ weights
        step = np.clip(slope / np.maximum(bend, 1e-300), lowest, 2)
        margins = margins + step[:, None] * direction
        if np.abs(step).max() < EXACT:
            break
    return margins


def _lowest(x: Floats, curve: Floats) -> tuple[float, float]:
    """Return place and height of the vertex of a parabola through the lowest point and its neighbours."""
    i = int(np.argmin(curve))
    if i in (0, len(x) - 1):
        return float(x[i]), float(curve[i])
    left, middle, right = curve[i - 1 : i + 2]
    tilt, bend = (right - left) / 2, left - 2 * middle + right
    step = float(np.clip(-tilt / bend, -1, 1)) if bend > 0 else 0.0
    return float(x[i] + step * (x[1] - x[0])), float(middle + step * tilt + step**2 * bend / 2)


def _falls(x: Floats, curve: Floats) -> bool:
    """Tell whether a curve is lowest at an end, and not flat over the last decade."""
    best = int(np.argmin(curve))
    if best not in (0, len(x) - 1):
        return False
    inside = np.interp(x[best] + (1 if best == 0 else -1), x, curve)
    return bool(inside > (1 + ALIKE) * curve[best] and curve[best] > NOTHING)


def _as_good(x: Floats, curve: Floats, unit: float) -> tuple[float, float]:
    """Return the range of λ around the minimum with nearly the same loss; at least one step."""
    best = int(np.argmin(curve))
    worse = np.flatnonzero(curve > (1 + ALIKE) * curve[best])
    low = worse[worse < best].max(initial=-1)  # the last that is worse, or none
    high = worse[worse > best].min(initial=len(x))
    return unit * 10 ** float(x[max(low, 0)]), unit * 10 ** float(x[min(high, len(x) - 1)])
