"""The report of the vision experiment: says what the numbers say, looks right in a browser, never changes."""

import json
from dataclasses import replace

import numpy as np
import pytest
import typer
from browser import WIDTHS, launch, open_page, problems
from command_runs import run_command
from made_run import made_plan as made_tabular_plan
from made_run import made_run as made_tabular_run
from made_vision import CALIBRATED, REFINED, RISK, made_plan, made_run, made_unit

from refinecal.cli._console import Console
from refinecal.cli.experiment_report import images_to_dict, report, show_images
from refinecal.experiments.comparing import compare_paired
from refinecal.experiments.folder import RunFolder
from refinecal.experiments.report import is_report, write_report
from refinecal.experiments.results import read_results
from refinecal.experiments.vision.image_analysis import (
    Analysis,
    Procedure,
    format_mean,
    lead,
    sentence,
)
from refinecal.experiments.vision.image_report import TITLE, cards, page
from refinecal.report import Figure, Page, Section, Table, Written, render

pytestmark = pytest.mark.usefixtures("blank_figures")

app = typer.Typer()
app.command(epilog=report.__epilog__)(report)
app.callback()(lambda: None)

HIDDEN = """() => [...document.querySelectorAll(".scroll")]
  .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.innerText)"""
NAME, OTHER = "ResNet-18 on CIFAR-10", "ResNet-18 on Fashion-MNIST"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("vision") / "run"
    plan = made_plan(("cifar10", "fashion-mnist"), seeds=3)
    key = plan.units()[-1]
    folder = made_run(path, plan, without=[key])
    folder.record_failure(key, {"kind": "MemoryError", "message": "<b>too large</b>"})
    return path


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    path = tmp_path_factory.mktemp("vision") / "short"
    made_run(path, made_plan(("fashion-mnist",), seeds=2, epochs=5))
    return path


@pytest.fixture(scope="module")
def analysis(run):
    return Analysis(read_results(run))


@pytest.fixture(scope="module")
def told(run):
    """Return what the command says of a run, whose report it has written then."""
    return run_command(app, "report", run, columns=150)


def blocks(made, kind):
    return [
        block for section in made.sections for block in section.blocks if isinstance(block, kind)
    ]


def table(made, title):
    (found,) = [each for each in blocks(made, Table) if each.title.startswith(title)]
    return found


def plain(text):
    marks = {"\N{NO-BREAK SPACE}": " ", "\N{NON-BREAKING HYPHEN}": "-", "\N{WORD JOINER}": ""}
    for mark, letter in marks.items():
        text = text.replace(mark, letter)
    return text


def test_the_table_of_appendix_e_stands_beside_the_published(analysis):
    found = table(page(analysis), f"{NAME}: test scores after")
    assert [plain(row[0]) for row in found.rows[:4]] == [
        *("log loss", "Brier score", "accuracy", "refinement"),
    ]
    here = [row for row in found.rows if row[1] == "here"]
    paper = [row for row in found.rows if row[1] == "paper"]
    assert (len(here), len(paper)) == (4, 4)
    refinement = here[3]
    group = ("cifar10", "resnet18")
    expected = analysis.mean(group, Procedure("refinement"))
    assert plain(refinement[2].text) == format_mean(expected)
    assert refinement[2].value == expected.mean
    assert refinement[2].strong
    assert not here[0][2].strong
    assert [plain(cell.text) for cell in paper[3][2:]] == [
        *("0.154 ± 0.002", "0.074 ± 0.001", "95.1% ± 0.1", "0.007 ± 0.001", "0.008 ± 0.000"),
    ]
    assert [cell.strong for cell in paper[3][2:]] == [True, False, True, False, True]


def test_the_best_is_the_same_on_the_page_for_programs_and_on_the_terminal(tmp_path, capsys):
    """Of the paper's four metrics, whatever another one chose."""
    plan = made_plan(("fashion-mnist",), seeds=2)
    folder = RunFolder.create(tmp_path / "run", plan)
    for key in plan.units():
        unit = made_unit(key, plan)
        unit.history["test.ece_ts"][:] = 0.02
        unit.history["test.ece_ts"][[RISK - 1, CALIBRATED - 1]] = 0.01, 0.001
        unit.save(folder.unit_path(key))
    analysis = Analysis(read_results(folder.path))
    made = page(analysis)
    shown = table(made, f"{OTHER}: test scores after")
    bold = [plain(row[0]) for row in shown.rows if row[4].strong]
    assert ([str(name) for name in shown.columns][4], bold) == ("ECE", ["log loss"])
    others = table(made, "ResNet-18, stopped by other metrics: test scores after")
    assert [(plain(row[1]), plain(row[5].text)) for row in others.rows] == [
        *(("AUROC", "0.020 ± 0.000"), ("ECE", "0.001 ± 0.000"), ("smooth ECE", "0.001 ± 0.000")),
    ]
    assert not any(cell.strong for row in others.rows for cell in row[2:])
    means = [each for each in images_to_dict(analysis)["means"] if each["score"] == "ece"]
    assert [each["metric"] for each in means if each["best"]] == ["log_loss"]
    assert len(means) == 7
    show_images(Console(), analysis)
    starred = [line for line in capsys.readouterr().out.splitlines() if "0.010 ± 0.000*" in line]
    assert ["log loss" in line for line in starred] == [True]


def test_what_the_paper_has_not_has_no_column_for_it(analysis):
    made = page(analysis)
    found = table(made, f"{OTHER}: test scores after")
    assert "from" not in found.columns
    titles = [each.title for each in blocks(made, Table)]
    assert f"{NAME}: here less the paper, ± s.e." in titles
    assert f"{OTHER}: here less the paper, ± s.e." not in titles
    text = " ".join(paragraph for section in made.sections for paragraph in section.text)
    assert f"{NAME} was not trained by the paper's protocol (epochs 60 instead of 300" in text


def test_every_figure_is_there_and_tells_where_minima_are(analysis):
    figures = {figure.title: figure for figure in blocks(page(analysis), Figure)}
    assert len(figures) == 2 + 2 * 2
    first = figures[f"{NAME}: the validation loss and its parts (seed 0)"]
    assert f"refinement 0.2000 at epoch {REFINED}" in first.alt
    assert f"at epoch {RISK}" in first.alt
    runs = figures[f"{NAME}: all runs"]
    assert f"log loss chose epoch {RISK}, refinement chose epoch {REFINED}" in runs.alt
    assert "refinement + TS median −" in figures[
        "Test log loss relative to log loss + TS"
    ].alt.replace("-", "−")


def test_failures_and_what_was_run_are_told(analysis):
    made = page(analysis)
    assert made.cards[0].note == "1 failed"
    assert table(made, "What failed").rows == [
        ["resnet18 on fashion-mnist, seed 2", "MemoryError: <b>too large</b>"]
    ]
    found = table(made, "What was run: ResNet-18")
    assert [plain(str(name)) for name in found.columns[:3]] == [
        "setting",
        "CIFAR-10",
        "Fashion-MNIST",
    ]
    about = {row[0]: row[1:] for row in found.rows}
    assert about["runs"] == ["3", "2", "10"]
    sizes = [about[f"{part} images"] for part in ("training", "validation", "test")]
    assert [each[0] for each in sizes] == ["900", "8", "12"]
    assert [each[2] for each in sizes] == ["45,000", "5,000", "10,000"]
    headline = table(made, "Refinement + TS against").rows[0][0]
    assert (plain(headline), "-" in headline) == (NAME, False)  # no break at a hyphen
    assert about["epochs"] == ["60", "60", "300"]
    assert about["precision"] == ["float32"] * 3
    assert about["weight decay"] == ["0.0001"] * 3
    assert "ended before the last epoch" not in about
    assert plain(about["parameters"][0]) == "11.17 million"


def method(made):
    return plain(" ".join(made.sections[-1].text))


def test_precision_and_the_share_of_validation_images_are_those_of_the_run(analysis, tmp_path):
    said = "validation images (10% of the training images, drawn by the seed)"
    assert said in method(page(analysis))
    assert "ended early" not in method(page(analysis))
    made_run(tmp_path / "run", made_plan(seeds=2, precision="bfloat16", validation=0.25))
    other = Analysis(read_results(tmp_path / "run"))
    made = page(other)
    assert "validation images (25% of the training images" in method(made)
    about = {row[0]: row[1:] for row in table(made, "What was run").rows}
    assert about["precision"] == ["bfloat16", "float32"]
    assert about["validation"] == ["0.25", "0.1"]
    said = " ".join(text for section in made.sections for text in section.text)
    assert "validation 0.25 instead of 0.1, precision bfloat16 instead of float32" in said


def test_what_ended_before_its_last_epoch_is_told(tmp_path):
    plan = made_plan(seeds=4)
    keys = plan.units()
    folder = made_run(tmp_path / "run", plan, without=keys[:2])
    made_unit(keys[0], plan, "no better for 5 epochs", ended=50).save(folder.unit_path(keys[0]))
    made_unit(keys[1], plan, "the training loss of epoch 60 is nan").save(folder.unit_path(keys[1]))
    made = page(Analysis(read_results(folder.path)))
    said = "last epoch (except for 1, ended by the patience of a monitor); epochs are"
    assert said in method(made)
    assert "Training runs that ended early with a loss of NaN are listed below" in method(made)
    about = {row[0]: row[1:] for row in table(made, "What was run").rows}
    assert about["ended before the last epoch"][0] == "1"
    assert made.cards[0].note == "1 ended early"
    assert table(made, "What failed").rows == [
        [str(keys[1]), "ended early: the training loss of epoch 60 is nan"]
    ]


def test_epochs_and_times_are_as_they_are(tmp_path):
    plan = made_plan(seeds=2)
    folder = RunFolder.create(tmp_path / "run", plan)
    for key in plan.units():
        unit = made_unit(key, plan, seconds={"training": 4.0, "evaluating": 0.5, "metrics": 0.1})
        unit.history["val.log_loss"][:] = 1.0
        unit.history["val.log_loss"][RISK - key.seed] = 0.5  # epochs 26 and 25
        best = {**unit.best, "log_loss": RISK + 1 - key.seed}
        logits = {epoch: np.zeros((8, 3), np.float32) for epoch in best.values()}
        on_test = {epoch: np.zeros((12, 3), np.float32) for epoch in best.values()}
        replace(unit, best=best, val_logits=logits, test_logits=on_test).save(folder.unit_path(key))
    made = page(Analysis(read_results(folder.path)))
    epochs = table(made, "Best epochs over runs")
    assert [each.name for each in epochs.columns[2:]] == ["earliest", "median", "latest", "of"]
    log_loss = next(row for row in epochs.rows if plain(row[1]) == "log loss")
    assert [cell.text for cell in log_loss[2:5]] == ["25", "25.5", "26"]
    assert log_loss[3].value == 25.5
    assert "log loss 25.5" in next(
        each.alt for each in blocks(made, Figure) if each.title == "Epochs that each metric chose"
    )
    (row,) = table(made, "Cost of the training runs here").rows
    assert plain(row[1].text) == "4.6 s"


def test_sentences(analysis, tmp_path):
    assert "in 2 of 2 comparisons and raised it in 0; 0 equal, 0 undecided." in lead(analysis)
    said = sentence(analysis, ("cifar10", "resnet18"))
    assert said.startswith(f"{NAME}, over 3 runs: −0.0248 in test log loss (−9")
    assert ", 95% interval −0.0303 to −0.0192)" in said
    assert said.endswith(
        "lower in 3, equal in 0, higher in 0. Refinement chose better, beyond what seeds change."
    )
    made_run(tmp_path / "one", made_plan(seeds=1))
    single = Analysis(read_results(tmp_path / "one"))
    assert lead(single).endswith("by −9.0%. One run cannot tell what another seed would change.")


def test_what_does_not_differ_is_equal_and_what_is_small_has_digits(analysis):
    found = {**analysis.headlines}
    first, second = found
    same, apart = compare_paired([1.0] * 3, [1.0] * 3), found[first]
    for headlines, said in (
        ({first: same, second: same}, "in 0 of 2 comparisons and raised it in 0; 2 equal, 0 und"),
        ({first: same, second: apart}, "in 1 of 2 comparisons and raised it in 0; 1 equal, 0 und"),
        (
            {first: same, second: compare_paired([1.0, 2.0], [2.0, 1.0])},
            "in 0 of 2 comparisons and raised it in 0; 1 equal, 1 undecided.",
        ),
        (
            {first: apart._replace(mean=-7e-5, half=1e-5)},
            "of log loss changed it by −0.03%. Refinement chose better",
        ),
        ({first: apart._replace(mean=1e-9, half=0.0)}, "changed it by 0.0000%. Refinement chose"),
    ):
        other = Analysis(analysis.results)
        other.__dict__["headlines"] = headlines
        assert said in lead(other)
        assert {card.label for card in cards(other)[1:]} == {"change of test log loss"}


def test_infinite_temperatures_are_told(tmp_path, capsys):
    plan = made_plan(seeds=3)
    folder = RunFolder.create(tmp_path / "run", plan)
    for key in plan.units():
        unit = made_unit(key, plan)
        if key.seed == 1:
            unit.history["val.beta"][[RISK - 1, CALIBRATED - 1]] = 0.0
        unit.save(folder.unit_path(key))
    analysis = Analysis(read_results(folder.path))
    said = (
        f"n 1 of 3 training runs of {NAME} the best temperature is infinite at the epoch that log loss, ECE "
        "and smooth ECE chose: after TS all classes are equally likely there"
    )
    assert any(said in plain(each) for each in page(analysis).points)
    show_images(Console(), analysis)
    assert f"note: i{said}" in " ".join(capsys.readouterr().err.split())


def test_if_all_are_equally_good_none_is_marked(short, capsys):
    analysis = Analysis(read_results(short))
    show_images(Console(), analysis)
    out = capsys.readouterr().out
    assert out.count("*") == 1  # where it is explained
    found = table(page(analysis), f"{OTHER}: test scores after")
    assert not any(cell.strong for row in found.rows for cell in row[1:])


def test_one_run_has_a_page_without_intervals(tmp_path):
    made_run(tmp_path / "one", made_plan(seeds=1))
    made = page(Analysis(read_results(tmp_path / "one")))
    found = table(made, f"{NAME}: test scores after")
    assert "±" not in found.rows[0][2].text
    assert "too few runs" in plain(table(made, "Refinement + TS against").rows[0][-1])


def test_both_chose_the_same(short):
    analysis = Analysis(read_results(short))
    assert analysis.headlines["fashion-mnist", "resnet18"].verdict == "equal"
    assert "after temperature scaling: stopping by refinement instead of log loss left it" in lead(
        analysis
    )


@pytest.mark.browser
def test_the_page_looks_right_in_a_browser(run, told):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright)
        for width in (*WIDTHS, 1000):
            opened = open_page(browser, run / "report" / "report.html", width)
            assert problems(opened) == []
            if width >= 1000:  # nothing is behind an edge
                assert opened.evaluate(HIDDEN) == []
            bold = opened.locator("td strong").all_inner_texts()
            assert any(plain(text).startswith("0.154 ± 0.002") for text in bold)
            assert "<b>too large</b>" in opened.inner_text("main")
            opened.close()
        browser.close()


# ---- cells that are written --------------------------------------------------------------------------------


def test_written_cells_are_bold_escaped_and_sorted_by_their_number():
    cells = [
        Written("<1> ± 2", 1.5, strong=True),
        Written("word"),
        Written(""),
        Written("x", float("nan")),
    ]
    made = Table("t", ["name", "value"], [("a", cell) for cell in cells])
    html = render(Page("", "", sections=[Section("", (), [made])]))
    assert 'data-value="1.5"><strong>&lt;1&gt; ± 2</strong></td>' in html
    assert ">word</td>" in html
    assert "data-missing" in html
    assert "nan" not in html.split("<main>")[1].split("</main>")[0]


# ---- the command -------------------------------------------------------------------------------------------


def test_the_command_shows_tables_and_names_files(run, told):
    out, err = told
    assert "5 training runs on 2 data sets" in out
    assert "failed: resnet18 on fashion-mnist, seed 2: MemoryError" in err
    lines = [line.strip() for line in out.splitlines()]
    line = next(line for line in lines[lines.index(NAME) :] if line.startswith("refinement "))
    assert "0.228 ± 0.001*" in line
    assert "−0.0248 ± 0.0013" in out
    assert f"Report:  {run}/report/report.html" in out
    assert (run / "report" / "means.csv").is_file()


@pytest.mark.slow
def test_the_command_for_programs(short, tmp_path):
    given = ("-o", tmp_path / "out", "--figures", "svg")
    found = json.loads(run_command(app, "report", short, "--json", *given)[0])
    assert (found["trainings"], found["failed"], found["missing"]) == (2, 0, 0)
    (first,) = found["refinement_against_log_loss"]
    assert (first["dataset"], first["model"], first["runs"]) == ("fashion-mnist", "resnet18", 2)
    assert first["verdict"] == "equal"
    assert len(found["means"]) == 7 * 5
    assert {each["published"] for each in found["means"]} == {None}
    assert len(found["tables"]) == 7
    analysis = Analysis(read_results(short))
    again = write_report(page(analysis), analysis.tables(), tmp_path / "again")
    assert again.read_bytes() == (tmp_path / "out" / "report.html").read_bytes()
    _check_pictures(tmp_path / "out" / "figures")


def _check_pictures(folder):
    """Look whether every figure has a file of its own, named by its title."""
    name = "resnet-18-on-fashion-mnist"
    assert {path.name for path in folder.iterdir()} == {
        "epochs-that-each-metric-chose.svg",
        f"{name}-all-runs.svg",
        f"{name}-the-validation-loss-and-its-parts-seed-0.svg",
        "test-log-loss-relative-to-log-loss-ts.svg",
    }
    assert all("</svg>" in path.read_text() for path in folder.iterdir())


def test_programs_get_the_published_numbers(analysis):
    (one,) = [
        each
        for each in images_to_dict(analysis)["means"]
        if (each["dataset"], each["metric"], each["score"]) == ("cifar10", "refinement", "log_loss")
    ]
    assert one["published"] == {"mean": 0.154, "half": 0.005}
    assert one["best"]


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_what_is_shown_fits(analysis, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    show_images(Console(), analysis)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    assert ("Hidden (terminal too narrow)" in out) == (columns < 140)
    lines = [line.strip() for line in out.splitlines()]
    assert (lines.count(NAME), lines.count(OTHER)) == (1, 1)  # each once, above its rows
    scores = lines[lines.index(NAME) + 2]
    assert (" ECE" in scores, "smooth ECE" in scores) == (columns >= 80, columns > 80)
    for said in ("− · 0 · + are the runs", "(log loss, Brier score, accuracy, refinement)"):
        assert said in " ".join(lines)


def test_the_command_refuses_what_it_cannot_do(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_tabular_run(tmp_path / "tables", made_tabular_plan(1, splits=1))
    for arguments, said in (
        ([run, "--min-rows", 5], "--min-rows is for runs on tables"),
        ([run, "--no-auto"], "--no-auto is for runs on tables"),
        ([run, "--processes", 2], "--processes is for runs on tables"),
        ([run, "tables"], "of the vision experiment and tables of the tabular experiment"),
        (["tables", run], "tables is a run of the tabular experiment"),
    ):
        _, err = run_command(app, "report", *arguments, code=1)
        assert said in " ".join(err.split())


def test_a_report_goes_to_no_place_that_holds_anything_else(short, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_tabular_run(tmp_path / "tables", made_tabular_plan(1, splits=1))
    run_command(app, "report", "tables", "--no-auto", "-o", "of-tables")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "means.csv").write_text("a,b\n")
    for out, said in (
        ("mine", "holds files, but not a report of an experiment on images"),
        ("of-tables", "holds files, but not a report of an experiment on images"),
        (short / "units", "is a folder of the run"),
        (short / "checkpoints", "is a folder of the run"),
        (short / "plan.json", "is a file: name a folder"),
    ):
        _, err = run_command(app, "report", short, "-o", out, code=1)
        assert said in " ".join(err.split())
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["means.csv"]
    assert not is_report(tmp_path / "of-tables", TITLE)
    for _ in range(2):  # an older report is replaced
        run_command(app, "report", short, "-o", "new")
    assert is_report(tmp_path / "new", TITLE)


def test_help_tells_of_both_kinds_of_runs():
    out, _ = run_command(app, "report", "--help", columns=200)
    out = " ".join(out.replace("│", " ").split())
    assert "on tables, if they share --seed and --max-rows, and each method its steps" in out
    assert "on images, if these are the same" in out
    assert "Tables: splits computed at the same time" in out


@pytest.mark.slow
def test_what_several_runs_hold_is_told(short, tmp_path):
    made_run(tmp_path / "more", made_plan(("fashion-mnist",), seeds=3, epochs=5))
    out, err = run_command(
        app, "report", short, tmp_path / "more", "-o", tmp_path / "both", columns=300
    )
    more = tmp_path / "more"
    said = f"2 of the training runs are in both {short} and {more}: taken from {short}; all equal"
    assert said in " ".join(err.split())
    assert "3 training runs on 1 data set" in out
    html = (tmp_path / "both" / "report.html").read_text("utf-8")
    assert "Of several runs: 2 of the training runs are in" in html
    given = ("--json", "-o", tmp_path / "both")
    found = json.loads(run_command(app, "report", short, tmp_path / "more", *given)[0])
    assert found["repeated"] == [
        {"kept": str(short), "left": str(tmp_path / "more"), "trainings": 2, "different": 0}
    ]


def test_runs_on_other_images_have_no_report_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        made_run(
            tmp_path / name, made_plan(seeds=1, epochs=5, content={"cifar10": f"images {name}"})
        )
    _, err = run_command(app, "report", "a", "b", "-o", "both", code=1)
    assert "a and b have different images of cifar10, images a and images b" in " ".join(
        err.split()
    )
    assert not (tmp_path / "both" / "report.html").exists()


def test_several_runs_need_a_folder_for_their_report(run, short):
    _, err = run_command(app, "report", run, short, code=2)
    assert "the report of several runs needs a separate folder: name one" in err


def test_of_a_damaged_result_the_cure_is_named(tmp_path):
    folder = made_run(tmp_path / "run", made_plan(seeds=2, epochs=5))
    path = folder.unit_path(folder.plan.units()[0])
    path.write_bytes(path.read_bytes()[:-30])
    _, err = run_command(app, "report", folder.path, code=1)
    assert "is damaged: resume the run, which computes it again" in " ".join(err.split())
