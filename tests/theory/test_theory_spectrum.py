"""Spectra against the closed forms of their laws: hypergeometric, logarithm, Stieltjes."""

import copy
import json
import pickle

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from precision import settled
from scipy import integrate, stats
from strategies import examples

from refinecal.theory import _quadrature
from refinecal.theory import spectrum as module
from refinecal.theory._quadrature import Law, rule
from refinecal.theory.spectrum import (
    BetaSpectrum,
    MarchenkoPastur,
    PointSpectrum,
    QuadratureSpectrum,
    Spectrum,
    UniformSpectrum,
    parse_spectrum,
)

PAPER = [BetaSpectrum(1, 1), BetaSpectrum(1, 5), BetaSpectrum(2, 2), BetaSpectrum(5, 1)]
KINDS = [
    BetaSpectrum(1, 5),
    BetaSpectrum(0.3, 2, shift=0, scale=3),
    UniformSpectrum(0.1, 2),
    MarchenkoPastur(0.5, scale=2),
    PointSpectrum([1, 4], [3, 1]),
    QuadratureSpectrum([1, 2, 3], [1, 2, 1], [0, 1, 0]),
]
OF_EACH_KIND = pytest.mark.parametrize("spectrum", KINDS, ids=lambda one: one.label)


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: float(10**exponent))


@settled
def appendix(a: float, b: float, shift: float, x: float, j: int, k: int) -> mp.mpf:
    """E[sigma^j / (x + sigma)^k] for sigma = shift + Beta(a, b): the paper's lemma, for any j and k."""
    a, b, shift, x = map(mp.mpf, (a, b, shift, x))
    z, total = shift + x, mp.mpf(0)
    for i in range(j + 1):  # (shift + u)^j, term by term
        if z < 0.1:
            f = mp.hyp2f1(k, a + i, a + b + i, -1 / z) / z**k
        else:  # Pfaff's transformation of it: no term is negative
            f = mp.hyp2f1(k, b, a + b + i, 1 / (1 + z)) / (1 + z) ** k
        ratio = mp.rf(a, i) / mp.rf(a + b, i)  # B(a + i, b) / B(a, b)
        total += mp.binomial(j, i) * shift ** (j - i) * ratio * f
    return total


@settled
def uniform_mean(low: float, high: float, x: float) -> mp.mpf:
    """E[1 / (x + sigma)] for sigma uniform between low and high."""
    low, wide = mp.mpf(low) + x, mp.mpf(high) - mp.mpf(low)
    return mp.log1p(wide / low) / wide if wide else 1 / low


@settled
def marchenko_pastur_mean(ratio: float, scale: float, x: float) -> mp.mpf:
    """Its Stieltjes transform solves r s x m^2 + (x + s (1 - r)) m = 1 for m = E[1 / (x + sigma)]."""
    r, s, x = map(mp.mpf, (ratio, scale, x))
    half = x + s * (1 - r)
    return 2 / (half + mp.sqrt(half**2 + 4 * r * s * x))


def relative(ours: float, exact: mp.mpf) -> float:
    with mp.workdps(30):
        return float(abs(mp.mpf(ours) / exact - 1))


def mean_of(spectrum: Spectrum, x: float, j: int, k: int) -> float:
    return spectrum.mean(lambda sigma: sigma**j / (x + sigma) ** k)


# ---- means -----------------------------------------------------------------------------------------------


@examples(150)
@given(
    a=powers(-2, 2.3), b=powers(-2, 2.3), shift=powers(-6, 3), x=powers(-12, 12),
    jk=st.sampled_from([(0, 1), (1, 1), (0, 2), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3)]),
)  # fmt: skip
@example(a=1.0, b=5.0, shift=1e-3, x=0.0, jk=(0, 1))
@example(a=200.0, b=300.0, shift=1e-3, x=1e-3, jk=(2, 3))
@example(a=0.5, b=0.5, shift=1e-3, x=1e-12, jk=(0, 3))
@example(a=10**2.25, b=10**2.25, shift=0.1, x=0.1, jk=(0, 1))  # 30 digits are too few for mpmath
def test_beta_means_are_those_of_the_appendix(a, b, shift, x, jk):
    ours = mean_of(BetaSpectrum(a, b, shift), x, *jk)
    assert relative(ours, appendix(a, b, shift, x, *jk)) < 1e-12


@given(a=powers(-2, 1.5), b=powers(-2, 1.5), x=powers(-12, 12), k=st.integers(1, 3))
def test_beta_means_without_shift(a, b, x, k):
    ours = mean_of(BetaSpectrum(a, b, shift=0), x, k - 1, k)
    assert relative(ours, appendix(a, b, 0.0, x, k - 1, k)) < 1e-12


@given(excess=powers(-6, 3), b=powers(-2, 3))
def test_inverse_eigenvalue_without_shift(excess, b):
    a = 1 + excess
    exact = (mp.mpf(a) + b - 1) / (mp.mpf(a) - 1)
    assert relative(BetaSpectrum(a, b, shift=0).mean(lambda sigma: 1 / sigma), exact) < 1e-12


@pytest.mark.parametrize(
    ("a", "b", "shift"),
    [
        (1e6, 1e6, 1e-3), (1e5, 0.5, 1e-3), (0.5, 1e5, 1e-3), (1e-6, 2, 1e-3), (2, 1e-4, 1e-3),
        (1, 1, 1e-30), (1, 1, 1e-100), (30.5, 2, 1e-100), (2.5, 3.5, 1e9), (1e-3, 1, 1e-8),
    ],
)  # fmt: skip
@pytest.mark.parametrize("x", [0.0, 1e-12, 1e-6, 1.0])
def test_beta_means_for_extreme_laws(a, b, shift, x):
    law = BetaSpectrum(a, b, shift)
    for k in (1, 2):
        assert relative(mean_of(law, x, 0, k), appendix(a, b, shift, x, 0, k)) < 1e-12


@pytest.mark.parametrize(
    ("a", "b"), [(1e12, 1e12), (1e12, 3.0), (3.0, 1e12), (1e12, 1e-6), (1e-6, 1e12)]
)
def test_the_narrowest_laws_have_their_moments(a, b):
    """Mean and variance of u, which is 1e-12 at the least: relative to themselves, without the shift."""
    u, weights = rule(Law(a, b, 1e-3))
    mean, variance = a / (a + b), a * b / (a + b) ** 2 / (a + b + 1)
    assert weights @ u == pytest.approx(mean, rel=1e-12)
    if a <= b:  # else u - mean is lost in the digits of u
        assert weights @ (u - mean) ** 2 == pytest.approx(variance, rel=1e-9)


@given(a=powers(-2, 4), b=powers(-2, 4), shift=powers(-6, 3), scale=powers(-3, 3))
def test_beta_moments(a, b, shift, scale):
    law = BetaSpectrum(a, b, shift, scale=scale)
    mean = a / (a + b)
    variance = mean * b / (a + b) / (a + b + 1)
    assert law.mean(lambda sigma: sigma) == pytest.approx(shift + scale * mean, rel=1e-12)
    second = (shift + scale * mean) ** 2 + scale**2 * variance
    assert law.mean(lambda sigma: sigma**2) == pytest.approx(second, rel=1e-12)


@given(low=powers(-9, 3), width=powers(-9, 6), x=powers(-12, 12))
def test_uniform_means(low, width, x):
    law = UniformSpectrum(low, low + width)
    assert relative(mean_of(law, x, 0, 1), uniform_mean(law.low, law.high, x)) < 1e-12


@given(
    ratio=st.one_of(powers(-6, -0.01), powers(-8, -0.5).map(lambda gap: 1 - gap)),
    scale=powers(-3, 3), x=powers(-12, 12),
)  # fmt: skip
@example(ratio=0.5, scale=1.0, x=0.0)
@example(ratio=1e-20, scale=1.0, x=1.0)
def test_marchenko_pastur_means(ratio, scale, x):
    law = MarchenkoPastur(ratio, scale)
    assert relative(mean_of(law, x, 0, 1), marchenko_pastur_mean(ratio, scale, x)) < 1e-12
    assert law.mean(lambda sigma: sigma) == pytest.approx(scale, rel=1e-12)
    assert law.mean(lambda sigma: sigma**2) == pytest.approx(scale**2 * (1 + ratio), rel=1e-12)


@pytest.mark.parametrize("spectrum", PAPER, ids=lambda one: one.label)
def test_accuracy_is_stated_and_the_rule_short(spectrum):
    assert 0 <= spectrum.accuracy < 1e-14
    assert len(spectrum.nodes) <= 112


def test_accuracy_notices_a_poor_rule(monkeypatch):
    monkeypatch.setattr(module, "ORDER", 3)
    monkeypatch.setattr(_quadrature, "TOLERANCE", 1.0)
    poor = BetaSpectrum(1, 5)
    exact = appendix(1, 5, 1e-3, 0.0, 0, 1)
    assert poor.accuracy > 1e-6
    assert relative(mean_of(poor, 0.0, 0, 1), exact) < 2 * poor.accuracy


def test_a_law_that_cannot_be_resolved_is_an_error(monkeypatch):
    monkeypatch.setattr(_quadrature, "MOST_HALVINGS", 1)
    with pytest.raises(RuntimeError, match="after 1 halvings"):
        rule(Law(500.0, 500.0, 1e-3))


@given(shape=powers(-9, 0.5))
def test_gauss_rule_is_exact_for_polynomials(shape):
    t, weights = _quadrature._gauss(16, shape)
    for degree in range(32):
        assert np.sum(weights * t**degree) == pytest.approx(1 / (shape + degree), rel=1e-13)


@OF_EACH_KIND
def test_nodes_and_weights_are_a_law(spectrum):
    assert np.all(np.diff(spectrum.nodes) > 0)
    assert spectrum.nodes[0] > 0
    for weights in (spectrum.weights, spectrum.signal_weights):
        assert np.all(weights >= 0)
        assert weights.sum() == pytest.approx(1, abs=1e-14)
    assert spectrum.mean(lambda sigma: 1.0) == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize("t", [1e-6, 3.7, 1e9])
@pytest.mark.parametrize(
    ("law", "scaled"),
    [
        (BetaSpectrum(0.7, 5), lambda t: BetaSpectrum(0.7, 5, 1e-3 * t, scale=t)),
        (UniformSpectrum(0.01, 3), lambda t: UniformSpectrum(0.01 * t, 3 * t)),
        (MarchenkoPastur(0.9), lambda t: MarchenkoPastur(0.9, t)),
        (PointSpectrum([1, 2]), lambda t: PointSpectrum([t, 2 * t])),
    ],
)
def test_multiplying_eigenvalues_and_penalty_changes_nothing(law, scaled, t):
    other = scaled(t)
    for x in (1e-9, 1e-3, 1.0, 1e6):
        assert t * mean_of(other, t * x, 0, 1) == pytest.approx(mean_of(law, x, 0, 1), rel=1e-12)
    assert other.signal_for(0.1) == pytest.approx(np.sqrt(t) * law.signal_for(0.1), rel=1e-12)


def test_one_eigenvalue_written_in_three_ways():
    laws = PointSpectrum([2]), UniformSpectrum(2, 2), QuadratureSpectrum([2], [7])
    assert [law.nodes.tolist() for law in laws] == [[2.0]] * 3
    assert laws[1].density([2.0]) is None
    assert laws[1].draw(2, 0).tolist() == [2.0, 2.0]


def test_equal_points_are_merged():
    law = PointSpectrum([4, 1, 4, 2], [1, 2, 1, 4])
    assert law.nodes.tolist() == [1, 2, 4]
    assert law.weights.tolist() == [0.25, 0.5, 0.25]


# ---- signal ----------------------------------------------------------------------------------------------


@given(bayes_error=st.floats(1e-12, 0.4999999), index=st.integers(0, len(PAPER) - 1))
def test_signal_and_bayes_error_are_inverses(bayes_error, index):
    signal = PAPER[index].signal_for(bayes_error)
    assert PAPER[index].bayes_error_of(signal) == pytest.approx(bayes_error, rel=1e-9)


def test_signal_is_that_of_the_paper():
    errors = np.array([[0.01, 0.1], [0.2, 0.45]])
    inverse = float(mp.hyp2f1(1, 1, 6, -1000) * 1000)
    expected = -stats.norm.ppf(errors) / np.sqrt(inverse)
    np.testing.assert_allclose(BetaSpectrum(1, 5).signal_for(errors), expected, rtol=1e-12)
    assert BetaSpectrum(1, 5).bayes_error_of(np.zeros((2, 3))).tolist() == [[0.5] * 3] * 2


@pytest.mark.parametrize("shape_a", [1e-6, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("shape_b", [0.1, 1.0, 100.0, 1e6])
def test_eigenvalues_near_0_make_any_signal_perfect(shape_a, shape_b):
    law = BetaSpectrum(shape_a, shape_b, shift=0)
    assert law.inverse_mean == np.inf
    assert law.bayes_error_of([0.0, 1e-9, 1.0]).tolist() == [0.5, 0.0, 0.0]
    with pytest.raises(ValueError, match="bayes_error cannot be set for Beta.*signal="):
        law.signal_for(0.1)


def test_signal_away_from_0_has_an_error_rate_again():
    law = BetaSpectrum(1, 1, shift=0).with_signal(
        lambda sigma: sigma
    )  # E_G[1 / sigma] = 1 / E[sigma]
    assert law.inverse_mean == pytest.approx(2, rel=1e-12)


def test_signal_as_function_or_as_shares():
    law = UniformSpectrum(1, 3)
    by_function = law.with_signal(lambda sigma: 7 * sigma)
    by_shares = law.with_signal(law.weights * law.nodes)
    np.testing.assert_allclose(by_function.signal_weights, by_shares.signal_weights, rtol=1e-14)
    assert by_function.signal_mean(lambda sigma: 1 / sigma) == pytest.approx(0.5)  # 1 / E[sigma]
    assert by_function.mean(lambda sigma: sigma) == pytest.approx(2)  # the law is the same
    assert law.isotropic
    assert not by_function.isotropic
    assert by_function != law
    assert law.with_signal(lambda sigma: 3.0).isotropic
    assert by_function.density(2.0) == law.density(2.0)
    np.testing.assert_allclose(by_function.signal_ratio([1.5, 2.0]), [0.75, 1.0], atol=1e-3)
    assert law.signal_ratio([1.5, 2.0]).tolist() == [1, 1]


def test_signal_in_directions_that_are_too_few_to_count():
    law = QuadratureSpectrum([1, 10], [1, 0], signal_weights=[0.5, 0.5])
    assert law.inverse_mean == pytest.approx(0.55)
    with pytest.raises(ValueError, match="10 has signal but weight 0"):
        law.signal_ratio([1.0])


# ---- the law ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spectrum", [*KINDS[:4], MarchenkoPastur(0.999)], ids=repr)
def test_density_has_the_means_of_the_rule(spectrum):
    start, width = spectrum._start, spectrum._width

    def weighted(
        s, f
    ):  # sigma = start + width sin^2(t / 2), t = exp(s): smooth at both ends of the law
        t = np.exp(s)
        sigma = start + width * np.sin(t / 2) ** 2
        return spectrum.density(sigma) * f(sigma) * width * np.sin(t) / 2 * t

    for f in (np.ones_like, lambda sigma: 1 / (0.1 + sigma), np.square):
        exact, _ = integrate.quad(weighted, -40, np.log(np.pi), args=(f,), limit=500)
        assert spectrum.mean(f) == pytest.approx(exact, rel=1e-7)
    assert spectrum.density([start - 1e-9 * width, start + 1.001 * width]).tolist() == [0, 0]


def test_density_at_a_singular_end_is_infinite():
    assert BetaSpectrum(0.5, 0.5, 0).density([0.0, 1.0]).tolist() == [np.inf, np.inf]


@pytest.mark.parametrize(
    ("spectrum", "law"),
    [
        (BetaSpectrum(2, 5, 0.1, scale=3), stats.beta(2, 5, 0.1, 3)),
        (UniformSpectrum(0.5, 2), stats.uniform(0.5, 1.5)),
    ],
    ids=["beta", "uniform"],
)
def test_draws_follow_the_law(spectrum, law):
    assert stats.kstest(spectrum.draw(20_000, 3), law.cdf).pvalue > 0.01


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.98])
def test_marchenko_pastur_is_drawn_as_sample_covariances_are(ratio):
    rng = np.random.default_rng(5)
    n = int(400 / ratio)
    eigenvalues = np.linalg.eigvalsh(np.cov(rng.normal(size=(400, n)), bias=True))
    draws = MarchenkoPastur(ratio).draw(100_000, rng)
    assert (
        stats.ks_2samp(eigenvalues, draws).statistic < 0.01
    )  # eigenvalues repel: far less than 400 draws
    assert draws.mean() == pytest.approx(1, abs=4 * np.sqrt(ratio / len(draws)))


def test_draws_of_points_have_their_shares():
    draws = PointSpectrum([1, 4], [3, 1]).draw(10_000, np.random.default_rng(1))
    assert (draws == 4).mean() == pytest.approx(0.25, abs=4 * np.sqrt(0.1875 / 10_000))
    assert set(draws) == {1.0, 4.0}


@OF_EACH_KIND
def test_draws_depend_on_the_seed_only(spectrum):
    np.testing.assert_array_equal(spectrum.draw(50, 7), spectrum.draw(50, np.random.default_rng(7)))
    assert not np.array_equal(spectrum.draw(50, 7), spectrum.draw(50, 8))
    assert spectrum.draw(0, 7).shape == (0,)


@OF_EACH_KIND
def test_a_copy_is_equal_and_stays_read_only(spectrum):
    for other in (pickle.loads(pickle.dumps(spectrum)), copy.deepcopy(spectrum)):
        assert other == spectrum
        assert hash(other) == hash(spectrum)
        assert other.isotropic == spectrum.isotropic
        assert other.label == spectrum.label
        np.testing.assert_array_equal(other.draw(3, 0), spectrum.draw(3, 0))
        for array in (other.nodes, other.weights, other.signal_weights):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
    assert json.loads(json.dumps(spectrum.to_dict()))["kind"] == spectrum.kind


def test_spectra_differ_by_law_and_by_kind():
    laws = {*KINDS, *PAPER, BetaSpectrum(1, 5, scale=2), QuadratureSpectrum([1, 4], [3, 1])}
    assert len(laws) == len(KINDS) + len(PAPER) + 1  # BetaSpectrum(1, 5) is in both
    assert BetaSpectrum(1, 1) != 3
    assert BetaSpectrum(1, 5) == BetaSpectrum(shape_a=1, shape_b=5, shift=0.001)


def test_what_people_see():
    assert [one.label for one in KINDS[:5]] == [
        "0.001 + Beta(1, 5)", "3 Beta(0.3, 2)", "Uniform(0.1, 2)", "2 Marchenko-Pastur(0.5)",
        "eigenvalues 1 (0.75), 4 (0.25)",
    ]  # fmt: skip
    assert PointSpectrum([1]).label == "identity"
    assert PointSpectrum([3]).label == "eigenvalue 3"
    assert PointSpectrum(range(1, 9)).label == "eigenvalues 1, 2, 3, 4, …"
    assert QuadratureSpectrum([1], [1], label="mine").label == "mine"
    assert repr(KINDS[1]) == "BetaSpectrum(shape_a=0.3, shape_b=2, shift=0, scale=3)"
    assert repr(PointSpectrum(range(1, 9))).startswith(
        "PointSpectrum(values=[1, 2, 3, 4, …, 8 in all]"
    )
    shares = PointSpectrum([1, 4]).with_signal([1, 3]).to_dict()["signal_weights"]
    assert shares == [0.25, 0.75]


# ---- text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spectrum"),
    [
        ("beta:1,5", BetaSpectrum(1, 5)),
        (" Beta: 1, 5, 0.01 ", BetaSpectrum(1, 5, 0.01)),
        ("beta:2,2,0,3", BetaSpectrum(2, 2, 0, scale=3)),
        ("uniform:0.1,2", UniformSpectrum(0.1, 2)),
        ("points:1,2,4", PointSpectrum([1, 2, 4])),
        ("points:1*0.5, 4*1.5", PointSpectrum([1, 4], [1, 3])),
        ("mp:0.5", MarchenkoPastur(0.5)),
        ("mp:0.5,2", MarchenkoPastur(0.5, 2)),
        ("marchenko-pastur:0.5", MarchenkoPastur(0.5)),
        ("identity", PointSpectrum([1])),
    ],
)
def test_text_names_a_spectrum(text, spectrum):
    assert parse_spectrum(text) == spectrum


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bta:1,5", "spectrum is 'bta': it must be one of 'beta'.*Did you mean 'beta'"),
        ("", "spectrum is ''"),
        ("beta", "with 0 numbers: write beta:shape_a,shape_b"),
        ("beta:1,2,3,4,5", "with 5 numbers: write beta:"),
        ("identity:1", "with 1 numbers: write identity"),
        ("points:", "with 0 numbers: write points:"),
        ("beta:1,x", "parts that are not numbers: write beta:"),
        ("beta:1*2,3", "parts that are not numbers"),
        ("points:1*2,3", "needs one share for each value"),
        ("points:1*2*3", "needs one share for each value"),
        ("beta:-1,2", "shape_a is -1: it must be between"),
        ("uniform:2,1", "low is 2, which is above high, 1: swap them"),
        ("mp:1", "ratio is 1: it must be below 1"),
    ],
)
def test_text_that_names_none(text, message):
    with pytest.raises(ValueError, match=message):
        parse_spectrum(text)


# ---- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BetaSpectrum(0, 1), "shape_a is 0: it must be between"),
        (lambda: BetaSpectrum(1, np.nan), "shape_b is nan"),
        (
            lambda: BetaSpectrum(1e-7, 1),
            "shape_a is 1e-07: it must be between 1e-06 and .*PointSpectrum",
        ),
        (lambda: BetaSpectrum(1, 1e13), r"shape_b is 1e\+13"),
        (lambda: BetaSpectrum(1, 1, -1e-3), "shift is -0.001: it must be 0 or between"),
        (lambda: BetaSpectrum(1, 1, np.inf), "shift is inf"),
        (lambda: BetaSpectrum(1, 1, scale=0), "scale is 0"),
        (lambda: BetaSpectrum(1, 1, 1e-60, scale=1e60), "too small for its width"),
        (lambda: UniformSpectrum(0, 1), r"low is 0.*BetaSpectrum\(1, 1, shift=0"),
        (lambda: UniformSpectrum(1, np.inf), "high is inf"),
        (
            lambda: MarchenkoPastur(1.5),
            "ratio is 1.5: it must be below 1.*mean of 1 / sigma is infinite",
        ),
        (lambda: MarchenkoPastur(0.5, -1), "scale is -1"),
        (lambda: PointSpectrum([]), r"values has shape \(0,\)"),
        (lambda: PointSpectrum([[1, 2]]), r"values has shape \(1, 2\)"),
        (lambda: PointSpectrum([1, 0]), r"values\[1\] is 0: eigenvalues must lie between"),
        (lambda: PointSpectrum([1, np.nan]), r"values\[1\] is nan"),
        (lambda: PointSpectrum([1, 1e200]), r"values\[1\] is 1e\+200.*rescale"),
        (lambda: PointSpectrum([1, 2], [1]), "weights has length 1 for 2 eigenvalues"),
        (lambda: PointSpectrum([1, 2], [1, -1]), r"weights\[1\] is -1: shares must be"),
        (lambda: PointSpectrum([1, 2], [0, 0]), "weights is 0 at every eigenvalue"),
        (lambda: QuadratureSpectrum([1, 2], [1, np.inf]), r"weights\[1\] is inf"),
        (lambda: QuadratureSpectrum([1], [1], [1, 1]), "signal_weights has length 2"),
        (lambda: PointSpectrum([1]).with_signal([np.nan]), r"signal\[0\] is nan"),
        (lambda: PointSpectrum([1]).with_signal(lambda s: -s), r"signal\(nodes\)\[0\] is -1"),
        (
            lambda: PointSpectrum([1]).with_signal(lambda s: [1, 2]),
            r"signal\(nodes\) has shape \(2,\)",
        ),
        (lambda: PointSpectrum([1]).mean(lambda s: [1, 2]), r"function\(nodes\) has shape \(2,\)"),
        (lambda: PointSpectrum([1]).signal_for(0.5), "bayes_error is 0.5"),
        (lambda: PointSpectrum([1]).signal_for(0), "bayes_error is 0"),
        (lambda: PointSpectrum([1]).signal_for([0.1, 10]), r"bayes_error\[1\] is 10.*percent"),
        (lambda: PointSpectrum([1]).signal_for(np.nan), "bayes_error is nan"),
        (lambda: PointSpectrum([1]).bayes_error_of(-1), "signal is -1"),
        (lambda: PointSpectrum([1]).bayes_error_of([0, np.inf]), r"signal\[1\] is inf"),
        (lambda: PointSpectrum([1]).draw(-1), "n is -1"),
        (lambda: PointSpectrum([1]).draw(1.5), "n is 1.5"),
    ],
)
def test_bad_values_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BetaSpectrum("one", 1), "shape_a is 'one': it must be a number"),
        (lambda: UniformSpectrum(None, 1), "low is None"),
        (lambda: PointSpectrum(["x"]), "values is .'x'., but must be a number or an array"),
        (lambda: PointSpectrum([1]).signal_for("a lot"), "bayes_error is 'a lot'"),
        (lambda: parse_spectrum(BetaSpectrum(1, 1)), "spectrum is BetaSpectrum.*must be a string"),
    ],
)
def test_bad_types_are_named(make, message):
    with pytest.raises(TypeError, match=message):
        make()
