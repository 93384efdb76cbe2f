"""Names, columns and threads of calibrators, and isotonic regression; all others: test_calibrators_common."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

import refinecal as rc
from refinecal import temperature


def scores(n=200, seed=0):
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=n) * 3
    return (rng.random(n) < expit(odds / 2)).astype(int), odds


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
