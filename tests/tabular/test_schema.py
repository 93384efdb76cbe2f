"""What columns are taken to be, how they are encoded, and that the format of a file does not matter."""

import datetime as dt
import json
import math
import re
from collections import Counter
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refinecal.tabular.columns import MOST_CATEGORIES
from refinecal.tabular.files import create_table, open_table
from refinecal.tabular.schema import Column, Schema
from refinecal.tabular.values import find_marks, numbers_of

ENDINGS = (".csv", ".tsv.gz", ".parquet", ".feather")
ONE_DAY = 24 * 60 * 60


def labelled(**columns):
    """Return a table with a target of two classes."""
    n = len(next(iter(columns.values())))
    return pa.table(columns | {"y": ["no", "yes"] * (n // 2) + ["no"] * (n % 2)})


def kind_of(values, **options):
    """Return what a column of these values is taken to be, in a table with another that is a number."""
    table = labelled(x=values, other=[float(i % 7) for i in range(len(values))])
    return Schema.infer(table, "y", **options).columns[0]


def encoded(values, **options):
    """Return a column as it is encoded: None, numbers, or the categories' texts."""
    table = labelled(x=values, other=[float(i % 7) for i in range(len(values))])
    schema = Schema.infer(table, "y", **options)
    return decoded(schema, schema.encode(table), "x")


def decoded(schema, frame, name):
    column = next(column for column in schema.columns if column.name == name)
    values = [None if pd.isna(v) else v for v in frame[name].tolist()]
    if column.kind == "number":
        return values
    return [None if v is None else column.categories[v] for v in values]


def through(path, table):
    """Return a table after a trip through a file."""
    with create_table(path) as out:
        out.write(table)
    return open_table(path).read()


# ---- kinds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ([1, 2, None, 4], [1, 2, None, 4]),
        ([0.5, math.nan, None, 1e300], [0.5, None, None, 1e300]),
        ([True, False, None, True], [1, 0, None, 1]),
        ([Decimal("1.25"), None, Decimal("-3.00"), Decimal("0")], [1.25, None, -3, 0]),
        (["1", "2.5", None, "-1e-3"], [1, 2.5, None, -0.001]),
        (["+1", " 2 ", ".5", "5."], [1, 2, 0.5, 5]),
        (["1", "NA", "?", "3"], [1, None, None, 3]),
        (["1", "None", "-", "3"], [1, None, None, 3]),
        (["1", "#DIV/0!", "n/a", "nan"], [1, None, None, None]),
        (["true", "FALSE", None, "True"], [1, 0, None, 1]),
        (["$1,234.00", "$5", "-$0.50", "$1,000,000"], [1234, 5, -0.5, 1e6]),
        (["1,234", "12", "3,456.5", None], [1234, 12, 3456.5, None]),
        (["12.5 %", "7%", None, "100 %"], [12.5, 7, None, 100]),
        (["4866 EUR", "EUR 3", "5 EUR", "12 EUR"], [4866, 3, 5, 12]),
        (["1 234", "12\u00a0345", "1'000", "7"], [1234, 12345, 1000, 7]),
        (["(5)", "(1,234.5)", "£3", "2"], [-5, -1234.5, 3, 2]),
        (pa.array([1, 2, 3, 250], pa.uint8()), [1, 2, 3, 250]),
        (pa.array(np.array([0.5, 1, 2, 3], np.float16)), [0.5, 1, 2, 3]),
        (pa.array([0.1, math.nan, None, 1e-7], pa.float32()), [0.1, None, None, 1e-7]),
        (pa.array([2**62, 0, 1, 2]), [2.0**62, 0, 1, 2]),
        (pa.array(["1", "2", None, "3"], pa.large_string()), [1, 2, None, 3]),
        (pa.array([1500, None, 0, 1], pa.duration("ms")), [1.5, None, 0, 0.001]),
        (pa.array([dt.time(1, 1, 1), None, dt.time(0), dt.time(0, 1)]), [3661, None, 0, 60]),
    ],
)
def test_numbers(values, numbers):
    assert kind_of(values).kind == "number"
    assert encoded(values) == numbers


@pytest.mark.parametrize(
    "values",
    [
        [dt.date(1970, 1, 2), None, dt.date(1969, 12, 31), dt.date(2000, 2, 29)],
        ["1970-01-02", "NA", "1969-12-31", "2000-02-29"],
        pa.array([ONE_DAY, None, -ONE_DAY, 11016 * ONE_DAY], pa.timestamp("s")),
        pa.array([ONE_DAY, None, -ONE_DAY, 11016 * ONE_DAY], pa.timestamp("s", "CET")),
        pa.array(
            [ONE_DAY * 10**9, None, -ONE_DAY * 10**9, 11016 * ONE_DAY * 10**9], pa.timestamp("ns")
        ),
        ["1970-01-02 00:00:00", "", "1969-12-31T00:00", "2000-02-29T00:00:00.000000000"],
        ["1970-01-02T01:00:00+01:00", "", "1969-12-31 00:00Z", "2000-02-28 19:00:00-0500"],
        ["2.1.1970", None, "31.12.1969", "29.02.2000"],
        ["1/2/1970", "NA", "12/31/1969", "2/29/2000"],
        ["02-01-1970", "", "31-12-1969", "29-2-2000"],
        ["1970/1/2", "", "1969/12/31", "2000/02/29"],
        ["1/2/1970 12:00 AM", "", "12/31/1969 0:00", "2/29/2000 12:00:00 am"],
    ],
)
def test_dates_are_days_since_1970(values):
    column = kind_of(values)
    assert (column.kind, column.form) == ("number", "date")
    assert "days since 1970-01-01" in column.note
    assert encoded(values) == [1, None, -1, (dt.date(2000, 2, 29) - dt.date(1970, 1, 1)).days]


@given(st.lists(st.datetimes(dt.datetime(1900, 1, 1)), min_size=2, max_size=5, unique=True))
def test_dates_are_exact(moments):
    expected = [(each - dt.datetime(1970, 1, 1)) / dt.timedelta(days=1) for each in moments]
    for values in (moments, [each.isoformat(" ") for each in moments]):
        np.testing.assert_allclose(encoded(values), expected, rtol=1e-15, atol=1e-15)


ORDERS = ["%d.%m.%Y", "%m/%d/%Y", "%d-%m-%Y %H:%M", "%m/%d/%Y %I:%M:%S %p", "%Y/%m/%d %H:%M:%S"]


@given(
    st.lists(st.datetimes(dt.datetime(1900, 1, 1)), min_size=2, max_size=5),
    st.sampled_from(ORDERS),
)
def test_dates_in_any_order_against_strptime(moments, form):
    days = [
        dt.datetime(2000, 12, 31),
        dt.datetime(2000, 1, 30),
        *moments,
    ]  # the first two tell the order
    texts = [day.strftime(form) for day in days]
    unpadded = [re.sub(r"(?<![0-9:])0(?=[0-9])", "", text) for text in texts]
    read = [dt.datetime.strptime(text, form) for text in texts]
    expected = [(each - dt.datetime(1970, 1, 1)) / dt.timedelta(days=1) for each in read]
    for values in (texts, unpadded):
        np.testing.assert_allclose(encoded(values), expected, rtol=1e-14)


def test_days_and_months_that_cannot_be_told_apart():
    assert "read as month, day, year" in kind_of(["1/2/2024", "3/4/2024", "5/6/2024"]).note
    assert "read as day, month, year" in kind_of(["1.2.2024", "3.4.2024", "5.6.2024"]).note
    assert kind_of(["13/1/2024", "1/13/2024"] * 2).kind == "category"  # neither order fits
    assert kind_of(["30.2.2024", "1.2.2024"] * 2).kind == "category"  # no such day


@pytest.mark.parametrize(
    "values",
    [
        ["red", "blue", None, "red"],
        ["1", "2", "x", "3"],
        ["1", "true", "0", "false"],
        ["2000-02-29", "2001-02-29", "2000-01-01", "2000-01-01"],  # the second is no day
        ["2000-01-01", "soon", "2000-01-01", "soon"],
        ["1,5", "2,5", "3,5", "1,5"],  # not from a file with semicolons
        pa.array(["1", "2", "1", "2"]).dictionary_encode(),
        pa.array([1, 2, 1, 2]).dictionary_encode(),
    ],
)
def test_categories(values):
    column = kind_of(values)
    assert column.kind == "category"
    texts = [None if v is None else str(v) for v in pa.array(values).to_pylist()]
    assert sorted(column.categories) == sorted({text for text in texts if text is not None})
    assert encoded(values) == texts


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ([None] * 4, "every value is missing"),
        (["NA", "", "?", " "], "every value is missing"),
        ([math.nan] * 4, "every value is missing"),
        ([3] * 4, "always the same: 3"),
        (["x"] * 4, "always the same: x"),
        ([[1], [2], [3], [4]], "holds list<.*>, which models cannot use"),
        ([{"a": 1}] * 4, "holds struct<.*>, which models cannot use"),
        (
            [f"name {i}" for i in range(30)],
            "almost every value is unique, like an ID; --categorical uses it",
        ),
    ],
)
def test_columns_of_no_use(values, note):
    column = kind_of(values)
    assert column.kind == "unused"
    assert re.search(note, column.note)


def test_lists_cannot_be_categories_even_if_that_is_said():
    column = kind_of([[1], [2], [3], [4]], categorical=["x"])
    assert (column.kind, column.note[:10]) == ("unused", "holds list")


def test_one_value_beside_missing_ones_is_of_use():
    assert kind_of([1, None, 1, None]).kind == "number"
    assert kind_of(["x", None, "x", None]).kind == "category"


@pytest.mark.parametrize(
    "name", ["id", "ID", "PassengerId", "customerID", "row_id", "index", "column 1"]
)
def test_numbers_of_rows_are_not_used(name):
    table = labelled(**{name: list(range(100, 130)), "x": [i % 3 for i in range(30)]})
    assert Schema.infer(table, "y").columns[0].kind == "unused"
    assert Schema.infer(table, "y", numeric=[name]).columns[0].kind == "number"


@pytest.mark.parametrize("name", ["x", "grid", "humid", "paid", "identity"])
def test_other_numbers_are_used_even_if_all_differ(name):
    column = Schema.infer(labelled(**{name: [i * 1000 for i in range(30)]}), "y").columns[0]
    assert column.kind == "number"
    assert column.note == "whole numbers, all different: if they only name the rows, use --drop"
    assert kind_of([i + 0.5 for i in range(30)]).note == ""


@given(st.permutations(range(500, 600)), st.integers(30, 100))
def test_numbers_so_close_that_chance_would_repeat_some_name_the_rows(ids, n):
    assert kind_of(ids[:n]).kind == ("unused" if n**2 > 24 * np.ptp(ids[:n]) else "number")


def test_a_repeat_or_a_gap_makes_no_measurement_of_an_id():
    ids = [*range(500, 700)]
    assert kind_of([*ids[:-1], 500]).kind == "unused"
    assert kind_of([*ids[:-1], None]).kind == "unused"
    assert kind_of([*ids[:150], *ids[:50]]).kind == "number"


def test_kinds_can_be_said():
    numbers = [3.0, 1.0, None, 3.0]
    assert encoded(numbers, categorical=["x"]) == ["3", "1", None, "3"]
    assert encoded(["10", "9.0", None, "9"], categorical=["x"]) == ["10", "9", None, "9"]
    assert kind_of(["10", "9", None, "9"], categorical=["x"]).categories == ("9", "10")
    names = [f"n{i}" for i in range(30)]
    assert encoded(names, categorical=["x"]) == names
    assert encoded(pa.array(["1", "2", None, "1"]).dictionary_encode(), numeric=["x"]) == [
        1,
        2,
        None,
        1,
    ]
    assert encoded(["1", "true", "0", "3"], numeric=["x"]) == [1, 1, 0, 3]
    assert kind_of([None] * 4, numeric=["x"]).note == "every value is missing"
    with pytest.raises(ValueError, match=r"column 'x', row 3: 'two' is not a number\. Correct it"):
        kind_of(["1", None, "two", "three"], numeric=["x"])


def test_a_few_texts_among_numbers_are_pointed_out():
    assert kind_of(["1", "2", "3", "4 kg", "5", "6"]).note == "mostly numbers, but row 4 is '4 kg'"


@pytest.mark.parametrize("form", ["%d %b %Y", "%d-%B-%Y", "%d. %b %Y %H:%M:%S"])
def test_dates_with_names_of_months_are_pointed_out(form):
    days = [dt.datetime(2024, 12, 1) + dt.timedelta(days=i) for i in range(30)]
    texts = [day.strftime(form) for day in days]
    note = f"to use dates as such, write {texts[0]!r} as in 2024-12-31"
    assert kind_of([*texts[:4], None, "NA"] * 3).note == note
    unused = kind_of(texts)
    assert (unused.kind, unused.note.startswith(note)) == ("unused", True)
    assert kind_of([*texts[:4], "soon", ""] * 3).note == ""


@pytest.mark.parametrize("texts", [["1.2.3", "10.0.1"], ["10.0.0.1", "10.0.0.2"], ["1/2", "2/3"]])
def test_other_texts_with_points_are_no_dates(texts):
    assert kind_of(texts * 3).note == ""


LABELS = [
    "$a$",
    "<b>x</b>",
    "größe €",
    "年齢",
    'say "hi"',
    "a,b;c",
    "two\nlines",
    "None",
    "-",
    "0,5",
]


@pytest.mark.parametrize("ending", ENDINGS)
def test_odd_labels_and_names_come_through(tmp_path, ending):
    codes = [i % len(LABELS) for i in range(40)]
    columns = {name: [float((i * j) % 11) for i in codes] for j, name in enumerate(LABELS, 1)}
    table = pa.table(
        columns | {" cat ": [LABELS[i] for i in codes], "y": [LABELS[i] for i in codes]}
    )
    found = through(tmp_path / f"t{ending}", table)
    schema = Schema.infer(found, "y")
    schema = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert [schema.classes[i] for i in schema.labels(found)] == [LABELS[i] for i in codes]
    assert schema.features[-1].categories == schema.classes == tuple(sorted(LABELS))
    assert len(schema.features) == len(LABELS) + 1


def test_infinite_numbers_count_as_missing():
    for values in ([1.0, math.inf, 2.0, -math.inf], ["1", "inf", "2", "-Infinity"]):
        assert kind_of(values).note == "infinite values count as missing (2 rows)"
        with pytest.warns(
            RuntimeWarning, match="'x' holds infinite numbers, which count as missing"
        ):
            assert encoded(values) == [1, None, 2, None]


def test_the_most_frequent_categories_are_kept():
    rng = np.random.default_rng(0)
    values = [f"c{i}" for i in rng.zipf(1.3, size=20_000)]
    column = kind_of(values)
    counts = Counter(values)
    assert len(counts) > MOST_CATEGORIES == len(column.categories)
    rarest = min(counts[text] for text in column.categories)
    assert rarest >= max(n for text, n in counts.items() if text not in column.categories)
    assert column.note == f"the 1000 most frequent of {len(counts)} categories; others as missing"
    found = encoded(values)
    assert found == [text if text in column.categories else None for text in values]


@given(st.permutations(["red", "red", "blue", "10", "9", None, "9.0", " red"]))
def test_the_order_of_rows_does_not_matter(values):
    column = kind_of(values)
    assert column.categories == ("10", "9", "blue", "red")
    assert (column.n_missing, column.n_distinct) == (1, 4)


# ---- classes, weights, groups ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "classes", "codes"),
    [
        ([10, 9, 10, 9], ("9", "10"), [1, 0, 1, 0]),
        (["10", "9.0", "9", "10.00"], ("9", "10"), [1, 0, 0, 1]),
        ([1.0, 0.0, 1.0, 0.0], ("0", "1"), [1, 0, 1, 0]),
        (["+1", "-1", "1", "-1"], ("-1", "1"), [1, 0, 1, 0]),
        ([True, False, True, True], ("False", "True"), [1, 0, 1, 1]),
        (["true", "FALSE", "True", "TRUE"], ("False", "True"), [1, 0, 1, 1]),
        (["yes", "no ", "yes", "None"], ("None", "no", "yes"), [2, 1, 2, 0]),
        (["10", "9", "b", "b", "10", "9"], ("10", "9", "b"), [0, 1, 2, 2, 0, 1]),
        ([0.5, 0.25, 0.5, 0.25], ("0.25", "0.5"), [1, 0, 1, 0]),
        (pa.array(["b", "a", "a", "b"]).dictionary_encode(), ("a", "b"), [1, 0, 0, 1]),
    ],
)
def test_classes(values, classes, codes):
    table = pa.table({"x": [float(i) for i in range(len(codes))], "y": values})
    twice = pa.concat_tables([table, table])  # so that no class has a single row
    schema = Schema.infer(twice, "y")
    assert schema.classes == classes
    assert schema.labels(table).tolist() == codes
    assert schema.labels(table).dtype == np.int64
    assert schema.class_counts == tuple(2 * codes.count(i) for i in range(len(classes)))


def test_labels_of_another_type_are_the_same():
    table = pa.table({"x": [1.0, 2.0, 3.0], "y": [0, 1, 1]})
    schema = Schema.infer(table, "y")
    for values in (["0", "1.0", "1"], [0.0, 1.0, 1.0], pa.array([0, 1, 1], pa.int8())):
        assert schema.labels(pa.table({"y": values})).tolist() == [0, 1, 1]


def test_rows_without_a_label():
    table = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": ["a", None, "b", "NA"]})
    schema = Schema.infer(table, "y")
    assert schema.has_label(table).tolist() == [True, False, True, False]
    assert schema.classes == ("a", "b")
    assert schema.labels(table.filter(schema.has_label(table))).tolist() == [0, 1]
    with pytest.raises(ValueError, match="target 'y', row 12 is missing: drop the rows"):
        schema.labels(table, first_row=11)


def test_a_class_of_a_single_row_is_noted():
    table = pa.table({"x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "y": ["a", "a", "b", "b", "b", "c"]})
    schema = Schema.infer(table, "y")
    assert schema.class_counts == (2, 3, 1)
    assert schema.table_of_kinds()[0]["note"] == "a single row: 'c'"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a"] * 50, "target 'y' is always 'a': there is nothing to learn"),
        (
            [1.0] * 49 + [None],
            r"'y' is always '1', or missing \(.*\) in 1 of 50 rows: there is nothing",
        ),
        (
            ["yes", ""] * 25,
            r"'y' is always 'yes', or missing \(.*\) in 25 of 50 rows.*write a word for it",
        ),
        ([None] * 50, "target 'y' is missing in every row"),
        (
            [i / 7 for i in range(25)] * 4,
            "25 different values in 100 rows, such as .* looks like a number",
        ),
        ([f"{i / 7:.3f}" for i in range(25)] * 4, "looks like a number to be measured"),
        (list(range(1001)) * 2, "1001 different values.*looks like a number"),
        ([f"name {i}" for i in range(50)], "classes need several rows each"),
        ([[1], [2]] * 10, "target 'y' holds list<.*>, which cannot be a class"),
    ],
)
def test_targets_that_cannot_be_learnt(values, message):
    table = pa.table({"x": [float(i) for i in range(len(values))], "y": values})
    with pytest.raises(ValueError, match=message):
        Schema.infer(table, "y")


def test_twenty_fractions_or_a_thousand_whole_numbers_may_be_classes():
    for values in ([i / 2 for i in range(20)] * 4, list(range(1000)) * 2):
        table = pa.table({"x": [i / 7 for i in range(len(values))], "y": values})
        assert len(Schema.infer(table, "y").classes) == len(set(values))


def test_an_unseen_label_is_named():
    schema = Schema.infer(pa.table({"x": [1, 2, 3], "y": ["a", "b", "b"]}), "y")
    message = (
        r"target 'y', row 2 is 'c', which training rows did not have: their classes are 'a', 'b'"
    )
    with pytest.raises(ValueError, match=message):
        schema.labels(pa.table({"y": ["a", "c"]}))


@pytest.mark.parametrize("values", [[0, 1.5, 2, 3], ["0", "1.5", "2.0", "3"]])
def test_weights(values):
    table = labelled(x=[1, 2, 3, 4], w=values)
    schema = Schema.infer(table, "y", weight="w")
    assert [column.name for column in schema.columns] == ["x"]
    assert schema.weights(table).tolist() == [0, 1.5, 2, 3]
    assert Schema.infer(table, "y").weights(table) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, -2, 3, 4], "weight 'w', row 2 is -2: a weight says how often"),
        ([1, 2, None, 4], "weight 'w', row 3 is missing"),
        ([1, 2, math.nan, 4], "weight 'w', row 3 is nan"),
        ([1, 2, 3, math.inf], "weight 'w', row 4 is inf"),
        (["1", "2", "heavy", "4"], "weight 'w', row 3 is 'heavy'"),
        ([0, 0, 0, 0], "weight 'w' is 0 in every row"),
    ],
)
def test_bad_weights(values, message):
    with pytest.raises(ValueError, match=message):
        Schema.infer(labelled(x=[1, 2, 3, 4], w=values), "y", weight="w")


def test_groups():
    table = labelled(x=[1, 2, 3, 4], g=["b", "a", "b", "c"])
    schema = Schema.infer(table, "y", group="g")
    assert schema.groups(table).tolist() == [1, 0, 1, 2]
    assert Schema.infer(table, "y").groups(table) is None
    numbers = labelled(x=[1, 2, 3, 4], g=[7, 7, 5, 5])
    found = Schema.infer(numbers, "y", group="g").groups(numbers)
    assert [found[0] == found[1], found[2] == found[3], found[0] == found[2]] == [True, True, False]
    with pytest.raises(
        ValueError, match="group 'g', row 2 is missing: every row must belong to a group"
    ):
        Schema.infer(labelled(x=[1, 2, 3, 4], g=["b", None, "b", "c"]), "y", group="g")


def test_weight_and_group_may_be_absent_if_that_is_said():
    table = labelled(x=[1, 2, 3, 4], w=[1, 2, 3, 4], g=["b", "a", "b", "c"])
    schema = Schema.infer(table, "y", weight="w", group="g")
    rest = table.select(["x"])
    assert schema.check_names(rest.column_names) == []
    assert schema.weights(rest, optional=True) is None
    assert schema.groups(rest, optional=True) is None
    assert schema.weights(table, optional=True).tolist() == [1, 2, 3, 4]
    assert schema.groups(table, optional=True).tolist() == [1, 0, 1, 2]
    with pytest.raises(ValueError, match="weight is 'w', but the table has no such column"):
        schema.weights(rest)
    with pytest.raises(ValueError, match="group is 'g', but the table has no such column"):
        schema.groups(rest)


def test_rows_without_a_label_may_lack_a_weight_and_a_group():
    table = pa.table(
        {"x": [1, 2, 3], "y": ["a", None, "b"], "w": [1, None, 2], "g": ["p", None, "q"]}
    )
    schema = Schema.infer(table, "y", weight="w", group="g")
    rest = table.filter(schema.has_label(table))
    assert schema.weights(rest).tolist() == [1, 2]
    assert schema.groups(rest).tolist() == [0, 1]


# ---- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"target": "Outcom"},
            r"target is 'Outcom', but the table has no such column\. Did you mean 'outcome'\?",
        ),
        (
            {"weight": "agge"},
            "weight is 'agge'.*Did you mean 'age'.*The columns are 'age', 'outcome', 'size'",
        ),
        ({"group": "zzz"}, r"no such column\. The columns are"),
        ({"drop": ["siz"]}, "drop is 'siz'.*Did you mean 'size'"),
        ({"categorical": ["siz"]}, "categorical is 'siz'"),
        ({"numeric": ["siz"]}, "numeric is 'siz'"),
        ({"weight": "outcome"}, "'outcome' is both target and weight: name two columns"),
        ({"weight": "age", "group": "age"}, "'age' is both weight and group"),
        ({"drop": ["outcome"]}, "'outcome' is both target and drop: leave it out of drop"),
        ({"drop": ["age"], "numeric": ["age"]}, "'age' is both drop and numeric"),
        ({"categorical": ["age"], "numeric": ["age"]}, "'age' is both categorical and numeric"),
        ({"drop": ["age", "size"]}, "no column to learn from.*'age': left out on request"),
    ],
)
def test_names_that_are_wrong(options, message):
    table = pa.table({"age": [1, 2, 3], "outcome": ["a", "b", "a"], "size": [3, 2, 1]})
    with pytest.raises(ValueError, match=message):
        Schema.infer(table, **{"target": "outcome"} | options)


@pytest.mark.parametrize(
    ("names", "delimiter"),
    [(["a;b;y"], "';'"), (["a:b:y"], "':'"), (["a\ty"], "'tab'"), (["a", "b", "y,z"], "','")],
)
def test_a_target_inside_of_another_name_suggests_a_delimiter(names, delimiter):
    table = pa.table({name: ["1", "2", "3"] for name in names})
    message = rf"no such column\. .* between its columns\? Then pass delimiter={delimiter}"
    with pytest.raises(ValueError, match=message):
        Schema.infer(table, "y")
    with pytest.raises(ValueError, match=r"no such column\. (Did you|The columns)"):
        Schema.infer(pa.table({"a": [1, 2], "b, c": [1, 2]}), "y")


def test_a_text_is_no_list_of_names():
    with pytest.raises(TypeError, match=r"drop is the text 'age': pass a list of names, \['age'\]"):
        Schema.infer(labelled(age=[1, 2]), "y", drop="age")


def test_names_of_other_tables():
    table = labelled(age=[1, 2, 3], size=[1, 2, 4], same=[1, 1, 1], w=[1, 1, 1])
    schema = Schema.infer(table, "y", weight="w")
    assert schema.check_names(["size", "age"]) == []
    assert schema.check_names(["new", "size", "age", "same", "w", "y"]) == ["new"]
    with pytest.raises(
        ValueError, match=r"lacks the column 'size', which the model needs\. Did you mean 'Size'\?"
    ):
        schema.check_names(["age", "Size"])
    with pytest.raises(ValueError, match="lacks the columns 'age', 'size'"):
        schema.check_names(["other"])
    with pytest.raises(ValueError, match="lacks the column 'age'"):
        schema.encode(table.drop_columns(["age"]))
    with pytest.raises(ValueError, match="the target is 'y', but the table has no such column"):
        schema.labels(table.drop_columns(["y"]))


# ---- encoding --------------------------------------------------------------------------------------------


def test_the_frame_is_what_models_expect():
    table = labelled(c=["b", "a", None, "b"], n=["1", "2", "3", None], same=[1, 1, 1, 1])
    schema = Schema.infer(table, "y")
    frame = schema.encode(table.select(["n", "y", "c"]))
    assert list(frame.columns) == ["c", "n"]
    assert frame["c"].dtype == pd.CategoricalDtype([0, 1])
    assert frame["n"].dtype == np.float64
    assert frame["c"].cat.codes.tolist() == [1, 0, -1, 1]
    assert len(schema.encode(table.slice(0, 0))) == 0


def test_unseen_categories_are_missing_and_told():
    table = labelled(c=["b", "a", None, "b"], n=[1, 2, 3, 4])
    schema = Schema.infer(table, "y")
    new = pa.table({"c": ["c", "a", "c", None, "d"], "n": [1, 2, 3, 4, 5]})
    assert decoded(schema, schema.encode(new), "c") == [None, "a", None, None, None]
    assert schema.unseen(new) == {"c": {"c": 2, "d": 1}}
    assert schema.unseen(table) == {}


@given(st.lists(st.sampled_from([*"abcd…", None, *map(str, range(150))]), max_size=600))
def test_every_unseen_value_is_counted(values):
    schema = Schema.infer(labelled(c=["a", "b", "a", "b"]), "y")
    expected = Counter(v for v in values if v not in ("a", "b", None))
    found = schema.unseen(pa.table({"c": pa.array(values, pa.string())})).get("c", {})
    assert sum(found.values()) == expected.total()
    assert all(found[v] == expected[v] for v in found if v != "…")
    if len(expected) <= 100:
        assert found == expected
    else:
        assert 100 <= len(found) <= 101
        least = min(n for v, n in found.items() if v != "…")
        assert all(n <= least for v, n in expected.items() if v not in found)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["1", "2", "two"],
            "column 'x', row 103: 'two' is not a number. Correct it, or leave it empty",
        ),
        (
            ["1", "2", "3,5"],
            "'3,5' is not a number. Decimals are read with points here: write all numbers that way",
        ),
        ([[1], [2], [3]], r"row 101: \[1\] is not a number"),
        ([dt.date(2000, 1, 1)] * 3, "row 101: datetime.date.* is not a number"),
    ],
)
def test_values_that_are_no_numbers(values, message):
    schema = Schema.infer(labelled(x=[1, 2, 3, 4]), "y")
    with pytest.raises(ValueError, match=message):
        schema.encode(pa.table({"x": values}), first_row=101)


def test_values_that_are_no_dates():
    schema = Schema.infer(labelled(x=["2000-01-01", "2000-01-02"]), "y")
    for values, row in ((["2000-01-01", "2000-13-01"], 2), ([1, 2], 1), (["1/2/2000"], 1)):
        with pytest.raises(ValueError, match=f"row {row}: .* is not a date such as 2024-12-31"):
            schema.encode(pa.table({"x": values}))
    assert schema.encode(pa.table({"x": [dt.date(1970, 1, 3)]}))["x"].tolist() == [2]


def test_truth_values_from_any_format():
    schema = Schema.infer(labelled(x=[True, False, None, True]), "y")
    for values in (["true", "False", "NA", "TRUE"], ["1", "0", "", "1.0"], [1, 0, None, 1]):
        found = schema.encode(pa.table({"x": values}))["x"].tolist()
        assert [None if math.isnan(v) else v for v in found] == [1, 0, None, 1]
    forced = Schema.infer(labelled(x=[True, False, None, True]), "y", categorical=["x"])
    assert forced.features[0].categories == ("False", "True")
    assert forced.encode(pa.table({"x": ["true", "FALSE"]}))["x"].tolist() == [1, 0]


@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
def test_decimal_commas(tmp_path, delimiter):
    path = tmp_path / "t.csv"
    lines = ["x;n;y", "1,5;1;a", "-2,25e1;2;b", ";3;a", ",5;4;b"]
    quoted = [";".join(f'"{cell}"' for cell in line.split(";")) for line in lines]
    path.write_text("\n".join(quoted).replace(";", delimiter) + "\n")
    table = open_table(path).read()
    schema = Schema.infer(table, "y")
    assert schema.columns[0].decimal == ","
    assert decoded(schema, schema.encode(table), "x") == [1.5, -22.5, None, 0.5]
    floats = pa.table({"x": [1.5, -22.5, None, 0.5], "n": [1, 2, 3, 4]})
    for other in (floats, table.slice(1).combine_chunks()):
        skip = other.num_rows % 4 and 1
        pd.testing.assert_frame_equal(
            schema.encode(other), schema.encode(table)[skip:].reset_index(drop=True)
        )
    learnt = Schema.infer(floats.append_column("y", table["y"]), "y")  # the other way round
    pd.testing.assert_frame_equal(learnt.encode(table), schema.encode(table))


def semicolons(path, rows, names="x;n;y", **options):
    """Return a file with semicolons, opened."""
    path.write_text("\n".join([names, *rows]) + "\n")
    return open_table(path, **options)


def test_formatted_numbers_of_a_german_file(tmp_path):
    rows = ["14.599,39;4.866 EUR;12,5 %;a", "1,5;12 EUR;7 %;b", "1.000;1.234.567 EUR;0,5 %;a"]
    table = semicolons(tmp_path / "t.csv", rows, "x;pay;share;y").read()
    schema = Schema.infer(table, "y")
    assert [column.kind for column in schema.columns] == ["number"] * 3
    frame = schema.encode(table)
    assert frame["x"].tolist() == [14599.39, 1.5, 1000]
    assert frame["pay"].tolist() == [4866, 12, 1234567]
    assert frame["share"].tolist() == [12.5, 7, 0.5]
    assert schema.columns[0].note == "'14.599,39' is read as 14599.39"
    assert schema.columns[1].note == "'4.866 EUR' is read as 4866"
    assert schema.columns[2].note == "'12,5 %' is read as 12.5"


@given(
    st.lists(st.integers(-(10**9), 10**9), min_size=3, max_size=8),
    st.integers(0, 3),
    st.sampled_from([".", ","]),
    st.sampled_from(["", "$", "EUR ", " %", " kr"]),
)
def test_formatted_numbers_are_what_was_formatted(values, digits, mark, unit):
    numbers = [value / 10**digits for value in values]
    swap = str.maketrans(",.", ".,") if mark == "," else {}
    texts = [f"{number:,.{digits}f}".translate(swap) for number in numbers]
    texts = [text + unit if unit.startswith(" ") else unit + text for text in texts]
    found = numbers_of(pa.chunked_array([texts]), mark)
    assert not found.bad.size
    np.testing.assert_allclose(found.values, numbers, rtol=1e-15)


def test_percentages_next_to_fractions_are_pointed_out():
    column = kind_of(["12%", "0.12", "7 %", "9%"])
    assert (column.kind, column.unit) == ("number", "%")
    note = "'12%' is read as 12; some values have a % and others, such as '0.12', do not"
    assert column.note == note
    assert kind_of(["12%", "8%", "7 %", "9%"]).note == "'12%' is read as 12"


def test_units_that_differ_are_not_compared():
    column = kind_of(["$5", "€6", "$5", "€7"])
    assert (column.kind, column.note) == ("category", "numbers with different units, 'EUR', 'USD'")


@pytest.mark.parametrize(
    ("cells", "mark"),
    [
        (["3,14", "2"], ","),
        (["3.14", "", "NA", "-"], "."),
        (["1.234,5"], ","),
        (["1,234.5"], "."),
        (["1.234.567"], ","),
        (["1,234,567"], "."),
        (["0,123"], ","),
        (["1 234,500", "7"], ","),
        (["1'234.500"], "."),
        (["12,5 %", "$3,5"], ","),
        (["-1,5", "\u22121,5", "1,5e3", ",5"], ","),
        (["1.5", "1e-3"], "."),
        (["1,234"], ""),
        (["1.234", "12.500", "87", "950"], ","),  # beside whole numbers below 1000: thousands
        (["1.234", "12.500", "8700"], ""),
        (["3,14", "2.5"], ""),  # both
        (["3,14", "v1.2"], ""),  # texts
        ([*(f"{i},5" for i in range(20)), "soon", "31.12.2024"], ","),  # a few words
        ([*(f"{i},5" for i in range(20)), "soon", "31.12.2024", "-x"], ""),
        (["10.0.0.1"], ""),
        (["31.12.2024"], ""),
        (["7", "8"], ""),
        ([], ""),
    ],
)
def test_the_decimal_mark_of_a_column(cells, mark):
    assert find_marks({"x": cells}) == ({"x": mark} if mark else {})


def test_columns_that_do_not_tell_follow_the_other_numbers(tmp_path):
    """Neither texts, nor columns that a model does not know, have a say in it."""
    rows = [f"{i},5;{i}.000;1.{i};{'ab'[i % 2]}" for i in range(1, 5)]
    rows[0] = rows[0].replace("1.1", "beta")  # versions are no numbers
    table = semicolons(tmp_path / "t.csv", rows, "x;pay;version;y").read()
    schema = Schema.infer(table, "y")
    assert schema.encode(table)["pay"].tolist() == [1000, 2000, 3000, 4000]
    new = semicolons(tmp_path / "new.csv", ["2,500;2.000;1.2;3.14"], "x;pay;version;note").read()
    assert schema.encode(new)[["x", "pay"]].to_numpy().tolist() == [[2.5, 2000]]


def test_words_among_formatted_numbers(tmp_path):
    rows = [f"{i}.599,39 EUR;{i},5;{'ab'[i % 2]}" for i in range(10, 40)]
    for word, n_missing in (("k.A.", 1), ("n.a.", 1), ("soon", 0)):
        rows[3] = f"{word};1,5;a"
        column = Schema.infer(semicolons(tmp_path / "t.csv", rows, "x;n;y").read(), "y").columns[0]
        assert (column.kind == "number", column.n_missing) == (n_missing == 1, n_missing)
        if n_missing:
            assert f"{word!r} counts as missing" in column.note
        else:
            assert "mostly numbers, but row 4 is 'soon'" in column.note


@pytest.mark.parametrize("name", ["fr", "de", "us", "plain.tsv"])
def test_new_rows_written_another_way_are_read_as_in_training(tmp_path, name):
    """Whatever stands between columns, before decimals, between thousands or next to numbers."""
    values = np.random.default_rng(0).normal(0, 4e4, 40).round(2)
    us = [f"{value:,.2f}" for value in values]
    swap = {"de": str.maketrans(",.", ".,"), "fr": str.maketrans(",.", "\u202f,")}
    pay = {
        "fr": [f"{text.translate(swap['fr'])}\xa0€" for text in us],
        "de": [f"{text.translate(swap['de'])} EUR".replace("-", "\u2212") for text in us],
        "us": [f"(€{text[1:]})" if text[0] == "-" else f"€{text}" for text in us],
        "plain.tsv": [str(value) for value in values],
    }
    share = {each: [f"{i / 8:.3f} %" for i in range(40)] for each in pay}
    share |= {each: [text.replace(".", ",") for text in share[each]] for each in ("de", "fr")}
    whens = {"us": "2024-{1:02}-{0:02}", "plain.tsv": "{0}.{1}.2024"}
    delimiters = {"us": ",", "plain.tsv": "\t"}

    def read(name):
        when = whens.get(name, "{0:02}.{1:02}.2024")
        days = [when.format(1 + i % 28, 1 + i % 12) for i in range(40)]
        columns = {"pay": pay[name], "share": share[name], "when": days, "y": ["a", "b"] * 20}
        path = tmp_path / (name if "." in name else f"{name}.csv")
        delimiter = delimiters.get(name, ";")
        pd.DataFrame(columns).to_csv(path, sep=delimiter, index=False)
        return open_table(path).read()

    schema = Schema.infer(read("de"), "y")
    assert [column.kind for column in schema.columns] == ["number"] * 3
    frame = schema.encode(read(name))
    assert frame["pay"].tolist() == values.tolist()
    pd.testing.assert_frame_equal(frame, schema.encode(read("de")), check_exact=True)


def test_addresses_leave_other_columns_alone(tmp_path):
    rows = [f"192.168.1{i}.10{i},{i}.5{i}3,{'ab'[i % 2]}" for i in range(10, 20)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["ip,load,y", *rows]) + "\n")
    schema = Schema.infer(open_table(path).read(), "y")
    assert [column.kind for column in schema.columns] == ["category", "number"]


def test_lists_in_quotes_are_pointed_out(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("likes,stars,y\n" + '"2,3",3.5,a\n"1,5",4.251,b\n"4,1",1.5,a\n' * 3)
    likes, stars = Schema.infer(open_table(path).read(), "y").columns
    assert likes.note == "'2,3' is read as 2.3; --categorical if it is a list"
    assert (stars.kind, stars.decimal, stars.note) == ("number", ".", "")


def test_exponents_are_no_units():
    found = numbers_of(pa.chunked_array([["$5e3", "$536", "5E+3 USD"]]))
    assert (found.values.tolist(), found.units) == ([5000, 536, 5000], ("USD",))


def test_each_column_has_its_own_mark(tmp_path):
    rows = ["1,5;2.5;3,5;a", "2,5;3.5;4,5;b", "3,5;4.5;5,5;a"]
    table = semicolons(tmp_path / "t.csv", rows, "x;odd;n;y").read()
    schema = Schema.infer(table, "y")
    assert [column.decimal for column in schema.columns] == [",", ".", ","]
    assert schema.encode(table).to_numpy().tolist() == [
        [1.5, 2.5, 3.5],
        [2.5, 3.5, 4.5],
        [3.5, 4.5, 5.5],
    ]
    table = semicolons(tmp_path / "t.csv", rows, "x;odd;n;y", decimal=",").read()
    odd = Schema.infer(table, "y").columns[1]
    assert odd.kind == "category"
    assert odd.note == "numbers with decimal points, where commas are read"
    mixed = kind_of(["1,5", "2.5", "3,5", "4.5"] * 5)
    assert "numbers with decimal" not in mixed.note


@pytest.mark.parametrize(
    ("learnt", "new", "expected"),
    [
        # What the new file shows counts.
        ("1,5 2,5 3,5", "1,2345 7 2e3", [1.2345, 7, 2000]),
        ("1,5 2,5 3,5", "1.5 2,5 3,5", "row 1: '1.5' is not a number"),
        ("1.5 2.5 3.5", "1,5", [1.5]),
        ("1 2 3", "2,5 1.234", [2.5, 1234]),
        # Where it shows nothing, what was learnt does.
        ("1,5 2,5 3,5", "1.234", [1234]),
        ("1,5 2,5 3,5", "1,234", [1.234]),
        ("1.5 2.5 3.5", "1.234", [1.234]),
        ("1.5 2.5 3.5", "1,234", [1234]),
    ],
)
def test_the_mark_before_decimals_is_learnt(tmp_path, learnt, new, expected):
    rows = [f"{x};{i};{'ab'[i % 2]}" for i, x in enumerate(learnt.split())]
    schema = Schema.infer(semicolons(tmp_path / "t.csv", rows).read(), "y")
    schema = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    source = semicolons(tmp_path / "new.csv", [f"{x};1" for x in new.split()], "x;n")
    if isinstance(expected, list):
        assert schema.encode(source.read())["x"].tolist() == expected
        return
    with pytest.raises(ValueError, match=expected):
        schema.encode(source.read())


def test_files_with_commas_between_columns_have_points(tmp_path):
    """Unless their own cells say otherwise, whatever was learnt."""
    rows = ["1,5;1;a", "2,5;2;b", "3,25;3;a"]
    schema = Schema.infer(semicolons(tmp_path / "t.csv", rows).read(), "y")
    for line, expected in (("2.505,1", 2.505), ('"2,5",1', 2.5)):
        new = semicolons(tmp_path / "new.csv", [line], "x,n").read()
        assert schema.encode(new)["x"].tolist() == [expected]


def test_units_are_those_of_the_training_rows():
    schema = Schema.infer(
        labelled(x=["$1.50", "$2", "$3", "4 USD"], n=["1%", "2%", "3", "4%"]), "y"
    )
    assert [column.unit for column in schema.columns] == ["USD", "%"]
    assert schema.encode(pa.table({"x": ["US$ 5", "6"], "n": ["1", "2"]}))["x"].tolist() == [5, 6]
    with pytest.raises(ValueError, match=r"column 'x' has numbers in 'EUR', but .* were in 'USD'"):
        schema.encode(pa.table({"x": ["5 €"], "n": ["1"]}))
    with pytest.raises(ValueError, match=r"different units, 'EUR', 'USD': convert them to one"):
        kind_of(["$5", "€6"], numeric=["x"])


@pytest.mark.parametrize(
    "texts",
    [
        ["+49 237 682 967", "+49 30 123 456", "+1 555 123 456"],
        ["626 954 716", "626 123 456", "111 222 333"],
        ["(1)", "(2)", "(3)"],
        ["1.2.3", "1.2.4", "2.0.0"],
        ["12:30", "1:45", "23:59"],
        ["192.168.102.105", "192.168.134.109", "192.168.111.222"],
    ],
)
def test_texts_of_digits_that_are_no_amounts(texts):
    assert kind_of(texts * 3).kind == "category"


def test_more_ways_to_write_amounts():
    written = ["R$ 1.234,56", "R$ 5,00", "- 5,00 €", "\u22125,5", "1 234,5"]
    found = numbers_of(pa.chunked_array([written]), ",")
    assert (found.values.tolist(), found.bad.size) == ([1234.56, 5, -5, -5.5, 1234.5], 0)
    written = ["Rs. 500", "Fr. 5.50", "₹1,23,456.00", "5 Kč", "1'234.50 CHF"]
    found = numbers_of(pa.chunked_array([written]), ".")
    assert (found.values.tolist(), found.bad.size) == ([500, 5.5, 123456, 5, 1234.5], 0)
    mixed = numbers_of(pa.chunked_array([["1,234 567", "1.234,5 00"]]), ".")
    assert mixed.bad.size == 2  # one thing between thousands, not two


def test_numbers_of_other_files_are_the_same_whatever_was_learnt(tmp_path):
    rows = ["1,5;1;a", "2,5;2;b", "3,25;3;a"]
    schema = Schema.infer(semicolons(tmp_path / "t.csv", rows).read(), "y")
    new = pa.table({"x": [1.2345, 1000.5, 2.0], "n": [1, 2, 3]})
    for ending in ENDINGS:
        found = schema.encode(through(tmp_path / f"new{ending}", new))
        assert found["x"].tolist() == [1.2345, 1000.5, 2.0]


@pytest.mark.parametrize(("one", "two"), [("1,5", "1,234"), ("1.5", "1.234")])
def test_weights_with_either_mark(tmp_path, one, two):
    rows = [f"1;{one};a", f"2;{one};b"]
    schema = Schema.infer(semicolons(tmp_path / "t.csv", rows, "n;w;y").read(), "y", weight="w")
    schema = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    new = semicolons(tmp_path / "new.csv", [f"1;{two};a"], "n;w;y").read()
    assert schema.weights(new).tolist() == [1.234]
    mixed = semicolons(tmp_path / "new.csv", [f"1;{two};a", "1;7,5.5;b"], "n;w;y").read()
    with pytest.raises(ValueError, match="weight 'w', row 2 is '7,5.5'"):
        schema.weights(mixed)


def test_the_first_bad_row_is_told_whichever_column_it_is_in():
    schema = Schema.infer(labelled(a=[1, 2, 3, 4], b=[4, 3, 2, 1]), "y")
    with pytest.raises(ValueError, match="column 'b', row 2: 'two'"):
        schema.encode(pa.table({"a": ["1", "2", "three"], "b": ["1", "two", "3"]}))


# ---- any format, any chunks ------------------------------------------------------------------------------

WORDS = st.sampled_from(["red", "Blue", "3 x", 'a "q"', "a,b;c", "new\nline", "é", "None", "x y"])
CELLS = {
    "whole": st.integers(-(10**6), 10**6),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "truth": st.booleans(),
    "text": WORDS,
    "date": st.dates(),
    "time": st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),
    "decimal": st.decimals(-1000, 1000, places=2),
    "single": st.floats(allow_nan=False, allow_infinity=False, width=32),
}


@st.composite
def tables(draw):
    """Return a table with columns of all types, some cells missing, and a target of up to three classes."""
    n = draw(st.integers(4, 12))
    columns = {}
    for name, cells in CELLS.items():
        columns[name] = draw(st.lists(st.none() | cells, min_size=n, max_size=n))
    classes = draw(
        st.sampled_from([("a", "b"), ("no", "yes", "maybe"), (0, 1), (True, False), (1.0, 2.0)])
    )
    target = draw(st.lists(st.sampled_from(classes), min_size=n, max_size=n))
    assume(len(set(target)) > 1 and len(set(target)) <= n / 2)
    types = [
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.date32(),
        pa.timestamp("us"),
        pa.decimal128(9, 2),
        pa.float32(),
    ]
    arrays = {
        name: pa.array(columns[name], kind) for name, kind in zip(columns, types, strict=True)
    }
    return pa.table(arrays | {"y": pa.array(target)})


def learn(table):
    """Return the schema, if there is anything to learn from."""
    usable = any(len(set(column.to_pylist()) - {None}) > 1 for column in table.columns[:-1])
    assume(usable)
    return Schema.infer(table, "y")


@given(tables())
def test_every_format_gives_the_same(tmp_path, table):
    """Learnt from any format and applied to any other."""
    expected_schema = learn(table)
    expected = expected_schema.encode(table)
    for ending in ENDINGS:
        other = through(tmp_path / f"t{ending}", table)
        learnt = Schema.infer(other, "y")
        assert [(c.name, c.kind, c.categories, c.form) for c in learnt.columns] == [
            (c.name, c.kind, c.categories, c.form) for c in expected_schema.columns
        ]
        assert [(c.n_missing, c.n_distinct) for c in learnt.features] == [
            (c.n_missing, c.n_distinct) for c in expected_schema.features
        ]
        for schema, rows in ((learnt, table), (learnt, other), (expected_schema, other)):
            pd.testing.assert_frame_equal(schema.encode(rows), expected, check_exact=True)
            assert schema.classes == expected_schema.classes
            np.testing.assert_array_equal(schema.labels(rows), expected_schema.labels(table))


@given(tables(), st.integers(1, 5))
def test_chunks_give_the_same_as_the_whole(tmp_path, table, rows):
    schema = learn(table)
    for ending in (".csv", ".parquet"):
        with create_table(tmp_path / f"t{ending}") as out:
            out.write(table)
        pieces = [
            schema.encode(chunk) for chunk in open_table(tmp_path / f"t{ending}").chunks(rows=rows)
        ]
        whole = schema.encode(table)
        pd.testing.assert_frame_equal(pd.concat(pieces, ignore_index=True), whole, check_exact=True)


NUMBERS = st.sampled_from(
    [
        "1,5",
        "1.5",
        "1,234",
        "1.234",
        "7",
        "",
        "NA",
        "-",
        "+0.5",
        " 2 ",
        "1e3",
        "1,5e3",
        "true",
        "-1.000",
    ]
)
ODD = st.sampled_from(["x", "1.234.567", "1,2,3", "nan(1)", "0x1", "1_0", "1e", "2000-01-01"])


def outcome(schema, source, rows):
    """Return the encoded rows, or what was wrong."""
    pieces, n = [], 0
    try:
        for chunk in source.chunks(rows=rows):
            pieces.append(schema.encode(chunk, first_row=n + 1))
            n += len(chunk)
    except ValueError as error:
        return str(error)
    return pd.concat(pieces, ignore_index=True)


@given(
    st.sampled_from(["1,5 2,5 3,5", "1.5 2.5 3.5", "1 2 3"]),
    st.lists(st.tuples(NUMBERS | NUMBERS | ODD, NUMBERS), min_size=1, max_size=8),
    st.sampled_from(";|"),
)
def test_any_chunks_give_the_same_numbers_or_the_same_error(tmp_path, learnt, cells, delimiter):
    rows = [f"{x};{i};{'ab'[i % 2]}" for i, x in enumerate(learnt.split())]
    schema = Schema.infer(semicolons(tmp_path / "t.csv", rows).read(), "y")
    lines = ["x;n", *(f"{x};{n}" for x, n in cells)]
    (tmp_path / "new.csv").write_text("\n".join(lines).replace(";", delimiter) + "\n")
    source = open_table(tmp_path / "new.csv", delimiter)
    whole = outcome(schema, source, len(cells))
    for size in range(1, len(cells)):
        found = outcome(schema, source, size)
        if isinstance(whole, str):
            assert found == whole
        else:
            pd.testing.assert_frame_equal(found, whole, check_exact=True)


@given(tables())
def test_storing_loses_nothing(table):
    schema = learn(table)
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict(), allow_nan=False)))
    assert again == schema
    pd.testing.assert_frame_equal(again.encode(table), schema.encode(table))


@given(tables())
def test_categories_against_pandas(table):
    """Codes are those of pandas for the same texts, where it sorts them the same."""
    schema = learn(table)
    for column in schema.features:
        if column.name == "text":
            expected = pd.Categorical(table["text"].to_pandas())
            assert schema.encode(table)["text"].cat.codes.tolist() == expected.codes.tolist()


def test_categories_of_pandas_and_polars_from_parquet(tmp_path):
    frame = pd.DataFrame(
        {"c": pd.Categorical(["b", None, "a", "b"], ["z", "b", "a"]), "y": [0, 1, 0, 1]}
    )
    frame.to_parquet(tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet").read()
    schema = Schema.infer(table, "y")
    assert schema.features[0].categories == ("a", "b")  # z never occurs
    assert schema.encode(table)["c"].cat.codes.tolist() == [1, -1, 0, 1]
    again = pl.DataFrame({"c": pl.Series(["b", None, "a", "b"], dtype=pl.Categorical)})
    assert schema.encode(again.to_arrow())["c"].cat.codes.tolist() == [1, -1, 0, 1]


def test_chunks_with_other_dictionaries():
    parts = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    table = labelled(c=pa.chunked_array(parts))
    schema = Schema.infer(table, "y")
    assert decoded(schema, schema.encode(table), "c") == ["a", "b", "c", "a"]


# ---- showing and storing ---------------------------------------------------------------------------------


def test_the_table_for_people():
    table = labelled(
        x=[1, 2, None, 4],
        d=["2000-01-01", None, "2000-01-03", None],
        k=[1, 1, 1, 1],
        w=[1, 2, 3, 4],
    )
    rows = Schema.infer(table, "y", weight="w", drop=["x"]).table_of_kinds()
    assert [(row["name"], row["kind"], row["missing"], row["distinct"]) for row in rows] == [
        ("y", "target", 0, 2),
        ("w", "weight", "", ""),
        ("x", "unused", 1, 3),
        ("d", "date", 2, 2),
        ("k", "unused", 0, 1),
    ]
    assert rows[2]["note"] == "left out on request"


def stored():
    return Schema.infer(labelled(x=[1, 2, 3, 4], c=["a", "b", "a", "b"]), "y").to_dict()


def test_a_schema_of_another_version_is_refused():
    with pytest.raises(ValueError, match=r"version 3, this refinecal reads \(1, 2\)"):
        Schema.from_dict(stored() | {"version": 3})


@pytest.mark.parametrize("change", [{"columns": None}, {"columns": [3]}, {"columns": [{}]}])
def test_a_damaged_schema_is_refused(change):
    with pytest.raises(ValueError, match="the stored schema is damaged: .* Fit again"):
        Schema.from_dict(stored() | change)


@pytest.mark.parametrize("name", ["target", "classes", "weight_decimal", "n_rows", "columns"])
def test_a_schema_that_lacks_something_is_refused(name):
    state = stored()
    del state[name]
    with pytest.raises(ValueError, match=f"the stored schema is damaged: KeyError: '{name}'"):
        Schema.from_dict(state)


@pytest.mark.parametrize("state", [None, [], "schema", {}, {"classes": ["a", "b"]}])
def test_what_is_no_schema(state):
    with pytest.raises(ValueError, match="must be what Schema.to_dict"):
        Schema.from_dict(state)


def test_a_column_is_plain_data():
    assert Column("x", "number") == Column("x", "number", (), "", 0, 0, "plain", "ymd", "")


def test_schemas_of_older_versions_are_read():
    state = stored() | {"version": 1}
    for column in state["columns"]:
        del column["order"], column["unit"]
    assert Schema.from_dict(state) == Schema.from_dict(stored())


def test_dates_follow_those_that_tell_their_order():
    columns = {"x": ["01/02/2024", "01/03/2024"], "e": ["25/12/1990", "26/12/1990"]}
    schema = Schema.infer(labelled(**columns), "y")
    assert [column.order for column in schema.columns] == ["dmy", "dmy"]
    assert "no row tells" not in schema.columns[0].note
    assert "read as month, day, year (no row tells)" in kind_of(["01/02/2024", "01/03/2024"]).note


def test_codes_next_to_a_word_stay_categories():
    """A word such as "missing" may be a category itself, and the numbers codes: so it was in real tables."""
    found = kind_of([*(str(i % 9) for i in range(60)), "missing", "unknown"])
    assert found.kind == "category"
    assert "mostly numbers, but row 61 is 'missing'" in found.note


def test_a_stray_text_among_dates_is_pointed_out():
    days = [f"{i}.12.2024" for i in range(1, 30)]
    assert "mostly dates, but row 30 is 'soon'" in kind_of([*days, "soon"]).note
    assert "mostly dates, but row 30 is '31.02.2024'" in kind_of([*days, "31.02.2024"]).note
    assert "mostly dates, but row 30 is 'unknown'" in kind_of([*days, "unknown"]).note
    for word in ("-", "k.A."):
        found = kind_of([*days, word])
        assert (found.form, found.n_missing) == ("date", 1)
        assert f"{word!r} counts as missing" in found.note


@pytest.mark.parametrize(
    "text",
    [
        *("2024-01-13 12:00:00+02", "2024-01-13T12:00+0200", "2024-01-13 12:00:00.5 +02:00"),
        *("2024-01-13 10:00:00 UTC", "2024-01-13T10:00Z", "2024-01-13 10:00:00 GMT"),
    ],
)
def test_time_zones(text):
    day = (dt.date(2024, 1, 13) - dt.date(1970, 1, 1)).days
    expected = [day + (10 + 0.5 / 3600 * (".5" in text)) / 24, day + 1]
    assert encoded([text, "2024-01-14"]) == pytest.approx(expected, abs=1e-9)


def test_iso_dates_may_stand_next_to_others():
    """As they may in new rows."""
    assert encoded(["31.12.2023", "2024-01-01"]) == [19722, 19723]
    assert kind_of(["31.12.2023", "2024-01-01", "5.13.2024"] * 3).kind == "category"


def test_dates_that_are_not_understood_are_pointed_out():
    for days in (["31.12.23", "01.01.24"], ["31 Dez 2023", "1 Jan 2024"]):
        assert f"to use dates as such, write {days[0]!r}" in kind_of(days * 3).note
    assert kind_of(["1.2.10", "1.2.9"] * 3).note == ""  # versions


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("1/13/2024 12:30 PM", 12.5),
        ("1/13/2024,12:30 PM", 12.5),
        ("1/13/2024T12:30 AM", 0.5),
        ("1/13/2024, 1:30:00\u202fPM", 13.5),
        ("1/13/2024 11:59 am", 11 + 59 / 60),
    ],
)
def test_halves_of_days(text, hour):
    day = (dt.date(2024, 1, 13) - dt.date(1970, 1, 1)).days
    assert encoded([text, "1/14/2024"])[0] == pytest.approx(day + hour / 24, abs=1e-9)
    assert kind_of(["1/13/2024 13:30 PM", "1/14/2024"] * 2).kind == "category"


def test_classes_that_differ_only_by_case_or_blanks_are_pointed_out():
    table = pa.table({"x": [i / 7 for i in range(8)], "y": ["ja", "Ja ", "nein", "no"] * 2})
    note = Schema.infer(table, "y").table_of_kinds()[0]["note"]
    assert "'Ja' and 'ja' differ only by case or blanks: are they one class?" in note


def test_labels_of_other_tables_that_differ_only_by_case_or_blanks_are_pointed_out():
    schema = Schema.infer(labelled(x=[1, 2, 3, 4]), "y")
    with pytest.raises(ValueError, match=r"row 2 is 'YES'.*'YES' and 'yes' differ only by case"):
        schema.labels(pa.table({"y": ["no", " YES"]}))
    with pytest.raises(ValueError, match=r"classes are 'no', 'yes'$"):
        schema.labels(pa.table({"y": ["a", "c"]}))


def test_a_column_that_is_left_out_is_not_looked_into():
    odd = pa.array([2**62, None, 5], pa.timestamp("s"))
    table = pa.table({"odd": odd, "lists": [[1], [2], [3]], "x": [1, 2, 3], "y": ["a", "b", "a"]})
    dropped = Schema.infer(table, "y", drop=["odd", "lists"]).columns[0]
    assert (dropped.kind, dropped.n_missing, dropped.n_distinct) == ("unused", 1, 2)
