"""One training of the tabular experiment: what is tracked, what is kept, and the file that it leaves."""

import os
import subprocess
import sys
import zipfile
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from scipy.special import log_softmax
from scipy.special import softmax as scaled
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from strategies import drawn, predictions

import refinecal as rc
from refinecal.experiments.plan import METRIC_NAMES as METRICS
from refinecal.experiments.plan import Plan, TableKey
from refinecal.experiments.tabular import protocol
from refinecal.experiments.tabular.procedures import judge
from refinecal.experiments.tabular.protocol import METHODS, get_method, run_unit
from refinecal.experiments.tabular.sets import Dataset, split, split_fold
from refinecal.experiments.tabular.tracking import ONLY_BINARY, Tracker
from refinecal.experiments.units import UnitResult
from refinecal.training import mlp
from refinecal.training.rows import Rows
from refinecal.training.spaces import draw
from refinecal.training.table_model import MODELS
from refinecal.training.trainer import TrainingRun

GREATER = ("accuracy", "auroc")
TIMES = ("seconds", "peak_memory")


def made_dataset(n=500, k=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    colour = rng.integers(0, 3, size=n)
    score = np.stack([np.sin(3 * j + x[:, 0]) + (colour == j) + x[:, 1] * j for j in range(k)], 1)
    y = (score + 0.5 * rng.gumbel(size=(n, k))).argmax(axis=1)
    X = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "colour": pd.Categorical(colour)})
    return Dataset("made", X, y.astype(np.int64), [f"class {j}" for j in range(k)], {})


def plan_of(*methods, steps=6, **options):
    return Plan(({"name": "made"},), methods, max_steps=steps, **options)


def unit_of(method, dataset, config=0, steps=6, **options):
    plan = plan_of(method, steps=steps, configs=config, **options)
    return run_unit(TableKey("made", 0, method, config), plan, dataset)


def oracle(labels, logits, folds):
    """Return every metric by scikit-learn, or by the package's public functions."""
    z = np.asarray(logits, np.float32).astype(np.float64)
    columns = np.stack([np.zeros(len(z)), z], axis=1) if z.ndim == 1 else z
    probs = np.exp(columns - columns.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    every = np.arange(columns.shape[1])
    beta = rc.fit_temperature(labels, columns).beta
    hits = labels[:, None] == every
    cooled = np.exp(beta * (columns - columns.max(axis=1, keepdims=True)))
    cooled /= cooled.sum(axis=1, keepdims=True)
    brier, after = (np.mean(((p - hits) ** 2).sum(axis=1)) for p in (probs, cooled))
    found = {
        "log_loss": rc.metrics.log_loss(labels, logits=columns),
        "brier": brier,
        "accuracy": accuracy_score(labels, columns.argmax(axis=1)),
        "refinement": rc.refinement_error(labels, logits=columns),
        "brier_refinement": min(brier, after),
    }
    seen = np.unique(labels)
    if len(seen) == len(every) > 2:
        found["log_loss"] = log_loss(labels, probs)
        if len(np.unique(probs)) == len(np.unique(probs.round(12))):  # no ties broken by rounding
            found["auroc"] = roc_auc_score(labels, probs, multi_class="ovr")
    elif len(seen) == len(every):
        found["auroc"] = roc_auc_score(labels, z if z.ndim == 1 else z[:, 1] - z[:, 0])
    if len(labels) > 1:
        found["refinement_cv5"] = rc.refinement_error(labels, logits=columns, cv=folds)
        found["refinement_loo"] = rc.refinement_error(labels, logits=columns, cv="loo")
    n, k = columns.shape
    smoothed = (n * cooled + 1 / k) / (n + 1)
    found["refinement_laplace"] = -np.log(smoothed[np.arange(n), labels]).mean()
    if z.ndim == 1:
        found["refinement_isotonic"] = rc.refinement_error(
            labels, logits=columns, calibrator="isotonic"
        )
        fitted = rc.make_calibrator("venn-abers").fit_logits(columns, labels)
        found["refinement_ivap"] = rc.metrics.log_loss(labels, fitted.predict_proba_logits(columns))
    return found


def folds_of(tracker):
    """Return the rows to fit on and to test on, as scikit-learn's splitters do."""
    tests = [np.sort(tracker.rows[begin:end]) for begin, end in tracker.folds]
    return [(np.setdiff1d(tracker.rows, test), test) for test in tests]


def track(labels, *steps, **options):
    k = 2 if steps[0].ndim == 1 else steps[0].shape[1]
    tracker = Tracker(np.asarray(labels, np.int64), k, **options)
    for step, logits in enumerate(steps, start=1):
        tracker.update(labels, logits=logits, step=step)
    return tracker


# ---- metrics ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(predictions())
def test_tracked_metrics_are_those_of_the_package(sample):
    labels, logits = sample
    given_as = [logits] if logits.shape[1] > 2 else [logits, logits[:, 1] - logits[:, 0]]
    for z in given_as:
        tracker = track(labels, z)
        found = tracker.history[0]
        for name, value in oracle(labels, z, folds_of(tracker)).items():
            if name in found:
                assert found[name] == pytest.approx(value, rel=1e-7, abs=1e-9), name


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("confidence", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("n", [60, 3000])
def test_short_cuts_hold_from_step_to_step(k, confidence, n):
    labels, logits = drawn(n, k, confidence=confidence)
    rng = np.random.default_rng(1)
    steps = [logits + 0.3 * confidence * rng.normal(size=logits.shape) * j for j in range(4)]
    steps = [z[:, 1] - z[:, 0] if k == 2 else z for z in steps]
    tracker = track(labels, *steps)
    for record, z in zip(tracker.history, steps, strict=True):
        expected = oracle(labels, z, folds_of(tracker))
        assert {name: record[name] for name in expected} == pytest.approx(expected, rel=2e-9)


def test_separable_and_useless_predictions_are_tracked_too():
    labels = np.arange(40) % 2
    perfect, wrong, flat = labels - 0.5, 0.5 - labels, np.zeros(40)
    tracker = track(labels, flat, perfect, 30 * perfect, wrong)
    values = tracker.values()
    np.testing.assert_allclose(values["refinement"], [np.log(2), 0, 0, np.log(2)], atol=1e-12)
    np.testing.assert_array_equal(values["auroc"], [0.5, 1, 1, 0])
    np.testing.assert_array_equal(values["accuracy"], [0.5, 1, 1, 0])
    assert tracker.bests["refinement"].step == 3  # never wrong, and of smaller risk
    smoothed = -np.log((32 + 0.5) / 33)  # 8 of 40 rows are left out
    assert values["refinement_cv5"][1] == pytest.approx(smoothed)


def test_folds_are_the_same_at_every_step_and_for_every_training():
    labels, logits = drawn(101, 2)
    one, two = (track(labels, logits[:, 1] - c * logits[:, 0]) for c in (1, 2))
    assert sorted(map(len, (test for _, test in folds_of(one)))) == [20, 20, 20, 20, 21]
    for (_, test), (_, other) in zip(folds_of(one), folds_of(two), strict=True):
        np.testing.assert_array_equal(test, other)


def test_a_tracker_never_stops_until_training_diverges():
    labels, logits = drawn(50, 3)
    tracker = track(labels, *(logits / step for step in range(1, 30)))
    assert not tracker.should_stop
    with pytest.warns(RuntimeWarning, match="step 30 are not finite"):
        tracker.update(labels, logits=np.full_like(logits, np.nan), step=30)
    assert tracker.should_stop
    assert np.isnan(tracker.values()["brier"][-1])
    assert tracker.bests["log_loss"].step < 30


def test_logits_of_best_steps_are_kept_and_no_others():
    labels, logits = drawn(80, 2)
    odds = logits[:, 1] - logits[:, 0]
    steps = [c * odds for c in (0.1, 0.6, 1.0, 3.0, 9.0)]
    tracker = track(labels, *steps, names=("log_loss", "brier"))
    assert set(tracker.logits) == {best.step for best in tracker.bests.values()}
    for step, kept in tracker.logits.items():
        np.testing.assert_array_equal(kept, steps[step - 1].astype(np.float32))
    assert list(tracker.values()) == ["log_loss", "brier"]


def test_rows_of_unknown_classes_are_left_out():
    labels, logits = drawn(90, 3)
    unknown = np.where(np.arange(90) % 9 == 0, -1, labels)
    seen = unknown >= 0
    found, expected = (
        track(unknown, logits).history[0],
        track(labels[seen], logits[seen]).history[0],
    )
    assert found == pytest.approx(expected)
    with pytest.raises(ValueError, match="no validation row has a class"):
        track(np.full(90, -1), logits)


def test_validation_rows_of_one_class_have_no_area():
    tracker = track(np.ones(30, int), np.linspace(-1, 2, 30))
    assert np.isnan(tracker.history[0]["auroc"])
    assert set(METRICS) - set(tracker.bests) == {"auroc"}


def test_weights_are_refused():
    with pytest.raises(TypeError, match="rows that count once"):
        Tracker(np.array([0, 1]), 2).update([0, 1], logits=np.zeros(2), sample_weight=[1, 2])


def test_bad_metrics_are_refused():
    with pytest.raises(ValueError, match="metric is 'brier_score'"):
        track([0, 1], np.zeros(2), names=["brier_score"])
    with pytest.raises(ValueError, match="refinement_ivap: for two classes, not for 3"):
        track([0, 1], np.zeros((2, 3)), names=["refinement_isotonic", "refinement_ivap"])


# ---- units ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("method", sorted(set(METHODS) - {"realmlp"}))
def test_a_unit_is_what_its_stored_logits_say(method, k):
    dataset = made_dataset(k=k)
    unit = unit_of(method, dataset, steps=5)
    _, val, test = split(dataset.y, 0, 0)
    np.testing.assert_array_equal(unit.y_val, dataset.y[val])
    np.testing.assert_array_equal(unit.y_test, dataset.y[test])
    assert (unit.n_train, unit.n_val, unit.n_test, unit.n_classes) == (320, 80, 100, k)
    assert unit.classes_known.tolist() == list(range(k))
    assert set(unit.best) == set(METRICS) - set(ONLY_BINARY if k > 2 else ())
    tracker = Tracker(unit.y_val, k)
    for name, step in unit.best.items():
        assert len(unit.history[name]) == 5
        best = (np.nanmax if name in GREATER else np.nanmin)(unit.history[name])
        assert unit.value[name] == unit.history[name][step - 1] == pytest.approx(best, rel=1e-8)
        expected = oracle(unit.y_val, unit.val_logits[step], folds_of(tracker))
        assert unit.value[name] == pytest.approx(expected[name], rel=1e-7)
    shape = (100,) if k == 2 else (100, k)
    assert {step: each.shape for step, each in unit.test_logits.items()} == dict.fromkeys(
        set(unit.best.values()), shape
    )
    assert all(each.dtype == np.float32 for each in unit.test_logits.values())
    assert min(unit.seconds.values()) > 0
    assert unit.peak_memory > 10**6


@pytest.mark.parametrize("method", ["xgboost", "mlp", "lightgbm", "hist-gb"])
def test_training_again_up_to_the_best_step_gives_the_stored_predictions(method):
    dataset = made_dataset(n=400, k=3)
    unit = unit_of(method, dataset, config=1, steps=8)
    train, val, test = split(dataset.y, 0, 0)
    step = unit.best["refinement"]
    rows, rows_val = (Rows(dataset.X.iloc[part], dataset.y[part]) for part in (train, val))
    monitor, seed = rc.RefinementMonitor(always_less), plan_of(method).seed_of(unit.key)
    run = TrainingRun(rows, rows_val, np.arange(3), monitor, step, unit.params, seed, n_threads=1)
    model = get_method(method).model.train(run)
    for rows, stored in ((val, unit.val_logits), (test, unit.test_logits)):
        again = model.logits(dataset.X.iloc[rows], step).astype(np.float32)
        if (
            rows is test or method != "lightgbm"
        ):  # which adds up its rounds one by one while it trains
            np.testing.assert_array_equal(again, stored[step])
        np.testing.assert_allclose(again, stored[step], rtol=1e-5, atol=1e-6)
    wanted = (
        {step} if method == "mlp" else {1, step}
    )  # which has kept the weights of its best epoch
    several = model.logits_at(dataset.X.iloc[test], wanted)
    assert set(several) == wanted
    for at, found in several.items():
        np.testing.assert_array_equal(found, model.logits(dataset.X.iloc[test], at))


def always_less(y_true, probs):
    """Return less at every step, so that the last is the best and its weights are kept."""
    always_less.value -= 1
    return always_less.value


always_less.value = 0


def test_the_whole_training_is_done_whatever_the_metrics_say():
    unit = unit_of("xgboost", made_dataset(n=300), steps=60)
    assert len(unit.history["log_loss"]) == 60
    assert unit.best["log_loss"] < 60  # it has over-fitted


def test_max_steps_never_exceeds_that_of_the_method():
    unit = unit_of("logistic", made_dataset(n=300), steps=500)
    assert len(unit.history["log_loss"]) == METHODS["logistic"].max_steps == 30


def test_configurations_are_drawn_from_the_search_space():
    dataset = made_dataset(n=300)
    units = [unit_of("xgboost", dataset, config=config, steps=2) for config in (0, 1, 2)]
    assert units[0].params == {}
    plan = plan_of("xgboost")
    for unit in units[1:]:
        rng = np.random.default_rng(plan.seed_of(unit.key, "params"))
        assert unit.params == draw("xgboost", rng)
    assert units[1].params != units[2].params


def test_classes_that_training_has_not_seen(monkeypatch):
    dataset = made_dataset(n=400, k=4)
    last = np.flatnonzero(dataset.y == 1)

    def without(y, number, seed):
        parts = split(y, number, seed)
        return np.setdiff1d(parts[0], last), *parts[1:]

    monkeypatch.setattr(protocol, "split", without)
    for method in ("xgboost", "logistic", "mlp"):
        unit = unit_of(method, dataset, steps=3)
        assert (unit.classes_known.tolist(), unit.n_classes) == ([0, 2, 3], 4)
        assert 1 in unit.y_val
        assert 1 in unit.y_test
        assert all(each.shape == (len(unit.y_test), 3) for each in unit.test_logits.values())
        seen = unit.y_val != 1
        columns = np.searchsorted(unit.classes_known, unit.y_val[seen])
        z = unit.val_logits[unit.best["log_loss"]].astype(np.float64)[seen]
        assert unit.value["log_loss"] == pytest.approx(rc.metrics.log_loss(columns, logits=z))


def test_one_class_is_refused():
    dataset = made_dataset(n=100)
    with pytest.raises(ValueError, match="one class only: drop this data set"):
        unit_of("xgboost", replace(dataset, y=np.zeros(100, np.int64)))


def test_a_training_that_diverges_keeps_what_came_before_or_says_so(monkeypatch):
    dataset = made_dataset(n=300)
    monkeypatch.setitem(mlp.DEFAULTS, "learning_rate", 1e12)
    with (
        pytest.warns(RuntimeWarning, match="training has diverged"),
        pytest.raises(ValueError, match="predictions were never finite numbers"),
    ):
        unit_of("mlp", dataset, steps=5)


@pytest.mark.parametrize("k", [2, 3])
def test_realmlp_is_a_method_like_the_others(k):
    pytest.importorskip("pytabkit")
    unit = unit_of("realmlp", made_dataset(n=300, k=k), config=1, steps=2)
    assert unit.params == METHODS["realmlp"].params(
        1, plan_of("realmlp").seed_of(unit.key, "params")
    )
    step = unit.best["log_loss"]
    found = rc.metrics.log_loss(unit.y_val, logits=unit.val_logits[step].astype(np.float64))
    assert found == pytest.approx(unit.value["log_loss"])
    assert unit.test_logits[step].shape == ((60,) if k == 2 else (60, k))


def test_methods():
    kinds = {method.kind for method in METHODS.values()}
    assert kinds == {*MODELS, "realmlp"} - {"extra-trees", "random-forest", "knn"}
    steps = {
        name: [METHODS[name].steps(config) for config in (0, 1)]
        for name in ("xgboost", "mlp", "realmlp")
    }
    assert steps == {"xgboost": [100, 1000], "mlp": [256, 256], "realmlp": [256, 256]}
    assert METHODS["mlp"].params(0, 0) == {"n_layers": 3}
    for name in METHODS:
        assert METHODS[name].step_name == METHODS[name].model.step_name
        assert METHODS[name].params(3, 7) == METHODS[name].params(2, 7) != {}
    with pytest.raises(ValueError, match="method is 'xgbost'.*'xgboost'"):
        get_method("xgbost")


def test_a_run_of_the_first_protocol_goes_on_as_it_was_begun():
    dataset = made_dataset(n=300)
    plan = plan_of("xgboost", "mlp", steps=130, version=1)
    unit = run_unit(TableKey("made", 0, "xgboost", 0), plan, dataset)
    assert len(unit.history["log_loss"]) == 130
    assert len(unit_of("xgboost", dataset, steps=130).history["log_loss"]) == 100
    unit = run_unit(TableKey("made", 0, "mlp", 0), replace(plan, max_steps=2), dataset)
    as_before = unit_of("mlp-4", dataset, steps=2)
    assert unit.params == as_before.params == {}
    assert unit_of("mlp", dataset, steps=2).params == {"n_layers": 3}


@pytest.mark.parametrize("n_folds", [2, 3, 10])
def test_folds_hold_out_every_row_but_the_test_rows_once(n_folds):
    y = np.random.default_rng(0).choice(3, p=[0.7, 0.28, 0.02], size=230)
    *_, test = split(y, 1, 5)
    parts = [split_fold(y, 1, 5, n_folds, fold) for fold in range(n_folds)]
    assert sorted(np.concatenate([val for _, val, _ in parts])) == sorted({*range(230)} - {*test})
    for train, val, same in parts:
        np.testing.assert_array_equal(same, test)
        assert not {*train} & {*val}
        assert {*train} | {*val} == {*range(230)} - {*test}
        shares = np.bincount(y[val], minlength=3) * n_folds
        assert np.abs(shares - np.bincount(np.delete(y, test))).max() <= n_folds


@pytest.mark.parametrize("k", [2, 3])
def test_folds_are_calibrated_by_what_each_holds_out_and_averaged(k):
    dataset = made_dataset(n=400, k=k)
    plan = plan_of("logistic", steps=6, folds=3, splits=1)
    units = [run_unit(key, plan, dataset) for key in plan.units()]
    assert [unit.key.fold for unit in units] == [0, 0, 1, 2]
    judged = judge(units)
    rows = {(row.metric, row.calibration): row for row in judged.rows if row.mode != "default"}
    assert {row.mode for row in rows.values()} == {"default, 3 folds"}
    alone = judge(units[:1])
    assert [row for row in judged.rows if row.mode == "default"] == alone.rows
    assert judged.trainings == alone.trainings
    assert [timing[:6] for timing in judged.timings] == [tuple(unit.key) for unit in units]
    y_test = units[0].y_test
    for metric in ("log_loss", "refinement"):
        steps = [unit.best[metric] for unit in units[1:]]
        val, test = (
            [
                as_columns(getattr(unit, part)[step])
                for unit, step in zip(units[1:], steps, strict=True)
            ]
            for part in ("val_logits", "test_logits")
        )
        y_val = np.concatenate([unit.y_val for unit in units[1:]])
        row = rows[metric, "none"]
        assert (row.n_val, row.step) == (len(y_val), int(np.median(steps)))
        logs = np.mean(log_softmax(test, axis=2), axis=0)
        assert row.log_loss == pytest.approx(log_loss(y_test, scaled(logs, axis=1)))
        fitted = rc.TemperatureScaling().fit_logits(np.concatenate(val), y_val)
        logs = np.mean([np.log(fitted.predict_proba_logits(each)) for each in test], axis=0)
        assert rows[metric, "temperature"].log_loss == pytest.approx(
            log_loss(y_test, scaled(logs, axis=1))
        )
        assert (metric, "auto") in rows
    fewer = judge(units[:3])  # one fold failed, or is yet to come
    assert fewer.rows == alone.rows


def as_columns(logits):
    z = np.asarray(logits, np.float64)
    return np.stack([np.zeros(len(z)), z], axis=1) if z.ndim == 1 else z


# ---- files ------------------------------------------------------------------------------------------------


def same(one, other):
    for field in fields(UnitResult):
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert type(a) is type(b), field.name
        if isinstance(a, dict):
            assert list(a) == list(b), field.name
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("k", [2, 3])
def test_what_is_saved_is_loaded(tmp_path, k):
    unit = unit_of("xgboost", made_dataset(n=300, k=k), config=1, steps=3)
    unit.save(tmp_path / "unit.npz")
    assert os.listdir(tmp_path) == ["unit.npz"]
    loaded = UnitResult.load(tmp_path / "unit.npz")
    same(unit, loaded)
    assert isinstance(loaded.key, TableKey)
    assert all(each.dtype == np.float32 for each in loaded.val_logits.values())


SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from dataclasses import replace
from test_experiment_protocol import made_dataset, unit_of
for method in ("xgboost", "mlp", "lightgbm", "catboost"):
    unit = unit_of(method, made_dataset(n=300), config=1, steps=3)
    replace(unit, seconds={{}}, peak_memory=0).save({folder!r} + method + ".npz")
"""


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(tmp_path):
    here = os.path.dirname(__file__)
    script = SCRIPT.format(paths=[here, os.path.dirname(here)], folder=f"{tmp_path}{os.sep}")
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    for method in ("xgboost", "mlp", "lightgbm", "catboost"):
        unit = unit_of(method, made_dataset(n=300), config=1, steps=3)
        replace(unit, seconds={}, peak_memory=0).save(tmp_path / "again.npz")
        assert (tmp_path / "again.npz").read_bytes() == (tmp_path / f"{method}.npz").read_bytes()


def test_another_seed_gives_another_training():
    one, other = (unit_of("mlp", made_dataset(n=300), steps=2, seed=seed) for seed in (0, 1))
    assert not np.array_equal(one.history["log_loss"], other.history["log_loss"])


def damaged(path, how):
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "text":
        path.write_text("step,log_loss\n1,0.5\n")
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "flipped":
        with zipfile.ZipFile(path) as archive:
            end = archive.infolist()[1].header_offset  # of the first array
        path.write_bytes(data[: end - 9] + bytes([data[end - 9] ^ 255]) + data[end - 8 :])
    elif how == "pickle":
        with path.open("wb") as file:
            np.savez(file, **{"header.json": np.array([{"a": 1}], dtype=object)})
    else:
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, part in parts.items():
                if not name.startswith(how):
                    archive.writestr(name, part)


@pytest.mark.parametrize(
    "how", ["cut", "text", "empty", "flipped", "pickle", "header", "test_", "history", "y_val"]
)
def test_damaged_files_are_told_from_good_ones(tmp_path, how):
    path = tmp_path / "unit.npz"
    unit_of("logistic", made_dataset(n=200), steps=2).save(path)
    damaged(path, how)
    with pytest.raises(ValueError, match="is damaged.*resume the run, which computes it again"):
        UnitResult.load(path)


def test_parts_that_do_not_fit_together_are_refused(tmp_path, monkeypatch):
    unit = unit_of("logistic", made_dataset(n=200), steps=2)
    short = {step: each[:-1] for step, each in unit.test_logits.items()}
    wrong = {
        "test_logits do not have": replace(unit, test_logits=short),
        "y_val does not have": replace(unit, y_val=unit.y_val[:-1]),
    }
    for words, bad in wrong.items():
        with pytest.raises(ValueError, match=words):
            bad.save(tmp_path / "unit.npz")
        with monkeypatch.context() as patch:
            patch.setattr(UnitResult, "_check", lambda self: None)
            bad.save(tmp_path / "unit.npz")
        with pytest.raises(ValueError, match=words):
            UnitResult.load(tmp_path / "unit.npz")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        UnitResult.load(tmp_path / "unit.npz")
