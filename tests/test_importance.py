"""Permutation importance: against scikit-learn, against each shuffled prediction, and what the page says."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_runs import invoke
from sklearn.inspection import permutation_importance as of_sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from strategies import Exact

import refinecal as rc
from refinecal.cli.app import app
from refinecal.evaluation import ColumnImportance, Difference, Importance, permutation_importance
from refinecal.report.of_importance import page
from refinecal.tabular.run import Run

run = partial(invoke, app)


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, (X @ [2, 1, 0, 0] + rng.logistic(size=n) > 0).astype(int)


@pytest.fixture(scope="module")
def fitted():
    """A model that cannot use the last column, and new rows."""
    X, y = rows(1000)
    return LogisticRegression(C=np.inf).fit(X * [1, 1, 1, 0], y), *rows(600, 1)


def test_the_loss_rises_as_scikit_learn_says(fitted):
    found = permutation_importance(*fitted, n_repeats=40)
    expected = of_sklearn(*fitted, scoring="neg_log_loss", n_repeats=40, random_state=0)
    for each in found.columns:
        error = expected.importances_std[each.column] / np.sqrt(40)
        gap = each.loss.mean - expected.importances_mean[each.column]
        assert abs(gap) <= 6 * error + 1e-12  # both draw 40 permutations
    assert [each.column for each in found.columns][:2] == [0, 1]


def test_each_rise_is_that_of_the_shuffled_predictions(fitted):
    model, X, y = fitted
    weights = np.random.default_rng(2).uniform(0.5, 2, len(y))
    seen = []

    def predict(X):
        seen.append((X, model.predict_proba(X)))
        return seen[-1][1]

    found = permutation_importance(predict, X, y, n_repeats=3, sample_weight=weights, columns=[1])
    (only,) = found.columns
    (_, base), *changed = seen
    losses = [log_loss(y, probs, sample_weight=weights) for _, probs in changed]
    before = log_loss(y, base, sample_weight=weights)
    assert only.loss.mean == pytest.approx(np.mean(losses) - before)
    exact = [Exact(y, np.log(probs), weights) for _, probs in seen]
    least = [each.loss(each.beta()) for each in exact]
    assert only.refinement.mean == pytest.approx(np.mean(least[1:]) - least[0], abs=1e-9)
    assert only.calibration == pytest.approx(only.loss.mean - only.refinement.mean)
    for shuffled, _ in changed:
        assert sorted(shuffled[:, 1]) == sorted(X[:, 1])
        assert (np.delete(shuffled, 1, axis=1) == np.delete(X, 1, axis=1)).all()
    assert len({shuffled[:, 1].tobytes() for shuffled, _ in changed}) == 3


def test_an_unused_column_changes_nothing_and_the_order_of_rows_does_not_matter(fitted):
    model, X, y = fitted
    found = permutation_importance(model, X, y)
    unused = next(each for each in found.columns if each.column == 3)
    assert abs(unused.loss.mean) < 1e-12
    order = np.random.default_rng(3).permutation(len(y))
    other = permutation_importance(model, X[order], y[order])
    for one, two in zip(found.columns, other.columns, strict=True):
        assert one.column == two.column
        assert one.loss.mean == pytest.approx(two.loss.mean, abs=1e-12)
        assert one.refinement.mean == pytest.approx(two.refinement.mean, abs=1e-12)


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_ties_of_predictions_do_not_make_the_order_of_rows_matter(kind):
    X, _ = rows(300)
    rng = np.random.default_rng(4)
    y, weights, groups = rng.random((300, 2)), rng.uniform(0.5, 2, 300), rng.integers(60, size=300)
    y /= y.sum(axis=1, keepdims=True)
    X[150:], y[150:250] = X[:150], y[:100]  # ties of everything but weights and groups
    table = pd.DataFrame(X).assign(text=np.where(X[:, 3] > 0, "up", "down"))

    def importance(order):
        given = X[order] if kind == "array" else table.iloc[order]
        about = {"sample_weight": weights[order], "groups": groups[order]}
        found = permutation_importance(steps, given, y[order], **about)
        losses = {each.column: each.loss for each in found.columns}
        return [(losses[j].mean, losses[j].standard_error) for j in range(4)]

    def steps(X):  # four different predictions
        X = np.asarray(X)[:, :4].astype(float)
        return 0.2 + 0.2 * (X[:, 0] > 0) + 0.3 * (X[:, 1] > 0)

    expected = importance(np.arange(300))
    for order in (np.arange(300)[::-1], rng.permutation(300)):
        np.testing.assert_allclose(importance(order), expected, atol=1e-12)


def test_columns_of_the_same_name_are_shuffled_each(fitted):
    model, X, y = fitted
    table = pd.DataFrame(X, columns=["a", "a", "b", "a"])
    found = permutation_importance(lambda table: model.predict_proba(table.to_numpy()), table, y)
    expected = permutation_importance(*fitted)
    rises = [[each.loss.mean for each in one.columns] for one in (found, expected)]
    np.testing.assert_allclose(*rises, atol=1e-12)
    names = [table.columns[each.column] for each in expected.columns]
    assert [each.column for each in found.columns] == names


def test_groups_are_checked_before_anything_is_predicted(fitted):
    def predict(X):
        raise AssertionError("too early")

    with pytest.raises(ValueError, match="groups has 3 entries"):
        permutation_importance(predict, *fitted[1:], groups=[1, 2, 3])


def test_data_frames_of_any_types_and_named_classes():
    X, y = rows(400)
    model = LogisticRegression().fit(X, y)
    table = pd.DataFrame(
        {"a": X[:, 0], "sign": pd.Categorical(np.where(X[:, 1] > 0, "up", "down"))}
    )
    table.index = np.arange(400)[::-1]

    def predict(table):
        ups = np.where(table["sign"] == "up", 1.0, -1.0)
        assert list(table["sign"].cat.categories) == ["down", "up"]
        return model.predict_proba(np.column_stack([table["a"], ups, ups * 0, ups * 0]))

    names = np.array(["no", "yes"])[y]
    found = permutation_importance(predict, table, names)
    assert {each.column for each in found.columns} == {"a", "sign"}
    assert all(each.loss.low > 0 for each in found.columns)
    assert "Importance of 2 columns (400 rows, 5 permutations)" in repr(found)
    progress = []
    permutation_importance(
        predict, table, names, columns=["a"], n_repeats=2, progress=lambda *at: progress.append(at)
    )
    assert progress == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": 3}, "model is int: pass a fitted model with predict_proba"),
        ({"X": np.zeros(4)}, r"X has shape \(4,\)"),
        ({"columns": [9]}, "columns names 9, which X does not have"),
        (
            {"X": pd.DataFrame(np.zeros((600, 4)), columns=list("aabc")), "columns": ["a"]},
            "columns names 'a', but X has 2 columns of this name",
        ),
        ({"groups": [1, 2]}, "groups has 2 entries, but there are 600 rows"),
        ({"n_repeats": 0}, "n_repeats is 0"),
        ({"model": lambda X: np.tile([1.0, 0.0], (len(X), 1))}, "the log loss is infinite"),
    ],
)
@pytest.mark.filterwarnings("ignore:the log loss is infinite")
def test_invalid_arguments(fitted, change, message):
    given = dict(zip(("model", "X", "y_true"), fitted, strict=True)) | change
    with pytest.raises((ValueError, TypeError), match=message):
        permutation_importance(**given)


# ---- the command -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("importance")
    for name, seed in (("train", 0), ("new", 1)):
        X, y = rows(500, seed)
        data = pd.DataFrame(X, columns=["a", "b", "c", "d"])
        data.assign(y=np.where(y == 1, "yes", "no")).to_csv(folder / f"{name}.csv", index=False)
    fast = ["--model", "logistic", "--folds", "1", "--threads", "1", "-q"]
    run("fit", folder / "train.csv", "-t", "y", *fast, "-o", folder / "run")
    return folder


def test_the_command_agrees_with_python_and_writes_a_report(folder):
    table = pd.read_csv(folder / "new.csv")
    out, _ = run("importance", folder / "run", folder / "new.csv", "--json")
    found = json.loads(out)
    loaded = Run.load(folder / "run")
    expected = permutation_importance(loaded, table[["a", "b", "c", "d"]], table["y"])
    assert [each["column"] for each in found["columns"]] == [e.column for e in expected.columns]
    for one, two in zip(found["columns"], expected.columns, strict=True):
        assert one["loss"]["mean"] == pytest.approx(two.loss.mean)
    report = folder / "report.html"
    shown, _ = run("importance", folder / "run", folder / "new.csv", "--report", report)
    assert "Shuffling 'a' costs most" in shown
    assert "Warning" not in shown
    assert "How much does the model rely on each column?" in Path(report).read_text("utf-8")


def test_rows_without_labels_do_not_count_and_rows_are_drawn_whatever_their_order(folder):
    table = pd.read_csv(folder / "new.csv")
    table.loc[::5, "y"] = None
    table.to_csv(folder / "some.csv", index=False)
    table[::-1].to_csv(folder / "turned.csv", index=False)
    few = ["--rows", "50", "--repeats", "1", "--json"]
    first, err = run("importance", folder / "run", folder / "some.csv", *few)
    assert "of 400 rows, 50 are used" in err
    second, _ = run("importance", folder / "run", folder / "turned.csv", *few)
    assert json.loads(first) == json.loads(second)
    table.drop(columns="y").to_csv(folder / "unlabelled.csv", index=False)
    _, err = run("importance", folder / "run", folder / "unlabelled.csv", code=1)
    assert "has no such column" in err


# ---- what the page says ------------------------------------------------------------------------------------


def difference(mean, error):
    return Difference(mean, error, mean - 2 * error, mean + 2 * error, 100)


def said(*columns, test_loss=None):
    """Return the lead and the points for columns of (name, rise of loss, rise of refinement)."""
    terms = rc.decompose([0, 1, 1, 0], [0.2, 0.6, 0.7, 0.3])
    made = [ColumnImportance(n, difference(a, 0.01), difference(b, 0.01)) for n, a, b in columns]
    found = page(Importance(tuple(made), terms, 5), Path("x.csv"), 0, test_loss=test_loss)
    return found.lead, " ".join(found.points)


def test_the_page_says_where_loss_and_refinement_disagree():
    lead, points = said(("a", 0.2, 0.19), ("b", 0.5, 0.1), ("c", 0.0, 0.001))
    assert "Shuffling 'a' costs most: the refinement error rises by 0.190 ± 0.010" in lead
    assert "By log loss 'b' comes first" in points
    assert "of what shuffling 'b' costs, more than half is calibration error" in points
    assert "No effect beyond chance: 'c'. Without it" in points
    lead, points = said(("a", 0.2, 0.19), ("b", 0.1, 0.09))
    assert not points


def test_the_page_says_if_nothing_matters_or_the_rows_are_not_new():
    lead, _ = said(("a", 0.001, 0.001))
    assert lead == "No column matters beyond chance on 4 rows."
    test_loss = {"mean": 0.9, "standard_error": 0.1}
    assert "If the model was trained on these rows" in said(("a", 0.2, 0.2), test_loss=test_loss)[1]
    assert not said(("a", 0.2, 0.2), test_loss={"mean": 0.9, "standard_error": 0.3})[1]
