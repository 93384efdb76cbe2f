"""The conclusions of an experiment on images in numbers and sentences, for the report and the terminal."""

from __future__ import annotations

import math
from collections import Counter

from refinecal._core.format import MINUS
from refinecal.experiments.reporting import count, join_names, signed
from refinecal.experiments.vision.analysis import METRIC_WORDS, Analysis, group_word
from refinecal.experiments.vision.intervals import Mean, PairedDifference
from refinecal.experiments.vision.results import Group

DECIMALS = 3  # of the paper's tables
GAP_DECIMALS = 4  # of differences, which are small
MOST_DECIMALS = 4  # of percentages that would be 0.0 with fewer
VERDICTS = {
    "lower": "Refinement chose better, beyond what seeds change.",
    "higher": "Refinement chose worse, beyond what seeds change.",
    "within noise": "The difference is within what seeds change.",
    "equal": "Both chose equally good epochs.",
    "too few runs": "One run cannot tell what another seed would change.",
}
START = "Stopping by refinement instead of log loss"


def format_mean(found: Mean, score: str = "log_loss", digits: int = DECIMALS) -> str:
    """Return a mean ± its standard error.

    >>> format_mean(Mean(10, 0.1541, 0.0049)), format_mean(Mean(10, 0.951, 0.002), "accuracy")
    ('0.154 ± 0.002', '95.1% ± 0.1')
    >>> format_mean(Mean(1, 0.1541, float("nan"))), format_mean(Mean(0, float("nan"), float("nan")))
    ('0.154', '')
    """
    if not math.isfinite(found.mean):
        return "" if math.isnan(found.mean) else "∞"
    scale, unit, digits = (100.0, "%", digits - 2) if score == "accuracy" else (1.0, "", digits)
    return f"{scale * found.mean:.{digits}f}{unit}{_plus_minus(scale * found.error, digits)}"


def format_gap(
    found: Mean | PairedDifference, score: str = "log_loss", digits: int = GAP_DECIMALS
) -> str:
    """Return a difference with its sign ± its standard error; that of accuracy in percentage points.

    >>> format_gap(Mean(10, -0.00312, 0.001)), format_gap(Mean(10, 0.002, 0.0011), "accuracy")
    ('−0.0031 ± 0.0004', '+0.20 ± 0.05')
    >>> format_gap(Mean(1, 0.0, math.nan))
    '0.0000'
    """
    if not math.isfinite(found.mean):
        return "" if math.isnan(found.mean) else "∞" if found.mean > 0 else f"{MINUS}∞"
    scale, digits = (100.0, digits - 2) if score == "accuracy" else (1.0, digits)
    return signed(scale * found.mean, digits) + _plus_minus(scale * found.error, digits)


def _plus_minus(error: float, digits: int) -> str:
    return f" ± {error:.{digits}f}" if math.isfinite(error) else ""


def format_interval(found: PairedDifference) -> str:
    """Return the 95% interval of a difference; nothing for a single run."""
    if math.isnan(found.half):
        return ""
    return f"{signed(found.low, GAP_DECIMALS)} to {signed(found.high, GAP_DECIMALS)}"


def percent(value: float) -> str:
    """Return a percentage with one decimal, or as many as a small number needs not to be 0.

    >>> percent(-2.04), percent(0.032), percent(0.0), percent(1e-9)
    ('−2.0%', '+0.03%', '0.0%', '0.0000%')
    """
    digits = (n for n in range(1, MOST_DECIMALS) if not value or round(value, n))
    return f"{signed(value, next(digits, MOST_DECIMALS))}%"


def format_p(p: float) -> str:
    """Return a p-value.

    >>> format_p(0.0317), format_p(1e-9), format_p(float("nan"))
    ('0.032', '< 0.001', '')
    """
    return "" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"


def sentence(analysis: Analysis, group: Group) -> str:
    """Return how stopping by refinement compares with log loss in one group."""
    found = analysis.headlines[group]
    interval = f", 95% interval {format_interval(found)}" if found.runs > 1 else ""
    return (
        f"{group_word(group)}, over {count(found.runs, 'run')}: {signed(found.mean, GAP_DECIMALS)} in test "
        f"log loss ({percent(analysis.relative_headline(group))}{interval}), lower in {found.lower}, "
        f"equal in {found.equal}, higher in {found.higher}. {VERDICTS[found.verdict]}"
    )


def lead(analysis: Analysis) -> str:
    """Return in a sentence what stopping by refinement instead of log loss changed."""
    found = analysis.headlines
    if not found:
        return "Log loss and refinement were not both tracked, so they cannot be compared."
    if len(found) == 1:
        ((group, only),) = found.items()
        change = analysis.relative_headline(group)
        by = f"changed it by {percent(change)}" if change else "left it unchanged"
        return (
            f"Test log loss of {group_word(group)} after temperature scaling: stopping by refinement instead "
            f"of log loss {by}. {VERDICTS[only.verdict]}"
        )
    verdicts = Counter(
        "equal" if each.equal == each.runs else each.verdict for each in found.values()
    )
    lower, higher, equal = (verdicts[name] for name in ("lower", "higher", "equal"))
    return (
        f"{START} lowered the test log loss, beyond what seeds change, in {lower} of {len(found)} "
        f"comparisons and raised it in {higher}; {equal} equal, "
        f"{len(found) - lower - higher - equal} undecided."
    )


def describe_flat(analysis: Analysis) -> list[str]:
    """Return where the best temperature is infinite, so that all classes are equally likely after TS."""
    said = []
    for group in analysis.groups:
        runs = analysis.results.of(group)
        alike: dict[tuple[int, ...], list[str]] = {}  # metrics, by the seeds in which it is so
        for metric in analysis.metrics(group):
            seeds = tuple(each.key.seed for each in runs if each.at(metric, "val.beta") == 0)
            alike.setdefault(seeds, []).append(METRIC_WORDS[metric])
        said += [
            f"In {len(seeds)} of {count(len(runs), 'training run')} of {group_word(group)} the best "
            f"temperature is infinite at the epoch that {join_names(names)} chose: after TS all classes are "
            "equally likely there."
            for seeds, names in alike.items()
            if seeds
        ]
    return said
