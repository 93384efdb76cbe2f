"""What all parametric calibrators have in common: symmetries, weights, JSON, degenerate sets."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import example, given
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from scipy.stats import entropy
from strategies import drawn, examples, predictions

import refinecal as rc
from refinecal.calibrators import from_dict

ANY_K = ["vector", "matrix", "dirichlet", "structured-vector", "structured-matrix"]
ANY_K += ["ensemble-temperature"]
TWO = ["affine", "quadratic", "beta"]
NAMES = [(name, k) for name in ANY_K for k in (2, 4)] + [(name, 2) for name in TWO]
EACH = pytest.mark.parametrize(("name", "k"), NAMES)


def sample(k, n=150, seed=0):
    labels, logits = drawn(n, k, seed, confidence=1.7)
    return labels, logits + 0.4 * np.random.default_rng(seed + 9).standard_normal(k)


def fit(name, logits, labels, sample_weight=None, **params):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="logits look like probabilities")
        return rc.make_calibrator(name, **params).fit_logits(logits, labels, sample_weight)


def loss_of(fitted, logits, labels):
    probs = fitted.predict_proba_logits(logits)
    return -np.log(probs[np.arange(len(labels)), labels]).mean()


def constant_loss(labels, k, strength):
    """Return the smallest log loss of a constant map, plus the penalty of its intercepts."""
    shares = np.bincount(labels, minlength=k) / len(labels)
    if strength == 0:
        return entropy(shares)

    def objective(shifts):
        return -shares @ log_softmax(shifts) + strength * (shifts @ shifts)

    return minimize(objective, np.zeros(k), options={"gtol": 1e-9}).fun


@EACH
def test_json_gives_equal_predictions(name, k):
    labels, logits = sample(k)
    fitted = fit(name, logits, labels)
    copy = from_dict(json.loads(json.dumps(fitted.to_dict(), allow_nan=False)))
    assert type(copy) is type(fitted)
    np.testing.assert_array_equal(
        copy.predict_proba_logits(logits), fitted.predict_proba_logits(logits)
    )


@EACH
def test_weights_mean_repetition(name, k):
    labels, logits = sample(k)
    weights = np.random.default_rng(1).integers(0, 4, size=len(labels))
    weighted = fit(name, logits, labels, sample_weight=weights)
    repeated = fit(name, np.repeat(logits, weights, axis=0), np.repeat(labels, weights))
    np.testing.assert_allclose(
        weighted.predict_proba_logits(logits), repeated.predict_proba_logits(logits), rtol=1e-6
    )


@EACH
def test_permuting_classes_permutes_the_result(name, k):
    labels, logits = sample(k)
    order = np.roll(np.arange(k), 1)
    plain = fit(name, logits, labels)
    moved = fit(name, logits[:, order], np.argsort(order)[labels])
    np.testing.assert_allclose(
        moved.predict_proba_logits(logits[:, order]),
        plain.predict_proba_logits(logits)[:, order],
        rtol=1e-6,
    )


@EACH
def test_rows_may_be_shifted_and_reordered(name, k):
    labels, logits = sample(k)
    rng = np.random.default_rng(2)
    order = rng.permutation(len(labels))
    shifted = logits + rng.normal(size=(len(labels), 1)) * 10
    plain = fit(name, logits, labels)
    moved = fit(name, shifted[order], labels[order])
    np.testing.assert_allclose(
        moved.predict_proba_logits(shifted), plain.predict_proba_logits(logits), rtol=1e-6
    )


@EACH
def test_logits_and_probabilities_give_the_same_map(name, k):
    labels, logits = sample(k)
    probs = softmax(logits, axis=1)
    by_probs = rc.make_calibrator(name).fit(probs, labels).predict_proba(probs)
    np.testing.assert_allclose(
        by_probs, fit(name, logits, labels).predict_proba_logits(logits), rtol=1e-6
    )


@EACH
def test_soft_labels_count_as_shares_of_rows(name, k):
    labels, logits = sample(k, 60)
    soft = 0.7 * np.eye(k)[labels] + 0.3 * np.random.default_rng(3).dirichlet(np.ones(k), 60)
    by_soft = fit(name, logits, soft).predict_proba_logits(logits)
    spread = fit(
        name, np.repeat(logits, k, axis=0), np.tile(np.arange(k), 60), sample_weight=soft.ravel()
    )
    np.testing.assert_allclose(by_soft, spread.predict_proba_logits(logits), rtol=1e-6)


@EACH
def test_float32_read_only_and_strided_logits(name, k):
    labels, logits = sample(k)
    logits = logits.astype(np.float32)
    expected = fit(name, logits.astype(np.float64), labels).predict_proba_logits(logits)
    strided = np.repeat(np.repeat(logits, 2, axis=0), 2, axis=1)[::2, ::2]
    strided.flags.writeable = False
    found = fit(name, strided, labels).predict_proba_logits(strided)
    np.testing.assert_allclose(found, expected, rtol=2e-5)


@pytest.mark.parametrize("scale", [1e30, 1e-4, 1e-6, 100.0])
@EACH
def test_the_size_of_logits_does_not_matter(name, k, scale):
    labels, logits = sample(k)
    if name in ("beta", "dirichlet", "ensemble-temperature"):  # these start from the probabilities,
        found = loss_of(fit(name, logits * scale, labels, laplace=False), logits * scale, labels)
        best = rc.fit_temperature(labels, logits * scale).loss
        assert found <= best + 1e-9  # but can do, without a penalty, what temperature scaling does
        return
    free = {"off_diagonal": 0, "intercept": 0} if name == "matrix" else {}
    plain = fit(name, logits, labels, **free)
    sized = fit(name, logits * scale, labels, **free)
    np.testing.assert_allclose(
        sized.predict_proba_logits(logits * scale), plain.predict_proba_logits(logits), rtol=1e-5
    )


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e300])
@EACH
def test_logits_of_any_size_give_a_map(name, k, scale):
    labels, logits = sample(k)
    fitted = fit(name, logits * scale, labels, laplace=False)
    fitted.to_json()  # refuses what is not finite
    uniform = np.log(k) + 1e-3  # structured scaling is smoothed on its way
    assert loss_of(fitted, logits * scale, labels) <= uniform


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e200])
@EACH
@pytest.mark.filterwarnings("ignore:sample_weight sums to")
def test_weights_of_any_size(name, k, scale):
    labels, logits = sample(k)
    weights = np.random.default_rng(6).uniform(0.5, 2, len(labels))
    sized = fit(name, logits, labels, sample_weight=weights * scale, laplace=False)
    found = sized.predict_proba_logits(logits)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    if sized._counts_rows():  # the penalties are those of as many rows: none, or nothing but them
        many = fit(name, logits, labels, sample_weight=weights * 1e9, laplace=False)
        few = fit(name, logits, labels, sample_weight=weights * 1e-9, laplace=False)
        expected = (many if scale > 1 else few).predict_proba_logits(logits)
    else:
        plain = fit(name, logits, labels, sample_weight=weights, laplace=False)
        expected = plain.predict_proba_logits(logits)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def degenerate(k):
    rng = np.random.default_rng(4)
    labels, logits = sample(k, 40)
    yield "separable", labels, 5.0 * np.eye(k)[labels] + 0.1 * rng.random((40, k))
    yield "always wrong", labels, -5.0 * np.eye(k)[labels]
    yield "one class only", np.zeros(40, int), logits
    yield "a class missing", np.minimum(labels, k - 2), logits
    yield "constant", labels, np.zeros((40, k))
    yield "constant and not flat", labels, np.tile(np.arange(k) * 1.0, (40, 1))
    yield "one row", labels[:1], logits[:1]
    yield "huge", labels, logits * 1e30
    yield "huger", labels, logits * 1e300
    yield "tiny", labels, logits * 1e-30
    yield "far apart", labels, logits * np.where(np.arange(40) % 2, 1e-8, 1e8)[:, None]
    impossible = logits.copy()
    impossible[np.arange(40), (labels + 1) % k] = -np.inf
    yield "impossible and right", labels, impossible
    yield "impossible and wrong", (labels + (np.arange(40) % 5 == 0)) % k, impossible
    certain = np.where(np.eye(k)[labels] > 0, 0, -np.inf)
    yield "certain and right", labels, certain
    yield "certain and wrong", (labels + (np.arange(40) % 3 == 0)) % k, certain


@pytest.mark.parametrize(
    ("name", "k"), [(n, k) for n, k in NAMES if k == 2] + [(n, 5) for n in ANY_K]
)
def test_degenerate_sets_give_finite_maps_without_a_warning(name, k):
    for why, labels, logits in degenerate(k):
        fitted = fit(name, logits, labels)
        fitted.to_json()  # refuses what is not finite
        probs = fitted.predict_proba_logits(logits)
        assert (probs > 0).all(), why  # Laplace
        np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12, err_msg=why)
        flat = -np.log(probs[np.arange(len(labels)), labels]).mean()
        assert flat < np.log(k) + 0.05, why  # no worse than knowing nothing
        plain = fit(name, logits, labels, laplace=False)
        np.testing.assert_allclose(plain.predict_proba_logits(logits).sum(axis=1), 1, rtol=1e-12)
        assert loss_of(plain, logits, labels) <= simplest(name, logits, labels, k) + 1e-8, why


def simplest(name, logits, labels, k):
    """Return a loss that the best member of the family cannot exceed: that of some constant maps."""
    if name == "ensemble-temperature":
        return np.log(k)
    if name.startswith("structured"):  # the identity, after the first step
        if not np.abs(logits).max() < 1e99:  # beyond, logits are cut
            return np.log(k) + 0.05
        return loss_of(fit("temperature", logits, labels), logits, labels)
    strength = k / len(labels) if name in ("matrix", "dirichlet") else 0.0
    return constant_loss(labels, k, strength)


@pytest.mark.parametrize("name", ANY_K)
def test_fewer_rows_than_classes(name):
    labels, logits = sample(30, 12)
    probs = fit(name, logits, labels).predict_proba_logits(logits)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)
    assert np.isfinite(np.log(probs)).all()


@pytest.mark.parametrize("name", ANY_K)
@examples(25)
@given(predictions())
@example((np.array([0, 0, 1]), np.array([[0.0, 0, -1, -1], [0, 2, 1, 3], [0, -3, -1, 2]])))
def test_fits_end_on_any_small_set(name, sample):
    labels, logits = sample
    fitted = fit(name, logits, labels)
    probs = fitted.predict_proba_logits(logits)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("name", ["vector", "matrix", "ensemble-temperature"])
@examples(25)
@given(predictions())
def test_no_worse_than_temperature_scaling(name, sample):
    """Without a penalty the larger family can only win, up to the tolerance of the fit."""
    labels, logits = sample
    free = {"off_diagonal": 0, "intercept": 0} if name == "matrix" else {}
    fitted = rc.make_calibrator(name, laplace=False, **free)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="logits look like probabilities")
        fitted.fit_logits(logits, labels)
        best = rc.fit_temperature(labels, logits).loss
    at_label = fitted.predict_proba_logits(logits)[np.arange(len(labels)), labels]
    assert -np.log(at_label).mean() <= best + 1e-9
