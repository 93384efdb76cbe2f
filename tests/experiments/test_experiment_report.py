"""The report of a tabular experiment: says what the numbers say, looks right in a browser, never changes."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from browser import WIDTHS, find_chromium, launch, open_page, problems
from made_run import made_plan, made_run
from matplotlib.figure import Figure as DrawnOn

from refinecal.experiments.tabular.analysis import Analysis
from refinecal.experiments.tabular.figures import LEAST_RISE, by_rise
from refinecal.experiments.tabular.report import page, write_report
from refinecal.experiments.tabular.results import read_results
from refinecal.experiments.tabular.words import lead, sentence
from refinecal.report import Figure, Table


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
    return write_report(analysis, tmp_path_factory.mktemp("made") / "report")


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
        assert cells["all told"].replace("\N{NO-BREAK SPACE}", " ") == each.summary.verdict
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
    assert "Every training, by the learning rate" in titles


def test_failures_and_what_was_run_are_told(analysis):
    made = page(analysis)
    assert made.cards[1].note == "1 failed"
    failed = table(made, "What failed").rows
    assert failed == [
        ["mlp on set 02, split 0, default parameters", "MemoryError: <b>too large</b>"]
    ]
    extent = {row[0]: row[1:] for row in table(made, "What was run").rows}
    assert extent["XGBoost, tuned"] == [7, 3, 1, 21]
    assert extent["MLP, default"] == [7, 3, 1, 20]


def test_the_page_is_the_same_bytes_again_and_escapes_what_it_shows(analysis, written, tmp_path):
    again = write_report(analysis, tmp_path / "report")
    assert again.read_bytes() == written.read_bytes()
    assert "<b>too large</b>" not in written.read_text("utf-8")


def test_tables_hold_what_the_page_says(analysis, written):
    with (written.parent / "summary.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    (found,) = [
        row
        for row in rows
        if (row["method"], row["mode"], row["metric"], row["calibration"], row["score"])
        == ("xgboost", "default", "refinement", "temperature", "log_loss")
    ]
    over = analysis.compared("xgboost", "default").summary
    assert float(found["mean"]) == pytest.approx(over.mean, rel=1e-9)
    assert float(found["wilcoxon_p"]) == pytest.approx(over.p, rel=1e-9)
    assert found["verdict"] == over.verdict
    names = {path.name for path in written.parent.iterdir()}
    assert names >= {"results.csv", "trainings.csv", "sets.csv", "regimes.csv", "timings.csv"}


def with_verdicts(analysis, *verdicts):
    """Return an analysis whose comparisons have these differences on every set."""
    sizes = {
        "lower": [-1.0, -1.5, -2.0],
        "higher": [1.0, 1.5, 2.0],
        "within noise": [1.0, -1.0, 0.1],
    }
    headlines = []
    for place, verdict in enumerate(verdicts):
        of = analysis.headlines[place]
        values = (sizes[verdict] * 3)[: len(of.sets)]
        sets = [one._replace(relative=v) for one, v in zip(of.sets, values, strict=True)]
        headlines.append(replace(of, sets=sets))
    made = Analysis(analysis.results)
    made.__dict__["headlines"] = headlines
    return made


def test_the_first_sentence_counts_only_what_is_beyond_noise(analysis):
    said = lead(with_verdicts(analysis, "lower", "within noise", "within noise", "higher"))
    assert said.endswith("in 1 of 4 comparisons, and raised it in 1; 2 are undecided.")
    said = lead(with_verdicts(analysis, "within noise", "within noise"))
    assert said.endswith("in none of 2 comparisons, and raised it in none; 2 are undecided.")
    said = lead(with_verdicts(analysis, "within noise"))
    assert said.endswith("Over all sets the difference is within noise.")
    said = lead(with_verdicts(analysis, "higher"))
    assert said.endswith("Over all sets refinement is worse, beyond noise.")
    assert "cannot be compared" in lead(with_verdicts(analysis))


def test_a_test_by_ranks_does_not_speak_of_most_sets(analysis):
    made = with_verdicts(analysis, "within noise")
    (of,) = made.headlines
    values = [0.0] * 30 + [-0.01 * i for i in range(1, 20)] + [100.0]
    made.__dict__["headlines"] = [
        replace(of, sets=[of.sets[0]._replace(relative=v) for v in values])
    ]
    assert lead(made).endswith("test finds refinement better, but the mean is within noise.")
    assert "Most sets" not in lead(made)  # 30 of 50 are equal


@pytest.mark.parametrize("splits", [2, 3])
def test_few_splits_are_told_to_say_little(splits, tmp_path):
    made_run(tmp_path / "run", made_plan(1, splits=splits))
    made = page(Analysis(read_results(tmp_path / "run", auto=False)))
    said = "Sets with one or two splits are tested by their test rows"
    assert made.sections[0].text[-1].startswith(said) == (splits < 3)


def test_rises_are_in_percent_as_in_the_tables(analysis):
    rises = [
        100 * each.rise
        for each in analysis.results.trainings
        if each.method == "xgboost" and 100 * each.rise > LEAST_RISE
    ]
    figure = DrawnOn(figsize=(7.2, 2.9), layout="constrained")
    by_rise(analysis).draw(figure)
    (dots,) = figure.axes[0].collections
    drawn = dots.get_offsets()[:, 0]
    np.testing.assert_allclose(np.sort(drawn[drawn > LEAST_RISE]), np.sort(rises))
    assert figure.axes[0].get_xlabel() == "rise of the validation loss, %"


def test_a_sentence_says_what_chance_alone_would_do(analysis):
    said = sentence(analysis.headlines[0])
    assert said.startswith("XGBoost, default: ")
    assert "chance alone: about 0.2 each way" in said  # 2.5 % of 7 sets


def test_a_single_training_makes_a_page_that_claims_nothing(tmp_path):
    made_run(tmp_path / "run", made_plan(1, ("logistic",), splits=1))
    made = page(Analysis(read_results(tmp_path / "run", auto=False)))
    assert "Too few sets to tell." in made.lead
    assert len(blocks(made, Figure)) == 7  # no learning rate


@pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_looks_right_in_a_browser(written, scheme):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright)
        for width in (*WIDTHS, 1280, 380):
            assert problems(open_page(browser, written, width, color_scheme=scheme)) == []
        browser.close()
