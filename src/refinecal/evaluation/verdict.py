"""What numbers mean, in words: for reports and for the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from refinecal._core.format import tidy_sentence

if TYPE_CHECKING:
    from refinecal.evaluation import Evaluation

WORTH_A_WORD = 0.01  # part of the loss
CALIBRATED = 0.005  # part of the loss: less calibration error is none
CHANCE = 0.4 * math.sqrt(15)  # of right probabilities, about the largest mean ECE, times sqrt(n)
MORE = 1.5  # times the mean, which right probabilities hardly ever reach
SEPARATED = 1e-6  # part of the loss that is left where no row is wrong
UNCALIBRATED = 0.05  # expected calibration error that more than chance explains, on many rows
NOISE = 1.96  # standard errors, beyond which chance alone goes 5 times out of 100
IN_SAMPLE = (
    "How sure: calibration error is measured on the rows that the temperature was fitted to, so on few "
    "rows it is a little too large."
)
BRIER = "Brier's score sums over all classes: for two classes it is twice that of scikit-learn."


def verdict(found: Evaluation) -> str:
    """Say in a sentence what the numbers mean."""
    log = found.log
    if not 0 < log.risk < math.inf:
        return (
            "A label has probability 0, so the log loss is infinite: no prediction should be that sure."
            if log.risk
            else "Every prediction is certain and right."
        )
    share = log.calibration / log.risk
    if share < CALIBRATED or _may_be_chance(found):
        return tidy_sentence(_about_little(found, share))
    if log.refinement < SEPARATED * log.risk:
        return (
            "The predictions rank every row right, so that the surest would be the best: these rows cannot "
            "tell how sure the model should be."
        )
    if is_flat(found):
        return _about_flat(found)
    how = ""
    if share > WORTH_A_WORD and log.beta is not None and abs(log.beta - 1) > 0.05:
        how = ": the model is " + ("over-confident" if log.beta < 1 else "under-confident")
    return tidy_sentence(
        f"{share:.1%} of the log loss is calibration error, which one number removes{how}."
    )


def _about_little(found: Evaluation, share: float) -> str:
    """Say what it means that a temperature removes nothing, or no more than chance would."""
    little = "a temperature would remove less than 0.5 % of the log loss"
    if share >= CALIBRATED:
        little = f"the best removes {share:.1%} of the log loss, which may be chance"
    if found.ece > max(UNCALIBRATED, MORE * CHANCE / math.sqrt(found.n_effective)):
        return f"No temperature helps ({little}), but the ECE of {found.ece:.2f} is not small."
    if share < CALIBRATED:
        return f"The probabilities are calibrated: {little}."
    return (
        f"{share:.1%} of the log loss is calibration error, which may be chance on {found.n} rows."
    )


def is_flat(found: Evaluation) -> bool:
    """Tell whether the best temperature makes all classes equally likely, but for chance.

    The likelihood-ratio test of beta = 0, whose loss is log k, with one degree of freedom.
    """
    beta, gain = found.log.beta, math.log(found.k) - found.log.refinement
    return beta is not None and (beta < 1e-12 or 2 * found.n_effective * gain < NOISE**2)


def _about_flat(found: Evaluation) -> str:
    """Say what it means that the best temperature makes all classes equally likely."""
    area, noise = found.auroc, NOISE * _auroc_error(found)
    if area > 0.5 + noise:
        return (
            "No temperature helps: the best one makes all classes about equally likely. But the predictions "
            f"rank the rows (AUROC {area:.3f}): a calibrator with an intercept may correct their level."
        )
    how = "worse than" if area < 0.5 - noise else "no better than"
    known = "" if math.isnan(area) else f" (AUROC {area:.3f})"
    return (
        f"The predictions are {how} chance{known}: the best temperature makes all classes about equally "
        "likely."
    )


def _auroc_error(found: Evaluation) -> float:
    """Return the standard error of the AUROC of predictions that know nothing.

    That is Mann and Whitney's, (n + 1) / (12 a b) of a rows against b, n = a + b, without ties, which only
    lessen it; of several classes the mean, as if their areas moved together, which is the most it can be.
    """
    counts = [(one.n, found.n - one.n) for one in found.per_class if not math.isnan(one.auroc)]
    heavier = found.n / found.n_effective  # by what weights make the variance larger
    errors = [math.sqrt(heavier * (found.n + 1) / (12 * a * b)) for a, b in counts if a and b]
    return sum(errors) / len(errors) if errors else math.inf


def _may_be_chance(found: Evaluation) -> bool:
    """Tell whether a temperature fitted to these rows gains no more than it would on right probabilities.

    Twice the gain in log-likelihood, 2 n times the calibration error, has then one degree of freedom.
    """
    return found.log.beta is not None and 2 * found.n_effective * found.log.calibration < NOISE**2


def cautions(found: Evaluation) -> list[str]:
    """Return what looks wrong: predictions of other classes, or worse than none."""
    log, points = found.log, []
    if found.auroc < 0.5 - NOISE * _auroc_error(found):
        points.append(
            "The classes may be swapped: the predictions rank the rows worse than chance would "
            f"(AUROC {found.auroc:.3f}). Check which column is which class."
        )
    if log.uncertainty < log.risk < math.inf:
        ever = ", even after the best temperature" if log.refinement >= log.uncertainty else ""
        points.append(
            "The predictions are worse than the class frequencies, whose log loss is "
            f"{log.uncertainty:.4f}{ever}."
        )
    return points


def advice(found: Evaluation) -> list[str]:
    """Return what to do about predictions."""
    log = found.log
    points = [f"Look twice: {text}" for text in cautions(found)]
    worth = log.calibration > 0.02 * log.risk and not _may_be_chance(found)
    if log.beta and not is_flat(found) and math.isfinite(log.risk) and worth:
        points.append(
            f"What to do: multiply the logits by {log.beta:.3g} (temperature {1 / log.beta:.3g}), "
            "which refinecal.TemperatureScaling does; fit it on other rows than those you judge by."
        )
    elif math.isfinite(log.risk) and not points:
        points.append(
            "What to do: nothing about calibration; a better model or more features would help."
        )
    return [*points, IN_SAMPLE]
