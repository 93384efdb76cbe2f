"""Newton steps of few parameters by Cholesky's method."""

import numpy as np

from refinecal._kernels.jit import FAST, jit

DAMPING = 1e-11  # relative to the diagonal: keeps moves along flat directions small


@jit(fastmath=FAST)
def solve_newton(gradient, hessian):  # type: ignore[no-untyped-def]
    """Return minus the inverse Hessian times the gradient; a short step downhill if it is indefinite."""
    d = len(gradient)
    inverse, step, root = np.ones(d), np.empty(d), np.empty((d, d))
    for i in range(d):
        if hessian[i, i] > 0:
            inverse[i] = 1.0 / np.sqrt(hessian[i, i])
    for i in range(d):
        for j in range(i + 1):
            rest = hessian[i, j] * inverse[i] * inverse[j] if j < i else 1.0 + DAMPING
            for c in range(j):
                rest -= root[i, c] * root[j, c]
            if j < i:
                root[i, j] = rest / root[j, j]
            elif rest > 0:
                root[i, i] = np.sqrt(rest)
            else:
                return -gradient * inverse**2
    for i in range(d):
        step[i] = -gradient[i] * inverse[i]
        for c in range(i):
            step[i] -= root[i, c] * step[c]
        step[i] /= root[i, i]
    for i in range(d - 1, -1, -1):
        step[i] /= root[i, i]
        for c in range(i):
            step[c] -= root[i, c] * step[i]
    return step * inverse
