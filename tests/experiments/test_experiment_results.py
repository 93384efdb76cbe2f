"""From a run to tables: choices by hand, scores by scikit-learn, tests by SciPy, bytes that do not change."""

import csv
import math
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_run import made_plan, made_run, made_unit
from scipy import stats
from sklearn.metrics import log_loss, roc_auc_score
from strategies import examples

import refinecal as rc
from refinecal.experiments.comparing import relative, summarize
from refinecal.experiments.plan import TableKey
from refinecal.experiments.report import write_table, write_tables
from refinecal.experiments.results import check_together, merge_results, read_results
from refinecal.experiments.tabular.differences import compare, of_trainings
from refinecal.experiments.tabular.procedures import AUTO, CALIBRATIONS, Row, judge
from refinecal.experiments.tabular.table_analysis import Analysis
from refinecal.experiments.tabular.table_report import page
from refinecal.report import render


def unit(config=0, **changes):
    made = made_unit(
        TableKey("set", 0, "xgboost", config), n_rows=600, n_classes=changes.pop("k", 2)
    )
    return replace(made, **changes)


def row_of(judged, metric, calibration, mode="default"):
    (found,) = [
        row
        for row in judged.rows
        if (row.metric, row.calibration, row.mode) == (metric, calibration, mode)
    ]
    return found


# ---- judging -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
def test_scores_are_those_of_scikit_learn(k):
    made = unit(k=k)
    judged = judge([made])
    step = made.best["refinement"]
    z = made.test_logits[step].astype(float)
    z = np.column_stack([np.zeros(len(z)), z]) if k == 2 else z
    ts = rc.TemperatureScaling().fit_logits(made.val_logits[step].astype(float), made.y_val)
    raw = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    after = ts.predict_proba_logits(made.test_logits[step].astype(float))
    plain = np.exp(ts.beta_ * z) / np.exp(ts.beta_ * z).sum(axis=1, keepdims=True)
    for calibration, probs in (("none", raw), ("temperature", after), ("unsmoothed", plain)):
        row = row_of(judged, "refinement", calibration)
        assert row.step == step
        assert row.log_loss == pytest.approx(log_loss(made.y_test, probs), rel=1e-9)
        assert row.error == np.mean(probs.argmax(axis=1) != made.y_test)
        brier = ((probs - np.eye(k)[made.y_test]) ** 2).sum(axis=1).mean()
        assert row.brier == pytest.approx(brier, rel=1e-9)
        area = roc_auc_score(made.y_test, probs[:, 1] if k == 2 else probs, multi_class="ovr")
        assert row.auroc == pytest.approx(area, rel=1e-9)


@pytest.mark.parametrize("k", [2, 3])
def test_a_temperature_near_zero_leaves_the_ranks_of_the_test_rows(k):
    made = unit(k=k)
    step = made.best["refinement"]
    sides = np.eye(k, dtype=np.float32)[made.y_val]  # never wrong: the best beta is the largest
    z = sides[:, 1] - sides[:, 0] if k == 2 else sides
    judged = judge([replace(made, val_logits=made.val_logits | {step: z})], auto=False)
    found = row_of(judged, "refinement", "temperature")
    assert found.auroc == row_of(judged, "refinement", "unsmoothed").auroc
    if k == 2:
        assert found.auroc == row_of(judged, "refinement", "none").auroc


def test_differences_are_to_log_loss_with_temperature_on_the_same_rows():
    made = unit()
    judged = judge([made], auto=False)
    reference = row_of(judged, "log_loss", "temperature")
    assert (reference.difference, reference.difference_error) == (0, 0)
    row = row_of(judged, "log_loss", "none")
    z = made.test_logits[row.step].astype(float)
    ts = rc.TemperatureScaling().fit_logits(made.val_logits[row.step].astype(float), made.y_val)
    at = np.arange(len(z)), made.y_test
    gaps = np.log(ts.predict_proba_logits(z)[at]) + np.log1p(np.exp(np.where(at[1] == 1, -z, z)))
    assert row.difference == pytest.approx(gaps.mean(), rel=1e-9)
    assert row.difference_error == pytest.approx(gaps.std(ddof=1) / math.sqrt(len(z)), rel=1e-6)
    assert row.difference == pytest.approx(row.log_loss - reference.log_loss, rel=1e-9)


def test_auto_is_only_for_the_two_main_metrics_and_only_if_wanted():
    judged = judge([unit()])
    by_auto = [row.metric for row in judged.rows if row.calibration == AUTO]
    assert by_auto == ["log_loss", "refinement"]
    assert not [row for row in judge([unit()], auto=False).rows if row.calibration == AUTO]


def with_values(config, **values):
    made = unit(config)
    return replace(made, value=made.value | values)


def test_each_metric_chooses_its_own_configuration_and_the_first_of_equals():
    units = [
        with_values(0, log_loss=0.0, accuracy=1.0),  # default parameters take no part
        with_values(1, log_loss=0.5, refinement=0.4, accuracy=0.8, auroc=math.nan),
        with_values(2, log_loss=0.4, refinement=0.4, accuracy=0.9, auroc=0.5),
        with_values(3, log_loss=0.4, refinement=0.5, accuracy=0.9, auroc=0.7),
    ]
    judged = judge(units, auto=False)
    chosen = {row.metric: row.config for row in judged.rows if row.mode == "tuned"}
    assert chosen["log_loss"] == 2
    assert chosen["refinement"] == 1
    assert chosen["accuracy"] == 2  # greater is better
    assert chosen["auroc"] == 3  # what is no number is worse than any
    assert {row.config for row in judged.rows if row.mode == "default"} == {0}
    assert [each.config for each in judged.trainings] == [0, 1, 2, 3]


def test_rows_of_classes_that_training_never_saw_are_left_out():
    made = unit(k=3)
    more = replace(made, n_classes=4, classes_known=np.array([0, 1, 3]))
    codes = np.array([0, 1, 3])
    y_val, y_test = codes[made.y_val], codes[made.y_test]
    y_test[:5] = 2
    found = row_of(judge([replace(more, y_val=y_val, y_test=y_test)], auto=False), "brier", "none")
    z = {step: each[5:] for step, each in made.test_logits.items()}
    fewer = replace(made, y_test=made.y_test[5:], test_logits=z)
    expected = row_of(judge([fewer], auto=False), "brier", "none")
    assert found.log_loss == expected.log_loss
    assert found.auroc == expected.auroc


def test_without_log_loss_there_is_nothing_to_compare_with():
    made = unit()
    best = {name: step for name, step in made.best.items() if name != "log_loss"}
    judged = judge([replace(made, best=best, value={name: made.value[name] for name in best})])
    assert (judged.rows, judged.trainings, len(judged.timings)) == ([], [], 1)


def test_a_training_tells_how_far_its_loss_turned_up_and_its_parameters():
    history = unit().history | {"log_loss": np.array([2.0, 1.0, np.nan, 1.5])}
    params = {"learning_rate": 0.3, "max_depth": 7, "verbose": True}
    (found,) = judge([unit(1, history=history, params=params)], auto=False).trainings
    assert (found.rise, found.learning_rate, found.depth) == (0.5, 0.3, 7)
    (by_lr,) = judge([unit(1, params={"lr": 0.05})], auto=False).trainings  # RealMLP
    assert by_lr.learning_rate == 0.05
    (plain,) = judge([unit(1, params={})], auto=False).trainings
    assert math.isnan(plain.learning_rate)
    assert plain.difference == pytest.approx(plain.refinement - plain.log_loss, abs=1e-12)


# ---- comparing ---------------------------------------------------------------------------------------------


def rows_with(losses, metric="refinement", name="set", errors=0.01, reference=1.0):
    """Return rows of a metric and of the reference with these test losses, one split each."""
    about = {"config": 0, "step": 1, "steps": 9, "n_rows": 1000, "n_val": 160, "n_classes": 2}
    made = []
    for split, loss in enumerate(losses):
        for which, value in ((metric, loss), ("log_loss", reference)):
            made.append(
                Row(
                    *(name, split, "xgboost", "default", which, "temperature"),
                    **about,
                    log_loss=value,
                    brier=value / 2,
                    error=value / 3,
                    auroc=1 - value / 4,
                    difference=value - reference,
                    difference_error=errors,
                )
            )
    return made


def compared(rows, score="log_loss"):
    return compare(rows, "xgboost", "default", ("refinement", "temperature"), score=score)


def test_the_test_over_splits_is_the_corrected_t_test():
    losses = [0.9, 0.95, 0.88, 1.0, 0.91]
    (found,) = compared(rows_with(losses)).sets
    gaps = np.array(losses) - 1
    error = gaps.std(ddof=1) * math.sqrt(1 / 5 + 0.25)  # 20 % are test rows, 80 % the others
    p = 2 * stats.t.sf(abs(gaps.mean()) / error, 4)
    assert found.error == pytest.approx(error)
    assert found.p == pytest.approx(p)
    assert found.verdict == (-1 if p < 0.05 else 0)
    assert found.relative == pytest.approx(100 * gaps.mean())
    assert p > stats.ttest_1samp(gaps, 0).pvalue  # which takes splits for independent


@pytest.mark.parametrize(("errors", "verdict"), [(0.03, -1), (0.1, 0)])
@pytest.mark.parametrize("losses", [[0.92], [0.9, 0.94]])
def test_of_few_splits_the_test_rows_tell(losses, errors, verdict):
    (found,) = compared(rows_with(losses, errors=errors)).sets
    assert found.p == pytest.approx(2 * stats.norm.sf(0.08 / errors))
    assert found.verdict == verdict


def test_two_splits_that_scatter_more_than_their_rows_tell_themselves():
    (found,) = compared(rows_with([0.9, 1.02], errors=0.001)).sets
    error = np.std([-0.1, 0.02], ddof=1) * math.sqrt(1 / 2 + 0.25)
    assert found.error == pytest.approx(error)
    assert (found.difference, found.verdict) == (pytest.approx(-0.04), 0)


def test_of_few_splits_nothing_tells_about_other_scores():
    (found,) = compared(rows_with([0.9, 0.94]), "brier").sets
    assert math.isnan(found.p)
    assert found.verdict is None
    assert compared(rows_with([0.9, 0.94]), "brier").summary.wins is None


@pytest.mark.parametrize(
    ("losses", "verdict"), [([1.0] * 5, 0), ([0.9] * 5, -1), ([1.1] * 5, 1), ([1.0], 0)]
)
def test_differences_without_scatter(losses, verdict):
    (found,) = compared(rows_with(losses, errors=0.0)).sets
    assert found.verdict == verdict


@pytest.mark.parametrize("splits", [2, 5])
def test_what_comes_from_rounding_is_no_difference(splits):
    (found,) = compared(rows_with([1 + 2**-52] * splits, errors=0.0)).sets
    assert (found.relative, found.difference, found.p, found.verdict) == (0, 0, 1, 0)


def test_only_splits_that_both_have_are_compared():
    rows = [
        row for row in rows_with([0.5, 0.9, 0.9, 0.9]) if (row.split, row.metric) != (0, "log_loss")
    ]
    (found,) = compared(rows).sets
    assert (found.splits, found.value) == (3, pytest.approx(0.9))
    assert compared([]).sets == []


def test_auroc_is_compared_as_what_is_missing_to_one():
    (found,) = compared(rows_with([0.5] * 3), "auroc").sets
    assert (found.value, found.reference) == (0.5 / 4, 1 / 4)
    assert found.relative == -50


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_relative_differences_are_clipped_and_have_the_right_sign(value, reference):
    found = relative(value, reference)
    assert -100 <= found <= 100
    assert found * (value - reference) >= 0
    if reference > 0 and abs(value - reference) < reference:
        assert found == pytest.approx(100 * (value / reference - 1), abs=1e-9)


differences = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


@examples(20)  # each resamples twice, and ranks twice
@given(differences)
def test_a_summary_agrees_with_numpy_and_scipy(values):
    found = summarize(values)
    assert found.sets == len(values) == found.lower + found.equal + found.higher
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert found.median == pytest.approx(np.median(values))
    assert all(low <= high for low, high in pairwise(found.quantiles))
    assert found.low - 1e-9 <= found.mean <= found.high + 1e-9
    opposite = summarize([-value for value in values])
    assert (found.lower, found.p) == (opposite.higher, pytest.approx(opposite.p, abs=1e-12))
    some = [value for value in values if value]
    assert found.p == (stats.wilcoxon(some).pvalue if some else 1)


@pytest.mark.parametrize("n", [8, 40])
def test_the_interval_is_about_as_wide_as_student_s_for_normal_values(n):
    values = np.random.default_rng(1).normal(0.3, 1, size=n)
    found = summarize(values)
    error = values.std(ddof=1) / math.sqrt(n)
    assert found.high - found.low == pytest.approx(2 * error * stats.t.ppf(0.975, n - 1), rel=0.08)


def test_intervals_of_few_skewed_sets_cover_their_mean_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    found = [summarize(rng.exponential(size=10) - 1) for _ in range(300)]
    covered = np.mean([each.low <= 0 <= each.high for each in found])
    assert covered > 0.87  # plain percentiles: about 0.85


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([-1.0] * 5, "too few sets"),
        ([-1.0, -2.0, -1.5, -1.2, -3.0, -1.1, -0.4], "lower"),
        ([1.0, 2.0, 1.5, 1.2, 3.0, 1.1, 0.4], "higher"),
        ([1.0, -1.0] * 10, "within noise"),
        ([0.0] * 20, "within noise"),
        ([-0.01 * i for i in range(1, 30)] + [100.0], "ranks lower"),
        ([0.0] * 40 + [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, 7.0, -8.0, 100.0, -9.0], "within noise"),
        # More sets are lower, but the ranks of the higher ones weigh more.
        (
            [-0.01 - i / 1e4 for i in range(60)] + [1 + i for i in range(45)] + [-1e3],
            "ranks higher",
        ),
        (
            [0.1, -0.11, 0.12, -0.13, 0.14, -0.15, 0.16, -0.17, 60.0, 70.0, 80.0, 90.0],
            "mean higher",
        ),
    ],
)
def test_verdicts(values, verdict):
    assert summarize(values).verdict == verdict


def test_nothing_finite_makes_an_empty_summary():
    found = summarize([math.nan])
    assert (found.sets, found.verdict, found.wins) == (0, "too few sets", None)


# ---- regimes -----------------------------------------------------------------------------------------------


def test_trainings_are_sorted_by_learning_rate_and_every_set_counts_once(tmp_path):
    made_run(tmp_path / "run", made_plan(3, splits=2, configs=5))
    results = read_results(tmp_path / "run", auto=False)
    regimes = of_trainings(results.trainings, "xgboost")
    by_rate = [each for each in regimes if each.by == "learning rate"]
    assert sum(each.trainings for each in by_rate) == 3 * 2 * 5
    low = [each for each in results.trainings if each.config and each.learning_rate < 0.01]
    (found,) = [each for each in by_rate if each.name == "under 0.01"]
    assert found.trainings == len(low)
    sets = {each.set for each in low}
    assert found.summary.sets == len(sets)
    expected = [
        relative(
            np.mean([each.refinement for each in low if each.set == name]),
            np.mean([each.log_loss for each in low if each.set == name]),
        )
        for name in sets
    ]
    assert found.summary.mean == pytest.approx(np.mean(expected))


def test_classes_of_sets_take_every_set_once(tmp_path):
    made_run(tmp_path / "run", made_plan(3, splits=1), sizes=[1000, 3000, 12_000])
    analysis = Analysis(read_results(tmp_path / "run", auto=False))
    names = [each.name for each in analysis.regimes if each.by == "validation rows"]
    assert names == ["under 400", "400 to 1599", "1600 to 6399"]
    for by in ("validation rows", "rise of validation loss", "test log loss"):
        assert sum(each.summary.sets for each in analysis.regimes if each.by == by) == 3


# ---- folders and files -------------------------------------------------------------------------------------


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    made_run(path, made_plan(3, ("xgboost", "mlp"), splits=2, configs=2))
    return path


@pytest.mark.slow
def test_tables_are_the_same_bytes_however_they_are_made(run, tmp_path):
    for name, processes in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        write_tables(Analysis(read_results(run, processes=processes)).tables(), tmp_path / name)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_what_is_run_later_changes_no_earlier_row(tmp_path):
    plan = made_plan(3, splits=2)
    last = plan.units()[-1]
    made_run(tmp_path / "part", plan, without=[last])
    made_run(tmp_path / "whole", plan)
    part, whole = (read_results(tmp_path / name, auto=False) for name in ("part", "whole"))
    assert part.rows == [row for row in whole.rows if (row.set, row.split) != last[:2]]
    assert (part.missing, whole.missing) == (1, 0)


def test_rows_are_in_the_order_of_the_plan(run):
    results = read_results(run, auto=False)
    groups = list(dict.fromkeys((row.method, row.set, row.split) for row in results.rows))
    assert groups[:3] == [
        ("xgboost", "set 00", 0),
        ("xgboost", "set 00", 1),
        ("xgboost", "set 01", 0),
    ]
    assert groups[6][0] == "mlp"
    per_group = len({(row.metric, row.calibration) for row in results.rows if row.set == "set 00"})
    assert per_group == 11 * (len(CALIBRATIONS) - 1)


def test_runs_are_merged_if_each_method_has_the_same_steps():
    plan = made_plan(3, methods=("xgboost", "mlp"))
    check_together([plan, replace(plan, max_steps=256)])  # default XGBoost has 100, the MLP 256
    tuned = replace(plan, methods=("xgboost",), configs=2)
    check_together([plan, tuned])
    with pytest.raises(ValueError, match=r"max_steps of xgboost \(tuned\), 1000 and 256"):
        check_together([tuned, replace(tuned, max_steps=256)])
    with pytest.raises(ValueError, match="max_steps of xgboost .default., 100 and 50"):
        check_together([plan, replace(plan, max_steps=50)])
    with pytest.raises(ValueError, match="differ in version, 2 and 1"):
        check_together([plan, replace(plan, version=1)])


def test_folds_are_a_way_to_run_a_method(tmp_path):
    made_run(tmp_path / "3", made_plan(3, configs=2, folds=3))
    made_run(tmp_path / "2", made_plan(3, folds=2))
    found = merge_results([read_results(tmp_path / name, auto=False) for name in "32"])
    assert (found.done, found.missing) == (6 * (3 * 4 + 2), 0)
    analysis = Analysis(found)
    ways = ["default", "tuned", "default, 2 folds", "default, 3 folds", "tuned, 3 folds"]
    assert analysis.pairs == [("xgboost", mode) for mode in ways]
    assert [analysis.extent("xgboost", mode) for mode in ways] == [
        (3, 2, n) for n in (1, 2, 1, 1, 2)
    ]
    runs = {each.mode: each.trainings for each in analysis.costs}
    assert runs == dict(zip(ways, (6, 12, 12, 18, 36), strict=True))
    assert {each.mode for each in analysis.against_holdout} == set(ways[2:])
    for each in analysis.against_holdout:
        one = each.metric, each.calibration
        for on in each.sets:
            means = []
            for mode in (each.mode, each.mode.split(",")[0]):
                rows = [row for row in found.rows if (row.set, row.mode) == (on.set, mode)]
                means.append(
                    np.mean([r.log_loss for r in rows if (r.metric, r.calibration) == one])
                )
            assert (on.value, on.reference) == pytest.approx(means)
    tables = analysis.tables()
    assert len(tables["folds"][1]) == len(analysis.against_holdout)
    assert "Cross-validation instead of a holdout" in render(page(analysis))


def test_a_run_is_reported_while_folds_are_missing(tmp_path):
    plan = made_plan(2, folds=3)
    folder = made_run(
        tmp_path / "run", plan, without=[key for key in plan.units() if key.fold == 2]
    )
    folder.record_failure(plan.units()[3], {"kind": "ValueError", "message": "no"})
    results = read_results(tmp_path / "run", auto=False)
    analysis = Analysis(results)
    assert analysis.pairs == [("xgboost", "default")]
    assert {each.mode for each in analysis.costs} == {"default", "default, 3 folds"}
    assert "folds" not in analysis.tables()
    assert "Cross-validation instead" not in render(page(analysis))


def test_runs_together_are_as_one_run(tmp_path):
    made_run(tmp_path / "both", made_plan(3, splits=2, configs=2))
    made_run(tmp_path / "default", made_plan(3, splits=2))
    made_run(tmp_path / "tuned", made_plan(3, splits=2, configs=2))
    both, default, tuned = (
        read_results(tmp_path / name, auto=False) for name in ("both", "default", "tuned")
    )
    found = merge_results([default, tuned])
    assert found.rows == both.rows
    assert found.trainings == both.trainings
    assert (found.done, found.missing, found.planned) == (18, 0, 18)


def test_runs_of_other_seeds_are_not_mixed(tmp_path):
    made_run(tmp_path / "a", made_plan(1, splits=1))
    made_run(tmp_path / "b", made_plan(1, splits=1, seed=1))
    found = [read_results(tmp_path / name, auto=False) for name in "ab"]
    with pytest.raises(ValueError, match="the runs differ in seed, 0 and 1"):
        merge_results(found)


def test_runs_whose_sets_share_only_their_names_are_not_mixed(tmp_path):
    plans = made_plan(1, splits=1), made_plan(1, splits=1)
    for name, plan in zip("ab", plans, strict=True):
        source = plan.sources[0] | {"digest": "1", "path": f"{name}.parquet"}
        made_run(tmp_path / name, replace(plan, sources=(source,)))
    found = [read_results(tmp_path / name, auto=False) for name in "ab"]
    assert merge_results(found).rows == found[0].rows  # the place does not matter
    other = replace(found[1].plans[0], sources=(found[1].plans[0].sources[0] | {"digest": "2"},))
    with pytest.raises(ValueError, match="different data sets named 'set 00'"):
        merge_results([found[0], replace(found[1], plans=[other])])


def test_small_sets_can_be_left_out(tmp_path):
    made_run(tmp_path / "run", made_plan(3, splits=1), sizes=[1000, 3000, 5000])
    results = read_results(tmp_path / "run", auto=False)
    found = results.at_least(3000)
    assert {row.set for row in found.rows} == {"set 01", "set 02"}
    assert (found.planned, found.done, found.missing) == (2, 2, 0)
    with pytest.raises(ValueError, match="no data set has 9999 rows: the largest has 5000"):
        results.at_least(9999)


def test_failures_are_told(tmp_path):
    plan = made_plan(2, splits=1)
    folder = made_run(tmp_path / "run", plan, without=[plan.units()[0]])
    folder.record_failure(plan.units()[0], {"kind": "MemoryError", "message": "too large"})
    results = read_results(tmp_path / "run", auto=False)
    assert results.failed == {plan.units()[0]: "MemoryError: too large"}
    assert results.missing == 0


def test_a_run_without_results_is_refused_with_the_cure(tmp_path):
    plan = made_plan(1, splits=1)
    made_run(tmp_path / "run", plan, without=plan.units())
    with pytest.raises(ValueError, match="has no finished training run: run refinecal experiment"):
        read_results(tmp_path / "run")
    with pytest.raises(ValueError, match="is not a folder"):
        read_results(tmp_path / "nowhere")


def test_a_damaged_file_is_named(tmp_path):
    plan = made_plan(1, splits=1)
    folder = made_run(tmp_path / "run", plan)
    path = folder.unit_path(plan.units()[0])
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(ValueError, match=r"set 00.* is damaged: resume the run, which computes it"):
        read_results(tmp_path / "run")
    assert folder.remove_damaged() == plan.units()  # as resuming does
    path.write_bytes(whole)
    other = made_run(tmp_path / "other", made_plan(1, splits=2))
    shutil.copy(path, other.unit_path(other.plan.units()[1]))
    with pytest.raises(ValueError, match=r"s1-c0\.npz holds the training run .*s0-c0: delete it"):
        read_results(tmp_path / "other")
    path.write_bytes(b"\0" * 1000 + whole[1000:])  # which resuming would not see
    with pytest.raises(ValueError, match=r"set 00.*damaged.*delete it and resume"):
        read_results(tmp_path / "run")


def test_the_interval_of_one_set_is_left_empty(tmp_path):
    made_run(tmp_path / "run", made_plan(1, splits=1))
    write_tables(Analysis(read_results(tmp_path / "run", auto=False)).tables(), tmp_path)
    for name in ("summary", "questions", "regimes"):
        with (tmp_path / f"{name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert rows
        assert {row["mean_low"] + row["mean_high"] for row in rows} == {""}
    for path in tmp_path.glob("*.csv"):
        assert not {"inf", "-inf", "nan"} & set(
            path.read_text("utf-8").replace("\n", ",").split(",")
        )


def test_cells_of_tables(tmp_path):
    write_table(tmp_path / "t.csv", ["a", "b"], [(0.1 + 0.2, "x,y"), (math.nan, None), (-0.0, 3)])
    assert (tmp_path / "t.csv").read_text() == 'a,b\n0.3,"x,y"\n,\n0,3\n'
