"""Folds: what they depend on, and what they take from a splitter."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.model_selection import KFold
from strategies import drawn

import refinecal as rc
from refinecal._core.checks import check_sample
from refinecal.resampling import folds

PLAIN = rc.TemperatureScaling(laplace=False)


def out_of_fold(labels, **options):
    return rc.decompose(labels, cv=5, **options).refinement


def test_folds_by_number_do_not_depend_on_what_does_not_matter():
    labels, logits = drawn(300, 4, seed=0)
    rng = np.random.default_rng(1)
    base = out_of_fold(labels, logits=logits)
    shifted = logits + rng.normal(size=(300, 1))
    order, columns = rng.permutation(300), rng.permutation(4)
    assert out_of_fold(labels, logits=shifted) == pytest.approx(base, rel=1e-9)
    assert out_of_fold(labels, probs=softmax(logits, axis=1)) == pytest.approx(base, rel=1e-9)
    assert out_of_fold(labels[order], logits=logits[order]) == pytest.approx(base, rel=1e-9)
    renamed = np.argsort(columns)[labels]
    assert out_of_fold(renamed, logits=logits[:, columns]) == pytest.approx(base, rel=1e-9)
    assert out_of_fold(labels, logits=3 * logits) == pytest.approx(base, rel=1e-9)


def test_ties_with_weights_or_soft_labels_are_told_apart():
    rng = np.random.default_rng(0)
    logits = rng.integers(-1, 2, size=(120, 3)).astype(float)
    labels, order = rng.integers(3, size=120), rng.permutation(120)
    weights, soft = rng.integers(1, 4, size=120), rng.dirichlet([1, 1, 1], size=120)
    for y, options in ((labels, {"sample_weight": weights}), (soft, {})):
        moved = {name: value[order] for name, value in options.items()}
        ours = out_of_fold(y, logits=logits, **options)
        theirs = out_of_fold(y[order], logits=logits[order], **moved)
        assert ours == pytest.approx(theirs, rel=1e-9)


def test_folds_by_number_are_a_partition_of_even_sizes():
    labels, logits = drawn(103, 3, seed=0)
    sample = check_sample(labels, None, logits)
    pairs = folds(sample, 5, None)
    assert sorted(np.concatenate([test for _, test in pairs])) == list(range(103))
    for train, test in pairs:
        assert not set(train) & set(test)
        assert len(train) + len(test) == 103
        assert len(test) in (20, 21)


def test_a_splitter_keeps_its_own_training_rows():
    labels, logits = drawn(100, 3, seed=0)

    class Purged(KFold):
        def split(self, X, y=None, groups=None):
            for train, test in super().split(X, y, groups):
                yield train[:30], test

    pairs = list(Purged(5).split(logits))
    losses = np.empty(100)
    for train, test in pairs:
        beta = rc.fit_temperature(labels[train], logits[train]).beta
        probs = softmax(beta * logits[test], axis=1)
        losses[test] = -np.log(probs[np.arange(len(test)), labels[test]])
    for cv in (Purged(5), pairs):
        d = rc.decompose(labels, logits=logits, cv=cv, calibrator=PLAIN)
        assert d.refinement == pytest.approx(losses.mean(), rel=1e-9)
    assert d.refinement != rc.refinement_error(labels, logits=logits, cv=KFold(5), calibrator=PLAIN)


def test_weights_that_sum_to_one_are_warned_of_where_smoothing_counts_them():
    labels, logits = drawn(100, 3, seed=0)
    light = np.full(100, 0.01)
    for call in (
        lambda: rc.TemperatureScaling().fit_logits(logits, labels, light),
        lambda: rc.decompose(labels, logits=logits, cv=5, sample_weight=light),
    ):
        with pytest.warns(RuntimeWarning, match="sums to 1 over 100 rows.*Multiply"):
            call()
    same = rc.refinement_error(
        labels, logits=logits, sample_weight=light
    )  # no smoothing, no warning
    assert same == pytest.approx(rc.refinement_error(labels, logits=logits))
    loo = rc.refinement_error(labels, logits=logits, sample_weight=light, cv="loo")
    assert np.isfinite(loo)


class Broken:
    def __init__(self, answer):
        self.answer = answer

    def fit(self, probs, y):
        return self

    def predict_proba(self, probs):
        return self.answer(probs)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda p: 3 * p, "it must return probabilities that sum to 1"),
        (lambda p: p * np.nan, "it must return probabilities"),
        (lambda p: np.stack([p[:, 0] + 2, -p[:, 0] - 1, 0 * p[:, 0]], 1), "it must return prob"),
        (lambda p: p[:, :1], r"returned shape \(50, 1\), expected \(50, 3\)"),
    ],
)
def test_a_calibrator_that_returns_no_probabilities_is_refused(answer, message):
    labels, logits = drawn(50, 3, seed=0)
    with pytest.raises(ValueError, match=message):
        rc.decompose(labels, logits=logits, calibrator=Broken(answer))


def test_a_calibrator_without_weights_is_refused_if_there_are_some():
    labels, logits = drawn(50, 3, seed=0)
    with pytest.raises(TypeError, match="Broken.fit takes no sample_weight"):
        rc.decompose(labels, logits=logits, calibrator=Broken(lambda p: p), sample_weight=[2] * 50)


@pytest.mark.parametrize("k", [2, 3])
def test_mirrored_rows_are_folded_whatever_their_order(k):
    rng = np.random.default_rng(0)
    logits = np.round(rng.normal(size=(200, k)))
    logits -= logits.max(axis=1, keepdims=True)
    labels = rng.integers(k, size=200)
    order = rng.permutation(200)
    first = folds(check_sample(labels, None, logits), 5, None)
    moved = folds(check_sample(labels[order], None, logits[order]), 5, None)
    for (_, test), (_, other) in zip(first, moved, strict=True):
        rows = sorted(map(tuple, np.c_[logits, labels][test]))
        again = sorted(map(tuple, np.c_[logits, labels][order][other]))
        assert rows == again
