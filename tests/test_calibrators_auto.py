"""The calibrator that chooses: what it compares, how it weighs, and that it does no harm."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

import refinecal as rc
from refinecal._core.checks import check_sample
from refinecal._core.sample import Sample
from refinecal.calibrators import auto as module
from refinecal.calibrators.auto import cross_validate, deal_by_label


def binary(n, seed=0, shift=0.0, scale=1.0):
    """Return labels and log-odds that should be (odds - shift) / scale."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=n) * 2
    return (rng.random(n) < expit(true)).astype(int), true * scale + shift


def several(n, k, seed=0, map=lambda z: z):
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n, k)) * 2
    labels = (true + rng.gumbel(size=(n, k))).argmax(axis=1)
    return labels, map(true)


def loss(labels, probs):
    return -np.log(probs[np.arange(len(labels)), labels]).mean()


# ---- what it chooses -------------------------------------------------------------------------------------


def test_what_temperature_cannot_mend_is_mended():
    labels, odds = binary(3000, shift=1.5, scale=2)
    auto = rc.make_calibrator("auto").fit_logits(odds, labels)
    assert "temperature" not in auto.chosen_
    new, given = binary(20_000, seed=1, shift=1.5, scale=2)
    best = loss(new, np.c_[expit(-(given - 1.5) / 2), expit((given - 1.5) / 2)])
    assert loss(new, auto.predict_proba_logits(given)) < best + 0.003
    assert "clearly worse" in auto.reason_
    assert "temperature" in auto.reason_


def test_a_bent_map_is_followed():
    rng = np.random.default_rng(0)
    given = rng.uniform(-4, 4, size=6000)
    truth = np.where(given > 0, 0.75, 0.25)  # a step: no affine map of the log-odds
    labels = (rng.random(6000) < truth).astype(int)
    auto = rc.make_calibrator("auto").fit_logits(given, labels)
    assert set(auto.chosen_) <= {"spline", "venn-abers"}
    np.testing.assert_allclose(
        auto.predict_proba_logits([-2.0, 2.0])[:, 1], [0.25, 0.75], atol=0.03
    )


def test_classes_that_are_taken_for_each_other_are_told_apart():
    labels, logits = several(4000, 4, map=lambda z: z + np.array([0.0, 2.0, 0.0, 0.0]))
    auto = rc.make_calibrator("auto").fit_logits(logits, labels)
    assert "temperature" not in auto.chosen_
    new, given = several(4000, 4, 1, map=lambda z: z + np.array([0.0, 2.0, 0.0, 0.0]))
    best = loss(new, softmax(given - np.array([0.0, 2.0, 0.0, 0.0]), axis=1))
    assert loss(new, auto.predict_proba_logits(given)) < best + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("n", [25, 60, 200])
@pytest.mark.parametrize("k", [2, 5])
def test_on_small_sets_it_does_little_harm_where_temperature_is_right(n, k):
    new, given = several(4000, k, seed=99)
    gaps, excess = [], []
    for seed in range(12):
        labels, logits = several(n, k, seed)
        ours = rc.make_calibrator("auto").fit_logits(2 * logits, labels)
        plain = rc.TemperatureScaling().fit_logits(2 * logits, labels)
        after = loss(new, plain.predict_proba_logits(2 * given))
        gaps.append(loss(new, ours.predict_proba_logits(2 * given)) - after)
        excess.append(after - loss(new, softmax(given, axis=1)))
    raw = loss(new, softmax(2 * given, axis=1)) - loss(new, softmax(given, axis=1))
    noise = np.std(excess)  # by how much temperature scaling itself varies
    assert np.mean(gaps) < noise + 0.1 * raw


def test_few_rows_or_one_label_leave_temperature():
    labels, odds = binary(15)
    few = rc.make_calibrator("auto").fit_logits(odds, labels)
    assert few.chosen_ == ["temperature"]
    assert "too few rows" in few.reason_
    one = rc.make_calibrator("auto").fit_logits(odds, np.ones(15, int), classes=[0, 1])
    assert one.chosen_ == ["temperature"]
    plain = rc.TemperatureScaling().fit_logits(odds, labels)
    assert few.beta_ == plain.beta_
    np.testing.assert_array_equal(few.predict_proba_logits(odds), plain.predict_proba_logits(odds))


def test_many_classes_are_not_given_a_matrix():
    labels, logits = several(400, 70)
    auto = rc.make_calibrator("auto").fit_logits(logits, labels)
    assert auto.names_ == ["temperature", "structured-vector"]


# ---- how it weighs ---------------------------------------------------------------------------------------


def test_losses_are_those_of_other_folds():
    labels, odds = binary(120, scale=1.5)
    weights = np.random.default_rng(3).uniform(0.2, 2, size=120)
    rows, parts = deal_by_label(check_sample(labels, None, odds, weights), 4, 1000)
    auto = rc.make_calibrator("auto", cv=4).fit_logits(odds, labels, sample_weight=weights)
    for name, found in zip(auto.names_, auto.losses_, strict=True):
        sums = 0.0
        for part in parts.T:
            rest = parts.sum(axis=1) - part
            other = rc.make_calibrator(name).fit_logits(rows.logits, rows.labels, rest)
            probs = other.predict_proba_logits(rows.logits)
            sums -= part @ np.log(probs[np.arange(rows.n), rows.labels])
        assert found == pytest.approx(sums / weights.sum(), rel=1e-10)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.integers(1, 9)), min_size=2))
def test_every_copy_is_dealt_once(packs):
    odds, labels, counts = (np.array(column) for column in zip(*packs, strict=True))
    rows, parts = deal_by_label(check_sample(labels, None, odds.astype(float), counts), 4, 1000)
    for row, part in zip(range(rows.n), parts, strict=True):
        given = rows.logits[row, 1] - rows.logits[row, 0]
        own = (odds == given) & (labels == rows.labels[row])
        assert part.sum() == counts[own].sum()
    single = parts.sum(axis=1) == 1
    for label in np.unique(rows.labels):
        if single[rows.labels == label].all():
            assert np.ptp(parts[rows.labels == label].sum(axis=0)) <= 1
    repeated = check_sample(np.repeat(labels, counts), None, np.repeat(odds, counts).astype(float))
    again, others = deal_by_label(repeated, 4, 1000)
    np.testing.assert_array_equal(again.logits, rows.logits)
    np.testing.assert_array_equal(others, parts)


def test_fractions_and_few_rows_of_many():
    labels, odds = binary(100)
    rows, parts = deal_by_label(check_sample(labels, None, odds, np.full(100, 2.25)), 5, 60)
    assert rows.n == len(np.unique(rows.logits, axis=0)) == 60
    np.testing.assert_allclose(parts.sum(axis=1), 2.25)
    np.testing.assert_array_equal(np.sum(parts % 1, axis=1), 0.25)


def test_overfitting_shows_even_where_scores_are_tied():
    gaps = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        probs = (rng.integers(101, size=4000) + 0.5) / 101
        labels = (rng.random(4000) < probs).astype(int)
        auto = rc.make_calibrator("auto").fit(probs, labels)
        gaps.append(auto.losses_[-1] - auto.losses_[0])  # steps, against temperature
        assert "temperature" in auto.chosen_
    assert np.mean(gaps) > 0
    parts = deal_by_label(check_sample(labels, probs), 5, 1000)[1]
    variances = parts.var(axis=1, ddof=1) / (parts.sum(axis=1) / 5)  # of a multinomial, 1
    assert 0.8 < variances.mean() < 1.2


@pytest.mark.parametrize("levels", [3, 11])
def test_scores_of_few_levels_are_compared_fairly(levels):
    rng = np.random.default_rng(0)
    score = rng.integers(levels, size=5000)
    truth = np.linspace(0.2, 0.9, levels) ** 3  # nothing like the scores
    labels = (rng.random(5000) < truth[score]).astype(int)
    probs = (score + 0.5) / levels
    auto = rc.make_calibrator("auto").fit(probs, labels)
    assert "temperature" not in auto.chosen_
    shares = np.array([labels[score == level].mean() for level in range(levels)])
    after = auto.predict_proba((np.arange(levels) + 0.5) / levels)[:, 1]
    np.testing.assert_allclose(after, shares, atol=0.03)
    entropy = -np.average(
        truth * np.log(truth) + (1 - truth) * np.log(1 - truth),
        weights=np.bincount(score, minlength=levels),
    )
    assert auto.losses_.min() == pytest.approx(entropy, abs=0.02)  # not below what can be known


def test_weights_are_the_most_likely_given_what_was_thought_before():
    labels, odds = binary(300, shift=0.3, scale=1.3)
    sample = check_sample(labels, None, odds)
    auto = rc.make_calibrator("auto").fit_logits(odds, labels)
    families = [rc.make_calibrator(name) for name in auto.names_]
    losses, _ = cross_validate(families, sample, 5, 1)
    assert len(auto.chosen_) == 4
    share = 300 / (300 + 100)
    prior = np.full(4, share / 4) + (1 - share) * np.array([1, 0, 0, 0])

    def negative(w):
        return -np.log(np.exp(-losses) @ w).sum() - 10 * prior @ np.log(w)

    found = minimize(
        negative,
        np.full(4, 0.25),
        bounds=[(1e-6, 1)] * 4,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(auto.weights_, found.x, atol=1e-4)
    assert negative(auto.weights_) <= found.fun + 1e-9


def test_the_blend_is_the_weighted_mean_of_its_parts():
    labels, logits = several(300, 4)
    auto = rc.make_calibrator("auto").fit_logits(logits, labels)
    weights = auto.weights_[auto.weights_ > 0]
    assert weights.sum() == pytest.approx(1)
    parts = [one.predict_proba_logits(logits) for one in auto.calibrators_]
    expected = np.tensordot(weights, parts, axes=1)
    np.testing.assert_allclose(auto.predict_proba_logits(logits), expected, rtol=1e-12)
    total = sum(one.n_parameters for one in auto.calibrators_) + len(weights) - 1
    assert auto.n_parameters == total


def test_without_blending_the_simplest_within_noise_is_picked():
    labels, odds = binary(400)
    auto = rc.make_calibrator("auto", blend=False).fit_logits(odds, labels)
    near = auto.differences_ <= auto.errors_
    assert auto.chosen_ == [auto.names_[int(np.argmax(near))]]
    labels, odds = binary(3000, shift=1.5)
    assert rc.make_calibrator("auto", blend=False).fit_logits(odds, labels).chosen_ == ["affine"]


def test_standard_errors_by_hand():
    losses = np.array([[1.0, 2.0], [3.0, 3.0], [2.0, 5.0]])
    counts, labels = np.array([1.0, 1.0, 2.0]), np.array([0, 1, 1])
    auto = module.AutoCalibrator(blend=False)
    auto.names_ = ["simple", "flexible"]
    auto._weigh((losses, counts), Sample(labels, np.zeros((3, 2)), counts))
    gaps = np.array([1.0, 0.0, 3.0, 3.0])  # the last row twice
    np.testing.assert_allclose(auto.differences_, [0, gaps.mean()])
    np.testing.assert_allclose(auto.errors_, [0, gaps.std() / 2])


# ---- what must not matter --------------------------------------------------------------------------------


def test_a_weight_of_two_is_a_row_twice_and_order_does_not_matter():
    labels, logits = several(150, 3)
    counts = np.random.default_rng(5).integers(0, 4, size=150)
    weighted = rc.make_calibrator("auto").fit_logits(logits, labels, sample_weight=counts)
    rows = np.random.default_rng(6).permutation(np.repeat(np.arange(150), counts))
    repeated = rc.make_calibrator("auto").fit_logits(logits[rows], labels[rows])
    np.testing.assert_allclose(weighted.losses_, repeated.losses_, rtol=1e-8)
    np.testing.assert_allclose(weighted.errors_, repeated.errors_, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(
        weighted.predict_proba_logits(logits), repeated.predict_proba_logits(logits), rtol=1e-6
    )


def test_classes_in_another_order_give_the_same():
    labels, logits = several(200, 3)
    order = np.array([2, 0, 1])
    first = rc.make_calibrator("auto").fit_logits(logits, labels)
    moved = rc.make_calibrator("auto").fit_logits(logits[:, order], np.argsort(order)[labels])
    np.testing.assert_allclose(
        moved.predict_proba_logits(logits[:, order]),
        first.predict_proba_logits(logits)[:, order],
        rtol=1e-6,
    )


def test_soft_labels_are_never_half_known():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(80, 3))
    soft = softmax(2 * logits + rng.normal(size=(80, 3)), axis=1)
    sample = check_sample(soft, None, logits)
    rows, parts = deal_by_label(sample, 5, 1000)
    assert ((parts > 0).sum(axis=1) == 1).all()
    family = rc.TemperatureScaling()
    losses, counts = cross_validate([family], sample, 5, 1)
    sums = 0.0
    for part in parts.T:
        there = part > 0
        other = rc.TemperatureScaling().fit_logits(rows.logits[~there], rows.soft[~there])
        sums -= (rows.soft[there] * np.log(other.predict_proba_logits(rows.logits[there]))).sum()
    assert counts @ losses[:, 0] == pytest.approx(sums, rel=1e-10)


# ---- in use ----------------------------------------------------------------------------------------------


def test_it_says_what_it_chose_and_why():
    labels, odds = binary(500)
    auto = rc.make_calibrator("auto").fit_logits(odds, labels)
    text = auto.explain()
    assert all(name in text for name in auto.names_)
    assert max(map(len, text.splitlines()[1:])) <= 80
    assert "cross-validation" in text
    assert "%" in repr(auto)
    assert [one.weight for one in auto.scores()] == auto.weights_.tolist()


def test_own_candidates_by_name_or_object():
    labels, odds = binary(300)
    shaky = rc.make_calibrator("isotonic", laplace=True)
    auto = rc.make_calibrator("auto", candidates=["temperature", shaky]).fit_logits(odds, labels)
    assert auto.names_ == ["temperature", repr(shaky)]
    copy = rc.calibrators.from_json(auto.to_json())
    np.testing.assert_array_equal(copy.predict_proba_logits(odds), auto.predict_proba_logits(odds))
    only = rc.make_calibrator("auto", candidates=["affine"]).fit_logits(odds, labels)
    assert only.chosen_ == ["affine"]
    assert "only candidate" in only.reason_


class Halved:
    def fit(self, probs, y, sample_weight=None):
        return self

    def predict_proba(self, probs):
        return probs / 2 + 0.25


def test_candidates_from_elsewhere_can_be_used_but_not_written():
    labels, odds = binary(300)
    auto = rc.make_calibrator("auto", candidates=["temperature", Halved()]).fit_logits(odds, labels)
    assert len(auto.names_) == 2
    with pytest.raises(TypeError, match="not of this package"):
        auto.to_json()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"candidates": "temperature"}, "pass several names or calibrators"),
        ({"candidates": []}, "pass several names or calibrators"),
        ({"candidates": ["auto"]}, "cannot choose itself"),
        ({"candidates": ["tempo"]}, "calibrator is 'tempo'"),
        ({"cv": 1}, "cv is 1: it must be a whole number of at least 2"),
        ({"cv": "loo"}, "cv is 'loo'"),
    ],
)
def test_wrong_parameters_are_refused(params, message):
    labels, odds = binary(50)
    with pytest.raises(ValueError, match=message):
        rc.make_calibrator("auto", **params).fit_logits(odds, labels)


def test_the_decomposition_takes_it():
    labels, odds = binary(600, shift=1.0)
    plain, chosen = (
        rc.decompose(labels, logits=odds, calibrator=name) for name in ("temperature", "auto")
    )
    assert chosen.refinement < plain.refinement
    assert chosen.beta is None
    honest = rc.decompose(labels, logits=odds, calibrator="auto", cv=3)
    assert honest.refinement < plain.refinement


# ---- following a training --------------------------------------------------------------------------------


def stages(labels, logits):
    noise = np.random.default_rng(7).normal(size=logits.shape)
    return [0.3 * logits + 2 * noise, logits, 3 * logits + 2 * noise]


def test_a_monitor_compares_by_temperature_and_chooses_once(monkeypatch):
    labels, logits = several(300, 3, map=lambda z: z + np.array([0.0, 1.5, 0.0]))
    fits = []
    learn = module.AutoCalibrator._learn
    monkeypatch.setattr(
        module.AutoCalibrator, "_learn", lambda self, *given: fits.append(1) or learn(self, *given)
    )
    auto, plain = rc.RefinementMonitor(calibrator="auto"), rc.RefinementMonitor()
    buffer = np.empty_like(logits)
    for stage in stages(labels, logits):
        buffer[:] = stage  # which frameworks write over at the next step
        auto.update(labels, logits=buffer)
        plain.update(labels, logits=stage)
    assert not fits
    assert auto.best_step == plain.best_step == 1
    assert [r["refinement"] for r in auto.history] == [r["refinement"] for r in plain.history]
    expected = rc.make_calibrator("auto").fit_logits(logits, labels).predict_proba_logits(logits)
    np.testing.assert_array_equal(auto.calibrator.predict_proba_logits(logits), expected)
    assert auto.calibrator is auto.calibrator
    assert len(fits) == 2  # the monitor's and the one to compare with
    state = json.loads(json.dumps(auto.state_dict()))
    again = rc.RefinementMonitor(calibrator="auto")
    again.load_state_dict(state)
    np.testing.assert_array_equal(again.calibrator.predict_proba_logits(logits), expected)
    with pytest.raises(ValueError, match="same loss=, calibrator= and cv="):
        rc.RefinementMonitor().load_state_dict(state)


def test_leave_one_out_of_a_monitor_stays_that_of_temperature():
    labels, logits = several(60, 3)
    auto = rc.RefinementMonitor(calibrator="auto", cv="loo")
    auto.update(labels, logits=logits)
    assert auto.best_value == rc.refinement_error(labels, logits=logits, cv="loo")


def test_the_estimator_takes_it():
    from sklearn.datasets import make_classification
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, y = make_classification(900, n_informative=5, n_classes=3, random_state=0)
    model = rc.RefineThenCalibrateClassifier(
        HistGradientBoostingClassifier(),
        calibrator="auto",
        n_folds=None,
        max_steps=60,
        random_state=0,
    )
    model.fit(X, y)
    assert isinstance(model.calibrator_, module.AutoCalibrator)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_log_softmax_of_the_given_is_what_a_monitor_keeps():
    labels, logits = several(100, 3)
    probs = np.exp(log_softmax(logits, axis=1))
    monitor = rc.RefinementMonitor(calibrator="auto")
    monitor.update(labels, probs)
    expected = rc.make_calibrator("auto").fit(probs, labels).predict_proba(probs)
    np.testing.assert_allclose(monitor.calibrator.predict_proba(probs), expected, rtol=1e-12)


def test_given_weights_blend_without_comparing():
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(400, 3)) * 2
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    given = {"candidates": ["temperature", "vector"], "weights": [1, 3]}
    blend = rc.make_calibrator("auto", **given).fit_logits(logits, y)
    parts = [
        rc.make_calibrator(name).fit_logits(logits, y).predict_proba_logits(logits)
        for name in given["candidates"]
    ]
    expected = parts[0] / 4 + 3 * parts[1] / 4
    np.testing.assert_allclose(blend.predict_proba_logits(logits), expected, rtol=1e-12)
    assert blend.reason_ == "25% temperature + 75% vector: given weights"
    again = rc.calibrators.from_json(blend.to_json())
    np.testing.assert_array_equal(
        again.predict_proba_logits(logits), blend.predict_proba_logits(logits)
    )


@pytest.mark.parametrize("weights", [[1], [1, -1, 1, 1], [0, 0, 0, 0], [1, np.nan, 1, 1], 1.0])
def test_bad_weights_are_refused(weights):
    with pytest.raises(ValueError, match="weights is .*: it must hold 4 numbers of at least 0"):
        rc.make_calibrator("auto", weights=weights).fit_logits([1.0, -1.0] * 20, [0, 1] * 20)
