"""The commands as people and programs use them: what is printed, written, and returned."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from command_runs import READY, interrupt, invoke, started, wait_for
from made_tables import mixed, write_csv
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

import refinecal as rc
from refinecal.cli._console import Console
from refinecal.cli.app import app
from refinecal.cli.fit import ProgressBars, show_data
from refinecal.tabular.data import Options, prepare
from refinecal.tabular.run import Run
from refinecal.tabular.schema import Schema
from refinecal.theory import BetaSpectrum, minimise

pytestmark = pytest.mark.usefixtures("blank_figures")

FAST = ["--max-steps", "6", "--patience", "6", "--threads", "1"]


run = partial(invoke, app)


def fit(table, *more, code=0, target="kind"):
    return run("fit", table, "--target", target, *FAST, *more, code=code)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def table(tmp_path):
    return write_csv(mixed(300).drop_columns(["weight", "family"]), tmp_path / "table.csv")


@pytest.fixture(scope="module")
def predictions(tmp_path_factory):
    """Real predictions of a fit, with the label beside them and a column of subgroups."""
    folder = tmp_path_factory.mktemp("fit")
    data = mixed(500).drop_columns(["weight", "family"])
    pq.write_table(data.slice(0, 300), folder / "train.parquet")
    pq.write_table(data.slice(300), folder / "new.parquet")
    fit(folder / "train.parquet", "-o", folder / "run", "-q")
    out = folder / "predictions.parquet"
    run("predict", folder / "run", folder / "new.parquet", "-o", out, "--keep", "size", "-q")
    return out


# ---- fit ---------------------------------------------------------------------------------------------------


def test_fit_says_what_it_found_did_and_wrote(table):
    out, _ = fit(table)
    assert "table.csv: 300 rows, 2 numbers, 2 categories" in out
    assert re.search(r"colour\s+category\s+\d+\s+3", out)
    assert "chosen by refinement" in out
    assert "Report:  table-run/report.html" in out
    assert "Predict: refinecal predict table-run NEW.csv" in out
    assert not [line for line in out.splitlines() if "│" in line]
    assert max(map(len, out.splitlines())) <= 80


def test_fit_as_json_is_one_object(table):
    out, _ = fit(table, "--json")
    found = json.loads(out)
    assert found == found | json.loads(Path("table-run/metrics.json").read_text())
    assert found["report"] == "table-run/report.html"


@pytest.mark.slow
def test_fit_that_is_quiet_prints_nothing(table):
    assert fit(table, "--quiet") == ("", "")


def test_the_log_loss_of_the_output_is_that_of_the_report(tmp_path):
    data = mixed(400).drop_columns(["weight", "family"])
    train = write_csv(data.slice(0, 300), tmp_path / "train.csv")
    held_back = write_csv(data.slice(300), tmp_path / "held_back.csv")
    found = json.loads(fit(train, "--test", held_back, "-o", "run", "--json")[0])
    run("predict", "run", held_back, "-o", "out.csv")
    out = pd.read_csv("out.csv")
    probs = out[[f"p_{label}" for label in found["classes"]]].to_numpy()
    loss = log_loss(out["kind"], probs, labels=found["classes"])
    assert abs(loss - found["test"]["refine_then_calibrate"]["log"]["risk"]) < 1e-6
    report = Path("run/report.html").read_text()
    assert f"{loss:.4f}" in report


def write_table(data, path):
    """Write a table in the format that the ending of the name says."""
    ending = path.name.split(".", 1)[1]
    if ending == "parquet":
        pq.write_table(data, path)
    elif ending == "feather":
        pa.feather.write_feather(data, path)
    else:
        pandas = data.to_pandas()
        text = pandas.to_csv(index=False, sep="\t" if ending == "tsv" else ",").encode()
        compressed = {"gz": "gzip", "zst": "zstd"}.get(ending.split(".")[-1])
        with pa.output_stream(path, compression=compressed) as stream:
            stream.write(text)


@pytest.mark.slow
def test_every_format_gives_the_same_run(tmp_path):
    data = mixed(200).drop_columns(["weight", "family"])
    found = []
    for ending in ("csv", "tsv", "csv.gz", "csv.zst", "parquet", "feather"):
        write_table(data, tmp_path / f"table.{ending}")
        out = fit(tmp_path / f"table.{ending}", "--json", "-o", f"run-{ending}")[0]
        found.append(json.loads(out)["test"])
    assert found.count(found[0]) == 6


def test_a_mistyped_column_suggests_the_nearest(table):
    _, err = fit(table, code=1, target="kimd")
    assert "error:" in err
    assert "Did you mean 'kind'?" in err
    for option in ("--weight", "--group", "--drop", "--categorical", "--numeric"):
        _, err = fit(table, option, "colur", code=1)
        assert "'colour'" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "table.csv"], "--target"),
        (["fit", "table.csv", "--target", "kind", "--model", "forest"], "forest"),
        (["fit", "table.csv", "--target", "kind", "--folds", "some"], "must be auto or an integer"),
        (["fit", "table.csv", "--target", "kind", "--tune", "0"], "--tune"),
        (["compare", "table.csv", "--target", "kind"], "at least two tables"),
        (["fitt"], "fitt"),
    ],
)
def test_wrong_usage_is_exit_code_2(table, arguments, message):
    _, err = run(*arguments, code=2)
    assert message in re.sub(r"\s*│\n│\s*", " ", err)


@pytest.mark.parametrize(
    ("option", "given", "meant"),
    [("--calibrator", "temprature", "temperature"), ("--model", "xgbost", "xgboost")],
)
def test_a_mistyped_name_suggests_the_nearest_before_anything_is_read(option, given, meant):
    _, err = fit("no_such_table.csv", option, given, code=2)
    assert f"Did you mean '{meant}'?" in " ".join(err.replace("│", " ").split())


def test_a_run_is_not_overwritten_by_accident(table):
    fit(table)
    _, err = fit(table, code=1)
    assert "table-run exists: choose another --out, or pass --overwrite" in err
    assert "--target is 'nothing', but" in fit(table, code=1, target="nothing")[1]  # comes first
    Path("table-run/notes.md").write_text("mine")
    _, err = fit(table, "--overwrite")
    assert "note: kept in table-run, since no fit wrote it: 'notes.md'" in err
    assert Path("table-run/notes.md").read_text() == "mine"


def test_the_table_itself_is_no_place_for_a_run(table):
    _, err = fit(table, "-o", table, code=1)
    assert "is an input table: pass a folder" in err
    Path("thesis").mkdir()
    Path("thesis", "chapter.tex").touch()
    _, err = fit(table, "-o", "thesis", code=1)
    assert "thesis exists and is not a run folder, so it is left alone: choose another --out" in err


@pytest.mark.parametrize("linked", [False, True])
def test_an_empty_folder_is_a_place_for_a_run(table, linked):
    Path("empty").mkdir()
    if linked:
        Path("link").symlink_to("empty")
    fit(table, "-o", "link" if linked else "empty", "-q")
    assert Path("empty", "report.html").exists()
    assert Path("link").is_symlink() == linked


def test_the_folder_that_one_is_in_is_no_place_for_a_run(table, monkeypatch):
    Path("here").mkdir()
    monkeypatch.chdir("here")
    _, err = fit(table, "-o", ".", code=1)
    assert "--out . is or contains the current folder: run the command elsewhere" in err


def test_v_shows_the_traceback(table):
    assert "Traceback" not in fit(table, code=1, target="nothing")[1]
    assert "Traceback" in fit(table, "-v", code=1, target="nothing")[1] + "Traceback"


@pytest.mark.slow
def test_groups_weights_and_dropped_columns(tmp_path):
    path = write_csv(mixed(300), tmp_path / "table.csv")
    out, _ = fit(path, "--weight", "weight", "--group", "family", "--drop", "size", "-v")
    assert re.search(r"weight\s+weight", out)
    assert re.search(r"family\s+group", out)
    assert re.search(r"size\s+unused\s+0\s+4\s+left out on request", out)


# ---- tables that are not so simple -------------------------------------------------------------------------


def text_of(rows, delimiter=","):
    return "\n".join(delimiter.join(map(str, row)) for row in rows) + "\n"


def plain_rows(n=80):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    return [["x", "y"], *([f"{a:.3f}", "yes" if a + rng.normal() > 0 else "no"] for a in x)]


def fit_text(text, *more, code=0, encoding="utf-8", name="table.csv"):
    with open(name, "w", encoding=encoding, newline="") as file:
        file.write(text)
    return fit(name, *more, "--json", code=code, target="y")


def test_a_byte_order_mark_is_no_part_of_a_name():
    found = json.loads(fit_text(text_of(plain_rows()), encoding="utf-8-sig")[0])
    assert found["classes"] == ["no", "yes"]
    names = [
        column["name"]
        for column in json.loads(Path("table-run/schema.json").read_text())["columns"]
    ]
    assert names == ["x"]


@pytest.mark.slow
def test_semicolons_and_decimal_commas():
    commas = [[a.replace(".", ","), b] for a, b in plain_rows()]
    found = json.loads(fit_text(text_of(commas, ";"), "-o", "commas")[0])
    points = json.loads(fit_text(text_of(plain_rows()), "-o", "points")[0])
    assert found["test"] == points["test"]


def test_quoted_newlines_stay_in_their_cell():
    rows = plain_rows()
    rows[0].insert(0, "note")
    for i, row in enumerate(rows[1:]):
        row.insert(0, f'"line {i % 3}\nand, another"')
    found = json.loads(fit_text(text_of(rows))[0])
    schema = json.loads(Path("table-run/schema.json").read_text())
    note = next(column for column in schema["columns"] if column["name"] == "note")
    assert note["categories"] == [f"line {i}\nand, another" for i in range(3)]
    assert sum(found["rows"].values()) == 80


def test_duplicate_names_are_refused():
    rows = [["x", "x", "y"], *([a, a, b] for a, b in plain_rows()[1:])]
    _, err = fit_text(text_of(rows), code=1)
    assert "'x'" in err
    assert "error:" in err


def test_an_all_missing_column_is_left_out():
    rows = [["x", "empty", "y"], *([a, "", b] for a, b in plain_rows()[1:])]
    fit_text(text_of(rows))
    schema = json.loads(Path("table-run/schema.json").read_text())
    kinds = {column["name"]: column["kind"] for column in schema["columns"]}
    assert kinds == {"x": "number", "empty": "unused"}


def test_a_constant_target_is_refused():
    rows = [[a, b if i == 0 else "yes"] for i, (a, b) in enumerate(plain_rows())]
    _, err = fit_text(text_of(rows), code=1)
    assert "nothing to learn" in err
    assert "'yes'" in err


def test_a_class_of_one_row_is_learned_but_not_tested():
    rows = plain_rows()
    rows[5][1] = "maybe"
    _, err = fit_text(text_of(rows), code=1)
    assert (
        "--target 'y': 'maybe' has 1 row, but 5-fold cross-validation needs at least 5 rows" in err
    )
    assert "or pass --folds 1." in err
    found = json.loads(fit_text(text_of(rows), "--folds", "1")[0])
    assert found["classes"] == ["maybe", "no", "yes"]
    run("predict", "table-run", "table.csv", "-o", "out.csv")
    out = pd.read_csv("out.csv")
    assert (out["p_maybe"] > 0).all()
    np.testing.assert_allclose(out.filter(like="p_").sum(axis=1), 1)


@pytest.mark.parametrize("n", [3, 12])
def test_a_dozen_rows_are_refused(n):
    _, err = fit_text(text_of(plain_rows(n)), code=1)
    assert f"error: --target 'y' has a value in {n} rows, but at least 20 are needed" in err


def test_a_column_that_holds_the_answer_is_pointed_out(tmp_path):
    data = mixed(300, k=2).drop_columns(["weight", "family"])
    answer = ["left" if each == "class 1" else "stays" for each in data["kind"].to_pylist()]
    path = write_csv(data.append_column("its status", pa.array(answer)), tmp_path / "table.csv")
    expected = (
        "'its status' alone predicts 'kind' for every row: does it hold the answer? If it is not known at "
        "prediction time, pass --drop 'its status'"
    )
    _, err = fit(path, "--json", "--folds", "1")
    assert f"note: {expected}" in err
    assert expected in html.unescape(Path("table-run/report.html").read_text())


def test_no_column_is_hidden_by_the_line_that_says_so(capsys):
    data = mixed(60).select(["x", "kind"])
    for number in range(9):
        data = data.append_column(f"more {number}", data["x"])
    for shown, names in (
        (data, "more 8"),
        (
            data.append_column("last", data["x"]),
            "… and 2 more columns (-v and the report show all)",
        ),
    ):
        show_data(Console(), Path("a.csv"), prepare(shown, Schema.infer(shown, "kind"), Options()))
        assert names in capsys.readouterr().out


def test_columns_with_notes_are_never_hidden(capsys):
    data = mixed(60).select(["x", "kind"])
    for number in range(12):
        data = data.append_column(f"more {number}", data["x"])
    prices = pa.array([f"${62150 + i % 7:,}.00" for i in range(60)])
    data = data.append_column("price", prices).append_column("constant", pa.array([1] * 60))
    show_data(Console(), Path("a.csv"), prepare(data, Schema.infer(data, "kind"), Options()))
    out = " ".join(capsys.readouterr().out.split())
    assert "is read as 62150" in out
    assert out.index("kind target") < out.index("price number") < out.index("constant unused")
    assert out.index("constant unused") < out.index("x number")
    assert "more 11" not in out


def test_a_missing_file_is_named():
    _, err = fit("tabel.csv", code=1)
    assert "tabel.csv" in err
    assert "Traceback" not in err


# ---- predict -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("first") / "table.csv"
    fit(
        write_csv(mixed(300).drop_columns(["weight", "family"]), path),
        "-q",
        "-o",
        path.with_name("table-run"),
    )
    return path.with_name("table-run")


@pytest.fixture
def fitted(table, first_run):
    shutil.copytree(first_run, "table-run")
    return table


def test_predictions_start_without_what_only_training_needs(fitted):
    """Imports are most of the time of a small table: scikit-learn's take longer than those of XGBoost."""
    command = [*("refinecal", "predict", "table-run", "table.csv"), "-o", "new.csv", "-q"]
    call = [sys.executable, "-X", "importtime", "-m", *command]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "xgboost" in loaded
    assert not {"sklearn.base", "scipy.stats"} & loaded
    run("predict", "table-run", fitted, "-o", "here.csv")  # in a process with scikit-learn
    assert Path("new.csv").read_bytes() == Path("here.csv").read_bytes()


def test_chunks_change_nothing(fitted):
    run("predict", "table-run", fitted, "-o", "whole.parquet")
    run("predict", "table-run", fitted, "-o", "parts.csv", "--chunk", "7")
    whole, parts = pd.read_parquet("whole.parquet"), pd.read_csv("parts.csv")
    assert whole.columns.tolist() == ["kind", "prediction", "p_class 0", "p_class 1", "p_class 2"]
    pd.testing.assert_frame_equal(whole, parts, check_dtype=False, rtol=1e-12)
    top = whole.filter(like="p_").to_numpy().argmax(axis=1)
    assert (whole["prediction"] == np.array(["class 0", "class 1", "class 2"])[top]).all()


def test_a_missing_column_is_refused_and_nothing_written(fitted):
    pd.read_csv(fitted).drop(columns="colour").rename(columns={"z": "Z"}).to_csv(
        "new.csv", index=False
    )
    _, err = run("predict", "table-run", "new.csv", "-o", "out.csv", code=1)
    assert "lacks the columns 'z', 'colour'" in err
    assert "Did you mean 'Z'? The columns are 'x', 'Z', 'size', 'kind'." in err
    assert not os.path.exists("out.csv")


def test_extra_columns_and_unseen_values_are_noted(fitted):
    data = pd.read_csv(fitted)
    data["surprise"] = 1
    data.loc[[2, 5], "colour"] = "mauve"
    data.to_csv("new.csv", index=False)
    out, err = run("predict", "table-run", "new.csv", "-o", "out.csv", "--json")
    assert "note: ignored column of new.csv unknown to the run: 'surprise'" in err
    assert "2 rows with a 'colour' that was never seen in training ('mauve')" in err
    found = json.loads(out)
    assert found["unseen"] == {"colour": {"mauve": 2}}
    assert found["extra_columns"] == ["surprise"]
    assert found["unlike_training"] == {}
    data.assign(another=2).to_csv("new.csv", index=False)
    _, err = run("predict", "table-run", "new.csv", "-o", "out.csv")
    assert "note: ignored columns of new.csv unknown to the run: 'surprise', 'another'" in err


def test_columns_unlike_training_are_noted_once(predictions):
    folder = predictions.parent
    new = pd.read_parquet(folder / "new.parquet")
    odd = new.assign(x=np.nan, colour="mauve", z=1000 * new["z"])
    odd.to_csv("odd.csv", index=False)
    out, err = run("predict", folder / "run", "odd.csv", "-o", "out.csv", "--json", "--chunk", "64")
    filled = pd.read_parquet(folder / "train.parquet")["x"].notna().mean()
    notes = err.splitlines()
    assert [note.split(" lie ")[0] for note in notes] == [
        f"note: 'x' is empty in every row, but {filled:.0%} of the training rows have a value",
        "note: 98% of the values of 'z'",
        "note: all values of 'colour' were never seen in training ('mauve'): they count as missing",
    ]
    assert list(json.loads(out)["unlike_training"]) == ["x", "z", "colour"]
    loaded = Run.load(folder / "run")
    with pytest.warns(RuntimeWarning) as caught:
        loaded.predict_proba(odd)
    assert [f"note: {each.message}" for each in caught] == notes
    loaded.predict_proba(new)  # without a warning, which would be an error
    loaded.predict_proba(new[:1])


@pytest.mark.parametrize(("used", "passed"), [(",", ";"), (";", ","), ("|", "tab"), (",", "|")])
def test_a_wrong_delimiter_is_suspected(predictions, used, passed):
    actual = "\t" if passed == "tab" else passed
    for name in ("new", "predictions"):
        data = pd.read_parquet(predictions.parent / f"{name}.parquet")
        data.to_csv(f"{name}.csv", index=False, sep=actual)
    for command in (
        ["fit", "new.csv", "--target", "kind", "-o", "new-run"],
        ["predict", predictions.parent / "run", "new.csv", "-o", "out.csv"],
        ["evaluate", "predictions.csv", "--target", "kind"],
        ["compare", "predictions.csv", "new.csv", "--target", "kind"],
    ):
        _, err = run(*command, "--delimiter", used, code=1)
        assert f"Then pass --delimiter '{passed}'." in err
    run("evaluate", "predictions.csv", "--target", "kind", "--delimiter", passed)


def test_a_wrong_delimiter_is_suspected_where_decimals_have_commas():
    commas = [[a.replace(".", ","), b] for a, b in plain_rows()]
    _, err = fit_text(text_of(commas, ";"), "--delimiter", ",", code=1)
    assert "Is ';' between its columns? Then pass --delimiter ';'." in err


def test_text_in_a_number_column_names_its_row(fitted):
    data = pd.read_csv(fitted, dtype=str)
    data.loc[250, "z"] = "a lot"
    data.to_csv("new.csv", index=False)
    _, err = run("predict", "table-run", "new.csv", "-o", "out.csv", "--chunk", "100", code=1)
    assert "'z'" in err
    assert "a lot" in err
    assert "251" in err
    assert not os.path.exists("out.csv")


def test_columns_that_are_kept(fitted):
    run("predict", "table-run", fitted, "-o", "out.csv", "--keep", "size", "--keep", "x")
    assert pd.read_csv("out.csv").columns[:3].tolist() == ["size", "x", "kind"]
    _, err = run("predict", "table-run", fitted, "-o", "out2.csv", "--keep", "siz", code=1)
    assert "'size'" in err


# ---- evaluate and compare ----------------------------------------------------------------------------------


def test_evaluate_agrees_with_scikit_learn(predictions):
    found = json.loads(run("evaluate", predictions, "--target", "kind", "--json")[0])
    data = pd.read_parquet(predictions)
    labels = sorted(data["kind"].unique())
    probs = data[[f"p_{label}" for label in labels]].to_numpy()
    assert found["log"]["risk"] == pytest.approx(log_loss(data["kind"], probs, labels=labels))
    assert found["brier"]["risk"] == pytest.approx(
        brier_score_loss(data["kind"], probs, labels=labels, scale_by_half=False)
    )
    assert found["accuracy"] == accuracy_score(data["kind"], data["prediction"])
    area = roc_auc_score(data["kind"], probs, multi_class="ovr")
    assert found["auroc"] == pytest.approx(area)
    for name in ("ece", "overconfidence", "underconfidence", "smooth_ece"):
        expected = getattr(rc.metrics, name)(data["kind"], probs, classes=labels)
        assert found[name] == pytest.approx(expected)
    for loss in ("log", "brier"):
        terms = found[loss]
        assert terms["risk"] == pytest.approx(terms["calibration"] + terms["refinement"])
        assert terms["refinement"] == pytest.approx(terms["uncertainty"] - terms["sharpness"])


def test_evaluate_prints_terms_classes_and_groups(predictions):
    out, _ = run("evaluate", predictions, "--target", "kind", "--by", "size")
    for word in ("risk", "calibration", "refinement", "AUROC", "ECE", "beta", "class 0", "XL"):
        assert word in out
    for word in ("smooth ECE", "overconf.", "underconf."):
        assert word in out
    assert out.count(" XL ") == 1  # one table of subgroups
    assert max(map(len, out.splitlines())) <= 80


def test_evaluate_takes_logits(predictions, tmp_path):
    data = pd.read_parquet(predictions)
    names = [name for name in data if name.startswith("p_")]
    data[names] = np.log(data[names]) + 3
    data = data.rename(columns={name: f"logit_{name[2:]}" for name in names})
    data.to_parquet(tmp_path / "logits.parquet")
    one = json.loads(run("evaluate", predictions, "-t", "kind", "--json")[0])
    other = json.loads(run("evaluate", "logits.parquet", "-t", "kind", "--logits", "--json")[0])
    assert other["log"]["risk"] == pytest.approx(one["log"]["risk"])
    assert other["auroc"] == pytest.approx(one["auroc"])


def test_compare_ranks_models_and_gives_errors(predictions, tmp_path):
    data = pd.read_parquet(predictions)
    names = [name for name in data if name.startswith("p_")]
    worse = data.copy()
    worse[names] = data[names] ** 3
    worse[names] = worse[names].div(worse[names].sum(axis=1), axis=0)
    worse.to_csv(tmp_path / "too_sure.csv", index=False)
    found = json.loads(run("compare", predictions, "too_sure.csv", "-t", "kind", "--json")[0])
    places = data["kind"].map({name[2:]: j for j, name in enumerate(names)}).to_numpy()
    losses = [
        -np.log(each[names].to_numpy()[np.arange(len(data)), places]) for each in (data, worse)
    ]
    gap = losses[1] - losses[0]
    (name,) = [name for name in found["evaluations"] if "too_sure" in name]
    assert found["ranking"] == ["predictions", "too_sure"]
    found = found["differences"][name]
    assert found["log"]["mean"] == pytest.approx(gap.mean())
    assert found["log"]["standard_error"] == pytest.approx(gap.std(ddof=1) / np.sqrt(len(gap)))
    assert found["refinement"]["mean"] == pytest.approx(0, abs=1e-6)  # calibration mends it
    out, _ = run("compare", predictions, "too_sure.csv", "-t", "kind")
    assert out.index("predictions") < out.index("too_sure")
    assert max(map(len, out.splitlines())) <= 80


def test_a_mistyped_target_of_predictions(predictions):
    _, err = run("evaluate", predictions, "--target", "kimd", code=1)
    assert "'kind'" in err


# ---- the program -------------------------------------------------------------------------------------------


def test_ctrl_c_is_clean(tmp_path):
    data = mixed(12000).drop_columns(["weight", "family"])
    path = write_csv(data, tmp_path / "table.csv")
    endless = ["--max-steps", 100000, "--patience", 100000]
    with started(READY, "fit", path, "-t", "kind", *endless) as process:
        wait_for((tmp_path / ".table-run.unfinished/plan.json").exists, process)
        _, err = interrupt(process)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert sorted(os.listdir(tmp_path)) == ["table.csv"]


# What the second training of a fit begins with takes for ever.
SECOND = """
import time
from refinecal.tabular.fit_folder import FitFolder
new = FitFolder.new

def new_once(folder, *about):
    return time.sleep(600) if folder.n_finished else new(folder, *about)

FitFolder.new = new_once
"""


def test_an_interrupted_run_is_resumed(tmp_path):
    path = write_csv(mixed(600).drop_columns(["weight", "family"]), tmp_path / "table.csv")
    options = ["-t", "kind", "--max-steps", 6, "--tune", 3, "--folds", 1]
    with started(SECOND + READY, "fit", path, *options) as process:
        wait_for((tmp_path / ".table-run.unfinished/candidate-0-fold-0").exists, process)
        _, err = interrupt(process)
    assert process.returncode == 130
    assert "1 finished training run kept: continue with --resume" in err
    assert not (tmp_path / "table-run").exists()
    _, err = run("fit", path, *options[:-2], "--folds", 2, "--resume", code=1)
    assert re.search("was started with another (data and )?folds", err)


def test_a_resumed_run_says_what_is_done(table, monkeypatch):
    def interrupt(progress, number, name, max_steps):
        if number == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBars, "start", interrupt)
        patch.setattr(ProgressBars, "step", lambda *about: None)
        patch.setattr(ProgressBars, "finish", lambda *about: None)
        _, err = fit(table, code=130)
    assert err == "interrupted; 2 finished training runs kept: continue with --resume\n"
    assert "pass --resume to continue it, or --restart to discard it" in fit(table, code=1)[1]
    assert "contradicts --resume" in fit(table, "--resume", "--restart", code=2)[1]
    assert "resuming: 2 of 15 training runs are done" in fit(table, "--resume")[0]


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from refinecal.cli import main; sys.argv = ['refinecal', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'numba', 'sklearn', 'matplotlib', 'xgboost', 'jinja2'}\n"
        "heavy |= {'refinecal.report', 'refinecal.evaluation', 'refinecal.plots'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
    assert "Usage: refinecal" in found.stdout


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "compare", "ensemble", "demo"])
def test_each_help_has_an_example_and_every_command_speaks_json(command):
    out, _ = run(command, "--help")
    assert f"Example: refinecal {command}" in out
    for option in ("--json", "--quiet", "--verbose"):
        assert option in out
    assert max(map(len, out.splitlines())) <= 80


def test_version():
    import refinecal

    assert run("--version")[0].strip() == f"refinecal {refinecal.__version__}"


def test_columns_are_completed(table):
    environment = os.environ | {
        "_REFINECAL_COMPLETE": "complete_bash",
        "COMP_WORDS": "refinecal fit table.csv --target ki",
        "COMP_CWORD": "4",
    }
    command = [sys.executable, "-m", "refinecal"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "kind" in found.stdout.split(), found.stderr


def test_the_command_line_says_how_to_get_its_packages():
    code = "import sys; sys.modules['typer'] = None; from refinecal.cli import main; main()"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert "pip install 'refinecal[cli]'" in found.stderr


def test_a_missing_library_is_told_before_the_table_is_shown(tmp_path):
    path = write_csv(mixed(60), tmp_path / "table.csv")
    code = (
        "import sys; sys.modules['lightgbm'] = None; from refinecal.cli import main\n"
        f"sys.argv = ['refinecal', 'fit', {str(path)!r}, '-t', 'kind', '-m', 'lightgbm']; main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert (found.returncode, found.stdout) == (1, "")
    assert "pip install 'refinecal[lightgbm]'" in found.stderr
    assert os.listdir(tmp_path) == ["table.csv"]


@pytest.mark.slow
def test_the_demo_does_the_whole_job(tmp_path):
    found = json.loads(run("demo", "--draws", 2, "--json")[0])
    assert found["digits"]["test"]["refine_then_calibrate"]["accuracy"] > 0.9
    gaussian = found["gaussian"]
    assert gaussian["gain"] == pytest.approx(
        1 - gaussian["by_refinement_calibrated"] / gaussian["by_loss"]
    )
    predicted = minimise(ratio=1, bayes_error=0.1, spectrum=BetaSpectrum(5, 1)).gain
    assert gaussian["gain_predicted"] == pytest.approx(predicted)
    assert gaussian["gain"] == pytest.approx(predicted, abs=0.06)  # of two draws
    for report in found["reports"]:
        assert os.path.getsize(report) > 10_000
    page = Path(found["reports"][1]).read_text(encoding="utf-8")
    assert f"theory predicts {100 * predicted:.1f}" in page


def test_every_calibrator_of_the_package_can_be_named():
    from refinecal.calibrators.base import ALIASES, KINDS

    wrappers = {"one-vs-rest", "one-vs-one", "laplace"}  # around another calibrator
    for name in {*KINDS, *ALIASES, "isotonic-ovr", "beta-ovo"} - wrappers:
        assert "no_such_table.csv" in fit("no_such_table.csv", "--calibrator", name, code=1)[1]
