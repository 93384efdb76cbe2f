r"""High-dimensional limits of regularized discriminant analysis and ridge classification.

Labels are :math:`y_i = \pm 1`. With :math:`\hat\mu = \frac1n \sum_i y_i x_i` and the covariance :math:`S`
within classes,

.. math:: w_{\mathrm{lda}} = 2 (S + \lambda I)^{-1} \hat\mu, \qquad
          w_{\mathrm{ridge}} = (S + \hat\mu\hat\mu^\top + \lambda I)^{-1} \hat\mu.

Rows :math:`n` and features :math:`p` grow with :math:`p/n \to r`. Then :math:`\hat\mu` is :math:`\mu` and an
independent :math:`N(0, \Sigma/n)`, and :math:`(S + \lambda I)^{-1}` acts like
:math:`(\lambda I + \theta\Sigma)^{-1}`. With :math:`\sigma \sim F` the eigenvalues of the covariance,
:math:`c` the length of :math:`\mu`, and :math:`G` how :math:`c^2` is spread over the eigenvalues:

.. math::
    1 &= \theta + r\, E_F[\rho], \qquad D = \lambda + \theta\sigma, \qquad \rho = \theta\sigma / D \\
    \langle w_{\mathrm{lda}}, w^*\rangle_\Sigma &= 4 c^2 E_G[1 / D] \\
    \|w_{\mathrm{lda}}\|_\Sigma^2 &=
        4\, \frac{c^2 E_G[\sigma / D^2] + r\, E_F[\sigma^2 / D^2]}{\theta + r\, E_F[\rho (1 - \rho)]}

The denominator is the usual :math:`1 - r\, E_F[\rho^2]`, written as a sum that loses no digits. By the
Sherman-Morrison formula, ridge has the same direction,

.. math:: w_{\mathrm{ridge}} = \frac{w_{\mathrm{lda}} / 2}{1 + \hat\mu^\top (S + \lambda I)^{-1} \hat\mu}
          = \frac{w_{\mathrm{lda}} / 2}{1/\theta + c^2 E_G[1 / D]},

so that both have the same refinement and error rate (Dobriban & Wager 2018, who find the error rate).
"""

from __future__ import annotations  # so that help() shows types by name

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal.losses import ProperLoss, get_loss
from refinecal.theory.asymptotics import Problem, Solution
from refinecal.theory.fixed_point import Track
from refinecal.theory.spectrum import Spectrum

__all__ = ["lda", "ridge"]

Floats = NDArray[np.float64]

TOLERANCE = 1e-13  # of Newton's last step, relative to theta
MOST_STEPS = 200  # 8 suffice for the heat maps of the paper, 17 for eigenvalues of 1e-6 to 1e6
BLOCK = 1024  # points at once: their nodes fit in the cache


def lda(
    lam: ArrayLike,
    *,
    ratio: ArrayLike,
    spectrum: Spectrum,
    bayes_error: ArrayLike | None = None,
    signal: ArrayLike | None = None,
    loss: str | ProperLoss = "log",
) -> Solution:
    r"""Return the high-dimensional limit of regularized linear discriminant analysis.

    Its log-odds are :math:`w^\top x` with :math:`w = 2 (S + \lambda I)^{-1} \hat\mu`: those of two Gaussian
    classes with the estimated mean and covariance. ``lam`` is added to each eigenvalue of the covariance
    estimate; arguments and result are otherwise as for :func:`logistic`. ``constants`` are :math:`\theta`,
    named ``tau``, and ``kappa``, :math:`1/\theta - 1`.

    References
    ----------
    Dobriban, Wager, "High-dimensional asymptotics of prediction: ridge regression and classification",
    Annals of Statistics 46, 2018. The paper mentions it in section 7.

    Examples
    --------
    With two rows per feature, it is overconfident unless it is regularized:

    >>> from refinecal.theory import BetaSpectrum, lda
    >>> found = lda([0.001, 10.0], ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    >>> (found.confidence > found.expertise).tolist()
    [True, False]
    """
    get_loss(loss)
    return _solve("lda", Problem.check(lam, ratio, spectrum, bayes_error, signal), loss)


def ridge(
    lam: ArrayLike,
    *,
    ratio: ArrayLike,
    spectrum: Spectrum,
    bayes_error: ArrayLike | None = None,
    signal: ArrayLike | None = None,
    loss: str | ProperLoss = "log",
) -> Solution:
    r"""Return the high-dimensional limit of ridge regression on labels of ±1.

    It minimizes :math:`\frac1{2n} \sum_i (y_i - w^\top x_i)^2 + \frac\lambda2 \|w\|^2`, so that ``lam`` is
    scikit-learn's ``alpha`` divided by n. The output predicts ±1, not log-odds; risk and calibration are
    those of treating it as log-odds, with the probability :math:`1/(1 + e^{-w^\top x})`. Refinement is that
    of :func:`lda`, since the direction is the same; multiplied by ``scale``, the output is calibrated.
    Arguments are as for :func:`logistic`, and the result as for :func:`lda`.

    Examples
    --------
    >>> import numpy as np
    >>> from refinecal.theory import BetaSpectrum, lda, ridge
    >>> settings = dict(lam=0.1, ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    >>> found, other = ridge(**settings), lda(**settings)
    >>> bool(np.isclose(found.refinement, other.refinement))
    True
    >>> bool(found.confidence < other.confidence)
    True
    """
    get_loss(loss)
    return _solve("ridge", Problem.check(lam, ratio, spectrum, bayes_error, signal), loss)


def _solve(
    method: str, problem: Problem, loss: str | ProperLoss, start: Track | None = None
) -> Solution:
    """Solve a checked problem in blocks; ``start`` is ignored, since few steps suffice from anywhere."""
    lam, ratio, signal = map(np.ravel, (problem.lam, problem.ratio, problem.signal))
    found = np.empty((7, len(lam)))
    for first in range(0, len(lam), BLOCK):
        rows = slice(first, first + BLOCK)
        found[:, rows] = _solve_block(lam[rows], ratio[rows], signal[rows], problem.spectrum)
    theta, kappa, inner, norm, *slopes = (each.reshape(problem.lam.shape) for each in found)
    theta_slope, inner_slope, norm_slope = slopes
    if method == "ridge":  # the weights of discriminant analysis, divided by a factor
        fit = inner / 4  # c^2 E_G[1 / D]
        whole = 1 / theta + fit
        inner, norm = inner / (2 * whole), norm / (2 * whole)
        factor_slope = (fit * inner_slope - theta_slope / theta) / whole
        inner_slope, norm_slope = inner_slope - factor_slope, norm_slope - factor_slope
    constants, solver = {"kappa": kappa, "tau": theta}, partial(_solve, method)
    return Solution(problem, method, inner, norm, inner_slope, norm_slope, constants, loss, solver)


def _solve_block(lam: Floats, ratio: Floats, signal: Floats, spectrum: Spectrum) -> Floats:
    """Return theta, kappa, inner and norm; then the slopes of the logarithms of theta, inner and norm.

    Squares of 1/D are taken relative to its largest value, so that no λ is too small or too large.
    """
    sigma, by_f, by_g = spectrum.nodes, spectrum.weights, spectrum.signal_weights
    theta = _theta(lam, ratio, spectrum)
    stretched = theta[:, None] * sigma
    once = 1 / (lam[:, None] + stretched)
    rho, rest = stretched * once, lam[:, None] * once  # they sum to 1
    both = rho * rest
    gap = ratio * (both @ by_f)
    theta_slope = gap / (theta + gap)
    growth = rest + rho * theta_slope[:, None]  # of D

    largest = once[:, 0]
    square = (once / largest[:, None]) ** 2
    mass = signal[:, None] ** 2 * (by_g * sigma) + ratio[:, None] * (by_f * sigma**2)
    length = (square * mass).sum(axis=1)
    length_slope = -2 * (square * mass * growth).sum(axis=1) / length
    # of theta + gap = theta (1 + A), where A = lam r E_F[sigma / D^2] changes by A - 2 A growth
    denominator_slope = theta_slope * 2 - 2 * ratio * ((both * growth) @ by_f) / (theta + gap)

    reached = once @ by_g
    inner_slope = -((once * growth) @ by_g) / reached
    return np.stack(
        [
            theta,
            ratio * (rho @ by_f) / theta,
            4 * signal**2 * reached,
            2 * largest * np.sqrt(length / (theta + gap)),
            theta_slope,
            inner_slope,
            (length_slope - denominator_slope) / 2,
        ]
    )


def _theta(lam: Floats, ratio: Floats, spectrum: Spectrum) -> Floats:
    r"""Solve :math:`\theta + r E_F[\theta\sigma / (\lambda + \theta\sigma)] = 1` by Newton's method.

    The left side increases with :math:`\theta` and is concave, so steps from below approach the solution
    and never pass it. The solution with all eigenvalues at their mean is below it (Jensen).
    """
    sigma, weights = spectrum.nodes, spectrum.weights
    theta = _theta_of_one(lam, ratio, float(weights @ sigma))
    todo = np.arange(len(lam))
    for _ in range(MOST_STEPS):
        now = theta[todo]
        r, stretched = ratio[todo], now[:, None] * sigma
        once = 1 / (lam[todo, None] + stretched)
        rho, rest = stretched * once, lam[todo, None] * once
        # the same twice: the first loses no digits where r is near 1, the second where r is large
        room = np.where(r < 2, 1 - r + r * (rest @ weights), 1 - r * (rho @ weights))
        step = (room - now) / (now + r * ((rho * rest) @ weights))  # relative to theta
        theta[todo] = now * (1 + step)
        todo = todo[step > TOLERANCE]  # rounding ends in a step back
        if not len(todo):
            return theta
    first = todo[0]
    raise RuntimeError(
        f"theta did not converge to {TOLERANCE:g} at {len(todo)} of {len(lam)} points, the first with "
        f"lam = {lam[first]:.4g}, ratio = {ratio[first]:.4g}: use a larger lam."
    )


def _theta_of_one(lam: Floats, ratio: Floats, sigma: float) -> Floats:
    """Return theta if all eigenvalues are the same, without subtracting nearly equal numbers."""
    linear = lam + (ratio - 1) * sigma
    root = np.hypot(linear, 2 * np.sqrt(lam * sigma))
    above = np.maximum(linear + root, 1e-300)
    return np.asarray(np.where(linear > 0, 2 * lam / above, (root - linear) / (2 * sigma)))
