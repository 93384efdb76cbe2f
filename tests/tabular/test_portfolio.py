"""What ``--model auto`` can choose from: every configuration can be trained."""

import numpy as np
import pytest
from test_models import halves, mixed

from refinecal.stopping import RefinementMonitor
from refinecal.tabular import portfolio
from refinecal.tabular.data import Options
from refinecal.tabular.portfolio import BOOSTING, MORE, SECOND, SMALL, draw_all
from refinecal.training.rows import Rows
from refinecal.training.spaces import NEAR, SPACES, draw
from refinecal.training.table_model import get_model
from refinecal.training.trainer import TrainingRun

TIMED = Options(model="auto", time_limit=60.0)


def test_a_time_limit_leaves_room_for_more_configurations():
    kinds = [each.kind for each in draw_all(Options(model="auto"))]
    assert len(set(kinds)) == len(kinds)
    timed = [each.kind for each in draw_all(TIMED)]
    assert timed[: len(kinds)] == kinds
    assert {kind: timed.count(kind) for kind in kinds} == {
        kind: 2 if kind in SMALL else MORE for kind in kinds
    }


def test_more_time_adds_candidates_and_changes_none():
    """So that a run can be resumed with another limit."""
    few, many = draw_all(Options(model="auto")), draw_all(TIMED)
    assert many[: len(few)] == few


def test_a_number_of_configurations_that_is_asked_for_is_kept():
    timed = draw_all(Options(model="auto", time_limit=60.0, tune=3))
    assert sum(each.kind == "xgboost" for each in timed) == 3


@pytest.mark.parametrize("missing", [None, "lightgbm"])
def test_no_configuration_is_there_twice(monkeypatch, missing):
    monkeypatch.setattr(portfolio, "find_spec", lambda name: None if name == missing else name)
    found = [(each.kind, repr(each.params)) for each in draw_all(TIMED)]
    assert len(set(found)) == len(found)


def test_boosting_comes_last_where_it_grows_a_tree_per_class():
    kinds = [each.kind for each in draw_all(Options(model="auto"), k=26)]
    assert kinds[-3:] == [kind for kind in BOOSTING if kind in kinds]
    assert draw_all(Options(model="auto"))[0].kind == "xgboost"


@pytest.mark.parametrize(
    ("rows", "k", "epochs"), [(100, 2, 100), (10_000, 2, 35), (10_000, 8, 70), (10**6, 2, 15)]
)
def test_networks_see_many_rows_in_fewer_epochs(rows, k, epochs):
    (network,) = (e for e in draw_all(Options(model="auto"), (rows, 10), k) if e.kind == "mlp")
    assert network.max_steps == epochs  # 250,000 √k / rows, but 15 to 100


def test_networks_see_fewer_frequencies_of_many_columns():
    found = [
        next(e for e in draw_all(Options(model="auto"), (1000, n)) if e.kind == "mlp")
        for n in (10, 250, 2000)
    ]
    assert [each.params["n_frequencies"] for each in found] == [16, 4, 0]


@pytest.mark.parametrize("kind", SECOND)
def test_the_second_configuration_can_be_trained(kind):
    check(kind, SECOND[kind])


@pytest.mark.parametrize("kind", NEAR)
def test_what_is_drawn_near_good_parameters_can_be_trained(kind):
    found = [draw(kind, np.random.default_rng(seed), near=True) for seed in range(3)]
    assert found[0] != found[1]
    check(kind, found[2])


def test_other_kinds_are_drawn_from_their_only_space():
    assert set(SPACES) - set(NEAR) == {"knn", "logistic", "realmlp"}
    params = draw("knn", np.random.default_rng(0), near=True)
    assert params == draw("knn", np.random.default_rng(0))


def check(kind, params):
    X, y, X_val, y_val = halves(*mixed(k=3))
    steps = 3
    if "hidden_size" in params:
        params = params | {"hidden_size": 16}
    run = TrainingRun(
        Rows(X, y), Rows(X_val, y_val), np.arange(3), RefinementMonitor(), steps, params, 0, 1
    )
    model = get_model(kind).train(run)
    assert np.isfinite(model.logits(X_val)).all()
