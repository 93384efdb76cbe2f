"""What an evaluation means, in words: one of a few cases, each with one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from refinecal._core.format import MOST_DECIMALS, count, error_decimals, interval, number, percent
from refinecal.evaluation._paired import paired_difference, row_losses

if TYPE_CHECKING:
    from refinecal.evaluation import Evaluation

CALIBRATED = 0.005  # part of the loss: less calibration error is not worth mentioning
WORTH_CORRECTING = 0.02  # part of the loss; calibrated is what surely has less calibration error
CHANCE = 0.4 * math.sqrt(15)  # of true probabilities, about the largest mean ECE, times sqrt(n)
MORE = 1.5  # times that mean, which true probabilities hardly ever reach
SEPARATED = 1e-6  # part of the loss that remains if every row is ranked correctly
UNCALIBRATED = 0.05  # ECE beyond chance, on many rows
NOISE = 1.96  # standard errors, which chance exceeds 5 times out of 100
FEW_ROWS = 1000  # fewer rows get a word of caution

IN_SAMPLE = (
    "Caution: on few rows, the calibration error is slightly overestimated, since the temperature is fitted "
    "to the same rows."
)
BRIER = "The Brier score sums over all classes: for two classes it is twice scikit-learn's."
ELSEWHERE = "on rows that you do not evaluate on"
VERDICTS = {
    "perfect": "Every prediction is certain and correct.",
    "infinite": "A label has probability 0, so the log loss is infinite.",
    "calibrated": "The probabilities are calibrated: the calibration error is {error}, at most {most} of the "
    "log loss.",
    "too few rows": "{rows} are too few to tell whether the probabilities are calibrated: the calibration "
    "error is {error}, so up to {most} of the log loss.",
    "other error": "The ECE of {ece} is too large to be due to chance, but temperature scaling is not shown "
    "to correct it: it would lower the log loss by {error}.",
    "separated": "The predictions rank every row correctly, so these rows do not show how confident the "
    "model should be.",
    "level": "No temperature helps: the best one makes all classes about equally likely. But the predictions "
    "rank the rows{auroc}: a calibrator with an intercept may correct their level.",
    "random": "The predictions are no better than chance{auroc}: the best temperature makes all classes "
    "about equally likely.",
    "reversed": "The predictions are worse than chance{auroc}: the best temperature makes all classes about "
    "equally likely.",
    "off": "The calibration error is {error}, {share} of the log loss, which {calibrator} removes.",
    "overconfident": "The calibration error is {error}, {share} of the log loss: the model is overconfident, "
    "which temperature scaling corrects.",
    "underconfident": "The calibration error is {error}, {share} of the log loss: the model is "
    "underconfident, which temperature scaling corrects.",
}
ADVICE = {
    "temperature": f"What to do: fit refinecal.TemperatureScaling {ELSEWHERE}. Here the best temperature is "
    "{temperature}.",
    "flexible": f'What to do: fit a more flexible calibrator, such as make_calibrator("auto"), {ELSEWHERE}.',
    "more rows": "What to do: evaluate on more rows before you correct the calibration.",
    "nothing": "What to do: nothing about calibration. A better model or more features would help.",
}
SWAPPED = (
    "Warning: the classes may be swapped, since the predictions rank the rows worse than chance would "
    "(AUROC {:.3f}). Check which column is which class."
)
WORSE = "Warning: the predictions are worse than the class frequencies, whose log loss is {:.4f}{}."


@dataclass(frozen=True)
class Errors:
    """Standard errors over rows: of the calibration error, and of the loss above that of frequencies."""

    calibration: float = math.nan
    excess: float = math.nan


UNKNOWN = Errors()


def standard_errors(
    found: Evaluation, labels: Any, probs: Any, calibrated: Any, weights: Any
) -> Errors:
    """Return both standard errors, of differences paired by row."""
    if not math.isfinite(found.log.risk):
        return UNKNOWN
    before, after = (
        row_losses(labels, each, classes=range(found.k)) for each in (probs, calibrated)
    )
    shares = np.array([one.share for one in found.per_class])
    frequencies = -np.log(shares[np.asarray(labels)])
    differences = (paired_difference(before, other, weights) for other in (after, frequencies))
    return Errors(*(each.standard_error for each in differences))


def calibration_interval(found: Evaluation, errors: Errors = UNKNOWN) -> tuple[float, float]:
    """Return a 95% confidence interval of the calibration error, normal on the scale of its square root.

    Near the best beta the calibration error C is quadratic in beta, so its root is about normal, even where C
    is 0. The standard error of the root is 1 / sqrt(2 n) for true probabilities: the interval then excludes 0
    if and only if the likelihood-ratio test of beta = 1 rejects. Where rows vary more than that, it is
    s / (2 sqrt C), with the standard error s of C over rows.
    """
    root = math.sqrt(max(found.log.calibration, 0.0))
    error = 1 / math.sqrt(2 * found.n_effective)
    if root and not math.isnan(errors.calibration):
        error = max(error, errors.calibration / (2 * root))
    return max(root - NOISE * error, 0.0) ** 2, (root + NOISE * error) ** 2


def classify(found: Evaluation, errors: Errors = UNKNOWN) -> str:
    """Return which of the ``VERDICTS`` holds."""
    log = found.log
    if not 0 < log.risk < math.inf:
        return "infinite" if log.risk else "perfect"
    low, high = calibration_interval(found, errors)
    if low == 0 or log.calibration < CALIBRATED * log.risk:
        if found.ece > max(UNCALIBRATED, MORE * CHANCE / math.sqrt(found.n_effective)):
            return "other error"
        return "calibrated" if high < WORTH_CORRECTING * log.risk else "too few rows"
    if log.refinement < SEPARATED * log.risk:
        return "separated"
    if is_flat(found):
        above, noise = found.auroc - 0.5, NOISE * _auroc_error(found)
        return "level" if above > noise else "reversed" if above < -noise else "random"
    beta = 1.0 if log.beta is None else log.beta
    return "off" if abs(beta - 1) <= 0.05 else "overconfident" if beta < 1 else "underconfident"


def verdict(found: Evaluation, errors: Errors = UNKNOWN) -> str:
    """Return in a sentence what the numbers mean; the calibration error is given with its interval."""
    log, finite = found.log, 0 < found.log.risk < math.inf
    low, high = calibration_interval(found, errors) if finite else (0.0, 0.0)
    case, digits = classify(found, errors), error_decimals((high - low) / 2)
    if low > 0 and case != "calibrated":  # which is not shown as 0
        digits = min(max(digits, -math.floor(math.log10(low))), MOST_DECIMALS)
    rows = count(found.n, "row")
    if found.n_effective < 0.9 * found.n:
        rows += f" with these weights (about {number(found.n_effective, 0)} without)"
    return VERDICTS[case].format(
        share=percent(log.calibration / log.risk) if finite else "",
        error=f"{number(log.calibration, digits)} (95% interval {interval(low, high, digits)})",
        most=percent(min(high / log.risk, 1.0)) if finite else "",
        ece=f"{found.ece:.2f}",
        rows=rows,
        auroc="" if math.isnan(found.auroc) else f" (AUROC {found.auroc:.3f})",
        calibrator="calibration" if log.beta is None else "temperature scaling",
    )


def is_flat(found: Evaluation) -> bool:
    """Return whether the best temperature makes all classes equally likely, up to chance.

    The likelihood-ratio test of beta = 0, whose loss is log k, with one degree of freedom.
    """
    beta, gain = found.log.beta, math.log(found.k) - found.log.refinement
    return beta is not None and (beta < 1e-12 or 2 * found.n_effective * gain < NOISE**2)


def _auroc_error(found: Evaluation) -> float:
    """Return the standard error of the AUROC of random predictions.

    That is Mann and Whitney's, (n + 1) / (12 a b) of a rows against b, n = a + b, without ties, which only
    lower it; for several classes the mean, an upper bound that is reached if their areas move together.
    """
    counts = [(one.n, found.n - one.n) for one in found.per_class if not math.isnan(one.auroc)]
    heavier = found.n / found.n_effective  # by what weights increase the variance
    errors = [math.sqrt(heavier * (found.n + 1) / (12 * a * b)) for a, b in counts if a and b]
    return sum(errors) / len(errors) if errors else math.inf


def cautions(found: Evaluation, errors: Errors = UNKNOWN) -> list[str]:
    """Return what looks wrong: classes that may be swapped, or predictions worse than class frequencies."""
    log, points = found.log, []
    if found.auroc < 0.5 - NOISE * _auroc_error(found):
        points.append(SWAPPED.format(found.auroc))
    if log.risk - log.uncertainty > NOISE * errors.excess:
        even = ", even after the best temperature" if log.refinement >= log.uncertainty else ""
        points.append(WORSE.format(log.uncertainty, even))
    return points


def advice(found: Evaluation, errors: Errors = UNKNOWN) -> list[str]:
    """Return cautions and what to do about predictions."""
    log, case = found.log, classify(found, errors)
    points = cautions(found, errors)
    if case in ("off", "overconfident", "underconfident"):
        if log.beta and log.calibration > WORTH_CORRECTING * log.risk:
            points.append(ADVICE["temperature"].format(temperature=f"{1 / log.beta:.3g}"))
    elif case == "other error":
        points.append(ADVICE["flexible"])
    elif case in ("calibrated", "too few rows") and not points:
        points.append(ADVICE["nothing" if case == "calibrated" else "more rows"])
    if found.n < FEW_ROWS and case in ("too few rows", "off", "overconfident", "underconfident"):
        points.append(IN_SAMPLE)
    return points
