"""What an evaluation means in words: each case is found, and no more is claimed than the rows support."""

import numpy as np
import pytest

from refinecal.evaluation import evaluate
from refinecal.evaluation.verdict import VERDICTS, advice, classify, verdict

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
    "chance": evaluate(drawn(40)[1], logits=1.2 * drawn(40)[0]),
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


def test_the_calibration_error_has_a_standard_error():
    said = verdict(CASES["overconfident"], standard_error=0.0123)
    assert f"({CASES['overconfident'].log.calibration:.4f} ± 0.0123 s.e.)" in said


def test_temperature_scaling_is_advised_only_where_it_helps():
    for case, found in CASES.items():
        said = " ".join(advice(found))
        assert ("TemperatureScaling" in said) == (case in ("overconfident", "underconfident"))
        assert ("more flexible calibrator" in said) == (case == "other error")
        assert ("nothing about calibration" in said) == (case == "calibrated")
        assert ("evaluate on more rows" in said) == (case in ("too few rows", "chance"))


def test_few_rows_come_with_a_caution():
    assert any(text.startswith("Caution: ") for text in advice(CASES["chance"]))
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
