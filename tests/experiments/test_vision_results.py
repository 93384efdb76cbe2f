"""The results of the vision experiment: intervals as SciPy's, minima where they must be, nothing lost."""

import csv
import math
import re
import shutil
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

from refinecal.experiments.comparing import Mean, compare_paired, mean_of, welch_difference
from refinecal.experiments.folder import RunFolder
from refinecal.experiments.plan import Plan
from refinecal.experiments.report import write_tables
from refinecal.experiments.results import merge_results, read_results
from refinecal.experiments.units import VisionUnit
from refinecal.experiments.vision import cost
from refinecal.experiments.vision.cost import PUBLISHED, published
from refinecal.experiments.vision.history import METRICS, SCORES
from refinecal.experiments.vision.image_analysis import (
    REFERENCE,
    Analysis,
    Procedure,
    best_of,
    departures,
)

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
    assert found.mean - found.half == pytest.approx(ends[0], rel=1e-9, abs=1e-9)
    assert found.mean + found.half == pytest.approx(ends[1], rel=1e-9, abs=1e-9)
    assert found.error == pytest.approx(stats.sem(values), rel=1e-9)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=12))
def test_paired_differences_are_scipys(pairs):
    one, other = np.array(pairs).T
    found = compare_paired(one, other)
    assert (found.lower, found.equal, found.higher) == tuple(
        int(np.sum(np.sign(one - other) == sign)) for sign in (-1, 0, 1)
    )
    if np.ptp(one - other) > 1e-3:
        expected = stats.ttest_rel(one, other)
        assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
        ends = expected.confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx(tuple(ends), rel=1e-9, abs=1e-9)
    back = compare_paired(other, one)
    assert (back.mean, back.half) == pytest.approx((-found.mean, found.half))


@given(
    st.lists(numbers, min_size=2, max_size=9).filter(lambda values: np.ptp(values) > 1e-2),
    st.lists(numbers, min_size=2, max_size=9).filter(lambda values: np.ptp(values) > 1e-2),
)
def test_means_of_separate_runs_are_as_far_apart_as_welch_says(one, other):
    found = welch_difference(mean_of(one), mean_of(other))
    ends = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    low, high = found.mean - found.half, found.mean + found.half
    assert (low, high) == pytest.approx(tuple(ends), rel=1e-6, abs=1e-6)


def test_few_equal_and_missing_numbers():
    assert mean_of([0.1, 0.1, 0.1]) == Mean(3, 0.1, 0.0)
    assert mean_of([2.0, np.nan]).runs == 1
    assert math.isnan(mean_of([2.0]).half)
    assert mean_of([]).runs == 0
    lost = mean_of([1.0, np.inf])
    assert lost.mean == math.inf
    assert math.isnan(lost.half)
    same = compare_paired([0.3, 0.2], [0.3, 0.2])
    assert (same.mean, same.half, same.p, same.verdict) == (0.0, 0.0, 1.0, "equal")
    assert compare_paired([np.nan, 1.0, 2.0], [1.0, 2.0, 3.0]).runs == 2
    assert compare_paired([np.inf, 1.0], [np.inf, 2.0]).runs == 1
    assert math.isnan(welch_difference(Mean(1, 1.0, math.nan), Mean(10, 2.0, 0.1)).half)
    assert welch_difference(Mean(3, 1.0, 0.0), Mean(10, 2.0, 0.0)) == Mean(3, -1.0, 0.0)


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
    assert compare_paired(gaps, np.zeros(len(gaps))).verdict == verdict


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


def test_only_the_papers_four_metrics_can_be_the_best(tmp_path):
    plan = made_plan(seeds=2)
    folder = RunFolder.create(tmp_path / "run", plan)
    for key in plan.units():
        unit = made_unit(key, plan)
        level = 1e-3 + 0 * unit.history["test.ece_ts"]
        level[[CALIBRATED - 1, RISK - 1]] = 0.0, 2e-3  # what ECE chose is the best of all seven
        unit.history["test.ece_ts"][:] = level
        unit.save(folder.unit_path(key))
    analysis = Analysis(read_results(folder.path))
    assert analysis.mean(GROUP, Procedure("ece"), "ece").mean == 0.0
    assert analysis.best(GROUP, "ece") == {"brier", "accuracy", "refinement"}
    assert analysis.best(GROUP, "smooth_ece") == set()  # of which all are equal
    write_tables(analysis.tables(), tmp_path)
    best = {
        row["metric"]: row["best"]
        for row in read(tmp_path / "means.csv")
        if (row["score"], row["calibration"]) == ("ece", "temperature")
    }
    assert {metric for metric, is_best in best.items() if is_best == "true"} == set(METRICS[1:4])
    assert set(best) == set(METRICS)


def test_a_training_that_patience_ended_is_a_good_one(tmp_path):
    plan = made_plan(seeds=3)
    keys, why = plan.units(), "no better for 5 epochs"
    folder = made_run(tmp_path / "run", plan, without=keys[:2], stopped={})
    made_unit(keys[0], plan, why, ended=45).save(folder.unit_path(keys[0]))
    made_unit(keys[1], plan, "the training loss of epoch 60 is nan").save(folder.unit_path(keys[1]))
    assert [VisionUnit.read_divergence(folder.unit_path(key)) for key in keys] == [
        *("", "the training loss of epoch 60 is nan", ""),
    ]
    found = read_results(folder.path)
    assert [each.key.seed for each in found.trainings] == [0, 2]
    assert [each.epochs for each in found.trainings] == [45, EPOCHS]
    assert list(found.stopped) == [keys[1]]
    analysis = Analysis(found)
    assert analysis.headlines[GROUP].mean == pytest.approx(
        np.mean([-gain(key) for key in (keys[0], keys[2])])
    )
    assert "1 of 2 ended before the last epoch" in departures(analysis.results.of(GROUP))
    write_tables(analysis.tables(), tmp_path)
    assert len(read(tmp_path / "curves.csv")) == 45 + EPOCHS


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
    write_tables(analysis.tables(), tmp_path)


def test_errors_name_the_cure(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        read_results(tmp_path / "nowhere")
    made_run(tmp_path / "empty", made_plan(), without=made_plan().units())
    with pytest.raises(
        ValueError, match="no finished training run: run refinecal experiment vision"
    ):
        read_results(tmp_path / "empty")
    lost = dict.fromkeys(made_plan().units(), "the training loss of epoch 1 is nan")
    made_run(tmp_path / "lost", made_plan(), stopped=lost)
    said = r"all training runs \(3\) ended early \(the training loss of epoch 1 is nan\).* smaller --lr"
    with pytest.raises(ValueError, match=said):
        read_results(tmp_path / "lost")
    folder = made_run(tmp_path / "bad", made_plan(seeds=1))
    folder.unit_path(made_plan().units()[0]).write_bytes(b"PK no archive")
    with pytest.raises(ValueError, match="is damaged: resume the run, which computes"):
        read_results(tmp_path / "bad")


def test_a_training_in_the_file_of_another_is_refused(tmp_path):
    folder = made_run(tmp_path / "run", made_plan(seeds=2))
    first, second = folder.plan.units()
    shutil.copy(folder.unit_path(first), folder.unit_path(second))
    with pytest.raises(ValueError, match=r"-s1\.npz holds the training run .*-s0: delete it"):
        read_results(tmp_path / "run")


# ---- several runs ------------------------------------------------------------------------------------------


def test_runs_are_put_together(tmp_path):
    made_run(tmp_path / "a", made_plan(seeds=2))
    made_run(tmp_path / "b", made_plan(("svhn",), seeds=3, epochs=50))
    found = merge_results([read_results(tmp_path / name) for name in "ab"])
    assert found.groups == [("cifar10", "resnet18"), ("svhn", "resnet18")]
    assert (len(found.trainings), found.planned, found.missing) == (5, 5, 0)
    made_run(tmp_path / "c", made_plan(seeds=4), without=made_plan(seeds=4).units()[:1])
    both = merge_results([read_results(tmp_path / name) for name in "ac"])
    assert [each.key.seed for each in both.trainings] == [0, 1, 2, 3]


def test_ways_to_train_a_model_are_models_of_their_own(tmp_path):
    made_run(tmp_path / "a", made_plan(seeds=1))
    made_run(tmp_path / "b", made_plan(seeds=2, weight_decay=0.0))
    made_run(tmp_path / "d", made_plan(seeds=3, optimizer="adamw", schedule="constant", lr=0.001))
    results = [read_results(tmp_path / name) for name in "abd"]
    found = merge_results(results)
    ways = {
        "sgd, lr 0.1, weight decay 0.0001, step": 1,
        "sgd, lr 0.1, weight decay 0.0, step": 2,
        "adamw, lr 0.001, weight decay 0.0001, constant": 3,
    }
    groups = [("cifar10", f"resnet18 · {way}") for way in ways]
    assert sorted(found.groups) == sorted(groups)
    assert [len(found.of(group)) for group in groups] == list(ways.values())
    assert (found.planned, found.missing) == (6, 0)
    assert (found.done, len(found.rows)) == (6, sum(len(each.rows) for each in results))
    assert {row.model for row in found.rows} == {model for _, model in groups}
    made_run(tmp_path / "c", made_plan(("svhn",), seeds=2, weight_decay=0.0))
    assert len(merge_results([read_results(tmp_path / name) for name in "ac"]).groups) == 2


def test_runs_on_other_images_are_not(tmp_path):
    words = {"a": "10000+10000 images 5a1b", "b": "30000+10000 images 1399"}
    for name, word in words.items():
        made_run(tmp_path / name, made_plan(seeds=1, content={"cifar10": word}))
    made_run(tmp_path / "c", made_plan(("svhn",), seeds=1, content={"svhn": "x"}))
    a, b, c = (read_results(tmp_path / name) for name in "abc")
    said = (
        f"{tmp_path / 'a'} and {tmp_path / 'b'} have different images of cifar10, {words['a']} and "
        f"{words['b']}: report each of them separately, or train one of them again on the images of the other"
    )
    with pytest.raises(ValueError, match=re.escape(said)):
        merge_results([a, c, b])
    assert len(merge_results([a, c]).groups) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_train": 901}, "different training images, 900 and 901"),
        ({"y_test": np.ones(12, int)}, "different labels of test images"),
    ],
)
def test_images_are_told_apart_by_what_trainings_know_of_them(change, said, tmp_path):
    made_run(tmp_path / "a", made_plan(seeds=1))
    made_run(tmp_path / "b", made_plan(("cifar10",), ("resnet18", "small"), seeds=2), **change)
    with pytest.raises(ValueError, match=said):
        merge_results([read_results(tmp_path / name) for name in "ab"])


def test_trainings_of_one_run_are_by_one_recipe(tmp_path):
    plan = made_plan(seeds=3)
    folder = made_run(tmp_path / "run", plan)
    key = plan.units()[1]
    recipe = {**plan.recipe(*key[:2]).to_dict(), "precision": "bfloat16"}
    made_unit(key, plan, recipe=recipe).save(folder.unit_path(key))
    said = (
        r"run has training runs of resnet18 on cifar10 with different precision, float32 and bfloat16 \("
        r"seeds 0 and 1\): remove the files of one kind from .*units and resume the run"
    )
    with pytest.raises(ValueError, match=said):
        read_results(folder.path)
    lost = made_unit(key, plan, "the loss is nan", recipe=recipe)  # one that is not compared
    lost.save(folder.unit_path(key))
    with pytest.raises(ValueError, match="different precision"):
        read_results(folder.path)


def test_what_two_runs_hold_is_told(tmp_path):
    made_run(tmp_path / "a", made_plan(seeds=3))
    made_run(tmp_path / "b", made_plan(("svhn", "cifar10"), seeds=4))
    a, b = (read_results(tmp_path / name) for name in "ab")
    both = merge_results([a, b])
    (found,) = both.repeated
    assert found == (str(tmp_path / "a"), str(tmp_path / "b"), 3, 0)
    assert str(found).endswith(f"taken from {tmp_path / 'a'}; all equal")
    assert [each.run for each in both.of(GROUP)] == [str(tmp_path / n) for n in "aaab"]
    assert (both.planned, both.missing) == (8, 0)
    assert merge_results([b]).repeated == []
    other = replace(b.of(GROUP)[1], history={"val.log_loss": np.ones(EPOCHS)})
    changed = replace(
        b, trainings=[each for each in b.trainings if each.key != other.key] + [other]
    )
    (found,) = merge_results([a, changed]).repeated
    assert (found.trainings, found.different) == (3, 1)
    assert str(found).startswith("3 of the training runs are in both")
    assert str(found).endswith(f"; 1 of them different in {tmp_path / 'b'}")
    best = replace(b.of(GROUP)[1], best={"log_loss": 1})
    assert not best.is_same(b.of(GROUP)[1])


def test_a_training_that_diverged_in_one_run_is_taken_from_the_other(tmp_path):
    plan = made_plan(seeds=2)
    made_run(tmp_path / "a", plan, stopped={plan.units()[0]: "nan"})
    made_run(tmp_path / "b", plan, without=plan.units()[1:])
    found = merge_results([read_results(tmp_path / name) for name in "ab"])
    assert [each.key.seed for each in found.trainings] == [0, 1]
    assert (found.lost, found.missing) == ([], 0)


# ---- protocol and costs ------------------------------------------------------------------------------------


def test_departures_from_the_paper(analysis):
    said = departures(analysis.results.of(GROUP))
    assert said[0] == f"epochs {EPOCHS} instead of 300"
    assert "4 runs instead of 10" in said
    trainings = [each for each in analysis.results.of(GROUP) for _ in range(3)][:10]
    images = {"n_train": 45_000, "n_val": 5_000, "n_test": 10_000}
    whole = [replace(each, **images, recipe={**each.recipe, "epochs": 300}) for each in trainings]
    assert departures(whole) == []
    last = whole[-1]  # whatever it is in which they differ, all are looked at
    for change, said in (
        (
            {"recipe": {**last.recipe, "schedule": "cosine"}},
            "schedule step and cosine instead of step",
        ),
        ({"recipe": {**last.recipe, "flip": False}}, "flip on and off instead of on"),
        (
            {"recipe": {**last.recipe, "precision": "bfloat16"}},
            "precision float32 and bfloat16 instead of float32",
        ),
        (
            {"n_train": 25_000},
            "50,000 and 30,000 training and validation images instead of 50,000",
        ),
        ({"n_test": 90}, "10,000 and 90 test images instead of 10,000"),
        ({"stopped": "no better for 9 epochs"}, "1 of 10 ended before the last epoch"),
    ):
        assert departures([*whole[:-1], replace(last, **change)]) == [said]
    lower = [replace(each, recipe={**each.recipe, "lr": 0.05}) for each in whole]
    assert departures(lower) == ["lr 0.05 instead of 0.1"]


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
    said = " ".join(cost.describe_cost(100))
    total = sum(each.flops for each in found.values()) / 100e12 / 3600
    assert "100 TFLOPS" in said
    assert (
        f"takes {total / 0.40:.0f} to {total / 0.15:.0f} hours, if 40% or 15% of the peak" in said
    )
    assert "no GPU was timed" in said
    for bad in ({"tflops": 0.0}, {"utilisation": 1.5}, {"utilisation": 0.0}):
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
    paths = write_tables(analysis.tables(), tmp_path)
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
        write_tables(Analysis(read_results(run)).tables(), tmp_path / name)
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
        write_tables(Analysis(read_results(folder.path)).tables(), folder.path / "tables")
    for path in (whole.path / "tables").iterdir():
        assert path.read_bytes() == (grown.path / "tables" / path.name).read_bytes()


def test_runs_of_the_other_experiment_are_refused(run, tmp_path):
    tables = RunFolder.create(tmp_path / "tables", Plan(({"name": "adult"},), ("mlp",)))
    with pytest.raises(ValueError, match="run of the tabular experiment, not of the vision one"):
        read_results(tables.path, "vision")
    with pytest.raises(ValueError, match="run of the vision experiment, not of the tabular one"):
        read_results(run, "tabular")
