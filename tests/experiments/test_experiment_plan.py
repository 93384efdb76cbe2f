"""Plans: every training once, each with its own name and seed, whatever else is planned."""

import hashlib
import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refinecal.experiments.plan import METRIC_NAMES, Plan, TableKey

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
keys = st.builds(
    TableKey, names, st.integers(0, 9), st.sampled_from(["mlp", "xgboost"]), st.integers(0, 30)
)
plans = st.builds(
    Plan,
    st.lists(st.from_regex("[a-z]{1,5}", fullmatch=True), min_size=1, unique=True).map(
        lambda sets: tuple({"name": name, "kind": "table", "path": f"{name}.csv"} for name in sets)
    ),
    st.lists(st.sampled_from(["xgboost", "mlp", "logistic"]), min_size=1, unique=True).map(tuple),
    splits=st.integers(1, 4),
    configs=st.integers(0, 4),
    seed=st.integers(0, 2**40),
    max_steps=st.none() | st.integers(1, 99),
)


def small(**more):
    sources = ({"name": "adult", "path": "a.csv", "digest": "1"}, {"name": "bank", "path": "b.csv"})
    return Plan(sources, ("xgboost", "mlp"), splits=2, configs=1, **more)


@given(keys, keys)
def test_names_are_those_of_files_and_tell_keys_apart(one, other):
    assert (
        len(one.name.encode()) < 230
    )  # a file's name may have 255 bytes, and parts have more than this one
    assert "/" not in one.name
    assert "\\" not in one.name
    assert one.name.isprintable()
    assert one.name[0] != "."
    assert (one == other) == (one.name == other.name)


def test_long_names_that_begin_alike_differ():
    one, other = (TableKey("x" * 500 + end, 0, "mlp", 0).name for end in "ab")
    assert one != other


@given(plans)
def test_every_training_is_there_once(plan):
    units = plan.units()
    assert len(units) == len(set(units)) == len({key.name for key in units})
    assert len(units) == len(plan.sets) * plan.splits * len(plan.methods) * (plan.configs + 1)
    some = units[: len(units) // (plan.configs + 1)]
    assert all(key.config == 0 for key in some)  # what is done first is an experiment of its own
    assert [key.method for key in units[: len(plan.methods)]] == list(plan.methods)


@given(plans)
def test_json_and_back(plan):
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.key == plan.key
    assert again.to_json() == plan.to_json()


@given(plans, st.data())
def test_a_seed_is_that_of_the_training_alone(plan, data):
    key = data.draw(st.sampled_from(plan.units()))
    wider = replace(plan, splits=plan.splits + 3, configs=plan.configs + 2, methods=("a", "b"))
    assert plan.seed_of(key) == wider.seed_of(key)
    assert 0 <= plan.seed_of(key) < 2**31
    assert plan.seed_of(key) != plan.seed_of(key, "params")
    assert plan.seed_of(key) != replace(plan, seed=plan.seed + 1).seed_of(key)
    text = json.dumps([plan.seed, key.set, key.split, key.method, key.config, "training"])
    assert plan.seed_of(key) == int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) // 2


def test_seeds_differ_between_trainings():
    plan = replace(small(), splits=5, configs=30)
    seeds = {plan.seed_of(key) for key in plan.units()}
    assert len(seeds) == len(plan.units())


def test_where_tables_are_makes_no_difference():
    plan = small()
    sources = tuple({**source, "path": "/elsewhere"} for source in plan.sources)
    moved = replace(plan, sources=sources)
    assert moved.key == plan.key
    assert moved != plan
    assert plan.losses(moved) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"splits": 3}, None),
        ({"configs": 0}, "configs: 1, now 0"),
        ({"seed": 7}, "seed: 0, now 7"),
        ({"methods": ("mlp",)}, "methods: xgboost, mlp, now mlp"),
        ({"metrics": ("log_loss",)}, "now log_loss"),
        ({"max_steps": 10}, "max_steps: not given, now 10"),
        ({"min_rows": 10}, None),
        ({"max_rows": 10_000}, "max_rows: 100000, now 10000"),
        ({"n_threads": 2}, "n_threads: 1, now 2"),
        ({"sources": ({"name": "adult", "digest": "1"},)}, "data sets no longer there: bank"),
        ({"sources": ({"name": "adult", "digest": "2"}, {"name": "bank"})}, "content: adult"),
        (
            {"sources": ({"name": "bank"}, {"name": "adult", "digest": "1"})},
            "order",
        ),
    ],
)
def test_everything_that_changes_a_result_changes_the_key_and_is_said(change, said):
    plan = small()
    other = replace(plan, **change)
    assert other.key != plan.key
    assert plan.losses(other) + other.losses(plan) or said == "order"
    if said not in (None, "order"):
        assert any(said in words for words in plan.losses(other))


@given(plans, st.data())
def test_a_plan_may_grow_and_not_shrink(plan, data):
    """Against an oracle: every training of the old plan is one of the new, with the same seed and data."""
    other = data.draw(plans)
    other = replace(other, **data.draw(st.sampled_from([{}, {"seed": plan.seed}])))
    other = replace(other, **data.draw(st.sampled_from([{}, {"max_steps": plan.max_steps}])))
    trainings = [
        {(key, each.seed_of(key), each.max_steps) for key in each.units()} for each in (plan, other)
    ]
    assert (not plan.losses(other)) == (trainings[0] <= trainings[1])
    assert plan.losses(plan) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"splits": 1}, "splits: 2, now 1"),
        ({"configs": 0}, "configs: 1, now 0"),
        ({"seed": 7}, "seed: 0, now 7"),
        ({"methods": ("mlp", "logistic")}, "methods: xgboost, mlp, now mlp, logistic"),
        ({"metrics": METRIC_NAMES[:8]}, "metrics: "),
        ({"max_steps": 10}, "max_steps: not given, now 10"),
        ({"min_rows": 1001}, "min_rows: 1000, now 1001"),
        ({"max_rows": 200_000}, "max_rows: 100000, now 200000"),
        ({"n_threads": 2}, "n_threads: 1, now 2"),
        ({"sources": ({"name": "adult", "digest": "1"}, {"name": "c"})}, "no longer there: bank"),
        ({"sources": ({"name": "adult", "digest": "2"}, {"name": "bank"})}, "content: adult"),
        (
            {"sources": ({"name": "adult", "digest": "1"}, {"name": "bank", "target": "y"})},
            "data sets with another target: bank",
        ),
    ],
)
def test_what_is_no_larger_plan_is_said_alone(change, said):
    plan = small()
    more = {"splits": 9, "configs": 9, "methods": ("xgboost", "mlp", "logistic")}
    (words,) = plan.losses(replace(plan, **(more | change)))
    assert said in words


def test_a_larger_plan_may_be_in_another_order_and_elsewhere():
    plan = small()
    sources = (*reversed(plan.sources), {"name": "new"})
    sources = tuple({**source, "path": "/elsewhere"} for source in sources)
    assert plan.losses(replace(plan, sources=sources, min_rows=10)) == []
    assert plan.has(sources[0])
    assert not plan.has(sources[2])
    assert not plan.has({**sources[0], "digest": "other"})


def test_every_field_is_part_of_the_key():
    """So a field that is added later cannot be forgotten."""
    assert set(json.loads(small().to_json())) == {field.name for field in fields(Plan)}
    assert set(small()._content()) == {field.name for field in fields(Plan)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"splits": 0}, "splits is 0: it must be at least 1"),
        ({"configs": -1}, "configs is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"n_threads": 0}, "n_threads is 0"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"methods": ()}, "methods is empty"),
        ({"methods": ("mlp", "mlp")}, "methods has mlp more than once"),
        ({"sources": ({"path": "a.csv"},)}, "needs a 'name'"),
        ({"sources": ({"name": "a"}, {"name": "a"})}, "sources has a more than once"),
        ({"sources": ({"name": "a"}, {"name": "A"})}, "more than once"),  # one file on some systems
        ({"version": 3}, "version 3 of the protocol"),
    ],
)
def test_what_makes_no_plan(change, said):
    with pytest.raises(ValueError, match=said):
        replace(small(), **change)


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"sources": []}', '{"splits": 1, "something": 2}', "3"]
)
def test_a_text_that_is_no_plan(text):
    with pytest.raises(ValueError, match="not a plan of the tabular experiment of this version"):
        Plan.from_json(text)


def test_the_metrics_are_those_of_the_protocol():
    assert len(set(METRIC_NAMES)) == 11
    assert small().metrics == METRIC_NAMES


def test_folds_may_be_added_to_a_plan_but_not_changed():
    plan = small()
    more = replace(plan, folds=3)
    assert len(more.units()) == 4 * len(plan.units())
    assert [key for key in more.units() if not key.folds] == plan.units()
    assert plan.losses(more) == []
    assert more.losses(plan) == ["folds: 3, now none"]
    assert more.losses(replace(plan, folds=5)) == ["folds: 3, now 5"]
    assert more.key != plan.key
    for key in more.units():  # the same parameters in all folds, and another seed
        usual = key._replace(folds=0, fold=0)
        assert more.seed_of(key, "params") == plan.seed_of(usual, "params")
        assert (more.seed_of(key) == plan.seed_of(usual)) == (not key.folds)
    assert len({key.name for key in more.units()}) == len(more.units())
    with pytest.raises(ValueError, match="folds is 11: it must be 0, or 2 to 10"):
        replace(plan, folds=11)


def test_a_plan_without_folds_is_read_as_before():
    plan = small()
    stored = json.loads(plan.to_json())
    del stored["folds"]
    assert Plan.from_json(json.dumps(stored)) == plan


def test_a_key_in_words():
    assert str(TableKey("adult", 1, "mlp", 0)) == "mlp on adult, split 1, default parameters"
    assert str(TableKey("adult", 1, "mlp", 3)) == "mlp on adult, split 1, configuration 3"
