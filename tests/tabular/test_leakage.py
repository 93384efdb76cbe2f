"""Columns that give the target away are found; good columns, ids and noise are not."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.datasets import load_breast_cancer, load_iris

from refinecal.tabular.data import _rows, find_leaks
from refinecal.tabular.schema import Schema

N = 400


def leaks(frame, **roles):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return find_leaks(_rows(table, Schema.infer(table, "y", **roles)).with_keys())


def labelled(k=2, seed=0, **columns):
    """Return a table with a column of no use and others made from the labels, which are strings."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=N)
    made = {name: make(y, rng) for name, make in columns.items()}
    return pd.DataFrame({"noise": rng.normal(size=N), **made, "y": [f"class {each}" for each in y]})


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize(
    "make",
    [
        lambda y, rng: y,
        lambda y, rng: np.array(list("qxbaz"))[y],
        lambda y, rng: [f"{each}{rng.integers(9)}" for each in y],  # a finer code of it
        lambda y, rng: 10.0 * y**2 + rng.normal(size=N),  # separates the classes
        lambda y, rng: np.where(rng.random(N) < 0.005, (y + 1) % 2, y),  # nearly right
    ],
)
def test_columns_that_hold_the_answer(k, make):
    (found,) = leaks(labelled(k, status=make))
    assert found.column == "status"
    assert found.accuracy > 0.985


@pytest.mark.parametrize("values", [list("abc"), [1.5, 2.5, 3.5]])
def test_a_column_that_is_filled_for_one_class_only(values):
    def reason(y, rng):
        return [rng.choice(values) if each else None for each in y]

    assert [each.column for each in leaks(labelled(reason=reason))] == ["reason"]


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer])
def test_good_columns_are_not_suspected(load):
    assert leaks(load(as_frame=True).frame.rename(columns={"target": "y"})) == ()


def test_a_rare_class_is_not_predicted_by_guessing_the_other():
    frame = labelled(flag=lambda y, rng: rng.integers(2, size=N))
    frame["y"] = ["rare" if i < 60 else "usual" for i in range(N)]
    assert leaks(frame) == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda y, rng: [
            f"id {i // 2}" for i in range(N)
        ],  # each value twice: an id, but not by its name
        lambda y, rng: rng.permutation(N) + 1000.5,
        lambda y, rng: rng.choice([f"place {i}" for i in range(300)], N),
    ],
)
def test_columns_of_many_values_are_not_suspected(make):
    assert leaks(labelled(many=make)) == ()


def test_few_rows_prove_nothing():
    frame = labelled(score=lambda y, rng: y + 0.1 * rng.random(len(y)))
    few = pd.concat([part[:40] for _, part in frame.groupby("y")])
    assert leaks(few) == ()
    assert leaks(frame)


@pytest.mark.parametrize(("n", "names"), [(5, []), (40, ["status"])])
def test_a_copy_of_the_target_needs_few_rows(n, names):
    frame = labelled(status=lambda y, rng: np.array(["open", "won", "lost"])[y % 3])
    few = pd.concat([part[:n] for _, part in frame.groupby("y")])
    assert [each.column for each in leaks(few)] == names


def test_what_a_group_has_in_common_is_no_answer():
    """Rows of one patient have the same age and label, so age tells the label, but not of other patients."""
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(40), 20)
    frame = pd.DataFrame({"age": rng.random(40)[patient], "x": rng.random(800), "who": patient})
    frame["y"] = rng.integers(2, size=40)[patient]
    assert [each.column for each in leaks(frame.drop(columns="who"))] == ["age"]
    assert leaks(frame, group="who") == ()


def test_the_order_of_rows_does_not_matter():
    frame = labelled(status=lambda y, rng: np.where(rng.random(N) < 0.005, 1 - y, y))
    assert leaks(frame) == leaks(frame.sample(frac=1, random_state=1))


def test_the_message_says_what_to_pass():
    found = leaks(labelled(**{"code of it": lambda y, rng: np.where(np.arange(N) < 2, 1 - y, y)}))
    assert found[0].message("y") == (
        "'code of it' alone predicts 'y' for 99.5% of the rows: does it hold the answer? If it is not known "
        "at prediction time, pass --drop 'code of it'"
    )
