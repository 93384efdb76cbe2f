"""Every picture, at both widths: colours of the palette only, and no word lost."""

import re
import sys
from itertools import combinations
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib import style
from matplotlib.figure import Figure
from pictures import assert_in_palette, assert_readable, blank
from strategies import drawn

import refinecal as rc
from refinecal import plots
from refinecal.plots.style import PALETTE, dress

STEPS = np.arange(1, 61)
REFINEMENT = 0.35 + 0.3 * np.exp(-STEPS / 12) + 0.001 * np.maximum(STEPS - 40, 0)
CALIBRATION = 0.02 + 0.002 * STEPS
CURVES = {"risk": REFINEMENT + CALIBRATION, "refinement": REFINEMENT}
STEEP = {"risk": CURVES["risk"] + 9 * np.exp(-STEPS / 2.0), "refinement": REFINEMENT}
METRICS = ["log loss", "refinement", "brier", "accuracy", "auroc", "error rate", "risk", "f1"]


def sample(k, n=600, confidence=2.5):
    y, logits = drawn(n, k, confidence=confidence)
    return y, logits, rc.TemperatureScaling().fit_logits(logits, y)


Y2, Z2, CAL2 = sample(2)
Y3, Z3, CAL3 = sample(3, confidence=0.4)
Y26, Z26, CAL26 = sample(26, n=2000)
PARTS = rc.decompose(Y2, logits=Z2)


def parts(risk, refinement=0.5, uncertainty=0.69):
    return SimpleNamespace(risk=risk, refinement=refinement, uncertainty=uncertainty, loss="log")


def reliability(*args, **options):
    return lambda ax: plots.ReliabilityDisplay.from_predictions(*args, **options, ax=ax)


def waterfall(given, **options):
    return lambda ax: plots.WaterfallDisplay.from_decomposition(given, **options, ax=ax)


def mapped(calibrator, **options):
    return lambda ax: plots.CalibrationMapDisplay.from_calibrator(calibrator, **options, ax=ax)


def stopping(names, **options):
    values = np.linspace(0.4, 0.5, len(names))
    return plots.StoppingMetricsDisplay(
        names, range(len(names)), values * 1.5, values, **options
    ).plot


PICTURES = {
    "curve": plots.TrainingCurveDisplay(
        STEPS, **CURVES, calibration=CALIBRATION, chosen=40, step_name="strength"
    ).plot,
    "steep curve": plots.TrainingCurveDisplay(
        STEPS, **STEEP, calibration=STEEP["risk"] - REFINEMENT, chosen=2, chosen_by="accuracy"
    ).plot,
    "one step": plots.TrainingCurveDisplay(
        [1000], risk=[0.5], refinement=[0.4], calibration=[0.1], chosen=1000, loss="brier"
    ).plot,
    "two rules": plots.EarlyStoppingDisplay(STEPS, **CURVES, step_name="strength").plot,
    "two steep rules": plots.EarlyStoppingDisplay(1000 + STEPS, **STEEP).plot,
    "one rule": plots.EarlyStoppingDisplay([7], risk=[0.5], refinement=[0.4]).plot,
    "binary": reliability(Y2, logits=Z2),
    "binary after": reliability(Y2, logits=Z2, calibrated=CAL2, name="gradient boosting"),
    "named": reliability(Y2, logits=Z2, name="a model with a name that goes on and on"),
    "top-label": reliability(Y3, logits=Z3, calibrated=CAL3, strategy="uniform"),
    "26 classes": reliability(Y26, logits=Z26, calibrated=CAL26),
    "class": reliability(Y26, logits=Z26, kind=25, strategy="uniform"),
    "five rows": reliability(Y2[:5], logits=Z2[:5]),
    "one row": reliability([1], [0.7]),
    "perfect": reliability([0, 1] * 50, [0.0, 1.0] * 50),
    "awful": reliability([1, 0] * 50, [0.0, 1.0] * 50, calibrated=[0.5] * 100),
    "waterfall": waterfall(PARTS),
    "waterfall after": waterfall(PARTS, after=0.45),
    "negative calibration": waterfall(parts(0.48)),
    "worse than guessing": waterfall(parts(0.9, 0.8, 0.5)),
    "infinite risk": waterfall(parts(np.inf)),
    "large": waterfall(parts(12345.678, 1234.5, 0.1)),
    "perfect waterfall": waterfall(parts(0.0, 0.0, 0.0)),
    "two models": waterfall({"a": PARTS, "b": parts(0.48)}),
    "six models": waterfall(
        {f"model {i} with a long name": parts(0.5 + i / 10) for i in range(5)}
        | {"infinite": parts(np.inf)}
    ),
    "metrics": stopping(METRICS, step_name="round"),
    "metrics with errors": stopping(METRICS[:4], errors=[0.01] * 4),
    "one metric": stopping(["refinement"]),
    "far metrics": plots.StoppingMetricsDisplay(
        ["log loss", "refinement", "one with a long name of its own"],
        [1, 22, 33333],
        [0.5, np.inf, 3],
        [0.45, 0.41, 0.43],
    ).plot,
    "map": mapped(CAL2),
    "map with rows": mapped(CAL2, logits=Z2),
    "map of 3": mapped(CAL3),
    "map of 3 with rows": mapped(CAL3, logits=Z3),
    "map of 26 with rows": mapped(CAL26, logits=Z26),
}


@pytest.mark.parametrize("size", [pytest.param("page", marks=pytest.mark.slow), "column"])
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.sweep(3)
def test_pictures_are_readable_and_in_our_colours(name, size):
    ax = blank(size)
    PICTURES[name](ax)
    assert_readable(ax.figure)
    assert_in_palette(ax.figure)


@pytest.mark.slow
@pytest.mark.parametrize("width", [3.6, 7.2])
@pytest.mark.parametrize(
    ("given", "calibrated"), [((Y26, Z26), CAL26), ((Y26, Z26), None), ((Y3, Z3), CAL3)]
)
def test_so_are_diagrams_of_classes(given, calibrated, width):
    figure = Figure(figsize=(width, 5.4))
    plots.draw_classes(figure, given[0], logits=given[1], calibrated=calibrated)
    assert_readable(figure)
    assert_in_palette(figure)


def test_our_own_figures_are_in_our_colours_whatever_the_settings():
    with style.context("dark_background"):
        display = plots.WaterfallDisplay({"": PARTS}).plot()
    assert mpl.colors.to_hex(display.figure_.get_facecolor()) == PALETTE["paper"]
    assert_in_palette(display.figure_)
    plt.close(display.figure_)


def test_axes_have_no_background():
    ax = blank()
    dress(ax)
    assert ax.get_facecolor()[3] == 0


def test_colours_are_plain_and_all_differ():
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in PALETTE.values())
    assert len(set(PALETTE.values())) == len(PALETTE)


# Machado, Oliveira and Fernandes (2009): how the colour-blind see linear RGB.
SEEN = {
    "normal": np.eye(3),
    "protanope": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranope": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour, seen):
    """Return CIE L*a*b* of a colour as somebody sees it."""
    rgb = np.array(mpl.colors.to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(np.asarray(seen) @ linear, 0, 1) / TO_XYZ.sum(axis=1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize(
    "together",
    [
        ("risk", "refinement", "calibration"),
        ("uncertainty", "sharpness", "refinement", "calibration", "risk"),
        ("before", "after"),
    ],
)
def test_colours_shown_together_are_told_apart_by_everybody(together, seen):
    for one, other in combinations(together, 2):
        difference = lab(PALETTE[one], SEEN[seen]) - lab(PALETTE[other], SEEN[seen])
        assert np.linalg.norm(difference) > 15, (one, other)  # 2.3 is just noticeable


@pytest.mark.parametrize("name", ["text", "axis", "before"])
def test_text_stands_out_from_paper(name):
    def luminance(colour):
        rgb = np.array(mpl.colors.to_rgb(colour))
        return TO_XYZ[1] @ np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)

    contrast = (luminance(PALETTE["paper"]) + 0.05) / (luminance(PALETTE[name]) + 0.05)
    assert contrast >= 4.5  # WCAG 2, level AA


def test_data_are_computed_without_matplotlib(monkeypatch):
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name == "matplotlib":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    displays = [
        plots.ReliabilityDisplay(plots.reliability_curve(Y2, logits=Z2)),
        plots.CalibrationMapDisplay(plots.map_probabilities(CAL2)),
        plots.WaterfallDisplay({"": PARTS}),
        plots.StoppingMetricsDisplay(["a"], [1], [0.5], [0.4]),
        plots.EarlyStoppingDisplay(STEPS, **CURVES),
    ]
    for display in displays:
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'refinecal\[plot\]'"):
            display.plot()


def test_words_that_overlap_or_leave_the_figure_would_be_noticed():
    for places in [(0.5, 0.52), (0.5, 1.2)]:
        figure = Figure(figsize=(3, 3))
        for height in places:
            figure.text(0.5, height, "some words", fontsize=9)
        with pytest.raises(AssertionError):
            assert_readable(figure)
