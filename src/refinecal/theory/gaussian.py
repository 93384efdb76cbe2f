r"""Calibration and refinement of a linear model when the classes are Gaussian (section 6 of the paper).

Along any direction, two Gaussian classes of the same covariance are two normal laws of the same width. In
units of that width, and relative to the middle, the data are

.. math:: u = z \pm a/2 \quad \text{given } Y = \pm 1, \qquad z \sim N(0, 1),

where the *expertise* :math:`a = \langle w, w^* \rangle_\Sigma / \|w\|_\Sigma` is how well the direction
separates the classes. The model's score is :math:`s u + t`, with *confidence* :math:`s = \|w\|_\Sigma` and a
shift t that is 0 for centered data; the log-odds of the label given the score are
:math:`a u + \mathrm{logit}(\pi)`, with :math:`\pi = P(Y = 1)`. So for any proper loss, with entropy e and
divergence d,

.. math:: \text{calibration} &= E\, d(\sigma(s u + t),\ \sigma(a u + \mathrm{logit}(\pi))), \\
          \text{refinement}  &= E\, e(\sigma(a u + \mathrm{logit}(\pi))),

which is proposition 6.1 for :math:`\pi = 1/2` and t = 0, where both classes contribute the same.

Both integrands bend where the score or the log-odds pass 0, within :math:`1/s` or :math:`1/|a|` of there: for
a confident model that is a step that Gauss-Hermite nodes miss. So the line is cut where they bend. Up to a
distance of 1 from there, Gauss-Legendre nodes lie in :math:`y = \sinh^{-1}(S\,|u - u_0|)` with
:math:`S = \max(s, |a|, 1)`, which keeps all poles of the integrand about :math:`\pi/2` away; farther out,
in u. Their number depends on the lengths of the intervals.
"""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, roots_legendre

from refinecal.losses import ProperLoss, get_loss
from refinecal.theory._binary_losses import BinaryLoss, binary_loss
from refinecal.theory._number_checks import check_array

__all__ = ["GaussianDecomposition", "gaussian_decomposition", "optimal_rescaling", "risk_slopes"]

Floats = NDArray[np.float64]

TAIL = 12.0  # standard deviations: enough even if all errors of a model lie 8 away
MAX_CONFIDENCE = 1e300
MAX_EXPERTISE = 1000.0  # an error rate of 1e-54289
BLOCK = 20_000  # nodes at once, so that temporary arrays stay in the cache
DENSITY = 1 / np.sqrt(2 * np.pi)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GaussianDecomposition:
    """Risk, calibration and refinement of a linear model on Gaussian data, all of the same shape.

    Attributes
    ----------
    risk : float or ndarray
        Expected loss, ``calibration + refinement``.
    calibration, refinement : float or ndarray
        The part that rescaling the score removes, and the rest.
    error_rate : float or ndarray
        How often the more probable class by the score is not the label.
    expertise, confidence, prevalence, shift : float or ndarray
        The arguments, broadcast against each other.
    loss : str
        Name of the loss.
    """

    loss: str
    calibration: Any
    refinement: Any
    error_rate: Any
    expertise: Any
    confidence: Any
    prevalence: Any
    shift: Any

    @property
    def risk(self) -> Any:
        """Expected loss: ``calibration + refinement``."""
        return self.calibration + self.refinement

    def __repr__(self) -> str:
        names = ("risk", "calibration", "refinement", "error_rate", "expertise", "confidence")
        values = [np.asarray(getattr(self, name)) for name in names]
        with np.printoptions(precision=5, threshold=8, edgeitems=2):
            shown = [f"{value:.5g}" if not value.ndim else str(value) for value in values]
        parts = ", ".join(f"{name}={value}" for name, value in zip(names, shown, strict=True))
        return f"GaussianDecomposition(loss={self.loss!r}, {parts})"


def gaussian_decomposition(
    expertise: ArrayLike,
    confidence: ArrayLike,
    loss: str | ProperLoss = "log",
    *,
    prevalence: ArrayLike = 0.5,
    shift: ArrayLike = 0.0,
) -> GaussianDecomposition:
    r"""Return the exact decomposition of a linear model's loss on two Gaussian classes.

    Parameters
    ----------
    expertise : array-like
        :math:`a = \langle w, w^*\rangle_\Sigma / \|w\|_\Sigma`: the distance between the classes along the
        model's direction, in standard deviations. Negative for a model that is worse than chance.
    confidence : array-like
        :math:`s = \|w\|_\Sigma \ge 0`: standard deviation of the score within a class.
    loss : {"log", "brier", "spherical"} or a loss object
        See :mod:`refinecal.losses`. The calibration of a custom loss has the rounding errors of its
        ``divergence``; a loss that is not smooth in the log-odds is integrated less accurately.
    prevalence : array-like, default 0.5
        Probability of the class of positive scores.
    shift : array-like, default 0
        Score half-way between the classes.

    Returns
    -------
    GaussianDecomposition
        Of the broadcast shape of the arguments; numbers if all arguments are.

    Notes
    -----
    Proposition 6.1 of the paper. For an expertise up to 14 and a confidence up to 10,000, the relative error
    of each term of a built-in loss is below 1e-10, however small the term.

    Examples
    --------
    A model that is as confident as it is expert is calibrated:

    >>> from refinecal.theory import gaussian_decomposition
    >>> float(gaussian_decomposition(2.0, 2.0).calibration)
    0.0

    One that predicts 1/2 everywhere has a log loss of log 2:

    >>> round(float(gaussian_decomposition(0.0, 0.0).risk), 6)
    0.693147

    Rescaling changes calibration only:

    >>> found = gaussian_decomposition(2.0, [1.0, 2.0, 4.0])
    >>> found.calibration.round(3).tolist(), found.refinement.round(3).tolist()
    ([0.051, 0.0, 0.076], [0.356, 0.356, 0.356])
    """
    chosen = get_loss(loss)
    form = binary_loss(chosen)
    a, s, prior, t = _check_arguments(expertise, confidence, prevalence, shift)
    calibration, refinement = _compute_blocks(partial(_terms, form), a, s, prior, t)
    errors = error_rate(a, s, prior, t)
    terms = [each[()] for each in (calibration, refinement, errors, a, s, prior, t)]
    return GaussianDecomposition(chosen.name, *terms)


def optimal_rescaling(
    expertise: ArrayLike,
    confidence: ArrayLike,
    *,
    prevalence: ArrayLike = 0.5,
    shift: ArrayLike = 0.0,
) -> tuple[Any, Any]:
    r"""Return the scale and intercept for which ``scale * score + intercept`` is calibrated.

    The scale is :math:`a / s = \langle w, w^*\rangle_\Sigma / \|w\|_\Sigma^2`, an inverse temperature; the
    intercept is :math:`\mathrm{logit}(\pi) - t\,a/s`, which is 0 for centered and balanced data (the paper's
    proposition 6.2 and the remark after it). Arguments are as for :func:`gaussian_decomposition`. A score of
    confidence 0 is constant: its scale is 0, and the intercept alone predicts the prevalence.

    Examples
    --------
    >>> from refinecal.theory import optimal_rescaling
    >>> scale, intercept = optimal_rescaling(2.0, 4.0)  # twice as confident as it should be
    >>> float(scale), float(intercept)
    (0.5, 0.0)
    """
    a, s, prior, t = _check_arguments(expertise, confidence, prevalence, shift)
    scale = np.divide(a, s, out=np.zeros(a.shape), where=s > 0)
    return scale[()], (logit(prior) - scale * t)[()]


def risk_slopes(
    expertise: ArrayLike, confidence: ArrayLike, loss: str | ProperLoss = "log"
) -> tuple[Any, Any]:
    r"""Return the derivatives of the risk in :math:`\langle w, w^*\rangle_\Sigma` and :math:`\|w\|_\Sigma`.

    For centered and balanced data. Given label 1, the score is :math:`t = i/2 + s z` with
    :math:`i = \langle w, w^*\rangle_\Sigma = a s`, so for a loss L(t) of label 1,

    .. math:: \frac{\partial\, \text{risk}}{\partial i} = \tfrac12 E\, L'(t), \qquad
              \frac{\partial\, \text{risk}}{\partial s} = E\, z L'(t) = s E\, L''(t),

    and the same for label 0. Refinement is the risk at s = a, where rescaling changes nothing; so its
    derivative in a is a times the first slope there. Slopes of a custom loss are differences of fourth order
    in the score.

    Examples
    --------
    At the best scale, scaling the weights has no effect: :math:`i\,\partial_i + s\,\partial_s = 0`.

    >>> from refinecal.theory.gaussian import risk_slopes
    >>> by_inner, by_norm = risk_slopes(2.0, 2.0)
    >>> bool(abs(4 * by_inner + 2 * by_norm) < 1e-12)
    True
    """
    form = binary_loss(get_loss(loss))
    a, s, _, _ = _check_arguments(expertise, confidence, 0.5, 0.0)
    by_inner, by_norm = _compute_blocks(partial(_slopes, form), a, s)
    return by_inner[()], by_norm[()]


# ---- integrands ------------------------------------------------------------------------------------------


def _compute_blocks(compute: Callable[..., Floats], a: Floats, s: Floats, *more: Floats) -> Floats:
    """Return two terms of all points, computed in blocks whose nodes fit in the cache."""
    flat = [each.ravel() for each in (a, s, *more)]
    found = np.empty((2, a.size))
    most = 100 + 15 * int(np.arcsinh(s.max(initial=0))) + 6 * int(np.abs(a).max(initial=0))
    step = max(BLOCK // most, 1)
    for start in range(0, a.size, step):
        rows = slice(start, start + step)
        found[:, rows] = compute(*(each[rows] for each in flat))
    return found.reshape(2, *a.shape)


def _terms(form: BinaryLoss, a: Floats, s: Floats, prior: Floats, t: Floats) -> Floats:
    """Return calibration and refinement of some points."""
    log_odds = logit(prior)
    u, weights = _nodes(a, s, log_odds, t, half=form.symmetric)
    a, s, prior, log_odds, t = (each[:, None] for each in (a, s, prior, log_odds, t))
    weights *= prior * _normal(u - a / 2) + (1 - prior) * _normal(u + a / 2)
    posterior = a * u + log_odds
    terms = form.divergence(posterior, (s - a) * u + (t - log_odds)), form.entropy(posterior)
    return np.stack([np.einsum("ij,ij->i", weights, each) for each in terms])


def _slopes(form: BinaryLoss, a: Floats, s: Floats) -> Floats:
    """Return the derivatives of the risk of some points."""
    u, weights = _nodes(a, s, np.zeros(len(a)), np.zeros(len(a)), half=False)
    a, s = a[:, None], s[:, None]
    found = np.zeros((2, len(a)))
    sides = ((1, 1.0),) if form.symmetric else ((1, 0.5), (0, 0.5))
    for label, share in sides:
        sign = 1 if label else -1
        z = u - sign * a / 2
        mass = share * weights * _normal(z)
        slope = form.slope(s * u, label)
        by_norm = z * slope
        if s.min() <= 1:  # there E z L' cancels; for large s, s E L'' does
            by_norm = np.where(s <= 1, s * form.curvature(s * u, label), by_norm)
        found += [(mass * sign * slope).sum(axis=1) / 2, (mass * by_norm).sum(axis=1)]
    return found


def error_rate(a: ArrayLike, s: ArrayLike, prior: ArrayLike, t: ArrayLike) -> Floats:
    """Return how often the score is on the wrong side of 0; if it is always 0, for the smallest scale."""
    a, s, prior, t = (np.asarray(each, dtype=np.float64) for each in (a, s, prior, t))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        kink = np.where(t == 0, 0.0, t / s)
    return np.asarray(prior * ndtr(-a / 2 - kink) + (1 - prior) * ndtr(-a / 2 + kink))


# ---- nodes -----------------------------------------------------------------------------------------------


def _nodes(a: Floats, s: Floats, log_odds: Floats, t: Floats, half: bool) -> tuple[Floats, Floats]:
    """Return nodes u and their weights, a row for each point: dense where the integrands bend.

    With ``half``, symmetric points get twice the weight on the right.
    """
    steep = np.maximum(np.maximum(s, np.abs(a)), 1.0)
    high = np.abs(a) / 2 + TAIL
    first, second = (_kink(*line, high) for line in ((s, t), (a, log_odds)))
    if not (first.any() or second.any()):
        u, weights = _graded(first, high, steep)
        return (u, 2 * weights) if half else (np.hstack([-u, u]), np.hstack([weights, weights]))
    left, right = np.minimum(first, second), np.maximum(first, second)
    middle = (left + right) / 2
    pieces = ((left, -high), (left, middle), (right, middle), (right, high))
    parts = [_graded(begin, end, steep) for begin, end in pieces]
    u, weights = map(np.hstack, zip(*parts, strict=True))
    return u, weights


def _kink(slope: Floats, offset: Floats, high: Floats) -> Floats:
    """Return the root of slope * u + offset, or the nearer end of the interval."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = np.where(offset == 0, 0.0, -offset / slope)
    return np.asarray(np.clip(root, -high, high))


def _graded(begin: Floats, end: Floats, steep: Floats) -> tuple[Floats, Floats]:
    """Return nodes and weights between two places, dense at the first."""
    length = np.abs(end - begin)
    near = np.minimum(length, 1.0)
    reach = np.arcsinh(steep * near)
    x, weights = _legendre(10 + int(5 * reach.max()))
    stretched = np.sinh(reach[:, None] * x)
    inner = stretched / steep[:, None]
    inner_weights = np.cosh(reach[:, None] * x) * weights * (reach / steep)[:, None]
    rest = length - near
    x, weights = _legendre(10 + int(3 * rest.max()))
    distance = np.hstack([inner, near[:, None] + rest[:, None] * x])
    return (
        begin[:, None] + np.sign(end - begin)[:, None] * distance,
        np.hstack([inner_weights, rest[:, None] * weights]),
    )


@cache
def _legendre(order: int) -> tuple[Floats, Floats]:
    """Return the Gauss-Legendre rule on [0, 1]."""
    x, weights = roots_legendre(order)
    return (1 + x) / 2, weights / 2


def _normal(z: Floats) -> Floats:
    return np.asarray(DENSITY * np.exp(-z * z / 2))


def logit(prior: float | Floats) -> Floats:
    """Return the log-odds of a probability."""
    return np.asarray(np.log(prior) - np.log1p(-prior))


# ---- checks ----------------------------------------------------------------------------------------------


def _check_arguments(
    expertise: ArrayLike, confidence: ArrayLike, prevalence: ArrayLike, shift: ArrayLike
) -> list[Floats]:
    """Return the four arguments as float64 of one shape."""
    given = zip(_ALLOWED, (expertise, confidence, prevalence, shift), strict=True)
    arrays = [check_array(name, value, *_ALLOWED[name]) for name, value in given]
    try:
        return [each.copy() for each in np.broadcast_arrays(*arrays)]
    except ValueError as error:
        pairs = zip(_ALLOWED, arrays, strict=True)
        shapes = ", ".join(f"{name} {array.shape}" for name, array in pairs)
        raise ValueError(f"the arguments do not broadcast to one shape: {shapes}") from error


_ALLOWED: dict[str, tuple[Callable[[Floats], NDArray[np.bool_]], str]] = {
    "expertise": (
        lambda a: np.abs(a) <= MAX_EXPERTISE,
        f"it must lie in ±{MAX_EXPERTISE:g}. It is <w, w*> / |w|, not the inner product alone",
    ),
    "confidence": (
        lambda s: (s >= 0) & (s <= MAX_CONFIDENCE),
        f"as |w|, it must lie in 0..{MAX_CONFIDENCE:g}. A model worse than chance has negative expertise",
    ),
    "prevalence": (lambda prior: (prior > 0) & (prior < 1), "it must lie strictly between 0 and 1"),
    "shift": (lambda t: np.abs(t) <= MAX_CONFIDENCE, f"it must lie in ±{MAX_CONFIDENCE:g}"),
}
