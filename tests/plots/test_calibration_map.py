"""The calibration map: what is drawn is what the calibrator does, and the words fit it."""

import math

import numpy as np
import pytest
from pictures import assert_readable, blank
from scipy.special import expit, logit, softmax
from sklearn.linear_model import LogisticRegression
from strategies import drawn

import refinecal as rc
from refinecal.plots import CalibrationMapDisplay, map_probabilities


def temperature(beta, k=2):
    """Return temperature scaling with this beta and no smoothing."""
    fitted = rc.TemperatureScaling(laplace=False).fit_logits(np.zeros((k, k)), np.arange(k))
    fitted.beta_ = beta
    return fitted


class Maps:
    """A calibrator of two classes given by a function of the probability of the second."""

    def __init__(self, function):
        self.function = function

    def predict_proba(self, probs):
        share = self.function(probs[:, 1])
        return np.stack([1 - share, share], axis=1)


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_the_map_of_a_temperature_is_its_formula(beta):
    found = map_probabilities(temperature(beta))
    with np.errstate(divide="ignore"):
        expected = expit(beta * logit(found.before))  # sigmoid(beta * log-odds)
    np.testing.assert_allclose(found.after, expected, atol=1e-12)
    assert (found.before[0], found.before[-1]) == (0, 1)


def test_the_map_of_several_classes_shares_the_rest_evenly():
    beta, k = 0.5, 4
    found = map_probabilities(temperature(beta, k))
    assert math.isclose(found.before[0], 1 / k)
    rest = (1 - found.before) / (k - 1)
    expected = found.before**beta / (found.before**beta + (k - 1) * rest**beta)
    np.testing.assert_allclose(found.after, expected, atol=1e-12)
    assert found.spread_of == ""  # all classes are treated alike


def test_classes_that_are_treated_differently_show_as_a_range():
    class Favours:
        def predict_proba(self, probs):
            odds = probs * [1, 2, 4]
            return odds / odds.sum(axis=1, keepdims=True)

    found = map_probabilities(Favours(), n_classes=3)
    p = found.before
    rest = (1 - p) / 2
    expected = [p * w / (p * w + rest * (7 - w)) for w in (1, 2, 4)]
    np.testing.assert_allclose(found.low, np.min(expected, axis=0))
    np.testing.assert_allclose(found.after, np.median(expected, axis=0))
    np.testing.assert_allclose(found.high, np.max(expected, axis=0))
    display = CalibrationMapDisplay(found).plot(blank("column"))
    assert display.band_ is not None
    assert_readable(display.figure_)


def test_actual_predictions_of_several_classes_are_followed():
    y, logits = drawn(900, 3, confidence=3)
    fitted = rc.TemperatureScaling().fit_logits(logits, y)
    found = map_probabilities(fitted, logits=logits)
    probs, made = softmax(logits, axis=1), fitted.predict_proba_logits(logits)
    order = np.argsort(probs.max(axis=1))
    top = probs.argmax(axis=1)
    bins = np.array_split(order, 30)  # 30 rows each
    np.testing.assert_allclose(found.before, [probs.max(axis=1)[one].mean() for one in bins])
    after = [made[one, top[one]] for one in bins]
    np.testing.assert_allclose(found.after, np.median(after, axis=1))
    np.testing.assert_allclose(found.low, np.percentile(after, 5, axis=1))
    np.testing.assert_allclose(found.high, np.percentile(after, 95, axis=1))
    assert found.histogram.sum() == 900


@pytest.mark.parametrize("how", ["probs", "logits"])
def test_predictions_of_two_classes_fill_the_strip(how):
    y, logits = drawn(500, 2, confidence=2)
    fitted = rc.TemperatureScaling().fit_logits(logits, y)
    given = {how: logits if how == "logits" else softmax(logits, axis=1)}
    found = map_probabilities(fitted, **given)
    expected, _ = np.histogram(softmax(logits, axis=1)[:, 1], 20, (0, 1))
    assert found.histogram.tolist() == expected.tolist()
    assert found.after.tolist() == map_probabilities(fitted).after.tolist()


WORDS = [
    (lambda: temperature(0.5), "temperature 2.00\noverconfident: probabilities pulled in"),
    (lambda: temperature(2.0), "temperature 0.50\nunderconfident: probabilities pushed out"),
    (lambda: temperature(1.01), "temperature 0.99\nhardly changed"),
    (lambda: temperature(1e-3), "temperature 1e+03\noverconfident: probabilities pulled in"),
    (lambda: temperature(0.0), "no better than chance:\nall classes equally likely"),
    (lambda: temperature(rc.temperature.MAX_BETA), "never wrong: probabilities pushed to 0 and 1"),
    (lambda: Maps(lambda p: 0.5 + 0.5 * (p - 0.5)), "overconfident: probabilities pulled in"),
    (lambda: Maps(lambda p: (p > 0.5).astype(float)), "underconfident: probabilities pushed out"),
    (lambda: Maps(lambda p: p), "hardly changed"),
    (lambda: Maps(lambda p: np.clip(p + 0.05, 0, 1)), "probabilities shifted"),
]


@pytest.mark.parametrize(("make", "words"), WORDS)
def test_words_say_what_happens(make, words):
    calibrator = make()
    assert map_probabilities(calibrator).words == words
    display = CalibrationMapDisplay.from_calibrator(calibrator, ax=blank("column"))
    assert display.ax_.get_title(loc="left") == words
    assert_readable(display.figure_)


def test_words_are_about_the_predictions_that_are_made():
    bends = Maps(lambda p: np.where(p > 0.9, 1.0, p))  # changes nothing below 0.9
    assert map_probabilities(bends, [0.3, 0.6]).words == "hardly changed"
    assert map_probabilities(bends, [0.95, 0.92]).words.startswith("underconfident")


def test_what_is_drawn_is_the_map():
    y, logits = drawn(300, 2)
    fitted = rc.make_calibrator("isotonic").fit_logits(logits, y)
    display = CalibrationMapDisplay.from_calibrator(fitted, logits=logits, ax=blank())
    assert display.line_.get_xdata().tolist() == display.map.before.tolist()
    assert display.line_.get_ydata().tolist() == display.map.after.tolist()
    expected = fitted.predict_proba(display.map.before)[:, 1]
    np.testing.assert_allclose(display.map.after, expected, atol=1e-12)
    assert display.strip_ is not None
    assert display.legend_ is None
    assert display.ax_.get_xlabel() == "probability of class 1 before calibration"


def test_the_second_class_is_named():
    fitted = rc.TemperatureScaling().fit([0.2, 0.9, 0.6], ["no", "yes", "no"])
    display = CalibrationMapDisplay.from_calibrator(fitted, ax=blank())
    assert display.ax_.get_xlabel() == "probability of class 'yes' before calibration"


def test_any_model_that_maps_probabilities_is_drawn():
    y, logits = drawn(300, 3)
    probs = softmax(logits, axis=1)
    model = LogisticRegression().fit(probs, y)
    display = CalibrationMapDisplay.from_calibrator(model, probs, ax=blank())
    assert display.map.n_classes == 3
    assert len(display.map.before) == math.isqrt(300)
    assert_readable(display.figure_)


def test_one_prediction_is_a_dot():
    display = CalibrationMapDisplay.from_calibrator(
        temperature(0.5, 3), [[0.2, 0.7, 0.1]], ax=blank()
    )
    assert display.line_.get_marker() == "o"
    assert display.map.before.round(9).tolist() == [0.7]


class Wrong:
    def __init__(self, found):
        self.found = found

    def predict_proba(self, probs):
        return np.full((len(probs), 2), self.found) if np.ndim(self.found) == 0 else self.found


@pytest.mark.parametrize(
    ("args", "options", "error", "match"),
    [
        ((3,), {}, TypeError, "calibrator is 3: pass a fitted object"),
        ((rc.TemperatureScaling,), {}, TypeError, "pass a fitted object"),
        ((temperature(1.0), []), {}, ValueError, "probs is empty"),
        ((temperature(1.0), [0.5, np.nan]), {}, ValueError, r"probs\[1\] is NaN"),
        ((temperature(1.0), [0.5]), {"logits": [0.5]}, TypeError, "found both"),
        ((temperature(1.0), np.eye(3)), {}, ValueError, "disagree on the number of classes: 2, 3"),
        ((temperature(1.0),), {"n_classes": 3}, ValueError, "disagree .*: 3, 2"),
        ((Wrong(0.5),), {"n_classes": 1}, ValueError, "there is 1 class"),
        ((Wrong(np.nan),), {}, ValueError, "Wrong.predict_proba returned values outside"),
        ((Wrong(1.5),), {}, ValueError, "which are not probabilities"),
        (
            (Wrong(np.ones((3, 2))),),
            {},
            ValueError,
            r"returned shape \(3, 2\), expected \(201, 2\)",
        ),
    ],
)
def test_bad_input_is_refused_with_the_reason(args, options, error, match):
    with pytest.raises(error, match=match):
        map_probabilities(*args, **options)


def test_a_calibrator_that_is_not_fitted_says_so():
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError, match="not fitted yet"):
        map_probabilities(rc.TemperatureScaling())
