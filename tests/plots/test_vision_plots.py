"""The figures of the vision experiment: minima where they are, quantiles as NumPy's, readable."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from pictures import assert_in_palette, assert_readable, blank
from strategies import examples

from refinecal.plots.boxes import RelativeDifferencesDisplay, StoppingTimesDisplay
from refinecal.plots.run_curves import RunCurvesDisplay
from refinecal.plots.style import draw_panels

EPOCHS = np.arange(1, 61)


def curves(runs=3, shift=1):
    """Return parabolas whose minima are known: at 25 + shift * run, 40 + ... and 10 + ..."""
    at = {"risk": 25, "refinement": 40, "calibration": 10}
    base = {"risk": 0.3, "refinement": 0.2, "calibration": 0.01}
    return {
        name: np.array(
            [base[name] + 1e-4 * (EPOCHS - middle - shift * run) ** 2 for run in range(runs)]
        )
        for name, middle in at.items()
    }


# ---- curves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [1, 3, 8])
@pytest.mark.parametrize("size", ["page", "column"])
def test_each_run_has_a_dot_where_it_is_lowest(runs, size):
    given = curves(runs)
    display = RunCurvesDisplay(EPOCHS, given).plot(blank(size))
    for name, first in (("risk", 25), ("refinement", 40), ("calibration", 10)):
        expected = [first + run for run in range(runs)]
        assert display.marks[name].tolist() == expected
        dots = display.dots_[name].get_offsets()
        np.testing.assert_array_equal(dots[:, 0], expected)
        np.testing.assert_allclose(dots[:, 1], given[name].min(axis=1))
        np.testing.assert_allclose(display.lines_[name].get_ydata(), given[name].mean(axis=0))
    assert_readable(display.figure_)
    assert_in_palette(display.figure_)


@pytest.mark.parametrize("size", ["page", "column"])
def test_dots_of_what_was_chosen_are_on_one_curve(size):
    given = {name: each for name, each in curves().items() if name != "calibration"}
    display = RunCurvesDisplay(
        EPOCHS,
        given,
        labels={"risk": "as it is", "refinement": "after TS"},
        chosen={"risk": [25, 26, 27], "refinement": [40, np.nan, 42]},
        choosers={"risk": "log loss"},
        what="test log loss",
    ).plot(blank(size))
    offsets = display.dots_["risk"].get_offsets()
    expected = given["refinement"][[0, 1, 2], [24, 25, 26]]
    np.testing.assert_allclose(offsets, np.column_stack([[25, 26, 27], expected]))
    assert len(display.dots_["refinement"].get_offsets()) == 2
    assert display.texts_["risk"].get_text() == "log loss chose epoch 26 (25–27)"
    assert display.texts_["refinement"].get_text() == "refinement chose epoch 41 (40–42)"
    said = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert said == ["as it is", "after TS"]
    assert_readable(display.figure_)


def test_many_runs_are_a_band_and_few_are_lines():
    few, many = (RunCurvesDisplay(EPOCHS, curves(runs)).plot(blank()) for runs in (5, 6))
    assert len(few.ax_.lines) == 3 * (5 + 1)
    assert len(many.ax_.lines) == 3
    bands = [each for each in many.ax_.collections if each.get_alpha() == 0.2]
    assert len(bands) == 3


def test_gaps_are_left_out():
    given = curves(2)
    given["risk"][0, 30:] = np.nan
    given["calibration"][:] = np.inf
    display = RunCurvesDisplay(EPOCHS, given).plot(blank())
    np.testing.assert_allclose(display.means["risk"][30:], given["risk"][1, 30:])
    assert np.isnan(display.marks["calibration"]).all()
    assert "calibration" not in display.texts_
    assert_readable(display.figure_)


@examples(10)
@given(
    st.integers(1, 12),
    st.integers(1, 7),
    st.integers(0, 10**6),
    st.sampled_from(["page", "column"]),
)
def test_curves_are_readable_whatever_they_are(epochs, runs, seed, size):
    rng = np.random.default_rng(seed)
    given = {name: rng.lognormal(size=(runs, epochs)) for name in ("risk", "refinement")}
    display = RunCurvesDisplay(range(1, epochs + 1), given).plot(blank(size))
    assert_readable(display.figure_)


@pytest.mark.parametrize("size", [(7.2, 3.5), (3.6, 6.4)])
def test_panels_of_validation_and_test_are_readable(size):
    figure = Figure(figsize=size, layout="constrained")
    given = curves(4)
    panels = {
        "Validation images": RunCurvesDisplay(EPOCHS, given),
        "Test images": RunCurvesDisplay(
            EPOCHS, given, chosen={"risk": [25] * 4, "refinement": [40] * 4}, what="test log loss"
        ),
    }
    draw_panels(figure, panels)
    assert_readable(figure)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"curves": {"green": [[1.0] * 60]}}, "curves names 'green'"),
        ({"curves": {"risk": [1.0] * 60}}, "pass a row of 60 epochs for each run"),
        ({"curves": {"risk": [[1.0] * 59]}}, "has shape"),
        ({"curves": {"risk": [[np.nan] * 60]}}, "nothing to draw"),
        ({"curves": {"risk": np.ones((2, 60)), "refinement": np.ones((1, 60))}}, "numbers of runs"),
        ({"chosen": {"risk": [1, 2]}}, "one epoch for each of 3 runs"),
        ({"chosen": {"risk": [0, 2, 3]}}, "holds 0, which is not an epoch"),
        ({"chosen": {"risk": [1, 2, 3]}, "on": "beta"}, "on is 'beta'"),
    ],
)
def test_wrong_curves_are_named(change, match):
    with pytest.raises(ValueError, match=match):
        RunCurvesDisplay(**{"epochs": EPOCHS, "curves": curves(), **change})


# ---- differences -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("runs", "lines", "boxes"), [(4, 1, 0), (5, 6, 1)])
def test_few_runs_have_a_median_but_no_box(runs, lines, boxes):
    """A box is its edges, two whiskers of two lines each, and the median."""
    values = list(range(1, runs + 1))
    differences = RelativeDifferencesDisplay({"a": values}, least=5).plot(blank())
    epochs = StoppingTimesDisplay({"a": values}, 10, least=5).plot(blank())
    for ax, more in ((differences.ax_, 1), (epochs.ax_, 0)):  # the former has a line at 0
        assert len(ax.lines) == lines + more
        assert len(ax.collections) == 1 + boxes
        assert np.median(values) in [line.get_xdata()[0] for line in ax.lines]
    assert len(StoppingTimesDisplay({"a": values}, 10).plot(blank()).ax_.lines) == 6


@examples(25)
@given(st.floats(-3, 3), st.sampled_from(["page", "column"]))
def test_ticks_of_differences_reach_as_far_as_the_values(power, size):
    reach = 10.0**power
    parts = {"refinement + TS": [reach, -reach / 3], "log loss": [reach / 9]}
    display = RelativeDifferencesDisplay(parts).plot(blank(size))
    ticks = np.asarray(display.ax_.get_xticks())
    np.testing.assert_array_equal(ticks, -ticks[::-1])
    assert reach <= 4 * ticks.max()
    assert_readable(display.figure_)


def test_values_below_one_percent_can_be_read_off():
    display = RelativeDifferencesDisplay({"a": [-0.35, 0.66]}).plot(blank())
    said = [label.get_text() for label in display.ax_.get_xticklabels()]
    assert said == ["−0.5", "−0.2", "−0.1", "0", "+0.1", "+0.2", "+0.5"]
