"""What numbers mean, in words: for reports and for the terminal."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from refinecal.report.cells import GAP, MISSING, number

if TYPE_CHECKING:
    from refinecal.evaluation import Evaluation

WORTH_A_WORD = 0.01  # part of the loss
CALIBRATED = 0.005  # part of the loss: less calibration error is none
CHANCE = 0.4 * math.sqrt(15)  # of right probabilities, about the largest mean ECE, times sqrt(n)
MORE = 1.5  # times the mean, which right probabilities hardly ever reach
UNCALIBRATED = 0.05  # expected calibration error that more than chance explains, on many rows
PERCENT = re.compile(r"(?<=\d) ?%(?=[\s.,;:)]|$)")  # not in a quoted name
ONE = re.compile(r"(?<![\d.\u202f])1 (test )?rows\b")
BRIER = "Brier's score sums over all classes: for two classes it is twice that of scikit-learn."


def spaced(text: str) -> str:
    """Return a sentence with a narrow space before each percent sign, and one row in the singular.

    >>> spaced("10.5% or 2 % of '5%' (1 rows)").replace(GAP, "_")
    "10.5_% or 2_% of '5%' (1 row)"
    """
    return ONE.sub(r"1 \1row", PERCENT.sub(f"{GAP}%", text))


def tile(value: float) -> str:
    """Return a big number with four decimals, for those who want to know whether it is 0 too.

    >>> tile(0.25), tile(0.00001), tile(0.0), tile(float("inf"))
    ('0.2500', '< 0.0001', '0.0000', '∞')
    """
    if math.isnan(value):
        return MISSING
    return "< 0.0001" if 0 < value < 0.00005 else number(float(value), 4)


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
    if share < CALIBRATED:
        little = f"a temperature would remove less than 0.5{GAP}% of the log loss"
        if found.ece > max(UNCALIBRATED, MORE * CHANCE / math.sqrt(found.n)):
            return f"No temperature helps ({little}), but the ECE of {found.ece:.2f} is not small."
        return f"The probabilities are calibrated: {little}."
    how = ""
    if share > WORTH_A_WORD and log.beta is not None and abs(log.beta - 1) > 0.05:
        how = ": the model is " + ("over-confident" if log.beta < 1 else "under-confident")
    return spaced(
        f"{share:.1%} of the log loss is calibration error, which one number removes{how}."
    )


def cautions(found: Evaluation) -> list[str]:
    """Return what looks wrong: predictions of other classes, or worse than none."""
    log, points = found.log, []
    if found.auroc < 0.5 or (log.beta == 0 and math.isfinite(log.risk)):
        points.append(
            "The classes may be swapped: the predictions rank the rows no better than chance "
            f"(AUROC {found.auroc:.3f}). Check which column is which class."
        )
    if log.uncertainty < log.risk < math.inf:
        points.append(
            f"The predictions are worse than the class frequencies, whose log loss is {log.uncertainty:.4f}."
        )
    return points


def advice(found: Evaluation) -> list[str]:
    """Return what to do about predictions."""
    log = found.log
    points = [f"Look twice: {text}" for text in cautions(found)]
    if log.beta and math.isfinite(log.risk) and log.calibration > 0.02 * log.risk:
        points.append(
            f"What to do: multiply the logits by {log.beta:.3g} (temperature {1 / log.beta:.3g}), "
            "which refinecal.TemperatureScaling does; fit it on other rows than those you judge by."
        )
    elif math.isfinite(log.risk) and not points:
        points.append(
            "What to do: nothing about calibration; a better model or more features would help."
        )
    points.append(
        "How sure: calibration error is measured on the rows that the temperature was fitted to, so on few "
        "rows it is a little too large."
    )
    return points
