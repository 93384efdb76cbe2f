"""Rows: their order, weights as repetitions, splits."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from refinecal._rows import Rows, content, hold_out, joined, split_folds

TABLE = np.array([[0.0, 1.5], [2.0, -1.0], [0.0, 0.0], [2.0, -1.0], [np.nan, 1.0]])


def rows(n=40, k=3, weights=None, groups=None, seed=0):
    rng = np.random.default_rng(seed)
    return Rows(rng.normal(size=(n, 4)), rng.integers(k, size=n), weights, groups)


def as_set(found):
    return sorted(zip(found.X[:, 0].tolist(), found.y.tolist(), strict=True))


# ---- content --------------------------------------------------------------------------------------------


def test_equal_rows_have_equal_numbers_and_others_have_not():
    found = content(TABLE)
    assert found[1] == found[3]
    assert len(set(found.tolist())) == 4


@pytest.mark.parametrize(
    "other",
    [
        TABLE.astype(np.float32),
        np.asfortranarray(TABLE),
        TABLE * np.array([1.0, 1.0]) + 0.0,
        pd.DataFrame(TABLE, columns=["a", "b"], index=list("vwxyz")),
        pl.DataFrame(TABLE, schema=["a", "b"]),
        TABLE.tolist(),
    ],
    ids=["float32", "Fortran", "computed", "pandas", "polars", "lists"],
)
def test_content_does_not_depend_on_the_container(other):
    assert np.array_equal(content(other), content(TABLE))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "dok"])
def test_sparse_content_does_not_depend_on_the_format(kind):
    dense = np.array([[0, 1.0], [2, 0], [0, 1.0], [0, 0]])
    found = content(sparse.csr_array(dense).asformat(kind))
    assert found[0] == found[2]
    assert len(set(found.tolist())) == 3
    assert np.array_equal(found, content(sparse.csr_array(dense)))


def test_minus_zero_is_zero():
    assert content(np.array([[0.0]])) == content(np.array([[-0.0]]))


def test_columns_are_not_interchangeable():
    assert content(np.array([[1.0, 2.0]])) != content(np.array([[2.0, 1.0]]))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_categories_and_texts(frame):
    found = content(frame({"a": ["x", "y", "x", None], "b": [1, 1, 1, 1]}))
    assert found[0] == found[2]
    assert len(set(found.tolist())) == 3
    as_categories = pd.DataFrame({"a": pd.Categorical(["x", "y", "x"]), "b": [1, 1, 1]})
    assert np.array_equal(content(as_categories)[:2], found[:2])


def test_texts_that_are_no_table():
    found = content(["good film", "bad film", "good film"])
    assert found[0] == found[2] != found[1]


def test_numbers_spread_evenly():
    """A thousand consecutive integers fill sixteen equal bins about equally: chi-square below its 99.9 %."""
    found = content(np.arange(1000.0)[:, None])
    counts = np.bincount((found >> np.uint64(60)).astype(int), minlength=16)
    assert ((counts - 62.5) ** 2 / 62.5).sum() < 37.7


# ---- order and weights ----------------------------------------------------------------------------------


@given(st.permutations(range(12)))
def test_the_order_of_rows_does_not_matter(order):
    first = rows(12)
    second = first.take(np.array(order)).in_order()
    assert np.array_equal(first.in_order().X, second.X)
    assert np.array_equal(first.in_order().y, second.y)


@given(st.lists(st.integers(0, 4), min_size=12, max_size=12).filter(any))
def test_whole_weights_are_repetitions(weights):
    given_rows = rows(12, weights=np.array(weights, dtype=float))
    repeated = given_rows.take(np.repeat(np.arange(12), weights))
    found = given_rows.in_order()
    assert found.weights is None
    assert as_set(found) == as_set(repeated)


@pytest.mark.parametrize("weights", [np.full(12, 0.5), np.full(12, 100.0)], ids=["halves", "many"])
def test_other_weights_stay_weights(weights):
    found = rows(12, weights=weights).in_order()
    assert found.n == 12
    assert found.total == weights.sum()


def test_rows_of_weight_zero_are_gone():
    weights = np.array([0.0, 0.5] * 6)
    found = rows(12, weights=weights).in_order()
    assert as_set(found) == as_set(rows(12).take(np.arange(1, 12, 2)))


# ---- splits ---------------------------------------------------------------------------------------------


@given(st.integers(24, 80), st.integers(2, 4), st.floats(0.05, 0.6), st.integers(0, 5))
def test_held_out_rows_have_all_classes_that_can_be_spared(n, k, fraction, seed):
    table = rows(n, k, seed=seed)
    counts = np.bincount(table.y, minlength=k)
    train, val = hold_out(table, fraction, seed)
    assert sorted([*train.tolist(), *val.tolist()]) == list(range(n))
    assert set(table.y[train]) == set(table.y)
    assert len(val) == max(round(fraction * n), (counts > 1).sum())


def test_too_few_rows():
    with pytest.raises(ValueError, match=r"n_samples=3 is too few to hold some out"):
        hold_out(Rows(np.zeros((3, 1)), np.arange(3)), 0.2, 0)


def test_a_class_of_one_row_is_for_training():
    table = Rows(np.arange(11.0)[:, None], np.array([0] * 5 + [1] * 5 + [2]))
    train, val = hold_out(table, 0.3, 0)
    assert 10 in train
    assert set(table.y[val]) == {0, 1}


def test_groups_are_held_out_together():
    groups = np.repeat(np.arange(20), 4)
    table = rows(80, groups=groups)
    train, val = hold_out(table, 0.2, 0)
    assert not set(groups[train]) & set(groups[val])
    assert 8 <= len(val) <= 24


def test_folds_keep_groups_together():
    groups = np.repeat(np.arange(20), 4)
    for train, val in split_folds(rows(80, groups=groups), 4, 0):
        assert not set(groups[train]) & set(groups[val])


@pytest.mark.parametrize(
    "kind",
    [np.asarray, pd.DataFrame, lambda X: pl.DataFrame(X, schema=["a", "b"]), sparse.csr_array],
    ids=["NumPy", "pandas", "polars", "sparse"],
)
def test_tables_are_joined_in_their_own_kind(kind):
    table = np.arange(6.0).reshape(3, 2)
    first, second = (
        Rows(kind(table), np.arange(3)),
        Rows(kind(table), np.arange(3), np.full(3, 2.0)),
    )
    found = joined(first, second)
    assert type(found.X) is type(first.X)
    assert found.weights.tolist() == [1, 1, 1, 2, 2, 2]
    dense = found.X.toarray() if sparse.issparse(found.X) else np.asarray(found.X)
    assert np.array_equal(dense, np.concatenate([table, table]))
