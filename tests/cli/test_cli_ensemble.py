"""``refinecal ensemble``: tables in, an ensemble and its predictions out."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
from command_runs import invoke

import refinecal as rc
from refinecal.cli.app import app

pytestmark = pytest.mark.usefixtures("blank_figures")
run = partial(invoke, app)
CLASSES = ["cat", "dog", "owl"]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Write predictions of three models for rows that choose, and for new rows; return both."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = 1.5 * rng.normal(size=(400, 3))
    y = (truth + rng.gumbel(size=(400, 3))).argmax(axis=1)
    (tmp_path / "new").mkdir()
    stack = {}
    for name, beta in (("forest", 3.0), ("net", 1.0), ("tree", 0.5)):
        z = beta * (truth + rng.normal(size=(400, 3)))
        probs = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        stack[name] = probs
        table = pd.DataFrame(probs, columns=[f"p_{label}" for label in CLASSES])
        table = table.assign(kind=np.array(CLASSES)[y], site=np.arange(400) // 8)
        table[:300].to_parquet(f"{name}.parquet")
        table[300:].to_csv(f"new/{name}.csv", index=False)
    return np.array(CLASSES)[y], stack


FILES = ["forest.parquet", "net.parquet", "tree.parquet"]


def test_the_ensemble_is_that_of_the_library(made, tmp_path):
    y, stack = made
    out, _ = run("ensemble", *FILES, "-t", "kind", "-o", "e.json", "--report", "r.html")
    assert max(map(len, out.splitlines())) <= 80
    assert "Leaderboard" in (tmp_path / "r.html").read_text()
    assert "after temperature scaling, by cross-validation" in " ".join(out.split())
    found = rc.SelectedEnsemble.load("e.json")
    ours = rc.select_ensemble(y[:300], {name: p[:300] for name, p in stack.items()})
    np.testing.assert_allclose(found.weights, ours.weights)
    printed = json.loads(run("ensemble", *FILES, "-t", "kind", "--json")[0])
    assert printed["weights"] == found.weights.tolist()
    assert printed["names"] == ["forest", "net", "tree"]


def test_an_ensemble_is_applied_to_new_files(made):
    y, stack = made
    run("ensemble", *FILES, "-t", "kind", "-o", "e.json", "-q")
    new = [f"new/{name}.csv" for name in ("tree", "net", "forest")]  # in any order
    out, _ = run("ensemble", *new, "--apply", "e.json", "-o", "p.parquet", "-t", "kind")
    assert out.strip() == "Predictions of 100 rows: p.parquet"
    table = pd.read_parquet("p.parquet")
    found = rc.SelectedEnsemble.load("e.json")
    expected = found.predict_proba({name: p[300:] for name, p in stack.items()})
    np.testing.assert_allclose(table[[f"p_{label}" for label in CLASSES]], expected, atol=1e-9)
    assert table["kind"].tolist() == y[300:].tolist()
    assert table["prediction"].tolist() == np.array(CLASSES)[expected.argmax(axis=1)].tolist()
    run("evaluate", "p.parquet", "-t", "kind", "-q")
    printed = json.loads(run("ensemble", *new, "--apply", "e.json", "-o", "q.csv", "--json")[0])
    assert printed == {"rows": 100, "out": "q.csv", "classes": CLASSES}


def test_options_reach_the_library(made):
    found = json.loads(
        run(
            "ensemble", *FILES, "-t", "kind", "--json", "--metric", "brier", "--pool", "geometric",
            "--members", "raw", "--max-picks", 4, "--folds", 3, "--calibrator", "vector",
            "--group", "site", "--bags", 3,
        )[0]
    )  # fmt: skip
    assert (found["metric"], found["pool"], found["members"]) == ("brier", "geometric", "raw")
    assert len(found["path"]) == 4
    assert len(found["kinds"]) == 1
    assert found["calibrator"]["kind"] == "VectorScaling"


def test_weights_and_groups_are_those_of_the_first_file(made):
    run("ensemble", *FILES, "-t", "kind", "--group", "site", "-o", "e.json", "-q")
    for name in FILES[1:]:
        pd.read_parquet(name).drop(columns="site").to_parquet(name)
    run("ensemble", *FILES, "-t", "kind", "--group", "site", "-o", "f.json", "-q")
    found, expected = (rc.SelectedEnsemble.load(name) for name in ("f.json", "e.json"))
    assert found.to_dict() == expected.to_dict()


@pytest.mark.parametrize(
    "option",
    [
        *(
            "--metric=brier",
            "--pool=auto",
            "--members=raw",
            "--max-picks=3",
            "--bags=2",
            "--folds=3",
        ),
        *("--calibrator=vector", "--weight=w", "--group=site", "--report=r.html", "--seed=1"),
    ],
)
def test_options_of_choosing_contradict_apply(made, option):
    _, err = run("ensemble", *FILES, "--apply", "e.json", "-o", "p.csv", option, code=2)
    assert f"{option.split('=')[0]}" in err
    assert "contradicts --apply" in " ".join(err.replace("│", " ").split())


def test_rows_without_a_group_are_refused(made):
    table = pd.read_parquet("net.parquet").assign(site=[None, *map(str, range(299))])
    table.to_parquet("net.parquet")
    _, err = run("ensemble", "net.parquet", "tree.parquet", "-t", "kind", "--group", "site", code=1)
    assert "is missing" in " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([*FILES], 2, "name the column of the label"),
        (["net.parquet", "-t", "kind"], 2, "at least two tables"),
        ([*FILES, "-t", "kind", "-o", "e.parquet"], 2, "does not end in .json"),
        ([*FILES, "-t", "king"], 1, "--target is 'king'"),
        ([*FILES, "-t", "kind", "--metric", "los"], 2, "must be one of"),
        ([*FILES, "-t", "kind", "--calibrator", "warm"], 1, "--calibrator is 'warm'"),
        ([*FILES, "--apply", "e.json"], 2, "name the file of the predictions"),
        (
            [*FILES, "-t", "kind", "--group", "sit"],
            1,
            "--group is 'sit', but forest.parquet has no",
        ),
        ([*FILES, "--apply", "none.json", "-o", "p.csv"], 1, "none.json"),
        (["net.parquet", "--apply", "e.json", "-o", "p.csv"], 1, "are missing"),
        (["net.parquet", "--apply", "bad.json", "-o", "p.csv"], 1, "bad.json"),
        (["net.parquet", "--apply", "e.json", "-o", "net.parquet"], 1, "would overwrite an input"),
        (["net.parquet", "net.parquet", "-t", "kind"], 1, "the same file is named twice"),
        (["net.parquet", "new/tree.csv", "-t", "kind"], 1, "100 rows"),
    ],
)
def test_errors(made, tmp_path, arguments, code, message):
    run("ensemble", *FILES, "-t", "kind", "-o", "e.json", "-q")
    (tmp_path / "bad.json").write_text("{")
    _, err = run("ensemble", *arguments, code=code)
    assert message in " ".join(err.split())
