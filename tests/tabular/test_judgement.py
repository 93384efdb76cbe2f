"""What is said of a fit: each case has one sentence, and advice is given only if the numbers support it."""

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from refinecal._core.format import with_error
from refinecal.evaluation import evaluate, paired_difference, row_losses
from refinecal.tabular.judgement import (
    ADVICE,
    Judgement,
    Stage,
    describe_certainty,
    lead,
    recommend,
)

FIT = SimpleNamespace(hit_the_end=False, max_steps=100, model=SimpleNamespace(step_name="round"))


def sharpened(odds, beta):
    return 1 / (1 + np.exp(-beta * odds))


def judged(ours=1.0, before=3.0, usual=3.0, n=2000, signal=2.0):
    """Return the judgement of log-odds that are right at 1, times three factors."""
    rng = np.random.default_rng(0)
    odds = signal * rng.normal(size=n)
    y = (rng.random(n) < sharpened(odds, 1)).astype(int)
    losses = [row_losses(y, sharpened(odds, beta)) for beta in (usual, before, ours)]
    gaps = [paired_difference(b, a) for a, b in pairwise(losses)]
    stages = [
        Stage("one model", [5], float(losses[0].mean()), None),
        Stage("average", None, float(losses[1].mean()), gaps[0]),
        Stage("chosen by refinement", [7], float(losses[2].mean()), gaps[1]),
    ]
    evaluations = [evaluate(y, sharpened(odds, beta)) for beta in (ours, before, usual)]
    level = paired_difference(losses[2], 0 * losses[2])
    total = paired_difference(losses[2], losses[0])
    return Judgement(*evaluations, level, None, level, stages, total, total, {})


def test_calibrated_probabilities_are_recommended_if_they_are_better():
    (said,) = recommend(FIT, judged())
    assert said.startswith(
        "Use the calibrated probabilities: the uncalibrated ones are overconfident"
    )
    (said,) = recommend(FIT, judged(before=0.3, usual=0.3))
    assert "underconfident" in said


def test_calibrated_probabilities_are_not_recommended_if_they_are_worse():
    """The uncalibrated ones have much calibration error here, but calibration made it worse."""
    found = judged(ours=5.0, before=3.0, usual=5.0)
    assert found.uncalibrated.log.calibration > 0.1 * found.uncalibrated.log.risk
    assert recommend(FIT, found) == []


def test_calibrated_probabilities_are_not_recommended_for_what_may_be_chance():
    """The uncalibrated ones seem to have much calibration error, but the rows are few."""
    found = judged(ours=1.0, before=2.5, usual=2.5, n=12)
    assert found.uncalibrated.log.calibration > 0.1 * found.uncalibrated.log.risk
    assert found.ours.log.risk < found.uncalibrated.log.risk
    assert recommend(FIT, found) == ["With only 12 test rows, every number here is very uncertain."]


def test_a_loss_beyond_chance_is_admitted_without_trying_again():
    found = judged(ours=3.0, before=1.0, usual=1.0)
    assert "higher than that of one model" in lead(found)
    assert "a loss beyond chance" in describe_certainty(found)
    assert recommend(FIT, found) == [ADVICE["worse"]]


def test_nothing_advises_what_was_not_measured_to_help():
    """Tuning gained little in our experiments, and another seed is not advice."""
    said = " ".join(ADVICE.values())
    assert "--tune" not in said
    assert "seed" not in said


def test_few_rows_weak_features_and_the_last_step():
    assert recommend(FIT, judged(n=50))[0].startswith("With only 50 test rows")
    weak = judged(ours=1.0, before=1.0, usual=1.0, signal=0.1)
    assert any("features say little about the target" in text for text in recommend(FIT, weak))
    last = SimpleNamespace(**{**vars(FIT), "hit_the_end": True})
    assert "The best round is the last of 100: allow more with --max-steps." in recommend(
        last, judged()
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (judged(), "lower than that of one model stopped on validation loss ("),
        (judged(before=1.0, usual=1.0), "about that of one model stopped"),
        (judged(usual=1.3, n=100), "which may be chance."),
    ],
    ids=["lower", "same", "chance"],
)
def test_the_lead_says_what_is_certain(found, said):
    assert said in lead(found)
    level = with_error(found.level.mean, found.level.standard_error)
    assert f"the log loss is {level}" in lead(found)


def test_an_infinite_loss_has_no_standard_error():
    found = judged()
    stages = [replace(found.stages[0], loss=math.inf), *found.stages[1:]]
    endless = replace(found.log, mean=-math.inf, standard_error=math.nan)
    found = replace(found, stages=stages, log=endless)
    assert "assigned probability 0 to an observed class" in lead(found)
    assert "has no standard error" in describe_certainty(found)
