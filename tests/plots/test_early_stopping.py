"""Two rules of stopping on one picture, and training curves on narrow axes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pictures import assert_readable, blank
from strategies import drawn, examples

import refinecal as rc
from refinecal.plots import EarlyStoppingDisplay, TrainingCurveDisplay

NAN, INF = np.nan, np.inf


@pytest.fixture(scope="module")
def monitor():
    y, truth = drawn(300, 3)
    noise = np.random.default_rng(1).standard_normal(truth.shape)
    followed = rc.RefinementMonitor()
    for step in range(1, 21):
        followed.update(y, logits=truth * step / 6 + noise / step, step=step)
    return followed


def test_both_rules_come_from_the_history(monitor):
    display = EarlyStoppingDisplay.from_monitor(monitor, blank())
    by_risk = min(monitor.history, key=lambda record: record["risk"])
    best = next(record for record in monitor.history if record["step"] == monitor.best_step)
    assert display.chosen == {
        "loss": (by_risk["step"], by_risk["risk"], by_risk["refinement"]),
        "refinement": (best["step"], best["risk"], best["refinement"]),
    }
    assert by_risk["step"] < monitor.best_step
    assert display.gain == by_risk["refinement"] - best["refinement"] > 0


def test_arrows_lead_from_risk_to_refinement(monitor):
    display = EarlyStoppingDisplay.from_monitor(monitor, blank())
    for rule, arrow in display.arrows_.items():
        step, before, after = display.chosen[rule]
        assert arrow.xy == (step, after)
        assert arrow.get_position() == (step, before)
    x, y = display.lines_["gain"].get_data()
    assert list(x) == [display.chosen["loss"][0], display.chosen["refinement"][0]]
    assert list(y) == [display.chosen["loss"][2]] * 2


def test_what_was_chosen_is_written():
    display = EarlyStoppingDisplay(
        [1, 2, 3], risk=[0.7, 0.5, 0.6], refinement=[0.5, 0.4, 0.3], step_name="epoch"
    ).plot(blank())
    assert display.texts_["loss"].get_text() == "stopped by loss: epoch 2, 0.5000 → 0.4000"
    assert (
        display.texts_["refinement"].get_text() == "stopped by refinement: epoch 3, 0.6000 → 0.3000"
    )
    assert display.ax_.get_xlabel() == "epoch"


def test_steps_may_be_given():
    display = EarlyStoppingDisplay(
        [1, 2, 3], risk=[3, 2, 1], refinement=[1, 1, 1], by_loss=1, by_refinement=2
    )
    assert display.chosen == {"loss": (1, 3, 1), "refinement": (2, 2, 1)}


def test_an_infinite_risk_comes_from_above():
    display = EarlyStoppingDisplay(
        [1, 2], risk=[0.5, INF], refinement=[0.4, 0.3], by_refinement=2
    ).plot(blank())
    assert display.texts_["refinement"].get_text().endswith("step 2, infinite → 0.3000")
    assert display.arrows_["refinement"].get_position()[1] >= 0.5
    assert_readable(display.figure_)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"by_loss": 7}, "by_loss is 7, which is not among steps 1 to 3"),
        ({"risk": [NAN] * 3}, "no step can be chosen by loss"),
        (
            {"refinement": [NAN, 0.5, NAN], "by_loss": 1},
            "step 1, chosen by loss, has no finite loss",
        ),
        ({"risk": [1, 2]}, r"risk has shape \(2,\), but steps has \(3,\)"),
        ({"steps": []}, r"steps has shape \(0,\)"),
        ({"steps": [1, 3, 2]}, r"steps\[2\] is 2, after 3: steps must increase"),
    ],
)
def test_bad_input_is_refused_with_the_reason(options, match):
    given = {"steps": [1, 2, 3], "risk": [0.7, 0.5, 0.6], "refinement": [0.5, 0.4, 0.3]} | options
    with pytest.raises(ValueError, match=match):
        EarlyStoppingDisplay(given.pop("steps"), **given)


def test_a_monitor_without_steps_cannot_be_drawn():
    with pytest.raises(ValueError, match="no step yet"):
        EarlyStoppingDisplay.from_monitor(rc.RefinementMonitor())


losses = st.floats(0, 3, width=32)


@examples(20)
@given(
    st.integers(1, 40).flatmap(lambda n: arrays(np.float64, (2, n), elements=losses)),
    st.sampled_from(["page", "column"]),
)
def test_both_pictures_are_readable_whatever_the_curves(values, size):
    refinement, calibration = values
    steps = range(1, len(refinement) + 1)
    given = {"risk": refinement + calibration, "refinement": refinement}
    assert_readable(EarlyStoppingDisplay(steps, **given).plot(blank(size)).figure_)
    curve = TrainingCurveDisplay(steps, **given, calibration=calibration, chosen=1)
    assert_readable(curve.plot(blank(size)).figure_)


# ---- training curves on narrow axes ----------------------------------------------------------------------


def test_on_narrow_axes_labels_are_above_the_curves(monitor):
    display = monitor.plot(ax=blank("column"))
    display.figure_.draw_without_rendering()
    top = max(
        np.nanmax(line.get_ydata()) for name, line in display.lines_.items() if name != "chosen"
    )
    _, edge = display.ax_.transData.transform(
        (0, min(top, display.ax_.spines["left"].get_bounds()[1]))
    )
    for name, text in display.texts_.items():
        assert text.get_window_extent().y0 >= edge, name
    record = min(monitor.history, key=lambda record: record["risk"])
    said = f"risk: min {record['risk']:.4f} at step {record['step']}"
    assert display.texts_["risk"].get_text() == said


def test_curves_use_the_whole_width_of_narrow_axes(monitor):
    display = monitor.plot(ax=blank("column"))
    left, right = display.ax_.get_xlim()
    assert (20 - 1) / (right - left) > 0.9


def test_steps_have_the_name_that_is_given(monitor):
    display = TrainingCurveDisplay.from_monitor(monitor, blank(), step_name="round")
    assert display.ax_.get_xlabel() == "round"
    assert display.texts_["chosen"].get_text() == f"round {monitor.best_step}, chosen by refinement"
    assert f"at round {display.smallest['risk'][0]}" in display.texts_["risk"].get_text()


def test_a_steep_start_ends_below_the_text():
    steps = np.arange(1, 31)
    risk = 0.3 + 20 * np.exp(-steps / 2.0)
    display = TrainingCurveDisplay(
        steps, risk=risk, refinement=risk, calibration=risk * 0, chosen=30
    ).plot(blank("column"))
    display.figure_.draw_without_rendering()
    lowest_word = min(text.get_window_extent().y0 for text in display.texts_.values())
    assert display.lines_["risk"].get_clip_box().y1 <= lowest_word


def test_the_chosen_step_must_be_one_of_them():
    with pytest.raises(ValueError, match="chosen is 9, which is not among steps 1 to 2"):
        TrainingCurveDisplay([1, 2], risk=[1, 1], refinement=[1, 1], calibration=[0, 0], chosen=9)
