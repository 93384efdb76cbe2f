"""What numbers mean, in words: for reports and for the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refinecal.evaluation import Evaluation

WORTH_A_WORD = 0.01  # part of the loss


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
    how = ""
    if share > WORTH_A_WORD and log.beta is not None and abs(log.beta - 1) > 0.05:
        how = ": the model is " + ("over-confident" if log.beta < 1 else "under-confident")
    return f"{share:.1%} of the log loss is calibration error, which one number removes{how}."


def advice(found: Evaluation) -> list[str]:
    """Return what to do about predictions."""
    log = found.log
    points = []
    if log.beta is not None and math.isfinite(log.risk) and log.calibration > 0.02 * log.risk:
        points.append(
            f"What to do: multiply the logits by {log.beta:.3g} (temperature {1 / max(log.beta, 1e-9):.3g}), "
            "which refinecal.TemperatureScaling does; fit it on other rows than those you judge by."
        )
    elif math.isfinite(log.risk):
        points.append(
            "What to do: nothing about calibration; a better model or more features would help."
        )
    points.append(
        "How sure: calibration error is measured on the rows that the temperature was fitted to, so on few "
        "rows it is a little too large."
    )
    return points
