r"""Smooth calibration error: masses on [0, 1], smoothed by a Gaussian that the two ends reflect.

That kernel is diagonal in cosines (like heat in a rod with insulated ends): with masses
:math:`r_i` at places :math:`f_i`, and :math:`a_m = \sum_i r_i \cos(\pi m f_i)`, the smoothed density is

.. math:: s_\sigma(t) = \sum_i r_i K_\sigma(t, f_i)
          = a_0 + 2 \sum_{m \ge 1} e^{-(\pi m \sigma)^2 / 2} a_m \cos(\pi m t).

One read collects the masses in cells with their moments up to order 5; the cosines, expanded around the
middles of the cells, are a few fast transforms of the moments. Each bandwidth then needs two transforms,
one for :math:`s` and one for its integral :math:`S`. Between two zeros of :math:`s`, :math:`\int |s|` is a
difference of :math:`S`, which hardly depends on errors in the zeros. With bandwidths of at least ``FINEST``
cells, the relative error is below 1e-7.
"""

from __future__ import annotations  # so that help() shows types by name

import math
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from refinecal import _kernels
from refinecal._core.checks import check_keywords
from refinecal._core.errors import warn
from refinecal._core.sample import NOTHING, readonly
from refinecal.metrics.events import Event, Inputs, events, read

Floats = NDArray[np.float64]
CELLS = (2**11, 2**17)  # the second only if the bandwidth is too small for the first
FINEST = 4  # cells per bandwidth, at least
NODES = 8  # per bandwidth, at which the smoothed density is computed
FADED = 8.6  # exp(-x**2 / 2) is below 1e-16: faster cosines are omitted
START = math.log(0.02)  # where the search begins
SHARP = 1e-7  # last relative step of the search: the error is far smaller
MAX_STEPS = 100  # at most ten were needed so far


class Masses(NamedTuple):
    """Masses ``weights * (values - shift * places) / total`` at places in [0, 1]; empty weights are 1."""

    places: Floats
    values: Floats
    weights: Floats = NOTHING
    shift: float = 0.0
    total: float = 1.0


class Smoothed:
    """Masses, ready to be smoothed with any bandwidth of FINEST cells or more."""

    def __init__(self, masses: Masses, cells: int) -> None:
        moments = np.zeros((cells, _kernels.smoothing.ORDER))
        arrays = (readonly(np.ascontiguousarray(array)) for array in masses[:3])
        sums = _kernels.smoothing.gather(*arrays, masses.shift, moments)
        self.finest = FINEST / cells
        self.sum = float(sums[0] / masses.total)
        self.most = float(sums[1] / masses.total)  # the size without cancellation
        # With c the middle of a cell: cos(pi m (c + d)) = sum_q (pi m d)**q cos(pi m c + q pi / 2) / q!
        columns, (cells, order) = np.ascontiguousarray(moments.T), moments.shape
        waves, found = np.zeros((order, cells)), np.zeros(cells)
        waves[::2] = _sums_of_waves(columns[::2], 1).real
        waves[1::2] = -_sums_of_waves(columns[1::2], -1).imag
        speeds = math.pi * np.arange(cells) / cells
        for q in reversed(range(order)):  # Horner's rule
            sign = -1 if q % 2 == 0 else 1  # from one order to the next, signs are + - - + + -
            found = waves[q] / 2 + sign * found * speeds / (q + 1)
        self.cosines = found / masses.total  # a_m for m below the number of cells

    def size(self, bandwidth: float) -> float:
        """Return the integral of the absolute value of the smoothed density."""
        nodes = 2 ** max(7, math.ceil(math.log2(NODES / bandwidth)))
        count = min(len(self.cosines), math.ceil(FADED / (math.pi * bandwidth)) + 1, nodes)
        speeds = math.pi * np.arange(count)
        faded = self.cosines[:count] * np.exp(-((speeds * bandwidth) ** 2) / 2)
        padded = np.zeros(nodes + 1)
        padded[:count] = faded
        density = _waves(padded)  # at equally spaced nodes from 0 to 1
        padded[0], padded[1:count] = 0, faded[1:] / speeds[1:]
        integral = _waves(-1j * padded)  # sines: the integral from 0
        integral += faded[0] * np.linspace(0, 1, nodes + 1)
        steps = np.diff(integral)
        turns = np.flatnonzero(density[:-1] * density[1:] < 0)
        # Where the density changes sign, its integral is the cubic with the same values and slopes at both
        # ends: first + 2 b x + 3 a x**2 is the slope, for x from 0 to 1, and its root the turning point.
        first, last = (density[at] / len(steps) for at in (turns, turns + 1))
        step = steps[turns]
        b, a = 3 * step - 2 * first - last, first + last - 2 * step
        root = np.copysign(np.sqrt(np.maximum(b * b - 3 * a * first, 0)), b)
        x = -first / (b + root)
        x = np.where((x >= 0) & (x <= 1), x, -(b + root) / np.where(a == 0, 1, 3 * a))
        rise = x * (first + x * (b + x * a))
        excess = np.abs(rise) + np.abs(step - rise) - np.abs(step)
        return float(np.abs(steps).sum() + excess.sum())


# With NumPy's transforms: importing SciPy's takes longer than a million rows.


def _waves(spectrum: NDArray[Any]) -> Floats:
    """Return, at N + 1 nodes, the sum of 2 Re(x_m exp(i pi m t)), once for the first and last m."""
    nodes = len(spectrum) - 1
    return np.asarray(np.fft.irfft(spectrum, 2 * nodes, norm="forward")[: nodes + 1])


def _sums_of_waves(columns: Floats, sign: int) -> NDArray[np.complex128]:
    """Return 2 sum_n x_n cos(pi m (n + 1/2) / N) for sign 1; for -1 the sines, times -i."""
    cells = columns.shape[1]
    mirrored = np.concatenate([columns, sign * columns[:, ::-1]], axis=1)
    turned = np.exp(-0.5j * math.pi * np.arange(cells) / cells)
    return np.asarray(np.fft.rfft(mirrored)[:, :cells] * turned)


def fixed_point(masses: Masses) -> float:
    """Return the bandwidth that equals the size of the masses smoothed with it.

    The size never grows with the bandwidth, so there is at most one. Below ``FINEST / CELLS[-1]``, about
    3e-5, bandwidths are not resolved: then the size at that bandwidth is returned.
    """
    for cells in CELLS:
        smoothed = Smoothed(masses, cells)
        least, most = abs(smoothed.sum), smoothed.most
        if most - least <= 1e-14 * most:  # all of one sign: nothing cancels
            return least
        found = _search(smoothed, least)
        if found > smoothed.finest:
            break
    return max(found, least)


def _search(smoothed: Smoothed, least: float) -> float:
    """Return the fixed point by bounded secant steps in logarithms; the size if it is not resolved.

    The logarithm of the size falls by 0 to 1/2 of the growth of that of the bandwidth: nearly a line.
    """
    floor = math.log(max(least, smoothed.finest))
    low, high = floor, math.log(2 * max(smoothed.most, smoothed.finest))
    x, slope = max(low, min(high, START)), -1.25
    before: tuple[float, float] | None = None
    for _ in range(MAX_STEPS):
        excess = math.log(max(smoothed.size(math.exp(x)), 1e-300)) - x
        if excess <= 0 and x == floor:  # the fixed point is here or below
            return math.exp(excess + x)
        low, high = (x, high) if excess > 0 else (low, x)
        if before is not None:
            slope = min((excess - before[1]) / (x - before[0]), -1.0)
        before, step = (x, excess), -excess / slope
        if abs(step) < SHARP:
            return math.exp(x + step)
        x += step
        if x <= low:
            x = floor if low == floor else (low + high) / 2
        elif x >= high:
            x = (low + high) / 2
    warn(f"the bandwidth of the smooth calibration error has a relative error of {high - low:.1e}")
    return math.exp(x)


@check_keywords(Inputs)
def smooth_ece(
    y_true: Any, probs: Any = None, *, kind: str = "auto", **inputs: Unpack[Inputs]
) -> float:
    r"""Return the smooth calibration error, which needs no bins.

    With probabilities :math:`p_i`, outcomes :math:`y_i` in {0, 1} and a Gaussian :math:`K_\sigma` of width
    :math:`\sigma` that is reflected at 0 and 1, it is the :math:`\sigma` with

    .. math:: \int_0^1 \Big| \frac1n \sum_i K_\sigma(t, p_i) (y_i - p_i) \Big| \, dt = \sigma.

    Unlike :func:`ece` it is a continuous function of the probabilities. It bounds the distance to the nearest
    calibrated predictions from both sides, up to a constant and a square root.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    kind : {"auto", "binary", "top-label", "class-wise"}
        As for :func:`ece`; "class-wise" is the mean over all classes.

    Returns
    -------
    float
        Between 0 and 1, with a relative error of at most 1e-6. Below 3e-5, where bandwidths are not
        resolved, the value is a lower bound.

    References
    ----------
    Błasiok, Nakkiran, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing", 2023,
    arXiv:2309.12236, definitions 1 and 2.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.smooth_ece([0, 1, 1, 1], [0.5] * 4), 12)  # predicts 1/2, observes 3/4
    0.25
    >>> round(rc.metrics.smooth_ece([0, 1, 1, 1], [0.75] * 4), 12)
    0.0
    """
    found = [smooth_ece_of(event) for event in events(read(y_true, probs, True, **inputs), kind)]
    return float(np.mean(found))


def smooth_ece_of(event: Event) -> float:
    """Return the smooth calibration error of one checked event."""
    return fixed_point(Masses(*event, shift=1.0, total=event.total))
