"""``refinecal experiment tabular`` and ``status``: small tables, trained, stopped, resumed, refused."""

import itertools
import json
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_runs import HALTING, interrupt, kill, run_command, started, wait_for
from rich.console import Console as RichConsole

from refinecal.cli import _experiments
from refinecal.cli._console import ESCAPES, Console
from refinecal.cli._experiments import RunProgress, reason
from refinecal.cli.experiment import experiment_app
from refinecal.experiments.folder import RunFolder
from refinecal.experiments.plan import Plan, TableKey
from refinecal.experiments.report import write_table
from refinecal.experiments.results import read_results
from refinecal.experiments.running import State
from refinecal.experiments.tabular.sets import find_tables

run = partial(run_command, experiment_app)

SMALL = ("--data", "tables", "--min-rows", 100, "--splits", 2, "--max-steps", 5)
ALONE = ("--processes", 1)
RESULTS = "units/[!.]*.npz"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tables").mkdir()
    for name, k in (("two", 2), ("three", 3)):
        pq.write_table(made(k), f"tables/{name}.parquet")


def made(k, n=300):
    rng = np.random.default_rng(k)
    x = rng.normal(size=(n, 3))
    y = (x[:, :1] * np.arange(k) + rng.gumbel(size=(n, k))).argmax(axis=1)
    return pa.table({**{f"x{j}": x[:, j] for j in range(3)}, "target": [f"c{each}" for each in y]})


def begun(**more):
    """Return a run of which nothing is computed yet."""
    sources = tuple(source.to_dict() for source in find_tables("tables")[0])
    given = {"methods": ("xgboost",), "splits": 1, "min_rows": 100, "max_steps": 5} | more
    return RunFolder.create("run", Plan(sources, **given))


def tables(run):
    """Return the result tables of a run, as bytes."""
    results = read_results(run, auto=False)  # which is as deterministic, but slower
    found = []
    for rows in (results.rows, results.trainings):
        write_table("table.csv", type(rows[0])._fields, rows)
        found.append(Path("table.csv").read_bytes())
    return found


# ---- a run -------------------------------------------------------------------------------------------------


def test_a_run_and_its_status():
    out, err = run("tabular", *SMALL, "--methods", "xgboost,logistic", "--out", "run", *ALONE)
    assert "2 data sets × 2 splits × 2 methods × 1 configuration = 8 training runs" in out
    assert "run: 8 of 8 training runs finished" in out
    assert "refinecal experiment report run" in out
    assert err == (
        "note: with fewer than 6 data sets, differences are tested only within each of them "
        "note: progress: refinecal experiment status run"
    )
    folder = RunFolder("run")
    assert len(folder.finished()) == 8
    assert (folder.plan.splits, folder.plan.min_rows, folder.plan.max_steps) == (2, 100, 5)
    again, _ = run("status", "run")
    assert "run: 8 of 8 training runs finished" in again
    assert "--resume" not in again


@pytest.mark.slow
def test_the_result_for_programs():
    out, _ = run("tabular", *SMALL, "--sets", "two", "--out", "run", "--json", *ALONE)
    found = json.loads(out)
    assert (found["planned"], found["finished"], found["failed"], found["missing"]) == (2, 2, 0, 0)
    assert found["failures"] == []
    assert found["seconds_left"] == 0
    (method,) = found["methods"]
    assert method["method"] == "xgboost"
    assert method["mean_seconds"] > 0
    status, _ = run("status", "run", "--json")
    assert json.loads(status) == found


@pytest.mark.slow
def test_random_configurations_are_trained_beside_the_default():
    run("tabular", *SMALL, "--sets", "two", "--configs", 2, "--out", "run", *ALONE)
    finished = RunFolder("run").finished()
    assert sorted({key.config for key in finished}) == [0, 1, 2]
    assert len(finished) == 6


def test_quiet_is_quiet():
    given = ("--sets", "two", "--splits", 1, "--out", "run", "--quiet", *ALONE)
    assert run("tabular", *SMALL, *given) == ("", "")


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_processes():
    run("tabular", *SMALL, "--configs", 1, "--out", "one", *ALONE)
    run("tabular", *SMALL, "--configs", 1, "--out", "three", "--processes", 3)
    assert tables("one") == tables("three")


# ---- stopped and resumed -----------------------------------------------------------------------------------


def halted(path, least):
    """Tell whether so many trainings of a run are finished, and both of its workers are writing another."""
    finished, begun = (len(list(Path(path).glob(f"units/{each}.npz"))) for each in ("[!.]*", ".*"))
    return finished >= least and begun == 2


@pytest.mark.slow
def test_three_kills_then_the_same_tables_as_without():
    given = (*SMALL, "--configs", 2, "--methods", "xgboost,logistic", "--splits", 3)
    run("tabular", *given, "--out", "whole", "--processes", 2)
    command = ("tabular", *given, "--out", "killed", "--processes", 2)
    for least, goes_on in ((7, []), (14, ["--resume"]), (21, ["--resume"])):
        with started(HALTING, least, RESULTS, *command, *goes_on) as process:
            wait_for(partial(halted, "killed", least), process)
            kill(process)
    out, _ = run("status", "killed")
    assert "left" in out
    assert "Resume:  refinecal experiment tabular --out killed --resume" in out
    run("tabular", "--out", "killed", "--resume", "--processes", 2)
    assert len(RunFolder("killed").sessions()) == 4
    assert tables("killed") == tables("whole")


@pytest.mark.slow
def test_an_interrupt_says_how_to_go_on():
    command = ("tabular", *SMALL, "--configs", 2, "--out", "run", "--processes", 2)
    with started(HALTING, 2, RESULTS, *command) as process:
        wait_for(partial(halted, "run", 2), process)
        out, err = interrupt(process)
    assert process.returncode == 130
    assert err.splitlines()[-1:] == [
        "interrupted; finished training runs are kept; resume with: "
        "refinecal experiment tabular --out run --resume"
    ]
    assert "Traceback" not in out
    assert not list(Path("run").rglob(".*"))
    assert RunFolder("run").missing()
    assert RunFolder("run").failed() == {}


# ---- what goes wrong ---------------------------------------------------------------------------------------


def test_what_failed_is_told_and_tried_again_on_demand():
    begun()
    good = Path("tables/two.parquet").read_bytes()
    pq.write_table(made(2, n=299), "tables/two.parquet")
    out, err = run("tabular", "--out", "run", "--resume", *ALONE, code=3)
    assert "failed: xgboost on two, split 0, default parameters: ValueError" in err
    assert "run: 1 of 2 training runs finished, 1 failed" in out
    assert "1 training run failed (xgboost on two): ValueError" in " ".join(out.split())
    assert "--resume --retry-failed" in out
    out, err = run("tabular", "--out", "run", "--resume", *ALONE, code=3)
    assert "0 to do" in out
    Path("tables/two.parquet").write_bytes(good)
    out, _ = run("tabular", "--out", "run", "--resume", "--retry-failed", *ALONE)
    assert "run: 2 of 2 training runs finished" in out


def test_sets_that_cannot_be_used_are_left_out_with_a_reason():
    pq.write_table(made(2, n=50), "tables/tiny.parquet")
    _, err = run("tabular", *SMALL, "--splits", 1, "--out", "run", *ALONE)
    assert "tiny left out:" in err
    assert "50" in err
    assert RunFolder("run").plan.sets == ("three", "two")
    assert "take smaller sets with --min-rows 50" in err
    run("tabular", *SMALL, "--splits", 1, "--out", "run", "--resume", *ALONE)  # the same plan again
    assert sum("left_out" in line for line in RunFolder("run").journal()) == 1
    _, err = run("tabular", *SMALL, "--sets", "tiny", "--out", "other", *ALONE, code=1)
    assert "none of the data sets can be used" in err
    assert not Path("other").exists()


@pytest.mark.slow
def test_status_remembers_which_sets_were_left_out():
    pq.write_table(made(2, n=50), "tables/tiny.parquet")
    pq.write_table(made(2).rename_columns(["a", "b", "c", "Target"]), "tables/other.parquet")
    for name in "ab":
        Path(f"tables/{name}.csv").write_text("x,y\n1,2\n")
    run("tabular", *SMALL, "--splits", 1, "--out", "run", *ALONE)
    found = json.loads(run("status", "run", "--json")[0])["left_out"]
    assert list(found) == ["a", "b", "other", "tiny"]
    assert found["other"].endswith("has no column 'target'. Did you mean 'Target'?")
    out, _ = run("status", "run")
    assert "Left out: a: tables/a.csv has no column 'target'. It has 'x', 'y'." in out
    assert "… and 1 other data set left out; -v shows all" in out
    assert "Left out: tiny: data set 'tiny' has 50 complete rows" in run("status", "run", "-v")[0]
    run("tabular", *SMALL, "--splits", 1, "--min-rows", 50, "--out", "run", "--resume", *ALONE)
    assert "tiny" in RunFolder("run").plan.sets
    assert "tiny" not in RunFolder("run").left_out()


@pytest.mark.slow
def test_rows_that_are_dropped_are_told():
    for name in ("five", "four", "one", "six", "two"):
        table = made(2)
        x0, labels = (table[each].to_pylist() for each in ("x0", "target"))
        x0[:7], labels[5:9] = [None] * 7, [None] * 4
        table = table.set_column(0, "x0", [x0]).set_column(3, "target", [labels])
        pq.write_table(table, f"tables/{name}.parquet")
    _, err = run("tabular", *SMALL, "--splits", 1, "--out", "run", *ALONE)
    assert "note: five: 9 of 300 rows dropped (missing numbers, missing labels) note: four:" in err
    assert "rows of 2 other data sets are dropped too; -v names all" in err
    assert "note: two:" not in err
    assert "cannot be tested" not in err  # there are six
    _, err = run("tabular", "--out", "run", "--resume", "--splits", 2, *ALONE)
    assert "dropped" not in err
    _, err = run("tabular", *SMALL, "--splits", 1, "--out", "other", "-v", *ALONE)
    assert "note: two: 9 of 300 rows dropped" in err


@pytest.mark.slow
def test_a_readme_is_no_table():
    Path("tables/readme.txt").write_text("These are tables.\n")
    _, err = run("tabular", *SMALL, "--splits", 1, "--out", "run", *ALONE)
    assert "readme" not in err


def test_a_folder_that_is_there_is_refused():
    begun()
    _, err = run("tabular", *SMALL, "--splits", 1, "--out", "run", code=1)
    assert "holds a run already: continue it with --resume" in err
    _, err = run("tabular", *SMALL, "--out", "tables", code=1)
    assert "exists and is not a run: name a new folder" in err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--splits", 1), "splits: 2, now 1"),
        (("--configs", 3, "--max-steps", 6), "max_steps: 5, now 6"),
        (("--configs", 3, "--max-rows", 200), "max_rows: 100000, now 200"),
        (("--seed", 1), "seed: 0, now 1"),
        (("--methods", "mlp"), "methods: xgboost, now mlp"),
        (("--sets", "two"), "data sets no longer there: three"),
        (("--data", "tables", "--sets", "two"), "data sets no longer there: three"),
        (("--threads", 2), "n_threads: 1, now 2"),
    ],
)
def test_another_plan_is_explained(change, said):
    begun(splits=2)
    before = Path("run/plan.json").read_bytes()
    _, err = run("tabular", "--out", "run", "--resume", *change, code=1)
    assert Path("run/plan.json").read_bytes() == before
    assert "started with another plan" in err
    assert said in err
    assert "Resume without these options" in err


@pytest.mark.slow
def test_a_run_grows_to_what_a_larger_one_would_have_been():
    run("tabular", *SMALL, "--sets", "two", "--splits", 1, "--out", "run", *ALONE)
    old = {path.name: path.read_bytes() for path in Path("run/units").iterdir()}
    more = ("--methods", "logistic,xgboost", "--splits", 2, "--configs", 2)
    out, _ = run("tabular", "--data", "tables", *more, "--out", "run", "--resume", *ALONE)
    assert "run had 1 training run; more are added" in out
    assert "= 24 training runs, 23 to do" in out
    run("tabular", *SMALL, *more, "--out", "whole", *ALONE)
    assert Path("run/plan.json").read_bytes() == Path("whole/plan.json").read_bytes()
    assert tables("run") == tables("whole")
    assert (
        old.items()
        <= {path.name: path.read_bytes() for path in Path("run/units").iterdir()}.items()
    )
    out, _ = run("tabular", "--out", "run", "--resume")
    assert "0 to do" in out


def test_a_run_does_not_grow_by_what_cannot_be_trained():
    begun()
    before = Path("run/plan.json").read_bytes()
    _, err = run("tabular", "--out", "run", "--resume", "--methods", "xgboost,xgbost", code=1)
    assert "'xgboost'" in err
    pq.write_table(made(2, n=50), "tables/tiny.parquet")
    _, err = run("tabular", "--data", "tables", "--out", "run", "--resume", *ALONE)
    assert "tiny left out:" in err
    assert Path("run/plan.json").read_bytes() == before


def test_a_run_does_not_grow_when_tables_were_changed():
    begun()
    pq.write_table(made(2, n=299), "tables/two.parquet")
    given = ("--data", "tables", "--splits", 3, "--out", "run", "--resume")
    _, err = run("tabular", *given, code=1)
    assert "data sets with another content: two" in err


def test_methods_are_added_to_those_of_a_run():
    begun(methods=("xgboost", "logistic"))
    _, err = run("tabular", "--out", "run", "--resume", "--methods", "hist-gb", code=1)
    assert "or name all methods: --methods xgboost,logistic,hist-gb, or" in err


@pytest.mark.slow
def test_a_resumed_run_keeps_its_target():
    Path("named").mkdir()
    pq.write_table(made(2).rename_columns(["a", "b", "c", "label"]), "named/two.parquet")
    given = ("--min-rows", 100, "--splits", 1, "--max-steps", 5, *ALONE)
    run("tabular", "--data", "named", "--target", "label", *given, "--out", "run")
    pq.write_table(made(3).rename_columns(["a", "b", "c", "label"]), "named/three.parquet")
    run("tabular", "--data", "named", "--out", "run", "--resume", *ALONE)
    assert [each["target"] for each in RunFolder("run").plan.sources] == ["label", "label"]
    _, err = run("tabular", "--data", "named", "--target", "a", "--out", "run", "--resume", code=1)
    assert "another" in err


@pytest.mark.slow
def test_a_result_that_is_cut_off_is_trained_again():
    run("tabular", *SMALL, "--out", "run", *ALONE)
    expected = tables("run")
    key = RunFolder("run").finished()[1]
    path = RunFolder("run").unit_path(key)
    path.write_bytes(path.read_bytes()[:-100])
    found = json.loads(run("status", "run", "--json")[0])
    assert [found[name] for name in ("finished", "missing", "damaged")] == [3, 1, 1]
    out, _ = run("status", "run")
    assert "run: 3 of 4 training runs finished, 1 left (1 result damaged)" in out
    assert "Resume:  refinecal experiment tabular --out run --resume" in out
    out, err = run("tabular", "--out", "run", "--resume", *ALONE)
    assert f"1 damaged result will be computed again: {key}" in err
    assert "run: 4 of 4 training runs finished" in out
    assert tables("run") == expected


@pytest.mark.slow
def test_tables_that_moved_are_named_anew():
    begun()
    Path("tables").rename("moved")
    _, err = run("tabular", "--out", "run", "--resume", *ALONE, code=3)
    assert "failed: xgboost on" in err
    assert (
        "at the same place on every machine that trains"
        in RunFolder("run").failed().popitem()[1]["message"]
    )
    cure = "If it moved, continue with --resume --data NEWFOLDER --retry-failed"
    assert cure in err
    out, _ = run("status", "run")
    assert cure in " ".join(out.split())
    assert "tabular --out run --resume --data NEWFOLDER --retry-failed" in " ".join(out.split())
    run("tabular", "--data", "moved", "--out", "run", "--resume", "--retry-failed", *ALONE)
    assert RunFolder("run").failed() == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "name them with --data, --talent or --openml"),
        (("--resume",), "run has no run to resume: omit --resume to start one"),
        ((*SMALL, "--resume"), "run has no run to resume: omit --resume to start one"),
        (("--data", "nowhere"), "nowhere"),
        ((*SMALL, "--methods", "xgbost"), "'xgboost'"),
        ((*SMALL, "--sets", "tow"), "tow"),
    ],
)
def test_what_cannot_be_run(given, said):
    _, err = run("tabular", "--out", "run", *given, code=1)
    assert said in err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--data", "tables", "--openml", "31"), "name one of --data, --talent and --openml"),
        ((*SMALL, "--dask", "tcp://127.0.0.1:1", "--processes", 2), "omit --processes"),
        ((*SMALL, "--retry-failed"), "needs --resume"),
        ((*SMALL, "--methods", " , "), "name at least one"),
        ((*SMALL, "--splits", 0), "--splits"),
    ],
)
def test_wrong_usage(given, said):
    _, err = run("tabular", "--out", "run", *given, code=2)
    assert said in err
    assert not Path("run").exists()


def test_a_target_that_is_misspelt():
    _, err = run("tabular", *SMALL, "--target", "Taget", "--out", "run", code=1)
    assert "two.parquet has no column 'Taget'. Did you mean 'target'?" in err


def test_status_of_what_is_no_run():
    _, err = run("status", "tables", code=1)
    assert "tables has no plan.json, so it is not a run" in err


@pytest.mark.slow
def test_status_tells_the_time_left_by_method():
    run("tabular", *SMALL, "--methods", "xgboost,logistic", "--out", "run", *ALONE)
    folder = RunFolder("run")
    for key in folder.finished():
        if key.split == 1:
            folder.unit_path(key).unlink()
    found = json.loads(run("status", "run", "--json")[0])
    for each in found["methods"]:
        assert each["missing"] == 2
        assert each["seconds_left"] == pytest.approx(2 * each["mean_seconds"])
    assert found["seconds_left"] == pytest.approx(
        sum(each["seconds_left"] for each in found["methods"])
    )
    out, _ = run("status", "run")
    assert "4 of 8 training runs finished, 4 left: about" in out
    assert "with 1 process" in out


def test_a_run_that_is_running_is_shown_as_such():
    folder = begun()
    with folder.lock():
        out, _ = run("status", "run")
        assert "running now" in out
        assert "--resume" not in out
        out, err = run("tabular", "--out", "run", "--resume", *ALONE, code=1)
        assert "another process is running the experiment" in err
        assert out == ""


# ---- progress ----------------------------------------------------------------------------------------------


def state_of(finished, failed):
    keys = [TableKey("a", split, "mlp", 0) for split in range(8)]
    state = State(8, finished=finished, failed=failed, left=set(keys[finished + failed :]), width=2)
    state.rates.add(keys[0], 60.0)
    return state


def test_a_bar_on_a_terminal():
    console, written = Console(), StringIO()
    console.err = RichConsole(file=written, force_terminal=True, width=80)
    with RunProgress(console) as watch:
        watch(state_of(0, 0))
        watch(state_of(3, 1))
        watch._bar.refresh()
    said = ESCAPES.sub("", written.getvalue())
    assert "training runs" in said
    assert "4/8  1 failed  2 min left" in said


def test_a_failure_is_told_to_its_end():
    console, written = Console(), StringIO()
    console.err = RichConsole(file=written, force_terminal=False, width=80, soft_wrap=True)
    state = state_of(3, 1)
    state.last_failure = "mlp on a: ValueError: " + "word " * 60 + "the\ncure"
    RunProgress(console)(state)
    assert written.getvalue().endswith("word the cure\n")
    assert reason("word " * 1_000).endswith("word word …")


def test_a_line_a_minute_elsewhere(monkeypatch):
    clock = itertools.count(0, 25)  # looked at by every call, and after every line
    monkeypatch.setattr(_experiments, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    console, written = Console(), StringIO()
    console.err = RichConsole(file=written, force_terminal=False, width=80)
    with RunProgress(console) as watch:
        for finished in range(8):
            watch(state_of(finished, 0))
    lines = written.getvalue().splitlines()
    assert 2 <= len(lines) <= 4
    assert all(line.startswith("training runs ") and " left" in line for line in lines)


def test_help_shows_an_example():
    for name in ("tabular", "status"):
        out, _ = run(name, "--help")
        assert "Example: refinecal experiment" in out


def test_help_says_what_steps_are():
    out, _ = run("tabular", "--help")
    assert "Steps (rounds, epochs), if fewer" in out
