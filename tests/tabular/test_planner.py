"""Several kinds of models within a time limit: a clock that only training advances says what is trained."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import mixed

import refinecal as rc
from refinecal._core.files import RunFolder
from refinecal.evaluation import row_losses
from refinecal.tabular import planner, portfolio
from refinecal.tabular.clock import Clock, duration
from refinecal.tabular.data import Options, prepare
from refinecal.tabular.fit_folder import FitFolder
from refinecal.tabular.fitting import (
    Candidate,
    NullProgress,
    TableFolds,
    fit,
    plan,
    take_some,
)
from refinecal.tabular.job import FitRequest, leaderboard, open_fit
from refinecal.tabular.judgement import describe_delivered, describe_pool, judge
from refinecal.tabular.planner import Planner, fit_in_time
from refinecal.tabular.portfolio import draw_all, installed_kinds, missing_kinds
from refinecal.tabular.run import Run, write_model
from refinecal.tabular.schema import Schema
from refinecal.training import pool
from refinecal.training.crossfit import Disagreement, Ensemble, HeldOut, all_classes
from refinecal.training.rows import Rows

KINDS = ("lightgbm", "logistic", "extra-trees")
FAST = {"model": "auto", "max_steps": 6, "patience": 6, "n_threads": 1}


@pytest.fixture(autouse=True, scope="module")
def _few_kinds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portfolio, "PACKAGES", {kind: portfolio.PACKAGES[kind] for kind in KINDS})
        yield


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return a fit with enough time."""
    return fitted(tmp_path_factory.mktemp("fit"))


@pytest.fixture(scope="module")
def untested(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("fit"), test_fraction=0.0)


class Simulated(NullProgress):
    """A clock that each step of training advances, more for slower kinds; remembers what was said."""

    def __init__(self, seconds=0.0, **of_kinds):
        self.time, self.seconds, self.of_kinds = 0.0, seconds, of_kinds
        self.said, self.runs, self.names = [], [], {}
        self.stop_after = None

    def say(self, text):
        self.said.append(text)

    def start(self, run, name, max_steps):
        self.names[run] = name.split()[0]

    def step(self, run, number, record):
        if number == 1:
            self.runs.append(self.names[run])
            if self.stop_after is not None and len(self.runs) > self.stop_after:
                raise KeyboardInterrupt
        self.time += self.of_kinds.get(self.names[run].replace("-", "_"), self.seconds)


def fitted(folder, progress=None, limit=np.inf, table=None, resume=False, test=None, **options):
    table = mixed(240) if table is None else table
    options = Options(**(FAST | {"folds": 3} | options))
    schema = Schema.infer(table, "kind", drop=["weight", "family"])
    data = prepare(table, schema, options, test)
    progress = Simulated() if progress is None else progress
    clock = Clock(limit, now=lambda: progress.time, start=0.0)
    work = FitFolder(folder / "work")
    work.open(plan(data, options), resume)
    clock.before = work.elapsed()
    return fit_in_time(data, options, work, progress, clock)


def worth(value):
    """Return a training run of this refinement."""
    return SimpleNamespace(choices={"refinement": SimpleNamespace(value=value)})


def kinds_of(found, units):
    return {found.candidates[unit.candidate].kind for unit in units}


# ---- enough time ------------------------------------------------------------------------------------------


def test_with_enough_time_all_kinds_are_trained_on_all_folds(found):
    assert {member.name for member in found.members} == set(KINDS)
    assert all(len(member.units) == 3 for member in found.members)
    assert sum(member.weight for member in found.members) == pytest.approx(1)
    assert len(found.delivered) == 3 * len(found.used)
    assert found.n_retrained == len(found.used)
    for unit in found.delivered:  # no test rows in what was judged, all rows in what is delivered
        assert all(choice.test_logits is None for choice in unit.choices.values())
    assert [member.refinement for member in found.members] == sorted(
        member.refinement for member in found.members
    )


def test_the_pool_is_the_weighted_mean_of_its_members_calibrated(tmp_path):
    found = fitted(tmp_path, table=mixed(400), folds=2)
    pool, k = found.final.ensemble, 3
    selected = pool.selected
    means = []
    for member in found.used:
        logits = [unit.test_logits("refinement", k) for unit in member.units]
        calibrator = member.tested.ensemble.calibrator
        means.append(np.mean([calibrator.predict_proba_logits(each) for each in logits], axis=0))
    probs = np.array(means)
    weights = np.array([member.weight for member in found.used])
    if selected.pool == "arithmetic":
        mean = np.einsum("m,mnk->nk", weights, probs)
    else:
        mean = np.exp(np.einsum("m,mnk->nk", weights, np.log(probs)))
    expected = selected.calibrator.predict_proba_logits(np.log(mean))
    assert pool.beta > 1  # the models of the folds disagree, so their mean is underconfident
    frequencies = next(iter(pool.groups.values())).frequencies
    sharp = expected**pool.beta * frequencies ** (1 - pool.beta)
    sharp /= sharp.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.final.after, sharp, rtol=1e-5, atol=1e-7)


def test_a_stored_pool_predicts_as_its_members_do(tmp_path):
    found = fitted(tmp_path / "fit", table=mixed(400), folds=2)
    assert found.ensemble.beta > 1
    folder = tmp_path / "run"
    folder.mkdir()
    write_model(found, folder)
    RunFolder(folder).write_manifest()
    run, new = Run.load(folder), mixed(50, seed=4)
    assert run.model == "auto"
    assert {model.name for model in run.members} == kinds_of(found, found.delivered)
    assert not any(path.suffix in (".pkl", ".joblib") for path in folder.rglob("*"))
    X, models, means = run.schema.encode(new), iter(run.members), {}
    for name, group in found.ensemble.groups.items():
        logits = [all_classes(next(models).logits(X), known, 3) for known in group.known]
        means[name] = group.predict_proba(logits)
    pool, expected = found.ensemble, found.ensemble.selected.predict_proba(means)
    assert run.ensemble.beta == pool.beta
    sharp = expected**pool.beta * next(iter(pool.groups.values())).frequencies ** (1 - pool.beta)
    expected = sharp / sharp.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(run.predict_proba(new), expected, atol=1e-12)


def test_without_an_ensemble_the_best_kind_is_delivered(tmp_path):
    found = fitted(tmp_path, ensemble=False)
    assert found.pooled is None
    assert len(kinds_of(found, found.delivered)) == 1
    values = {}
    for record in found.history:
        key = record["candidate"], record["fold"]
        values[key] = min(values.get(key, np.inf), record["refinement"])
    means = {c: np.mean([values[c, fold] for fold in range(3)]) for c in range(3)}
    assert found.chosen.candidate == min(means, key=means.get)


def test_random_configurations_of_each_kind_feed_the_pool(tmp_path):
    options = Options(model="auto", tune=3)
    candidates = draw_all(options)
    # A regularization path has two ways to scale, and no parameters.
    assert [each.kind for each in candidates] == [*KINDS, *KINDS, "lightgbm", "extra-trees"]
    assert [each.is_random for each in candidates] == [False] * 3 + [True] * 5
    found = fitted(tmp_path, tune=2)
    names = {member.name for member in found.members}
    assert names == {*KINDS, "lightgbm 3", "logistic 4", "extra-trees 5"}


def test_one_model_with_a_limit_is_the_same_as_without_if_there_is_time(tmp_path):
    found = fitted(tmp_path / "limit", limit=1e9, model="lightgbm", tune=2)
    table = mixed(240)
    options = Options(**(FAST | {"folds": 3, "model": "lightgbm", "tune": 2}))
    data = prepare(table, Schema.infer(table, "kind", drop=["weight", "family"]), options)
    folder = FitFolder(tmp_path / "work")
    folder.open(plan(data, options), False)
    usual = fit(data, options, folder)
    np.testing.assert_array_equal(found.chosen.after, usual.chosen.after)
    assert found.chosen.candidate == usual.chosen.candidate
    assert [unit.fold for unit in found.delivered] == [unit.fold for unit in usual.delivered]
    assert found.ensemble.beta == usual.ensemble.beta


def test_a_test_set_may_be_absent(untested):
    found = untested
    assert judge(found) is None
    assert found.data.everything is None
    assert found.validation_loss > 0
    assert "test_log_loss" not in leaderboard(found)[0]
    assert "of validation rows" in describe_pool(found, None)


def test_the_loss_of_rows_held_out_of_a_pool(untested):
    found = untested
    pool, losses = found.ensemble, []
    for fold in range(3):
        means = {}
        for member in found.used:
            unit = member.units[fold]
            held_out = unit.held_out("refinement", 3)
            means[member.name] = pool.groups[member.name].calibrator.predict_proba_logits(
                held_out.logits
            )
        losses.append(row_losses(held_out.y, pool.join(means)))
    assert found.validation_loss == pytest.approx(np.concatenate(losses).mean())


# ---- little time ------------------------------------------------------------------------------------------


def test_there_is_always_a_result(tmp_path):
    progress = Simulated(1.0)
    found = fitted(tmp_path, progress, limit=0.001)
    assert progress.runs == ["lightgbm"]
    assert progress.said[-1].startswith("Later, if there is time: logistic, extra-trees")
    assert len(found.delivered) == 1
    assert found.data.everything is None
    assert found.final.after.shape == (48, 3)
    assert "one model" in describe_delivered(found, judge(found))


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10_000))
def test_the_limit_is_kept(tmp_path_factory, seed):
    """But for a step of training, and for what must be trained to have a result."""
    rng = np.random.default_rng(seed)
    speeds = {kind.replace("-", "_"): float(rng.exponential(0.5)) for kind in KINDS}
    progress, limit = Simulated(**speeds), float(rng.uniform(3, 40))
    fitted(tmp_path_factory.mktemp("run"), progress, limit)
    assert progress.time <= limit + max(speeds.values())


def test_a_slow_kind_is_not_given_the_time_of_the_others(tmp_path):
    progress = Simulated(0.01, extra_trees=20.0)
    found = fitted(tmp_path, progress, limit=60.0)
    assert progress.time <= 60 + 20
    assert {"lightgbm", "logistic"} <= {member.name for member in found.members}
    assert found.n_retrained == len(found.used)


def test_without_time_for_all_rows_the_tested_models_are_delivered(tmp_path):
    progress = Simulated(1.0)
    found = fitted(tmp_path, progress, limit=30.0, folds=3)
    assert found.n_retrained == 0
    assert found.data.everything is None
    assert found.delivered == found.tested
    np.testing.assert_allclose(
        found.ensemble.predict_proba(unit.test_logits("refinement", 3) for unit in found.delivered),
        found.final.after,
    )
    assert "none of which are test rows" in describe_delivered(found, judge(found))


def test_folds_that_are_trained_one_after_the_other_share_the_time(tmp_path):
    options = Options(**(FAST | {"folds": 3, "max_steps": 50, "patience": 50}))
    table = mixed(240)
    data = prepare(table, Schema.infer(table, "kind", drop=["weight", "family"]), options)
    work, progress = FitFolder(tmp_path / "work"), Simulated(1.0)
    work.open(plan(data, options), False)
    clock = Clock(100.0, now=lambda: progress.time, start=0.0)
    folds = TableFolds(data, options, draw_all(options), work, progress, clock)
    models = Planner(folds).train(data.pairs, 0, range(3), seconds=20.0)
    lengths = [len(model.history) for model in models]
    assert sum(lengths) <= 20
    assert max(lengths) - min(lengths) <= 1  # the first one would have taken all


def test_models_that_are_trained_again_share_the_time(tmp_path):
    progress = Simulated(1.0)
    options = {"model": "lightgbm", "max_steps": 500, "patience": 500}
    found = fitted(tmp_path, progress, limit=100.0, **options)
    lengths = [len(model.history) for model in found.delivered]
    assert found.n_retrained == 1
    assert max(lengths) - min(lengths) <= 2


def test_few_rows_are_drawn_twice_if_there_is_time(tmp_path):
    found = fitted(tmp_path / "slow", Simulated(1.0), limit=120.0, folds="auto")
    assert max(len(each.known) for each in found.groups.values()) <= 5
    found = fitted(tmp_path / "fast", limit=120.0, folds="auto")
    assert {len(each.known) for each in found.groups.values()} == {10}
    assert (found.data.everything.n_first, len(found.data.everything)) == (5, 10)
    assert len(found.delivered) == 10 * len(found.used)
    assert found.change_with_all_rows is not None
    folder = tmp_path / "run"
    folder.mkdir()
    write_model(found, folder)
    RunFolder(folder).write_manifest()
    probs = Run.load(folder).predict_proba(mixed(50))
    np.testing.assert_allclose(probs.sum(axis=1), 1)


@pytest.mark.parametrize(("n", "expected"), [(4000, 800), (15_000, 2000)])
def test_several_kinds_are_tested_on_at_most_two_thousand_rows(n, expected):
    x = np.arange(n) % 7
    table = pa.table({"kind": np.where(np.arange(n) % 3, "a", "b"), "x": x, "z": np.arange(n)})
    schema = Schema.infer(table, "kind")
    data = prepare(table, schema, Options("auto"))
    assert abs(data.test.n - expected) <= 2  # as many of each class
    others = prepare(
        table, schema, Options(time_limit=9.0)
    )  # which may be given when a run is resumed
    assert abs(others.test.n - n / 5) <= 2


def test_kinds_that_are_trained_one_by_one_and_several_at_once_make_a_pool(tmp_path):
    """Extra trees train four folds at once, logistic regression one: there is time for fewer than four."""
    progress = Simulated(0.02, logistic=2.0)
    found = fitted(tmp_path, progress, limit=70.0, n_threads=4, folds=5, max_steps=6)
    assert len({len(member.units) for member in found.members}) == 1
    assert np.isfinite(found.final.after).all()


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 10_000))
def test_several_folds_at_once_within_any_limit(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    speeds = {kind.replace("-", "_"): float(rng.exponential(1.0)) for kind in KINDS}
    progress, limit = Simulated(**speeds), float(rng.uniform(1, 60))
    folder = tmp_path_factory.mktemp("run")
    found = fitted(folder, progress, limit, n_threads=4, folds=5)
    assert np.isfinite(found.chosen.after).all()


def test_the_loss_of_a_pool_is_that_of_its_members_whatever_their_order(tmp_path, monkeypatch):
    """The heaviest member is not the best one: each gets the calibrator and the weight that are its own."""
    original = pool.select_ensemble

    def turned(*args, **options):
        found = original(*args, **options)
        order = np.argsort([row["refinement"] for row in found.table])
        names = [found.table[place]["member"] for place in order]
        weights = dict(zip(names, (0.2, 0.3, 0.5), strict=True))  # the worst one the most
        table = [row | {"weight": weights[row["member"]]} for row in found.table]
        ordered = np.array([weights[name] for name in found.names])
        return replace(found, weights=ordered, table=table)

    monkeypatch.setattr(pool, "select_ensemble", turned)
    found = fitted(tmp_path, test_fraction=0.0)
    names = [member.name for member in found.used]
    assert names == list(found.groups) == list(found.final.ensemble.groups)
    assert names != [member.name for member in found.members]
    losses = []
    for fold in range(3):
        means = {}
        for member in found.used:
            held_out = member.units[fold].held_out("refinement", 3)
            calibrator = found.groups[member.name].calibrator
            means[member.name] = calibrator.predict_proba_logits(held_out.logits)
        probs = found.final.ensemble.selected.predict_proba(means)
        losses.append(row_losses(held_out.y, probs))
    assert found.validation_loss == pytest.approx(np.concatenate(losses).mean())


def test_a_pool_of_fewer_models_is_sharpened_less():
    disagreement = Disagreement(shared=1.0, own=0.5)
    rng = np.random.default_rng(0)
    y, logits = rng.integers(2, size=200), rng.normal(size=(200, 2))
    held_out = [HeldOut(logits, y, None, np.arange(200))]
    known = np.arange(2)
    ensemble = Ensemble.fit(held_out, [known], "temperature", range(2))
    selected = rc.select_ensemble(y, logits=logits[None], cv=None)
    betas = []
    for m in (2, 5):
        groups = {
            "a": replace(ensemble, known=(known,) * m),
            "b": replace(ensemble, known=(known,) * 5),
        }
        betas.append(pool.Pool(groups, selected).sharpen(disagreement, np.inf).beta)
    assert betas == pytest.approx([1.5 / 1.25, 1.5 / 1.1])  # (s + o) / (s + o / m)
    assert pool.Pool(groups, selected).sharpen(None, 10).beta == 1


def test_a_run_that_was_finished_before_needs_no_time(tmp_path):
    """Killed near the limit: what is done is used, though there is no time for anything else."""
    cut = Simulated(0.5)
    cut.stop_after = 6
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path, cut, limit=60.0)
    found = fitted(tmp_path, Simulated(0.5), limit=cut.time + 2.0, resume=True)
    assert len(found.members) == len(KINDS)


def test_one_kind_has_all_the_time(tmp_path):
    progress = Simulated(1.0)
    options = {"model": "lightgbm", "max_steps": 500, "patience": 500}
    fitted(tmp_path, progress, limit=100.0, **options)
    assert 70 <= progress.time <= 101


def test_a_kind_of_no_use_does_not_take_the_time_of_better_ones(tmp_path):
    """Extra trees are slow here, and a pool has no use for them."""
    progress = Simulated(0.05, extra_trees=1.5)
    found = fitted(tmp_path, progress, limit=60.0, max_steps=None, patience=5)
    weights = {member.name: member.weight for member in found.members}
    assert progress.time <= 60 + 1.5
    assert weights["lightgbm"] > 0
    assert found.n_retrained == len(found.used)


def test_more_configurations_until_they_no_longer_help(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "ROWS_PER_MEMBER", 1)
    options = {"limit": 1e6, "time_limit": 1e6, "folds": 2}
    found = fitted(tmp_path / "all", Simulated(0.01), **options)
    names = {member.name for member in found.members}
    assert names > set(KINDS)
    monkeypatch.setattr(planner, "IN_VAIN", 1)
    monkeypatch.setattr(planner, "BETTER", 1.0)  # nothing is
    found = fitted(tmp_path / "one", Simulated(0.01), **options)
    assert len(found.members) == len(KINDS) + 1
    monkeypatch.setattr(planner, "ROWS_PER_MEMBER", 200)  # and there are 192
    found = fitted(tmp_path / "few", Simulated(0.01), **options)
    assert len(found.members) == len(KINDS)


def test_fewer_rows_if_there_is_no_time_for_all():
    y = np.repeat([0, 1, 2], [900, 99, 1])
    rows = Rows(np.arange(1000).reshape(-1, 1), y).with_keys()
    some = take_some(rows, 50, 0)
    assert 50 <= some.n <= 53
    assert set(some.y) == {0, 1, 2}
    assert take_some(rows, 1000, 0) is rows


def test_rows_are_limited_by_the_time_that_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "CELLS_PER_SECOND", 10)
    progress = Simulated()
    found = fitted(tmp_path, progress, limit=40.0)
    assert any("rows: there is no time for more" in text for text in progress.said)
    assert f"{found.most_rows / 240:.0%} of all 240 rows" in describe_delivered(found, judge(found))


def test_a_kind_that_cannot_be_trained_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setitem(portfolio.TUNED, "lightgbm", {"boosting": "nonsense"})
    with pytest.warns(RuntimeWarning, match="lightgbm is skipped"):
        found = fitted(tmp_path)
    assert {member.name for member in found.members} == {"logistic", "extra-trees"}


def test_one_kind_that_cannot_be_trained_is_an_error(tmp_path, monkeypatch):
    wrong = [Candidate("mlp", {"learning_rates": 1})]
    monkeypatch.setattr(planner, "draw_all", lambda *_: wrong)
    with pytest.raises(ValueError, match="learning_rate"):
        fitted(tmp_path, model="mlp")


def test_what_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr(portfolio, "find_spec", lambda name: None if name == "lightgbm" else name)
    assert installed_kinds() == ["hist-gb", "logistic", "extra-trees"]
    assert missing_kinds() == ["lightgbm"]


def test_what_is_not_installed_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(portfolio, "find_spec", lambda name: None if name == "lightgbm" else name)
    progress = Simulated()
    fitted(tmp_path, progress)
    assert "Not installed: lightgbm. Get all with: pip install 'refinecal[auto]'" in progress.said


def test_a_kind_that_is_as_good_alone_gets_the_time_that_is_left():
    found = Planner(None, units={0: [worth(1.0)], 1: [worth(1.05)], 2: [worth(1.2)]})
    assert [found._is_near_best(number) for number in (0, 1, 2, 3)] == [True, True, False, False]


# ---- interrupted ------------------------------------------------------------------------------------------


def test_an_interrupted_run_continues_with_the_time_that_is_left(tmp_path):
    whole = fitted(tmp_path / "whole", Simulated(0.1), limit=100.0)
    cut = Simulated(0.1)
    cut.stop_after = 5
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "cut", cut, limit=100.0)
    rest = Simulated(0.1)
    found = fitted(tmp_path / "cut", rest, limit=100.0, resume=True)
    assert "(95 s left)" in rest.said[0]  # 5 runs of 6 steps of 0.1 s, and some for the report
    assert len(rest.runs) + 5 == len(whole.delivered) + 9
    np.testing.assert_array_equal(found.final.after, whole.final.after)


def test_time_before_the_interruption_counts(tmp_path):
    cut = Simulated(1.0)
    cut.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path, cut, limit=30.0)
    rest = Simulated(1.0)
    fitted(tmp_path, rest, limit=30.0, resume=True)
    assert cut.time >= 12  # three runs
    assert rest.time <= 30 - cut.time + 1


# ---- real processes ---------------------------------------------------------------------------------------


def command(table, *options):
    call = [sys.executable, "-m", "refinecal", "fit", str(table), "--target", "kind"]
    return [*call, "--drop", "weight", "--drop", "family", *options]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "mixed.parquet"
    pq.write_table(mixed(300), path)
    return path


def test_the_command_says_its_plan_and_shows_the_leaderboard(table, tmp_path):
    run = tmp_path / "run"
    options = ["--model", "auto", "--time-limit", "100", "--max-steps", "5", "--out", str(run)]
    options += ["--folds", "2"]
    done = subprocess.run(command(table, *options), capture_output=True, text=True, check=True)
    assert "Plan: xgboost, " in done.stdout
    assert "refinement  log loss  test loss  seconds" in done.stdout
    assert "he ensemble of " in done.stdout or "No ensemble was better" in done.stdout
    found = json.loads((run / "metrics.json").read_text())
    assert sum(row["weight"] for row in found["leaderboard"]) == pytest.approx(1)
    assert found["plan"]
    assert "Leaderboard" in (run / "report.html").read_text()
    out = tmp_path / "predictions.parquet"
    call = [sys.executable, "-m", "refinecal", "predict", str(run), str(table), "--out", str(out)]
    subprocess.run(call, capture_output=True, check=True)
    probs = pa.table(pq.read_table(out)).select([f"p_{label}" for label in found["classes"]])
    np.testing.assert_allclose(sum(np.array(column) for column in probs.columns), 1, atol=1e-6)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX")
def test_a_killed_command_is_resumed(table, tmp_path):
    run = tmp_path / "run"
    options = ["--model", "auto", "--time-limit", "60", "--max-steps", "8", "--out", str(run)]
    options += ["--folds", "2"]
    process = subprocess.Popen(command(table, *options), stdout=subprocess.DEVNULL)
    work = FitFolder(run)
    end = time.monotonic() + 60
    while work.n_finished < 2 and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = work.n_finished
    assert kept >= 2
    done = subprocess.run(
        command(table, *options, "--resume"), capture_output=True, text=True, check=True
    )
    assert f"resuming: {kept} training runs are done, after " in done.stdout
    assert not work.path.exists()
    assert Run.load(run).model == "auto"


def test_the_time_of_an_unfinished_run_is_in_its_folder(table, tmp_path):
    options = Options(model="logistic", folds=2, time_limit=100, max_steps=3)
    request = FitRequest(table, "kind", tmp_path / "run", options, drop=("weight", "family"))

    def fit_and_fail():
        with open_fit(request) as job:
            fit_in_time(job.data, options, job.folder, None, job.clock)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fit_and_fail()
    assert 0 < FitFolder(Path(request.out)).elapsed() < 100


def test_durations():
    assert [duration(each) for each in (0.2, 119, 121, 3600, 7200)] == [
        "1 s",
        "119 s",
        "2 min",
        "60 min",
        "2.0 h",
    ]


def test_metrics_are_compared_for_the_best_candidate_and_not_for_the_pool(found):
    ways = judge(found).ways
    assert ways["refinement"].difference_after.mean == 0
    y = found.data.test.y
    losses = [
        row_losses(y, found.outcomes[name].after).mean() for name in ("refinement", "log_loss")
    ]
    assert ways["log_loss"].difference_after.mean == pytest.approx(losses[0] - losses[1])


# ---- groups, and what goes wrong late ---------------------------------------------------------------------


def test_groups_stay_together_when_members_are_chosen(tmp_path, monkeypatch):
    """Places of held-out rows are those of the whole table, of which test rows are a part."""
    seen, original = [], pool.select_ensemble
    monkeypatch.setattr(
        pool, "select_ensemble", lambda *a, **k: seen.append(k["groups"]) or original(*a, **k)
    )
    table = mixed(240)
    options = Options(**FAST, folds=3)
    schema = Schema.infer(table, "kind", drop=["weight"], group="family")
    data = prepare(table, schema, options)
    assert data.test.n > 0
    work = FitFolder(tmp_path / "work")
    work.open(plan(data, options), False)
    found = fit_in_time(data, options, work, NullProgress(), Clock())
    units = found.members[0].units
    families = np.array(table["family"].to_pylist())[
        np.concatenate([each.places for each in units])
    ]
    pairs = set(zip(seen[-1].tolist(), families.tolist(), strict=True))
    assert len(pairs) == len(np.unique(seen[-1])) == len(np.unique(families))  # one for one


def test_kinds_that_came_too_late_are_trained_if_time_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "FIRST_SHARE", 0.0)
    progress = Simulated(0.01)
    found = fitted(tmp_path, progress, limit=1000.0)
    assert "Later, if there is time: logistic, extra-trees." in progress.said
    assert {member.name for member in found.members} == set(KINDS)


def test_kinds_that_fail_on_a_later_fold_keep_the_first(tmp_path, monkeypatch):
    train = planner.TableFolds.train

    def fails(self, parts, candidate, fold):
        if fold > 0:
            raise ValueError("unlucky fold")
        return train(self, parts, candidate, fold)

    monkeypatch.setattr(planner.TableFolds, "train", fails)
    with pytest.warns(RuntimeWarning, match="is skipped: unlucky fold"):
        found = fitted(tmp_path)
    assert len(found.units) == 1
    assert np.isfinite(found.chosen.after).all()
