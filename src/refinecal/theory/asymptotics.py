r"""High-dimensional limits of linear classifiers on two Gaussian classes.

Classes are :math:`N(\pm\mu, \Sigma)`. Section 7 of the paper derives what logistic regression with a penalty
:math:`\frac\lambda2 \|w\|^2` learns in the limit :math:`p, n \to \infty`, :math:`p/n \to r`. Two numbers
describe it, :math:`\langle w, w^*\rangle_\Sigma` and :math:`\|w\|_\Sigma`;
:mod:`refinecal.theory.gaussian` computes risk, calibration and refinement from them.
"""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refinecal.losses import ProperLoss, get_loss
from refinecal.theory import fixed_point
from refinecal.theory._eigenvalues import check_spectrum
from refinecal.theory._number_checks import check_one_of, check_positive, freeze, read_floats
from refinecal.theory.gaussian import GaussianDecomposition, gaussian_decomposition
from refinecal.theory.spectrum import Spectrum

Floats = NDArray[np.float64]
Solver: TypeAlias = "Callable[[Problem, str | ProperLoss, fixed_point.Track | None], Solution]"

COLUMNS = (
    *("lam", "ratio", "bayes_error", "signal", "inner", "norm", "expertise", "confidence", "scale"),
    *("risk", "calibration", "refinement", "error_rate"),
)
REPORTED = ("lam", "ratio", "bayes_error", "risk", "calibration", "refinement")  # when printed
SHOWN, WIDTH = 10, 13


@dataclass(frozen=True, eq=False)
class Problem:
    """The problems to solve: arrays of one shape, and the law of the eigenvalues."""

    lam: Floats  # regularization strength
    ratio: Floats  # features per row
    signal: Floats  # norm of the class mean
    bayes_error: Floats  # error rate of the best classifier
    spectrum: Spectrum  # law of the eigenvalues of the covariance

    @classmethod
    def check(
        cls,
        lam: ArrayLike,
        ratio: ArrayLike,
        spectrum: Spectrum,
        bayes_error: ArrayLike | None,
        signal: ArrayLike | None,
    ) -> Problem:
        """Check the arguments that all methods share, and broadcast them."""
        laws = "BetaSpectrum(1, 1), PointSpectrum([1.0, 2.0]) or parse_spectrum('beta:1,1')"
        check_spectrum("spectrum", spectrum, f"{laws} of refinecal.theory.")
        check_one_of(bayes_error, signal)
        lams, ratios = check_positive("lam", lam), check_positive("ratio", ratio)
        if signal is None:
            errors = read_floats("bayes_error", bayes_error)
            signals = np.asarray(spectrum.signal_for(errors), dtype=float)
        else:
            signals = check_positive("signal", signal)
            errors = np.asarray(spectrum.bayes_error_of(signals), dtype=float)
        try:
            return cls(lams, ratios, signals, errors, spectrum)
        except ValueError:
            third = "bayes_error" if signal is None else "signal"
            raise ValueError(
                f"lam, ratio and {third} have shapes {lams.shape}, {ratios.shape} and {signals.shape}, which "
                "do not broadcast. For a grid of all combinations add axes: lam[:, None], ratio[None, :]."
            ) from None

    def __post_init__(self) -> None:
        """Broadcast the arrays, and make them read-only."""
        arrays = np.broadcast_arrays(self.lam, self.ratio, self.signal, self.bayes_error)
        for name, array in zip(("lam", "ratio", "signal", "bayes_error"), arrays, strict=True):
            object.__setattr__(self, name, freeze(array))

    def at(self, lam: ArrayLike) -> Problem:
        """Return the same problem at another λ."""
        lams = check_positive("lam", lam)
        try:
            return replace(self, lam=lams)
        except ValueError:
            raise ValueError(
                f"lam has shape {lams.shape}, but the problem has {self.ratio.shape}: pass one lam, or one "
                "for each point"
            ) from None

    def change(self, change: Callable[[Floats], Floats], lam: Floats | None = None) -> Problem:
        """Return the problem with transformed arrays, optionally at another λ."""
        lam = change(self.lam) if lam is None else lam
        ratio, signal, error = map(change, (self.ratio, self.signal, self.bayes_error))
        return Problem(lam, ratio, signal, error, self.spectrum)


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """A classifier in the limit: numbers, or arrays of the broadcast shape of the arguments.

    Attributes
    ----------
    problem : Problem
        The arguments.
    method : {"logistic", "lda", "ridge"}
        The classifier.
    inner, norm : ndarray
        The inner product of the weights with those of the best classifier, and their norm, both in the
        metric of the covariance.
    inner_slope, norm_slope : ndarray
        Derivatives of their logarithms in the logarithm of ``lam``.
    constants : dict of ndarray
        The unknowns of the system, by name.
    loss : str or ProperLoss
        The loss of ``risk``, ``calibration`` and ``refinement``.
    """

    problem: Problem
    method: str
    inner: Any
    norm: Any
    inner_slope: Any
    norm_slope: Any
    constants: dict[str, Any]
    loss: str | ProperLoss
    solver: Solver = field(repr=False)
    track: fixed_point.Track | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Make arrays read-only, since results are cached; arrays without axes become numbers."""
        for name in ("inner", "norm", "inner_slope", "norm_slope"):
            object.__setattr__(self, name, freeze(getattr(self, name))[()])
        constants = {name: freeze(each)[()] for name, each in self.constants.items()}
        object.__setattr__(self, "constants", constants)

    lam = property(lambda self: self.problem.lam[()], doc="Regularization strength.")
    ratio = property(lambda self: self.problem.ratio[()], doc="Features per training row.")
    signal = property(lambda self: self.problem.signal[()], doc="Norm of the class mean.")
    bayes_error = property(
        lambda self: self.problem.bayes_error[()], doc="Error rate of the best classifier."
    )
    spectrum = property(lambda self: self.problem.spectrum, doc="Law of the eigenvalues.")
    expertise = property(
        lambda self: self.inner / self.norm,
        doc="Quality of the direction of the weights, which determines refinement and error rate.",
    )
    confidence = property(
        lambda self: self.norm, doc="Size of the logits; calibrated if equal to ``expertise``."
    )
    scale = property(
        lambda self: self.inner / self.norm**2,
        doc="Factor for the logits that makes them calibrated (Prop. 6.2).",
    )

    @cached_property
    def parts(self) -> GaussianDecomposition:
        """The decomposition of the risk, computed when first used."""
        return gaussian_decomposition(self.expertise, self.confidence, self.loss)

    risk = property(lambda self: self.parts.risk, doc="Expected loss: calibration plus refinement.")
    calibration = property(
        lambda self: self.parts.calibration,
        doc="Loss that the best rescaling of the logits removes.",
    )
    refinement = property(
        lambda self: self.parts.refinement, doc="Expected loss after the best rescaling."
    )
    error_rate = property(
        lambda self: self.parts.error_rate, doc="How often the more probable class is wrong."
    )

    def at(self, lam: ArrayLike) -> Solution:
        """Return the same problems at another λ, in a few Newton steps from here."""
        problem = self.problem.at(lam)
        near = problem.lam.shape == self.lam.shape
        return self.solver(problem, self.loss, self.track if near else None)

    def to_dict(self) -> dict[str, Any]:
        """Return one flat array for each quantity: the columns of a table."""
        return {name: np.ravel(getattr(self, name)) for name in COLUMNS}

    def __repr__(self) -> str:
        n, columns = self.lam.size, self.to_dict()
        name = get_loss(self.loss).name
        about = (
            f"{self.method}, spectrum {self.spectrum.label}, {name} loss, {n} point{'s'[: n != 1]}"
        )
        shown = range(n) if n <= SHOWN else [*range(SHOWN // 2), *range(n - SHOWN // 2, n)]
        lines = [f"{each:>{WIDTH}}" for each in REPORTED]
        rows = [[f"{columns[each][i]:>{WIDTH}.5g}" for each in REPORTED] for i in shown]
        if n > SHOWN:
            rows.insert(SHOWN // 2, [f"{'…':>{WIDTH}}"] * len(REPORTED))
        return "\n".join([about, *("".join(row) for row in [lines, *rows])])


def logistic(
    lam: ArrayLike,
    *,
    ratio: ArrayLike,
    spectrum: Spectrum,
    bayes_error: ArrayLike | None = None,
    signal: ArrayLike | None = None,
    loss: str | ProperLoss = "log",
) -> Solution:
    r"""Return the high-dimensional limit of logistic regression with an L2 penalty.

    It minimizes :math:`\frac1n \sum_i \log(1 + e^{-y_i w^\top x_i}) + \frac\lambda2 \|w\|^2`, so that ``lam``
    is :math:`1/(C n)` in scikit-learn's terms. Arguments broadcast.

    Parameters
    ----------
    lam : array_like
        Regularization strength, positive.
    ratio : array_like
        Features per training row, :math:`p/n`.
    spectrum : Spectrum
        Law of the eigenvalues of the covariance.
    bayes_error : array_like, optional
        Error rate of the best classifier, between 0 and 1/2.
    signal : array_like, optional
        Norm of the class mean, instead of ``bayes_error``.
    loss : str or ProperLoss, default "log"
        Loss to report; training always minimizes log loss.

    Returns
    -------
    Solution
        With ``inner``, ``norm``, ``risk``, ``calibration``, ``refinement``, ``error_rate``.

    Raises
    ------
    RuntimeError
        If the system has not converged to 1e-10.

    Notes
    -----
    Section 7 of the paper. Within 1e-6 of an independent solution for ``lam`` of 1e-8 to 1e4, ``ratio`` of
    0.05 to 20 and ``bayes_error`` of 0.001 to 0.45.

    Examples
    --------
    With little regularization the classifier is overconfident, with much it is underconfident:

    >>> import numpy as np
    >>> from refinecal.theory import BetaSpectrum, logistic
    >>> found = logistic([0.001, 0.1, 10.0], ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    >>> (found.confidence > found.expertise).tolist()
    [True, False, False]

    Risk is the sum of calibration and refinement:

    >>> bool(np.allclose(found.risk, found.calibration + found.refinement))
    True
    """
    get_loss(loss)
    return _solve(Problem.check(lam, ratio, spectrum, bayes_error, signal), loss, None)


def _solve(problem: Problem, loss: str | ProperLoss, start: fixed_point.Track | None) -> Solution:
    """Solve a checked problem, starting from nearby solutions of the same problems if given."""
    shape = problem.lam.shape
    lam, ratio, signal = (np.ravel(each) for each in (problem.lam, problem.ratio, problem.signal))
    track = fixed_point.solve(lam, ratio, signal, problem.spectrum, start)
    (kappa, m, v), (_, m_slope, v_slope) = np.exp(track["u"].T), track["slope"].T
    arrays = [2 * m, np.sqrt(v), m_slope, v_slope / 2, kappa, *track["constants"].T]
    inner, norm, inner_slope, norm_slope, *rest = (each.reshape(shape) for each in arrays)
    constants = dict(zip(("kappa", "eta", "gamma", "tau"), rest, strict=True))
    return Solution(
        problem, "logistic", inner, norm, inner_slope, norm_slope, constants, loss, _solve, track
    )
