"""The comparison of stopping metrics: sorted, the best first, each dot where its loss is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Annotation
from pictures import assert_readable, blank
from strategies import examples

from refinecal.plots import StoppingMetricsDisplay

NAMES = ["log loss", "refinement", "accuracy"]
STEPS, BEFORE, AFTER = [12, 40, 55], [0.5, 0.6, 0.7], [0.45, 0.4, 0.44]


def arrows(display):
    return [
        child
        for child in display.ax_.get_children()
        if isinstance(child, Annotation) and child.arrow_patch is not None
    ]


def test_metrics_are_sorted_by_the_loss_after_calibration():
    display = StoppingMetricsDisplay(NAMES, STEPS, BEFORE, AFTER).plot(blank())
    assert display.names == ["refinement", "accuracy", "log loss"]
    assert display.best == "refinement"
    assert display.steps.tolist() == [40, 55, 12]
    assert display.after_.get_xdata().tolist() == [0.4, 0.44, 0.45]
    assert display.before_.get_xdata().tolist() == [0.6, 0.7, 0.5]
    assert display.after_.get_ydata().tolist() == [0, 1, 2]
    low, high = display.ax_.get_ylim()
    assert low > high  # the first is on top


def test_of_equal_losses_the_first_given_stays_first():
    assert StoppingMetricsDisplay(["b", "a"], [1, 2], [0.5, 0.5], [0.4, 0.4]).best == "b"


def test_dots_are_hollow_before_and_filled_after():
    display = StoppingMetricsDisplay(NAMES, STEPS, BEFORE, AFTER).plot(blank())
    assert display.before_.get_markerfacecolor() != display.before_.get_color()
    assert display.after_.get_markerfacecolor() == display.after_.get_color()
    said = [text.get_text() for text in display.legend_.get_texts()]
    assert said == ["before calibration", "after calibration"]


def test_names_steps_and_losses_are_written_and_the_best_is_bold():
    display = StoppingMetricsDisplay(NAMES, STEPS, BEFORE, AFTER, "brier", step_name="epoch")
    display.plot(blank())
    labels = display.ax_.get_yticklabels()
    said = [label.get_text() for label in labels]
    assert said == ["refinement\nepoch 40", "accuracy\nepoch 55", "log loss\nepoch 12"]
    assert [label.get_fontweight() for label in labels] == ["bold", "normal", "normal"]
    assert {name: text.get_text() for name, text in display.texts_.items()} == {
        "refinement": "0.4000",
        "accuracy": "0.4400",
        "log loss": "0.4500",
    }
    assert display.ax_.get_xlabel() == "Brier score"


def test_standard_errors_are_bars():
    display = StoppingMetricsDisplay(NAMES, STEPS, BEFORE, AFTER, errors=[0.03, 0.01, 0.02])
    display.plot(blank())
    (bars,) = display.ax_.containers
    (lines,) = bars.lines[2]
    found = [segment[:, 0].tolist() for segment in lines.get_segments()]
    np.testing.assert_allclose(found, [[0.39, 0.41], [0.42, 0.46], [0.42, 0.48]])
    left, right = display.ax_.get_xlim()
    assert left < 0.39
    assert right > 0.48


def test_a_loss_far_off_is_an_arrow_with_its_value():
    display = StoppingMetricsDisplay(NAMES, STEPS, [0.5, np.inf, 9.0], AFTER).plot(blank())
    assert display.texts_["refinement before"].get_text() == "infinite"
    assert display.texts_["accuracy before"].get_text() == "9.0000"
    assert "log loss before" not in display.texts_
    assert np.isnan(display.before_.get_xdata()).tolist() == [True, True, False]
    assert len(arrows(display)) == 3
    assert display.ax_.get_xlim()[1] < 1


def test_a_metric_without_loss_comes_last():
    display = StoppingMetricsDisplay(NAMES, STEPS, [np.nan] * 3, [0.45, np.nan, np.inf])
    assert display.best == "log loss"
    assert_readable(display.plot(blank()).figure_)


losses = st.floats(0, 3, width=32)


@examples(20)
@given(
    st.lists(st.tuples(losses, losses), min_size=1, max_size=8), st.sampled_from(["page", "column"])
)
def test_it_is_readable_whatever_the_losses(pairs, size):
    before, after = np.array(pairs).T
    names = [f"metric number {i}" for i in range(len(pairs))]
    display = StoppingMetricsDisplay(names, range(len(pairs)), before, after).plot(blank(size))
    assert_readable(display.figure_)
    left, right = display.ax_.get_xlim()
    assert ((left < after) & (after < right)).all()
    shown = display.before_.get_xdata()
    assert sorted(shown[~np.isnan(shown)]) == sorted(
        value for value in display.before if value <= np.nanmax([*shown, -1])
    )


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (([], [], [], []), "names is empty"),
        ((["a", "a"], [1, 2], [1, 2], [1, 2]), "names holds a metric twice"),
        ((["a", "b"], [1], [1, 2], [1, 2]), r"steps has shape \(1,\), but there are 2 names"),
        ((["a", "b"], [1, 2], [1, 2, 3], [1, 2]), r"before has shape \(3,\)"),
        ((["a", "b"], [1, 2], [1, 2], 3), r"after has shape \(\)"),
        ((["a"], [1], [1], [np.nan]), "after is never finite"),
        ((["a"], [1], [1], [1], "log", [-0.1]), "errors holds -0.1"),
    ],
)
def test_bad_input_is_refused_with_the_reason(args, match):
    with pytest.raises(ValueError, match=match):
        StoppingMetricsDisplay(*args)
