"""Run folders: what was fitted is what predicts, nothing is half written, nothing in them is ever run."""

import errno
import hashlib
import io
import json
import os
import pickle
import shutil
import zipfile
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from full_disk import small_files
from made_tables import mixed, write_csv

from refinecal._core.files import RunFolder
from refinecal.cli._console import describe_error
from refinecal.report.page import Page
from refinecal.report.render import write
from refinecal.tabular.data import Options
from refinecal.tabular.fit_folder import FitFolder, find_user_files
from refinecal.tabular.fitting import fit
from refinecal.tabular.job import FitRequest, _write_test_rows, open_fit
from refinecal.tabular.run import Run
from refinecal.training.crossfit import all_classes
from refinecal.training.table_model import MODELS, get_model

STEPS = {"logistic": 5, "mlp": 2}
OPTIONS = {"max_steps": 6, "patience": 6, "n_threads": 1}


def request(folder, model="xgboost", **more):
    table = folder / "table.parquet"
    if not table.exists():
        pq.write_table(mixed(300), table)
    options = Options(
        **(OPTIONS | {"model": model, "max_steps": STEPS.get(model, 6)} | more.pop("options", {}))
    )
    given = {"drop": ("weight", "family"), "out": folder / "run", "options": options} | more
    return FitRequest(table, "kind", **given)


def run_fit(given, progress=None, add_report=None):
    with open_fit(given) as job:
        found = job.write(fit(job.data, given.options, job.folder, progress))
        if add_report is not None:
            add_report(found, job.draft)
        job.publish()
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run_fit(request(tmp_path_factory.mktemp("fit"), options={"folds": 2}))


@pytest.fixture
def copy(finished, tmp_path):
    """A run folder that a test may spoil."""
    return shutil.copytree(finished.path, tmp_path / "copy")


def test_the_folder_holds_what_it_should(finished):
    names = {path.name for path in finished.path.iterdir()}
    expected = {
        "calibrator.json",
        "schema.json",
        "metrics.json",
        "history.parquet",
        "manifest.json",
    }
    assert names == expected | {"test_predictions.parquet", "fold-1", "fold-2"}
    assert [path.name for path in (finished.path / "fold-1").iterdir()] == ["model.ubj"]
    assert not list(finished.path.parent.glob(".*"))


@pytest.mark.parametrize(("model", "folds"), [("xgboost", None), *((name, 2) for name in MODELS)])
@pytest.mark.sweep(3)
def test_a_loaded_run_predicts_what_was_fitted(tmp_path, model, folds):
    found = run_fit(request(tmp_path, model, options={"folds": folds, "refit": False}))
    run = Run.load(found.path)
    assert find_user_files(found.path) == []
    table = pq.read_table(tmp_path / "table.parquet").take(pa.array(found.fit.data.test_places))
    probs = run.predict_proba(table)
    np.testing.assert_allclose(probs, found.fit.chosen.after, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(run.predict_proba(table.to_pandas()), probs, rtol=1e-12)
    stored = pq.read_table(found.path / "test_predictions.parquet")
    np.testing.assert_array_equal(stored["row"], found.fit.data.test_places)
    np.testing.assert_array_equal(stored["kind"].to_pylist(), table["kind"].to_pylist())
    columns = [stored[f"p_{label}"].to_numpy() for label in run.classes]
    np.testing.assert_array_equal(np.stack(columns, axis=1), found.fit.chosen.after)


@pytest.mark.parametrize("folds", [None, 2])
def test_what_is_delivered_is_the_models_of_all_rows(tmp_path, folds):
    found = run_fit(request(tmp_path, options={"folds": folds}))
    run, fit = Run.load(found.path), found.fit
    table = pq.read_table(tmp_path / "table.parquet")
    X = fit.data.schema.encode(table)
    folders = [found.path / (f"fold-{n + 1}" if folds else ".") for n in range(folds or 1)]
    assert len(folders) == len(fit.delivered)
    models = [get_model(fit.kind).load(folder) for folder in folders]
    logits = [all_classes(model.logits(X), np.arange(3), 3) for model in models]
    assert [model.n_steps for model in models] == [
        unit.choices["refinement"].step for unit in fit.delivered
    ]
    expected = fit.ensemble.predict_proba(logits)
    np.testing.assert_allclose(run.predict_proba(table), expected, rtol=1e-6, atol=1e-9)


def test_metrics_and_history_are_complete(finished):
    metrics = json.loads((finished.path / "metrics.json").read_text())
    judged = finished.judged
    assert metrics["test"]["refine_then_calibrate"]["log"]["risk"] == judged.ours.log.risk
    assert metrics["test"]["difference_log_loss"]["standard_error"] == judged.log.standard_error
    assert metrics["chosen"]["steps"] == finished.fit.chosen.steps
    history = pq.read_table(finished.path / "history.parquet").to_pandas()
    assert len(history) == 2 * 6
    for fold, steps in history.groupby("fold"):
        assert steps["step"].tolist() == [1, 2, 3, 4, 5, 6]
        assert steps["step"][steps["refinement"].idxmin()] == finished.fit.chosen.steps[fold]
    gap = history["risk"] - history["calibration"] - history["refinement"]
    assert gap.abs().max() < 1e-12


def test_the_same_table_as_csv_gives_the_same_model(finished, tmp_path):
    write_csv(mixed(300), tmp_path / "table.csv")
    csv = run_fit(request(tmp_path, options={"folds": 2}))
    assert csv.fit.chosen.value == finished.fit.chosen.value
    np.testing.assert_array_equal(csv.fit.chosen.after, finished.fit.chosen.after)


def test_rows_without_a_label_are_left_out(tmp_path):
    table = mixed(300)
    labels = table["kind"].to_pylist()
    labels[3] = labels[200] = None
    pq.write_table(table.set_column(6, "kind", pa.array(labels)), tmp_path / "table.parquet")
    with pytest.warns(RuntimeWarning, match="2 of 300 rows of .* have no kind: they are ignored"):
        found = run_fit(request(tmp_path))
    assert found.fit.data.n_train + found.fit.data.test.n == 298
    assert not {3, 200} & set(found.fit.data.test_places.tolist())
    places = pa.array(found.fit.data.test_places)
    expected = np.array(found.fit.data.schema.classes)[found.fit.data.test.y]
    assert table["kind"].take(places).to_pylist() == expected.tolist()


# ---- nothing half-written ----------------------------------------------------------------------------------


class Interrupts:
    def __init__(self, number):
        self.number = number

    def start(self, run, name, max_steps):
        pass

    def step(self, run, number, record):
        if run == self.number and number == 2:
            raise KeyboardInterrupt

    def finish(self, run):
        pass


def test_an_interrupted_run_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught:
        run_fit(request(tmp_path, options={"folds": None}), Interrupts(1))
    assert not hasattr(caught.value, "__notes__")
    assert [path.name for path in tmp_path.iterdir()] == ["table.parquet"]


def test_finished_trainings_are_kept_for_resuming(tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught:
        run_fit(request(tmp_path, options={"folds": 3}), Interrupts(3))
    (note,) = caught.value.__notes__
    assert note == "2 finished training runs kept: continue with --resume"
    assert not (tmp_path / "run").exists()
    trained = []

    class Counts(Interrupts):
        def step(self, run, number, record):
            trained.append(run)

    resumed = run_fit(request(tmp_path, options={"folds": 3}, resume=True), Counts(0))
    assert set(trained) == {3, 4, 5, 6}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "table.parquet"]
    whole = run_fit(request(tmp_path, options={"folds": 3}, out=tmp_path / "whole"))
    np.testing.assert_array_equal(resumed.fit.chosen.after, whole.fit.chosen.after)


def test_a_run_is_not_overwritten_unless_told(tmp_path):
    run_fit(request(tmp_path))
    before = (tmp_path / "run" / "metrics.json").read_text()
    with pytest.raises(ValueError, match="run exists: choose another --out, or pass --overwrite"):
        run_fit(request(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        run_fit(request(tmp_path, overwrite=True, options={"folds": None}), Interrupts(1))
    assert (tmp_path / "run" / "metrics.json").read_text() == before
    run_fit(request(tmp_path, overwrite=True, options={"seed": 3}))
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["options"]["seed"] == 3


def test_a_folder_that_is_no_run_is_never_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="is not a run folder, so it is left alone"):
        run_fit(request(tmp_path, overwrite=True))
    assert (tmp_path / "run" / "thesis.tex").exists()


def test_a_crash_between_two_renames_is_mended(tmp_path):
    found = run_fit(request(tmp_path))
    found.path.rename(tmp_path / ".run.old")
    with pytest.raises(ValueError, match="run exists"):
        run_fit(request(tmp_path))
    assert Run.load(tmp_path / "run").classes == found.fit.data.schema.classes


class Breaks(Interrupts):
    def step(self, run, number, record):
        if run == self.number:
            raise OSError(28, "No space left on device", "/disk")


def test_an_error_keeps_finished_trainings(tmp_path):
    with pytest.raises(OSError, match="No space left on device") as caught:
        run_fit(request(tmp_path, options={"folds": 3}), Breaks(3))
    assert describe_error(caught.value) == (
        f"no space left on the disk of {tmp_path / 'run'}: free some and try again "
        "(2 finished training runs kept: continue with --resume)"
    )
    assert (tmp_path / ".run.unfinished").exists()
    run_fit(request(tmp_path, options={"folds": 3}, resume=True))
    with pytest.raises(OSError, match="No space left on device"):
        run_fit(request(tmp_path, options={"folds": 3}, out=tmp_path / "other"), Breaks(1))
    assert not (tmp_path / ".other.unfinished").exists()


def test_finished_trainings_are_not_discarded_unasked(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_fit(request(tmp_path, options={"folds": 3}), Interrupts(3))
    with pytest.raises(ValueError, match="has 2 finished training runs: pass --resume .*--restart"):
        run_fit(request(tmp_path, options={"folds": 3}))
    with pytest.raises(
        ValueError, match="another data and seed: pass the same options, or .*--restart"
    ):
        run_fit(request(tmp_path, options={"folds": 3, "seed": 1}, resume=True))
    with pytest.raises(KeyboardInterrupt) as caught:  # which has one more
        run_fit(request(tmp_path, options={"folds": 4, "seed": 1}, restart=True), Interrupts(4))
    assert caught.value.__notes__[0].startswith("3 finished training runs kept")
    run_fit(request(tmp_path, options={"folds": 4, "seed": 1}, resume=True))
    assert sorted(os.listdir(tmp_path)) == ["run", "table.parquet"]


def test_what_a_killed_run_had_not_finished_is_not_in_the_way(tmp_path):
    unfinished = tmp_path / ".run.unfinished"
    (unfinished / "under-way-0").mkdir(parents=True)  # before anything else was there
    (tmp_path / ".run.lock").write_text("1 on nowhere since long ago")
    run_fit(request(tmp_path, options={"folds": None}, resume=True))
    assert sorted(os.listdir(tmp_path)) == ["run", "table.parquet"]


class Rivals(Interrupts):
    """Begins another fit to the same folder, when a training is finished and one is under way."""

    def step(self, run, number, record):
        if (run, number) == (2, 2):
            before = sorted(self.folder.rglob("*"))
            with pytest.raises(
                ValueError, match=f"fitting .*run .process {os.getpid()} on .* since"
            ):
                run_fit(request(self.folder, options={"folds": 3}, overwrite=True, restart=True))
            assert sorted(self.folder.rglob("*")) == before


def test_two_fits_never_share_a_folder(tmp_path):
    first = Rivals(0)
    first.folder = tmp_path
    found = run_fit(request(tmp_path, options={"folds": 3}), first)
    assert Run.load(found.path).classes == found.fit.data.schema.classes
    assert sorted(os.listdir(tmp_path)) == ["run", "table.parquet"]


class Fills(Interrupts):
    def step(self, run, number, record):
        if run == self.number:
            self.limit.enter_context(small_files(1000))


@pytest.mark.parametrize("model", ["xgboost", "logistic"])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path, model):
    given = request(tmp_path, model, options={"folds": 3})
    fills = Fills(3)
    with pytest.raises(OSError, match="File too large") as caught, ExitStack() as fills.limit:
        run_fit(given, fills)
    assert describe_error(caught.value) == (
        f"no space left for {given.out}: files may not grow this large here (see ulimit -f) "
        "(2 finished training runs kept: continue with --resume)"
    )
    kept = sorted(os.listdir(tmp_path / ".run.unfinished"))
    assert kept == ["candidate-0-fold-0", "candidate-0-fold-1", "plan.json"]
    run_fit(replace(given, resume=True))
    assert sorted(os.listdir(tmp_path)) == ["run", "table.parquet"]


@pytest.mark.parametrize("largest", [2000, 5000, 20_000])  # models, JSON, report
def test_a_disk_that_is_full_at_the_end(tmp_path, largest):
    given, limit = request(tmp_path, "logistic", options={"folds": 2}), ExitStack()

    class FillsLate(Interrupts):
        def start(self, run, name, max_steps):
            if run == 4 and (tmp_path / ".run.unfinished/delivered-0-fold-1").exists():
                limit.enter_context(small_files(largest))

    def write_report(finished, folder):
        write(Page("A report", "x" * 10_000), folder / "report.html")

    with pytest.raises(OSError, match="no report today"):
        run_fit(given, add_report=fail)
    with pytest.raises(OSError, match="File too large") as caught, limit:
        run_fit(replace(given, resume=True), FillsLate(0), add_report=write_report)
    assert caught.value.filename == str(given.out)
    kept = sorted(os.listdir(tmp_path / ".run.unfinished"))
    models = [f"{which}-0-fold-{fold}" for which in ("candidate", "delivered") for fold in (0, 1)]
    assert kept == [*models, "plan.json"]


def fail(finished, folder):
    raise OSError("no report today")


def test_a_disk_that_does_not_take_a_table(finished, tmp_path):
    with pytest.raises(OSError, match="File too large") as caught, small_files(100):
        _write_test_rows(finished.fit, tmp_path / "rows.parquet")
    assert caught.value.errno == errno.EFBIG  # of pyarrow, too


# ---- other files in the folder -----------------------------------------------------------------------------


def test_files_that_no_fit_wrote_are_kept(copy, tmp_path):
    run = copy
    theirs = ["notes.md", "model.ubj", "fold-1/why.txt", "plots/a.png", "plots/.draft", "fold-3/x"]
    for name in theirs:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(name)
    (run / "empty").mkdir()
    (run / "link").symlink_to("../table.parquet")
    before = (run / "notes.md").stat()
    with pytest.warns(
        RuntimeWarning, match="kept in .*copy, since no fit wrote it: 'empty', 'fold-1"
    ):
        run_fit(request(tmp_path, "logistic", options={"folds": None}, out=run, overwrite=True))
    assert all((run / name).read_text() == name for name in theirs)
    assert (run / "notes.md").stat().st_mtime == before.st_mtime
    assert (run / "empty").is_dir()
    assert (run / "link").is_symlink()
    assert sorted(path.name for path in run.glob("fold-*/*")) == ["why.txt", "x"]
    assert Run.load(run).model == "logistic"
    assert not {*theirs, "link"} & set(json.loads((run / "manifest.json").read_text())["files"])
    assert sorted(os.listdir(tmp_path)) == ["copy", "table.parquet"]


def test_a_run_has_no_other_files(copy):
    assert find_user_files(copy) == []
    (copy / "manifest.json").write_text("{")
    assert find_user_files(copy) == []
    (copy / "manifest.json").unlink()  # as in folders of older versions
    (copy / "notes.md").write_text("mine")
    assert [path.name for path in find_user_files(copy)] == ["notes.md"]


def test_a_file_in_the_way_of_a_new_one_is_named_and_both_are_kept(copy, tmp_path):
    mine = copy / "model.npz"
    mine.write_text("mine")
    with pytest.raises(ValueError, match=r"model\.npz is not of the older run, .*: move it away"):
        run_fit(request(tmp_path, "logistic", options={"folds": None}, out=copy, overwrite=True))
    assert mine.read_text() == "mine"
    assert Run.load(copy).model == "xgboost"


def test_a_run_that_cannot_be_published_leaves_the_older_one(copy):
    before = sorted(copy.rglob("*"))
    with pytest.raises(FileNotFoundError):
        FitFolder(copy).publish(copy.parent / "nothing")
    assert sorted(copy.rglob("*")) == before


def test_a_link_to_a_run_folder_stays_one(copy, tmp_path):
    link = tmp_path / "latest"
    link.symlink_to(copy)
    run_fit(request(tmp_path, "logistic", options={"folds": None}, out=link, overwrite=True))
    assert Run.load(copy).model == "logistic"
    assert sorted(os.listdir(tmp_path)) == ["copy", "latest", "table.parquet"]


def test_reports_and_metrics_name_the_classes(finished):
    metrics = json.loads((finished.path / "metrics.json").read_text())
    labels = ["class 0", "class 1", "class 2"]
    for part in ("refine_then_calibrate", "before_calibration", "by_validation_loss"):
        assert metrics["test"][part]["classes"] == labels
        assert [each["label"] for each in metrics["test"][part]["per_class"]] == labels


def test_test_rows_that_were_trained_on_are_noted(tmp_path):
    given = request(tmp_path)
    with pytest.warns(RuntimeWarning, match="100% of the test rows have the same features"):
        run_fit(replace(given, test=given.table))


def test_other_groups_are_another_run(tmp_path):
    table = mixed(200).append_column("other", pa.array(np.arange(200) % 50))
    pq.write_table(table, tmp_path / "table.parquet")
    one = request(tmp_path, options={"folds": 3}, group="family", drop=("weight", "other"))
    with pytest.raises(KeyboardInterrupt):
        run_fit(one, Interrupts(3))
    other = replace(one, group="other", drop=("weight", "family"), resume=True)
    with pytest.raises(ValueError, match="another data"):
        run_fit(other)


# ---- the manifest ------------------------------------------------------------------------------------------


def test_the_manifest_lists_every_file(tmp_path):
    def write_report(finished, folder):
        write(Page("A report", "All is well."), folder / "report.html")

    found = run_fit(request(tmp_path, options={"folds": 2}), add_report=write_report)
    manifest = json.loads((found.path / "manifest.json").read_text())
    files = [path for path in found.path.rglob("*") if path.is_file()]
    expected = {
        path.relative_to(found.path).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name != "manifest.json"
    }
    assert manifest == {"format": 3, "files": expected}
    assert {"report.html", "fold-2/model.ubj"} < set(expected)


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    """A second run of the same kind, without one of the columns."""
    folder, drop = tmp_path_factory.mktemp("other"), ("weight", "family", "size")
    return run_fit(request(folder, options={"folds": 2}, drop=drop)).path


NEEDED = ["schema.json", "calibrator.json", "fold-1/model.ubj", "fold-2/model.ubj"]


@pytest.mark.parametrize("name", NEEDED)
def test_a_file_that_the_fit_did_not_write_is_named(copy, another, name):
    content, swapped = (copy / name).read_bytes(), (another / name).read_bytes()
    for changed in (flip(content), content[: len(content) // 2], b"", swapped):
        (copy / name).write_bytes(changed)
        match = f"copy/{name} is not the file that `refinecal fit` wrote .*: fit again, or restore"
        with pytest.raises(ValueError, match=match):
            Run.load(copy)
    (copy / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"copy/{name} is missing: fit again, or restore"):
        Run.load(copy)
    (copy / name).write_bytes(content)
    assert Run.load(copy).model == "xgboost"


@pytest.mark.parametrize("model", MODELS)
def test_a_damaged_model_of_any_kind_is_never_parsed(tmp_path, model):
    found = run_fit(request(tmp_path, model, options={"folds": None}))
    (file,) = found.path.glob("model.*")
    file.write_bytes(flip(file.read_bytes()))
    with pytest.raises(ValueError, match=f"{file.name} is not the file that `refinecal fit` wrote"):
        Run.load(found.path)


def test_models_of_two_folds_cannot_be_exchanged(copy):
    first, second = copy / "fold-1" / "model.ubj", copy / "fold-2" / "model.ubj"
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    with pytest.raises(ValueError, match="fold-1/model.ubj is not the file"):
        Run.load(copy)


def test_files_that_do_not_predict_may_change(copy):
    for name in ("metrics.json", "history.parquet", "test_predictions.parquet"):
        (copy / name).unlink()
    (copy / "notes.md").write_text("mine")
    assert Run.load(copy).model == "xgboost"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=99), "has format 99, this version reads 3: fit again"),
        (lambda d: d.pop("format"), "is not what `refinecal fit` wrote"),
        (lambda d: d.update(files=7), "is not what `refinecal fit` wrote"),
        (lambda d: d["files"].pop("fold-1/model.ubj"), "fold-1/model.ubj is not the file"),
        (lambda d: d["files"].update({"schema.json": "0" * 64}), "schema.json is not the file"),
        (lambda d: d["files"].update({"../table.csv": "0"}), "outside of the run folder"),
    ],
)
def test_a_spoiled_manifest_is_refused(copy, change, message):
    edited(copy, "manifest.json", change)
    with pytest.raises(ValueError, match=message):
        Run.load(copy)
    (copy / "manifest.json").write_bytes(b"\xff{")
    with pytest.raises(ValueError, match="manifest.json is not what `refinecal fit` wrote"):
        Run.load(copy)


def test_links_out_of_the_folder_are_refused(copy, another):
    model = copy / "fold-1" / "model.ubj"
    model.unlink()
    model.symlink_to(another / "fold-1" / "model.ubj")
    RunFolder(copy).write_manifest()
    with pytest.raises(ValueError, match="'fold-1/model.ubj', which is outside of the run folder"):
        Run.load(copy)


# ---- strangers' folders ------------------------------------------------------------------------------------


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def hostile_npz(path):
    """Return an .npz file that holds a pickle."""
    buffer = io.BytesIO()
    array = np.empty(1, dtype=object)
    array[0] = Hostile(path)
    with zipfile.ZipFile(buffer, "w") as file:
        inner = io.BytesIO()
        np.lib.format.write_array(inner, array, allow_pickle=True)
        file.writestr("nodes.npy", inner.getvalue())
    return buffer.getvalue()


@pytest.mark.parametrize("model", MODELS)
def test_a_hostile_model_file_runs_nothing(tmp_path, model):
    found = run_fit(request(tmp_path, model, options={"folds": None}))
    (file,) = [path for path in found.path.iterdir() if path.name.startswith("model.")]
    mark = tmp_path / "ran"
    for content in (pickle.dumps(Hostile(mark)), hostile_npz(mark)):
        file.write_bytes(content)
        RunFolder(found.path).write_manifest()
        with pytest.raises(ValueError, match="model.* is not a"):
            Run.load(found.path)
        assert not mark.exists()
    with open(tmp_path / "proof", "wb") as proof:  # that the pickle is a real one
        proof.write(pickle.dumps(Hostile(mark)))
    pickle.loads((tmp_path / "proof").read_bytes()).close()
    assert mark.exists()


def edited(run, name, change):
    """Change a JSON file; the manifest lists the new one."""
    path = run / name
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    if name != "manifest.json":
        RunFolder(run).write_manifest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(model="os.system"), "os.system"),
        (lambda d: d["members"][0].update(folder="../.."), "model.ubj is not the file"),
        (lambda d: d["calibrator"].update(kind="Popen"), "Popen"),
        (
            lambda d: d["calibrator"]["learned"].update(n_samples_=float("nan")),
            "n_samples_.*finite",
        ),
    ],
)
def test_a_spoiled_description_is_refused(copy, change, message):
    edited(copy, "calibrator.json", change)
    with pytest.raises(ValueError, match=message):
        Run.load(copy)


def test_folders_that_are_no_runs_are_named(copy, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        Run.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="schema.json is a file, not a folder"):
        Run.load(copy / "schema.json")
    (copy.parent / f"{copy.name}s").mkdir()  # near, too, but holds no run
    near = rf"pass what `refinecal fit` wrote\. Did you mean '{copy.name}'\?$"
    with pytest.raises(FileNotFoundError, match=near):
        Run.load(copy.parent / f"{copy.name}x")
    with pytest.raises(
        FileNotFoundError, match="holds no manifest.json.* older version.*fit again"
    ):
        Run.load(tmp_path)


@pytest.mark.parametrize("name", ["classes_", "predict_proba", "_map", "__class__"])
def test_a_calibrator_has_no_say_in_its_methods(copy, name):
    """Learned attributes are data: nothing of the object's own can be replaced by them."""

    def change(found):
        learned = found["calibrator"]["learned"]
        learned[name] = "os.system"

    edited(copy, "calibrator.json", change)
    with pytest.raises(ValueError, match=f"calibrator.*{name}|{name}.*calibrator"):
        Run.load(copy)
