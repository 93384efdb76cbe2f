"""Predictions in files: which columns they are, what their labels mean, and what is wrong with them."""

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from strategies import drawn

from refinecal.evaluation import evaluate
from refinecal.tabular.delimited import DelimitedText
from refinecal.tabular.predictions import read_predictions, read_same_rows


def write(path, frame):
    """Write a frame in the format that the name says."""
    name = path.name
    if name.endswith(".parquet"):
        pa.parquet.write_table(
            pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=37
        )
    elif name.endswith(".feather"):
        pa.feather.write_feather(pa.Table.from_pandas(frame, preserve_index=False), path)
    else:
        separator = "\t" if ".tsv" in name else ","
        text = frame.to_csv(index=False, sep=separator)
        opened = gzip.open if name.endswith(".gz") else open
        with opened(path, "wt", encoding="utf-8") as file:
            file.write(text)
    return path


def table(labels, probs, names, target="y", **more):
    return pd.DataFrame(
        {target: labels, **more, **dict(zip(names, np.asarray(probs).T, strict=True))}
    )


@pytest.fixture
def three():
    labels, logits = drawn(200, 3)
    return labels, softmax(logits, axis=1)


FORMATS = ["p.parquet", "p.feather", "p.csv", "p.tsv", "p.csv.gz"]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("classes", [(0, 1, 2), ("a", "b", "c"), (-1, 5, 10)])
def test_every_format_gives_the_same_numbers(name, classes, three, tmp_path):
    labels, probs = three
    frame = table(np.array(classes)[labels], probs, [f"p_{each}" for each in classes])
    found = read_predictions(write(tmp_path / name, frame), "y")
    assert found.classes == tuple(map(str, classes))
    assert found.labels.tolist() == labels.tolist()
    assert found.values.tolist() == probs.tolist()
    assert (found.weights, found.groups) == (None, None)
    assert found.arguments["probs"] is found.values
    assert found.n == 200


@pytest.mark.parametrize(
    "pattern",
    [
        *("{}", "p_{}", "P_{}", "prob_{}", "proba_{}", "p({})", "P({})", "probability_{}"),
        *("probability {}", "predict_proba_{}", "prob[{}]", "p.{}", "score_{}", "pred_{}"),
        *("{}_prob", "{}_proba", "{}_p"),
    ],
)
@pytest.mark.parametrize("classes", [("0", "1", "2"), ("cat", "dog", "p_x")])
def test_columns_are_found_by_the_names_of_the_classes(pattern, classes, three, tmp_path):
    labels, probs = three
    frame = table(np.array(classes)[labels], probs, [pattern.format(each) for each in classes])
    frame = frame[[*frame.columns[::-1]]].assign(age=7.5, prediction=frame["y"], x1=1.0)
    found = read_predictions(write(tmp_path / "p.parquet", frame), "y")
    assert found.classes == classes
    assert found.names == tuple(pattern.format(each) for each in classes)
    assert found.values.tolist() == probs.tolist()


def test_logits_are_preferred_if_they_are_asked_for(three, tmp_path):
    labels, probs = three
    frame = table(labels, probs, ["p_0", "p_1", "p_2"])
    for j in range(3):
        frame[f"logit_{j}"] = np.log(probs[:, j])
    path = write(tmp_path / "p.parquet", frame)
    assert read_predictions(path, "y").names == ("p_0", "p_1", "p_2")
    found = read_predictions(path, "y", logits=True)
    assert found.names == ("logit_0", "logit_1", "logit_2")
    assert list(found.arguments) == ["logits"]
    assert found.probs == pytest.approx(probs)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([1, 0, 1], ("0", "1")),
        ([1.0, 0.0, 1.0], ("0", "1")),
        (["1", "0", "1"], ("0", "1")),
        (["1.0", "0.0", "1.0"], ("0", "1")),
        ([True, False, True], ("False", "True")),
        (["true", "false", "TRUE"], ("False", "True")),
        (pd.Categorical(["yes", "no", "yes"]), ("no", "yes")),
    ],
)
@pytest.mark.parametrize("name", ["p.parquet", "p.csv"])
def test_labels_may_be_written_in_several_ways(labels, names, name, tmp_path):
    columns = [f"p_{each.lower()}" for each in names]
    frame = table(labels, [[0.2, 0.8], [0.9, 0.1], [0.4, 0.6]], columns)
    found = read_predictions(write(tmp_path / name, frame), "y")
    assert found.classes == names
    assert found.labels.tolist() == [1, 0, 1]
    assert found.names == tuple(columns)


@pytest.mark.parametrize(
    "column", ["p", "prob", "probability", "Probability", "score", "p_1", "proba_1"]
)
def test_one_column_is_the_probability_of_the_second_class(column, tmp_path):
    frame = pd.DataFrame({"y": [1, 0, 1], column: [0.8, 0.1, 0.6], "age": [1, 2, 3]})
    found = read_predictions(write(tmp_path / "p.csv", frame), "y")
    assert found.classes == ("0", "1")
    assert found.values.tolist() == [0.8, 0.1, 0.6]


def test_one_column_may_be_that_of_the_first_class(tmp_path):
    frame = pd.DataFrame({"y": ["no", "yes", "no"], "p_no": [0.8, 0.1, 0.6]})
    found = read_predictions(write(tmp_path / "p.csv", frame), "y")
    assert found.classes == ("no", "yes")
    assert found.values == pytest.approx(np.array([0.2, 0.9, 0.4]))
    frame = pd.DataFrame({"y": ["no", "yes", "no"], "logit_no": [0.8, -np.inf, 0.6]})
    found = read_predictions(write(tmp_path / "z.csv", frame), "y", logits=True)
    assert found.values.tolist() == [-0.8, np.inf, -0.6]
    assert found.probs == pytest.approx(softmax([[0, -0.8], [-np.inf, 0], [0, -0.6]], axis=1))


def test_a_target_of_one_class_knows_the_other(tmp_path):
    frame = pd.DataFrame({"y": [1, 1], "p": [0.8, 0.1]})
    found = read_predictions(write(tmp_path / "p.csv", frame), "y")
    assert (found.classes, found.labels.tolist()) == (("0", "1"), [1, 1])


def test_a_class_that_never_occurs_keeps_its_column(three, tmp_path):
    labels, probs = three
    for names in (["p_a", "p_b", "p_c"], ["p_0", "p_1", "p_2"], ["0", "1", "2"]):
        label = np.array([name.removeprefix("p_") for name in names])[np.minimum(labels, 1)]
        found = read_predictions(write(tmp_path / "p.csv", table(label, probs, names)), "y")
        assert found.names == tuple(names)
        assert found.labels.tolist() == np.minimum(labels, 1).tolist()


@pytest.mark.parametrize(
    ("names", "columns", "parses"),
    [
        (["p_0", "p_1", "p_2"], None, 1),
        (["u", "v", "w"], ["u", "v", "w"], 1),
        (["0", "1", "2"], None, 2),  # names that only the labels explain
    ],
)
def test_a_text_is_parsed_once(names, columns, parses, three, tmp_path, monkeypatch):
    labels, probs = three
    path = write(tmp_path / "p.csv", table(labels, probs, names))
    tables, read = DelimitedText.tables, []
    monkeypatch.setattr(DelimitedText, "tables", lambda *a: read.append(a) or tables(*a))
    found = read_predictions(path, "y", columns=columns)
    np.testing.assert_array_equal(found.values, probs)
    assert len(read) == parses


@pytest.mark.parametrize("columns", [["u", "v", "w"], [" u", "v ", "w"]])
def test_columns_may_be_named_in_the_order_of_the_classes(columns, three, tmp_path):
    labels, probs = three
    frame = table(np.array(["10", "9", "11"])[labels], probs, ["v", "u", "w"])
    found = read_predictions(write(tmp_path / "p.csv", frame), "y", columns=columns)
    assert found.classes == ("9", "10", "11")
    assert found.values.tolist() == probs[:, [1, 0, 2]].tolist()


def test_named_columns_that_have_classes_in_their_names_may_come_in_any_order(three, tmp_path):
    labels, probs = three
    frame = table(labels, probs, ["m1_p_0", "m1_p_1", "m1_p_2"])
    frame = frame.rename(columns=lambda name: name.replace("m1_p_", "score "))
    path = write(tmp_path / "p.csv", frame)
    found = read_predictions(path, "y", columns=["score 2", "score 0", "score 1"])
    assert found.values.tolist() == probs.tolist()
    frame = pd.DataFrame({"y": [1, 0, 1], "q": [0.8, 0.1, 0.6]})
    found = read_predictions(write(tmp_path / "q.csv", frame), "y", columns=["q"])
    assert found.values.tolist() == [0.8, 0.1, 0.6]


def test_weights_and_groups_come_along(three, tmp_path):
    labels, probs = three
    group = np.where(np.arange(200) % 3, "north", "south").astype(object)
    group[5] = None
    frame = table(labels, probs, ["p_0", "p_1", "p_2"], w=np.arange(200) / 8, region=group)
    for name in FORMATS:
        found = read_predictions(write(tmp_path / name, frame), "y", weight="w", by="region")
        assert found.weights.tolist() == (np.arange(200) / 8).tolist()
        assert found.groups.tolist() == group.tolist()


def test_the_target_may_be_the_group(tmp_path):
    frame = pd.DataFrame({"y": [1, 0, 1], "p": [0.8, 0.1, 0.6]})
    found = read_predictions(write(tmp_path / "p.csv", frame), "y", by="y")
    assert found.groups.tolist() == ["1", "0", "1"]


def test_float32_stays_float32_and_zero_is_legal(three, tmp_path):
    labels, probs = three
    frame = table(labels, probs.astype(np.float32), ["p_0", "p_1", "p_2"])
    found = read_predictions(write(tmp_path / "p.parquet", frame), "y")
    assert found.values.dtype == np.float32
    frame["p_1"] = [*frame["p_1"][:-1], 0]
    frame["p_0"] = frame["p_0"].astype(np.float64)
    found = read_predictions(write(tmp_path / "q.parquet", frame), "y")
    assert found.values.dtype == np.float64
    frame = pd.DataFrame({"y": [0, 1], "p_0": [1, 0], "p_1": [0, 1]})  # whole numbers
    assert read_predictions(write(tmp_path / "r.parquet", frame), "y").values.tolist() == [
        [1, 0],
        [0, 1],
    ]


def test_semicolons_and_decimal_commas(tmp_path):
    (tmp_path / "p.csv").write_text("y;p_a;p_b\na;0,25;0,75\nb;0,5;0,5\n")
    found = read_predictions(tmp_path / "p.csv", "y")
    assert found.values.tolist() == [[0.25, 0.75], [0.5, 0.5]]


def test_rows_without_a_label_are_left_out_and_said(three, tmp_path):
    labels, probs = three
    label = labels.astype(object)
    label[[3, 8]] = None
    frame = table(label, probs, ["p_0", "p_1", "p_2"], w=np.arange(200.0), g=np.arange(200) % 2)
    for name in ("p.csv", "p.parquet"):
        path = write(tmp_path / name, frame)
        with pytest.warns(
            UserWarning, match=r"missing in 2 of 200 rows .* the first of which is row 4"
        ):
            found = read_predictions(path, "y", weight="w", by="g")
        assert found.values.tolist() == np.delete(probs, [3, 8], axis=0).tolist()
        assert found.labels.tolist() == np.delete(labels, [3, 8]).tolist()
        assert found.weights.tolist() == np.delete(np.arange(200.0), [3, 8]).tolist()
        assert len(found.groups) == 198


@given(data=st.data())
def test_what_was_written_is_evaluated_alike(data, tmp_path_factory):
    n, k = data.draw(st.integers(1, 12)), data.draw(st.integers(2, 4))
    classes = data.draw(
        st.lists(
            st.sampled_from(["a", "b c", "7", "x_y", "Ü", "-3"]),
            min_size=k,
            max_size=k,
            unique=True,
        )
    )
    labels = np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)))
    probs = np.random.default_rng(n).dirichlet(np.ones(k), n)
    frame = table(np.array(classes)[labels], probs, [f"p_{each}" for each in classes])
    path = write(tmp_path_factory.mktemp("drawn") / "p.csv", frame)
    found = read_predictions(path, "y")
    assert set(found.classes) == set(classes)
    ours = evaluate(found.labels, **found.arguments, names=found.classes)
    assert ours.log.risk == pytest.approx(evaluate(labels, probs).log.risk)
    rows = {one.label: one.n for one in ours.per_class}
    assert rows == {each: int((labels == j).sum()) for j, each in enumerate(classes)}


# ---- what is wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"target": "labl"},
            r"target is 'labl', but .*p\.csv has no such column\. Did you mean 'label'\?",
        ),
        ({"target": "churned"}, "target is 'churned', .* labels must be in the same table"),
        ({"weight": "wt"}, "weight is 'wt', but .* has no such column"),
        ({"by": "regoin"}, r"by is 'regoin', .* Did you mean 'region'\?"),
        ({"columns": ["p_a", "p_B"]}, r"columns is 'p_B', .* Did you mean 'p_b'\?"),
        ({"columns": ["p_a", "p_a"]}, "columns names a column twice"),
        (
            {"columns": ["p_a", "p_b"]},
            r"columns has 2 names, but the target has 3 classes \('a', 'b', 'c'\).*drop the rows",
        ),
        ({"columns": ["p_a"]}, "columns has one name, but the target has 3 classes"),
        (
            {},
            r"the target has the class 'c', but .* has no column for it: there are 'p_a', 'p_b'\. If the "
            "model does not know this class, drop its rows; .*--columns",
        ),
        (
            {"target": "region"},
            r"no column named after the classes 'n', 's', such as 'p_s'.*--columns",
        ),
        (
            {"columns": ["p_a", "p_b", "text"]},
            "row 1 of column 'text' of .* is 'u', which is not a number",
        ),
        (
            {"columns": ["p_a", "p_b", "hole"]},
            r"row 2 of column 'hole' of .* is missing: drop .*\(1 of 3\)",
        ),
        (
            {"target": "region", "columns": ["p_a", "p_b"], "weight": "text"},
            "row 1 of column 'text' of .* is 'u', which is not a number",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_cure(options, message, tmp_path):
    frame = pd.DataFrame(
        {
            "label": ["a", "b", "c"],
            "region": ["n", "s", "n"],
            "p_a": [0.2, 0.5, 0.1],
            "p_b": [0.8, 0.5, 0.9],
            "text": ["u", "v", "w"],
            "hole": [1.0, None, 0.5],
        }
    )
    path = write(tmp_path / "p.csv", frame)
    with pytest.raises(ValueError, match=message):
        read_predictions(path, options.pop("target", "label"), **options)


def test_other_troubles(tmp_path):
    frame = pd.DataFrame({"y": [None, None], "p_a": [0.5, 0.5], "p_b": [0.5, 0.5]}, dtype=object)
    with pytest.raises(ValueError, match="target 'y' is missing in every row"):
        read_predictions(write(tmp_path / "none.csv", frame), "y")
    frame = pd.DataFrame({"y": np.arange(10_001) * 1000, "p": 0.5})
    with pytest.raises(ValueError, match="target 'y' has 10001 different values.*not measurements"):
        read_predictions(write(tmp_path / "many.parquet", frame), "y")
    frame = pd.DataFrame(
        {"y": [0, 1], "p_0": pd.to_datetime(["2020-01-01"] * 2), "p_1": [0.5, 0.5]}
    )
    with pytest.raises(ValueError, match="column 'p_0' of .* holds timestamp.*, not numbers"):
        read_predictions(write(tmp_path / "date.parquet", frame), "y")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_predictions(tmp_path / "nowhere.parquet", "y")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_predictions(tmp_path / "bad.parquet", "y")


# ---- several files -----------------------------------------------------------------------------------------


def test_several_files_have_the_same_rows_and_classes(three, tmp_path):
    labels, probs = three
    columns = {"w": 2.0, "site": "north"}
    first = write(tmp_path / "forest.csv", table(labels, probs, ["p_0", "p_1", "p_2"], **columns))
    other = table(labels.astype(float), probs[:, ::-1], ["2", "1", "0"])
    second = write(tmp_path / "net.v2.parquet", other)
    found = read_same_rows([first, second], "y", weight="w", group="site")
    assert found["forest"].groups.tolist() == ["north"] * 200
    assert found["net"].groups is None
    assert list(found) == ["forest", "net"]
    assert found["net"].classes == found["forest"].classes
    assert found["net"].values == pytest.approx(found["forest"].values)
    assert found["forest"].weights.tolist() == [2.0] * 200


def test_files_of_the_same_name_are_told_apart(three, tmp_path):
    labels, probs = three
    paths = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        paths.append(write(tmp_path / folder / "p.csv", table(labels, probs, ["0", "1", "2"])))
    assert list(read_same_rows(paths, "y")) == ["one/p.csv", "two/p.csv"]
    with pytest.raises(ValueError, match="the same file is named twice"):
        read_same_rows([paths[0], paths[0]], "y")


def test_files_of_other_rows_are_refused(three, tmp_path):
    labels, probs = three
    names = ["p_0", "p_1", "p_2"]
    first = write(tmp_path / "a.csv", table(labels, probs, names))
    fewer = write(tmp_path / "b.csv", table(labels[:-1], probs[:-1], names))
    with pytest.raises(ValueError, match=r"b\.csv has 199 rows with a label, but .*a\.csv has 200"):
        read_same_rows([first, fewer], "y")
    mixed = np.r_[labels[:7], (labels[7] + 1) % 3, labels[8:]]
    others = write(tmp_path / "c.csv", table(mixed, probs, names))
    with pytest.raises(
        ValueError, match=r"row 8 of .*c\.csv has the label \d, but that of .*a\.csv has \d"
    ):
        read_same_rows([first, others], "y")
    four = write(tmp_path / "d.csv", table(labels, np.full((200, 4), 0.25), [*names, "p_3"]))
    with pytest.raises(ValueError, match="has the classes '0', '1', '2', '3', but"):
        read_same_rows([first, four], "y")


def test_percentages_are_probabilities(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("y;p_a;p_b\na;99,5 %;0,5 %\nb;20 %;80 %\na;60,0%;40,0%\n")
    assert read_predictions(path, "y").values.tolist() == [[0.995, 0.005], [0.2, 0.8], [0.6, 0.4]]
    path.write_text("y,prob\na,0.5%\nb,1%\n")
    assert read_predictions(path, "y").values.tolist() == [0.005, 0.01]
    path.write_text("y,prob\na,0.5%\nb,1\n")
    with pytest.raises(ValueError, match="has values with a %, but '1' without: write all alike"):
        read_predictions(path, "y")


def test_labels_that_differ_only_by_case_or_blanks_are_pointed_out(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("y,p_yes,p_no\nyes,0.9,0.1\nYes,0.8,0.2\nno,0.1,0.9\n")
    with pytest.raises(ValueError, match="The labels 'Yes' and 'yes' differ only by case or blank"):
        read_predictions(path, "y")
    path.write_text("y,p_yes,p_Yes\nyes,0.9,0.1\nYes,0.8,0.2\n")
    with pytest.warns(UserWarning, match="the classes 'Yes' and 'yes' differ only by case"):
        read_predictions(path, "y")
