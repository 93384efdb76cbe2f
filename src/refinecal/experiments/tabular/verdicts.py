"""The conclusions of a run in sentences, for the report and for the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from refinecal._core.format import MISSING
from refinecal.experiments.reporting import signed
from refinecal.experiments.tabular.analysis import Analysis, Ends, method_word
from refinecal.experiments.tabular.differences import FEW_SETS, LEVEL, Comparison, Summary

NAMED = 2  # comparisons that a headline can name with their numbers; more are counted
START = "Stopping by refinement instead of log loss"
CHANGED = "the test log loss after temperature scaling"
APART = (
    "Tuned is the best of the random configurations, which do not include the default parameters: with few "
    "configurations it may be worse than default."
)
BY_RANKS = (
    "Wilcoxon's test finds refinement {} over the sets that differ, but the mean is within noise."
)
VERDICTS = {  # in a few words, and as a sentence
    "lower": ("better", "Over all sets refinement is better, beyond noise."),
    "higher": ("worse", "Over all sets refinement is worse, beyond noise."),
    "within noise": ("within noise", "Over all sets the difference is within noise."),
    "mean lower": (
        "better by the interval only",
        "The mean is lower beyond noise, but may be driven by a few sets.",
    ),
    "mean higher": (
        "worse by the interval only",
        "The mean is higher beyond noise, but may be driven by a few sets.",
    ),
    "ranks lower": ("better by the rank test only", BY_RANKS.format("better")),
    "ranks higher": ("worse by the rank test only", BY_RANKS.format("worse")),
    "mixed": (
        "interval and rank test disagree",
        "The mean and the ranks of the differences point in opposite directions.",
    ),
    "too few sets": (
        "too few data sets",
        f"Too few data sets to tell: at least {FEW_SETS} are needed.",
    ),
}


def percent(value: float) -> str:
    """Return a percentage with its sign.

    >>> percent(-0.123), percent(float("nan"))
    ('−0.12%', '–')
    """
    return f"{signed(value)}%" if math.isfinite(value) else MISSING


def span(found: Summary) -> str:
    """Return the 95% interval of the mean.

    >>> from refinecal.experiments.tabular.differences import summarize
    >>> span(summarize([1.0])), span(summarize([1.0, 1.0]))
    ('–', '+1.00 to +1.00')
    """
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return MISSING
    return f"{signed(found.low)} to {signed(found.high)}"


def count_wins(found: Summary) -> str:
    """Return the sets won, tied and lost, if known."""
    return MISSING if found.wins is None else f"{found.wins}/{found.ties}/{found.losses}"


def sentence(found: Comparison) -> str:
    """Return how stopping by refinement compares with log loss."""
    over = found.summary
    said = f"{method_word(found.method, found.mode)}: {percent(over.mean)} test log loss"
    if over.sets == 1:
        said += " on 1 set"
    else:
        said += (
            f" on average over {over.sets} sets (95% interval {span(over)}), median "
            f"{percent(over.median)}"
        )
    if over.wins is not None:
        by_chance = f"{over.sets * LEVEL / 2:.1f}"
        said += (
            f"; single sets: {over.wins} won, {over.ties} tied, {over.losses} lost (expected by chance: "
            f"{by_chance} won, {by_chance} lost)"
        )
    return f"{said}. {VERDICTS[over.verdict][1]}"


def lead(analysis: Analysis) -> str:
    """Return in a sentence or two what stopping by refinement instead of log loss changed."""
    found = analysis.headlines
    if not found:
        return "Log loss and refinement were not both tracked, so they cannot be compared."
    if len(found) == 1:
        over = found[0].summary
        return f"{START} changed {CHANGED} by {percent(over.mean)} on average. {VERDICTS[over.verdict][1]}"
    names = [method_word(each.method, each.mode) for each in found]
    if len(found) <= NAMED:
        named = (
            f"{name} by {percent(each.summary.mean)} ({VERDICTS[each.summary.verdict][0]})"
            for name, each in zip(names, found, strict=True)
        )
        return f"{START} changed {CHANGED} on average: {'; '.join(named)}."
    verdicts = Counter(each.summary.verdict for each in found)
    lower, higher, few = (verdicts[name] for name in ("lower", "higher", "too few sets"))
    why = f" ({few} with too few data sets: at least {FEW_SETS} are needed)" if few else ""
    return (
        f"{START} clearly lowered the test log loss in {lower} of {len(found)} cases and raised it in "
        f"{higher}; {len(found) - lower - higher} undecided{why}. Cases: {'; '.join(names)}."
    )


def describe_cut_short(ends: Sequence[Ends]) -> str:
    """Return which training runs may have been too short; nothing if few end at their best step.

    >>> print(describe_cut_short([Ends("mlp", "default", 20, 50, 2, 9, could_be_longer=True)]))
    Perhaps too short: in many training runs the best step is the last. MLP, default: by refinement in 9 of \
20 runs, by log loss in 2. Train longer: start a new run with a larger --max-steps.
    """
    many = [each for each in ends if each.are_many]
    if not many:
        return ""
    named = "; ".join(
        f"{method_word(each.method, each.mode)}: by refinement in {each.refinement} of {each.trainings} "
        f"runs, by log loss in {each.log_loss}"
        for each in many
    )
    said = f"Perhaps too short: in many training runs the best step is the last. {named}."
    if any(each.could_be_longer for each in many):
        return f"{said} Train longer: start a new run with a larger --max-steps."
    return f"{said} Longer runs might do better."
