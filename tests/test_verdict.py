"""What an evaluation means in words: each case is found, and no more is claimed than the rows support."""

import re

import numpy as np
import pytest

from refinecal.evaluation import evaluate
from refinecal.evaluation.verdict import (
    VERDICTS,
    Errors,
    advice,
    calibration_interval,
    classify,
    standard_errors,
    verdict,
)

N = 3000


def drawn(n=N, signal=2.0, seed=0, shift=0.0):
    """Return log-odds and labels that follow them, up to a shift."""
    rng = np.random.default_rng(seed)
    odds = signal * rng.normal(size=n)
    return odds, (rng.random(n) < 1 / (1 + np.exp(-odds - shift))).astype(int)


ODDS, Y = drawn()
CASES = {
    "perfect": evaluate([0, 1, 1], [0.0, 1.0, 1.0]),
    "calibrated": evaluate(Y, logits=ODDS),
    "too few rows": evaluate(drawn(60, seed=2)[1], logits=drawn(60, seed=2)[0]),
    "other error": evaluate(drawn(200, 1.0, shift=1.5)[1], logits=drawn(200, 1.0)[0]),
    "separated": evaluate([0, 1] * 50, [0.2, 0.8] * 50),
    "level": evaluate(Y * (np.arange(N) % 4 == 0), logits=ODDS + 6),
    "random": evaluate(Y, logits=2 * drawn(seed=9)[0]),
    "reversed": evaluate(Y, logits=-ODDS),
    "overconfident": evaluate(Y, logits=3 * ODDS),
    "underconfident": evaluate(Y, logits=ODDS / 3),
}


@pytest.mark.parametrize("case", CASES)
def test_each_case_has_its_sentence(case):
    assert classify(CASES[case]) == case
    opening = VERDICTS[case].split("{")[0]
    assert verdict(CASES[case]).startswith(opening)
    assert "{" not in verdict(CASES[case])


@pytest.mark.filterwarnings("ignore:.*log loss is infinite")
def test_an_impossible_label_makes_the_loss_infinite():
    found = evaluate([0, 1, 1], [0.5, 0.5, 0.0])
    assert verdict(found) == VERDICTS["infinite"]
    assert advice(found) == []


def errors_of(y, probs, found, weights=None):
    return standard_errors(found, y, probs, found.log.calibrator.predict_proba(probs), weights)


def judged(n, seed, sharper=1.0):
    """Return the evaluation of a few rows, and its standard errors."""
    odds, y = drawn(n, seed=seed)
    probs = 1 / (1 + np.exp(-sharper * odds))
    found = evaluate(y, probs)
    return found, errors_of(y, np.column_stack([1 - probs, probs]), found)


def test_the_interval_is_that_of_the_likelihood_ratio_test():
    for scale in (0.7, 0.9, 1.0, 1.05, 1.1, 1.5):
        found = evaluate(Y, logits=scale * ODDS)
        low, high = calibration_interval(found)
        assert low <= found.log.calibration <= high
        assert (low > 0) == (2 * N * found.log.calibration > 1.959964**2)


def test_the_interval_contains_the_calibration_error():
    """Of 3 times too large log-odds, which is that of very many rows; also of true ones, which is 0."""
    odds, y = drawn(200_000, seed=99)
    for sharper in (1.0, 3.0):
        truth = evaluate(y, logits=sharper * odds).log.calibration
        truth = 0.0 if sharper == 1 else truth
        ends = [calibration_interval(*judged(200, seed, sharper)) for seed in range(100)]
        assert np.mean([low <= truth <= high for low, high in ends]) >= 0.9


def test_rows_that_differ_more_make_the_interval_wider():
    plain = calibration_interval(CASES["overconfident"])
    low, high = calibration_interval(CASES["overconfident"], Errors(calibration=0.2))
    assert low < plain[0] < plain[1] < high
    assert calibration_interval(CASES["overconfident"], Errors(calibration=2.0))[0] == 0
    assert "overconfident" not in verdict(CASES["overconfident"], Errors(calibration=2.0))


def test_no_verdict_contradicts_its_interval():
    for n in (12, 30, 60, 100, 400):
        for seed in range(20):
            found, errors = judged(n, seed, sharper=1.7)
            low, high = calibration_interval(found, errors)
            case, said = classify(found, errors), verdict(found, errors)
            if case in ("overconfident", "underconfident", "off"):
                assert low > 0
                assert float(re.search(r"interval (\S+) to", said)[1]) > 0
            if case == "calibrated":
                assert high < 0.02 * found.log.risk
            if "TemperatureScaling" in " ".join(advice(found, errors)):
                assert low > 0


def test_the_calibration_error_comes_with_its_interval():
    found = CASES["overconfident"]
    low, high = calibration_interval(found)
    said = f"is {found.log.calibration:.3f} (95% interval {low:.3f} to {high:.3f})"
    assert said in verdict(found)


def test_predictions_are_called_worse_than_frequencies_only_beyond_noise():
    """Of random predictions on 60 rows some are a little worse; shuffled ones are much worse."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    small = 0.5 + 0.02 * rng.normal(size=(60, 1)) * [1, -1]
    for given, warned in ((small, False), (rng.dirichlet([0.3, 0.3], 60), True)):
        found = evaluate(y, given)
        assert found.log.risk > found.log.uncertainty
        points = advice(found, errors_of(y, given, found))
        assert any("worse than the class frequencies" in text for text in points) == warned


def test_temperature_scaling_is_advised_only_where_it_helps():
    for case, found in CASES.items():
        said = " ".join(advice(found))
        assert ("TemperatureScaling" in said) == (case in ("overconfident", "underconfident"))
        assert ("more flexible calibrator" in said) == (case == "other error")
        assert ("nothing about calibration" in said) == (case == "calibrated")
        assert ("evaluate on more rows" in said) == (case == "too few rows")


def test_few_rows_come_with_a_caution():
    assert any(text.startswith("Caution: ") for text in advice(CASES["too few rows"]))
    assert not any(text.startswith("Caution: ") for text in advice(CASES["overconfident"]))


def test_classes_are_called_swapped_only_beyond_noise():
    assert any("may be swapped" in text for text in advice(CASES["reversed"]))
    _, y = drawn(40)
    noise = np.random.default_rng(1).normal(size=40)
    found = evaluate(y, logits=noise if evaluate(y, logits=noise).auroc < 0.5 else -noise)
    assert found.auroc < 0.5
    assert not any("swapped" in text for text in advice(found))


def test_few_rows_do_not_show_that_probabilities_are_calibrated():
    """Nor the contrary: of true probabilities, chance alone seldom makes them look miscalibrated."""
    for n in (30, 100, 300):
        cases = [classify(evaluate(y, logits=z)) for z, y in (drawn(n, seed=s) for s in range(40))]
        assert ("calibrated" in cases) == (n == 300)
        assert sum(case.endswith("confident") for case in cases) <= 6  # 5% are expected
