"""The comparisons with rivals and of averaged models, in small: they run, go on, and count right."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_tables import write_parquets
from scipy.special import expit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import averaging  # noqa: E402
from benchmarks.one_command import cases, page  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    return write_parquets(tmp_path)


def run(name, folder, *options):
    command = [sys.executable, "-m", f"benchmarks.{name}", "--data", folder, "--workers", "1"]
    command += ["--out", folder / "out", "--splits", "1", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    file = folder / "out" / f"{name.replace('_', '-')}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()], done


@pytest.mark.slow
def test_contestants_run_and_go_on_where_they_stopped(folder):
    few = ["--contestants", "five XGBoost lr 0.1", "refinecal estimator", "refinecal fit"]
    first, _ = run("one_command", folder, "--only", "classes2", *few)
    assert len(first) == 3
    found, done = run("one_command", folder, *few, "five LightGBM lr 0.1", "five XGBoost")
    assert found[:3] == first
    assert len(found) == 10, done.stderr
    fit = next(case for case in found if case["contestant"] == "refinecal fit")
    assert 0 < fit["promised"]["error"] < fit["promised"]["loss"] < 1.2
    assert all(0.2 < case["log_loss"] < 1.2 for case in found)
    assert all(case["seconds"]["fit"] > 0 < case["cpu"]["predict"] for case in found)
    text = (folder / "out/one-command.md").read_text(encoding="utf-8")
    assert text.count("| classes2 |") == text.count("| classes3 |") == 1
    _, done = run("one_command", folder, "--time", "--only", "classes2")
    lines = (folder / "out/one-command-time.jsonl").read_text().splitlines()
    timed = {case["contestant"]: case["seconds"] for case in map(json.loads, lines)}
    assert len(timed) == 3
    assert all(seconds["whole"] >= seconds["fit"] > 0 for seconds in timed.values())
    assert "| refinecal fit, whole process |" in done.stdout


@pytest.mark.slow
def test_ways_to_stop_are_compared_where_models_are_averaged(folder):
    regime = ["--regimes", "XGBoost, our defaults", "--rounds", "4"]
    first, _ = run("averaging", folder, "--only", "classes3", *regime)
    found, _ = run("averaging", folder, *regime)
    assert found[:1] == first
    assert len(found) == 2
    for case in found:
        for metric in averaging.METRICS:
            assert case["losses"][metric].keys() == set(averaging.WAYS)
        assert averaging.OURS in case["pools"]
        assert all(0 < pool["log_loss"] < 1.2 for pool in case["pools"].values())
    assert "| classes2 |" in (folder / "out/averaging.md").read_text(encoding="utf-8")


def test_new_rows_are_of_no_training_row(folder):
    train, new = cases.cut(folder / "classes2.parquet", 0, 200)
    assert (len(train), len(new)) == (150, 50)
    assert not set(train.index) & set(new.index)
    again, _ = cases.cut(folder / "classes2.parquet", 1, 200)
    assert set(again.index) != set(train.index)


def test_sharpness_and_its_error_are_those_of_logistic_regression():
    """The best inverse temperature is a slope; its sandwich error covers the truth as often as it should."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(200):
        odds = rng.normal(0, 2, 1000)
        y = (rng.random(1000) < expit(1.25 * odds)).astype(int)
        beta, error = cases.sharpness(y, np.stack([expit(-odds), expit(odds)], axis=1))
        covered.append(abs(beta - 1.25) <= 1.96 * error)
    assert 0.9 < np.mean(covered) < 0.99


def test_scores():
    probs = np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5], [0.9, 0.1]])
    found = cases.score(np.array([0, 1, 1, 1]), probs)
    losses = -np.log([0.8, 0.6, 0.5, 0.1])
    assert found["log_loss"] == pytest.approx(losses.mean())
    assert found["log_loss_error"] == pytest.approx(losses.std(ddof=1) / 2)
    assert found["brier"] == pytest.approx(2 * np.mean([0.04, 0.16, 0.25, 0.81]))
    assert found["entropy"] == pytest.approx(-0.25 * np.log(0.25) - 0.75 * np.log(0.75))


def made(table, split, name, loss, promised=None, beta=1.0, seconds=1.0):
    return {
        "table": table,
        "split": split,
        "contestant": name,
        "n_train": 20_000,
        "entropy": 0.5,
        "log_loss": loss,
        "log_loss_error": 0.03,
        "brier": loss,
        "beta": beta,
        "beta_error": 0.1,
        "cpu": {"fit": seconds, "predict": 0.1},
        "promised": {} if promised is None else {"loss": promised, "error": 0.04},
    }


def test_what_the_page_says():
    ours = "refinecal fit"
    done = [
        made("a", 0, ours, 0.20, promised=0.29, beta=1.19, seconds=2.0),
        made("a", 1, ours, 0.22, promised=0.33, beta=1.21, seconds=4.0),
        made("b", 0, ours, 0.40, promised=0.40, beta=0.79, seconds=3.0),
        made("a", 0, page.YARDSTICK, 0.25),
        made("a", 1, page.YARDSTICK, 0.25),
        made("b", 0, page.YARDSTICK, 0.39),
        made("a", 0, f"{ours}, before", 0.3),
    ]
    assert page.names_of(done) == [ours, f"{ours}, before", page.YARDSTICK]
    # -0.05 and -0.03 on a, +0.01 on b, over an entropy of a half
    assert page.differences(done, ours, page.YARDSTICK) == pytest.approx([-0.08, 0.02])
    assert page.part(done, ours, page.calibrated) == "33%"  # 1.96 errors of 0.1 on either side
    assert page.part(done, ours, page.kept) == "67%"  # 1.96 errors of 0.05 on either side
    assert page.ratio(done, ours, large=True) == "3.0 × (most 4.0)"
    assert page.ratio(done, ours, large=False) == "–"
    assert "1 of 2" in page.summary(done)


def test_pools_are_compared_with_rivals_at_equal_time():
    ours, theirs = "refinecal auto, 60 s", "AutoGluon medium, 60 s"
    done = [
        made("a", 0, ours, 0.20),
        made("b", 0, ours, 0.30),
        made("c", 0, ours, 0.10),
        made("a", 0, theirs, 0.25),
        made("b", 0, theirs, 0.29),
    ]
    for case in done:
        case["seconds"] = {"fit": 60.0 if case["contestant"] == ours else 50.0}
    _, table = page._budget_section(done)
    (row,) = table.splitlines()[2:]
    name, against, n, loss, other, _, wins, seconds, _ = row.strip("| ").split(" | ")
    assert (name, against, n, wins) == (ours, theirs, "2", "1 of 2")
    assert float(loss) == pytest.approx((0.2 + 0.3) / 0.5 / 2)  # c was not run by both
    assert float(other) == pytest.approx((0.25 + 0.29) / 0.5 / 2)
    assert seconds == "60 (60)"
    assert page._budget_section(done[:3]) == []
