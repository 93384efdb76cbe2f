"""A misspelt keyword is answered with the one that was meant; else nobody notices the check."""

import inspect
import pickle

import pytest
from sklearn.base import clone

import refinecal as rc
from refinecal.calibrators import KINDS
from refinecal.integrations import sklearn as of_sklearn

Y, P = [0, 1, 1], [0.2, 0.6, 0.7]
FUNCTIONS = [name for name in rc.metrics.__all__ if inspect.isfunction(getattr(rc.metrics, name))]
CALLS = [
    (rc.RefinementMonitor, (), "patince", "RefinementMonitor", "patience"),
    (rc.RefineThenCalibrateClassifier, (), "canditates", "", "candidates"),
    (rc.TemperatureScaling, (), "laplce", "TemperatureScaling", "laplace"),
    (rc.make_calibrator, ("matrix",), "off_diagnal", "MatrixScaling", "off_diagonal"),
    (rc.make_calibrator, ("isotonic-ovr",), "laplce", "IsotonicCalibration", "laplace"),
    (rc.decompose, (Y, P), "calibrater", "decompose", "calibrator"),
    (rc.refinement_error, (Y, P), "calibrater", "refinement_error", "calibrator"),
    (rc.calibration_error, (Y, P), "calibrater", "calibration_error", "calibrator"),
    (rc.fit_temperature, (Y,), "logit", "fit_temperature", "logits"),
    (rc.select, (Y, [P]), "sample_wieght", "select", "sample_weight"),
    (rc.select, (Y, [P]), "patince", "select", "patience"),
    (rc.refinement_scorer, (), "metrc", "refinement_scorer", "metric"),
    (rc.post_mortem, (), "colums", "post_mortem", "columns"),
    (rc.evaluation.evaluate, (Y, P), "calibrater", "evaluate", "calibrator"),
    (of_sklearn.RefinementStopping, (Y, P), "metrc", "RefinementStopping", "metric"),
    (of_sklearn.RefinementStopping, (Y, P), "sample_wieght", "", "sample_weight"),
]


@pytest.mark.parametrize(("call", "args", "wrong", "who", "right"), CALLS)
def test_the_keyword_that_was_meant_is_named(call, args, wrong, who, right):
    message = rf"{who}\(\) got an unexpected keyword argument '{wrong}'. Did you mean '{right}'\?"
    with pytest.raises(TypeError, match=message):
        call(*args, **{wrong: 1})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_metric_names_it(name):
    for given in ({"probs": P}, {"logits": P}):
        with pytest.raises(TypeError, match=rf"^{name}\(\) got .*Did you mean 'sample_weight'"):
            getattr(rc.metrics, name)(Y, sample_weights=[1, 1, 1], **given)


def test_without_a_near_one_all_are_named():
    with pytest.raises(TypeError, match="argument 'penality': it takes laplace$"):
        rc.make_calibrator("vector", penality=1)


@pytest.mark.parametrize("word", ["rounds", "stopping_rounds", "n_iter_no_change"])
@pytest.mark.parametrize(
    ("call", "args"),
    [
        (rc.RefinementMonitor, ()),
        (rc.RefineThenCalibrateClassifier, ()),
        (rc.select, (Y, [P])),
        (of_sklearn.RefinementStopping, (Y, P)),
    ],
)
def test_words_of_other_frameworks_are_translated(call, args, word):
    with pytest.raises(TypeError, match=f"{word} is called patience here: pass patience=7"):
        call(*args, **{word: 7})


def test_signatures_pickling_and_clones_are_as_without_the_check():
    assert pickle.loads(pickle.dumps(rc.decompose)) is rc.decompose
    assert list(inspect.signature(rc.decompose).parameters)[:3] == ["y_true", "probs", "logits"]
    assert rc.decompose.__globals__ is vars(rc.decomposition)  # where doctest looks for examples
    model = clone(rc.RefineThenCalibrateClassifier(patience=3))
    assert model.get_params()["patience"] == 3
    for name in KINDS:
        made = rc.make_calibrator(name)
        assert type(made)(**made.get_params()).get_params().keys() == made.get_params().keys()
