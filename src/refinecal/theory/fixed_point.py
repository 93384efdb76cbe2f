r"""The system of equations for L2-regularized logistic regression in high dimensions.

Rows :math:`n` and features :math:`p` grow with :math:`p/n \to r`; :math:`\sigma \sim F` are the eigenvalues
of the covariance, :math:`c` is the length of the class mean, and :math:`G` is how :math:`c^2` is spread over
the eigenvalues (in the paper like :math:`F`). With :math:`\rho = 1/(\lambda + \tau\sigma)`,
:math:`s(x) = 1/(1 + e^x)` and :math:`q = s(1 - s)`:

.. math::
    \kappa &= r\, E_F[\rho\sigma] \\
    m &= \eta c^2 E_G[\rho] \\
    v &= \eta^2 c^2 E_G[\rho^2\sigma] + \gamma r E_F[\rho^2\sigma^2] \\
    t &\sim N(m, v), \qquad x = t + \kappa s(x) \\
    \eta &= E[s(x)], \qquad \gamma = E[s(x)^2], \qquad \tau = E[q / (1 + \kappa q)]

(Mai, Liao & Couillet 2019, in the paper's symbols; their :math:`\tau = E[s(x)(m - t)]/v` is the same by
Stein's lemma). Then :math:`\langle w, w^*\rangle_\Sigma = 2m` and :math:`\|w\|_\Sigma^2 = v`.

The unknowns are :math:`u = (\log\kappa, \log m, \log v)`. Newton's method solves
:math:`u = \log h(u, \lambda)`, whose Jacobian costs no further exponential. Far from the solution it
diverges, so :math:`\lambda` starts large, where the solution is known, and decreases along
:math:`du / d\log\lambda`.
"""

from __future__ import annotations  # so that help() shows types by name

from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, roots_legendre

if TYPE_CHECKING:
    from refinecal.theory.spectrum import Spectrum

Floats = NDArray[np.float64]

TOLERANCE = 1e-10  # of Newton's last step in the logarithms; the error after it is far smaller
LOOSE = 1e-3  # the same at intermediate λ
NODES = 96  # for each of three panels; 80 leave 1e-8 in the hardest cases (near separability)
TAIL = 9.5  # standard deviations of t to integrate over; 2e-21 of its mass lies outside
MOST_READS = 400  # Newton steps for one point, including all intermediate λ
MOST_TRIES = 8  # Newton steps at one intermediate λ
FAR = 10.0  # a step of e^10 means that Newton has lost the curve
BLOCK = 256  # points solved together: their nodes fit in the cache


@dataclass(frozen=True, slots=True)
class Track:
    """Solved points, and their derivatives in log λ."""

    lam: Floats  # (n,)
    u: Floats  # (n, 3): logarithms of kappa, m and v
    slope: Floats  # (n, 3): derivative of u in the logarithm of lam
    constants: Floats  # (n, 3): eta, gamma and tau

    def pick(self, rows: slice | NDArray[np.intp]) -> Track:
        """Return some of the points."""
        return Track(self.lam[rows], self.u[rows], self.slope[rows], self.constants[rows])


@dataclass(frozen=True, slots=True)
class _Block:
    """Problems to solve together."""

    lam: Floats
    ratio: Floats
    signal: Floats
    spectrum: Spectrum

    def pick(self, rows: NDArray[np.intp], lam: Floats) -> _Block:
        """Return some of the problems, at other λ."""
        return _Block(lam, self.ratio[rows], self.signal[rows], self.spectrum)


def solve(
    lam: Floats, ratio: Floats, signal: Floats, spectrum: Spectrum, start: Track | None = None
) -> Track:
    """Solve the system at each point, starting from solutions of the same problems if given.

    Raises a RuntimeError with the parameters of the first point at which Newton's method did not converge.
    """
    keep_freed_memory()
    parts = [] if len(lam) else [Track(lam, *np.empty((3, 0, 3)))]
    for first in range(0, len(lam), BLOCK):
        rows = slice(first, first + BLOCK)
        block = _Block(lam[rows], ratio[rows], signal[rows], spectrum)
        begin = _easy(block) if start is None else start.pick(rows)
        parts.append(_follow(block, begin, solved=start is not None))
    fields = [np.concatenate([getattr(part, name) for part in parts]) for name in Track.__slots__]
    return Track(*fields)


def _easy(block: _Block) -> Track:
    """Return the solution at large λ, where all logits are near 0 and s(x) = 1/2."""
    spread = block.spectrum.mean(lambda sigma: sigma) * (1 + block.ratio) + block.signal**2
    lam = np.maximum(block.lam, 10 * spread)
    flat = np.broadcast_to([0.5, 0.25, 0.25], (len(lam), 3))
    image, _, _ = _linear_part(block.pick(np.arange(len(lam)), lam), flat)
    slope = np.broadcast_to([-1.0, -1.0, -2.0], (len(lam), 3))
    with np.errstate(divide="ignore"):  # a variance of 0, for lam above 1e150, fails later
        return Track(lam, np.log(image), slope.copy(), flat.copy())


def _follow(block: _Block, begin: Track, solved: bool) -> Track:
    """Follow each point from its start to its λ."""
    walk = _Walk(block, begin, solved)
    todo = np.arange(len(block.lam))
    for _ in range(MOST_READS):
        size = walk.step(todo)
        there = walk.at[todo] == block.lam[todo]
        near = size < np.where(there, TOLERANCE, LOOSE)
        lost = ~near & ((walk.tries[todo] >= MOST_TRIES) | (size > FAR))
        walk.advance(todo[near & ~there])
        walk.retreat(todo[lost])
        todo = todo[~(near & there)]
        if not len(todo):
            return Track(block.lam, walk.u, walk.slope, walk.constants)
    first = todo[0]
    raise RuntimeError(
        f"the system did not converge to {TOLERANCE:g} at {len(todo)} points, the first with "
        f"lam = {block.lam[first]:.4g}, ratio = {block.ratio[first]:.4g} and "
        f"signal = {block.signal[first]:.4g}. Accuracy is assured for lam of 1e-8 to 1e4 times the mean "
        "eigenvalue and ratio of 0.05 to 20: use such a lam, or a narrower spectrum."
    )


class _Walk:
    """The state of each point on its path, and the last λ at which it was solved."""

    def __init__(self, block: _Block, begin: Track, solved: bool) -> None:
        n = len(block.lam)
        self.block, self.known = block, deepcopy(begin)
        self.at, self.u = begin.lam.copy(), begin.u.copy()
        self.slope, self.constants = np.empty((n, 3)), np.empty((n, 3))
        self.stride, self.tries = np.full(n, 2.0), np.zeros(n, dtype=int)  # stride in log(lam)
        if solved:
            self._move(np.arange(n))

    def step(self, rows: NDArray[np.intp]) -> Floats:
        """Take one Newton step at the current λ; return the step sizes, infinite where it failed."""
        block = self.block.pick(rows, self.at[rows])
        with np.errstate(all="ignore"):  # a lost point has an infinite size
            step, self.slope[rows], self.constants[rows] = _newton(block, self.u[rows])
        size = np.where(np.isfinite(step).all(axis=1), np.abs(step).max(axis=1), np.inf)
        self.u[rows] += np.where(size[:, None] < FAR, step, 0.0)
        self.tries[rows] += 1
        return size

    def advance(self, rows: NDArray[np.intp]) -> None:
        """Move on from solved points, with a longer stride if few steps were needed."""
        self.known.lam[rows], self.known.u[rows] = self.at[rows], self.u[rows]
        self.known.slope[rows] = self.slope[rows]
        self.stride[rows] *= np.where(self.tries[rows] <= 3, 2, 1)
        self._move(rows)

    def retreat(self, rows: NDArray[np.intp]) -> None:
        """Try a shorter stride from the last λ that was solved."""
        self.stride[rows] /= 4
        self._move(rows)

    def _move(self, rows: NDArray[np.intp]) -> None:
        """Move along the tangents by a stride, or to the final λ if that is nearer."""
        known = self.known.pick(rows)
        gap = np.log(self.block.lam[rows] / known.lam)
        step = np.clip(gap, -self.stride[rows], self.stride[rows])
        self.at[rows] = np.where(step == gap, self.block.lam[rows], known.lam * np.exp(step))
        self.u[rows] = known.u + known.slope * step[:, None]
        self.tries[rows] = 0


def _newton(block: _Block, u: Floats) -> tuple[Floats, Floats, Floats]:
    """Return Newton's step for u = log h(u, lam), du / dlog(lam), and (eta, gamma, tau)."""
    state = np.exp(u)
    constants, inner_jacobian = _gaussian_part(*state.T)
    image, outer_jacobian, by_lam = _linear_part(block, constants)
    relative = (outer_jacobian @ inner_jacobian) * state[:, None, :] / image[:, :, None]
    right = np.stack([np.log(image) - u, by_lam * block.lam[:, None] / image], axis=2)
    matrix = np.eye(3) - relative
    matrix[~np.isfinite(matrix).all(axis=(1, 2))] = np.nan
    solved = _solve3(matrix, right)
    return solved[:, :, 0], solved[:, :, 1], constants


def _solve3(matrix: Floats, right: Floats) -> Floats:
    """Solve systems of three equations by Cramer's rule: NumPy's solver stops at a singular one."""
    first, second, third = matrix[:, :, 0], matrix[:, :, 1], matrix[:, :, 2]
    crosses = [np.cross(second, third), np.cross(third, first), np.cross(first, second)]
    determinant = (first * crosses[0]).sum(axis=1)
    return np.asarray(np.stack(crosses, axis=1) @ right / determinant[:, None, None])


def _linear_part(block: _Block, constants: Floats) -> tuple[Floats, Floats, Floats]:
    """Return (kappa, m, v), their derivatives in (eta, gamma, tau), and those in lam."""
    law = block.spectrum
    sigma, by_f, by_g = law.nodes, law.weights, law.signal_weights
    eta, gamma, tau = constants.T
    ratio, c2 = block.ratio, block.signal**2
    once = 1 / (block.lam[:, None] + tau[:, None] * sigma)
    twice, thrice = once**2, once**3
    power = [weights * sigma**k for weights in (by_g, by_f) for k in range(4)]
    g0, g1, g2, _, _, f1, f2, f3 = power
    m = eta * c2 * (once @ g0)
    m_tau = -eta * c2 * (twice @ g1)
    spread, noise = twice @ g1, twice @ f2
    v = eta**2 * c2 * spread + gamma * ratio * noise
    v_tau = -2 * (eta**2 * c2 * (thrice @ g2) + gamma * ratio * (thrice @ f3))
    v_lam = -2 * (eta**2 * c2 * (thrice @ g1) + gamma * ratio * (thrice @ f2))
    zero = np.zeros_like(m)
    jacobian = _rows(
        (zero, zero, -ratio * noise),
        (c2 * (once @ g0), zero, m_tau),
        (2 * eta * c2 * spread, ratio * noise, v_tau),
    )
    by_lam = np.stack([-ratio * (twice @ f1), -eta * c2 * (twice @ g0), v_lam], axis=1)
    return np.stack([ratio * (once @ f1), m, v], axis=1), jacobian, by_lam


def _gaussian_part(kappa: Floats, m: Floats, v: Floats) -> tuple[Floats, Floats]:
    r"""Return (eta, gamma, tau) and their derivatives in (kappa, m, v).

    Integrals run over x, not t, since :math:`t = x - \kappa s(x)` and :math:`dt = (1 + \kappa q)\,dx` need no
    equation to be solved: :math:`E[h(x)] = \int h (1 + \kappa q) N(t(x); m, v)\,dx`.
    """
    sd = np.sqrt(v)
    x, weights = _rule(kappa, m, sd)
    small = np.exp(-np.abs(x))
    large = 1 / (1 + small)
    s = np.where(x > 0, small, 1.0) * large
    q = small * large**2
    z = (x - kappa[:, None] * s - m[:, None]) / sd[:, None]
    density = weights * np.exp(-0.5 * z**2) / (np.sqrt(2 * np.pi) * sd[:, None])
    slope = 1 + kappa[:, None] * q  # dt / dx

    with_s, with_q = density * s, density * q
    with_sq = with_q * s
    steep = with_q * (2 * s - 1) / slope**2  # how q / (1 + kappa q) changes with x
    tau, sq, ssq = _total(with_q), _total(with_sq), _dot(with_sq, s)
    eta = _total(with_s) + kappa * sq
    gamma = _dot(with_s, s) + kappa * ssq
    tilt = 1 / (2 * sd)  # E[h] grows with v by E[h'(t) (t - m)] / 2v
    jacobian = _rows(
        (-sq, -tau, -tilt * _dot(with_q, z)),
        (-2 * ssq, -2 * sq, -2 * tilt * _dot(with_sq, z)),
        (_dot(steep, s) - _dot(with_q, q / slope), _total(steep), tilt * _dot(steep, z)),
    )
    return np.stack([eta, gamma, tau], axis=1), jacobian


def _total(values: Floats) -> Floats:
    return np.asarray(np.einsum("ij->i", values))


def _dot(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", left, right))


def _rule(kappa: Floats, m: Floats, sd: Floats) -> tuple[Floats, Floats]:
    r"""Return nodes and weights over the x of :math:`t = m \pm 9.5 \sqrt v`.

    Where :math:`|x| < \log\kappa` the slope :math:`1 + \kappa q` is steep, elsewhere it is nearly 1: one
    uniform panel there, and one on either side whose nodes are dense at that border.
    """
    nodes, weights = _legendre()
    low, high = _x_of(m - TAIL * sd, kappa), _x_of(m + TAIL * sd, kappa)
    border = np.log(np.maximum(kappa, 1))
    left, right = np.clip(-border, low, high), np.clip(border, low, high)
    half = (right - left)[:, None] / 2
    outer = [_graded(low, left, -border), _graded(right, high, border)]
    x = np.concatenate([outer[0][0], left[:, None] + half * (1 + nodes), outer[1][0]], axis=1)
    return x, np.concatenate([outer[0][1], half * weights, outer[1][1]], axis=1)


def _graded(low: Floats, high: Floats, border: Floats) -> tuple[Floats, Floats]:
    """Return a rule on each interval that is even in asinh(x - border)."""
    nodes, weights = _legendre()
    first, last = np.arcsinh(low - border), np.arcsinh(high - border)
    half = (last - first)[:, None] / 2
    y = first[:, None] + half * (1 + nodes)
    return border[:, None] + np.sinh(y), half * weights * np.cosh(y)


@cache
def keep_freed_memory() -> None:
    """Make glibc keep freed memory: returning it and asking again took two thirds of the time.

    Its threshold is the size of the largest block freed so far. The block is never touched, so it costs
    nothing; other allocators ignore it.
    """
    np.empty(2**21)  # 16 MiB


@cache
def _legendre() -> tuple[Floats, Floats]:
    nodes, weights = roots_legendre(NODES)
    return nodes, weights


def _x_of(t: Floats, kappa: Floats) -> Floats:
    """Solve x = t + kappa s(x) accurately enough for the end of a range, by bracketed Newton steps."""
    low, high = t, t + kappa
    x = np.where(t > 0, t, np.log(np.maximum(kappa, 1e-300) / np.maximum(-t, 1)))
    x = np.clip(x, low, high)
    for _ in range(100):
        s = expit(-x)
        excess = x - t - kappa * s
        low, high = np.where(excess < 0, x, low), np.where(excess > 0, x, high)
        new = x - excess / (1 + kappa * s * (1 - s))
        new = np.where((new < low) | (new > high), (low + high) / 2, new)
        if np.all(np.abs(new - x) <= 1e-3 * np.minimum(kappa, 1)):
            break
        x = new
    return np.asarray(new)


def _rows(*rows: tuple[Floats, ...]) -> Floats:
    """Stack arrays of shape (n,) to matrices of shape (n, 3, 3)."""
    return np.stack([np.stack(row, axis=1) for row in rows], axis=1)
