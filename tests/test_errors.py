"""What the one door refuses, and what it says: the argument, the first offending row, and the cure."""

import re
from datetime import date

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from sklearn.model_selection import GroupKFold, RepeatedKFold, ShuffleSplit

import refinecal as rc

NAN, INF = np.nan, np.inf
Y = [0, 1, 1]
P = [0.2, 0.6, 0.7]
P3 = [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.25, 0.5, 0.25]]
Z3 = np.log(P3)


def case(message, error=ValueError, **arguments):
    """Name a call by the message that it must give; ``message`` is a pattern."""
    return pytest.param(arguments, error, message, id=re.sub(r"[^\w ,=]+", "", message)[:70])


def refuses(*cases):
    return pytest.mark.parametrize(("arguments", "error", "message"), cases)


def check(arguments, error, message):
    arguments = {"y_true": Y, **arguments}
    if not {"probs", "logits"} & set(arguments):
        arguments["probs"] = P
    for function in (rc.decompose, rc.refinement_error, rc.calibration_error):
        with pytest.raises(error, match=message):
            function(**arguments)


# ---- probabilities and logits ----------------------------------------------------------------------------


@refuses(
    case(r"probs\[1\] is NaN: drop the rows", probs=[0.2, NAN, NAN]),
    case(r"probs\[1, 2\] is NaN: drop the rows", probs=[P3[0], [0.5, 0.5, NAN], P3[2]]),
    case(r"probs\[2, 0\] is NaN", probs=np.array([*P3[:2], [NAN] * 3], dtype=np.float32)),
    case(r"probs\[1\] is NaN", probs=[0.2, None, 0.7]),
    case(r"probs\[1\] is NaN", probs=pd.Series([0.2, pd.NA, 0.7], dtype="Float64")),
    case(r"probs\[1, 0\] is NaN", probs=pd.DataFrame(P3, dtype="Float64").replace(0.6, pd.NA)),
    case(r"probs\[1, 0\] is NaN", probs=pd.DataFrame(P3, dtype=object).replace(0.6, pd.NA)),
    case(r"probs\[1\] is NaN", probs=pl.Series([0.2, None, 0.7])),
    case(r"probs\[1\] is NaN", probs=pa.array([0.2, None, 0.7])),
    case(r"probs\[1\] is NaN", probs=torch.tensor([0.2, NAN, 0.7], dtype=torch.bfloat16)),
    case(r"probs\[1\] is NaN", probs=jnp.array([0.2, NAN, 0.7])),
    case(r"probs\[1\] is NaN", probs=np.array(["0.2", "nan", "0.7"]).astype(">f4")),
    case(r"logits\[1\] is NaN: drop the rows", logits=[0.2, NAN, 0.7]),
    case(r"logits\[1, 1\] is NaN: drop the rows", logits=[[1, 2], [INF, NAN], [NAN, 0]]),
)
def test_missing_predictions(arguments, error, message):
    check(arguments, error, message)


@refuses(
    case(r"probs\[1\] is 1\.5, which is not a probability.*0\.\.1.*logits=", probs=[1, 1.5, 7]),
    case(r"probs\[2\] is -0\.1, which is not a probability.*0\.\.1", probs=[0.2, 0.6, -0.1]),
    case(r"probs\[0\] is inf, which is not a probability", probs=[INF, 0.6, 0.7]),
    case(r"probs\[0\] is 2, which is not a probability", probs=[2, 0, 1]),
    case(r"probs\[1, 0\] is 20, which is not", probs=[[0.2, 0.8], [20, 80], [70, 30]]),
    case(r"probs\[0, 0\] is -1\.60944.*pass logits=", probs=Z3),  # log-probabilities
    case(r"probs\[0\] is -1\.5.*log-odds, pass logits=", probs=[-1.5, 2.0, 0.3]),
    case(r"probs\[1\] sums to 0\.9.*sum to 1.*pass logits=", probs=[P3[0], [0.3] * 3, [0.2] * 3]),
    case(r"probs\[0\] sums to 1\.4.*divide each row by its sum", probs=[[0.7, 0.7]] * 3),
    case(r"probs\[2\] sums to 0:", probs=[*P3[:2], [0, 0, 0]]),
    case(r"probs\[0\] sums to 1\.01", probs=np.array([[0.51, 0.5]] * 3)),
    case(r"probs\[0\] sums to 1\.1", probs=torch.tensor([[0.6, 0.5]] * 3, dtype=torch.bfloat16)),
)
def test_numbers_that_are_no_probabilities(arguments, error, message):
    check(arguments, error, message)


@refuses(
    case(r"logits\[1, 1\] is \+inf.*only -inf", logits=[[0, 1], [0, INF], [INF, 0]]),
    case(r"logits\[1, 2\] is \+inf.*log-prob", logits=[[0, 1, 2], [0, -INF, INF], [0, 0, 0]]),
    case(
        r"logits\[2\] is -inf in every column.*Drop the row", logits=[[0, 1], [0, -INF], [-INF] * 2]
    ),
)
def test_infinite_logits(arguments, error, message):
    check(arguments, error, message)


@refuses(
    case(r"pass either probs or logits=, found both", TypeError, probs=P, logits=P),
    case(r"pass either probs or logits=, found neither", TypeError, probs=None),
    case(r"pass either probs or logits=, found neither", TypeError, logits=None),
)
def test_one_of_probs_and_logits(arguments, error, message):
    check(arguments, error, message)


@refuses(
    case(r"probs has shape \(\): it must be \(n, k\), or \(n,\)", probs=0.3),
    case(r"logits has shape \(\)", logits=torch.tensor(0.3)),
    case(
        r"probs has shape \(3, 1, 3\).*classes last and reshape\(-1, k\)", probs=np.ones((3, 1, 3))
    ),
    case(r"logits has shape \(3, 2, 4, 4\)", logits=np.ones((3, 2, 4, 4))),
    case(r"probs is empty \(shape \(0,\)\).*at least one row", probs=[], y_true=[]),
    case(r"probs is empty \(shape \(0, 3\)\)", probs=np.ones((0, 3)), y_true=[]),
    case(r"logits is empty \(shape \(3, 0\)\)", logits=np.ones((3, 0))),
    case(r"probs is empty", probs=pd.DataFrame(), y_true=[]),
    case(
        r"probs cannot be read.*all rows of the same length",
        probs=[[0.2, 0.8], [0.3, 0.3, 0.4], [1]],
    ),
    case(r"y_true has 3 rows, but probs has 2", probs=[0.1, 0.2]),
    case(r"y_true has 3 rows, but logits has 4", logits=np.ones((4, 3))),
    case(r"y_true has 0 rows, but probs has 3", y_true=[]),
)
def test_shapes(arguments, error, message):
    check(arguments, error, message)


def vectors(kind):
    """Return a column whose entries are vectors, as model outputs are often kept in a table."""
    return kind([np.array(row) for row in P3])


@refuses(
    case(r"probs must hold real numbers, found complex128", TypeError, probs=[0.2, 0.6j, 0.7]),
    case(r"logits must hold real numbers, found complex64", TypeError, logits=torch.zeros(3) * 1j),
    case(r"probs must hold real numbers, found", TypeError, probs=["0.2", "0.6", "0.7"]),
    case(
        r"probs must hold real numbers.*metrics take labels first",
        TypeError,
        y_true=P,
        probs=list("aba"),
    ),
    case(r"probs must hold real numbers", TypeError, probs=np.array(["a", "b", "a"], dtype=object)),
    case(r"probs must hold real numbers", TypeError, probs=pd.Series(["a", "b", "a"])),
    case(r"probs must hold real numbers", TypeError, probs=pl.Series(["a", "b", "a"])),
    case(
        r"probs must hold real.*datetime64", TypeError, probs=np.array(["2025-01-01"] * 3, "M8[D]")
    ),
    case(r"probs must hold real numbers.*timedelta64", TypeError, probs=np.ones(3, "m8[s]")),
    case(r"probs must hold real numbers", TypeError, probs=[date(2025, 1, 1)] * 3),
    case(r"probs must hold real numbers", TypeError, probs={"a": 1}),
    case(r"probs must hold real numbers", TypeError, probs=(p for p in P)),
    case(r"probs .*structured", TypeError, probs=np.array([(0.2, 0.8)] * 3, "f8,f8")),
    case(r"probs .*np\.stack", (TypeError, ValueError), probs=vectors(pd.Series)),
    case(r"probs .*np\.stack", (TypeError, ValueError), probs=pl.Series(P3)),
    case(r"probs is a masked array", TypeError, probs=np.ma.array(P, mask=[0, 1, 0])),
    case(
        r"probs is a sparse matrix: pass probs\.toarray",
        TypeError,
        probs=scipy.sparse.csr_array(P3),
    ),
    case(r"logits is a sparse matrix", TypeError, logits=scipy.sparse.coo_matrix(P3)),
    case(r"probs is a sparse tensor.*to_dense", TypeError, probs=torch.tensor(P3).to_sparse()),
    case(r"logits is a sparse tensor.*to_dense", TypeError, logits=torch.eye(3).to_sparse_coo()),
    case(r"probs is a lazy frame: pass probs\.collect", TypeError, probs=pl.LazyFrame({"a": P})),
)
def test_things_that_are_no_numbers(arguments, error, message):
    check(arguments, error, message)


def test_the_first_offending_row_is_found_far_down():
    """The checks look at a million numbers at a time; rows are counted from the very first."""
    n = 1_200_000
    probs, labels = np.full(n, 0.5, np.float32), np.zeros(n, np.int8)
    probs[[1_100_000, 1_150_000]] = NAN
    with pytest.raises(ValueError, match=r"probs\[1100000\] is NaN"):
        rc.decompose(labels, probs)
    rows = np.full((n // 2, 2), 0.5, np.float32)
    rows[[590_000, 595_000], 1] = 0.4
    with pytest.raises(ValueError, match=r"probs\[590000\] sums to 0\.9"):
        rc.decompose(labels[: n // 2], rows)
    rows[590_000] = -INF
    with pytest.raises(ValueError, match=r"logits\[590000\] is -inf in every column"):
        rc.decompose(labels[: n // 2], logits=rows)


# ---- labels ----------------------------------------------------------------------------------------------


@refuses(
    case(
        r"y_true\[1\] is 3, but probs has 3 columns: y_true must lie in 0\.\.2\. .*start at 1.*y_true - 1",
        y_true=[1, 3, 2],
        probs=P3,
    ),
    case(r"y_true\[0\] is 2, but probs has 2 columns.*start at 1", y_true=[2, 1, 1]),
    case(r"y_true\[1\] is -1, but probs has 2.*pass classes=\[-1, 1\]", y_true=[1, -1, 1]),
    case(r"y_true\[1\] is -1.*0\.\.1.*classes=\[-1, 1\]", y_true=np.array([1, -1, 1], np.int8)),
    case(r"y_true\[2\] is 9, but logits has 3 columns.*classes=", y_true=[0, 1, 9], logits=Z3),
    case(r"y_true\[0\] is 255, but probs", y_true=np.array([255, 0, 1], np.uint8)),
    case(
        r"y_true\[0\] is 18446744073709551615, but", y_true=np.array([2**64 - 1, 0, 1], np.uint64)
    ),
    case(r"y_true\[1\] is 2, but probs has 2 columns", y_true=[0.0, 2.0, 1.0]),
    case(r"y_true\[1\] is inf", y_true=[0, INF, 1]),
    case(r"y_true\[1\] is -inf", y_true=[0, -INF, 1]),
    case(r"y_true\[1\] is 0\.5: labels must be whole.*\(3, 2\) rows", y_true=[0, 0.5, 1]),
    case(r"y_true\[0\] is 0\.2: labels must be whole", y_true=P, probs=Y),  # arguments swapped
    case(r"y_true is boolean, but probs has 3 columns", y_true=[True, False, True], probs=P3),
)
def test_labels_out_of_range(arguments, error, message):
    check(arguments, error, message)


MISSING = r"y_true\[1\] is missing: drop the rows without a label"


@pytest.mark.parametrize(
    "y_true",
    [
        [0, None, 1],
        [0, NAN, NAN],
        [0, pd.NA, 1],
        [0, pd.NaT, 1],
        ["a", None, "b"],
        ["a", NAN, "b"],
        np.array(["a", NAN, "b"], dtype=object),
        np.array(["a", NAN, "b"], dtype=np.dtypes.StringDType(na_object=NAN)),
        np.array([0, NAN, 1], dtype=np.float16),
        pd.Series([0, NAN, 1]),
        pd.Series([0, pd.NA, 1], dtype="Int64"),
        pd.Series([True, pd.NA, False], dtype="boolean"),
        pd.Series(["a", None, "b"]),
        pd.Series(["a", pd.NA, "b"], dtype="string"),
        pd.Series(["a", None, "b"], dtype="category"),
        pl.Series([0, None, 1]),
        pl.Series([True, None, False]),
        pl.Series(["a", None, "b"]),
        pl.Series(["a", None, "b"], dtype=pl.Categorical),
        pa.array([0, None, 1]),
        pa.array(["a", None, "b"]),
        torch.tensor([0, NAN, 1]),
        jnp.array([0, NAN, 1], dtype=jnp.bfloat16),
    ],
    ids=lambda y: f"{type(y).__module__.split('.')[0]} {getattr(y, 'dtype', y)}",
)
def test_missing_labels(y_true):
    check({"y_true": y_true}, ValueError, MISSING)


@pytest.mark.parametrize(
    ("y_true", "classes"), [([0, NAN, 1], [0, 1]), (["a", None, "b"], ["a", "b"])]
)
def test_missing_labels_with_classes(y_true, classes):
    check({"y_true": y_true, "classes": classes}, ValueError, MISSING)


@refuses(
    case(r"y_true mixes int and str: make all labels the same", TypeError, y_true=["a", 1, "a"]),
    case(r"y_true mixes int and str", TypeError, y_true=np.array([0, "1", 1], dtype=object)),
    case(r"y_true mixes bool and str", TypeError, y_true=pd.Series([True, "no", False])),
    case(r"y_true holds complex128: labels must be integers", TypeError, y_true=[0, 1j, 1]),
    case(r"y_true holds datetime64", TypeError, y_true=np.array(["2025-01-01"] * 3, "M8[D]")),
    case(r"y_true holds datetime64", TypeError, y_true=pd.date_range("2025-01-01", periods=3)),
    case(r"y_true holds .*labels must be integers", TypeError, y_true=[date(2025, 1, 1)] * 3),
    case(r"y_true .*structured", TypeError, y_true=np.array([(0,), (1,), (1,)], [("y", "i8")])),
    case(r"y_true is a masked array", TypeError, y_true=np.ma.array(Y, mask=[0, 0, 1])),
    case(
        r"y_true is a sparse matrix.*toarray", TypeError, y_true=scipy.sparse.eye_array(3).tocsr()
    ),
    case(r"y_true is a sparse tensor.*to_dense", TypeError, y_true=torch.tensor(Y).to_sparse()),
    case(r"y_true is a lazy frame.*collect", TypeError, y_true=pl.LazyFrame({"y": Y})),
    case(r"y_true must hold real numbers", TypeError, y_true=[["a", "b"]] * 3),
    case(r"y_true ", (TypeError, ValueError), y_true=None),
    case(r"y_true ", (TypeError, ValueError), y_true={0, 1}),
    case(r"y_true ", (TypeError, ValueError), y_true=(y for y in Y)),
    case(r"y_true ", (TypeError, ValueError), y_true=pd.Series([("a", 1), ("b", 2), ("a", 1)])),
)
def test_things_that_are_no_labels(arguments, error, message):
    check(arguments, error, message)


@refuses(
    case(r"y_true has shape \(\): labels must be \(3,\), or \(3, 2\)", y_true=1),
    case(r"y_true has shape \(1, 3\)", y_true=[Y]),
    case(r"y_true has shape \(3, 3\).*\(3, 2\) rows that sum to 1", y_true=np.eye(3)),
    case(r"y_true has shape \(3, 1, 1\)", y_true=np.zeros((3, 1, 1))),
    case(r"y_true has 2 rows, but probs has 3", y_true=[[0, 1], [1, 0]]),
    case(r"y_true cannot be read.*all rows of the same length", y_true=[[0], [0, 1], [1]]),
)
def test_shapes_of_labels(arguments, error, message):
    check(arguments, error, message)


@refuses(
    case(r"y_true\[1\] marks 2 of the 2 classes.*multilabel", y_true=[[0, 1], [1, 1], [0, 0]]),
    case(r"y_true\[2\] marks none of the 2 .*drop it", y_true=[[0, 1], [1, 0], [0, 0]]),
    case(r"y_true\[0\] sums to 0\.9.*divide each by its sum", y_true=[[0.4, 0.5], [1, 0], [0, 1]]),
    case(r"y_true\[1, 0\] is -1.*0\.\.1", y_true=[[0, 1], [-1, 1], [1, -1]]),
    case(r"y_true\[1, 1\] is 1\.5.*0\.\.1", y_true=[[0, 1], [-0.0, 1.5], [0, 1]]),
    case(r"y_true\[1, 0\] is (nan|NaN|missing)", y_true=[[0, 1], [NAN, 1], [0, 1]]),
    case(r"y_true\[1, 0\] is (nan|NaN|missing)", y_true=[[0, 1], [None, 1], [0, 1]]),
    case(
        r"y_true\[1, 0\] is (nan|NaN|missing)",
        y_true=pd.DataFrame([[0, 1], [pd.NA, 1], [0, 1]], dtype="Int64"),
    ),
)
def test_rows_of_labels(arguments, error, message):
    check(arguments, error, message)


MANY = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 1]])  # several labels hold at once
SHARES = np.array([[0.7, 0.6, 0.1], [0.1, 0.2, 0.1], [0.2, 0.9, 0.1], [0.8, 0.2, 0.6]])
PAIRS = [np.stack([1 - p, p], axis=1) for p in SHARES.T]  # as scikit-learn's forests return them


@pytest.mark.parametrize(
    "function", [rc.decompose, rc.metrics.ece, rc.metrics.log_loss, rc.evaluation.evaluate]
)
@pytest.mark.parametrize("convert", [np.asarray, torch.tensor, pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("dtype", [int, bool, float])
def test_several_labels_at_once_are_one_problem_each(function, convert, dtype):
    with pytest.raises(ValueError, match=r"\(multilabel\).*y_true\[:, j\] with probs\[:, j\]"):
        function(convert(MANY.astype(dtype)), SHARES)


def test_the_cure_for_several_labels_fits_the_predictions():
    with pytest.raises(ValueError, match=r"labels\[:, j\] with logits=logits\[:, j\]"):
        rc.fit_temperature(MANY, np.log(SHARES))
    with pytest.raises(ValueError, match=r"rc.decompose\(y_true\[:, 0\], probs\[0\]\)"):
        rc.decompose(MANY, PAIRS)
    for j in range(3):
        one, other = rc.decompose(MANY[:, j], SHARES[:, j]), rc.decompose(MANY[:, j], PAIRS[j])
        assert one.risk == pytest.approx(other.risk)


@pytest.mark.parametrize(
    "y_true",
    [np.eye(3, dtype=int)[[0, 0, 1, 2]], [0, 0, 1, 2], [[0], [0], [1], [1]], np.empty((0, 3))],
)
def test_scores_of_one_label_each_are_no_multilabel(y_true):
    with pytest.raises(ValueError, match="divide each row by its sum"):
        rc.decompose(y_true, SHARES)


@refuses(
    case(
        r"y_true holds 3 different labels \('a', 'b', 'c'\), but probs has 2 columns: pass classes=",
        y_true=["b", "a", "c"],
    ),
    case(r"y_true holds 2 .*\('a', 'b'\), but probs has 3.*classes=", y_true=list("aba"), probs=P3),
    case(r"y_true holds 1 different labels \('a'\), but probs has 2", y_true=list("aaa")),
    case(
        r"y_true holds 7 .*\('a', 'b', 'c', 'd', 'e', \.\.\.\)",
        y_true=list("abcdefg"),
        probs=[0.5] * 7,
    ),
)
def test_number_of_names(arguments, error, message):
    check(arguments, error, message)


@refuses(
    case(r"classes has shape \(3,\), but probs has 2 columns.*in order", classes=[0, 1, 2]),
    case(r"classes has shape \(1,\), but logits has 3 col", logits=Z3, classes=["a"]),
    case(r"classes has shape \(\)", classes="ab"),
    case(r"classes has shape \(1, 2\)", classes=[[0, 1]]),
    case(r"classes has shape \(0,\)", classes=[]),
    case(r"classes contains a label twice", classes=["a", "a"], y_true=list("aaa")),
    case(r"classes contains a label twice", classes=[1, 1.0]),
    case(
        r"y_true\[1\] is 1, which is not among classes \[-1, 2\]",
        y_true=[-1, 1, 3],
        classes=[-1, 2],
    ),
    case(r"y_true\[2\] is 'c', .*classes \['a', 'b'\]", y_true=list("abc"), classes=["a", "b"]),
    case(r"y_true\[0\] is 0, .*classes \['0', '1'\]", classes=["0", "1"]),
    case(r"y_true\[0\] is '1', .*classes \[0, 1\]", y_true=["1", "0", "0"], classes=[0, 1]),
    case(r"y_true\[0\] is 0\.5, .*classes \[0, 1\]", y_true=[0.5, 0, 1], classes=[0, 1]),
)
def test_classes(arguments, error, message):
    check(arguments, error, message)


@refuses(
    case(
        r"y_true\[1\] is 'cow'",  # one label is a column, so the columns are named by class
        y_true=["cat", "cow", "cat"],
        probs=pd.DataFrame([[0.9, 0.1]] * 3, columns=["dog", "cat"]),
    ),
    case(
        r"(columns|classes).* twice",
        y_true=["dog", "dog", "dog"],
        probs=pd.DataFrame([[0.9, 0.1]] * 3, columns=["dog", "dog"]),
    ),
    case(
        r"pass classes=",  # whether 'yes' is class 1 or class 0 would be a guess
        y_true=["yes", "yes", "yes"],
        probs=pd.DataFrame({"yes": P}),
    ),
)
def test_names_of_columns(arguments, error, message):
    check(arguments, error, message)


# ---- weights ---------------------------------------------------------------------------------------------


@refuses(
    case(
        r"sample_weight\[1\] is -1: a weight must be a finite number of at least 0",
        sample_weight=[1, -1, -2],
    ),
    case(r"sample_weight\[2\] is nan: .*finite", sample_weight=[1, 1, NAN]),
    case(r"sample_weight\[0\] is inf: .*finite", sample_weight=[INF, 1, NAN]),
    case(r"sample_weight\[1\] is nan", sample_weight=[1, None, 1]),
    case(r"sample_weight\[1\] is nan", sample_weight=pd.Series([1, pd.NA, 1], dtype="Int64")),
    case(r"sample_weight\[1\] is nan", sample_weight=pl.Series([1, None, 1])),
    case(r"sample_weight is zero everywhere: at least one", sample_weight=[0, 0, 0]),
    case(
        r"sample_weight has shape \(2,\), but probs has 3 rows: pass \(3,\)", sample_weight=[1, 1]
    ),
    case(r"sample_weight has shape \(4,\), but logits has 3", logits=Z3, sample_weight=[1] * 4),
    case(r"sample_weight has shape \(\), but", sample_weight=2.0),
    case(r"sample_weight has shape \(3, 2\), but", sample_weight=np.ones((3, 2))),
    case(r"sample_weight has shape \(1, 3\), but", sample_weight=np.ones((1, 3))),
    case(r"sample_weight has shape \(0,\), but", sample_weight=[]),
    case(r"sample_weight must hold real numbers", TypeError, sample_weight=list("abc")),
    case(r"sample_weight must hold real numbers", TypeError, sample_weight=[1, 1j, 1]),
    case(r"sample_weight must hold real numbers", TypeError, sample_weight="balanced"),
    case(r"sample_weight is a masked array", TypeError, sample_weight=np.ma.ones(3)),
    case(
        r"sample_weight is a sparse matrix",
        TypeError,
        sample_weight=scipy.sparse.eye_array(3).tocsr(),
    ),
    case(r"sample_weight cannot be read", sample_weight=[[1], [1, 2], [3]]),
)
def test_weights(arguments, error, message):
    check(arguments, error, message)


# ---- the same door everywhere ----------------------------------------------------------------------------

DOORS = {  # what the labels are called there, and a call with labels, logits and weights
    "decompose": ("y_true", lambda y, z, w=None: rc.decompose(y, logits=z, sample_weight=w)),
    "fit_temperature": ("labels", lambda y, z, w=None: rc.fit_temperature(y, z, w)),
    "TemperatureScaling": ("y", lambda y, z, w=None: rc.TemperatureScaling().fit_logits(z, y, w)),
    "isotonic": ("y", lambda y, z, w=None: rc.make_calibrator("isotonic").fit_logits(z, y, w)),
}
FAULTS = {  # of 300 rows of two classes, the 258th
    "NaN": (r"logits\[257, 1\] is NaN", lambda y, z: z.__setitem__((257, 1), NAN)),
    "+inf": (r"logits\[257, 0\] is \+inf", lambda y, z: z.__setitem__((257, 0), INF)),
    "+inf twice": (r"logits\[257, 0\] is \+inf", lambda y, z: z.__setitem__(257, INF)),
    "-inf": (r"logits\[257\] is -inf in every column", lambda y, z: z.__setitem__(257, -INF)),
    "label": (r"{name}\[257\] is 7, but logits has 2", lambda y, z: y.__setitem__(257, 7)),
    "negative": (r"{name}\[257\] is -1, but logits", lambda y, z: y.__setitem__(257, -1)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_finds_the_same_faults(door, fault, dtype):
    """Plain arrays go straight to the compiled loops of fit_temperature, which must notice."""
    (name, call), (message, spoil) = DOORS[door], FAULTS[fault]
    rng = np.random.default_rng(0)
    for winner in (0, 1):  # a wrong +inf may hide where it is the label's
        labels, logits = np.full(300, winner), rng.normal(size=(300, 2)).astype(dtype)
        spoil(labels, logits)
        with pytest.raises(ValueError, match=message.format(name=name)):
            call(labels, logits)


@pytest.mark.parametrize("k", [2, 3, 10, 129, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_compiled_loops_notice_every_fault(k, dtype):
    """Each number of classes has a loop of its own, each with a last row and column."""
    rng = np.random.default_rng(k)
    clean, labels = rng.normal(size=(131, k)).astype(dtype), rng.integers(0, k, 131)
    for row, column in [(0, 0), (130, k - 1), (64, k // 2), (130, labels[130])]:
        for value, word in [(NAN, "NaN"), (INF, r"\+inf")]:
            logits = clean.copy()
            logits[row, column] = value
            with pytest.raises(ValueError, match=rf"logits\[{row}, {column}\] is {word}"):
                rc.fit_temperature(labels, logits)
        for value in (k, -1, 2**40, -(2**63)):
            wrong = labels.copy()
            wrong[row] = value
            with pytest.raises(
                ValueError, match=rf"labels\[{row}\] is {value}, but logits has {k}"
            ):
                rc.fit_temperature(wrong, clean)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_names_its_own_arguments(door):
    name, call = DOORS[door]
    z = [0.3, -0.2, 0.1]
    with pytest.raises(ValueError, match=rf"^{name}\[1\] is 0\.5: labels must be whole"):
        call([0, 0.5, 1], z)
    with pytest.raises(ValueError, match=rf"^{name}\[2\] is missing"):
        call(["a", "b", None], z)
    with pytest.raises(ValueError, match=rf"^{name} has 2 rows, but logits has 3"):
        call([0, 1], z)
    with pytest.raises(ValueError, match=rf"^{name} holds 3 different labels"):
        call(["a", "b", "c"], z)
    with pytest.raises(ValueError, match=rf"^{name}\[0\] sums to 1\.5"):
        call([[0.5, 1]] * 3, z)
    with pytest.raises(ValueError, match=rf"^{name}\[0\] marks 2 of the 2 classes"):
        call([[1, 1]] * 3, z)
    with pytest.raises(ValueError, match=r"^logits is empty"):
        call([], [])
    with pytest.raises(ValueError, match=r"^sample_weight\[0\] is -1"):
        call([0, 1, 1], z, [-1, 1, 1])
    with pytest.raises(TypeError, match="found neither"):
        call([0, 1, 1], None)


@pytest.mark.parametrize("name", ["temperature", "isotonic"])
def test_calibrators_check_probabilities(name):
    with pytest.raises(
        ValueError, match=r"probs\[2\] is 7, which is not a probability.*use fit_logits"
    ):
        rc.make_calibrator(name).fit([0.2, 0.4, 7], Y)
    fitted = rc.make_calibrator(name).fit(P, Y)
    with pytest.raises(ValueError, match=r"probs\[1\] is NaN"):
        fitted.predict_proba([0.5, NAN])
    with pytest.raises(ValueError, match=r"probs\[0\] sums to 0\.9"):
        fitted.predict_proba([[0.5, 0.4]])
    with pytest.raises(ValueError, match=r"logits\[0, 1\] is \+inf"):
        fitted.predict_proba_logits([[0, INF]])
    with pytest.raises(TypeError, match=r"probs is a sparse matrix"):
        fitted.predict_proba(scipy.sparse.csr_array([[0.5, 0.5]]))
    with pytest.raises((TypeError, ValueError), match=r"probs"):
        fitted.predict_proba(None)


# ---- calibrators, losses, folds and numbers of the search ------------------------------------------------


@pytest.mark.parametrize("name", ["temperature", "isotonic"])
@pytest.mark.parametrize("method", ["predict_proba", "predict_proba_logits"])
def test_unfitted_calibrators(name, method):
    calibrator = rc.make_calibrator(name)
    message = rf"this {type(calibrator).__name__} is not fitted yet: call fit or fit_logits first"
    with pytest.raises(ValueError, match=message):
        getattr(calibrator, method)(P)


@pytest.mark.parametrize(
    ("probs", "columns"), [(P, 2), ([[0.5], [0.1]], 2), ([[0.5, 0.5]], 2), ([[0.25] * 4], 4)]
)
def test_wrong_number_of_columns_to_predict(probs, columns):
    ts = rc.TemperatureScaling().fit(P3, [0, 1, 2])
    with pytest.raises(ValueError, match=rf"probs has {columns} columns, but .* fitted with 3"):
        ts.predict_proba(probs)
    with pytest.raises(ValueError, match=rf"logits has {columns} columns, but .* fitted with 3"):
        ts.predict_proba_logits(probs)


def test_isotonic_is_for_two_classes():
    message = r"isotonic calibration is for 2 classes, found 3: use calibrator='isotonic-ovr'"
    with pytest.raises(ValueError, match=message):
        rc.make_calibrator("isotonic").fit(P3, [0, 1, 2])
    with pytest.raises(ValueError, match=message):
        rc.decompose([0, 1, 2], P3, calibrator="isotonic")


def test_unknown_parameters_of_a_calibrator():
    with pytest.raises(ValueError, match=r"TemperatureScaling has no parameter 'beta'.*'laplace'"):
        rc.TemperatureScaling().set_params(beta=2)
    with pytest.raises(TypeError, match="beta"):
        rc.make_calibrator("temperature", beta=2)


def test_unknown_names_of_calibrators_outside_decompose():
    message = r"calibrator is 'temprature': .*'temperature', 'affine'.*mean 'temperature'\?"
    with pytest.raises(ValueError, match=message):
        rc.make_calibrator("temprature")


class OnlyFit:
    def fit(self, probs, y):
        return self


class WithoutWeights(OnlyFit):
    def predict_proba(self, probs):
        return probs[:, :1]


@refuses(
    case(r"loss is 'logloss': it must be one of 'log', 'brier'.*mean 'log'\?", loss="logloss"),
    case(r"loss is 'hinge': it must be one of 'log', 'brier', 'spherical', or an", loss="hinge"),
    case(r"loss None lacks name, per_sample.*MatrixLoss", TypeError, loss=None),
    case(r"loss .*is a class: pass an instance", TypeError, loss=rc.losses.LogLoss),
    case(r"loss .* lacks", TypeError, loss=np.square),
    case(r"calibrator is 'sigmoids': it must be one of 'temperature', 'aff", calibrator="sigmoids"),
    case(r"calibrator is 'Isotonic'.*Did you mean 'isotonic'\?", calibrator="Isotonic"),
    case(r"calibrator is None: pass a name such as 'temperature'", TypeError, calibrator=None),
    case(r"calibrator is <class.*fit\(probs, y\)", TypeError, calibrator=rc.TemperatureScaling),
    case(r"calibrator is .*predict_proba", TypeError, calibrator=OnlyFit()),
    case(
        r"WithoutWeights\.fit takes no sample_weight",
        TypeError,
        calibrator=WithoutWeights(),
        sample_weight=[1, 1, 2],
    ),
    case(
        r"WithoutWeights\.predict_proba returned shape \(3, 1\), expected \(3, 2\)",
        calibrator=WithoutWeights(),
    ),
)
def test_losses_and_calibrators(arguments, error, message):
    check(arguments, error, message)


@refuses(
    case(r"cv is 'kfold': it must be 'loo', a number of folds or a splitter", cv="kfold"),
    case(r"cv is 1: the number of folds must lie in 2\.\.3, the number of rows", cv=1),
    case(r"cv is 0: the number of folds", cv=0),
    case(r"cv is -1: the number of folds", cv=-1),
    case(r"cv is 4: the number of folds must lie in 2\.\.3", cv=4),
    case(r"cv is 2\.5: it must be None, a number of folds, 'loo', or a", TypeError, cv=2.5),
    case(r"cv is True: it must be None", TypeError, cv=True),
    case(r"cv must give pairs of training and test rows", TypeError, cv=[0, 1]),
    case(r"cv='loo' needs at least two rows", y_true=[1], probs=[0.3], cv="loo"),
    case(r"cv='loo' is for temperature.*such as cv=10", cv="loo", calibrator="isotonic"),
    case(r"groups= needs a splitter.*GroupKFold", groups=[0, 0, 1]),
    case(r"groups= needs a splitter.*GroupKFold", groups=[0, 0, 1], cv=3),
    case(r"groups= needs a splitter.*GroupKFold", groups=[0, 0, 1], cv="loo"),
    case(r"groups has 2 entries, but there are 3 rows", groups=[0, 1], cv=GroupKFold(2)),
    case(r"'groups' parameter", cv=GroupKFold(2)),
    case(r"cv tests row 0 2 times", cv=RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)),
    case(r"cv tests row \d 0 times", cv=ShuffleSplit(1, test_size=1, random_state=0)),
    case(r"no row of positive weight to fit on: use fewer folds", cv=3, sample_weight=[0, 1, 0]),
)
def test_folds(arguments, error, message):
    check(arguments, error, message)


@pytest.mark.parametrize("start", [-1, NAN, INF, -INF, "warm", None, 1j, [1.0]], ids=repr)
def test_bad_starts(start):
    with pytest.raises(
        (TypeError, ValueError), match=r"start is .*: it must be .*earlier fit\.beta"
    ):
        rc.fit_temperature(Y, P, start=start)


@pytest.mark.parametrize(
    "start", [2, 0.3, np.float32(0.3), np.int64(2), 1e300, 1e-320, 0.0], ids=repr
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_good_starts(start, dtype):
    logits = np.array([[2, 0]] * 4, dtype)
    fit = rc.fit_temperature([0, 0, 0, 1], logits, start=start)
    assert fit.beta == pytest.approx(np.log(3) / 2, rel=1e-6)


@pytest.mark.parametrize(
    "first",
    [[[0, 1]] * 4, [[1, 0]] * 4, [[0, 1, -INF]] * 4, [[1, 0, -INF]] * 4],
    ids=["flat", "certain", "flat but for one", "certain but for one"],
)
def test_any_earlier_beta_is_a_start(first):
    """In early epochs the predictions may be worse than chance, or never wrong."""
    beta = rc.fit_temperature([0] * 4, first).beta
    fit = rc.fit_temperature([0, 0, 0, 1], [[2.0, 0.0]] * 4, start=beta)
    assert fit.beta == pytest.approx(np.log(3) / 2)


@pytest.mark.parametrize("n_threads", [0, -1, 1.5, "2", NAN, [2]], ids=repr)
def test_bad_numbers_of_threads(n_threads):
    message = r"n_threads is .*: it must be a whole number of at least 1, or None"
    with pytest.raises((TypeError, ValueError), match=message):
        rc.fit_temperature(Y, P, n_threads=n_threads)
    check({"n_threads": n_threads}, (TypeError, ValueError), message)


@pytest.mark.parametrize("n_threads", [None, 1, 7, np.int64(2)], ids=repr)
def test_good_numbers_of_threads(n_threads):
    assert rc.fit_temperature(Y, P, n_threads=n_threads) == rc.fit_temperature(Y, P)
