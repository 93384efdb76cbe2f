"""What the one door takes: every kind of array, label and weight gives what plain float64 arrays give.

Logits are multiples of 1/4 and probabilities multiples of 1/16, so that every float type holds them
exactly and only the precision of the computation is left to compare.
"""

import copy
import warnings
from decimal import Decimal

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax
from sklearn.isotonic import IsotonicRegression

import refinecal as rc

N, K = 60, 3
RNG = np.random.default_rng(7)
LOGITS = RNG.integers(-12, 13, (N, K)) / 4
LABELS = (0.5 * LOGITS + RNG.gumbel(size=(N, K))).argmax(axis=1)
PROBS = np.stack([RNG.multinomial(13, softmax(row)) + 1 for row in LOGITS]) / 16
ODDS = LOGITS[:, 0]  # log-odds of class 1
YES = (RNG.random(N) < 1 / (1 + np.exp(-ODDS / 2))).astype(int)
WEIGHTS = RNG.integers(0, 4, N) / 2
NAMES = np.array(["cat", "ant", "bee"])  # of the columns, not in sorted order
TYPED = NAMES[LABELS]

EXACT, SINGLE = 1e-9, 1e-5  # relative errors of what is computed in float64 and in float32


def terms(y_true, probs=None, **options):
    """Return risk, refinement, uncertainty and beta."""
    d = rc.decompose(y_true, probs, **options)
    return np.array([d.risk, d.refinement, d.uncertainty, d.beta or 0.0])


def reference(labels, logits, weights=None):
    """Return the same four by plain SciPy; the best beta must lie inside its interval."""
    rows = np.arange(len(labels))

    def loss(beta):
        values = logsumexp(beta * logits, axis=1) - beta * logits[rows, labels]
        return np.average(values, weights=weights)

    def slope(beta):
        expected = (softmax(beta * logits, axis=1) * logits).sum(axis=1)
        return np.average(expected - logits[rows, labels], weights=weights)

    shares = np.bincount(labels, weights, minlength=logits.shape[1])
    shares = shares[shares > 0] / shares.sum()
    beta = brentq(slope, 0.0, 20.0, xtol=1e-14, rtol=1e-14)
    return np.array([loss(1.0), loss(beta), -(shares * np.log(shares)).sum(), beta])


def close(found, expected, rtol=EXACT):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


def test_the_plain_arrays_themselves():
    close(terms(LABELS, logits=LOGITS), reference(LABELS, LOGITS))
    close(terms(LABELS, PROBS), reference(LABELS, np.log(PROBS)))
    close(terms(YES, logits=ODDS), reference(YES, np.stack([0 * ODDS, ODDS], axis=1)))
    weighted = terms(LABELS, PROBS, sample_weight=WEIGHTS)
    close(weighted, reference(LABELS, np.log(PROBS), WEIGHTS))


# ---- kinds of arrays -------------------------------------------------------------------------------------


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def unaligned(a):
    """Return the same numbers one byte off, as a record of a binary file may hold them."""
    out = np.frombuffer(bytearray(a.nbytes + 1), a.dtype, a.size, offset=1).reshape(a.shape)
    out[...] = a
    return out


LAYOUTS = {
    "read-only": read_only,
    "strided rows": lambda a: np.repeat(a, 2, axis=0)[::2],
    "strided columns": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "fortran": np.asfortranarray,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "reversed rows": lambda a: a[::-1].copy()[::-1],
    "reversed columns": lambda a: a[..., ::-1].copy()[..., ::-1],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "unaligned": unaligned,
}
DOUBLES = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(tuple(row) if a.ndim == 2 else row for row in a.tolist()),
    "list of arrays": list,
    "longdouble": lambda a: a.astype(np.longdouble),
    "object": lambda a: a.astype(object),
    "decimal": np.vectorize(Decimal, otypes=[object]),
    "torch": torch.tensor,
    "torch with grad": lambda a: torch.tensor(a, requires_grad=True),
    "torch parameter": lambda a: torch.nn.Parameter(torch.tensor(a)),
    "torch transposed": lambda a: torch.tensor(a.T.copy()).mT if a.ndim == 2 else torch.tensor(a),
    "torch strided": lambda a: torch.tensor(np.repeat(a, 2, axis=-1))[..., ::2],
    "torch negative view": lambda a: torch.complex(torch.tensor(a), torch.tensor(-a)).conj().imag,
}
SMALLER = {
    "float32": lambda a: a.astype(np.float32),
    "big-endian float32": lambda a: a.astype(">f4"),
    "float16": lambda a: a.astype(np.float16),
    "torch float32": lambda a: torch.tensor(a, dtype=torch.float32),
    "torch float16": lambda a: torch.tensor(a, dtype=torch.float16),
    "torch bfloat16": lambda a: torch.tensor(a, dtype=torch.bfloat16),
    "torch bfloat16 with grad": lambda a: torch.tensor(a, dtype=torch.bfloat16, requires_grad=True),
    "torch float8": lambda a: torch.tensor(a).to(torch.float8_e4m3fn),
    "jax float32": lambda a: jnp.asarray(a, dtype=jnp.float32),
    "jax float16": lambda a: jnp.asarray(a, dtype=jnp.float16),
    "jax bfloat16": lambda a: jnp.asarray(a, dtype=jnp.bfloat16),
}
FRAMES = {
    "pandas": pd.DataFrame,
    "pandas with names": lambda a: pd.DataFrame(a, columns=NAMES),
    "pandas with dates as index": lambda a: pd.DataFrame(
        a, index=pd.date_range("2025-01-01", periods=len(a))
    ),
    "pandas float32": lambda a: pd.DataFrame(a, dtype="float32"),
    "pandas Float64": lambda a: pd.DataFrame(a, dtype="Float64"),
    "pandas arrow": lambda a: pd.DataFrame(a, dtype="double[pyarrow]"),
    "pandas column types differ": lambda a: pd.DataFrame(a).astype({0: "float32", 1: object}),
    "polars": pl.DataFrame,
    "polars with names": lambda a: pl.DataFrame(a, schema=NAMES.tolist()),
    "polars float32": lambda a: pl.DataFrame(a).cast(pl.Float32),
    "polars column of arrays": lambda a: pl.Series(a.tolist(), dtype=pl.Array(pl.Float64, 3)),
    "arrow table": lambda a: pa.table(dict(zip(NAMES, a.T.copy(), strict=True))),
}
SERIES = {
    "pandas": pd.Series,
    "pandas Float64": lambda a: pd.Series(a, dtype="Float64"),
    "pandas frame": lambda a: pd.DataFrame({"yes": a}),
    "polars": pl.Series,
    "polars frame": lambda a: pl.DataFrame({"yes": a}),
    "arrow": pa.array,
    "arrow chunks": lambda a: pa.chunked_array([a[:10], a[10:]]),
}


def cases(*tables):
    return pytest.mark.parametrize(
        "convert", [pytest.param(f, id=name) for table in tables for name, f in table.items()]
    )


@cases(LAYOUTS, DOUBLES, SMALLER, FRAMES)
def test_every_kind_of_matrix(convert):
    probs, logits = convert(PROBS), convert(LOGITS)
    rtol = EXACT if convert in {**LAYOUTS, **DOUBLES}.values() else SINGLE
    close(terms(LABELS, probs), terms(LABELS, PROBS), rtol)
    close(terms(LABELS, logits=logits), terms(LABELS, logits=LOGITS), rtol)
    close(rc.refinement_error(LABELS, probs), rc.refinement_error(LABELS, PROBS), rtol)
    close(rc.fit_temperature(LABELS, logits).beta, reference(LABELS, LOGITS)[3], rtol)
    ours, plain = (rc.TemperatureScaling().fit(p, LABELS).predict_proba(p) for p in (probs, PROBS))
    close(ours, plain, rtol)


@cases(LAYOUTS, DOUBLES, SMALLER, SERIES)
def test_every_kind_of_vector(convert):
    given, shares = convert(ODDS), convert(PROBS[:, 0])
    rtol = SINGLE if convert in SMALLER.values() else EXACT
    close(terms(YES, logits=given), terms(YES, logits=ODDS), rtol)
    close(rc.fit_temperature(YES, given).beta, rc.fit_temperature(YES, ODDS).beta, rtol)
    ours, plain = (
        rc.make_calibrator("isotonic").fit(p, YES).predict_proba(p) for p in (shares, PROBS[:, 0])
    )
    close(ours, plain, rtol)


@cases(LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_layout_changes_nothing_at_all(convert, dtype):
    logits, labels = LOGITS.astype(dtype), convert(LABELS)
    np.testing.assert_array_equal(
        terms(labels, logits=convert(logits)), terms(LABELS, logits=logits)
    )
    assert rc.fit_temperature(labels, convert(logits)) == rc.fit_temperature(LABELS, logits)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_mapped_files(tmp_path, dtype, mode):
    LOGITS.astype(dtype).tofile(tmp_path / "logits")
    LABELS.astype("u1").tofile(tmp_path / "labels")
    logits = np.memmap(tmp_path / "logits", dtype, mode, shape=(N, K))
    labels = np.memmap(tmp_path / "labels", "u1", mode)
    rtol = EXACT if dtype == "f8" else SINGLE
    close(terms(labels, logits=logits), terms(LABELS, logits=LOGITS), rtol)
    close(rc.fit_temperature(labels, logits).beta, rc.fit_temperature(LABELS, LOGITS).beta, rtol)


@pytest.mark.parametrize("dtype", "bhilqBHILQ")
def test_integers_as_logits(dtype):
    whole = (4 * LOGITS + 12).astype(dtype)  # 0..24, so that unsigned types hold it
    close(terms(LABELS, logits=whole), terms(LABELS, logits=4 * LOGITS))
    close(rc.fit_temperature(LABELS, whole).beta, rc.fit_temperature(LABELS, LOGITS).beta / 4)
    if dtype in "bhilqB":
        close(terms(LABELS, logits=torch.tensor(whole)), terms(LABELS, logits=whole))


@pytest.mark.parametrize("dtype", [int, bool, np.float16])
def test_hard_predictions_as_probabilities(dtype):
    hard = np.eye(K)[LABELS].astype(dtype)
    close(terms(LABELS, hard)[:2], [0, 0])
    close(terms(YES, YES.astype(dtype))[:2], [0, 0])


@pytest.mark.parametrize(
    "convert",
    [
        lambda p: p.astype(np.float16),
        lambda p: torch.tensor(p).half(),
        lambda p: torch.tensor(p).bfloat16(),
        lambda p: jnp.asarray(p, dtype=jnp.bfloat16),
    ],
    ids=["float16", "torch float16", "torch bfloat16", "jax bfloat16"],
)
@pytest.mark.parametrize("k", [3, 100])
def test_rows_rounded_to_half_precision_still_count_as_summing_to_one(convert, k):
    rng = np.random.default_rng(k)
    probs = softmax(3 * rng.normal(size=(200, k)), axis=1)
    labels = [rng.choice(k, p=row) for row in probs]
    close(terms(labels, convert(probs))[:2], terms(labels, probs)[:2], 0.01)


# ---- labels ----------------------------------------------------------------------------------------------

TORCH_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NUMBERED = {
    **{np.dtype(c).name + " " + c: (lambda y, c=c: y.astype(c)) for c in "bhilqBHILQefdg"},
    "big-endian": lambda y: y.astype(">i4"),
    "list": lambda y: y.tolist(),
    "tuple": lambda y: tuple(y.tolist()),
    "objects": lambda y: y.astype(object),
    "whole floats as objects": lambda y: y.astype(float).astype(object),
    "column": lambda y: y[:, None],
    "column of floats": lambda y: y[:, None].astype(float),
    "read-only": read_only,
    "strided": lambda y: np.repeat(y, 2)[::2],
    "pandas": pd.Series,
    "pandas Int64": lambda y: pd.Series(y, dtype="Int64"),
    "pandas Float64": lambda y: pd.Series(y, dtype="Float64"),
    "pandas category": lambda y: pd.Series(y, dtype="category"),
    "pandas frame": pd.DataFrame,
    "pandas index": pd.Index,
    "polars": pl.Series,
    "polars UInt8": lambda y: pl.Series(y, dtype=pl.UInt8),
    "polars frame": lambda y: pl.DataFrame({"y": y}),
    "arrow": pa.array,
    "jax": jnp.asarray,
    "jax uint8": lambda y: jnp.asarray(y, dtype=jnp.uint8),
    **{
        str(d): (lambda y, d=d: torch.tensor(y).to(d))
        for d in (*TORCH_INTEGERS, torch.bfloat16, torch.float32, torch.float64)
    },
    "torch strided": lambda y: torch.tensor(np.repeat(y, 2))[::2],
}
BOOLEAN = {
    "bool": lambda y: y == 1,
    "list": lambda y: (y == 1).tolist(),
    "objects": lambda y: (y == 1).astype(object),
    "column": lambda y: (y == 1)[:, None],
    "pandas": lambda y: pd.Series(y == 1),
    "pandas boolean": lambda y: pd.Series(y == 1, dtype="boolean"),
    "polars": lambda y: pl.Series(y == 1),
    "arrow": lambda y: pa.array((y == 1).tolist()),
    "torch": lambda y: torch.tensor(y == 1),
    "jax": lambda y: jnp.asarray(y == 1),
}
STRINGS = {
    "array": np.asarray,
    "list": lambda s: s.tolist(),
    "objects": lambda s: s.astype(object),
    "numpy strings": lambda s: s.astype(np.dtypes.StringDType()),
    "column": lambda s: s[:, None],
    "pandas": pd.Series,
    "pandas string": lambda s: pd.Series(s, dtype="string"),
    "pandas object": lambda s: pd.Series(s, dtype=object),
    "pandas category": lambda s: pd.Series(s, dtype="category"),
    "pandas frame": lambda s: pd.DataFrame({"y": s}),
    "categorical": pd.Categorical,
    "polars": pl.Series,
    "polars Categorical": lambda s: pl.Series(s, dtype=pl.Categorical),
    "polars Enum": lambda s: pl.Series(s, dtype=pl.Enum(NAMES)),
    "arrow": lambda s: pa.array(s.tolist()),
    "arrow dictionary": lambda s: pa.array(s.tolist()).dictionary_encode(),
    "arrow chunks": lambda s: pa.chunked_array([s.tolist()]),
}
ROWS = {
    **{np.dtype(t).name: (lambda q, t=t: q.astype(t)) for t in ("i1", "u1", "i8", "f2", "f8", "?")},
    "list": lambda q: q.astype(int).tolist(),
    "objects": lambda q: q.astype(object),
    "fortran": np.asfortranarray,
    "pandas": pd.DataFrame,
    "pandas Int64": lambda q: pd.DataFrame(q, dtype="Int64"),
    "polars": pl.DataFrame,
    "torch": torch.tensor,
    "torch int": lambda q: torch.tensor(q).int(),
    "torch bool": lambda q: torch.tensor(q).bool(),
    "jax": jnp.asarray,
}


@cases(NUMBERED)
def test_class_numbers(convert):
    np.testing.assert_array_equal(terms(convert(LABELS), PROBS), terms(LABELS, PROBS))
    assert rc.fit_temperature(convert(LABELS), LOGITS) == rc.fit_temperature(LABELS, LOGITS)
    ts = rc.TemperatureScaling().fit(PROBS, convert(LABELS))
    assert ts.classes_.tolist() == [0, 1, 2]
    assert ts.beta_ == rc.TemperatureScaling().fit(PROBS, LABELS).beta_


@cases(NUMBERED, BOOLEAN)
def test_two_classes(convert):
    shares = PROBS[:, 1]
    np.testing.assert_array_equal(terms(convert(YES), shares), terms(YES, shares))
    ours, plain = (
        rc.make_calibrator("isotonic").fit(shares, y).predict_proba(shares)
        for y in (convert(YES), YES)
    )
    np.testing.assert_array_equal(ours, plain)


@cases(STRINGS)
@pytest.mark.filterwarnings("ignore:y_true has its categories in the order")  # that of an Enum
def test_strings(convert):
    expected, typed = terms(LABELS, PROBS), convert(TYPED)
    np.testing.assert_array_equal(terms(typed, PROBS, classes=NAMES), expected)
    in_order = np.argsort(NAMES)  # without classes= the columns are taken to be in sorted order
    close(terms(typed, PROBS[:, in_order]), expected)
    fit = rc.fit_temperature(typed, LOGITS, classes=NAMES)
    assert fit == rc.fit_temperature(LABELS, LOGITS)
    ts = rc.TemperatureScaling().fit(PROBS, typed, classes=NAMES)
    assert ts.classes_.tolist() == NAMES.tolist()


CATEGORIES = {
    "ordered": lambda order: pd.Categorical(TYPED, categories=order, ordered=True),
    "series": lambda order: pd.Series(pd.Categorical(TYPED, categories=order, ordered=True)),
    "frame": lambda order: pd.DataFrame(
        {"y": pd.Categorical(TYPED, categories=order, ordered=True)}
    ),
    "Enum": lambda order: pl.Series(TYPED, dtype=pl.Enum(order)),
    "numbers": lambda order: pd.Categorical(
        LABELS, categories=[sorted(NAMES).index(name) for name in order], ordered=True
    ),
    "one too many": lambda order: pd.Categorical(TYPED, categories=["yak", *order], ordered=True),
}
TAKERS = {
    "fit_temperature": (lambda y, **how: rc.fit_temperature(y, LOGITS, **how)),
    "decompose": (lambda y, **how: rc.decompose(y, PROBS, **how)),
    "log_loss": (lambda y, **how: rc.metrics.log_loss(y, PROBS, **how)),
    "ece": (lambda y, **how: rc.metrics.ece(y, PROBS, **how)),
    "per_class": (lambda y, **how: rc.metrics.per_class(y, PROBS, **how)),
    "evaluate": (lambda y, **how: rc.evaluation.evaluate(y, PROBS, **how)),
    "compare": (lambda y, **how: rc.evaluation.compare_models(y, {"a": PROBS, "b": PROBS}, **how)),
    "reliability": (lambda y, **how: rc.plots.reliability_curve(y, PROBS, **how)),
    "fit": (lambda y, **how: rc.make_calibrator("temperature").fit(PROBS, y, **how)),
    "fit_logits": (lambda y, **how: rc.make_calibrator("temperature").fit_logits(LOGITS, y, **how)),
    "monitor": (lambda y, **how: rc.select(y, [PROBS] * 3, **how)),
}


@pytest.mark.parametrize("kind", CATEGORIES)
def test_categories_in_another_order_are_warned_of(kind):
    y = CATEGORIES[kind](NAMES.tolist())
    with pytest.warns(RuntimeWarning, match="^y_true has its categories in the order") as caught:
        rc.decompose(y, PROBS)
    assert [w.filename for w in caught] == [__file__]
    order = [2, 0, 1] if kind == "numbers" else NAMES.tolist()
    assert f"pass classes={order}; " in str(caught[0].message)
    assert f"pass classes={sorted(order)}." in str(caught[0].message)
    rc.decompose(y, PROBS, classes=order)
    rc.decompose(y, pd.DataFrame(PROBS, columns=order))
    rc.decompose(CATEGORIES[kind](sorted(NAMES)), PROBS)


@pytest.mark.parametrize("take", TAKERS)
def test_the_order_of_categories_is_warned_of_once(take):
    """At every door, and once for all steps and all models."""
    y = pd.Categorical(TYPED, categories=NAMES, ordered=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TAKERS[take](y)
    assert [str(w.message).split(" in the order")[0][-14:] for w in caught] == ["its categories"]
    TAKERS[take](y, classes=NAMES)
    TAKERS[take](pd.Categorical(TYPED))


def test_categories_as_they_come_have_no_order():
    rc.decompose(pl.Series(TYPED, dtype=pl.Categorical), PROBS)
    rc.decompose(pd.Categorical(TYPED, categories=NAMES.tolist()), PROBS)
    many = pd.Categorical([*"kjihgfedcba"], categories=[*"kjihgfedcba"], ordered=True)
    with pytest.warns(RuntimeWarning, match=r"pass classes=list\(y_true.dtype.categories\)"):
        rc.decompose(many, np.full((11, 11), 1 / 11))


@cases(ROWS)
def test_one_hot_rows(convert):
    rows = convert(np.eye(K)[LABELS])
    np.testing.assert_array_equal(terms(rows, PROBS), terms(LABELS, PROBS))
    assert rc.fit_temperature(rows, LOGITS) == rc.fit_temperature(LABELS, LOGITS)


@pytest.mark.parametrize(
    "convert", [np.asarray, list, tuple, pd.Index, pd.Series, pl.Series, np.ndarray.tolist]
)
def test_kinds_of_classes(convert):
    np.testing.assert_array_equal(terms(TYPED, PROBS, classes=convert(NAMES)), terms(LABELS, PROBS))


@pytest.mark.parametrize(
    "classes",
    [
        [-1, 1],
        [1, -1],
        [10, 3],
        [0.5, 2.5],
        ["no", "yes"],
        ["yes", "no"],
        [True, False],
        [b"n", b"y"],
    ],
    ids=str,
)
def test_classes_of_two(classes):
    y_true = np.array(classes)[YES]
    np.testing.assert_array_equal(
        terms(y_true, PROBS[:, 0], classes=classes), terms(YES, PROBS[:, 0])
    )
    ts = rc.TemperatureScaling().fit(PROBS[:, 0], y_true, classes=classes)
    assert ts.classes_.tolist() == classes


def test_classes_may_be_of_another_number_type():
    for y_true in (YES * 2.0 - 1, (YES * 2 - 1).astype(np.int8), torch.tensor(YES * 2 - 1)):
        np.testing.assert_array_equal(
            terms(y_true, PROBS[:, 0], classes=[-1, 1]), terms(YES, PROBS[:, 0])
        )


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@cases(STRINGS)
def test_columns_named_by_class_in_any_order(convert, frame):
    named = frame(dict(zip(NAMES.tolist(), PROBS.T, strict=True)))
    np.testing.assert_array_equal(terms(convert(TYPED), named), terms(LABELS, PROBS))
    assert rc.TemperatureScaling().fit(named, convert(TYPED)).classes_.tolist() == NAMES.tolist()


def test_column_names_that_are_numbers():
    flipped = pd.DataFrame(PROBS[:, ::-1], columns=[2, 1, 0])
    close(terms(LABELS, flipped), terms(LABELS, PROBS))
    from_ten = pd.DataFrame(PROBS, columns=[10, 11, 12])
    np.testing.assert_array_equal(terms(LABELS + 10, from_ten), terms(LABELS, PROBS))
    np.testing.assert_array_equal(terms(LABELS, from_ten), terms(LABELS, PROBS))


def test_classes_outrank_column_names():
    named = pd.DataFrame(PROBS, columns=NAMES)
    np.testing.assert_array_equal(
        terms(TYPED, named, classes=NAMES[::-1]), terms(TYPED, PROBS, classes=NAMES[::-1])
    )


def test_a_frame_of_one_column_has_two_classes():
    only = pd.DataFrame({1: [0.9, 0.8, 0.6]})  # its name is no list of classes
    np.testing.assert_array_equal(terms([1, 1, 1], only), terms([1, 1, 1], [0.9, 0.8, 0.6]))


def test_label_rows_follow_the_names_of_the_columns():
    named = pd.DataFrame(PROBS, columns=NAMES)
    dummies = pd.get_dummies(pd.Series(TYPED))  # columns in sorted order
    np.testing.assert_array_equal(terms(dummies, named), terms(LABELS, PROBS))


def test_new_predictions_follow_the_names_of_the_columns():
    named = pd.DataFrame(PROBS, columns=NAMES)
    ts = rc.TemperatureScaling().fit(named, TYPED)
    close(ts.predict_proba(named[sorted(NAMES)]), ts.predict_proba(named))


# ---- soft labels and weights -----------------------------------------------------------------------------


@st.composite
def predictions(draw):
    """Draw integer logits and labels: ties and separable sets are common."""
    n, k = draw(st.integers(1, 12)), draw(st.integers(2, 4))
    labels = draw(arrays(np.int64, n, elements=st.integers(0, k - 1)))
    return labels, draw(arrays(float, (n, k), elements=st.integers(-4, 4)))


@st.composite
def label_rows(draw, n, k, parts=8):
    """Draw n rows of k multiples of 1/8 that sum to 1."""
    cuts = st.lists(st.integers(0, parts), min_size=k - 1, max_size=k - 1).map(sorted)
    return np.array([np.diff([0, *draw(cuts), parts]) for _ in range(n)]) / parts


def counts(n):
    return arrays(np.int64, n, elements=st.integers(0, 3)).filter(np.any)


LOSSES = st.sampled_from(["log", "brier", "spherical"])


@given(predictions(), LOSSES, st.data())
def test_a_weight_means_repetition(sample, loss, data):
    labels, logits = sample
    weights = data.draw(counts(len(labels)))  # 0 drops the row
    rows = np.repeat(np.arange(len(labels)), weights)
    weighted = terms(labels, logits=logits, sample_weight=weights, loss=loss)
    close(weighted[:3], terms(labels[rows], logits=logits[rows], loss=loss)[:3])
    ours = rc.TemperatureScaling().fit_logits(logits, labels, weights)
    theirs = rc.TemperatureScaling().fit_logits(logits[rows], labels[rows])
    close(ours.predict_proba_logits(logits), theirs.predict_proba_logits(logits), 1e-6)


@given(predictions(), st.data())
def test_a_weight_means_repetition_for_isotonic_too(sample, data):
    labels, scores = sample[0] % 2, sample[1][:, 0]
    weights = data.draw(counts(len(labels)))
    rows = np.repeat(np.arange(len(labels)), weights)
    ours = rc.make_calibrator("isotonic").fit_logits(scores, labels, weights)
    theirs = rc.make_calibrator("isotonic").fit_logits(scores[rows], labels[rows])
    close(ours.predict_proba_logits(scores), theirs.predict_proba_logits(scores))


@given(predictions(), LOSSES, st.data())
def test_soft_labels_mean_fractional_repetition(sample, loss, data):
    n, k = sample[1].shape
    soft, weights = data.draw(label_rows(n, k)), data.draw(counts(n))
    rows, labels = np.indices((n, k)).reshape(2, -1)  # every row once with every label
    logits = sample[1]
    fractions = (soft * weights[:, None]).ravel()
    ours = terms(soft, logits=logits, sample_weight=weights, loss=loss)
    theirs = terms(labels, logits=logits[rows], sample_weight=fractions, loss=loss)
    close(ours[:3], theirs[:3])


@given(predictions(), st.data())
def test_soft_labels_for_isotonic(sample, data):
    scores = sample[1][:, 0]
    soft = data.draw(label_rows(len(scores), 2))
    ours = rc.make_calibrator("isotonic").fit_logits(scores, soft)
    rows, labels = np.indices(soft.shape).reshape(2, -1)
    theirs = rc.make_calibrator("isotonic").fit_logits(scores[rows], labels, soft.ravel())
    close(ours.predict_proba_logits(scores), theirs.predict_proba_logits(scores))


@pytest.mark.parametrize("convert", [np.asarray, np.ndarray.tolist, pd.DataFrame, torch.tensor])
def test_kinds_of_soft_labels(convert):
    soft = PROBS[::-1].copy()
    np.testing.assert_array_equal(terms(convert(soft), PROBS), terms(soft, PROBS))
    close(terms(soft, PROBS)[0], -(soft * np.log(PROBS)).sum(axis=1).mean())


@given(predictions(), st.sampled_from([1e-300, 1e-6, 0.1, 3.0, 1e6, 1e300]), st.data())
def test_only_the_ratios_of_weights_matter(sample, factor, data):
    labels, logits = sample
    weights = data.draw(counts(len(labels)))
    scaled = terms(labels, logits=logits, sample_weight=weights * factor)
    close(scaled[:3], terms(labels, logits=logits, sample_weight=weights)[:3])


@given(st.integers(-1074, 1021), st.sampled_from(["hard", "soft", "single"]))
def test_powers_of_two_times_weights_change_no_bit(power, kind):
    """The smallest is 5e-324, which has no digits to lose: only whole multiples of it exist."""
    labels = PROBS[::-1] if kind == "soft" else LABELS
    logits = LOGITS.astype(np.float32) if kind == "single" else LOGITS
    weights = 2 * WEIGHTS
    scaled = np.ldexp(weights, power)
    assert np.all(np.ldexp(scaled, -power) == weights)
    ours, theirs = (rc.fit_temperature(labels, logits, w) for w in (scaled, weights))
    assert (ours.beta, ours.loss) == (theirs.beta, theirs.loss)
    found = terms(labels, logits=logits, sample_weight=scaled)
    np.testing.assert_array_equal(found, terms(labels, logits=logits, sample_weight=weights))
    for metric in rc.metrics.auroc, rc.metrics.ece, rc.metrics.smooth_ece, rc.metrics.brier_score:
        values = [metric(LABELS, logits=logits, sample_weight=w) for w in (scaled, weights)]
        close(*values, 1e-12)


@pytest.mark.parametrize(
    "convert",
    [
        np.ndarray.tolist,
        lambda w: (2 * w).astype(np.uint8),
        lambda w: w.astype(">f4"),
        lambda w: np.repeat(w, 2)[::2],
        lambda w: w[:, None],
        lambda w: w.astype(object),
        read_only,
        pd.Series,
        lambda w: pd.Series(w, dtype="Float64"),
        lambda w: pd.DataFrame({"weight": w}),
        pl.Series,
        pa.array,
        lambda w: torch.tensor(w, requires_grad=True),
        lambda w: torch.tensor(w).bfloat16(),
        jnp.asarray,
    ],
)
def test_kinds_of_weights(convert):
    expected, weights = terms(LABELS, PROBS, sample_weight=WEIGHTS), convert(WEIGHTS)
    close(terms(LABELS, PROBS, sample_weight=weights), expected)
    fit = rc.fit_temperature(LABELS, LOGITS, weights)
    close(fit.beta, rc.fit_temperature(LABELS, LOGITS, WEIGHTS).beta)
    ts = rc.TemperatureScaling().fit(PROBS, LABELS, weights)
    close(ts.beta_, expected[3])


def test_weights_that_are_all_one_change_nothing():
    ones = np.ones(N)
    close(terms(LABELS, PROBS, sample_weight=ones), terms(LABELS, PROBS), 1e-14)
    mask = LABELS > 0  # booleans keep or drop rows
    close(terms(LABELS, PROBS, sample_weight=mask), terms(LABELS[mask], PROBS[mask]))


@pytest.mark.parametrize("calibrator", ["temperature", "isotonic"])
@pytest.mark.parametrize("loss", ["log", "brier"])
def test_a_row_of_weight_zero_is_gone_even_if_its_loss_is_infinite(calibrator, loss):
    y_true, probs, weights = [0, 1, 1, 0], [0.3, 0.6, 0.4, 1.0], [1, 1, 1, 0]
    ours = rc.decompose(y_true, probs, sample_weight=weights, calibrator=calibrator, loss=loss)
    kept = rc.decompose(y_true[:3], probs[:3], calibrator=calibrator, loss=loss)
    for term in ("risk", "calibration", "refinement", "uncertainty"):
        close(getattr(ours, term), getattr(kept, term))


def test_a_row_of_weight_zero_is_gone_from_the_fit_too():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-np.inf, 0.0]])
    fit = rc.fit_temperature([0, 1, 1, 0], logits, sample_weight=[1, 1, 1, 0])
    kept = rc.fit_temperature([0, 1, 1], logits[:3])
    close([fit.beta, fit.loss], [kept.beta, kept.loss])
    soft = rc.fit_temperature([[1, 0], [0, 1], [0, 1], [0.5, 0.5]], logits, [1, 1, 1, 0])
    close([soft.beta, soft.loss], [kept.beta, kept.loss])


# ---- two classes in four forms; zeros, ones and infinities -----------------------------------------------


def forms(p):
    """Return the same binary predictions as keywords, in every form."""
    with np.errstate(divide="ignore"):
        odds = np.log(p) - np.log1p(-p)
    both = np.stack([1 - p, p], axis=1)
    with np.errstate(divide="ignore"):
        logs = np.log(both)
    return [
        {"probs": p},
        {"probs": p[:, None]},
        {"probs": both},
        {"probs": pd.DataFrame(both)},
        {"logits": odds},
        {"logits": odds[:, None]},
        {"logits": logs},
        {"logits": logs + 5},
    ]


binary = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 8)), min_size=1, max_size=12)


@given(binary, st.sampled_from(["temperature", "isotonic"]), LOSSES)
@pytest.mark.filterwarnings("ignore:the log loss is infinite:RuntimeWarning")
def test_all_forms_of_two_classes_agree(rows, calibrator, loss):
    y_true, eighths = np.array(rows).T
    options = {"calibrator": calibrator, "loss": loss}
    first, *others = (terms(y_true, **form, **options) for form in forms(eighths / 8))
    for other in others:
        close(other[:3], first[:3])


@given(binary, LOSSES)
@pytest.mark.filterwarnings("ignore:the log loss is infinite:RuntimeWarning")
def test_certain_predictions_never_give_nan(rows, loss):
    y_true, eighths = np.array(rows).T
    d = rc.decompose(y_true, eighths / 8, loss=loss)
    values = [v for v in d.to_dict().values() if isinstance(v, float)]
    assert not np.isnan(values).any()
    surely_wrong = (np.where(y_true == 1, eighths, 8 - eighths) == 0).any()
    assert np.isinf(d.risk) == (loss == "log" and surely_wrong)
    assert d.refinement <= min(d.risk, {"log": np.log(2)}.get(loss, 1) + 1e-12)
    assert np.isfinite(d.calibrator.predict_proba([0.0, 0.5, 1.0])).all()


@st.composite
def impossible_classes(draw):
    """Draw predictions with -inf among the logits, but never in a whole row."""
    labels, logits = draw(predictions())
    gone = draw(arrays(bool, logits.shape))
    gone[gone.all(axis=1), 0] = False
    return labels, np.where(gone, -np.inf, logits)


@given(impossible_classes(), st.sampled_from([np.float32, np.float64]))
@pytest.mark.filterwarnings("ignore:the log loss is infinite:RuntimeWarning")
def test_minus_infinity_is_a_legal_logit(sample, dtype):
    labels, logits = sample
    rows = np.arange(len(labels))
    at_label = logits[rows, labels]
    d = rc.decompose(labels, logits=logits.astype(dtype))
    with np.errstate(invalid="ignore"):
        close(d.risk, (logsumexp(logits, axis=1) - at_label).mean(), SINGLE)
    possible = np.isfinite(logits).sum(axis=1)
    flat = np.log(possible).mean() if np.isfinite(at_label).all() else np.log(logits.shape[1])
    assert 0 <= d.refinement <= flat + 1e-6  # beta -> 0 is open to everyone
    assert 0 <= rc.fit_temperature(labels, logits.astype(dtype)).loss <= flat + 1e-6
    probs = d.calibrator.predict_proba_logits(logits.astype(dtype))
    close(probs.sum(axis=1), 1, SINGLE)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_log_odds_may_be_infinite_on_either_side(dtype):
    odds = np.array([np.inf, -np.inf, 1.0, -1.0, -1.0], dtype=dtype)
    d = rc.decompose([1, 0, 1, 0, 1], logits=odds)
    miss = np.log1p(np.exp(1)) + 2 * np.log1p(np.exp(-1))
    close(d.risk, miss / 5, SINGLE)
    close(d.beta, np.log(2), SINGLE)  # right two times out of three: sigmoid(beta) = 2/3
    close(d.refinement, (np.log(3) + 2 * np.log(1.5)) / 5, SINGLE)


@pytest.mark.parametrize(
    "function", [rc.decompose, rc.refinement_error, rc.calibration_error], ids=lambda f: f.__name__
)
def test_an_impossible_label_is_warned_of_where_the_call_is(function):
    with pytest.warns(RuntimeWarning, match="the log loss is infinite.*probability 0") as caught:
        function([1, 1, 0], [0.0, 1.0, 0.2])
    assert [w.filename for w in caught] == [__file__]


@pytest.mark.parametrize("calibrator", ["temperature", "isotonic"])
@pytest.mark.parametrize("dtype", [int, bool, np.float32])
def test_predicted_classes_are_told_from_probabilities(calibrator, dtype):
    with pytest.warns(RuntimeWarning, match=r"did you pass model\.predict\(X\)\?"):
        rc.decompose([1, 1, 0, 0], np.array([0, 1, 1, 0], dtype=dtype), calibrator=calibrator)
    with pytest.warns(RuntimeWarning, match="log loss is infinite") as caught:
        rc.decompose([1, 1, 0, 0], [0.0, 1.0, 1.0, 0.25], calibrator=calibrator)
    assert "predict(X)" not in str(caught[0].message)


def features(n, k, labels, seed=0):
    """Return n rows of k numbers that have nothing to do with the labels 0, 1 and so on."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.arange(n) % labels), rng.normal(size=(n, k))


TAKE_LOGITS = {
    "fit_temperature": rc.fit_temperature,
    "decompose": lambda y, logits, **how: rc.decompose(y, logits=logits, **how),
    "accuracy": lambda y, logits, **how: rc.metrics.accuracy(y, logits=logits, **how),
    "evaluate": lambda y, logits, **how: rc.evaluation.evaluate(y, logits=logits, **how),
    "monitor": lambda y, logits, **how: rc.select(y, logits=[logits] * 3, **how),
}


@pytest.mark.parametrize("take", TAKE_LOGITS)
@pytest.mark.parametrize(("k", "labels", "first"), [(16, 4, 0), (30, 2, 0), (16, 4, 1), (4, 2, 0)])
def test_features_are_told_from_logits(take, k, labels, first):
    y, X = features(400, k, labels)
    with pytest.warns(RuntimeWarning, match="Are these the features") as caught:
        TAKE_LOGITS[take](y + first, X)
    assert len(caught) == 1
    assert f"logits has {k} columns" in str(caught[0].message)
    TAKE_LOGITS[take](y + first, X, classes=range(k))


@pytest.mark.parametrize("take", TAKE_LOGITS)
@pytest.mark.parametrize(
    ("n", "k", "labels"),
    [
        (500, 1000, 1000),
        (40, 10_000, 10_000),
        (60, 200, 50),
        (400, 16, 12),
        (300, 3, 2),
        (30, 16, 4),
    ],
    ids=["images", "tokens", "sampled twice", "a few absent", "one absent", "few rows"],
)
def test_absent_classes_are_no_features(take, n, k, labels):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n, k)).astype(np.float32)
    y = rng.permutation(np.arange(n) % labels) if n > 60 else rng.integers(0, labels, n)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "logits has")
        TAKE_LOGITS[take](y, logits)


@pytest.mark.parametrize("take", TAKE_LOGITS)
def test_logits_that_find_the_first_of_many_classes_are_no_features(take):
    y, logits = features(400, 100, 4)
    logits[np.arange(400), y] += 3  # right in about 60 % of the rows
    TAKE_LOGITS[take](y, logits)


@pytest.mark.parametrize("calibrator", ["temperature", "isotonic"])
def test_an_impossible_label_leaves_refinement_finite(calibrator):
    with pytest.warns(RuntimeWarning, match="the log loss is infinite"):
        d = rc.decompose([1, 1, 0, 0], [0.0, 1.0, 0.25, 0.5], calibrator=calibrator)
    assert d.risk == d.calibration == np.inf
    assert 0 < d.refinement <= np.log(2)


@pytest.mark.parametrize("cv", [None, 2, "loo"])
@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.filterwarnings("ignore:without row:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:the log loss is infinite:RuntimeWarning")
def test_an_impossible_label_gives_no_nan_out_of_sample(cv, laplace):
    calibrator = rc.TemperatureScaling(laplace=laplace)
    d = rc.decompose([0, 1, 1, 0, 1], [0.0, 1.0, 0.0, 0.4, 0.6], calibrator=calibrator, cv=cv)
    assert not np.isnan([d.risk, d.calibration, d.refinement, d.sharpness, d.uncertainty]).any()


def test_single_precision_reaches_its_own_ends():
    """The difference of two float32 logits, or beta times one, may be no float32 itself."""
    far = np.array([[3e38, -3e38], [-3e38, 3e38]], dtype=np.float32)
    close(terms([0, 1], logits=far)[:2], [0, 0])
    ts = rc.TemperatureScaling(laplace=False).fit_logits(far, [0, 1])
    np.testing.assert_array_equal(ts.predict_proba_logits(far), np.eye(2))
    iso = rc.make_calibrator("isotonic", laplace=False).fit_logits(far, [0, 1])
    np.testing.assert_array_equal(iso.predict_proba_logits(far), np.eye(2))


def test_flat_predictions_keep_impossible_classes_impossible_in_single_precision():
    logits = np.array([[1.0, 0.0, -np.inf]] * 3, dtype=np.float32)  # wrong every time: best is flat
    ts = rc.TemperatureScaling(laplace=False).fit_logits(logits, [1, 1, 1])
    close(ts.predict_proba_logits(logits), [[0.5, 0.5, 0.0]] * 3)


# ---- few rows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_row(dtype):
    right, wrong = np.array([[0.1, 0.2, 0.7]], dtype), np.array([[0.2, 0.3, 0.5]], dtype)
    close(terms([2], right)[:3], [-np.log(0.7), 0, 0], SINGLE)
    close(terms([0], wrong)[:3], [-np.log(0.2), np.log(3), 0], SINGLE)
    close(terms([0], [0.5])[:3], [np.log(2), np.log(2), 0])
    ts = rc.TemperatureScaling().fit(right, [2])  # n = 1: half certain, half flat
    close(ts.predict_proba(right), [[1 / 6, 1 / 6, 4 / 6]], SINGLE)
    iso = rc.make_calibrator("isotonic").fit([0.3], [1])
    close(iso.predict_proba([0.0, 0.3, 1.0])[:, 1], [0.75] * 3)


def test_two_rows():
    close(terms([0, 1], [0.25, 0.75])[:3], [np.log(4 / 3), 0, np.log(2)])
    close(terms([1, 0], [0.25, 0.75])[:3], [np.log(4), np.log(2), np.log(2)])


@pytest.mark.parametrize("calibrator", ["temperature", "isotonic"])
def test_one_class_present(calibrator):
    d = rc.decompose([1, 1, 1], [0.5, 0.75, 0.25], calibrator=calibrator)
    assert d.uncertainty == 0
    close(d.risk, -(np.log(0.5) + np.log(0.75) + np.log(0.25)) / 3)
    # Temperature: log-odds 0, c and -c cancel, so the flat prediction is best. Isotonic: g = 1, smoothed.
    close(d.refinement, np.log(2) if calibrator == "temperature" else -np.log(7 / 8))


def test_isotonic_is_scikit_learns_regression_smoothed():
    odds, weights = ODDS, WEIGHTS + 0.5
    share = IsotonicRegression(y_min=0, y_max=1).fit(odds, YES, weights).predict(odds)
    total = weights.sum()
    expected = (total * share + 0.5) / (total + 1)
    found = rc.make_calibrator("isotonic").fit_logits(odds, YES, weights)
    close(found.predict_proba_logits(odds)[:, 1], expected)


# ---- what is left behind ---------------------------------------------------------------------------------


def everything(labels, probs, logits, weights, classes):
    rc.decompose(labels, probs, sample_weight=weights, classes=classes)
    rc.decompose(
        labels, logits=logits, sample_weight=weights, classes=classes, cv="loo", loss="brier"
    )
    rc.decompose(labels, logits=logits, classes=classes, cv=3)
    rc.fit_temperature(labels, logits, weights, classes=classes)
    rc.TemperatureScaling().fit(probs, labels, weights, classes=classes).predict_proba(probs)
    rc.TemperatureScaling().fit_logits(logits, labels).predict_proba_logits(logits)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.requires_grad == b.requires_grad
    return a.equals(b) if hasattr(a, "equals") else np.array_equal(a, b)


@pytest.mark.parametrize(
    "convert",
    [
        np.copy,
        lambda a: a.astype(np.float32) if a.dtype.kind == "f" else a,
        np.asfortranarray,
        np.ndarray.tolist,
        torch.tensor,
        lambda a: pd.DataFrame(a) if a.ndim == 2 else pd.Series(a),
        lambda a: pl.DataFrame(a) if a.ndim == 2 else pl.Series(a),
    ],
    ids=["float64", "float32", "fortran", "list", "torch", "pandas", "polars"],
)
def test_inputs_are_never_modified(convert):
    given = [convert(a) for a in (LABELS, PROBS, LOGITS, WEIGHTS, np.arange(K))]
    before = copy.deepcopy(given)
    everything(*given)
    assert all(same(a, b) for a, b in zip(given, before, strict=True))


def test_a_tensor_keeps_its_gradient():
    logits = torch.tensor(LOGITS, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(LABELS))
    close(rc.decompose(LABELS, logits=logits).risk, loss.item())
    loss.backward()  # the graph is still whole
    assert logits.requires_grad
    assert logits.grad is not None


def test_legal_input_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in (np.float16, np.float32, np.float64):
            everything(LABELS, PROBS.astype(dtype), LOGITS.astype(dtype), WEIGHTS, None)
        rc.decompose([0, 1, 0], [0.0, 1.0, 0.5])


def test_results_are_the_callers_own():
    """Neither the labels' names nor the predictions that come back share memory with what went in."""
    names, probs = NAMES.copy(), PROBS.copy()
    ts = rc.TemperatureScaling(laplace=False).fit(probs, TYPED, classes=names)
    names[0] = "dog"
    assert ts.classes_.tolist() == NAMES.tolist()
    ts.predict_proba(probs)[:] = 0
    np.testing.assert_array_equal(probs, PROBS)
