"""The five terms: their sum, their bounds, and their definitions by brute force."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.dummy import DummyClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit

import refinecal as rc

TERMS = ("risk", "calibration", "refinement", "sharpness", "uncertainty")


@st.composite
def predictions(draw, max_k=4):
    """Integer logits make ties and separable sets common."""
    n, k = draw(st.integers(1, 12)), draw(st.integers(2, max_k))
    logits = draw(
        st.lists(st.lists(st.integers(-4, 4), min_size=k, max_size=k), min_size=n, max_size=n)
    )
    labels = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    return np.array(labels), np.array(logits, dtype=float)


def overconfident(n=300, k=3, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, k)) * 2
    labels = (truth + rng.gumbel(size=(n, k))).argmax(axis=1)
    return labels, 2 * truth + rng.normal(size=(n, k))


def mean_log_loss(labels, logits):
    return -log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean()


def test_terms_against_brute_force():
    labels, logits = overconfident()
    d = rc.decompose(labels, logits=logits)
    best = minimize_scalar(lambda b: mean_log_loss(labels, b * logits), (0.1, 1), tol=1e-14)
    shares = np.bincount(labels) / len(labels)
    assert d.risk == pytest.approx(mean_log_loss(labels, logits), rel=1e-13)
    assert d.refinement == pytest.approx(best.fun, rel=1e-12)
    assert d.uncertainty == pytest.approx(-(shares * np.log(shares)).sum(), rel=1e-13)
    assert d.calibrator.beta_ == pytest.approx(best.x, rel=1e-6)


@given(predictions(), st.sampled_from(["log", "brier", "spherical"]))
def test_terms_sum_to_the_risk_and_refining_never_hurts(sample, loss):
    labels, logits = sample
    d = rc.decompose(labels, logits=logits, loss=loss)
    assert d.calibration + d.uncertainty - d.sharpness == pytest.approx(
        d.risk, rel=1e-14, abs=1e-14
    )
    assert d.calibration >= 0
    assert np.isfinite([getattr(d, term) for term in TERMS]).all()


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_terms_sum_to_the_risk_at_every_scale(scale):
    labels, logits = overconfident()
    d = rc.decompose(labels, logits=logits * scale)
    assert d.calibration + d.refinement == pytest.approx(d.risk, rel=1e-15)
    assert d.refinement == pytest.approx(rc.refinement_error(labels, logits=logits), rel=1e-9)


@pytest.mark.filterwarnings("ignore:without row:RuntimeWarning")
@given(predictions(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(sample, random):
    labels, logits = sample
    order = np.array(random.sample(range(len(labels)), len(labels)))
    for cv in (None, 2, "loo"):
        if cv is not None and len(labels) < 4:
            continue
        ours, theirs = (
            rc.refinement_error(labels[rows], logits=logits[rows], cv=cv)
            for rows in (slice(None), order)
        )
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)


def test_probabilities_and_logits_agree():
    labels, logits = overconfident()
    ours = rc.decompose(labels, softmax(logits, axis=1))
    theirs = rc.decompose(labels, logits=logits)
    for term in TERMS:
        assert getattr(ours, term) == pytest.approx(getattr(theirs, term), rel=1e-9)


def test_the_short_names_are_the_terms():
    labels, logits = overconfident()
    d = rc.decompose(labels, logits=logits, loss="brier", cv=5)
    assert rc.refinement_error(labels, logits=logits, loss="brier", cv=5) == d.refinement
    assert rc.calibration_error(labels, logits=logits, loss="brier", cv=5) == d.calibration


def test_brier_refinement_fits_on_log_loss_and_evaluates_brier():
    labels, logits = overconfident()
    d = rc.decompose(labels, logits=logits, loss="brier")
    probs = softmax(rc.fit_temperature(labels, logits).beta * logits, axis=1)
    expected = ((probs - np.eye(3)[labels]) ** 2).sum(axis=1).mean()
    assert d.refinement == pytest.approx(expected, rel=1e-12)


def test_isotonic_refinement_is_scikit_learns_smoothed():
    labels, logits = overconfident(k=2)
    odds = logits[:, 1] - logits[:, 0]
    share = IsotonicRegression(out_of_bounds="clip").fit_transform(odds, labels)
    n = len(labels)
    smooth = (n * share + 0.5) / (n + 1)
    d = rc.decompose(labels, logits=logits, calibrator="isotonic")
    assert d.refinement == pytest.approx(log_loss(labels, smooth), rel=1e-12)
    assert d.refinement < rc.refinement_error(labels, logits=logits)


def test_isotonic_is_finite_on_separable_folds():
    labels = np.repeat([0, 1], 20)
    d = rc.decompose(labels, logits=np.linspace(-3, 3, 40), calibrator="isotonic", cv=4)
    assert np.isfinite(d.refinement)


def test_isotonic_refuses_many_classes():
    labels, logits = overconfident()
    with pytest.raises(ValueError, match="for 2 classes, found 3: use calibrator='isotonic-ovr'"):
        rc.decompose(labels, logits=logits, calibrator="isotonic")


def test_any_object_with_fit_and_predict_proba_calibrates():
    labels, logits = overconfident()
    probs = softmax(logits, axis=1)
    model = LogisticRegression(C=10)
    d = rc.decompose(labels, probs, calibrator=model)
    expected = log_loss(labels, LogisticRegression(C=10).fit(probs, labels).predict_proba(probs))
    assert d.refinement == pytest.approx(min(expected, d.risk), rel=1e-9)
    assert isinstance(d.calibrator, LogisticRegression)
    assert not hasattr(model, "coef_")  # the user's own object is left alone


def test_a_useless_calibrator_cannot_make_refinement_exceed_the_risk():
    labels, logits = overconfident()
    d = rc.decompose(labels, logits=0.5 * logits, calibrator=DummyClassifier(strategy="uniform"))
    assert d.refinement == d.risk


def test_a_class_missing_from_a_fold_does_not_crash():
    labels, logits = overconfident(n=40)
    labels[labels == 2] = 0
    labels[0] = 2  # one row only: one fold trains without the class
    with np.errstate(all="raise"):
        d = rc.decompose(labels, logits=logits, cv=4)
    assert np.isfinite(d.refinement)
    with pytest.warns(RuntimeWarning, match="refinement is infinite: out of fold"):
        d = rc.decompose(labels, logits=logits, calibrator=LogisticRegression(), cv=4)
    assert d.refinement == np.inf


def test_a_splitter_gives_the_out_of_fold_loss():
    labels, logits = overconfident()
    splitter = KFold(5, shuffle=True, random_state=0)
    losses = np.empty(len(labels))
    for train, test in splitter.split(logits):
        ts = rc.TemperatureScaling().fit_logits(logits[train], labels[train])
        probs = ts.predict_proba_logits(logits[test])
        losses[test] = -np.log(probs[np.arange(len(test)), labels[test]])
    d = rc.decompose(labels, logits=logits, cv=splitter)
    assert d.refinement == pytest.approx(losses.mean(), rel=1e-9)
    assert d.calibrator.beta_ == pytest.approx(rc.fit_temperature(labels, logits).beta)


def test_groups_stay_together():
    labels, logits = overconfident()
    groups = np.arange(len(labels)) // 7
    seen = []

    class Watch(GroupKFold):
        def split(self, X, y=None, groups=None):
            for train, test in super().split(X, y, groups):
                seen.append(set(groups[train]) & set(groups[test]))
                yield train, test

    rc.decompose(labels, logits=logits, cv=Watch(4), groups=groups)
    assert seen == [set()] * 4
    with pytest.raises(ValueError, match="groups= needs a splitter"):
        rc.decompose(labels, logits=logits, cv=4, groups=groups)
    with pytest.raises(ValueError, match="groups has 3 entries"):
        rc.decompose(labels, logits=logits, cv=GroupKFold(2), groups=[1, 2, 3])


def test_folds_by_number_estimate_new_data():
    """Five folds and leave-one-out agree, and both exceed the in-sample loss by about 1/n."""
    corrections = []
    for seed in range(10):
        labels, logits = overconfident(n=200, seed=seed)
        plain = rc.refinement_error(labels, logits=logits)
        loo = rc.refinement_error(labels, logits=logits, cv="loo")
        five = rc.decompose(
            labels, logits=logits, cv=5, calibrator=rc.TemperatureScaling(laplace=False)
        )
        corrections.append((loo - plain, five.refinement - plain))
    loo, five = np.mean(corrections, axis=0)
    assert 0.5 / 200 < loo < 2 / 200
    assert 0.3 * loo < five < 3 * loo


def test_bad_cross_validation_is_refused():
    labels, logits = overconfident(n=20)
    with pytest.raises(ValueError, match=r"cv is 1: the number of folds must lie in 2\.\.20"):
        rc.decompose(labels, logits=logits, cv=1)
    with pytest.raises(ValueError, match="it must be 'loo', a number of folds or a splitter"):
        rc.decompose(labels, logits=logits, cv="kfold")
    with pytest.raises(ValueError, match="exactly one test fold"):
        rc.decompose(labels, logits=logits, cv=ShuffleSplit(3, random_state=0))
    with pytest.raises(TypeError, match="cv is 2.5"):
        rc.decompose(labels, logits=logits, cv=2.5)
    with pytest.raises(ValueError, match="cv='loo' is for temperature"):
        rc.decompose(labels % 2, logits=logits[:, :2], calibrator="isotonic", cv="loo")


def test_no_better_than_chance_means_no_sharpness():
    labels = np.array([0, 1] * 20)
    logits = np.tile([[3.0, 0.0], [0.0, -3.0]], (20, 1))  # always class 0
    d = rc.decompose(labels, logits=logits)
    assert d.beta == 0
    assert d.refinement == pytest.approx(np.log(2))
    assert d.sharpness == pytest.approx(0, abs=1e-15)


def test_printed_form_and_dictionary():
    labels, logits = overconfident()
    d = rc.decompose(labels, logits=logits)
    text = repr(d)
    assert f"{d.refinement:.5f}" in text
    assert "overconfident" in text
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(json.dumps(d.to_dict()))["refinement"] == d.refinement
    assert set(TERMS) <= set(d.to_dict())


# ---- the true probabilities, in simulations ---------------------------------------------------------------


@pytest.mark.parametrize("loss", ["log", "brier", "spherical"])
def test_all_terms_of_figure_2_add_up_when_the_truth_is_known(loss):
    rng = np.random.default_rng(0)
    truth = rng.dirichlet([1, 1, 1], size=400)
    probs = rng.dirichlet([2, 2, 2], size=20)[np.repeat(np.arange(20), 20)]
    d = rc.decompose(truth, probs, loss=loss, true_probs=truth)  # labels in expectation
    entropy = rc.losses.get_loss(loss).entropy(truth).mean()
    assert d.irreducible == pytest.approx(entropy, rel=1e-12)
    assert d.grouping + d.irreducible == pytest.approx(d.refinement, rel=1e-12)
    assert d.calibration + d.grouping == pytest.approx(d.reducible, rel=1e-12)
    assert d.risk == pytest.approx(d.calibration + d.grouping + d.irreducible, rel=1e-12)
    assert d.grouping > 0
    assert {"irreducible", "grouping", "reducible"} <= set(d.to_dict())
    assert "grouping" in repr(d)
    assert "irreducible" in repr(d)


def test_the_true_probabilities_lose_nothing_against_themselves():
    rng = np.random.default_rng(1)
    truth = rng.dirichlet([1, 1, 1], size=500)
    d = rc.decompose(truth, truth, true_probs=truth)
    assert d.reducible == pytest.approx(0, abs=1e-12)
    assert d.grouping == pytest.approx(0, abs=1e-9)  # beta = 1 is best


def test_the_noise_of_labels_cancels_in_the_grouping_loss():
    rng = np.random.default_rng(2)
    truth = rng.random(2000)
    seen = np.where(truth < 0.5, 0.25, 0.75)  # the model sees one bit of it
    errors = []
    exact = rc.decompose(np.c_[1 - truth, truth], seen, true_probs=truth).grouping
    for _ in range(20):
        labels = (rng.random(2000) < truth).astype(int)
        d = rc.decompose(labels, seen, true_probs=truth)
        assert d.irreducible == pytest.approx(log_loss(labels, truth), rel=1e-12)
        errors.append(d.grouping - exact)
    assert np.abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(20) + 1e-3


def test_without_the_truth_there_is_no_grouping_loss():
    d = rc.decompose([0, 1, 1], [0.2, 0.6, 0.7])
    assert d.irreducible is d.grouping is d.reducible is None
    assert "grouping" not in d.to_dict()


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ([0.2, 0.5], "true_probs has shape .* 3 predictions of 2 classes"),
        ([0.2, 0.5, np.nan], r"true_probs\[2\] is NaN"),
        ([0.2, 0.5, 1.5], r"true_probs\[2\] is 1.5, which is not a probability"),
        ([[0.2, 0.2, 0.6]] * 3, "true_probs has shape"),
        ([[0.2, 0.2]] * 3, r"true_probs\[0\] sums to 0.4"),
    ],
)
def test_wrong_true_probabilities_are_named(truth, message):
    with pytest.raises(ValueError, match=message):
        rc.decompose([0, 1, 1], [0.2, 0.6, 0.7], true_probs=truth)


@pytest.mark.filterwarnings("ignore:the log loss is infinite:RuntimeWarning")
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("cv", [None, 5, "loo"])
def test_votes_of_a_forest_are_refined_though_some_say_never(k, cv):
    """Votes of few trees, and one label that no tree voted for: about as good as isotonic regression."""
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(0.7 * np.ones(k), size=4000)
    labels = (truth.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    votes = np.array([rng.multinomial(20, p) for p in truth]) / 20
    never = votes[np.arange(4000), labels] == 0
    assert never.sum() > 5
    found = rc.decompose(labels, votes, cv=cv)
    assert found.risk == np.inf
    assert found.sharpness > 0.25 * found.uncertainty
    assert found.smoothing == 4000
    assert "of probabilities mixed with uniform ones, 4000 to 1" in repr(found)
    name = "isotonic" if k == 2 else "isotonic-ovr"
    nonparametric = rc.decompose(labels, votes, calibrator=name, cv=5).refinement
    assert found.refinement < 1.05 * nonparametric
    plain = rc.decompose(labels[~never], votes[~never], cv=cv)
    assert plain.smoothing == 0


@pytest.mark.filterwarnings("ignore:the log loss is infinite:RuntimeWarning")
def test_certain_predictions_that_are_mostly_right_are_better_than_chance():
    labels = np.arange(400) % 2
    said = np.where(np.arange(400) < 60, 1 - labels, labels)
    assert "a label has probability 0" in repr(rc.decompose(labels, said, loss="brier"))
    assert "no better than chance" in repr(rc.decompose(labels, 0.7 - 0.4 * labels, loss="brier"))
