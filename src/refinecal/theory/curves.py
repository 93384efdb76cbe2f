r"""How much to regularize: the λ that minimize risk, calibration and refinement.

With :math:`i = \langle w, w^*\rangle_\Sigma`, :math:`s = \|w\|_\Sigma` and derivatives in
:math:`x = \log\lambda`, which the solvers give exactly, the three minima are roots:

.. math::
    \text{refinement:} \quad & \frac{d \log i}{dx} = \frac{d \log s}{dx}
        \quad\text{(the expertise } i/s \text{ is largest, for any loss),} \\
    \text{calibration:} \quad & \log s^2 = \log i
        \quad\text{(as confident as expert: calibration is 0),} \\
    \text{risk:} \quad & \frac{\partial \text{risk}}{\partial i} \frac{di}{dx}
        + \frac{\partial \text{risk}}{\partial s} \frac{ds}{dx} = 0.

A scan brackets every local minimum, Chandrupatla's method locates each, and the lowest is kept. A grid of
values would be less exact, since a curve is flat at its minimum.
"""

from __future__ import annotations  # so that help() shows types by name

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import elementwise

from refinecal._core.errors import fail_choice
from refinecal.losses import ProperLoss
from refinecal.theory._number_checks import check_positive, check_vector
from refinecal.theory.asymptotics import Solution, logistic
from refinecal.theory.discriminant import lda, ridge
from refinecal.theory.gaussian import risk_slopes
from refinecal.theory.spectrum import Spectrum

__all__ = ["METHODS", "Minimisers", "minimise", "path"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
Measure = Callable[[Solution], Floats]

METHODS: dict[str, Callable[..., Solution]] = {"logistic": logistic, "lda": lda, "ridge": ridge}
LAM_RANGE = (1e-8, 1e4)  # times the mean eigenvalue, wider if eigenvalues are far apart
METHOD_NAMES = {"logistic": "logistic regression", "lda": "LDA", "ridge": "ridge classification"}
PATH_RANGE, PATH_POINTS = (1e-6, 1e3), 181  # the same for a curve
STEP = 0.6  # of the scan, in log(lam): made of lam / (lam + tau sigma), curves bend over e-folds
TOLERANCE = 1e-9  # of a root, in log(lam)
SLACK = 1e-7  # how much lower than its minimum, relatively, rounding may make a curve


@dataclass(frozen=True, eq=False, repr=False)
class Minimisers:
    """The λ that minimize risk, calibration and refinement, and the gain of choosing by refinement.

    Attributes
    ----------
    by_risk, by_calibration, by_refinement : Solution
        The classifiers at the three λ: ``lam``, ``risk``, ``calibration``, ``refinement`` ...
    at_bound_risk, at_bound_calibration, at_bound_refinement : ndarray of bool
        Whether the minimum is an end of ``lam_range``, where the curve still decreases. Refinement does so
        towards infinity if all eigenvalues are equal, and towards 0 if there are many rows.
    lam_range : tuple of float
        The search range.
    """

    by_risk: Solution
    by_calibration: Solution
    by_refinement: Solution
    at_bound_risk: Flags
    at_bound_calibration: Flags
    at_bound_refinement: Flags
    lam_range: tuple[float, float]

    lam_risk = property(lambda self: self.by_risk.lam, doc="The λ with the smallest risk.")
    lam_calibration = property(
        lambda self: self.by_calibration.lam,
        doc="The λ with the smallest calibration error: 0, unless no λ gives a calibrated classifier.",
    )
    lam_refinement = property(
        lambda self: self.by_refinement.lam, doc="The λ with the smallest refinement error."
    )

    gain = property(
        lambda self: 1 - self.by_refinement.refinement / self.by_risk.risk,
        doc="Fraction of the smallest risk saved by choosing by refinement, then calibrating.",
    )
    gain_uncalibrated = property(
        lambda self: 1 - self.by_refinement.risk / self.by_risk.risk,
        doc="The same without calibration, which is never above 0.",
    )
    gain_calibrated = property(
        lambda self: 1 - self.by_refinement.refinement / self.by_risk.refinement,
        doc="The same, compared with choosing by risk, then calibrating.",
    )

    @property
    def log10_gap(self) -> Any:
        r""":math:`\log_{10}(\lambda_\text{calibration} / \lambda_\text{refinement})`.

        Training moves from large λ to small λ: if positive, calibration reaches its minimum first (green in
        the paper); if negative, refinement does.
        """
        return np.log10(self.lam_calibration / self.lam_refinement)

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """Return one flat array for each quantity: the columns of a table."""
        lams = ("lam_risk", "lam_calibration", "lam_refinement")
        gains = ("log10_gap", "gain", "gain_uncalibrated", "gain_calibrated")
        flags = ("at_bound_risk", "at_bound_calibration", "at_bound_refinement")
        found = {
            **{name: getattr(self.by_risk, name) for name in ("ratio", "bayes_error", "signal")},
            **{name: getattr(self, name) for name in (*lams, *gains)},
            "risk_min": self.by_risk.risk,
            "calibration_at_risk": self.by_risk.calibration,
            "refinement_at_risk": self.by_risk.refinement,
            "calibration_min": self.by_calibration.calibration,
            "refinement_min": self.by_refinement.refinement,
            "risk_at_refinement": self.by_refinement.risk,
            "error_rate_at_risk": self.by_risk.error_rate,
            "error_rate_at_refinement": self.by_refinement.error_rate,
            **{name: getattr(self, name) for name in flags},
        }
        return {name: np.ravel(values) for name, values in found.items()}

    def __repr__(self) -> str:
        at = self.by_risk
        if not at.lam.size:
            return "Minimisers of 0 problems"
        ends = (float(bound(self.gain)) for bound in (np.min, np.max))
        gains = [f"{round(end, 4) + 0.0:.2%}" for end in ends]  # never -0.00%
        if at.lam.size > 1:
            gain = " to ".join(gains)
            return f"Minimisers of {at.lam.size} problems: gain {gain}{_of_loss(self)}"
        lines = [
            f"{setting(at)}{_of_loss(self)}",
            f"{'minimum of':<12}{'lam':>12}{'risk':>10}{'calibration':>13}{'refinement':>12}",
        ]
        for name in ("risk", "calibration", "refinement"):
            found = getattr(self, f"by_{name}")
            row = f"{name:<12}{found.lam.item():>12.4g}{found.risk.item():>10.4f}"
            row += f"{found.calibration.item():>13.4f}{found.refinement.item():>12.4f}"
            end = "  (end of the range)" if getattr(self, f"at_bound_{name}").item() else ""
            lines.append(row + end)
        sentence = f"choosing by refinement, then calibrating: {gains[0]} below the smallest risk"
        return "\n".join([*lines, sentence])


def path(
    lams: ArrayLike | None = None,
    *,
    ratio: ArrayLike,
    spectrum: Spectrum,
    bayes_error: ArrayLike | None = None,
    signal: ArrayLike | None = None,
    method: str = "logistic",
    loss: str | ProperLoss = "log",
) -> Solution:
    """Return the classifiers along a regularization path: the curves of the paper's figure 7.

    Parameters
    ----------
    lams : array_like of shape (k,), optional
        Regularization strengths; by default 181 from 1e-6 to 1e3 times the mean eigenvalue.
    ratio, spectrum, bayes_error, signal, loss
        As for :func:`logistic`.
    method : {"logistic", "lda", "ridge"}, default "logistic"
        The classifier.

    Returns
    -------
    Solution
        With arrays of shape ``(k, ...)``, where ``...`` is that of the other arguments.

    Examples
    --------
    >>> from refinecal.theory import BetaSpectrum, path
    >>> curve = path([0.01, 0.1, 1.0], ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    >>> curve.risk.round(3).tolist(), curve.refinement.round(3).tolist()
    ([0.635, 0.578, 0.651], [0.561, 0.577, 0.596])
    """
    solve = find_method(method)
    if lams is None:
        lams = _scale_range(PATH_RANGE, spectrum, PATH_POINTS)
    lams = check_vector("lams", check_positive("lams", lams), one=False)
    third = bayes_error if signal is None else signal
    cells = max(np.ndim(ratio), np.ndim(third))  # type: ignore[arg-type]
    lams = lams.reshape(-1, *[1] * cells)
    return solve(
        lams, ratio=ratio, spectrum=spectrum, bayes_error=bayes_error, signal=signal, loss=loss
    )


def minimise(
    *,
    ratio: ArrayLike,
    spectrum: Spectrum,
    bayes_error: ArrayLike | None = None,
    signal: ArrayLike | None = None,
    method: str = "logistic",
    loss: str | ProperLoss = "log",
    lam_range: tuple[float, float] | None = None,
) -> Minimisers:
    r"""Return the λ that minimize risk, calibration and refinement.

    Parameters
    ----------
    ratio, spectrum, bayes_error, signal, method
        As for :func:`path`.
    loss : str or ProperLoss, default "log"
        The loss whose risk, calibration and refinement are minimized. The minimum of refinement is at the
        same λ for all losses, and so is that of calibration where it is 0.
    lam_range : pair of float, optional
        Search range; by default 1e-8 to 1e4 times the mean eigenvalue, wider if eigenvalues are more than
        three decades apart. A minimum at an end of the range is marked as ``at_bound``.

    Returns
    -------
    Minimisers
        Of the shape to which ``ratio`` and ``bayes_error`` or ``signal`` broadcast.

    Notes
    -----
    Roots are exact to 1e-9 in :math:`\log\lambda`. Of several local minima, the lowest is returned; if
    calibration is 0 at several λ, the largest, which training reaches first. Ridge classification may be
    underconfident at every λ: then its smallest calibration error is not 0.

    Examples
    --------
    The paper's figure 7: the risk is smallest between the other two minima.

    >>> from refinecal.theory import BetaSpectrum, minimise
    >>> best = minimise(ratio=0.5, bayes_error=0.1, spectrum=BetaSpectrum(1, 1))
    >>> bool(best.lam_calibration > best.lam_risk > best.lam_refinement)
    True
    >>> print(f"{best.gain:.1%}")
    2.2%
    """
    solve = find_method(method)
    bounds = _check_range(lam_range, spectrum)
    start = solve(
        bounds[1], ratio=ratio, spectrum=spectrum, bayes_error=bayes_error, signal=signal, loss=loss
    )
    scan = Scan.along(start, bounds)
    chosen = [
        scan.find_lowest(_expertise_slope, lambda found: -found.expertise),
        _find_calibrated(scan),
        scan.find_lowest(_risk_slope, lambda found: found.risk),
    ]
    refinement, calibration, risk = (scan.solve_at(lam, start.lam.shape) for lam, _ in chosen)
    flags = [flag.reshape(start.lam.shape) for _, flag in chosen]
    return Minimisers(risk, calibration, refinement, flags[2], flags[1], flags[0], bounds)


# ---- many problems at once ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scan:
    """Solutions of n flat problems at k increasing λ."""

    lams: Floats
    found: list[Solution]

    @classmethod
    def along(cls, start: Solution, bounds: tuple[float, float]) -> Scan:
        """Follow problems, solved at the upper bound, down to the lower."""
        low, high = np.log(bounds)
        steps = max(int(np.ceil((high - low) / STEP)), 1)
        lams = np.exp(np.linspace(high, low, steps + 1))
        lams[[0, -1]] = bounds[::-1]
        problem = start.problem.change(np.ravel)
        found = [start.solver(problem, start.loss, start.track)]
        for lam in lams[1:]:
            found.append(found[-1].at(np.full(problem.lam.shape, lam)))
        return cls(lams[::-1], found[::-1])

    @property
    def n(self) -> int:
        """The number of problems."""
        return len(self.found[0].lam)

    def find_lowest(self, slope: Measure, value: Measure) -> tuple[Floats, Flags]:
        """Return where each problem's curve is lowest, and whether that is an end of the range."""
        slopes = np.stack([slope(each) for each in self.found])
        places, cells = np.nonzero((slopes[:-1] < 0) & (slopes[1:] >= 0))
        inside = self._roots(slope, places, cells)
        parts = [(cells, inside.lam, value(inside))]
        for place, those in ((0, slopes[0] >= 0), (-1, slopes[-1] < 0)):
            end = self.found[place]
            parts.append((np.flatnonzero(those), end.lam[those], value(end)[those]))
        which, lam, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        at_bound = np.arange(len(which)) >= len(cells)
        order = np.lexsort((-lam, values, which))
        _, first = np.unique(which[order], return_index=True)
        best = order[first]  # one for each problem: a curve has a lowest point
        self._check(value, values[best], lam[best])
        return lam[best], at_bound[best]

    def _check(self, value: Measure, lowest: Floats, lam: Floats) -> None:
        """Raise an error for a curve whose slope does not lead to its lowest point."""
        seen = np.stack([value(each) for each in self.found])
        below = seen.min(axis=0) < lowest - SLACK * np.abs(lowest)
        if below.any():
            cell = int(below.argmax())
            raise ValueError(
                f"by its slope the curve is lowest at lam = {lam[cell]:.4g}, but it is lower at "
                f"{self.lams[seen[:, cell].argmin()]:.4g}: minimization needs a loss that is smooth in the "
                "log-odds, such as log, Brier or spherical"
            )

    def find_crossing(self, measure: Measure) -> tuple[Floats, Places]:
        """Return the largest λ at which a measure is 0, and which problems have one."""
        signs = np.signbit([measure(each) for each in self.found])
        changes = signs[:-1] != signs[1:]
        cells = np.flatnonzero(changes.any(axis=0))
        places = len(changes) - 1 - changes[::-1, cells].argmax(axis=0)
        return self._roots(measure, places, cells).lam, cells

    def solve_at(self, lam: Floats, shape: tuple[int, ...]) -> Solution:
        """Return all problems, each at its own λ, in a given shape."""
        near = np.abs(np.log(lam) - np.log(self.lams)[:, None]).argmin(axis=0)
        return self._near(near, np.arange(self.n), lam, shape)

    def _roots(self, measure: Measure, places: Places, cells: Places) -> Solution:
        """Return the solutions at which a measure is 0, each between two neighbours of the scan."""
        grid = np.log(self.lams)

        def value(x: Floats, which: Places) -> Floats:
            return measure(self._near(places[which], cells[which], np.exp(x)))

        found = elementwise.find_root(
            value,
            (grid[places], grid[places + 1]),
            args=(np.arange(len(cells)),),
            tolerances={"xatol": TOLERANCE, "xrtol": 0},
        )
        if not np.all(found.success):
            raise RuntimeError(f"no root to {TOLERANCE:g} in log(lam): a curve may jump there")
        return self._near(places, cells, np.exp(found.x))

    def _near(
        self, places: Places, cells: Places, lam: Floats, shape: tuple[int, ...] = (-1,)
    ) -> Solution:
        """Return some problems at other λ, starting from the nearest solutions of the scan."""
        first = self.found[0]
        problem = first.problem.change(lambda each: each[cells].reshape(shape), lam.reshape(shape))
        tracks = [each.track for each in self.found if each.track is not None]
        track = np.stack(tracks)[places, cells] if tracks else None
        return first.solver(problem, first.loss, track)


# ---- slopes that are 0 at a minimum ------------------------------------------------------------------------


def _expertise_slope(found: Solution) -> Floats:
    """Return minus the slope of the logarithm of the expertise, which has the sign of refinement's."""
    return np.asarray(found.norm_slope - found.inner_slope)


def _excess(found: Solution) -> Floats:
    """Return log(confidence / expertise), which is positive if the classifier is overconfident."""
    return np.asarray(2 * np.log(found.norm) - np.log(found.inner))


def _risk_slope(found: Solution) -> Floats:
    by_inner, by_norm = risk_slopes(found.expertise, found.confidence, found.loss)
    inner, norm = found.inner * found.inner_slope, found.norm * found.norm_slope
    return np.asarray(by_inner * inner + by_norm * norm)


def _calibration_slope(found: Solution) -> Floats:
    """Return the slope of the risk less that of the refinement, which is the risk where norm = expertise."""
    a = found.expertise
    by_inner, _ = risk_slopes(a, a, found.loss)
    return np.asarray(_risk_slope(found) + by_inner * a**2 * _expertise_slope(found))


def _find_calibrated(scan: Scan) -> tuple[Floats, Flags]:
    """Return the largest λ at which each problem is calibrated, else the least miscalibrated λ."""
    roots, cells = scan.find_crossing(_excess)
    lam, at_bound = np.empty(scan.n), np.zeros(scan.n, dtype=bool)
    if len(cells) < scan.n:
        lam, at_bound = scan.find_lowest(_calibration_slope, lambda found: found.calibration)
    lam[cells], at_bound[cells] = roots, False
    return lam, at_bound


# ---- text --------------------------------------------------------------------------------------------------


def setting(at: Solution) -> str:
    """Return a one-line description of a problem, for titles and figures."""
    return (
        f"{METHOD_NAMES[at.method]}, p/n = {at.ratio.flat[0]:.3g}, Bayes error "
        f"{100 * at.bayes_error.flat[0]:.3g}%, spectrum: {at.spectrum.label}"
    )


def _of_loss(best: Minimisers) -> str:
    """Return the name of the loss, unless it is log loss."""
    loss = best.by_risk.parts.loss
    return "" if loss == "log" else f", {'Brier score' if loss == 'brier' else f'{loss} loss'}"


# ---- checks ------------------------------------------------------------------------------------------------


def find_method(name: str) -> Callable[..., Solution]:
    """Return the function that solves a method."""
    if not isinstance(name, str) or name not in METHODS:
        fail_choice("method", name, list(METHODS), "omitted for logistic regression")
    return METHODS[name]


def _check_range(given: tuple[float, float] | None, spectrum: Spectrum) -> tuple[float, float]:
    if given is None:
        low, high = _scale_range(LAM_RANGE, spectrum, 2).tolist()
        return low, high
    bounds = check_positive("lam_range", given)
    if bounds.shape != (2,) or not bounds[0] < bounds[1]:
        raise ValueError(
            f"lam_range is {given!r}: it must be two numbers, the smaller first, such as (1e-8, 1e4)"
        )
    return float(bounds[0]), float(bounds[1])


def _scale_range(bounds: tuple[float, float], spectrum: Spectrum, points: int) -> Floats:
    """Return λ from far below to far above all eigenvalues that matter."""
    if not isinstance(spectrum, Spectrum):
        return np.geomspace(*bounds, points)  # the solver says what is wrong
    mean, (low, high) = spectrum.mean(lambda sigma: sigma), spectrum.bulk
    first, last = bounds
    return np.geomspace(min(mean, 1e3 * low) * first, max(mean, high / 10) * last, points)
