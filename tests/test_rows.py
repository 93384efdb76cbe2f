"""Rows: their order, weights as repetitions, splits."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from refinecal._core.arrays import hash_rows
from refinecal.training.rows import Rows, concat_rows, hold_out, parts, split_folds

TABLE = np.array([[0.0, 1.5], [2.0, -1.0], [0.0, 0.0], [2.0, -1.0], [np.nan, 1.0]])


def rows(n=40, k=3, weights=None, groups=None, seed=0):
    rng = np.random.default_rng(seed)
    return Rows(rng.normal(size=(n, 4)), rng.integers(k, size=n), weights, groups).with_keys()


def as_set(found):
    return sorted(zip(found.X[:, 0].tolist(), found.y.tolist(), strict=True))


# ---- content --------------------------------------------------------------------------------------------


def test_equal_rows_have_equal_numbers_and_others_have_not():
    found = hash_rows(TABLE)
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
    assert np.array_equal(hash_rows(other), hash_rows(TABLE))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "dok"])
def test_sparse_content_does_not_depend_on_the_format(kind):
    dense = np.array([[0, 1.0], [2, 0], [0, 1.0], [0, 0]])
    found = hash_rows(sparse.csr_array(dense).asformat(kind))
    assert found[0] == found[2]
    assert len(set(found.tolist())) == 3
    assert np.array_equal(found, hash_rows(sparse.csr_array(dense)))


def test_minus_zero_is_zero():
    assert hash_rows(np.array([[0.0]])) == hash_rows(np.array([[-0.0]]))


def test_columns_are_not_interchangeable():
    assert hash_rows(np.array([[1.0, 2.0]])) != hash_rows(np.array([[2.0, 1.0]]))


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_categories_and_texts(frame):
    found = hash_rows(frame({"a": ["x", "y", "x", None], "b": [1, 1, 1, 1]}))
    assert found[0] == found[2]
    assert len(set(found.tolist())) == 3
    as_categories = pd.DataFrame({"a": pd.Categorical(["x", "y", "x"]), "b": [1, 1, 1]})
    assert np.array_equal(hash_rows(as_categories)[:2], found[:2])


def test_texts_that_are_no_table():
    found = hash_rows(["good film", "bad film", "good film"])
    assert found[0] == found[2] != found[1]


def test_column_names_that_repeat_and_a_matrix_that_is_left_alone():
    assert len(hash_rows(pd.DataFrame(np.eye(3), columns=["a", "a", "b"]))) == 3
    given_matrix = sparse.csr_array((np.ones(4), [0, 0, 1, 1], [0, 2, 4]), shape=(2, 2))
    hash_rows(given_matrix)
    assert given_matrix.nnz == 4


def test_numbers_spread_evenly():
    """A thousand consecutive integers fill sixteen equal bins about equally: chi-square below its 99.9 %."""
    found = hash_rows(np.arange(1000.0)[:, None])
    counts = np.bincount((found >> np.uint64(60)).astype(int), minlength=16)
    assert ((counts - 62.5) ** 2 / 62.5).sum() < 37.7


# ---- order and weights ----------------------------------------------------------------------------------


@given(st.permutations(range(12)))
def test_the_order_of_rows_does_not_matter(order):
    first = rows(12)
    second = first.take(np.array(order)).in_order()
    assert np.array_equal(first.in_order().X, second.X)
    assert np.array_equal(first.in_order().y, second.y)


def test_rows_are_not_sorted_by_label():
    """Models that learn row by row would see one class after the other."""
    labels = rows(200, 2).in_order().y
    assert 60 < np.count_nonzero(np.diff(labels)) < 140


@given(st.lists(st.integers(0, 4), min_size=12, max_size=12).filter(any))
def test_whole_weights_are_repetitions(weights):
    given_rows = rows(12, weights=np.array(weights, dtype=float))
    repeated = given_rows.take(np.repeat(np.arange(12), weights))
    found = given_rows.in_order()
    assert found.weights is None
    assert as_set(found) == as_set(repeated)


@pytest.mark.parametrize("weights", [np.full(12, 0.5), np.full(12, 100.0)], ids=["halves", "many"])
def test_other_weights_stay_weights(weights):
    given_rows = rows(12, weights=weights)
    found = given_rows.in_order()
    assert found.n == 12
    assert found.total == weights.sum()


def test_rows_of_weight_zero_are_gone():
    weights = np.array([0.0, 0.5] * 6)
    found = rows(12, weights=weights).in_order()
    assert as_set(found) == as_set(rows(12).take(np.arange(1, 12, 2)))


# ---- splits ------------------------------------------------------------------------------------------------


@given(st.integers(24, 200), st.integers(2, 4), st.floats(0.05, 0.6), st.integers(0, 5))
def test_held_out_rows_are_a_fraction_of_each_class(n, k, fraction, seed):
    table = rows(n, k, seed=seed)
    train, val = hold_out(table, fraction, seed)
    assert sorted([*train.tolist(), *val.tolist()]) == list(range(n))
    assert set(table.y[train]) == set(table.y)
    for label, size in enumerate(np.bincount(table.y, minlength=k)):
        held = np.count_nonzero(table.y[val] == label)
        assert (held == 0) == (size < 2)
        assert abs(held - fraction * size) <= 1


@given(st.integers(2, 40), st.integers(2, 5), st.integers(0, 3))
def test_folds_are_stratified_and_hold_out_every_row_once(n, n_folds, seed):
    table = rows(n * n_folds, 2, seed=seed)
    folds = split_folds(table, n_folds, seed)
    assert sorted(np.concatenate([val for _, val in folds]).tolist()) == list(range(table.n))
    for train, val in folds:
        assert not set(train) & set(val)
        for label in range(2):
            share = np.count_nonzero(table.y == label) / n_folds
            assert abs(np.count_nonzero(table.y[val] == label) - share) <= 1


@pytest.mark.parametrize("seed", range(5))
def test_equal_rows_are_observations_and_spread_over_all_parts(seed):
    """With few distinct rows, what is held out has the same labels for each as the rest has."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, size=3000).astype(float)
    table = Rows(X[:, None], (rng.random(3000) < 0.1 + 0.15 * X).astype(int)).with_keys()
    for train, val in [hold_out(table, 0.3, seed), *split_folds(table, 5, seed)]:
        for value in range(6):
            shares = [table.y[part][X[part] == value].mean() for part in (train, val)]
            assert abs(shares[0] - shares[1]) < 0.2  # more than 4 standard errors
            assert np.mean(X[val] == value) == pytest.approx(np.mean(value == X), abs=0.06)


def test_parts_that_cannot_be_learned_from_are_avoided():
    y = np.array([0] * 30 + [1])
    table = Rows(np.arange(31.0)[:, None], y, None, np.r_[np.arange(30) % 3, 5]).with_keys()
    for train, val in parts(table, "auto", 0.2, 0):
        assert set(train.y) == {0, 1}
        assert val.n > 0
    with pytest.raises(ValueError, match=r"part \d of 4 has (no val|a single).*: use fewer"):
        parts(table, 4, 0.2, 0)


def test_all_that_a_weight_stands_for_is_on_one_side():
    table = rows(30, weights=np.full(30, 3.0))
    for pair in (*parts(table, 4, 0.3, 1), *parts(table, None, 0.3, 1)):
        train, val = pair
        assert not set(train.X[:, 0]) & set(val.X[:, 0])
        assert train.n + val.n == 90


def test_some_folds_are_cut_anew():
    table = rows(60)
    found = parts(table, "auto", 0.2, 0, n_more=5)
    assert (len(found), found.n_first) == (10, 5)
    held_out = [set(val.places) for _, val in found]
    for some in (held_out[:5], held_out[5:]):
        assert set.union(*some) == set(range(60))
    assert held_out[:5] != held_out[5:]
    fewer = parts(table, "auto", 0.2, 0, n_more=2)
    assert [set(val.places) for _, val in fewer] == held_out[:7]
    once = parts(table, 5, 0.2, 0, n_more=5)  # a number of one's own
    assert (len(once), once.n_first) == (5, 5)
    assert [set(val.places) for _, val in once] == held_out[:5]


def test_rows_of_weight_zero_are_on_no_side():
    weights = np.array([1.0, 0.0] * 20)
    table = rows(40, weights=weights)
    train, val = hold_out(table, 0.3, 0)
    assert sorted([*train, *val]) == list(range(0, 40, 2))


def test_too_few_rows():
    table = Rows(np.arange(3.0)[:, None], np.arange(3)).with_keys()
    with pytest.raises(ValueError, match=r"n_samples=3 is too few to hold some out"):
        hold_out(table, 0.2, 0)
    few = Rows(np.zeros((9, 1)), np.repeat(np.arange(3), 3)).with_keys()
    with pytest.raises(ValueError, match=r"n_folds=5 is more than there are rows in any class"):
        split_folds(few, 5, 0)


def test_a_class_of_one_row_is_for_training():
    table = Rows(np.arange(11.0)[:, None], np.array([0] * 5 + [1] * 5 + [2])).with_keys()
    train, val = hold_out(table, 0.3, 0)
    assert 10 in train
    assert set(table.y[val]) == {0, 1}


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.4, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_groups_are_held_out_together(fraction, seed):
    groups = np.repeat(np.arange(50), 4)
    table = rows(200, groups=groups)
    train, val = hold_out(table, fraction, seed)
    assert not set(groups[train]) & set(groups[val])
    assert len(val) == pytest.approx(200 * fraction, abs=20)
    assert set(table.y[train]) == set(table.y)


def test_few_groups():
    table = rows(60, groups=np.repeat(np.arange(3), 20))
    train, val = hold_out(table, 0.2, 0)
    assert (len(train), len(val)) == (40, 20)


def test_a_class_that_lives_in_one_group_stays_in_training():
    groups = np.repeat(np.arange(6), 10)
    y = np.where(groups == 3, 2, np.arange(60) % 2)
    table = Rows(np.arange(60.0)[:, None], y, None, groups).with_keys()
    for seed in range(10):
        train, _ = hold_out(table, 0.3, seed)
        assert 2 in y[train]


def test_groups_of_which_none_can_be_spared():
    table = Rows(np.arange(4.0)[:, None], np.array([0, 0, 1, 1]), None, np.array([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="2 groups, of which none can be held out.*Pass X_val="):
        hold_out(table.with_keys(), 0.5, 0)


def test_folds_keep_groups_together():
    groups = np.repeat(np.arange(20), 4)
    for train, val in split_folds(rows(80, groups=groups), 4, 0):
        assert not set(groups[train]) & set(groups[val])


def test_a_splitter_gets_the_table_as_it_is():
    from sklearn.model_selection import PredefinedSplit, TimeSeriesSplit

    table = rows(40)
    train, val = split_folds(table, PredefinedSplit(np.arange(40) % 2), 0)[0]
    assert (set(train % 2), set(val % 2)) == ({1}, {0})
    for train, val in split_folds(table, TimeSeriesSplit(3), 0):
        assert train.max() < val.min()


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
    found = concat_rows(first, second)
    assert type(found.X) is type(first.X)
    assert found.weights.tolist() == [1, 1, 1, 2, 2, 2]
    dense = found.X.toarray() if sparse.issparse(found.X) else np.asarray(found.X)
    assert np.array_equal(dense, np.concatenate([table, table]))


def test_joined_tables_have_the_categories_of_both():
    first, second = (pd.DataFrame({"a": pd.Categorical(list(text))}) for text in ("ux", "vx"))
    found = concat_rows(Rows(first, np.arange(2)), Rows(second, np.arange(2))).X["a"]
    assert found.tolist() == ["u", "x", "v", "x"]
    assert found.cat.categories.tolist() == ["u", "x", "v"]
    assert first["a"].cat.categories.tolist() == ["u", "x"]
