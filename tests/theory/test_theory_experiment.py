"""The Gaussian experiment of the demo: what is measured on rows, beside what theory predicts."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import ttest_1samp

from refinecal.cli.demo import describe_gain
from refinecal.experiments.regularization import draw_curves, run
from refinecal.theory import BetaSpectrum, minimise, path

LAMS = np.array([0.02, 0.2, 2.0, 20.0])


@pytest.fixture(scope="module")
def found():
    return run(draws=3, n=300, lams=LAMS)


def test_theory_is_about_the_same_problem(found):
    problem = {"ratio": 1.0, "bayes_error": 0.1, "spectrum": BetaSpectrum(5, 1)}
    best = minimise(**problem)
    assert found.predicted_gain == best.gain
    low, high = found.theory.lam[[0, -1]]
    assert (low, high) == pytest.approx((0.02, 20.0))
    assert found.theory.risk[[0, -1]] == pytest.approx(path([0.02, 20.0], **problem).risk)


def test_measured_curves_are_near_the_predicted_ones(found):
    exact = path(LAMS, ratio=1.0, bayes_error=0.1, spectrum=BetaSpectrum(5, 1))
    for name, values in found.curves.items():  # 3 draws of 300 rows: theory is for many
        assert values == pytest.approx(getattr(exact, name), rel=0.12, abs=0.015)


def test_the_same_seed_gives_the_same_data_whatever_the_strengths(found):
    again = run(draws=1, n=300, lams=LAMS[:2])
    other = run(draws=1, n=300, lams=LAMS[:2], seed=1)
    assert not np.allclose(again.curves["risk"], other.curves["risk"], atol=1e-6)
    both = run(draws=2, n=300, lams=LAMS[:2])
    mean = (again.curves["risk"] + other.curves["risk"]) / 2
    assert both.curves["risk"] == pytest.approx(mean, rel=1e-12)


def test_the_sentence_says_whether_theory_agrees(found):
    gaps = found.losses[:, 0] - found.losses[:, 2]
    exact = ttest_1samp(gaps, found.predicted_gain * found.losses[:, 0].mean())
    assert found.deviation == pytest.approx(exact.statistic)
    assert found.chance == pytest.approx(exact.pvalue)
    for gain, words in ((found.gain, "agree within sampling error"), (0.9, "is significant")):
        best = SimpleNamespace(gain=gain)
        assert words in describe_gain(replace(found, best=best))
    assert f"{abs(found.deviation):.1f} standard errors" in describe_gain(found)
    assert "One draw cannot tell" in describe_gain(replace(found, losses=found.losses[:1]))


def test_the_picture_has_both(found):
    canvas = Figure(figsize=(7.2, 4.0), layout="constrained")
    draw_curves(found, canvas)
    (ax,) = canvas.axes
    for place, name in enumerate(found.curves):
        theory, measured, lowest = ax.lines[3 * place : 3 * place + 3]
        assert np.array_equal(theory.get_ydata(), getattr(found.theory, name))
        assert np.array_equal(measured.get_ydata(), found.curves[name])
        assert lowest.get_ydata()[0] == found.curves[name].min()
        assert not lowest.get_clip_on()  # calibration is near 0, at the axis
    said = [text.get_text() for text in canvas.legends[0].get_texts()]
    assert said == ["risk", "calibration", "refinement", "line: theory", "dots: measured"]
