"""What is said of a fit: each case has one sentence, and advice is given only if the numbers support it."""

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from refinecal._core.format import with_error
from refinecal.evaluation import Difference, evaluate, paired_difference, row_losses
from refinecal.tabular.data import Leak
from refinecal.tabular.judgement import (
    ADVICE,
    Judgement,
    Stage,
    _expected_loss,
    describe_certainty,
    describe_delivered,
    lead,
    recommend,
)

FIT = SimpleNamespace(
    hit_the_end=False,
    max_steps=100,
    step_name="round",
    data=SimpleNamespace(leaks=()),
)
LEAKS = (Leak("cancel_code", 1.0),)


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
    assert recommend(FIT, found) == [ADVICE["few rows"]]


def test_a_loss_beyond_chance_is_admitted_without_trying_again():
    found = judged(ours=3.0, before=1.0, usual=1.0)
    assert "higher than that of one model" in lead(found)
    assert "significantly worse" in describe_certainty(found)
    assert recommend(FIT, found) == [ADVICE["worse"]]


def test_nothing_advises_what_was_not_measured_to_help():
    """Tuning gained little in our experiments, and another seed is not advice."""
    said = " ".join(ADVICE.values())
    assert "--tune" not in said
    assert "seed" not in said


def test_few_rows_weak_features_and_the_last_step():
    assert recommend(FIT, judged(n=50))[0].startswith("Measure the loss on more test rows")
    weak = judged(ours=1.0, before=1.0, usual=1.0, signal=0.1)
    assert any("Look for other features" in text for text in recommend(FIT, weak))
    last = SimpleNamespace(**{**vars(FIT), "hit_the_end": True})
    assert "Allow more rounds with --max-steps: the best round is the last of 100." in recommend(
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
    assert f"the log loss is {level} (standard error)" in lead(found)


def test_few_rows_are_uncertain_whatever_the_gain():
    found = judged(n=90)
    assert found.log.is_sure
    assert "so few rows are not reliable" in lead(found)
    said = describe_certainty(found)
    assert "significant" not in said
    assert "to be confirmed on more test rows" in said


def test_a_leak_comes_before_the_numbers_and_the_advice():
    found, leaking = (
        judged(),
        SimpleNamespace(**{**vars(FIT), "data": SimpleNamespace(leaks=LEAKS)}),
    )
    assert lead(found, LEAKS).startswith(
        "Possible leakage: 'cancel_code' alone predicts the target. On "
    )
    first, second = recommend(leaking, found)
    assert (
        first == "Drop 'cancel_code' and fit again, unless its values are known at prediction time."
    )
    assert second.startswith("If its values are known, use the calibrated probabilities: ")


def test_every_piece_of_advice_is_an_action():
    verbs = {"Drop", "Measure", "Try", "Use", "Look", "Allow"}
    assert {text.split()[0] for text in ADVICE.values()} == verbs


@pytest.mark.parametrize(
    ("mean", "error", "said"),
    [
        (-0.01, 0.001, "lowered the loss by 0.0100 ± 0.0010."),
        (0.01, 0.001, "raised the loss by 0.0100 ± 0.0010."),
        (0.01, 0.02, "raised the loss by 0.010 ± 0.020, within noise."),
        (1e-6, 1e-7, "changed the loss by less than 0.0001."),
        (0.0, 0.0, "chose the same models."),
    ],
)
def test_what_refinement_changed(mean, error, said):
    found = judged()
    low, high = mean - 1.96 * error, mean + 1.96 * error
    change = replace(found.log, mean=mean, standard_error=error, low=low, high=high)
    stages = [*found.stages[:-1], replace(found.stages[-1], change=change)]
    assert describe_certainty(replace(found, stages=stages)).endswith(said)


@pytest.mark.parametrize(
    ("mean", "expected", "said"),
    [
        (
            -0.1,
            "about 0.900 ± 0.051",
            "changed the loss by −0.100 ± 0.010, so expect a log loss of ",
        ),
        (
            0.01,
            "",
            "changed the loss by +0.010 ± 0.010, within noise, so the test loss is the best estimate.",
        ),
    ],
    ids=["real", "noise"],
)
def test_a_change_within_noise_is_not_added_to_the_test_loss(mean, expected, said):
    found = judged()
    change = Difference(mean, 0.01, mean - 0.02, mean + 0.02, 400)
    level = replace(found.level, mean=1.0, standard_error=0.05, low=0.9, high=1.1)
    found = replace(found, level=level, change=change, expected=_expected_loss(level, change))
    delivered = SimpleNamespace(
        n_first=5, splits=[(range(320), ())], rows=SimpleNamespace(n_used=400)
    )
    data = SimpleNamespace(delivered=delivered, n_delivered=400, test=1, everything=[1])
    no_pool = {"pooled": None, "used": [], "n_retrained": 1, "most_rows": None}
    fit = SimpleNamespace(data=data, delivered=[1, 2], tested=[1, 2], **no_pool)
    assert said + expected in describe_delivered(fit, found)
    assert found.expected.mean == 1.0 + mean  # for JSON
    one = SimpleNamespace(data=data, delivered=[1], tested=[1], **no_pool)
    data.n_delivered, delivered.n_first = 320, 1
    text = describe_delivered(one, found)
    assert (
        "trained on 320 of 400 rows; the others are validation rows. Test rows are among both"
        in text
    )
    assert "all" not in text.split()


def test_an_infinite_loss_has_no_standard_error():
    found = judged()
    stages = [replace(found.stages[0], loss=math.inf), *found.stages[1:]]
    endless = replace(found.log, mean=-math.inf, standard_error=math.nan)
    found = replace(found, stages=stages, log=endless)
    assert "assigned probability 0 to an observed class" in lead(found)
    assert "has no standard error" in describe_certainty(found)
