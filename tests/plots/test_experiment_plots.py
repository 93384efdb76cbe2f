"""The figures of the tabular experiment: quantiles as NumPy's, a dot per set, readable at two widths."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from pictures import assert_in_palette, assert_readable, blank
from strategies import examples

from refinecal.plots.boxes import RelativeDifferencesDisplay, StoppingTimesDisplay
from refinecal.plots.dependence import DependenceDisplay
from refinecal.plots.style import draw_panels

NAMES = [f"metric number {i} + TS" for i in range(9)]
percents = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30)


def test_boxes_are_quantiles_and_every_set_is_a_dot():
    values = np.random.default_rng(0).normal(size=49) * 3
    display = RelativeDifferencesDisplay({"a": values, "b": [1.0, 2.0]}).plot(blank())
    np.testing.assert_allclose(
        display.quantiles["a"], np.quantile(values, [0.1, 0.25, 0.5, 0.75, 0.9])
    )
    np.testing.assert_array_equal(display.dots_["a"].get_offsets()[:, 0], values)
    drawn = {tuple(np.round(line.get_xdata(), 9)) for line in display.ax_.lines}
    low, first, middle, third, high = np.round(display.quantiles["a"], 9)
    assert {(middle, middle), (first, low), (third, high)} <= drawn
    rows = display.dots_["b"].get_offsets()[:, 1]
    assert (np.abs(rows - 1) < 0.5).all()
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["a", "b"]
    low, high = display.ax_.get_ylim()
    assert low > high  # the first on top


def test_what_is_not_finite_is_left_out_with_its_mark():
    display = RelativeDifferencesDisplay(
        {"a": [1.0, np.nan, 2.0], "none": [np.nan]}, faint={"a": [False, False, True]}
    ).plot(blank())
    assert display.values["a"].tolist() == [1.0, 2.0]
    assert display.dots_["a"].get_alpha().tolist() == [0.55, 0.3]
    assert set(display.quantiles) == set(display.dots_) == {"a"}
    assert_readable(display.figure_)


def test_the_axis_shows_all_and_is_symmetric():
    display = RelativeDifferencesDisplay({"a": [-100.0, 0.0, 0.001]}).plot(blank())
    left, right = display.ax_.get_xlim()
    assert left == -right < -100
    said = [label.get_text() for label in display.ax_.get_xticklabels()]
    assert said[0] == "−100"
    assert said[-1] == "+100"
    assert "0" in said


@pytest.mark.parametrize("size", ["page", "column"])
def test_ticks_are_apart_beside_long_names(size):
    ax = RelativeDifferencesDisplay({"refinement, 5-fold + TS": [-100, 100]}).plot(blank(size)).ax_
    ax.figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert min(right.x0 - left.x1 for left, right in pairwise(boxes)) > 3  # pixels


@examples(15)
@given(percents, st.sampled_from(["page", "column"]))
def test_boxes_are_readable_whatever_the_values(values, size):
    display = RelativeDifferencesDisplay(dict.fromkeys(NAMES, values)).plot(blank(size))
    assert_readable(display.figure_)
    left, right = display.ax_.get_xlim()
    assert left < min(values)
    assert max(values) < right


@examples(15)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.sampled_from(["page", "column"]))
def test_stopping_times_are_readable_whatever_the_steps(steps, size):
    display = StoppingTimesDisplay(dict.fromkeys(NAMES, steps), 1000, "round").plot(blank(size))
    assert_readable(display.figure_)
    assert display.quantiles[NAMES[0]][2] == np.median(steps)
    assert display.ax_.get_xlabel() == "best round"
    left, right = display.ax_.get_xlim()
    assert left < min(steps) <= max(steps) < right


@pytest.mark.parametrize("most", [1, 3, 12, 256, 1000, 40_000])
def test_the_last_step_is_on_the_axis(most):
    display = StoppingTimesDisplay({"a": [1, most]}, most).plot(blank("column"))
    assert display.ax_.get_xticklabels()[-1].get_text() == f"{most:g}"
    assert_readable(display.figure_)


@examples(20)
@given(
    st.lists(st.tuples(st.floats(1e-4, 1e5), st.floats(-100, 100)), min_size=1, max_size=60),
    st.sampled_from(["page", "column"]),
)
@example([(0.00010000000000000002, 0.0), (0.0001, 0.0)], "page")
def test_dependence_is_readable_whatever_the_values(pairs, size):
    x, values = np.array(pairs).T
    display = DependenceDisplay(x, values, "rows of the data set").plot(blank(size))
    assert_readable(display.figure_)
    assert len(display.dots_.get_offsets()) == len(pairs)


def test_the_line_joins_medians_of_neighbours():
    x = np.arange(1.0, 25)
    values = np.r_[np.full(8, 1.0), np.full(8, -2.0), np.full(8, 5.0)]
    values[0] = 99
    order = np.random.default_rng(0).permutation(24)
    display = DependenceDisplay(x[order], values[order], "x").plot(blank())
    np.testing.assert_allclose(display.medians, [[4.5, 12.5, 20.5], [1, -2, 5]])
    assert display.line_.get_ydata().tolist() == [1, -2, 5]
    assert DependenceDisplay(x[:15], values[:15], "x").plot(blank()).line_ is None


def test_many_dots_are_thinned_but_their_medians_are_those_of_all():
    rng = np.random.default_rng(0)
    x, values = np.exp(rng.normal(size=4000)), rng.normal(size=4000)
    display = DependenceDisplay(x, values, "x").plot(blank())
    assert len(display.dots_.get_offsets()) == -(-4000 // 3)
    first = values[np.argsort(x)[:400]]
    assert display.medians[1][0] == np.median(first)


def test_what_is_off_the_axis_is_drawn_at_its_ends():
    display = DependenceDisplay([0.0, 1.0, 10.0, np.inf, np.nan], [1, 2, 3, 4, 5], "x").plot(
        blank()
    )
    found = dict(zip(display.values, display.dots_.get_offsets()[:, 0], strict=True))
    assert found == {1: 1.0, 2: 1.0, 3: 10.0, 4: 10.0}


@pytest.mark.parametrize("width", [3.6, 7.2])
def test_panels_are_side_by_side_where_there_is_room(width):
    figure = Figure(figsize=(width, 6.0), layout="constrained")
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=20) * 10 for name in NAMES[:5]}
    panels = {
        title: RelativeDifferencesDisplay(values, colours={NAMES[1]: "refinement"})
        for title in ("XGBoost, default", "XGBoost, tuned")
    }
    axes = draw_panels(figure, panels)
    assert_readable(figure)
    assert_in_palette(figure)
    tops = [ax.get_position().y1 for ax in axes.values()]
    assert (tops[0] == pytest.approx(tops[1])) == (width > 5)
    assert (len(axes["XGBoost, tuned"].get_yticklabels()) > 0) == (width < 5)


def test_an_odd_panel_leaves_its_place_empty():
    figure = Figure(figsize=(7.2, 6.0), layout="constrained")
    panels = {f"panel {i}": DependenceDisplay([1, 2], [3, 4], "x") for i in range(3)}
    assert list(draw_panels(figure, panels)) == list(panels)
    assert [ax.get_visible() for ax in figure.axes] == [True, True, True, False]
    assert_readable(figure)


def test_neighbours_with_the_same_axis_name_it_once():
    figure = Figure(figsize=(7.2, 6.0), layout="constrained")
    panels = {"a": "log loss", "b": "log loss", "c": "log loss", "d": "AUROC"}
    draw_panels(
        figure, {name: DependenceDisplay([1], [3], "x", what) for name, what in panels.items()}
    )
    said = [ax.get_ylabel() for ax in figure.axes]
    loss = "difference in log loss, %"
    assert said == [loss, "", loss, "difference in AUROC, %"]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: RelativeDifferencesDisplay({}), "values holds no finite number"),
        (lambda: RelativeDifferencesDisplay({"a": [np.nan]}), "values holds no finite number"),
        (lambda: RelativeDifferencesDisplay({"a": [[1.0]]}), r"values\['a'\] has shape \(1, 1\)"),
        (
            lambda: RelativeDifferencesDisplay({"a": [1]}, colours={"a": "red"}),
            "holds 'red', which",
        ),
        (
            lambda: RelativeDifferencesDisplay({"a": [1]}, faint={"a": [True] * 2}),
            "faint.* there are 1",
        ),
        (lambda: StoppingTimesDisplay({"a": [0]}, 5), r"steps\['a'\] holds 0: steps are counted"),
        (lambda: StoppingTimesDisplay({"a": [6]}, 5), "holds 6, but most is 5"),
        (lambda: StoppingTimesDisplay({"a": []}, 5), "steps holds no step"),
        (lambda: DependenceDisplay([1], [1, 2], "x"), "x has 1 numbers, but values 2"),
        (lambda: DependenceDisplay([0, -1], [1, 2], "x"), "x holds no positive number"),
    ],
)
def test_bad_input_is_refused_with_the_reason(make, match):
    with pytest.raises(ValueError, match=match):
        make()
