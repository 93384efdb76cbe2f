"""Fitting a table: parts that do not overlap, choices that brute force makes too, resumed trainings."""

import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import scipy.special
import scipy.stats
from made_tables import mixed

from refinecal._core.format import with_error
from refinecal.decomposition import decompose
from refinecal.evaluation import row_losses
from refinecal.tabular.data import Options, prepare
from refinecal.tabular.fit_folder import FitFolder
from refinecal.tabular.fitting import TRACKED, Candidate, draw_candidates, fit, plan
from refinecal.tabular.judgement import (
    describe_calibration,
    describe_certainty,
    describe_delivered,
    judge,
    lead,
    recommend,
)
from refinecal.tabular.schema import Schema
from refinecal.training.crossfit import Cancelled, CrossFit
from refinecal.training.table_model import get_model

FAST = {"max_steps": 8, "patience": 8, "n_threads": 1}


TEN = "the average of 10 models, each trained on 80% of"
REFITTED = "including the test rows. The test loss is that of"


def fitted(tmp_path, table=None, test=None, progress=None, resume=False, **options):
    table = mixed() if table is None else table
    schema = Schema.infer(table, "kind", drop=["weight", "family"])
    options = Options(**(FAST | options))
    data = prepare(table, schema, options, test)
    return fit(data, options, opened(tmp_path / "work", plan(data, options), resume), progress)


def opened(path, planned, resume=False):
    folder = FitFolder(path)
    if resume:
        folder.check_plan(planned)
    folder.open(planned, resume)
    return folder


def rows_as_set(rows):
    return {tuple(map(str, row)) for row in rows.X.itertuples(index=False)}


def test_parts_do_not_overlap_and_hold_every_row():
    table = mixed()
    data = prepare(table, Schema.infer(table, "kind"), Options(folds=None))
    ((train, val),) = data.pairs
    parts = [rows_as_set(part) for part in (train, val, data.test)]
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert train.n + val.n == data.n_train == table.num_rows - data.test.n
    assert abs(data.test.n / table.num_rows - 0.2) < 0.02


def test_groups_stay_together():
    table = mixed()
    schema = Schema.infer(table, "kind", group="family")
    data = prepare(table, schema, Options(folds=None))
    ((train, val),) = data.pairs
    parts = [set(part.groups.tolist()) for part in (train, val, data.test)]
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_the_order_of_rows_does_not_matter(tmp_path):
    table = mixed(200)
    order = np.random.default_rng(1).permutation(200)
    first = fitted(tmp_path / "a", table)
    second = fitted(tmp_path / "b", table.take(pa.array(order)))
    assert first.chosen.value == second.chosen.value
    assert first.chosen.steps == second.chosen.steps
    np.testing.assert_array_equal(
        np.sort(first.data.test_places), np.sort(order[second.data.test_places])
    )


@pytest.mark.parametrize("folds", [None, 3])
def test_each_metric_chooses_what_its_history_says(tmp_path, folds):
    found = fitted(tmp_path, folds=folds, tune=3)
    better = {"accuracy": max, "auroc": max}
    for name in ("refinement", *TRACKED):
        best = better.get(name, min)
        per_candidate = []
        for candidate in range(3):
            values, sizes = [], []
            for fold, (_, val) in enumerate(found.data.pairs):
                records = [
                    record
                    for record in found.history
                    if (record["candidate"], record["fold"]) == (candidate, fold)
                ]
                values.append(best(record[name] for record in records))
                sizes.append(val.total)
            per_candidate.append(np.average(values, weights=sizes))
        outcome = found.outcomes[name]
        assert outcome.value == pytest.approx(best(per_candidate), rel=1e-6)
        assert per_candidate[outcome.candidate] == pytest.approx(outcome.value, rel=1e-6)


def test_test_probabilities_are_means_of_models(tmp_path):
    found = fitted(tmp_path, folds=3)
    calibrated, plain = [], []
    ensemble = found.chosen.ensemble
    for unit in found.units:
        logits = get_model(found.kind).load(unit.model).logits(found.data.test.X).astype(float)
        plain.append(scipy.special.softmax(logits, axis=1))
        calibrated.append(ensemble.calibrator.predict_proba_logits(np.log(plain[-1])))
    np.testing.assert_allclose(found.chosen.before, np.mean(plain, axis=0), atol=1e-9)
    shares = np.bincount(np.concatenate([unit.y for unit in found.units]))
    shares = shares / shares.sum()
    expected = shares * (np.mean(calibrated, axis=0) / shares) ** ensemble.beta
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.chosen.after, expected, atol=1e-9)
    assert ensemble.beta > 1


@pytest.mark.parametrize("refit", [True, False])
def test_the_delivered_models_have_seen_all_rows(tmp_path, refit):
    found = fitted(tmp_path, refit=refit)
    data = found.data
    assert len(found.units) == 5 * (1 if refit else 2)  # judged
    assert len(found.delivered) == 10
    assert data.n_delivered == data.n_train + (data.test.n if refit else 0)
    if not refit:
        assert found.delivered is found.units
        assert found.ensemble is found.chosen.ensemble
        return
    taught = [set(train.places) for train, _ in data.everything]
    assert set.union(*taught) == set(range(data.n_delivered))
    for unit, train in zip(found.delivered, taught, strict=True):
        assert not train & set(unit.places)
        assert len(train) + len(unit.places) == data.n_delivered
        assert unit.choices.keys() == {"refinement", "log_loss"}
        for choice in unit.choices.values():  # nobody may look at rows that it has seen
            assert choice.test_logits is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, f"{TEN} all 400 rows, {REFITTED} 5 models trained"),
        (
            {"folds": 3},
            f"the average of 3 models, each trained on 67% of all 400 rows, {REFITTED} 3 models trained",
        ),
        (
            {"folds": None},
            "one model, trained on 320 of 400 rows; the others are validation rows. Test rows are among both",
        ),
        ({"refit": False}, f"{TEN} all 320 rows, none of which are test rows."),
        ({"test_fraction": 0.0}, f"{TEN} all 400 rows."),
        ({"tune": 2}, f"{TEN} all 400 rows, {REFITTED} 5 models trained"),
        ({"tune": 2, "test_fraction": 0.0}, f"{TEN} all 400 rows."),
    ],
    ids=str,
)
def test_what_is_delivered_is_said(tmp_path, options, expected):
    found = fitted(tmp_path, **options)
    assert f"Delivered: {expected}" in describe_delivered(found, judge(found))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"calibrator": "temperature"}, "Calibrated with temperature scaling: temperature "),
        ({"calibrator": "temperature", "folds": None}, "Calibrated with temperature scaling: temp"),
        (
            {"calibrator": "structured-matrix"},
            "Calibrated with structured-matrix. Averaging makes probabilities underconfident",
        ),
        ({"folds": 3, "test_fraction": 0.0}, "; the models are averaged on the scale of log-odds."),
    ],
    ids=str,
)
def test_what_calibrates_is_said(tmp_path, options, expected):
    found = fitted(tmp_path, **options)
    said = describe_calibration(found)
    assert expected in said
    sharper = f"are multiplied by {found.ensemble.beta or 1:.2f} (estimated from the spread"
    assert (sharper in said) == (len(found.delivered) > 1 and found.ensemble.beta is not None)


def test_the_loss_of_validation_rows(tmp_path):
    found = fitted(tmp_path, folds=3, test_fraction=0.0)
    losses = []
    for unit in found.units:
        probs = found.ensemble.calibrator.predict_proba_logits(
            unit.held_out("refinement", 3).logits
        )
        losses.append(-np.log(probs[np.arange(len(unit.y)), unit.y]))
    assert found.validation_loss == pytest.approx(np.concatenate(losses).mean())


def test_what_to_expect_of_models_that_have_seen_all_rows(tmp_path):
    """The test loss, and the change of the loss of validation rows that both passes held out."""
    found = fitted(tmp_path, folds=3)
    judged, losses = judge(found), []
    for units, ensemble in (
        (found.units, found.chosen.ensemble),
        (found.delivered, found.ensemble),
    ):
        by_place = {}
        for unit in units:
            probs = ensemble.calibrator.predict_proba_logits(unit.held_out("refinement", 3).logits)
            at_label = probs[np.arange(len(unit.y)), unit.y]
            by_place |= dict(zip(unit.places.tolist(), -np.log(at_label), strict=True))
        losses.append(by_place)
    assert losses[0].keys() < losses[1].keys()
    changes = [losses[1][place] - loss for place, loss in losses[0].items()]
    assert found.change_with_all_rows.mean == pytest.approx(np.mean(changes))
    assert judged.expected.mean == pytest.approx(judged.level.mean + np.mean(changes))
    error = np.hypot(judged.level.standard_error, scipy.stats.sem(changes))
    assert judged.expected.standard_error == pytest.approx(error)
    assert with_error(judged.expected.mean, error) in describe_delivered(found, judged)
    as_judged = fitted(tmp_path / "again", folds=3, refit=False)
    assert judge(as_judged).expected == judge(as_judged).level


def test_few_rows_in_both_passes_say_nothing_of_the_change(tmp_path):
    found = fitted(tmp_path, mixed(200), folds=None)  # 40 rows held out, some of them twice
    assert found.change_with_all_rows is None
    assert judge(found).expected == judge(found).level
    assert "so expect" not in describe_delivered(found, judge(found))


def test_few_test_rows_do_not_say_how_far_models_disagree(tmp_path):
    test = mixed(40, seed=3)
    assert fitted(tmp_path, test=test, folds=3).ensemble.beta is None
    test = mixed(60, seed=3)
    assert fitted(tmp_path / "more", test=test, folds=3).ensemble.beta > 1


def test_the_scale_of_weights_does_not_decide_the_sharpening(tmp_path):
    """They are not whole numbers, which would be repetitions."""
    table, betas = mixed(300), []
    place = table.schema.get_field_index("weight")
    weights = np.random.default_rng(0).uniform(0.5, 1.5, 300)
    for scale in (1, 4096):
        scaled = table.set_column(place, "weight", pa.array(scale * weights))
        schema = Schema.infer(scaled, "kind", weight="weight", drop=["family"])
        options = Options(**FAST, folds=3, calibrator="temperature", model="logistic")
        data = prepare(scaled, schema, options)
        folder = opened(tmp_path / str(scale), plan(data, options))
        betas.append(fit(data, options, folder).ensemble.beta)
    assert betas[0] > 1
    assert betas[1] - 1 == pytest.approx(betas[0] - 1, rel=0.1)  # smoothing counts weights


def test_both_passes_stop_by_the_same_rule(tmp_path):
    """The judged models would be others than the delivered ones if they were stopped otherwise."""
    table = mixed()
    found = fitted(tmp_path, table, max_steps=60, patience=2, folds=3)
    for unit in found.delivered:
        best = {name: choice.step for name, choice in unit.choices.items()}
        assert max(best.values()) + 2 == unit.history[-1]["step"]


def test_zero_weights_do_not_count_as_rows(tmp_path):
    table = mixed()
    weights = np.where(np.arange(400) % 4, 1.0, 0.0)
    table = table.set_column(table.schema.get_field_index("weight"), "weight", pa.array(weights))
    for group in (None, "family"):
        schema = Schema.infer(table, "kind", weight="weight", group=group)
        data = prepare(table, schema, Options())
        assert data.n_delivered == data.delivered.rows.n_used == 300


def test_a_class_that_is_in_one_group_is_named():
    table = mixed()
    kind, family = np.array(table["kind"]), np.array(table["family"])
    rare = np.unique(kind)[0]
    family = np.where(kind == rare, family[kind == rare][0], family)
    place = table.schema.get_field_index("family")
    table = table.set_column(place, "family", pa.array(family))
    with pytest.raises(ValueError, match=f"the rows of '{rare}' are in so few groups"):
        prepare(table, Schema.infer(table, "kind", group="family"), Options(test_fraction=0))


def test_weights_of_test_rows_count_where_models_are_compared(tmp_path):
    """Rows of weight 0 may say what they like."""
    table, test = mixed(300), mixed(100, seed=9)
    schema = Schema.infer(table, "kind", weight="weight", drop=["family"])
    zeros = mixed(80, seed=5).set_column(
        table.schema.get_field_index("weight"), "weight", pa.array(np.zeros(80))
    )
    weight = test.schema.get_field_index("weight")
    ones = test.set_column(weight, "weight", pa.array(np.ones(100)))
    betas = []
    for number, each in enumerate([ones, pa.concat_tables([ones, zeros])]):
        options = Options(**FAST, folds=3)
        data = prepare(table, schema, options, each)
        folder = opened(tmp_path / str(number), plan(data, options))
        betas.append(fit(data, options, folder).ensemble.beta)
    assert betas[0] == pytest.approx(betas[1])


def test_what_is_said_of_test_rows_is_of_models_that_have_not_seen_them(tmp_path):
    found = fitted(tmp_path)
    places = set(found.data.test_places)
    for train, val in found.data.pairs:
        assert not places & (set(train.places) | set(val.places))


def test_the_outcome_is_the_same_with_and_without_refitting(tmp_path):
    """What is judged is trained on the same rows."""
    with_, without = (
        fitted(tmp_path / str(refit), folds=3, refit=refit) for refit in (True, False)
    )
    np.testing.assert_array_equal(with_.chosen.after, without.chosen.after)


def test_metrics_that_choose_the_same_share_their_outcome(tmp_path):
    found = fitted(tmp_path, max_steps=1).outcomes  # there is but one step to choose
    first = found["refinement"]
    assert all(other.ensemble is first.ensemble for other in found.values())
    assert [other.metric for other in found.values()] == ["refinement", *TRACKED]
    assert len({other.value for other in found.values()}) > 1


def test_a_test_table_is_used_whole(tmp_path):
    test = mixed(100, seed=9)
    found = fitted(tmp_path, test=test)
    assert found.data.test.n == 100
    assert found.data.n_train == 400
    assert found.chosen.after.shape == (100, 3)


def with_rare(n_rare, n=200):
    """Return a table with another class, of so many rows."""
    labels = mixed(n)["kind"].to_pylist()
    labels[7 : 7 + n_rare] = ["rare"] * n_rare
    return mixed(n).set_column(6, "kind", pa.array(labels))


def test_a_class_of_one_row_is_for_training_only(tmp_path):
    found = fitted(tmp_path, with_rare(1), folds=None)
    rare = found.data.schema.classes.index("rare")
    assert rare not in found.data.test.y
    assert rare in found.units[0].known
    np.testing.assert_allclose(found.chosen.after.sum(axis=1), 1)


@pytest.mark.parametrize(("folds", "needed"), [("auto", 5), (3, 3), (None, 1)])
def test_a_class_needs_as_many_rows_as_there_are_folds(folds, needed):
    def parts(n_rare):
        table = with_rare(n_rare)
        return prepare(table, Schema.infer(table, "kind"), Options(folds=folds)).pairs

    assert len(parts(needed)) == (needed if needed > 1 else 1)
    for few in range(1, needed):
        with pytest.raises(
            ValueError, match=f"'rare' has {few} rows.*at least {needed} rows.*--folds {few}"
        ):
            parts(few)


def test_twenty_rows_are_needed():
    table = mixed(20, k=2)
    prepare(table, Schema.infer(table, "kind"), Options(folds=None))
    with pytest.raises(ValueError, match="target 'kind' has a value in 19 rows, but at least 20"):
        prepare(table.slice(0, 19), Schema.infer(table, "kind"), Options())


def test_weights_count_as_repetitions_all_in_one_part():
    table = mixed(150)
    data = prepare(table, Schema.infer(table, "kind", weight="weight"), Options())
    weights = table["weight"].to_numpy()
    for train, val in data.pairs:
        assert not set(train.places) & set(val.places)
        for part in (train, val):
            assert part.weights is None
            places, counts = np.unique(part.places, return_counts=True)
            np.testing.assert_array_equal(counts, weights[places])


def test_test_rows_that_equal_training_rows_are_pointed_out():
    table = mixed(200)
    twice = pa.concat_tables([table, table])
    with pytest.warns(
        RuntimeWarning, match=r"\d+% of the test rows have the same features.*--group"
    ):
        prepare(twice, Schema.infer(twice, "kind"), Options())


class Stops(Exception):
    pass


class StopAt:
    """A listener who interrupts one of the trainings."""

    def __init__(self, number):
        self.number, self.trained = number, []

    def say(self, text):
        pass

    def start(self, run, name, max_steps):
        pass

    def step(self, run, number, record):
        if run not in self.trained:
            self.trained.append(run)
        if run == self.number:
            raise Stops

    def finish(self, run):
        pass


@pytest.mark.parametrize("stop", [4, 8], ids=["judged", "delivered"])
def test_an_interrupted_fit_is_gone_on_with(tmp_path, stop):
    whole = fitted(tmp_path / "whole", folds=2, tune=3)
    with pytest.raises(Stops):
        fitted(tmp_path / "cut", folds=2, tune=3, progress=StopAt(stop))
    rest = StopAt(0)
    resumed = fitted(tmp_path / "cut", folds=2, tune=3, progress=rest, resume=True)
    assert rest.trained == list(range(stop, 9))  # three times two, and two that are delivered
    assert resumed.chosen.value == whole.chosen.value
    np.testing.assert_array_equal(resumed.chosen.after, whole.chosen.after)
    assert resumed.ensemble.beta == whole.ensemble.beta


def test_resuming_something_else_is_refused(tmp_path):
    fitted(tmp_path, folds=2)
    with pytest.raises(ValueError, match="--resume.*another (data and )?seed: pass the same"):
        fitted(tmp_path, folds=2, resume=True, seed=5)
    with pytest.raises(ValueError, match="another data"):
        fitted(tmp_path, mixed(seed=3), folds=2, resume=True)


def test_units_survive_being_stored(tmp_path):
    unit = fitted(tmp_path, folds=2).units[1]
    again = FitFolder(tmp_path / "work").load("candidate-0-fold-1")
    assert again.history == unit.history
    assert again.choices.keys() == unit.choices.keys()
    for name, choice in unit.choices.items():
        np.testing.assert_array_equal(again.choices[name].test_logits, choice.test_logits)
        np.testing.assert_array_equal(again.choices[name].logits, choice.logits)
        assert (again.choices[name].step, again.choices[name].value) == (choice.step, choice.value)
    for name in ("y", "places", "known"):
        np.testing.assert_array_equal(getattr(again, name), getattr(unit, name))


def test_the_first_candidate_is_the_default():
    assert draw_candidates(Options(model="logistic")) == [Candidate("logistic", {})]
    three = draw_candidates(Options(tune=3, seed=1))
    assert three[0] == Candidate("xgboost", {"learning_rate": 0.1, "colsample_bynode": 0.6})
    assert three[1] != three[2]
    assert three == draw_candidates(Options(tune=3, seed=1))


# ---- the judgement -----------------------------------------------------------------------------------------


def test_the_judgement_is_that_of_the_test_rows(tmp_path):
    found = fitted(tmp_path)
    judged = judge(found)
    y = found.data.test.y
    ours = -np.log(found.chosen.after[np.arange(len(y)), y])
    singles = [scipy.special.softmax(u.test_logits("log_loss", 3), axis=1) for u in found.units]
    usual = np.mean([-np.log(probs[np.arange(len(y)), y]) for probs in singles], axis=0)
    assert judged.ours.log.risk == pytest.approx(ours.mean())
    assert judged.level.standard_error == pytest.approx(ours.std(ddof=1) / np.sqrt(len(y)))
    assert judged.usual == pytest.approx(usual.mean())
    assert judged.log.mean == pytest.approx((ours - usual).mean())
    assert judged.log.standard_error == pytest.approx((ours - usual).std(ddof=1) / np.sqrt(len(y)))
    assert judged.gain == pytest.approx(1 - ours.mean() / usual.mean())
    again = decompose(y, found.chosen.after)
    assert judged.ours.log.calibration == pytest.approx(again.calibration)
    brier = row_losses(y, found.chosen.after, loss="brier").mean()
    assert judged.ours.brier.risk == pytest.approx(brier)


@pytest.mark.parametrize("folds", [None, 3])
def test_the_gain_is_split_into_its_parts(tmp_path, folds):
    found = fitted(tmp_path, folds=folds)
    judged, y = judge(found), found.data.test.y
    stages = judged.stages
    single = "one model, stopped on log loss"
    names = [f"{single} (mean of 3)", "average of 3", "calibrated", "chosen by refinement"]
    assert [stage.name for stage in stages] == ([single, *names[2:]] if folds is None else names)
    probs = [found.usual.before, found.usual.after, found.chosen.after]
    losses = [-np.log(each[np.arange(len(y)), y]) for each in probs][len(names) - len(stages) :]
    assert [stage.loss for stage in stages[1:]] == pytest.approx([each.mean() for each in losses])
    for before, after, stage in zip(losses, losses[1:], stages[2:], strict=False):
        error = (after - before).std(ddof=1) / np.sqrt(len(y))
        assert stage.change.standard_error == pytest.approx(error)
    changes = [stage.change.mean for stage in stages[1:]]
    assert sum(changes) == pytest.approx(judged.log.mean)  # nothing is left over
    assert judged.stages[-1].change.mean == changes[-1]


def test_what_is_said_of_choosing_by_refinement(tmp_path):
    judged = judge(fitted(tmp_path))

    def said(mean, error):
        low, high = mean - 1.96 * error, mean + 1.96 * error
        last = judged.stages[-1]
        change = replace(last.change, mean=mean, standard_error=error, low=low, high=high)
        stages = [*judged.stages[:-1], replace(last, change=change)]
        return describe_certainty(replace(judged, stages=stages))

    assert said(-0.01, 0.001).endswith("lowered the loss by 0.0100 ± 0.0010.")
    assert said(0.01, 0.001).endswith("raised the loss by 0.0100 ± 0.0010.")
    assert said(-0.01, 0.02).endswith("lowered the loss by 0.010 ± 0.020, within noise.")
    assert "Refinement and log loss chose the same models." in said(0.0, 0.0)


def test_words_follow_numbers(tmp_path):
    found = fitted(tmp_path)
    judged = judge(found)
    assert with_error(judged.ours.log.risk, judged.level.standard_error) in lead(judged)
    error = judged.log.standard_error
    assert with_error(-judged.log.mean, error, sign="+") in describe_certainty(judged)
    assert ("may be chance" in lead(judged)) == (
        not judged.log.is_sure and abs(judged.gain) >= 0.0005
    )
    judged = replace(judged, ours=replace(judged.ours, n=1))
    assert recommend(found, judged)[0].startswith("Measure the loss on more test rows")
    if found.hit_the_end:
        assert any("--max-steps" in advice for advice in recommend(found, judged))


def test_without_test_rows_there_is_no_judgement(tmp_path):
    found = fitted(tmp_path, test_fraction=0.0)
    assert found.data.test is None
    assert judge(found) is None
    assert found.data.n_train == 400


def test_advice_does_not_contradict_the_numbers(tmp_path):
    found = fitted(tmp_path)
    judged = judge(found)
    ours, before = judged.ours.log, judged.uncalibrated.log
    worse = replace(before, risk=ours.risk * 0.9, refinement=ours.risk * 0.6)
    told = recommend(found, replace(judged, uncalibrated=replace(judged.uncalibrated, log=worse)))
    assert not any("Use the calibrated" in advice for advice in told)
    better = replace(before, risk=ours.risk * 1.5, refinement=ours.risk)
    told = recommend(found, replace(judged, uncalibrated=replace(judged.uncalibrated, log=better)))
    assert any("Use the calibrated" in advice for advice in told)


class AllAtOnce(StopAt):
    """Sees whether two models are trained at the same time, and stops one of them there."""

    def __init__(self, number):
        super().__init__(number)
        self.meeting = threading.Barrier(2, timeout=60)
        self.steps = []

    def step(self, run, number, record):
        self.steps.append(run)
        if number == 1 and run in (1, 2):
            self.meeting.wait()  # for the other: a fit that trains one by one would end here
        if run == self.number:
            raise Stops


@pytest.mark.parametrize("model", ["xgboost", "lightgbm", "catboost"])
def test_models_trained_at_once_are_those_trained_one_by_one(tmp_path, model):
    settings = {"model": model, "folds": 3, "max_steps": 8}
    together = AllAtOnce(0)
    both = fitted(tmp_path / "two", n_threads=2, progress=together, **settings)
    alone = fitted(tmp_path / "one", n_threads=1, **settings)
    assert set(together.steps) == {1, 2, 3, 4, 5, 6}
    np.testing.assert_array_equal(both.chosen.after, alone.chosen.after)
    assert both.history == alone.history
    assert [unit.fold for unit in both.delivered] == [0, 1, 2]
    for ours, other in zip(both.delivered, alone.delivered, strict=True):
        (file,) = ours.model.glob("model.*")
        if model != "catboost":  # whose files hold the time and an id
            assert file.read_bytes() == (other.model / file.name).read_bytes()


def test_a_failure_ends_the_models_trained_beside_it(tmp_path):
    progress = AllAtOnce(2)
    settings = {"folds": 4, "max_steps": 5000, "patience": 5000}  # that would take long
    with pytest.raises(Stops):
        fitted(tmp_path, n_threads=2, progress=progress, **settings)
    assert set(progress.steps) == {1, 2}
    assert progress.steps.count(1) < 5000
    assert FitFolder(tmp_path / "work").n_finished == 0


def test_an_interrupt_between_two_models_ends_the_first():
    ended = []

    class Waits(CrossFit):
        def share_cores(self, parts, candidate):
            return 2, None

        def train(self, parts, candidate, fold):
            ended.append(self.cancel.wait(20))
            raise Cancelled

    def folds():
        yield 0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Waits().train_folds([], 0, folds())
    assert ended == [True]


def test_other_metrics_get_the_blend_that_is_delivered(tmp_path):
    found = fitted(tmp_path, calibrator="auto")
    ours = found.chosen.ensemble.calibrator
    for name in ("brier", "accuracy", "auroc"):
        other = found.outcomes[name].ensemble.calibrator
        assert other.names_ == ours.names_
        np.testing.assert_array_equal(other.weights_, ours.weights_)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_configuration_that_cannot_be_trained_is_skipped(tmp_path, monkeypatch, n_threads):
    """The others are trained, also when the failure has cancelled the other folds of the configuration."""
    params = [
        Candidate("xgboost", each) for each in ({}, {"booster": "nonsense"}, {"max_depth": 2})
    ]
    monkeypatch.setattr(
        "refinecal.tabular.fitting.draw_candidates", lambda _: [Candidate(*each) for each in params]
    )
    with pytest.warns(RuntimeWarning, match="configuration 1 is skipped"):
        found = fitted(tmp_path, tune=3, folds=2, n_threads=n_threads)
    assert {record["candidate"] for record in found.history} == {0, 2}
    assert len(found.delivered) == 2
    params[0] = params[1]
    with pytest.raises(ValueError, match="nonsense"):  # the default: something is wrong
        fitted(tmp_path, tune=3, folds=2, n_threads=n_threads)
