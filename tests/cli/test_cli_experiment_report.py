"""``refinecal experiment report``: a summary that fits the terminal, JSON for programs, files besides."""

import json
import os

import made_run as making
import pytest
import typer
from command_runs import run_command
from made_run import made_plan, made_run

from refinecal.cli.app import app as every_command
from refinecal.cli.experiment_report import report

pytestmark = pytest.mark.usefixtures("blank_figures")

app = typer.Typer()
app.command(epilog=report.__epilog__)(report)
app.callback()(lambda: None)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    made_run(path, made_plan(3, splits=2, configs=1), sizes=[1000, 2000, 11_000])
    return path


@pytest.fixture(autouse=True)
def _at_home(run, monkeypatch):
    monkeypatch.chdir(run.parents[1])  # paths below are shown short


def test_the_summary_fits_and_names_the_files(run):
    out, err = run_command(app, "report", run, "--no-auto")
    assert "12 training runs on 3 data sets" in out
    assert "XGBoost  default" in out
    assert "too few sets" in out
    assert "which do not include the default parameters" in " ".join(out.split())
    assert err == ""
    assert (run / "report" / "report.html").is_file()
    assert (run / "report" / "results.csv").read_text().startswith("set,split,method,mode,metric,")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 120])
def test_narrow_and_wide_terminals(run, columns, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, _ = run_command(app, "report", run, "--no-auto", "-o", tmp_path / "here", columns=columns)
    assert ("Left out for want of room" in out) == (columns == 60)


@pytest.mark.slow
def test_json_is_one_object_with_every_comparison(run, tmp_path):
    out, _ = run_command(app, "report", run, "--json", "--min-rows", 2000, "-o", tmp_path / "large")
    found = json.loads(out)
    assert (found["sets"], found["trainings"], found["failed"], found["missing"]) == (2, 8, 0, 0)
    first = found["refinement_against_log_loss"][0]
    assert (first["method"], first["mode"], first["sets"]) == ("xgboost", "default", 2)
    assert first["verdict"] == "too few sets"
    pairs = [(each["first"], each["second"]) for each in found["comparisons"]]
    assert (["refinement", "auto"], ["refinement", "temperature"]) in pairs
    assert found["report"].endswith("large/report.html")
    assert len(found["tables"]) == 8
    ends = found["best_step_is_last"][0]
    assert (ends["method"], ends["mode"], ends["trainings"]) == ("xgboost", "default", 4)
    assert (ends["log_loss"], ends["refinement"], ends["steps"]) == (0, 0, 12)


@pytest.mark.slow
def test_quiet_prints_nothing(run, tmp_path):
    assert run_command(app, "report", run, "-q", "--no-auto", "-o", tmp_path / "q") == ("", "")


def test_unfinished_runs_are_reported_as_far_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = made_plan(3, splits=2)
    failed = plan.units()[:4]
    folder = made_run(tmp_path / "run", plan, without=[*failed, plan.units()[4]])
    for key in failed:
        folder.record_failure(key, {"kind": "ValueError", "message": f"wrong {key.set}\nmore"})
    out, err = run_command(app, "report", tmp_path / "run", "--no-auto")
    assert "1 training run on 1 data set" in out
    assert "1 training run of the plan not yet run" in err
    assert "failed: xgboost on set 00, split 0, default parameters: ValueError: wrong set 00" in err
    assert "1 more failed or ended early (-v names them)" in err


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["nowhere"], "is not a folder"),
        (["RUN", "--min-rows", "99999"], "no data set has 99999 rows: the largest has 11000"),
        (["RUN", "-o", "RUN"], "is a folder of the run: name another"),
        (["RUN", "-o", "RUN/failures"], "is a folder of the run: name another"),
        (["RUN", "-o", "RUN/plan.json/report"], "plan.json is a file. Name another folder with -o"),
        (["RUN", "-o", "RUN/plan.json"], "is a file: name a folder"),
    ],
)
def test_bad_input_is_refused_with_the_cure(run, arguments, match):
    given = [str(each).replace("RUN", str(run)) for each in arguments]
    _, err = run_command(app, "report", *given, "--no-auto", code=1)
    assert match in err


@pytest.mark.slow
def test_several_runs_are_one_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_run(tmp_path / "a", made_plan(2, splits=1))
    made_run(tmp_path / "b", made_plan(2, ("mlp",), splits=1))
    both = [tmp_path / "a", tmp_path / "b"]
    _, err = run_command(app, "report", *both, "--no-auto", code=2)
    assert "the report of several runs needs a separate folder" in err
    assert not (tmp_path / "a" / "report").exists()
    out, _ = run_command(app, "report", *both, "--no-auto", "-o", tmp_path / "both")
    assert "4 training runs on 2 data sets" in out
    assert "MLP      default" in out
    assert (tmp_path / "both" / "report.html").is_file()


def test_runs_that_do_not_fit_are_refused_before_they_are_judged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        plan = made_plan(1, splits=1, seed=seed)
        made_run(tmp_path / f"run{seed}", plan, without=plan.units())
    _, err = run_command(app, "report", "run0", "run1", "-o", "both", code=1)
    assert "the runs differ in seed, 0 and 1" in err
    assert not (tmp_path / "both").exists()


def test_files_that_are_no_report_are_never_written_among(run, tmp_path):
    mine = tmp_path / "results.csv"
    mine.write_text("a,b\n")
    _, err = run_command(app, "report", run, "--no-auto", "-o", tmp_path, code=1)
    assert "holds files, but not a report of an experiment" in err
    assert "name a new folder with -o" in err
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]
    assert mine.read_text() == "a,b\n"


@pytest.mark.slow
def test_an_older_report_is_replaced(run, tmp_path):
    (tmp_path / ".hidden").touch()  # as systems leave them
    for _ in range(2):
        run_command(app, "report", run, "--no-auto", "-o", tmp_path)


def test_a_folder_that_cannot_be_written_is_refused_at_once(run, tmp_path, monkeypatch):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path and access(path, mode))
    _, err = run_command(app, "report", run, "-o", tmp_path / "a" / "b", code=1)
    assert f"{tmp_path.name} is not writable. Name another folder with -o" in err
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_short_trainings_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(making, "STEPS", 2)
    made_run(tmp_path / "run", made_plan(2, splits=1))
    _, err = run_command(app, "report", "run", "--no-auto")
    assert "note: perhaps too short: in many training runs the best step is the last." in err
    assert "XGBoost, default: by refinement in 2 of 2 runs, by log loss in " in err
    assert "Train longer: start a new run with a larger --max-steps." in err


@pytest.mark.slow
def test_names_of_methods_are_not_broken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_run(tmp_path / "run", made_plan(1, ("hist-gb", "logistic"), splits=1))
    out, _ = run_command(app, "report", "run", "--no-auto")
    assert "HistGB    default" in out
    assert "logistic  default" in out


def test_the_help_says_what_runs_share_and_where_the_report_goes():
    out, _ = run_command(app, "report", "--help", columns=200)
    assert "{RUN}..." in out
    assert "if they share --seed and --max-rows, and each method its steps" in out
    assert "required for several runs" in out


def test_the_help_names_every_exit_code():
    out, _ = run_command(every_command, "--help")
    said = " ".join(out.split())
    assert "3 partial result (training runs of an experiment failed, or too few draws" in said
    assert "130 interrupted." in said


@pytest.mark.slow
def test_figures_become_pictures_of_their_own(run, tmp_path):
    out, _ = run_command(app, "report", run, "--no-auto", "-o", tmp_path, "--figures", "svg")
    pictures = sorted((tmp_path / "figures").iterdir())
    names = [each.name for each in pictures]
    assert "xgboost-test-log-loss-relative-to-log-loss-ts.svg" in names
    assert "xgboost-1-minus-test-auroc-relative-to-log-loss-ts.svg" in names
    assert all(each.read_text("utf-8").startswith("<?xml") for each in pictures)
    assert "figures" in out
    _, err = run_command(app, "report", run, "--figures", "gif", code=2)
    assert "--figures" in err
    assert "'gif' is not one of png, svg and pdf" in err
