"""The report of the vision experiment: says what the numbers say, looks right in a browser, never changes."""

import json

import pytest
import typer
from browser import WIDTHS, find_chromium, launch, open_page, problems
from command_runs import run_command
from made_run import made_plan as made_tabular_plan
from made_run import made_run as made_tabular_run
from made_vision import REFINED, RISK, made_plan, made_run

from refinecal.cli._vision_report import show, to_dict
from refinecal.cli._voice import Voice
from refinecal.cli.experiment_report import report
from refinecal.experiments.vision.analysis import Analysis, Procedure
from refinecal.experiments.vision.report import is_report, page, write_report
from refinecal.experiments.vision.results import read_results
from refinecal.experiments.vision.words import lead, measured, sentence
from refinecal.report import Figure, Page, Section, Table, Written, render

app = typer.Typer()
app.command(epilog=report.__epilog__)(report)
app.callback()(lambda: None)

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
    paper = [row for row in found.rows if plain(row[1]) == "the paper"]
    assert (len(here), len(paper)) == (7, 4)
    refinement = here[3]
    group = ("cifar10", "resnet18")
    expected = analysis.mean(group, Procedure("refinement"))
    assert plain(refinement[2].text) == measured(expected)
    assert refinement[2].value == expected.mean
    assert refinement[2].strong
    assert not here[0][2].strong
    assert [plain(cell.text) for cell in paper[3][2:]] == [
        *("0.154 ± 0.005", "0.074 ± 0.003", "95.1 % ± 0.2", "0.007 ± 0.002", "0.008 ± 0.001"),
    ]
    assert [cell.strong for cell in paper[3][2:]] == [True, False, True, False, True]


def test_what_the_paper_has_not_has_no_column_for_it(analysis):
    made = page(analysis)
    found = table(made, f"{OTHER}: test scores after")
    assert "from" not in found.columns
    titles = [each.title for each in blocks(made, Table)]
    assert f"{NAME}: here less the paper" in titles
    assert f"{OTHER}: here less the paper" not in titles
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
    counts = {row[0]: row[1:5] for row in table(made, "What was run").rows}
    assert counts[NAME] == [3, 900, 8, 12]
    assert counts[OTHER][0] == 2


def test_sentences(analysis, tmp_path):
    assert "in 2 of 2 comparisons, and raised it in none" in lead(analysis)
    said = sentence(analysis, ("cifar10", "resnet18"))
    assert said.startswith(f"{NAME}, over 3 runs: −0.0248 ± 0.0056 in test log loss")
    assert said.endswith(
        "lower in 3, equal in 0, higher in 0. Refinement chose better, beyond what seeds change."
    )
    made_run(tmp_path / "one", made_plan(seeds=1))
    single = Analysis(read_results(tmp_path / "one"))
    assert lead(single).endswith("by 9.0 %. One run cannot tell what another seed would change.")


def test_one_run_has_a_page_without_intervals(tmp_path):
    made_run(tmp_path / "one", made_plan(seeds=1))
    made = page(Analysis(read_results(tmp_path / "one")))
    found = table(made, f"{NAME}: test scores after")
    assert "±" not in found.rows[0][2].text
    assert "too few runs" in plain(table(made, "Refinement + TS against").rows[0][-1])


def test_both_chose_the_same(short):
    analysis = Analysis(read_results(short))
    assert analysis.headlines["fashion-mnist", "resnet18"].verdict == "equal"
    assert "left the test log loss after temperature scaling as it was" in lead(analysis)


@pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium here")
def test_the_page_looks_right_in_a_browser(run, told):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = launch(playwright)
        for width in WIDTHS:
            opened = open_page(browser, run / "report" / "report.html", width)
            assert problems(opened) == []
            bold = opened.locator("td strong").all_inner_texts()
            assert any(plain(text).startswith("0.154 ± 0.005") for text in bold)
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
    assert "5 trainings on 2 data sets" in out
    assert "failed: resnet18 on fashion-mnist, seed 2: MemoryError" in err
    line = next(line for line in out.splitlines() if NAME in line and " refinement " in line)
    assert "0.228 ± 0.004*" in line
    assert "−0.0248 ± 0.0056" in out
    assert f"Report:  {run}/report/report.html" in out
    assert (run / "report" / "means.csv").is_file()


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
    again = write_report(Analysis(read_results(short)), tmp_path / "again")
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
        for each in to_dict(analysis)["means"]
        if (each["dataset"], each["metric"], each["score"]) == ("cifar10", "refinement", "log_loss")
    ]
    assert one["published"] == {"mean": 0.154, "half": 0.005}
    assert one["best"]


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_what_is_shown_fits(analysis, columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    show(Voice(), analysis)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    assert ("Left out for want of room" in out) == (columns < 140)


def test_the_command_refuses_what_it_cannot_do(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_tabular_run(tmp_path / "tables", made_tabular_plan(1, splits=1))
    for arguments, said in (
        ([run, "--min-rows", 5], "--min-rows is for runs on tables"),
        ([run, "--no-auto"], "--no-auto is for runs on tables"),
        ([run, "tables"], "of the vision experiment and tables of the tabular one"),
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
        ("mine", "holds files, but no report of an experiment on images"),
        ("of-tables", "holds files, but no report of an experiment on images"),
        (short / "units", "is a folder of the run"),
        (short / "checkpoints", "is a folder of the run"),
        (short / "plan.json", "is a file: name a folder"),
    ):
        _, err = run_command(app, "report", short, "-o", out, code=1)
        assert said in " ".join(err.split())
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["means.csv"]
    assert not is_report(tmp_path / "of-tables")
    for _ in range(2):  # an older report is replaced
        run_command(app, "report", short, "-o", "new")
    assert is_report(tmp_path / "new")


def test_several_runs_need_a_folder_for_their_report(run, short):
    _, err = run_command(app, "report", run, short, code=2)
    assert "the report of several runs belongs to none of them: name a folder" in err


def test_of_a_damaged_result_the_cure_is_named(tmp_path):
    folder = made_run(tmp_path / "run", made_plan(seeds=2, epochs=5))
    path = folder.unit_path(folder.plan.units()[0])
    path.write_bytes(path.read_bytes()[:-30])
    _, err = run_command(app, "report", folder.path, code=1)
    assert "is damaged: resume the run, which trains this one again" in " ".join(err.split())
