"""The comparison of calibrators, in small: predictions, judgement, tables, figure, races."""

import json
import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from sklearn.metrics import log_loss

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.calibrators import figure, judge, models, page, predictions, speed, summary  # noqa: E402
from benchmarks.calibrators.__main__ import report  # noqa: E402
from benchmarks.calibrators.contestants import Part, methods, one_vs_rest  # noqa: E402
from benchmarks.evidence import read_split  # noqa: E402

FEW = ["none", "refinecal temperature", "refinecal isotonic", "scikit-learn isotonic"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of two small tables."""
    made = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    for k in (2, 3):
        X = pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b [m]", "c<d"])
        X["kind"] = pd.Categorical(rng.choice(["u", "v", "w"], 300))
        X["target"] = pd.qcut(X["a"] + rng.normal(size=300), k, labels=False)
        X.to_parquet(made / f"classes{k}.parquet")
    return made


def predict(folder, **changes):
    options = {"data": folder, "out": folder / "predictions", "only": None, "rows": 150, "steps": 3}
    predictions.run(Namespace(**(options | {"models": list(models.MODELS)} | changes)))
    return predictions.stored(folder / "predictions")


def judged(folder, **changes):
    options = {"predictions": folder / "predictions", "judged": folder / "judged", "only": FEW}
    options |= {"again": False, "paper": False, "tables": None, "workers": 1, "verbose": False}
    judge.run(Namespace(**(options | changes)))
    return summary.read(folder / "judged")


@pytest.fixture(scope="module")
def found(folder):
    """Return what all of a few methods achieved on all predictions."""
    predict(folder)
    return judged(folder)


def test_predictions_are_made_once(folder):
    files = predict(folder)
    assert len(files) == 2 * len(models.MODELS)
    stamps = [file.stat().st_mtime_ns for file in files]
    assert [file.stat().st_mtime_ns for file in predict(folder)] == stamps
    for file in files:
        case = predictions.read(file)
        k = int(case.table[-1])
        assert case.val_logits.shape == (48, k)
        assert case.test_logits.shape == (60, k)
        assert case.val_logits.dtype == np.float32
        assert models.accuracy(case.test_logits, case.test_labels) > 1 / k  # better than chance


def test_the_step_is_the_first_of_the_best_accuracy(folder):
    import xgboost as xgb

    split = predictions.renamed(read_split(folder / "classes3.parquet", 0, 10_000))
    val, _, step = models.xgboost(split, 5)
    found = []
    for rounds in range(1, 6):  # trained again for each number of rounds
        model = xgb.XGBClassifier(n_estimators=rounds, enable_categorical=True, random_state=0)
        margins = model.fit(split.X, split.y).predict(split.X_val, output_margin=True)
        found.append(models.accuracy(margins, split.y_val))
        if rounds == step:
            np.testing.assert_allclose(val, margins, atol=1e-6)
    assert step == np.argmax(found) + 1


def test_losses_of_no_calibration_are_those_of_the_model(folder, found):
    for column, case in enumerate(found.cases):
        stored = predictions.read(folder / f"predictions/{case['table']}.{case['model']}.npz")
        part = Part(stored.test_logits, stored.test_labels)
        shares = np.bincount(part.labels) / len(part.labels)
        constant = log_loss(part.labels, np.tile(shares, (len(part.labels), 1)))
        expected = log_loss(part.labels, part.probs) / constant
        np.testing.assert_allclose(found.loss["log"][found.at("none"), column], expected)
        one_hot = np.eye(part.k)[part.labels]
        brier = ((part.probs - one_hot) ** 2).sum() / ((shares - one_hot) ** 2).sum()
        np.testing.assert_allclose(found.loss["brier"][found.at("none"), column], brier)


def test_judging_goes_on_where_it_stopped(folder, found):
    before = {file: file.stat().st_mtime_ns for file in (folder / "judged").glob("*/*.npz")}
    more = judged(folder, only=[*FEW, "scikit-learn sigmoid"])
    assert set(more.methods) == {*found.methods, "scikit-learn sigmoid"}
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in before.items())


def test_failures_are_told_and_do_not_stop_the_rest(folder, tmp_path, monkeypatch):
    def breaks(part):
        raise FloatingPointError("no such luck")

    def spins(part):
        end = time.process_time() + 5
        while time.process_time() < end:
            pass

    def not_normalised(part):
        return lambda new: 2 * new.probs

    bad = {"bad breaks": breaks, "bad spins": spins, "bad sums": not_normalised}
    monkeypatch.setattr(
        judge, "methods", lambda paper: [*bad.items(), ("none", dict(methods())["none"])]
    )
    monkeypatch.setattr(judge, "MOST_SECONDS", 0.1)
    predict(folder)
    found = judged(folder, judged=tmp_path, only=None, tables=["classes2"])
    found = summary.read(tmp_path)
    assert not np.isnan(found.loss["log"][found.at("none")]).any()
    errors = {name: next(iter(each.values())) for name, each in found.failures.items()}
    assert errors["bad breaks"] == "FloatingPointError: no such luck"
    assert errors["bad spins"].startswith("TooSlow")
    assert "sum to 1" in errors["bad sums"]
    text = page.failures(found)
    assert all(name in text for name in bad)


def test_probabilities_of_zero_are_lifted_and_counted():
    log, brier, lifted = judge.row_losses(np.array([0, 1]), np.array([[0.0, 1.0], [0.5, 0.5]]))
    np.testing.assert_allclose(log, [-np.log(judge.FLOOR), np.log(2)])
    np.testing.assert_allclose(brier, [2.0, 0.5])
    assert lifted == 1


def test_one_against_the_rest_of_a_map_that_changes_nothing():
    logits = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    part = Part(logits, np.arange(20) % 4)
    same = one_vs_rest(lambda part: lambda new: new.probs)
    np.testing.assert_allclose(same(part)(part), part.probs, atol=1e-12)


def make_summary(**gaps):
    """Return a summary of ten cases in which each method is so far above auto, with errors of 0.01."""
    names = ["refinecal auto", *gaps]
    values = np.array(
        [np.full(10, 0.5), *(0.5 + np.asarray(gap) * np.ones(10) for gap in gaps.values())]
    )
    errors = {"refinecal auto": np.full(values.shape, 0.01)}
    cases = [
        {"table": f"t{at}", "model": "xgboost", "n_val": 20_000, "n_test": 9, "k": 2}
        for at in range(10)
    ]
    times = np.geomspace(1e-3, 1, len(names))[:, None] * np.ones(10)
    return summary.Summary(
        *(names, cases, dict.fromkeys(("log", "brier"), values)),
        *({"log": errors, "brier": errors}, times, 0 * times, 0 * times),
        *(dict.fromkeys(("log", "brier"), np.ones(len(cases))), {}),
    )


def test_wins_and_losses_are_beyond_the_noise():
    gap = np.array([0.1, 0.1, 0.019, 0.02, 0.0, -0.019, -0.02, -0.1, -0.1, -0.1])
    found = make_summary(rival=gap)
    verdicts = found.verdicts("rival")
    assert verdicts.tolist() == [1, 1, 0, 1, 0, 0, -1, -1, -1, -1]  # 1.96 times 0.01 is noise
    assert summary.best_or_tied(found).tolist() == (verdicts >= 0).tolist()


def test_errors_are_those_of_paired_differences(folder, found):
    case = found.cases[0]
    rows = {
        name: np.load(folder / f"judged/{name}/{case['table']}.{case['model']}.npz")["log"]
        for name in FEW
    }
    shares = np.bincount(
        predictions.read(predictions.stored(folder / "predictions")[0]).test_labels
    )
    shares = shares / shares.sum()
    gaps = (rows["none"] - rows["refinecal temperature"]) / -np.sum(shares * np.log(shares))
    expected = np.sqrt(np.mean((gaps - gaps.mean()) ** 2) / len(gaps))
    error = found.error["log"]["refinecal temperature"][found.at("none"), 0]
    np.testing.assert_allclose(error, expected, rtol=1e-4)


def test_the_interval_is_over_tables():
    found = make_summary(rival=np.arange(10.0))
    for at, case in enumerate(found.cases):
        case["table"] = (
            "even" if at % 2 == 0 else "odd"
        )  # means 4 and 5, so a standard error of 0.5
    low, high = summary.interval(found, np.arange(10.0))
    np.testing.assert_allclose((low + high) / 2, 4.5)
    half = np.tan(0.475 * np.pi) * 0.5  # with one degree of freedom, Student's t is Cauchy's law
    np.testing.assert_allclose((high - low) / 2, half)


@pytest.mark.parametrize(("beaten", "word"), [(1, "reached"), (5, "**missed**")])
def test_temperature_on_small_sets(beaten, word):
    found = make_summary(
        **{"refinecal temperature": np.where(np.arange(10) < beaten, -0.1, 0.0), "none": 1}
    )
    for case in found.cases:
        case["n_val"] = 100
    assert page.targets(found).splitlines()[-1].endswith(f"| {word} |")


@pytest.mark.parametrize(("gap", "word"), [(0.1, "reached"), (-0.1, "**missed**")])
def test_targets_are_told_apart(gap, word):
    lines = page.targets(make_summary(rival=gap)).splitlines()[2:]
    assert len(lines) == 2
    assert all(line.endswith(f"| {word} |") for line in lines)


def test_the_report_is_written(folder, found, tmp_path):
    report(Namespace(judged=folder / "judged", out=tmp_path))
    text = (tmp_path / "calibrators.md").read_text(encoding="utf-8")
    assert "| **refinecal temperature** | 8 |" in text  # there is no auto here: it is the reference
    content = json.loads((tmp_path / "calibrators.json").read_text())
    assert len(content["cases"]) == len(content["methods"]["none"]["log"]) == 8
    assert {file.name for file in tmp_path.glob("*.svg")} == {
        "calibrators.svg",
        "calibrators-xgboost.svg",
    }


def test_names_in_the_figure_do_not_overlap():
    rng = np.random.default_rng(0)
    found = make_summary(
        none=0.1, **{f"probmetrics method-{at}": rng.normal() / 50 for at in range(30)}
    )
    drawn = figure.draw(found, np.ones(10, dtype=bool), "title")
    drawn.draw_without_rendering()  # puts the names in their places
    for ax in drawn.axes:
        boxes = [Text.get_window_extent(text) for text in ax.texts]  # without their lines
        assert len(boxes) == 31
        assert not any(a.overlaps(b) for at, a in enumerate(boxes) for b in boxes[:at])


def test_races_have_ratios(tmp_path):
    options = {"most_rows": 1_000, "quick": True, "out": tmp_path}
    speed.run(Namespace(only=["refinecal isotonic", "brier_score"], **options))
    races = json.loads((tmp_path / "calibrator-speed.json").read_text())["races"]
    assert {race["what"] for race in races} == {"refinecal isotonic", "brier_score"}
    for race in races:
        assert race["ours"]["seconds"] > 0
        assert race["rivals"]
    values = [
        (race["ours"]["value"], race["rivals"]["scikit-learn"]["value"]) for race in races[-2:]
    ]
    np.testing.assert_allclose(*np.transpose(values))  # both sum over the classes


def test_a_race_that_is_short_of_what_was_asked_is_told():
    slow, fast = speed.Time(10.0, 3, 0.5), speed.Time(1.0, 3, 0.5)
    lost = speed.Race("refinecal spline", 1000, 2, slow, {"splinecalib": fast})
    won = speed.Race("refinecal venn-abers", 1000, 2, slow, {speed.PLAIN: speed.Time(2.1, 3, 0.5)})
    broken = speed.Race("mce", 1000, 2, speed.Time(None, error="Oh"), {"netcal": fast})
    text = speed.page([lost, won, broken])
    short = text.split("## Short of what was asked")[1].split("## All races")[0]
    assert "splinecalib" in short
    assert "| mce |" in short
    assert speed.PLAIN not in short  # at most five times slower is what was asked
