"""RefinementMonitor and select: which step is best, when to stop, what is kept and what is not."""

import copy
import gc
import json
import math
import pickle
import tracemalloc
import warnings
import weakref
from itertools import count

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold
from strategies import drawn, predictions

import refinecal as rc
from refinecal.metrics import BUILT_IN, Metric

TERMS = ("risk", "calibration", "refinement", "sharpness", "uncertainty")
Y, GOOD, BETTER, WORSE = (
    [0, 0, 1, 1],
    [0.4, 0.6, 0.5, 0.7],
    [0.1, 0.7, 0.6, 0.9],
    [0.6, 0.7, 0.3, 0.9],
)
NAN, INF = math.nan, math.inf


def training(steps=15, n=120, k=3, seed=0):
    """Labels, and the logits of a model that first learns, then goes wrong and grows too sure of it."""
    rng = np.random.default_rng(seed)
    labels, truth = drawn(n, k, seed)
    noise = rng.standard_normal((steps, n, k)) * np.linspace(0.1, 2, steps)[:, None, None]
    learned = 1 - np.exp(-np.arange(steps) / 3)[:, None, None]
    return labels, np.linspace(0.5, 4, steps)[:, None, None] * (learned * truth + noise)


def brute_force(labels, logits):
    """Return the smallest mean log loss over all temperatures, found by a bounded search of log beta."""

    def loss(log_beta):
        logs = log_softmax(np.exp(log_beta) * logits.astype(np.float64), axis=1)
        return -logs[np.arange(len(labels)), labels].mean()

    return minimize_scalar(loss, bounds=(-8, 8), method="bounded", options={"xatol": 1e-10}).fun


def followed(values, **options):
    """Return a monitor that has seen one step for each of these values of its metric."""
    pending = iter(values)
    options = {"greater_is_better": False, **options}
    metric = Metric(lambda y, probs: next(pending), "value", options.pop("greater_is_better"))
    monitor = rc.RefinementMonitor(metric, **options)
    improved = [monitor.update([0, 1], [0.4, 0.6]) for _ in values]
    return monitor, improved


def text(monitor):
    """Return all that a monitor knows as text, in which NaN equals itself."""
    return json.dumps(monitor.state_dict())


# ---- which step is best ----------------------------------------------------------------------------------


@given(st.lists(predictions(), min_size=1, max_size=6))
def test_starting_from_the_last_beta_changes_nothing(steps):
    monitor = rc.RefinementMonitor()
    for labels, logits in steps:
        monitor.update(labels, logits=logits)
        cold = rc.decompose(labels, logits=logits)
        for term in TERMS:
            expected = getattr(cold, term)
            assert monitor.history[-1][term] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("k", [2, 10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_step_is_the_decomposition_of_its_predictions(k, dtype):
    labels, stages = training(k=k)
    monitor = rc.select(labels, logits=stages.astype(dtype))
    exact = 1e-9 if dtype is np.float64 else 1e-6
    for logits, record in zip(stages.astype(dtype), monitor.history, strict=True):
        cold = rc.decompose(labels, logits=logits)
        assert [record[term] for term in TERMS] == pytest.approx(
            [getattr(cold, term) for term in TERMS], rel=exact, abs=exact
        )
        assert record["beta"] == pytest.approx(cold.beta, rel=1e3 * exact)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_step_is_that_of_brute_force(k, seed):
    labels, stages = training(k=k, seed=seed)
    monitor = rc.select(labels, logits=stages)
    values = [brute_force(labels, logits) for logits in stages]
    assert monitor.best_step == np.argmin(values)
    assert monitor.best_value == pytest.approx(min(values), rel=1e-9)
    assert monitor.calibrator.loss_ == pytest.approx(min(values), rel=1e-9)


def test_every_metric_has_its_own_best_step():
    labels, stages = training(seed=3)
    monitor = rc.select(labels, logits=stages, also=BUILT_IN)
    for name, (_, greater) in BUILT_IN.items():
        values = [record[name] for record in monitor.history]
        best = int(np.argmax(values) if greater else np.argmin(values))
        assert (monitor.bests[name].step, monitor.bests[name].value) == (best, values[best])
        assert monitor.bests[name].record is monitor.history[best]
        assert monitor.bests[name].calibrator.beta_ == monitor.history[best]["beta"]
    assert len({best.step for best in monitor.bests.values()}) > 1


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("use_weights", [False, True])
def test_metrics_are_the_functions_of_that_name(k, use_weights):
    labels, stages = training(steps=1, k=k)
    weights = np.random.default_rng(0).random(len(labels)) if use_weights else None
    about = {"sample_weight": weights}
    record = rc.select(labels, logits=stages, also=BUILT_IN, **about).history[0]
    functions = {
        "brier": "brier_score",
        "ks": "ks_statistic",
        "kuiper": "kuiper_statistic",
        "lp": "lp_calibration_error",
    }
    others = {"refinement", "risk", "brier_refinement"}  # of the decomposition
    options = {"classwise_ece": {"kind": "class-wise"}}
    options["debiased_ece"] = {"norm": "l2", "debiased": True}
    for name in set(BUILT_IN) - others:
        function = "ece" if name in options else functions.get(name, name)
        given = {"logits": stages[0], **about, **options.get(name, {})}
        expected = getattr(rc.metrics, function)(labels, **given)
        expected = abs(expected.statistic) if name == "spiegelhalter" else expected
        assert record[name] == pytest.approx(expected, rel=1e-12, abs=1e-15), name
    brier = rc.decompose(labels, logits=stages[0], loss="brier", **about)
    assert record["brier_refinement"] == pytest.approx(brier.refinement, rel=1e-9)
    assert record["error_rate"] == pytest.approx(1 - record["accuracy"])
    assert record["risk"] == record["log_loss"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.sweep(5)
def test_of_equal_steps_the_first_is_best(dtype, seed):
    """Rounding differs with the beta that a search starts from: it must not move the best step."""
    labels, logits = drawn(100 + seed, 3, seed, confidence=3.0)
    logits = logits.astype(dtype)
    monitor = rc.RefinementMonitor(patience=4, also=BUILT_IN)
    assert [monitor.update(labels, logits=logits) for _ in range(5)] == [True] + [False] * 4
    assert {best.step for best in monitor.bests.values()} == {0}
    assert monitor.should_stop


def test_weights_decide_too():
    labels, stages = training()
    weights = np.random.default_rng(0).integers(0, 4, len(labels))
    also = [name for name in BUILT_IN if name != "lp"]  # whose folds go by rows
    weighted = rc.select(labels, logits=stages, sample_weight=weights, also=also)
    repeated = rc.select(
        np.repeat(labels, weights), logits=np.repeat(stages, weights, axis=1), also=also
    )
    for ours, theirs in zip(weighted.history, repeated.history, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-7, abs=1e-12)


# ---- when to stop ----------------------------------------------------------------------------------------


def plain_reference(values, patience, min_delta, greater):
    """Return the best step, whether each step was the best so far, and the step to stop at."""
    sign = -1 if greater else 1
    best = best_value = reference = stop = None
    waited, improved = 0, []
    for step, value in enumerate(values):
        loss = sign * value
        improved.append(not math.isnan(loss) and (best is None or loss < best_value))
        if improved[-1]:
            best, best_value = step, loss
        if not math.isnan(loss) and (reference is None or reference - loss > min_delta):
            reference, waited = loss, 0
        else:
            waited += 1
        if waited >= patience and stop is None:
            stop = step
    return best, improved, stop


quarters = st.integers(-8, 8).map(lambda n: n / 4)  # whose differences are exact


@given(
    st.lists(quarters | st.sampled_from([NAN, INF, -INF]), min_size=1, max_size=20),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.25, 0.5, 2.0]),
    st.booleans(),
)
def test_patience_and_min_delta(values, patience, min_delta, greater):
    best, improved, stop = plain_reference(values, patience, min_delta, greater)
    monitor, found = followed(
        values[: len(values) if stop is None else stop + 1],
        patience=patience,
        min_delta=min_delta,
        greater_is_better=greater,
    )
    assert found == improved[: len(found)]
    assert monitor.should_stop == (stop is not None)
    if stop is None:
        assert monitor.best_step == best


def test_slow_progress_adds_up():
    """Each step is too small to count, but not all of them together."""
    monitor, _ = followed([1.0, 0.75, 0.5, 0.25], patience=3, min_delta=0.5)
    assert not monitor.should_stop
    assert monitor.best_step == 3


def test_without_patience_it_never_stops():
    assert not followed([1.0] + [2.0] * 50)[0].should_stop


def test_stop_on_all_waits_for_every_metric():
    first, second = iter([1, 2, 2, 2, 2, 2]), iter([5, 4, 3, 2, 2, 2])
    metrics = [
        Metric(lambda y, p, values=values: next(values), name)
        for values, name in ((first, "a"), (second, "b"))
    ]
    monitor = rc.RefinementMonitor(metrics[0], also=metrics[1:], patience=2, stop_on="all")
    stopped = []
    for _ in range(6):
        monitor.update(Y, GOOD)
        stopped.append(monitor.should_stop)
    assert stopped == [False] * 5 + [True]
    assert (monitor.best_step, monitor.bests["b"].step) == (0, 3)


def test_stop_on_names_waits_for_these():
    values = {
        "a": iter([1, 2, 2, 2, 2, 2]),
        "b": iter([5, 4, 3, 3, 3, 3]),
        "c": iter(range(9, 0, -1)),
    }
    metrics = [Metric(lambda y, p, v=v: next(v), name) for name, v in values.items()]
    monitor = rc.RefinementMonitor(
        metrics[0], also=metrics[1:], patience=2, stop_on=("a", "b")
    )  # c improves for ever
    stopped = []
    for _ in range(5):
        monitor.update(Y, GOOD)
        stopped.append(monitor.should_stop)
    assert stopped == [False] * 4 + [True]


@pytest.mark.parametrize("bad", [[NAN, 0.5, 0.5, 0.5], [[NAN, NAN]] * 4])
def test_predictions_that_are_not_numbers_stop_training(bad):
    monitor = rc.RefinementMonitor(also=["auroc"])
    monitor.update(Y, GOOD)
    with pytest.warns(
        RuntimeWarning, match="predictions of step 1 are not finite.*Lower the learn"
    ):
        assert not monitor.update(Y, bad)
    assert monitor.should_stop
    assert monitor.best_step == 0
    assert all(math.isnan(value) for name, value in monitor.history[1].items() if name != "step")
    assert "predictions became NaN or infinite" in repr(monitor)
    with pytest.warns(RuntimeWarning, match="diverged"):
        monitor.update(Y, logits=[[0.0, INF]] * 4)


def test_diverging_at_once_leaves_no_best():
    monitor = rc.RefinementMonitor()
    with pytest.warns(RuntimeWarning, match="diverged"):
        monitor.update(Y, [NAN] * 4)
    assert (monitor.best, monitor.best_step, monitor.best_value, monitor.calibrator) == (None,) * 4
    assert "never a number" in repr(monitor)


def test_an_infinite_loss_is_not_divergence():
    monitor = rc.RefinementMonitor(also=["log_loss", "brier", "brier_refinement", "auroc"])
    with pytest.warns(RuntimeWarning, match="1 of 4 labels have probability 0"):
        assert monitor.update(Y, [0.0, 0.2, 0.0, 0.9])
    assert monitor.history[0]["risk"] == INF
    assert monitor.history[0]["refinement"] <= math.log(2)
    assert not monitor.should_stop
    assert monitor.update(Y, BETTER)
    assert monitor.bests["log_loss"].step == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y_val": [0, 0, 1, 2]}, r"y_val\[3\] is 2, but probs has 2 columns"),
        ({"y_val": [0, 1]}, "y_val has 2 rows, but probs has 4"),
        ({"probs": [0.1, 1.5, 0.2, 0.3]}, r"probs\[1\] is 1.5, which is not a probability"),
        ({"sample_weight": [1, 1, 1, NAN]}, r"sample_weight\[3\] is nan"),
    ],
)
def test_a_refused_step_leaves_no_trace(arguments, message):
    monitor = rc.RefinementMonitor()
    monitor.update(Y, GOOD)
    before = text(monitor)
    with pytest.raises(ValueError, match=message):
        monitor.update(**{"y_val": Y, "probs": GOOD, **arguments})
    assert text(monitor) == before
    monitor.update(Y, BETTER)
    assert monitor.last_step == 1


def test_steps_are_counted_or_named():
    monitor = rc.RefinementMonitor()
    assert monitor.last_step is None
    monitor.update(Y, GOOD)
    monitor.update(Y, GOOD, step=np.int64(10))
    monitor.update(Y, BETTER)
    assert [record["step"] for record in monitor.history] == [0, 10, 11]
    assert (monitor.best_step, monitor.last_step) == (11, 11)
    for step in (11, 3):
        with pytest.raises(
            ValueError, match=f"step is {step}, but the last step was 11: steps must"
        ):
            monitor.update(Y, GOOD, step=step)
    with pytest.raises(TypeError, match="step is 1.5: it must be a whole number"):
        monitor.update(Y, GOOD, step=1.5)


def test_reset_forgets_everything():
    labels, stages = training()
    monitor = rc.select(labels, logits=stages, patience=20, also=["auroc"])
    once = text(monitor)
    monitor.reset()
    assert text(monitor) == text(rc.RefinementMonitor(patience=20, also=["auroc"]))
    assert text(rc.select(labels, logits=stages, monitor=monitor)) == once


# ---- losses, calibrators, folds --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "brier"},
        {"loss": "spherical", "cv": 3},
        {"cv": "loo"},
        {"cv": 5},
        {"cv": KFold(4)},
        {"calibrator": "isotonic"},
        {"calibrator": "isotonic", "cv": 5},
        {"calibrator": LogisticRegression()},
        {"calibrator": LogisticRegression(), "cv": 3, "loss": "brier"},
        {"calibrator": rc.TemperatureScaling(laplace=False)},
    ],
    ids=str,
)
def test_options_are_those_of_decompose(options):
    labels, stages = training(steps=6, k=2)
    monitor = rc.select(labels, logits=stages, **options)
    found = [rc.decompose(labels, logits=logits, **options) for logits in stages]
    for parts, record in zip(found, monitor.history, strict=True):
        assert [record[term] for term in TERMS] == pytest.approx(
            [getattr(parts, term) for term in TERMS], rel=1e-7, abs=1e-9
        )
    best = int(np.argmin([parts.refinement for parts in found]))
    assert monitor.best_step == best
    np.testing.assert_allclose(  # fitted at the best step, and left alone by later ones
        monitor.calibrator.predict_proba(softmax(stages[0], axis=1)),
        found[best].calibrator.predict_proba(softmax(stages[0], axis=1)),
        rtol=1e-7,
    )


def test_without_temperature_there_is_no_beta():
    labels, stages = training(steps=2, k=2)
    monitor = rc.select(labels, logits=stages, calibrator="isotonic", also=["brier_refinement"])
    assert math.isnan(monitor.history[0]["beta"])
    temperature = rc.select(labels, logits=stages, also=["brier_refinement"])
    assert [record["brier_refinement"] for record in monitor.history] == pytest.approx(
        [record["brier_refinement"] for record in temperature.history], rel=1e-9
    )


def test_folds_given_once_serve_every_step():
    labels, stages = training(steps=4)
    pairs = list(KFold(3).split(labels))
    expected = rc.select(labels, logits=stages, cv=pairs)
    assert rc.select(labels, logits=stages, cv=iter(pairs)).history == expected.history


def test_the_calibrator_that_is_given_is_not_fitted():
    given = LogisticRegression()
    rc.select(Y, [GOOD], calibrator=given)
    assert not hasattr(given, "coef_")


# ---- functions of one's own ------------------------------------------------------------------------------


def test_a_function_gets_labels_as_given_and_probabilities_of_each_class():
    calls = []

    def spy(y_true, probs, **options):
        calls.append((y_true, probs, options))
        return 1.0

    y = np.array(["no", "no", "yes", "yes"])
    odds, weights = np.array([-1.0, 0.5, 0.0, 2.0]), [1, 2, 3, 4]
    monitor = rc.RefinementMonitor(spy)
    monitor.update(y, logits=odds)
    monitor.update(y, logits=odds, sample_weight=weights)
    (first, probs, options), (second, _, with_weights) = calls
    assert first is y
    assert second is y
    np.testing.assert_allclose(probs[:, 1], 1 / (1 + np.exp(-odds)), rtol=1e-12)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-12)
    assert options == {}
    assert with_weights == {"sample_weight": weights}
    assert monitor.history[0]["spy"] == 1.0


def test_scikit_learns_functions_can_be_followed():
    labels, stages = training(k=3)
    weights = np.random.default_rng(0).random(len(labels))
    monitor = rc.select(labels, logits=stages / 4, sample_weight=weights, metric=log_loss)
    assert [record["log_loss"] for record in monitor.history] == pytest.approx(
        [record["risk"] for record in monitor.history], rel=1e-9
    )
    assert monitor.key == "log_loss"


def test_one_further_metric_needs_no_list():
    for also in ("auroc", Metric(log_loss, "mine"), log_loss):
        assert len(rc.RefinementMonitor(also=also).metrics) == 2


# ---- any kind of array -----------------------------------------------------------------------------------


def test_any_kind_of_array_gives_the_same_history():
    labels, stages = training(steps=4)
    names = np.array(["ant", "bee", "cat"])
    expected = rc.select(labels, logits=stages)
    kinds = {
        "lists": (labels.tolist(), stages.tolist(), {}),
        "torch": (torch.tensor(labels), torch.tensor(stages), {}),
        "names": (names[labels], stages, {"classes": names}),
        "sorted names": (names[labels], stages, {}),
        "frames": (
            names[labels],
            [pd.DataFrame(z[:, [2, 0, 1]], columns=names[[2, 0, 1]]) for z in stages],
            {},
        ),
        "one-hot": (np.eye(3)[labels], stages, {}),
        "Fortran order": (labels, [np.asfortranarray(z) for z in stages], {}),
    }
    for kind, (y, logits, options) in kinds.items():
        found = rc.select(y, logits=logits, **options)
        for ours, theirs in zip(found.history, expected.history, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12), kind
    gradients = torch.tensor(stages, requires_grad=True)
    assert rc.select(labels, logits=gradients).history == expected.history


def test_names_of_classes_reach_the_calibrator():
    monitor = rc.select(["no", "no", "yes", "yes"], [GOOD, BETTER])
    assert monitor.calibrator.classes_.tolist() == ["no", "yes"]


# ---- nothing is kept but numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"calibrator": "isotonic", "cv": 3}, {"cv": "loo"}])
def test_predictions_are_released(options):
    labels, stages = training(steps=3, k=2)
    monitor = rc.RefinementMonitor(also=BUILT_IN, **options)
    for stage in stages:
        logits, weights = stage.copy(), np.ones(len(labels))
        monitor.update(labels, logits=logits, sample_weight=weights)
        seen = weakref.ref(logits), weakref.ref(weights)
        del logits, weights
        assert [ref() for ref in seen] == [None, None]


def test_select_holds_one_step_at_a_time():
    labels, stages = training(steps=5)
    alive = []

    def remembered(array):
        alive.append(weakref.ref(array))
        return array

    def predict():
        for stage in stages:
            assert all(ref() is None for ref in alive)
            yield remembered(stage.copy())

    assert len(rc.select(labels, logits=predict()).history) == 5
    assert len(alive) == 5


def test_memory_does_not_grow_with_steps():
    labels, logits = drawn(20_000, 10)
    logits = logits.astype(np.float32)
    monitor = rc.RefinementMonitor(also=["brier", "accuracy"])
    monitor.update(labels, logits=logits)
    gc.collect()
    tracemalloc.start()
    for _ in range(10):
        monitor.update(labels, logits=logits.copy())
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < logits.nbytes / 4


# ---- resuming --------------------------------------------------------------------------------------------


@given(st.lists(predictions(max_classes=2), min_size=2, max_size=8), st.data())
def test_resuming_goes_on_as_if_never_interrupted(steps, data):
    options = {"patience": 2, "min_delta": 0.01, "also": ["brier", "auroc"], "stop_on": "all"}
    cut = data.draw(st.integers(0, len(steps)))
    whole, first = rc.RefinementMonitor(**options), rc.RefinementMonitor(**options)
    for labels, logits in steps:
        whole.update(labels, logits=logits)
    for labels, logits in steps[:cut]:
        first.update(labels, logits=logits)
    second = rc.RefinementMonitor(**options)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for labels, logits in steps[cut:]:
        second.update(labels, logits=logits)
    assert text(second) == text(whole)
    assert second.should_stop == whole.should_stop
    assert repr(second) == repr(whole)
    if whole.best is not None:
        assert second.best.record is second.history[whole.history.index(whole.best.record)]


@pytest.mark.parametrize("calibrator", ["temperature", "isotonic"])
@pytest.mark.parametrize("classes", [None, ["no", "yes"], [False, True], [10, 20]])
def test_calibrators_survive_the_state(calibrator, classes):
    labels, stages = training(k=2)
    y = labels if classes is None else np.array(classes)[labels]
    monitor = rc.select(y, logits=stages, calibrator=calibrator, classes=classes)
    other = rc.RefinementMonitor(calibrator=calibrator, classes=classes)
    other.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    assert other.calibrator.classes_.tolist() == monitor.calibrator.classes_.tolist()
    assert other.calibrator.classes_.dtype == monitor.calibrator.classes_.dtype
    np.testing.assert_array_equal(
        other.calibrator.predict_proba_logits(stages[0]),
        monitor.calibrator.predict_proba_logits(stages[0]),
    )


def test_a_diverged_run_can_be_resumed_as_json():
    monitor = rc.RefinementMonitor()
    with pytest.warns(RuntimeWarning, match="diverged"):
        monitor.update(Y, [NAN] * 4)
    other = rc.RefinementMonitor()
    other.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    assert other.should_stop
    assert text(other) == text(monitor)


def test_a_state_is_a_copy():
    monitor = rc.RefinementMonitor()
    monitor.update(Y, GOOD)
    state = monitor.state_dict()
    before = json.dumps(state)
    monitor.update(Y, BETTER)
    assert json.dumps(state) == before
    other = rc.RefinementMonitor()
    other.load_state_dict(state)
    other.update(Y, BETTER)
    assert json.dumps(state) == before


def test_a_calibrator_of_ones_own_is_kept_as_it_is():
    labels, stages = training(k=2)
    monitor = rc.select(labels, logits=stages, calibrator=LogisticRegression())
    other = rc.RefinementMonitor(calibrator=LogisticRegression())
    other.load_state_dict(monitor.state_dict())
    assert other.calibrator is monitor.calibrator


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {},
            "the state has version None, expected 1: it must come from RefinementMonitor.state_dict",
        ),
        ([1], "the state has version None"),
        ({"version": 2}, "the state has version 2"),
        (
            rc.RefinementMonitor("auroc").state_dict(),
            r"follows the metrics \['auroc'\], this monitor \['refinement'\]: use the same metric=",
        ),
    ],
)
def test_a_state_of_something_else_is_refused(state, message):
    monitor = rc.RefinementMonitor()
    monitor.update(Y, GOOD)
    before = text(monitor)
    with pytest.raises(ValueError, match=message):
        monitor.load_state_dict(state)
    assert text(monitor) == before


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda monitor: pickle.loads(pickle.dumps(monitor))]
)
def test_monitors_can_be_copied_and_pickled(copied):
    labels, stages = training()
    monitor = rc.select(labels, logits=stages[:7], also=BUILT_IN, patience=20)
    other = copied(monitor)
    for one in (monitor, other):
        rc.select(labels, logits=stages[7:], monitor=one)
    assert text(other) == text(monitor)
    assert len(other.history) == len(stages)


# ---- what people see -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "loss", "key"),
    [
        ("refinement", "log", "refinement_loss"),
        ("refinement", "brier", "refinement_loss"),
        ("risk", "log", "log_loss"),
        ("log_loss", "log", "log_loss"),
        ("log_loss", "brier", "log_loss"),
        ("brier", "brier", "brier_loss"),
        ("brier", "log", "brier_loss"),
        ("risk", "spherical", "spherical_loss"),
        ("accuracy", "log", "accuracy"),
        ("auroc", "log", "auroc"),
        ("error_rate", "log", "error_rate_loss"),
    ],
)
def test_the_key_of_the_metric_is_in_the_logs(metric, loss, key):
    monitor = rc.RefinementMonitor(metric, loss=loss)
    assert monitor.key == key
    assert monitor.logs("val_") == {}
    monitor.update(Y, BETTER)
    assert monitor.logs("val_")[f"val_{key}"] == monitor.best_value


def test_the_logs_hold_the_last_step():
    monitor = rc.select(Y, [BETTER, GOOD], also=["auroc"])
    last = monitor.history[-1]
    assert monitor.logs("val_") == {
        "val_refinement_loss": last["refinement"],
        "val_calibration_loss": last["calibration"],
        "val_log_loss": last["risk"],
        "val_beta": last["beta"],
        "val_auroc": last["auroc"],
    }


def test_where_keys_are_equal_the_metric_that_decides_is_logged():
    metrics = [
        Metric(lambda y, p, value=value: value, name)
        for name, value in (("a", 1.0), ("a_loss", 2.0))
    ]
    monitor = rc.RefinementMonitor(metrics[0], also=metrics[1:])
    monitor.update(Y, GOOD)
    assert monitor.logs()[monitor.key] == 1.0


@pytest.mark.filterwarnings("ignore:the log loss is infinite:RuntimeWarning")
def test_the_repr_fits_into_80_columns():
    for monitor in (
        rc.RefinementMonitor(),
        rc.select(Y, [GOOD, BETTER, WORSE], also=BUILT_IN, patience=1),
        rc.select(Y, [GOOD], also=[Metric(lambda y, p: -1e12, "a_very_long_name_indeed" * 4)]),
        rc.select(Y, [GOOD], calibrator="isotonic", steps=[123_456_789]),
        rc.select([0, 1], logits=[[-1e9, 1e9]], also=["auroc"]),
    ):
        assert max(map(len, repr(monitor).splitlines())) <= 80


def test_the_repr_names_what_was_chosen():
    lines = repr(rc.select(Y, [GOOD, BETTER, WORSE], also="accuracy", patience=1)).splitlines()
    assert lines[0] == "RefinementMonitor, steps 0 to 2: stopped after 1 without improvement"
    assert [line.split()[:2] for line in lines[1:]] == [
        ["metric", "best"],
        ["refinement", "1"],
        ["accuracy", "1"],
    ]


def test_to_frame_is_the_history():
    monitor = rc.select(Y, [GOOD, BETTER], steps=[5, 10], also=["auroc", "risk"])
    frame = monitor.to_frame()
    assert frame.index.tolist() == [5, 10]
    assert frame.index.name == "step"
    assert frame.reset_index().to_dict("records") == monitor.history
    assert list(rc.RefinementMonitor(also="auroc").to_frame()) == [*TERMS, "beta", "auroc"]


# ---- select ----------------------------------------------------------------------------------------------


def test_every_kind_of_stages_is_understood():
    labels, stages = training(k=2)
    stages /= 4  # no probability of 1
    probs = softmax(stages, axis=2)
    expected = rc.select(labels, probs)
    odds = stages[:, :, 1] - stages[:, :, 0]
    kinds = [
        rc.select(labels, list(probs)),
        rc.select(labels, (p for p in probs)),
        rc.select(labels, dict(enumerate(probs))),
        rc.select(labels, probs[:, :, 1]),
        rc.select(labels, logits=stages),
        rc.select(labels, logits=odds),
        rc.select(labels, logits=torch.tensor(odds)),
    ]
    for found in kinds:
        for ours, theirs in zip(found.history, expected.history, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
    "steps", [[10, 20, 30], np.array([10, 20, 30]), count(10, 10), iter([10, 20, 30])]
)
def test_steps_can_be_named(steps):
    assert rc.select(Y, [GOOD, BETTER, WORSE], steps=steps).best_step == 20


def test_a_mapping_names_its_steps():
    assert rc.select(Y, {10: GOOD, 20: BETTER}).best_step == 20
    with pytest.raises(TypeError, match="a mapping already names its steps"):
        rc.select(Y, {10: GOOD}, steps=[10])


def test_with_patience_later_steps_are_not_computed():
    seen = []

    def predict():
        for step, probs in enumerate([GOOD, BETTER, WORSE, WORSE, BETTER]):
            seen.append(step)
            yield probs

    monitor = rc.select(Y, predict(), patience=2, steps=range(5))
    assert seen == [0, 1, 2, 3]
    assert monitor.best_step == 1


def test_steps_after_a_diverged_one_are_looked_at_as_patience_allows():
    stages = [GOOD, [NAN] * 4, BETTER, WORSE, WORSE, WORSE, WORSE]
    with pytest.warns(RuntimeWarning, match="diverged"):
        monitor = rc.select(Y, stages, patience=2)
    assert (monitor.best_step, monitor.last_step) == (2, 4)


def test_it_goes_on_with_a_monitor():
    monitor = rc.RefinementMonitor(patience=10)
    assert rc.select(Y, [GOOD], monitor=monitor) is monitor
    rc.select(Y, [BETTER], monitor=monitor)
    assert (monitor.best_step, monitor.last_step) == (1, 1)
    with pytest.raises(TypeError, match="either monitor= or the options"):
        rc.select(Y, [GOOD], monitor=monitor, patience=3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "pass either probs or logits=, found neither"),
        ({"probs": [GOOD], "logits": [GOOD]}, TypeError, "found both"),
        ({"probs": []}, ValueError, "probs holds no step: pass the predictions of at least one"),
        ({"logits": iter(())}, ValueError, "logits holds no step"),
        ({"probs": [], "steps": [1]}, ValueError, "probs holds no step"),
        (
            {"probs": [GOOD] * 2, "steps": [1]},
            ValueError,
            "steps names 1 steps, but probs holds more",
        ),
        ({"probs": [GOOD], "steps": [1, 2]}, ValueError, "steps names 2 steps, but probs holds 1"),
        (
            {"probs": [GOOD] * 2, "steps": [2, 1]},
            ValueError,
            "step is 1, but the last step was 2",
        ),
        ({"probs": {"a": GOOD}}, TypeError, "step is 'a': it must be a whole number"),
        ({"probs": [GOOD, GOOD[:3]]}, ValueError, "y_val has 4 rows, but probs has 3"),
        (
            {"probs": pd.DataFrame([GOOD, BETTER]).T},
            TypeError,
            "a table, which does not name its steps",
        ),
        ({"probs": [GOOD], "patients": 3}, TypeError, "patients"),
    ],
)
def test_select_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        rc.select(Y, **arguments)


def test_a_table_of_binary_predictions_is_selected_from_as_the_error_says():
    probs = pd.DataFrame({"first": GOOD, "second": BETTER})
    assert rc.select(Y, {step: probs[name] for step, name in enumerate(probs)}).best_step == 1


# ---- wrong options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"patience": 0},
            ValueError,
            "patience is 0: it must be a whole number of at least 1, or None",
        ),
        ({"patience": 2.5}, ValueError, "patience is 2.5"),
        ({"patience": True}, ValueError, "patience is True"),
        (
            {"min_delta": -1},
            ValueError,
            "min_delta is -1: it must be a finite number of at least 0",
        ),
        ({"min_delta": NAN}, ValueError, "min_delta is nan"),
        ({"min_delta": "0"}, ValueError, "min_delta is '0'"),
        ({"stop_on": "any"}, ValueError, "stop_on is 'any': it must be one of 'metric', 'all'"),
        (
            {"stop_on": ["brier"]},
            ValueError,
            "stop_on is 'brier': it must be one of 'metric', 'all'",
        ),
        ({"stop_on": []}, ValueError, "stop_on names no metric"),
        ({"loss": "hinge"}, ValueError, "loss is 'hinge'"),
        ({"calibrator": "sigmoids"}, ValueError, "calibrator is 'sigmoids'"),
        ({"cv": "kfold"}, ValueError, "cv is 'kfold'"),
        (
            {"cv": "loo", "calibrator": "isotonic"},
            ValueError,
            "cv='loo' is for temperature scaling",
        ),
        ({"metric": "recall"}, ValueError, "metric is 'recall'"),
    ],
)
def test_wrong_options_are_refused_at_once(options, error, message):
    with pytest.raises(error, match=message):
        rc.RefinementMonitor(**options)


def test_nothing_is_warned_of_in_a_sound_training():
    labels, stages = training()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rc.select(labels, logits=stages, also=BUILT_IN, cv=5)


def test_probabilities_announced_as_logits_are_refused():
    probs = np.array([[0.7, 0.2, 0.1]] * 3 + [[0.1, 0.1, 0.8]] * 3)
    with pytest.raises(ValueError, match="logits look like probabilities.*Pass them as probs"):
        rc.RefinementMonitor().update([0, 0, 1, 2, 2, 1], logits=probs)


def test_logits_that_are_nearly_flat_may_sum_to_1():
    """A boosted model that starts from 0.5 for each of two classes, after one very small step."""
    logits = 0.5 + 1e-4 * np.array([[1.0, -1.0], [-1.0, 1.0]] * 5)
    assert rc.RefinementMonitor().update([0, 1] * 5, logits=logits)


def test_a_wrong_label_is_not_taken_for_divergence():
    """Log-odds may be infinite, so the label is what is wrong here."""
    with pytest.raises(ValueError, match=r"y_val\[2\] is 7"):
        rc.RefinementMonitor().update([0, 1, 7, 1], logits=[-np.inf, 1, 2, np.inf])


@pytest.mark.parametrize("options", [{"loss": "brier"}, {"calibrator": "isotonic"}, {"cv": "loo"}])
def test_a_state_of_another_kind_is_refused(options):
    monitor = rc.RefinementMonitor()
    monitor.update([0, 1, 1], [0.2, 0.7, 0.4])
    with pytest.raises(ValueError, match="use the same loss=, calibrator= and cv="):
        rc.RefinementMonitor(**options).load_state_dict(monitor.state_dict())


def test_of_steps_that_are_never_wrong_the_smallest_risk_is_best():
    """Refinement is 0 at steps 1, 2, 3 and 4: any threshold between the classes is perfect."""
    y = [0, 0, 1, 1]
    stages = [
        [0.4, 0.6, 0.5, 0.9],
        [0.4, 0.45, 0.55, 0.6],
        [0.2, 0.3, 0.7, 0.8],
        [0.3, 0.3, 0.7, 0.7],
    ]
    monitor = rc.RefinementMonitor(patience=2)
    found = [monitor.update(y, probs) for probs in [*stages, stages[2]]]
    assert found == [True, True, True, False, False]
    assert monitor.best_step == 2
    assert monitor.should_stop


def test_labels_that_change_between_steps_are_seen():
    """Plain arrays take a short cut if the labels are those of the last step: here they are not."""
    logits = np.array([2.0, -1.0, 0.5, 1.0, -2.0])
    labels = np.array([1, 0, 1, 1, 0])
    monitor = rc.RefinementMonitor()
    for change in (None, 0, 3):
        if change is not None:
            labels[change] = 1 - labels[change]
        monitor.update(labels, logits=logits)
        expected = rc.decompose(labels, logits=logits)
        assert monitor.history[-1]["risk"] == pytest.approx(expected.risk, rel=1e-12)
        assert monitor.history[-1]["uncertainty"] == pytest.approx(expected.uncertainty, rel=1e-12)


def test_the_short_cut_for_plain_arrays_gives_the_same():
    rng = np.random.default_rng(0)
    for k in (2, 4):
        labels = rng.integers(k, size=50)
        constant = labels.copy()
        constant.flags.writeable = False
        stages = [rng.normal(size=(50, k)) for _ in range(4)]
        stages = [stage[:, 1] - stage[:, 0] if k == 2 else stage for stage in stages]
        plain, fixed, listed = (rc.RefinementMonitor() for _ in range(3))
        for stage in stages:
            plain.update(labels, logits=stage)
            fixed.update(constant, logits=stage)
            listed.update(labels.tolist(), logits=stage.tolist())  # no short cut for lists
        for one, other in zip(plain.history, listed.history, strict=True):
            assert one == pytest.approx(other, rel=1e-12)
        assert plain.history == fixed.history


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_short_cut_does_not_hide_what_is_not_a_number(bad):
    monitor = rc.RefinementMonitor()
    labels, logits = np.array([0, 1, 2]), np.eye(3)
    monitor.update(labels, logits=logits)
    logits[1, 1] = bad
    with pytest.warns(RuntimeWarning, match="not finite"):
        monitor.update(labels, logits=logits)
