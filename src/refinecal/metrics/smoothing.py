r"""Smooth calibration error: masses on [0, 1], smoothed by a Gaussian that the two ends reflect.

That kernel is diagonal in cosines (a mass that spreads like heat in a rod with insulated ends): with masses
:math:`r_i` at places :math:`f_i`, and :math:`a_m = \sum_i r_i \cos(\pi m f_i)`, the smoothed density is

.. math:: s_\sigma(t) = \sum_i r_i K_\sigma(t, f_i)
          = a_0 + 2 \sum_{m \ge 1} e^{-(\pi m \sigma)^2 / 2} a_m \cos(\pi m t).

One read gathers the masses into cells with their moments up to order 5; the cosines of all of them,
expanded around the middles of the cells, are a few fast transforms of the moments. Each bandwidth then costs
two short transforms, whatever the number of rows: one for :math:`s`, one for its integral :math:`S`. Between
two zeros of :math:`s`, :math:`\int |s|` is a difference of :math:`S`, to which an error in the place of the
zeros hardly matters. With bandwidths of at least ``FINEST`` cells, all that is left out is below 1e-7 of the
result.
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
CELLS = (2**11, 2**17)  # the second only if the bandwidth turns out too small for the first
FINEST = 4  # cells per bandwidth, at least
NODES = 8  # per bandwidth, at which the smoothed density is computed
FADED = 8.6  # exp(-x**2 / 2) is below 1e-16 there: cosines that fast are left out
START = math.log(0.02)  # where the search begins
SHARP = 1e-7  # last step of the search, relative: what it leaves is far smaller
MAX_STEPS = 100  # ten have been the most


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
        self.most = float(sums[1] / masses.total)  # the size, if nothing cancelled
        self.cosines = _cosines(moments) / masses.total

    def at(self, bandwidth: float) -> tuple[Floats, Floats]:
        """Return the smoothed density and its integral from 0, at equally spaced nodes from 0 to 1."""
        nodes = 2 ** max(7, math.ceil(math.log2(NODES / bandwidth)))
        count = min(len(self.cosines), math.ceil(FADED / (math.pi * bandwidth)) + 1, nodes)
        speeds = math.pi * np.arange(count)
        faded = self.cosines[:count] * np.exp(-((speeds * bandwidth) ** 2) / 2)
        padded = np.zeros(nodes + 1)
        padded[:count] = faded
        density = _waves(padded)
        padded[0], padded[1:count] = 0, faded[1:] / speeds[1:]
        integral = _waves(-1j * padded)  # sines
        return density, integral + faded[0] * np.linspace(0, 1, nodes + 1)

    def size(self, bandwidth: float) -> float:
        """Return the integral of the absolute value of the smoothed density."""
        density, integral = self.at(bandwidth)
        steps = np.diff(integral)
        turns = np.flatnonzero(density[:-1] * density[1:] < 0)
        return float(np.abs(steps).sum() + _excess_at_turns(density, steps, turns).sum())


# Transforms of NumPy's, since importing SciPy's takes longer than a million rows.


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


def _cosines(moments: Floats) -> Floats:
    r"""Return :math:`a_m` for m below the number of cells.

    With c the middle of a cell,
    :math:`\cos(\pi m (c + d)) = \sum_q (\pi m d)^q \cos(\pi m c + q \pi / 2) / q!`.
    """
    cells, order = moments.shape
    columns, waves = np.ascontiguousarray(moments.T), np.zeros((order, cells))
    waves[::2] = _sums_of_waves(columns[::2], 1).real
    waves[1::2] = -_sums_of_waves(columns[1::2], -1).imag
    speeds = math.pi * np.arange(cells) / cells
    found = np.zeros(cells)
    for q in reversed(range(order)):  # Horner's rule
        sign = -1 if q % 2 == 0 else 1  # from one order to the next, signs are + - - + + -
        found = waves[q] / 2 + sign * found * speeds / (q + 1)
    return found


def _excess_at_turns(density: Floats, steps: Floats, turns: NDArray[np.int64]) -> Floats:
    """Return by how much the size exceeds the step in intervals where the density changes sign.

    The integral is the cubic that has the right values and slopes at both ends; its turning point is the
    root of a quadratic.
    """
    width = 1 / (len(density) - 1)
    first, last, step = density[turns] * width, density[turns + 1] * width, steps[turns]
    # The slope of the cubic is first + 2 b x + 3 a x**2, for x from 0 to 1.
    b, a = 3 * step - 2 * first - last, first + last - 2 * step
    root = np.sqrt(np.maximum(b * b - 3 * a * first, 0))
    x = -first / (b + np.copysign(root, b))
    x = np.where((x >= 0) & (x <= 1), x, -(b + np.copysign(root, b)) / np.where(a == 0, 1, 3 * a))
    rise = x * (first + x * (b + x * a))
    return np.asarray(np.abs(rise) + np.abs(step - rise) - np.abs(step))


def fixed_point(masses: Masses) -> float:
    """Return the bandwidth that equals the size of the masses smoothed with it.

    The size never grows with the bandwidth, so there is one at most. Below ``FINEST / CELLS[-1]``, about
    3e-5, it is not resolved: there the size at that bandwidth is returned, which is not above it.
    """
    for cells in CELLS:
        smoothed = Smoothed(masses, cells)
        least, most = abs(smoothed.sum), smoothed.most
        if most - least <= 1e-14 * most:  # all of one sign: nothing cancels, whatever the bandwidth
            return least
        found = _search(smoothed, least)
        if found > smoothed.finest:
            break
    return max(found, least)


def _search(smoothed: Smoothed, least: float) -> float:
    """Return the fixed point by secants in logarithms, kept between bounds; the size if it is not resolved.

    In logarithms the size falls by 0 to 1/2 of what the bandwidth grows, so the secants are nearly straight.
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
    warn(
        f"the bandwidth of the smooth calibration error is only known to {high - low:.1e}, relative"
    )
    return math.exp(x)


@check_keywords(Inputs)
def smooth_ece(
    y_true: Any, probs: Any = None, *, kind: str = "auto", **inputs: Unpack[Inputs]
) -> float:
    r"""Return the smooth calibration error: how far probabilities are from outcomes, smoothed.

    With probabilities :math:`p_i` and outcomes :math:`y_i` (1 if it happened, else 0), and
    :math:`K_\sigma` a Gaussian of width :math:`\sigma` that is reflected at 0 and 1, it is the one
    :math:`\sigma` with

    .. math:: \int_0^1 \Big| \frac1n \sum_i K_\sigma(t, p_i) (y_i - p_i) \Big| \, dt = \sigma.

    Unlike :func:`ece` it has no bins to choose, and does not jump when a probability moves a little. It
    bounds the distance to the nearest calibrated predictions from both sides, up to a constant and a square
    root.

    Parameters
    ----------
    y_true, probs, **inputs
        As for :func:`refinecal.decompose`; ``logits``, ``sample_weight`` and ``classes`` too.
    kind : {"auto", "binary", "top-label", "class-wise"}
        As for :func:`ece`: of the second of two classes, of the likeliest class, or the mean over the errors
        of all classes; by default the first for two classes, else the second.

    Returns
    -------
    float
        Between 0 and 1, with a relative error of at most 1e-6. Below 3e-5 the bandwidth is no longer
        resolved: a value there is the left side for that bandwidth, which is at most the true one.

    Notes
    -----
    One read of the rows, then a few short cosine transforms for each :math:`\sigma` that is tried.

    References
    ----------
    Błasiok, Nakkiran, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing", 2023,
    arXiv:2309.12236, definitions 1 and 2.

    Examples
    --------
    >>> import refinecal as rc
    >>> round(rc.metrics.smooth_ece([0, 1, 1, 1], [0.5] * 4), 12)  # says 1/2, and 3/4 happens
    0.25
    >>> round(rc.metrics.smooth_ece([0, 1, 1, 1], [0.75] * 4), 12)
    0.0
    """
    found = [smooth_ece_of(event) for event in events(read(y_true, probs, True, **inputs), kind)]
    return float(np.mean(found))


def smooth_ece_of(event: Event) -> float:
    """Return the smooth calibration error of one event, checked already."""
    return fixed_point(Masses(*event, shift=1.0, total=event.total))


def smooth_curve(event: Event, bandwidth: float) -> tuple[Floats, Floats, Floats]:
    """Return nodes from 0 to 1, the smoothed density of probabilities there, and the smoothed frequency.

    That is the smooth reliability diagram; its bandwidth is best the smooth calibration error. Where there
    is no probability within many bandwidths, the frequency is NaN.
    """
    scores, hits, weights = event
    bandwidth, ones = max(bandwidth, FINEST / CELLS[0]), np.ones(len(scores))
    each = (Masses(scores, values, weights, total=event.total) for values in (ones, hits))
    density, happened = (Smoothed(masses, CELLS[0]).at(bandwidth)[0] for masses in each)
    empty = density < 1e-9 * density.max()
    frequency = np.where(empty, np.nan, happened / np.where(empty, 1, density))
    return np.linspace(0, 1, len(density)), density, np.clip(frequency, 0, 1)
