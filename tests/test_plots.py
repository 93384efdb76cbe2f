"""The training curve: what is on the axes is what the monitor saw, and every label can be read."""

import subprocess
import sys
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from strategies import examples

mpl.use("Agg")

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split

import refinecal as rc
from refinecal.plots import TrainingCurveDisplay

CURVES = ("risk", "calibration", "refinement")
NAN, INF = np.nan, np.inf


@pytest.fixture(scope="module")
def monitor():
    X, y = load_breast_cancer(return_X_y=True)
    X, X_val, y, y_val = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
    model = GradientBoostingClassifier(n_estimators=60, random_state=0).fit(X, y)
    return rc.select(y_val, model.staged_predict_proba(X_val), steps=range(1, 61))


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def drawn(steps, risk, refinement, **options):
    risk, refinement = np.array(risk, dtype=float), np.array(refinement, dtype=float)
    with np.errstate(invalid="ignore"):
        calibration = risk - refinement
    return TrainingCurveDisplay(
        steps, risk=risk, calibration=calibration, refinement=refinement, **options
    ).plot()


def boxes(display):
    """Return where the labels are, in pixels."""
    display.figure_.canvas.draw()
    return [text.get_window_extent() for text in display.texts_.values()]


def test_the_lines_are_the_history(monitor):
    display = monitor.plot()
    for name in CURVES:
        x, y = display.lines_[name].get_data()
        assert x.tolist() == list(range(1, 61))
        assert y.tolist() == [record[name] for record in monitor.history]


def test_the_marks_are_where_the_curves_are_lowest(monitor):
    display = monitor.plot()
    for name in CURVES:
        best = min(monitor.history, key=lambda record: record[name])
        (x,), (y,) = display.marks_[name].get_data()
        assert (x, y) == (best["step"], best[name]) == display.smallest[name]
        expected = f"{name}\nmin {best[name]:.4f} at step {best['step']}"
        assert display.texts_[name].get_text() == expected
    assert display.smallest["refinement"] == (monitor.best_step, monitor.best_value)


def test_of_several_lowest_values_the_first_is_marked():
    assert drawn([3, 4, 5], [0.5, 0.4, 0.4], [0.3, 0.3, 0.3]).smallest["risk"] == (4, 0.4)


@pytest.mark.parametrize(
    ("loss", "name"), [("log", "log loss"), ("brier", "Brier score"), ("my", "my loss")]
)
def test_the_axes_are_named(loss, name):
    display = drawn([0, 1], [0.5, 0.4], [0.3, 0.3], loss=loss)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("step", name)


def test_it_draws_on_the_axes_that_it_is_given(monitor):
    figure, (left, right) = plt.subplots(1, 2)
    current = plt.gcf(), plt.gca()
    display = monitor.plot(ax=left)
    assert display.ax_ is left
    assert display.figure_ is figure
    assert not right.lines
    assert (plt.gcf(), plt.gca()) == current
    assert plt.get_fignums() == [figure.number]


def test_it_draws_on_a_subfigure(monitor):
    figure = plt.figure()
    assert monitor.plot(ax=figure.subfigures(1, 2)[0].subplots()).figure_ is figure


def test_without_axes_it_makes_one_figure_and_changes_no_setting(monitor):
    settings_before = dict(mpl.rcParams)
    display = monitor.plot()
    assert plt.get_fignums() == [display.figure_.number]
    assert dict(mpl.rcParams) == settings_before


def test_it_can_be_drawn_again(monitor):
    display = monitor.plot()
    first = display.ax_
    assert display.plot() is display
    assert display.ax_ is not first


@pytest.mark.parametrize("bad", [NAN, INF])
def test_values_that_are_not_finite_leave_a_gap(bad):
    display = drawn(range(4), [bad, 0.5, bad, 0.6], [bad, 0.4, 0.3, 0.5])
    assert np.isnan(display.lines_["risk"].get_ydata()).tolist() == [True, False, True, False]
    assert display.smallest["risk"] == (1, 0.5)
    assert display.smallest["refinement"] == (2, 0.3)
    display.figure_.canvas.draw()


def test_a_curve_that_is_never_finite_has_no_mark():
    display = drawn([0, 1], [INF, INF], [2.0, 3.0])
    assert set(display.marks_) == set(display.texts_) == {"refinement"}
    assert display.ax_.get_ylim()[1] > 3
    assert not drawn([0, 1], [NAN, NAN], [NAN, NAN]).marks_


def test_a_diverged_run_is_drawn():
    monitor = rc.RefinementMonitor()
    monitor.update([0, 1], [0.4, 0.6])
    with pytest.warns(RuntimeWarning, match="diverged"):
        monitor.update([0, 1], [NAN, NAN])
    assert monitor.plot().smallest["risk"][0] == 0


def test_a_single_step_is_drawn():
    display = drawn([7], [0.5], [0.4])
    display.figure_.canvas.draw()
    assert display.ax_.get_xticks().tolist() == [7]
    assert display.smallest["refinement"] == (7, 0.4)


def test_few_steps_show_as_dots(monitor):
    assert drawn([0, 1], [0.5, 0.4], [0.3, 0.3]).lines_["risk"].get_marker() == "."
    assert monitor.plot().lines_["risk"].get_marker() == ""


def test_two_curves_lowest_at_the_same_place_both_show():
    display = drawn([0, 1], [0.5, 0.4], [0.5, 0.4])
    assert display.smallest["risk"] == display.smallest["refinement"]
    above = display.marks_["refinement"]
    assert above.get_fillstyle() == "right"
    assert above.get_markerfacecoloralt() == display.marks_["risk"].get_color()


def test_all_marks_have_the_same_size(monitor):
    assert len({mark.get_markersize() for mark in monitor.plot().marks_.values()}) == 1


@pytest.mark.parametrize("metric", ["refinement", "log_loss", "accuracy"])
def test_the_chosen_step_is_marked_and_says_by_what(metric):
    followed = rc.RefinementMonitor(metric)
    for shift in (0.5, 0.0, 0.2):
        followed.update([0, 1, 0, 1], logits=[-1.0 + shift, 2.0 + shift, 0.5 + shift, 1.0 + shift])
    display = followed.plot()
    x, y = display.lines_["chosen"].get_data()
    assert list(x) == [followed.best_step] * 2
    assert display.texts_["chosen"].get_text() == f"step {x[0]}, chosen by {metric}"
    low, high = display.ax_.get_ylim()
    highest = max(
        line.get_ydata().max() for name, line in display.lines_.items() if name != "chosen"
    )
    assert low == y[0] < highest < y[1] < high


def test_no_step_is_marked_if_none_was_chosen():
    assert "chosen" not in drawn([0, 1], [0.5, 0.4], [0.3, 0.3]).texts_
    monitor = rc.RefinementMonitor("auroc")
    monitor.update([1, 1], [0.4, 0.6])  # a single class: never a number
    assert "chosen" not in monitor.plot().lines_


def test_a_steep_start_does_not_squash_the_rest():
    display = drawn(range(5), [20.0, 0.5, 0.4, 0.45, 0.6], [15.0, 0.4, 0.3, 0.3, 0.3])
    assert 0.6 < display.ax_.get_ylim()[1] < 2


def test_ticks_are_steps(monitor):
    ticks = monitor.plot().ax_.get_xticks()
    assert np.array_equal(ticks, np.round(ticks))
    assert ticks[0] >= 1
    assert ticks[-1] <= 60


def test_no_label_says_minus_zero():
    text = drawn([0], [0.4], [0.4 + 1e-9]).texts_["calibration"].get_text()
    assert text == "calibration\nmin 0.0000 at step 0"


losses = st.floats(0, 3, width=32)


@examples(25)
@given(
    st.integers(1, 40).flatmap(lambda n: arrays(np.float64, (2, n), elements=losses)),
    st.integers(0, 39),
)
def test_labels_never_overlap_and_never_hide_a_curve(values, chosen):
    refinement, calibration = values
    chosen = min(chosen, len(refinement) - 1)
    display = drawn(range(len(refinement)), refinement + calibration, refinement, chosen=chosen)
    *found, top = boxes(display)
    found = sorted(found, key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 for below, above in pairwise(found))
    assert not any(top.overlaps(box) for box in found)
    assert display.figure_.bbox.y1 >= top.y1
    last, _ = display.ax_.transData.transform((len(refinement) - 1, 0))
    whole = display.figure_.bbox
    for box in found:
        assert last < box.x0 < box.x1 <= whole.x1
        assert whole.y0 <= box.y0 < box.y1 <= whole.y1
    low, high = display.ax_.get_ylim()
    assert all(low < value < high for _, value in display.smallest.values())
    plt.close(display.figure_)


def test_labels_fit_into_a_plain_figure(monitor):
    _, ax = plt.subplots()
    display = monitor.plot(ax=ax)
    assert all(box.x1 <= display.figure_.bbox.x1 for box in boxes(display))


def test_without_matplotlib_the_error_names_the_extra(monitor, monkeypatch):
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name == "matplotlib":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'refinecal\[plot\]'"):
        monitor.plot()


def test_importing_the_plots_does_not_import_matplotlib():
    code = "import sys, refinecal.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_monitor_without_steps_cannot_be_drawn():
    with pytest.raises(ValueError, match="no step yet: call update before plot"):
        rc.RefinementMonitor().plot()


def test_every_curve_has_one_value_per_step():
    with pytest.raises(ValueError, match=r"risk has shape \(3,\), but steps has \(2,\)"):
        TrainingCurveDisplay([0, 1], risk=[1, 2, 3], calibration=[1, 2], refinement=[1, 2])
