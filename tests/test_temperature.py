"""The best temperature: how exact, what it may not depend on, and the calibrator built on it."""

import math
import os
import pickle

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from strategies import MAX_BETA, Exact, assert_is_best, drawn, examples, predictions

import refinecal as rc
from refinecal._core.arrays import check_threads
from refinecal.temperature import fit as temperature_fit

SCALES = [1e-6, 1e-3, 1.0, 1e3, 1e6]


# ---- exact: ordinary and adversarial sets ----------------------------------------------------------------


def flip(labels, k, every):
    """Return the labels with every so-manieth moved to the next class."""
    return np.where(np.arange(len(labels)) % every == 0, (labels + 1) % k, labels)


def ordinary(k, n=400):
    def make(rng):
        labels, logits = drawn(n, k, seed=int(rng.integers(99)), confidence=2.5)
        return labels, logits

    return make


def right_but(every, k, n=3000):
    """All right but one in so many, and those wrong by the largest margins there are."""

    def make(rng):
        logits = rng.standard_normal((n, k))
        labels = logits.argmax(axis=1)
        return np.where(np.arange(n) % every == 0, logits.argmin(axis=1), labels), logits

    return make


def barely_wrong(rng):
    """A thousand right by 1, one wrong by 1e-3: a large beta, in the tail of an exponential."""
    gaps = np.append(np.ones(1000), -1e-3)
    return np.zeros(1001, int), np.stack([gaps, np.zeros(1001)], axis=1)


def badly_wrong(rng):
    """A thousand right by 1, one wrong by 1e3: a small beta."""
    gaps = np.append(np.ones(1000), -1e3)
    return np.zeros(1001, int), np.stack([gaps, np.zeros(1001)], axis=1)


def constant_rows(rng):
    labels, logits = drawn(300, 4, seed=3)
    logits[::3] = 7.0
    return labels, logits


def identical_rows(rng):
    return np.arange(300) % 4 * (np.arange(300) % 3 == 0), np.tile(rng.standard_normal(4), (300, 1))


def heavy_tails(rng):
    logits = rng.standard_cauchy((500, 5))
    return (logits + rng.gumbel(size=logits.shape)).argmax(axis=1), logits


def rows_of_all_scales(rng):
    labels, logits = drawn(500, 4, seed=8)
    return flip(labels, 4, 5), logits * 10.0 ** rng.uniform(-5, 5, (500, 1))


def entries_of_all_scales(rng):
    logits = rng.standard_normal((300, 6)) * 10.0 ** rng.uniform(-4, 4, (300, 6))
    return flip(logits.argmax(axis=1), 6, 4), logits


def few_huge_rows(rng):
    labels, logits = drawn(1000, 3, seed=2)
    logits[::100] *= 1e4
    return labels, logits


def duplicated_rows(rng):
    labels, logits = drawn(7, 3, seed=5)
    return np.repeat(flip(labels, 3, 3), 50), np.repeat(logits, 50, axis=0)


def two_margins(rng):
    """Two scales that disagree: 99 % right by 1e-4, 60 % right by 1e2."""
    gaps = np.repeat([1e-4, -1e-4, 1e2, -1e2], [990, 10, 60, 40])
    return np.zeros(len(gaps), int), np.stack([gaps, np.zeros(len(gaps))], axis=1)


def one_row_of_many_classes(rng):
    logits = rng.standard_normal((1, 1000))
    return logits.argsort(axis=1)[:, -20], logits


def impossible_classes(rng):
    labels, logits = drawn(300, 6, seed=4)
    logits[rng.random(logits.shape) < 0.3] = -np.inf
    logits[np.arange(300), labels] = rng.standard_normal(300)
    return labels, logits


CASES = {
    **{f"{k} classes": ordinary(k) for k in (2, 3, 10, 127, 128, 129, 1000)},
    "10 000 classes": ordinary(10_000, 30),
    "100 000 classes": ordinary(100_000, 12),
    "all right but one, 2 classes": right_but(3000, 2),
    "all right but one, 5 classes": right_but(3000, 5),
    "all right but one, 200 classes": right_but(500, 200, 500),
    "1 in 100 wrong": right_but(100, 3),
    **{
        make.__name__.replace("_", " "): make
        for make in (
            barely_wrong,
            badly_wrong,
            constant_rows,
            identical_rows,
            heavy_tails,
            rows_of_all_scales,
            entries_of_all_scales,
            few_huge_rows,
            duplicated_rows,
            two_margins,
            one_row_of_many_classes,
            impossible_classes,
        )
    },
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sweep(2)
def test_beta_to_nine_digits(name):
    labels, logits = CASES[name](np.random.default_rng(0))
    for scale in SCALES if logits.size < 1e5 else [1e-3, 1e6]:
        fit = rc.fit_temperature(labels, logits * scale)
        assert fit.converged
        assert fit.n_reads <= 40
        assert_is_best(fit, Exact(labels, logits * scale))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sweep(3)
def test_float32_loss_to_six_digits(name):
    labels, logits = CASES[name](np.random.default_rng(1))
    for scale in SCALES if logits.size < 1e5 else [1.0]:
        single = (logits * scale).astype(np.float32)
        fit, exact = rc.fit_temperature(labels, single), Exact(labels, single)
        best = exact.loss(exact.beta())
        assert fit.converged
        assert fit.n_reads <= 40
        assert exact.loss(fit.beta) - best < 1e-6 * max(best, 1)
        assert fit.loss == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    "name", ["2 classes", "3 classes", "129 classes", "heavy tails", "1 in 100 wrong"]
)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("spread", [0.5, 20.0])
@pytest.mark.sweep(3)
def test_weights_and_soft_labels_to_nine_digits(name, soft, spread):
    rng = np.random.default_rng(2)
    labels, logits = CASES[name](rng)
    n, k = logits.shape
    weights = np.exp(spread * rng.standard_normal(n))  # for 20: over about 50 powers of ten
    if soft:
        labels = 0.8 * np.eye(k)[labels] + 0.2 * rng.dirichlet(np.full(k, 0.2), size=n)
        labels /= labels.sum(axis=1, keepdims=True)
    for scale in (1e-3, 1.0, 1e6):
        fit = rc.fit_temperature(labels, logits * scale, weights)
        assert fit.converged
        assert fit.n_reads <= 40
        assert_is_best(fit, Exact(labels, logits * scale, weights))


@pytest.mark.parametrize("factor", [1e-300, 1e-12, 1e12, 1e290])
def test_only_ratios_of_weights_matter(factor):
    labels, logits = drawn(200, 3, seed=0)
    weights = np.random.default_rng(0).exponential(size=200)
    fit = rc.fit_temperature(labels, logits, weights)
    scaled = rc.fit_temperature(labels, logits, weights * factor)
    assert scaled.beta == pytest.approx(fit.beta, rel=1e-9)
    assert scaled.loss == pytest.approx(fit.loss, rel=1e-12)


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("margin", [1e-2, 1.0, 30.0])
@pytest.mark.sweep(2)
def test_beta_against_50_digits(k, scale, margin):
    """Ten rows drawn, ten that are right, one wrong by the margin."""
    labels, logits = drawn(21, k, seed=k)
    labels[10:] = logits[10:].argmax(axis=1)
    labels[20], logits[20] = 0, 0.0
    logits[20, 1] = margin
    logits *= scale

    def slope(beta):
        total = mpmath.mpf(0)
        for y, row in zip(labels, logits.tolist(), strict=True):
            exps = [mpmath.exp(beta * z) for z in row]
            mean = mpmath.fsum(e * z for e, z in zip(exps, row, strict=True)) / mpmath.fsum(exps)
            total += mean - row[y]
        return total

    with mpmath.workdps(50):
        low, high = mpmath.mpf(2) ** -80, mpmath.mpf(2) ** 60
        for _ in range(40):  # bisect the exponent, then let Anderson and Björck finish
            middle = mpmath.sqrt(low * high)
            low, high = (low, middle) if slope(middle) > 0 else (middle, high)
        root = float(mpmath.findroot(slope, (low, high), solver="anderson", tol=1e-45 * scale**2))
    fit = rc.fit_temperature(labels, logits)
    assert fit.beta == pytest.approx(min(root, MAX_BETA), rel=1e-9)


def test_by_hand():
    """Right by 1 three times of four: e^beta = 3, and the loss is the entropy of (3/4, 1/4)."""
    fit = rc.fit_temperature([0, 0, 0, 1], [[1.0, 0.0]] * 4)
    assert fit.beta == pytest.approx(math.log(3), rel=1e-14)
    assert fit.loss == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), rel=1e-14)
    assert fit.temperature == 1 / fit.beta


def test_the_two_ends():
    worse = rc.fit_temperature([1, 1, 0], [[1.0, 0.0]] * 3)
    assert (worse.beta, worse.loss, worse.temperature) == (0, math.log(2), math.inf)
    never_wrong = rc.fit_temperature([0, 1], [[1.0, 0.0], [0.0, 1.0]])
    assert never_wrong.beta == pytest.approx(MAX_BETA, rel=1e-15)
    assert never_wrong.loss == 0


def test_impossible_classes_at_the_lower_end():
    """No better than chance, and in some rows only two of three classes are possible."""
    logits = np.array([[0, 1, -np.inf], [1, 0, -np.inf], [1, 0, 0.5]])
    fit = rc.fit_temperature([0, 1, 1], logits)
    assert fit.loss == pytest.approx((2 * math.log(2) + math.log(3)) / 3, rel=1e-14)
    assert 0 < fit.beta < 1e-300


@pytest.mark.filterwarnings("ignore:the log loss is infinite")
@pytest.mark.parametrize("k", [2, 3, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_label_of_probability_zero(k, dtype):
    """Probabilities are mixed with the uniform ones, as one row next to n. With weight 0, it is not there."""
    labels, logits = drawn(50, k, seed=1)
    logits = logits.astype(dtype)
    logits[7, labels[7]] = -np.inf
    fit = rc.fit_temperature(labels, logits)
    probs = np.exp(logits - logsumexp(logits.astype(float), axis=1, keepdims=True))
    mixed = np.log(50 / 51 * probs + 1 / (51 * k))
    expected = rc.fit_temperature(labels, mixed)
    assert fit.smoothing == 50
    assert fit.beta == pytest.approx(expected.beta, rel=1e-6)
    assert fit.loss == pytest.approx(expected.loss, rel=1e-6)
    scaling = rc.TemperatureScaling(laplace=False).fit_logits(logits, labels)
    new = scaling.predict_proba_logits(logits)
    np.testing.assert_allclose(new, softmax(fit.beta * mixed, axis=1), rtol=1e-5, atol=1e-12)
    again = rc.TemperatureScaling.from_json(scaling.to_json())
    np.testing.assert_array_equal(again.predict_proba_logits(logits), new)
    assert "smoothing_=50" in repr(again)
    assert "smoothing_" not in scaling.fit_logits(logits[:7], labels[:7]).to_json()
    weights = np.ones(50)
    weights[7] = 0
    kept = rc.fit_temperature(np.delete(labels, 7), np.delete(logits, 7, axis=0))
    ignored = rc.fit_temperature(labels, logits, weights)
    assert ignored.beta == pytest.approx(kept.beta, rel=1e-9 if dtype == np.float64 else 1e-6)


@pytest.mark.parametrize("k", [2, 3, 200])
@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1e30, 1e100, 1e200])
def test_absurd_scales(k, scale):
    labels, logits = drawn(50, k, seed=2)
    fit = rc.fit_temperature(labels, logits * scale)
    plain = rc.fit_temperature(labels, logits)
    if scale < 1:  # far below what MAX_BETA can bring out
        assert fit.beta == pytest.approx(MAX_BETA, rel=1e-12)
        assert fit.loss == pytest.approx(math.log(k), rel=1e-12)
    else:
        assert fit.beta * scale == pytest.approx(plain.beta, rel=1e-9)
        assert fit.loss == pytest.approx(plain.loss, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("change", [0, 1e-15, 1e-12, 1e-7, -1e-7, 1e-4])
def test_chance_up_to_rounding(dtype, change):
    """The slope at 0 vanishes but for rounding, which may point either way and differ from read to read."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, k = rng.choice([2, 10, 1001]), rng.choice([2, 3, 10, 150])
        labels = rng.integers(0, k, n)
        logits = rng.standard_normal((n, k)).round(2) * 10.0 ** rng.integers(0, 3)
        slope = (logits.mean(axis=1) - logits[np.arange(n), labels]).sum()
        logits[-1, labels[-1]] += slope * k / (k - 1) * (1 + change)
        logits = (logits * 10.0 ** rng.integers(-6, 7)).astype(dtype)
        fit, exact = rc.fit_temperature(labels, logits), Exact(labels, logits)
        assert fit.converged
        assert fit.n_reads <= 60
        room = 1e-6 if dtype == np.float32 else 1e-14
        assert exact.loss(fit.beta) <= exact.loss(exact.beta()) + room


def test_float32_near_its_largest():
    labels, logits = drawn(50, 3, seed=2)
    logits = (logits * (1.6e38 / np.abs(logits).max())).astype(np.float32)
    fit, exact = rc.fit_temperature(labels, logits), Exact(labels, logits)
    assert exact.loss(fit.beta) == pytest.approx(exact.loss(exact.beta()), abs=1e-6)


# ---- properties ------------------------------------------------------------------------------------------


def refinement(labels, logits, weights=None):
    return rc.fit_temperature(labels, logits, weights).loss


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-14)


@given(predictions(), st.sampled_from([1e-3, 1e-2, 0.3, 3.0, 1e2, 1e4, 1e6]))
@examples(150)
def test_scale_changes_beta_only(sample, scale):
    labels, logits = sample
    plain, scaled = rc.fit_temperature(labels, logits), rc.fit_temperature(labels, logits * scale)
    assert scaled.loss == close(plain.loss)
    exact = Exact(labels, logits)
    best = exact.beta()
    assume(0 < best < MAX_BETA * scale and exact.conditioning(best) < 1e5)
    assert scaled.beta * scale == pytest.approx(plain.beta, rel=1e-9)


@pytest.mark.parametrize("k", [2, 3, 10, 200])
@pytest.mark.parametrize("name", ["heavy tails", "1 in 100 wrong", "few huge rows", "3 classes"])
def test_scale_on_larger_sets(name, k):
    labels, logits = CASES[name](np.random.default_rng(k))
    plain = refinement(labels, logits)
    for power in range(-3, 7):
        assert refinement(labels, logits * 10.0**power) == pytest.approx(plain, rel=1e-9)


@given(predictions(), st.data())
@examples(100)
def test_shifts_and_order_change_nothing(sample, data):
    labels, logits = sample
    n, k = logits.shape
    plain = refinement(labels, logits)
    shifts = data.draw(st.lists(st.integers(-(2**40), 2**40), min_size=n, max_size=n))
    assert refinement(labels, logits + np.array(shifts)[:, None]) == close(plain)
    rows = np.array(data.draw(st.permutations(range(n))))
    assert refinement(labels[rows], logits[rows]) == close(plain)
    columns = np.array(data.draw(st.permutations(range(k))))
    assert refinement(np.argsort(columns)[labels], logits[:, columns]) == close(plain)


@given(predictions(), st.data())
@examples(100)
def test_a_weight_means_repetition(sample, data):
    labels, logits = sample
    n = len(labels)
    counts = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    assume(counts.any())
    repeated = rc.fit_temperature(np.repeat(labels, counts), np.repeat(logits, counts, axis=0))
    weighted = rc.fit_temperature(labels, logits, counts)
    assert weighted.loss == close(repeated.loss)


@given(predictions())
@examples(150)
def test_the_slope_vanishes_at_beta(sample):
    fit, exact = rc.fit_temperature(*sample), Exact(*sample)
    assert_is_best(fit, exact)
    slope = exact.slope(fit.beta)
    if fit.beta == 0:
        assert slope >= -1e-15
    elif fit.beta < MAX_BETA:
        curvature = float((exact.slope(fit.beta * 1.0001) - slope) / 1e-4)
        assert abs(slope) <= 1e-9 * curvature + 1e-15


@given(predictions(), st.sampled_from([1e-3, 1.0, 40.0, 1e4]))
@examples(100)
def test_refinement_is_at_most_the_risk(sample, scale):
    labels, logits = sample
    found = rc.decompose(labels, logits=logits * scale)
    assert found.refinement <= found.risk
    assert found.risk == pytest.approx(found.calibration + found.refinement, rel=1e-15)


@given(predictions())
@examples(100)
def test_the_loss_is_the_loss_at_beta(sample):
    labels, logits = sample
    fit = rc.fit_temperature(labels, logits)
    z = fit.beta * (logits - logits.max(axis=1, keepdims=True))
    own = z[np.arange(len(labels)), labels]
    assert fit.loss == pytest.approx(
        np.mean(logsumexp(z, axis=1) - own), rel=1e-10, abs=1e-9 / MAX_BETA
    )


@given(predictions())
def test_one_hot_labels_are_labels(sample):
    labels, logits = sample
    soft = np.eye(logits.shape[1])[labels]
    assert rc.fit_temperature(soft, logits) == rc.fit_temperature(labels.tolist(), logits)


@given(predictions(), st.sampled_from([1e-12, 1e-3, 0.5, 1.0, 2.0, 1e3, 1e9]))
@examples(150)
def test_any_start_leads_to_the_same_loss(sample, start):
    labels, logits = sample
    fit = rc.fit_temperature(labels, logits, start=start)
    assert fit.loss == close(refinement(labels, logits))
    assert fit.n_reads <= 40


@given(predictions())
def test_two_columns_or_log_odds(sample):
    """A column of log-odds z stands for (0, z)."""
    labels, logits = sample
    labels, odds = labels % 2, logits[:, 1] - logits[:, 0]
    assert refinement(labels, odds) == close(refinement(labels, logits[:, :2]))


# ---- types, sizes, starts, threads -----------------------------------------------------------------------


def test_half_precision_is_read_as_float32():
    labels, logits = drawn(500, 4, seed=0)
    half = logits.astype(np.float16)
    assert rc.fit_temperature(labels, half) == rc.fit_temperature(labels, half.astype(np.float32))
    tensor = torch.from_numpy(logits).bfloat16()
    assert rc.fit_temperature(labels, tensor) == rc.fit_temperature(labels, tensor.float().numpy())


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint64, np.float32, np.float64, np.bool_])
def test_types_of_labels(kind):
    labels, logits = drawn(100, 2, seed=0)
    assert rc.fit_temperature(labels.astype(kind), logits) == rc.fit_temperature(labels, logits)


def test_layout_does_not_matter():
    labels, logits = drawn(100, 5, seed=0)
    plain = rc.fit_temperature(labels, logits)
    frozen = logits.copy()
    frozen.flags.writeable = False
    for other in (
        np.asfortranarray(logits),
        np.repeat(logits, 2, axis=0)[::2],
        frozen,
        logits.tolist(),
    ):
        assert rc.fit_temperature(labels, other) == plain


@pytest.fixture(scope="module")
def large():
    """300 000 rows: a cold fit starts on two subsamples."""
    return drawn(300_000, 3, seed=0, confidence=2.0)


@pytest.mark.parametrize("order", ["as drawn", "sorted by class", "sorted by confidence"])
def test_many_rows(large, order):
    labels, logits = large
    if order == "sorted by class":
        rows = np.argsort(labels, kind="stable")
    elif order == "sorted by confidence":
        rows = np.argsort(logits.max(axis=1))
    else:
        rows = slice(None)
    labels, logits = labels[rows], np.ascontiguousarray(logits[rows])
    fit = rc.fit_temperature(labels, logits)
    assert_is_best(fit, Exact(labels, logits))
    assert fit.n_reads < 3


@pytest.mark.parametrize("stride", [9, 300])
@pytest.mark.parametrize("change", ["wrong", "right", "huge", "constant"])
def test_a_subsample_that_misleads(stride, change):
    """The rows that a cold fit looks at first are unlike the rest: it costs reads, not digits."""
    labels, logits = drawn(256 * 300, 3, seed=1)
    seen = slice(None, None, stride)
    if change == "wrong":
        labels[seen] = logits[seen].argmin(axis=1)
    elif change == "right":
        labels[seen] = logits[seen].argmax(axis=1)
    else:
        logits[seen] *= 1e6 if change == "huge" else 0
    fit = rc.fit_temperature(labels, logits)
    assert_is_best(fit, Exact(labels, logits))
    assert fit.n_reads < 20


def test_a_warm_start_changes_the_cost_only(large):
    labels, logits = large
    cold = rc.fit_temperature(labels, logits)
    for start in (0.8 * cold.beta, cold.beta, 1.01 * cold.beta):
        warm = rc.fit_temperature(labels, logits, start=start)
        assert warm.beta == pytest.approx(cold.beta, rel=1e-9)
        assert warm.loss == pytest.approx(cold.loss, rel=1e-12)
        assert warm.n_reads <= 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [2, 3, 200])
def test_threads_change_rounding_only(dtype, k, monkeypatch):
    labels, logits = drawn(1500, k, seed=0)
    logits = logits.astype(dtype)
    monkeypatch.setattr(temperature_fit, "THREAD_ELEMENTS", 0)
    one, many = (rc.fit_temperature(labels, logits, n_threads=n) for n in (1, 5))
    assert many.beta == pytest.approx(one.beta, rel=1e-11 if dtype == np.float64 else 1e-6)
    assert many.loss == pytest.approx(one.loss, rel=1e-12 if dtype == np.float64 else 1e-7)


def test_number_of_threads(monkeypatch):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert check_threads(None) == cores
    assert check_threads(7) == 7
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert check_threads(None) == 1
    assert check_threads(3) == 3
    for text in ("", "0", "many", "4,2"):  # the last is legal for OpenMP: nested levels
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert check_threads(None) == cores
    monkeypatch.setenv("OMP_NUM_THREADS", "1000")
    assert check_threads(None) == cores


@pytest.mark.parametrize("n_threads", [0, -1, 1.5, "2"])
def test_threads_that_make_no_sense(n_threads):
    with pytest.raises(ValueError, match="n_threads is"):
        rc.fit_temperature([0, 1], [[1.0, 0.0], [0.0, 1.0]], n_threads=n_threads)


@pytest.mark.parametrize("start", [-1.0, math.inf, math.nan, "1", None])
def test_starts_that_make_no_sense(start):
    with pytest.raises(ValueError, match="start is"):
        rc.fit_temperature([0, 1], [[1.0, 0.0], [0.0, 1.0]], start=start)


# ---- the calibrator --------------------------------------------------------------------------------------


def test_smoothing_by_hand():
    """n / (n + 1) g + 1 / ((n + 1) k), where g = softmax(beta log p) = (3/4, 1/4): see appendix D."""
    scaling = rc.TemperatureScaling().fit([[0.9, 0.1]] * 4, [0, 0, 0, 1])
    assert scaling.beta_ == pytest.approx(math.log(3) / math.log(9), rel=1e-12)
    assert scaling.temperature_ == 1 / scaling.beta_
    expected = 4 / 5 * np.array([3 / 4, 1 / 4]) + 1 / (5 * 2)
    np.testing.assert_allclose(scaling.predict_proba([[0.9, 0.1]]), [expected], rtol=1e-12)
    plain = rc.TemperatureScaling(laplace=False).fit([[0.9, 0.1]] * 4, [0, 0, 0, 1])
    np.testing.assert_allclose(plain.predict_proba([[0.9, 0.1]]), [[3 / 4, 1 / 4]], rtol=1e-12)


@pytest.mark.parametrize("laplace", [False, True])
def test_smoothing_of_many_rows(laplace):
    labels, logits = drawn(200, 4, seed=0)
    weights = np.random.default_rng(0).exponential(size=200)
    scaling = rc.TemperatureScaling(laplace=laplace).fit_logits(logits, labels, weights)
    n = weights.sum() if laplace else math.inf
    flat = 1 / ((n + 1) * 4)
    expected = (1 - 4 * flat) * softmax(scaling.beta_ * logits, axis=1) + flat
    np.testing.assert_allclose(scaling.predict_proba_logits(logits), expected, rtol=1e-12)
    np.testing.assert_allclose(scaling.predict_proba(softmax(logits, axis=1)), expected, rtol=1e-9)
    assert scaling.beta_ == rc.fit_temperature(labels, logits, weights).beta


def test_no_better_than_chance_predicts_flat():
    scaling = rc.TemperatureScaling().fit_logits([[1.0, 0.0, 0.0]] * 3, [1, 2, 1])
    assert scaling.beta_ == 0
    assert scaling.temperature_ == math.inf
    impossible = [[0.0, -np.inf, 3.0]]
    np.testing.assert_allclose(scaling.predict_proba_logits(impossible), [[1 / 3] * 3], rtol=1e-12)


def test_impossible_classes_get_the_smoothing_only():
    labels, logits = drawn(9, 3, seed=0)
    scaling = rc.TemperatureScaling().fit_logits(logits, labels)
    p = scaling.predict_proba_logits([[0.0, -np.inf, -np.inf]])
    np.testing.assert_allclose(p, [[9 / 10 + 1 / 30, 1 / 30, 1 / 30]], rtol=1e-12)
    plain = rc.TemperatureScaling(laplace=False).fit_logits(logits, labels)
    np.testing.assert_array_equal(
        plain.predict_proba_logits([[0.0, -np.inf, -np.inf]]), [[1, 0, 0]]
    )


@pytest.mark.parametrize("k", [2, 5])
def test_never_wrong_has_finite_loss_on_new_rows(k):
    """The smallest probability there can be is 1 / ((n + 1) k)."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((50, k))
    scaling = rc.TemperatureScaling().fit_logits(logits, logits.argmax(axis=1))
    assert scaling.beta_ == pytest.approx(MAX_BETA, rel=1e-12)
    p = scaling.predict_proba_logits(rng.standard_normal((100, k)))
    assert -np.log(p).max() < np.inf
    assert p.min() == pytest.approx(1 / (51 * k), rel=1e-9)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_types_of_predictions(kind):
    labels, logits = drawn(300, 3, seed=0)
    scaling = rc.TemperatureScaling().fit_logits(logits, labels)
    expected = scaling.predict_proba_logits(logits)
    tol = {np.float16: 5e-3, np.float32: 1e-5, np.float64: 1e-12}[kind]
    p = scaling.predict_proba_logits(logits.astype(kind))
    np.testing.assert_allclose(p, expected, atol=tol)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-6)
    p = scaling.predict_proba(softmax(logits, axis=1).astype(kind))
    np.testing.assert_allclose(p, expected, atol=tol)
    whole = scaling.predict_proba_logits(np.array([[1, 0, 2]]))
    np.testing.assert_allclose(whole, scaling.predict_proba_logits([[1.0, 0.0, 2.0]]))


def test_two_classes_as_one_column():
    labels, logits = drawn(300, 2, seed=0)
    odds = logits[:, 1] - logits[:, 0]
    two = rc.TemperatureScaling().fit_logits(logits, labels)
    one = rc.TemperatureScaling().fit_logits(odds, labels)
    assert one.beta_ == pytest.approx(two.beta_, rel=1e-9)
    np.testing.assert_allclose(
        one.predict_proba_logits(odds), two.predict_proba_logits(logits), rtol=1e-9
    )


@given(predictions(), st.booleans())
@examples(100)
def test_predictions_are_probabilities(sample, laplace):
    labels, logits = sample
    scaling = rc.TemperatureScaling(laplace=laplace).fit_logits(logits, labels)
    p = scaling.predict_proba_logits(logits)
    assert np.all(p >= 0)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    if scaling.beta_ > 0:  # the order of the classes stays
        assert np.all(p[np.arange(len(p)), logits.argmax(axis=1)] == p.max(axis=1))


def test_the_calibrated_loss_is_the_refinement():
    labels, logits = drawn(500, 4, seed=0, confidence=3.0)
    scaling = rc.TemperatureScaling(laplace=False).fit_logits(logits, labels)
    logs = np.log(scaling.predict_proba_logits(logits))[np.arange(500), labels]
    assert -logs.mean() == pytest.approx(rc.fit_temperature(labels, logits).loss, rel=1e-12)
    given = log_softmax(logits, axis=1)[np.arange(500), labels]
    assert -logs.mean() < -given.mean()


def test_scikit_learn_can_clone_it():
    scaling = rc.TemperatureScaling(laplace=False).fit([0.2, 0.7, 0.6], [0, 1, 0])
    copy = clone(scaling)
    assert copy.get_params() == {"laplace": False}
    assert not hasattr(copy, "beta_")
    assert copy.set_params(laplace=True).laplace
    with pytest.raises(ValueError, match="no parameter 'smooth'"):
        copy.set_params(smooth=True)
    assert pickle.loads(pickle.dumps(scaling)).beta_ == scaling.beta_


def test_predicting_before_fitting_and_with_other_columns():
    with pytest.raises(ValueError, match="not fitted yet"):
        rc.TemperatureScaling().predict_proba([[0.5, 0.5]])
    scaling = rc.TemperatureScaling().fit([[0.5, 0.2, 0.3], [0.1, 0.8, 0.1]], [0, 1])
    with pytest.raises(ValueError, match="has 2 columns, but the calibrator was fitted with 3"):
        scaling.predict_proba([[0.5, 0.5]])


# ---- what is said to users ------------------------------------------------------------------------------


def test_labels_of_probability_zero_are_counted():
    probs = [[1.0, 0.0], [0.3, 0.7], [0.0, 1.0]]
    with pytest.warns(RuntimeWarning, match="infinite: 2 of 3 labels have probability 0.*mixed"):
        scaling = rc.TemperatureScaling().fit(probs, [1, 1, 0])
    assert scaling.beta_ == 0  # it is wrong more often than right
    assert scaling.smoothing_ == 3


def test_probabilities_taken_for_logits_are_warned_of():
    labels, logits = drawn(50, 3, seed=0)
    probs = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    for call in (
        lambda: rc.fit_temperature(labels, probs),
        lambda: rc.decompose(labels, logits=probs),
        lambda: rc.TemperatureScaling().fit_logits(probs, labels),
    ):
        with pytest.warns(RuntimeWarning, match="look like probabilities"):
            call()
    rc.fit_temperature(labels, np.eye(3)[labels] * 1.0)  # only 0 and 1: could be either


def test_swapped_arguments_and_models_are_told_apart():
    probs = np.array([[0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    with pytest.raises(ValueError, match="are the two swapped"):
        rc.TemperatureScaling().fit([1, 0, 1], probs)
    with pytest.raises(TypeError, match="probs is a model: pass model.predict_proba"):
        rc.decompose([1, 0, 1], LogisticRegression())
    with pytest.raises(TypeError, match="probs is a function: pass what it returns"):
        rc.decompose([1, 0, 1], LogisticRegression().predict_proba)
    with pytest.raises(ValueError, match=r"pass model.predict_proba\(X\), not model.predict\(X\)"):
        rc.decompose([0, 2, 1], [0, 2, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("level", [0.0, np.log(1 / 3), -7.3])
def test_flat_predictions_say_nothing_about_beta(level, dtype):
    """Every beta is as good as any other: the one to start from stays, and predictions stay flat."""
    fit = rc.fit_temperature(np.arange(90) % 3, np.full((90, 3), level, dtype=dtype))
    assert (fit.beta, fit.converged) == (1.0, True)
    assert fit.loss == pytest.approx(np.log(3), rel=1e-6)
