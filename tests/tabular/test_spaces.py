"""The random searches: bounds and shapes of the paper's distributions, and models that take what is drawn."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.datasets import load_iris

import refinecal as rc
from refinecal.training.mlp import DEFAULTS
from refinecal.training.rows import Rows
from refinecal.training.spaces import draw
from refinecal.training.table_model import MODELS, get_model
from refinecal.training.trainer import TrainingRun

N = 2000
LEAST_P = 1e-3  # seeds are fixed, so that a test either always passes or never


def draws(name, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame([draw(name, rng) for _ in range(N)])


def uniform(low, high):
    return stats.uniform(low, high - low)


PAPER = {  # its tables of search spaces
    ("xgboost", "learning_rate"): stats.loguniform(1e-3, 0.7),
    ("xgboost", "subsample"): uniform(0.5, 1),
    ("xgboost", "colsample_bytree"): uniform(0.5, 1),
    ("xgboost", "colsample_bylevel"): uniform(0.5, 1),
    ("xgboost", "alpha"): stats.loguniform(1e-5, 5),
    ("xgboost", "lambda"): stats.loguniform(1e-5, 5),
    ("xgboost", "gamma"): stats.loguniform(1e-5, 5),
    ("mlp", "learning_rate"): stats.loguniform(1e-4, 1e-2),
}


@pytest.mark.parametrize(("name", "parameter"), PAPER)
def test_the_papers_continuous_distributions(name, parameter):
    found, law = draws(name)[parameter], PAPER[name, parameter]
    low, high = law.support()
    assert low <= found.min() <= found.max() <= high
    assert stats.kstest(found, law.cdf).pvalue > LEAST_P


@pytest.mark.parametrize(
    ("name", "parameter", "values"),
    [
        ("xgboost", "max_depth", range(1, 12)),
        ("mlp", "dropout", [0.0, 0.1, 0.2, 0.3]),
        ("mlp", "weight_decay", [0.0, 1e-5, 1e-4, 1e-3]),
    ],
)
def test_the_papers_choices(name, parameter, values):
    counts = draws(name)[parameter].value_counts()
    assert sorted(counts.index) == list(values)
    assert stats.chisquare(counts).pvalue > LEAST_P


def test_the_papers_smallest_weight_of_a_child():
    """A log-uniform number between 1e-5 and 100, rounded: P(at most m) is its cdf at m + 1/2."""
    found = draws("xgboost")["min_child_weight"]
    assert found.between(0, 100).all()
    law = stats.loguniform(1e-5, 100)
    ends = np.array([0.5, 1.5, 2.5, 5.5, 10.5, 20.5, 50.5])
    expected = np.diff([0, *law.cdf(ends), 1])
    counts = np.histogram(found, [-1, *ends, 101])[0]
    assert stats.chisquare(counts, N * expected).pvalue > LEAST_P


def test_nothing_else_is_searched_in_the_papers_spaces():
    assert set(draws("xgboost")) == {name for model, name in PAPER if model == "xgboost"} | {
        "max_depth",
        "min_child_weight",
    }
    assert set(draws("mlp")) == {"learning_rate", "dropout", "weight_decay"} <= set(DEFAULTS)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_vary_independently(name):
    found = draws(name).select_dtypes("number")
    found = found.loc[:, found.nunique() > 1]
    if found.shape[1] > 1:
        ranks = found.rank().corr().to_numpy()
        assert np.abs(ranks - np.eye(len(ranks))).max() < 4.5 / np.sqrt(N)


@pytest.mark.parametrize("name", MODELS)
def test_the_same_seed_draws_the_same(name):
    assert draws(name, 3).equals(draws(name, 3))
    assert not draws(name, 3).equals(draws(name, 4))


@pytest.mark.parametrize("name", MODELS)
def test_models_take_what_is_drawn(name):
    X, y = load_iris(return_X_y=True, as_frame=True)
    y = y.to_numpy().astype(np.int64)
    rng = np.random.default_rng(0)
    for _ in range(3):
        params = draw(name, rng)
        assert params == {key: value for key, value in params.items() if value is not None}
        assert all(type(value) in (int, float, str) for value in params.values())  # fit for JSON
        monitor = rc.RefinementMonitor()
        rows, val = Rows(X[::2], y[::2]), Rows(X[1::2], y[1::2])
        run = TrainingRun(rows, val, np.arange(3), monitor, 3, params, n_threads=1)
        model = get_model(name).train(run)
        assert model.logits(X).shape == (150, 3)


def test_unknown_model():
    with pytest.raises(ValueError, match="model is 'hist_gb'.* Did you mean 'hist-gb'?"):
        draw("hist_gb", np.random.default_rng(0))
