"""Every model of the command line, trained for real: what the monitor sees, what is kept, what is saved."""

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from threading import Event

import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost as xgb
from full_disk import small_files
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import QuantileTransformer

import refinecal as rc
from refinecal.training import neighbors
from refinecal.training.encoding import Encoding, code_positions, most_frequent, to_matrix
from refinecal.training.mlp import predict, to_batch
from refinecal.training.mlp_training import Progress, _cosine, _limit_threads, forward
from refinecal.training.rows import Rows
from refinecal.training.table_model import MODELS, get_model
from refinecal.training.trainer import TrainingRun

FORESTS = ("extra-trees", "random-forest")
STEPS = {"logistic": 8, "mlp": 6, "knn": 14} | dict.fromkeys(FORESTS, 4)  # 25 rounds of the others
SMALL = {"mlp": {"n_layers": 2, "hidden_size": 16, "learning_rate": 0.01}}
BOOSTING = ("xgboost", "lightgbm", "catboost", "hist-gb")
METRICS = ("refinement", "log_loss", "brier", "accuracy")


def category(codes, n):
    """Return codes, -1 where missing, as Schema.encode does."""
    return pd.Categorical.from_codes(np.asarray(codes), categories=range(n))


def mixed(n=500, k=2, seed=0):
    """Return a table with numbers, categories and missing values, and labels that depend on both."""
    rng = np.random.default_rng(seed)
    size, colour, shop = rng.normal(size=n), rng.integers(0, 3, n), rng.integers(0, 30, n)
    score = size + (colour == 1) + 0.7 * (shop % k) + rng.normal(size=n)
    y = np.digitize(score, np.quantile(score, np.linspace(0, 1, k + 1)[1:-1])).astype(np.int64)
    X = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, size),
            "colour": category(np.where(rng.random(n) < 0.1, -1, colour), 4),  # 3 is never seen
            "noise": rng.exponential(size=n),
            "shop": category(shop, 30),
        }
    )
    return X, y


def halves(X, y):
    half = len(y) // 2
    return X[:half].reset_index(drop=True), y[:half], X[half:].reset_index(drop=True), y[half:]


def digits():
    X, y = load_digits(return_X_y=True)
    return halves(pd.DataFrame(X.astype(np.float64)), y.astype(np.int64))


def letters(k=26, n=520):
    rng = np.random.default_rng(3)
    y = np.arange(n) % k
    X = pd.DataFrame(rng.normal(size=(k, 4))[y] + rng.normal(size=(n, 4)))
    return halves(X, y.astype(np.int64))


def new_monitor(patience=None):
    return rc.RefinementMonitor(also=METRICS[1:], patience=patience, stop_on="all")


def train(name, data, monitor=None, max_steps=None, **options):
    X, y, X_val, y_val = data
    k = options.pop("n_classes", int(y.max()) + 1)
    options = {"params": SMALL.get(name, {}), "n_threads": 1, **options}
    rows = Rows(X, y, options.pop("weights", None))
    val = Rows(X_val, y_val, options.pop("weights_val", None))
    monitor = new_monitor() if monitor is None else monitor
    max_steps = STEPS.get(name, 25) if max_steps is None else max_steps
    run = TrainingRun(rows, val, np.arange(k), monitor, max_steps, **options)
    return get_model(name).train(run)


def odd_rows(X):
    """Return rows with values that training never saw: all missing, unseen categories, huge numbers."""
    odd = X[:6].copy()
    for name in X:
        if hasattr(X[name].dtype, "categories"):
            top = X[name].cat.categories.max()
            odd[name] = category([-1, top, top, 0, -1, 0], top + 1)
        else:
            odd[name] = [np.nan, np.nan, 1e300, -1e300, np.inf, -np.inf]
    return pd.concat([X, odd], ignore_index=True)


def risk(y, logits, weights=None):
    """Return the mean log loss."""
    z = np.stack([np.zeros(len(y)), logits], axis=1) if logits.ndim == 1 else logits
    return np.average(-log_softmax(z.astype(float), axis=1)[np.arange(len(y)), y], weights=weights)


# ---- what the monitor sees -------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_the_monitor_sees_every_step(name, k):
    data = halves(*mixed(k=k))
    monitor, seen = new_monitor(), []
    model = train(name, data, monitor, on_step=seen.append)
    n = STEPS.get(name, 25)
    assert [record["step"] for record in monitor.history] == list(range(1, n + 1)) == seen
    assert model.n_steps == n
    assert model.step == monitor.best_step
    for best in monitor.bests.values():
        logits = model.logits(data[2], best.step)
        assert logits.shape == ((250,) if k == 2 else (250, k))
        assert np.isclose(risk(data[3], logits), best.record["log_loss"], rtol=1e-5)
    assert np.array_equal(model.logits(data[2]), model.logits(data[2], monitor.best_step))


@pytest.mark.parametrize("name", MODELS)
def test_training_can_be_stopped_at_any_step(name):
    """As a time limit does, which lowers the number of steps while a model is trained."""
    X, y, X_val, y_val = halves(*mixed(k=3))
    monitor, params = new_monitor(), SMALL.get(name, {})
    run = TrainingRun(Rows(X, y), Rows(X_val, y_val), np.arange(3), monitor, 25, params, 0, 1)
    run.on_step = lambda step: setattr(run, "max_steps", 2) if step == 2 else None
    model = get_model(name).train(run)
    assert len(monitor.history) == 2
    assert model.step == monitor.best_step <= 2


@pytest.mark.parametrize("name", BOOSTING)
def test_boosting_keeps_every_round(name):
    data = halves(*mixed(k=3))
    monitor = new_monitor()
    model = train(name, data, monitor, max_steps=20)
    for record in monitor.history:
        logits = model.logits(data[2], int(record["step"]))
        assert np.isclose(risk(data[3], logits), record["log_loss"], rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_training_stops_when_all_metrics_are_out_of_patience(name):
    data = halves(*mixed(seed=1))
    monitor, seen = new_monitor(patience=3), []
    most = {"mlp": 60, "logistic": 30, "knn": 14}.get(name, 300)
    params = {"learning_rate": 0.5}
    if name == "mlp":
        params = SMALL["mlp"] | {"learning_rate": 0.03}
    elif name in ("logistic", "knn", *FORESTS):
        params = {}
    model = train(name, data, monitor, most, params=params, on_step=seen.append)
    assert monitor.should_stop
    assert len(monitor.history) < most
    last = max(best.step for best in monitor.bests.values())
    assert seen[-1] == model.n_steps == last + 3
    assert model.logits(data[2], last).shape == (250,)


@pytest.mark.parametrize("name", MODELS)
def test_learning_beats_chance_on_real_data(name):
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    two = halves(pd.DataFrame(X[order]), y[order].astype(np.int64))
    for data, k in ((two, 2), (digits(), 10)):
        options = {"params": {}} if name == "mlp" else {}
        model = train(name, data, max_steps=STEPS.get(name, 12), **options)
        assert risk(data[3], model.logits(data[2])) < 0.6 * np.log(k)


# ---- the same as the library gives without us -------------------------------------------------------------


def replay(name, data, step, weights, model):
    """Train the library's own model for so many steps, and return its validation logits."""
    X, y, X_val, _ = data
    A, B = to_matrix(X), to_matrix(X_val)
    k, columns = int(y.max()) + 1, [1, 3]
    if name == "xgboost":
        types = ["q", "c", "q", "c"]
        kind = {"objective": "binary:logistic"}
        if k > 2:
            kind = {"objective": "multi:softprob", "num_class": k}
        rows = xgb.DMatrix(A, y, weight=weights, feature_types=types, enable_categorical=True)
        booster = xgb.train({**kind, "tree_method": "hist", "nthread": 1}, rows, step)
        rows = xgb.DMatrix(B, feature_types=types, enable_categorical=True)
        return booster.predict(rows, output_margin=True)
    if name == "lightgbm":
        kind = {"objective": "multiclass", "num_class": k} if k > 2 else {"objective": "binary"}
        params = {**kind, "verbosity": -1, "num_threads": 1, "force_col_wise": True, "seed": 0}
        rows = lgb.Dataset(A, y, weight=weights, categorical_feature=columns, params=params)
        return lgb.train(params | {"deterministic": True}, rows, step).predict(B, raw_score=True)
    if name == "catboost":
        frames = [
            pd.DataFrame({j: M[:, j] if j % 2 == 0 else _whole(M[:, j]) for j in range(4)})
            for M in (A, B)
        ]
        again = catboost.CatBoostClassifier(
            iterations=step,
            # By default CatBoost fits it to the number of rounds.
            learning_rate=model.model.get_all_params()["learning_rate"],
            loss_function="Logloss" if k == 2 else "MultiClass",
            verbose=False,
            allow_writing_files=False,
            random_seed=0,
            thread_count=1,
        )
        again.fit(frames[0], y, cat_features=columns, sample_weight=weights)
        return again.predict(frames[1], prediction_type="RawFormulaVal")
    again = HistGradientBoostingClassifier(
        max_iter=step, early_stopping=False, categorical_features=columns, random_state=0
    )
    return again.fit(A, y, sample_weight=weights).decision_function(B)


def _whole(column):
    return np.where(np.isnan(column), -1, column).astype(np.int64)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("name", BOOSTING)
@pytest.mark.sweep(3)
def test_replay_without_a_monitor(name, k, weighted):
    data = halves(*mixed(k=k))
    weights = np.random.default_rng(5).uniform(0.2, 3, len(data[1])) if weighted else None
    monitor = new_monitor()
    model = train(name, data, monitor, weights=weights)
    again = replay(name, data, monitor.best_step, weights, model)
    assert np.allclose(model.logits(data[2]), again, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [2, 4])
def test_replay_of_logistic_regression(k):
    data = halves(*mixed(k=k))
    monitor = new_monitor()
    model = train("logistic", data, monitor, max_steps=30)
    X = pd.get_dummies(data[0], columns=["colour", "shop"], dtype=float)
    X_val = pd.get_dummies(data[2], columns=["colour", "shop"], dtype=float)
    for one in (X, X_val):
        one["is_missing"] = one["size"].isna() * 1.0
        one["size"] = one["size"].fillna(data[0]["size"].median())
    for name in ("size", "noise"):
        X_val[name] = (X_val[name] - X[name].mean()) / X[name].std(ddof=0)
        X[name] = (X[name] - X[name].mean()) / X[name].std(ddof=0)
    for step in (1, 10, 20):
        strength = 100 * 1e-8 ** ((step - 1) / 29)  # from 100 to 1e-6 in 30 equal factors
        again = LogisticRegression(C=1 / (strength * len(X)), tol=1e-8, max_iter=10_000)
        again.fit(X, data[1])
        found = model.logits(data[2], step)
        assert np.allclose(found, again.decision_function(X_val), atol=0.01)


@pytest.mark.parametrize("k", [2, 3])
def test_neighbors_are_those_of_scikit_learn(k):
    X, y, X_val, y_val = data = halves(*mixed(k=k))
    model = train("knn", data, params={"scaling": "standard"})
    encoding = model.encoding

    def one_hot(X):
        codes = encoding.positions(X)
        columns = [codes == code for code in range(encoding.n_codes + 1)]  # of any column
        wide = np.stack([np.any(each, axis=1) for each in columns], axis=1)
        return np.hstack([encoding.numbers(X), wide / np.sqrt(2)])  # so that two differ by 1

    near = float(model.known["near"])
    first = KNeighborsClassifier(1).fit(one_hot(X), y).kneighbors(one_hot(X), 2)[0][:, 1]
    assert near == pytest.approx(0.1 * np.median(first), rel=1e-3)
    for step, size in ((4, 4), (9, 24), (14, 128)):
        votes = KNeighborsClassifier(size, weights=lambda d: 1 / (d + near)).fit(one_hot(X), y)
        n = len(y_val)
        probs = n / (n + 1) * votes.predict_proba(one_hot(X_val)) + 1 / (n + 1) / k
        found = np.exp(log_softmax(with_columns(model.logits(X_val, step)), axis=1))
        # Rows at the same distance are taken in any order.
        assert np.mean(np.abs(found - probs).max(axis=1) < 1e-3) > 0.97


def with_columns(logits):
    return logits if logits.ndim == 2 else np.stack([0 * logits, logits], axis=1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("name", FORESTS)
def test_replay_of_forests(name, k, weighted):
    """The same votes as scikit-learn's forest of as many trees, each smoothed as one row among 250."""
    data = halves(*mixed(k=k))
    weights = np.random.default_rng(5).uniform(0.2, 3, 250) if weighted else None
    model = train(name, data, weights=weights, max_steps=3, params={"min_samples_leaf": 4})
    kind = {"extra-trees": ExtraTreesClassifier, "random-forest": RandomForestClassifier}[name]
    rows = odd_rows(data[2])
    for step in (1, 3):
        again = kind(10, min_samples_leaf=4, random_state=0, warm_start=True)
        for n_trees in range(10, 10 * step + 1, 10):
            again.set_params(n_estimators=n_trees).fit(to_matrix(data[0]), data[1], weights)
        probs = (250 * again.predict_proba(to_matrix(rows)) + 1 / k) / 251
        logits = np.log(probs) if k > 2 else np.log(probs[:, 1] / probs[:, 0])
        assert np.allclose(model.logits(rows, step), logits, rtol=1e-6, atol=1e-6)


def test_a_forest_of_many_rows_has_fewer_trees(monkeypatch):
    one_round = train("extra-trees", halves(*mixed()), max_steps=1).trees.n_bytes
    monkeypatch.setattr("refinecal.training.forest.MOST_BYTES", 3 * one_round)
    model = train("extra-trees", halves(*mixed()), max_steps=30)
    assert 3 <= model.n_steps <= 5
    assert model.trees.n_bytes < 5 * one_round


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_replay_of_the_mlp(dropout):
    data = halves(*mixed(k=3))
    monitor, params = new_monitor(), SMALL["mlp"] | {"dropout": dropout, "weight_decay": 1e-3}
    before = torch.get_rng_state(), torch.get_num_threads()
    model = train("mlp", data, monitor, 8, params=params)
    again = train("mlp", data, max_steps=monitor.best_step, params=params)
    found = again.logits(data[2], max(again.nets)), model.logits(data[2], max(again.nets))
    assert np.array_equal(*found)
    other = train("mlp", data, max_steps=monitor.best_step, params=params, seed=1)
    assert not np.array_equal(other.logits(data[2], max(other.nets)), found[0])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]


def test_the_mlp_is_the_one_that_torch_layers_make():
    data = halves(*mixed(k=3))
    model = train("mlp", data, max_steps=3, params={"n_layers": 3, "hidden_size": 16})
    net = {name: torch.from_numpy(each) for name, each in model.nets[model.step].items()}
    encoding = model.encoding
    one_hot = np.zeros((len(data[2]), encoding.n_codes + 1))
    for column in encoding.positions(data[2]).T:
        one_hot[np.arange(len(column)), column] = 1
    inputs = np.concatenate([encoding.numbers(data[2]), one_hot[:, :-1]], axis=1)
    layers = [torch.nn.Linear(inputs.shape[1], 16), torch.nn.ReLU()]
    layers += [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU()]
    twin = torch.nn.Sequential(*layers, torch.nn.Linear(16, 3))
    first = torch.cat([net["numbers"], net["codes"][:-1].T], dim=1)
    names = [("bias_0", first), ("bias_1", net["weight_1"]), ("bias_2", net["weight_2"])]
    with torch.no_grad():
        for layer, (bias, weight) in zip(
            [*twin[::2]], [*names, ("bias_out", net["weight_out"])], strict=True
        ):
            layer.weight.copy_(weight)
            layer.bias.copy_(net[bias])
        expected = twin(torch.from_numpy(inputs.astype(np.float32))).numpy()
    assert np.allclose(model.logits(data[2]), expected, rtol=1e-4, atol=1e-5)


def test_threads_of_torch_are_restored_by_blocks_that_overlap():
    """As runs in two threads: the first to begin is not the last to end."""
    before, steps = torch.get_num_threads(), [Event() for _ in range(4)]

    def first():
        with _limit_threads(1):
            steps[0].set()
            steps[1].wait(10)
        with _limit_threads(1):  # a second run of the same thread, while the other is still inside
            steps[2].set()
            steps[3].wait(10)

    def second():
        steps[0].wait(10)
        with _limit_threads(1):
            steps[1].set()
            steps[2].wait(10)
        steps[3].set()

    with ThreadPoolExecutor(2) as workers:
        for each in [workers.submit(first), workers.submit(second)]:
            each.result()
        inside = [workers.submit(torch.get_num_threads).result() for _ in range(4)]
    assert torch.get_num_threads() == before
    assert set(inside) == {before}


def test_networks_predict_no_rows():
    model = train("mlp", halves(*mixed()), max_steps=1, params=WAVY)
    assert model.logits(mixed()[0][:0]).shape == (0,)


@pytest.mark.parametrize("scaling", ["standard", "quantile"])
def test_neighbors_of_rows_far_from_all_others(scaling):
    model = train("knn", halves(*mixed()), params={"scaling": scaling})
    assert np.isfinite(model.logits(odd_rows(mixed()[0]))).all()


def test_neighbors_are_fewer_where_many_rows_ask(monkeypatch):
    monkeypatch.setattr(neighbors, "FEWEST_ROWS", 10)
    monkeypatch.setattr(neighbors, "MOST_PAIRS", 250 * 40)  # there are 250 validation rows
    model = train("knn", halves(*mixed()))
    assert len(model.known["y"]) == 40
    assert np.isfinite(model.logits(mixed()[0])).all()


def test_neighbors_where_nothing_differs(tmp_path):
    _, y = mixed()
    X = pd.DataFrame({"same": np.ones(len(y)), "nothing": np.nan})
    model = train("knn", halves(X, y))
    assert np.isfinite(model.logits(X)).all()
    model.save(tmp_path)
    assert np.array_equal(get_model("knn").load(tmp_path).logits(X), model.logits(X))


WAVY = {"n_layers": 2, "hidden_size": 16, "n_frequencies": 5, "learning_rate": 0.01}


@pytest.mark.parametrize("k", [2, 4])
def test_numpy_predicts_what_torch_trains(k, tmp_path):
    data = halves(*mixed(k=k))
    X_val = data[2]
    model = train("mlp", data, max_steps=3, params=WAVY | {"schedule": "cosine"})
    net = {name: torch.from_numpy(each) for name, each in model.nets[model.step].items()}
    numbers, positions = map(torch.from_numpy, to_batch(model.encoding, X_val))
    expected = forward(net, numbers, positions).numpy()
    expected = expected if k > 2 else expected[:, 1] - expected[:, 0]
    assert np.allclose(model.logits(X_val), expected, rtol=1e-5, atol=1e-5)
    model.save(tmp_path)
    assert np.array_equal(get_model("mlp").load(tmp_path).logits(X_val), model.logits(X_val))


def test_the_cosines_of_a_number_are_mixed_by_number():
    model = train("mlp", halves(*mixed()), max_steps=1, params=WAVY)
    net, encoding = model.nets[1], model.encoding
    n = encoding.n_numbers
    assert net["frequencies"].shape == net["phases"].shape == (n, 5)
    assert net["numbers"].shape == (16, 4 * n)
    x = np.random.default_rng(0).normal(size=(1, n)).astype(np.float32)
    inputs = [*x[0]]
    for j in range(n):
        waves = np.cos(x[0, j] * net["frequencies"][j] + net["phases"][j])
        inputs += [*(waves @ net["mix"][j] + net["mix_bias"][j])]
    hidden = np.maximum(net["numbers"] @ np.array(inputs) + net["bias_0"], 0)
    hidden = np.maximum(net["weight_1"] @ hidden + net["bias_1"], 0)
    outputs = net["weight_out"] @ hidden + net["bias_out"]
    codes = np.full((1, len(encoding.code_starts) - 1), encoding.n_codes)  # never seen
    assert np.allclose(predict(net, (x, codes)), outputs[1] - outputs[0], rtol=1e-4, atol=1e-5)


def test_the_learning_rate_falls_like_a_cosine_after_a_warm_up():
    assert _cosine(0.0) == pytest.approx(0.1)
    assert _cosine(0.5) == pytest.approx(0.5)
    assert _cosine(1.0) == pytest.approx(0.0)
    rates = [_cosine(done) for done in np.linspace(0.05, 1, 50)]
    assert rates == sorted(rates, reverse=True)


def test_a_schedule_ends_when_the_time_is_up():
    """An epoch takes some time; when there is left as much as for two, two epochs are the whole."""
    X, y, X_val, y_val = halves(*mixed())
    run = TrainingRun(
        Rows(X, y), Rows(X_val, y_val), np.arange(2), new_monitor(), 50, {}, 0, 1, None
    )
    progress = Progress(run)
    assert progress.at(0.5) == 0.5 / 50
    run.step, progress.start = 4, progress.start - 40.0  # 10 s each
    run.seconds_left = lambda: 20.0
    progress.start_epoch()
    assert progress.total == pytest.approx(6, abs=0.01)
    assert progress.at(0.0) == pytest.approx(4 / 6, abs=0.01)
    run.seconds_left = lambda: 1e9  # more time does not make it longer again
    progress.start_epoch()
    assert progress.total == pytest.approx(6, abs=0.01)


def test_an_unknown_schedule_is_an_error():
    with pytest.raises(ValueError, match="schedule is 'cosin': .*Did you mean 'cosine'"):
        train("mlp", halves(*mixed()), max_steps=1, params={"schedule": "cosin"})


def test_predictions_of_networks_need_no_torch(tmp_path):
    data = halves(*mixed())
    X_val = data[2]
    model = train("mlp", data, max_steps=1)
    model.save(tmp_path)
    X_val.to_pickle(tmp_path / "rows.pkl")
    code = f"""
import sys, pandas as pd
from refinecal.training.table_model import get_model
rows = pd.read_pickle({str(tmp_path / "rows.pkl")!r})
print(repr(float(get_model("mlp").load({str(tmp_path)!r}).logits(rows).sum())), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    total, has_torch = done.stdout.split()
    assert float(total) == pytest.approx(float(model.logits(X_val).sum()), rel=1e-5)
    assert has_torch == "False"


def test_the_default_mlp_is_the_papers():
    model = train("mlp", halves(*mixed()), max_steps=1, params={})
    shapes = {name: tuple(weight.shape) for name, weight in model.nets[1].items()}
    hidden = [shapes[f"weight_{i}"] for i in (1, 2, 3)]
    assert hidden == [(256, 256)] * 3
    assert shapes["numbers"] == (256, 3)  # two numbers, one of them with a mark where it is missing
    assert shapes["codes"] == (3 + 30 + 1, 256)
    assert "weight_4" not in shapes
    assert get_model("mlp").default_steps == 256


# ---- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_the_disk_does_not_take_leaves_nothing(name, tmp_path):
    model = train(name, halves(*mixed(k=2)), max_steps=2)
    path = tmp_path / model.file_name
    with pytest.raises(OSError, match="File too large") as caught, small_files(100):
        model.save(tmp_path)
    assert caught.value.filename == str(path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_predicts_the_same(name, k, tmp_path):
    data = halves(*mixed(k=k))
    monitor = new_monitor()
    model, rows = train(name, data, monitor), odd_rows(data[2])
    for best in monitor.bests.values():
        model.save(tmp_path, best.step)
        loaded = get_model(name).load(tmp_path)
        assert os.listdir(tmp_path) == [model.file_name]
        expected = model.logits(rows, best.step)
        assert np.isfinite(expected).all()
        assert np.array_equal(loaded.logits(rows), expected)
        assert loaded.step == loaded.n_steps
        assert (loaded.n_classes, loaded.n_features) == (k, 4)
    model.save(tmp_path)
    loaded = get_model(name).load(tmp_path)
    assert np.array_equal(loaded.logits(rows), model.logits(rows))
    assert np.array_equal(loaded.logits(rows[:1]), model.logits(rows[:1]))


@pytest.mark.parametrize("name", BOOSTING)
def test_a_saved_model_is_cut(name, tmp_path):
    model = train(name, halves(*mixed()))
    model.save(tmp_path, 7)
    loaded = get_model(name).load(tmp_path)
    assert loaded.n_steps == 7
    with pytest.raises(ValueError, match="step is 8: the model has the rounds 1..7"):
        loaded.logits(mixed()[0], 8)
    loaded.save(tmp_path, 3)  # and can be cut again
    again = get_model(name).load(tmp_path)
    assert np.array_equal(again.logits(mixed()[0]), model.logits(mixed()[0], 3))


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def wrong_files(tmp_path, victim):
    """Yield pickles of three kinds, then files that are damaged."""
    pickled = pickle.dumps(Hostile(victim))
    objects = tmp_path / "objects.npz"
    np.savez(objects, weights=np.array([Hostile(victim)], dtype=object), allow_pickle=True)
    torch_file = tmp_path / "torch.pt"
    torch.save({"weights": Hostile(victim)}, torch_file)
    yield from (pickled, objects.read_bytes(), torch_file.read_bytes(), b"", b"tree\n", b"{}")


@pytest.mark.parametrize("name", MODELS)
def test_a_hostile_file_is_refused_and_runs_nothing(name, tmp_path):
    victim, model = tmp_path / "victim", get_model(name)
    n = 3 if name in ("xgboost", "lightgbm") else None  # which may crash on damaged files
    for content in islice(wrong_files(tmp_path, victim), n):
        (tmp_path / model.file_name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{model.file_name} is not a"):
            model.load(tmp_path)
        assert not victim.exists()
    pickle.loads(pickle.dumps(Hostile(victim))).close()  # it would have worked
    assert victim.exists()


@pytest.mark.parametrize("name", ["hist-gb", "logistic", "mlp", *FORESTS])
def test_arrays_of_objects_under_the_right_names_are_refused(name, tmp_path):
    victim = tmp_path / "victim"
    model = train(name, halves(*mixed()))
    model.save(tmp_path)
    path = tmp_path / model.file_name
    if name == "mlp":  # safetensors has no objects: the whole file would have to be another one
        with path.open("wb") as file:
            np.savez(file, codes=np.array([Hostile(victim)], dtype=object), allow_pickle=True)
    else:
        with np.load(path) as stored:
            arrays = dict(stored)
        some = "leaves" if name in FORESTS else "codes"
        arrays[some] = np.array([Hostile(victim)] * 3, dtype=object)
        with path.open("wb") as file:
            np.savez(file, **arrays, allow_pickle=True)
    with pytest.raises(ValueError, match="is not a model of .* damaged"):
        get_model(name).load(tmp_path)
    assert not victim.exists()


@pytest.mark.parametrize("name", ["catboost", "hist-gb", "logistic", "mlp", *FORESTS])
def test_a_truncated_file_is_refused(name, tmp_path):
    model = train(name, halves(*mixed()), max_steps=3)
    model.save(tmp_path)
    path = tmp_path / model.file_name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="damaged"):
        get_model(name).load(tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_a_missing_file_is_named(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"there is no {get_model(name).file_name} in"):
        get_model(name).load(tmp_path)


# ---- parameters of all kinds ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("xgboost", {"max_depth": 1}),
        ("xgboost", {"gamma": 1e9}),  # no tree has a split
        ("xgboost", {"grow_policy": "lossguide", "max_leaves": 7}),
        ("xgboost", {"tree_method": "approx", "gamma": 1.0}),
        ("xgboost", {"base_score": 0.3}),
        ("xgboost", {"max_cat_to_onehot": 1000}),
        ("lightgbm", {"num_leaves": 2}),
        ("lightgbm", {"min_data_in_leaf": 10_000}),
        ("lightgbm", {"max_cat_to_onehot": 1000, "min_data_per_group": 1}),
        ("lightgbm", {"monotone_constraints": [1, 0, 0, 0]}),
        ("lightgbm", {"is_unbalance": True}),
        ("lightgbm", {"feature_fraction": 0.3, "bagging_fraction": 0.5, "bagging_freq": 1}),
    ],
)
@pytest.mark.parametrize("k", [2, 3, 26])
@pytest.mark.sweep(5)
def test_saved_models_of_all_kinds_predict_the_same(name, params, k, tmp_path):
    data = halves(*mixed(600, k=k))
    rows = odd_rows(data[2])
    if "is_unbalance" in params and k > 2:
        params = {}
    model = train(name, data, max_steps=4, params=params)
    for _ in range(2):  # once more after it was loaded
        model.save(tmp_path, model.n_steps)
        loaded = get_model(name).load(tmp_path)
        assert loaded.n_classes == k
        assert np.array_equal(loaded.logits(rows), model.logits(rows, model.n_steps))
        model = loaded


def test_lightgbm_explains_why_it_cannot_be_trained():
    with pytest.raises(
        ValueError, match="LightGBM cannot be trained on these rows: .*num_leaves.* choose"
    ):
        train("lightgbm", halves(*mixed()), params={"num_leaves": 1})


# ---- tables of all kinds ----------------------------------------------------------------------------------


def tables():
    X, y = mixed(300)
    n = len(y)
    rng = np.random.default_rng(1)
    wide = category(rng.integers(0, 90_000, n), 90_000)
    yield "numbers", X[["size", "noise"]]
    yield "categories", X[["colour", "shop"]]
    yield "one number", X[["size"]]
    yield "one category", X[["shop"]]
    yield "all missing", X.assign(nothing=np.nan, none=category(np.full(n, -1), 5))
    yield "constant", X.assign(same=3.0, one=category(np.zeros(n, int), 1))
    yield "wide codes", X.assign(wide=wide)
    yield "no categories", X.assign(empty=category(np.full(n, -1), 0))
    yield "many columns", pd.DataFrame(rng.normal(size=(n, 400)) + y[:, None] / 5)
    yield "same names", X.set_axis(["a", "a", "b", "b"], axis=1)
    yield "numbers as names", X.set_axis([3, 1, 2, 0], axis=1)
    yield "huge", X.assign(huge=np.where(y == 1, 1e300, -np.inf))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", list(dict(tables())))
@pytest.mark.sweep(5)
def test_tables_of_all_kinds(name, kind, tmp_path):
    data = halves(dict(tables())[kind], mixed(300)[1])
    model = train(name, data, max_steps=3)
    logits = model.logits(data[2])
    assert np.isfinite(logits).all()
    model.save(tmp_path)
    assert np.array_equal(get_model(name).load(tmp_path).logits(data[2]), logits)


@pytest.mark.parametrize("name", MODELS)
def test_many_classes_and_a_class_that_validation_rows_lack(name, tmp_path):
    X, y, X_val, y_val = letters()
    keep = y_val != 7
    data = X, y, X_val[keep].reset_index(drop=True), y_val[keep]
    model = train(name, data, max_steps=5)
    logits = model.logits(data[2])
    assert logits.shape == (keep.sum(), 26)
    # The votes of a few neighbors are far too sure of themselves.
    loss = rc.refinement_error(data[3], logits=logits, classes=range(26))
    assert (loss if name == "knn" else risk(data[3], logits)) < np.log(26)
    model.save(tmp_path)
    assert np.array_equal(get_model(name).load(tmp_path).logits(data[2]), logits)


@pytest.mark.parametrize("name", MODELS)
def test_validation_rows_of_one_class(name):
    X, y, X_val, y_val = halves(*mixed())
    rows = y_val == 1
    model = train(name, (X, y, X_val[rows], y_val[rows]), max_steps=3)
    assert model.logits(X_val).shape == (len(y_val),)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "hist-gb", "logistic", "mlp"])
def test_nothing_to_learn_from(name, tmp_path):
    _, y = mixed()
    X = pd.DataFrame({"same": np.ones(len(y)), "nothing": np.nan})
    data = halves(X, y)
    model = train(name, data, max_steps=3, params={})
    logits = model.logits(data[2])
    assert np.ptp(logits) <= (1e-6 if name == "mlp" else 0)  # whose products are rounded by block
    share = data[1].mean()
    if name != "mlp":  # which comes close only after many epochs
        assert np.allclose(logits, np.log(share / (1 - share)), atol=1e-4)
    model.save(tmp_path)
    assert np.array_equal(get_model(name).load(tmp_path).logits(data[2]), logits)


def test_catboost_says_that_there_is_nothing_to_learn_from():
    _, y = mixed()
    X = pd.DataFrame({"same": np.ones(len(y))})
    with pytest.raises(
        ValueError, match="CatBoost cannot be trained on these rows: every column is constant"
    ):
        train("catboost", halves(X, y))


@pytest.mark.parametrize("name", MODELS)
def test_tiny_tables(name):
    X = mixed(12)[0]
    data = halves(X, np.arange(12) % 2)
    model = train(name, data, max_steps=3)
    assert np.isfinite(model.logits(odd_rows(X))).all()


# ---- weights ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_validation_weights_reach_the_monitor(name):
    data = halves(*mixed())
    weights = np.random.default_rng(2).uniform(0, 3, len(data[3]))
    monitor = new_monitor()
    model = train(name, data, monitor, weights_val=weights, max_steps=4)
    best = monitor.best
    found = risk(data[3], model.logits(data[2]), weights)
    assert np.isclose(found, best.record["log_loss"], rtol=1e-5)
    assert not np.isclose(found, risk(data[3], model.logits(data[2])), rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_weight_zero_do_not_teach(name):
    """Half of the labels are turned round, and those rows weigh nothing: as if they were right."""
    X, y, X_val, y_val = halves(*mixed(1000))
    turned = np.arange(len(y)) % 2 == 0
    wrong = np.where(turned, 1 - y, y)
    weights = np.where(turned, 0.0, 1.0)
    model = train(name, (X, wrong, X_val, y_val), weights=weights)
    lost = train(name, (X, wrong, X_val, y_val))
    assert risk(y_val, model.logits(X_val)) < risk(y_val, lost.logits(X_val)) - 0.02
    assert risk(y_val, model.logits(X_val)) < np.log(2)


def test_logistic_weights_are_repetitions():
    X, y, X_val, y_val = halves(*mixed(200))
    X, X_val = (
        X[["colour"]],
        X_val[["colour"]],
    )  # scales would be those of the rows, not of the weights
    counts = np.random.default_rng(0).integers(1, 4, len(y))
    rows = np.repeat(np.arange(len(y)), counts)
    weighted = train("logistic", (X, y, X_val, y_val), weights=counts.astype(float))
    repeated = train("logistic", (X.iloc[rows], y[rows], X_val, y_val))
    for step in (1, 4, 8):
        assert np.allclose(weighted.logits(X_val, step), repeated.logits(X_val, step), atol=1e-3)


# ---- each model's own ways --------------------------------------------------------------------------------


def test_catboost_with_as_many_validation_rows_and_the_same_labels():
    """The metric is shown both sets; labels are sorted, so that only their number can tell them apart."""
    X, y = mixed(400)
    order = np.argsort(y, kind="stable")
    X, y = X.iloc[order].reset_index(drop=True), y[order]
    data = X[::2], y[::2], X[1::2], y[1::2].copy()
    data[3][:] = data[1]
    monitor = new_monitor()
    model = train("catboost", data, monitor, max_steps=10)
    for record in monitor.history:
        logits = model.logits(data[2], int(record["step"]))
        assert np.isclose(risk(data[3], logits), record["log_loss"], rtol=1e-9)


class Stop(Exception):
    pass


@pytest.mark.parametrize("name", MODELS)
def test_an_error_of_on_step_comes_out_as_it_is(name):
    def stop(step):
        if step == 2:
            raise Stop

    with pytest.raises(Stop):
        train(name, halves(*mixed()), on_step=stop)


@pytest.mark.parametrize("k", [2, 3])
def test_hist_gb_with_more_categories_than_bins(k):
    """The most frequent 254 keep their code, the others are missing: as if that were so in the table."""
    rng = np.random.default_rng(0)
    n = 4000
    codes = np.minimum(rng.geometric(0.01, n) - 1, 599)
    X = pd.DataFrame({"x": rng.normal(size=n), "many": category(codes, 600)})
    y = ((codes % k) + (X["x"] > 1)).to_numpy() % k
    data = halves(X, y.astype(np.int64))
    counts = data[0]["many"].value_counts()
    assert (counts > 0).sum() > 255
    model = train("hist-gb", data, max_steps=20)
    frequent = np.sort(counts.sort_index().sort_values(ascending=False, kind="stable").index[:254])
    A, B = to_matrix(data[0]), to_matrix(data[2])
    for M in (A, B):
        M[~np.isin(M[:, 1], frequent.astype(int)), 1] = np.nan
    twin = HistGradientBoostingClassifier(
        max_iter=20, early_stopping=False, categorical_features=[1], random_state=0
    ).fit(A, data[1])
    expected = twin.decision_function(B)
    assert np.allclose(model.logits(data[2], 20), expected, rtol=1e-12, atol=1e-12)


def test_hist_gb_in_one_run_with_random_columns():
    data = halves(*mixed())
    params = {"max_features": 0.5, "l2_regularization": 1.0}
    model = train("hist-gb", data, params=params, max_steps=40)
    twin = HistGradientBoostingClassifier(
        max_iter=40, early_stopping=False, categorical_features=[0, 1], random_state=0, **params
    ).fit(to_matrix(data[0])[:, [1, 3, 0, 2]], data[1])
    expected = twin.decision_function(to_matrix(data[2])[:, [1, 3, 0, 2]])
    assert np.allclose(model.logits(data[2], 40), expected, rtol=1e-12, atol=1e-12)


def test_the_path_goes_from_the_shares_of_the_classes_to_no_penalty():
    data = digits()
    model = train("logistic", data, max_steps=30)
    norms = [np.linalg.norm(weights) for weights, _ in model.path]
    # The last penalties may be too weak to be felt within the tolerance.
    assert all(a < b for a, b in pairwise(norms[:20]))
    assert all(a <= b for a, b in pairwise(norms))
    shares = np.bincount(data[1]) / len(data[1])
    entropy = -(shares * np.log(shares)).sum()
    assert np.isclose(risk(data[1], model.logits(data[0], 1)), entropy, rtol=0.2)
    assert risk(data[1], model.logits(data[0], 30)) < 1e-3


def test_refinement_prefers_a_stronger_penalty_than_the_loss():
    monitor = new_monitor()
    train("logistic", halves(*mixed(400, seed=4)), monitor, max_steps=30)
    assert monitor.bests["refinement"].step <= monitor.bests["log_loss"].step


def test_sparse_and_dense_matrices_give_the_same(monkeypatch):
    data = halves(*mixed())
    dense = train("logistic", data)
    monkeypatch.setattr("refinecal.training.logistic_path.DENSE_CELLS", 0)
    sparse = train("logistic", data)
    assert np.allclose(dense.logits(data[2], 4), sparse.logits(data[2], 4), atol=1e-3)


@pytest.mark.parametrize("name", ["logistic", "mlp"])
def test_unknown_parameters_are_named(name):
    with pytest.raises(ValueError, match=f"a parameter of {name} is 'drop_out': it must be one of"):
        train(name, halves(*mixed()), params={"drop_out": 0.1})
    with pytest.raises(ValueError, match="scaling is 'min-max': it must be one of 'standard'"):
        train("logistic", halves(*mixed()), params={"scaling": "min-max"})


def test_an_mlp_that_diverges_says_so():
    monitor = new_monitor()
    params = SMALL["mlp"] | {"learning_rate": 1e30}
    with pytest.warns(RuntimeWarning, match="training has diverged"):
        model = train("mlp", halves(*mixed()), monitor, params=params)
    assert monitor.diverged
    if monitor.best_step is None:
        with pytest.raises(ValueError, match="the monitor found no best step"):
            model.logits(mixed()[0])


def test_the_mlp_names_the_epochs_that_it_kept():
    monitor = new_monitor()
    model = train("mlp", halves(*mixed()), monitor, max_steps=12)
    kept = sorted({best.step for best in monitor.bests.values()})
    assert sorted(model.nets) == kept
    other = next(step for step in range(1, 13) if step not in kept)
    with pytest.raises(ValueError, match=f"step is {other}: only the weights of epochs"):
        model.logits(mixed()[0], other)


# ---- inputs -----------------------------------------------------------------------------------------------


def test_quantile_scaling_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.exponential(size=900), "b": np.round(rng.normal(size=900), 1)})
    new = pd.DataFrame({"a": rng.exponential(size=50), "b": np.round(rng.normal(size=50), 1)})
    twin = QuantileTransformer(n_quantiles=30, output_distribution="normal").fit(X.to_numpy())
    inside = (new > X.min()).all(axis=1) & (new < X.max()).all(axis=1)
    found = Encoding.learn(X, "quantile").numbers(new[inside])
    assert np.allclose(found, twin.transform(new[inside].to_numpy()), atol=1e-6)


def test_scaled_numbers():
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0, np.nan], "b": [5.0] * 4, "c": [np.nan] * 4})
    found = Encoding.learn(X, "standard").numbers(X)
    spread = np.sqrt(2 / 4)  # of 1, 2, 3 and their median 2
    expected = np.array([[-1, 0], [0, 0], [1, 0], [0, 1]]) / [spread, 1]
    assert np.allclose(found, expected)


@given(st.lists(st.integers(-1, 8), min_size=1, max_size=30), st.integers(1, 5))
def test_most_frequent_codes(codes, most):
    codes = np.array(codes)
    kept = most_frequent(codes, most)
    counts = {code: int((codes == code).sum()) for code in set(codes.tolist()) - {-1}}
    assert len(kept) == min(most, len(counts))
    assert (np.diff(kept) > 0).all()
    left = [counts[code] for code in counts if code not in kept]
    assert min([counts[code] for code in kept.tolist()], default=0) >= max(left, default=0)
    X = pd.DataFrame({"a": pd.Categorical(np.where(codes < 0, None, codes))})
    places = code_positions(X, np.array([True]), [kept])[:, 0]
    for code, place in zip(codes.tolist(), places.tolist(), strict=True):
        assert (kept[place] == code) if place >= 0 else (code not in kept)


def test_categories_must_be_whole_numbers():
    X = pd.DataFrame({"colour": pd.Categorical(["red", "blue"])})
    with pytest.raises(TypeError, match="column 'colour' has categories such as 'blue'"):
        to_matrix(X)


def test_wrong_calls_are_explained():
    data = halves(*mixed())
    with pytest.raises(ValueError, match="max_steps is 0: train for at least one round"):
        train("xgboost", data, max_steps=0)
    monitor = new_monitor()
    model = train("xgboost", data, monitor, max_steps=2)
    with pytest.raises(ValueError, match="monitor has seen 2 steps already"):
        train("xgboost", data, monitor)
    with pytest.raises(ValueError, match="X has 3 columns, but the model was trained with 4"):
        model.logits(data[0].iloc[:, :3])
    with pytest.raises(ValueError, match="step is 0: the model has the rounds 1..2"):
        model.logits(data[0], 0)
    with pytest.raises(ValueError, match="model is 'xgbost'.* Did you mean 'xgboost'?"):
        get_model("xgbost")


@pytest.mark.parametrize("name", MODELS)
def test_models_say_what_they_are(name):
    model = get_model(name)
    assert model.name == name
    names = {"mlp": "epoch", "logistic": "strength", "knn": "size"}
    assert model.step_name == names.get(name, "round")
    assert model.default_patience is None or 0 < model.default_patience < model.default_steps


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_printed(name, capfd, tmp_path):
    data = halves(*mixed(60))
    model = train(name, data, max_steps=4, n_threads=None)
    model.save(tmp_path)
    get_model(name).load(tmp_path).logits(data[2])
    assert capfd.readouterr() == ("", "")


def test_asking_for_one_model_loads_no_other_library():
    code = (
        "import sys; from refinecal.training.table_model import get_model; get_model('logistic');"
        "loaded = {'xgboost', 'lightgbm', 'catboost', 'torch'} & set(sys.modules); assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_scikit_learn_agrees_on_the_log_loss():
    """The helper of these tests, against another."""
    y, logits = np.array([0, 1, 2, 1]), np.random.default_rng(0).normal(size=(4, 3))
    assert np.isclose(risk(y, logits), log_loss(y, np.exp(log_softmax(logits, axis=1))))
