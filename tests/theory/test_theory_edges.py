"""Where theory could mislead: eigenvalues far apart, losses with steps, signal that no rule can see."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from refinecal import theory
from refinecal.losses import MatrixLoss
from refinecal.theory import BetaSpectrum, GaussianModel, PointSpectrum, QuadratureSpectrum

FIGURE_6 = {"ratio": 0.5, "bayes_error": 0.1, "spectrum": BetaSpectrum(1, 1)}


class Wrong(MatrixLoss):
    """1 if the label is not the more probable class: proper, but with a step."""

    name = "zero-one"

    def matrix(self, log_probs):
        return np.asarray(log_probs <= np.log(0.5), dtype=float)


@pytest.mark.parametrize(
    "spectrum",
    [
        PointSpectrum([1e-4, 1e6], [0.99, 0.01]),
        PointSpectrum([1e-6, 1e6]),
        PointSpectrum([1.0, 1e5], [0.5, 0.5]).with_signal([1.0, 0.0]),
    ],
)
def test_the_range_is_as_wide_as_the_eigenvalues(spectrum):
    problem = {"ratio": 0.5, "bayes_error": 0.1, "spectrum": spectrum}
    usual = theory.minimise(**problem)
    wide = theory.minimise(**problem, lam_range=(1e-13, 1e12))
    assert not usual.at_bound_risk
    assert_allclose(usual.gain, wide.gain, rtol=1e-6)


def test_a_loss_with_a_step_has_no_minimiser_by_slopes():
    with pytest.raises(ValueError, match=r"it is lower at .* smooth in the log-odds"):
        theory.minimise(**FIGURE_6, loss=Wrong())
    found = theory.logistic([0.01, 1.0], **FIGURE_6, loss=Wrong())
    assert_allclose(found.risk, found.error_rate, rtol=1e-3)  # but a value


def test_one_point_is_made_of_numbers():
    found = theory.logistic(0.1, **FIGURE_6)
    names = ("lam", "ratio", "bayes_error", "signal", "inner", "norm", "expertise", "scale")
    names += ("risk", "calibration", "refinement", "error_rate", "inner_slope")
    values = {name: getattr(found, name) for name in names}
    assert all(isinstance(value, float) for value in values.values())
    assert json.loads(json.dumps(values)) == values
    assert len({found, found.at(0.2)}) == 2


def test_what_was_solved_cannot_be_changed():
    lams = np.array([0.1, 0.2])
    found = theory.logistic(lams, **FIGURE_6)
    lams[0] = 7.0  # the caller's own array can
    assert found.lam[0] == 0.1
    for array in (found.lam, found.inner, found.constants["tau"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0
    model = GaussianModel([1.0, 0.0], [1.0, 4.0])
    with pytest.raises(ValueError, match="read-only"):
        model.mu[0] = 5.0


def test_print_shows_a_table_of_few_rows():
    lines = repr(theory.path(**FIGURE_6)).splitlines()
    assert len(lines) == 13
    assert "0.001 + Beta(1, 1)" in lines[0]
    assert lines[1].split()[-3:] == ["risk", "calibration", "refinement"]
    one = theory.logistic(0.1, **FIGURE_6)
    assert f"{one.risk:.5g}" in repr(one)
    assert f"risk={one.risk:.5g}" in repr(one.parts)


def test_other_strengths_must_fit():
    found = theory.logistic([0.1, 0.2], **FIGURE_6)
    with pytest.raises(ValueError, match=r"lam has shape \(3,\), but the problem has \(2,\)"):
        found.at([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "power", [-1.0, -1.5]
)  # densities s^0 and s^-0.5: the mean of 1 / s is infinite
def test_signal_at_zero_is_not_resolved(power):
    law = BetaSpectrum(2, 1, shift=0).with_signal(lambda sigma: sigma**power)
    assert law.inverse_mean == np.inf
    with pytest.raises(ValueError, match="bayes_error cannot be set"):
        law.signal_for(0.1)


def test_signal_away_from_zero_is_resolved():
    law = BetaSpectrum(3, 1, shift=0).with_signal(lambda sigma: sigma)  # density 4 s^3
    assert_allclose(law.inverse_mean, 4 / 3, rtol=1e-12)


def test_signal_where_nothing_is_drawn():
    law = QuadratureSpectrum([1, 25], [1, 0], signal_weights=[0.2, 0.8])
    assert theory.logistic(0.1, ratio=0.5, bayes_error=0.1, spectrum=law).risk > 0
    with pytest.raises(ValueError, match="25 has signal but weight 0"):
        GaussianModel.from_spectrum(law, 400, bayes_error=0.1, seed=0)


def test_wrong_arguments_of_a_model():
    with pytest.raises(TypeError, match="spectrum is a str"):
        GaussianModel.from_spectrum("beta:1,1", 10, bayes_error=0.1)
    with pytest.raises(TypeError, match="bayes_error is 'a'"):
        GaussianModel.from_spectrum(BetaSpectrum(1, 1), 10, bayes_error="a")
    with pytest.raises(TypeError, match=r"bayes_error has shape \(2,\)"):
        GaussianModel.from_spectrum(BetaSpectrum(1, 1), 10, bayes_error=[0.1, 0.2])
    with pytest.raises(ValueError, match=r"both excluded\.$"):
        GaussianModel.from_spectrum(BetaSpectrum(1, 1), 10, bayes_error=0.5)
    fitted = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(TypeError, match=r"coef_\[0\]"):
        GaussianModel([1.0], [1.0]).decompose(fitted)
