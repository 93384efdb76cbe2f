"""Columns of new rows that are unlike training are reported, and ordinary ones never are."""

import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.stats

from refinecal.tabular.columns import Profile
from refinecal.tabular.drift import CHANCE, NewRows, is_odd
from refinecal.tabular.schema import Schema, shorten

N = 800


def ordinary(n=N, seed=0):
    """Return columns of every sort, the difficult ones first, and a target."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 365, n), "D")
    return pd.DataFrame(
        {
            "cauchy": rng.standard_cauchy(n),
            "lognormal": rng.lognormal(0, 4, n),
            "zeros": np.where(rng.random(n) < 0.9, 0, rng.lognormal(2, 1, n)),
            "flag": (rng.random(n) < 0.002).astype(float),
            "gaps": np.where(rng.random(n) < 0.98, np.nan, rng.normal(size=n)),
            "income": rng.normal(50, 10, n),
            "children": rng.poisson(1.5, n),
            "date": days.astype(str),
            "zipf": [f"v{min(each, 10**6)}" for each in rng.zipf(1.3, n)],
            "city": rng.choice(["A", "B", "C", "D"], n),
            "y": np.where(rng.random(n) < 0.5, "no", "yes"),
        }
    )


def learn(frame):
    return Schema.infer(pa.Table.from_pandas(frame, preserve_index=False), "y")


def unlike(schema, frame, rows=None):
    """Return what is said of new rows, read in chunks of so many rows."""
    new = NewRows(schema)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for start in range(0, len(frame), rows or len(frame)):
        part = table.slice(start, rows)
        new.add(schema.encode(part), schema.unseen(part))
    return new.describe_drift()


@pytest.fixture(scope="module")
def schema():
    return learn(ordinary())


@pytest.mark.parametrize("n", [1, 5, 30, N])
@pytest.mark.parametrize("n_training", [20, 60, N])
def test_rows_from_the_same_source_are_never_reported(n, n_training):
    for seed in range(4):
        frame = ordinary(n_training + n, seed)
        assert unlike(learn(frame[:n_training]), frame[n_training:]) == {}


CHANGES = {
    "cauchy": (lambda old: old + 1e6, "all values of 'cauchy' lie outside -"),
    "lognormal": (lambda old: old * 1e6, "of 'lognormal' lie outside"),
    "zeros": (lambda old: old * 1000, "all values of 'zeros' other than 0 lie outside"),
    "income": (lambda old: old / 1000, r"98% of the training values: has its unit or meaning"),
    "children": (lambda old: np.nan * old, "'children' is empty in every row, but all training"),
    "city": (
        lambda old: "town " + old,
        r"all values of 'city' were never seen .*'town .'.*missing",
    ),
    "zipf": (lambda old: None, "'zipf' is empty in every row"),
    "date": (
        lambda old: old.str.replace("2023", "1923"),
        "'date' lie far outside 2023-01-.. to 2023-12-..",
    ),
}


@pytest.mark.parametrize("n", [6, 300])
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_column_is_reported(schema, name, n):
    change, message = CHANGES[name]
    # Of the few values of "zeros" that are not 0, six must be among the new rows.
    new = ordinary(n if name != "zeros" else 20 * n, seed=1)
    found = unlike(schema, new.assign(**{name: change(new[name])}))
    assert list(found) == [name]
    assert re.search(message, found[name])


@pytest.mark.parametrize(
    ("name", "value", "shown"), [("income", 50.0, "50"), ("city", "A", "'A'"), ("children", 1, "1")]
)
def test_a_constant_column_is_reported_unless_rows_are_few(schema, name, value, shown):
    new = ordinary(100, seed=1).assign(**{name: value})
    assert unlike(schema, new) == {
        name: f"'{name}' is {shown} in every row, but varies in training"
    }
    assert unlike(schema, new[:10]) == {}  # one row with variants of another column, perhaps


def test_what_is_usual_is_not_reported(schema):
    new = ordinary(100, seed=1)
    later = new.assign(flag=0.0, gaps=np.nan, date="2024-03-01")  # nearly always so in training
    assert unlike(schema, later) == {}


def test_most_values_must_be_new(schema):
    new = ordinary(300, seed=1)
    new.loc[:99, "income"] *= 1000
    new.loc[:99, "city"] = "elsewhere"
    assert unlike(schema, new) == {}


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_the_verdict_is_that_of_the_whole_table(schema, rows):
    new = ordinary(100, seed=1)
    new = new.assign(income=new["income"] * 1000, city="A", children=np.nan)
    new.loc[99, "children"] = 2.0  # a single value in the last chunk: not quite empty
    whole = unlike(schema, new)
    assert list(whole) == ["income", "children", "city"]
    filled = "but all training rows have a value"
    assert whole["children"] == f"'children' is empty in 99% of the rows, {filled}"
    assert unlike(schema, new, rows) == whole


def test_schemas_without_profiles_are_read(schema):
    state = json.loads(json.dumps(schema.to_dict()))
    assert Schema.from_dict(state) == schema
    for column in state["columns"]:
        column.pop("profile", None)
    old = Schema.from_dict(state)
    assert all(column.profile is None for column in old.columns)
    new = ordinary(100, seed=1)
    assert list(unlike(old, new.assign(income=5.0, children=np.nan))) == ["children"]


@pytest.mark.parametrize(
    "profile",
    [
        [],
        {"n_mode": 3, "n_rare": 0},
    ],
)
def test_a_damaged_profile_is_refused(schema, profile):
    state = json.loads(json.dumps(schema.to_dict()))
    state["columns"][0] = state["columns"][0] | {"profile": profile}
    with pytest.raises(ValueError, match="the stored schema is damaged"):
        Schema.from_dict(state)


def test_profiles(schema):
    profiles = {column.name: column.profile for column in schema.columns}
    values = ordinary()
    assert profiles["city"] == Profile(values["city"].value_counts().max(), 0)
    low, high = np.sort(values["income"])[[8, -9]]
    assert profiles["income"] == Profile(1, 16, (low, high))
    others = values["zeros"][values["zeros"] != 0]
    assert profiles["zeros"] == Profile(N - len(others), 0, (others.min(), others.max()), 0.0)
    assert profiles["zipf"].n_rare == (values["zipf"].value_counts() == 1).sum()


@pytest.mark.parametrize(
    ("count", "n", "seen", "n_training"), [(3, 3, 0, 300), (4, 5, 6, 300), (9, 12, 30, 100)]
)
def test_the_chance_is_that_of_order_statistics(count, n, seen, n_training):
    """Of n new values, as many as this are out of a range that was chosen from the training values."""
    law = scipy.stats.betabinom(n, seen + 2, n_training - seen - 1)
    for k in range(count, n + 1):
        assert is_odd(k, n, seen, n_training) == (2 * k >= n and law.sf(k - 1) < CHANCE)
    rng = np.random.default_rng(0)
    training = np.sort(rng.random((4000, n_training)), axis=1)
    low, high = training[:, seen // 2], training[:, -1 - (seen - seen // 2)]
    new = rng.random((4000, n))
    outside = ((new < low[:, None]) | (new > high[:, None])).sum(axis=1)
    assert abs(outside.mean() - law.mean()) < 4 * law.std() / np.sqrt(4000)


def test_many_columns_are_named_in_one_line():
    messages = {name: f"{name} is empty" for name in "abcdefg"}
    assert shorten(messages)[-2:] == ["e is empty", "and 2 more columns: 'f', 'g'"]
    messages.pop("g")
    assert shorten(messages) == list(messages.values())  # a line either way


def test_the_next_year_is_no_other_unit():
    frame = pd.DataFrame({"year": 2015 + np.arange(400) % 10, "y": np.arange(400) % 2})
    found = unlike(learn(frame), pd.DataFrame({"year": np.full(30, 2025)}))
    assert found["year"].endswith("predictions extrapolate there")


@pytest.mark.parametrize(("n", "rows"), [(40, "all 25 rows that have a value"), (25, "every row")])
def test_a_constant_is_said_of_rows_that_have_a_value(n, rows):
    frame = pd.DataFrame({"v": np.arange(2000) % 5 + 0.5, "y": np.arange(2000) % 2})
    frame.loc[::2, "v"] = np.nan
    new = pd.DataFrame({"v": np.full(n, np.nan)})
    new.loc[:24, "v"] = 3.5
    assert unlike(learn(frame), new) == {"v": f"'v' is 3.5 in {rows}, but varies in training"}


def test_of_many_categories_an_unseen_one_is_no_constant():
    rng = np.random.default_rng(0)
    cities = [f"z{each}" for each in rng.integers(1500, size=6000)]
    frame = pd.DataFrame({"zip": cities, "x": rng.random(6000), "y": np.arange(6000) % 2})
    new = pd.DataFrame({"zip": ["z0"] * 25 + ["other"] * 175, "x": rng.random(200)})
    assert "every row" not in unlike(learn(frame), new).get("zip", "")
