"""The search by itself: on functions whose minimum is known, and the same with whoever reads the data."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit
from strategies import MAX_BETA, Exact, NumpyReader, drawn, examples, predictions

from refinecal import temperature
from refinecal._core.sample import Sample
from refinecal.temperature import fit as temperature_fit
from refinecal.temperature.fit import FINE_64, Found, KernelReader, Point, search
from refinecal.temperature.torch import TorchReader


class Counted:
    """Counts how often a reader is asked."""

    def __init__(self, reader):
        self.reader, self.reads, self.zeros = reader, 0, 0

    def at(self, beta):
        self.reads += 1
        return self.reader.at(beta)

    def at_zero(self):
        self.zeros += 1
        return self.reader.at_zero()


class Logistic:
    """Two classes by hand: the mean of log(1 + exp(-beta m_i)) for margins m_i of either sign."""

    def __init__(self, margins, weights=None):
        self.margins = np.asarray(margins, dtype=np.float64)
        weights = np.ones(len(self.margins)) if weights is None else np.asarray(weights)
        self.shares = weights / weights.sum()

    def terms(self, beta):
        x = beta * self.margins
        p, q = expit(-x), expit(x)
        v = p * q
        x = np.clip(x, -700, 700)  # where v is 0, keeps 0 * inf away
        loss = np.logaddexp(0, -beta * self.margins)
        return (
            loss,
            -beta * self.margins * p,
            x**2 * v,
            -(x**3) * v * (q - p),
            x**4 * v * (1 - 6 * v),
        )

    def at(self, beta):
        return Point(beta, *(float(self.shares @ term) for term in self.terms(beta)))

    def at_zero(self):
        m = self.margins
        return float(self.shares @ -m / 2), float(self.shares @ m**2 / 4)

    def best(self):
        def slope(beta):
            return float(self.shares @ (-self.margins * expit(-beta * self.margins)))

        if slope(0.0) >= -1e-15 * float(self.shares @ np.abs(self.margins)):  # 0 but for rounding
            return 0.0
        if slope(MAX_BETA) <= 0:
            return MAX_BETA
        low = high = 1.0
        while slope(low) >= 0:
            low /= 2
        while slope(high) < 0:
            high *= 2
        return brentq(slope, low, min(high, MAX_BETA), xtol=1e-300, rtol=1e-15)


class Polynomial:
    """(beta / root - 1)^2, or (beta / root - 1)^4 whose curvature vanishes at its minimum."""

    def __init__(self, root, power):
        self.root, self.power = root, power

    def at(self, beta):
        ratio, terms = beta / self.root, []
        for m in range(5):  # d^m/ds^m of (ratio (1 + s) - 1)^power at s = 0
            falling = math.prod(range(self.power - m + 1, self.power + 1)) if m <= self.power else 0
            terms.append(falling * (ratio - 1) ** max(self.power - m, 0) * ratio**m)
        return Point(beta, *terms)

    def at_zero(self):
        return -self.power / self.root, self.power * (self.power - 1) / self.root**2


def solve(reader, start=1.0, tol=FINE_64):
    counted = Counted(reader)
    found = search(counted, start, tol)
    assert found.n_reads == counted.reads + counted.zeros
    return found


# ---- functions whose minimum is known --------------------------------------------------------------------


@pytest.mark.parametrize("power", range(-6, 7, 2))
@pytest.mark.parametrize("odds", [1.001, 3.0, 1e3, 1e6, 1e12])
@pytest.mark.parametrize("start", [1e-12, 1e-3, 1.0, 1e3, MAX_BETA])
def test_one_margin(power, odds, start):
    """Right ``odds`` times, wrong once, always by the margin m: beta = log(odds) / m."""
    margin = 10.0**power
    found = solve(Logistic([margin, -margin], [odds, 1]), start)
    best = min(math.log(odds) / margin, MAX_BETA)
    assert found.beta == pytest.approx(best, rel=1e-9)
    assert found.converged
    assert found.n_reads <= 40


@pytest.mark.parametrize("root", [1e-9, 0.1, 1.0, 50.0, 1e6])
@pytest.mark.parametrize("start", [1e-9, 1.0, 1e6])
def test_a_parabola(root, start):
    found = solve(Polynomial(root, 2), start)
    assert found.beta == pytest.approx(root, rel=1e-9)
    assert found.loss == pytest.approx(0, abs=1e-15)
    assert found.n_reads <= 40


@pytest.mark.parametrize("root", [1e-3, 1.0, 1e3])
def test_a_minimum_without_curvature(root):
    """A root of the third order: Newton's steps shrink by a third only, and the loss is flat."""
    found = solve(Polynomial(root, 4), 1.7)
    assert found.converged
    assert found.loss < 1e-12
    assert found.n_reads <= 60


@given(
    st.lists(
        st.tuples(st.integers(-9, 9), st.integers(-4, 4), st.integers(-6, 6)),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6]),
    st.sampled_from([1e-9, 0.01, 1.0, 100.0, 1e6]),
)
@example([(1, 4, 0), (-1, 4, 0), (1, -4, 0)], 1e6, 1.0)
@example([(2, 0, 4), (-2, -1, 0), (3, 0, 4)], 1e-6, 1e-9)  # it rises at the largest beta already
@example([(9, 4, 6), (-1, -4, -6), (1, -4, 0)], 1.0, 1.0)
@example([(-1, 0, -1), (2, 0, -1), (-1, 0, -1)], 1e-6, 1e-9)  # a slope at 0 of nothing but rounding
@examples(400)
def test_margins_of_any_scale(rows, scale, start):
    """Margins over eight powers of ten in one set, weights over twelve."""
    sign, power, weight = np.array(rows).T
    reader = Logistic(scale * sign * 10.0**power, 10.0**weight)
    found = solve(reader, start)
    best = reader.best()
    assert found.converged
    assert found.n_reads <= 60
    assert (
        reader.at(found.beta or 1e-300).loss
        <= reader.at(best or 1e-300).loss * (1 + 1e-12) + 1e-300
    )
    assert found.beta == 0 or found.loss == pytest.approx(reader.at(found.beta).loss, rel=1e-12)
    _, slopes, curvatures, _, _ = reader.terms(best)
    curvature = reader.shares @ curvatures
    assume(0 < best < MAX_BETA and reader.shares @ np.abs(slopes) < 1e5 * curvature)
    assert found.beta == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("margin", [20, 60, 200, 600])
@pytest.mark.parametrize("share", [1e-9, 1e-7, 1e-5, 1e-3])
def test_a_bend_that_hides_in_high_derivatives(margin, share):
    """Rows far from their turn, but of such weight that the fifth derivative exceeds all before it.

    The last step must not be trusted because the third derivative is small.
    """
    weights = [expit(1), expit(-1) + share * margin, share * math.exp(margin)]
    reader = Logistic([1, -1, margin], weights)
    best = reader.best()
    for change in np.geomspace(1e-4, 3e-2, 12):
        for start in (best * (1 + change), best * (1 - change)):
            assert solve(reader, start).beta == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("power", [3, 6, 9, 12, 15, 18])
@pytest.mark.parametrize("rounding", [2e-16, 1e-7])
def test_an_outlier_is_not_mistaken_for_chance(power, rounding):
    """One row of next to no weight, right by so much that it alone makes the curvature at 0.

    Newton's step from 0 then promises next to no gain, but past that row there is plenty to come:
    the others are right by 1000 three times of four, so beta = log(3) / 1000.
    """
    outlier = 10.0**power
    reader = Logistic([1e3, -1e3, 1e3 * outlier], [3, 1, 0.1 / outlier])
    found = search(reader, 1.0, FINE_64, rounding=rounding)
    assert found.beta == pytest.approx(math.log(3) / 1e3, rel=1e-9)
    assert found.n_reads <= 40


# ---- the two ends of the interval, and no end ------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("start", [1e-9, 1.0, 1e6])
def test_no_better_than_chance_is_zero(scale, start):
    for margins in ([-1, -2, 2.5], [-1], [1, -1], [-5, 4, 0]):  # on average wrong: slope >= 0 at 0
        found = solve(Logistic(scale * np.array(margins)), start)
        assert found.beta == 0
        assert found.converged
        assert found.n_reads <= 10


@pytest.mark.parametrize("start", [1e-9, 1.0, 1e6])
def test_chance_up_to_rounding(start):
    """These margins sum to 2e-22: the least of betas, or 0, is as good as any."""
    found = solve(Logistic(1e-6 * np.array([-1, -2, 3])), start)
    assert found.loss == pytest.approx(math.log(2), rel=1e-15) or found.beta == 0
    assert found.converged
    assert found.n_reads <= 60


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("start", [1e-9, 1.0, 1e6])
def test_never_wrong_is_the_upper_end(scale, start):
    found = solve(Logistic(scale * np.array([1.0, 2.0, 0.5])), start)
    assert found.beta == pytest.approx(MAX_BETA, rel=1e-12) or found.loss == 0
    assert found.beta <= MAX_BETA
    assert found.converged
    assert found.n_reads <= 40


@pytest.mark.parametrize("share", [1e-6, 0.5, 0.999, 1.001, 2.0, 1e3])
def test_minima_near_the_upper_end(share):
    margin = math.log(3) / (share * MAX_BETA)
    found = solve(Logistic([margin, -margin], [3, 1]))
    assert found.beta == pytest.approx(min(share, 1) * MAX_BETA, rel=1e-9)
    assert found.converged


def test_noise_larger_than_the_slope():
    """A reader in float32: beta is rounded, and near the minimum the slope has the sign of a tossed coin."""

    class Coarse(Logistic):
        def at(self, beta):
            beta = float(np.float32(beta))
            toss = np.random.default_rng(np.float32(beta).view(np.uint32)).standard_normal()
            point = super().at(beta)
            return point._replace(a=point.a + 1e-8 * toss)

    for seed in range(50):
        rng = np.random.default_rng(seed)
        reader = Coarse([1e-3, -1e-3], [1 + rng.uniform(1e-5, 1e-2), 1])
        found = search(reader, 1.0, 1e-9, rounding=1e-7)
        assert found.converged
        assert found.n_reads <= 60
        assert reader.at(found.beta).loss <= reader.at(reader.best()).loss + 1e-6


@pytest.mark.parametrize("bad", ["loss", "a"])
def test_nan_ends_the_search(bad):
    class Broken(Logistic):
        def at(self, beta):
            return super().at(beta)._replace(**{bad: math.nan})

    found = solve(Broken([1, -1], [3, 1]))
    assert math.isnan(found.loss)
    assert not found.converged
    assert found.n_reads == 1


def test_the_last_read_is_said_to_be_the_last():
    class Fickle(Logistic):
        """Its slope changes sign with every read, and no curvature tells where to go."""

        sign = 1.0

        def at(self, beta):
            self.sign = -self.sign
            return super().at(beta)._replace(a=self.sign, b=0.0)

    found = search(Fickle([2, -1]), 1.0, FINE_64, max_reads=7)
    assert found.n_reads == 7
    assert not found.converged


def test_a_fit_that_does_not_converge_warns(monkeypatch):
    monkeypatch.setattr(temperature_fit, "search", lambda *_, **__: Found(2.0, 0.5, 200, False))
    with pytest.warns(RuntimeWarning, match="without converging"):
        fit = temperature.fit_temperature(np.array([0, 1]), np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert not fit.converged


# ---- whoever reads ---------------------------------------------------------------------------------------


def readers_of(sample, monkeypatch):
    """Yield the name and the reader of every kind."""
    monkeypatch.setattr(temperature_fit, "THREAD_ELEMENTS", 0)
    yield "twin", NumpyReader(sample)
    for threads in (1, 2, 3, 16):
        yield f"kernel, {threads} threads", KernelReader(sample, threads)
    yield "torch", TorchReader(sample.replace(logits=torch.from_numpy(sample.logits)))


def any_sample(n, k, dtype, weighted, soft):
    labels, logits = drawn(n, k, seed=k, confidence=3.0)
    rng = np.random.default_rng(n)
    weights = rng.exponential(size=n) if weighted else None
    rows = 0.9 * np.eye(k)[labels] + 0.1 * rng.dirichlet(np.ones(k), size=n) if soft else None
    return Sample(labels, logits.astype(dtype), weights, rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [2, 3, 10, 130])
@pytest.mark.parametrize(
    ("weighted", "soft"), [(False, False), (True, False), (False, True), (True, True)]
)
@pytest.mark.sweep(3)
def test_all_readers_find_the_same(dtype, k, weighted, soft, monkeypatch):
    sample = any_sample(300, k, dtype, weighted, soft)
    labels = sample.labels if sample.soft is None else sample.soft
    exact = Exact(labels, sample.logits, sample.weights)
    for name, reader in readers_of(sample, monkeypatch):
        found = solve(reader)
        rel = 1e-9 if dtype == np.float64 else 1e-5
        assert found.beta == pytest.approx(exact.beta(), rel=rel), name
        assert found.loss == pytest.approx(exact.loss(exact.beta()), rel=rel / 10), name
        assert found.n_reads <= 6, name


@given(predictions())
@examples(100)
def test_all_readers_find_the_same_at_the_ends(sample):
    """Integer logits: separable sets, ties, and predictions no better than chance."""
    sample = Sample(*sample)
    exact = Exact(sample.labels, sample.logits)
    best = exact.loss(exact.beta())
    tensors = TorchReader(sample.replace(logits=torch.from_numpy(sample.logits)))
    for reader in (NumpyReader(sample), KernelReader(sample), tensors):
        found = solve(reader)
        assert found.converged
        assert found.n_reads <= 40
        assert exact.loss(found.beta) == pytest.approx(best, rel=1e-12, abs=1e-15)


def test_more_threads_than_rows(monkeypatch):
    monkeypatch.setattr(temperature_fit, "THREAD_ELEMENTS", 0)
    sample = any_sample(3, 5, np.float64, False, False)
    one, many = (KernelReader(sample, threads).at(0.7) for threads in (1, 8))
    np.testing.assert_allclose(many, one, rtol=1e-14)


# ---- how many reads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 10, 100])
@pytest.mark.parametrize("confidence", [0.3, 1.0, 3.0])
def test_few_reads_on_ordinary_predictions(k, confidence):
    sample = Sample(*drawn(1000, k, seed=1, confidence=confidence))
    assert solve(KernelReader(sample)).n_reads <= 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [2, 3, 10, 100])
def test_a_warm_start_saves_reads(dtype, k):
    for seed in range(8):
        labels, logits = drawn(1000, k, seed=seed, confidence=3.0)
        reader = KernelReader(Sample(labels, logits.astype(dtype)))
        cold = solve(reader)
        for change in (0.97, 1.001, 1.03):
            warm = solve(reader, cold.beta * change)
            assert warm.n_reads <= 2
            assert warm.n_reads < cold.n_reads
            assert warm.beta == pytest.approx(cold.beta, rel=1e-9 if dtype == np.float64 else 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [2, 3, 10])
def test_starting_at_the_answer_takes_one_read(dtype, k):
    """The slope there is rounding noise, of either sign, and the step is too small to move beta."""
    for seed in range(30):
        labels, logits = drawn(200, k, seed=seed, confidence=3.0)
        reader = KernelReader(Sample(labels, logits.astype(dtype)))
        answer = solve(reader).beta
        for _ in range(2):
            again = solve(reader, answer)
            assert again.n_reads == 1
            assert again.beta == pytest.approx(answer, rel=1e-9 if dtype == np.float64 else 1e-6)
            answer = again.beta
