"""What the comparisons of trainings on images mean, in sentences: for the report and for the terminal."""

from __future__ import annotations

import math

from refinecal.experiments.vision.analysis import Analysis, group_word
from refinecal.experiments.vision.intervals import Mean, Paired
from refinecal.experiments.vision.results import Group

__all__ = ["chance", "gap", "lead", "measured", "sentence", "signed"]

DECIMALS = 3  # of the paper's tables
GAP_DECIMALS = 4  # of differences, which are small


def measured(found: Mean, score: str = "log_loss", digits: int = DECIMALS) -> str:
    """Return a mean with half its interval, as the paper prints it.

    >>> measured(Mean(10, 0.1541, 0.0049)), measured(Mean(10, 0.951, 0.002), "accuracy")
    ('0.154 ± 0.005', '95.1 % ± 0.2')
    >>> measured(Mean(1, 0.1541, float("nan"))), measured(Mean(0, float("nan"), float("nan")))
    ('0.154', '')
    """
    if not math.isfinite(found.mean):
        return "" if math.isnan(found.mean) else "∞"
    if score == "accuracy":
        text, half = f"{100 * found.mean:.{digits - 2}f} %", f"{100 * found.half:.{digits - 2}f}"
    else:
        text, half = f"{found.mean:.{digits}f}", f"{found.half:.{digits}f}"
    return text + (f" ± {half}" if math.isfinite(found.half) else "")


def gap(found: Mean | Paired, score: str = "log_loss", digits: int = GAP_DECIMALS) -> str:
    """Return a difference with its sign and half its interval; that of accuracy in percentage points.

    >>> gap(Mean(10, -0.00312, 0.001)), gap(Mean(10, 0.002, 0.0011), "accuracy"), gap(Mean(1, 0.0, math.nan))
    ('−0.0031 ± 0.0010', '+0.20 ± 0.11', '0.0000')
    """
    if not math.isfinite(found.mean):
        return "" if math.isnan(found.mean) else "∞" if found.mean > 0 else "−∞"
    scale, digits = (100.0, digits - 2) if score == "accuracy" else (1.0, digits)
    text = signed(scale * found.mean, digits)
    return text + (f" ± {scale * found.half:.{digits}f}" if math.isfinite(found.half) else "")


def signed(value: float, digits: int) -> str:
    """Return a number with its sign; never minus 0."""
    rounded = round(value, digits) + 0.0
    return (f"{rounded:+.{digits}f}" if rounded else f"{rounded:.{digits}f}").replace("-", "−")


def sentence(analysis: Analysis, group: Group) -> str:
    """Say how stopping by refinement compares with log loss in one group."""
    found = analysis.headlines[group]
    loss = analysis.compared_to(group)
    runs = "1 run" if found.runs == 1 else f"{found.runs} runs"
    said = (
        f"{group_word(group)}, over {runs}: {gap(found)} in test log loss ({signed(loss, 1)} %), lower in "
        f"{found.lower}, equal in {found.equal}, higher in {found.higher}"
    )
    return f"{said}. {VERDICTS[found.verdict]}"


def chance(p: float) -> str:
    """Return a p-value in few letters.

    >>> chance(0.0317), chance(1e-9), chance(float("nan"))
    ('0.032', '< 0.001', '')
    """
    return "" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


VERDICTS = {
    "lower": "Refinement chose better, beyond what seeds change.",
    "higher": "Refinement chose worse, beyond what seeds change.",
    "within noise": "The difference is within what seeds change.",
    "equal": "Both chose equally good epochs.",
    "too few runs": "One run cannot tell what another seed would change.",
}


def lead(analysis: Analysis) -> str:
    """Say in a sentence what stopping by refinement instead of log loss changed."""
    found = analysis.headlines
    if not found:
        return "Log loss and refinement were not both tracked, so they cannot be compared."
    if len(found) == 1:
        (group,) = found
        loss = analysis.compared_to(group)
        if not loss:
            return (
                f"{group_word(group)}: stopping by refinement instead of log loss left the test log loss "
                "after temperature scaling as it was."
            )
        way = "lowered" if loss < 0 else "raised"
        return (
            f"{group_word(group)}: stopping by refinement instead of log loss {way} the test log loss after "
            f"temperature scaling by {abs(loss):.1f} %. {VERDICTS[found[group].verdict]}"
        )
    verdicts = [each.verdict for each in found.values()]
    lower, higher = verdicts.count("lower"), verdicts.count("higher")
    rest = len(verdicts) - lower - higher
    undecided = "" if not rest else f"; {rest} {'is' if rest == 1 else 'are'} undecided"
    return (
        "Stopping by refinement instead of log loss lowered the test log loss, beyond what seeds change, in "
        f"{lower or 'none'} of {len(verdicts)} comparisons, and raised it in {higher or 'none'}{undecided}."
    )
