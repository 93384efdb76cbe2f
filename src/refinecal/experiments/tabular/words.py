"""What the comparisons of a run mean, in sentences: for the report and for the terminal."""

from __future__ import annotations

import math

from refinecal.experiments.tabular.analysis import Analysis, method_word
from refinecal.experiments.tabular.differences import FEW_SETS, LEVEL, Compared, Summary
from refinecal.report.cells import number

__all__ = ["chance", "counted", "lead", "sentence", "signed", "span"]


def signed(value: float, digits: int = 2) -> str:
    """Return a percentage with its sign; never minus 0.

    >>> signed(-0.123), signed(0.001), signed(float("nan"))
    ('−0.12 %', '0.00 %', '–')
    """
    return "–" if not math.isfinite(value) else f"{_plain(value, digits)} %"


def span(found: Summary) -> str:
    """Return the 95 % interval of the mean.

    >>> from refinecal.experiments.tabular.differences import summarise
    >>> span(summarise([1.0])), span(summarise([1.0, 1.0]))
    ('–', '+1.00 to +1.00')
    """
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return "–"
    return f"{_plain(found.low)} to {_plain(found.high)}"


def _plain(value: float, digits: int = 2) -> str:
    rounded = round(value, digits) + 0.0
    text = f"{rounded:+.{digits}f}" if rounded else f"{rounded:.{digits}f}"
    return text.replace("-", "−")


def counted(found: Summary) -> str:
    """Return better, tied and worse sets beyond noise, if that could be told."""
    return "–" if found.wins is None else f"{found.wins}/{found.ties}/{found.losses}"


def chance(found: Summary) -> str:
    """Say how many sets would seem different if none were.

    >>> from refinecal.experiments.tabular.differences import summarise
    >>> chance(summarise([0.0] * 40, [0] * 40))
    'chance alone: about 1.0 each way'
    """
    return f"chance alone: about {found.sets * LEVEL / 2:.1f} each way"


def sentence(found: Compared) -> str:
    """Say how stopping by refinement compares with log loss."""
    over = found.summary
    sets = "1 set" if over.sets == 1 else f"{number(over.sets)} sets"
    said = f"{method_word(found.method, found.mode)}: {_on_average(over)} over {sets}"
    if over.wins is not None:
        said += (
            f"; within a set, {over.wins} better beyond noise, {over.ties} ties, {over.losses} worse "
            f"({chance(over)})"
        )
    return f"{said}. {_all_told(over)}"


def _on_average(over: Summary) -> str:
    if over.sets == 1:
        return f"{signed(over.mean)} test log loss"
    return f"{signed(over.mean)} test log loss on average (95 %: {span(over)}), median {signed(over.median)},"


def _all_told(over: Summary) -> str:
    if over.sets < FEW_SETS:
        return "Too few sets to tell."
    words = {
        "lower": "Over all sets refinement is better, beyond noise.",
        "higher": "Over all sets refinement is worse, beyond noise.",
        "within noise": "Over all sets the difference is within noise.",
        "mean lower": "The mean is lower beyond noise, but few sets may rule it.",
        "mean higher": "The mean is higher beyond noise, but few sets may rule it.",
        "ranks lower": "Over the sets that differ at all, Wilcoxon's test finds refinement better, but the "
        "mean is within noise.",
        "ranks higher": "Over the sets that differ at all, Wilcoxon's test finds refinement worse, but the "
        "mean is within noise.",
        "mixed": "The ranks of the differences say one thing, and their mean the other.",
    }
    return words[over.verdict]


def lead(analysis: Analysis) -> str:
    """Say in a sentence what stopping by refinement instead of log loss changed."""
    found = analysis.headlines
    if not found:
        return "Log loss and refinement were not both tracked, so they cannot be compared."
    if len(found) == 1:
        over = found[0].summary
        return (
            "Stopping by refinement instead of log loss changed the test log loss after temperature scaling "
            f"by {signed(over.mean)} on average. {_all_told(over)}"
        )
    lower, higher = (
        sum(each.summary.verdict == way for each in found) for way in ("lower", "higher")
    )
    counts = f"{lower or 'none'} of {len(found)} comparisons"
    rest = len(found) - lower - higher
    undecided = "" if not rest else f"; {rest} {'is' if rest == 1 else 'are'} undecided"
    return (
        "Stopping by refinement instead of log loss lowered the test log loss, beyond noise, in "
        f"{counts}, and raised it in {higher or 'none'}{undecided}."
    )
