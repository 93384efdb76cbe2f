"""``refinecal experiment status`` and ``report`` of trainings on images that came to no numbers."""

import json
from functools import partial

import pytest
from command_runs import run_command
from made_images import write_images
from made_vision import made_plan, made_run, made_unit

from refinecal.cli.experiment import experiment_app
from refinecal.cli.experiment_status import summary

run = partial(run_command, experiment_app)
WHY = "the training loss of epoch 3 is nan"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a run in which one training diverged, patience ended one, and one came to its end."""
    monkeypatch.chdir(tmp_path)
    plan = made_plan(seeds=3, epochs=5)
    first, second, _ = plan.units()
    made = made_run("run", plan, without=[second], stopped={first: WHY})
    made_unit(second, plan, "no better for 2 epochs", ended=4).save(made.unit_path(second))
    return made


def test_what_diverged_is_counted_apart(folder):
    found = summary(folder)
    assert (found["finished"], found["ended_early"], found["failed"], found["missing"]) == (
        2,
        1,
        0,
        0,
    )
    assert found["endings"] == [
        {"dataset": "cifar10", "model": "resnet18", "seed": 0, "message": WHY}
    ]
    (method,) = found["methods"]
    assert (method["finished"], method["ended_early"]) == (2, 1)
    assert json.loads(run("status", "run", "--json")[0])["ended_early"] == 1


def test_what_diverged_is_told_with_its_cure(folder):
    out = " ".join(run("status", "run", columns=100)[0].split())
    assert "run: 2 of 3 training runs finished, 1 ended early (loss not finite)" in out
    assert f"1 training run ended early (resnet18 on cifar10): {WHY}" in out
    assert "The same would happen again: start a new run with a smaller --lr" in out
    assert "--retry-failed" not in out  # which would change nothing
    assert "Report: refinecal experiment report run" in out


def test_a_run_in_which_all_diverged_says_the_same_wherever_one_looks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = made_plan(seeds=2, epochs=5)
    made_run("run", plan, stopped=dict.fromkeys(plan.units(), WHY))
    out = " ".join(run("status", "run", columns=100)[0].split())
    assert "run: 0 of 2 training runs finished, 2 ended early (loss not finite)" in out
    assert "2 training runs ended early (resnet18 on cifar10)" in out
    assert "refinecal experiment report" not in out
    _, err = run("report", "run", code=1)
    said = f"run has nothing to compare: all training runs (2) ended early ({WHY}). Start a new run with"
    assert f"{said} a smaller --lr" in " ".join(err.split())


def test_a_result_that_is_damaged_within_does_not_end_the_status(folder):
    path = folder.unit_path(folder.plan.units()[2])
    raw = bytearray(path.read_bytes())
    raw[30:400] = bytes(370)
    path.write_bytes(raw)
    found = summary(folder)
    assert (found["finished"], found["ended_early"]) == (2, 1)


def test_nothing_is_said_of_it_where_nothing_diverged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_run("run", made_plan(seeds=2, epochs=5))
    out, _ = run("status", "run", "-v")
    assert "run: 2 of 2 training runs finished" in out
    assert "early" not in out


@pytest.mark.slow
def test_a_real_run_that_diverges_ends_with_the_code_of_failures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_images("images")
    few = ("--data", "images", "--no-check", "--dataset", "fashion-mnist", "--model", "small")
    quick = ("--epochs", 2, "--seeds", 1, "--batch", 32, "--threads", 1, "--device", "cpu")
    out, _ = run(
        "vision", *few, *quick, "--precision", "float32", "--lr", 1e30, "--out", "run", code=3
    )
    said = " ".join(out.split())
    assert "run: 0 of 1 training run finished, 1 ended early (loss not finite)" in said
    assert "start a new run with a smaller --lr" in said
    _, err = run("report", "run", code=1)
    assert "all training runs (1) ended early" in " ".join(err.split())
