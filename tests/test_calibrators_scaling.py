"""Vector, matrix, Dirichlet, structured and ensemble scaling, against independent solvers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from strategies import drawn

import refinecal as rc
from refinecal._core.arrays import blas, in_one_thread
from refinecal.calibrators._newton import mixture_weights


def skewed(n, k, seed=0):
    """Labels, and logits whose classes are wrong in different ways."""
    labels, logits = drawn(n, k, seed)
    rng = np.random.default_rng(seed + 100)
    mixing = np.diag(rng.uniform(0.8, 2, k)) + 0.2 * rng.standard_normal((k, k))
    return labels, logits @ mixing.T + 0.5 * rng.standard_normal(k)


def targets(labels, k):
    return np.eye(k)[labels] if labels.ndim == 1 else labels


def linear_objective(features, rows, weights, ridge, centre):
    """Return the mean log loss of softmax(W f + b) plus ridge * (parameters - centre)**2, and its slope."""
    k, d = rows.shape[1], features.shape[1]
    full = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    shares = weights / weights.sum()

    def objective(flat):
        theta = flat.reshape(k, d + 1)
        logs = log_softmax(full @ theta.T, axis=1)
        loss = -shares @ (rows * logs).sum(axis=1) + (ridge * (theta - centre) ** 2).sum()
        slope = ((np.exp(logs) - rows) * shares[:, None]).T @ full + 2 * ridge * (theta - centre)
        return loss, slope.ravel()

    return objective


def linear_optimum(features, rows, weights, ridge, centre):
    """Minimise it with SciPy."""
    objective = linear_objective(features, rows, weights, ridge, centre)
    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 30}
    start = np.eye(rows.shape[1], features.shape[1] + 1).ravel()
    best = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return best.fun, objective


def vector_optimum(features, rows, weights, ridge):
    """Minimise the mean log loss of softmax(w * f + b) plus ridge * (|w - 1|**2 + |b|**2) with SciPy."""
    k = rows.shape[1]
    shares = weights / weights.sum()
    centre = np.repeat([1.0, 0.0], k)

    def objective(theta):
        logs = log_softmax(features * theta[:k] + theta[k:], axis=1)
        loss = -shares @ (rows * logs).sum(axis=1) + ridge * ((theta - centre) ** 2).sum()
        errors = (np.exp(logs) - rows) * shares[:, None]
        slope = np.concatenate([(errors * features).sum(axis=0), errors.sum(axis=0)])
        return loss, slope + 2 * ridge * (theta - centre)

    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 30}
    best = minimize(objective, centre, jac=True, method="L-BFGS-B", options=options)
    return best.fun, objective


def cases():  # from 32 classes on, penalised matrices are fitted in float32
    for k in (2, 3, 7, 34):
        yield k, False, False
    yield 2, True, True
    yield 4, True, False
    yield 4, False, True
    yield 33, True, True


def sample(k, weighted, soft):
    n = 30 * k + 300
    labels, logits = skewed(n, k)
    rng = np.random.default_rng(7)
    weights = rng.uniform(0.1, 3, n) if weighted else np.ones(n)
    if soft:
        labels = 0.8 * np.eye(k)[labels] + 0.2 * rng.dirichlet(np.ones(k), n)
    return labels, logits, weights


CASES = pytest.mark.parametrize(("k", "weighted", "soft"), list(cases()))


def with_strengths(strengths):
    """Combine penalties with cases; weak ones with few classes only, where the other solver ends in time."""
    few = [case for case in cases() if case[0] <= 7]
    pairs = [(strengths[0], *case) for case in cases()]
    pairs += [(strength, *case) for strength in strengths[1:] for case in few]
    return pytest.mark.parametrize(("strengths", "k", "weighted", "soft"), pairs)


@CASES
def test_vector_scaling_is_optimal(k, weighted, soft):
    labels, logits, weights = sample(k, weighted, soft)
    z = logits - logits.mean(axis=1, keepdims=True)
    best, objective = vector_optimum(z, targets(labels, k), weights, 0.0)
    fitted = rc.make_calibrator("vector").fit_logits(logits, labels, sample_weight=weights)
    found = objective(np.concatenate([fitted.scales_, fitted.intercepts_]))[0]
    assert abs(found - best) < 1e-9
    assert abs(fitted.intercepts_.sum()) < 1e-9
    assert fitted.n_parameters == 2 * k


@with_strengths([(1.0, 1.0), (0.0, 0.0), (5.0, 0.0)])
@pytest.mark.parametrize("name", ["matrix", "dirichlet"])
@pytest.mark.sweep(3)
def test_matrix_scaling_is_optimal(name, strengths, k, weighted, soft):
    off, shift = strengths
    labels, logits, weights = sample(k, weighted, soft)
    z = logits - logits.mean(axis=1, keepdims=True)
    if name == "dirichlet":
        z = log_softmax(logits, axis=1)
    ridge = np.full((k, k + 1), off * k / weights.sum())
    ridge[:, k] = shift * k / weights.sum()
    ridge[np.arange(k), np.arange(k)] = 0
    best, objective = linear_optimum(z, targets(labels, k), weights, ridge, 0.0)
    made = rc.make_calibrator(name, off_diagonal=off, intercept=shift)
    fitted = made.fit_logits(logits, labels, sample_weight=weights)
    found = objective(np.column_stack([fitted.matrix_, fitted.intercepts_]).ravel())[0]
    assert abs(found - best) < 1e-8
    assert fitted.n_parameters == k * k + k
    off_diagonal = fitted.matrix_ - np.diag(np.diag(fitted.matrix_))
    np.testing.assert_allclose(
        off_diagonal.sum(axis=0), 0, atol=1e-4
    )  # the smallest representative


def conditioned_optimum(features, labels, k, ridge):
    """Minimise as ``linear_optimum`` does, in parameters whose curvatures SciPy can handle."""
    n, full = len(features), np.column_stack([features, np.ones(len(features))])
    objective = linear_objective(features, np.eye(k)[labels], np.ones(n), ridge, 0.0)
    differences = np.kron(np.eye(k) - 1 / k, full / np.sqrt(n))
    stacked = np.concatenate([differences, np.diag(np.sqrt(ridge.ravel()))])
    _, sizes, turned = np.linalg.svd(stacked, full_matrices=False)
    basis = turned[sizes > 1e-13 * sizes[0]].T / sizes[sizes > 1e-13 * sizes[0]]

    def turned_objective(theta):
        value, slope = objective(basis @ theta)
        return value, basis.T @ slope

    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 30}
    start = np.zeros(basis.shape[1])
    best = minimize(turned_objective, start, jac=True, method="L-BFGS-B", options=options)
    return best.fun, objective


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-6, 1e-4, 1e-3, 0.1])
@pytest.mark.parametrize("shape", [(4, 3), (200, 3), (4, 12), (200, 12), (200, 20)])
@pytest.mark.parametrize("name", ["matrix", "dirichlet"])
def test_nearly_constant_predictions_are_fitted_to_the_minimum(name, shape, scale):
    rng = np.random.default_rng(2)
    signal = rng.normal(size=shape)
    n, k = shape
    labels = (signal + rng.gumbel(size=shape)).argmax(axis=1)
    for logits in (scale * signal, scale * signal + 0.5 * np.arange(k) * (name == "matrix")):
        z = logits - logits.mean(axis=1, keepdims=True)
        z = log_softmax(logits, axis=1) if name == "dirichlet" else z
        ridge = np.full((k, k + 1), k / n)
        ridge[np.arange(k), np.arange(k)] = 0
        best, objective = conditioned_optimum(z, labels, k, ridge)
        fitted = rc.make_calibrator(name, laplace=False).fit_logits(logits, labels)
        found = objective(np.column_stack([fitted.matrix_, fitted.intercepts_]).ravel())[0]
        assert abs(found - best) < 1e-8


@pytest.mark.parametrize("name", ["vector", "beta", "dirichlet"])
def test_two_classes_of_nearly_constant_predictions(name):
    rng = np.random.default_rng(2)
    signal = rng.normal(size=300)
    labels = (rng.random(300) < 1 / (1 + np.exp(-signal - 0.5))).astype(int)
    params = {"intercept": 0.0} if name == "dirichlet" else {}
    made = rc.make_calibrator(name, laplace=False, **params).fit_logits(1e-6 * signal, labels)
    affine = rc.make_calibrator("affine", laplace=False).fit_logits(signal, labels)
    rows = np.arange(300)
    found = -np.log(made.predict_proba_logits(1e-6 * signal)[rows, labels]).mean()
    line = -np.log(affine.predict_proba_logits(signal)[rows, labels]).mean()
    assert found <= line + 1e-9  # of scores that small, logarithms are lines


def tempered(logits, labels, weights):
    n, k = weights.sum(), logits.shape[1]
    beta = rc.fit_temperature(labels, logits, sample_weight=weights).beta
    return np.log(n / (n + 1) * softmax(beta * logits, axis=1) + 1 / (n + 1) / k)


@CASES
def test_structured_vector_scaling_is_optimal(k, weighted, soft):
    labels, logits, weights = sample(k, weighted, soft)
    z = tempered(logits, labels, weights)
    best, objective = vector_optimum(z, targets(labels, k), weights, k / weights.sum())
    made = rc.make_calibrator("structured-vector")
    fitted = made.fit_logits(logits, labels, sample_weight=weights)
    found = objective(np.concatenate([fitted.scales_, fitted.intercepts_]))[0]
    assert abs(found - best) < 1e-9
    assert fitted.n_parameters == 2 * k


@with_strengths([(1.0, 1.0, 1.0), (0.5, 3.0, 0.1), (0.0, 0.0, 0.0)])
def test_structured_matrix_scaling_is_optimal(strengths, k, weighted, soft):
    diagonal, off_diagonal, intercept = strengths
    labels, logits, weights = sample(k, weighted, soft)
    n = weights.sum()
    ridge = np.full((k, k + 1), off_diagonal * k * (k - 1) / n)
    ridge[:, k] = intercept * k / n
    ridge[np.arange(k), np.arange(k)] = diagonal * k / n
    z, rows = tempered(logits, labels, weights), targets(labels, k)
    best, objective = linear_optimum(z, rows, weights, ridge, np.eye(k, k + 1))
    fitted = rc.make_calibrator(
        "structured-matrix", diagonal=diagonal, off_diagonal=off_diagonal, intercept=intercept
    )
    fitted.fit_logits(logits, labels, sample_weight=weights)
    found = objective(np.column_stack([fitted.matrix_, fitted.intercepts_]).ravel())[0]
    assert abs(found - best) < 1e-8
    assert fitted.n_parameters == k * k + k


@pytest.mark.parametrize("name", ["vector", "structured-vector", "structured-matrix"])
def test_predictions_are_the_softmax_that_was_fitted(name):
    labels, logits = skewed(300, 4)
    fitted = rc.make_calibrator(name, laplace=False).fit_logits(logits, labels)
    z = logits - logits.mean(axis=1, keepdims=True)
    if name.startswith("structured"):
        z = tempered(logits, labels, np.ones(300))
    matrix = getattr(fitted, "matrix_", None)
    scores = z * fitted.scales_ if matrix is None else z @ matrix.T
    np.testing.assert_allclose(
        fitted.predict_proba_logits(logits), softmax(scores + fitted.intercepts_, axis=1), rtol=1e-9
    )


@pytest.mark.parametrize("name", ["structured-vector", "structured-matrix"])
def test_structured_scaling_shrinks_to_temperature(name):
    labels, logits = skewed(4000, 5)
    temperature = rc.TemperatureScaling(laplace=False)

    def distance(n):
        fitted = rc.make_calibrator(name, laplace=False).fit_logits(logits[:n], labels[:n])
        matrix = getattr(fitted, "matrix_", None)
        matrix = np.diag(fitted.scales_) if matrix is None else matrix
        return np.abs(matrix - np.eye(5)).max() + np.abs(fitted.intercepts_).max()

    assert distance(1) < 0.2 < distance(4000)
    strong = {"diagonal": 1e8, "intercept": 1e8}
    if name.endswith("matrix"):
        strong["off_diagonal"] = 1e8
    fitted = rc.make_calibrator(name, **strong, laplace=False).fit_logits(logits, labels)
    expected = temperature.fit_logits(logits, labels).predict_proba_logits(logits)
    smooth = 4000 / 4001 * expected + 1 / 4001 / 5
    np.testing.assert_allclose(fitted.predict_proba_logits(logits), smooth, rtol=1e-4)


def test_vector_scaling_of_two_classes_is_affine_scaling():
    labels, logits = skewed(300, 2)
    vector = rc.make_calibrator("vector").fit_logits(logits, labels)
    affine = rc.make_calibrator("affine").fit_logits(logits, labels)
    np.testing.assert_allclose(
        vector.predict_proba_logits(logits), affine.predict_proba_logits(logits), rtol=1e-9
    )


def test_many_classes_end_in_time():
    labels, logits = skewed(400, 300)  # most classes have one sample or none
    for name in ("vector", "structured-vector", "structured-matrix"):
        fitted = rc.make_calibrator(name).fit_logits(logits, labels)
        probs = fitted.predict_proba_logits(logits)
        assert np.isfinite(probs).all()
        np.testing.assert_allclose(probs.sum(axis=1), 1)


def blas_threads():
    return [library.num_threads for library in blas().lib_controllers]


def test_small_products_are_left_to_one_thread_and_the_setting_comes_back():
    before = blas_threads()
    with in_one_thread(1000):
        assert blas_threads() == [1] * len(before)
        with in_one_thread(1000), in_one_thread(10**12):
            pass
        assert blas_threads() == [1] * len(before)
    with pytest.raises(KeyError), in_one_thread(1000):
        raise KeyError
    labels, logits = skewed(200, 4)
    with ThreadPoolExecutor(4) as pool:  # fits that overlap
        made = [rc.make_calibrator("matrix") for _ in range(8)]
        fitted = list(pool.map(lambda one: one.fit_logits(logits, labels), made))
    assert blas_threads() == before
    for one in fitted:
        np.testing.assert_array_equal(one.matrix_, fitted[0].matrix_)


@pytest.mark.parametrize("strength", ["diagonal", "off_diagonal", "intercept"])
def test_bad_strengths_are_refused(strength):
    made = rc.make_calibrator("structured-matrix", **{strength: float("nan")})
    with pytest.raises(ValueError, match=f"{strength} is nan"):
        made.fit_logits(np.eye(3), [0, 1, 2])


# ---- ensemble temperature scaling --------------------------------------------------------------------------


def best_on_a_grid(parts, shares, steps=200):
    """Return the smallest mean log loss over all weights that are multiples of 1 / steps."""
    first, second = np.meshgrid(np.arange(steps + 1), np.arange(steps + 1), indexing="ij")
    inside = first + second <= steps
    weights = np.stack([first[inside], second[inside], steps - first[inside] - second[inside]])
    with np.errstate(divide="ignore"):
        return -(shares @ np.log(parts.T @ weights / steps)).max()


@pytest.mark.parametrize("seed", range(12))
def test_mixture_weights_are_optimal(seed):
    rng = np.random.default_rng(seed)
    parts = rng.beta(0.5 + seed % 3, 1, size=(3, 50))
    parts[2] = 0.3
    if seed % 4 == 0:
        parts[0, :3] = 0  # the first part alone has an infinite loss
    if seed % 5 == 0:
        parts[1] = parts[0]
    shares = rng.dirichlet(np.ones(50))
    weights = mixture_weights(parts, shares)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)
    slopes = (parts / (weights @ parts)) @ shares
    assert (
        slopes.max() <= 1 + 1e-8
    )  # optimal: no part would gain by more weight (Karush, Kuhn, Tucker)
    np.testing.assert_allclose(slopes[weights > 1e-6], 1, atol=1e-5)
    assert -(shares @ np.log(weights @ parts)) <= best_on_a_grid(parts, shares) + 1e-12


@pytest.mark.parametrize("soft", [False, True])
def test_ensemble_is_the_best_mixture(soft):
    labels, logits, weights = sample(4, True, soft)
    made = rc.make_calibrator("ensemble-temperature", laplace=False)
    fitted = made.fit_logits(logits, labels, sample_weight=weights)
    beta = rc.fit_temperature(labels, logits, sample_weight=weights).beta
    assert fitted.first_beta_ == pytest.approx(beta, rel=1e-9)
    tempered, given = softmax(beta * logits, axis=1), softmax(logits, axis=1)
    rows = targets(labels, 4) * weights[:, None] / weights.sum()

    def objective(flat):
        a, b = flat
        mixed = a * tempered + b * given + (1 - a - b) / 4
        return -(rows * np.log(np.maximum(mixed, 1e-12))).sum()

    constraint = {"type": "ineq", "fun": lambda flat: 1 - flat.sum()}
    best = minimize(
        objective,
        [0.4, 0.4],
        method="SLSQP",
        bounds=[(0, 1)] * 2,
        constraints=constraint,
        options={"ftol": 1e-14},
    )
    assert objective(fitted.weights_[:2]) <= best.fun + 1e-9
    mixed = fitted.weights_ @ np.stack([tempered, given, np.full_like(given, 0.25)]).reshape(3, -1)
    np.testing.assert_allclose(fitted.predict_proba_logits(logits).ravel(), mixed, rtol=1e-9)
    assert fitted.n_parameters == 3
