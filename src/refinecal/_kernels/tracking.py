r"""Compiled loops for the metrics that are tracked at every training step, mostly for two classes.

Two classes need one number per row, the logit of the label minus the other: ``t``. Rows lie in the order of
their folds. In units of a relative change of beta, row i has the loss
:math:`\ell(s) = \ell + a s + \frac12 b s^2 + \frac16 c s^3 + \frac1{24} d s^4`, as in
``temperature.fit``.
"""

import math

import numpy as np

from refinecal._kernels.jit import FAST, LN2, LOG2_E, inline, jit
from refinecal._kernels.pav import bridge_hulls, pool_violators
from refinecal._kernels.vector import exp2
from refinecal.resampling import LARGE_CHANGE, SMALL_CHANGE
from refinecal.temperature.fit import best_step

FLOOR = -1022.0  # the smallest exponent of float64
LANES = 32  # products that are kept side by side
DEEP = 32  # factors in each: probabilities are at least 1 / (2 n + 2) here, so that none underflows
DIGIT = 11  # bits of a key that one pass of the sort looks at
BUCKETS = 1 << DIGIT
PASSES = 3  # keys have 33 bits: a float32, and the label as the lowest
MOST_STEPS = 8  # toward the best beta, from a close one

_best_step = jit()(best_step)


# ---- rows as they are, and after the best temperature ----------------------------------------------------


@jit(fastmath=FAST)
def mean_losses(t, beta):  # type: ignore[no-untyped-def]
    """Return the mean log loss and Brier score after scaling by beta."""
    n = len(t)
    scale = beta * LOG2_E
    products = np.empty(LANES)
    logs, linear, square = 0.0, 0.0, 0.0
    for start in range(0, n, LANES * DEEP):
        stop = min(start + LANES * DEEP, n)
        products[:] = 1.0
        for first in range(start, stop, LANES):
            part = t[first : min(first + LANES, stop)]
            for i in range(len(part)):
                x = part[i] * scale
                down = -abs(x)
                e = exp2(FLOOR if down < FLOOR else down)
                q = 1.0 / (1.0 + e)
                miss = q if x < 0 else e * q
                square += miss * miss
                linear += x if x < 0 else 0.0
                products[i] *= 1.0 + e
        logs += _log_of_all(products)
    return (logs - LN2 * linear) / n, 2 * square / n


@jit(fastmath=FAST)
def smoothed_loss(t, beta, n_fitted):  # type: ignore[no-untyped-def]
    """Return the sum of the log losses after scaling by beta and Laplace smoothing."""
    n = len(t)
    scale = beta * LOG2_E
    share, even = n_fitted / (n_fitted + 1.0), 0.5 / (n_fitted + 1.0)
    products = np.empty(LANES)
    logs = 0.0
    for start in range(0, n, LANES * DEEP):
        stop = min(start + LANES * DEEP, n)
        products[:] = 1.0
        for first in range(start, stop, LANES):
            part = t[first : min(first + LANES, stop)]
            for i in range(len(part)):
                x = part[i] * scale
                down = -abs(x)
                e = exp2(FLOOR if down < FLOOR else down)
                q = 1.0 / (1.0 + e)
                products[i] *= share * (e * q if x < 0 else q) + even
        logs += _log_of_all(products)
    return -logs


@jit()
def _log_of_all(products):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(LANES):
        total += math.log(products[i])
    return total


# ---- temperatures ----------------------------------------------------------------------------------------


@jit(fastmath=FAST)
def derivatives(t, beta, out):  # type: ignore[no-untyped-def]
    """Fill the rows of ``out`` (4, n) with a, b, c, d of each row at beta."""
    scale = beta * LOG2_E
    first, second, third, fourth = out[0], out[1], out[2], out[3]
    for i in range(len(t)):
        first[i], second[i], third[i], fourth[i] = _cumulants(t[i] * scale)


@jit(fastmath=FAST, inline="always")
def _cumulants(x):  # type: ignore[no-untyped-def]
    """Return a, b, c, d of one row, with x in bits."""
    down = -abs(x)
    down = FLOOR if down < FLOOR else down
    e = exp2(down)
    q = 1.0 / (1.0 + e)
    miss = q if x < 0 else e * q
    near = LN2 * (x if x < -FLOOR else -FLOOR)
    far = LN2 * down  # its sign is set where it matters
    v = e * q * q
    h = v * far * far
    c = h * far * (1.0 - miss - miss)
    return -near * miss, h, c if x > 0 else -c, h * far * far * (1.0 - 6.0 * v)


@inline(fastmath=FAST)
def _sums(t, beta):  # type: ignore[no-untyped-def]
    """Return the sums of a, b, c, d over all rows at beta."""
    scale = beta * LOG2_E
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(len(t)):
        a_i, b_i, c_i, d_i = _cumulants(t[i] * scale)
        a += a_i
        b += b_i
        c += c_i
        d += d_i
    return a, b, c, d


@jit()
def beta_near(t, skip, until, beta, sums, tolerance):  # type: ignore[no-untyped-def]
    """Return the best beta of all rows but ``skip`` to ``until``, from one close by; NaN if it is not.

    ``sums`` are those of a, b, c, d at ``beta``; if ``t`` is empty they are all that is known.
    """
    a, b, c, d = sums
    for _ in range(MOST_STEPS):
        step, error = _best_step(a, b, c, d)
        if abs(step) > 0.5:
            return np.nan
        beta *= 1 + step
        if error < tolerance:
            return beta
        if len(t) == 0:
            return np.nan
        before, behind = _sums(t[:skip], beta), _sums(t[until:], beta)
        a, b = before[0] + behind[0], before[1] + behind[1]
        c, d = before[2] + behind[2], before[3] + behind[3]
    return np.nan


@jit()
def best_beta(t, start, tolerance):  # type: ignore[no-untyped-def]
    """Return the best beta, sought near ``start``; NaN if it is not there."""
    return beta_near(t, 0, 0, start, _sums(t, start), tolerance)


@jit()
def betas_without(t, parts, starts, beta, tolerance):  # type: ignore[no-untyped-def]
    """Return the best beta without each fold, NaN where it is not near; ``parts`` are derivatives at beta."""
    folds = len(starts) - 1
    found, sums = np.empty(folds), np.empty((4, folds))
    for fold in range(folds):
        for m in range(4):
            sums[m, fold] = _sum(parts[m, starts[fold] : starts[fold + 1]])
    for fold in range(folds):
        rest = np.zeros(4)
        for other in range(folds):
            if other != fold:
                rest += sums[:, other]
        given = rest[0], rest[1], rest[2], rest[3]
        found[fold] = beta_near(t, starts[fold], starts[fold + 1], beta, given, tolerance)
    return found


@inline(fastmath=FAST)
def _sum(values):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


@jit(fastmath=FAST)
def one_left_out(parts, steps):  # type: ignore[no-untyped-def]
    """Fill in the relative change of beta without each row; return the change of the losses.

    That is the sum over rows whose change is small; then the number of the others, and of those among them
    whose change is large. The formulas are those of :func:`refinecal.resampling.leave_one_out`.
    """
    a, b, c, d = parts[0], parts[1], parts[2], parts[3]
    slope, curvature, third = _sum(a), _sum(b), _sum(c)
    total, far, large = 0.0, 0, 0
    for i in range(len(steps)):
        rest = curvature - b[i]
        newton = (a[i] - slope) / rest
        bend = newton * (third - c[i]) / (2 * rest)
        step = newton / (1 + (bend if bend > -0.5 else -0.5))
        size = abs(step)
        gain = step * (a[i] + step * (b[i] / 2 + step * (c[i] / 6 + step * d[i] / 24)))
        total += gain if size < SMALL_CHANGE else 0.0
        far += 0 if size < SMALL_CHANGE else 1
        large += 0 if size < LARGE_CHANGE else 1
        steps[i] = step
    return total, far, large


# ---- scores in order -------------------------------------------------------------------------------------


@jit()
def sort_scores(t, ones):  # type: ignore[no-untyped-def]
    """Return the scores of class 1 in order, each with its label as the lowest bit: a radix sort.

    ``t`` holds float32 numbers, whose bits, with the sign turned, are in the order of the numbers.
    """
    n = len(t)
    keys, other = np.empty(n, np.uint64), np.empty(n, np.uint64)
    counts = np.zeros((PASSES, BUCKETS), np.int64)
    values = np.empty(n, np.float32)
    for i in range(n):
        values[i] = np.float32((t[i] if ones[i] else -t[i]) + 0.0)  # + 0.0: one zero only
    bits = values.view(np.uint32)
    for i in range(n):
        word = bits[i]
        word = ~word if word >> np.uint32(31) else word | np.uint32(0x80000000)
        key = (np.uint64(word) << np.uint64(1)) | np.uint64(ones[i])
        keys[i] = key
        for p in range(PASSES):
            counts[p, (key >> np.uint64(p * DIGIT)) & np.uint64(BUCKETS - 1)] += 1
    for p in range(PASSES):
        place = 0
        for bucket in range(BUCKETS):
            size = counts[p, bucket]
            counts[p, bucket] = place
            place += size
        for i in range(n):
            bucket = (keys[i] >> np.uint64(p * DIGIT)) & np.uint64(BUCKETS - 1)
            other[counts[p, bucket]] = keys[i]
            counts[p, bucket] += 1
        keys, other = other, keys
    return keys


@jit()
def merge_ties(keys):  # type: ignore[no-untyped-def]
    """Return the number of rows of each different score, in order, and how many are of class 1."""
    mass, hits = np.zeros(len(keys)), np.zeros(len(keys))
    last = -1
    for i in range(len(keys)):
        if i == 0 or keys[i] >> np.uint64(1) != keys[i - 1] >> np.uint64(1):
            last += 1
        mass[last] += 1.0
        hits[last] += float(keys[i] & np.uint64(1))
    return mass[: last + 1], hits[: last + 1]


@jit()
def area(mass, hits):  # type: ignore[no-untyped-def]
    """Return the area under the ROC curve of scores in order; NaN with one label only."""
    below, twice, ones = 0.0, 0.0, 0.0
    for i in range(len(mass)):
        zeros = mass[i] - hits[i]
        twice += hits[i] * (2 * below + zeros)
        below += zeros
        ones += hits[i]
    pairs = ones * below
    return twice / (2 * pairs) if pairs else np.nan


@jit()
def isotonic_loss(mass, hits):  # type: ignore[no-untyped-def]
    """Return the mean log loss after isotonic regression and Laplace smoothing, of scores in order."""
    first, levels = pool_violators(mass, hits)
    n, total = mass.sum(), 0.0
    share, even = n / (n + 1.0), 0.5 / (n + 1.0)
    for piece in range(len(first)):
        end = first[piece + 1] if piece + 1 < len(first) else len(mass)
        ones = hits[first[piece] : end].sum()
        zeros = mass[first[piece] : end].sum() - ones
        if ones > 0:
            total -= ones * math.log(share * levels[piece] + even)
        if zeros > 0:
            total -= zeros * math.log(share * (1 - levels[piece]) + even)
    return total / n


@jit()
def venn_abers_loss(mass, hits):  # type: ignore[no-untyped-def]
    """Return the mean log loss after inductive Venn-Abers prediction, of scores in order."""
    lower, upper = bridge_hulls(mass, hits, 1.0, 0.0), bridge_hulls(mass, hits, 1.0, 1.0)
    total = 0.0
    for j in range(len(mass)):
        norm = math.log(1 - lower[j] + upper[j])
        if hits[j] > 0:
            total += hits[j] * (norm - math.log(upper[j]))
        if mass[j] > hits[j]:
            total += (mass[j] - hits[j]) * (norm - math.log(1 - lower[j]))
    return total / mass.sum()
