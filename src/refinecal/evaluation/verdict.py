"""What an evaluation means, in words: one of a few cases, each with one sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from refinecal._core.format import count, number, percent

if TYPE_CHECKING:
    from refinecal.evaluation import Evaluation

CALIBRATED = 0.005  # part of the loss: less calibration error is not worth mentioning
WORTH_CORRECTING = 0.02  # part of the loss; rows that could not show it do not show calibration
CHANCE = 0.4 * math.sqrt(15)  # of true probabilities, about the largest mean ECE, times sqrt(n)
MORE = 1.5  # times that mean, which true probabilities hardly ever reach
SEPARATED = 1e-6  # part of the loss that remains if every row is ranked correctly
UNCALIBRATED = 0.05  # ECE beyond chance, on many rows
NOISE = 1.96  # standard errors, which chance exceeds 5 times out of 100
FEW_ROWS = 1000  # fewer rows get a word of caution

IN_SAMPLE = (
    "Caution: calibration error is measured on the rows that the temperature was fitted to, so on few rows "
    "it is slightly overestimated."
)
BRIER = "The Brier score sums over all classes: for two classes it is twice scikit-learn's."
ELSEWHERE = "on rows that you do not evaluate on"
VERDICTS = {
    "perfect": "Every prediction is certain and correct.",
    "infinite": "A label has probability 0, so the log loss is infinite.",
    "calibrated": "The probabilities are calibrated: temperature scaling would remove less than 0.5% of the "
    "log loss.",
    "too few rows": "Temperature scaling would remove less than 0.5% of the log loss, but {rows} are too few "
    "to show that the probabilities are calibrated.",
    "chance": "{share} of the log loss is calibration error ({error}), which may be chance on {rows}.",
    "other error": "Temperature scaling would remove only {share} of the log loss, but the ECE of {ece} is "
    "more than chance explains.",
    "separated": "The predictions rank every row correctly, so these rows do not show how confident the "
    "model should be.",
    "level": "No temperature helps: the best one makes all classes about equally likely. But the predictions "
    "rank the rows{auroc}: a calibrator with an intercept may correct their level.",
    "random": "The predictions are no better than chance{auroc}: the best temperature makes all classes "
    "about equally likely.",
    "reversed": "The predictions are worse than chance{auroc}: the best temperature makes all classes about "
    "equally likely.",
    "off": "{share} of the log loss is calibration error ({error}), which temperature scaling removes.",
    "overconfident": "{share} of the log loss is calibration error ({error}), which temperature scaling "
    "removes: the model is overconfident.",
    "underconfident": "{share} of the log loss is calibration error ({error}), which temperature scaling "
    "removes: the model is underconfident.",
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


def classify(found: Evaluation) -> str:
    """Return which of the ``VERDICTS`` holds."""
    log = found.log
    if not 0 < log.risk < math.inf:
        return "infinite" if log.risk else "perfect"
    share = log.calibration / log.risk
    if share < CALIBRATED or _may_be_chance(found):
        is_off = found.ece > max(UNCALIBRATED, MORE * CHANCE / math.sqrt(found.n_effective))
        shows = 2 * found.n_effective * WORTH_CORRECTING * log.risk > NOISE**2
        case = "chance" if share >= CALIBRATED else "calibrated" if shows else "too few rows"
        return "other error" if is_off else case
    if log.refinement < SEPARATED * log.risk:
        return "separated"
    if is_flat(found):
        above, noise = found.auroc - 0.5, NOISE * _auroc_error(found)
        return "level" if above > noise else "reversed" if above < -noise else "random"
    if log.beta is None or abs(log.beta - 1) <= 0.05:
        return "off"
    return "overconfident" if log.beta < 1 else "underconfident"


def verdict(found: Evaluation, standard_error: float = math.nan) -> str:
    """Return in a sentence what the numbers mean; the calibration error is given with its standard error."""
    log = found.log
    error = number(log.calibration, 4)
    if not math.isnan(standard_error):
        error += f" ± {number(standard_error, 4)} s.e."
    return VERDICTS[classify(found)].format(
        share=percent(log.calibration / log.risk) if 0 < log.risk < math.inf else "",
        error=error,
        ece=f"{found.ece:.2f}",
        rows=count(found.n, "row"),
        auroc="" if math.isnan(found.auroc) else f" (AUROC {found.auroc:.3f})",
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


def _may_be_chance(found: Evaluation) -> bool:
    """Return whether a temperature fitted to these rows gains no more than it would on true probabilities.

    Twice the gain in log-likelihood, 2 n times the calibration error, then has one degree of freedom.
    """
    return found.log.beta is not None and 2 * found.n_effective * found.log.calibration < NOISE**2


def cautions(found: Evaluation) -> list[str]:
    """Return what looks wrong: classes that may be swapped, or predictions worse than class frequencies."""
    log, points = found.log, []
    if found.auroc < 0.5 - NOISE * _auroc_error(found):
        points.append(SWAPPED.format(found.auroc))
    if log.uncertainty < log.risk < math.inf:
        even = ", even after the best temperature" if log.refinement >= log.uncertainty else ""
        points.append(WORSE.format(log.uncertainty, even))
    return points


def advice(found: Evaluation) -> list[str]:
    """Return cautions and what to do about predictions."""
    log, case, points = found.log, classify(found), cautions(found)
    if case in ("off", "overconfident", "underconfident"):
        if log.beta and log.calibration > WORTH_CORRECTING * log.risk:
            points.append(ADVICE["temperature"].format(temperature=f"{1 / log.beta:.3g}"))
    elif case == "other error":
        points.append(ADVICE["flexible"])
    elif case in ("calibrated", "too few rows", "chance") and not points:
        points.append(ADVICE["nothing" if case == "calibrated" else "more rows"])
    if found.n < FEW_ROWS and case in ("chance", "off", "overconfident", "underconfident"):
        points.append(IN_SAMPLE)
    return points
