"""``refinecal theory gain``: what it prints, and what it says of tables that do not fit."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from command_runs import invoke
from made_tables import mixed, write_csv

from refinecal.cli.theory_gain import gain
from refinecal.theory.gain import predict_gain

app = typer.Typer(pretty_exceptions_enable=False)
app.command(epilog=gain.__epilog__)(gain)


def run(*arguments, code=0):
    """Run the command in this process; return what it printed on stdout, and on stderr."""
    return invoke(app, *arguments, "--draws", "4", code=code)


@pytest.fixture
def numbers(tmp_path):
    """A table of numbers, as arrays and as a file."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    X = rng.normal(size=(240, 30)) + 0.2 * y[:, None]
    names = [f"x{j}" for j in range(30)]
    table = pa.table([*X.T, np.where(y, "yes", "no")], names=[*names, "bought"])
    return X, y, write_csv(table, tmp_path / "numbers.csv")


def test_the_answer_is_that_of_the_library(numbers):
    X, y, path = numbers
    out, _ = run(path, "--target", "bought", "--json")
    found, expected = json.loads(out), predict_gain(X, y, n_draws=4)
    assert found["n_rows"], found["n_features"] == (240, 30)
    assert found["gain"] == pytest.approx(expected.gain, rel=1e-6)
    assert found["intervals"]["gain"] == pytest.approx(list(expected.intervals["gain"]), rel=1e-4)
    assert found["classes"] == ["no", "yes"]


def test_people_get_a_table_and_a_sentence_in_80_columns(numbers):
    *_, path = numbers
    out, err = run(path, "--target", "bought")
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    assert "240 training rows, 30 features, 'yes' against 'no'" in out
    assert "heory predicts" in out
    assert "less log loss" in out
    assert "Trust: good" in out


def test_categories_gaps_and_rows_without_a_label(tmp_path):
    table = mixed(300, k=2).drop_columns(["weight", "family"])
    labels = table["kind"].to_pylist()
    labels[:7] = [None] * 7
    table = table.set_column(table.column_names.index("kind"), "kind", pa.array(labels))
    pq.write_table(table, tmp_path / "table.parquet")
    out, err = run(tmp_path / "table.parquet", "--target", "kind", "--json")
    found = json.loads(out)
    assert "7 rows" in err
    assert found["n_rows"] == 293
    # x, its mark, z; 3 colours, some missing, 4 sizes that sum to 1
    assert found["n_features"] == 3 + 3 + 3
    doubts = " ".join(each["doubt"] for each in found["assumptions"])
    assert "far from Gaussian" in doubts
    assert {each["name"]: each["kind"] for each in found["columns"]} == {
        **{"kind": "target", "x": "number", "z": "number"},
        **{"colour": "category", "size": "category"},
    }


def test_it_is_said_what_became_of_the_columns(tmp_path):
    table = mixed(300, k=2).drop_columns(["weight", "family"])
    days = [f"2024-0{1 + i % 9}-{1 + i % 28:02d}" for i in range(300)]
    table = table.append_column("since", pa.array(days)).append_column(
        "row_id", pa.array(range(300))
    )
    path = write_csv(table, tmp_path / "table.csv")
    out = words(run(path, "--target", "kind")[0])
    # x, z and since, a mark for x; 3 colours and 4 sizes
    assert (
        "11 features from 6 columns: 2 numbers; 1 date (as days); 2 categories (7 one-hot)" in out
    )
    assert "missing values in 1 column" in out
    assert "1 ignored: 'row_id'" in out
    assert "1 is a linear combination of the others and left out" in out
    assert "distinct" not in out
    more = words(run(path, "--target", "kind", "-v")[0])
    assert "distinct" in more
    assert "almost every value is unique" in more


def words(text):
    """Return a text on one line, with percent signs next to their numbers."""
    return " ".join(text.split()).replace(" %", "%")


def test_what_cannot_be_said_is_not_said_first(tmp_path, numbers):
    X, y, _ = numbers
    few = pa.table([*X[:, :13].T, y], names=[*(f"x{j}" for j in range(13)), "y"])
    out = words(run(write_csv(few, tmp_path / "few.csv"), "--target", "y")[0])
    assert out.index("not reliable") < out.index("Theory predicts")
    assert "Trust: poor ✗ there are 13 features" in out
    assert "C is assumed to be chosen exactly" in out


def test_of_noise_nothing_is_claimed(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table(
        [*rng.normal(size=(40, 300)), np.arange(300) % 2], names=[*map(str, range(40)), "y"]
    )
    path = write_csv(table, tmp_path / "noise.csv")
    out = words(run(path, "--target", "y")[0])
    assert "not reliable" in out
    assert "best linear classifier: not determined" in out
    assert "0.00%" not in out
    assert json.loads(run(path, "--target", "y", "--json")[0])["bayes_error"] is None


def test_all_assumptions_are_shown_only_on_request(numbers):
    *_, path = numbers
    out = words(run(path, "--target", "bought")[0])
    assert "✗" not in out
    assert "Gaussian" not in out
    more = words(run(path, "--target", "bought", "-v")[0])
    assert "✓ columns are Gaussian" in more
    assert "? a linear model" in more


def test_rows_may_be_another_number(numbers):
    *_, path = numbers
    few, many = (
        json.loads(run(path, "--target", "bought", "--json", "--rows", n)[0]) for n in (60, 6000)
    )
    assert few["n_rows"], many["n_rows"] == (60, 6000)
    assert few["loss_by_risk"] > many["loss_by_risk"]
    out = words(run(path, "--target", "bought", "--rows", 6000)[0])
    assert "6,000 training rows (the table has 240 rows)" in out
    assert "✗ 6000 training rows are 25 times the 240 rows of the data" in out


def test_more_classes_need_a_choice(tmp_path):
    path = write_csv(mixed(300).drop_columns(["weight", "family"]), tmp_path / "three.csv")
    _, err = run(path, "--target", "kind", code=1)
    assert "3 classes" in err
    assert "--positive 'class 0'" in err
    out, _ = run(path, "--target", "kind", "--positive", "class 2", "--json")
    assert json.loads(out)["classes"] == ["the rest", "class 2"]
    _, err = run(path, "--target", "kind", "--positive", "class 9", code=2)
    assert "class 9" in err


def test_what_is_wrong_is_said_without_a_traceback(tmp_path, numbers):
    *_, path = numbers
    _, err = run(path, "--target", "sold", code=1)
    assert "--target is 'sold'" in err
    _, err = run(tmp_path / "none.csv", "--target", "bought", code=1)
    assert "none.csv" in err
    short = write_csv(pa.table({"x": range(9), "y": [0, 1, 1] * 3}), tmp_path / "short.csv")
    _, err = run(short, "--target", "y", code=1)
    assert "has 9 rows with a label: at least 20 are needed" in err
    rare = pa.table({"x": np.arange(30) % 7, "y": [1] * 3 + [0] * 27})
    _, err = run(write_csv(rare, tmp_path / "rare.csv"), "--target", "y", code=1)
    assert "error: 'y' has 3 rows of class '1'" in err
    assert "Traceback" not in err


def test_a_column_that_repeats_the_target_is_found(tmp_path, numbers):
    X, y, _ = numbers
    table = pa.table({"x": X[:, 0], "leak": y.astype(float), "y": y})
    _, err = run(write_csv(table, tmp_path / "leak.csv"), "--target", "y", code=1)
    assert "the table gives the label away" in err


def test_help_has_an_example():
    out, _ = run("--help")
    assert "refinecal theory gain" in out
