"""Names, columns and threads of calibrators, and isotonic regression; all others: test_calibrators_common."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

import refinecal as rc
from refinecal.temperature import fit as temperature


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
    with pytest.raises(ValueError, match="has the columns .* but was fitted with"):
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


# ---- states that were never written by us ----------------------------------------------------------------


def state_of(name="isotonic"):
    labels, odds = scores()
    return json.loads(rc.make_calibrator(name).fit_logits(odds, labels).to_json())


def changed(path, value, name="isotonic"):
    state = state_of(name)
    *first, last = path
    inner = state
    for part in first:
        inner = inner[part]
    inner[last] = value
    return state


@pytest.mark.parametrize(
    "state",
    [
        lambda: None,
        lambda: [],
        lambda: {"kind": "IsotonicCalibration"},
        lambda: changed(["kind"], ["x"]),
        lambda: changed(["kind"], "os.system"),
        lambda: changed(["params"], None),
        lambda: changed(["params"], {"nope": 1}),
        lambda: changed(["learned"], [1]),
        lambda: changed(["learned", "__class__"], "int"),
        lambda: changed(["learned", "fit"], 1),
        lambda: changed(["learned", "classes_"], {"dtype": "zzz", "values": [0, 1]}),
        lambda: changed(["learned", "classes_"], {"dtype": "<i8", "values": [1e308, 0]}),
        lambda: changed(["learned", "classes_"], {"dtype": "|O", "values": [0, 1]}),
        lambda: changed(["learned", "classes_"], {"dtype": "<U500000000", "values": ["a"] * 2000}),
        lambda: changed(["learned", "classes_"], {"dtype": "<i8", "values": [0, 0]}),
        lambda: changed(["learned", "classes_"], {"dtype": "<i8", "values": [3]}),
        lambda: changed(["learned", "classes_"], {"dtype": "<i8", "values": [[0, 1]]}),
        lambda: changed(["learned", "classes_"], [0, 1]),
        lambda: changed(["learned", "n_samples_"], -2.0),
        lambda: changed(["learned", "n_samples_"], None),
        lambda: changed(["learned", "n_samples_"], float("nan")),
        lambda: changed(["learned", "shares_", "values", 0], -1.0),
        lambda: changed(["learned", "shares_", "values", 1], 1.5),
        lambda: changed(["params", "laplace"], "yes"),
        lambda: changed(["learned", "shares_", "values"], []),
        lambda: changed(["learned", "log_odds_", "values"], [0.0]),
        lambda: changed(["learned", "beta_"], -2.0, "temperature"),
        lambda: changed(["learned", "slope_"], "steep", "affine"),
        lambda: changed(["learned", "names_"], None, "auto"),
        lambda: changed(["learned", "weights_", "values"], [2.0], "auto"),
        lambda: changed(["learned", "calibrators_"], [], "auto"),
        lambda: changed(["learned", "beta_"], 1.0, "auto"),
    ],
)
def test_a_damaged_state_is_refused(state):
    damaged = state()
    with pytest.raises(ValueError, match="calibrator"):
        rc.calibrators.from_dict(damaged)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "3", "null", b"\xff", '"x"', None, 3])
def test_what_is_not_the_json_of_a_calibrator_is_refused(text):
    with pytest.raises(ValueError, match="calibrator"):
        rc.calibrators.from_json(text)


@pytest.mark.parametrize("name", ["auto", "isotonic-ovr", "structured-matrix", "dirichlet"])
def test_weights_that_sum_to_one_are_warned_of(name):
    labels, odds = scores()
    calibrator = rc.make_calibrator(name)
    with pytest.warns(RuntimeWarning, match="sums to 1 over 200 rows"):
        calibrator.fit_logits(odds, labels, sample_weight=np.full(200, 1 / 200))
