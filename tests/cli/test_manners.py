"""How commands behave: what they never overwrite, how they stop, how they fit a terminal, what they say."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_runs import READY, interrupt, invoke, started
from made_tables import mixed, write_csv
from matplotlib.figure import Figure
from rich.cells import cell_len
from sklearn.metrics import log_loss

from refinecal.cli._console import clean, use_option_names
from refinecal.cli.app import app
from refinecal.report.terminal import build_table

pytestmark = pytest.mark.usefixtures("blank_figures")

FAST = ["--max-steps", "4", "--patience", "4", "--threads", "1", "--folds", "1"]
LONG = "a very long name of a group, which no terminal has room for"


def run(*arguments, code=0, columns=80):
    """Run a command in this process; return what it printed on stdout, and on stderr, in one line each."""
    out, err = invoke(app, *arguments, code=code, columns=columns)
    return out, " ".join(err.replace("│", " ").split())


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A finished run beside its table."""
    folder = tmp_path_factory.mktemp("fitted")
    table = write_csv(mixed(200).drop_columns(["weight", "family"]), folder / "table.csv")
    run("fit", table, "-t", "kind", *FAST, "-o", folder / "run", "-q")
    return folder


@pytest.fixture
def scores(tmp_path, monkeypatch):
    """Predictions of two classes in one column, of which 3 call impossible what happened."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    p = 0.5 * y + 0.5 * rng.random(200)
    p[:3] = 1 - y[:3]
    groups = rng.choice(["a", LONG], size=200)
    labels = np.where(y == 1, "stay", "leave")
    data = pd.DataFrame({"label": labels, "score": p, "region": groups})
    data.to_csv("scores.csv", index=False)
    return data


def as_they_were(*paths):
    return [Path(path).read_bytes() for path in paths]


# ---- what is written ---------------------------------------------------------------------------------------


def test_predict_never_writes_over_what_it_reads(fitted, tmp_path):
    table, model = fitted / "table.csv", fitted / "run" / "test_predictions.parquet"
    link, hard = tmp_path / "link.csv", tmp_path / "hard.csv"
    link.symlink_to(table)
    os.link(table, hard)
    before = as_they_were(table, model)
    for out in (table, fitted / "run" / ".." / "table.csv", link, hard, model):
        _, err = run("predict", fitted / "run", table, "-o", out, code=1)
        assert "would overwrite an input" in err
    assert as_they_were(table, model) == before


def test_predict_replaces_an_older_file_whole_or_not_at_all(fitted, tmp_path):
    out, bad = tmp_path / "out.csv", tmp_path / "bad.csv"
    out.write_text("older")
    table = pd.read_csv(fitted / "table.csv", dtype=str)
    table.loc[150, "z"] = "a lot"
    table.to_csv(bad, index=False)
    run("predict", fitted / "run", bad, "-o", out, "--chunk", 50, code=1)
    assert out.read_text() == "older"
    run("predict", fitted / "run", fitted / "table.csv", "-o", out)
    assert len(pd.read_csv(out)) == 200


def test_a_run_never_takes_the_place_of_the_folder_of_its_table(tmp_path):
    data = mixed(100).drop_columns(["weight", "family"])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "schema.json").write_text("{}")
    table = write_csv(data, tmp_path / "run" / "table.csv")
    _, err = run("fit", table, "-t", "kind", *FAST, "-o", table.parent, "--overwrite", code=1)
    assert "contains the input" in err
    assert table.exists()


def test_a_report_is_a_page_and_no_input(scores):
    before = as_they_were("scores.csv")
    for command in (["evaluate", "scores.csv"], ["compare", "scores.csv", "scores.csv"]):
        _, err = run(*command, "-t", "label", "--report", "scores.csv", code=2)
        assert "does not end in .html" in err
        assert as_they_were("scores.csv") == before
    os.symlink("scores.csv", "page.html")
    _, err = run("evaluate", "scores.csv", "-t", "label", "--report", "page.html", code=1)
    assert "would overwrite an input" in err
    assert as_they_were("scores.csv") == before


def test_a_folder_that_is_not_there_is_named(fitted, scores):
    _, err = run("evaluate", "scores.csv", "-t", "label", "--report", "no/such/page.html", code=1)
    assert "the folder no/such does not exist" in err
    out = Path("none/out.csv")
    _, err = run("predict", fitted / "run", fitted / "table.csv", "-o", out, code=1)
    assert "the folder none does not exist" in err
    assert ".part" not in err


# ---- ctrl-C ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "delay", [0, 1, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.1, 0.3, 0.5, 1.8))]
)
def test_ctrl_c_at_any_moment_is_one_word(tmp_path, delay):
    write_csv(mixed(2000).drop_columns(["weight", "family"]), tmp_path / "table.csv")
    endless = ["--max-steps", "100000", "--patience", "100000", "--folds", "1"]
    with started(READY, "fit", "table.csv", "-t", "kind", *endless, cwd=tmp_path) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay)  # wherever it is then
        _, err = interrupt(process)
    assert (process.returncode, err) == (130, "interrupted\n")
    assert os.listdir(tmp_path) == ["table.csv"]


SWALLOWED = """
import os, signal, sys, time
from refinecal.cli import _interrupts
from refinecal.cli._console import command
_interrupts.install()
@command("x")
def careless():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    except BaseException:
        {what}
    time.sleep(600)
    print("slept")
import typer
try:
    careless()
except typer.Exit as done:
    sys.exit(done.exit_code)
"""


def test_sigterm_ends_a_command_as_ctrl_c_does():
    code = SWALLOWED.format(what="raise").replace("SIGINT", "SIGTERM")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (143, "terminated\n")


def test_objects_cut_off_in_the_making_go_silently():
    half = "class Half:\n    def __del__(self): self.never_set\n"
    code = half + SWALLOWED.format(what="Half(); raise")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("what", ["pass", "raise ImportError('no such thing') from None"])
def test_an_interrupt_that_a_library_swallows_comes_again(what):
    found = subprocess.run(
        [sys.executable, "-c", SWALLOWED.format(what=what)], capture_output=True, text=True
    )
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "interrupted\n")


def test_clearing_away_is_not_interrupted(tmp_path):
    code = SWALLOWED.format(
        what=f"time.sleep(0.5); open({str(tmp_path / 'done')!r}, 'w').close(); raise"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (130, "interrupted\n")
    assert (tmp_path / "done").exists()


# ---- tables ------------------------------------------------------------------------------------------------


def numbers(text):
    return set(re.findall(r"\d+\.\d+", text))


@pytest.mark.parametrize("columns", [100, 80, 60, 40])
def test_no_digit_is_cut_and_no_name_lost(scores, columns):
    about = ["scores.csv", "-t", "label", "--by", "region", "--clip", "1e-6"]
    whole, _ = run("evaluate", *about, columns=200)
    out, _ = run("evaluate", *about, columns=columns)
    assert max(map(cell_len, out.splitlines())) <= columns
    assert numbers(out) <= numbers(whole)
    assert "…" not in out
    words = " ".join(line[:30] for line in out.splitlines())
    assert all(part in words for part in ("leave", "stay", "group", "terminal"))
    assert ("Hidden (terminal too narrow): " in out) == (columns < 100)  # of the subgroups


def test_columns_are_left_out_in_the_order_given():
    columns, rows = ["name", "one", "two"], [["x", "1.0000", "2.0000"]]
    needed = 4 + 6 + 6 + 2 * 3
    for spare, room, kept in (
        ([2, 1], needed, [0, 1, 2]),
        ([2, 1], needed - 1, [0, 1]),
        ([1, 2], needed - 1, [0, 2]),
        ([2, 1], None, [0, 1, 2]),
    ):
        assert build_table(columns, rows, [0], spare, room)[1] == kept


def test_compare_fits_narrow_terminals(scores):
    scores.assign(score=0.5).to_csv("flat.csv", index=False)
    both = ["compare", "scores.csv", "flat.csv", "-t", "label", "--clip", "1e-6"]
    whole, _ = run(*both, columns=200)
    assert whole.count("rows") == 1  # the same for all, so only in the title
    assert "lowest log loss first" in whole.splitlines()[0]
    assert "'scores' and 'flat' are tied: their log losses differ by " in whole
    out, _ = run(*both, columns=50)
    assert numbers(out) <= numbers(whole)
    assert "Hidden (terminal too narrow): " in out


# ---- words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("target is 'a', but x has no such column.", "--target is 'a'"),
        ("isotonic is for 2 classes: use calibrator='temperature'", "use --calibrator temperature"),
        ("If they are logits, pass logits=; if not", "pass --logits; if not"),
        ("probs[65, 0] is 1.05", "row 66, probability 1 is 1.05"),
        ("predictions['a']: wrong", "the predictions of 'a': wrong"),
        ("weight 'w', row 3 is missing", "--weight 'w', row 3"),
        ("columns names a column twice: 'a'", "--columns names"),
        ("Then pass delimiter=';'.", "Then pass --delimiter ';'."),
        ("too few rows. Pass X_val= and y_val=.", "too few rows. Give more rows"),
    ],
)
def test_errors_speak_of_options(said, expected):
    assert expected in use_option_names(said)


def test_notes_on_columns_are_no_option():
    note = "columns 'a' and 'b' of new.csv are not used"
    assert use_option_names(note) == note


def test_errors_that_reach_the_user_name_options(scores):
    _, err = run("evaluate", "scores.csv", "-t", "label", "--by", "regoin", code=1)
    assert "--by is 'regoin'" in err
    scores.assign(score=3.0).to_csv("odds.csv", index=False)
    _, err = run("evaluate", "odds.csv", "-t", "label", code=1)
    assert "--logits" in err
    assert "logits=" not in err
    assert "predict_proba" not in err


def test_control_characters_never_reach_the_terminal(scores):
    assert clean("a\x1b[31mb\x1b]0;title\x07c\x9bd\u202ee") == "abcde"
    evil = "re\x1b[2Jgion"
    scores.assign(region="x\x1b[31m\x07y").rename(columns={"region": evil}).to_csv(
        "evil.csv", index=False
    )
    out, err = run("evaluate", "evil.csv", "-t", "label", "--by", evil)
    assert not set("\x1b\x07\x9b") & set(out + err)
    assert "region" in out
    _, err = run("evaluate", "evil.csv", "-t", evil + "x", code=1)
    assert "\x1b" not in err


def test_one_column_says_of_which_class_it_is(scores):
    _, err = run("evaluate", "scores.csv", "-t", "label", "--clip", "1e-6")
    assert "column 'score' is read as the probability of 'stay'" in err
    scores.assign(score=1 - scores["score"]).rename(columns={"score": "p_leave"}).to_csv(
        "leave.csv", index=False
    )
    _, err = run("evaluate", "leave.csv", "-t", "label", "--clip", "1e-6")
    assert "column 'p_leave' is read as the probability of 'leave'" in err


def test_probabilities_of_0_are_counted_and_can_be_clipped(scores):
    out, err = run("evaluate", "scores.csv", "-t", "label", "--report", "page.html")
    assert "the label has probability 0 in 3 rows of scores.csv" in err
    assert "np.clip" not in err
    assert "swapped" not in out
    assert "3 rows of scores.csv" in Path("page.html").read_text()
    found = json.loads(run("evaluate", "scores.csv", "-t", "label", "--clip", "1e-3", "--json")[0])
    p = np.clip(np.stack([1 - scores["score"], scores["score"]], axis=1), 1e-3, 1)
    expected = log_loss(scores["label"], p / p.sum(axis=1, keepdims=True))
    assert found["log"]["risk"] == pytest.approx(expected)
    assert found["clip"] == 1e-3


def test_compare_clips_and_names_classes(scores):
    scores.assign(score=0.5).to_csv("flat.csv", index=False)
    out, err = run(
        "compare", "scores.csv", "flat.csv", "-t", "label", "--json", "--report", "page.html"
    )
    assert "3 rows of scores.csv" in err
    for each in json.loads(out)["evaluations"].values():
        assert each["classes"] == ["leave", "stay"]
    out, err = run("compare", "scores.csv", "flat.csv", "-t", "label", "--clip", 1e-6, "--json")
    assert json.loads(out)["ranking"] == ["scores", "flat"]
    assert "probabilities below 1e-06" in err


def test_swapped_classes_and_useless_models_are_mentioned(scores):
    scores.assign(score=1 - scores["score"]).to_csv("swapped.csv", index=False)
    out, _ = run("evaluate", "swapped.csv", "-t", "label", "--clip", "1e-6", "--report", "s.html")
    text = " ".join(out.split())
    assert "Warning: the classes may be swapped" in text
    assert "worse than the class frequencies" in text
    assert "may be swapped" in Path("s.html").read_text()


def test_predicted_classes_are_not_called_probabilities(scores):
    scores.assign(score=(scores["score"] > 0.5).astype(int)).to_csv("hard.csv", index=False)
    _, err = run("evaluate", "hard.csv", "-t", "label")
    assert (
        "all probabilities are 0 or 1, like predicted classes. Use the output of predict_proba"
        in err
    )
    assert "--clip" not in err
    _, err = run("compare", "hard.csv", "scores.csv", "-t", "label")
    assert "all probabilities are 0 or 1" in err
    assert "--clip 1e-6" in err  # of the other file


def test_random_predictions_are_neither_swapped_nor_overconfident(scores):
    rng = np.random.default_rng(3)
    scores.assign(score=rng.random(200)).to_csv("random.csv", index=False)
    out, _ = run("evaluate", "random.csv", "-t", "label", "--report", "r.html")
    text = " ".join(out.split())
    assert "no better than chance (AUROC 0.4" in text
    assert "worse than the class frequencies" in text
    assert "even after the best temperature" in text
    for said in (text, Path("r.html").read_text()):
        assert "swapped" not in said
        assert "overconfident." not in said
        assert "temperature scaling corrects" not in said
        assert "removed by temperature scaling" not in said


def test_predictions_that_rank_well_are_better_than_chance_at_any_level(scores):
    rng = np.random.default_rng(0)
    stay = (scores["label"] == "stay") & (rng.random(200) < 0.3)
    odds = 6 + 2 * stay + rng.normal(size=200)  # all sure of what happens in one row out of seven
    labels = np.where(stay, "stay", "leave")
    scores.assign(label=labels, score=1 / (1 + np.exp(-odds))).to_csv("level.csv", index=False)
    text = " ".join(run("evaluate", "level.csv", "-t", "label")[0].split())
    assert "No temperature helps" in text
    assert "But the predictions rank the rows (AUROC 0.9" in text


def test_a_group_without_errors_has_no_beta_of_millions(scores):
    wrong = (scores["score"] > 0.5) != (scores["label"] == "stay")
    scores.assign(region=np.where(wrong, "wrong", "right")).to_csv("groups.csv", index=False)
    options = ("groups.csv", "-t", "label", "--by", "region", "--clip", "1e-6")
    out, _ = run("evaluate", *options, "--report", "g.html", columns=120)
    assert "> 1e6" in out
    assert "e+06" not in out
    assert "&gt; 1e6" in Path("g.html").read_text()
    found = json.loads(run("evaluate", *options, "--json")[0])
    assert found["groups"]["right"]["beta"] > 1e6


def test_few_rows_are_no_proof_of_calibration_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = pd.DataFrame(
        [("yes", 0.75)] * 6 + [("no", 0.75)] * 3 + [("no", 0.25)] * 5 + [("yes", 0.25)] * 2,
        columns=["label", "p_yes"],
    )
    rows.to_csv("few.csv", index=False)
    text = " ".join(run("evaluate", "few.csv", "-t", "label")[0].split())
    assert "16 rows are too few to tell whether the probabilities are calibrated" in text
    assert re.search(r"error is 0.\d\d \(95% interval 0.00 to 0.\d\d\)", text)
    assert "on few rows, the calibration error is slightly overestimated" in text
    pd.concat([rows] * 100).to_csv("many.csv", index=False)
    text = " ".join(run("evaluate", "many.csv", "-t", "label")[0].split())
    assert "the model is overconfident, which temperature scaling corrects." in text
    assert "ECE = overconf. + underconf." in text
    assert "Caution" not in text


def test_calibrated_probabilities_are_called_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [("yes", 0.75)] * 30 + [("no", 0.75)] * 10 + [("yes", 0.25)] * 10 + [("no", 0.25)] * 30
    pd.DataFrame(rows, columns=["label", "p_yes"]).to_csv("few.csv", index=False)
    assert "What to do: evaluate on more rows" in run("evaluate", "few.csv", "-t", "label")[0]
    pd.DataFrame(3 * rows, columns=["label", "p_yes"]).to_csv("right.csv", index=False)
    out, _ = run("evaluate", "right.csv", "-t", "label")
    assert "The probabilities are calibrated" in out
    assert "swapped" not in out


# ---- small things ------------------------------------------------------------------------------------------


def test_kept_columns_are_not_called_unused(fitted, tmp_path):
    data = pd.read_csv(fitted / "table.csv").assign(extra=1, name="n", other=2)
    data.to_csv(tmp_path / "new.csv", index=False)
    new = tmp_path / "new.csv"
    out, err = run(
        "predict", fitted / "run", new, "-o", tmp_path / "o.csv", "--keep", "other", "--json"
    )
    assert re.search(r"columns of \S*new.csv unknown to the run: 'extra', 'name'", err)
    assert json.loads(out)["extra_columns"] == ["extra", "name"]


@pytest.mark.slow
def test_nothing_but_notes_on_stderr(fitted, tmp_path):
    command = ["fit", fitted / "table.csv", "-t", "kind", *FAST, "-o", tmp_path / "run", "--json"]
    found = subprocess.run(
        [sys.executable, "-m", "refinecal", *map(str, command)], capture_output=True, text=True
    )
    assert found.returncode == 0
    assert all(line.startswith("note: ") for line in found.stderr.splitlines())
    json.loads(found.stdout)


def test_resume_says_if_there_is_nothing_to_resume(fitted, tmp_path):
    about = ["fit", fitted / "table.csv", "-t", "kind", *FAST, "--resume"]
    _, err = run(*about, "-o", fitted / "run", code=1)
    assert "is finished; pass --overwrite to replace it" in err
    _, err = run(*about, "-o", tmp_path / "new")
    assert "there is no unfinished run" in err


def test_tuned_runs_show_their_configurations(fitted, tmp_path):
    out, _ = run(
        "fit", fitted / "table.csv", "-t", "kind", *FAST, "--tune", 3, "-o", tmp_path / "run"
    )
    assert "Chosen: xgboost" in out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Configurations" in page
    assert "(chosen)" in page
    history = pd.read_parquet(tmp_path / "run" / "history.parquet")
    for best in history.groupby("candidate")["refinement"].min():  # with one fold
        assert f"{best:.4f}" in page


def test_the_calibration_map_calls_classes_by_their_names():
    import refinecal as rc
    from refinecal.plots import CalibrationMapDisplay

    fitted = rc.TemperatureScaling().fit([0.9] * 4, [1, 1, 1, 0])
    axes = Figure().add_subplot()
    CalibrationMapDisplay.from_calibrator(fitted, class_names=["leave", "stay"], ax=axes)
    assert "stay" in axes.get_xlabel()
    with pytest.raises(ValueError, match="class_names has 3 names"):
        CalibrationMapDisplay.from_calibrator(fitted, class_names=["a", "b", "c"], ax=axes)
