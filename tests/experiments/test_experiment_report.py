"""The report of a tabular experiment: says what the numbers say, looks right in a browser, never changes."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from browser import WIDTHS, launch, open_page, problems
from made_run import made_plan, made_run
from matplotlib.figure import Figure as DrawnOn

from refinecal.experiments.report import is_report, write_report
from refinecal.experiments.results import read_results
from refinecal.experiments.tabular.table_analysis import (
    Analysis,
    Ends,
    describe_cut_short,
    lead,
    sentence,
)
from refinecal.experiments.tabular.table_figures import LEAST_RISE, MOST_RISE, by_property
from refinecal.experiments.tabular.table_report import TITLE, page
from refinecal.report import Figure, Page, Table, write

pytestmark = pytest.mark.usefixtures("blank_figures")


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    plan = made_plan(7, ("xgboost", "mlp"), splits=3, configs=1)
    folder = made_run(
        path, plan, sizes=[1000, 2000, 3000, 400, 500, 600, 700], without=[plan.units()[5]]
    )
    folder.record_failure(plan.units()[5], {"kind": "MemoryError", "message": "<b>too large</b>"})
    return Analysis(read_results(path))


@pytest.fixture(scope="module")
def written(analysis, tmp_path_factory):
    return write_report(
        page(analysis), analysis.tables(), tmp_path_factory.mktemp("made") / "report"
    )


def blocks(made, kind):
    return [
        block for section in made.sections for block in section.blocks if isinstance(block, kind)
    ]


def table(made, title):
    (found,) = [each for each in blocks(made, Table) if each.title.startswith(title)]
    return found


def test_the_first_table_has_the_numbers_of_the_comparison(analysis):
    made = page(analysis)
    found = table(made, "Refinement + TS against log loss + TS")
    names = [getattr(column, "name", column) for column in found.columns]
    for row, each in zip(found.rows, analysis.headlines, strict=True):
        cells = dict(zip(names, row, strict=True))
        assert cells["mean"] == each.summary.mean
        assert cells["sets"] == len(each.sets)
        over = each.summary
        signs = f"{over.lower}/{over.equal}/{over.higher}"
        assert cells["−/0/+"].replace("\N{WORD JOINER}", "") == signs
        assert cells["verdict"].replace("\N{NO-BREAK SPACE}", " ") == each.summary.verdict
    assert [row[0] for row in found.rows] == [
        *("XGBoost, default", "XGBoost, tuned"),
        *("MLP, default", "MLP, tuned"),
    ]


def test_every_figure_of_the_paper_is_there_for_every_method(analysis):
    titles = [figure.title for figure in blocks(page(analysis), Figure)]
    for method in ("XGBoost", "MLP"):
        for what in ("test log loss", "test Brier score", "test error rate", "1 − test AUROC"):
            assert f"{method}: {what} relative to log loss + TS" in titles
        assert f"{method}: best steps by metric" in titles
    assert "Refinement against log loss, by the size of the data set" in titles
    assert "Every training run, by the learning rate" in titles


def test_failures_and_what_was_run_are_told(analysis):
    made = page(analysis)
    assert made.cards[1].note == "1 failed"
    failed = table(made, "What failed").rows
    assert failed == [
        ["mlp on set 02, split 0, default parameters", "MemoryError: <b>too large</b>"]
    ]
    extent = {row[0]: row[1:] for row in table(made, "What was run").rows}
    assert extent["XGBoost, tuned"] == [7, 3, 1, 21, 12]
    assert extent["MLP, default"] == [7, 3, 1, 20, 12]
    assert made.facts["max-steps"] == "each method's own"


def with_last_steps(analysis, metric, number):
    """Return an analysis in which the last step is the best of some of XGBoost's default trainings."""
    trainings = list(analysis.results.trainings)
    places = [i for i, each in enumerate(trainings) if (each.method, each.config) == ("xgboost", 0)]
    for i in places[:number]:
        trainings[i] = trainings[i]._replace(**{f"step_{metric}": trainings[i].steps})
    return Analysis(replace(analysis.results, trainings=trainings))


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["log_loss", "refinement"])
def test_trainings_that_end_at_their_best_are_counted_and_told_if_they_are_many(analysis, metric):
    made = page(with_last_steps(analysis, metric, 9))
    rows = {
        row[0]: row[1:] for row in table(made, "Training runs whose best step is the last").rows
    }
    assert rows["XGBoost, default"] == [21, 12, *((9, 0) if metric == "log_loss" else (0, 9))]
    assert rows["XGBoost, tuned"][0] == 21
    said = made.points[-1]
    assert said.startswith("Perhaps too short: in many training runs the best step is the last.")
    refined, lost = (0, 9) if metric == "log_loss" else (9, 0)
    counts = f"by refinement in {refined} of 21 runs, by log loss in {lost}"
    assert f"XGBoost, default: {counts}" in said
    assert said.endswith("Train longer: start a new run with a larger --max-steps.")
    for few in (0, 2):  # of 21
        points = page(with_last_steps(analysis, metric, few)).points
        assert not any("XGBoost, default: by refinement in" in point for point in points)


def test_trainings_as_long_as_their_method_allows_cannot_be_longer():
    ends = Ends("xgboost", "default", 20, 1000, 12, 9, could_be_longer=False)
    assert describe_cut_short([ends]).endswith(
        "runs, by log loss in 12. Longer runs might do better."
    )


def test_strengths_of_a_penalty_do_not_end_too_early(tmp_path):
    made_run(tmp_path / "run", made_plan(1, ("logistic",), splits=1))
    assert Analysis(read_results(tmp_path / "run", auto=False)).ends == []


def test_the_number_of_steps_is_told(analysis):
    plans = [replace(plan, max_steps=12) for plan in analysis.results.plans]
    made = page(Analysis(replace(analysis.results, plans=plans)))
    assert made.facts["max-steps"] == "at most 12"
    assert "Steps: at most 12" in table(made, "What was run").note


def test_tuned_is_said_to_be_without_the_default_where_it_is_first_shown(analysis, tmp_path):
    made = page(analysis)
    first = next(block for block in made.sections[0].blocks)
    drawn = blocks(made, Figure)[0]
    for text in (first.note, drawn.caption, table(made, "What was run").note):
        assert "random configurations, which do not include the default parameters" in text
    made_run(tmp_path / "run", made_plan(1, splits=1))
    plain = page(Analysis(read_results(tmp_path / "run", auto=False)))
    assert "Tuned" not in plain.sections[0].blocks[0].note + blocks(plain, Figure)[0].caption


@pytest.mark.slow
def test_the_page_is_the_same_bytes_again_and_escapes_what_it_shows(analysis, written, tmp_path):
    again = write_report(page(analysis), analysis.tables(), tmp_path / "report")
    assert again.read_bytes() == written.read_bytes()
    assert "<b>too large</b>" not in written.read_text("utf-8")


@pytest.mark.slow
def test_a_report_is_known_by_its_page(written, tmp_path):
    assert is_report(written.parent, TITLE)
    assert not is_report(tmp_path, TITLE)
    write(Page("Another page", "Of ours."), tmp_path / "report.html")
    assert not is_report(tmp_path, TITLE)


@pytest.mark.slow
def test_tables_hold_what_the_page_says(analysis, written):
    with (written.parent / "summary.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    (found,) = [
        row
        for row in rows
        if (row["method"], row["mode"], row["metric"], row["calibration"], row["score"])
        == ("xgboost", "default", "refinement", "temperature", "log_loss")
    ]
    over = analysis.compare("xgboost", "default").summary
    assert float(found["mean"]) == pytest.approx(over.mean, rel=1e-9)
    assert float(found["wilcoxon_p"]) == pytest.approx(over.p, rel=1e-9)
    assert found["verdict"] == over.verdict
    names = {path.name for path in written.parent.iterdir()}
    assert names >= {"results.csv", "trainings.csv", "sets.csv", "regimes.csv", "timings.csv"}


def with_verdicts(analysis, *verdicts):
    """Return an analysis whose comparisons, made up beyond the fourth, have such differences."""
    sizes = {
        "lower": [-1.0, -1.5, -2.0],
        "higher": [1.0, 1.5, 2.0],
        "within noise": [1.0, -1.0, 0.1],
        "few": [-1.0, -1.5, -2.0],
    }
    more = [
        replace(each, method=method)
        for each, method in zip(
            analysis.headlines, ["lightgbm"] * 2 + ["catboost"] * 2, strict=True
        )
    ]
    headlines = []
    for place, verdict in enumerate(verdicts):
        of = [*analysis.headlines, *more][place]
        values = (sizes[verdict] * 3)[: 3 if verdict == "few" else len(of.sets)]
        sets = [one._replace(relative=v) for one, v in zip(of.sets, values, strict=False)]
        headlines.append(replace(of, sets=sets))
    made = Analysis(analysis.results)
    made.__dict__["headlines"] = headlines
    return made


def test_the_first_sentence_names_a_few_comparisons_with_their_verdicts(analysis):
    said = lead(with_verdicts(analysis, "lower", "within noise"))
    assert "XGBoost, default by −1.43% (better); XGBoost, tuned by +0.17% (within noise)" in said
    said = lead(with_verdicts(analysis, "few", "higher"))
    assert "XGBoost, default by −1.50% (too few data sets); XGBoost, tuned by +1.43% (wo" in said
    said = lead(with_verdicts(analysis, "few"))
    assert said.endswith("Too few data sets to tell: at least 6 are needed.")
    said = lead(with_verdicts(analysis, "within noise"))
    assert said.endswith("Over all sets the difference is within noise.")
    said = lead(with_verdicts(analysis, "higher"))
    assert said.endswith("Over all sets refinement is worse, beyond noise.")
    assert "cannot be compared" in lead(with_verdicts(analysis))


def test_the_first_sentence_counts_many_comparisons_and_says_what_they_are(analysis):
    every = ("lower", "within noise", "few", "higher")
    said = lead(with_verdicts(analysis, *every, *every))
    assert "lowered the test log loss in 2 of 8 cases and raised it in 2; 4 undecided" in said
    assert (
        "undecided (2 with too few data sets: at least 6 are needed). Cases: XGBoost, def" in said
    )
    assert said.endswith("CatBoost, default; CatBoost, tuned.")
    said = lead(with_verdicts(analysis, *["within noise"] * 5))
    assert "lowered the test log loss in 0 of 5 cases and raised it in 0; 5 undecided. Cas" in said
    assert said.endswith("LightGBM, default.")
    said = lead(with_verdicts(analysis, *["few"] * 5))
    assert "5 undecided (5 with too few data sets: at least 6 are needed)." in said


def test_noise_is_what_hides_a_difference_over_sets_only(analysis, written):
    assert "beyond noise" not in written.read_text("utf-8").split("<h2", 1)[1]
    assert "won" in sentence(analysis.headlines[0])


def test_a_test_by_ranks_does_not_speak_of_most_sets(analysis):
    made = with_verdicts(analysis, "within noise")
    (of,) = made.headlines
    values = [0.0] * 30 + [-0.01 * i for i in range(1, 20)] + [100.0]
    made.__dict__["headlines"] = [
        replace(of, sets=[of.sets[0]._replace(relative=v) for v in values])
    ]
    assert lead(made).endswith("better over the sets that differ, but the mean is within noise.")
    assert "Most sets" not in lead(made)  # 30 of 50 are equal


@pytest.mark.parametrize("splits", [2, 3])
def test_few_splits_are_told_to_say_little(splits, tmp_path):
    made_run(tmp_path / "run", made_plan(1, splits=splits))
    made = page(Analysis(read_results(tmp_path / "run", auto=False)))
    said = "Sets with one or two splits are tested on their test rows"
    assert made.sections[0].text[-1].startswith(said) == (splits < 3)


def test_rises_are_in_percent_as_in_the_tables(analysis):
    rises = [
        min(100 * each.rise, MOST_RISE)
        for each in analysis.results.trainings
        if each.method == "xgboost" and 100 * each.rise > LEAST_RISE
    ]
    figure = DrawnOn(figsize=(7.2, 2.9), layout="constrained")
    by_property(analysis, "rise").draw(figure)
    (dots,) = figure.axes[0].collections
    drawn = dots.get_offsets()[:, 0]
    np.testing.assert_allclose(np.sort(drawn[drawn > LEAST_RISE]), np.sort(rises))
    assert figure.axes[0].get_xlabel() == "rise of the validation loss, %"


def test_a_sentence_says_what_chance_alone_would_do(analysis):
    said = sentence(analysis.headlines[0])
    assert said.startswith("XGBoost, default: ")
    assert "(expected by chance: 0.2 won, 0.2 lost)" in said  # 2.5 % of 7 sets


def test_a_single_training_makes_a_page_that_claims_nothing(tmp_path):
    made_run(tmp_path / "run", made_plan(1, ("logistic",), splits=1))
    made = page(Analysis(read_results(tmp_path / "run", auto=False)))
    assert "Too few data sets to tell: at least 6 are needed." in made.lead
    assert len(blocks(made, Figure)) == 7  # no learning rate


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_looks_right_in_a_browser(written, scheme):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright)
        for width in (*WIDTHS, 1280, 380):
            assert problems(open_page(browser, written, width, color_scheme=scheme)) == []
        browser.close()
