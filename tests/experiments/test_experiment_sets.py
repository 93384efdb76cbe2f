"""Data sets of the tabular experiment: found, read, cut by the rules of appendix F, split."""

import gzip
import json
import pickle
from collections import Counter
from functools import partial
from pathlib import Path

import made_tables
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made_sets import ALL, frame_of, same, stored
from pyarrow import feather, parquet

from refinecal.experiments.tabular.sets import (
    Source,
    describe,
    explain_unfit,
    find_tables,
    split,
    survey,
)
from refinecal.stopping import RefinementMonitor
from refinecal.training.rows import Rows
from refinecal.training.table_model import get_model
from refinecal.training.trainer import TrainingRun

# ---- splits ----------------------------------------------------------------------------------------------


@st.composite
def labels(draw, least=4, most=400):
    n = draw(st.integers(least, most))
    k = draw(st.integers(1, min(n, 30)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    skew = draw(st.sampled_from([0.0, 1.0, 4.0]))  # the larger, the rarer the last classes
    y = rng.choice(k, size=n, p=np.exp(-skew * np.arange(k)) / np.exp(-skew * np.arange(k)).sum())
    y[: min(k, n)] = np.arange(min(k, n))  # each at least once
    return rng.permutation(y) if draw(st.booleans()) else y


@given(labels(), st.integers(0, 9), st.integers(0, 99))
def test_parts_are_disjoint_and_of_the_right_size(y, number, seed):
    parts = split(y, number, seed)
    assert sorted(np.concatenate(parts)) == list(range(len(y)))
    sizes = [len(part) for part in parts]
    assert sizes[1:] == [round(0.16 * len(y)), round(0.2 * len(y))]
    assert all(part.dtype == np.int64 for part in parts)


@given(labels(), st.integers(0, 9))
def test_training_rows_have_every_class_if_they_can(y, number):
    train, _, _ = split(y, number)
    k = len(np.unique(y))
    assert len(np.unique(y[train])) == min(k, len(train))


@given(labels(least=60), st.integers(0, 9), st.integers(0, 9), st.integers(0, 99))
def test_a_split_depends_on_its_number_and_on_the_seed(y, number, other, seed):
    again = split(y.copy(), number, seed)
    for one, two in zip(split(y, number, seed), again, strict=True):
        np.testing.assert_array_equal(one, two)
    if other != number:
        assert set(again[2]) != set(split(y, other, seed)[2])
        assert set(again[2]) != set(split(y, number, seed + 1)[2])


@given(st.integers(4, 400), st.integers(0, 9), st.integers(0, 9))
def test_the_draw_does_not_look_at_labels_if_no_class_is_rare(n, number, seed):
    """Which rows are test rows is decided by the numbers alone, so every method has the same."""
    one = split(np.zeros(n, int), number, seed)
    expected = np.random.default_rng([seed, number]).permutation(n)
    np.testing.assert_array_equal(np.concatenate(one), expected)


def test_every_row_is_tested_one_time_in_five():
    n, splits = 50, 2000
    y = np.arange(n) % 2
    counts = Counter(row for number in range(splits) for row in split(y, number)[2])
    expected, deviation = 0.2 * splits, (splits * 0.2 * 0.8) ** 0.5
    assert all(abs(counts[row] - expected) < 5 * deviation for row in range(n))


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        (([0, 1, 0], 0), ValueError, "too few to split"),
        (([0.5, 1.0] * 50, 0), TypeError, "integer labels"),
        ((["a", "b"] * 50, 0), TypeError, "integer labels"),
        ((np.zeros((9, 2), int), 0), TypeError, "shape"),
        (([0, 1] * 50, -1), ValueError, "negative"),
        (([0, 1] * 50, 0, -1), ValueError, "negative"),
    ],
)
def test_what_cannot_be_split(args, error, words):
    with pytest.raises(error, match=words):
        split(*args)


# ---- the rules -------------------------------------------------------------------------------------------


@st.composite
def tables(draw):
    """Small tables with gaps everywhere."""
    n = draw(st.integers(12, 60))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    frame = frame_of(n, draw(st.integers(0, 10**6)))
    frame.loc[[0, 1], "target"] = [0, 1]
    gap = partial(rng.random, n)
    frame["x"] = frame["x"].mask(gap() < draw(st.sampled_from([0.0, 0.3])))
    frame["whole"] = frame["whole"].astype("Int64").mask(gap() < draw(st.sampled_from([0.0, 0.2])))
    frame["colour"] = frame["colour"].mask(gap() < draw(st.sampled_from([0.0, 0.3])))
    frame["target"] = (
        frame["target"].astype("Int64").mask(gap() < draw(st.sampled_from([0.0, 0.2])))
    )
    return frame


@given(tables())
def test_rules_are_those_of_the_appendix(tmp_path_factory, frame):
    """Against pandas: drop rows without label or number; a missing category is one more category."""
    kept = frame.dropna(subset=["target"])
    assume(kept["target"].nunique() <= max(2, len(kept) / 2))  # else they are no classes
    expected = kept.dropna(subset=["x", "whole"])
    source = stored(tmp_path_factory.mktemp("t"), frame)
    if expected["target"].nunique() < 2:
        with pytest.raises(ValueError, match="class|always|rows"):
            source.load(**ALL)
        return
    found = source.load(**ALL)
    assert found.dropped["unlabelled"] == len(frame) - len(kept)
    assert found.dropped["missing_numbers"] == len(kept) - len(expected)
    assert [found.classes[i] for i in found.y] == expected["target"].astype(str).tolist()
    assert set(found.dropped["classes"]) == set(kept["target"].astype(str)) - set(found.classes)
    if "x" in found.X:
        np.testing.assert_allclose(found.X["x"], expected["x"].to_numpy(), rtol=1e-15)
    if "colour" in found.X:
        pairs = set(
            zip(found.X["colour"], expected["colour"].astype(object).fillna("gap"), strict=True)
        )
        assert len(pairs) == len({code for code, _ in pairs}) == len({name for _, name in pairs})
    assert not found.X.isna().any().any()
    assert all(
        dtype == np.float64 or np.issubdtype(dtype.categories.dtype, np.integer)
        for dtype in found.X.dtypes
    )


def test_a_missing_category_has_a_number_of_its_own(tmp_path):
    frame = frame_of()
    frame.loc[::4, "colour"] = None
    found = stored(tmp_path, frame).load(**ALL)
    assert set(found.X["colour"][::4]) == {2}
    assert found.X["colour"].cat.categories.tolist() == [0, 1, 2]


def test_small_sets_are_refused_and_the_reason_told(tmp_path):
    frame = frame_of(1200)
    assert len(stored(tmp_path, frame).load().y) == 1200
    frame.loc[:300, "x"] = np.nan
    with pytest.raises(
        ValueError, match=r"899 complete rows \(301 lack a number, 301 of them 'x'\)"
    ):
        stored(tmp_path, frame).load()


@pytest.mark.parametrize("most", [50, 119, 120, 500])
def test_large_sets_are_drawn_from_as_the_paper_did(tmp_path, most):
    frame = frame_of(130)
    frame.loc[:9, "x"] = np.nan
    found = stored(tmp_path, frame).load(min_rows=1, max_rows=most)
    rows = np.arange(10, 130)
    if most < len(rows):
        rows = rows[np.random.default_rng(0).permutation(len(rows))[:most]]
    np.testing.assert_array_equal(found.X["x"], frame["x"][rows])
    np.testing.assert_array_equal(found.y, frame["target"][rows])
    assert found.dropped["subsampled"] == max(0, 120 - most)


def test_columns_that_are_not_used_are_recorded(tmp_path):
    frame = frame_of()
    frame.insert(0, "id", np.arange(len(frame)))
    frame.insert(0, "same", 7)
    found = stored(tmp_path, frame).load(**ALL)
    assert list(found.X) == ["x", "whole", "colour"]
    assert set(found.dropped["columns"]) == {"id", "same"}
    assert "always the same" in found.dropped["columns"]["same"]


def test_rare_categories_are_recorded(tmp_path):
    n = 3000
    frame = frame_of(n)
    frame["town"] = [f"t{i % 1200}" for i in range(n)]
    found = stored(tmp_path, frame).load()
    assert "1000 most frequent of 1200" in found.dropped["categories"]["town"]
    assert found.X["town"].nunique() == 1001  # and the others together
    assert json.loads(json.dumps(found.dropped)) == found.dropped


def test_infinite_numbers_count_as_missing(tmp_path):
    frame = frame_of()
    frame.loc[3, "x"] = np.inf
    with pytest.warns(RuntimeWarning, match="infinite"):
        found = stored(tmp_path, frame).load(**ALL)
    assert found.dropped["missing_numbers"] == 1


def test_one_class_is_refused(tmp_path):
    frame = frame_of()
    frame["target"] = (np.arange(len(frame)) < 5).astype(int)
    frame.loc[:4, "x"] = np.nan
    with pytest.raises(ValueError, match="all rows that are left are of class '0'"):
        stored(tmp_path, frame).load(**ALL)


def test_targets_to_be_measured_are_refused(tmp_path):
    frame = frame_of(1500).assign(target=np.random.default_rng(0).normal(size=1500))
    with pytest.raises(ValueError, match="looks like a number to be measured"):
        stored(tmp_path, frame).load()


@pytest.mark.parametrize("model", ["xgboost", "logistic"])
def test_models_take_what_is_loaded(tmp_path, model):
    table = made_tables.mixed(600).rename_columns(
        ["x", "z", "colour", "size", "weight", "family", "target"]
    )
    parquet.write_table(table, tmp_path / "mixed.parquet")
    data = find_tables(tmp_path)[0][0].load(min_rows=100)
    train, val, _ = split(data.y, 0)
    monitor = RefinementMonitor()
    rows, rows_val = (Rows(data.X.iloc[part], data.y[part]) for part in (train, val))
    classes = np.arange(len(data.classes))
    get_model(model).train(TrainingRun(rows, rows_val, classes, monitor, 3))
    assert monitor.best is not None


# ---- folders of tables -----------------------------------------------------------------------------------


def test_all_formats_give_the_same_set(tmp_path):
    table = made_tables.mixed(200).rename_columns(["a", "b", "c", "d", "e", "f", "target"])
    parquet.write_table(table, tmp_path / "p.parquet")
    feather.write_feather(table, tmp_path / "f.feather")
    made_tables.write_csv(table, tmp_path / "c.csv")
    (tmp_path / "z.csv.gz").write_bytes(gzip.compress((tmp_path / "c.csv").read_bytes()))
    found, _ = find_tables(tmp_path)
    assert [source.name for source in found] == ["c", "f", "p", "z"]
    first, *others = [source.load(**ALL) for source in found]
    for other in others:
        same(first, other)


def test_categories_of_parquet_stay_categories(tmp_path):
    frame = frame_of().assign(code=pd.Categorical([str(i % 3) for i in range(40)]))
    assert "category" in str(stored(tmp_path, frame).load(**ALL).X.dtypes["code"])
    frame.to_csv(tmp_path / "text.csv", index=False)
    text = find_tables(tmp_path, only="text")[0][0].load(**ALL)
    assert text.X.dtypes["code"] == np.float64  # texts that are all numbers are numbers


def test_other_files_are_left_out_with_the_reason(tmp_path):
    stored(tmp_path, frame_of(), "good")
    (tmp_path / "index.csv").write_text("name,rows\ngood,40\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really PAR1")
    (tmp_path / "README.md").write_text("# tables")
    (tmp_path / ".hidden.csv").write_text("target\n1\n")
    found, left_out = find_tables(tmp_path)
    assert [source.name for source in found] == ["good"]
    assert set(left_out) == {"index", "broken"}
    assert "index.csv has no column 'target'" in left_out["index"]
    assert "broken.parquet" in left_out["broken"]


def test_text_is_a_table_only_if_it_is_named(tmp_path):
    (tmp_path / "rows.txt").write_text("x,target\n1,a\n2,b\n")
    with pytest.raises(ValueError, match=r"has no tables: their names end in \.csv, \.tsv, \.parq"):
        find_tables(tmp_path)
    assert find_tables(tmp_path / "rows.txt")[0][0].name == "rows"


@pytest.mark.parametrize(
    ("target", "said"),
    [("lable", "Did you mean 'label'?"), ("Label", "Did you mean 'label'?"), ("y", "It has 'x0'")],
)
def test_a_target_that_is_not_there(tmp_path, target, said):
    frame = frame_of().rename(columns={"target": "label", "x": "x0"})
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    assert f"t.parquet has no column {target!r}. {said}" in explain_unfit(
        tmp_path / "t.parquet", target
    )


def test_a_file_that_may_not_be_read_is_left_out(tmp_path):
    """Here it is gone, since some users may read anything."""
    assert "gone.parquet" in explain_unfit(tmp_path / "gone.parquet", "target")


def test_a_single_file_is_a_set(tmp_path):
    source = stored(tmp_path, frame_of())
    assert find_tables(source.path) == ([source], {})


def test_another_target(tmp_path):
    frame_of().rename(columns={"target": "kind"}).to_parquet(tmp_path / "t.parquet")
    assert find_tables(tmp_path, target="kind")[0][0].load(**ALL).classes == ["0", "1", "2"]
    with pytest.raises(
        ValueError, match="(?s)no table with the target 'target'.*t.parquet has no column"
    ):
        find_tables(tmp_path)


@pytest.mark.parametrize(
    ("only", "words"), [(["adut"], "Did you mean 'adult'"), (["zzz"], "There are 'adult'")]
)
def test_unknown_names(tmp_path, only, words):
    stored(tmp_path, frame_of(), "adult")
    with pytest.raises(ValueError, match=words):
        find_tables(tmp_path, only=only)


def test_two_files_of_one_name(tmp_path):
    stored(tmp_path, frame_of(), "adult")
    frame_of().to_csv(tmp_path / "adult.csv")
    with pytest.raises(ValueError, match="both be named 'adult'"):
        find_tables(tmp_path)


def test_folders_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_tables(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no tables"):
        find_tables(tmp_path)


# ---- sources ---------------------------------------------------------------------------------------------


def test_sources_travel(tmp_path):
    source = stored(tmp_path, frame_of())
    assert Source(**json.loads(json.dumps(source.to_dict()))) == source
    same(pickle.loads(pickle.dumps(source)).load(**ALL), source.load(**ALL))
    with pytest.raises(ValueError, match="kind is 'zip'"):
        Source("a", "zip", "a.zip")


def test_a_source_knows_its_content_but_not_its_place(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here, there = stored(tmp_path / "a", frame_of()), stored(tmp_path / "b", frame_of())
    assert here.digest == there.digest
    assert here.path != there.path
    frame_of(seed=1).to_parquet(here.path)
    with pytest.raises(ValueError, match="has changed since"):
        here.load(**ALL)
    Path(here.path).unlink()
    with pytest.raises(FileNotFoundError):
        here.load(**ALL)


def test_survey_tells_sizes_and_reasons(tmp_path):
    frame = frame_of(1100)
    frame["target"] = (np.arange(1100) < 110).astype(int)
    sources = [stored(tmp_path, frame, "large"), stored(tmp_path, frame_of(10), "small")]
    rows, refused = survey(sources)
    assert rows == [
        {
            "set": "large",
            "rows": 1100,
            "numeric": 2,
            "categorical": 1,
            "classes": 2,
            "minority": 0.1,
            "unlabelled": 0,
            "missing_numbers": 0,
            "subsampled": 0,
            "columns_left_out": 0,
        }
    ]
    assert list(refused) == ["small"]
    assert "at least 1000" in refused["small"]
    assert describe(sources[0].load()) == rows[0]
