"""Asymptotics of logistic regression by adaptive quadrature: slow, and no line of the package takes part.

Means over the eigenvalue are the hypergeometric formulas of the paper's appendix, means over t are integrals
by QUADPACK for which x is found by a root finder at each t, and tau has its published form.
"""

from math import exp, fsum, log1p, pi, sqrt

import mpmath
import numpy as np
from precision import settled
from scipy.integrate import quad
from scipy.optimize import brentq, root
from scipy.special import ndtri

SHIFT = 1e-3


class BetaLaw:
    """Means of the shifted Beta law, as in lemma C.1 of the paper."""

    def __init__(self, shape_a, shape_b, shift=SHIFT):
        self.a, self.b, self.shift = shape_a, shape_b, shift

    @settled
    def _exact_mean(self, power, k, lam, tau):
        """E[u^k / (lam + tau (shift + u))^power], u ~ Beta(a, b)."""
        low = lam + tau * mpmath.mpf(self.shift)
        factor = mpmath.beta(self.a + k, self.b) / mpmath.beta(self.a, self.b)
        form = mpmath.hyp2f1(power, self.a + k, self.a + self.b + k, -tau / low)
        return factor * form / low**power

    def _mean(self, *args):
        return float(self._exact_mean(*args))

    def means(self, lam, tau):
        """Return E[sigma / D], E[1 / D], E[sigma / D^2] and E[sigma^2 / D^2] for D = lam + tau sigma."""
        once = [self._mean(1, k, lam, tau) for k in range(2)]
        twice = [self._mean(2, k, lam, tau) for k in range(3)]
        e = self.shift
        return (
            once[1] + e * once[0],
            once[0],
            twice[1] + e * twice[0],
            twice[2] + 2 * e * twice[1] + e**2 * twice[0],
        )

    def signal(self, bayes_error):
        """Return c for which the best error rate is Phi(-c sqrt(E[1 / sigma]))."""
        return -ndtri(bayes_error) / sqrt(self._mean(1, 0, 0.0, 1.0))


class PointLaw:
    """Means of a law of a few eigenvalues, with a share of the signal for each."""

    def __init__(self, values, weights, signal_weights):
        self.terms = list(zip(values, weights, signal_weights, strict=True))

    def means(self, lam, tau):
        terms = [(sigma, f, g, lam + tau * sigma) for sigma, f, g in self.terms]
        return (
            fsum(f * sigma / d for sigma, f, _, d in terms),
            fsum(g / d for _, _, g, d in terms),
            fsum(g * sigma / d**2 for sigma, _, g, d in terms),
            fsum(f * sigma**2 / d**2 for sigma, f, _, d in terms),
        )


def s_of(x):
    return exp(-x) / (1 + exp(-x)) if x > 0 else 1 / (1 + exp(x))


def x_of(t, kappa):
    """Solve x = t + kappa s(x)."""
    room = 1e-9 * (1 + abs(t) + kappa)  # rounding must not move the solution out of the interval
    low, high = t - room, t + kappa + room
    return brentq(lambda x: x - t - kappa * s_of(x), low, high, xtol=1e-15, rtol=1e-15)


def gaussian_means(kappa, m, v):
    """Return eta, gamma and tau = E[s(x) (m - t)] / v."""
    sd = sqrt(v)
    cache = {}

    def s_at(z):
        if z not in cache:
            cache[z] = s_of(x_of(m + sd * z, kappa))
        return cache[z]

    middle = s_at(0.0)  # taken from s, since E[m - t] = 0: the rest does not cancel
    scales = [0, *(sign * 3.0**k for k in range(-1, 6) for sign in (-1, 1))]
    kinks = [(kink + scale - m) / sd for kink in (0.0, -kappa) for scale in scales]
    return (
        normal_mean(s_at, kinks),
        normal_mean(lambda z: s_at(z) ** 2, kinks),
        normal_mean(lambda z: -(s_at(z) - middle) * z / sd, kinks),
    )


def normal_mean(function, kinks=(), reach=11.0):
    """Return E[function(z)], z ~ N(0, 1)."""
    points = sorted({-6.0, -3.0, 0.0, 3.0, 6.0, *(k for k in kinks if abs(k) < reach)})
    value, _ = quad(
        lambda z: function(z) * exp(-z * z / 2) / sqrt(2 * pi),
        -reach, reach, points=points, epsabs=0, epsrel=1e-12, limit=1000,
    )  # fmt: skip
    return value


def image(u, lam, ratio, signal, law):
    """Return the logarithms of kappa, m and v that the system's right sides give."""
    eta, gamma, tau = gaussian_means(*np.exp(u))
    weighted, once, spread, noise = law.means(lam, tau)
    c2 = signal**2
    kappa, m = ratio * weighted, eta * c2 * once
    return np.log([kappa, m, eta**2 * c2 * spread + gamma * ratio * noise])


def logistic(u, lam, ratio, signal, law):
    """Return inner and norm; from a guess of the logarithms of kappa, m and v."""
    found = root(
        lambda u: u - image(u, lam, ratio, signal, law), u, tol=1e-13, options={"eps": 1e-7}
    )
    _, m, v = np.exp(found.x)
    assert np.abs(found.fun).max() < 1e-9, found
    return 2 * m, sqrt(v)


def logistic_from_nothing(lam, ratio, signal, law):
    """Return inner and norm by the damped iteration of the published system, from eta = 1/2 on."""
    weighted, once, spread, noise = law.means(lam, 0.25)
    c2 = signal**2
    u = np.log([ratio * weighted, c2 * once / 2, c2 * spread / 4 + ratio * noise / 4])
    for _ in range(300):
        step = image(u, lam, ratio, signal, law) - u
        u = u + 0.7 * step
        if np.abs(step).max() < 1e-9:
            return 2 * np.exp(u[1]), np.exp(u[2] / 2)
    raise AssertionError(f"no convergence: {step}")


def refinement(expertise):
    """Return the mean entropy of sigma(a (z + a/2)), proposition 6.1."""

    def entropy(z):
        x = abs(expertise * (z + expertise / 2))
        return log1p(exp(-x)) + x * s_of(x)

    return normal_mean(entropy, [-expertise / 2 + step / expertise for step in (-20, -3, 0, 3, 20)])


def calibration(expertise, confidence):
    """Return the mean divergence between sigma(s (z + a/2)) and sigma(a (z + a/2))."""
    return float(_calibration(expertise, confidence))


@settled
def _calibration(expertise, confidence):
    a, s = mpmath.mpf(expertise), mpmath.mpf(confidence)

    def integrand(u):
        p, q = a * u, s * u
        divergence = mpmath.log1p(mpmath.exp(q)) - mpmath.log1p(mpmath.exp(p))
        return (divergence - (q - p) / (1 + mpmath.exp(-p))) * mpmath.npdf(u, a / 2)

    scale = 1 / max(s, a, mpmath.mpf("0.1"))
    graded = [sign * scale * 4**k for k in range(8) for sign in (-1, 1)]
    low, high = a / 2 - 12, a / 2 + 12
    bulk = [a / 2 + k for k in (-12, -6, -3, 0, 3, 6, 12)]
    points = sorted({p for p in (mpmath.mpf(0), *graded, *bulk) if low <= p <= high})
    return mpmath.quad(integrand, points, method="gauss-legendre")
