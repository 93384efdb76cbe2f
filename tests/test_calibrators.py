"""Calibrators other than temperature, and what all of them share."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression
from sklearn.utils.validation import check_is_fitted

import refinecal as rc
from refinecal import temperature

NAMES = pytest.mark.parametrize("name", ["temperature", "isotonic"])


def scores(n=200, seed=0):
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=n) * 3
    return (rng.random(n) < expit(odds / 2)).astype(int), odds


@NAMES
def test_probabilities_and_logits_give_the_same_map(name):
    labels, odds = scores()
    by_logits = rc.make_calibrator(name).fit_logits(odds, labels).predict_proba_logits(odds)
    by_probs = rc.make_calibrator(name).fit(expit(odds), labels).predict_proba(expit(odds))
    np.testing.assert_allclose(by_logits, by_probs, rtol=1e-9)
    np.testing.assert_allclose(by_logits.sum(axis=1), 1, rtol=1e-12)


@NAMES
def test_weights_mean_repetition(name):
    labels, odds = scores(60)
    weights = np.random.default_rng(1).integers(0, 4, size=60)
    weighted = rc.make_calibrator(name).fit_logits(odds, labels, sample_weight=weights)
    repeated = rc.make_calibrator(name).fit_logits(
        np.repeat(odds, weights), np.repeat(labels, weights)
    )
    new = np.linspace(-8, 8, 50)
    np.testing.assert_allclose(
        weighted.predict_proba_logits(new), repeated.predict_proba_logits(new), rtol=1e-9
    )


@NAMES
def test_clone_and_parameters(name):
    calibrator = rc.make_calibrator(name, laplace=False)
    assert clone(calibrator).get_params() == {"laplace": False}
    assert calibrator.set_params(laplace=True).laplace
    with pytest.raises(ValueError, match="has no parameter 'smooth'"):
        calibrator.set_params(smooth=1)


@NAMES
def test_use_before_fit_and_wrong_width_are_refused(name):
    calibrator = rc.make_calibrator(name)
    with pytest.raises(ValueError, match="not fitted yet: call fit"):
        calibrator.predict_proba([0.5])
    calibrator.fit([0.2, 0.7], [0, 1])
    with pytest.raises(
        ValueError, match="probs has 3 columns, but the calibrator was fitted with 2"
    ):
        calibrator.predict_proba([[0.2, 0.3, 0.5]])


@NAMES
def test_classes_are_kept_in_the_order_of_the_columns(name):
    calibrator = rc.make_calibrator(name).fit([0.9, 0.2, 0.8], ["yes", "no", "yes"])
    assert calibrator.classes_.tolist() == ["no", "yes"]
    calibrator.fit([0.9, 0.2, 0.8], ["b", "a", "b"], classes=["a", "b"])
    assert calibrator.classes_.tolist() == ["a", "b"]


def test_isotonic_is_scikit_learns_between_the_scores_too():
    labels, odds = scores()
    ours = rc.make_calibrator("isotonic", laplace=False).fit_logits(odds, labels)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(odds, labels)
    new = np.linspace(-15, 15, 400)
    np.testing.assert_allclose(
        ours.predict_proba_logits(new)[:, 1], theirs.predict(new), atol=1e-12
    )


def test_isotonic_smoothing_by_hand():
    iso = rc.make_calibrator("isotonic").fit_logits([-1.0, 1.0], [0, 1])
    np.testing.assert_allclose(iso.predict_proba_logits([-9.0, 9.0])[:, 1], [0.5 / 3, 2.5 / 3])


def test_isotonic_takes_certain_predictions_and_one_class():
    iso = rc.make_calibrator("isotonic").fit([0.0, 0.3, 1.0, 1.0], [0, 1, 1, 1])
    assert np.isfinite(np.log(iso.predict_proba([0.0, 0.5, 1.0]))).all()
    one = rc.make_calibrator("isotonic").fit([0.3, 0.6], [1, 1]).predict_proba([0.1])
    np.testing.assert_allclose(one, [[0.5 / 3, 2.5 / 3]])


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'isotonic'"):
        rc.make_calibrator("isotonics")


@NAMES
def test_scikit_learn_sees_an_estimator(name):
    calibrator = rc.make_calibrator(name)
    with pytest.raises(NotFittedError):
        check_is_fitted(calibrator)
    check_is_fitted(calibrator.fit([0.2, 0.7], [0, 1]))
    copy = pickle.loads(pickle.dumps(calibrator))
    np.testing.assert_array_equal(copy.predict_proba([0.3]), calibrator.predict_proba([0.3]))


def test_columns_of_a_frame_are_matched_by_name():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.dirichlet([1, 1, 1], size=50), columns=["u", "v", "w"])
    scaling = rc.TemperatureScaling().fit(frame, rng.integers(3, size=50))
    np.testing.assert_array_equal(
        scaling.predict_proba(frame[["w", "u", "v"]]), scaling.predict_proba(frame)
    )
    with pytest.raises(ValueError, match="has the columns .* when it was fitted"):
        scaling.predict_proba(frame.rename(columns={"u": "x"}))
    with pytest.raises(ValueError, match="none of which is a label: pass classes="):
        scaling.fit(frame, np.array(["a", "b", "c"])[rng.integers(3, size=50)])


def test_threads_are_those_asked_for(monkeypatch):
    asked = []
    original = temperature.reader_of
    monkeypatch.setattr(
        temperature, "reader_of", lambda sample, threads: asked.append(threads) or original(sample)
    )
    labels, odds = scores()
    rc.decompose(labels, logits=odds, cv=3, n_threads=1)
    assert set(asked) == {1}
