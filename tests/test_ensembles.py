"""Ensembles chosen greedily: against brute force, and what must not change the choice."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

import refinecal as rc
from refinecal import _kernels
from refinecal.ensembles import SelectedEnsemble

KINDS = [
    (pool, members) for pool in ("arithmetic", "geometric") for members in ("raw", "calibrated")
]


def made(m=5, n=300, k=3, seed=0, dtype=np.float64):
    """Return labels and logits of models that are overconfident in different degrees."""
    rng = np.random.default_rng(seed)
    truth = 1.5 * rng.normal(size=(n, k))
    y = (truth + rng.gumbel(size=(n, k))).argmax(axis=1)
    noise = np.linspace(0.7, 2, m)[:, None, None] * rng.normal(size=(m, n, k))
    logits = rng.uniform(0.5, 4, size=(m, 1, 1)) * (truth + noise)
    return y, log_softmax(logits, axis=2).astype(dtype)


# ---- brute force -------------------------------------------------------------------------------------------


def best_beta(y, logits, weights=None):
    """Return the smallest mean log loss over inverse temperatures, and where."""

    def loss(log_beta):
        logs = log_softmax(np.exp(log_beta) * logits, axis=1)
        return -np.average(logs[np.arange(len(y)), y], weights=weights)

    found = minimize_scalar(loss, bounds=(-6, 6), method="bounded", options={"xatol": 1e-10})
    return found.fun, np.exp(found.x)


def pooled(logits, picks, pool, members, y, weights=None):
    """Return the logits of a pool."""
    logits = logits[picks]
    if members == "calibrated":
        logits = np.stack([best_beta(y, z, weights)[1] * z for z in logits])
    logs = log_softmax(logits, axis=2)
    return np.log(np.exp(logs).mean(axis=0)) if pool == "arithmetic" else logs.mean(axis=0)


def brute_force(y, logits, pool, members, most, weights=None):
    """Return the picks of the greedy search and the refinement after each."""
    picks, values = [], []
    for _ in range(most):
        tried = [
            best_beta(y, pooled(logits, [*picks, i], pool, members, y, weights), weights)[0]
            for i in range(len(logits))
        ]
        picks.append(int(np.argmin(tried)))
        values.append(min(tried))
    return picks, values


@pytest.mark.parametrize(("pool", "members"), KINDS)
@pytest.mark.parametrize("k", [2, 3])
def test_the_path_is_that_of_brute_force(pool, members, k):
    y, logits = made(4, 150, k, seed=k)
    weights = np.random.default_rng(1).integers(0, 3, size=len(y)).astype(float)
    for given_weights in (None, weights):
        found = rc.select_ensemble(
            y, logits=logits, pool=pool, members=members, cv=None, max_picks=5,
            sample_weight=given_weights,
        )  # fmt: skip
        picks, values = brute_force(y, logits, pool, members, 5, given_weights)
        assert [step["member"] for step in found.path] == [f"model {i + 1}" for i in picks]
        np.testing.assert_allclose([step["value"] for step in found.path], values, atol=3e-7)


@pytest.mark.parametrize("metric", ["log_loss", "brier", "accuracy", "auroc", "brier_refinement"])
def test_any_metric_is_optimized_in_its_direction(metric):
    y, logits = made(4, 200, 2)
    found = rc.select_ensemble(
        y, logits=logits, metric=metric, pool="arithmetic", members="raw", cv=None, max_picks=1
    )
    probs = np.exp(logits)
    if (
        metric == "brier_refinement"
    ):  # the Brier score at the temperature that is best for the log loss
        fitted = [rc.TemperatureScaling(laplace=False).fit_logits(z, y) for z in logits]
        values = [
            rc.metrics.brier_score(y, f.predict_proba_logits(z))
            for f, z in zip(fitted, logits, strict=True)
        ]
    else:
        name = {"brier": "brier_score"}.get(metric, metric)
        values = [getattr(rc.metrics, name)(y, p) for p in probs]
    best = max(values) if metric in ("accuracy", "auroc") else min(values)
    assert found.path[0]["value"] == pytest.approx(best, abs=1e-6)


def test_a_custom_metric_gets_the_labels_as_given():
    y, logits = made(3, 100, 2)
    names = np.array(["no", "yes"])

    def miss(y_true, probs):
        assert set(y_true) == {"no", "yes"}
        return np.mean(names[probs.argmax(axis=1)] != y_true)

    found = rc.select_ensemble(names[y], logits=logits, metric=miss, cv=3, max_picks=3)
    assert found.metric == "miss"
    assert found.classes.tolist() == ["no", "yes"]


# ---- what must not matter ----------------------------------------------------------------------------------


@given(st.integers(0, 10_000))
def test_orders_of_members_and_rows_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    y, logits = made(4, 120, 3, seed)
    first = rc.select_ensemble(y, logits=logits, max_picks=6, cv=3)
    members, rows = rng.permutation(4), rng.permutation(len(y))
    other = rc.select_ensemble(y[rows], logits=logits[members][:, rows], max_picks=6, cv=3)
    assert (other.pool, other.members) == (first.pool, first.members)
    np.testing.assert_allclose(other.weights, first.weights[members], atol=1e-12)
    np.testing.assert_allclose(other.gain.mean, first.gain.mean, atol=1e-6)


@given(st.integers(0, 10_000))
def test_weights_are_counts(seed):
    y, logits = made(4, 90, 3, seed)
    counts = np.random.default_rng(seed).integers(0, 4, size=len(y))
    counts[0] = 1
    kept = np.repeat(np.arange(len(y)), counts)
    whole = rc.select_ensemble(
        y, logits=logits, sample_weight=counts, max_picks=5, cv=3, classes=[0, 1, 2]
    )
    rows = rc.select_ensemble(y[kept], logits=logits[:, kept], max_picks=5, cv=3, classes=[0, 1, 2])
    np.testing.assert_allclose(whole.weights, rows.weights)
    for ours, theirs in zip(whole.kinds, rows.kinds, strict=True):
        assert ours["cv_value"] == pytest.approx(theirs["cv_value"], abs=1e-6)
    np.testing.assert_allclose(
        whole.predict_proba(logits=logits), rows.predict_proba(logits=logits), atol=1e-6
    )


def test_an_exact_duplicate_changes_nothing():
    y, logits = made()
    first, twice = (
        rc.select_ensemble(y, logits=each, cv=None)
        for each in (logits, np.concatenate([logits, logits[:1]]))
    )
    values = [[step["value"] for step in found.path] for found in (first, twice)]
    np.testing.assert_allclose(*values, atol=1e-6)
    np.testing.assert_allclose(twice.weights[0] + twice.weights[-1], first.weights[0])


def test_probabilities_and_logits_and_containers_are_the_same():
    y, logits = made(3, 200, 2)
    first = rc.select_ensemble(y, logits=logits)
    odds = logits[:, :, 1] - logits[:, :, 0]
    others = [
        rc.select_ensemble(y, np.exp(logits)),
        rc.select_ensemble(y, np.exp(logits[:, :, 1])),
        rc.select_ensemble(y, logits=odds),
        rc.select_ensemble(y, (np.exp(z) for z in logits)),
        rc.select_ensemble(
            y, {"a": np.exp(logits[0]), "b": np.exp(logits[1]), "c": np.exp(logits[2])}
        ),
        rc.select_ensemble(y, logits=logits.astype(np.float32)),
        rc.select_ensemble(y, logits=np.asfortranarray(logits)),
    ]
    for other in others:
        np.testing.assert_allclose(other.weights, first.weights)
        np.testing.assert_allclose(
            other.predict_proba(logits=dict(zip(other.names, logits, strict=True))),
            first.predict_proba(logits=logits),
            atol=1e-5,
        )
    assert others[4].names == ("a", "b", "c")
    assert first.names == ("model 1", "model 2", "model 3")


# ---- what must hold ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pool", "members"), KINDS)
def test_predictions_of_the_same_rows_have_the_refinement_of_the_path(pool, members):
    y, logits = made(6, 400, 4)
    found = rc.select_ensemble(y, logits=logits, pool=pool, members=members, max_picks=8, cv=None)
    values = [step["value"] for step in found.path]
    pooled = found.pool_logits(logits=logits)
    assert rc.refinement_error(y, logits=pooled) == pytest.approx(min(values), abs=1e-6)
    calibrated = found.calibrator.predict_proba_logits(pooled)
    np.testing.assert_array_equal(found.predict_proba(logits=logits), calibrated)
    assert found.weights.sum() == pytest.approx(1)


@given(st.integers(0, 10_000), st.sampled_from(KINDS))
def test_without_folds_it_is_never_worse_than_the_best_member_on_its_rows(seed, kind):
    y, logits = made(4, 60, 3, seed)
    found = rc.select_ensemble(
        y, logits=logits, pool=kind[0], members=kind[1], max_picks=8, cv=None, n_bags=1 + seed % 2
    )
    pooled = rc.refinement_error(y, logits=found.pool_logits(logits=logits), classes=range(3))
    best = min(rc.refinement_error(y, logits=z, classes=range(3)) for z in logits)
    assert pooled <= best + 1e-6


def test_noise_is_not_chosen_and_one_good_model_stays_alone():
    rng = np.random.default_rng(1)
    y, logits = made(1, 400, 3)
    noise = rng.normal(size=(20, 400, 3))
    found = rc.select_ensemble(y, logits=np.concatenate([logits, noise]))
    assert found.best_single == "model 1"
    assert found.weights[0] > 0.8


def test_the_gain_is_found_by_cross_validation():
    y, logits = made(4, 800, 3)
    noise = 3 * np.random.default_rng(1).normal(size=(10, 800, 3))
    found = rc.select_ensemble(y, logits=np.concatenate([logits, noise]))
    assert found.gain.mean < 0
    assert found.gain.n == 800
    assert found.choice == "greedy"
    assert found.table[0]["member"] == found.best_single
    assert sum(step["used"] for step in found.path) > 1
    best = min(step["cv_value"] for step in found.path)
    assert found.log_loss >= best - 1e-12  # this is the best of all picks, in hindsight
    assert min(each["cv_value"] for each in found.kinds) == pytest.approx(best)


def equally_good(m, n, k, rng):
    """Return labels and logits of models that err alike, and by themselves."""
    truth = 1.2 * rng.normal(size=(n, k))
    y = (truth + rng.gumbel(size=(n, k))).argmax(axis=1)
    return y, truth + rng.normal(size=(n, k)) / 2 + rng.normal(size=(m, n, k)) / 2


def test_each_fold_is_evaluated_by_what_the_others_choose():
    from refinecal.ensembles.choosing import find_best, losses_held_out, try_kind
    from refinecal.ensembles.greedy import Kind, Stack, from_tiles
    from refinecal.ensembles.members import read_members
    from refinecal.metrics import get_metric

    y, logits = equally_good(4, 120, 3, np.random.default_rng(5))
    names = [Kind(*kind) for kind in KINDS]
    weights = np.random.default_rng(0).integers(1, 4, size=120)
    for metric in ("refinement", "brier", "accuracy"):
        chosen = get_metric(metric)
        stack = Stack(read_members(y, None, logits, sample_weight=weights), 4, 0)
        trials = [try_kind(stack, kind, chosen, 6) for kind in names]
        ours, theirs = losses_held_out(stack, trials, chosen)
        fold = from_tiles(stack.folds, 120)
        for held in range(4):
            rest, own = fold != held, fold == held
            trial, place = find_best(stack, trials, chosen, held)
            np.testing.assert_array_equal(ours[own], trial.losses[place, own])
            np.testing.assert_array_equal(theirs[own], trial.losses[0, own])
            each = from_tiles(stack.weights, 120)[rest]
            if metric == "refinement":
                for one in trials:  # what is compared is the mean loss of the other rows
                    means = np.average(one.losses[:, rest], axis=1, weights=each)
                    np.testing.assert_allclose(one.mean(held), means, rtol=1e-6)
            for one in trials:  # the values of the fold itself change nothing
                one.values[held] = np.random.default_rng(1).normal(size=7)
                one.losses[:, own] = 1e3
            again = find_best(stack, trials, chosen, held)
            assert (again[0].kind, again[1]) == (trial.kind, place)
            trials = [try_kind(stack, kind, chosen, 6) for kind in names]


def test_the_gain_is_not_that_of_the_best_choice_in_hindsight():
    claimed, hindsight = [], []
    for seed in range(6):
        y, logits = equally_good(10, 150, 3, np.random.default_rng(seed))
        found = rc.select_ensemble(y, logits=logits, max_picks=10)
        claimed.append(found.log_loss)
        hindsight.append(min(each["cv_value"] for each in found.kinds))
    assert np.mean(claimed) > np.mean(hindsight) + 1e-3


def test_what_cross_validation_chooses_is_delivered():
    chosen = []
    for seed in range(6):
        y, logits = equally_good(30, 150, 2, np.random.default_rng(seed))
        found = rc.select_ensemble(y, logits=logits, max_picks=10)
        chosen.append(found.choice)
        if found.choice == "best single":  # no pool is better, by cross-validation
            best = min(each["cv_value"] for each in found.kinds)
            assert found.path[0]["cv_value"] <= best + 1e-6
            assert found.gain.mean == 0
    assert chosen.count("uniform") >= 3


def test_the_page_of_a_single_member_says_why_it_is_alone():
    from refinecal.report.of_ensemble import ensemble_page

    y, logits = made(1, 400, 3)
    noise = np.random.default_rng(1).normal(size=(3, 400, 3))
    for cv, text in ((5, "No ensemble is better than model 1 alone, by"), (None, "Only model 1")):
        found = rc.select_ensemble(y, logits=[*logits, *noise], cv=cv, max_picks=1)
        assert found.choice == "best single"
        assert text in str(ensemble_page(found, 400).lead)


def test_on_few_rows_alike_models_are_averaged():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(60, 2))
    y = (truth + rng.gumbel(size=(60, 2))).argmax(axis=1)
    found = rc.select_ensemble(y, logits=truth + rng.normal(size=(20, 60, 2)))
    assert found.choice == "uniform"
    np.testing.assert_allclose(found.weights, 1 / 20)
    assert "uniform" in repr(found)


def test_groups_are_never_split():
    y, logits = made(3, 200, 2)
    groups = np.arange(200) // 10
    repeated = np.repeat(logits[:, ::10], 10, axis=1)  # within a group all rows are alike
    labels = np.repeat(y[::10], 10)
    found = rc.select_ensemble(labels, logits=repeated, groups=groups, cv=4)
    from refinecal.ensembles.greedy import Stack, from_tiles
    from refinecal.ensembles.members import read_members

    stack = Stack(read_members(labels, None, repeated, groups=groups), 4, 0)
    fold = np.empty(200, dtype=int)
    fold[stack.order] = from_tiles(stack.folds, 200)
    assert all(len(set(fold[groups == group])) == 1 for group in range(20))
    assert set(fold) == set(range(4))
    assert found.gain.n == 200


def never(y_true, probs):
    return np.nan


def test_folds_without_a_class_and_groups_of_weight_zero():
    y, logits = made(3, 12, 2)
    with pytest.raises(ValueError, match="metric 'auroc' cannot choose .* the same label"):
        rc.select_ensemble(np.zeros(12, int), logits=logits, classes=range(2), metric="auroc")
    with pytest.raises(ValueError, match="metric 'never' cannot choose .* returned NaN"):
        rc.select_ensemble(y, logits=logits, metric=never)
    rare = rc.select_ensemble(np.arange(12) == 0, logits=logits, metric="auroc")
    assert np.isfinite([each["cv_value"] for each in rare.kinds]).all()
    weights = np.where(np.arange(12) < 6, 0, 1)
    kept = rc.select_ensemble(y[6:], logits=logits[:, 6:], groups=np.arange(6) // 2)
    light = rc.select_ensemble(
        y, logits=logits, groups=np.arange(12) // 2, sample_weight=weights, metric="refinement"
    )
    np.testing.assert_allclose(light.weights, kept.weights)
    assert light.log_loss == pytest.approx(kept.log_loss, abs=1e-6)


def test_one_member_and_one_row():
    y, logits = made(3, 50, 3)
    alone = rc.select_ensemble(y, logits=logits[:1])
    assert alone.weights.tolist() == [1]
    assert alone.choice == "best single"
    calibrated = rc.TemperatureScaling().fit_logits(logits[0], y).predict_proba_logits(logits[0])
    np.testing.assert_allclose(alone.predict_proba(logits=logits[:1]), calibrated, atol=1e-5)
    one = rc.select_ensemble(y[:1], logits=logits[:, :1], classes=range(3))
    assert one.choice == "best single"
    group = rc.select_ensemble(
        y, logits=logits, groups=np.zeros(50)
    )  # cross-validation is impossible
    assert group.choice == "best single"
    assert "alone" in repr(one)


def test_classes_that_never_occur():
    y, logits = made(3, 100, 4)
    y = y % 2
    found = rc.select_ensemble(y, logits=logits, classes=range(4))
    probs = found.predict_proba(logits=logits)
    assert probs.shape == (100, 4)
    np.testing.assert_allclose(probs.sum(axis=1), 1)


def test_forests_with_probabilities_of_zero():
    y, logits = made(3, 200, 3)
    votes = np.eye(3)[np.random.default_rng(0).integers(3, size=(200, 10))].mean(axis=1)
    votes[y == 0] = [0.0, 0.5, 0.5]  # the label is impossible
    for pool in ("arithmetic", "geometric"):
        found = rc.select_ensemble(y, [*np.exp(logits), votes], pool=pool)
        assert found.smoothing.tolist() == [0, 0, 0, 200]
        row = next(row for row in found.table if row["member"] == "model 4")
        assert np.isfinite([row["refinement"], row["log_loss"]]).all()
        hard = np.eye(3)[[0, 1]]  # two members that rule out what the other says
        new = [hard, hard[::-1], hard, hard[::-1]]
        assert np.isfinite(found.predict_proba(new)).all()
        np.testing.assert_allclose(found.predict_proba(new).sum(axis=1), 1)


def test_soft_labels_are_weighted_rows():
    y, logits = made(3, 80, 2)
    soft = np.where(np.eye(2)[y] > 0, 0.75, 0.25)
    found = rc.select_ensemble(soft, logits=logits, cv=None, max_picks=4)
    rows = np.repeat(np.arange(80), 2)
    plain = rc.select_ensemble(
        np.tile([0, 1], 80),
        logits=logits[:, rows],
        sample_weight=soft.reshape(-1),
        cv=None,
        max_picks=4,
    )
    np.testing.assert_allclose(found.weights, plain.weights)
    assert rc.select_ensemble(soft, logits=logits).kinds


def test_separable_and_useless_members():
    y = np.arange(60) % 2
    sure = np.where(y == 1, 3.0, -3.0)
    useless = np.zeros(60)
    wrong = -sure
    found = rc.select_ensemble(y, logits=[wrong, useless, sure])
    assert found.best_single == "model 3"
    assert found.weights.tolist() == [0, 0, 1]
    assert rc.refinement_error(y, found.predict_proba(logits=[wrong, useless, sure])) < 1e-6


def test_huge_and_tiny_logits():
    y, logits = made(3, 100, 3)
    for scale in (1e-6, 1e6):
        found = rc.select_ensemble(y, logits=logits * scale)
        probs = found.predict_proba(logits=logits * scale)
        assert np.isfinite(probs).all()
        assert rc.metrics.log_loss(y, probs) < np.log(3)


# ---- files -------------------------------------------------------------------------------------------------


def test_files_of_one_model_each(tmp_path):
    y, logits = made(3, 100, 3)
    for name, z in zip("cab", logits, strict=True):
        np.savez(tmp_path / f"{name}.npz", logits=z, y=y)
    found = rc.select_ensemble(None, tmp_path)
    assert found.names == ("a", "b", "c")  # a folder has no order, so by name
    in_order = rc.select_ensemble(None, [tmp_path / f"{name}.npz" for name in "cab"])
    assert in_order.names == ("c", "a", "b")
    plain = rc.select_ensemble(y, logits=logits)
    np.testing.assert_array_equal(in_order.weights, plain.weights)
    np.testing.assert_allclose(
        found.predict_proba(f"{tmp_path}/*.npz"), plain.predict_proba(logits=logits), atol=1e-6
    )


def test_a_file_of_all_models(tmp_path):
    y, logits = made(3, 100, 3)
    np.savez(tmp_path / "all.npz", logits=logits, labels=y, models=["x", "y", "z"])
    assert rc.select_ensemble(None, tmp_path / "all.npz").names == ("x", "y", "z")
    np.savez(tmp_path / "all.npz", logits=logits)
    found = rc.select_ensemble(y, str(tmp_path / "all.npz"))
    assert found.names == ("all 0", "all 1", "all 2")
    with pytest.raises(ValueError, match="y_val is missing"):
        rc.select_ensemble(None, tmp_path / "all.npz")


def test_parquet_files_and_kinds(tmp_path):
    pd = pytest.importorskip("pandas")
    y, logits = made(2, 60, 3)
    for number, z in enumerate(logits):
        table = pd.DataFrame(np.exp(z), columns=["p_a", "p_b", "p_c"]).assign(y=y)
        table.to_parquet(tmp_path / f"model_{number}.parquet")
    found = rc.select_ensemble(None, tmp_path)
    np.testing.assert_allclose(found.weights, rc.select_ensemble(y, np.exp(logits)).weights)
    assert found.names == ("model_0", "model_1")


def test_files_must_have_the_same_labels(tmp_path):
    y, logits = made(2, 60, 3)
    np.savez(tmp_path / "a.npz", logits=logits[0], y=y)
    np.savez(tmp_path / "b.npz", logits=logits[1], y=y[::-1])
    with pytest.raises(ValueError, match="member 'b': its labels are not those of the first"):
        rc.select_ensemble(None, tmp_path)
    assert rc.select_ensemble(y, tmp_path).names == ("a", "b")  # whoever passes labels knows


def test_float32_is_never_copied_to_float64_as_a_whole():
    y, logits = made(20, 4000, 10, dtype=np.float32)
    rc.select_ensemble(y, logits=logits, max_picks=2)  # compiles
    for options, most in (({"pool": "geometric", "members": "raw", "cv": None}, 3), ({}, 5.5)):
        tracemalloc.start()
        rc.select_ensemble(y, logits=logits, **options)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most * logits.nbytes  # a copy in float64 would take 2 more


# ---- errors ------------------------------------------------------------------------------------------------


def test_errors_name_the_member():
    y, logits = made(3, 30, 3)
    probs = np.exp(logits)
    bad = probs.copy()
    bad[1, 4, 2] = np.nan
    with pytest.raises(ValueError, match=r"member 'net': probs\[4, 2\] is NaN"):
        rc.select_ensemble(y, bad, names=["tree", "net", "forest"])
    with pytest.raises(
        ValueError, match="member 'b': probs has shape .30, 2., but the first member"
    ):
        rc.select_ensemble(
            y, {"a": probs[0], "b": probs[1][:, :2] / probs[1][:, :2].sum(1, keepdims=True)}
        )
    with pytest.raises(ValueError, match="member 'model 2': probs has shape .29, 3."):
        rc.select_ensemble(y, [probs[0], probs[1][1:]])
    with pytest.raises(ValueError, match="member 'model 2': probs.* is not a probability"):
        rc.select_ensemble(y, [probs[0], 5 * logits[1]])
    infinite = logits.copy()
    infinite[2, 0, 0] = np.inf
    with pytest.raises(ValueError, match=r"member 'model 3': logits\[0, 0\] is \+inf"):
        rc.select_ensemble(y, logits=infinite)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "los"}, "metric is 'los'"),
        ({"pool": "mean"}, "pool is 'mean'"),
        ({"members": "warm"}, "members is 'warm'"),
        ({"max_picks": 0}, "max_picks is 0"),
        ({"n_bags": 0}, "n_bags is 0"),
        ({"cv": 1}, "cv is 1"),
        ({"names": ["a"]}, "names has 1 entries"),
        ({"names": ["a", "a", "b"]}, "names holds 'a' more than once"),
        ({"groups": [1, 2]}, "^groups has 2 entries"),
        ({"groups": [1.0, *[np.nan] * 29]}, r"^groups\[1\] is missing"),
        ({"groups": ["a"] * 29 + [None]}, r"^groups\[29\] is missing"),
        ({"sample_weight": [1.0] * 29 + [-1]}, "^sample_weight"),
        ({"classes": [0, 1]}, "^classes"),
        ({"random_state": -1}, "random_state is -1"),
        ({"random_state": None}, "random_state is None"),
        ({"max_pick": 3}, "Did you mean 'max_picks'"),
        ({"calibrator": "warm"}, "calibrator is 'warm'"),
    ],
)
def test_wrong_options(options, message):
    y, logits = made(3, 30, 3)
    with pytest.raises((TypeError, ValueError), match=message):
        rc.select_ensemble(y, logits=logits, **options)


def test_errors_about_labels_name_no_member():
    y, logits = made(3, 30, 3)
    with pytest.raises(ValueError, match="^y_val has 29"):
        rc.select_ensemble(y[1:], logits=logits)
    with pytest.raises(ValueError, match=r"^y_val\[0\] is missing"):
        rc.select_ensemble([None, *y[1:].tolist()], logits=logits)


def test_errors_of_predictions_name_the_member():
    y, logits = made(2, 30, 3)
    found = rc.select_ensemble(y, logits={"a": logits[0], "b": logits[1]}, max_picks=2, cv=None)
    used = found.names[int(found.weights.argmax())]
    with pytest.raises(ValueError, match=rf"^member '{used}': logits\[0, 0\] is NaN"):
        found.predict_proba(
            logits={"a": logits[0] * np.nan, "b": logits[1] * np.nan, used: logits[0] * np.nan}
        )


def test_columns_of_tables_are_matched_by_name(tmp_path):
    pd = pytest.importorskip("pandas")
    y, logits = made(3, 100, 3)
    columns = [["a", "b", "c"], ["b", "c", "a"], ["net a", "net b", "net c"]]
    first = pd.DataFrame(np.exp(logits[0]), columns=columns[0])
    second = pd.DataFrame(np.exp(logits[1]), columns=["a", "b", "c"])[columns[1]]
    third = pd.DataFrame(np.exp(logits[2]), columns=columns[2])  # these have their own names
    found = rc.select_ensemble(y, [first, second, third], names=["x", "y", "z"], max_picks=9)
    plain = rc.select_ensemble(y, np.exp(logits), max_picks=9)
    assert np.count_nonzero(found.weights) > 1
    np.testing.assert_allclose(found.weights, plain.weights)
    expected = plain.predict_proba(np.exp(logits))
    found.save(tmp_path / "ensemble.json")
    for each in (found, SelectedEnsemble.load(tmp_path / "ensemble.json")):
        turned = [table[table.columns[::-1]] for table in (first, second, third)]
        for stack in ([first, second, third], turned, np.exp(logits)):
            np.testing.assert_allclose(each.predict_proba(stack), expected, atol=1e-6)
        used = each.names[int(each.weights.argmax())]
        with pytest.raises(ValueError, match=f"member '{used}': probs has the columns .*'q'"):
            each.predict_proba({used: first.set_axis(["q", "r", "s"], axis=1)})
    before = {key: value for key, value in found.to_dict().items() if key != "columns"}
    old = SelectedEnsemble.from_dict(before)  # as files were written before
    np.testing.assert_allclose(old.predict_proba(np.exp(logits)), expected, atol=1e-6)
    assert rc.select_ensemble(y, np.exp(logits)).columns == []


def test_no_stack_and_wrong_stacks():
    y, logits = made(3, 30, 3)
    with pytest.raises(TypeError, match="found neither"):
        rc.select_ensemble(y)
    with pytest.raises(TypeError, match="found both"):
        rc.select_ensemble(y, np.exp(logits), logits=logits)
    with pytest.raises(ValueError, match="holds no member"):
        rc.select_ensemble(y, [])
    with pytest.raises(ValueError, match="stack has shape"):
        rc.select_ensemble(y, np.ones(30))
    with pytest.raises(TypeError, match="pass the predictions"):
        rc.select_ensemble(y, 3)
    found = rc.select_ensemble(y, logits=logits)
    with pytest.raises(ValueError, match="stack holds 2 members, but"):
        found.predict_proba(logits=logits[:2])
    with pytest.raises(ValueError, match="are missing"):
        found.predict_proba(logits={"other": logits[0]})


# ---- texts and files ---------------------------------------------------------------------------------------


def test_json_restores_everything(tmp_path):
    y, logits = made(4, 150, 3)
    names = np.array(["a", "b", "c"])
    found = rc.select_ensemble(names[y], logits=logits, calibrator="vector")
    found.save(tmp_path / "ensemble.json")
    again = SelectedEnsemble.load(tmp_path / "ensemble.json")
    assert again.to_dict() == found.to_dict() == json.loads(json.dumps(found.to_dict()))
    assert repr(again) == repr(found)
    np.testing.assert_array_equal(
        again.predict_proba(logits=logits), found.predict_proba(logits=logits)
    )


DAMAGES = [
    {"format": 9},
    {"weights": ["x"]},
    {"weights": [0.5, 0.6]},
    {"weights": [1.0]},
    {"betas": [1, None]},
    {"calibrator": {}},
    {"names": 3},
    {"pool": "x"},
    {"path": 1},
    {"more": 1},
    {"columns": [["a"], None]},
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(damage):
    y, logits = made(2, 50, 2)
    state = rc.select_ensemble(y, logits=logits).to_dict()
    with pytest.raises(ValueError, match="not the state of an ensemble, or it is damaged"):
        SelectedEnsemble.from_dict(state | damage)


def test_the_text_fits_into_80_columns():
    y, logits = made(3, 100, 3)
    found = rc.select_ensemble(y, logits=logits, names=["a" * 90, "b", "c"])
    assert max(map(len, repr(found).splitlines())) <= 80
    assert found.describe() in repr(found)


# ---- the kernel --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 130])
@pytest.mark.parametrize("arithmetic", [True, False])
def test_the_kernel_has_the_derivatives_of_the_loss(k, arithmetic):
    rng = np.random.default_rng(k)
    tiles, m = 2, 3
    logs = log_softmax(rng.normal(size=(tiles, m, k, 128)), axis=2).astype(np.float32)
    values = np.exp(logs) if arithmetic else logs
    labels = rng.integers(k, size=(tiles, 128))
    weights = rng.integers(0, 3, size=(tiles, 128)).astype(np.float32)
    total, factors = values[:, 0] * 2, np.array([1, 2, 0.5], np.float32)

    def loss(i, beta):
        pool = (total + factors[i] ** (not arithmetic) * values[:, i]) / 3
        z = np.log(pool) if arithmetic else pool
        logs = log_softmax(beta * z.astype(np.float64), axis=1)
        at_label = np.take_along_axis(logs, labels[:, None], axis=1)[:, 0]
        return -np.average(at_label, weights=weights)

    out = np.empty((m, 6))
    betas = np.array([0.5, 1.0, 2.0])
    _kernels.pooling.read(
        values, total, factors, np.float32(1 / 3), arithmetic, labels, weights, betas, out
    )
    for i, beta in enumerate(betas):
        h = 1e-3
        low, mid, high = (loss(i, beta * (1 + s)) for s in (-h, 0, h))
        assert out[i, 0] == weights.sum()
        np.testing.assert_allclose(out[i, 1] / out[i, 0], mid, rtol=1e-6)
        np.testing.assert_allclose(out[i, 2] / out[i, 0], (high - low) / (2 * h), atol=1e-5)
        np.testing.assert_allclose(
            out[i, 3] / out[i, 0], (high - 2 * mid + low) / h**2, rtol=1e-3, atol=1e-3
        )
