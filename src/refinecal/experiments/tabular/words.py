"""What the comparisons of a run mean, in sentences: for the report and for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from refinecal._core.format import number
from refinecal.experiments.tabular.analysis import Analysis, Ends, method_word
from refinecal.experiments.tabular.differences import FEW_SETS, LEVEL, Comparison, Summary

__all__ = [
    "APART",
    "chance",
    "count_wins",
    "describe_cut_short",
    "lead",
    "sentence",
    "signed",
    "span",
]

NAMED = 2  # comparisons that a headline can name with their numbers; more are counted
CHANGED = "the test log loss after temperature scaling"
NEEDED = f"it takes at least {FEW_SETS}"
TOO_FEW = f"Too few data sets to tell: {NEEDED}."
APART = (
    "Tuned is the best of the random configurations, among which the default parameters are not: with few "
    "configurations it may be worse than default."
)
SHORTLY = {  # each verdict, for the change of the mean that stands before it
    "lower": "better",
    "higher": "worse",
    "within noise": "within noise",
    "mean lower": "better by the interval only",
    "mean higher": "worse by the interval only",
    "ranks lower": "better by the rank test only",
    "ranks higher": "worse by the rank test only",
    "mixed": "interval and rank test disagree",
    "too few sets": "too few data sets",
}


def signed(value: float, digits: int = 2) -> str:
    """Return a percentage with its sign; never minus 0.

    >>> signed(-0.123), signed(0.001), signed(float("nan"))
    ('−0.12 %', '0.00 %', '–')
    """
    return "–" if not math.isfinite(value) else f"{_signed_number(value, digits)} %"


def span(found: Summary) -> str:
    """Return the 95 % interval of the mean.

    >>> from refinecal.experiments.tabular.differences import summarise
    >>> span(summarise([1.0])), span(summarise([1.0, 1.0]))
    ('–', '+1.00 to +1.00')
    """
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return "–"
    return f"{_signed_number(found.low)} to {_signed_number(found.high)}"


def _signed_number(value: float, digits: int = 2) -> str:
    rounded = round(value, digits) + 0.0
    text = f"{rounded:+.{digits}f}" if rounded else f"{rounded:.{digits}f}"
    return text.replace("-", "−")


def count_wins(found: Summary) -> str:
    """Return the sets won, tied and lost, if that could be told."""
    return "–" if found.wins is None else f"{found.wins}/{found.ties}/{found.losses}"


def chance(found: Summary) -> str:
    """Say how many sets would seem different if none were.

    >>> from refinecal.experiments.tabular.differences import summarise
    >>> chance(summarise([0.0] * 40, [0] * 40))
    'chance alone: about 1.0 each way'
    """
    return f"chance alone: about {found.sets * LEVEL / 2:.1f} each way"


def sentence(found: Comparison) -> str:
    """Say how stopping by refinement compares with log loss."""
    over = found.summary
    sets = "1 set" if over.sets == 1 else f"{number(over.sets)} sets"
    said = f"{method_word(found.method, found.mode)}: {_on_average(over)} over {sets}"
    if over.wins is not None:
        said += (
            f"; taken by themselves, {over.wins} won, {over.ties} tied, {over.losses} lost "
            f"({chance(over)})"
        )
    return f"{said}. {_overall_verdict(over)}"


def _on_average(over: Summary) -> str:
    if over.sets == 1:
        return f"{signed(over.mean)} test log loss"
    return f"{signed(over.mean)} test log loss on average (95 %: {span(over)}), median {signed(over.median)},"


def _overall_verdict(over: Summary) -> str:
    if over.sets < FEW_SETS:
        return TOO_FEW
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
    """Say in a sentence or two what stopping by refinement instead of log loss changed."""
    found = analysis.headlines
    if not found:
        return "Log loss and refinement were not both tracked, so they cannot be compared."
    if len(found) > NAMED:
        return _lead_by_counts(found)
    said = f"Stopping by refinement instead of log loss changed {CHANGED}"
    if len(found) == 1:
        over = found[0].summary
        return f"{said} by {signed(over.mean)} on average. {_overall_verdict(over)}"
    few = [each.summary.sets < FEW_SETS for each in found]
    named = "; ".join(_summarize(each, with_verdict=not all(few)) for each in found)
    said += f" on average: {named}."
    if all(few):
        return f"{said} {TOO_FEW}"
    return f"{said} Where there are too few data sets to tell, {NEEDED}." if any(few) else said


def _summarize(found: Comparison, with_verdict: bool) -> str:
    said = f"{method_word(found.method, found.mode)} by {signed(found.summary.mean)}"
    return f"{said} ({SHORTLY[found.summary.verdict]})" if with_verdict else said


def _lead_by_counts(found: Sequence[Comparison]) -> str:
    """Say how many of many comparisons went which way, and what they are."""
    verdicts = [each.summary.verdict for each in found]
    lower, higher, few = (verdicts.count(each) for each in ("lower", "higher", "too few sets"))
    said, cases = "Stopping by refinement instead of log loss", _models(found)
    if few == len(found):
        return f"{said} was tried in {len(found)} cases ({cases}). {TOO_FEW}"
    if lower or higher:
        rest = len(found) - lower - higher
        said += (
            f" clearly lowered the test log loss in {lower or 'none'} of {len(found)} cases and raised it in "
            f"{higher or 'none'}; {rest or 'none'} {'is' if rest == 1 else 'are'} undecided ({cases})."
        )
    else:
        said += f" clearly changed the test log loss in none of {len(found)} cases ({cases})."
    if not few:
        return said
    return f"{said} {few} {'has' if few == 1 else 'have'} too few data sets to tell: {NEEDED}."


def _models(found: Sequence[Comparison]) -> str:
    """Name what was compared: methods, each with its modes."""
    modes: dict[str, list[str]] = {}
    for each in found:
        modes.setdefault(method_word(each.method), []).append(each.mode)
    if len({tuple(some) for some in modes.values()}) == 1:
        some = next(iter(modes.values()))
        return f"{_and(list(modes))}, {'each ' if len(some) > 1 else ''}{_and(some)}"
    return "; ".join(method_word(each.method, each.mode) for each in found)


def _and(words: Sequence[str]) -> str:
    """Return words as a list in a sentence.

    >>> _and(["a", "b", "c"]), _and(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def describe_cut_short(ends: Sequence[Ends]) -> str:
    """Say which trainings may have been too short; nothing if few end at their best.

    >>> print(describe_cut_short([Ends("mlp", "default", 20, 50, 2, 9, could_be_longer=True)]))
    Perhaps too short: the best step by refinement (by log loss) is the last in 9 (2) of 20 trainings \
of MLP, default. Train longer: a new run with a larger --max-steps.
    """
    many = [each for each in ends if each.are_many]
    if not many:
        return ""
    named = "; ".join(
        f"{each.refinement} ({each.log_loss}) of {each.trainings}{'' if place else ' trainings'} of "
        f"{method_word(each.method, each.mode)}"
        for place, each in enumerate(many)
    )
    said = f"Perhaps too short: the best step by refinement (by log loss) is the last in {named}."
    if any(each.could_be_longer for each in many):
        return f"{said} Train longer: a new run with a larger --max-steps."
    return f"{said} Longer trainings might do better."
