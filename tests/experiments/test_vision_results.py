"""The results of the vision experiment: intervals as SciPy's, minima where they must be, nothing lost."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_vision import (
    CALIBRATED,
    EPOCHS,
    REFINED,
    RISK,
    SHARES,
    gain,
    made_plan,
    made_run,
    made_unit,
)
from scipy import stats

from refinecal.experiments.store import RunFolder
from refinecal.experiments.tabular.plan import Plan
from refinecal.experiments.tabular.results import read_results as read_tabular_results
from refinecal.experiments.vision import cost
from refinecal.experiments.vision.analysis import (
    REFERENCE,
    Analysis,
    Procedure,
    best_of,
    departures,
)
from refinecal.experiments.vision.intervals import Mean, apart, mean_of, paired
from refinecal.experiments.vision.published import PUBLISHED, published
from refinecal.experiments.vision.results import METRICS, SCORES, merged, read_results
from refinecal.experiments.vision.tables import write_tables

GROUP = ("cifar10", "resnet18")
numbers = st.floats(-100, 100, width=32)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("vision") / "run"
    made_run(path, made_plan(("cifar10", "svhn"), ("resnet18", "small"), seeds=4))
    return path


@pytest.fixture(scope="module")
def analysis(run):
    return Analysis(read_results(run))


# ---- intervals ---------------------------------------------------------------------------------------------


@given(st.lists(numbers, min_size=2, max_size=12).filter(lambda values: np.ptp(values) > 1e-3))
def test_the_interval_of_a_mean_is_scipys(values):
    found = mean_of(values)
    ends = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-9, abs=1e-9)
    assert found.error == pytest.approx(stats.sem(values), rel=1e-9)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=12))
def test_paired_differences_are_scipys(pairs):
    one, other = np.array(pairs).T
    found = paired(one, other)
    assert (found.lower, found.equal, found.higher) == tuple(
        int(np.sum(np.sign(one - other) == sign)) for sign in (-1, 0, 1)
    )
    if np.ptp(one - other) > 1e-3:
        expected = stats.ttest_rel(one, other)
        assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
        ends = expected.confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx(tuple(ends), rel=1e-9, abs=1e-9)
    back = paired(other, one)
    assert (back.mean, back.half) == pytest.approx((-found.mean, found.half))


@given(
    st.lists(numbers, min_size=2, max_size=9).filter(lambda values: np.ptp(values) > 1e-2),
    st.lists(numbers, min_size=2, max_size=9).filter(lambda values: np.ptp(values) > 1e-2),
)
def test_means_of_separate_runs_are_as_far_apart_as_welch_says(one, other):
    found = apart(mean_of(one), mean_of(other))
    ends = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(ends), rel=1e-6, abs=1e-6)


def test_few_equal_and_missing_numbers():
    assert mean_of([0.1, 0.1, 0.1]) == Mean(3, 0.1, 0.0)
    assert mean_of([2.0, np.nan]).runs == 1
    assert math.isnan(mean_of([2.0]).half)
    assert mean_of([]).runs == 0
    lost = mean_of([1.0, np.inf])
    assert lost.mean == math.inf
    assert math.isnan(lost.half)
    same = paired([0.3, 0.2], [0.3, 0.2])
    assert (same.mean, same.half, same.p, same.verdict) == (0.0, 0.0, 1.0, "equal")
    assert paired([np.nan, 1.0, 2.0], [1.0, 2.0, 3.0]).runs == 2
    assert paired([np.inf, 1.0], [np.inf, 2.0]).runs == 1
    assert math.isnan(apart(Mean(1, 1.0, math.nan), Mean(10, 2.0, 0.1)).half)
    assert apart(Mean(3, 1.0, 0.0), Mean(10, 2.0, 0.0)) == Mean(3, -1.0, 0.0)
    with pytest.raises(ValueError, match="first has shape"):
        paired([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ([-1.0, -1.1, -0.9], "lower"),
        ([1.0, 1.1, 0.9], "higher"),
        ([-1.0, 1.0, 0.1], "within noise"),
        ([-1.0], "too few runs"),
        ([-1.0, -1.0], "lower"),
    ],
)
def test_verdicts(gaps, verdict):
    assert paired(gaps, np.zeros(len(gaps))).verdict == verdict


# ---- published numbers -------------------------------------------------------------------------------------


def test_the_published_tables_are_whole():
    assert len(PUBLISHED) == 2 * 3 * 4
    assert all(
        len(each) == 5 and {one.runs for one in each.values()} == {10}
        for each in PUBLISHED.values()
    )
    for each in PUBLISHED.values():
        assert each["brier"].mean < each["log_loss"].mean  # as for any sensible predictions
        assert 0.7 < each["accuracy"].mean < 0.98
        assert each["accuracy"].half < 0.004


def test_some_published_numbers_by_hand():
    assert published("cifar100", "resnet18", "refinement", "log_loss") == Mean(10, 0.983, 0.008)
    assert published("cifar100", "wrn28-10", "log_loss", "smooth_ece") == Mean(10, 0.020, 0.002)
    assert published("svhn", "wrn28-10", "accuracy", "accuracy").mean == pytest.approx(0.973)
    assert published("cifar10", "resnet18", "log_loss", "accuracy").half == pytest.approx(0.002)
    assert published("cifar10", "small", "log_loss", "accuracy") is None
    assert published("cifar10", "resnet18", "log_loss", "auroc") is None
    assert published("cifar10", "resnet18", "ece", "log_loss") is None


def test_bold_follows_from_the_printed_digits():
    log_loss = {name: published("cifar10", "resnet18", name, "log_loss") for name in METRICS[:4]}
    assert best_of(log_loss, "log_loss") == {"brier", "refinement"}
    accuracy = {name: published("cifar10", "resnet18", name, "accuracy") for name in METRICS[:4]}
    assert best_of(accuracy, "accuracy") == {"brier", "accuracy", "refinement"}
    assert best_of({"a": Mean(0, math.nan, math.nan)}, "log_loss") == set()


# ---- reading -----------------------------------------------------------------------------------------------


def test_every_metric_chooses_where_it_must(analysis):
    for row in analysis.results.rows:
        wanted = {"log_loss": RISK, "refinement": REFINED, "accuracy": REFINED, "ece": CALIBRATED}
        if row.metric in wanted:
            assert row.epoch == wanted[row.metric]
    rows = analysis.results.rows
    assert len(rows) == 2 * 2 * 4 * len(METRICS)
    assert {(row.model, row.dataset) for row in rows[: len(rows) // 2]} == {
        ("resnet18", "cifar10"),
        ("resnet18", "svhn"),
    }


def test_scores_are_those_of_the_chosen_epoch(run, analysis):
    folder = RunFolder(run)
    for row in analysis.results.rows[:: len(METRICS) + 1]:
        key = next(k for k in folder.plan.units() if tuple(k) == row[:3])
        unit = made_unit(key, folder.plan)
        for score in SCORES:
            assert getattr(row, score) == unit.history[f"test.{score}"][row.epoch - 1]
            assert getattr(row, f"{score}_ts") == unit.history[f"test.{score}_ts"][row.epoch - 1]
        assert row.value == unit.history[f"val.{row.metric}"].__getitem__(row.epoch - 1)


def test_refinement_against_log_loss_is_the_known_gain(run, analysis):
    folder = RunFolder(run)
    for group, found in analysis.headlines.items():
        gains = [-gain(key) for key in folder.plan.units() if key[:2] == group]
        expected = stats.ttest_1samp(gains, 0)
        assert found.mean == pytest.approx(np.mean(gains))
        assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
        assert found.p == pytest.approx(expected.pvalue)
        assert (found.runs, found.lower, found.verdict) == (4, 4, "lower")
        relative = analysis.relative(group, Procedure("refinement"))
        reference = analysis.values(group, REFERENCE)
        np.testing.assert_allclose(relative, 100 * np.array(gains) / reference)


def test_unfinished_failed_and_stopped_trainings(tmp_path):
    plan = made_plan(seeds=5)
    keys = plan.units()
    folder = made_run(
        tmp_path / "run", plan, without=keys[:2], stopped={keys[2]: "the loss is nan"}
    )
    folder.record_failure(keys[0], {"kind": "MemoryError", "message": "too large"})
    found = read_results(tmp_path / "run")
    assert [each.key for each in found.trainings] == keys[3:]
    assert found.failed == {keys[0]: "MemoryError: too large"}
    assert found.stopped == {keys[2]: "the loss is nan"}
    assert (found.planned, found.missing) == (5, 1)
    assert Analysis(found).headlines[GROUP].runs == 2


def test_a_metric_that_never_was_a_number_is_left_out(tmp_path):
    plan = made_plan(seeds=2)
    folder = RunFolder.create(tmp_path / "run", plan)
    for key in plan.units():
        unit = made_unit(key, plan)
        if key.seed == 0:
            unit.history["val.auroc"][:] = np.nan
            del unit.best["auroc"]
        unit.save(folder.unit_path(key))
    analysis = Analysis(read_results(tmp_path / "run"))
    assert analysis.mean(GROUP, Procedure("auroc")).runs == 1
    assert len(analysis.results.rows) == 2 * len(METRICS) - 1
    write_tables(analysis, tmp_path)


def test_errors_name_the_cure(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        read_results(tmp_path / "nowhere")
    made_run(tmp_path / "empty", made_plan(), without=made_plan().units())
    with pytest.raises(ValueError, match="no finished training: run refinecal experiment vision"):
        read_results(tmp_path / "empty")
    folder = made_run(tmp_path / "bad", made_plan(seeds=1))
    folder.unit_path(made_plan().units()[0]).write_bytes(b"PK no archive")
    with pytest.raises(ValueError, match="is damaged: resume the run, which trains"):
        read_results(tmp_path / "bad")


# ---- several runs ------------------------------------------------------------------------------------------


def test_runs_are_put_together(tmp_path):
    made_run(tmp_path / "a", made_plan(seeds=2))
    made_run(tmp_path / "b", made_plan(("svhn",), seeds=3, epochs=50))
    found = merged([read_results(tmp_path / name) for name in "ab"])
    assert found.groups == [("cifar10", "resnet18"), ("svhn", "resnet18")]
    assert (len(found.trainings), found.planned, found.missing) == (5, 5, 0)
    made_run(tmp_path / "c", made_plan(seeds=4), without=made_plan(seeds=4).units()[:1])
    both = merged([read_results(tmp_path / name) for name in "ac"])
    assert [each.key.seed for each in both.trainings] == [0, 1, 2, 3]


def test_runs_with_other_recipes_are_not(tmp_path):
    made_run(tmp_path / "a", made_plan(seeds=1))
    made_run(tmp_path / "b", made_plan(seeds=2, weight_decay=0.0))
    with pytest.raises(ValueError, match=r"different weight_decay, 0\.0001 and 0\.0: report each"):
        merged([read_results(tmp_path / name) for name in "ab"])


# ---- protocol and costs ------------------------------------------------------------------------------------


def test_departures_from_the_paper(analysis):
    said = analysis.departures(GROUP)
    assert said[0] == f"epochs {EPOCHS} instead of 300"
    assert "4 runs instead of 10" in said
    trainings = [each for each in analysis.results.of(GROUP) for _ in range(3)][:10]
    images = {"n_train": 45_000, "n_val": 5_000, "n_test": 10_000}
    whole = [replace(each, **images, recipe={**each.recipe, "epochs": 300}) for each in trainings]
    assert departures(whole) == []
    whole[0].recipe["schedule"], whole[0].recipe["flip"] = "cosine", False
    assert departures(whole) == ["schedule cosine instead of step", "flip off instead of on"]


def test_costs_are_sums_of_what_was_measured(analysis):
    each = analysis.costs[0]
    total = sum(SHARES.values())
    assert each.minutes == pytest.approx(total / 60)
    assert each.metrics == pytest.approx(SHARES["metrics"] / total)
    assert each.images_per_second == pytest.approx(900 * EPOCHS / SHARES["training"])
    assert each.gflops == pytest.approx(each.images_per_second * 3 * each.flops / 1e9)
    assert each.memory == 250_000_003


def test_the_estimate_by_hand():
    found = {(each.model, each.dataset): each for each in cost.estimates(100, 0.5)}
    images = (
        3 * 45_000 + 5_000 + 10_000
    )  # of one epoch: three passes for training, one for the others
    flops = 10 * 300 * images * cost.FORWARD["resnet18"]
    assert found["resnet18", "cifar10"].flops == pytest.approx(flops)
    assert found["resnet18", "cifar10"].hours == pytest.approx(flops / 50e12 / 3600)
    assert found["wrn28-10", "svhn"].flops > found["wrn28-10", "cifar10"].flops
    assert 0.1 < cost.implied_utilisation() < 0.2
    said = " ".join(cost.words(100, 0.5))
    assert "100 TFLOPS" in said
    assert "50 %" in said
    for bad in (
        {"tflops": 0.0},
        {"utilisation": 1.5},
        {"utilisation": 0.0},
        {"datasets": ["mnist"]},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            cost.estimates(**bad)


def test_the_operations_of_the_estimate_are_those_that_are_counted():
    import torch

    from refinecal.experiments.vision.networks import NETWORKS, flops

    for name, counted in cost.FORWARD.items():
        with torch.device("meta"):  # shapes without numbers
            network = NETWORKS[name](10, 3)
        assert flops(network, (3, 32, 32)) == counted


# ---- tables ------------------------------------------------------------------------------------------------


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_tables_hold_the_means_beside_the_published(analysis, tmp_path):
    paths = write_tables(analysis, tmp_path)
    assert {path.stem for path in paths} == {
        *("runs", "means", "paired", "relative", "curves", "estimate", "costs"),
    }
    means = read(tmp_path / "means.csv")
    (one,) = [
        row
        for row in means
        if (row["dataset"], row["model"], row["metric"]) == (*GROUP, "refinement")
        and (row["calibration"], row["score"]) == ("temperature", "log_loss")
    ]
    values = analysis.values(GROUP, Procedure("refinement"))
    assert float(one["mean"]) == pytest.approx(values.mean(), rel=1e-9)
    half = stats.t.ppf(0.975, 3) * stats.sem(values)
    assert float(one["half"]) == pytest.approx(half, rel=1e-9)
    assert (one["published_mean"], one["published_half"], one["best"]) == ("0.154", "0.005", "true")
    assert not any(row["published_mean"] for row in means if row["model"] == "small")
    assert not any(row["published_mean"] for row in means if row["calibration"] == "none")
    curves = read(tmp_path / "curves.csv")
    assert len(curves) == 2 * 2 * 4 * EPOCHS
    assert [curves[i]["epoch"] for i in (0, EPOCHS - 1, EPOCHS)] == ["1", str(EPOCHS), "1"]
    lowest = min(curves[:EPOCHS], key=lambda row: float(row["val.refinement"]))
    assert lowest["epoch"] == str(REFINED)
    percent = [
        row for row in read(tmp_path / "relative.csv") if row["procedure"] == "refinement + TS"
    ]
    assert len(percent) == 16
    assert all(float(row["percent"]) < 0 for row in percent)


def test_the_same_results_make_the_same_tables(run, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        write_tables(Analysis(read_results(run)), tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_run_that_grew_makes_the_tables_of_one_that_was_planned_so(tmp_path):
    larger = made_plan(("svhn", "cifar10"), ("small", "resnet18"), seeds=4)
    grown = made_run(tmp_path / "grown", made_plan(seeds=2))
    grown.grow(larger)
    for key in grown.missing():
        made_unit(key, larger).save(grown.unit_path(key))
    whole = made_run(tmp_path / "whole", larger)
    for folder in (grown, whole):
        (folder.path / "tables").mkdir()
        write_tables(Analysis(read_results(folder.path)), folder.path / "tables")
    for path in (whole.path / "tables").iterdir():
        assert path.read_bytes() == (grown.path / "tables" / path.name).read_bytes()


def test_runs_of_the_other_experiment_are_refused(run, tmp_path):
    tables = RunFolder.create(tmp_path / "tables", Plan(({"name": "adult"},), ("mlp",)))
    with pytest.raises(ValueError, match="run of the tabular experiment, not of the vision one"):
        read_results(tables.path)
    with pytest.raises(ValueError, match="run of the vision experiment, not of the tabular one"):
        read_tabular_results(run)
