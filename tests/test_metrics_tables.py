"""The table of stopping metrics, and the tables by class and by group."""

import doctest
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import metrics as sk
from strategies import drawn

import refinecal as rc
from refinecal.metrics import BUILT_IN, Metric, get_metric, get_metrics
from refinecal.metrics._metric import OWN

# ---- stopping metrics ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "key"),
    [("accuracy", "accuracy"), ("auroc", "auroc"), ("log_loss", "log_loss")]
    + [(name, f"{name}_loss") for name in ("risk", "brier", "error_rate", "brier_refinement")],
)
def test_keys_end_in_loss_exactly_if_smaller_is_better(metric, key):
    assert get_metric(metric).key == key


@pytest.mark.parametrize("greater", [False, True])
def test_better_is_strict_and_knows_nan(greater):
    metric = Metric(max, "m", greater_is_better=greater)
    good, bad = (2.0, 1.0) if greater else (1.0, 2.0)
    worst = -math.inf if greater else math.inf
    assert metric.better(good, bad)
    assert not metric.better(bad, good)
    assert not metric.better(good, good)
    assert not metric.better(good, bad, by=1.0)
    assert metric.better(good, bad, by=0.5)
    assert metric.better(bad, math.nan)
    assert not metric.better(math.nan, bad)
    assert not metric.better(math.nan, math.nan)
    assert metric.better(bad, worst)
    assert not metric.better(worst, worst)


@pytest.mark.parametrize("name", OWN)
def test_a_function_of_this_module_is_the_metric_of_its_name(name):
    assert get_metric(OWN[name]) == get_metric(name)
    assert get_metric(name).greater_is_better == (name in ("accuracy", "auroc"))


def test_every_plain_function_is_known():
    """But for those whose number is a p-value too, and tables."""
    others = {"CalibrationTest", "Metric", "MetricTable", "per_class", "per_group"}
    others |= {"ks_test", "kuiper_test"}
    others |= {"PrecisionRecall", "average_precision", "confusion_matrix", "precision_recall_curve"}
    known = {function.__name__ for function in OWN.values()}
    assert known == set(rc.metrics.__all__) - others


def test_a_function_is_a_loss_by_its_own_name():
    metric = get_metric(sk.hinge_loss)
    assert (metric.name, metric.greater_is_better) == ("hinge_loss", False)


def test_a_metric_is_followed_once():
    assert [metric.name for metric in get_metrics(["auroc", "brier", "auroc"])] == [
        "auroc",
        "brier",
    ]


def test_the_table_can_be_pickled():
    for name in BUILT_IN:
        assert pickle.loads(pickle.dumps(get_metric(name))) == get_metric(name)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("refinment", ValueError, r"metric is 'refinment': .*Did you mean 'refinement'\?"),
        (3, TypeError, r"metric is 3: pass a name such as 'refinement', a function"),
        (Metric, TypeError, r"or refinecal\.metrics\.Metric\(function, name"),
        (
            lambda y, p: 0.0,
            ValueError,
            r"lambda, which has no name: pass refinecal.metrics.Metric\(function, name=",
        ),
        (sk.f1_score, ValueError, r"say whether greater is better, as in .*Metric\(f1_score, 'f1_"),
    ],
)
def test_wrong_metrics_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        rc.RefinementMonitor(given)
    with pytest.raises(error, match=message):
        rc.RefinementMonitor(also=[given])


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("roc_auc", "auroc"),
        ("auc", "auroc"),
        ("acc", "accuracy"),
        ("loss", "log_loss"),
        ("logloss", "log_loss"),
        ("neg_log_loss", "log_loss"),
    ],
)
def test_names_of_other_packages_are_translated(given, ours):
    with pytest.raises(ValueError, match=f"Did you mean '{ours}'"):
        rc.RefinementMonitor(given)


def test_two_metrics_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two metrics are called 'log_loss': name one of them"):
        rc.RefinementMonitor(sk.log_loss, also=["log_loss"])


@pytest.mark.parametrize("name", ["step", "risk", "calibration", "refinement", "beta"])
def test_a_metric_cannot_take_the_place_of_a_term(name):
    with pytest.raises(
        ValueError, match=f"a metric is called '{name}', a name that the records already use"
    ):
        rc.RefinementMonitor(Metric(sk.log_loss, name))


@pytest.mark.parametrize("result", [None, "low", [1.0, 2.0]])
def test_a_metric_must_return_one_number(result):
    monitor = rc.RefinementMonitor(Metric(lambda y, probs: result, "odd"))
    with pytest.raises(TypeError, match="metric 'odd' returned .*: it must return one number"):
        monitor.update([0, 1], [0.2, 0.7])
    assert monitor.history == []


# ---- by class and by group -------------------------------------------------------------------------------


def test_the_table_by_class_is_that_of_the_evaluation():
    labels, logits = drawn(300, 3)
    names = np.array(["a", "b", "c"])
    weights = np.random.default_rng(0).random(300)
    given = {"logits": logits, "sample_weight": weights, "classes": names}
    table = rc.metrics.per_class(names[labels], **given)
    found = rc.evaluation.evaluate(names[labels], **given).per_class
    assert [row["label"] for row in table] == ["a", "b", "c"]
    for row, one in zip(table, found, strict=True):
        assert row == {name: getattr(one, name) for name in row}
    risk = rc.metrics.log_loss(names[labels], **given)
    assert sum(row["part"] for row in table) == pytest.approx(risk)


def test_the_table_by_group_is_what_the_functions_say_of_its_rows():
    labels, logits = drawn(300, 3)
    by = np.array(["north", "south", "east"])[np.arange(300) % 3]
    table = rc.metrics.per_group(labels, logits=logits, by=by)
    assert [row["group"] for row in table] == ["east", "north", "south"]
    for row in table:
        here = by == row["group"]
        assert row["n"] == here.sum()
        names = {"brier": "brier_score"}
        for name in set(row) & set(BUILT_IN) - {"refinement"}:
            function = getattr(rc.metrics, names.get(name, name))
            assert row[name] == pytest.approx(function(labels[here], logits=logits[here]))
        parts = rc.decompose(labels[here], logits=logits[here])
        for name in ("calibration", "refinement", "beta"):
            assert row[name] == pytest.approx(getattr(parts, name), rel=1e-6, abs=1e-9)


def test_tables_become_frames_json_and_text():
    labels, logits = drawn(60, 3)
    by = ["a name that is longer than a table is wide " * 2, "b"]
    tables = [
        rc.metrics.per_class(labels % 2, logits=logits),  # nothing of class 2
        rc.metrics.per_group(labels, logits=logits, by=[by[i % 2] for i in range(60)]),
    ]
    for table in tables:
        frame = pd.DataFrame(table)
        assert list(frame) == table.columns == list(table.to_dict())
        assert len(frame) == len(table) == pl.DataFrame(list(table)).height
        json.dumps(table.to_dict(), allow_nan=False)
        assert max(map(len, repr(table).splitlines())) <= 80
        assert table[:1] == rc.metrics.MetricTable([table[0]])
        for name in table.columns:
            assert name in repr(table)
    assert math.isnan(tables[0][2]["recall"])
    assert tables[0].to_dict()["recall"][2] is None
    assert repr(rc.metrics.MetricTable([])) == "MetricTable without rows"


def test_groups_need_one_value_for_each_row():
    with pytest.raises(ValueError, match=r"by has shape \(3,\), but there are 2 rows"):
        rc.metrics.per_group([0, 1], [0.2, 0.7], by=[1, 2, 3])


def test_the_page_about_metrics_says_what_is_true():
    page = Path(__file__).parents[1] / "docs" / "metrics.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
    text = page.read_text(encoding="utf-8")
    for name in {*rc.metrics.__all__, *BUILT_IN} - {
        "CalibrationTest",
        "MetricTable",
        "PrecisionRecall",
        "brier_refinement",
    }:
        assert name in text, name
