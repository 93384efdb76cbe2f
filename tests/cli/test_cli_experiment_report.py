"""``refinecal experiment report``: a summary that fits the terminal, JSON for programs, files besides."""

import json

import pytest
import typer
from command_runs import run_command
from made_run import made_plan, made_run

from refinecal.cli.experiment_report import report

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
    assert "12 trainings on 3 data sets" in out
    assert "XGBoost, default" in out
    assert "too few sets" in out
    assert err == ""
    assert (run / "report" / "report.html").is_file()
    assert (run / "report" / "results.csv").read_text().startswith("set,split,method,mode,metric,")


@pytest.mark.parametrize("columns", [60, 120])
def test_narrow_and_wide_terminals(run, columns, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, _ = run_command(app, "report", run, "--no-auto", "-o", tmp_path / "here", columns=columns)
    assert ("Left out for want of room" in out) == (columns == 60)


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
    assert "1 training on 1 data set" in out
    assert "1 training of the plan not yet run" in err
    assert "failed: xgboost on set 00, split 0, default parameters: ValueError: wrong set 00" in err
    assert "1 more failed (-v names them)" in err


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["nowhere"], "is no folder"),
        (["RUN", "--min-rows", "99999"], "no data set has 99999 rows: the largest has 11000"),
        (["RUN", "-o", "RUN"], "is a folder of the run: name another"),
        (["RUN", "-o", "RUN/plan.json"], "is a file: name a folder"),
    ],
)
def test_bad_input_is_refused_with_the_cure(run, arguments, match):
    given = [str(each).replace("RUN", str(run)) for each in arguments]
    _, err = run_command(app, "report", *given, "--no-auto", code=1)
    assert match in err


def test_several_runs_are_one_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_run(tmp_path / "a", made_plan(2, splits=1))
    made_run(tmp_path / "b", made_plan(2, ("mlp",), splits=1))
    out, _ = run_command(app, "report", tmp_path / "a", tmp_path / "b", "--no-auto")
    assert "4 trainings on 2 data sets" in out
    assert "MLP, default" in out
    assert (tmp_path / "a" / "report" / "report.html").is_file()


def test_figures_become_pictures_of_their_own(run, tmp_path):
    out, _ = run_command(app, "report", run, "--no-auto", "-o", tmp_path, "--figures", "svg")
    pictures = sorted((tmp_path / "figures").iterdir())
    names = [each.name for each in pictures]
    assert "xgboost-test-log-loss-relative-to-log-loss-ts.svg" in names
    assert all(each.read_text("utf-8").startswith("<?xml") for each in pictures)
    assert "figures" in out
    _, err = run_command(app, "report", run, "--figures", "gif", code=2)
    assert "--figures" in err
    assert "'gif' is not one of png, svg and pdf" in err
