"""The fused loops against plain NumPy, and that against 50 digits."""

import ast
import importlib
import inspect
import math
import re
from copy import copy
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from numba.core.dispatcher import Dispatcher
from strategies import NumpyReader

import refinecal
from refinecal._core.sample import Sample, label_gaps
from refinecal._kernels import temperature
from refinecal.temperature.fit import KernelReader, fit_temperature, row_derivatives
from refinecal.temperature.torch import TorchReader

DTYPES = [np.float32, np.float64]
CLASSES = [2, 3, 10, 99, 100, 101, 127, 128, 129, 130, 500, 1001]  # around TILE, WIDE and odd ones
ROWS = [1, 2, 3, 127, 128, 129, 300]
READERS = [2, 3, 10, 128, 129, 500]  # one number of classes or more for each block of the kernel


def make(n, k, dtype=np.float64, weighted=False, soft=False, seed=0, spread=1.0):
    rng = np.random.default_rng([seed, n, k])
    logits = (spread * rng.standard_normal((n, k))).astype(dtype)
    weights = rng.exponential(size=n) if weighted else None
    rows = rng.dirichlet(np.full(k, 0.3), size=n) if soft else None
    return Sample(rng.integers(0, k, n), logits, weights, rows)


def kernel_sums(sample, beta):
    """Return the sums of weights, losses and a, b, c, d."""
    return np.array(temperature.read(*KernelReader(sample).arrays, beta))


def rounded(beta, dtype):
    """Return beta as the kernel rounds it: beta / log 2 is a number of that type."""
    return float(dtype(beta / math.log(2))) * math.log(2)


def twin_sums(sample, beta):
    weights = np.ones(sample.n) if sample.weights is None else sample.weights
    parts = [weights @ (part * beta**m) for m, part in enumerate(row_derivatives(sample, beta))]
    return np.array([weights.sum(), *parts])


def sizes(sample, beta):
    """Return the scale of the rounding errors of each sum, in units of the type's epsilon.

    A power x^m is off by m roundings; an exponential of x by |x|; so the moment of order m by that of
    order m + 1. The label's own term x_iy enters loss and slope as it is.
    """
    weights = np.ones(sample.n) if sample.weights is None else sample.weights
    logits = sample.logits.astype(np.float64)
    x = np.minimum(beta * (logits.max(axis=1, keepdims=True) - logits), 1e4)
    probs = np.exp(-x) / np.exp(-x).sum(axis=1, keepdims=True)
    moments = [weights @ (probs * x**m).sum(axis=1) for m in range(6)]
    label = weights @ np.abs(beta * label_gaps(sample))
    orders = [moments[m] + moments[m + 1] for m in range(5)]
    # The exponential stops short of underflow, at 2^-126 or 2^-1022: times x^4, still nothing.
    orders = np.array(orders) + 1e-20 / np.finfo(sample.logits.dtype).eps
    return np.array([weights.sum(), orders[0] + label, orders[1] + label, *orders[2:]])


# ---- the exponential -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "lowest"), [(np.float32, -126), (np.float64, -1022)])
def test_exponential_within_two_roundings(dtype, lowest):
    rng = np.random.default_rng(0)
    t = np.concatenate(
        [
            rng.uniform(lowest, 0, 200_000),
            -np.exp(rng.uniform(-40, 0, 20_000)),  # tiny arguments
            np.nextafter(
                np.arange(lowest, 0) + 0.5, -np.inf
            ),  # where the rounding to an integer turns
            np.nextafter(np.arange(lowest, 0) + 0.5, np.inf),
        ]
    ).astype(dtype)
    out = np.empty_like(t)
    temperature.fill_exp2(t, out)
    truth = np.exp2(t.astype(np.longdouble))
    assert np.max(np.abs(out / truth - 1)) < 2 * np.finfo(dtype).eps


@pytest.mark.parametrize(("dtype", "lowest"), [(np.float32, -126), (np.float64, -1022)])
def test_exponential_against_50_digits(dtype, lowest):
    t = np.random.default_rng(1).uniform(lowest, 0, 300).astype(dtype)
    out = np.empty_like(t)
    temperature.fill_exp2(t, out)
    pairs = zip(out, t, strict=True)
    with mpmath.workdps(50):
        errors = [abs(mpmath.mpf(float(o)) / mpmath.mpf(2) ** float(x) - 1) for o, x in pairs]
    assert max(errors) < 2 * np.finfo(dtype).eps


@pytest.mark.parametrize(("dtype", "lowest"), [(np.float32, -126), (np.float64, -1022)])
def test_whole_powers_of_two_are_exact(dtype, lowest):
    t = np.arange(lowest, 1).astype(dtype)
    out = np.empty_like(t)
    temperature.fill_exp2(t, out)
    np.testing.assert_array_equal(out, [math.ldexp(1.0, int(i)) for i in t])


# ---- the sums --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "k",
    [pytest.param(k, marks=pytest.mark.slow) if k in (99, 101, 500, 1001) else k for k in CLASSES],
)
def test_kernel_equals_twin(dtype, k):
    eps = np.finfo(dtype).eps
    for i, n in enumerate(ROWS):
        for weighted, soft in [(False, False), (True, False), (False, True), (True, True)]:
            sample = make(n, k, dtype, weighted, soft)
            for turn in (0, 2) if k > 200 else (0, 2, 3):
                beta = rounded([1e-6, 0.03, 1.0, 30.0, 1e6][(i + turn) % 5], dtype)
                error = np.abs(kernel_sums(sample, beta) - twin_sums(sample, beta))
                assert np.all(error <= 64 * eps * sizes(sample, beta)), (n, weighted, soft, beta)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [2, 5, 150])
def test_a_wide_range_of_logits(dtype, k):
    for power in (-20, -6, 0, 6, 20):
        sample = make(50, k, dtype, spread=10.0**power)
        for beta in (1e-6, 1.0, 1e6):
            error = np.abs(kernel_sums(sample, beta) - twin_sums(sample, beta))
            scale = sizes(sample, beta)
            eps = 64 * np.finfo(dtype).eps + 1e-7 * (dtype == np.float32)  # beta itself is rounded
            assert np.all(error <= eps * scale), (power, beta)


@pytest.mark.parametrize("k", [2, 3, 10, 150])
@pytest.mark.parametrize("soft", [False, True])
def test_sums_are_derivatives_to_50_digits(k, soft):
    """mpmath differentiates the loss itself; d/ds of L(beta (1 + s)) is beta times dL/dbeta, and so on."""
    sample, beta = make(3, k, soft=soft, seed=4), 0.7
    rows = np.eye(k)[sample.labels] if sample.soft is None else sample.soft

    def loss(b):
        total = mpmath.mpf(0)
        for z, q in zip(sample.logits.tolist(), rows.tolist(), strict=True):
            total += mpmath.log(mpmath.fsum(mpmath.exp(b * v) for v in z))
            total -= b * mpmath.fsum(p * v for p, v in zip(q, z, strict=True))
        return total

    with mpmath.workdps(50):
        want = [beta**m * v for m, v in enumerate(mpmath.diffs(loss, mpmath.mpf(beta), 4))]
    want = [sample.n, *map(float, want)]
    np.testing.assert_allclose(kernel_sums(sample, beta), want, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(twin_sums(sample, beta), want, rtol=1e-12, atol=1e-13)
    single = Sample(sample.labels, sample.logits.astype(np.float32), None, sample.soft)
    np.testing.assert_allclose(kernel_sums(single, beta), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("k", READERS)
def test_saturated_rows_keep_their_relative_accuracy(k):
    """All right, by a margin of x in each row: the loss is log(1 + (k - 1) e^-x), its slope -x e^-x ..."""
    for x in (1.0, 30.0, 100.0, 600.0):
        logits = np.zeros((7, k))
        logits[:, 1] = x
        sums = kernel_sums(Sample(np.ones(7, np.int64), logits), 1.0) / 7
        with mpmath.workdps(50):
            e = (k - 1) * mpmath.exp(-x)
            p = e / (1 + e)  # probability of all the others together: a Bernoulli variable times -x
            v = p * (1 - p)
            want = [-x * p, x**2 * v, x**3 * v * (2 * p - 1), x**4 * v * (1 - 6 * v)]
            want = [float(value) for value in want]
            loss = float(mpmath.log1p(e))
        # Central moments are computed from raw ones, whose sizes are p x^m: exact enough relative to these.
        for m, (got, wanted) in enumerate(zip(sums[2:], want, strict=True), start=1):
            assert got == pytest.approx(wanted, rel=1e-12, abs=1e-13 * float(p) * x**m)
        assert sums[1] == pytest.approx(loss, rel=1e-12, abs=k * 1e-16)  # 1 + e is rounded k times


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [2, 3, 100, 129, 1001])
def test_rows_add_up(dtype, k):
    """The sum over all rows is the sum over any two parts: nothing is left over from tile to tile."""
    sample = make(391, k, dtype, weighted=True)
    whole = kernel_sums(sample, 1.3)
    for cut in (1, 127, 128, 200, 390):
        parts = kernel_sums(sample.take(slice(cut)), 1.3) + kernel_sums(
            sample.take(slice(cut, None)), 1.3
        )
        np.testing.assert_allclose(whole, parts, rtol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [2, 3, 10, 128, 129, 500])
@pytest.mark.parametrize("soft", [False, True])
def test_each_row_by_itself(dtype, k, soft):
    sample = make(130, k, dtype, soft=soft)
    beta = rounded(0.8, dtype)
    got = KernelReader(sample).rows(beta)
    want = [part * beta**m for m, part in enumerate(row_derivatives(sample, beta))]
    largest = beta * np.ptp(sample.logits)
    for m in range(5):
        tol = 16 * np.finfo(dtype).eps * (1 + largest) ** m
        np.testing.assert_allclose(got[m], want[m], rtol=0, atol=tol)


# ---- what is not a number, and what is not possible ------------------------------------------------------


def all_readers(sample):
    """Yield every reader of the same data, at one point."""
    yield KernelReader(sample).at(1.0)
    yield NumpyReader(sample).at(1.0)
    tensors = Sample(sample.labels, torch.from_numpy(sample.logits), sample.weights, sample.soft)
    yield TorchReader(tensors).at(1.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", READERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_shows_in_every_reader(dtype, k, bad):
    for n, weighted, soft in [
        (1, False, False),
        (130, False, False),
        (130, True, False),
        (3, False, True),
    ]:
        sample = make(n, k, dtype, weighted, soft)
        for i in sorted({0, n // 2, n - 1}):
            for j in sorted({0, 1, k // 2, k - 1}):
                logits, labels = sample.logits.copy(), sample.labels.copy()
                logits[i, j], labels[i] = bad, j
                with np.errstate(invalid="ignore"):
                    for point in all_readers(Sample(labels, logits, sample.weights, sample.soft)):
                        assert not math.isfinite(point.loss + point.a), (n, weighted, soft, i, j)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", READERS)
def test_a_row_of_impossible_classes_shows(dtype, k):
    sample = make(130, k, dtype)
    sample.logits[77] = -np.inf
    with np.errstate(invalid="ignore"):
        point = KernelReader(sample).at(1.0)
    assert not math.isfinite(point.loss + point.a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [3, 4, 10, 128, 129, 130, 500])
@pytest.mark.parametrize("weighted", [False, True])
def test_impossible_classes_count_as_absent(dtype, k, weighted):
    sample = make(140, k - 1, dtype, weighted)
    column = np.full((140, 1), -np.inf, dtype)
    wider = Sample(sample.labels, np.hstack([sample.logits, column]), sample.weights)
    shifted = Sample(sample.labels + 1, np.hstack([column, sample.logits]), sample.weights)
    for beta in (1e-3, 1.0, 50.0):
        want = kernel_sums(sample, beta)
        tol = 32 * np.finfo(dtype).eps * sizes(sample, beta)
        assert np.all(np.abs(kernel_sums(wider, beta) - want) <= tol)
        assert np.all(np.abs(kernel_sums(shifted, beta) - want) <= tol)
    want = KernelReader(sample).at_zero()
    np.testing.assert_allclose(KernelReader(wider).at_zero(), want, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_classes_of_which_one_is_impossible(dtype):
    logits = np.array([[0.0, -np.inf], [-np.inf, 5.0]], dtype)
    right, wrong = np.array([0, 1]), np.array([0, 0])
    np.testing.assert_allclose(
        kernel_sums(Sample(right, logits), 2.0), [2, 0, 0, 0, 0, 0], atol=1e-25
    )
    assert kernel_sums(Sample(wrong, logits), 2.0)[1] == np.inf


@pytest.mark.parametrize("k", READERS)
@pytest.mark.parametrize("n", [1, 129])
def test_labels_out_of_range_make_nan(k, n):
    for label in (-1, k, k + 1, -(2**40), 2**40):
        for row in {0, n - 1}:
            sample = make(n, k)
            sample.labels[row] = label
            assert np.isnan(kernel_sums(sample, 1.0)).all()


@pytest.mark.parametrize("k", READERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_public_function_names_the_culprit(k, bad):
    sample = make(200, k)
    sample.logits[150, 1] = bad
    sample.labels[150] = 1
    with pytest.raises(ValueError, match=r"logits\[150, 1\] is (NaN|\+inf)"):
        fit_temperature(sample.labels, sample.logits)


# ---- beta = 0 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", READERS)
@pytest.mark.parametrize("soft", [False, True])
def test_slope_and_curvature_at_zero(dtype, k, soft):
    """At beta = 0 every class is equally likely: mean logit minus the label's, and the variance."""
    sample = make(50, k, dtype, weighted=True, soft=soft)
    rows = np.eye(k)[sample.labels] if sample.soft is None else sample.soft
    z = sample.logits.astype(np.float64)
    slope = np.average(z.mean(axis=1) - (rows * z).sum(axis=1), weights=sample.weights)
    curvature = np.average(z.var(axis=1), weights=sample.weights)
    tensors = Sample(sample.labels, torch.from_numpy(sample.logits), sample.weights, sample.soft)
    for reader in (KernelReader(sample), NumpyReader(sample), TorchReader(tensors)):
        tol = 1e-5 if dtype == np.float32 else 1e-12
        np.testing.assert_allclose(reader.at_zero(), [slope, curvature], rtol=tol, atol=tol)


def test_no_rows_give_no_sums():
    """A thread may get none."""
    empty = KernelReader(Sample(np.zeros(0, np.int64), np.zeros((0, 3))))
    assert temperature.read(*empty.arrays, 1.0) == (0, 0, 0, 0, 0, 0)


# ---- loops that are parts of others ----------------------------------------------------------------------


def dispatchers():
    """Return everything that is compiled, by module and name."""
    for path in (Path(refinecal.__file__).parent / "_kernels").glob("*.py"):
        module = f"refinecal._kernels.{path.stem}"
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, Dispatcher) and value.__module__ == module:
                yield f"{module}.{name}", value


def test_all_that_is_compiled_is_in_one_place():
    source = Path(refinecal.__file__).parent
    places = {path.parent.name for path in source.rglob("*.py") if "numba" in imports_of(path)}
    assert places == {"_kernels"}


def imports_of(path):
    """Return the packages that a module imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}


def test_parts_whose_order_of_summing_is_free_are_compiled_into_their_callers():
    """Several copies of one would be optimised each in its own way, and which is called is left to chance."""
    compiled = dict(dispatchers())
    assert len(compiled) > 50
    for caller, loop in compiled.items():
        for name in loop.py_func.__code__.co_names:
            part = loop.py_func.__globals__.get(name)
            if isinstance(part, Dispatcher) and part.targetoptions.get("fastmath"):
                inlined = part.targetoptions.get("forceinline")
                assert inlined or part.targetoptions.get("inline") == "always", (caller, name)


def test_kernels_that_return_something_to_python_are_no_part_of_others():
    """The cached copy of a part in its caller may be older, and then be what Python calls."""
    source = Path(refinecal.__file__).parent
    outside = [path for path in source.rglob("*.py") if path.parent.name != "_kernels"]
    called = set(
        re.findall(r"(?:kernels\.\w+|kernels|loops)\.(\w+)", "".join(map(Path.read_text, outside)))
    )
    assert {"pool", "read", "tally"} <= called
    for caller, loop in dispatchers():
        for name in loop.py_func.__code__.co_names:
            part = loop.py_func.__globals__.get(name)
            if isinstance(part, Dispatcher) and name in called:
                tree = ast.parse(inspect.getsource(part.py_func))
                values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
                assert not any(values), (caller, name)


def test_processes_that_compile_at_once_do_not_take_each_others_code(tmp_path):
    """Both find an empty index; one is done while the other is between its two files."""
    one, other = (copy(temperature.fill_exp2._cache._cache_file) for _ in range(2))
    for files in (one, other):
        files._cache_path = str(tmp_path)
        files._index_path = str(tmp_path / "kernel.nbi")
    save_index = one._save_index

    def interrupted(overloads):
        save_index(overloads)
        other._load_index = dict
        other.save("double", "code for doubles")
        del other._load_index

    one._save_index = interrupted
    one.save("single", "code for singles")
    assert other.load("single") in ("code for singles", None)
    assert other.load("double") in ("code for doubles", None)
    assert other.load("double") is not None
