"""What every calibrator of the table of names must do, whatever its map."""

import doctest
import json
import pickle
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from strategies import drawn

import refinecal as rc
from refinecal.calibrators.base import ALIASES, KINDS

GUIDE = Path(__file__).parents[1] / "docs" / "calibrators.md"
ALL = [*KINDS, "affine-ovr", "isotonic-ovr", "beta-ovo"]
BINARY = {  # refuse more than two classes; "laplace" does because it wraps isotonic by default
    *("affine", "quadratic", "beta", "isotonic", "centred-isotonic", "venn-abers", "laplace"),
    *("cross-venn-abers", "uniform-mass", "uniform-width", "scaling-binning", "spline"),
}
MANY = [name for name in ALL if name not in BINARY]
DEALT = {  # rows are dealt out to parts, which a row of weight 2 or a soft label changes
    *("cross-venn-abers", "scaling-binning", "spline", "auto"),
}
WITH_INTERCEPT = {  # give the class frequencies where scores tell nothing
    *(
        "affine",
        "quadratic",
        "beta",
        "vector",
        "isotonic",
        "centred-isotonic",
    ),
    *("uniform-mass", "uniform-width", "spline", "one-vs-rest", "one-vs-one", "affine-ovr"),
}
NAMES = pytest.mark.parametrize("name", ALL)
PAIRS = [(name, 2) for name in ALL] + [(name, 4) for name in MANY]
CASES = pytest.mark.parametrize(("name", "k"), PAIRS)
SYMMETRIC = pytest.mark.parametrize(  # the others deal rows out in order of the score of class 1
    ("name", "k"), [pair for pair in PAIRS if pair[0] not in ("scaling-binning", "spline")]
)


def make(name, laplace=True):
    """Return a new calibrator, smoothed or not if that is its own choice."""
    try:
        return rc.make_calibrator(name, laplace=laplace)
    except TypeError:  # a wrapper
        return rc.make_calibrator(name)


@cache
def data(k, n=150):
    """Return labels, over-confident logits, and logits of new rows."""
    labels, logits = drawn(n, k, seed=k, spread=1.5, confidence=1.7)
    return labels, logits, 3 * np.random.default_rng(1).normal(size=(40, k))


@cache
def fitted(name, k):
    labels, logits, _ = data(k)
    return make(name).fit_logits(logits, labels)


def predict(calibrator, logits):
    """Return the probabilities, which must be such."""
    probs = calibrator.predict_proba_logits(logits)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-9)
    assert (probs >= 0).all()
    return probs


def same(name, one, other, k, rtol=1e-6):
    """Check that two calibrators map new rows alike."""
    new = data(k)[2]
    np.testing.assert_allclose(predict(one, new), predict(other, new), rtol=rtol, atol=1e-9)


# ---- what goes in ------------------------------------------------------------------------------------------


@CASES
def test_rows_sum_to_one_and_log_loss_is_finite(name, k):
    _, logits, new = data(k)
    for rows in (logits, new, 50 * new, new[:1]):
        assert np.isfinite(np.log(predict(fitted(name, k), rows))).all()


@CASES
def test_probabilities_and_shifted_logits_give_the_same_map(name, k):
    labels, logits, new = data(k)
    by_probs = make(name).fit(softmax(logits, axis=1), labels)
    same(name, by_probs, fitted(name, k), k)
    np.testing.assert_allclose(
        by_probs.predict_proba(softmax(new, axis=1)), predict(by_probs, new), rtol=1e-6, atol=1e-9
    )
    shifts = np.arange(len(logits))[:, None] % 7
    same(name, make(name).fit_logits(logits + shifts, labels), fitted(name, k), k)


@NAMES
def test_one_column_stands_for_two(name):
    labels, logits, new = data(2)
    odds = logits[:, 1] - logits[:, 0]
    same(name, make(name).fit_logits(odds, labels), fitted(name, 2), 2)
    np.testing.assert_allclose(
        predict(fitted(name, 2), new[:, 1] - new[:, 0]), predict(fitted(name, 2), new), rtol=1e-9
    )


@CASES
def test_the_order_of_rows_does_not_matter(name, k):
    labels, logits, _ = data(k)
    order = np.random.default_rng(5).permutation(len(labels))
    same(name, make(name).fit_logits(logits[order], labels[order]), fitted(name, k), k)


@CASES
def test_the_order_of_classes_does_not_matter(name, k):
    if name in (
        "scaling-binning",
        "spline",
    ):  # which deal rows out in order of the score of class 1
        return
    labels, logits, new = data(k)
    order = np.arange(k)[::-1]
    found = make(name).fit_logits(logits[:, order], k - 1 - labels)
    np.testing.assert_allclose(
        predict(found, new[:, order])[:, order], predict(fitted(name, k), new), rtol=1e-6, atol=1e-9
    )


@CASES
@pytest.mark.filterwarnings("ignore:sample_weight sums to")
@pytest.mark.parametrize(("power", "extreme"), [(-390, -1074), (390, 1018)])
def test_weights_that_count_as_no_row_or_as_infinitely_many(name, k, power, extreme):
    labels, logits = drawn(50, k, confidence=2.0)
    weights = np.random.default_rng(1).integers(0, 4, size=50).astype(np.float64)
    usual, scaled = (
        make(name).fit_logits(logits, labels, np.ldexp(weights, p)) for p in (power, extreme)
    )
    same(name, usual, scaled, k, rtol=1e-6)


@CASES
def test_weights_mean_repetition_and_rows_of_weight_zero_are_gone(name, k):
    labels, logits, _ = data(k)
    weights = np.random.default_rng(1).integers(0, 4, size=len(labels))
    weighted = make(name).fit_logits(logits, labels, sample_weight=weights)
    repeated = make(name).fit_logits(np.repeat(logits, weights, axis=0), np.repeat(labels, weights))
    assert weighted.n_samples_ == repeated.n_samples_ == weights.sum()
    loose = name in ("cross-venn-abers", "auto")  # copies of a row may be in different folds
    same(name, weighted, repeated, k, rtol=0.5 if loose else 1e-6)


@CASES
def test_soft_labels(name, k):
    labels, logits, _ = data(k)
    one_hot = make(name).fit_logits(logits, np.eye(k)[labels])
    same(name, one_hot, fitted(name, k), k, rtol=1e-9)
    soft = 0.8 * np.eye(k)[labels] + 0.2 / k
    found = make(name).fit_logits(logits, soft)
    assert np.isfinite(np.log(predict(found, logits))).all()
    if name not in DEALT:
        rows = np.repeat(np.arange(len(labels)), k)
        spread = make(name).fit_logits(
            logits[rows], np.tile(np.arange(k), len(labels)), soft.ravel()
        )
        same(name, found, spread, k)


@CASES
def test_precision_and_memory_layout_do_not_matter(name, k):
    labels, logits, _ = data(k)
    rounded = logits.astype(np.float32)
    single, double = (make(name).fit_logits(rounded.astype(t), labels) for t in (np.float32, float))
    same(name, single, double, k, rtol=1e-3)
    wide = np.zeros((len(labels), 2 * k))
    wide[:, ::2] = logits
    strided, frozen = wide[:, ::2], np.asfortranarray(logits)
    frozen.setflags(write=False)
    for given in (strided, frozen):
        same(name, make(name).fit_logits(given, labels), fitted(name, k), k, rtol=1e-12)
        np.testing.assert_array_equal(
            fitted(name, k).predict_proba_logits(given),
            fitted(name, k).predict_proba_logits(logits),
        )
    np.testing.assert_array_equal(strided, logits)


@CASES
def test_tensors_are_taken(name, k):
    torch = pytest.importorskip("torch")
    labels, logits, new = data(k)
    found = make(name).fit_logits(torch.tensor(logits), torch.tensor(labels))
    np.testing.assert_array_equal(
        found.predict_proba_logits(torch.tensor(new)), fitted(name, k).predict_proba_logits(new)
    )


@CASES
def test_columns_of_a_frame_are_matched_by_name(name, k):
    labels, logits, new = data(k)
    columns = list("abcd"[:k])
    frame = pd.DataFrame(softmax(logits, axis=1), columns=columns)
    found = make(name).fit(frame, np.array(columns)[labels])
    assert found.classes_.tolist() == columns
    fresh = pd.DataFrame(softmax(new, axis=1), columns=columns)
    np.testing.assert_array_equal(
        found.predict_proba(fresh[columns[::-1]]), found.predict_proba(fresh)
    )
    with pytest.raises(ValueError, match="has the columns"):
        found.predict_proba(fresh.rename(columns={"a": "x"}))


@NAMES
def test_classes_are_kept_in_the_order_of_the_columns(name):
    found = make(name).fit([0.9, 0.2, 0.8], ["yes", "no", "yes"])
    assert found.classes_.tolist() == ["no", "yes"]
    other = make(name).fit([0.9, 0.2, 0.8], ["a", "b", "a"], classes=["b", "a"])
    np.testing.assert_array_equal(other.predict_proba([0.3]), found.predict_proba([0.3]))
    assert other.classes_.tolist() == ["b", "a"]


@CASES
def test_wrong_input_is_refused_with_a_cure(name, k):
    labels, logits, _ = data(k)
    broken = logits.copy()
    broken[3, 0] = np.nan
    with pytest.raises(ValueError, match=r"logits\[3, 0\] is NaN: drop the rows"):
        make(name).fit_logits(broken, labels)
    with pytest.raises(ValueError, match="pass one label per prediction"):
        make(name).fit_logits(logits, labels[:-1])
    with pytest.raises(ValueError, match=f"y must lie in 0..{k - 1}"):
        make(name).fit_logits(logits, labels + 1)
    with pytest.raises(ValueError, match="sample_weight is zero everywhere"):
        make(name).fit_logits(logits, labels, np.zeros(len(labels)))
    with pytest.raises(ValueError, match="has 7 columns, but the calibrator was fitted with"):
        fitted(name, k).predict_proba_logits(np.zeros((2, 7)))
    with pytest.raises(ValueError, match="is NaN"):
        fitted(name, k).predict_proba_logits(np.full((2, k), np.nan))


@pytest.mark.parametrize("name", sorted(BINARY.intersection(ALL)))
def test_more_classes_are_refused_with_a_cure_that_works(name):
    labels, logits, new = data(4)
    with pytest.raises(ValueError, match="is for 2 classes, found 4: use calibrator=") as caught:
        make(name).fit_logits(logits, labels)
    cures = re.findall(r"'([a-z-]+)'", str(caught.value))
    assert any(cure.endswith("-ovr") for cure in cures)
    for cure in cures:
        predict(rc.make_calibrator(cure).fit_logits(logits, labels), new)


# ---- few rows, few classes, few scores ---------------------------------------------------------------------


def assert_usable(calibrator, k):
    """Check that predictions are probabilities, none of which is 0, and that it can be stored.

    Without smoothing of their own, wrappers may give a class without rows the tiny probability it came with.
    """
    _, logits, new = data(k)
    for rows in (logits, new, 100 * new if calibrator.laplace else new):
        assert np.isfinite(np.log(predict(calibrator, rows))).all()
    json.loads(calibrator.to_json())


@CASES
def test_a_class_without_rows(name, k):
    labels, logits, _ = data(k)
    kept = labels != 1
    assert_usable(make(name).fit_logits(logits[kept], labels[kept]), k)


@CASES
def test_only_one_class(name, k):
    logits = data(k)[1]
    assert_usable(make(name).fit_logits(logits, np.full(len(logits), k - 1)), k)


@CASES
def test_one_row_and_fewer_rows_than_classes(name, k):
    labels, logits, _ = data(k)
    for n in (1, 2, 3):
        assert_usable(make(name).fit_logits(logits[:n], labels[:n]), k)


@CASES
def test_separable_rows(name, k):
    labels, _, _ = data(k)
    for confidence in (1.0, 40.0):
        assert_usable(make(name).fit_logits(confidence * np.eye(k)[labels], labels), k)


@CASES
def test_scores_that_tell_nothing(name, k):
    labels = data(k)[0]
    frequencies = np.bincount(labels, minlength=k) / len(labels)
    found = make(name, laplace=False).fit_logits(np.zeros((len(labels), k)), labels)
    probs = predict(found, np.zeros((1, k)))[0]
    if name in WITH_INTERCEPT:
        inner = len(labels) if name.startswith("one") else np.inf  # smoothed within
        np.testing.assert_allclose(probs, frequencies, rtol=1e-5 + 3 / inner)
    assert_usable(make(name).fit_logits(np.zeros((len(labels), k)), labels), k)


@CASES
def test_equal_scores_of_every_kind(name, k):
    labels, logits, _ = data(k)
    assert_usable(make(name).fit_logits(np.round(logits), labels), k)


@CASES
def test_impossible_classes(name, k):
    labels, logits, new = data(k)
    logits, new = logits.copy(), new.copy()
    rows = np.arange(0, len(labels), 5)
    logits[rows, (labels[rows] + 1) % k] = -np.inf
    new[::3, 0] = -np.inf
    found = make(name).fit_logits(logits, labels)
    assert_usable(found, k)
    assert np.isfinite(np.log(predict(found, new))).all()
    assert np.isfinite(np.log(predict(fitted(name, k), new))).all()


@CASES
@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1e4, 1e150])
def test_tiny_and_huge_logits(name, k, scale):
    labels, logits, new = data(k)
    found = make(name).fit_logits(scale * logits, labels)
    assert np.isfinite(np.log(predict(found, scale * new))).all()
    assert_usable(found, k)


# ---- what comes out ----------------------------------------------------------------------------------------


@CASES
def test_calibration_of_over_confident_predictions_lowers_their_loss(name, k):
    labels, logits = drawn(600, k, seed=3, spread=1.5, confidence=3.0)
    fit, test = slice(0, 300), slice(300, 600)
    found = make(name).fit_logits(logits[fit], labels[fit]).predict_proba_logits(logits[test])
    before = -log_softmax(logits[test], axis=1)[np.arange(300), labels[test]].mean()
    assert -np.log(found[np.arange(300), labels[test]]).mean() < before


@CASES
@pytest.mark.parametrize("cv", [None, 3])
def test_every_calibrator_decomposes(name, k, cv):
    labels, logits, _ = data(k)
    found = rc.decompose(labels, logits=logits, calibrator=name, cv=cv)
    assert np.isclose(found.risk, found.calibration + found.refinement)
    assert 0 < found.refinement < np.inf
    if cv is None:
        assert found.calibration >= 0
        assert type(found.calibrator) is type(make(name))


@NAMES
def test_scikit_learn_sees_an_estimator(name):
    calibrator = make(name)
    with pytest.raises(NotFittedError, match="not fitted yet: call fit"):
        calibrator.predict_proba([0.5])
    with pytest.raises(NotFittedError):
        check_is_fitted(calibrator)
    check_is_fitted(fitted(name, 2))
    params = calibrator.get_params(deep=False)
    copy = clone(fitted(name, 2))
    assert repr(copy) == repr(calibrator)
    assert not hasattr(copy, "classes_")
    assert copy.set_params(**params) is copy
    with pytest.raises(ValueError, match="has no parameter 'smooth'"):
        calibrator.set_params(smooth=1)


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_what_others_call_them(alias):
    assert repr(rc.make_calibrator(alias)) == repr(rc.make_calibrator(ALIASES[alias]))
    assert alias in GUIDE.read_text(encoding="utf-8")


@NAMES
def test_names_stand_for_classes(name):
    calibrator = make(name)
    assert repr(calibrator).startswith(type(calibrator).__name__ + "(")
    assert repr(fitted(name, 2)).startswith(repr(calibrator))
    if name in KINDS:
        assert getattr(rc.calibrators, KINDS[name][1]) is type(calibrator)
    assert isinstance(fitted(name, 2).n_parameters, int)
    assert fitted(name, 2).n_parameters >= 1


@CASES
def test_a_second_fit_forgets_the_first(name, k):
    labels, logits, new = data(k)
    twice = make(name).fit_logits(-logits[:20], labels[:20]).fit_logits(logits, labels)
    np.testing.assert_array_equal(
        twice.predict_proba_logits(new), fitted(name, k).predict_proba_logits(new)
    )
    assert twice.to_dict() == fitted(name, k).to_dict()


@CASES
def test_pickle(name, k):
    new = data(k)[2]
    copy = pickle.loads(pickle.dumps(fitted(name, k)))
    np.testing.assert_array_equal(
        copy.predict_proba_logits(new), fitted(name, k).predict_proba_logits(new)
    )


def test_json_gives_equal_predictions_in_a_fresh_process(tmp_path):
    """All calibrators through one file, so that one process is started."""
    states = [fitted(name, k).to_json() for name, k in PAIRS]
    (tmp_path / "states.json").write_text(json.dumps(states))
    np.savez(tmp_path / "new.npz", **{str(k): data(k)[2] for k in (2, 4)})
    code = (
        "import json, numpy as np, refinecal as rc\n"
        "new = np.load('new.npz')\n"
        "fitted = [rc.calibrators.from_json(text) for text in json.load(open('states.json'))]\n"
        "found = [one.predict_proba_logits(new[str(len(one.classes_))]) for one in fitted]\n"
        "np.savez('found.npz', *found)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    with np.load(tmp_path / "found.npz") as found:
        for (name, k), probs in zip(PAIRS, found.values(), strict=True):
            expected = fitted(name, k).predict_proba_logits(data(k)[2])
            np.testing.assert_array_equal(probs, expected, err_msg=name)


# ---- what the guide says -----------------------------------------------------------------------------------


def test_the_examples_of_the_guide_print_what_it_shows():
    failed, tried = doctest.testfile(str(GUIDE), module_relative=False)
    assert tried > 10
    assert failed == 0


def test_the_table_of_the_guide_has_every_name_and_no_other():
    rows = re.findall(r"^\| `([a-z-]+)` \|", GUIDE.read_text(encoding="utf-8"), flags=re.M)
    assert sorted(rows) == sorted(KINDS)


def test_other_bases_of_a_subclass_are_not_cut_off():
    class Mixin:
        def __init_subclass__(cls, key="", **options):
            super().__init_subclass__(**options)
            cls.key = key

    class Mine(rc.TemperatureScaling, BaseEstimator, Mixin, key="a"):
        pass

    assert Mine.key == "a"
    assert hasattr(Mine, "set_fit_request")


@pytest.mark.parametrize("name", ["affine-ovo", "beta-ovo"])
def test_it_does_not_matter_where_arrays_lie_in_memory(name):
    """Compiled loops whose arrays may overlap look where they are, and have two ways to go."""
    _, logits, _ = data(4)
    rng, kept = np.random.default_rng(1), []
    expected = fitted(name, 4).predict_proba_logits(logits)
    for _ in range(3000):
        kept.append(np.empty(rng.integers(1, 700)))
        if len(kept) > 60:
            del kept[rng.integers(60)]
        np.testing.assert_array_equal(fitted(name, 4).predict_proba_logits(logits), expected)
