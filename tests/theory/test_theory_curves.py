"""Minimisers of risk, calibration and refinement: against grids, scipy, and the published maps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from strategies import examples

from refinecal.losses import LogLoss, MatrixLoss
from refinecal.theory.curves import Minimisers, minimise, path
from refinecal.theory.heatmaps import paper_spectra
from refinecal.theory.spectrum import BetaSpectrum, PointSpectrum, UniformSpectrum

METHODS = ("logistic", "lda", "ridge")
LOSSES = ("log", "brier", "spherical")
UNIFORM = BetaSpectrum(1, 1)  # of the paper's figure 7
FIGURE_6 = {"ratio": 0.5, "bayes_error": 0.1, "spectrum": UNIFORM}
GRID = {"ratio": [0.1, 0.5, 4.0], "bayes_error": np.array([[0.01], [0.2]])}


class MyLog(LogLoss):
    """The logarithmic loss, as a user would hand it over: no closed form is known of it."""

    name = "my-log"


class Squeezed(MatrixLoss):
    """Log loss of p' = 0.5 + 0.99 (p - 0.5) for labels that are squeezed likewise, as published."""

    name = "squeezed"

    def matrix(self, log_probs):
        logs = np.log(0.005 + 0.99 * np.exp(log_probs))
        return -(0.99 * logs + 0.005 * logs.sum(axis=-1, keepdims=True))


def value(found, name):
    """Return what is minimised."""
    return -found.expertise if name == "refinement" else getattr(found, name)


def slope_over_curvature(found, name, h=0.02):
    """Return the distance to the minimum in log(lam), by differences of values."""
    x = np.log(found.lam)
    far, near, here, after, beyond = (
        value(found.at(np.exp(x + k * h)), name) for k in (-2, -1, 0, 1, 2)
    )
    slope = (8 * (after - near) - (beyond - far)) / (12 * h)
    return slope / ((after - 2 * here + near) / h**2)


# ---- where the minima are ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["risk", "refinement"])
@pytest.mark.parametrize("spectrum", [UNIFORM, *paper_spectra()], ids=lambda law: law.label)
@pytest.mark.sweep(3)
def test_minimisers_are_known_to_a_millionth(spectrum, name):
    best = minimise(ratio=[0.2, 1.0, 5.0], bayes_error=[[0.01], [0.1]], spectrum=spectrum)
    inside = ~getattr(best, f"at_bound_{name}")
    gaps = slope_over_curvature(getattr(best, f"by_{name}"), name)
    assert inside.sum() >= 5
    assert np.abs(gaps[inside]).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("loss", [*LOSSES, MyLog()], ids=[*LOSSES, "user"])
@pytest.mark.parametrize("method", METHODS)
def test_scipy_finds_nothing_lower(method, loss):
    best = minimise(**FIGURE_6, method=method, loss=loss)
    for name in ("risk", "calibration", "refinement"):
        found = getattr(best, f"by_{name}")

        def curve(x, found=found, name=name):
            return float(getattr(found.at(np.exp(x)), name))

        x = np.log(float(found.lam))
        bounds = np.clip([x - 2, x + 2], *np.log(best.lam_range))
        rival = minimize_scalar(curve, bounds=bounds, method="bounded", options={"xatol": 1e-8})
        assert curve(x) <= rival.fun + 1e-11
        assert abs(rival.x - x) < 1e-3  # a curve is flat where it is lowest


shares = st.lists(st.floats(0.02, 1), min_size=3, max_size=3)


@examples(25)
@given(
    st.lists(st.floats(-3.5, 0), min_size=3, max_size=3, unique=True),
    shares,
    shares,
    st.floats(-1, 1),
    st.floats(0.01, 0.4),
    st.sampled_from(METHODS),
)
def test_of_several_minima_the_lowest_is_found(powers, weights, signal, log_ratio, error, method):
    values = 10 ** np.array(powers)
    if len(np.unique(values)) < 3:
        return
    spectrum = PointSpectrum(values, weights).with_signal(signal)
    ask = {"ratio": 10**log_ratio, "bayes_error": error, "spectrum": spectrum, "method": method}
    best = minimise(**ask)
    grid = path(np.geomspace(*best.lam_range, 400), **ask)
    for name in ("risk", "calibration", "refinement"):
        lowest = getattr(getattr(best, f"by_{name}"), name)
        assert lowest <= getattr(grid, name).min() + 1e-10
        low, high = best.lam_range
        at_end = getattr(best, f"lam_{name}") in (low, high)
        assert at_end == getattr(best, f"at_bound_{name}")


def test_two_minima_of_the_risk_are_told_apart():
    """Both are minima of the curve, and the other one is a little higher."""
    spectrum = PointSpectrum([2e-4, 0.36], [0.1, 0.9]).with_signal([0.01, 0.99])
    heights = {}
    for error in (0.1, 0.2):
        ask = {"ratio": 0.2, "bayes_error": error, "spectrum": spectrum}
        curve = path(np.geomspace(1e-6, 10, 500), **ask).risk
        inner = np.flatnonzero((curve[1:-1] < curve[:-2]) & (curve[1:-1] < curve[2:])) + 1
        heights[error] = len(inner)
        assert minimise(**ask).by_risk.risk <= curve.min() + 1e-12
    assert max(heights.values()) == 2


@pytest.mark.parametrize("method", ["logistic", "lda"])
def test_calibration_is_0_where_it_is_smallest(method):
    best = minimise(**GRID, spectrum=UNIFORM, method=method).by_calibration
    assert_allclose(best.confidence, best.expertise, rtol=1e-8)
    assert best.calibration.max() < 1e-15


def test_ridge_may_be_too_modest_at_every_strength():
    best = minimise(**FIGURE_6, method="ridge")
    assert best.by_calibration.calibration > 0.01
    assert best.by_calibration.scale > 1
    assert not best.at_bound_calibration


def test_equal_eigenvalues_are_best_told_apart_by_the_strongest_penalty():
    best = minimise(ratio=[0.2, 2.0], bayes_error=0.1, spectrum=PointSpectrum([3.0]))
    assert best.at_bound_refinement.all()
    assert_allclose(best.lam_refinement, 3e4)
    assert not best.at_bound_risk.any()
    assert "(end of the range)" in repr(
        minimise(ratio=1.0, bayes_error=0.1, spectrum=PointSpectrum([3.0]))
    )


def test_a_range_that_ends_before_the_minimum_is_marked_at_both_ends():
    whole = minimise(**FIGURE_6)
    above = minimise(**FIGURE_6, lam_range=(1.0, 10.0))
    below = minimise(**FIGURE_6, lam_range=(1e-6, 1e-4))
    for name in ("risk", "calibration", "refinement"):
        assert getattr(above, f"lam_{name}") == 1.0
        assert getattr(below, f"lam_{name}") == 1e-4
        assert getattr(above, f"at_bound_{name}")
        assert not getattr(whole, f"at_bound_{name}")


# ---- losses, shapes ----------------------------------------------------------------------------------------


def test_which_direction_is_best_does_not_depend_on_the_loss():
    found = [minimise(**FIGURE_6, loss=loss) for loss in LOSSES]
    for name in ("lam_refinement", "lam_calibration"):
        assert_allclose(
            [getattr(each, name) for each in found], getattr(found[0], name), rtol=1e-12
        )
    assert len({float(each.lam_risk) for each in found}) == 3


def test_a_loss_of_ones_own_is_minimised_alike():
    ours, log = (minimise(**GRID, spectrum=UNIFORM, loss=loss) for loss in (MyLog(), "log"))
    assert_allclose(np.log(ours.lam_risk), np.log(log.lam_risk), atol=1e-6)
    assert_allclose(ours.gain, log.gain, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_cells_of_a_grid_are_what_they_are_alone(method):
    best = minimise(**GRID, spectrum=UNIFORM, method=method)
    assert best.gain.shape == (2, 3)
    for i, error in enumerate((0.01, 0.2)):
        for j, ratio in enumerate(GRID["ratio"]):
            alone = minimise(ratio=ratio, bayes_error=error, spectrum=UNIFORM, method=method)
            for name in ("lam_risk", "lam_calibration", "lam_refinement", "gain"):
                whole = getattr(best, name)[i, j]
                assert_allclose(whole, getattr(alone, name), rtol=1e-7, atol=1e-12)


def test_signal_and_bayes_error_ask_the_same():
    signal = float(UNIFORM.signal_for(0.1))
    by_signal = minimise(ratio=0.5, signal=signal, spectrum=UNIFORM)
    assert_allclose(by_signal.gain, minimise(**FIGURE_6).gain, rtol=1e-9)


def test_stretching_the_data_stretches_the_strengths():
    """Features c times as large need c^2 times the penalty for the same predictions."""
    narrow = minimise(ratio=0.5, bayes_error=0.1, spectrum=UniformSpectrum(0.2, 1.0))
    wide = minimise(ratio=0.5, bayes_error=0.1, spectrum=UniformSpectrum(0.8, 4.0))
    for name in ("lam_risk", "lam_calibration", "lam_refinement"):
        assert_allclose(getattr(wide, name), 4 * getattr(narrow, name), rtol=1e-6)
    assert_allclose(wide.gain, narrow.gain, rtol=1e-8)


def test_no_cells_make_no_trouble():
    best = minimise(ratio=np.empty(0), bayes_error=0.1, spectrum=UNIFORM)
    assert best.gain.shape == (0,)
    assert repr(best) == "Minimisers of 0 problems"


# ---- gains -------------------------------------------------------------------------------------------------


@examples(25)
@given(
    st.floats(-1.3, 1.3),
    st.floats(0.001, 0.45),
    st.floats(0.5, 6),
    st.floats(0.5, 6),
    st.sampled_from(LOSSES),
    st.sampled_from(METHODS),
)
def test_gains_are_in_order(log_ratio, error, shape_a, shape_b, loss, method):
    best = minimise(
        ratio=10**log_ratio,
        bayes_error=error,
        spectrum=BetaSpectrum(shape_a, shape_b),
        loss=loss,
        method=method,
    )
    assert best.gain_uncalibrated <= 1e-12
    assert -1e-12 <= best.gain_calibrated <= best.gain + 1e-12
    assert best.gain < 1
    both = best.by_risk.calibration + best.by_risk.refinement
    assert_allclose(best.by_risk.risk, both, rtol=1e-12)


def test_a_positive_gap_means_that_calibration_is_smallest_first():
    """Many informative features: green in the paper, as its section 7 says; few: red."""
    many, _, few = (minimise(ratio=0.5, bayes_error=0.1, spectrum=law) for law in paper_spectra())
    assert many.log10_gap > 0 > few.log10_gap
    assert many.lam_calibration > many.lam_refinement


def test_the_gain_of_figure_6_is_about_2_percent():
    assert abs(minimise(**FIGURE_6).gain - 0.02) < 0.005


# The published maps (github.com/eugeneberta/RefineThenCalibrate-Theory, heatmap_csv): Bayes error, log10
# ratio, gain in percent, log10 of the minimisers of calibration, refinement and risk on a grid of 0.01.
PUBLISHED = {
    (1, 5): [
        (0.15, -0.6, 10.77, -1.99, -4.49, -2.96),
        (0.1, -0.6, 7.61, -2.43, -4.07, -3.10),
        (0.001, -1.0, 0.19, -4.79, -4.43, -4.69),
    ],
    (2, 2): [(0.01, 0.0, 12.04, -3.01, -0.57, -2.71)],
    (5, 1): [(0.1, 0.0, 8.26, -1.33, 0.73, -1.17)],
}


@pytest.mark.parametrize("shapes", PUBLISHED)
def test_the_squeezed_loss_gives_the_published_numbers(shapes):
    error, log_ratio, gain, *lams = np.array(PUBLISHED[shapes]).T
    best = minimise(
        ratio=10**log_ratio, bayes_error=error, spectrum=BetaSpectrum(*shapes), loss=Squeezed()
    )
    assert_allclose(100 * best.gain, gain, atol=0.0101)
    for name, published in zip(("calibration", "refinement", "risk"), lams, strict=True):
        assert_allclose(np.log10(getattr(best, f"lam_{name}")), published, atol=0.0101)


# ---- paths, tables, words ----------------------------------------------------------------------------------


def test_a_path_has_the_strengths_first():
    found = path([0.01, 0.1], **GRID, spectrum=UNIFORM)
    assert found.risk.shape == (2, 2, 3)
    alone = path([0.1], ratio=4.0, bayes_error=0.01, spectrum=UNIFORM)
    assert_allclose(found.risk[1, 0, 2], alone.risk[0], rtol=1e-10)


def test_the_default_path_holds_the_minima():
    curve = path(**FIGURE_6)
    best = minimise(**FIGURE_6)
    assert_allclose(curve.lam[[0, -1]], 0.501 * np.array([1e-6, 1e3]))
    for name in ("risk", "refinement"):
        lowest = getattr(getattr(best, f"by_{name}"), name)
        assert lowest <= getattr(curve, name).min() <= lowest + 1e-3


def test_the_table_has_a_row_for_each_problem():
    best = minimise(**GRID, spectrum=UNIFORM)
    table = best.to_dict()
    assert {len(column) for column in table.values()} == {6}
    assert_allclose(table["gain"], 1 - table["refinement_min"] / table["risk_min"])
    assert_allclose(
        table["log10_gap"], np.log10(table["lam_calibration"] / table["lam_refinement"])
    )
    assert table["ratio"].tolist() == GRID["ratio"] * 2
    assert table["at_bound_risk"].dtype == bool


def test_one_problem_is_shown_as_a_table_and_several_in_a_line():
    best = minimise(**FIGURE_6)
    assert isinstance(best, Minimisers)
    lines = repr(best).splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["risk", "calibration", "refinement"]
    assert f"{best.by_risk.risk:.4f}" in lines[2]
    assert f"{100 * best.gain:.2f}% below" in lines[-1]
    several = minimise(**GRID, spectrum=UNIFORM)
    low, high = (f"{100 * bound(several.gain):.2f}%" for bound in (np.min, np.max))
    assert repr(several) == f"Minimisers of 6 problems: gain {low} to {high}"


def test_a_loss_that_is_not_the_usual_one_is_named():
    for loss, name in (("brier", "Brier score"), ("spherical", "spherical loss")):
        assert repr(minimise(**FIGURE_6, loss=loss)).splitlines()[0].endswith(f", {name}")
        assert repr(minimise(**GRID, spectrum=UNIFORM, loss=loss)).endswith(f"%, {name}")


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"method": "svm"}, ValueError, "method is 'svm': it must be one of 'logistic', 'lda'"),
        ({"method": 3}, ValueError, "method is 3"),
        ({"lam_range": (1.0, 0.1)}, ValueError, r"lam_range is \(1.0, 0.1\): .* the smaller first"),
        ({"lam_range": (1.0,)}, ValueError, "two numbers"),
        ({"lam_range": (0.0, 1.0)}, ValueError, r"lam_range\[0\] is 0: .* must be positive"),
        ({"lam_range": (1.0, np.inf)}, ValueError, r"lam_range\[1\] is inf"),
        ({"ratio": -1.0}, ValueError, "ratio is -1"),
        ({"ratio": np.nan}, ValueError, "ratio is nan"),
        ({"bayes_error": 0.5}, ValueError, "bayes_error is 0.5"),
        ({"signal": 1.0}, TypeError, "one of bayes_error"),
        ({"bayes_error": None}, TypeError, "one of bayes_error"),
        ({"spectrum": [1.0]}, TypeError, "spectrum is a list"),
        ({"loss": "hinge"}, ValueError, "loss is 'hinge'"),
    ],
)
def test_bad_questions_are_refused_with_the_reason(options, error, match):
    with pytest.raises(error, match=match):
        minimise(**(FIGURE_6 | options))


@pytest.mark.parametrize(
    ("lams", "match"),
    [([], r"lams has shape \(0,\)"), (1.0, r"lams has shape \(\)"), ([1, -1], r"lams\[1\] is -1")],
)
def test_bad_paths_are_refused_with_the_reason(lams, match):
    with pytest.raises(ValueError, match=match):
        path(lams, **FIGURE_6)
