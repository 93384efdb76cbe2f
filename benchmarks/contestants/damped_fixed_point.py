"""The system of :mod:`refinecal.theory.fixed_point`, solved the plain way, for ``benchmarks.theory``.

Straight from the equations: a damped fixed point, normal expectations by Gauss and Hermite's nodes in t,
and for each of them Newton's method for x = t + kappa s(x). One point at a time.
"""

import numpy as np
from scipy.special import expit, roots_hermitenorm

NAME = "damped fixed point, one point at a time"
NODES = 100
DAMPING = 0.7
TOLERANCE = 1e-8
MOST_ROUNDS = 5000
T, WEIGHTS = roots_hermitenorm(NODES)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def solve(lam, ratio, signal, spectrum):
    """Return <w, w*>, |w| and the rounds that were needed."""
    sigma, by_f, by_g = spectrum.nodes, spectrum.weights, spectrum.signal_weights
    state = np.array([0.5, 0.25, 0.25])  # eta, gamma, tau
    for rounds in range(1, MOST_ROUNDS + 1):
        eta, gamma, tau = state
        once = 1 / (lam + tau * sigma)
        kappa = ratio * (by_f @ (sigma * once))
        m = eta * signal**2 * (by_g @ once)
        mean_part = eta**2 * signal**2 * (by_g @ (sigma * once**2))
        v = mean_part + gamma * ratio * (by_f @ (sigma * once) ** 2)
        new = _moments(kappa, m, v)
        step = np.abs(np.log(new / state)).max()
        state = state ** (1 - DAMPING) * new**DAMPING
        if step < TOLERANCE:
            return 2 * m, np.sqrt(v), rounds
    raise RuntimeError(f"no solution to {TOLERANCE:g} after {MOST_ROUNDS} rounds")


def _moments(kappa, m, v):
    t = m + np.sqrt(v) * T
    x = _proximal(t, kappa)
    s = expit(-x)
    q = s * (1 - s)
    return np.array([WEIGHTS @ s, WEIGHTS @ s**2, WEIGHTS @ (q / (1 + kappa * q))])


def _proximal(t, kappa):
    """Return x = t + kappa s(x): from max(t, 0) Newton's method goes one way, so it needs no bracket."""
    x = np.maximum(t, 0)
    for _ in range(100):
        s = expit(-x)
        step = (x - t - kappa * s) / (1 + kappa * s * (1 - s))
        x = x - step
        if np.abs(step).max() < 1e-10:
            break
    return x
