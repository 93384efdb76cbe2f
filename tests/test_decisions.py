"""Confusion matrices, precision and recall, and decisions for given costs, against scikit-learn and loops."""

import json
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from command_runs import invoke
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from strategies import drawn, predictions

import refinecal as rc
from refinecal.cli.app import app
from refinecal.evaluation import evaluate_costs
from refinecal.metrics import average_precision, confusion_matrix, precision_recall_curve

run = partial(invoke, app)


def softmax(logits):
    exps = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


@st.composite
def cost_tables(draw, k):
    """Costs of at least 0 for mistakes, some of them more than 0, and none for right decisions."""
    costs = np.array(draw(st.lists(st.integers(0, 9), min_size=k * k, max_size=k * k)), float)
    costs = costs.reshape(k, k) * (1 - np.eye(k))
    costs[0, 1] += 1
    return costs


# ---- confusion ---------------------------------------------------------------------------------------------


@given(predictions(), st.data())
def test_confusion_counts_pairs_and_weights_count_rows(sample, data):
    y, logits = sample
    k = logits.shape[1]
    weights = np.array(data.draw(st.lists(st.integers(1, 3), min_size=len(y), max_size=len(y))))
    expected = np.zeros((k, k))
    for label, row, weight in zip(y, logits, weights, strict=True):
        expected[label, row.argmax()] += weight
    about = {"classes": range(k)}
    assert (confusion_matrix(y, logits=logits, sample_weight=weights, **about) == expected).all()
    many = {"logits": logits.repeat(weights, axis=0), **about}
    assert (confusion_matrix(y.repeat(weights), **many) == expected).all()


def test_confusion_of_soft_labels_shares_each_row():
    soft, probs = [[0.25, 0.75], [1.0, 0.0]], [[0.4, 0.6], [0.3, 0.7]]
    found = confusion_matrix(soft, probs, sample_weight=[2, 1])
    np.testing.assert_allclose(found, [[0, 0.5 + 1], [0, 1.5]])


# ---- precision and recall ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_average_precision_is_that_of_scikit_learn(weighted):
    y, logits = drawn(400, 3)
    weights = np.random.default_rng(1).uniform(0.1, 2, 400) if weighted else None
    probs = softmax(logits)
    each = [average_precision_score(y == j, probs[:, j], sample_weight=weights) for j in range(3)]
    found = average_precision(y, probs, sample_weight=weights, average=None)
    np.testing.assert_allclose(found, each)
    assert average_precision(y, probs, sample_weight=weights) == pytest.approx(np.mean(each))
    shares = np.bincount(y, weights) / (400 if weights is None else weights.sum())
    found = average_precision(y, probs, sample_weight=weights, average="weighted")
    assert found == pytest.approx(shares @ each)


def test_average_precision_of_two_classes_and_of_a_class_without_rows():
    y, logits = drawn(200, 2)
    probs = softmax(logits)
    assert average_precision(y, probs) == pytest.approx(average_precision_score(y, probs[:, 1]))
    three = np.column_stack([probs * 0.9, np.full(200, 0.1)])
    found = average_precision(y, three, classes=[0, 1, 2], average=None)
    assert np.isnan(found[2])
    assert average_precision(y, three, classes=[0, 1, 2]) == pytest.approx(found[:2].mean())
    assert math.isnan(average_precision([0, 0], [0.2, 0.3], classes=[0, 1]))


def test_a_soft_label_is_a_hit_and_a_miss_of_its_shares():
    soft, p = np.array([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]]), np.array([0.3, 0.9, 0.6])
    found = precision_recall_curve(soft, np.column_stack([1 - p, p]))
    weights = np.concatenate([soft[:, 1], soft[:, 0]])
    expected = average_precision_score([1, 1, 1, 0, 0, 0], np.tile(p, 2), sample_weight=weights)
    assert found.average_precision == pytest.approx(expected)
    assert found.share == pytest.approx(1.3 / 3)


def test_a_curve_needs_a_class_that_there_is():
    y, logits = drawn(50, 3)
    with pytest.raises(ValueError, match="label is None, which is not one of the classes 0, 1, 2"):
        precision_recall_curve(y, logits=logits)
    named = np.array(["a", "b", "c"])[y]
    found = precision_recall_curve(named, logits=logits, label="b")
    assert found.share == pytest.approx((y == 1).mean())
    with pytest.raises(ValueError, match="average"):
        average_precision(y, logits=logits, average="micro")


# ---- costs -------------------------------------------------------------------------------------------------


@given(predictions(), st.data())
def test_the_decision_has_the_smallest_expected_cost(sample, data):
    y, logits = sample
    k = logits.shape[1]
    probs, costs = softmax(logits), data.draw(cost_tables(k))
    found = evaluate_costs(y, probs, costs, classes=range(k))
    for i in range(len(y)):
        expected = [sum(probs[i, c] * costs[c, j] for c in range(k)) for j in range(k)]
        assert expected[found.decisions[i]] == pytest.approx(min(expected))
    paid = [costs[label, decision] for label, decision in zip(y, found.decisions, strict=True)]
    assert found.best.realized.mean == pytest.approx(np.mean(paid))
    assert all(found.best.expected <= way.expected + 1e-12 for way in found.ways.values())
    if k == 2:
        away = abs(probs[:, 1] - found.threshold) > 1e-9
        above = probs[:, 1] > found.threshold
        assert (found.decisions == above)[away].all()


def test_true_probabilities_expect_what_they_cost_and_nothing_costs_less():
    y, logits = drawn(20_000, 3, seed=2)
    costs = [[0, 1, 8], [2, 0, 1], [5, 3, 0]]
    found = evaluate_costs(y, softmax(logits), costs)
    best = found.best
    assert abs(best.expected - best.realized.mean) < 4 * best.realized.standard_error
    for way in list(found.ways.values())[1:]:
        assert way.change.low > 0
    paid = np.array(costs)[y, found.decisions]
    assert best.realized.standard_error == pytest.approx(paid.std(ddof=1) / math.sqrt(20_000))


def test_costs_of_two_classes_weights_and_the_curve():
    y, logits = drawn(300, 2, seed=3)
    probs = softmax(logits)
    weights = np.arange(300) % 3
    found = evaluate_costs(y, probs, (1, 4), sample_weight=weights, names=["no", "yes"])
    assert found.threshold == 0.2
    same = evaluate_costs(y.repeat(weights), probs.repeat(weights, axis=0), [[0, 1], [4, 0]])
    assert found.best.realized.mean == pytest.approx(same.best.realized.mean)
    thresholds, expected, realized = found.curve
    at = np.flatnonzero(np.isclose(thresholds, 0.2))[0]
    assert expected[at] == pytest.approx(found.best.expected)
    assert realized[at] == pytest.approx(found.best.realized.mean)
    assert (expected >= expected[at] - 1e-12).all()
    constant = min(found.ways)  # always 'no' or 'yes'
    assert constant in ("always 'no'", "always 'yes'")
    assert found.ways[constant].realized.mean == pytest.approx(min(realized[0], realized[-1]))


def test_costs_of_soft_labels_are_those_of_their_shares():
    probs = np.array([[0.5, 0.5], [0.9, 0.1]])
    found = evaluate_costs([[0.25, 0.75], [1.0, 0.0]], probs, (1, 4))
    assert found.decisions.tolist() == [1, 0]
    assert found.best.realized.mean == pytest.approx((0.25 * 1 + 0) / 2)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (None, "costs"),
        (
            (1, 2, 3),
            r"costs has shape \(3,\): pass a pair \(false positive, false negative\) or a m",
        ),
        ([[0, math.nan], [1, 0]], "costs has values that are not finite"),
        ([[2, 1], [1, 0]], r"costs\[0, 1\] is 1, less than 2 for the right decision"),
        ((0, 0), "costs are the same for all decisions"),
    ],
)
def test_costs_that_make_no_sense(costs, message):
    with pytest.raises((ValueError, TypeError), match=message):
        evaluate_costs([0, 1], [0.2, 0.7], costs)


# ---- commands ----------------------------------------------------------------------------------------------


def test_groups_of_costs_have_one_entry_per_row():
    with pytest.raises(ValueError, match="groups has 2 entries, but there are 3 rows"):
        evaluate_costs([0, 1, 1], [0.1, 0.5, 0.9], (1, 4), groups=[1, 2])


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Predictions of three classes, the last of which is rare."""
    monkeypatch.chdir(tmp_path)
    y, logits = drawn(500, 3, seed=4)
    probs = softmax(logits - [0, 0, 3])
    names = np.array(["a", "b", "c"])
    data = pd.DataFrame(probs, columns=["p_a", "p_b", "p_c"]).assign(y=names[y])
    data = data[(data["y"] != "c") | (np.arange(500) % 5 == 0)]
    data.to_csv("p.csv", index=False)
    return data


COSTS = "label,c,b,a\nb,2,0,1\na,4,3,0\nc,0,9,7\n"


def test_evaluate_with_costs_of_a_file_in_any_order(table, tmp_path):
    (tmp_path / "costs.csv").write_text(COSTS)
    out, _ = run("evaluate", "p.csv", "-t", "y", "--cost", "costs.csv", "--json")
    found = json.loads(out)
    costs = np.array([[0, 3, 4], [1, 0, 2], [7, 9, 0]])
    assert found["costs"]["costs"] == costs.tolist()
    probs = table[["p_a", "p_b", "p_c"]].to_numpy()
    paid = costs["abc".index(table["y"].iloc[0]), (probs[0] @ costs).argmin()]
    labels = np.array(["abc".index(each) for each in table["y"]])
    paid = costs[labels, (probs @ costs).argmin(axis=1)]
    way = found["costs"]["decisions"]["smallest expected cost"]
    assert way["realized"]["mean"] == pytest.approx(paid.mean())
    counts = pd.crosstab(table["y"], probs.argmax(axis=1)).reindex(columns=[0, 1, 2], fill_value=0)
    assert found["confusion_matrix"] == counts.to_numpy().tolist()
    expected = average_precision_score(labels == 2, probs[:, 2])
    assert found["average_precision"]["c"] == pytest.approx(expected)
    shown, _ = run("evaluate", "p.csv", "-t", "y", "--cost", "costs.csv", "--report", "r.html")
    assert "predict the class with the smallest expected cost: the cost per row is" in " ".join(
        shown.split()
    )
    assert "rare class" in shown


@pytest.mark.parametrize(
    ("text", "cost", "message"),
    [
        ("", "1,2", "pass FP,FN for two classes, else a CSV file"),
        ("", "a,b", "is neither two numbers such as 1,5 nor a file"),
        (
            COSTS.replace(",c,", ",d,"),
            "costs.csv",
            "a class is 'c', but --cost costs.csv has no such",
        ),
        (
            COSTS.replace("b,2", "x,2"),
            "costs.csv",
            "a label is 'b', but the first column of --cost",
        ),
        (COSTS.replace("4", "much"), "costs.csv", "holds a cost that is not a number"),
        (COSTS.replace("c,0", "c,8"), "costs.csv", "--cost[2, 0] is 7, less than 8"),
    ],
)
def test_costs_that_do_not_fit(table, tmp_path, text, cost, message):
    (tmp_path / "costs.csv").write_text(text)
    code = 2 if "," in cost else 1
    _, err = run("evaluate", "p.csv", "-t", "y", "--cost", cost, code=code)
    assert message in " ".join(err.replace("│", " ").split())


def test_fit_and_predict_with_costs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    y, logits = drawn(400, 2, seed=5)
    data = pd.DataFrame({"x": logits[:, 1] - logits[:, 0], "y": np.where(y == 1, "yes", "no")})
    data.to_csv("t.csv", index=False)
    fast = ["--model", "logistic", "--folds", "1", "--max-steps", "5", "--cost", "1,4"]
    shown, _ = run("fit", "t.csv", "-t", "y", *fast)
    assert "predict 'yes' above a probability of 20.0%: the cost per row is" in " ".join(
        shown.split()
    )
    run("predict", "t-run", "t.csv", "-o", "plain.csv")
    run("predict", "t-run", "t.csv", "-o", "cheap.csv", "--cost", "1,4")
    plain, cheap = pd.read_csv("plain.csv"), pd.read_csv("cheap.csv")
    assert (cheap["p_yes"] == plain["p_yes"]).all()
    assert ((cheap["p_yes"] > 0.2) == (cheap["prediction"] == "yes")).all()
    assert ((plain["p_yes"] > 0.5) == (plain["prediction"] == "yes")).all()


# ---- figures -----------------------------------------------------------------------------------------------


def test_figures_show_the_numbers():
    y, logits = drawn(300, 3)
    display = rc.plots.ConfusionDisplay.from_predictions(y, logits=logits)
    matrix = confusion_matrix(y, logits=logits)
    assert [text.get_text() for text in display.texts_] == [f"{n:,}" for n in matrix.ravel()]
    curve = rc.plots.PrecisionRecallDisplay.from_predictions(y, logits=logits, label=2)
    xs, ys = curve.lines_[0].get_data()
    found = precision_recall_curve(y, logits=logits, label=2)
    assert {*zip(xs, ys, strict=True)} <= {*zip(found.recall, found.precision, strict=True)}
    assert f"{found.average_precision:.3f}" in curve.lines_[0].get_label()
    y, logits = drawn(300, 2)
    costs = evaluate_costs(y, softmax(logits), (9, 1), names=["no", "yes"])
    drawing = rc.plots.CostDisplay(costs).plot()
    assert drawing.threshold == pytest.approx(0.1)  # of "no"
    assert "'no'" in drawing.ax_.get_xlabel()
    x, cost = drawing.lines_[1].get_data()
    assert cost.min() == pytest.approx(np.interp(0.1, x[::-1], cost[::-1]))
    with pytest.raises(ValueError, match="only two have a threshold"):
        rc.plots.CostDisplay(evaluate_costs([0, 1, 2], np.eye(3), np.ones((3, 3)) - np.eye(3)))
    with pytest.raises(ValueError, match="names has 2 names, but matrix has 3 rows"):
        rc.plots.ConfusionDisplay(np.eye(3), ["a", "b"])
